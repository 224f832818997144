"""Activation functions: enclosures of their values and slopes, from which follow slope ranges and lines around them.

What is piecewise polynomial is computed exactly. The formulas of the others have no parameters, and are enclosed by series.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import floor, inf

from .enclosure import PI, UNIT, Enclosure, exp, log1p, root, series
from .exact import ONE, TWO, ZERO, require

GRID = 1 << 200  # values of nodes are rounded outward to multiples of 1 / GRID
SLOPE_GRID = 1 << 128  # and slope ranges to multiples of 1 / SLOPE_GRID
FAR = 100  # from here on gates, and from TAIL on the normal distribution, are taken to be what they are here
TAIL = 15
ERROR = Fraction(1, 1 << 128)  # which is off by less than this times 1 + |x|
SLOPE_ERROR = Fraction(1, 10**40)  # and slopes by less than this; so they are if they turn 10^-25 from where they are said to
HUGE = Fraction(2**5000)  # for infinity: beyond all break points, and slopes are within SLOPE_ERROR of their limits

Interval = tuple[Fraction, Fraction]
Piece = Callable[[Fraction], tuple[Interval, Interval]]  # x to enclosures of value and slope
Point = tuple[Fraction, Interval, Interval, Interval]  # x, and enclosures of the value and of the slopes on both sides
Formula = Callable[[Enclosure], tuple[Enclosure, Enclosure]]  # x to value and slope


def up(x: Fraction, grid: int = GRID) -> Fraction:
    return Fraction(-floor(-x * grid), grid)


def times(factor: Fraction, interval: Interval) -> Interval:
    ends = factor * interval[0], factor * interval[1]
    return min(ends), max(ends)


def polynomial(slope: Fraction, offset: Fraction = ZERO, square: Fraction = ZERO) -> Piece:
    """offset + slope x + square x^2, exactly."""
    return lambda x: ((offset + slope * x + square * x * x,) * 2, (slope + 2 * square * x,) * 2)


def smooth(formula: Formula, least: Fraction = ZERO, most: Fraction = ONE) -> Piece:
    """With slopes that are known to lie between these two."""

    def piece(x: Fraction) -> tuple[Interval, Interval]:
        value, slope = formula(Enclosure.of(x))
        error, low, high = ERROR * (1 + abs(x)), Fraction(slope.low, UNIT) - SLOPE_ERROR, Fraction(slope.high, UNIT) + SLOPE_ERROR
        return (-up(error - Fraction(value.low, UNIT)), up(error + Fraction(value.high, UNIT))), (max(low, least), min(high, most))

    return cache(piece)


def exponential(factor: Fraction) -> Piece:
    """factor (e^x - 1)."""
    plain = smooth(lambda x: (exp(x) - Enclosure.of(1), exp(x)))
    return lambda x: (times(factor, plain(x)[0]), times(factor, plain(x)[1]))


def decays(x: Enclosure) -> tuple[Enclosure, Enclosure]:
    """e^min(x, 0) and e^-max(x, 0)."""
    return exp(Enclosure(min(x.low, 0), min(x.high, 0))), exp(-Enclosure(max(x.low, 0), max(x.high, 0)))


def sigmoid(x: Enclosure) -> tuple[Enclosure, Enclosure]:
    left, right = decays(x)
    value = left / (left + right)
    return value, value * right / (left + right)


def tanh(x: Enclosure) -> tuple[Enclosure, Enclosure]:
    value, slope = sigmoid(x.times(2))
    return value.times(2) - Enclosure.of(1), slope.times(4)


def softplus(x: Enclosure) -> tuple[Enclosure, Enclosure]:
    left, right = decays(x)
    return Enclosure(max(x.low, 0), max(x.high, 0)) + log1p(left * right), left / (left + right)


def softsign(x: Enclosure) -> tuple[Enclosure, Enclosure]:
    size = Enclosure.of(1) + Enclosure(max(x.low, -x.high), max(x.high, -x.low))
    return x / size, Enclosure.of(1) / size / size


def normal(x: Enclosure) -> tuple[Enclosure, Enclosure]:
    """The normal distribution, 1/2 + density (x + x^3/3 + x^5/15 + ...), and its density."""
    x = x.clipped(-TAIL, TAIL)
    square = x * x
    density = exp(-square.times(1, 2)) / root(PI.times(2))
    return Enclosure.of(Fraction(1, 2)) + density * series(x, lambda n: square.times(1, 2 * n + 1)), density


def erf(x: Enclosure) -> tuple[Enclosure, Enclosure]:
    scale = root(Enclosure.of(2))
    value, slope = normal(scale * x)
    return value.times(2) - Enclosure.of(1), slope.times(2) * scale


def gelu_tanh_gate(x: Enclosure) -> tuple[Enclosure, Enclosure]:
    """sigmoid(v), v = 2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    factor, bend = root(Enclosure.of(8) / PI), (x * x).times(44715, 10**6)
    value, slope = sigmoid(factor * (x + x * bend))
    return value, slope * factor * (Enclosure.of(1) + bend.times(3))


def mish_gate(x: Enclosure) -> tuple[Enclosure, Enclosure]:
    """tanh(softplus(x))."""
    inner, inner_slope = softplus(x)
    value, slope = tanh(inner)
    return value, slope * inner_slope


@dataclass(frozen=True, eq=False)
class Function:
    """sigma(x) = f(scale x) / scale, f by pieces between break points. On a piece the slope is monotone."""

    pieces: Sequence[Piece]
    breaks: Sequence[Fraction] = ()
    scale: Fraction = ONE
    cells: int = 16  # of an interval on which it is bounded; 1 if it is piecewise linear

    def __post_init__(self) -> None:
        require(self.scale > 0, "a parameter of an activation is not positive")

    def at(self, x: Fraction) -> Point:
        u = self.scale * x
        left, right = (self.pieces[side(self.breaks, u)](u) for side in (bisect_left, bisect_right))
        return x, times(1 / self.scale, left[0]), left[1], right[1]

    def points(self, lo: Fraction, hi: Fraction, cells: int) -> list[Point]:
        """At lo, hi, all break points between, and between cells of equal width."""
        breaks = {b / self.scale for b in self.breaks if lo * self.scale < b < hi * self.scale}
        return [self.at(x) for x in sorted(breaks | {lo + (hi - lo) * i / cells for i in range(cells + 1)})]


def leaky(alpha: Fraction) -> Function:
    return Function([polynomial(alpha), polynomial(ONE)], [ZERO], cells=1)


def ramp(slope: Fraction, offset: Fraction, low: Fraction, high: Fraction) -> Function:
    """min(max(slope x + offset, low), high); the ends may be infinite."""
    valid = slope > 0 and low <= high and low < inf and high > -inf
    require(valid, "activation 'clip' needs low <= high, 'hard_sigmoid' alpha > 0")
    left, right = ([polynomial(ZERO, end)] if abs(end) < inf else [] for end in (low, high))
    breaks = [(end - offset) / slope for end in (low, high) if abs(end) < inf]
    return Function([*left, polynomial(slope, offset), *right], breaks, cells=1)


def hard_swish() -> Function:
    middle = polynomial(Fraction(1, 2), square=Fraction(1, 6))
    return Function([polynomial(ZERO), middle, polynomial(ONE)], [Fraction(-3), Fraction(3)])


def odd(formula: Formula, steepest: Fraction = ONE) -> Function:
    """A function whose slope turns at 0."""
    return Function([smooth(formula, ZERO, steepest)] * 2, [ZERO])


def gated(gate: Formula, left: str, right: str, scale: Fraction = ONE) -> Function:
    """x gate(x), whose slope turns at two points, near to these, and is at its limit, 0 or 1, from FAR on."""

    def formula(x: Enclosure) -> tuple[Enclosure, Enclosure]:
        near = x.clipped(-FAR, FAR)
        value, slope = gate(near)
        return x * value, value + near * slope

    return Function([smooth(formula, -TWO, TWO)] * 3, [Fraction(left), Fraction(right)], scale)


KINDS: dict[str, tuple[tuple[str, ...], Callable[..., Function]]] = {  # names of parameters, and the function for their values
    "relu": ((), lambda: leaky(ZERO)),
    "abs": ((), lambda: leaky(-ONE)),
    "leaky_relu": (("alpha",), leaky),
    "clip": (("low", "high"), lambda low, high: ramp(ONE, ZERO, low, high)),
    "hard_sigmoid": (("alpha", "beta"), lambda alpha, beta: ramp(alpha, beta, ZERO, ONE)),
    "hard_swish": ((), hard_swish),
    "elu": (("alpha",), lambda alpha: Function([exponential(alpha), polynomial(ONE)], [ZERO])),
    "selu": (("alpha", "gamma"), lambda alpha, gamma: Function([exponential(alpha * gamma), polynomial(gamma)], [ZERO])),
    "celu": (("alpha",), lambda alpha: Function([exponential(ONE), polynomial(ONE)], [ZERO], 1 / alpha)),
    "softplus": (("beta",), lambda beta: Function([smooth(softplus)], (), beta)),
    "softsign": ((), lambda: odd(softsign)),
    "sigmoid": ((), lambda: odd(sigmoid)),
    "tanh": ((), lambda: odd(tanh)),
    "erf": ((), lambda: odd(erf, TWO)),
    "silu": (("beta",), lambda beta: gated(sigmoid, "-2.3993572805154676678327397", "2.3993572805154676678327397", beta)),
    "gelu": (("beta",), lambda beta: gated(normal, "-1.4142135623730950488016887", "1.4142135623730950488016887", beta)),
    "gelu_tanh": ((), lambda: gated(gelu_tanh_gate, "-1.4185040087908283555480335", "1.4185040087908283555480335")),
    "mish": ((), lambda: gated(mish_gate, "-2.2563763963607931200057485", "1.4905711794854284592944189")),
}


@cache
def slope_range(f: Function, lo: Fraction = -HUGE, hi: Fraction = HUGE) -> Interval:
    """The range of slopes over [lo, hi], rounded outward."""
    slopes = [slope for _, _, *sides in f.points(lo, hi, 1) for side in sides for slope in side]
    return -up(-min(slopes), SLOPE_GRID), up(max(slopes), SLOPE_GRID)


def offset(points: Sequence[Point], k: Fraction, sign: int) -> Fraction:
    """A number >= sign (sigma(x) - k x) at all points and between: where the steepest rise meets the steepest fall."""
    heights = [max(sign * (end - k * x) for end in value) for x, value, _, _ in points]
    found = list(heights)
    for (a, _, *first), (b, _, *last), left, right in zip(points, points[1:], heights, heights[1:], strict=False):
        slopes = [sign * (slope - k) for side in first + last for slope in side]  # at kinks those of both sides, as lipopt
        fall, rise = min(slopes), max(slopes)
        if fall < 0 < rise:
            way = (right - left - fall * (b - a)) / (rise - fall)
            found.append(left + rise * min(max(way, ZERO), b - a))
    return up(max(found))
