"""Activation functions: enclosures of their values and slopes, from which follow slope ranges and lines around them.

What is piecewise polynomial is computed exactly. The other formulas have no parameters but a factor; they are computed in
fractions from e^x, log(1 + x), roots and the normal distribution, in units of 2^-512. What these round off and leave out is less
than 2^-300 and is multiplied by less than 2^100 (1 + |x|), and the factor.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import floor, inf, isqrt

from .exact import ONE, TWO, ZERO, require

UNIT = 1 << 512
GRID = 1 << 200  # results, and values of nodes, are rounded to multiples of 1 / GRID
SLOPE_GRID = 1 << 128  # slope ranges are rounded outward to multiples of 1 / SLOPE_GRID
ERROR = TWO**-132  # of slopes, and times 1 + |x| of values; turning points that are off by 10^-25 change them by less
FAR = Fraction(100)  # e^-FAR and FAR e^-FAR are less than ERROR
HUGE = TWO**5000  # for infinity: beyond all break points, and slopes are within ERROR of their limits
PI = Fraction("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")

Pair = tuple[Fraction, Fraction]  # value and slope
Interval = tuple[Fraction, Fraction]
Formula = Callable[[Fraction], Pair]
Piece = Callable[[Fraction], tuple[Interval, Interval]]  # enclosures of value and slope
Point = tuple[Fraction, Interval, Interval, Interval]  # x, and enclosures of the value and of the slopes on both sides


def up(x: Fraction, grid: int = GRID) -> Fraction:
    return Fraction(-floor(-x * grid), grid)


def series(term: int, following: Callable[[int, int], int]) -> int:
    """The sum of terms that fall, in the end to less than half of the one before: those below 1 add up to less than 1."""
    total = n = 0
    while term:
        total, n = total + term, n + 1
        term = following(term, n)
    return total


def exp(x: Fraction) -> Fraction:
    """For x <= 0: the series of e^(-x / 2^24), squared 24 times, and inverted."""
    if x < -3 * FAR:
        return ZERO
    y = floor(-x * UNIT) >> 24
    result = series(UNIT, lambda term, n: term * y // (n * UNIT))
    for _ in range(24):
        result = result * result // UNIT
    return Fraction(UNIT * UNIT // result, UNIT)


def log1p(x: Fraction) -> Fraction:
    """For 0 <= x <= 1: 2 (z + z^3/3 + z^5/5 + ...), z = x / (2 + x)."""
    z = floor(x / (2 + x) * UNIT)
    square = z * z // UNIT
    return Fraction(2 * series(z, lambda term, n: term * square * (2 * n - 1) // ((2 * n + 1) * UNIT)), UNIT)


def root(x: Fraction) -> Fraction:
    return Fraction(isqrt(floor(x * UNIT * UNIT)), UNIT)


def normal(x: Fraction) -> Pair:
    """The normal distribution 1/2 + density(x) (x + x^3/3 + x^5/15 + ...), and its density. Both have their limits at 15."""
    size = min(abs(x), Fraction(15))
    square, density = floor(size * size * UNIT), exp(-size * size / 2) / root(2 * PI)
    total = series(floor(size * UNIT), lambda term, n: term * square // ((2 * n + 1) * UNIT))
    half = density * Fraction(total, UNIT)
    return Fraction(1, 2) + (half if x > 0 else -half), density


def sigmoid(x: Fraction) -> Pair:
    e = exp(-abs(x))
    return (1 if x >= 0 else e) / (1 + e), e / (1 + e) ** 2


def tanh(x: Fraction) -> Pair:
    value, slope = sigmoid(2 * x)
    return 2 * value - 1, 4 * slope


def erf(x: Fraction) -> Pair:
    value, slope = normal(root(TWO) * x)
    return 2 * value - 1, 2 * root(TWO) * slope


def softplus(x: Fraction) -> Pair:
    return max(x, ZERO) + log1p(exp(-abs(x))), sigmoid(x)[0]


def gelu_tanh_gate(x: Fraction) -> Pair:
    """sigmoid(v), v = 2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    factor, cubic = root(8 / PI), Fraction("0.044715")
    value, slope = sigmoid(factor * (x + cubic * x**3))
    return value, slope * factor * (1 + 3 * cubic * x**2)


def mish_gate(x: Fraction) -> Pair:
    """tanh(softplus(x))."""
    inner, inner_slope = softplus(x)
    value, slope = tanh(inner)
    return value, slope * inner_slope


def polynomial(slope: Fraction, square: Fraction = ZERO, offset: Fraction = ZERO) -> Piece:
    """offset + slope x + square x^2, exactly."""
    return lambda x: ((offset + slope * x + square * x * x,) * 2, (slope + 2 * square * x,) * 2)


def smooth(formula: Formula, least: Fraction = ZERO, most: Fraction = ONE) -> Piece:
    """With slopes that are known to lie between these two."""

    def piece(x: Fraction) -> tuple[Interval, Interval]:
        value, slope = (Fraction(floor(result * GRID), GRID) for result in formula(x))
        error = ERROR * max(most - least, ONE)
        off = error * (1 + abs(x))
        return (value - off, value + off), (max(slope - error, least), min(slope + error, most))

    return cache(piece)


def exponential(factor: Fraction) -> Piece:
    """factor (e^x - 1)."""
    return smooth(lambda x: (factor * (exp(x) - 1), factor * exp(x)), min(factor, ZERO), max(factor, ZERO))


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
        ((low, high), left), (_, right) = (self.pieces[side(self.breaks, u)](u) for side in (bisect_left, bisect_right))
        return x, (low / self.scale, high / self.scale), left, right

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
    left, right = ([polynomial(ZERO, ZERO, end)] if abs(end) < inf else [] for end in (low, high))
    breaks = [(end - offset) / slope for end in (low, high) if abs(end) < inf]
    return Function([*left, polynomial(slope, ZERO, offset), *right], breaks, cells=1)


def gated_ramp(slope: Fraction, offset: Fraction) -> Function:
    """x min(max(slope x + offset, 0), 1)."""
    require(slope > 0, "activation 'hard_silu' needs alpha > 0")
    pieces = [polynomial(ZERO), polynomial(offset, slope), polynomial(ONE)]
    return Function(pieces, [-offset / slope, (1 - offset) / slope])


def gated(gate: Formula, left: str, right: str, scale: Fraction = ONE) -> Function:
    """x gate(x), whose slope turns at two points, near to these, and is at its limit, 0 or 1, from FAR on."""

    def formula(x: Fraction) -> Pair:
        near = max(min(x, FAR), -FAR)
        value, slope = gate(near)
        return x * value, value + near * slope

    return Function([smooth(formula, -TWO, TWO)] * 3, [Fraction(left), Fraction(right)], scale)


KINDS: dict[str, tuple[tuple[str, ...], Callable[..., Function]]] = {  # names of parameters, and the function for their values
    "relu": ((), lambda: leaky(ZERO)),
    "abs": ((), lambda: leaky(-ONE)),
    "leaky_relu": (("alpha",), leaky),
    "clip": (("low", "high"), lambda low, high: ramp(ONE, ZERO, low, high)),
    "hard_sigmoid": (("alpha", "beta"), lambda alpha, beta: ramp(alpha, beta, ZERO, ONE)),
    "hard_swish": ((), lambda: gated_ramp(ONE / 6, ONE / 2)),
    "hard_silu": (("alpha", "beta"), gated_ramp),
    "elu": (("alpha",), lambda alpha: Function([exponential(alpha), polynomial(ONE)], [ZERO])),
    "selu": (("alpha", "gamma"), lambda alpha, gamma: Function([exponential(alpha * gamma), polynomial(gamma)], [ZERO])),
    "celu": (("alpha",), lambda alpha: Function([exponential(ONE), polynomial(ONE)], [ZERO], 1 / alpha)),
    "softplus": (("beta",), lambda beta: Function([smooth(softplus)], (), beta)),
    "softsign": ((), lambda: Function([smooth(lambda x: (x / (1 + abs(x)), 1 / (1 + abs(x)) ** 2))] * 2, [ZERO])),
    "sigmoid": ((), lambda: Function([smooth(sigmoid)] * 2, [ZERO])),
    "tanh": ((), lambda: Function([smooth(tanh)] * 2, [ZERO])),
    "erf": ((), lambda: Function([smooth(erf, ZERO, TWO)] * 2, [ZERO])),
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
