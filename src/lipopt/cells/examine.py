"""What there is to know of a cell: better intervals, whether it is empty, its bound.

Intervals get better in two ways. By elimination with the usual lines, for all neurons of a group at
once: that is cheap. And by linear programs, for the neurons whose slope range can still change: what
is attained at points of the cell cannot be excluded from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

import numpy as np

from ..model.norms import Norm
from ..numerics.arrays import Array
from ..problem.derivative import DerivativeProblem
from ..problem.proofs import Cuts
from ..solvers.polytope import Minimum
from .cell import Cell, Points
from .programs import Programs, deepest_point
from .reduced import Reduced
from .slope_bound import derivative_problem, slope_bound
from .walk import Walk

MAX_POINTS = 256  # that a cell keeps, if its points and the neurons there take no more than
POINT_ENTRIES = 20_000  # numbers; with larger networks, fewer
FEWEST_POINTS = 16
INWARD = 0.1  # how far a point is moved towards the middle of its cell, relative
GAIN = 0.1  # how much of a slope's range a linear program must be able to take away, relative


@dataclass(frozen=True, eq=False)
class Examined:
    """A cell after it was examined."""

    cell: Cell | None  # with what is now known; None if it is empty
    bound: float
    reach: Array  # (neurons,): the largest coefficient of each in the objective
    forms: Array  # (neurons, width): of their inputs, in the variables that are open
    problem: Callable[[], DerivativeProblem]  # the derivative problem of the cell
    slopes: tuple[Array, Array]
    cuts: tuple[Cuts, ...]
    fixed: Array  # neurons that are linear now, and were not known to be
    candidates: Array  # (inputs, points): points where the slope may be large


class Effort(Enum):
    """How much is done for better intervals."""

    USUAL = "the usual lines"
    ASCENT = "lines found by an ascent"
    PROGRAMS = "linear programs"


def examine(
    reduced: Reduced, cell: Cell, norm: Norm, effort: Effort, deadline: float | None = None
) -> Examined:
    """Walk through a cell. No linear program is solved after the deadline."""
    walk = Walk.start(reduced, cell)
    programs = Programs(walk, deadline) if effort is Effort.PROGRAMS else None
    if cell.inputs.is_empty:
        return _empty(walk)
    is_bounded = cell.inputs.is_bounded
    while walk.position < len(reduced.groups) and not walk.is_empty:
        walk.write_forms()
        if is_bounded:
            _usual_cuts(walk)
            if effort is Effort.ASCENT:
                _ascent_cuts(walk)
            if programs is not None:
                _constrain(walk, programs)
                _solve(walk, programs)
        if walk.is_empty:
            break
        before = len(walk.groups)
        walk.settle()
        if programs is not None and len(walk.groups) > before:
            programs.add_group(walk.groups[-1])
    if walk.is_empty:
        return _empty(walk)
    bound = slope_bound(walk, norm)
    found = [] if programs is None else programs.points
    if is_bounded and not walk.is_open.any():
        found = found + deepest_point(walk)
    points = _points(reduced, cell, found)
    after = replace(
        cell,
        low=walk.low,
        high=walk.high,
        is_open=walk.is_open,
        points=points,
        is_refined=cell.is_refined or effort is not Effort.USUAL,
    )
    fixed = np.flatnonzero(cell.is_open & ~walk.is_open)
    return Examined(
        after,
        bound.value,
        bound.reach,
        walk.forms.rows,
        partial(derivative_problem, walk, norm, bound.errors),
        walk.slopes,
        tuple(walk.cuts),
        fixed,
        _candidates(points),
    )


def _empty(walk: Walk) -> Examined:
    none = np.empty(0, int)
    nowhere = np.zeros((walk.reduced.inputs, 0))
    return Examined(
        None, 0.0, none, walk.forms.rows, _no_problem, walk.slopes, tuple(walk.cuts), none, nowhere
    )


def _no_problem() -> DerivativeProblem:
    raise AssertionError("an empty cell has no derivative problem")


def _usual_cuts(walk: Walk) -> None:
    """Cut the intervals of this group by elimination with the usual lines."""
    neurons = walk.undecided()
    if len(neurons) == 0:
        return
    weights = np.zeros((len(neurons), len(walk.cell.constraints)))
    mixes = walk.usual_mixes(len(neurons))
    for sign in (1.0, -1.0):
        walk.keep(walk.bound(neurons, sign, weights, mixes))


def _ascent_cuts(walk: Walk) -> None:
    """Cut the intervals of this group by elimination with lines that steps of an ascent found."""
    if not walk.groups:
        return  # there are no lines to choose
    for sign in (1.0, -1.0):
        neurons = walk.undecided()
        if len(neurons) == 0:
            return
        weights = np.zeros((len(neurons), len(walk.cell.constraints)))
        walk.keep(walk.bound(neurons, sign, weights, walk.better_mixes(neurons, sign, weights)))


def _constrain(walk: Walk, programs: Programs) -> None:
    """Add the constraints on neurons of this group.

    If no point of the cell is known it may be empty. Where the constraints leave nothing, each is
    compared with the largest value that its neuron can have under those before it."""
    group = walk.group
    own = []
    for place, constraint in enumerate(walk.cell.constraints):
        if group.start <= constraint.neuron < group.stop:
            own.append((place, constraint))
    for place, constraint in own:
        programs.add_constraint(place, constraint)
    if not own or walk.cell.points.count > 0 or programs.find_points():
        return
    programs.remove_constraints([place for place, _ in own])
    for place, constraint in own:
        minimum = programs.minimize(constraint.neuron, -constraint.sign)
        if minimum is not None:
            _cut(walk, programs, [constraint.neuron], [minimum], -constraint.sign)
        if walk.is_empty:
            return
        programs.add_constraint(place, constraint)


def _solve(walk: Walk, programs: Programs) -> None:
    """Linear programs for the neurons of this group where they can change the slope's range."""
    for sign in (1.0, -1.0):
        if walk.is_empty:
            return
        neurons = []
        minima = []
        for neuron in _promising(walk, sign):
            minimum = programs.minimize(int(neuron), sign)
            if minimum is not None:
                neurons.append(int(neuron))
                minima.append(minimum)
        if minima:
            _cut(walk, programs, neurons, minima, sign)


def _cut(
    walk: Walk, programs: Programs, neurons: list[int], minima: list[Minimum], sign: float
) -> None:
    """Cut intervals with the weights and lines that linear programs found."""
    weights = programs.weights(minima)
    walk.keep(walk.bound(np.array(neurons), sign, weights, programs.mixes(minima)))


def _promising(walk: Walk, sign: float) -> Array:
    """The undecided neurons whose slope range could shrink if this end of the interval is cut."""
    group = walk.group
    low = walk.low[group]
    high = walk.high[group]
    slopes = walk.reduced.slope_range(group, low, high)
    width = slopes[1] - slopes[0]
    if walk.cell.points.count == 0:
        return group.start + np.flatnonzero(width > 0)
    attained = walk.cell.points.y[group]
    if sign > 0:
        low = np.maximum(low, np.minimum(attained.min(axis=1), high))
    else:
        high = np.minimum(high, np.maximum(attained.max(axis=1), low))
    best = walk.reduced.slope_range(group, low, high)
    possible = width - (best[1] - best[0])
    return group.start + np.flatnonzero(possible > GAIN * width)


def _candidates(points: Points) -> Array:
    """Points inside of the cell, if it is convex, (inputs, points).

    Linear programs end at its corners, where neurons are at their kinks and nothing is differentiable.
    So every point is moved towards the mean of all; the newest one is tried as it is, too."""
    if points.count == 0:
        return points.x
    middle = points.x.mean(axis=1, keepdims=True)
    moved = points.x + INWARD * (middle - points.x)
    return np.concatenate([points.x[:, -1:], middle, moved], axis=1)


def _points(reduced: Reduced, cell: Cell, found: list[Array]) -> Points:
    """The points that are known to lie in the cell, the newest last."""
    if not found:
        return cell.points
    x = cell.inputs.moved_into(np.array(found).T)
    new = Points(x, reduced.inputs_of_neurons(x))
    new = new.only(cell.holds(new))
    most = most_points(reduced)
    return Points(
        np.concatenate([cell.points.x, new.x], axis=1)[:, -most:],
        np.concatenate([cell.points.y, new.y], axis=1)[:, -most:],
    )


def most_points(reduced: Reduced) -> int:
    """How many points a cell keeps."""
    return min(MAX_POINTS, max(FEWEST_POINTS, POINT_ENTRIES // reduced.width))
