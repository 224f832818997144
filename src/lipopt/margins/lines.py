"""Lines around neurons in cells: parts of balls in which some neurons have narrower intervals.

Neurons are the entries of activation nodes, numbered from the first node to the last. Arrays have a
row for every cell, or ball, and a column for every neuron. A neuron has two lines on either side,
and any line between them will do: the mix says which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..model.activations import Function, LinePair
from ..model.network import Network
from ..numerics.arrays import Array, namespace
from .backward import Lines
from .enclosures import Enclosures


@dataclass(frozen=True)
class Group:
    """The neurons of one activation node."""

    node: int
    source: int
    neurons: slice
    function: Function


def groups(network: Network) -> list[Group]:
    """The activation nodes of a network, with the numbers of their neurons."""
    found = []
    first = 0
    for i, node in network.activations.items():
        neurons = slice(first, first + node.size)
        found.append(Group(i, node.source, neurons, node.function))
        first += node.size
    return found


@dataclass(frozen=True, eq=False)
class Sides:
    """Two lines below and two above, of every row and neuron."""

    below: LinePair  # (2, rows, neurons)
    above: LinePair

    @staticmethod
    def joined(parts: Sequence[Sides]) -> Sides:
        """The rows of several, one after the other."""
        return Sides(
            _joined([part.below for part in parts]), _joined([part.above for part in parts])
        )

    def only(self, chosen: Array) -> Sides:
        """Some of the rows."""
        return Sides(_rows_of(self.below, chosen), _rows_of(self.above, chosen))

    def usual_mix(self, ranges: Ranges) -> Array:
        """The mix of the lines below that is best in the middle of the intervals."""
        middle = (ranges.low + ranges.high) / 2
        values = self.below.slopes * middle + self.below.offsets
        return np.asarray(values[1] > values[0], dtype=np.float64)

    def chosen(self, neurons: slice, is_below: Array) -> LinePair:
        """The pairs on the side that is asked for, for each row and neuron of a slice."""
        xp = namespace(is_below)
        slopes = xp.where(
            is_below, self.below.slopes[:, :, neurons], self.above.slopes[:, :, neurons]
        )
        offsets = xp.where(
            is_below, self.below.offsets[:, :, neurons], self.above.offsets[:, :, neurons]
        )
        return LinePair(slopes, offsets)


def _rows_of(pair: LinePair, chosen: Array) -> LinePair:
    return LinePair(pair.slopes[:, chosen], pair.offsets[:, chosen])


def _joined(pairs: Sequence[LinePair]) -> LinePair:
    slopes = np.concatenate([pair.slopes for pair in pairs], axis=1)
    offsets = np.concatenate([pair.offsets for pair in pairs], axis=1)
    return LinePair(slopes, offsets)


@dataclass(frozen=True, eq=False)
class Ranges:
    """Intervals of the inputs of all neurons."""

    low: Array  # (rows, neurons)
    high: Array

    @staticmethod
    def of(enclosures: Enclosures) -> Ranges:
        """Those of the balls."""
        low = [np.zeros((enclosures.balls.count, 0))]
        high = [np.zeros((enclosures.balls.count, 0))]
        for group in groups(enclosures.network):
            ends = enclosures.intervals[group.source]
            low.append(ends[0])
            high.append(ends[1])
        return Ranges(np.concatenate(low, axis=1), np.concatenate(high, axis=1))

    def only(self, chosen: Array) -> Ranges:
        return Ranges(self.low[chosen], self.high[chosen])


def sides(network: Network, ranges: Ranges) -> Sides:
    """The lines around all neurons, on these intervals."""
    shape = ranges.low.shape
    everywhere = np.ones(shape, bool)
    empty = np.zeros((2, *shape))
    blank = Sides(LinePair(empty, empty.copy()), LinePair(empty.copy(), empty.copy()))
    return changed_sides(network, blank, ranges, everywhere)


def changed_sides(network: Network, before: Sides, ranges: Ranges, is_new: Array) -> Sides:
    """The same lines, but for the neurons of rows whose interval is new. Arrays are changed."""
    for group, rows, places in _new_neurons(network, is_new):
        neurons = group.neurons.start + places
        low = ranges.low[rows, neurons]
        high = ranges.high[rows, neurons]
        pairs = group.function.only(places).line_pairs(low, high)
        for pair, target in zip(pairs, (before.below, before.above), strict=True):
            target.slopes[:, rows, neurons] = pair.slopes
            target.offsets[:, rows, neurons] = pair.offsets
    return before


def _new_neurons(network: Network, is_new: Array) -> Iterator[tuple[Group, Array, Array]]:
    """For every group, the rows and the places of its neurons that are marked."""
    for group in groups(network):
        rows, places = np.nonzero(is_new[:, group.neurons])
        if len(rows):
            yield group, rows, places


@dataclass(frozen=True, eq=False)
class Mixed:
    """The relaxation by mixes of lines, with forces on neurons whose interval was split."""

    neurons: dict[int, slice]  # by activation node
    sides: Sides
    ranges: Ranges
    mix: Array  # (rows, neurons), in [0, 1]
    force: Array

    def lines(self, node: int, coefficients: Array) -> Lines:
        own = self.neurons[node]
        pair = self.sides.chosen(own, coefficients > 0)
        mix = self.mix[:, own]
        slopes = pair.slopes[0] + mix * (pair.slopes[1] - pair.slopes[0])
        offsets = pair.offsets[0] + mix * (pair.offsets[1] - pair.offsets[0])
        force = self.force[:, own]
        if not force.any():
            return Lines(slopes, offsets)
        xp = namespace(force)
        ends = xp.where(force < 0, self.ranges.low[:, own], self.ranges.high[:, own])
        return Lines(slopes, offsets, force, xp.where(force == 0, 0.0, ends))
