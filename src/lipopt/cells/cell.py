"""A cell: a part of the domain, given by a box and by constraints on inputs of neurons.

In a ball that is no box, all of it lies in the ball."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..model.round_ball import InputSet, RoundBall
from ..numerics.arrays import Array
from ..problem.intervals import Interval
from ..problem.proofs import InputSplit, Split
from .reduced import Reduced


@dataclass(frozen=True)
class Constraint:
    """sign (y - value) >= 0, for the input y of a neuron."""

    neuron: int
    sign: int
    value: float


@dataclass(frozen=True, eq=False)
class Points:
    """Points of a cell, and the inputs of all neurons there: what is attained in the cell."""

    x: Array  # (inputs, points)
    y: Array  # (neurons, points)

    def only(self, chosen: Array) -> Points:
        return Points(self.x[:, chosen], self.y[:, chosen])

    @property
    def count(self) -> int:
        return int(self.x.shape[1])


@dataclass(frozen=True, eq=False)
class Cell:
    """A part of the domain, and what is known of the neurons in it."""

    lower: Array  # the box
    upper: Array
    low: Array  # the interval of every neuron's input
    high: Array
    is_open: Array  # the neurons that are not known to be linear
    constraints: tuple[Constraint, ...]
    points: Points
    is_refined: bool  # whether better intervals are looked for with more than the usual lines
    ball: RoundBall | None = None  # that the box is cut with
    # So many neurons have nothing new since linear programs were solved for them.
    unchanged: int = 0

    @property
    def inputs(self) -> InputSet:
        """All inputs that meet the constraints on inputs."""
        return InputSet(self.lower, self.upper, self.ball)

    def child(self, split: Split, sign: int) -> Cell:
        """The part on one side of a split: sign = -1 is below the value, +1 above it."""
        if isinstance(split, InputSplit):
            return self._cut_box(split, sign)
        low = self.low.copy()
        high = self.high.copy()
        if sign > 0:
            low[split.neuron] = max(low[split.neuron], split.value)
        else:
            high[split.neuron] = min(high[split.neuron], split.value)
        constraint = Constraint(split.neuron, sign, split.value)
        inside = sign * (self.points.y[split.neuron] - split.value) >= 0
        return replace(
            self,
            low=low,
            high=high,
            constraints=(*self.constraints, constraint),
            points=self.points.only(inside),
            unchanged=min(self.unchanged, split.neuron),
        )

    def _cut_box(self, split: InputSplit, sign: int) -> Cell:
        lower = self.lower.copy()
        upper = self.upper.copy()
        if sign > 0:
            lower[split.place] = split.value
        else:
            upper[split.place] = split.value
        inside = sign * (self.points.x[split.place] - split.value) >= 0
        points = self.points.only(inside)
        return replace(self, lower=lower, upper=upper, points=points, unchanged=0)

    def holds(self, points: Points) -> Array:
        """Which points lie in the cell."""
        found = self.inputs.holds(points.x)
        for constraint in self.constraints:
            y = points.y[constraint.neuron]
            found &= constraint.sign * (y - constraint.value) >= 0
        return np.asarray(found)


def whole_domain(
    reduced: Reduced, intervals: list[Interval] | None, ball: RoundBall | None = None
) -> Cell:
    """The domain as a cell."""
    n = reduced.inputs
    lower = np.full(n, -np.inf)
    upper = np.full(n, np.inf)
    low = np.full(reduced.neurons, -np.inf)
    high = np.full(reduced.neurons, np.inf)
    if intervals is not None:
        lower, upper = intervals[0]
        for group in reduced.groups:
            ends = intervals[reduced.source(group)]
            low[group] = ends[0][reduced.places[group]]
            high[group] = ends[1][reduced.places[group]]
    is_open = np.ones(reduced.neurons, bool)
    none = Points(np.zeros((n, 0)), np.zeros((reduced.neurons, 0)))
    return Cell(lower, upper, low, high, is_open, (), none, is_refined=False, ball=ball)
