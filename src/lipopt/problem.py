"""The derivative problem: what every bound in this package is a bound of (the paper's equation (4)).

    t            a direction of the input space, |t| <= 1 in the chosen norm
    y_a = A_a x  the pre-activation derivative of neuron a, linear in x = (t, z of earlier layers)
    z_a = s_a y_a,  l_a <= s_a <= u_a
    maximize  |C x|        the derivative of the chosen outputs in direction t

With s_a the slopes of the activations at a point, C x is J t for the Jacobian J there. So the maximum, over t and over
all slopes in their ranges, bounds the Lipschitz constant. One row of C: the norm is the absolute value. Several rows: the
norm on the outputs is the one on the inputs.

A is stored in blocks, one per pair of connected layers; source 0 is t, source i is the z of layers[i - 1].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import scipy.sparse as sp

from . import activations
from .domain import Domain
from .errors import LipoptError
from .intervals import preactivation_intervals
from .network import Activation, Affine, Input, Network
from .rounding import Array, Matrix

Norm: TypeAlias = Literal["linf", "l2", "l1"]
Blocks: TypeAlias = Mapping[int, Matrix]
NORMS: dict[str, float] = {"linf": np.inf, "l2": 2, "l1": 1}


@dataclass(frozen=True, eq=False)
class Layer:
    """Neurons with the same sources: y = sum of blocks @ x, z = s y with lower <= s <= upper."""

    blocks: Blocks
    lower: Array
    upper: Array
    node: int  # the network's node these neurons belong to
    neurons: Array  # and their places in it

    @property
    def size(self) -> int:
        return len(self.lower)


@dataclass(frozen=True, eq=False)
class DerivativeProblem:
    """Maximize |C x|; `slack` is what must be added to a bound for the rounding of the coefficients themselves."""

    norm: Norm
    inputs: int
    layers: tuple[Layer, ...]
    objective: Blocks  # C, by source; never empty
    slack: float = 0.0

    @property
    def outputs(self) -> int:
        """The number of rows of C."""
        return int(next(iter(self.objective.values())).shape[0])

    @property
    def sizes(self) -> list[int]:
        """The number of variables of every source: t, then each layer."""
        return [self.inputs, *(layer.size for layer in self.layers)]

    @property
    def is_zero(self) -> bool:
        """Whether the objective has no coefficient left."""
        return not any(m.count_nonzero() if sp.issparse(m) else m.any() for m in self.objective.values())

    @property
    def neurons(self) -> int:
        return sum(layer.size for layer in self.layers)

    @property
    def nonzeros(self) -> int:
        """The number of stored coefficients."""
        return sum(int(m.size) for blocks in self.all_blocks() for m in blocks.values())

    def all_blocks(self) -> list[Blocks]:
        """The blocks of every layer, and those of the objective last."""
        return [*(layer.blocks for layer in self.layers), self.objective]

    def forward(self, t: Array, slopes: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """x by source (t first) and y by layer, for columns t and slopes (n, columns) or (n, 1)."""
        x, y = [t], []
        for layer, s in zip(self.layers, slopes, strict=True):
            y.append(apply(layer.blocks, x, layer.size))
            x.append(s * y[-1])
        return x, y

    def backward(self, slopes: Sequence[Array], rows: Array | None = None) -> list[Array]:
        """The gradient of rows.C x (of C x itself if it has one row) in x, by source; a column for each of slopes."""
        columns = max([s.shape[1] for s in slopes] + ([rows.shape[1]] if rows is not None else [1]))
        if rows is None:
            rows = np.ones((1, columns))
        gradient = [np.zeros((n, columns)) for n in self.sizes]
        for source, matrix in self.objective.items():
            gradient[source] += matrix.T @ rows
        for i in range(len(self.layers), 0, -1):
            through = slopes[i - 1] * gradient[i]
            for source, matrix in self.layers[i - 1].blocks.items():
                gradient[source] += matrix.T @ through
        return gradient


def apply(blocks: Blocks, x: Sequence[Array], size: int) -> Array:
    """The sum of blocks @ x."""
    total = np.zeros((size, x[0].shape[1]))
    for source, matrix in blocks.items():
        total += matrix @ x[source]
    return total


def slope_ranges(
    network: Network, domain: Domain, progress: Callable[[float], None] = lambda fraction: None
) -> dict[int, tuple[Array, Array]]:
    """What is known of the slopes of every activation node, over the whole space or a domain."""
    nodes = {i: node for i, node in enumerate(network.nodes) if isinstance(node, Activation)}
    if domain is None:
        infinite = {node.source: (np.full(node.size, -np.inf), np.full(node.size, np.inf)) for node in nodes.values()}
        intervals: Mapping[int, tuple[Array, Array]] = infinite
    else:
        intervals = dict(enumerate(preactivation_intervals(network, *domain.bounds(network.input_size), progress=progress)))
    return {i: activations.slope_range(node.kind, *intervals[node.source], node.parameters) for i, node in nodes.items()}


def output_matrix(network: Network, output: int | Literal["all"], margin: tuple[int, int] | None) -> sp.csr_array:
    """The rows of the outputs that are asked for: one, all, or a difference of two."""
    m = network.output_size
    if margin is not None:
        if not isinstance(margin, tuple | list) or len(margin) != 2:
            raise LipoptError(f"a margin is a pair of outputs, got {margin!r}")
        i, j = margin
        for k in (i, j):
            _check_output(k, m)
        if i == j:
            raise LipoptError(f"a margin needs two different outputs, got {i},{j}")
        return sp.csr_array(([1.0, -1.0], ([0, 0], [i, j])), shape=(1, m))
    if output == "all":
        return sp.csr_array(sp.eye_array(m))
    _check_output(output, m)
    return sp.csr_array(([1.0], ([0], [output])), shape=(1, m))


def _check_output(k: int, m: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise LipoptError(f"an output is a whole number or 'all', got {k!r}")
    if not 0 <= k < m:
        raise LipoptError(f"output {k} is out of range: the network has outputs 0 to {m - 1}")


def derivative_problem(
    network: Network, ranges: Mapping[int, tuple[Array, Array]], norm: Norm, outputs: sp.csr_array
) -> DerivativeProblem:
    """The derivative problem of a network as it stands: affine nodes are neurons with slope 1, weights are not touched."""
    if norm not in NORMS:
        raise LipoptError(f"unknown norm '{norm}'; use one of {', '.join(NORMS)}")
    source_of = {0: 0}
    layers: list[Layer] = []
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            continue
        if isinstance(node, Affine):
            lower = upper = np.ones(node.size)
            if _fused(network, i):
                continue
            blocks = _affine_blocks(node, source_of)
        else:
            lower, upper = ranges[i]
            before = network.nodes[node.source]
            if isinstance(before, Affine) and _fused(network, node.source):
                blocks = _affine_blocks(before, source_of)
            else:
                blocks = {source_of[node.source]: sp.csr_array(sp.eye_array(node.size))}
        layers.append(Layer(blocks, lower, upper, i, np.arange(node.size)))
        source_of[i] = len(layers)
    return DerivativeProblem(norm, network.input_size, tuple(layers), {source_of[len(network.nodes) - 1]: outputs})


def _fused(network: Network, i: int) -> bool:
    """Whether affine node i is read by one activation alone, which then takes over its blocks."""
    readers = network.consumers[i]
    return len(readers) == 1 and isinstance(network.nodes[readers[0]], Activation)


def _affine_blocks(node: Affine, source_of: Mapping[int, int]) -> dict[int, Matrix]:
    return {source_of[s]: m.astype(np.float64) for s, m in zip(node.sources, node.matrices, strict=True)}
