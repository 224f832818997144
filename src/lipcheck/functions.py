"""Activation functions: enclosures of their values and slopes.

An Interval is a pair of integers, each times 2^-128, rounded outward by every operation. The exponential and the normal
distribution come from series with positive terms, where what is left out is at most the last term once terms fall by half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import isqrt

from .failures import Malformed

BITS = 128
ONE = 1 << BITS
FINE = 1 << 200  # intervals of nodes are rounded outward to multiples of 1 / FINE
SLOPE = 1 << 64  # slopes are rounded outward to multiples of 1 / SLOPE
FAR = 90  # e^-FAR < 2^-128
CELLS = 16


def down(x: Fraction, grid: int) -> Fraction:
    return Fraction(x.numerator * grid // x.denominator, grid)


def up(x: Fraction, grid: int) -> Fraction:
    return -down(-x, grid)


@dataclass(frozen=True)
class Interval:
    """All numbers between lo / ONE and hi / ONE."""

    lo: int
    hi: int

    @staticmethod
    def around(low: Fraction | int, high: Fraction | int | None = None) -> Interval:
        low, high = Fraction(low), Fraction(low if high is None else high)
        return Interval(low.numerator * ONE // low.denominator, -(-high.numerator * ONE // high.denominator))

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.lo + other.lo, self.hi + other.hi)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.lo - other.hi, self.hi - other.lo)

    def __mul__(self, other: Interval) -> Interval:
        ends = [a * b for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        return Interval(min(ends) >> BITS, -(-max(ends) >> BITS))

    def inverse(self) -> Interval:
        """1 / x, for positive intervals."""
        return Interval(ONE * ONE // self.hi, -(-ONE * ONE // self.lo))

    def over(self, divisor: int) -> Interval:
        """x / divisor, divisor > 0."""
        return Interval(self.lo // divisor, -(-self.hi // divisor))

    def root(self) -> Interval:
        return Interval(isqrt(self.lo * ONE), isqrt(self.hi * ONE) + 1)

    def low(self, grid: int) -> Fraction:
        return down(Fraction(self.lo, ONE), grid)

    def high(self, grid: int) -> Fraction:
        return up(Fraction(self.hi, ONE), grid)


UNIT = Interval.around(1)
PI = Interval.around(
    Fraction(31415926535897932384626433832795028841971, 10**40), Fraction(31415926535897932384626433832795028841972, 10**40)
)
ROOT_TWO = Interval.around(2).root()
DENSITY = (PI + PI).root().inverse()  # 1 / sqrt(2 pi)
ERF_SLOPE = Interval.around(2) * PI.root().inverse()
GELU_TANH_SCALE = Interval.around(4) * DENSITY  # 2 sqrt(2 / pi)
CUBIC = Fraction(44715, 10**6)


def decay(x: Fraction) -> Interval:
    """e^-x for x >= 0."""
    if x >= FAR:
        return Interval(0, 1)
    halvings = 0
    while x > Fraction(1, 2):
        x, halvings = x / 2, halvings + 1
    total, term, n, r = UNIT, UNIT, 0, Interval.around(x)
    while term.hi > 1:
        n += 1
        term = (term * r).over(n)
        total += term
    total = Interval(total.lo, total.hi + term.hi)
    for _ in range(halvings):
        total = total * total
    return total.inverse()


def sigmoid(x: Fraction) -> Interval:
    e = decay(abs(x))
    return (UNIT + e).inverse() if x >= 0 else e * (UNIT + e).inverse()


def _bump(x: Fraction) -> Interval:
    """The slope of the sigmoid."""
    return sigmoid(x) * sigmoid(-x)


def normal(x: Fraction) -> Interval:
    """Phi(x) = 1/2 + density(x) (x + x^3/3 + x^5/15 + ...)."""
    if x < 0:
        return UNIT - normal(-x)
    half_square = x * x / 2
    if half_square >= FAR // 2:
        return Interval(ONE - decay(half_square).hi, ONE)  # 1 - Phi(x) <= e^(-x^2 / 2) / 2
    total, term, n, square = Interval(0, 0), Interval.around(x), 1, Interval.around(x * x)
    while term.hi > 1 or square.hi > n * ONE // 2:
        total += term
        n += 2
        term = (term * square).over(n)
    total = Interval(total.lo, total.hi + 2 * term.hi)
    return UNIT.over(2) + DENSITY * decay(half_square) * total


def _tanh(x: Fraction) -> Interval:
    return sigmoid(2 * x) - sigmoid(-2 * x)


def _softsign(x: Fraction) -> Interval:
    return Interval.around(x / (1 + abs(x)))


def _erf(x: Fraction) -> Interval:
    """2 Phi(sqrt(2) x) - 1."""
    at = ROOT_TWO * Interval.around(x)
    low, high = normal(Fraction(at.lo, ONE)), normal(Fraction(at.hi, ONE))
    return Interval(2 * low.lo, 2 * high.hi) - UNIT


def _silu_slope(x: Fraction) -> Interval:
    return sigmoid(x) + Interval.around(x) * _bump(x)


def _gelu_slope(x: Fraction) -> Interval:
    return normal(x) + Interval.around(x) * DENSITY * decay(x * x / 2)


def _gelu_tanh_gate(x: Fraction) -> tuple[Interval, Interval]:
    """sigmoid(v) and sigmoid(-v), v = 2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    v = GELU_TANH_SCALE * Interval.around(x + CUBIC * x**3)
    low, high = Fraction(v.lo, ONE), Fraction(v.hi, ONE)
    return Interval(sigmoid(low).lo, sigmoid(high).hi), Interval(sigmoid(-high).lo, sigmoid(-low).hi)


def _gelu_tanh_slope(x: Fraction) -> Interval:
    s, rest = _gelu_tanh_gate(x)
    return s + Interval.around(x * (1 + 3 * CUBIC * x**2)) * s * rest * GELU_TANH_SCALE


def _mish_gate(x: Fraction) -> tuple[Interval, Interval]:
    """g = tanh(log(1 + e^x)) and 1 - g, from g = n / (n + 2), n = e^x (e^x + 2)."""
    e = decay(abs(x))
    two, square = Interval.around(2), e * e
    numerator, rest = (e * (e + two), two) if x < 0 else (UNIT + two * e, two * square)
    inverse = (numerator + rest).inverse()
    return numerator * inverse, rest * inverse


def _mish_slope(x: Fraction) -> Interval:
    g, rest = _mish_gate(x)
    return g + Interval.around(x) * rest * (UNIT + g) * sigmoid(x)


def _softplus(x: Fraction) -> Interval:
    """max(x, 0) + log(1 + e), e = e^-|x|; log(1 + e) = 2 (w + w^3/3 + w^5/5 + ...), w = e / (2 + e) <= 1/3."""
    e = decay(abs(x))
    w = Interval((ONE * e.lo) // (2 * ONE + e.lo), -(-ONE * e.hi // (2 * ONE + e.hi)))
    square, total, term, n = w * w, Interval(0, 0), w, 1
    while term.hi > 1:
        total += term.over(n)
        term = term * square
        n += 2
    total = Interval(total.lo, total.hi + 2 * term.hi)
    return Interval.around(max(x, Fraction(0))) + total + total


@dataclass(frozen=True)
class Function:
    """sigma(x) = value(scale x) / scale, by pieces between break points. On a piece the slope is monotone, but for `turns`."""

    value: Callable[[Fraction], Interval]
    breaks: Sequence[Fraction]
    slopes: Sequence[Callable[[Fraction], Interval]]  # of value, one a piece
    limits: tuple[Fraction, Fraction]  # of the slope, at -infinity and +infinity
    turns: Sequence[tuple[Fraction, Fraction]] = ()  # enclosures of irrational turning points of the slope
    scale: Fraction = Fraction(1)
    linear: bool = False  # on every piece


def _constant(value: Fraction) -> Callable[[Fraction], Interval]:
    return lambda x: Interval.around(value)


def _piecewise_linear(value: Callable[[Fraction], Fraction], breaks: Sequence[Fraction], slopes: Sequence[Fraction]) -> Function:
    pieces = [_constant(s) for s in slopes]
    return Function(lambda x: Interval.around(value(x)), breaks, pieces, (slopes[0], slopes[-1]), linear=True)


def _leaky(alpha: Fraction) -> Function:
    return _piecewise_linear(lambda x: x if x >= 0 else alpha * x, [ZERO], [alpha, WHOLE])


def _clip(low: Fraction | None, high: Fraction | None) -> Function:
    """None stands for an infinite end."""
    if low is not None and high is not None and low > high:
        raise Malformed("activation 'clip' needs low <= high")

    def value(x: Fraction) -> Fraction:
        x = x if low is None else max(x, low)
        return x if high is None else min(x, high)

    breaks = [end for end in (low, high) if end is not None]
    slopes = [ZERO] * (low is not None) + [WHOLE] + [ZERO] * (high is not None)
    return _piecewise_linear(value, breaks, slopes)


def _hard_sigmoid(alpha: Fraction, beta: Fraction) -> Function:
    breaks = [-beta / alpha, (1 - beta) / alpha]
    return _piecewise_linear(lambda x: min(max(alpha * x + beta, ZERO), WHOLE), breaks, [ZERO, alpha, ZERO])


def _hard_swish() -> Function:
    slopes = [_constant(ZERO), lambda x: Interval.around(x / 3 + HALF), _constant(WHOLE)]
    value = lambda x: Interval.around(x * min(max(x / 6 + HALF, ZERO), WHOLE))  # noqa: E731
    return Function(value, [Fraction(-3), Fraction(3)], slopes, (ZERO, WHOLE))


def _peaked(value: Callable[[Fraction], Interval], slope: Callable[[Fraction], Interval]) -> Function:
    """A function whose slope is largest at 0 and vanishes far away."""
    return Function(value, [ZERO], [slope, slope], (ZERO, ZERO))


def _exponential(left: Fraction, right: Fraction, scale: Fraction = Fraction(1)) -> Function:
    """right x for x >= 0, left (e^x - 1) below."""

    def value(x: Fraction) -> Interval:
        return Interval.around(right * x) if x >= 0 else Interval.around(left) * (decay(-x) - UNIT)

    def slope(x: Fraction) -> Interval:
        return Interval.around(left) * decay(-x)

    return Function(value, [ZERO], [slope, _constant(right)], (ZERO, right), scale=scale)


def _gated(
    gate: Callable[[Fraction], Interval],
    slope: Callable[[Fraction], Interval],
    turns: Sequence[str],
    scale: Fraction = Fraction(1),
) -> Function:
    """x gate(x), with slopes 0 and 1 far away; the turning points of its slope are right to 20 digits."""
    error = Fraction(1, 10**19)
    ends = [(Fraction(t) - error, Fraction(t) + error) for t in turns]
    return Function(lambda x: Interval.around(x) * gate(x), [], [slope], (ZERO, WHOLE), ends, scale)


ZERO, HALF, WHOLE = Fraction(0), Fraction(1, 2), Fraction(1)
SILU_TURNS = ("-2.39935728051546766783", "2.39935728051546766783")
GELU_TURNS = ("-1.41421356237309504880", "1.41421356237309504880")
GELU_TANH_TURNS = ("-1.41850400879082835555", "1.41850400879082835555")
MISH_TURNS = ("-2.25637639636079312001", "1.49057117948542845929")


@dataclass(frozen=True)
class Kind:
    build: Callable[..., Function]
    parameters: tuple[str, ...] = ()
    positive: str | None = None  # the parameter that must be


KINDS = {
    "relu": Kind(lambda: _leaky(ZERO)),
    "abs": Kind(lambda: _leaky(-WHOLE)),
    "leaky_relu": Kind(_leaky, ("alpha",)),
    "clip": Kind(_clip, ("low", "high")),
    "hard_sigmoid": Kind(_hard_sigmoid, ("alpha", "beta"), "alpha"),
    "hard_swish": Kind(_hard_swish),
    "elu": Kind(lambda alpha: _exponential(alpha, WHOLE), ("alpha",)),
    "selu": Kind(lambda alpha, gamma: _exponential(alpha * gamma, gamma), ("alpha", "gamma")),
    "celu": Kind(lambda alpha: _exponential(WHOLE, WHOLE, 1 / alpha), ("alpha",), "alpha"),
    "softplus": Kind(lambda beta: Function(_softplus, [], [sigmoid], (ZERO, WHOLE), scale=beta), ("beta",), "beta"),
    "softsign": Kind(lambda: _peaked(_softsign, lambda x: Interval.around((1 + abs(x)) ** -2))),
    "sigmoid": Kind(lambda: _peaked(sigmoid, _bump)),
    "tanh": Kind(lambda: _peaked(_tanh, lambda x: Interval.around(4) * _bump(2 * x))),
    "erf": Kind(lambda: _peaked(_erf, lambda x: ERF_SLOPE * decay(x * x))),
    "silu": Kind(lambda beta: _gated(sigmoid, _silu_slope, SILU_TURNS, beta), ("beta",), "beta"),
    "gelu": Kind(lambda beta: _gated(normal, _gelu_slope, GELU_TURNS, beta), ("beta",), "beta"),
    "gelu_tanh": Kind(lambda: _gated(lambda x: _gelu_tanh_gate(x)[0], _gelu_tanh_slope, GELU_TANH_TURNS)),
    "mish": Kind(lambda: _gated(lambda x: _mish_gate(x)[0], _mish_slope, MISH_TURNS)),
}


@cache
def function(kind: str, values: tuple[Fraction | None, ...]) -> Function:
    """An activation with the values of its parameters."""
    named = dict(zip(KINDS[kind].parameters, values, strict=True))
    positive = named.get(KINDS[kind].positive or "", WHOLE)
    if positive is None or positive <= 0:
        raise Malformed(f"activation '{kind}' needs {KINDS[kind].positive} > 0")
    return KINDS[kind].build(**named)


def slope_range(f: Function, lo: Fraction | None = None, hi: Fraction | None = None) -> tuple[Fraction, Fraction]:
    """The range of slopes over [lo, hi], rounded outward; None stands for infinity."""
    lo, hi = (None if end is None else end * f.scale for end in (lo, hi))
    found: list[Interval] = []
    starts, ends = [None, *f.breaks], [*f.breaks, None]
    for start, end, slope in zip(starts, ends, f.slopes, strict=True):
        if (start is None or hi is None or start <= hi) and (end is None or lo is None or lo <= end):
            left = lo if start is None or (lo is not None and lo > start) else start
            right = hi if end is None or (hi is not None and hi < end) else end
            found += _slope_at(f, slope, left, 0)
            found += _slope_at(f, slope, right, 1)
    for low, high in f.turns:
        if (hi is None or low <= hi) and (lo is None or lo <= high):
            at, error = f.slopes[0](low), Interval.around(low - high, high - low)  # the second derivative is at most 1
            found.append(at + error)
    return min(i.low(SLOPE) for i in found), max(i.high(SLOPE) for i in found)


def _slope_at(f: Function, slope: Callable[[Fraction], Interval], x: Fraction | None, side: int) -> list[Interval]:
    """The slope at x, or far out (where it is monotone) what lies between a slope on the way and the limit."""
    if x is None:
        return [Interval.around(f.limits[side])]
    if f.turns and abs(x) > FAR:
        return [slope(Fraction(FAR if x > 0 else -FAR)), Interval.around(f.limits[int(x > 0)])]
    return [slope(x)]


@dataclass(frozen=True)
class Cell:
    """A part of an interval: its ends, the values there, and the slopes between them."""

    ends: tuple[Fraction, Fraction]
    values: tuple[Interval, Interval]
    slopes: tuple[Fraction, Fraction]


def cells(f: Function, lo: Fraction, hi: Fraction) -> list[Cell]:
    """[lo, hi] cut at break points, and into CELLS parts if the function is not piecewise linear."""
    inner = [b / f.scale for b in f.breaks if lo * f.scale < b < hi * f.scale]
    if not f.linear:
        inner += [lo + (hi - lo) * i / CELLS for i in range(1, CELLS)]
    points = sorted({lo, hi, *inner})
    points = points if len(points) > 1 else points * 2
    unscale = Interval.around(1 / f.scale)
    values = [f.value(x * f.scale) * unscale for x in points]
    pairs = zip(points, points[1:], values, values[1:], strict=False)
    return [Cell((a, b), (u, v), slope_range(f, a, b)) for a, b, u, v in pairs]


def offset_above(parts: Sequence[Cell], k: Fraction) -> Fraction:
    """A number >= sigma(x) - k x on all cells."""
    tops = []
    for cell in parts:
        left, right = (v.high(FINE) - k * x for v, x in zip(cell.values, cell.ends, strict=True))
        tops.append(_peak(left, right, cell.slopes[0] - k, cell.slopes[1] - k, cell.ends[1] - cell.ends[0]))
    return up(max(tops), FINE)


def offset_below(parts: Sequence[Cell], k: Fraction) -> Fraction:
    """A number <= sigma(x) - k x on all cells."""
    tops = []
    for cell in parts:
        left, right = (k * x - v.low(FINE) for v, x in zip(cell.values, cell.ends, strict=True))
        tops.append(_peak(left, right, k - cell.slopes[1], k - cell.slopes[0], cell.ends[1] - cell.ends[0]))
    return -up(max(tops), FINE)


def _peak(left: Fraction, right: Fraction, p: Fraction, q: Fraction, width: Fraction) -> Fraction:
    """An upper bound on a function with these bounds at its ends and slopes in [p, q]: where the steepest rise from the left end
    meets the steepest fall to the right end."""
    top = max(left, right)
    if p < 0 < q:
        way = min(max((right - left - p * width) / (q - p), Fraction(0)), width)
        top = max(top, left + q * way)
    return top
