"""How the points of a run are divided among workers: in chunks, those with the most work first.

A point is solved as a whole, in one place. The network is evaluated on many points at a time, in
parts that fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from ..model.network import Network
from ..model.nodes import Activation, Affine
from ..numerics.arrays import Array
from ..numerics.blas import quiet
from .rows import Ask, Point
from .verdicts import Certify

Chunk: TypeAlias = Sequence[Point]

CHUNKS_PER_WORKER = (
    32  # at least: the first rows come soon, and no worker is idle for long at the end
)
# Points up to which chunks are sorted by their work. With more points, the last chunks are a small
# part of the run, and their order matters little.
LARGEST_SORTED = 10_000
LARGEST_ARRAY = 2**23  # numbers (64 MiB) in the largest array, when many points are evaluated


def make_chunks(
    network: Network, ask: Ask | Certify, points: Sequence[Point], workers: int
) -> list[Chunk]:
    """The points, most work first: several chunks for every worker, none too large."""
    if not points:
        return []
    ordered = list(points)
    if len(points) <= LARGEST_SORTED:
        ordered = _most_work_first(network, ask, points)
    size = _chunk_size(ask, len(points), network.output_size, workers)
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def _chunk_size(ask: Ask | Certify, points: int, outputs: int, workers: int) -> int:
    """How many points a chunk has."""
    largest = ask.points_per_chunk(outputs)
    if ask.batched:
        return largest
    fair = points // (CHUNKS_PER_WORKER * max(1, workers))
    return max(1, min(fair, largest))


def _most_work_first(network: Network, ask: Ask | Certify, points: Sequence[Point]) -> list[Point]:
    radius = max(ask.radii, default=0.0)
    rows = np.array([point.x for point in points])
    work = [unknown_slopes(network, part, radius) for part in in_parts(network, rows)]
    order = np.argsort(-np.concatenate(work), kind="stable")
    return [points[k] for k in order]


def in_parts(network: Network, rows: Array) -> Iterator[Array]:
    """Many points in parts that the whole network can be evaluated on at once."""
    widest = max(node.size for node in network.nodes)
    parts = -(-len(rows) * widest // LARGEST_ARRAY)
    yield from np.array_split(rows, parts)


@quiet()
def unknown_slopes(network: Network, points: Array, radius: float) -> Array:
    """Roughly the number of neurons whose slope varies in the ball around every point.

    What the problems of a point cost depends on it. Plain interval arithmetic, all points at once:
    arrays have a row for every neuron and a column for every point."""
    count = np.zeros(len(points))
    lower = [points.T - radius]
    upper = [points.T + radius]
    for node in network.nodes[1:]:
        if isinstance(node, Affine):
            low, high = _affine_range(node, lower, upper)
        else:
            assert isinstance(node, Activation)
            ends = (lower[node.source].T, upper[node.source].T)
            least, most = node.function.slope_range(*ends)
            count += (least < most).sum(axis=1)
            values = node.function.value_range(*ends)
            low = values[0].T
            high = values[1].T
        lower.append(low)
        upper.append(high)
    return count


def _affine_range(node: Affine, lower: list[Array], upper: list[Array]) -> tuple[Array, Array]:
    """The values of an affine node, given those of the nodes before it."""
    points = lower[0].shape[1]
    center = np.zeros((node.size, points))
    spread = np.zeros((node.size, points))
    for source, matrix in node.terms:
        center = center + matrix @ (lower[source] + upper[source]) / 2
        spread = spread + abs(matrix) @ (upper[source] - lower[source]) / 2
    center = center + node.bias[:, None]
    return center - spread, center + spread
