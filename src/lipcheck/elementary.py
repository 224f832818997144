"""e^x, logarithms, sine and cosine, and the normal distribution, in integers that count 1 / UNIT; and
square roots.

What each of them rounds off and leaves out is less than 2^-180, relative to the value where that is
large (e^x for x > 0, logarithms of large and small numbers) and for square roots; for the normal
distribution beyond 15, where it is taken to be constant, less than 2^-160; for sine and cosine
2^-180 (1 + abs(x)).
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import floor, isqrt

from .exact import GRID, GRID_BITS

BITS = GRID_BITS
UNIT = GRID
EXP_FAR = 150 * UNIT  # beyond it e^-x is less than 2^-200
LARGEST_POWER = 1000  # of e
# After the point, the argument of e^x has three digits and a rest, which is less than 2^-33.
DIGIT_BITS = 11
DIGIT_MASK = (1 << DIGIT_BITS) - 1
REST_BITS = BITS - 3 * DIGIT_BITS
REST_MASK = (1 << REST_BITS) - 1
TERMS = 5  # of the series of the rest: those that follow add up to less than 2^-200
LOG_BITS = 8  # of the first digit of a number whose logarithm is taken
ROOT_BITS = 384  # of square roots, of numbers from 2^-400 on
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


def powers_of_e(place: int, count: int) -> list[Units]:
    """e^(n / 2^(11 place)) for n = 0, 1, ..., count - 1."""
    step = UNIT >> DIGIT_BITS * place
    base = series(UNIT, lambda term, n: (term * step >> BITS) // n)
    powers = [UNIT]
    for _ in range(count - 1):
        powers.append(powers[-1] * base >> BITS)
    return powers


def inverses_of_factorials(most: int) -> list[Units]:
    """1 / n! for n = most, ..., 1, 0."""
    found = [UNIT]
    for n in range(1, most + 1):
        found.append(found[-1] // n)
    return found[::-1]


WHOLE_POWERS = powers_of_e(0, LARGEST_POWER + 1)
FIRST_POWERS, SECOND_POWERS, THIRD_POWERS = (powers_of_e(n, 1 << DIGIT_BITS) for n in (1, 2, 3))
COEFFICIENTS = inverses_of_factorials(TERMS)  # of the series of e^x


def rising_exp(x: Units) -> Units:
    """e^x for 0 <= x < 1001: powers of e, for the whole number and three digits of x, times the
    series of what is left."""
    digits = x >> REST_BITS
    rest = x & REST_MASK
    result = 0
    for coefficient in COEFFICIENTS:
        result = coefficient + (result * rest >> BITS)
    result = result * THIRD_POWERS[digits & DIGIT_MASK] >> BITS
    result = result * SECOND_POWERS[digits >> DIGIT_BITS & DIGIT_MASK] >> BITS
    result = result * FIRST_POWERS[digits >> 2 * DIGIT_BITS & DIGIT_MASK] >> BITS
    return result * WHOLE_POWERS[digits >> 3 * DIGIT_BITS] >> BITS


def exp(x: Units) -> Units:
    """e^x for x <= 0; it counts as 0 where it is less than 2^-200."""
    if x < -EXP_FAR:
        return 0
    return ratio(UNIT, rising_exp(-x))


def growth(x: Fraction) -> Fraction:
    """e^x, also for x > 0: e^n for the next whole number n, times e^(x - n)."""
    n = max(-floor(-x), 0)
    return Fraction(WHOLE_POWERS[n] * exp(units(x - n)), UNIT * UNIT)


def near_log(x: Units) -> Units:
    """log(1 + x) for 0 <= x <= 1: 2 (z + z^3/3 + z^5/5 + ...), z = x / (2 + x)."""
    z = ratio(x, 2 * UNIT + x)
    square = times(z, z)
    return 2 * series(z, lambda term, n: times(term, square) * (2 * n - 1) // (2 * n + 1))


@cache
def log_of_digit(digit: int) -> Units:
    """log(1 + digit / 2^8), for digits from 0 to 2^8."""
    return near_log(digit << BITS - LOG_BITS)


def log1p(x: Units) -> Units:
    """log(1 + x) for 0 <= x <= 1: 1 + x is 1 + its first digit, times a number that is nearer to 1."""
    digit = x >> BITS - LOG_BITS
    first = digit << BITS - LOG_BITS
    return log_of_digit(digit) + near_log(ratio(x - first, UNIT + first))


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


def root(x: Fraction) -> Fraction:
    """The square root of x >= 0."""
    return Fraction(isqrt(floor(x * (1 << 2 * ROOT_BITS))), 1 << ROOT_BITS)


def normal(x: Units) -> Pair:
    """The normal distribution 1/2 + density(x) (x + x^3/3 + x^5/15 + ...), and its density."""
    size = min(abs(x), NORMAL_FAR)
    square = times(size, size)
    # The series is long where the density is small: its inverse has all digits.
    inverse = times(rising_exp(square // 2), ROOT_OF_2_PI)
    density = ratio(UNIT, inverse)
    total = series(size, lambda term, n: times(term, square) // (2 * n + 1))
    from_middle = ratio(total, inverse)
    if x <= 0:
        from_middle = -from_middle
    return UNIT // 2 + from_middle, density


ROOT_OF_2_PI = units(root(2 * PI))
