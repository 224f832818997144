"""Convolutions as matrices of which the weights alone are kept: they are applied, not written out.

The matrix of a convolution repeats a few weights at every position. One layer of a network of the
size of ResNet-18 has 38 million entries, of 37 thousand weights. A `Convolution` takes the place of
such a matrix where matrices are multiplied with arrays, scaled or taken in absolute value. Whatever
needs the entries themselves asks for `tocsr`.

Products are those of dense matrices, in float64: an entry is the sum of the same products that the
sparse matrix has, in some order, and of zeros. So the bounds on rounding errors of a sum
(numerics/rounding.py) hold, with as many terms as the matrix has entries in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]  # as in arrays.py, which reads this module

# Entries up to which a convolution is kept as a sparse matrix: 48 MB in float64.
LARGEST_WRITTEN = 4_000_000
# Entries of the largest array that a product makes, what the windows see: 32 MB.
LARGEST_SEEN = 2**22


@dataclass(frozen=True, eq=False)
class Convolution:
    """The matrix of a convolution, or some rows and columns of it.

    Its transpose is a convolution too: what a tap sees, it is seen by at one position at most."""

    weight: Array  # (groups, outputs of a group, inputs of a group, taps)
    places: Array  # (taps, positions): what a tap sees in a channel; `space` where that is padding
    space: int  # the number of places of a channel
    rows: Array | None = None  # those that are kept; None for all
    columns: Array | None = None

    ndim: ClassVar[int] = 2
    __array_ufunc__ = None  # NumPy then leaves products with arrays to `__rmatmul__`

    @property
    def dtype(self) -> Any:
        return self.weight.dtype

    @property
    def shape(self) -> tuple[int, int]:
        rows = self._all_rows if self.rows is None else len(self.rows)
        columns = self._all_columns if self.columns is None else len(self.columns)
        return rows, columns

    @cached_property
    def size(self) -> int:
        """The number of entries."""
        return int(self.entries_by_row().sum())

    @cached_property
    def terms(self) -> int:
        """The largest number of entries in a row, or more."""
        inputs = self.weight.shape[2]
        return int(inputs * (self.places < self.space).sum(axis=0).max())

    def entries_by_row(self) -> Array:
        """The number of entries in every row, as floats."""
        pattern = self._mapped(lambda weight: (weight != 0).astype(np.float64))
        return np.asarray(pattern @ np.ones(self.shape[1]))

    @property
    def T(self) -> Convolution:  # noqa: N802
        seen_at = np.full((len(self.places), self.space + 1), self._positions)
        taps = np.arange(len(self.places))[:, None]
        seen_at[taps, self.places] = np.arange(self._positions)
        weight = self.weight.swapaxes(1, 2)
        return Convolution(weight, seen_at[:, :-1], self._positions, self.columns, self.rows)

    def __abs__(self) -> Convolution:
        return self._mapped(np.abs)

    def __neg__(self) -> Convolution:
        return self._mapped(np.negative)

    def __mul__(self, factor: Any) -> Any:
        """All entries times a number; times an array, written out."""
        if np.ndim(factor):
            return self.tocsr() * factor
        return self._mapped(lambda weight: weight * factor)

    __rmul__ = __mul__

    def squared(self) -> Convolution:
        """The matrix of the squares of all entries."""
        return self._mapped(np.square)

    def astype(self, dtype: Any) -> Convolution:
        return self._mapped(lambda weight: weight.astype(dtype))

    def sum(self, axis: int) -> Array:
        """The sums over columns (axis 1) or over rows (axis 0)."""
        matrix = self if axis == 1 else self.T
        return np.asarray(matrix @ np.ones(matrix.shape[1]))

    def __getitem__(self, key: Any) -> Any:
        """Some rows, or some of both; as a sparse matrix if few entries are left."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        chosen = replace(
            self,
            rows=_chosen(self.rows, rows, self._all_rows),
            columns=_chosen(self.columns, columns, self._all_columns),
        )
        return chosen if chosen.size > LARGEST_WRITTEN else chosen.tocsr()

    def __matmul__(self, other: Any) -> Any:
        """The product with an array, or with a matrix, which is then written out."""
        if not isinstance(other, np.ndarray):
            written = other.tocsr() if isinstance(other, Convolution) else other
            return self.tocsr().astype(np.float64) @ written
        if len(other) != self.shape[1]:
            raise ValueError(f"a product of shapes {self.shape} and {other.shape}")
        columns = other[:, None] if other.ndim == 1 else other
        largest = max(1, LARGEST_SEEN // (self._channels * self.places.size))
        parts = []
        for start in range(0, max(1, columns.shape[1]), largest):
            part = columns[:, start : start + largest]
            parts.append(self._times(part))
        product = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return product[:, 0] if other.ndim == 1 else product

    def __rmatmul__(self, other: Any) -> Any:
        """The product from the left; that of a diagonal matrix is a convolution where it can be."""
        if isinstance(other, np.ndarray):
            return (self.T @ other.T).T
        return self.scaled(other.diagonal()) if _is_diagonal(other) else other @ self.tocsr()

    def __add__(self, other: Any) -> Any:
        return self.tocsr() + (other.tocsr() if isinstance(other, Convolution) else other)

    __radd__ = __add__

    def scaled(self, factors: Array) -> Any:
        """The matrix with its rows multiplied by factors.

        It is a convolution if all rows of a channel have the same factor."""
        channel = self._kept_rows // self._positions
        by_channel = np.ones(self._outputs)
        by_channel[channel] = factors
        if np.array_equal(by_channel[channel], factors):
            groups, outputs, _, _ = self.weight.shape
            by_output = by_channel.reshape(groups, outputs, 1, 1)
            return self._mapped(lambda weight: by_output * weight)
        return sp.csr_array(sp.diags_array(factors) @ self.tocsr())

    def tocsr(self) -> sp.csr_array:
        """The matrix with all entries written out."""
        return sp.csr_array(sp.vstack(list(self.row_parts()), format="csr"))

    def toarray(self) -> Array:
        """The matrix as a dense array."""
        return np.asarray(self.tocsr().toarray())

    def row_parts(self) -> Iterator[sp.csr_array]:
        """All rows written out, some at a time, from the first to the last."""
        _, _, inputs, taps = self.weight.shape
        count = max(1, LARGEST_WRITTEN // (inputs * taps))
        rows = self._kept_rows
        for start in range(0, max(1, len(rows)), count):
            part = self._written(rows[start : start + count])
            yield part if self.columns is None else sp.csr_array(part[:, self.columns])

    def _written(self, rows: Array) -> sp.csr_array:
        """Some rows of the whole matrix written out."""
        _, outputs, inputs, taps = self.weight.shape
        channel, position = np.divmod(rows, self._positions)
        first = (channel // outputs * inputs)[:, None] + np.arange(inputs)
        place = self.places.T[position]
        shape = (len(rows), inputs, taps)
        is_seen = np.broadcast_to((place < self.space)[:, None, :], shape)
        columns = (first * self.space)[:, :, None] + place[:, None, :]
        weight = self.weight.reshape(self._outputs, inputs, taps)[channel]
        starts = np.concatenate([[0], np.cumsum(is_seen.sum(axis=(1, 2)))])
        written = (weight[is_seen], columns[is_seen].astype(np.int32), starts)
        matrix = sp.csr_array(written, shape=(len(rows), self._all_columns))
        matrix.eliminate_zeros()
        matrix.sort_indices()
        return matrix

    def _times(self, x: Array) -> Array:
        """The matrix times columns."""
        groups, outputs, inputs, taps = self.weight.shape
        padded = np.zeros((self._channels, self.space + 1, x.shape[1]))
        padded[:, :-1] = _put(x, self.columns, self._all_columns).reshape(
            self._channels, self.space, -1
        )
        seen = padded.take(self.places, axis=1).reshape(groups, inputs * taps, -1)
        weight = self.weight.reshape(groups, outputs, inputs * taps).astype(np.float64)
        product = (weight @ seen).reshape(self._all_rows, x.shape[1])
        return product if self.rows is None else product[self.rows]

    def _mapped(self, function: Callable[[Array], Array]) -> Convolution:
        """The same matrix with other weights."""
        return replace(self, weight=function(self.weight))

    @property
    def _positions(self) -> int:
        return int(self.places.shape[1])

    @property
    def _channels(self) -> int:
        """The number of channels of what the convolution reads."""
        return int(self.weight.shape[0] * self.weight.shape[2])

    @property
    def _outputs(self) -> int:
        """The number of channels of what it computes."""
        return int(self.weight.shape[0] * self.weight.shape[1])

    @property
    def _all_rows(self) -> int:
        return self._outputs * self._positions

    @property
    def _all_columns(self) -> int:
        return self._channels * self.space

    @property
    def _kept_rows(self) -> Array:
        return np.arange(self._all_rows) if self.rows is None else self.rows


def _chosen(kept: Array | None, key: Any, count: int) -> Array | None:
    """Which of so many places are kept after indexing those that were; None for all, in order."""
    if isinstance(key, slice) and key == slice(None):
        return kept
    every = np.arange(count)
    places = (every if kept is None else kept)[key]
    return None if np.array_equal(places, every) else places


def _put(x: Array, places: Array | None, count: int) -> Array:
    """Rows of x in their places among so many rows of zeros."""
    if places is None:
        return x
    wide = np.zeros((count, x.shape[1]))
    np.add.at(wide, places, x)
    return wide


def _is_diagonal(matrix: sp.csr_array) -> bool:
    """Whether a sparse matrix is square and has entries on its diagonal alone."""
    rows, columns = matrix.nonzero()
    return matrix.shape[0] == matrix.shape[1] and np.array_equal(rows, columns)
