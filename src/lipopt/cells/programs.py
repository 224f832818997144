"""The linear programs of a cell: which weights and lines bound a neuron best.

The variables are the inputs and the outputs of open neurons. An output lies above the two lines below
its activation and below the two lines above; constraints of the cell are rows. The multipliers of
these rows say how to mix the lines, and which weights constraints get: the bound that follows by
elimination is the optimum of the LP, up to rounding.

An l1 ball is a polytope itself. An l2 ball is cut out of its box by tangents, at the points outside
of it that were found. The bound that follows by elimination knows the ball itself.
"""

from __future__ import annotations

import numpy as np

from ..model.norms import Norm
from ..model.round_ball import InputSet, RoundBall
from ..numerics.arrays import Array
from ..problem.task import is_past
from ..solvers.polytope import Minimum, Polytope
from .cell import Constraint
from .elimination import Mix, Neurons
from .walk import Walk

TANGENTS = 4  # to a ball, for one linear program at most
MANY_TANGENTS = 40  # where the question is whether there is a point at all
HALVINGS = 40  # of the way from one point to another, at most
LEAST_DISTANCE = 1e-9  # from the boundary, relative to the box: what is closer is not inside

# How many times as long a linear program takes in a round ball, by tangents or more variables.
ROUND_WORK = {Norm.L2: 30, Norm.L1: 5}


def round_work(ball: RoundBall | None) -> int:
    """How many times as long a linear program takes in this ball as in a box."""
    return 1 if ball is None else ROUND_WORK[ball.norm]


class Programs:
    """The polytope of a cell, as far as a walk has come."""

    def __init__(self, walk: Walk, deadline: float | None) -> None:
        self.walk = walk
        self.deadline = deadline  # on the clock of time.monotonic
        self.polytope = Polytope(walk.cell.lower, walk.cell.upper)
        self.curved = _add_ball(self.polytope, walk.cell.ball)
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
        """Take back constraints; rows that were added after them stay."""
        rows = [self.constraint_rows.pop(place) for place in places]
        self.polytope.remove_rows(rows)

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
        if is_past(self.deadline):
            return None
        form = self.walk.forms.rows[neuron]
        found = self._minimize(sign * form[self.columns])
        if found is not None:
            self.points.append(found.point[: self.walk.reduced.inputs])
        return found

    def find_points(self) -> bool:
        """Whether a point is found, or not said that there is none; tangents may stay behind."""
        if self.curved is not None and _nearest(self.polytope, self.curved) is not None:
            return True
        return self.polytope.has_points()

    def _minimize(self, cost: Array) -> Minimum | None:
        """The minimum of a linear function, with tangents to the ball where it is outside."""
        ball = self.curved
        inputs = self.walk.reduced.inputs
        found = self.polytope.minimize(cost)
        for _ in range(TANGENTS):
            if found is None or ball is None or _is_inside(ball, found.point[:inputs]):
                break
            _add_tangent(self.polytope, ball, found.point[:inputs])
            found = self.polytope.minimize(cost)
        return found

    def inputs_at(self, minimum: Minimum, group: slice) -> Array:
        """The inputs of the neurons of a group where a minimum was found."""
        forms = self.walk.forms.rows[group]
        return forms[:, self.columns] @ minimum.point + forms[:, -1]

    def weights(self, minima: list[Minimum]) -> Array:
        """The weights of the cell's constraints, (minima, constraints)."""
        found = np.zeros((len(minima), len(self.walk.cell.constraints)))
        for place, row in self.constraint_rows.items():
            found[:, place] = [abs(minimum.multipliers[row]) for minimum in minima]
        return found

    def mixes(self, minima: list[Minimum]) -> list[Mix]:
        """How the multipliers mix the lines around the neurons of every group."""
        rows = min(len(minimum.multipliers) for minimum in minima)  # tangents came after these
        multipliers = np.abs([minimum.multipliers[:rows] for minimum in minima])
        found = []
        usual_mixes = self.walk.usual_mixes(len(minima))
        for lines, usual in zip(self.line_rows, usual_mixes, strict=True):
            below = _share(multipliers, lines[0], lines[1], usual.below)
            above = _share(multipliers, lines[2], lines[3], usual.above)
            found.append(Mix(below, above))
        return found


def _share(multipliers: Array, first: Array | None, second: Array | None, usual: Array) -> Array:
    """The share of the second line's multipliers, or what is usual where both are zero."""
    if first is None or second is None:
        return usual
    total = multipliers[:, first] + multipliers[:, second]
    is_used = total > 0
    return np.where(is_used, multipliers[:, second] / np.where(is_used, total, 1.0), usual)


def _add_ball(polytope: Polytope, ball: RoundBall | None) -> RoundBall | None:
    """Cut a polytope with a ball, if that can be done by rows; the ball if it needs tangents."""
    if ball is None or ball.norm is not Norm.L1:
        return ball
    polytope.add_l1_ball(ball.center, ball.radii)
    return None


def _nearest(polytope: Polytope, ball: RoundBall) -> Array | None:
    """A point of the polytope that lies in the ball; None if none was found.

    Tangents are added at points that were found, and at their mean that is nearest to the center;
    the next point is looked for on the other side of the latter."""
    inputs = len(ball.center)
    points: list[Array] = []
    cost = np.zeros(0)
    for _ in range(MANY_TANGENTS):
        found = polytope.minimize(cost)
        if found is None:
            return None
        points.append(found.point[:inputs])
        if _is_inside(ball, points[-1]):
            return points[-1]
        nearest = ball.nearest_mean(np.array(points).T)
        if _is_inside(ball, nearest):
            return nearest
        _add_tangent(polytope, ball, points[-1])
        cost = _add_tangent(polytope, ball, nearest)
    return None


def _add_tangent(polytope: Polytope, ball: RoundBall, point: Array) -> Array:
    """Cut off a point outside of the ball, by a row that is returned."""
    row, end = ball.tangent(point)
    polytope.add_rows(row[None], np.array([-np.inf]), np.array([end]))
    return row


def _is_inside(ball: RoundBall, point: Array) -> bool:
    return bool(ball.distances(point[:, None])[0] <= 1)


def deepest_point(inputs: InputSet, rows: Array, ends: Array) -> Array | None:
    """The input that is farthest inside of rows x >= ends; None if there is no such input.

    The distance, relative to the widths of the box, is one more variable. In a ball that is no box,
    a point on the way from there to some point of the ball."""
    width = inputs.upper - inputs.lower
    polytope = Polytope(np.append(inputs.lower, 0.0), np.append(inputs.upper, 1.0))
    curved = _add_ball(polytope, inputs.ball)
    distances = np.abs(rows) @ width
    whole = np.concatenate([rows, -distances[:, None]], axis=1)
    polytope.add_rows(whole, ends, np.full(len(ends), np.inf))
    cost = np.zeros(len(width) + 1)
    cost[-1] = -1.0
    found = polytope.minimize(cost)
    if found is None or found.point[-1] < LEAST_DISTANCE:
        return None
    deepest = found.point[:-1]
    if curved is None:
        return inputs.moved_into(deepest[:, None])[:, 0]
    if _is_inside(curved, deepest):
        return deepest
    nearest = _nearest(polytope, curved)
    if nearest is None:
        return None
    # All points between the two are inside, but for the ball.
    shares = 0.5 ** np.arange(1, HALVINGS)
    between = nearest[:, None] + shares * (deepest - nearest)[:, None]
    is_inside = curved.distances(between) <= 1
    return between[:, is_inside][:, 0] if is_inside.any() else None


def interior_point(walk: Walk) -> list[Array]:
    """A point inside of a cell in which all neurons are linear, if it has an interior.

    The network is differentiable there, and its slope is the bound of the cell."""
    cell = walk.cell
    inputs = walk.reduced.inputs
    rows = np.zeros((len(cell.constraints), inputs))
    ends = np.zeros(len(cell.constraints))
    for k, constraint in enumerate(cell.constraints):
        form = constraint.sign * walk.forms.rows[constraint.neuron]
        rows[k] = form[:inputs]
        ends[k] = constraint.sign * constraint.value - form[-1]
    found = deepest_point(cell.inputs, rows, ends)
    return [] if found is None else [found]
