"""The tree of a branch and bound, in prefix order: version 2 of the format (spec/certificate.md, section 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ..cells.elimination import HINT_BITS
from ..model.network import Network
from ..numerics.arrays import Array
from ..problem.proofs import Branching, Cuts, NeuronSplit, Relaxed, Split, Tree
from .dyadic import Rounded, exact, join


@dataclass(frozen=True, eq=False)
class _Pending:
    """A cell that is yet to be written."""

    branching: Branching
    variables: Array  # the numbers of neurons that are variables in its parent


def first_lines(network: Network, tree: Tree) -> list[str]:
    """The whole domain, where it is only said which neurons are linear; the same cell follows, in
    the variables that are left."""
    return ["cuts 0", *_Writer.of(network, tree).linear_everywhere(), "cell same"]


def refinement_lines(network: Network, refinement: Tree) -> list[str]:
    """The whole domain with refined intervals, without how it ends."""
    writer = _Writer.of(network, refinement)
    return writer.lines_before_end(_Pending(refinement.root, writer.everyone))


# The parts that a relaxation of a cell becomes, and what they prove.
WriteRelaxed: TypeAlias = Callable[[Network, Relaxed], tuple[float, list[str]]]


def tree_lines(
    network: Network, tree: Tree, write_relaxed: WriteRelaxed
) -> tuple[float, list[str]]:
    """What the relaxations of a tree's cells prove at most, and the lines of all cells."""
    writer = _Writer.of(network, tree)
    lines: list[str] = []
    proved = 0.0
    pending = [_Pending(tree.root, writer.everyone)]
    while pending:
        cell = pending.pop()
        lines += writer.lines_before_end(cell)
        if cell.branching.relaxed is None:
            lines += writer.end_lines(cell)
        else:
            value, parts = write_relaxed(network, cell.branching.relaxed)
            lines += ["cell leaf", *parts]
            proved = max(proved, value)
        variables = writer.left(cell)
        for child in reversed(cell.branching.children):
            pending.append(_Pending(child, variables))
    return proved, lines


def has_curvature(tree: Tree) -> bool:
    """Whether some cell is bounded by its curvature."""
    cells = [tree.root]
    for cell in cells:  # the list grows
        cells.extend(cell.children)
    return any(cell.signs is not None for cell in cells)


@dataclass(frozen=True, eq=False)
class _Writer:
    """The network, and the numbers of all neurons that are variables of the whole domain.

    A tree has other numbers, since the neurons that its objective does not depend on have none."""

    network: Network
    nodes: Array  # of every variable, the activation node that it belongs to
    places: Array  # and its place in that node
    numbers: Array  # of the neurons of the tree, among these

    @staticmethod
    def of(network: Network, tree: Tree) -> _Writer:
        nodes = np.append(tree.nodes, tree.left_out[0])
        places = np.append(tree.places, tree.left_out[1])
        order = np.lexsort((places, nodes))
        return _Writer(network, nodes[order], places[order], np.argsort(order)[: len(tree.nodes)])

    @property
    def everyone(self) -> Array:
        """The numbers of all variables."""
        return np.arange(len(self.nodes))

    def left(self, cell: _Pending) -> Array:
        """The variables of a cell, without those that are linear in it."""
        return np.setdiff1d(cell.variables, self.numbers[cell.branching.fixed])

    def linear_everywhere(self) -> list[str]:
        """For every activation node, the neurons that are no variables."""
        lines = []
        for i in self.network.activations:
            everyone = np.arange(self.network.nodes[i].size)
            rest = np.setdiff1d(everyone, self.places[self.nodes == i])
            lines.append(_indices("fixed", rest))
        return lines

    def lines_before_end(self, cell: _Pending) -> list[str]:
        """What was proved in a cell."""
        branching = cell.branching
        lines = [f"cuts {len(branching.cuts)}"]
        for cuts in branching.cuts:
            slopes = np.zeros((len(cuts.slopes), len(self.nodes)))
            slopes[:, self.numbers] = cuts.slopes
            neurons = self.numbers[cuts.neurons]
            own = replace(cuts, neurons=neurons, slopes=slopes[:, cell.variables])
            lines += cut_lines(own, self.nodes, self.places, HINT_BITS)
        return [*lines, *self._by_node("fixed", self.numbers[branching.fixed])]

    def end_lines(self, cell: _Pending) -> list[str]:
        """How a cell ends: empty, divided, looked at again, or bounded by a rule that needs no more."""
        branching = cell.branching
        if branching.is_empty:
            return ["cell empty"]
        split = branching.split
        if isinstance(split, NeuronSplit):
            split = replace(split, neuron=int(self.numbers[split.neuron]))
        if split is not None:
            return split_lines(split, self.nodes, self.places)
        if branching.children:
            return ["cell same"]
        lines = ["cell leaf", "parts 1", "rows *", "inputs *"]
        for neurons in self._by_node("neurons", self.left(cell)):
            lines += [neurons, "form plain"]
        return [*lines, "splits 0", *_rule_lines(branching)]

    def _by_node(self, keyword: str, neurons: Array) -> list[str]:
        """For every activation node, those of its neurons."""
        lines = []
        for i in self.network.activations:
            own = neurons[self.nodes[neurons] == i]
            lines.append(_indices(keyword, self.places[own]))
        return lines


def split_lines(split: Split, nodes: Array, places: Array) -> list[str]:
    """How a cell ends that is divided. Neurons are places of activation nodes."""
    value = f"value {exact([split.value])}"
    if isinstance(split, NeuronSplit):
        neuron = f"neuron {nodes[split.neuron]} {places[split.neuron]}"
        return ["cell neuron", neuron, value]
    return ["cell input", f"input {split.place}", value]


def cut_lines(cuts: Cuts, nodes: Array, places: Array, bits: int) -> list[str]:
    """A group of cuts on one side, with weights and slopes of so many bits; the other side has none."""
    lines = [f"node {nodes[cuts.neurons[0]]}"]
    none = [_indices("upper" if not cuts.is_upper else "lower", np.empty(0, int)), "ends 0"]
    own = [
        _indices("upper" if cuts.is_upper else "lower", places[cuts.neurons]),
        f"ends {exact(cuts.ends)}",
    ]
    for k, (weights, slopes) in enumerate(zip(cuts.weights, cuts.slopes, strict=True)):
        own.append(f"weights {Rounded.of(_trimmed(weights), bits)}")
        own.append(f"slopes {Rounded.of(_trimmed(slopes), bits)}")
        if cuts.multipliers is not None:
            own.append(f"ball {exact([float(cuts.multipliers[k])])}")
    return [*lines, *none, *own] if cuts.is_upper else [*lines, *own, *none]


def _rule_lines(branching: Branching) -> list[str]:
    """The rule that bounds a leaf without a relaxation."""
    if branching.signs is None:
        return ["rule interval"]
    signs = branching.signs.astype(int)
    return ["rule curvature", *(f"signs {join(row)}" for row in signs)]


def _indices(keyword: str, places: Array) -> str:
    return f"{keyword} {join([len(places), *places])}"


def _trimmed(values: Array) -> Array:
    """Without the zeros at the end."""
    used = np.flatnonzero(values)
    return values[: used[-1] + 1] if len(used) else values[:0]
