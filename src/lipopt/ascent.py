"""L-BFGS on one flat array, NumPy or torch (Nocedal and Wright, "Numerical Optimization", algorithm 7.5).

The line search is backtracking: steps of length 1 are nearly always accepted, and a search that ends shows convergence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MEMORY = 10
SHORTEST = 1e-8  # a step shorter than this ends the search: the point is optimal up to rounding


def minimize(function: Callable[[Any], tuple[float, Any]], x: Any, iterations: int, stop: Callable[[], bool]) -> tuple[Any, bool]:
    """The best point found from x; and whether no descent was left.

    `function` gives value and gradient; `stop` is asked before every iteration."""
    steps: list[tuple[Any, Any, float]] = []
    value, gradient = function(x)
    for _ in range(iterations):
        if stop():
            return x, False
        direction = -_inverse_hessian(steps, gradient)
        slope = float(gradient @ direction)
        if not slope < 0:
            steps, direction = [], -gradient
            slope = float(gradient @ direction)
        length = 1.0
        while True:
            new = x + length * direction
            new_value, new_gradient = function(new)
            if new_value <= value + 1e-4 * length * slope:
                break
            length /= 2
            if length < SHORTEST:
                return x, True
        step, change = new - x, new_gradient - gradient
        curvature, size = float(step @ change), float(change @ change)
        if size > 0 and curvature > 1e-12 * (float(step @ step) * size) ** 0.5:
            steps = [*steps[-(MEMORY - 1) :], (step, change, curvature)]
        x, value, gradient = new, new_value, new_gradient
    return x, False


def _inverse_hessian(steps: list[tuple[Any, Any, float]], gradient: Any) -> Any:
    """The two-loop recursion."""
    if not steps:
        return gradient
    q, weights = gradient, []
    for step, change, curvature in reversed(steps):
        weights.append(float(step @ q) / curvature)
        q = q - weights[-1] * change
    _, change, curvature = steps[-1]
    q = q * (curvature / float(change @ change))
    for (step, change, curvature), weight in zip(steps, reversed(weights), strict=True):
        q = q + step * (weight - float(change @ q) / curvature)
    return q
