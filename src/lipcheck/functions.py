"""Activation functions (the second table of section 5 of spec/certificate.md): enclosures of their
values and slopes, and from these slope ranges and lines around them (section 3).

What is piecewise polynomial is computed exactly. The other formulas have no parameters but a
factor; what elementary.py rounds off and leaves out (2^-300, or 2^-160 for the normal distribution
beyond 15) is multiplied in them by less than 2^20 (1 + |x|) and the factor, so by far less than
ERROR allows.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import floor, inf
from typing import NamedTuple

from .elementary import PI, Pair, exp, log1p, normal, root
from .exact import GRID, ONE, TWO, ZERO, round_down, round_up
from .verdicts import require

SLOPE_GRID = 1 << 128  # slope ranges are rounded outward to multiples of 1 / SLOPE_GRID

# How far the formulas below may be off: slopes by ERROR, values by ERROR (1 + |x|). Turning points
# that are off by 10^-25 change slopes by less, since slopes are flat there.
ERROR = TWO**-132

# From here on, to both sides, gates and slopes of gated functions are within ERROR of their limits:
# e^-FAR and FAR e^-FAR are less than ERROR.
FAR = Fraction(100)

# Stands for infinity: beyond the break points of every parameter that a file can hold, and slopes
# are within ERROR of their limits.
HUGE = TWO**5000

CELLS = 16  # of an interval on which an activation that is not piecewise linear is bounded

Interval = tuple[Fraction, Fraction]
Formula = Callable[[Fraction], Pair]
Vertex = tuple[int, int]  # a place and a height, in multiples of 1 / GRID
Piece = Callable[[Fraction], tuple[Interval, Interval]]  # enclosures of the value and the slope


class Point(NamedTuple):
    """What is known of an activation at x: enclosures of its value, and of its slopes there."""

    x: Fraction
    value: Interval
    left: Interval
    right: Interval


class Hull(NamedTuple):
    """Section 3, values of activations: vertices above -sigma, and above sigma, on an interval.

    A line is above one of the two functions if it is above all of its vertices.
    """

    below: list[Vertex]
    above: list[Vertex]


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


def exponential(factor: Fraction) -> Piece:
    """factor (e^x - 1), for x <= 0."""

    def formula(x: Fraction) -> Pair:
        e = exp(x)
        return factor * (e - 1), factor * e

    return smooth(formula, min(factor, ZERO), max(factor, ZERO))


@dataclass(frozen=True, eq=False)
class Function:
    """sigma(x) = f(scale x) / scale, with one piece of f before, between and after its breaks.

    Breaks are kinks and turning points: on a piece the slope is monotone. So slopes between two
    points of a piece lie between those at the points.
    """

    pieces: Sequence[Piece]
    breaks: Sequence[Fraction] = ()
    scale: Fraction = ONE
    is_piecewise_linear: bool = False

    def __post_init__(self) -> None:
        require(self.scale > 0, "a parameter of an activation is not positive")

    @property
    def cells(self) -> int:
        """Section 3, values of activations: into how many cells an interval is divided."""
        if self.is_piecewise_linear:
            return 1
        return CELLS

    def at(self, x: Fraction) -> Point:
        """Value and slopes at x; the slopes to its left and right differ at kinks alone."""
        scaled = self.scale * x
        left_piece = self.pieces[bisect_left(self.breaks, scaled)]
        right_piece = self.pieces[bisect_right(self.breaks, scaled)]
        (low, high), left = left_piece(scaled)
        _, right = right_piece(scaled)
        return Point(x, (low / self.scale, high / self.scale), left, right)

    def points(self, lower: Fraction, upper: Fraction, cells: int) -> list[Point]:
        """At the ends of the interval and of cells of equal width, and at all breaks between."""
        places = {lower + (upper - lower) * i / cells for i in range(cells + 1)}
        for place in self.breaks:
            if lower * self.scale < place < upper * self.scale:
                places.add(place / self.scale)
        return [self.at(x) for x in sorted(places)]


def leaky(alpha: Fraction) -> Function:
    """x for x >= 0, alpha x below."""
    return Function([quadratic(alpha), quadratic(ONE)], [ZERO], is_piecewise_linear=True)


def ramp(slope: Fraction, constant: Fraction, low: Fraction, high: Fraction) -> Function:
    """min(max(slope x + constant, low), high); low may be -infinity, high infinity."""
    valid = slope > 0 and low <= high and low < inf and high > -inf
    require(valid, "activation 'clip' needs low <= high, 'hard_sigmoid' alpha > 0")
    pieces = [quadratic(slope, ZERO, constant)]
    breaks = []
    if low > -inf:
        pieces.insert(0, quadratic(ZERO, ZERO, low))
        breaks.append((low - constant) / slope)
    if high < inf:
        pieces.append(quadratic(ZERO, ZERO, high))
        breaks.append((high - constant) / slope)
    return Function(pieces, breaks, is_piecewise_linear=True)


def gated_ramp(slope: Fraction, constant: Fraction) -> Function:
    """x min(max(slope x + constant, 0), 1)."""
    require(slope > 0, "activation 'hard_silu' needs alpha > 0")
    pieces = [quadratic(ZERO), quadratic(constant, slope), quadratic(ONE)]
    return Function(pieces, [-constant / slope, (1 - constant) / slope])


def exponential_unit(alpha: Fraction, gamma: Fraction = ONE) -> Function:
    """gamma x for x >= 0, gamma alpha (e^x - 1) below."""
    return Function([exponential(alpha * gamma), quadratic(gamma)], [ZERO])


def scaled_exponential_unit(alpha: Fraction) -> Function:
    """x for x >= 0, alpha (e^(x / alpha) - 1) below."""
    return Function([exponential(ONE), quadratic(ONE)], [ZERO], 1 / alpha)


def turning_at_zero(formula: Formula, steepest: Fraction = ONE) -> Function:
    """A formula whose slope rises from 0 up to x = 0, and falls back to 0."""
    piece = smooth(formula, ZERO, steepest)
    return Function([piece, piece], [ZERO])


def gated(gate: Formula, first_turn: str, last_turn: str, scale: Fraction = ONE) -> Function:
    """x gate(x). Gates rise from 0 to 1. The slope turns twice, and is at its limit from FAR on."""

    def formula(x: Fraction) -> Pair:
        near = max(min(x, FAR), -FAR)
        value, slope = gate(near)
        return x * value, value + near * slope

    piece = smooth(formula, -TWO, TWO)
    return Function([piece, piece, piece], [Fraction(first_turn), Fraction(last_turn)], scale)


# Where the slopes of these activations turn, to 25 digits (section 5). Lengths are in units of
# 1 / beta where there is a beta.
SILU_TURN = "2.3993572805154676678327397"
GELU_TURN = "1.4142135623730950488016887"
GELU_TANH_TURN = "1.4185040087908283555480335"
MISH_FIRST_TURN = "-2.2563763963607931200057485"
MISH_LAST_TURN = "1.4905711794854284592944189"


class Kind(NamedTuple):
    """A row of the table in section 5: names of parameters, and the function for their values."""

    parameters: tuple[str, ...]
    build: Callable[..., Function]


KINDS = {
    "relu": Kind((), lambda: leaky(ZERO)),
    "abs": Kind((), lambda: leaky(-ONE)),
    "leaky_relu": Kind(("alpha",), leaky),
    "clip": Kind(("low", "high"), lambda low, high: ramp(ONE, ZERO, low, high)),
    "hard_sigmoid": Kind(("alpha", "beta"), lambda alpha, beta: ramp(alpha, beta, ZERO, ONE)),
    "hard_swish": Kind((), lambda: gated_ramp(ONE / 6, ONE / 2)),
    "hard_silu": Kind(("alpha", "beta"), gated_ramp),
    "elu": Kind(("alpha",), exponential_unit),
    "selu": Kind(("alpha", "gamma"), exponential_unit),
    "celu": Kind(("alpha",), scaled_exponential_unit),
    "softplus": Kind(("beta",), lambda beta: Function([smooth(softplus)], (), beta)),
    "softsign": Kind((), lambda: turning_at_zero(softsign)),
    "sigmoid": Kind((), lambda: turning_at_zero(sigmoid)),
    "tanh": Kind((), lambda: turning_at_zero(tanh)),
    "erf": Kind((), lambda: turning_at_zero(erf, TWO)),
    "silu": Kind(("beta",), lambda beta: gated(sigmoid, "-" + SILU_TURN, SILU_TURN, beta)),
    "gelu": Kind(("beta",), lambda beta: gated(normal, "-" + GELU_TURN, GELU_TURN, beta)),
    "gelu_tanh": Kind((), lambda: gated(gelu_tanh_gate, "-" + GELU_TANH_TURN, GELU_TANH_TURN)),
    "mish": Kind((), lambda: gated(mish_gate, MISH_FIRST_TURN, MISH_LAST_TURN)),
}


@cache
def slope_range(
    f: Function,
    lower: Fraction = -HUGE,
    upper: Fraction = HUGE,
    both_sides: bool = False,
) -> Interval:
    """Section 3, slope ranges: of all slopes between the ends, or on the whole space.

    Slopes are monotone between the points, so those at the points enclose all others. What is
    beyond an end counts if that is asked for, and where the interval is a single point.
    """
    slopes: list[Fraction] = []
    both_sides = both_sides or lower == upper
    for point in f.points(lower, upper, 1):
        if point.x > lower or both_sides:
            slopes.extend(point.left)
        if point.x < upper or both_sides:
            slopes.extend(point.right)
    return round_down(min(slopes), SLOPE_GRID), round_up(max(slopes), SLOPE_GRID)


def hull(f: Function, lower: Fraction, upper: Fraction) -> Hull:
    """Section 3, values of activations: vertices around the function on the interval."""
    points = f.points(lower, upper, f.cells)
    below = [(point.x, -point.value[0]) for point in points]
    above = [(point.x, point.value[1]) for point in points]
    if not f.is_piecewise_linear:
        below += _peaks(points, -1)
        above += _peaks(points, 1)
    return Hull(_on_grid(below), _on_grid(above))


def _peaks(points: Sequence[Point], sign: int) -> list[tuple[Fraction, Fraction]]:
    """How high sign sigma(x) can be between two points, at most, and where: the steepest rise from
    the left point meets the steepest fall to the right one there."""
    heights = []
    for _, (low, high), _, _ in points:
        heights.append(max(sign * low, sign * high))
    peaks = []
    for (first, last), (start, end) in zip(pairwise(points), pairwise(heights), strict=True):
        # At kinks slopes of both sides count, as in lipopt.
        all_slopes = [*first.left, *first.right, *last.left, *last.right]
        slopes = [sign * slope for slope in all_slopes]
        fall = min(slopes)
        rise = max(slopes)
        if fall < rise:
            width = last.x - first.x
            meeting = (end - start - fall * width) / (rise - fall)
            meeting = min(max(meeting, ZERO), width)
            peaks.append((first.x + meeting, start + rise * meeting))
    return peaks


def _on_grid(points: Sequence[tuple[Fraction, Fraction]]) -> list[Vertex]:
    """The points, rounded: a line that is above all of the result is above all of them.

    A place that is no multiple of 1 / GRID lies between two, each of which gets its height.
    """
    vertices = []
    for x, height in points:
        left = floor(x * GRID)
        right = -floor(-x * GRID)
        rounded_up = -floor(-height * GRID)
        vertices.append((left, rounded_up))
        if left < right:
            vertices.append((right, rounded_up))
    return vertices


def largest_gap(vertices: Sequence[Vertex], numerator: int, denominator: int) -> int:
    """The largest height less k x, for k = numerator / denominator: it counts
    1 / (denominator GRID)."""
    return max([height * denominator - numerator * x for x, height in vertices])


def offset_above(around: Hull, slope: Fraction) -> Fraction:
    """A number c such that sigma(x) <= slope x + c on the interval."""
    numerator, denominator = slope.as_integer_ratio()
    gap = largest_gap(around.above, numerator, denominator)
    return round_up(Fraction(gap, denominator * GRID))


def offset_below(around: Hull, slope: Fraction) -> Fraction:
    """A number c such that sigma(x) >= slope x + c on the interval."""
    numerator, denominator = slope.as_integer_ratio()
    gap = largest_gap(around.below, -numerator, denominator)
    return -round_up(Fraction(gap, denominator * GRID))
