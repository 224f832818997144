"""Activation functions: enclosures of their values and slopes, from series for e^x, log and the normal distribution."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isqrt

from .exact import ONE, ZERO, require

BITS = 128
SCALE = 1 << BITS
FINE = 1 << 200  # values of nodes are rounded outward to multiples of 1 / FINE
SLOPE = 1 << 64  # slopes are rounded outward to multiples of 1 / SLOPE
FAR = 90  # e^-FAR < 2^-128
HUGE = Fraction(
    2**5000
)  # in place of infinity: beyond all break points, and slopes differ by less than 1 / SLOPE from their limit
CELLS = 16  # of an interval on which a function that is not piecewise linear is bounded
TURN_ERROR = Fraction(1, 10**19)


def up(x: Fraction, grid: int) -> Fraction:
    return Fraction(-(-x.numerator * grid // x.denominator), grid)


def down(x: Fraction, grid: int) -> Fraction:
    return -up(-x, grid)


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


Piece = Callable[[Fraction], tuple[Interval, Interval]]  # value and slope

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


def softsign(x: Fraction) -> tuple[Interval, Interval]:
    return Interval.of(x / (1 + abs(x))), Interval.of((1 + abs(x)) ** -2)


def sigmoid(x: Fraction) -> tuple[Interval, Interval]:
    e = decay(abs(x))
    large, small = (UNIT + e).inverse(), (UNIT + e).inverse() * e
    return large if x >= 0 else small, large * small


def tanh(x: Fraction) -> tuple[Interval, Interval]:
    value, slope = sigmoid(2 * x)
    return TWO * value - UNIT, FOUR * slope


def softplus(x: Fraction) -> tuple[Interval, Interval]:
    """max(x, 0) + log(1 + e), e = e^-|x|; log(1 + e) = 2 (w + w^3/3 + w^5/5 + ...), w = e / (2 + e) <= 1/3."""
    e = decay(abs(x))
    w = e * (TWO + e).inverse()
    logarithm = TWO * series(w, w * w, lambda n: Fraction(2 * n - 1, 2 * n + 1))
    return Interval.of(max(x, ZERO)) + logarithm, sigmoid(x)[0]


def normal(x: Fraction) -> tuple[Interval, Interval]:
    """Phi(x) = 1/2 + density(x) (x + x^3/3 + x^5/15 + ...) and the density; far out 1 - Phi(x) <= e^(-x^2 / 2)."""
    e = decay(x * x / 2)
    if x * x >= FAR:
        tail = Interval(0, e.hi)
    else:
        series_of_x = series(Interval.of(abs(x)), Interval.of(x * x), lambda n: Fraction(1, 2 * n + 1))
        tail = Interval.of(Fraction(1, 2)) - DENSITY * e * series_of_x
    return tail if x < 0 else UNIT - tail, DENSITY * e


def erf(x: Fraction) -> tuple[Interval, Interval]:
    return TWO * (TWO.root() * Interval.of(x)).through(normal) - UNIT, TWO * PI.root().inverse() * decay(x * x)


def gelu_tanh_gate(x: Fraction) -> tuple[Interval, Interval]:
    """sigmoid(v), v = 2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    cubic, factor = Fraction(44715, 10**6), FOUR * DENSITY
    gate = (factor * Interval.of(x + cubic * x**3)).through(sigmoid)
    return gate, factor * Interval.of(1 + 3 * cubic * x**2) * gate * (UNIT - gate)


def mish_gate(x: Fraction) -> tuple[Interval, Interval]:
    value, slope = softplus(x)
    gate = value.through(tanh)
    return gate, (UNIT - gate * gate) * slope


@dataclass(frozen=True)
class Function:
    """sigma(x) = f(scale x) / scale, f by pieces between break points. On a piece the slope is monotone, but for `turns`."""

    pieces: Sequence[Piece]
    breaks: Sequence[Fraction] = ()
    scale: Fraction = ONE
    turns: Sequence[Fraction] = ()  # irrational turning points of the slope, to TURN_ERROR
    linear: bool = False  # on every piece

    def __post_init__(self) -> None:
        require(self.scale > 0, "a parameter of an activation is not positive")

    def value(self, x: Fraction) -> Interval:
        return self.pieces[bisect(self.breaks, x)](x)[0]


def leaky(alpha: Fraction) -> Function:
    return Function([line(alpha), line(ONE)], [ZERO], linear=True)


def ramp(slope: Fraction, offset: Fraction, low: Fraction, high: Fraction) -> Function:
    """min(max(slope x + offset, low), high); the ends may be infinite."""
    require(slope > 0 and low <= high, "activation 'clip' needs low <= high, 'hard_sigmoid' alpha > 0")
    left, right = ([line(ZERO, end)] if abs(end) < inf else [] for end in (low, high))
    breaks = [(end - offset) / slope for end in (low, high) if abs(end) < inf]
    return Function([*left, line(slope, offset), *right], breaks, linear=True)


def hard_swish() -> Function:
    pieces = [line(ZERO), lambda x: (Interval.of(x * (x + 3) / 6), Interval.of(x / 3 + Fraction(1, 2))), line(ONE)]
    return Function(pieces, [Fraction(-3), Fraction(3)])


def gated(gate: Piece, left: str, right: str, scale: Fraction = ONE) -> Function:
    """x gate(x), whose slope turns at two points, and beyond FAR lies between that at FAR and its limit, 0 or 1."""

    def piece(x: Fraction) -> tuple[Interval, Interval]:
        value, slope = gate(x)
        total = value + Interval.of(x) * slope
        if abs(x) > FAR:
            last, limit = piece(Fraction(FAR if x > 0 else -FAR))[1], SCALE if x > 0 else 0
            total = Interval(min(last.lo, limit), max(last.hi, limit))
        return Interval.of(x) * value, total

    return Function([piece], (), scale, [Fraction(left), Fraction(right)])


KINDS: dict[str, tuple[tuple[str, ...], Callable[..., Function]]] = {  # names of parameters, and the function for their values
    "relu": ((), lambda: leaky(ZERO)),
    "abs": ((), lambda: leaky(-ONE)),
    "leaky_relu": (("alpha",), leaky),
    "clip": (("low", "high"), lambda low, high: ramp(ONE, ZERO, low, high)),
    "hard_sigmoid": (("alpha", "beta"), lambda alpha, beta: ramp(alpha, beta, ZERO, ONE)),
    "hard_swish": ((), hard_swish),
    "elu": (("alpha",), lambda alpha: Function([exponential(alpha), line(ONE)], [ZERO])),
    "selu": (("alpha", "gamma"), lambda alpha, gamma: Function([exponential(alpha * gamma), line(gamma)], [ZERO])),
    "celu": (("alpha",), lambda alpha: Function([exponential(ONE), line(ONE)], [ZERO], 1 / alpha)),
    "softplus": (("beta",), lambda beta: Function([softplus], (), beta)),
    "softsign": ((), lambda: Function([softsign, softsign], [ZERO])),
    "sigmoid": ((), lambda: Function([sigmoid, sigmoid], [ZERO])),
    "tanh": ((), lambda: Function([tanh, tanh], [ZERO])),
    "erf": ((), lambda: Function([erf, erf], [ZERO])),
    "silu": (("beta",), lambda beta: gated(sigmoid, "-2.39935728051546766783", "2.39935728051546766783", beta)),
    "gelu": (("beta",), lambda beta: gated(normal, "-1.41421356237309504880", "1.41421356237309504880", beta)),
    "gelu_tanh": ((), lambda: gated(gelu_tanh_gate, "-1.41850400879082835555", "1.41850400879082835555")),
    "mish": ((), lambda: gated(mish_gate, "-2.25637639636079312001", "1.49057117948542845929")),
}


def slope_range(f: Function, lo: Fraction = -HUGE, hi: Fraction = HUGE) -> tuple[Fraction, Fraction]:
    """The range of slopes over [lo, hi], rounded outward."""
    lo, hi = lo * f.scale, hi * f.scale
    found: list[Interval] = []
    for start, end, piece in zip([lo, *f.breaks], [*f.breaks, hi], f.pieces, strict=True):
        left, right = max(lo, start), min(hi, end)
        found += [piece(x)[1] for x in {left, right} if left <= right]
    for turn in f.turns:
        if lo <= turn + TURN_ERROR and turn - TURN_ERROR <= hi:
            at, error = f.pieces[0](turn)[1], Interval.of(TURN_ERROR)  # the second derivative is at most 1
            found += [at - error, at + error]
    low, high = min(i.lo for i in found), max(i.hi for i in found)
    return down(Fraction(low, SCALE), SLOPE), up(Fraction(high, SCALE), SLOPE)


Cell = tuple[Fraction, Fraction, Interval, Interval, tuple[Fraction, Fraction]]  # ends, values there, slopes between


def cells(f: Function, lo: Fraction, hi: Fraction) -> list[Cell]:
    """[lo, hi] cut at break and turning points, and into CELLS parts if the function is not piecewise linear."""
    points = {lo, hi, *(b / f.scale for b in [*f.breaks, *f.turns] if lo * f.scale < b < hi * f.scale)}
    if not f.linear:
        points |= {lo + (hi - lo) * i / CELLS for i in range(1, CELLS)}
    ends = sorted(points) if lo < hi else [lo, hi]
    values = [f.value(x * f.scale) * Interval.of(1 / f.scale) for x in ends]
    return [(a, b, u, v, slope_range(f, a, b)) for a, b, u, v in zip(ends, ends[1:], values, values[1:], strict=False)]


def offset(parts: Sequence[Cell], k: Fraction, sign: int) -> Fraction:
    """A number >= sign (sigma(x) - k x) on all cells: where the steepest rise from the left meets the steepest fall."""
    found: list[Fraction] = []
    for a, b, u, v, slopes in parts:
        left, right = (Fraction(max(sign * y.lo, sign * y.hi), SCALE) - sign * k * x for x, y in ((a, u), (b, v)))
        found += [left, right]
        fall, rise = sorted(sign * (s - k) for s in slopes)
        if fall < 0 < rise:
            way = (right - left - fall * (b - a)) / (rise - fall)
            found.append(left + rise * min(max(way, ZERO), b - a))
    return up(max(found), FINE)
