"""Derivative problems of one shape, so that they can be solved as one batch.

Problems of one network differ after presolve: in every ball other neurons are left. Neurons without weights and with slope 0
fill them up. They do not change the optimum, nor what multipliers prove: principal submatrices stay positive semidefinite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from .problem import Blocks, DerivativeProblem, Layer
from .rounding import Array, Matrix

OBJECTIVE = -1  # in place of a node


def padded(problems: Sequence[DerivativeProblem]) -> list[DerivativeProblem]:
    """Problems of one network with the same layers, blocks and sizes; real neurons come first in every layer."""
    layers = sorted((layer.node, layer.size) for problem in problems for layer in problem.layers)
    sizes = {0: problems[0].inputs, **dict(layers), OBJECTIVE: problems[0].outputs}  # the largest size of a node comes last
    by_node = [_by_node(problem) for problem in problems]
    pairs = {node: sorted({source for blocks in by_node for source in blocks.get(node, {})}) for node in sizes}
    place = {node: k for k, node in enumerate(sizes)}

    def fill(problem: DerivativeProblem, blocks: Mapping[int, Blocks]) -> DerivativeProblem:
        filled = {
            node: {place[s]: _filled(blocks.get(node, {}).get(s), (size, sizes[s])) for s in pairs[node]}
            for node, size in sizes.items()
        }
        lower = {layer.node: layer.lower for layer in problem.layers}
        upper = {layer.node: layer.upper for layer in problem.layers}
        layers = tuple(
            Layer(filled[node], _filled(lower.get(node), (size,)), _filled(upper.get(node), (size,)), node, np.arange(size))
            for node, size in sizes.items()
            if node > 0
        )
        return replace(problem, layers=layers, objective=filled[OBJECTIVE])

    return [fill(problem, blocks) for problem, blocks in zip(problems, by_node, strict=True)]


def real_neurons(problem: DerivativeProblem, filled: DerivativeProblem) -> list[tuple[int, int]]:
    """Where the layers of a problem are after padding: the place of every layer, and how many of its neurons are real."""
    place = {layer.node: i for i, layer in enumerate(filled.layers)}
    return [(place[layer.node], layer.size) for layer in problem.layers]


def _by_node(problem: DerivativeProblem) -> dict[int, Blocks]:
    """The blocks of every node, and of the objective, by the node they read; 0 is the input."""
    nodes = [0, *(layer.node for layer in problem.layers), OBJECTIVE]
    return {node: {nodes[s]: m for s, m in part.items()} for node, part in zip(nodes[1:], problem.all_blocks(), strict=True)}


def _filled(part: Matrix | None, shape: tuple[int, ...]) -> Array:
    """Zeros, with `part` in the corner."""
    whole = np.zeros(shape)
    if part is not None:
        whole[tuple(slice(n) for n in part.shape)] = part.toarray() if sp.issparse(part) else part
    return whole
