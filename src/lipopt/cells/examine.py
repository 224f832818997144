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

from ..numerics.arrays import Array
from ..problem.derivative import DerivativeProblem
from ..problem.proofs import Cuts
from ..problem.task import is_past
from ..solvers.polytope import Minimum
from .cell import Cell
from .points import candidates, with_found
from .programs import Programs, interior_point
from .reduced import Reduced
from .slope_bound import derivative_problem, slope_bound
from .walk import Walk

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
    # Of boxes that are examined together: what proves the bound, if it is not interval arithmetic,
    # and what the width of every input contributes to it.
    signs: Array | None = None
    spreads: Array | None = None


class Effort(Enum):
    """How much is done for better intervals."""

    USUAL = "the usual lines"
    ASCENT = "lines found by an ascent"
    PROGRAMS = "linear programs"


def examine(
    reduced: Reduced, cell: Cell, effort: Effort, deadline: float | None = None
) -> Examined:
    """Walk through a cell. After the deadline there are the usual lines alone."""
    walk = Walk.start(reduced, cell)
    if cell.inputs.is_empty:
        return _empty(walk)
    is_bounded = cell.inputs.is_bounded
    has_programs = is_bounded and effort is Effort.PROGRAMS
    programs = Programs(walk, deadline) if has_programs else None
    while walk.position < len(reduced.groups) and not walk.is_empty:
        walk.write_forms()
        is_new = walk.group.stop > cell.unchanged
        if is_bounded and is_new:
            _usual_cuts(walk)
            if effort is Effort.ASCENT:
                _ascent_cuts(walk, deadline)
        if programs is not None:
            _constrain(walk, programs, is_new)
            if is_new:
                _solve(walk, programs)
        if walk.is_empty:
            break
        before = len(walk.groups)
        walk.settle()
        if programs is not None and len(walk.groups) > before:
            programs.add_group(walk.groups[-1])
    if walk.is_empty:
        return _empty(walk)
    bound = slope_bound(walk)
    found = [] if programs is None else programs.points
    if is_bounded and not walk.is_open.any():
        found = found + interior_point(walk)
    points = with_found(reduced, cell, found)
    after = replace(
        cell,
        low=walk.low,
        high=walk.high,
        is_open=walk.is_open,
        points=points,
        is_refined=cell.is_refined or effort is not Effort.USUAL,
        unchanged=reduced.neurons if has_programs else 0,
    )
    fixed = np.flatnonzero(cell.is_open & ~walk.is_open)
    return Examined(
        after,
        bound.value,
        bound.reach,
        walk.forms.rows,
        partial(derivative_problem, walk, bound.errors),
        walk.slopes,
        tuple(walk.cuts),
        fixed,
        candidates(points),
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


def _ascent_cuts(walk: Walk, deadline: float | None) -> None:
    """Cut the intervals of this group by elimination with lines that steps of an ascent found."""
    if not walk.groups:
        return  # there are no lines to choose
    for sign in (1.0, -1.0):
        neurons = walk.undecided()
        if len(neurons) == 0 or is_past(deadline):
            return
        weights = np.zeros((len(neurons), len(walk.cell.constraints)))
        mixes = walk.better_mixes(neurons, sign, weights, deadline)
        walk.keep(walk.bound(neurons, sign, weights, mixes))


def _constrain(walk: Walk, programs: Programs, is_new: bool) -> None:
    """Add the constraints on neurons of this group, and look what is new of them.

    If no point of the cell is known it may be empty. Where the constraints leave nothing, each is
    compared with the largest value that its neuron can have under those before it."""
    group = walk.group
    own = []
    for place, constraint in enumerate(walk.cell.constraints):
        if group.start <= constraint.neuron < group.stop:
            own.append((place, constraint))
    for place, constraint in own:
        programs.add_constraint(place, constraint)
    if not own or not is_new or walk.cell.points.count > 0 or programs.find_points():
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
    """Linear programs for the neurons of this group where they can change the slope's range.

    What is attained where one program ends cannot be excluded by another."""
    group = walk.group
    known = walk.cell.points.y[group]
    least = known.min(axis=1, initial=np.inf)
    most = known.max(axis=1, initial=-np.inf)
    for sign in (1.0, -1.0):
        if walk.is_empty:
            return
        neurons: list[int] = []
        minima = []
        width = walk.reduced.slope_width(group, walk.low[group], walk.high[group])
        left = _promising(walk, sign, width, least, most)
        while len(left):
            neuron = int(left[0])
            minimum = programs.minimize(neuron, sign)
            if minimum is not None:
                neurons.append(neuron)
                minima.append(minimum)
                y = programs.inputs_at(minimum, group)
                least = np.minimum(least, y)
                most = np.maximum(most, y)
            still = _promising(walk, sign, width, least, most)
            left = still[still > neuron]
        if minima:
            _cut(walk, programs, neurons, minima, sign)


def _cut(
    walk: Walk, programs: Programs, neurons: list[int], minima: list[Minimum], sign: float
) -> None:
    """Cut intervals with the weights and lines that linear programs found."""
    weights = programs.weights(minima)
    walk.keep(walk.bound(np.array(neurons), sign, weights, programs.mixes(minima)))


def _promising(walk: Walk, sign: float, width: Array, least: Array, most: Array) -> Array:
    """The neurons whose slope range, of this width, could shrink if this end of the interval is cut.

    Nothing is cut between the least and the most that is attained."""
    group = walk.group
    low = walk.low[group]
    high = walk.high[group]
    if sign > 0:
        low = np.maximum(low, np.minimum(least, high))
    else:
        high = np.minimum(high, np.maximum(most, low))
    possible = width - walk.reduced.slope_width(group, low, high)
    return group.start + np.flatnonzero(possible > GAIN * width)
