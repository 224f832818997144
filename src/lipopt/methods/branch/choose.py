"""Where to split a cell.

A neuron counts with what it can change in the derivative: the width of its slope's range, times the
largest coefficient that it has, times the largest derivative of its input. Early neurons come first
(DISCOUNT): a constraint on them is linear in the inputs, or nearly, and decides neurons behind them.

Inputs are split first where there are few of them and many neurons are open, and where neurons are
smooth: splitting a neuron makes its slope's range narrower, splitting an input does that to all.
Where all of them are smooth, and the domain is a box, nothing else is split.
"""

from __future__ import annotations

import numpy as np

from ...cells.boxes import can_bend
from ...cells.cell import Cell
from ...cells.examine import Examined
from ...cells.reduced import Reduced
from ...model.network import Network
from ...model.round_ball import InputSet
from ...numerics.arrays import Array
from ...problem.proofs import InputSplit, NeuronSplit, Split

DISCOUNT = 0.5  # for every group of neurons further from the input
FEW_INPUTS = 12  # up to so many inputs may be split
MANY_NEURONS = 40  # with more open neurons than that, inputs are split first
NARROWEST = 2.0**-30  # what is narrower is not split, relative to its largest value in the domain


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


def choose_split(reduced: Reduced, root: Cell, examined: Examined) -> Split | None:
    """The split of an examined cell; None if nothing in it is wide enough to be split."""
    cell = examined.cell
    assert cell is not None
    if examined.spreads is not None:
        return _widest_split(root, cell, examined.spreads)
    scores = _scores(reduced, examined)
    if wants_boxes(reduced, cell):
        found = _input_split(root, cell, examined, scores)
        if found is not None:
            return found
    return _neuron_split(reduced, root, cell, scores)


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


def _neuron_split(reduced: Reduced, root: Cell, cell: Cell, scores: Array) -> NeuronSplit | None:
    """The neuron with the largest score that can be split."""
    for neuron in np.argsort(-scores, kind="stable"):
        if scores[neuron] <= 0:
            return None
        value = _value(reduced, root, cell, int(neuron))
        if value is not None:
            return NeuronSplit(int(neuron), value)
    return None


def _value(reduced: Reduced, root: Cell, cell: Cell, neuron: int) -> float | None:
    """Where to split a neuron's interval: where the wider of the two slope ranges is narrowest."""
    low = float(cell.low[neuron])
    high = float(cell.high[neuron])
    narrowest = NARROWEST * _size(root.low[neuron], root.high[neuron])
    group = next(group for group in reduced.groups if group.start <= neuron < group.stop)
    place = neuron - group.start
    points = [float(point) for point in reduced.break_points(group)[:, place]]
    if np.isfinite(low) and np.isfinite(high):
        points.append((low + high) / 2)
    points = [point for point in points if low + narrowest < point < high - narrowest]
    if not points:
        return None
    widths = []
    for point in points:
        left = reduced.slope_width(group, place, low, point)
        right = reduced.slope_width(group, place, point, high)
        widths.append(max(left, right) + (left + right) / 1000)
    return points[int(np.argmin(widths))]


def _size(low: float, high: float) -> float:
    """The largest absolute value in an interval; 1 if it is infinite."""
    size = max(abs(low), abs(high))
    return float(size) if np.isfinite(size) else 1.0


def _input_split(root: Cell, cell: Cell, examined: Examined, scores: Array) -> InputSplit | None:
    """The input that has the largest share in the intervals of neurons that count."""
    inputs = len(cell.lower)
    width = cell.upper - cell.lower
    spread = np.maximum(cell.high - cell.low, np.finfo(np.float64).tiny)
    shares = np.abs(examined.forms[:, :inputs]) * width / spread[:, None]
    smear = (scores * cell.is_open) @ np.minimum(shares, 1.0)
    return _widest_split(root, cell, smear)


def _widest_split(root: Cell, cell: Cell, shares: Array) -> InputSplit | None:
    """The input with the largest share in what makes a bound too large, at its middle."""
    width = cell.upper - cell.lower
    is_narrow = width <= NARROWEST * np.maximum(np.abs(root.upper), np.abs(root.lower))
    shares = np.where(is_narrow, 0.0, np.nan_to_num(shares, nan=np.inf))
    place = int(shares.argmax())
    if not shares[place] > 0:
        return None
    return InputSplit(place, float((cell.lower[place] + cell.upper[place]) / 2))
