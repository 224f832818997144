"""Activation functions: enclosures of their values and slopes, from series for e^x, log and the normal distribution."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isqrt

from .exact import ONE, ZERO, require

BITS = 128
SCALE = 1 << BITS
COARSE = 64  # bits to which slopes are rounded outward
FINE = 1 << 200  # values of nodes are rounded outward to multiples of 1 / FINE
FAR = Fraction(90)  # e^-FAR < 2^-128
HUGE = Fraction(2**5000)  # for infinity: beyond all break points, and slopes are within 2^-COARSE of their limits
CELLS = 16  # of an interval on which a function that is not piecewise linear is bounded
TURN_ERROR = SCALE // 10**24  # of where a slope turns, and of the slope: no second derivative is larger than 1


def up(x: Fraction) -> Fraction:
    return Fraction(-(-x.numerator * FINE // x.denominator), FINE)


@dataclass(frozen=True)
class Interval:
    """All numbers between lo / SCALE and hi / SCALE. Every operation rounds outward."""

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

    def root(self) -> Interval:
        return Interval(isqrt(self.lo * SCALE), isqrt(self.hi * SCALE) + 1)

    def through(self, increasing: Piece) -> Interval:
        """The values of an increasing function."""
        return Interval(increasing(Fraction(self.lo, SCALE))[0].lo, increasing(Fraction(self.hi, SCALE))[0].hi)


Enclosure = tuple[Interval, Interval]  # of value and slope
Piece = Callable[[Fraction], Enclosure]
Point = tuple[Fraction, Interval, Interval, Interval]

PI_DIGITS = 31415926535897932384626433832795028841971
UNIT, TWO, FOUR = Interval.of(1), Interval.of(2), Interval.of(4)
PI = Interval(PI_DIGITS * SCALE // 10**40, (PI_DIGITS + 1) * SCALE // 10**40 + 1)
DENSITY = (TWO * PI).root().inverse()  # 1 / sqrt(2 pi)


def series(term: Interval, factor: Interval, ratio: Callable[[int], Fraction]) -> Interval:
    """The sum of term n >= 0, which is term n - 1 times factor ratio(n). That number, once below 1/2, stays there."""
    total, n, step = Interval(0, 0), 1, factor * Interval.of(ratio(1))
    while term.hi > 1 or 2 * step.hi > SCALE:
        total, term, n = total + term, term * step, n + 1
        step = factor * Interval.of(ratio(n))
    return total + Interval(0, 2 * term.hi)


def decay(x: Fraction) -> Interval:
    """e^-x for x >= 0: the series of e^r, r = x / 2^k <= 1/2, then k squarings."""
    if x >= FAR:
        return Interval(0, 1)
    halvings = (2 * x.numerator // x.denominator).bit_length()
    growth = series(UNIT, Interval.of(x / 2**halvings), lambda n: Fraction(1, n))
    for _ in range(halvings):
        growth = growth * growth
    return growth.inverse()


def line(slope: Fraction, offset: Fraction = ZERO) -> Piece:
    return lambda x: (Interval.of(slope * x + offset), Interval.of(slope))


def exponential(factor: Fraction) -> Piece:
    """factor (e^x - 1), x <= 0."""
    return lambda x: (Interval.of(factor) * (decay(-x) - UNIT), Interval.of(factor) * decay(-x))


def softsign(x: Fraction) -> Enclosure:
    return Interval.of(x / (1 + abs(x))), Interval.of((1 + abs(x)) ** -2)


def sigmoid(x: Fraction) -> Enclosure:
    e = decay(abs(x))
    large, small = (UNIT + e).inverse(), (UNIT + e).inverse() * e
    return large if x >= 0 else small, large * small


def tanh(x: Fraction) -> Enclosure:
    value, slope = sigmoid(2 * x)
    return TWO * value - UNIT, FOUR * slope


def softplus(x: Fraction) -> Enclosure:
    """max(x, 0) + log(1 + e), e = e^-|x|; log(1 + e) = 2 (w + w^3/3 + w^5/5 + ...), w = e / (2 + e) <= 1/3."""
    e = decay(abs(x))
    w = e * (TWO + e).inverse()
    logarithm = TWO * series(w, w * w, lambda n: Fraction(2 * n - 1, 2 * n + 1))
    return Interval.of(max(x, ZERO)) + logarithm, sigmoid(x)[0]


def normal(x: Fraction) -> Enclosure:
    """Phi(x) = 1/2 + density(x) (x + x^3/3 + x^5/15 + ...) and the density; far out 1 - Phi(x) <= e^(-x^2 / 2)."""
    e = decay(x * x / 2)
    if x * x >= FAR:
        tail = Interval(0, e.hi)
    else:
        series_of_x = series(Interval.of(abs(x)), Interval.of(x * x), lambda n: Fraction(1, 2 * n + 1))
        tail = Interval.of(Fraction(1, 2)) - DENSITY * e * series_of_x
    return tail if x < 0 else UNIT - tail, DENSITY * e


def erf(x: Fraction) -> Enclosure:
    return TWO * (TWO.root() * Interval.of(x)).through(normal) - UNIT, TWO * PI.root().inverse() * decay(x * x)


def gelu_tanh_gate(x: Fraction) -> Enclosure:
    """sigmoid(v), v = 2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    cubic, factor = Fraction(44715, 10**6), FOUR * DENSITY
    gate = (factor * Interval.of(x + cubic * x**3)).through(sigmoid)
    return gate, factor * Interval.of(1 + 3 * cubic * x**2) * gate * (UNIT - gate)


def mish_gate(x: Fraction) -> Enclosure:
    value, slope = softplus(x)
    gate = value.through(tanh)
    return gate, (UNIT - gate * gate) * slope


def hard_swish(x: Fraction) -> Enclosure:
    """Between -3 and 3."""
    return Interval.of(x * (x + 3) / 6), Interval.of(x / 3 + Fraction(1, 2))


@dataclass(frozen=True)
class Function:
    """sigma(x) = f(scale x) / scale, f by pieces between break points. On a piece the slope is monotone."""

    pieces: Sequence[Piece]
    breaks: Sequence[Fraction] = ()
    scale: Fraction = ONE
    cells: int = CELLS

    def __post_init__(self) -> None:
        require(self.scale > 0, "a parameter of an activation is not positive")

    def at(self, x: Fraction) -> Point:
        """x, the value there, and the slopes on its left and on its right."""
        u = self.scale * x
        left, right = (self.pieces[side(self.breaks, u)](u) for side in (bisect_left, bisect_right))
        return x, left[0] * Interval.of(1 / self.scale), left[1], right[1]

    def points(self, lo: Fraction, hi: Fraction, cells: int) -> list[Point]:
        """At lo, hi, all break points between, and between cells of equal width."""
        breaks = {b / self.scale for b in self.breaks if lo * self.scale < b < hi * self.scale}
        return [self.at(x) for x in sorted(breaks | {lo + (hi - lo) * i / cells for i in range(cells + 1)})]


def leaky(alpha: Fraction) -> Function:
    return Function([line(alpha), line(ONE)], [ZERO], cells=1)


def ramp(slope: Fraction, offset: Fraction, low: Fraction, high: Fraction) -> Function:
    """min(max(slope x + offset, low), high); the ends may be infinite."""
    valid = slope > 0 and low <= high and low < inf and high > -inf
    require(valid, "activation 'clip' needs low <= high, 'hard_sigmoid' alpha > 0")
    left, right = ([line(ZERO, end)] if abs(end) < inf else [] for end in (low, high))
    breaks = [(end - offset) / slope for end in (low, high) if abs(end) < inf]
    return Function([*left, line(slope, offset), *right], breaks, cells=1)


def gated(gate: Piece, left: str, right: str, scale: Fraction = ONE) -> Function:
    """x gate(x), whose slope turns at two points, near to these. Enclosures at FAR reach to the limits, so they hold beyond."""

    def piece(x: Fraction) -> Enclosure:
        near = min(max(x, -FAR), FAR)
        value, slope = gate(near)
        total = value + Interval.of(near) * slope
        return Interval.of(x) * value, Interval(total.lo - TURN_ERROR, total.hi + TURN_ERROR)

    return Function([piece] * 3, [Fraction(left), Fraction(right)], scale)


KINDS: dict[str, tuple[tuple[str, ...], Callable[..., Function]]] = {  # names of parameters, and the function for their values
    "relu": ((), lambda: leaky(ZERO)),
    "abs": ((), lambda: leaky(-ONE)),
    "leaky_relu": (("alpha",), leaky),
    "clip": (("low", "high"), lambda low, high: ramp(ONE, ZERO, low, high)),
    "hard_sigmoid": (("alpha", "beta"), lambda alpha, beta: ramp(alpha, beta, ZERO, ONE)),
    "hard_swish": ((), lambda: Function([line(ZERO), hard_swish, line(ONE)], [Fraction(-3), Fraction(3)])),
    "elu": (("alpha",), lambda alpha: Function([exponential(alpha), line(ONE)], [ZERO])),
    "selu": (("alpha", "gamma"), lambda alpha, gamma: Function([exponential(alpha * gamma), line(gamma)], [ZERO])),
    "celu": (("alpha",), lambda alpha: Function([exponential(ONE), line(ONE)], [ZERO], 1 / alpha)),
    "softplus": (("beta",), lambda beta: Function([softplus], (), beta)),
    "softsign": ((), lambda: Function([softsign, softsign], [ZERO])),
    "sigmoid": ((), lambda: Function([sigmoid, sigmoid], [ZERO])),
    "tanh": ((), lambda: Function([tanh, tanh], [ZERO])),
    "erf": ((), lambda: Function([erf, erf], [ZERO])),
    "silu": (("beta",), lambda beta: gated(sigmoid, "-2.3993572805154676678327397", "2.3993572805154676678327397", beta)),
    "gelu": (("beta",), lambda beta: gated(normal, "-1.4142135623730950488016887", "1.4142135623730950488016887", beta)),
    "gelu_tanh": ((), lambda: gated(gelu_tanh_gate, "-1.4185040087908283555480335", "1.4185040087908283555480335")),
    "mish": ((), lambda: gated(mish_gate, "-2.2563763963607931200057485", "1.4905711794854284592944189")),
}


def slope_range(f: Function, lo: Fraction = -HUGE, hi: Fraction = HUGE) -> tuple[Fraction, Fraction]:
    """The range of slopes over [lo, hi], rounded outward."""
    slopes = [slope for _, _, *sides in f.points(lo, hi, 1) for slope in sides]
    low, high = min(s.lo for s in slopes), max(s.hi for s in slopes)
    return Fraction(low >> BITS - COARSE, 1 << COARSE), -Fraction(-high >> BITS - COARSE, 1 << COARSE)


def offset(points: Sequence[Point], k: Fraction, sign: int) -> Fraction:
    """A number >= sign (sigma(x) - k x) at all points and between: where the steepest rise meets the steepest fall."""
    found = [Fraction(max(sign * y.lo, sign * y.hi), SCALE) - sign * k * x for x, y, _, _ in points]
    for (a, _, _, first), (b, _, last, _), left, right in zip(points, points[1:], found[:-1], found[1:], strict=False):
        slopes = [sign * (Fraction(s, SCALE) - k) for s in (first.lo, first.hi, last.lo, last.hi)]
        fall, rise = min(slopes), max(slopes)
        if fall < 0 < rise:
            way = (right - left - fall * (b - a)) / (rise - fall)
            found.append(left + rise * min(max(way, ZERO), b - a))
    return up(max(found))
