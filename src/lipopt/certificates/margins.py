"""The certificate of a ball in which the class stays: all margins are at least a positive number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..model.domain import Ball
from ..model.network import Network
from ..model.products import find_products
from ..numerics.arrays import Array
from ..problem.intervals import enclose
from ..problem.proofs import Cuts, FindCuts, MarginLeaf, MarginSplit, MarginTree
from .certificate import Certificate
from .dyadic import Rounded, exact, join, row_lines
from .tree import cut_lines, split_lines
from .write import comments, domain_lines

SLOPE_BITS = 50  # binary digits of slopes and weights, relative to the largest of a row
ROOM = 2.0**-20  # of the claim, relative, for rounded slopes and what the checker finds differently


def certify_margins(
    network: Network, ball: Ball, label: int, proofs: Mapping[int, MarginTree], least: float
) -> Certificate:
    """The certificate that the label's output exceeds all others in a ball by `least`, or nearly.

    `proofs` has a tree for every other class."""
    size = network.input_size
    products = find_products(network)
    intervals = enclose(network, *ball.bounds(size), ball.ball(size), products).intervals
    claim = least * (1 - ROOM)
    others = list(proofs)
    lines = [
        "lipopt-certificate 2",
        *comments(network.source),
        f"network {network.hash}",
        "norm none",
        f"outputs {len(others)}",
    ]
    for other in others:
        columns = ([0, 0], [label, other])
        row = sp.csr_array(([1.0, -1.0], columns), shape=(1, network.output_size))
        lines += row_lines(row)
    lines += domain_lines(network, ball, intervals)
    lines.append(f"bound {exact([claim])}")
    lines += _tree_lines(network, [proofs[other] for other in others])
    text = "\n".join([*lines, f"end {len(lines)}", ""])
    return Certificate(text, claim, ROOM)


def _tree_lines(network: Network, trees: Sequence[MarginTree]) -> list[str]:
    """Margins that need no split share a tree of one cell; the others have trees of their own."""
    writer = _Writer.of(network)
    whole = [row for row, tree in enumerate(trees) if isinstance(tree, MarginLeaf)]
    divided = [row for row, tree in enumerate(trees) if isinstance(tree, MarginSplit)]
    lines = [f"trees {len(divided) + bool(whole)}"]
    if whole:
        lines += [f"rows {join([len(whole), *whole])}", *writer.head(), "cell leaf"]
        for row in whole:
            lines += _leaf_lines(trees[row])
    for row in divided:
        lines += [f"rows 1 {row}", *writer.cells(trees[row])]
    return lines


@dataclass(frozen=True, eq=False)
class _Writer:
    """How a network's neurons are named."""

    nodes: Array  # of every neuron, the activation node that it belongs to
    places: Array  # and its place in that node
    fixed: list[str]  # that no neuron is: lines of every cell

    @staticmethod
    def of(network: Network) -> _Writer:
        nodes = [np.empty(0, dtype=int)]
        places = [np.empty(0, dtype=int)]
        fixed = []
        for i in network.activations:
            size = network.nodes[i].size
            nodes.append(np.full(size, i))
            places.append(np.arange(size))
            fixed.append("fixed 0")
        return _Writer(np.concatenate(nodes), np.concatenate(places), fixed)

    def head(self, cuts: Sequence[Cuts] = ()) -> list[str]:
        """The first lines of a cell."""
        lines = [f"cuts {len(cuts)}"]
        for cut in cuts:
            lines += cut_lines(cut, self.nodes, self.places, SLOPE_BITS)
        return [*lines, *self.fixed]

    def cells(self, tree: MarginTree) -> list[str]:
        """A tree in prefix order. Cuts stand where no more inputs are split: they need none before."""
        lines: list[str] = []
        pending: list[tuple[MarginTree | None, FindCuts]] = [(tree, tuple)]
        while pending:
            cell, cuts = pending.pop()
            assert cell is not None
            if isinstance(cell, MarginSplit):
                lines += self.head(() if cell.cuts else cuts())
                lines += split_lines(cell.split, self.nodes, self.places)
                of_parts = cell.cuts or (tuple, tuple)
                pending.append((cell.parts[1], of_parts[1]))
                pending.append((cell.parts[0], of_parts[0]))
                continue
            lines += self.head(cuts())
            lines += (
                ["cell leaf", *_leaf_lines(cell)]
                if isinstance(cell, MarginLeaf)
                else ["cell empty"]
            )
        return lines


def _leaf_lines(leaf: MarginTree) -> list[str]:
    assert isinstance(leaf, MarginLeaf)
    lines = [
        f"weights {Rounded.of(leaf.weights, SLOPE_BITS)}",
        f"slopes {Rounded.of(leaf.slopes, SLOPE_BITS)}",
    ]
    if leaf.multiplier is not None:
        lines.append(f"ball {exact([leaf.multiplier])}")
    return lines
