"""The range of second derivatives of an activation on an interval, for some smooth ones.

Their second derivative is a product of what is enclosed already: the value and the slope.
"""

from __future__ import annotations

import numpy as np

from ...numerics.arrays import Array
from .kinds import Parameters
from .lines import VALUE_PAD
from .slopes import GRID, slope_range, value

BENDING = ("tanh", "sigmoid", "softplus")  # those that are known here, and in lipcheck
ROUNDINGS = 2.0**-49  # relative to the largest product: more than what rounds here


def bend_range(kind: str, lo: Array, hi: Array, parameters: Parameters) -> tuple[Array, Array]:
    """The second derivatives between lo and hi, which are finite, rounded outward.

    tanh'' = -2 tanh tanh', sigmoid'' = (1 - 2 sigmoid) sigmoid', and the slope of softplus is a
    sigmoid: softplus'' = beta (1 - softplus') softplus'."""
    lower, upper = slope_range(kind, lo, hi, parameters)
    if kind == "softplus":
        beta = np.asarray(parameters["beta"])
        return _product(beta * (1 - upper), beta * (1 - lower), lower, upper)
    least, most = rising_range(kind, lo, hi, parameters)
    if kind == "tanh":
        return _product(-2 * most, -2 * least, lower, upper)
    assert kind == "sigmoid", f"the second derivatives of '{kind}' are not known"
    return _product(1 - 2 * most, 1 - 2 * least, lower, upper)


def rising_range(kind: str, lo: Array, hi: Array, parameters: Parameters) -> tuple[Array, Array]:
    """The values between lo and hi, which are finite, of an activation of these, rounded outward.

    All of them rise."""
    least = value(kind, lo, parameters)
    most = value(kind, hi, parameters)
    return (
        least - VALUE_PAD * (1 + np.abs(lo) + np.abs(least)),
        most + VALUE_PAD * (1 + np.abs(hi) + np.abs(most)),
    )


def _product(low: Array, high: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The products of numbers in two intervals, rounded outward by no less than lipcheck does it."""
    corners = np.array([low * lower, low * upper, high * lower, high * upper])
    room = ROUNDINGS * np.abs(corners).max(axis=0) + 2 / GRID
    return corners.min(axis=0) - room, corners.max(axis=0) + room
