"""Derivative problems of one shape, so that they can be solved as one batch.

Problems of one network differ after presolve: each ball leaves other neurons. Neurons without
weights and with slope 0 fill the problems up to one shape. They do not change the optimum. Nor do
they change what multipliers prove, because principal submatrices of a positive semidefinite matrix
are positive semidefinite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..numerics.arrays import Array, Matrix, dense
from .derivative import Blocks, DerivativeProblem, Layer

INPUT = 0  # the node of the input
OBJECTIVE = -1  # stands for the rows of C where a node is asked for


class RealNeurons(NamedTuple):
    """Where a layer of a problem is after padding."""

    place: int  # of the layer in the padded problem
    size: int  # how many of its neurons are real: they come first


def padded(problems: Sequence[DerivativeProblem]) -> list[DerivativeProblem]:
    """Problems of one network, filled up to the same layers, blocks and sizes.

    Real neurons come first in every layer."""
    blocks_by_node = [_blocks_by_node(problem) for problem in problems]
    shape = _common_shape(problems, blocks_by_node)
    filled = []
    for problem, blocks in zip(problems, blocks_by_node, strict=True):
        filled.append(_fill_problem(problem, blocks, shape))
    return filled


def real_neurons(problem: DerivativeProblem, filled: DerivativeProblem) -> list[RealNeurons]:
    """For every layer of a problem, where it is in the padded problem."""
    place = {layer.node: i for i, layer in enumerate(filled.layers)}
    return [RealNeurons(place[layer.node], layer.size) for layer in problem.layers]


@dataclass(frozen=True)
class _Shape:
    """What padded problems have in common. Nodes are in the network's order, the objective last."""

    sizes: Mapping[int, int]  # the largest size of each node
    sources: Mapping[int, list[int]]  # the nodes that each node reads in any of the problems

    @property
    def hidden_nodes(self) -> list[int]:
        """The nodes that become layers."""
        return [node for node in self.sizes if node not in (INPUT, OBJECTIVE)]

    @property
    def place(self) -> dict[int, int]:
        """The number of each node as a source of a derivative problem."""
        return {node: k for k, node in enumerate(self.sizes)}


def _common_shape(
    problems: Sequence[DerivativeProblem], blocks_by_node: Sequence[Mapping[int, Blocks]]
) -> _Shape:
    largest: dict[int, int] = {}
    for problem in problems:
        for layer in problem.layers:
            largest[layer.node] = max(layer.size, largest.get(layer.node, 0))
    sizes = {INPUT: problems[0].inputs}
    for node in sorted(largest):
        sizes[node] = largest[node]
    sizes[OBJECTIVE] = problems[0].outputs
    sources = {}
    for node in sizes:
        read: set[int] = set()
        for blocks in blocks_by_node:
            read.update(blocks.get(node, {}))
        sources[node] = sorted(read)
    return _Shape(sizes, sources)


def _fill_problem(
    problem: DerivativeProblem, blocks: Mapping[int, Blocks], shape: _Shape
) -> DerivativeProblem:
    """The problem with blocks and slopes of the common shape."""
    own = {layer.node: layer for layer in problem.layers}
    layers = []
    for node in shape.hidden_nodes:
        size = shape.sizes[node]
        layer = own.get(node)
        layers.append(
            Layer(
                blocks=_fill_blocks(node, blocks, shape),
                lower=_fill_with_zeros(None if layer is None else layer.lower, (size,)),
                upper=_fill_with_zeros(None if layer is None else layer.upper, (size,)),
                node=node,
                neurons=np.arange(size),
            )
        )
    objective = _fill_blocks(OBJECTIVE, blocks, shape)
    return replace(problem, layers=tuple(layers), objective=objective)


def _fill_blocks(node: int, blocks: Mapping[int, Blocks], shape: _Shape) -> dict[int, Array]:
    """All blocks of one node, by the number of the source that they read."""
    own = blocks.get(node, {})
    place = shape.place
    filled = {}
    for source in shape.sources[node]:
        size = (shape.sizes[node], shape.sizes[source])
        filled[place[source]] = _fill_with_zeros(own.get(source), size)
    return filled


def _blocks_by_node(problem: DerivativeProblem) -> dict[int, Blocks]:
    """The blocks of every node and of the objective, by the node that they read."""
    nodes = [INPUT, *(layer.node for layer in problem.layers), OBJECTIVE]
    by_node: dict[int, Blocks] = {}
    for node, blocks in zip(nodes[1:], problem.all_blocks(), strict=True):
        by_node[node] = {nodes[source]: matrix for source, matrix in blocks.items()}
    return by_node


def _fill_with_zeros(part: Matrix | None, shape: tuple[int, ...]) -> Array:
    """An array of this shape with `part` in its first corner and zeros elsewhere."""
    whole = np.zeros(shape)
    if part is not None:
        corner = tuple(slice(n) for n in part.shape)
        whole[corner] = dense(part)
    return whole
