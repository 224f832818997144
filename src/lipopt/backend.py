"""Where dense linear algebra runs: NumPy, or torch tensors on a device. All in float64.

NumPy arrays and torch tensors share the operators, slices and reductions that the SDP code uses; what they do not share is here.
"""

from __future__ import annotations

from collections.abc import Callable
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
    concatenate: Callable[[list[Any]], Any]
    log: Callable[[Any], Any]
    operator: Callable[[Matrix], tuple[Any, Any]]  # a matrix, dense or CSR, and its transpose, in a form that @ is fast with
    cholesky: Callable[[Any], Any]  # the lower factor; None if there is none
    solve_lower: Callable[[Any, Any], Any]  # L^-1 B

    def dense(self, matrix: Matrix) -> Any:
        """A matrix, dense or CSR, as a dense array."""
        return self.array(matrix.toarray() if sp.issparse(matrix) else matrix)


def backend(device: str | None) -> Backend:
    """NumPy for None; otherwise torch on the device of that name."""
    return _numpy() if device is None else _torch(device)


def _numpy() -> Backend:
    def array(values: Any) -> Array:
        return np.ascontiguousarray(values, dtype=np.float64)

    def operator(matrix: Matrix) -> tuple[Matrix, Matrix]:
        if sp.issparse(matrix):
            return sp.csr_array(matrix, dtype=np.float64), sp.csr_array(matrix.T, dtype=np.float64)
        dense = array(matrix)
        return dense, dense.T

    def cholesky(matrix: Array) -> Array | None:
        try:
            factor = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            return None
        return factor if np.isfinite(factor).all() else None

    def solve_lower(factor: Array, right: Array) -> Array:
        return scipy.linalg.solve_triangular(factor, right, lower=True, check_finite=False)

    return Backend("cpu", array, np.asarray, np.zeros, np.concatenate, np.log, operator, cholesky, solve_lower)


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
        return torch.sparse_coo_tensor(index, values, size=matrix.shape, check_invariants=False, **options).coalesce()

    def operator(matrix: Matrix) -> tuple[Any, Any]:
        if sp.issparse(matrix):
            return sparse(matrix), sparse(matrix.T)
        dense = array(matrix)
        return dense, dense.T

    def cholesky(matrix: Any) -> Any:
        factor, info = torch.linalg.cholesky_ex(matrix)
        return factor if int(info) == 0 and bool(torch.isfinite(factor).all()) else None

    def solve_lower(factor: Any, right: Any) -> Any:
        return torch.linalg.solve_triangular(factor, right, upper=False)

    return Backend(
        device,
        array,
        lambda values: values.cpu().numpy(),
        lambda shape: torch.zeros(shape, **options),
        torch.cat,
        torch.log,
        operator,
        cholesky,
        solve_lower,
    )
