"""L-BFGS: it leaves flat hills, and ends where it gains nothing."""

from collections.abc import Callable

import numpy as np
import pytest

from lipopt.numerics.arrays import Array
from lipopt.solvers.lbfgs import GAIN_ITERATIONS, minimize


def flat_hill(x: Array) -> tuple[float, Array]:
    """The curvature is negative at first, so that no step is remembered."""
    return float(1e-3 * np.cos(x).sum()), -1e-3 * np.sin(x)


def valley(x: Array) -> tuple[float, Array]:
    """Rosenbrock's, with 1 added to its minimum."""
    a, b = x
    value = 1 + (1 - a) ** 2 + 100 * (b - a * a) ** 2
    return value, np.array([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)])


def test_a_flat_hill_is_left_in_long_steps() -> None:
    x, _ = minimize(flat_hill, np.full(3, 0.01), 30, lambda: False)
    np.testing.assert_allclose(x % (2 * np.pi), np.pi, atol=1e-6)


def counted(function: Callable[[Array], tuple[float, Array]], min_gain: float | None) -> int:
    """The evaluations of 200 iterations, or of those that are worth it."""
    points = []

    def evaluate(x: Array) -> tuple[float, Array]:
        points.append(x)
        return function(x)

    x, _ = minimize(evaluate, np.array([-1.2, 1.0]), 200, lambda: False, min_gain)
    assert function(x)[0] == pytest.approx(1, abs=1e-3)
    return len(points)


def test_it_ends_where_iterations_gain_too_little() -> None:
    assert GAIN_ITERATIONS < counted(valley, 1e-4) < counted(valley, None)
