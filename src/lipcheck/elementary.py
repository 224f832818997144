"""e^x, log(1 + x), square roots and the normal distribution, in integers that count 1 / UNIT.

What each of them rounds off and leaves out is less than 2^-300; for the normal distribution
beyond 15, where it is taken to be constant, less than 2^-160.
"""

from collections.abc import Callable
from fractions import Fraction
from math import floor, isqrt

from .exact import ZERO

UNIT = 1 << 512
EXP_END = Fraction(-300)  # below it e^x is less than 2^-300, and counts as 0
HALVINGS = 24  # of the argument of e^x, so that its series ends soon; as many squarings follow
NORMAL_FAR = Fraction(15)  # beyond it the normal distribution and its density are held constant
PI_DIGITS = "3.14159265358979323846264338327950288419716939937510"
PI_MORE_DIGITS = "582097494459230781640628620899862803482534211706798"
PI = Fraction(PI_DIGITS + PI_MORE_DIGITS)

Pair = tuple[Fraction, Fraction]  # the value of a function at a point, and its slope


def series(term: int, following: Callable[[int, int], int]) -> int:
    """The sum of `term` and those that follow it, each from the one before and its number.

    The terms fall, in the end to less than half of the one before: what is left out, once they
    are below 1, adds up to less than 1.
    """
    total = 0
    number = 0
    while term:
        total += term
        number += 1
        term = following(term, number)
    return total


def exp(x: Fraction) -> Fraction:
    """e^x for x <= 0: the series of e^(-x / 2^24), squared 24 times, and inverted."""
    if x < EXP_END:
        return ZERO
    small = floor(-x * UNIT) >> HALVINGS
    result = series(UNIT, lambda term, n: term * small // (n * UNIT))
    for _ in range(HALVINGS):
        result = result * result // UNIT
    return Fraction(UNIT * UNIT // result, UNIT)


def log1p(x: Fraction) -> Fraction:
    """log(1 + x) for 0 <= x <= 1: 2 (z + z^3/3 + z^5/5 + ...), z = x / (2 + x)."""
    z = floor(x / (2 + x) * UNIT)
    square = z * z // UNIT
    total = series(z, lambda term, n: term * square * (2 * n - 1) // ((2 * n + 1) * UNIT))
    return Fraction(2 * total, UNIT)


def root(x: Fraction) -> Fraction:
    """The square root of x >= 0."""
    return Fraction(isqrt(floor(x * UNIT * UNIT)), UNIT)


def normal(x: Fraction) -> Pair:
    """The normal distribution 1/2 + density(x) (x + x^3/3 + x^5/15 + ...), and its density."""
    size = min(abs(x), NORMAL_FAR)
    square = floor(size * size * UNIT)
    density = exp(-size * size / 2) / root(2 * PI)
    total = series(floor(size * UNIT), lambda term, n: term * square // ((2 * n + 1) * UNIT))
    from_middle = density * Fraction(total, UNIT)
    if x <= 0:
        from_middle = -from_middle
    return Fraction(1, 2) + from_middle, density
