"""Real numbers between two integers, in units of 2^-BITS: arithmetic that rounds outward, and series with what they leave out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, isqrt

BITS = 384
UNIT = 1 << BITS
HALVINGS = 24  # of the argument of e^x


@dataclass(slots=True)
class Enclosure:
    low: int
    high: int

    @staticmethod
    def of(x: Fraction | int) -> Enclosure:
        return Enclosure(floor(x * UNIT), ceil(x * UNIT))

    def __neg__(self) -> Enclosure:
        return Enclosure(-self.high, -self.low)

    def __add__(self, other: Enclosure) -> Enclosure:
        return Enclosure(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Enclosure) -> Enclosure:
        return Enclosure(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Enclosure) -> Enclosure:
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Enclosure(min(ends) >> BITS, -(-max(ends) >> BITS))

    def __truediv__(self, other: Enclosure) -> Enclosure:
        """By a number > 0."""
        low, high = (other.high if self.low > 0 else other.low), (other.low if self.high > 0 else other.high)
        return Enclosure((self.low << BITS) // low, -((-self.high << BITS) // high))

    def times(self, n: int, d: int = 1) -> Enclosure:
        """By n / d > 0."""
        return Enclosure(self.low * n // d, -(-self.high * n // d))

    def clipped(self, low: int, high: int) -> Enclosure:
        return Enclosure(*(min(max(end, low * UNIT), high * UNIT) for end in (self.low, self.high)))


def series(term: Enclosure, ratio: Callable[[int], Enclosure]) -> Enclosure:
    """term + term ratio(1) + term ratio(1) ratio(2) + ...; once a ratio is at most 1/2 in absolute value, so are all later ones."""
    total, n, next_ratio = term, 1, ratio(1)
    while max(-term.low, term.high) > 1 or max(-next_ratio.low, next_ratio.high) > UNIT // 2:
        term, n = term * next_ratio, n + 1
        total, next_ratio = total + term, ratio(n)
    return Enclosure(total.low - 1, total.high + 1)  # what is left out is at most the last term


def exp(x: Enclosure) -> Enclosure:
    """For x <= 0: e^(x / 2^HALVINGS), squared as often."""
    if x.high < -BITS * UNIT:
        return Enclosure(0, 1)
    result = series(Enclosure(UNIT, UNIT), lambda n: x.times(1, n << HALVINGS))
    for _ in range(HALVINGS):
        result *= result
    return result


def log1p(x: Enclosure) -> Enclosure:
    """log(1 + x) = 2 artanh(x / (2 + x)), for 0 <= x <= 1."""
    z = x / (x + Enclosure.of(2))
    square = z * z
    return series(z, lambda n: square.times(2 * n - 1, 2 * n + 1)).times(2)


def arctan(x: Fraction) -> Enclosure:
    square = Enclosure.of(-x * x)
    return series(Enclosure.of(x), lambda n: square.times(2 * n - 1, 2 * n + 1))


def root(x: Enclosure) -> Enclosure:
    return Enclosure(isqrt(x.low << BITS), isqrt(x.high << BITS) + 1)


PI = arctan(Fraction(1, 5)).times(16) - arctan(Fraction(1, 239)).times(4)
