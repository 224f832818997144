"""Pre-activation intervals over a box: what local slope ranges come from.

Two enclosures, intersected: interval propagation, and backward linear bounds (CROWN, DeepPoly), which push a linear
function of a layer back to the input, replacing every activation by one of two lines around it. Both are rounded
outward: a computed product is widened by gamma(n) times the product of absolute values, with the magnitude of each
node taken from its interval.

Backward bounds are taken of every affine node that an activation reads and that reads more than the input alone, as
spec/certificate.md has it: also before the first activation, where they are those of the product of the matrices.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import activations
from .network import Activation, Affine, Input, Network
from .rounding import TINY, Array, gamma, terms, times_up

CHUNK = 2**24  # entries of the largest array in a backward pass
MOST_WORK = 4e11  # multiplications in the backward pass of one layer; beyond that its interval bounds are used alone

Interval = tuple[Array, Array]


def preactivation_intervals(
    network: Network, lower: Array, upper: Array, progress: Callable[[float], None] = lambda fraction: None
) -> list[Interval]:
    """An interval for the values of every node over the box [lower, upper]."""
    intervals: list[Interval] = []
    lines: dict[int, tuple[Array, ...]] = {}
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            intervals.append((lower, upper))
        elif isinstance(node, Affine):
            intervals.append(_affine_interval(node, intervals))
            read_by = [network.nodes[k] for k in network.consumers[i]]
            for reader in (r for r in read_by if isinstance(r, Activation)):
                intervals[i] = _tighten(network, i, reader, intervals, lines)
        else:
            lo, hi = intervals[node.source]
            lines[i] = activations.linear_bounds(node.kind, lo, hi, node.parameters)
            intervals.append(activations.value_range(node.kind, lo, hi, node.parameters))
        progress((i + 1) / len(network.nodes))
    return intervals


def _affine_interval(node: Affine, intervals: list[Interval]) -> Interval:
    middle, radius, size = node.bias.astype(np.float64), np.zeros(node.size), np.abs(node.bias.astype(np.float64))
    count = 2
    for source, matrix in zip(node.sources, node.matrices, strict=True):
        lo, hi = intervals[source]
        center = lo / 2 + hi / 2
        spread = np.nextafter(np.maximum(hi - center, center - lo), np.inf)
        middle = middle + matrix @ center
        radius = radius + times_up(matrix, spread)
        size = size + times_up(matrix, np.abs(center))
        count += terms(matrix) + 1
    error = gamma(count + 2) * (size + radius) * 1.01 + count * TINY
    return middle - radius - error, middle + radius + error


def _tighten(
    network: Network, i: int, reader: Activation, intervals: list[Interval], lines: dict[int, tuple[Array, ...]]
) -> Interval:
    """The interval of node i cut down by backward bounds, for the entries whose slope in `reader` is not known yet."""
    lo, hi = (bound.copy() for bound in intervals[i])
    if not reads_more_than_the_input(network, i):
        return lo, hi
    low, high = activations.slope_range(reader.kind, lo, hi, reader.parameters)
    rows = np.flatnonzero(low < high)
    before = network.nodes[: i + 1]
    nonzeros = sum(int(m.size) for node in before if isinstance(node, Affine) for m in node.matrices)
    if 2 * len(rows) * nonzeros > MOST_WORK:
        return lo, hi
    widest = max(node.size for node in before)
    for part in np.array_split(rows, max(1, -(-2 * len(rows) * widest // CHUNK))):
        start = np.zeros((2 * len(part), network.nodes[i].size))
        k = np.arange(len(part))
        start[k, part], start[len(part) + k, part] = 1.0, -1.0
        bound = backward_lower(network, i, start, intervals, lines)
        lo[part] = np.fmax(lo[part], bound[: len(part)])  # a NaN is no bound: something overflowed
        hi[part] = np.fmin(hi[part], -bound[len(part) :])
    # Rounding can make two valid bounds cross by an ulp on an interval of width zero: keep it non-empty.
    return np.minimum(lo, hi), np.maximum(lo, hi)


def reads_more_than_the_input(network: Network, i: int) -> bool:
    """Whether backward bounds of affine node i can be better than its interval: for those of the input they are the same."""
    node = network.nodes[i]
    return isinstance(node, Affine) and any(source > 0 for source in node.sources)


def backward_lower(
    network: Network, i: int, start: Array, intervals: list[Interval], lines: dict[int, tuple[Array, ...]]
) -> Array:
    """Lower bounds on the rows of start @ (values of node i), over the box.

    A coefficient that underflows is off by less than TINY, and multiplies a value of at most its magnitude."""
    rows: dict[int, Array] = {i: start}
    constant = np.zeros(len(start))
    slack = np.zeros(len(start))
    magnitude = [np.maximum(np.abs(lo), np.abs(hi)) for lo, hi in intervals]
    for k in range(i, 0, -1):
        node = network.nodes[k]
        if k not in rows:
            continue
        row = rows.pop(k)
        size = np.abs(row)
        if isinstance(node, Affine):
            constant += row @ node.bias
            slack += gamma(node.size + i + 4) * (size @ np.abs(node.bias)) + node.size * TINY
            for source, matrix in zip(node.sources, node.matrices, strict=True):
                product = (matrix.T @ row.T).T
                _add(rows, source, product)
                slack += gamma(node.size + i + 4) * (size @ times_up(matrix, magnitude[source]))
                slack += node.size * TINY * (1 + magnitude[source].sum())
        elif isinstance(node, Activation):
            k1, c1, k2, c2 = lines[k]
            positive, negative = np.maximum(row, 0), np.minimum(row, 0)
            _add(rows, node.source, positive * k1 + negative * k2)
            constant += positive @ c1 + negative @ c2
            steepest, offset = np.maximum(np.abs(k1), np.abs(k2)), np.maximum(np.abs(c1), np.abs(c2))
            slack += gamma(node.size + i + 4) * (size @ (steepest * magnitude[node.source] + offset))
            slack += TINY * (node.size + magnitude[node.source].sum())
    row = rows.get(0, np.zeros((len(start), network.input_size)))
    lo, hi = intervals[0]
    value = np.maximum(row, 0) @ lo + np.minimum(row, 0) @ hi
    slack += gamma(network.input_size + 2) * (np.abs(row) @ magnitude[0]) + network.input_size * TINY
    # The sums of constants and slacks are rounded too, a few terms each.
    total = value + constant - slack
    return total - gamma(4 * i + 8) * (np.abs(value) + np.abs(constant) + slack) * 1.01 - slack * 1e-3 - TINY


def _add(rows: dict[int, Array], source: int, product: Array) -> None:
    rows[source] = rows[source] + product if source in rows else product
