"""A matrix proved positive semidefinite by a rounded Cholesky factor (the specification's Factors)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cholesky

from ..errors import LipoptError
from ..numerics.arrays import Array, Matrix, dense
from ..numerics.sparse_factor import SparseFactor
from .dyadic import join

FACTOR_BITS = 46  # binary digits of the factor after the point
MARGIN = 1e-7  # by which D S D, with a unit diagonal, must exceed L L^T
DOUBT_FACTOR = 2.0  # safety factor on the difference between the two programs' slopes
LARGEST_ORDER = 6000  # of a matrix that is factorized as a dense one
MOST_ENTRIES = 20_000_000  # of a sparse factor, each of which takes some 20 bytes in the file
# A factor is written sparsely if its matrix has this order at least, and at most these shares of
# its entries, and of those of the factor, are not zero.
LEAST_SPARSE_ORDER = 500
SPARSE_SHARE = 0.05
SPARSE_FACTOR_SHARE = 0.2


def factor_lines(S: Matrix, doubt: Array) -> list[str] | None:
    """The lines of a factor that proves S positive semidefinite, or None.

    The proof holds even if its rows and columns change by `doubt`, relative."""
    diagonal = S.diagonal()
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        return None
    scale = -np.rint(np.log2(diagonal) / 2).astype(np.int64)
    by_scale = sp.diags_array(np.ldexp(1.0, scale))
    scaled = by_scale @ S @ by_scale
    sizes = abs(scaled)
    margin = MARGIN + DOUBT_FACTOR * (sizes @ doubt + doubt * sizes.sum(axis=1))
    smallest = int(scale.min())
    head = f"scale {smallest + FACTOR_BITS} {join(1 << (int(k) - smallest) for k in scale)}"
    write_rows = _sparse_rows if _is_sparse(scaled) else _dense_rows
    rows = write_rows(scaled, margin)
    return None if rows is None else [head, *rows]


def _is_sparse(S: Matrix) -> bool:
    order = S.shape[0]
    if not sp.issparse(S) or order < LEAST_SPARSE_ORDER:
        return False
    return bool(S.nnz <= SPARSE_SHARE * order**2)


def _dense_rows(S: Matrix, margin: Array) -> list[str] | None:
    """The rows of a factor, from their first entry that is not zero to the diagonal."""
    order = S.shape[0]
    if order > LARGEST_ORDER:
        raise LipoptError(
            f"a certificate for a matrix of order {order} would be too large; the limit is"
            f" {LARGEST_ORDER}, but for those of convolutional networks"
        )
    S = dense(S)
    try:
        L = cholesky(S - np.diag(margin), lower=True)
    except LinAlgError:
        return None
    L = np.rint(np.ldexp(L, FACTOR_BITS))
    if not _is_dominant(S - np.ldexp(L @ L.T, -2 * FACTOR_BITS), margin):
        return None
    lines = []
    for i, row in enumerate(L.astype(np.int64)):
        first = min(i, int(np.argmax(row != 0)))
        lines.append(f"row {join(row[first : i + 1])}")
    return lines


def _sparse_rows(S: Matrix, margin: Array) -> list[str] | None:
    """The rows of a factor in an order of elimination: pairs of a column and an entry."""
    factor = SparseFactor.of(sp.csc_array(S - sp.diags_array(margin)))
    if factor is None:
        return None
    order = S.shape[0]
    entries = factor.factors.L.nnz
    if entries > SPARSE_FACTOR_SHARE * order**2:
        return _dense_rows(S, margin)
    if entries > MOST_ENTRIES:
        raise LipoptError(
            f"a certificate with a factor of {entries:,} entries would be too large; the limit is"
            f" {MOST_ENTRIES:,}"
        )
    rounded = factor.cholesky()
    rounded.data = np.rint(np.ldexp(rounded.data, FACTOR_BITS))
    places = factor.order
    product = rounded @ rounded.T
    product.data = np.ldexp(product.data, -2 * FACTOR_BITS)
    permuted = S[places, :][:, places]
    if not _is_dominant(permuted - product, margin[places]):
        return None
    rounded.eliminate_zeros()
    rounded.sort_indices()
    lines = [f"order {join(places)}"]
    for begin, end in zip(rounded.indptr[:-1], rounded.indptr[1:], strict=True):
        pairs = np.stack([rounded.indices[begin:end], rounded.data[begin:end]], axis=1)
        lines.append(f"row {join(pairs.astype(np.int64).reshape(-1))}")
    return lines


def _is_dominant(rest: Matrix, margin: Array) -> bool:
    """Whether what the factor leaves is diagonally dominant, with room."""
    diagonal = rest.diagonal()
    others = abs(rest).sum(axis=1) - np.abs(diagonal)
    return bool((diagonal - others > margin / 4).all())
