"""A network of smooth neurons in many boxes at once.

Arrays have an axis for boxes, one for the entries of a node, and mostly one for rows of the objective
or for directions. Intervals of what neurons read are found from the first node to the last, each in two
ways: from the intervals of values before it, and from the value at the middle of the box and derivatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..model import activations
from ..model.network import Network
from ..model.nodes import Activation, Affine
from ..numerics.arrays import Array, Matrix, dense
from ..numerics.rounding import TINY, UNIT, gamma, up
from ..numerics.spread import Spread
from ..problem.intervals import Interval
from .reduced import Reduced

MAX_NEURONS = 400  # with more neurons, arrays of many boxes take too long


def can_bend(network: Network) -> bool:
    """Whether second derivatives are known for all neurons."""
    kinds = {node.kind for node in network.activations.values()}
    return 0 < network.neurons <= MAX_NEURONS and kinds <= set(activations.BENDING)


@dataclass(eq=False)
class Boxes:
    """Boxes, and what is known of all nodes in them."""

    network: Network
    rows: Array  # of the objective, over the outputs
    scale: Array  # how much of each input counts as 1
    lower: Array  # (boxes, inputs)
    upper: Array
    known: Mapping[int, Interval]  # intervals of inputs of activation nodes in the whole domain
    slopes: dict[int, Interval] = field(default_factory=dict)  # by activation node, (boxes, size)
    slopes_at_middle: dict[int, Interval] = field(default_factory=dict)
    bends: dict[int, Interval] = field(default_factory=dict)  # second derivatives

    @staticmethod
    def of(reduced: Reduced, ends: Interval, lower: Array, upper: Array) -> Boxes:
        """Boxes in a domain where the inputs of neurons have these ends."""
        network = reduced.network
        scale = np.ones(network.input_size) if reduced.scale is None else reduced.scale
        known = {}
        for i, node in network.activations.items():
            known[i] = (np.full(node.size, -np.inf), np.full(node.size, np.inf))
        for group in reduced.groups:
            for own, all_ends in zip(known[int(reduced.nodes[group.start])], ends, strict=True):
                own[reduced.places[group]] = all_ends[group]
        found = Boxes(network, dense(reduced.rows), scale, lower, upper, known)
        found._enclose()
        return found

    @property
    def count(self) -> int:
        return len(self.lower)

    @property
    def middle(self) -> Array:
        return self.lower / 2 + self.upper / 2

    @property
    def radii(self) -> Array:
        """Half of the widths, in units of the scale.

        A checker's middle is another one, by a rounding: twice that distance is added."""
        middle = self.middle
        distance = np.maximum(self.upper - middle, middle - self.lower)
        return up((distance + 8 * UNIT * np.abs(middle) + TINY) / self.scale, 4)

    @property
    def error(self) -> float:
        """Of all numbers here, relative to their sizes: every term passes through each node a few
        times at most."""
        roundings = 64
        for node in self.network.nodes:
            roundings += 16 * (node.size + 8)
        return gamma(roundings)

    def _enclose(self) -> None:
        """Find the ranges of slopes and second derivatives."""
        values: list[Interval] = [(self.lower, self.upper)]
        middles: list[Interval] = [(self.middle, self.middle)]
        derivatives = [Spread.exactly(self.each_input())]
        for i, node in enumerate(self.network.nodes[1:], start=1):
            if isinstance(node, Affine):
                values.append(_affine_interval(node, values))
                middles.append(_affine_interval(node, middles))
                derivatives.append(_sum(node, derivatives))
                continue
            node = self.network.activations[i]
            at_middle = middles[node.source]
            change = most_change(derivatives[node.source].widened(self.error), self.radii)
            low = np.nextafter(at_middle[0] - change, -np.inf)
            high = np.nextafter(at_middle[1] + change, np.inf)
            low = np.maximum(low, np.maximum(values[node.source][0], self.known[i][0]))
            high = np.minimum(high, np.minimum(values[node.source][1], self.known[i][1]))
            high = np.maximum(low, high)  # ends that are proved may cross by a rounding
            self.slopes[i] = _slope_range(node, low, high)
            self.slopes_at_middle[i] = _slope_range(node, *at_middle)
            self.bends[i] = node.function.bend_range(low, high)
            values.append(node.function.rising_range(low, high))
            middles.append(node.function.rising_range(*at_middle))
            derivatives.append(_times(derivatives[node.source], self.slopes[i]))

    def each_input(self) -> Array:
        """Every input as a direction, in units of the scale, (boxes, inputs, inputs)."""
        units = np.diag(self.scale)
        return np.broadcast_to(units, (self.count, *units.shape))

    def derivatives(self, directions: Array) -> dict[int, Spread]:
        """The derivatives of the inputs of all neurons, (boxes, size, directions)."""
        own = [Spread.exactly(directions)]
        found = {}
        for i, node in enumerate(self.network.nodes[1:], start=1):
            if isinstance(node, Affine):
                own.append(_sum(node, own))
            else:
                found[i] = own[self.network.activations[i].source]
                own.append(_times(found[i], self.slopes[i]))
        return found

    def coefficients(self, slopes: Mapping[int, Interval]) -> dict[int, Spread]:
        """The derivatives of the objective in all nodes that it depends on, (boxes, size, rows), with
        slopes in these ranges; those in the inputs are in units of the scale."""
        nodes = self.network.nodes
        start = np.broadcast_to(self.rows.T, (self.count, *self.rows.T.shape))
        found = {0: Spread.zero((self.count, self.network.input_size, len(self.rows)))}
        _add(found, len(nodes) - 1, Spread.exactly(start))
        for i in range(len(nodes) - 1, 0, -1):
            node = nodes[i]
            if i not in found:
                continue
            if isinstance(node, Affine):
                for source, matrix in node.terms:
                    _add(found, source, found[i].times(_floats(matrix.T)))
            else:
                _add(found, self.network.activations[i].source, _times(found[i], slopes[i]))
        found[0] = found[0].scaled(self.scale[:, None], self.scale[:, None])
        return found


def most_change(derivatives: Spread, radii: Array) -> Array:
    """How far something is from its value at the middle of a box at most, (boxes, size), by its
    derivatives in all inputs, (boxes, size, inputs)."""
    change = np.einsum("bjk,bk->bj", np.abs(derivatives.middle) + derivatives.half, radii)
    return up(change, 2 * radii.shape[1] + 4)


def _slope_range(node: Activation, low: Array, high: Array) -> Interval:
    return node.function.slope_range(low, high)


def _times(derivatives: Spread, factors: Interval) -> Spread:
    """Derivatives, times numbers in intervals for every box and entry."""
    return derivatives.scaled(factors[0][..., None], factors[1][..., None])


def _sum(node: Affine, derivatives: list[Spread]) -> Spread:
    """The derivatives of an affine node."""
    total: Spread | None = None
    for source, matrix in node.terms:
        own = derivatives[source].times(_floats(matrix))
        total = own if total is None else total + own
    assert total is not None
    return total


def _add(found: dict[int, Spread], place: int, own: Spread) -> None:
    found[place] = found[place] + own if place in found else own


def _affine_interval(node: Affine, values: list[Interval]) -> Interval:
    """Intervals of an affine node, (boxes, size), from those of its sources."""
    total = Spread.exactly(node.bias.astype(np.float64)[:, None])
    roundings = 8
    for source, matrix in node.terms:
        low, high = values[source]
        middle = (low / 2 + high / 2).T
        half = np.nextafter(np.maximum(high.T - middle, middle - low.T), np.inf)
        total = total + Spread(middle, half, np.abs(middle) + half).times(_floats(matrix))
        roundings += matrix.shape[1] + 4
    total = total.widened(gamma(2 * roundings))
    return total.low.T - TINY, total.high.T + TINY


def _floats(matrix: Matrix) -> Array:
    return dense(matrix).astype(np.float64)
