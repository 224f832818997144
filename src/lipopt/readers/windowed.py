"""Convolutions and pooling: operations that look at a tensor through windows.

Each takes a builder, views and constants, and returns a view, as the methods of `Builder` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..numerics.arrays import SPARSE_BELOW, Array, Matrix
from ..numerics.convolution import LARGEST_WRITTEN, Convolution
from .builder import Builder, from_rows, real
from .views import OUTSIDE, ZERO, Pads, View, ceil_pads, whole, windows


def convolution(
    b: Builder,
    name: str,
    x: View,
    weight: Array,
    bias: Array | None,
    *,
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    groups: int,
) -> View:
    """x (batch, channels, *space) with weight (outputs, channels / groups, *kernel)."""
    outputs = weight.shape[0]
    size = b.nodes[x.node].size
    matrix: Matrix
    kept = _kept_convolution(b, x, weight, strides, pads, dilations, groups)
    if kept is None:
        matrix, out = _convolution_matrix(x.index, size, weight, strides, pads, dilations, groups)
    else:
        matrix, out = kept
    shift = np.zeros(outputs) if bias is None else real(bias)
    shifts = np.tile(np.repeat(shift, prod(out)), x.shape[0])
    return whole(b.affine(name, [(x.node, matrix)], shifts), (x.shape[0], outputs, *out))


def transposed_convolution(
    b: Builder,
    name: str,
    x: View,
    weight: Array,
    bias: Array | None,
    *,
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    groups: int,
    out: Sequence[int],
) -> View:
    """The transpose of the convolution from the space `out` with the same weight.

    x is (batch, channels, *space), weight (channels, outputs / groups, *kernel)."""
    batch, _, *space = x.shape
    outputs = weight.shape[1] * groups
    index = np.arange(batch * outputs * prod(out)).reshape(batch, outputs, *out)
    matrix, _ = _convolution_matrix(
        index, index.size, weight, strides, pads, dilations, groups, positions=space
    )
    source = b.materialize(f"{name}.input", x)
    term = (source, sp.csr_array(matrix.T))
    shift = np.zeros(outputs) if bias is None else real(bias)
    shifts = np.tile(np.repeat(shift, prod(out)), batch)
    return whole(b.affine(name, [term], shifts), index.shape)


def average_pool(
    b: Builder,
    name: str,
    x: View,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Pads,
    *,
    dilations: Sequence[int] | None = None,
    count_pads: bool = False,
    ceil: bool = False,
    divisor: int | None = None,
) -> View:
    """Averages over windows; padding counts or not, what `ceil` adds beyond it never does."""
    batch, channels, *space = x.shape
    steps = [1] * len(kernel) if dilations is None else dilations
    wide = ceil_pads(space, kernel, strides, pads, steps) if ceil else pads
    beyond = [(0, w[1] - p[1]) for w, p in zip(wide, pads, strict=True)]
    planes = x.index.reshape(-1, *space)
    padding = ZERO if count_pads else OUTSIDE
    padded = np.pad(planes, [(0, 0), *pads], constant_values=padding)
    seen = windows(padded, kernel, strides, beyond, steps)
    out = seen.shape[1 : 1 + len(kernel)]
    flat = seen.reshape(-1, prod(kernel))
    counts = (flat != OUTSIDE).sum(axis=1) if divisor is None else np.full(len(flat), divisor)
    if (counts == 0).any():
        raise LipoptError("a pooling window lies wholly in the padding")
    data = np.repeat(1.0 / counts, prod(kernel))
    matrix = from_rows(flat, data, len(flat), b.nodes[x.node].size)
    node = b.affine(name, [(x.node, matrix)], np.zeros(len(flat)))
    return whole(node, (batch, channels, *out))


def adaptive_average_pool(b: Builder, name: str, x: View, sizes: Sequence[int]) -> View:
    """Averages over windows that cut each of the last axes into so many parts."""
    for size, axis in zip(sizes, range(len(x.shape) - len(sizes), len(x.shape)), strict=True):
        weight = np.zeros((size, x.shape[axis]))
        for k, part in enumerate(adaptive_windows(x.shape[axis], size)):
            weight[k, part] = 1.0 / (part.stop - part.start)
        x = b.along(name, x, axis, weight)
    return x


def max_pool(
    b: Builder,
    name: str,
    x: View,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    ceil: bool = False,
) -> View:
    """Maxima over windows; padding is left out."""
    batch, channels, *space = x.shape
    wide = ceil_pads(space, kernel, strides, pads, dilations) if ceil else pads
    x = b._materialized(name, x)
    seen = windows(x.index.reshape(-1, *space), kernel, strides, wide, dilations)
    out = seen.shape[1 : 1 + len(kernel)]
    flat = seen.reshape(batch, channels, *out, prod(kernel))
    if (flat == OUTSIDE).all(axis=-1).any():
        raise LipoptError("a pooling window lies wholly in the padding")
    return b.maximum(name, View(x.node, flat))


def adaptive_max_pool(b: Builder, name: str, x: View, sizes: Sequence[int]) -> View:
    """Maxima over windows that cut each of the last axes into so many parts."""
    for size, axis in zip(sizes, range(len(x.shape) - len(sizes), len(x.shape)), strict=True):
        x = _adaptive_maximum(b, name, x, axis, size)
    return x


def _adaptive_maximum(b: Builder, name: str, x: View, axis: int, size: int) -> View:
    """Maxima over windows that cut one axis into `size` parts."""
    parts = adaptive_windows(x.shape[axis], size)
    longest = max(part.stop - part.start for part in parts)
    places = np.full((size, longest), x.shape[axis])  # one past the end, which is OUTSIDE
    for k, part in enumerate(parts):
        places[k, : part.stop - part.start] = np.arange(part.start, part.stop)
    last = b._materialized(name, x).moved(lambda i: np.moveaxis(i, axis, -1))
    beyond = [(0, 0)] * (len(x.shape) - 1) + [(0, 1)]
    seen = last.moved(lambda i: np.pad(i, beyond, constant_values=OUTSIDE)[..., places])
    return b.maximum(name, seen).moved(lambda i: np.moveaxis(i, -1, axis))


def adaptive_windows(n: int, size: int) -> list[slice]:
    """The parts that adaptive pooling cuts n entries into; neighbours may share some."""
    return [slice(k * n // size, -(-(k + 1) * n // size)) for k in range(size)]


def _kept_convolution(
    b: Builder,
    x: View,
    weight: Array,
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    groups: int,
) -> tuple[Convolution, tuple[int, ...]] | None:
    """A convolution of which the weights alone are kept, and its output space.

    None where it is small or dense enough to be written out, or does not read a node as it stands."""
    batch, channels, *space = x.shape
    outputs, per_group, *kernel = weight.shape
    _check_channels(channels, weight, groups)
    if batch > 1 or not b.holds(x.node, x):
        return None
    channel = np.arange(prod(space)).reshape(1, *space)
    seen = windows(channel, kernel, strides, pads, dilations)
    out = seen.shape[1 : 1 + len(kernel)]
    places = seen.reshape(prod(out), prod(kernel)).T
    entries = outputs * per_group * int((places != OUTSIDE).sum())
    is_dense = entries > SPARSE_BELOW * outputs * prod(out) * channels * prod(space)
    if entries <= LARGEST_WRITTEN or is_dense:
        return None
    shape = (groups, outputs // groups, per_group, prod(kernel))
    kept = np.where(places == OUTSIDE, prod(space), places)
    return Convolution(real(weight).reshape(shape), kept, prod(space)), out


def _check_channels(channels: int, weight: Array, groups: int) -> None:
    outputs, per_group = weight.shape[:2]
    if channels != per_group * groups or outputs % groups:
        raise LipoptError(
            f"{channels} channels do not fit weights of shape {list(weight.shape)}, {groups} groups"
        )


def _convolution_matrix(
    index: Array,
    size: int,
    weight: Array,
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    groups: int,
    positions: Sequence[int] | None = None,
) -> tuple[sp.csr_array, tuple[int, ...]]:
    """The matrix of a convolution of places in a node of `size` entries, and its output space.

    With `positions`, only so many first windows along each axis are taken."""
    batch, channels, *space = index.shape
    outputs, per_group, *kernel = weight.shape
    _check_channels(channels, weight, groups)
    seen = windows(index.reshape(-1, *space), kernel, strides, pads, dilations)
    if positions is not None:
        seen = seen[(slice(None), *(slice(n) for n in positions))]
    out = seen.shape[1 : 1 + len(kernel)]
    taps = prod(kernel)
    # For every image and group: positions x (inputs of one output), the same for all its outputs.
    places = seen.reshape(batch, groups, per_group, prod(out), taps).transpose(0, 1, 3, 2, 4)
    places = places.reshape(batch, groups, 1, prod(out), per_group * taps)
    values = weight.reshape(1, groups, outputs // groups, 1, per_group * taps)
    shape = (batch, groups, outputs // groups, prod(out), per_group * taps)
    columns = np.broadcast_to(places, shape)
    data = np.broadcast_to(values, shape)
    return from_rows(columns, data, batch * outputs * prod(out), size), out
