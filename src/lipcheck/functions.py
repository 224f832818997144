"""Activation functions (the second table of section 5 of spec/certificate.md): slope ranges and
lines around them on intervals (section 3), from enclosures of their values and slopes at points.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import floor, inf, lcm
from typing import NamedTuple

from .elementary import PI, UNIT, Pair, Units, normal, sine_and_cosine, times
from .exact import GRID, ONE, TWO, ZERO, on_grid, round_down, round_up
from .formulas import (
    Formula,
    Interval,
    Piece,
    Quadratic,
    Range,
    Relative,
    cosine,
    erf,
    exponent,
    exponential,
    gelu_tanh_gate,
    logarithm,
    mish_gate,
    rational,
    rising,
    sigmoid,
    smooth,
    softplus,
    softsign,
    square_root,
    tanh,
)
from .verdicts import REJECTED, require

SLOPE_GRID = 1 << 128  # slope ranges are rounded outward to multiples of 1 / SLOPE_GRID

# From here on, to both sides, gates and slopes of gated functions are within ERROR of their limits:
# e^-FAR and FAR e^-FAR are less than ERROR.
FAR = 100 * UNIT

# Stands for infinity: beyond the break points of every parameter that a file can hold, and slopes
# are within ERROR of their limits.
HUGE = TWO**5000

LARGEST_EXPONENT = 64  # of a power
LARGEST_EXPONENTIAL = Fraction(1000)  # e^x is taken for smaller x alone
SMALLEST_RADICAND = TWO**-400  # square roots are taken of larger numbers alone
# Of an interval of a sine or cosine. With more turning points than this in it, of the function no
# more is used than that it and its slope are between -1 and 1.
MOST_TURNS = 16

CELLS = 16  # of an interval on which an activation that is not piecewise linear is bounded

Vertex = tuple[int, int]  # a place and a height, in multiples of 1 / GRID


class Point(NamedTuple):
    """What is known of an activation at x: enclosures of its value, and of its slopes there."""

    x: Fraction
    value: Range
    left: Range
    right: Range


class Hull(NamedTuple):
    """Section 3, values of activations: vertices above -sigma, and above sigma, on an interval.

    A line is above one of the two functions if it is above all of its vertices.
    """

    below: list[Vertex]
    above: list[Vertex]


@dataclass(frozen=True, eq=False)
class Function:
    """sigma(x) = f(scale x) / scale, with one piece of f before, between and after its breaks.

    Breaks are kinks and turning points: on a piece the slope is monotone. So slopes between two
    points of a piece lie between those at the points. The slope of a wave turns at `turn` and every
    pi from there, and it and its values are between -1 and 1.
    """

    pieces: Sequence[Piece]
    breaks: Sequence[Fraction] = ()
    scale: Fraction = ONE
    lines: Sequence[Quadratic] = ()  # the pieces, if all of them are lines
    domain: Sequence[Interval] = ()  # open intervals where it is defined; none: everywhere
    turn: Fraction | None = None  # of a wave, and of a wave alone
    is_square: bool = False  # x^2

    def __post_init__(self) -> None:
        require(self.scale > 0, "a parameter of an activation is not positive")

    @property
    def is_piecewise_linear(self) -> bool:
        return len(self.lines) > 0

    @property
    def cells(self) -> int:
        """Section 3, values of activations: into how many cells an interval is divided."""
        if self.is_piecewise_linear:
            return 1
        return CELLS

    @property
    def most(self) -> Fraction:
        """The largest size of a value."""
        return HUGE if self.turn is None else ONE

    def is_defined(self, lower: Fraction, upper: Fraction) -> bool:
        """Whether the function is defined, and has bounded slopes, between the two."""
        if not self.domain:
            return True
        return any(start < lower and upper < end for start, end in self.domain)

    def at(self, x: Fraction) -> Point:
        """Value and slopes at x; the slopes to its left and right differ at kinks alone."""
        scaled = self.scale * x
        left_piece = self.pieces[bisect_left(self.breaks, scaled)]
        right_piece = self.pieces[bisect_right(self.breaks, scaled)]
        (low, high), left = left_piece(scaled)
        right = left
        if right_piece is not left_piece:
            _, right = right_piece(scaled)
        numerator, denominator = self.scale.as_integer_ratio()
        value = (low * denominator // numerator, -(-high * denominator // numerator))
        return Point(x, value, left, right)

    def on_a_line(self, x: Fraction) -> Fraction:
        """The value at x, exactly, if the function is piecewise linear."""
        return self.lines[bisect_left(self.breaks, x)].value(x)

    def points(self, lower: Fraction, upper: Fraction, cells: int) -> list[Point]:
        """At the ends of the interval and of cells of equal width, and at all breaks between."""
        defined = self.is_defined(lower, upper)
        require(defined, "an activation has no bounded slopes on its interval", REJECTED)
        if self.turn is not None and upper - lower > MOST_TURNS * PI:
            anything = (-GRID, GRID)
            return [Point(x, anything, anything, anything) for x in (lower, upper)]
        first, last = on_grid(lower, upper)
        inner = {first + (last - first) * i // cells for i in range(1, cells)} - {first, last}
        places = [lower, *(Fraction(place, GRID) for place in sorted(inner))]
        if lower < upper:
            places.append(upper)
        breaks = []
        for place in self._breaks_from(lower, upper):
            if lower * self.scale < place < upper * self.scale:
                breaks.append(place / self.scale)
        if breaks:
            places = sorted({*places, *breaks})
        return [self.at(x) for x in places]

    def _breaks_from(self, lower: Fraction, upper: Fraction) -> Sequence[Fraction]:
        """The breaks, or for a wave those between the two."""
        if self.turn is None:
            return self.breaks
        first = floor((lower - self.turn) / PI)
        last = floor((upper - self.turn) / PI)
        return [self.turn + k * PI for k in range(first, last + 1)]


def leaky(alpha: Fraction) -> Function:
    """x for x >= 0, alpha x below."""
    lines = [Quadratic(alpha), Quadratic(ONE)]
    return Function(lines, [ZERO], lines=lines)


def ramp(slope: Fraction, constant: Fraction, low: Fraction, high: Fraction) -> Function:
    """min(max(slope x + constant, low), high); low may be -infinity, high infinity."""
    valid = slope > 0 and low <= high and low < inf and high > -inf
    require(valid, "activation 'clip' needs low <= high, 'hard_sigmoid' alpha > 0")
    lines = [Quadratic(slope, ZERO, constant)]
    breaks = []
    if low > -inf:
        lines.insert(0, Quadratic(ZERO, ZERO, low))
        breaks.append((low - constant) / slope)
    if high < inf:
        lines.append(Quadratic(ZERO, ZERO, high))
        breaks.append((high - constant) / slope)
    return Function(lines, breaks, lines=lines)


def gated_ramp(slope: Fraction, constant: Fraction) -> Function:
    """x min(max(slope x + constant, 0), 1)."""
    require(slope > 0, "activation 'hard_silu' needs alpha > 0")
    pieces = [Quadratic(ZERO), Quadratic(constant, slope), Quadratic(ONE)]
    return Function(pieces, [-constant / slope, (1 - constant) / slope])


def exponential_unit(alpha: Fraction, gamma: Fraction = ONE) -> Function:
    """gamma x for x >= 0, gamma alpha (e^x - 1) below."""
    return Function([exponential(alpha * gamma), Quadratic(gamma)], [ZERO])


def scaled_exponential_unit(alpha: Fraction) -> Function:
    """x for x >= 0, alpha (e^(x / alpha) - 1) below."""
    return Function([exponential(ONE), Quadratic(ONE)], [ZERO], 1 / alpha)


def turning_at_zero(formula: Formula, steepest: Fraction = ONE) -> Function:
    """A formula whose slope rises from 0 up to x = 0, and falls back to 0."""
    piece = smooth(formula, ZERO, steepest)
    return Function([piece, piece], [ZERO])


def gated(gate: Formula, first_turn: str, last_turn: str, scale: Fraction = ONE) -> Function:
    """x gate(x). Gates rise from 0 to 1. The slope turns twice, and is at its limit from FAR on."""

    def formula(x: Units) -> Pair:
        near = max(min(x, FAR), -FAR)
        value, slope = gate(near)
        return times(x, value), value + times(near, slope)

    piece = smooth(formula, -TWO, TWO)
    return Function([piece, piece, piece], [Fraction(first_turn), Fraction(last_turn)], scale)


def wave(formula: Formula, turn: Fraction) -> Function:
    """A sine or a cosine, whose slope turns at this point."""
    return Function([smooth(formula, -ONE, ONE)], turn=turn)


def power(exponent: Fraction) -> Function:
    """x^exponent, for a whole number."""
    valid = exponent.denominator == 1 and 2 <= exponent <= LARGEST_EXPONENT
    require(valid, f"activation 'power' needs a whole number from 2 to {LARGEST_EXPONENT}")
    n = int(exponent)
    piece = rational(lambda x: (x**n, n * x ** (n - 1)))
    return Function([piece, piece], [ZERO], domain=[(-HUGE, HUGE)], is_square=n == 2)


def reciprocal() -> Function:
    """1 / x, to one side of 0."""
    piece = rational(lambda x: (1 / x, -1 / x**2))
    return Function([piece, piece], [ZERO], domain=[(-HUGE, ZERO), (ZERO, HUGE)])


def rising_between(formula: Relative, start: Fraction, end: Fraction) -> Function:
    """A formula whose values rise and whose slopes are monotone, between these numbers."""
    return Function([rising(formula)], domain=[(start, end)])


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
    "power": Kind(("exponent",), power),
    "reciprocal": Kind((), reciprocal),
    "sqrt": Kind((), lambda: rising_between(square_root, SMALLEST_RADICAND, HUGE)),
    "exp": Kind((), lambda: rising_between(exponent, -HUGE, LARGEST_EXPONENTIAL)),
    "log": Kind((), lambda: rising_between(logarithm, ZERO, HUGE)),
    "sin": Kind((), lambda: wave(sine_and_cosine, ZERO)),
    "cos": Kind((), lambda: wave(cosine, PI / 2)),
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
    slopes: list[int] = []
    both_sides = both_sides or lower == upper
    for point in f.points(lower, upper, 1):
        if point.x > lower or both_sides:
            slopes.extend(point.left)
        if point.x < upper or both_sides:
            slopes.extend(point.right)
    lowest = Fraction(min(slopes), GRID)
    highest = Fraction(max(slopes), GRID)
    return round_down(lowest, SLOPE_GRID), round_up(highest, SLOPE_GRID)


class Edge(NamedTuple):
    """A point whose place counts 1 / unit, the same unit for all points of an interval; the lowest
    and highest value there, and slope, of both sides if it is a kink."""

    x: int
    lowest: int
    highest: int
    fall: int
    rise: int

    @staticmethod
    def of(point: Point, unit: int) -> Edge:
        x = point.x.numerator * (unit // point.x.denominator)
        fall = min(point.left[0], point.right[0])
        rise = max(point.left[1], point.right[1])
        return Edge(x, *point.value, fall, rise)

    def negative(self) -> Edge:
        """The same for the function times -1."""
        return Edge(self.x, -self.highest, -self.lowest, -self.rise, -self.fall)


def hull(f: Function, lower: Fraction, upper: Fraction) -> Hull:
    """Section 3, values of activations: vertices around the function on the interval."""
    points = f.points(lower, upper, f.cells)
    unit = lcm(*(point.x.denominator for point in points))
    edges = [Edge.of(point, unit) for point in points]
    negatives = [edge.negative() for edge in edges]
    return Hull(_vertices(f, negatives, unit), _vertices(f, edges, unit))


def _vertices(f: Function, edges: Sequence[Edge], unit: int) -> list[Vertex]:
    """Vertices above the function: at the edges and, if it bends, between them."""
    vertices = []
    for edge in edges:
        vertices += _around(edge.x, unit, edge.highest)
    if not f.is_piecewise_linear:
        most, _ = on_grid(f.most, f.most)
        for first, last in pairwise(edges):
            vertices += _peak(first, last, unit, most)
    return vertices


def _peak(first: Edge, last: Edge, unit: int, most: int) -> list[Vertex]:
    """How high the function can be between two edges, at most, and where: the steepest rise from
    the left one meets the steepest fall to the right one there. No value is above `most`."""
    fall = min(first.fall, last.fall)
    rise = max(first.rise, last.rise)
    bend = rise - fall
    if bend == 0:
        return []
    width = last.x - first.x
    # They meet at meeting / bend after the first edge.
    meeting = (last.highest - first.highest) * unit - fall * width
    meeting = min(max(meeting, 0), bend * width)
    height = first.highest - (-rise * meeting // (bend * unit))  # rounded up
    if fall >= 0 or rise <= 0 or height <= most:
        return _around(first.x * bend + meeting, unit * bend, height)
    # The rise and the fall, cut off where they reach the largest value.
    start = first.x * rise + max(most - first.highest, 0) * unit
    end = last.x * fall + max(most - last.highest, 0) * unit
    return _around(start, unit * rise, most) + _around(end, unit * fall, most)


def _around(numerator: int, denominator: int, height: int) -> list[Vertex]:
    """At a place, a vertex; or two, if it is between two multiples of 1 / GRID.

    A line that is above both is above the height at the place."""
    left = numerator * GRID // denominator
    right = -(-numerator * GRID // denominator)
    if left == right:
        return [(left, height)]
    return [(left, height), (right, height)]


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
