"""Fixed sparse matrices of the reader, applied to columns by gathering entries.

The reader writes maxima, poolings of maxima and gates as a few fixed matrices around activations,
with one or two entries in a row. Gathering applies them on every device, in every precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..numerics.arrays import Matrix, as_csr

Tensor = Any  # PyTorch is not seen by the type checker


@dataclass(frozen=True, eq=False)
class Gather:
    """A matrix by rows: every row has the same number of places, and a factor for each."""

    places: Tensor  # (rows, entries of a row)
    factors: Tensor  # the same; 0 where a row has fewer entries

    @staticmethod
    def of(matrix: Matrix, device: Any) -> Gather:
        rows = as_csr(matrix)
        counts = np.diff(rows.indptr)
        width = max(1, int(counts.max(initial=0)))
        places = np.zeros((rows.shape[0], width), np.int64)
        factors = np.zeros((rows.shape[0], width))
        taken = np.arange(width) < counts[:, None]
        places[taken] = rows.indices
        factors[taken] = rows.data
        return Gather(torch.from_numpy(places).to(device), torch.from_numpy(factors).to(device))

    def __call__(self, x: Tensor) -> Tensor:
        """The matrix times columns, given as (columns, entries)."""
        return self._apply(x, self.factors.to(x))

    def absolute(self, x: Tensor) -> Tensor:
        """The matrix of absolute values times columns."""
        return self._apply(x, self.factors.to(x).abs())

    def _apply(self, x: Tensor, factors: Tensor) -> Tensor:
        return (x[:, self.places] * factors).sum(-1)
