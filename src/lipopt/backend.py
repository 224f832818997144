"""Where dense linear algebra runs: NumPy, or torch tensors on a device. All in float64.

NumPy arrays and torch tensors share the operators, slices and reductions that the SDP code uses; what they do not share is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .errors import LipoptError
from .rounding import Array, Matrix


@dataclass(frozen=True)
class Backend:
    """The operations on arrays of one library and device."""

    device: str
    array: Callable[[Any], Any]  # from NumPy
    numpy: Callable[[Any], Array]
    zeros: Callable[[tuple[int, ...]], Any]
    concatenate: Callable[..., Any]  # a list of arrays, along an axis
    log: Callable[[Any], Any]
    sparse: Callable[[Matrix], Any]  # a CSR matrix in a form that @ is fast with
    orthonormal: Callable[[Any], Any]  # of every matrix, a basis of its columns' span
    cholesky: Callable[[Any], tuple[Any, Array]]  # of every matrix, the lower factor and whether there is one
    solve_lower: Callable[[Any, Any], Any]  # L^-1 B, for every L and B

    def stack(self, matrices: Sequence[Matrix]) -> Any:
        """Matrices, dense or CSR, as one dense array, the first axis for the matrices."""
        dense = [matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix) for matrix in matrices]
        return self.array(dense[0][None] if len(dense) == 1 else np.stack(dense))

    def operator(self, matrices: Sequence[Matrix]) -> tuple[Any, Any]:
        """What is multiplied with, and its transpose: one matrix, which may be sparse, or several as one dense array."""
        if len(matrices) == 1 and sp.issparse(matrices[0]):
            return self.sparse(matrices[0]), self.sparse(matrices[0].T)
        dense = self.array(matrices[0]) if len(matrices) == 1 else self.stack(matrices)
        return dense, dense.mT


def backend(device: str | None) -> Backend:
    """NumPy for None; otherwise torch on the device of that name."""
    return _numpy() if device is None else _torch(device)


@contextmanager
def enough_memory(device: str) -> Iterator[None]:
    """Say it plainly if a device runs out of memory."""
    try:
        yield
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        raise LipoptError(f"device '{device}' has not enough memory for this problem; leave it out to run on the CPU") from error


def _numpy() -> Backend:
    def array(values: Any) -> Array:
        return np.ascontiguousarray(values, dtype=np.float64)

    def sparse(matrix: Matrix) -> Matrix:
        return sp.csr_array(matrix, dtype=np.float64)

    def orthonormal(matrices: Array) -> Array:
        return np.linalg.qr(matrices).Q

    def factor(matrix: Array) -> Array | None:
        try:
            root = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            return None
        return root if np.isfinite(root).all() else None

    def cholesky(matrices: Array) -> tuple[Array, Array]:
        roots = [factor(matrix) for matrix in matrices]
        there = np.array([root is not None for root in roots])
        return join([np.eye(matrices.shape[1]) if root is None else root for root in roots]), there

    def solve_lower(roots: Array, right: Array) -> Array:
        pairs = zip(roots, right, strict=True)
        return join([scipy.linalg.solve_triangular(root, b, lower=True, check_finite=False) for root, b in pairs])

    def join(arrays: list[Array]) -> Array:
        return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)

    return Backend("cpu", array, np.asarray, np.zeros, np.concatenate, np.log, sparse, orthonormal, cholesky, solve_lower)


def _torch(device: str) -> Backend:
    try:
        import torch
    except ImportError as error:
        raise LipoptError(f"device '{device}' needs torch: pip install 'lipopt[torch]'") from error
    options = {"dtype": torch.float64, "device": device}
    try:
        torch.zeros(1, **options)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise LipoptError(f"device '{device}' is not available ({reason}); leave it out to run on the CPU") from error

    def array(values: Any) -> Any:
        return torch.from_numpy(np.array(values, dtype=np.float64, order="C")).to(device)

    def sparse(matrix: Matrix) -> Any:
        coordinates = sp.coo_array(matrix, dtype=np.float64)
        index = torch.from_numpy(np.stack(coordinates.coords).astype(np.int64))
        values = torch.from_numpy(coordinates.data.copy())
        with torch.sparse.check_sparse_tensor_invariants(enable=False):
            return torch.sparse_coo_tensor(index, values, size=matrix.shape, **options).coalesce()

    def cholesky(matrices: Any) -> tuple[Any, Array]:
        roots, info = torch.linalg.cholesky_ex(matrices)
        there = (info == 0) & torch.isfinite(roots).all(-1).all(-1)
        identity = torch.eye(matrices.shape[1], **options)
        return torch.where(there[:, None, None], roots, identity), there.cpu().numpy()

    def solve_lower(factor: Any, right: Any) -> Any:
        return torch.linalg.solve_triangular(factor, right, upper=False)

    return Backend(
        device,
        array,
        lambda values: values.cpu().numpy(),
        lambda shape: torch.zeros(shape, **options),
        torch.cat,
        torch.log,
        sparse,
        lambda matrices: torch.linalg.qr(matrices).Q,
        cholesky,
        solve_lower,
    )
