"""Tensors as views: which entry of which node stands at each place of a tensor.

Reshaping, transposing, slicing, padding and gathering only move places and cost nothing; a node is
made when values are computed. Convolutions and poolings read the places under their windows, and
so become sparse matrices directly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ..errors import LipoptError
from ..numerics.arrays import Array

ZERO = -1  # the place of an entry that is the constant zero
OUTSIDE = -2  # the place of what a window sees beyond the tensor: no entry at all

Pads = Sequence[tuple[int, int]]  # before and after, for every axis


@dataclass(frozen=True, eq=False)
class View:
    """A tensor: `index` has the tensor's shape and holds places in `node`, or ZERO."""

    node: int
    index: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.index.shape

    @property
    def size(self) -> int:
        return self.index.size

    def moved(self, move: Callable[[Array], Array]) -> View:
        """The view after an operation that only moves entries."""
        return View(self.node, np.asarray(move(self.index), order="C"))


def whole(node: int, shape: Sequence[int]) -> View:
    """All entries of a node, in the given shape."""
    return View(node, np.arange(prod(shape)).reshape(tuple(shape)))


def places_along(axis: int, index: Array) -> tuple[Array, ...]:
    """The places that a gather or scatter means: the index along one axis, all along the others.

    Along those, the index may end before the tensor does."""
    grid = list(np.ix_(*(np.arange(n) for n in index.shape)))
    grid[axis] = index
    return tuple(grid)


def windows(
    index: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
) -> Array:
    """The places under every window: (planes, *space) -> (planes, *out, *kernel)."""
    padded = np.pad(index, [(0, 0), *pads], constant_values=OUTSIDE)
    spans = [(k - 1) * step + 1 for k, step in zip(kernel, dilations, strict=True)]
    if any(span > n for span, n in zip(spans, padded.shape[1:], strict=True)):
        raise LipoptError(f"a window of {spans} does not fit an input of {list(padded.shape[1:])}")
    axes = tuple(range(1, len(kernel) + 1))
    seen = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=axes)
    starts = [slice(None, None, stride) for stride in strides]
    taps = [slice(None, None, step) for step in dilations]
    return seen[(slice(None), *starts, *taps)]


def ceil_pads(
    space: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
) -> list[tuple[int, int]]:
    """The padding that rounds the number of windows up.

    A last window must start inside the input or the padding before it."""
    result = []
    for n, k, s, (before, after), step in zip(space, kernel, strides, pads, dilations, strict=True):
        span = (k - 1) * step + 1
        count = -(-(n + before + after - span) // s) + 1
        if (count - 1) * s >= n + before:
            count -= 1
        needed = (count - 1) * s + span - n - before
        result.append((before, max(after, needed)))
    return result


def same_pads(
    space: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    more_before: bool,
) -> list[tuple[int, int]]:
    """The padding with which there are ceil(n / stride) windows; an odd one goes before or after."""
    pads = []
    for n, k, s, step in zip(space, kernel, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * step + 1 - n, 0)
        small = total // 2
        large = total - small
        pads.append((large, small) if more_before else (small, large))
    return pads
