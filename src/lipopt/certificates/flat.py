"""A derivative problem as one system of equations, in the variables that a certificate numbers.

Neurons with a known slope are substituted, as the checker does (section 3 of the specification).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..model.network import Network
from ..numerics.arrays import Array, Matrix, as_csr
from ..problem.derivative import Blocks, DerivativeProblem, Layer
from ..problem.presolve import path_sums
from .dyadic import join

# Neurons are centered in an SDP if the half width of some slope range is below this share of its size.
NARROW = 0.2


@dataclass(frozen=True, eq=False)
class Flat:
    """A derivative problem as one system: maximize |C x|, x = (t, z), z = s (A x)."""

    inputs: int
    A: Matrix
    lower: Array
    upper: Array
    C: Array
    groups: list[Group]  # one for each layer of the problem
    # The number of every variable of the derivative problem (t, neurons, rows); -1 for those that
    # were substituted.
    numbers: Array


@dataclass(frozen=True, eq=False)
class Group:
    """The neurons of a layer that are variables.

    x = z or, if they are centered, x = middle y + half z with slopes in [-1, 1]."""

    layer: Layer
    mask: Array
    centered: bool

    @staticmethod
    def of(layer: Layer, settled: Array | None) -> Group:
        """The neurons whose slope is not known.

        For an SDP (`settled` says which neurons are substituted) they are centered if that is
        better."""
        if settled is None:
            return Group(layer, layer.half > 0, False)
        narrow = layer.half < NARROW * layer.steepest
        return Group(layer, ~settled, bool(narrow[~settled].any()))

    @property
    def middle(self) -> Array:
        """What x has of y, for every neuron."""
        plain = self.mask & (not self.centered)
        return np.where(plain, 0.0, self.layer.middle)

    @property
    def weight(self) -> Array:
        """What x has of z, for every neuron."""
        own = self.layer.half if self.centered else np.ones(self.layer.size)
        return np.where(self.mask, own, 0.0)

    @property
    def lower(self) -> Array:
        """The smallest slope of every variable."""
        return -np.ones(len(self.variables)) if self.centered else self.layer.lower[self.mask]

    @property
    def upper(self) -> Array:
        """The largest slope of every variable."""
        return np.ones(len(self.variables)) if self.centered else self.layer.upper[self.mask]

    @property
    def variables(self) -> Array:
        """The neurons of the network's node that are variables."""
        return self.layer.neurons[self.mask]


def settled_neurons(problem: DerivativeProblem, amount: float) -> list[Array]:
    """The neurons of every layer that can be substituted.

    They are those through which paths vary least, in all by `amount` at most."""
    x, gradient = path_sums(problem)
    spreads = [np.zeros(0)]
    for layer, g in zip(problem.layers, gradient[1:], strict=True):
        y = np.zeros(layer.size)
        for source, matrix in layer.blocks.items():
            y = y + abs(matrix) @ x[source]
        spreads.append(layer.half * y * g)
    every = np.concatenate(spreads)
    order = np.argsort(every, kind="stable")
    settled = np.zeros(len(every), bool)
    settled[order] = np.cumsum(every[order]) <= amount
    return np.split(settled, np.cumsum(problem.sizes[1:])[:-1])


def flatten(
    problem: DerivativeProblem, only: int | None = None, settled: Sequence[Array] | None = None
) -> Flat:
    """The problem for all inputs, or for one; for an SDP, without the neurons that are settled."""
    inputs = np.ones(problem.inputs, bool)
    if only is not None:
        inputs = np.arange(problem.inputs) == only
    groups = []
    for i, layer in enumerate(problem.layers):
        groups.append(Group.of(layer, None if settled is None else settled[i]))
    masks = [group.mask for group in groups]
    variables = np.concatenate([inputs, *masks, np.ones(problem.outputs, bool)])
    numbers = np.where(variables, np.cumsum(variables) - 1, -1)
    width = int(variables.sum()) - problem.outputs
    values = [_units(inputs, numbers[: problem.inputs], width)]
    equations = [sp.csr_array((0, width))]
    first = problem.inputs
    for group in groups:
        size = group.layer.size
        y = _combine(group.layer.blocks, values, (size, width))
        units = _units(group.mask, numbers[first : first + size], width)
        own = sp.diags_array(group.weight) @ units
        values.append(sp.csr_array(sp.diags_array(group.middle) @ y + own))
        equations.append(y[np.flatnonzero(group.mask), :])
        first += size
    return Flat(
        inputs=int(inputs.sum()),
        A=sp.vstack(equations, format="csr"),
        lower=np.concatenate([np.zeros(0), *(group.lower for group in groups)]),
        upper=np.concatenate([np.zeros(0), *(group.upper for group in groups)]),
        C=_combine(problem.objective, values, (problem.outputs, width)).toarray(),
        groups=groups,
        numbers=numbers,
    )


def _units(mask: Array, numbers: Array, width: int) -> sp.csr_array:
    """Rows of the identity where there is a variable."""
    rows = np.flatnonzero(mask)
    return sp.csr_array((np.ones(len(rows)), (rows, numbers[rows])), shape=(len(mask), width))


def _combine(blocks: Blocks, values: list[sp.csr_array], shape: tuple[int, int]) -> sp.csr_array:
    """The sum of blocks @ values."""
    total = sp.csr_array(shape)
    for source, matrix in blocks.items():
        total = total + as_csr(matrix) @ values[source]
    return sp.csr_array(total)


def variable_lines(network: Network, flat: Flat) -> list[str]:
    """The neurons of every activation node that are variables, and that there is one term."""
    groups = {group.layer.node: group for group in flat.groups}
    lines = []
    for i in network.activations:
        places: list[int] = []
        form = "plain"
        if i in groups:
            places = groups[i].variables.tolist()
            form = "centered" if groups[i].centered else "plain"
        lines.append(f"neurons {join([len(places), *places])}")
        lines.append(f"form {form}")
    return [*lines, "splits 0"]
