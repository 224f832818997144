"""Formulas of activation functions (the second table of section 5 of spec/certificate.md), and from
these enclosures of values and slopes at a point.

What is piecewise polynomial is computed exactly. The other formulas have no parameters but a
factor; what elementary.py rounds off and leaves out (2^-300, or 2^-160 for the normal distribution
beyond 15) is multiplied in them by less than 2^20 (1 + |x|) and the factor, so by far less than
ERROR allows.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache

from .elementary import PI, Pair, exp, growth, log, log1p, normal, root, sine_and_cosine
from .exact import GRID, ONE, TWO, ZERO, round_down, round_up

# How far the formulas below may be off: slopes by ERROR, values by ERROR (1 + |x|). Turning points
# that are off by 10^-25 change slopes by less, since slopes are flat there.
ERROR = TWO**-132
# Functions that rise without bound are off by ERROR times the value or slope, and by this.
ROUNDING = Fraction(2, GRID)

Interval = tuple[Fraction, Fraction]
Formula = Callable[[Fraction], Pair]
Piece = Callable[[Fraction], tuple[Interval, Interval]]  # enclosures of the value and the slope


# Formulas: value and slope, before the error is taken into account.


def sigmoid(x: Fraction) -> Pair:
    """1 / (1 + e^-x), written such that e^x cannot be large."""
    e = exp(-abs(x))
    slope = e / (1 + e) ** 2
    if x >= 0:
        return 1 / (1 + e), slope
    return e / (1 + e), slope


def tanh(x: Fraction) -> Pair:
    """2 sigmoid(2 x) - 1."""
    value, slope = sigmoid(2 * x)
    return 2 * value - 1, 4 * slope


def erf(x: Fraction) -> Pair:
    """2 Phi(sqrt(2) x) - 1."""
    value, slope = normal(root(TWO) * x)
    return 2 * value - 1, 2 * root(TWO) * slope


def softsign(x: Fraction) -> Pair:
    """x / (1 + abs(x))."""
    size = 1 + abs(x)
    return x / size, 1 / size**2


def softplus(x: Fraction) -> Pair:
    """log(1 + e^x), written such that e^x cannot be large."""
    slope, _ = sigmoid(x)
    return max(x, ZERO) + log1p(exp(-abs(x))), slope


def gelu_tanh_gate(x: Fraction) -> Pair:
    """sigmoid(v), v = 2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    factor = root(8 / PI)
    cubic = Fraction("0.044715")
    value, slope = sigmoid(factor * (x + cubic * x**3))
    return value, slope * factor * (1 + 3 * cubic * x**2)


def mish_gate(x: Fraction) -> Pair:
    """tanh(softplus(x))."""
    inner, inner_slope = softplus(x)
    value, slope = tanh(inner)
    return value, slope * inner_slope


def exponent(x: Fraction) -> Pair:
    """e^x, which is its own slope."""
    value = growth(x)
    return value, value


def logarithm(x: Fraction) -> Pair:
    """log(x), for x > 0."""
    return log(x), 1 / x


def square_root(x: Fraction) -> Pair:
    """sqrt(x), for x > 0."""
    value = root(x)
    return value, 1 / (2 * value)


def cosine(x: Fraction) -> Pair:
    """cos(x), whose slope is -sin(x)."""
    sine, value = sine_and_cosine(x)
    return value, -sine


# Pieces: enclosures of value and slope.


def quadratic(slope: Fraction, square: Fraction = ZERO, constant: Fraction = ZERO) -> Piece:
    """constant + slope x + square x^2, exactly."""

    def piece(x: Fraction) -> tuple[Interval, Interval]:
        value = constant + (slope + square * x) * x
        slope_at_x = slope + 2 * square * x
        return (value, value), (slope_at_x, slope_at_x)

    return piece


def smooth(formula: Formula, least: Fraction = ZERO, most: Fraction = ONE) -> Piece:
    """A formula with its error; its slopes are known to lie between these two."""

    @cache
    def piece(x: Fraction) -> tuple[Interval, Interval]:
        value, slope = formula(x)
        value = round_down(value)
        slope = round_down(slope)
        error = ERROR * max(most - least, ONE)
        value_error = error * (1 + abs(x))
        values = (value - value_error, value + value_error)
        slopes = (max(slope - error, least), min(slope + error, most))
        return values, slopes

    return piece


def rising(formula: Formula) -> Piece:
    """A formula with its error, relative to values and slopes; no slope is negative."""

    @cache
    def piece(x: Fraction) -> tuple[Interval, Interval]:
        value, slope = formula(x)
        value = round_down(value)
        slope = round_down(slope)
        value_error = ERROR * abs(value) + ROUNDING
        slope_error = ERROR * slope + ROUNDING
        values = (value - value_error, value + value_error)
        return values, (max(slope - slope_error, ZERO), slope + slope_error)

    return piece


def rational(formula: Formula) -> Piece:
    """A formula that is exact, rounded outward."""

    def piece(x: Fraction) -> tuple[Interval, Interval]:
        value, slope = formula(x)
        return (round_down(value), round_up(value)), (round_down(slope), round_up(slope))

    return piece


def exponential(factor: Fraction) -> Piece:
    """factor (e^x - 1), for x <= 0."""

    def formula(x: Fraction) -> Pair:
        e = exp(x)
        return factor * (e - 1), factor * e

    return smooth(formula, min(factor, ZERO), max(factor, ZERO))
