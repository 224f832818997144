"""Activation functions: enclosures of their values and slopes.

An Interval is a pair of integers, each times 2^-128, rounded outward by every operation. The exponential, the logarithm and the
normal distribution come from series with positive terms that fall at least by half: what is left out is at most the last term.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import isqrt

from .exact import ONE, ZERO, Malformed

BITS = 128
SCALE = 1 << BITS
FINE = 1 << 200  # values of nodes are rounded outward to multiples of 1 / FINE
SLOPE = 1 << 64  # slopes are rounded outward to multiples of 1 / SLOPE
FAR = 90  # e^-FAR < 2^-128
CELLS = 16  # of an interval on which a function that is not piecewise linear is bounded


def down(x: Fraction, grid: int) -> Fraction:
    return Fraction(x.numerator * grid // x.denominator, grid)


def up(x: Fraction, grid: int) -> Fraction:
    return -down(-x, grid)


@dataclass(frozen=True)
class Interval:
    """All numbers between lo / SCALE and hi / SCALE."""

    lo: int
    hi: int

    @staticmethod
    def of(x: Fraction | int) -> Interval:
        return Interval(x.numerator * SCALE // x.denominator, -(-x.numerator * SCALE // x.denominator))

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.lo + other.lo, self.hi + other.hi)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.lo - other.hi, self.hi - other.lo)

    def __mul__(self, other: Interval) -> Interval:
        ends = [a * b for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        return Interval(min(ends) >> BITS, -(-max(ends) >> BITS))

    def inverse(self) -> Interval:
        """1 / x, for positive intervals."""
        return Interval(SCALE * SCALE // self.hi, -(-SCALE * SCALE // self.lo))

    def over(self, n: int) -> Interval:
        """x / n, n > 0."""
        return Interval(self.lo // n, -(-self.hi // n))

    def root(self) -> Interval:
        return Interval(isqrt(self.lo * SCALE), isqrt(self.hi * SCALE) + 1)

    def through(self, increasing: Callable[[Fraction], Interval]) -> Interval:
        """The values of an increasing function."""
        return Interval(increasing(Fraction(self.lo, SCALE)).lo, increasing(Fraction(self.hi, SCALE)).hi)


PI_DIGITS = 31415926535897932384626433832795028841971
UNIT, TWO = Interval.of(1), Interval.of(2)
PI = Interval(PI_DIGITS * SCALE // 10**40, (PI_DIGITS + 1) * SCALE // 10**40 + 1)
DENSITY = (TWO * PI).root().inverse()  # 1 / sqrt(2 pi)
GELU_TANH = Interval.of(4) * DENSITY  # 2 sqrt(2 / pi)
CUBIC = Fraction(44715, 10**6)


def decay(x: Fraction) -> Interval:
    """e^-x for x >= 0: the series of e^r, r = x / 2^k <= 1/2, then k squarings."""
    if x >= FAR:
        return Interval(0, 1)
    halvings = (2 * x.numerator // x.denominator).bit_length()
    r, total, term, n = Interval.of(x / 2**halvings), UNIT, UNIT, 0
    while term.hi > 1:
        n += 1
        term = (term * r).over(n)
        total += term
    total += Interval(0, term.hi)
    for _ in range(halvings):
        total = total * total
    return total.inverse()


def sigmoid(x: Fraction) -> Interval:
    e = decay(abs(x))
    return (UNIT + e).inverse() * (UNIT if x >= 0 else e)


def sigmoid_slope(x: Fraction) -> Interval:
    return sigmoid(x) * sigmoid(-x)


def softplus(x: Fraction) -> Interval:
    """max(x, 0) + log(1 + e), e = e^-|x|; log(1 + e) = 2 (w + w^3/3 + w^5/5 + ...), w = e / (2 + e) <= 1/3."""
    w = decay(abs(x)).through(lambda e: Interval.of(e / (2 + e)))
    total, term, n = Interval(0, 0), w, 1
    while term.hi > 1:
        total += term.over(n)
        term = term * w * w
        n += 2
    return Interval.of(max(x, ZERO)) + TWO * (total + Interval(0, 2 * term.hi))


def normal(x: Fraction) -> Interval:
    """Phi(x) = 1/2 + density(x) (x + x^3/3 + x^5/15 + ...)."""
    if x < 0:
        return UNIT - normal(-x)
    if x * x >= FAR:
        return Interval(SCALE - decay(x * x / 2).hi, SCALE)  # 1 - Phi(x) <= e^(-x^2 / 2) / 2
    total, term, n, square = Interval(0, 0), Interval.of(x), 1, Interval.of(x * x)
    while term.hi > 1 or 2 * square.hi > n * SCALE:
        total += term
        n += 2
        term = (term * square).over(n)
    return UNIT.over(2) + density(x) * (total + Interval(0, 2 * term.hi))


def density(x: Fraction) -> Interval:
    return DENSITY * decay(x * x / 2)


def erf(x: Fraction) -> Interval:
    return TWO * (TWO.root() * Interval.of(x)).through(normal) - UNIT


def gelu_tanh_gate(x: Fraction) -> tuple[Interval, Interval]:
    """g = sigmoid(v) and 1 - g, v = 2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    v = GELU_TANH * Interval.of(x + CUBIC * x**3)
    return v.through(sigmoid), Interval(-v.hi, -v.lo).through(sigmoid)


def gelu_tanh_slope(x: Fraction) -> Interval:
    g, rest = gelu_tanh_gate(x)
    return g + Interval.of(x * (1 + 3 * CUBIC * x**2)) * g * rest * GELU_TANH


def mish_gate(x: Fraction) -> tuple[Interval, Interval]:
    """g = tanh(log(1 + e^x)) and 1 - g, from g = n / (n + 2), n = e^x (e^x + 2)."""
    e = decay(abs(x))
    n, rest = (e * (e + TWO), TWO) if x < 0 else (UNIT + TWO * e, TWO * e * e)
    inverse = (n + rest).inverse()
    return n * inverse, rest * inverse


def mish_slope(x: Fraction) -> Interval:
    g, rest = mish_gate(x)
    return g + Interval.of(x) * rest * (UNIT + g) * sigmoid(x)


Enclosure = Callable[[Fraction], Interval]


@dataclass(frozen=True)
class Function:
    """sigma(x) = value(scale x) / scale, by pieces between break points. On a piece the slope is monotone, but for `turns`."""

    value: Enclosure
    breaks: Sequence[Fraction]
    slopes: Sequence[Enclosure]  # of value, one a piece
    limits: tuple[Fraction, Fraction]  # of the slope, at -infinity and +infinity
    turns: Sequence[Fraction] = ()  # irrational turning points of the slope, to TURN_ERROR
    scale: Fraction = ONE
    linear: bool = False  # on every piece


TURN_ERROR = Fraction(1, 10**19)


def piecewise_linear(value: Callable[[Fraction], Fraction], breaks: Sequence[Fraction], slopes: Sequence[Fraction]) -> Function:
    pieces = [lambda x, s=s: Interval.of(s) for s in slopes]
    return Function(lambda x: Interval.of(value(x)), breaks, pieces, (slopes[0], slopes[-1]), linear=True)


def leaky(alpha: Fraction) -> Function:
    return piecewise_linear(lambda x: x if x >= 0 else alpha * x, [ZERO], [alpha, ONE])


def clip(low: Fraction | None, high: Fraction | None) -> Function:
    """None stands for an infinite end."""
    breaks = [end for end in (low, high) if end is not None]
    if breaks != sorted(breaks):
        raise Malformed("activation 'clip' needs low <= high")

    def value(x: Fraction) -> Fraction:
        x = x if low is None else max(x, low)
        return x if high is None else min(x, high)

    return piecewise_linear(value, breaks, [ZERO] * (low is not None) + [ONE] + [ZERO] * (high is not None))


def hard_sigmoid(alpha: Fraction, beta: Fraction) -> Function:
    ends = [-beta / alpha, (1 - beta) / alpha]
    return piecewise_linear(lambda x: min(max(alpha * x + beta, ZERO), ONE), ends, [ZERO, alpha, ZERO])


def hard_swish() -> Function:
    def value(x: Fraction) -> Interval:
        return Interval.of(x * min(max(x / 6 + Fraction(1, 2), ZERO), ONE))

    slopes = [lambda x: Interval(0, 0), lambda x: Interval.of(x / 3 + Fraction(1, 2)), lambda x: UNIT]
    return Function(value, [Fraction(-3), Fraction(3)], slopes, (ZERO, ONE))


def exponential(left: Fraction, right: Fraction, scale: Fraction = ONE) -> Function:
    """right x for x >= 0, left (e^x - 1) below."""

    def value(x: Fraction) -> Interval:
        return Interval.of(right * x) if x >= 0 else Interval.of(left) * (decay(-x) - UNIT)

    slopes = [lambda x: Interval.of(left) * decay(-x), lambda x: Interval.of(right)]
    return Function(value, [ZERO], slopes, (ZERO, right), scale=scale)


def peaked(value: Enclosure, slope: Enclosure) -> Function:
    """A function whose slope is largest at 0 and vanishes far away."""
    return Function(value, [ZERO], [slope, slope], (ZERO, ZERO))


def gated(gate: Enclosure, slope: Enclosure, turns: Sequence[str], scale: Fraction = ONE) -> Function:
    """x gate(x), with slopes 0 and 1 far away."""
    return Function(lambda x: Interval.of(x) * gate(x), [], [slope], (ZERO, ONE), [Fraction(t) for t in turns], scale)


def silu(beta: Fraction) -> Function:
    turns = ("-2.39935728051546766783", "2.39935728051546766783")
    return gated(sigmoid, lambda x: sigmoid(x) + Interval.of(x) * sigmoid_slope(x), turns, beta)


def gelu(beta: Fraction) -> Function:
    turns = ("-1.41421356237309504880", "1.41421356237309504880")
    return gated(normal, lambda x: normal(x) + Interval.of(x) * density(x), turns, beta)


@dataclass(frozen=True)
class Kind:
    build: Callable[..., Function]
    parameters: tuple[str, ...] = ()
    positive: str | None = None  # the parameter that must be


KINDS = {
    "relu": Kind(lambda: leaky(ZERO)),
    "abs": Kind(lambda: leaky(-ONE)),
    "leaky_relu": Kind(leaky, ("alpha",)),
    "clip": Kind(clip, ("low", "high")),
    "hard_sigmoid": Kind(hard_sigmoid, ("alpha", "beta"), "alpha"),
    "hard_swish": Kind(hard_swish),
    "elu": Kind(lambda alpha: exponential(alpha, ONE), ("alpha",)),
    "selu": Kind(lambda alpha, gamma: exponential(alpha * gamma, gamma), ("alpha", "gamma")),
    "celu": Kind(lambda alpha: exponential(ONE, ONE, 1 / alpha), ("alpha",), "alpha"),
    "softplus": Kind(lambda beta: Function(softplus, [], [sigmoid], (ZERO, ONE), scale=beta), ("beta",), "beta"),
    "softsign": Kind(lambda: peaked(lambda x: Interval.of(x / (1 + abs(x))), lambda x: Interval.of((1 + abs(x)) ** -2))),
    "sigmoid": Kind(lambda: peaked(sigmoid, sigmoid_slope)),
    "tanh": Kind(lambda: peaked(lambda x: TWO * sigmoid(2 * x) - UNIT, lambda x: Interval.of(4) * sigmoid_slope(2 * x))),
    "erf": Kind(lambda: peaked(erf, lambda x: TWO * PI.root().inverse() * decay(x * x))),
    "silu": Kind(silu, ("beta",), "beta"),
    "gelu": Kind(gelu, ("beta",), "beta"),
    "gelu_tanh": Kind(
        lambda: gated(lambda x: gelu_tanh_gate(x)[0], gelu_tanh_slope, ("-1.41850400879082835555", "1.41850400879082835555"))
    ),
    "mish": Kind(lambda: gated(lambda x: mish_gate(x)[0], mish_slope, ("-2.25637639636079312001", "1.49057117948542845929"))),
}


@cache
def function(kind: str, values: tuple[Fraction | None, ...]) -> Function:
    """An activation with the values of its parameters."""
    named = dict(zip(KINDS[kind].parameters, values, strict=True))
    positive = named.get(KINDS[kind].positive or "", ONE)
    if positive is None or positive <= 0:
        raise Malformed(f"activation '{kind}' needs {KINDS[kind].positive} > 0")
    return KINDS[kind].build(**named)


def slope_range(f: Function, lo: Fraction | None = None, hi: Fraction | None = None) -> tuple[Fraction, Fraction]:
    """The range of slopes over [lo, hi], rounded outward; None stands for infinity."""
    lo, hi = (None if end is None else end * f.scale for end in (lo, hi))
    found: list[Interval] = []
    for start, end, slope in zip([None, *f.breaks], [*f.breaks, None], f.slopes, strict=True):
        if (start is None or hi is None or start <= hi) and (end is None or lo is None or lo <= end):
            left = lo if start is None or (lo is not None and lo > start) else start
            right = hi if end is None or (hi is not None and hi < end) else end
            found += [*_slope_at(f, slope, left, f.limits[0]), *_slope_at(f, slope, right, f.limits[1])]
    for turn in f.turns:
        if (hi is None or turn - TURN_ERROR <= hi) and (lo is None or lo <= turn + TURN_ERROR):
            at, error = f.slopes[0](turn), Interval.of(TURN_ERROR)  # the second derivative is at most 1
            found += [at - error, at + error]
    low, high = min(i.lo for i in found), max(i.hi for i in found)
    return down(Fraction(low, SCALE), SLOPE), up(Fraction(high, SCALE), SLOPE)


def _slope_at(f: Function, slope: Enclosure, x: Fraction | None, limit: Fraction) -> list[Interval]:
    """The slope at x; far out, where it is monotone, what it lies between: a slope on the way and the limit."""
    if x is None:
        return [Interval.of(limit)]
    if f.turns and abs(x) > FAR:
        return [slope(Fraction(FAR if x > 0 else -FAR)), Interval.of(f.limits[int(x > 0)])]
    return [slope(x)]


@dataclass(frozen=True)
class Cell:
    """A part of an interval: its ends, the values there, and the slopes between them."""

    ends: tuple[Fraction, Fraction]
    values: tuple[Interval, Interval]
    slopes: tuple[Fraction, Fraction]

    def peak(self, k: Fraction, sign: int) -> Fraction:
        """An upper bound on sign (sigma(x) - k x): where the steepest rise from the left meets the steepest fall to the right."""
        left, right = (
            Fraction(max(sign * v.lo, sign * v.hi), SCALE) - sign * k * x for v, x in zip(self.values, self.ends, strict=True)
        )
        p, q = sorted(sign * (s - k) for s in self.slopes)
        if not p < 0 < q:
            return max(left, right)
        width = self.ends[1] - self.ends[0]
        way = min(max((right - left - p * width) / (q - p), ZERO), width)
        return max(left, right, left + q * way)


def cells(f: Function, lo: Fraction, hi: Fraction) -> list[Cell]:
    """[lo, hi] cut at break and turning points, and into CELLS parts if the function is not piecewise linear."""
    points = {lo, hi, *(b / f.scale for b in [*f.breaks, *f.turns] if lo * f.scale < b < hi * f.scale)}
    if not f.linear:
        points |= {lo + (hi - lo) * i / CELLS for i in range(1, CELLS)}
    ends = sorted(points) if lo < hi else [lo, hi]
    values = [f.value(x * f.scale) * Interval.of(1 / f.scale) for x in ends]
    return [Cell((a, b), (u, v), slope_range(f, a, b)) for a, b, u, v in zip(ends, ends[1:], values, values[1:], strict=False)]


def offset_above(parts: Sequence[Cell], k: Fraction) -> Fraction:
    """A number >= sigma(x) - k x on all cells."""
    return up(max(cell.peak(k, 1) for cell in parts), FINE)


def offset_below(parts: Sequence[Cell], k: Fraction) -> Fraction:
    """A number <= sigma(x) - k x on all cells."""
    return -up(max(cell.peak(k, -1) for cell in parts), FINE)
