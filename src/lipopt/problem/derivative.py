"""The derivative problem: every bound in this package is a bound of it (the paper's equation (4)).

    t            a direction of the input space, |t| <= 1 in the chosen norm
    y_a = A_a x  the pre-activation derivative of neuron a, linear in x = (t, z of earlier layers)
    z_a = s_a y_a,  l_a <= s_a <= u_a
    maximize  |C x|        the derivative of the chosen outputs in direction t

With s_a the slopes of the activations at a point, C x is J t for the Jacobian J there. So the
maximum, over t and over all slopes in their ranges, bounds the Lipschitz constant. One row of C:
the norm is the absolute value. Several rows: the norm on the outputs is the one on the inputs, or
another. Inputs in units of their own are a first layer with slope 1: x = scale t.

A is stored in blocks, one per pair of connected layers; source 0 is t, source i is the z of
layers[i - 1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from ..model.network import Network
from ..model.nodes import Activation, Affine, Input
from ..model.norms import Norm
from ..numerics.arrays import Array, Matrix, has_nonzeros

Blocks: TypeAlias = Mapping[int, Matrix]


@dataclass(frozen=True, eq=False)
class Layer:
    """Neurons with the same sources: y = sum of blocks @ x, z = s y with lower <= s <= upper."""

    blocks: Blocks
    lower: Array
    upper: Array
    node: int  # the network's node that these neurons belong to
    neurons: Array  # the places of these neurons in that node

    @property
    def size(self) -> int:
        return len(self.lower)

    @property
    def steepest(self) -> Array:
        """The largest absolute value that each slope can have."""
        return np.maximum(np.abs(self.lower), np.abs(self.upper))

    @property
    def middle(self) -> Array:
        """The middle of each slope's range."""
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> Array:
        """Half the width of each slope's range."""
        return (self.upper - self.lower) / 2


@dataclass(frozen=True, eq=False)
class DerivativeProblem:
    """Maximize |C x|."""

    norm: Norm  # a norm's name is accepted too
    inputs: int
    layers: tuple[Layer, ...]
    objective: Blocks  # C, by source; never empty
    slack: float = 0.0  # to be added to a bound: the coefficients themselves were rounded
    output_norm: Norm | None = None  # on several rows of C; None for the same norm

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", Norm(self.norm))

    @property
    def norms(self) -> tuple[Norm, Norm]:
        """The norm on the inputs, and the one on the outputs."""
        return self.norm, self.output_norm or self.norm

    @property
    def adds_outputs(self) -> bool:
        """Whether absolute values of all rows of C add up: the norm on the outputs is l1."""
        return self.norms[1] is Norm.L1

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
        return not any(has_nonzeros(matrix) for matrix in self.objective.values())

    @property
    def neurons(self) -> int:
        return sum(layer.size for layer in self.layers)

    @property
    def nonzeros(self) -> int:
        """The number of stored coefficients."""
        return sum(count_stored(blocks) for blocks in self.all_blocks())

    def all_blocks(self) -> list[Blocks]:
        """The blocks of every layer, and those of the objective last."""
        return [*(layer.blocks for layer in self.layers), self.objective]

    def absolute(self) -> DerivativeProblem:
        """The problem with the absolute values of all coefficients."""
        layers = tuple(replace(layer, blocks=_absolute(layer.blocks)) for layer in self.layers)
        return replace(self, layers=layers, objective=_absolute(self.objective))

    def forward(self, t: Array, slopes: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """x by source (t first) and y by layer, for columns t and slopes (n, columns) or (n, 1)."""
        x = [t]
        y = []
        for layer, s in zip(self.layers, slopes, strict=True):
            y.append(apply(layer.blocks, x, layer.size))
            x.append(s * y[-1])
        return x, y

    def backward(self, slopes: Sequence[Array], rows: Array | None = None) -> list[Array]:
        """The gradient of rows.C x in x, by source, for the slopes in each column.

        Without `rows`, that of C x itself, which then has one row."""
        widths = [s.shape[1] for s in slopes]
        widths.append(1 if rows is None else rows.shape[1])
        columns = max(widths)
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


def _absolute(blocks: Blocks) -> Blocks:
    return {source: abs(matrix) for source, matrix in blocks.items()}


def count_stored(blocks: Blocks) -> int:
    """The number of stored coefficients."""
    return sum(int(matrix.size) for matrix in blocks.values())


def apply(blocks: Blocks, x: Sequence[Array], size: int) -> Array:
    """The sum of blocks @ x."""
    total = np.zeros((size, x[0].shape[1]))
    for source, matrix in blocks.items():
        total += matrix @ x[source]
    return total


def derivative_problem(
    network: Network,
    ranges: Mapping[int, tuple[Array, Array]],
    norm: Norm,
    outputs: sp.csr_array,
    scale: Array | None = None,
    output_norm: Norm | None = None,
) -> DerivativeProblem:
    """The derivative problem of a network as it stands: weights are not touched.

    Affine nodes are neurons with slope 1, unless an activation takes them over. So are inputs in
    units of their own, whose scale is not 1."""
    source_of = {0: 0}
    layers: list[Layer] = []
    if scale is not None:
        ones = np.ones(len(scale))
        units = {0: sp.csr_array(sp.diags_array(scale))}
        layers.append(Layer(units, ones, ones, 0, np.arange(len(scale))))
        source_of[0] = 1
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input) or _is_taken_over(network, i):
            continue
        if isinstance(node, Affine):
            lower = np.ones(node.size)
            upper = np.ones(node.size)
            blocks = _affine_blocks(node, source_of)
        else:
            lower, upper = ranges[i]
            blocks = _activation_blocks(network, node, source_of)
        layers.append(Layer(blocks, lower, upper, i, np.arange(node.size)))
        source_of[i] = len(layers)
    objective = {source_of[len(network.nodes) - 1]: outputs}
    return DerivativeProblem(
        norm, network.input_size, tuple(layers), objective, output_norm=output_norm
    )


def _is_taken_over(network: Network, i: int) -> bool:
    """Whether node i is affine and read by one activation alone, which takes over its blocks."""
    if not isinstance(network.nodes[i], Affine):
        return False
    readers = network.consumers[i]
    return len(readers) == 1 and isinstance(network.nodes[readers[0]], Activation)


def _affine_blocks(node: Affine, source_of: Mapping[int, int]) -> dict[int, Matrix]:
    blocks = {}
    for source, matrix in node.terms:
        blocks[source_of[source]] = matrix.astype(np.float64)
    return blocks


def _activation_blocks(
    network: Network, node: Activation, source_of: Mapping[int, int]
) -> dict[int, Matrix]:
    """Those of the affine node that the activation takes over, or the identity."""
    before = network.nodes[node.source]
    if isinstance(before, Affine) and _is_taken_over(network, node.source):
        return _affine_blocks(before, source_of)
    return {source_of[node.source]: sp.csr_array(sp.eye_array(node.size))}
