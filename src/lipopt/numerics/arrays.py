"""Arrays and matrices: their types, the form they are kept in, and tensors as arrays."""

from __future__ import annotations

import io
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .convolution import Convolution

Array: TypeAlias = NDArray[Any]
Matrix: TypeAlias = Any  # a 2-d array, a csr_array or a Convolution; scipy has no types

SPARSE_BELOW = 0.25  # the share of nonzeros below which a matrix is kept as CSR


def as_array(values: Any) -> Any:
    """A torch tensor as an array in its own precision; everything else as it is.

    Half precision becomes float32, exactly. Torch itself is not imported."""
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    short = tensor.is_floating_point() and tensor.element_size() < 4
    return (tensor.float() if short else tensor).numpy()


def array_of_text(text: str, suffix: str, dimensions: Literal[1, 2]) -> Array:
    """The numbers of a .csv file, or of a .txt file with spaces between them."""
    if not any(line.partition("#")[0].strip() for line in text.splitlines()):
        raise ValueError("it is empty")
    delimiter = "," if suffix == ".csv" else None
    return np.loadtxt(io.StringIO(text), delimiter=delimiter, ndmin=dimensions, dtype=np.float64)


def as_index(value: Any) -> Any:
    """A torch tensor that holds one whole number as an int; everything else as it is."""
    is_whole = hasattr(value, "detach") and value.numel() == 1 and not value.is_floating_point()
    return int(value) if is_whole else value


def namespace(array: Any) -> Any:
    """The module whose functions take such an array: numpy, or torch for tensors."""
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


def tidy(matrix: Any) -> Matrix:
    """A matrix in the form it is kept in: float32 or float64, dense or CSR, no stored zeros."""
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    if isinstance(matrix, Convolution):
        return matrix
    if sp.issparse(matrix):
        sparse = sp.csr_array(matrix)
        sparse.sum_duplicates()
        sparse.eliminate_zeros()
        return sparse.toarray() if sparse.nnz > SPARSE_BELOW * prod(sparse.shape) else sparse
    if np.count_nonzero(matrix) <= SPARSE_BELOW * matrix.size:
        return sp.csr_array(matrix)
    return np.ascontiguousarray(matrix)


def dense(matrix: Matrix) -> Array:
    """A matrix as a 2-d array."""
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


def as_csr(matrix: Matrix) -> sp.csr_array:
    """A matrix as a CSR matrix in float64, with its entries written out."""
    written = matrix.tocsr() if isinstance(matrix, Convolution) else matrix
    return sp.csr_array(written, dtype=np.float64)


def has_nonzeros(matrix: Matrix) -> bool:
    """Whether a matrix has an entry that is not zero."""
    return bool(np.any(stored(matrix)))


def stored(matrix: Matrix) -> Array:
    """The entries of a matrix that are stored."""
    if isinstance(matrix, Convolution):
        return matrix.weight
    return matrix.data if sp.issparse(matrix) else matrix


def squares(matrix: Matrix) -> Matrix:
    """The matrix of the squares of all entries, in float64."""
    wide = matrix.astype(np.float64)
    return wide.squared() if isinstance(wide, Convolution) else wide * wide


def entries_by_row(matrix: Matrix) -> Array:
    """The number of stored entries in every row, as floats."""
    if isinstance(matrix, Convolution):
        return matrix.entries_by_row()
    if sp.issparse(matrix):
        return np.diff(matrix.tocsr().indptr).astype(np.float64)
    return np.full(matrix.shape[0], float(matrix.shape[1]))


def count_nonzeros(matrix: Matrix) -> int:
    """The number of entries that are not zero."""
    return matrix.size if isinstance(matrix, Convolution) else int((matrix != 0).sum())
