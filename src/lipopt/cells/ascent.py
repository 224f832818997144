"""Steps towards the best lines around neurons, for many bounded neurons at once.

A bound by elimination is a function of the mixes: for each bounded neuron, and each neuron before it,
where to take the line between the two on either side. Its gradient costs a walk forward. At the point
of the domain where the bound is attained, replace every neuron by its line:

    y = form . (x, p, 1),   p = k y + c        the line that was used

Then the derivative in a mix is the coefficient of p times how much the one line is above the other at y.
Steps are projected to [0, 1]; the best mixes of each row are kept. Where linear programs are too much
work, this gets most of what they would.
"""

from __future__ import annotations

import numpy as np

from ..model.round_ball import InputSet
from ..numerics.arrays import Array
from ..problem.task import is_past
from .elimination import Eliminated, Mix, Neurons, Rows, lower_bounds

STEPS = 12
FIRST_STEP = 0.5  # of a mix, for the largest derivative of a row
SHRINK = 0.75  # of the step, every time


def ascend(
    rows: Rows,
    groups: list[Neurons],
    mixes: list[Mix],
    domain: InputSet,
    deadline: float | None,
) -> list[Mix]:
    """Better mixes than these, for every row on its own; no more steps after the deadline."""
    found = lower_bounds(rows, groups, mixes, domain)
    best_bounds = found.bounds
    best = mixes
    step = FIRST_STEP
    for _ in range(STEPS):
        if is_past(deadline):
            break
        mixes = _stepped(mixes, _derivatives(groups, mixes, found, domain), step)
        found = lower_bounds(rows, groups, mixes, domain)
        is_better = found.bounds > best_bounds
        best_bounds = np.where(is_better, found.bounds, best_bounds)
        best = [_chosen(is_better, new, old) for new, old in zip(mixes, best, strict=True)]
        step *= SHRINK
    return best


def _derivatives(
    groups: list[Neurons], mixes: list[Mix], found: Eliminated, domain: InputSet
) -> list[Mix]:
    """The derivatives of the bounds in all mixes, by a walk from the inputs on."""
    inputs = len(domain.lower)
    count, width = found.slopes.shape
    point = np.zeros((count, width))
    point[:, :inputs] = domain.least_points(found.own)
    point[:, -1] = 1.0
    derivatives = []
    for neurons, mix, c in zip(groups, mixes, found.met, strict=True):
        y = point @ neurons.forms.rows.T
        above_first = _difference(neurons.below.slopes, neurons.below.offsets, y)
        above_other = _difference(neurons.above.slopes, neurons.above.offsets, y)
        derivatives.append(Mix(np.maximum(c, 0) * above_first, np.minimum(c, 0) * above_other))
        point[:, neurons.columns] = neurons.lines(c, mix, y)
    return derivatives


def _difference(slopes: Array, offsets: Array, y: Array) -> Array:
    """How much the second of two lines is above the first at y."""
    return (slopes[1] - slopes[0]) * y + (offsets[1] - offsets[0])


def _stepped(mixes: list[Mix], derivatives: list[Mix], step: float) -> list[Mix]:
    """Mixes after a step whose largest entry in every row is `step`."""
    tiny = np.finfo(np.float64).tiny
    largest = np.full(len(mixes[0].below) if mixes else 0, tiny)
    for derivative in derivatives:
        sizes = np.maximum(np.abs(derivative.below), np.abs(derivative.above))
        largest = np.maximum(largest, sizes.max(axis=1, initial=0.0))
    scale = (step / largest)[:, None]
    stepped = []
    for mix, derivative in zip(mixes, derivatives, strict=True):
        below = np.clip(mix.below + scale * derivative.below, 0.0, 1.0)
        above = np.clip(mix.above + scale * derivative.above, 0.0, 1.0)
        stepped.append(Mix(below, above))
    return stepped


def _chosen(is_new: Array, new: Mix, old: Mix) -> Mix:
    """The new mixes of some rows, the old ones of the others."""
    rows = is_new[:, None]
    return Mix(np.where(rows, new.below, old.below), np.where(rows, new.above, old.above))
