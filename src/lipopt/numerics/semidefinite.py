"""Positive semidefiniteness, proved in floating point.

Rump, "Verification of positive definiteness", BIT 2006: if a floating-point Cholesky
factorization of S runs to the end, some S + E is positive semidefinite exactly, with |E| <=
gamma(n + 1) / (1 - gamma(n + 1)) trace(S) in the spectral norm. So S itself is positive
semidefinite if the factorization of S - c I runs to the end, with c larger than that.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from .arrays import Array, Matrix, dense, stored
from .rounding import TINY, gamma, up_float

MAX_ORDER = 4000  # order of the largest Gram matrix a spectral norm is proved with: 128 MB
MAX_TRIALS = 60  # bounds that are tried, each 1e-9 larger than the last
MAX_EXPONENT = 1000  # matrices are scaled by no more than 2 to this power, which is finite


def is_positive_semidefinite(matrix: Array, error: float = 0.0) -> bool:
    """Whether every symmetric matrix near `matrix` is proved positive semidefinite.

    Near means within `error` in the spectral norm. False means that there is no proof. Only the
    lower triangle is read."""
    n = len(matrix)
    diagonal = np.diagonal(matrix)
    if n == 0:
        return error <= 0
    if not np.isfinite(diagonal).all() or (diagonal <= 0).any():
        return False
    shift = 1.1 * (gamma(n + 3) * float(diagonal.sum()) + error) + n * n * TINY
    shifted = matrix.copy()
    places = np.arange(n)
    shifted[places, places] = np.nextafter(diagonal - shift, -np.inf)
    try:
        factor = cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return False
    return bool(np.isfinite(factor).all())


def spectral_norm_up(matrix: Matrix) -> float:
    """An upper bound on the spectral norm.

    Tight for matrices with a side of up to MAX_ORDER, sqrt(|M|_1 |M|_inf) beyond."""
    sizes = abs(matrix)
    largest = float(stored(sizes).max(initial=0.0))
    if largest == 0:
        return 0.0
    simple = _simple_norm_up(sizes)
    n = min(matrix.shape)
    if n > MAX_ORDER:
        return simple
    exponent = int(np.clip(np.frexp(largest)[1], -MAX_EXPONENT, MAX_EXPONENT))
    scale = 2.0**-exponent  # exact, and keeps the squares below away from overflow and underflow
    matrix = matrix.astype(np.float64) * scale
    gram = _gram(matrix)
    trace = float(np.trace(gram))
    error = gamma(max(matrix.shape) + 2) * trace * 1.01 + n * TINY
    top = float(np.linalg.eigvalsh(gram)[-1])
    bound = top * (1 + 1e-12) + 4 * gamma(n + 3) * (n * top + trace) + 2 * error
    for _ in range(MAX_TRIALS):
        if is_positive_semidefinite(np.eye(n) * bound - gram, error + gamma(2) * bound):
            return min(simple, up_float(np.sqrt(bound), 4) / scale)
        bound *= 1 + 1e-9
    return simple


def _simple_norm_up(sizes: Matrix) -> float:
    """sqrt(|M|_1 |M|_inf), rounded up, from the absolute values of M."""
    rows = float(np.max(sizes.sum(axis=1)))
    columns = float(np.max(sizes.sum(axis=0)))
    row_root = np.sqrt(up_float(rows, sizes.shape[1]))
    column_root = np.sqrt(up_float(columns, sizes.shape[0]))
    return up_float(row_root * column_root, 4)


def _gram(matrix: Matrix) -> Array:
    """M M' or M' M, whichever is smaller."""
    if matrix.shape[0] <= matrix.shape[1]:
        return dense(matrix @ matrix.T)
    return dense(matrix.T @ matrix)
