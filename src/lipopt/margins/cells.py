"""Cells: parts of balls in which inputs lie in a box, and the inputs of neurons on one side of values.

Where inputs are split, all nodes are enclosed anew, in a region. Where neurons are split, the region
stays the same: these neurons have better lines, and what is known of their inputs is a constraint that
a force may use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ..model.nodes import Affine
from ..numerics.arrays import Array
from ..problem.proofs import Cuts
from .ascent import Batch, slopes_of
from .backward import Functions, lower_bounds
from .enclosures import Enclosures, Usual
from .lines import Group, Ranges, Sides, changed_sides, groups, sides


@dataclass(frozen=True)
class Constraint:
    """The input of a neuron is at least the value (sign 1), or at most (sign -1)."""

    neuron: int
    sign: int
    value: float


@dataclass(frozen=True, eq=False)
class Region:
    """A ball, or a part of it where inputs lie in a smaller box, and what is known of it."""

    enclosures: Enclosures  # of this one
    sides: Sides
    whole: Enclosures | None = None  # of the ball that it is a part of, if it is not all of it

    @staticmethod
    def of(enclosures: Enclosures) -> list[Region]:
        """A region for every ball."""
        around = sides(enclosures.network, Ranges.of(enclosures))
        found = []
        for ball in range(enclosures.balls.count):
            chosen = np.array([ball])
            found.append(Region(enclosures.only(chosen), around.only(chosen)))
        return found

    def cuts(self) -> tuple[Cuts, ...]:
        """What shows those ends of intervals that are better than the whole ball's."""
        if self.whole is None:
            return ()
        found = []
        for group in groups(self.enclosures.network):
            low, high = self.enclosures.intervals[group.source]
            least, most = self.whole.intervals[group.source]
            raised = np.flatnonzero(low > least)
            lowered = np.flatnonzero(high < most)
            if len(raised):
                found.append(_cuts(self.enclosures, group, raised, is_upper=False))
            if len(lowered):
                found.append(_cuts(self.enclosures, group, lowered, is_upper=True))
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Place:
    """Where a cell is."""

    region: Region
    constraints: tuple[Constraint, ...] = ()

    def beyond(self, neuron: int, sign: int, value: float) -> Place:
        """The part where a neuron's input is on one side of a value."""
        return Place(self.region, (*self.constraints, Constraint(neuron, sign, value)))


def batch_of(places: Sequence[Place], rows: Array, choices: Array) -> Batch:
    """Cells as arrays, each with a row of weights over the outputs and (2, neurons) choices."""
    regions = list(dict.fromkeys(place.region for place in places))
    numbers = {region: k for k, region in enumerate(regions)}
    owners = np.array([numbers[place.region] for place in places])
    enclosures = Enclosures.joined([region.enclosures for region in regions])
    before = Sides.joined([region.sides for region in regions]).only(owners)
    last = len(enclosures.network.nodes) - 1
    functions = Functions({last: rows}, np.zeros(len(places)), owners)
    ranges = Ranges.of(enclosures).only(owners)
    is_low_split = np.zeros(ranges.low.shape, bool)
    is_high_split = np.zeros(ranges.low.shape, bool)
    flat = list(chain.from_iterable(place.constraints for place in places))
    cells = np.repeat(np.arange(len(places)), [len(place.constraints) for place in places])
    neurons = np.array([constraint.neuron for constraint in flat], dtype=int)
    values = np.array([constraint.value for constraint in flat])
    is_low = np.array([constraint.sign > 0 for constraint in flat], dtype=bool)
    for ends, marks, chosen, better in (
        (ranges.low, is_low_split, is_low, np.maximum),
        (ranges.high, is_high_split, ~is_low, np.minimum),
    ):
        better.at(ends, (cells[chosen], neurons[chosen]), values[chosen])
        marks[cells[chosen], neurons[chosen]] = True
    is_new = is_low_split | is_high_split
    around = changed_sides(enclosures.network, before, ranges, is_new)
    return Batch(enclosures, functions, ranges, around, is_low_split, is_high_split, choices)


def are_empty(batch: Batch) -> Array:
    """Which cells have no points: an interval is empty, or the ball has no point of the box."""
    is_crossed = (batch.ranges.low > batch.ranges.high).any(axis=1)
    is_missed = batch.enclosures.balls.are_missed[batch.functions.owners]
    return np.asarray(is_crossed | is_missed)


def can_halve(enclosures: Enclosures) -> bool:
    """Whether intervals of halves can be shown in certificates.

    An interval of a sum of affine entries may use the ball for one of them and its box for another. A
    certificate uses one of the two for the whole sum."""
    network = enclosures.network
    if not enclosures.balls.is_round:
        return True
    for node in network.nodes:
        if isinstance(node, Affine) and any(
            isinstance(network.nodes[source], Affine) for source in node.sources
        ):
            return False
    return True


def halves(regions: Sequence[Region], inputs: Array) -> list[tuple[Region, Region]]:
    """Regions cut in the middle of an input, each in two."""
    before = Enclosures.joined([region.enclosures for region in regions])
    balls = [region.whole or region.enclosures for region in regions]
    whole = Enclosures.joined([*balls, *balls])
    found = Enclosures.of(before.network, before.balls.halves(inputs), whole, before.device)
    around = sides(before.network, Ranges.of(found))
    parts = []
    for k in range(found.balls.count):
        chosen = np.array([k])
        ball = balls[k % len(balls)]
        parts.append(Region(found.only(chosen), around.only(chosen), ball))
    return list(zip(parts[: len(regions)], parts[len(regions) :], strict=True))


def _cuts(part: Enclosures, group: Group, places: Array, is_upper: bool) -> Cuts:
    """Lower or upper ends of neurons of a group, by the usual lines or by intervals of the neurons before."""
    sign = -1.0 if is_upper else 1.0
    ends = part.intervals[group.source][1 if is_upper else 0][0, places]
    nobody = np.zeros(len(places), dtype=int)
    rows = np.zeros((len(places), part.network.nodes[group.source].size))
    rows[np.arange(len(places)), places] = sign
    functions = Functions({group.source: rows}, np.zeros(len(places)), nobody)
    relaxation = Usual(part.around, nobody)
    bounded = lower_bounds(part.network, part.balls, part.sizes, functions, relaxation)
    # With lines of slope 0, a bound is that of interval arithmetic.
    is_by_lines = bounded.bounds >= sign * ends
    slopes = np.where(is_by_lines[:, None], slopes_of(part.network, bounded), 0.0)
    no_weights = np.zeros((len(places), 0))
    neurons = group.neurons.start + places
    return Cuts(is_upper, neurons, ends, no_weights, slopes, bounded.multipliers)
