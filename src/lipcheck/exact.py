"""Exact linear algebra: matrices of integers times a power of two. And the ways a check can end other than "verified".

The one optional dependency is used here: python-flint multiplies integer matrices faster, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from math import isqrt

try:
    import flint
except ImportError:
    flint = None

MOST_ENTRIES = 50_000_000  # of a matrix
FLINT_FROM = 100_000  # multiplications from which converting to flint's matrices pays
BLOCK = 256  # rows of a product that are held at a time
ZERO, ONE = Fraction(0), Fraction(1)

Vector = list[Fraction]


class Failure(Exception):  # noqa: N818
    code = 70


class Rejected(Failure):  # the certificate does not prove its claim
    code = 1


class Malformed(Failure):  # a file is not what the specification says
    code = 2


class Mismatch(Failure):  # the certificate belongs to another network
    code = 3


class LimitExceeded(Failure):  # the check would take more than is allowed
    code = 4


@dataclass(frozen=True)
class Matrix:
    """rows[i][j] * 2^exponent; zeros need not be stored."""

    rows: list[dict[int, int]]
    width: int
    exponent: int = 0

    def __add__(self, other: Matrix) -> Matrix:
        exponent = min(self.exponent, other.exponent)
        rows = [{j: v << (self.exponent - exponent) for j, v in row.items()} for row in self.rows]
        for row, more in zip(rows, other.rows, strict=True):
            for j, v in more.items():
                row[j] = row.get(j, 0) + (v << (other.exponent - exponent))
        return Matrix(rows, self.width, exponent)

    def __neg__(self) -> Matrix:
        return Matrix([{j: -v for j, v in row.items()} for row in self.rows], self.width, self.exponent)

    def __abs__(self) -> Matrix:
        return Matrix([{j: abs(v) for j, v in row.items()} for row in self.rows], self.width, self.exponent)

    def __matmul__(self, other: Matrix) -> Matrix:
        work = sum(len(other.rows[k]) for row in self.rows for k in row)
        if work > MOST_ENTRIES and len(self.rows) * other.width > MOST_ENTRIES:
            raise LimitExceeded(f"a matrix product with {len(self.rows)} x {other.width} entries; {MOST_ENTRIES} are allowed")
        if flint is not None and work > FLINT_FROM and len(self.rows) * self.width * other.width < 20 * work:
            product = flint.fmpz_mat(self.dense()) * flint.fmpz_mat(other.dense())
            rows = [{j: int(v) for j, v in enumerate(row) if v} for row in product.table()]
        else:
            rows = [_combination(row, other.rows) for row in self.rows]
        return Matrix(rows, other.width, self.exponent + other.exponent)

    def transpose(self) -> Matrix:
        rows: list[dict[int, int]] = [{} for _ in range(self.width)]
        for i, row in enumerate(self.rows):
            for j, v in row.items():
                rows[j][i] = v
        return Matrix(rows, len(self.rows), self.exponent)

    def dense(self) -> list[list[int]]:
        return [[row.get(j, 0) for j in range(self.width)] for row in self.rows]

    def scaled(self, factors: Sequence[Fraction]) -> Matrix:
        """Row i times factors[i]."""
        integers, exponent = align(factors)
        rows = [{j: v * f for j, v in row.items()} if f else {} for row, f in zip(self.rows, integers, strict=True)]
        return Matrix(rows, self.width, self.exponent + exponent)

    def times(self, vector: Sequence[Fraction]) -> Vector:
        integers, exponent = align(vector)
        return [sum(v * integers[j] for j, v in row.items()) * power(self.exponent + exponent) for row in self.rows]


def _combination(coefficients: dict[int, int], rows: list[dict[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for k, v in coefficients.items():
        for j, w in rows[k].items():
            total[j] = total.get(j, 0) + v * w
    return total


def power(exponent: int) -> Fraction:
    """2^exponent."""
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def align(values: Sequence[Fraction]) -> tuple[list[int], int]:
    """Integers and one exponent for numbers whose denominators are powers of two."""
    if any(v.denominator & (v.denominator - 1) for v in values):
        raise ArithmeticError("a denominator is not a power of two")
    bits = max((v.denominator.bit_length() - 1 for v in values), default=0)
    return [v.numerator * ((1 << bits) // v.denominator) for v in values], -bits


def diagonal(values: Sequence[Fraction]) -> Matrix:
    integers, exponent = align(values)
    return Matrix([{i: v} for i, v in enumerate(integers)], len(integers), exponent)


def root_up(x: Fraction) -> Fraction:
    """A number >= sqrt(x), by at most 2^-64 relative."""
    shift = 128 + max(0, x.denominator.bit_length() - x.numerator.bit_length())
    return Fraction(isqrt((x.numerator << 2 * shift) // x.denominator) + 1, 1 << shift) if x else x


def decimal(x: Fraction) -> str:
    """Twelve digits, rounded up."""
    return str(Context(prec=12, rounding=ROUND_CEILING).divide(Decimal(x.numerator), Decimal(x.denominator)))


def gram_rows(first: Sequence[int], rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The lower triangle of L L^T, row by row. Row i of L holds rows[i] in columns first[i], ..., i."""
    if flint is None:
        for i, (start, row) in enumerate(zip(first, rows, strict=True)):
            lows = [max(start, first[j]) for j in range(i + 1)]
            yield [sum(map(int.__mul__, row[k - start : j + 1 - start], rows[j][k - first[j] :])) for j, k in enumerate(lows)]
        return
    full = [[0] * start + list(row) + [0] * (len(rows) - len(row) - start) for start, row in zip(first, rows, strict=True)]
    for begin in range(0, len(rows), BLOCK):
        end = min(begin + BLOCK, len(rows))
        left = flint.fmpz_mat([row[:end] for row in full[begin:end]])
        right = flint.fmpz_mat([row[:end] for row in full[:end]]).transpose()
        for i, row in enumerate((left * right).table(), begin):
            yield [int(v) for v in row[: i + 1]]
