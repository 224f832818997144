"""e^x, logarithms, sine and cosine, square roots and the normal distribution, in integers that
count 1 / UNIT.

What each of them rounds off and leaves out is less than 2^-300, relative to the value where that is
large (e^x for x > 0, logarithms of large and small numbers); for the normal distribution beyond 15,
where it is taken to be constant, less than 2^-160; for sine and cosine 2^-300 (1 + abs(x)).
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
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


@cache
def power_of_e(n: int) -> Fraction:
    """e^n for a whole number n >= 0: 1 / e^-1, multiplied n times."""
    inverse = floor(exp(Fraction(-1)) * UNIT)
    result = UNIT
    for _ in range(n):
        result = result * UNIT // inverse
    return Fraction(result, UNIT)


def growth(x: Fraction) -> Fraction:
    """e^x, also for x > 0: e^n for the next whole number n, times e^(x - n)."""
    if x <= 0:
        return exp(x)
    n = -floor(-x)
    return power_of_e(n) * exp(x - n)


def log1p(x: Fraction) -> Fraction:
    """log(1 + x) for 0 <= x <= 1: 2 (z + z^3/3 + z^5/5 + ...), z = x / (2 + x)."""
    z = floor(x / (2 + x) * UNIT)
    square = z * z // UNIT
    total = series(z, lambda term, n: term * square * (2 * n - 1) // ((2 * n + 1) * UNIT))
    return Fraction(2 * total, UNIT)


def log(x: Fraction) -> Fraction:
    """log(x) for x > 0: x = 2^k (1 + z), 0 <= z <= 1."""
    k = x.numerator.bit_length() - x.denominator.bit_length()
    scale = Fraction(2) ** k
    if scale > x:
        k -= 1
        scale /= 2
    return k * log1p(Fraction(1)) + log1p(x / scale - 1)


def sine_and_cosine(x: Fraction) -> Pair:
    """sin(x) and cos(x): the series at the distance of x from the next multiple of 2 pi."""
    turns = floor(x / (2 * PI) + Fraction(1, 2))
    near = floor((x - 2 * turns * PI) * UNIT)
    square = near * near // UNIT
    sine = 0
    cosine = 0
    term = UNIT  # near^n / n!, without its sign
    n = 0
    while term:
        sign = -1 if n % 4 >= 2 else 1
        cosine += sign * term
        sine += sign * term * near // ((n + 1) * UNIT)
        term = term * square // ((n + 1) * (n + 2) * UNIT)
        n += 2
    return Fraction(sine, UNIT), Fraction(cosine, UNIT)


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
