"""Positive semidefiniteness, proved in floating point (Rump, "Verification of positive definiteness", BIT 2006).

If a floating-point Cholesky factorization of S runs to the end, some S + E is positive semidefinite exactly, with
|E| <= gamma(n + 1) / (1 - gamma(n + 1)) trace(S) in the spectral norm. So S itself is positive semidefinite if the
factorization of S - c I runs to the end, with c larger than that.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cholesky

from .rounding import TINY, Array, Matrix, gamma, up_float

LARGEST = 4000  # order of the largest dense matrix a spectral norm is proved with


def is_positive_semidefinite(matrix: Array, error: float = 0.0) -> bool:
    """Whether every symmetric matrix within `error` of `matrix` (in the spectral norm) is proved positive semidefinite.

    False means that there is no proof. Only the lower triangle is read."""
    n = len(matrix)
    diagonal = np.diagonal(matrix)
    if n == 0:
        return error <= 0
    if not np.isfinite(diagonal).all() or (diagonal <= 0).any():
        return False
    shift = 1.1 * (gamma(n + 3) * float(diagonal.sum()) + error) + n * n * TINY
    shifted = matrix.copy()
    shifted[np.arange(n), np.arange(n)] = np.nextafter(diagonal - shift, -np.inf)
    try:
        return bool(np.isfinite(cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)).all())
    except LinAlgError:
        return False


def spectral_norm_up(matrix: Matrix) -> float:
    """An upper bound on the spectral norm: tight for matrices with a side of up to LARGEST, sqrt(|M|_1 |M|_inf) beyond."""
    sizes = abs(matrix)
    largest = float(sizes.max())
    if largest == 0:
        return 0.0
    rows, columns = (float(np.max(sizes.sum(axis=axis))) for axis in (1, 0))
    simple = up_float(np.sqrt(up_float(rows, matrix.shape[1])) * np.sqrt(up_float(columns, matrix.shape[0])), 4)
    n = min(matrix.shape)
    if n > LARGEST:
        return simple
    exponent = int(np.clip(np.frexp(largest)[1], -1000, 1000))
    scale = 2.0**-exponent  # exact, and keeps the squares below away from overflow and underflow
    matrix = matrix.astype(np.float64) * scale
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    gram = gram.toarray() if sp.issparse(gram) else np.asarray(gram)
    trace = float(np.trace(gram))
    error = gamma(max(matrix.shape) + 2) * trace * 1.01 + n * TINY
    top = float(np.linalg.eigvalsh(gram)[-1])
    bound = top * (1 + 1e-12) + 4 * gamma(n + 3) * (n * top + trace) + 2 * error
    for _ in range(60):
        if is_positive_semidefinite(np.eye(n) * bound - gram, error + gamma(2) * bound):
            return min(simple, up_float(np.sqrt(bound), 4) / scale)
        bound *= 1 + 1e-9
    return simple
