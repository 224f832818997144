"""L-BFGS on one flat array, of NumPy or of torch.

Equations and algorithms are those of Nocedal and Wright, "Numerical Optimization", second edition.
The whole method is algorithm 7.5, with a backtracking line search (algorithm 3.1). Steps of length
1 are nearly always accepted, and a line search that fails shows that the point is optimal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Function: TypeAlias = Callable[[Any], tuple[float, Any]]  # from a point to value and gradient

# The number of latest steps that the approximate Hessian is made of (m in the book).
REMEMBERED_STEPS = 10
# The decrease that a step must bring, as a share of what the slope promises (c_1 in (3.4)).
SUFFICIENT_DECREASE = 1e-4
# The shortest step tried, relative to the full step. If it fails, the point is optimal up to
# rounding.
MIN_STEP_LENGTH = 1e-8
# How often a step is doubled at most, where the slope falls further along it.
MAX_DOUBLINGS = 10
# The number of latest iterations whose gain is compared with the least that is asked for.
GAIN_ITERATIONS = 10
# The smallest cosine of the angle between a step and its change of the gradient. A step below it
# is not remembered, so that the approximate Hessian stays positive definite.
MIN_CURVATURE = 1e-12


@dataclass(frozen=True, eq=False)
class _Point:
    """A point, with the value and the gradient there."""

    x: Any
    value: float
    gradient: Any


@dataclass(frozen=True, eq=False)
class _Step:
    """A step that was taken: s and y of (7.18), and y.s, which is 1 / rho of (7.17)."""

    step: Any
    change: Any  # of the gradient
    curvature: float


def minimize(
    function: Function,
    x: Any,
    iterations: int,
    stop: Callable[[], bool],
    min_gain: float | None = None,
) -> tuple[Any, bool]:
    """The best point found from x, and whether the search ended because no descent was left.

    `stop` is asked before every iteration whether to end the search there. With `min_gain`, none is
    left either when GAIN_ITERATIONS iterations gain less than that, relative to the value."""
    steps: list[_Step] = []
    point = _evaluate(function, x)
    values = [point.value]
    for _ in range(iterations):
        if stop():
            return point.x, False
        if min_gain is not None and _has_stalled(values, min_gain):
            return point.x, True
        direction = -_times_inverse_hessian(steps, point.gradient)
        slope = float(point.gradient @ direction)
        if not slope < 0:
            # Rounding has spoiled the approximate Hessian: start again with steepest descent.
            steps = []
            direction = -point.gradient
            slope = float(point.gradient @ direction)
        new = _search_line(function, point, direction, slope)
        if new is None:
            return point.x, True
        if not _has_curvature(point, new):
            new = _lengthened(function, point, new)
        steps = _remember_step(steps, point, new)
        point = new
        values.append(point.value)
    return point.x, False


def _has_stalled(values: list[float], min_gain: float) -> bool:
    """Whether the latest iterations have gained less than that, relative to the value."""
    if len(values) <= GAIN_ITERATIONS:
        return False
    gain = values[-1 - GAIN_ITERATIONS] - values[-1]
    return gain < min_gain * abs(values[-1])


def _evaluate(function: Function, x: Any) -> _Point:
    value, gradient = function(x)
    return _Point(x, value, gradient)


def _search_line(function: Function, point: _Point, direction: Any, slope: float) -> _Point | None:
    """The first of the steps 1, 1/2, 1/4, ... with sufficient decrease, (3.4); None if none has."""
    length = 1.0
    while length >= MIN_STEP_LENGTH:
        new = _evaluate(function, point.x + length * direction)
        if new.value <= point.value + SUFFICIENT_DECREASE * length * slope:
            return new
        length /= 2
    return None


def _lengthened(function: Function, point: _Point, new: _Point) -> _Point:
    """The step to a new point, doubled as long as that is better.

    It is for steps along which the slope falls further: they are too short, and none is remembered."""
    for _ in range(MAX_DOUBLINGS):
        longer = _evaluate(function, point.x + 2 * (new.x - point.x))
        if not longer.value < new.value:
            break
        new = longer
    return new


def _has_curvature(old: _Point, new: _Point) -> bool:
    """The curvature condition y.s > 0, (6.7), of the step from one point to the other."""
    step = new.x - old.x
    change = new.gradient - old.gradient
    square = float(change @ change)
    # The square is 0 where it underflows, although the change is not.
    bound = MIN_CURVATURE * (float(step @ step) * square) ** 0.5
    return square > 0 and float(step @ change) > bound


def _remember_step(steps: list[_Step], old: _Point, new: _Point) -> list[_Step]:
    """The latest steps with this one, if it satisfies the curvature condition."""
    if not _has_curvature(old, new):
        return steps
    step = new.x - old.x
    change = new.gradient - old.gradient
    latest = steps[-(REMEMBERED_STEPS - 1) :]
    return [*latest, _Step(step, change, float(step @ change))]


def _times_inverse_hessian(steps: list[_Step], gradient: Any) -> Any:
    """The approximate inverse Hessian times the gradient: algorithm 7.4, the two-loop recursion."""
    if not steps:
        return gradient
    product = gradient
    weights = []  # alpha in the book, from the latest step to the oldest
    for past in reversed(steps):
        weight = float(past.step @ product) / past.curvature
        weights.append(weight)
        product = product - weight * past.change
    latest = steps[-1]
    # The first approximation of the inverse Hessian is a multiple of the identity, (7.20).
    product = product * (latest.curvature / float(latest.change @ latest.change))
    for past, weight in zip(steps, reversed(weights), strict=True):
        product = product + past.step * (weight - float(past.change @ product) / past.curvature)
    return product
