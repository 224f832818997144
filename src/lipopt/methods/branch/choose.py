"""Where a cell can be split.

A neuron counts with what it can change in the derivative: the width of its slope's range, times the
largest coefficient that it has, times the largest derivative of its input. Early neurons come first
(DISCOUNT): a constraint on them is linear in the inputs, or nearly, and decides neurons behind them.
That is what is known of a neuron before it was ever split; gains.py has what is known afterwards.

Inputs are split first where there are few of them and many neurons are open, and where neurons are
smooth: splitting a neuron makes its slope's range narrower, splitting an input does that to all.
Where all of them are smooth, and the domain is a box, nothing else is split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cells.boxes import can_bend
from ...cells.cell import Cell
from ...cells.examine import Examined
from ...cells.reduced import Reduced
from ...model.network import Network
from ...model.round_ball import InputSet
from ...numerics.arrays import Array
from ...problem.proofs import InputSplit

DISCOUNT = 0.5  # for every group of neurons further from the input
FEW_INPUTS = 12  # up to so many inputs may be split
MANY_NEURONS = 40  # with more open neurons than that, inputs are split first
NARROWEST = 2.0**-30  # what is narrower is not split, relative to its largest value in the domain,
NOISE = 2.0**-42  # or relative to the largest value of any neuron there: that is what rounding left
WIDTHS_COUNT = 1e-3  # how much both slope ranges count, beside the wider one


@dataclass(frozen=True, eq=False)
class NeuronSplits:
    """The neurons at which a cell can be split, the most promising ones first."""

    neurons: Array
    values: Array  # where they would be split
    scores: Array  # what each can change in the derivative

    @property
    def count(self) -> int:
        return len(self.neurons)


def are_boxes_enough(network: Network, domain: InputSet) -> bool:
    """Whether inputs alone are split, and cells are bounded by their curvature."""
    is_box = domain.ball is None and domain.is_bounded
    return is_box and network.input_size <= FEW_INPUTS and can_bend(network)


def wants_boxes(reduced: Reduced, cell: Cell) -> bool:
    """Whether the cell is better divided by its inputs."""
    if reduced.inputs > FEW_INPUTS or not np.isfinite(cell.lower).all():
        return False
    return reduced.has_smooth_neurons or (
        not cell.constraints and int(cell.is_open.sum()) > MANY_NEURONS
    )


def possible_splits(
    reduced: Reduced, root: Cell, examined: Examined
) -> InputSplit | NeuronSplits | None:
    """Where an examined cell can be split; None if nothing in it is wide enough to be split."""
    cell = examined.cell
    assert cell is not None
    if examined.spreads is not None:
        return _widest_input(root, cell, examined.spreads)
    scores = _scores(reduced, examined)
    if wants_boxes(reduced, cell):
        found = _input_split(root, cell, examined, scores)
        if found is not None:
            return found
    return _neuron_splits(reduced, root, cell, scores)


def _scores(reduced: Reduced, examined: Examined) -> Array:
    """What every open neuron can change in the derivative."""
    inputs = reduced.inputs
    size = np.abs(examined.forms)
    width = examined.slopes[1] - examined.slopes[0]
    steepest = np.maximum(np.abs(examined.slopes[0]), np.abs(examined.slopes[1]))
    derivative = np.zeros(reduced.neurons)  # of the outputs of neurons, at most
    scores = np.zeros(reduced.neurons)
    for k, group in enumerate(reduced.groups):
        before = slice(inputs, inputs + group.start)
        own = reduced.in_units(size[group, :inputs]).sum(axis=1)
        own += size[group, before] @ derivative[: group.start]
        derivative[group] = steepest[group] * own
        scores[group] = width[group] * examined.reach[group] * own * DISCOUNT**k
    return scores


def _neuron_splits(reduced: Reduced, root: Cell, cell: Cell, scores: Array) -> NeuronSplits | None:
    """The neurons that count and whose interval is wide enough."""
    values = np.concatenate(
        [np.zeros(0), *(_split_values(reduced, root, cell, group) for group in reduced.groups)]
    )
    neurons = np.flatnonzero((scores > 0) & np.isfinite(values))
    if len(neurons) == 0:
        return None
    neurons = neurons[np.argsort(-scores[neurons], kind="stable")]
    return NeuronSplits(neurons, values[neurons], scores[neurons])


def _split_values(reduced: Reduced, root: Cell, cell: Cell, group: slice) -> Array:
    """Where to split the neurons of a group: where the wider of the two slope ranges is narrowest.

    NaN for neurons that are too narrow."""
    low = cell.low[group]
    high = cell.high[group]
    everywhere = float(_largest(root.low, root.high).max(initial=0.0))
    narrowest = NARROWEST * _largest(root.low[group], root.high[group]) + NOISE * everywhere
    middle = low / 2 + high / 2
    points = np.concatenate([reduced.break_points(group), middle[None]])
    is_inside = (low + narrowest < points) & (points < high - narrowest)
    points = np.where(is_inside, points, 0.0)
    left = reduced.slope_width(group, np.broadcast_to(low, points.shape), points)
    right = reduced.slope_width(group, points, np.broadcast_to(high, points.shape))
    widths = np.maximum(left, right) + WIDTHS_COUNT * (left + right)
    widths = np.where(is_inside, widths, np.inf)
    best = np.argmin(widths, axis=0)
    everyone = np.arange(len(low))
    return np.where(is_inside[best, everyone], points[best, everyone], np.nan)


def _largest(low: Array, high: Array) -> Array:
    """The largest absolute values in intervals; 1 where they are infinite."""
    size = np.maximum(np.abs(low), np.abs(high))
    return np.where(np.isfinite(size), size, 1.0)


def _input_split(root: Cell, cell: Cell, examined: Examined, scores: Array) -> InputSplit | None:
    """The input that has the largest share in the intervals of neurons that count."""
    inputs = len(cell.lower)
    width = cell.upper - cell.lower
    spread = np.maximum(cell.high - cell.low, np.finfo(np.float64).tiny)
    shares = np.abs(examined.forms[:, :inputs]) * width / spread[:, None]
    smear = (scores * cell.is_open) @ np.minimum(shares, 1.0)
    return _widest_input(root, cell, smear)


def _widest_input(root: Cell, cell: Cell, shares: Array) -> InputSplit | None:
    """The input with the largest share in what makes a bound too large, at its middle."""
    width = cell.upper - cell.lower
    is_narrow = width <= NARROWEST * np.maximum(np.abs(root.upper), np.abs(root.lower))
    shares = np.where(is_narrow, 0.0, np.nan_to_num(shares, nan=np.inf))
    place = int(shares.argmax())
    if not shares[place] > 0:
        return None
    return InputSplit(place, float((cell.lower[place] + cell.upper[place]) / 2))
