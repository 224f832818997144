"""Exact numbers and matrices: integers times powers of two.

What rounds says so: `round_down` and `round_up`, and `decimal`, which is for people to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from math import floor, isqrt

from .products import product

ZERO = Fraction(0)
ONE = Fraction(1)
TWO = Fraction(2)

GRID_BITS = 200
GRID = 1 << GRID_BITS  # values of nodes are rounded outward to multiples of 1 / GRID, to stay short
COEFFICIENT_BITS = 96  # of coefficients that are rounded, which is taken into account
ROOT_BITS = 128  # square roots are rounded up, by at most 2^-ROOT_BITS relative

PRINTED_DIGITS = 12  # of a decimal number
PRINTED_BITS = 256  # of a numerator and a denominator before they are divided in decimals
LARGEST_PRINTED_EXPONENT = 10_000  # of two; numbers beyond are printed as a power of two

Vector = list[Fraction]


@dataclass(frozen=True)
class Matrix:
    """The entry in row i and column j is rows[i][j] * 2^exponent, or 0 if it is not stored."""

    rows: list[dict[int, int]]
    width: int
    exponent: int = 0

    @staticmethod
    def of(rows: Sequence[Mapping[int, Fraction]], width: int) -> Matrix:
        """The matrix with these entries, whose denominators are powers of two."""
        entries: Vector = []
        for row in rows:
            entries.extend(row.values())
        integers, exponent = align(entries)
        remaining = iter(integers)
        aligned = []
        for row in rows:
            aligned.append({j: next(remaining) for j in row})
        return Matrix(aligned, width, exponent)

    @staticmethod
    def zero(height: int, width: int) -> Matrix:
        return Matrix([{} for _ in range(height)], width)

    @staticmethod
    def stack(matrices: Sequence[Matrix], width: int) -> Matrix:
        """The rows of matrices of this width, one after the other; the exponent is not positive."""
        exponent = min([0, *(matrix.exponent for matrix in matrices)])
        rows = []
        for matrix in matrices:
            shift = matrix.exponent - exponent
            for row in matrix.rows:
                rows.append(shifted(row, shift))
        return Matrix(rows, width, exponent)

    @staticmethod
    def diagonal(values: Sequence[Fraction]) -> Matrix:
        """The square matrix with these values on its diagonal. Zeros are not stored."""
        rows: list[dict[int, Fraction]] = [{} for _ in values]
        for i, value in enumerate(values):
            if value:
                rows[i][i] = value
        return Matrix.of(rows, len(values))

    def __add__(self, other: Matrix) -> Matrix:
        if not any(self.rows):
            return other
        if not any(other.rows):
            return self
        exponent = min(self.exponent, other.exponent)
        shift = self.exponent - exponent
        other_shift = other.exponent - exponent
        rows = []
        for row, other_row in zip(self.rows, other.rows, strict=True):
            total = shifted(row, shift)
            more = shifted(other_row, other_shift)
            if not total or not more:
                rows.append(total or more)
                continue
            total = dict(total)
            for j, value in more.items():
                total[j] = total.get(j, 0) + value
            rows.append(total)
        return Matrix(rows, self.width, exponent)

    def __neg__(self) -> Matrix:
        rows = []
        for row in self.rows:
            rows.append({j: -value for j, value in row.items()})
        return Matrix(rows, self.width, self.exponent)

    def __sub__(self, other: Matrix) -> Matrix:
        return self + -other

    def __abs__(self) -> Matrix:
        """The absolute values of the entries."""
        rows = []
        for row in self.rows:
            rows.append({j: abs(value) for j, value in row.items()})
        return Matrix(rows, self.width, self.exponent)

    def half(self) -> Matrix:
        return Matrix(self.rows, self.width, self.exponent - 1)

    def __matmul__(self, other: Matrix) -> Matrix:
        rows = product(self.rows, other.rows)
        return Matrix(rows, other.width, self.exponent + other.exponent)

    def transpose(self) -> Matrix:
        rows: list[dict[int, int]] = [{} for _ in range(self.width)]
        for i, row in enumerate(self.rows):
            for j, value in row.items():
                rows[j][i] = value
        return Matrix(rows, len(self.rows), self.exponent)

    def take(self, columns: Sequence[int]) -> tuple[Matrix, Matrix]:
        """A matrix of these columns, in this order; and this matrix with zeros in their place."""
        taken = []
        left = []
        for row in self.rows:
            rest = dict(row)
            chosen = {}
            for number, j in enumerate(columns):
                value = rest.pop(j, 0)
                if value:
                    chosen[number] = value
            taken.append(chosen)
            left.append(rest)
        return (
            Matrix(taken, len(columns), self.exponent),
            Matrix(left, self.width, self.exponent),
        )

    def chosen_rows(self, numbers: Sequence[int]) -> Matrix:
        return Matrix([self.rows[number] for number in numbers], self.width, self.exponent)

    def reduced(self) -> Matrix:
        """The same matrix, with integers that are as small as can be, and without zeros."""
        bits = 0
        for row in self.rows:
            for value in row.values():
                bits |= value
        shift = max((bits & -bits).bit_length() - 1, 0)
        rows = []
        for row in self.rows:
            rows.append({j: value >> shift for j, value in row.items() if value})
        return Matrix(rows, self.width, self.exponent + shift)

    def first(self, height: int, width: int) -> Matrix:
        """The first rows and columns."""
        rows = []
        for row in self.rows[:height]:
            rows.append({j: value for j, value in row.items() if j < width})
        return Matrix(rows, width, self.exponent)

    def scaled_by_sign(self, positive: Sequence[Fraction], negative: Sequence[Fraction]) -> Matrix:
        """Entries > 0 of column j times positive[j], the others times negative[j]."""
        integers, exponent = align([*positive, *negative])
        for_positive = integers[: self.width]
        for_negative = integers[self.width :]
        rows = []
        for row in self.rows:
            scaled = {}
            for j, value in row.items():
                if value > 0:
                    scaled[j] = value * for_positive[j]
                else:
                    scaled[j] = value * for_negative[j]
            rows.append(scaled)
        return Matrix(rows, self.width, self.exponent + exponent)

    def scaled_rows(self, values: Sequence[Fraction]) -> Matrix:
        """Every row times its value."""
        factors, exponent = align(values)
        rows = []
        for row, factor in zip(self.rows, factors, strict=True):
            rows.append({j: factor * value for j, value in row.items()} if factor else {})
        return Matrix(rows, self.width, self.exponent + exponent)

    def shortened(self) -> tuple[Matrix, Fraction]:
        """Entries of at most COEFFICIENT_BITS bits, times powers of two, rounded down; and by how
        much at most, relative to each entry."""
        longest = 0
        for row in self.rows:
            longest = max(longest, max(map(int.bit_length, row.values()), default=0))
        if longest <= COEFFICIENT_BITS:
            return self, ZERO
        rows = []
        for row in self.rows:
            short = {}
            for j, value in row.items():
                excess = max(value.bit_length() - COEFFICIENT_BITS, 0)
                short[j] = value >> excess << excess
            rows.append(short)
        return Matrix(rows, self.width, self.exponent).reduced(), TWO ** (1 - COEFFICIENT_BITS)

    def positive(self) -> Matrix:
        """The entries that are > 0; the others are 0."""
        rows = []
        for row in self.rows:
            rows.append({j: value for j, value in row.items() if value > 0})
        return Matrix(rows, self.width, self.exponent)

    def row_sums(self) -> Vector:
        unit = TWO**self.exponent
        return [sum(row.values()) * unit for row in self.rows]

    def largest(self) -> Fraction:
        """The largest entry; 0 if none is positive."""
        largest = max((max(row.values(), default=0) for row in self.rows), default=0)
        return max(largest, 0) * TWO**self.exponent

    def times(self, x: Sequence[Fraction]) -> Vector:
        """The matrix times a vector."""
        return self.minimum(x, x)

    def minimum(self, lower: Sequence[Fraction], upper: Sequence[Fraction]) -> Vector:
        """The least value of every row times x, over lower <= x <= upper."""
        integers, exponent = align([*lower, *upper])
        low = integers[: self.width]
        high = integers[self.width :]
        unit = TWO ** (self.exponent + exponent)
        least = []
        for row in self.rows:
            terms = [value * (low[j] if value > 0 else high[j]) for j, value in row.items()]
            least.append(sum(terms) * unit)
        return least


def shifted(row: dict[int, int], shift: int) -> dict[int, int]:
    """A row whose integers are those of this one times 2^shift; if that is 1, it is this one."""
    if shift == 0:
        return row
    return {j: value << shift for j, value in row.items()}


def align(values: Sequence[Fraction | float]) -> tuple[list[int], int]:
    """Integers and one exponent, for numbers whose denominators are powers of two.

    A float is such a number, exactly; infinity and NaN are not, and raise an error.
    """
    ratios = [value.as_integer_ratio() for value in values]
    common = max((denominator for _, denominator in ratios), default=1)
    if common & (common - 1) or any(common % denominator for _, denominator in ratios):
        raise ArithmeticError("a denominator is not a power of two")
    integers = [numerator * (common // denominator) for numerator, denominator in ratios]
    return integers, 1 - common.bit_length()


def round_down(x: Fraction, grid: int = GRID) -> Fraction:
    """To a multiple of 1 / grid."""
    return Fraction(floor(x * grid), grid)


def round_up(x: Fraction, grid: int = GRID) -> Fraction:
    """To a multiple of 1 / grid."""
    return Fraction(-floor(-x * grid), grid)


def shortened_down(x: Fraction, bits: int) -> Fraction:
    """A number that is not larger, and an integer of so many bits times a power of two."""
    numerator, denominator = x.as_integer_ratio()
    shift = bits - numerator.bit_length() + denominator.bit_length()
    unit = TWO**shift
    return floor(x * unit) / unit


def on_grid(low: Fraction, high: Fraction) -> tuple[int, int]:
    """Two numbers in multiples of 1 / GRID, the first rounded down and the second up."""
    down = low.numerator * GRID // low.denominator
    return down, -(-high.numerator * GRID // high.denominator)


def sum_of_squares(matrix: Matrix) -> Fraction:
    """The square of the Frobenius norm."""
    total = 0
    for row in matrix.rows:
        total += sum(value * value for value in row.values())
    return total * TWO ** (2 * matrix.exponent)


def root_rounded_up(x: Fraction) -> Fraction:
    """A number >= sqrt(x), for x >= 0; sqrt(x) itself if that is rational."""
    numerator, denominator = x.as_integer_ratio()
    if numerator == 0:
        return ZERO
    # sqrt(n / d) = sqrt(n d 4^128) / (d 2^128), and isqrt(k - 1) + 1 is the root of k rounded up.
    square = numerator * denominator << 2 * ROOT_BITS
    return Fraction(isqrt(square - 1) + 1, denominator << ROOT_BITS)


def decimal(x: Fraction) -> str:
    """Twelve digits, rounded up, for people to read; a power of two if it is far from 1."""
    numerator, denominator = x.as_integer_ratio()
    # Long numbers are cut first, since their decimals take long: the numerator is rounded up.
    shift = max(0, min(numerator.bit_length(), denominator.bit_length()) - PRINTED_BITS)
    numerator = -(-numerator >> shift)
    denominator = denominator >> shift
    exponent = numerator.bit_length() - denominator.bit_length() + 1
    if abs(exponent) > LARGEST_PRINTED_EXPONENT:
        # |x| lies between 2^(exponent - 2) and 2^exponent.
        return f"2^{exponent}" if x > 0 else f"-2^{exponent - 2}"
    context = Context(prec=PRINTED_DIGITS, rounding=ROUND_CEILING)
    return str(context.divide(Decimal(numerator), Decimal(denominator)))


def decimal_down(x: Fraction) -> str:
    """The same, rounded down."""
    if x <= 0:
        return f"-{decimal(-x)}" if x else "0"
    return decimal(-x).removeprefix("-")
