"""Formulas of activation functions (the second table of section 5 of spec/certificate.md), and from
these enclosures of values and slopes at a point.

What is piecewise polynomial is computed exactly. The other formulas have no parameters but a
factor; what elementary.py rounds off and leaves out (2^-180, or 2^-160 for the normal distribution
beyond 15) is multiplied in them by less than 2^20 (1 + |x|) and the factor, so by far less than
ERROR allows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import floor

from .elementary import (
    BITS,
    EXP_FAR,
    PI,
    UNIT,
    Pair,
    Units,
    exp,
    growth,
    log,
    log1p,
    normal,
    ratio,
    rising_exp,
    root,
    sine_and_cosine,
    times,
    units,
)
from .exact import GRID, ONE, TWO, ZERO, on_grid, round_down

# How far the formulas below may be off: slopes by ERROR, values by ERROR (1 + |x|). Turning points
# that are off by 10^-25 change slopes by less, since slopes are flat there.
ERROR = TWO**-132
# Functions that rise without bound are off by ERROR times the value or slope, and by this.
ROUNDING = TWO**-179

Interval = tuple[Fraction, Fraction]
Formula = Callable[[Units], Pair]
Relative = Callable[[Fraction], Interval]  # a value and a slope, whose errors are relative
Range = tuple[int, int]  # two ends, in multiples of 1 / GRID, rounded outward
Enclosed = Callable[[Units], tuple[Range, Range]]  # enclosures of the value and the slope
Piece = Callable[[Fraction], tuple[Range, Range]]  # enclosures of the value and the slope


# Formulas: value and slope, before the error is taken into account.


def sigmoid(x: Units) -> Pair:
    """1 / (1 + e^-x), written such that e^x cannot be large."""
    smaller = ratio(UNIT, UNIT + rising_exp(min(abs(x), EXP_FAR)))
    larger = UNIT - smaller
    slope = smaller * larger >> BITS
    if x >= 0:
        return larger, slope
    return smaller, slope


def tanh(x: Units) -> Pair:
    """2 sigmoid(2 x) - 1."""
    value, slope = sigmoid(2 * x)
    return 2 * value - UNIT, 4 * slope


def erf(x: Units) -> Pair:
    """2 Phi(sqrt(2) x) - 1."""
    value, slope = normal(times(ROOT_OF_2, x))
    return 2 * value - UNIT, 2 * times(ROOT_OF_2, slope)


def softsign(x: Units) -> Pair:
    """x / (1 + abs(x))."""
    size = UNIT + abs(x)
    inverse = ratio(UNIT, size)
    return ratio(x, size), times(inverse, inverse)


def softplus(x: Units) -> Pair:
    """log(1 + e^x), written such that e^x cannot be large."""
    slope, _ = sigmoid(x)
    return max(x, 0) + log1p(exp(-abs(x))), slope


def gelu_tanh_gate(x: Units) -> Pair:
    """sigmoid(v), v = 2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    square = times(x, x)
    value, slope = sigmoid(times(GELU_FACTOR, x + times(GELU_CUBIC, times(square, x))))
    inner_slope = times(GELU_FACTOR, UNIT + 3 * times(GELU_CUBIC, square))
    return value, times(slope, inner_slope)


def mish_gate(x: Units) -> Pair:
    """tanh(softplus(x))."""
    inner, inner_slope = softplus(x)
    value, slope = tanh(inner)
    return value, times(slope, inner_slope)


def cosine(x: Units) -> Pair:
    """cos(x), whose slope is -sin(x)."""
    sine, value = sine_and_cosine(x)
    return value, -sine


ROOT_OF_2 = units(root(TWO))
GELU_FACTOR = units(root(8 / PI))
GELU_CUBIC = units(Fraction("0.044715"))


def exponent(x: Fraction) -> Interval:
    """e^x, which is its own slope."""
    value = growth(x)
    return value, value


def logarithm(x: Fraction) -> Interval:
    """log(x), for x > 0."""
    return log(x), 1 / x


def square_root(x: Fraction) -> Interval:
    """sqrt(x), for x > 0."""
    value = root(x)
    return value, 1 / (2 * value)


# Pieces: enclosures of value and slope.


@dataclass(frozen=True)
class Quadratic:
    """constant + slope x + square x^2."""

    slope: Fraction
    square: Fraction = ZERO
    constant: Fraction = ZERO

    def value(self, x: Fraction) -> Fraction:
        return self.constant + (self.slope + self.square * x) * x

    def __call__(self, x: Fraction) -> tuple[Range, Range]:
        value = self.value(x)
        slope = self.slope + 2 * self.square * x
        return on_grid(value, value), on_grid(slope, slope)


def enclosed(formula: Formula, least: Fraction = ZERO, most: Fraction = ONE) -> Enclosed:
    """A formula with its error; its slopes are known to lie between these two."""
    lowest, highest = on_grid(least, most)
    error = floor(ERROR * max(most - least, ONE) * GRID) + 1

    def at(place: Units) -> tuple[Range, Range]:
        value, slope = formula(place)
        value_error = error * (2 + abs(place >> BITS))  # place >> BITS is x, rounded down
        slopes = (max(slope - error, lowest), min(slope + error, highest))
        return (value - value_error, value + value_error), slopes

    return at


def smooth(formula: Formula, least: Fraction = ZERO, most: Fraction = ONE) -> Piece:
    """The same, at places that are any numbers."""
    at = enclosed(formula, least, most)
    return cache(lambda x: at(units(x)))


def rising(formula: Relative) -> Piece:
    """A formula with its error, relative to values and slopes; no slope is negative."""

    @cache
    def piece(x: Fraction) -> tuple[Range, Range]:
        value, slope = formula(x)
        value = round_down(value)
        slope = round_down(slope)
        value_error = ERROR * abs(value) + ROUNDING
        slope_error = ERROR * slope + ROUNDING
        slopes = on_grid(max(slope - slope_error, ZERO), slope + slope_error)
        return on_grid(value - value_error, value + value_error), slopes

    return piece


def rational(formula: Relative) -> Piece:
    """A formula that is exact."""

    def piece(x: Fraction) -> tuple[Range, Range]:
        value, slope = formula(x)
        return on_grid(value, value), on_grid(slope, slope)

    return piece


def exponential(factor: Fraction) -> Piece:
    """factor (e^x - 1), for x <= 0."""

    def formula(x: Units) -> Pair:
        e = exp(x)
        return floor(factor * (e - UNIT)), floor(factor * e)

    return smooth(formula, min(factor, ZERO), max(factor, ZERO))
