"""A matrix proved positive semidefinite by a rounded Cholesky factor (the specification's Factors)."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from ..errors import LipoptError
from ..numerics.arrays import Array
from .dyadic import join

FACTOR_BITS = 46  # binary digits of the factor after the point
MARGIN = 1e-7  # by which D S D, with a unit diagonal, must exceed L L^T
DOUBT_FACTOR = 2.0  # safety factor on the difference between the two programs' slopes
LARGEST_ORDER = 6000  # of a matrix that is factorized


def factor_lines(S: Array, doubt: Array) -> list[str] | None:
    """The lines of a factor that proves S positive semidefinite, or None.

    The proof holds even if its rows and columns change by `doubt`, relative."""
    order = len(S)
    diagonal = np.diagonal(S)
    if order > LARGEST_ORDER:
        raise LipoptError(
            f"a certificate for a matrix of order {order} would be too large; the limit is"
            f" {LARGEST_ORDER}"
        )
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        return None
    scale = -np.rint(np.log2(diagonal) / 2).astype(np.int64)
    S = np.ldexp(np.ldexp(S, scale), scale[:, None])
    margin = MARGIN + DOUBT_FACTOR * (np.abs(S) @ doubt + doubt * np.abs(S).sum(axis=1))
    try:
        L = cholesky(S - np.diag(margin), lower=True)
    except LinAlgError:
        return None
    L = np.rint(np.ldexp(L, FACTOR_BITS))
    rest = S - np.ldexp(L @ L.T, -2 * FACTOR_BITS)
    others = np.abs(rest).sum(axis=1) - np.abs(np.diagonal(rest))
    if not (np.diagonal(rest) - others > margin / 4).all():
        return None
    smallest = int(scale.min())
    lines = [f"scale {smallest + FACTOR_BITS} {join(1 << (int(k) - smallest) for k in scale)}"]
    for i, row in enumerate(L.astype(np.int64)):
        first = min(i, int(np.argmax(row != 0)))
        lines.append(f"row {join(row[first : i + 1])}")
    return lines
