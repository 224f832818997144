"""Where dense linear algebra runs: NumPy on the CPU, or torch on a device. All in float64.

NumPy arrays and torch tensors share the operators, slices and reductions that the code of the SDP
uses. A `Backend` is the list of what they do not share: how an array is made, converted,
concatenated and factorized. The code of the SDP is written once, for arrays of any backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ...errors import LipoptError
from ...numerics.arrays import Array, Matrix, as_csr, dense
from ...numerics.convolution import Convolution
from ...numerics.devices import as_sparse_tensor, import_torch


@dataclass(frozen=True, eq=False)
class Operator:
    """A matrix to multiply with, and its transpose, each stored so that @ is fast."""

    matrix: Any  # (n, m) for all problems, dense or sparse; or (problems, n, m), dense
    transposed: Any

    @staticmethod
    def of_dense(matrix: Any) -> Operator:
        """The operator of a dense array of any backend; the transpose is a view."""
        return Operator(matrix, matrix.mT)


@dataclass(frozen=True)
class Backend:
    """The operations on arrays of one library and device.

    Functions of several matrices take an array with the matrices along its first axis."""

    library: Literal["numpy", "torch"]
    device: str
    array: Callable[[Any], Any]  # an array of the backend from a NumPy array
    numpy: Callable[[Any], Array]  # a NumPy array from an array of the backend
    zeros: Callable[[tuple[int, ...]], Any]
    concatenate: Callable[..., Any]  # of a list of arrays, along an axis
    log: Callable[[Any], Any]
    # A CSR matrix or a convolution in the form that @ is fast with.
    sparse: Callable[[Matrix], Any]
    orthonormal: Callable[[Any], Any]  # for every matrix, a basis of the span of its columns
    # For every matrix its lower factor, and whether it has one (the identity stands in if not).
    cholesky: Callable[[Any], tuple[Any, Array]]
    solve_lower: Callable[[Any, Any], Any]  # L^-1 B, for every L and B

    def stack(self, matrices: Sequence[Matrix]) -> Any:
        """Matrices, dense or CSR, as one dense array, the first axis for the matrices."""
        return self.array(_join([np.asarray(dense(matrix)) for matrix in matrices]))

    def operator(self, matrices: Sequence[Matrix]) -> Operator:
        """The operator of one matrix, of any kind, or of several as one dense array."""
        first = matrices[0]
        if len(matrices) > 1:
            return Operator.of_dense(self.stack(matrices))
        if sp.issparse(first) or isinstance(first, Convolution):
            return Operator(self.sparse(first), self.sparse(first.T))
        return Operator.of_dense(self.array(first))


def backend(device: str | None) -> Backend:
    """NumPy for None; otherwise torch on the device of that name."""
    if device is None:
        return _numpy_backend()
    return _torch_backend(device)


def sizes(vectors: Any) -> Any:
    """The lengths of vectors along the last axis, in arrays of any backend."""
    return (vectors * vectors).sum(-1) ** 0.5


@contextmanager
def enough_memory(device: str) -> Iterator[None]:
    """Turn a device's out-of-memory error into one that says what to do."""
    try:
        yield
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        raise LipoptError(
            f"device '{device}' has not enough memory for this problem;"
            " leave it out to run on the CPU"
        ) from error


def _numpy_backend() -> Backend:
    def array(values: Any) -> Array:
        return np.ascontiguousarray(values, dtype=np.float64)

    def sparse(matrix: Matrix) -> Matrix:
        return matrix if isinstance(matrix, Convolution) else as_csr(matrix)

    def orthonormal(matrices: Array) -> Array:
        return np.linalg.qr(matrices).Q

    def cholesky(matrices: Array) -> tuple[Array, Array]:
        roots = []
        exists = []
        for matrix in matrices:
            root = _cholesky_factor(matrix)
            exists.append(root is not None)
            if root is None:
                root = np.eye(len(matrix))
            roots.append(root)
        return _join(roots), np.array(exists)

    def solve_lower(roots: Array, right: Array) -> Array:
        solutions = []
        for root, b in zip(roots, right, strict=True):
            solution = scipy.linalg.solve_triangular(root, b, lower=True, check_finite=False)
            solutions.append(solution)
        return _join(solutions)

    return Backend(
        library="numpy",
        device="cpu",
        array=array,
        numpy=np.asarray,
        zeros=np.zeros,
        concatenate=np.concatenate,
        log=np.log,
        sparse=sparse,
        orthonormal=orthonormal,
        cholesky=cholesky,
        solve_lower=solve_lower,
    )


def _cholesky_factor(matrix: Array) -> Array | None:
    """The lower factor of one matrix; None if it has none, or an overflow made it useless."""
    try:
        root = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None
    if not np.isfinite(root).all():
        return None
    return root


def _join(arrays: list[Array]) -> Array:
    """Arrays of one shape along a new first axis; a single one is not copied."""
    if len(arrays) == 1:
        return arrays[0][None]
    return np.stack(arrays)


def _torch_backend(device: str) -> Backend:
    torch = import_torch(device)
    options = {"dtype": torch.float64, "device": device}

    def array(values: Any) -> Any:
        copied = np.array(values, dtype=np.float64, order="C")
        return torch.from_numpy(copied).to(device)

    def numpy(values: Any) -> Array:
        return values.cpu().numpy()

    def zeros(shape: tuple[int, ...]) -> Any:
        return torch.zeros(shape, **options)

    def sparse(matrix: Matrix) -> Any:
        return as_sparse_tensor(matrix, device)

    def orthonormal(matrices: Any) -> Any:
        return torch.linalg.qr(matrices).Q

    def cholesky(matrices: Any) -> tuple[Any, Array]:
        roots, info = torch.linalg.cholesky_ex(matrices)
        finite = torch.isfinite(roots).all(-1).all(-1)
        exists = (info == 0) & finite
        identity = torch.eye(matrices.shape[1], **options)
        return torch.where(exists[:, None, None], roots, identity), numpy(exists)

    def solve_lower(roots: Any, right: Any) -> Any:
        return torch.linalg.solve_triangular(roots, right, upper=False)

    return Backend(
        library="torch",
        device=device,
        array=array,
        numpy=numpy,
        zeros=zeros,
        concatenate=torch.cat,
        log=torch.log,
        sparse=sparse,
        orthonormal=orthonormal,
        cholesky=cholesky,
        solve_lower=solve_lower,
    )
