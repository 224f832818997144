"""e^x, logarithms, sine and cosine, square roots and the normal distribution, in integers that
count 1 / UNIT.

What each of them rounds off and leaves out is less than 2^-200, relative to the value where that is
large (e^x for x > 0, logarithms of large and small numbers); for the normal distribution beyond 15,
where it is taken to be constant, less than 2^-160; for sine and cosine 2^-200 (1 + abs(x)).
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import floor, isqrt

BITS = 384
UNIT = 1 << BITS
EXP_END = -150 * UNIT  # below it e^x is less than 2^-200, and counts as 0
HALVINGS = 24  # of the argument of e^x, so that its series ends soon; as many squarings follow
NORMAL_FAR = 15 * UNIT  # beyond it the normal distribution and its density are held constant
PI_DIGITS = "3.14159265358979323846264338327950288419716939937510"
PI_MORE_DIGITS = "582097494459230781640628620899862803482534211706798"
PI = Fraction(PI_DIGITS + PI_MORE_DIGITS)

Units = int  # an integer that counts 1 / UNIT
Pair = tuple[Units, Units]  # the value of a function at a point, and its slope


def units(x: Fraction) -> Units:
    """A number, rounded down."""
    numerator, denominator = x.as_integer_ratio()
    return (numerator << BITS) // denominator


def times(x: Units, y: Units) -> Units:
    """The product of two numbers, rounded down."""
    return x * y >> BITS


def ratio(x: Units, y: Units) -> Units:
    """The quotient of two numbers, rounded down."""
    return (x << BITS) // y


def series(term: Units, following: Callable[[Units, int], Units]) -> Units:
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


def exp(x: Units) -> Units:
    """e^x for x <= 0: the series of e^(-x / 2^24), squared 24 times, and inverted."""
    if x < EXP_END:
        return 0
    small = -x >> HALVINGS
    result = series(UNIT, lambda term, n: (term * small >> BITS) // n)
    for _ in range(HALVINGS):
        result = result * result >> BITS
    return ratio(UNIT, result)


@cache
def power_of_e(n: int) -> Units:
    """e^n for a whole number n >= 0: 1 / e^-1, multiplied n times."""
    inverse = exp(-UNIT)
    result = UNIT
    for _ in range(n):
        result = ratio(result, inverse)
    return result


def growth(x: Fraction) -> Fraction:
    """e^x, also for x > 0: e^n for the next whole number n, times e^(x - n)."""
    n = max(-floor(-x), 0)
    return Fraction(power_of_e(n) * exp(units(x - n)), UNIT * UNIT)


def log1p(x: Units) -> Units:
    """log(1 + x) for 0 <= x <= 1: 2 (z + z^3/3 + z^5/5 + ...), z = x / (2 + x)."""
    z = ratio(x, 2 * UNIT + x)
    square = times(z, z)
    return 2 * series(z, lambda term, n: times(term, square) * (2 * n - 1) // (2 * n + 1))


def log(x: Fraction) -> Fraction:
    """log(x) for x > 0: x = 2^k (1 + z), 0 <= z <= 1."""
    k = x.numerator.bit_length() - x.denominator.bit_length()
    scale = Fraction(2) ** k
    if scale > x:
        k -= 1
        scale /= 2
    return Fraction(k * log1p(UNIT) + log1p(units(x / scale - 1)), UNIT)


def sine_and_cosine(x: Units) -> Pair:
    """sin(x) and cos(x): the series at the distance of x from the next multiple of 2 pi."""
    turns = floor(Fraction(x, UNIT) / (2 * PI) + Fraction(1, 2))
    near = x - floor(2 * turns * PI * UNIT)
    square = times(near, near)
    sine = 0
    cosine = 0
    term = UNIT  # near^n / n!, without its sign
    n = 0
    while term:
        sign = -1 if n % 4 >= 2 else 1
        cosine += sign * term
        sine += sign * times(term, near) // (n + 1)
        term = times(term, square) // ((n + 1) * (n + 2))
        n += 2
    return sine, cosine


def root(x: Fraction) -> Units:
    """The square root of x >= 0."""
    return isqrt(floor(x * UNIT * UNIT))


def normal(x: Units) -> Pair:
    """The normal distribution 1/2 + density(x) (x + x^3/3 + x^5/15 + ...), and its density."""
    size = min(abs(x), NORMAL_FAR)
    square = times(size, size)
    density = ratio(exp(-square // 2), ROOT_OF_2_PI)
    total = series(size, lambda term, n: times(term, square) // (2 * n + 1))
    from_middle = times(density, total)
    if x <= 0:
        from_middle = -from_middle
    return UNIT // 2 + from_middle, density


ROOT_OF_2_PI = root(2 * PI)
