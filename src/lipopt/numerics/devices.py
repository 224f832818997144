"""Torch devices: whether there is one of that name, and arrays and matrices on it, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from .arrays import Matrix, as_csr


def import_torch(device: str) -> Any:
    """The module torch, after a first tensor showed that it works on the device."""
    try:
        import torch
    except ImportError as error:
        raise LipoptError(f"device '{device}' needs torch: pip install 'lipopt[torch]'") from error
    try:
        torch.zeros(1, dtype=torch.float64, device=device).numpy(force=True)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise LipoptError(
            f"device '{device}' is not available ({reason}); leave it out to run on the CPU"
        ) from error
    return torch


def as_tensor(values: Any, device: str) -> Any:
    """A copy of an array on a device; numbers of any precision become float64."""
    import torch

    array = np.asarray(values)
    if array.dtype == np.float32:
        array = array.astype(np.float64)
    return torch.tensor(array, device=device)


def as_sparse_tensor(matrix: Matrix, device: str) -> Any:
    """A CSR matrix or a convolution on a device, in the form that torch multiplies best."""
    import torch

    coordinates = sp.coo_array(as_csr(matrix))
    index = torch.from_numpy(np.stack(coordinates.coords).astype(np.int64))
    values = torch.from_numpy(coordinates.data.copy())
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        tensor = torch.sparse_coo_tensor(
            index, values, size=matrix.shape, dtype=torch.float64, device=device
        )
        return tensor.coalesce()
