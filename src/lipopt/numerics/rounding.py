"""Outward rounding: the few facts on floating-point error that every proved bound here rests on.

A sum of n products computed in float64, in any order, is off by at most gamma(n) times the sum of the absolute
values (Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1), plus n times TINY for products that
underflow. Everything that is shown as a bound is widened by such an amount, in the safe direction.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import numpy as np
import scipy.sparse as sp

from .arrays import Array, Matrix
from .convolution import Convolution

UNIT = 2.0**-53
TINY = 2.0**-1060
DIGITS = 6  # of numbers that people read


def gamma(n: float) -> float:
    """A bound on the relative error of n roundings, itself rounded up."""
    if n * UNIT > 0.01:
        raise OverflowError("too many operations for a float64 error bound")
    return 1.02 * n * UNIT


def up(x: Array, n: float) -> Array:
    """An upper bound on a sum of at most n non-negative products whose computed value is x."""
    return np.nextafter(x * (1 + gamma(n + 2)) + (n + 1) * TINY, np.inf)


def up_float(x: float, n: float) -> float:
    """`up` for a single number."""
    return float(up(np.asarray(x), n))


def terms(matrix: Matrix) -> int:
    """The largest number of terms in a row of `matrix`: how many products one entry of `matrix @ x` sums."""
    if sp.issparse(matrix):
        by_row = np.diff(matrix.indptr) if matrix.format == "csr" else np.bincount(matrix.indices)
        return int(by_row.max(initial=0))
    if isinstance(matrix, Convolution):
        return matrix.terms
    return int(matrix.shape[1])


def times_up(matrix: Matrix, x: Array) -> Array:
    """An upper bound on |matrix| @ x for x >= 0."""
    return up(abs(matrix) @ x, terms(matrix))


def written_up(value: float) -> str:
    """Six digits, rounded up: a printed upper bound is an upper bound too."""
    return _written(value, ROUND_CEILING)


def written_down(value: float) -> str:
    """Six digits, rounded down, for lower bounds."""
    return _written(value, ROUND_FLOOR)


def _written(value: float, rounding: str) -> str:
    rounded = Context(prec=DIGITS, rounding=rounding).create_decimal(Decimal(value))
    is_plain = value == 0 or 1e-4 <= abs(value) < 1e7
    return f"{rounded:,f}" if is_plain else f"{rounded:e}"
