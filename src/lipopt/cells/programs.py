"""The linear programs of a cell: which weights and lines bound a neuron best.

The variables are the inputs and the outputs of open neurons. An output lies above the two lines below
its activation and below the two lines above; constraints of the cell are rows. The multipliers of
these rows say how to mix the lines, and which weights constraints get: the bound that follows by
elimination is the optimum of the LP, up to rounding.
"""

from __future__ import annotations

import time

import numpy as np

from ..numerics.arrays import Array
from ..solvers.polytope import Minimum, Polytope
from .cell import Constraint
from .elimination import Mix, Neurons
from .walk import Walk


class Programs:
    """The polytope of a cell, as far as a walk has come."""

    def __init__(self, walk: Walk, deadline: float | None) -> None:
        self.walk = walk
        self.deadline = deadline  # on the clock of time.monotonic
        self.polytope = Polytope(walk.cell.lower, walk.cell.upper)
        self.columns = np.arange(walk.reduced.inputs)  # of the variables that are in the polytope
        self.constraint_rows: dict[int, int] = {}  # by the constraint's place in the cell
        # For every group, the rows of the lines below, then above; none for a line that is repeated.
        self.line_rows: list[list[Array | None]] = []
        self.points: list[Array] = []  # of the inputs: where minima were found

    def add_constraint(self, place: int, constraint: Constraint) -> None:
        """A constraint of the cell on a neuron whose form is written."""
        form = self.walk.forms.rows[constraint.neuron]
        value = constraint.value - form[-1]
        lower = value if constraint.sign > 0 else -np.inf
        upper = value if constraint.sign < 0 else np.inf
        self.constraint_rows[place] = self.polytope.rows
        self.polytope.add_rows(form[None, self.columns], np.array([lower]), np.array([upper]))

    def remove_constraints(self, places: list[int]) -> None:
        """Take back the constraints that were added last."""
        self.polytope.remove_rows(len(places))
        for place in places:
            del self.constraint_rows[place]

    def add_group(self, neurons: Neurons) -> None:
        """The outputs of open neurons, with a row for each line below and above them."""
        count = len(neurons.columns)
        free = np.full(count, np.inf)
        self.polytope.add_columns(-free, free)
        forms = neurons.forms.rows[:, self.columns]
        constants = neurons.forms.rows[:, -1]
        own = np.eye(count)
        line_rows: list[Array | None] = []
        for pair, is_below in ((neurons.below, True), (neurons.above, False)):
            for k in range(2):
                if k == 1 and np.array_equal(pair.slopes[0], pair.slopes[1]):
                    line_rows.append(None)
                    continue
                slopes = pair.slopes[k]
                rows = np.concatenate([-slopes[:, None] * forms, own], axis=1)
                value = slopes * constants + pair.offsets[k]
                lower = value if is_below else -free
                upper = free if is_below else value
                line_rows.append(self.polytope.rows + np.arange(count))
                self.polytope.add_rows(rows, lower, upper)
        self.line_rows.append(line_rows)
        self.columns = np.concatenate([self.columns, neurons.columns])

    def minimize(self, neuron: int, sign: float) -> Minimum | None:
        """The minimum of sign times a neuron's input over the polytope, if there is time for it."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            return None
        form = self.walk.forms.rows[neuron]
        found = self.polytope.minimize(sign * form[self.columns])
        if found is not None:
            self.points.append(found.point[: self.walk.reduced.inputs])
        return found

    def weights(self, minima: list[Minimum]) -> Array:
        """The weights of the cell's constraints, (minima, constraints)."""
        found = np.zeros((len(minima), len(self.walk.cell.constraints)))
        for place, row in self.constraint_rows.items():
            found[:, place] = [abs(minimum.multipliers[row]) for minimum in minima]
        return found

    def mixes(self, minima: list[Minimum]) -> list[Mix]:
        """How the multipliers mix the lines around the neurons of every group."""
        multipliers = np.abs([minimum.multipliers for minimum in minima])
        found = []
        usual_mixes = self.walk.usual_mixes(len(minima))
        for rows, usual in zip(self.line_rows, usual_mixes, strict=True):
            below = _share(multipliers, rows[0], rows[1], usual.below)
            above = _share(multipliers, rows[2], rows[3], usual.above)
            found.append(Mix(below, above))
        return found


def _share(multipliers: Array, first: Array | None, second: Array | None, usual: Array) -> Array:
    """The share of the second line's multipliers, or what is usual where both are zero."""
    if first is None or second is None:
        return usual
    total = multipliers[:, first] + multipliers[:, second]
    is_used = total > 0
    return np.where(is_used, multipliers[:, second] / np.where(is_used, total, 1.0), usual)


def deepest_point(walk: Walk) -> list[Array]:
    """A point as far as can be from the boundary of a cell in which all neurons are linear.

    The distance, relative to the widths of the box, is one more variable. If the cell has an
    interior, the network is differentiable there, and its slope is the bound of the cell."""
    cell = walk.cell
    inputs = walk.reduced.inputs
    width = cell.upper - cell.lower
    polytope = Polytope(np.append(cell.lower, 0.0), np.append(cell.upper, 1.0))
    inside = np.concatenate([np.eye(inputs), -np.eye(inputs)])
    rows = [np.concatenate([inside, -np.tile(width, 2)[:, None]], axis=1)]
    ends = [np.concatenate([cell.lower, -cell.upper])]
    for constraint in cell.constraints:
        form = constraint.sign * walk.forms.rows[constraint.neuron]
        distance = np.abs(form[:inputs]) @ width
        rows.append(np.append(form[:inputs], -distance)[None])
        ends.append(np.array([constraint.sign * constraint.value - form[-1]]))
    lower = np.concatenate(ends)
    polytope.add_rows(np.concatenate(rows), lower, np.full(len(lower), np.inf))
    cost = np.zeros(inputs + 1)
    cost[-1] = -1.0
    found = polytope.minimize(cost)
    return [] if found is None else [found.point[:inputs]]
