"""Exact linear algebra: matrices of integers times a power of two.

The one optional dependency is used here: python-flint multiplies integer matrices faster, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from math import isqrt

from .failures import LimitExceeded

try:
    import flint
except ImportError:
    flint = None  # type: ignore[assignment]

MOST_ENTRIES = 50_000_000  # of a matrix
FLINT_FROM = 100_000  # multiplications from which converting to flint's matrices pays
BLOCK = 256  # rows of a product that are held at a time


@dataclass(frozen=True)
class Matrix:
    """rows[i][j] * 2^exponent; zeros need not be stored."""

    rows: list[dict[int, int]]
    width: int
    exponent: int

    def __add__(self, other: Matrix) -> Matrix:
        exponent = min(self.exponent, other.exponent)
        first, second = self.exponent - exponent, other.exponent - exponent
        rows = []
        for a, b in zip(self.rows, other.rows, strict=True):
            row = {j: v << first for j, v in a.items()}
            for j, v in b.items():
                row[j] = row.get(j, 0) + (v << second)
            rows.append(row)
        return Matrix(rows, self.width, exponent)

    def __abs__(self) -> Matrix:
        return Matrix([{j: abs(v) for j, v in row.items()} for row in self.rows], self.width, self.exponent)

    def transpose(self) -> Matrix:
        rows: list[dict[int, int]] = [{} for _ in range(self.width)]
        for i, row in enumerate(self.rows):
            for j, v in row.items():
                rows[j][i] = v
        return Matrix(rows, len(self.rows), self.exponent)

    def scaled(self, factors: Sequence[Fraction]) -> Matrix:
        """Row i times factors[i]."""
        integers, exponent = align(factors)
        rows = [{j: v * f for j, v in row.items()} if f else {} for row, f in zip(self.rows, integers, strict=True)]
        return Matrix(rows, self.width, self.exponent + exponent)

    def times(self, vector: Sequence[Fraction]) -> list[Fraction]:
        integers, exponent = align(vector)
        unit = power(self.exponent + exponent)
        return [sum(v * integers[j] for j, v in row.items()) * unit for row in self.rows]


def power(exponent: int) -> Fraction:
    """2^exponent."""
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def align(values: Sequence[Fraction]) -> tuple[list[int], int]:
    """Integers and one exponent for numbers whose denominators are powers of two."""
    exponent = -max((v.denominator.bit_length() - 1 for v in values), default=0)
    unit = 1 << -exponent
    return [v.numerator * (unit // v.denominator) for v in values], exponent


def diagonal(values: Sequence[Fraction]) -> Matrix:
    integers, exponent = align(values)
    return Matrix([{i: v} for i, v in enumerate(integers)], len(integers), exponent)


def root_up(x: Fraction) -> Fraction:
    """A number >= sqrt(x), by at most 2^-64 relative."""
    if x == 0:
        return x
    shift = 128 + max(0, x.denominator.bit_length() - x.numerator.bit_length())
    return Fraction(isqrt((x.numerator << 2 * shift) // x.denominator) + 1, 1 << shift)


def decimal(x: Fraction) -> str:
    """Twelve digits, rounded up."""
    return str(Context(prec=12, rounding=ROUND_CEILING).divide(Decimal(x.numerator), Decimal(x.denominator)))


def multiply(a: Matrix, b: Matrix) -> Matrix:
    work = sum(len(b.rows[k]) for row in a.rows for k in row)
    dense = len(a.rows) * a.width * b.width
    if len(a.rows) * b.width > MOST_ENTRIES and work > MOST_ENTRIES:
        raise LimitExceeded(f"a matrix product of {len(a.rows)} x {b.width} entries; the limit is {MOST_ENTRIES}")
    if flint is not None and work > FLINT_FROM and dense < 20 * work:
        product = flint.fmpz_mat(_dense(a)) * flint.fmpz_mat(_dense(b))
        rows = [{j: int(v) for j, v in enumerate(row) if v} for row in product.table()]
    else:
        rows = [_combination(row, b.rows) for row in a.rows]
    return Matrix(rows, b.width, a.exponent + b.exponent)


def _dense(matrix: Matrix) -> list[list[int]]:
    return [[row.get(j, 0) for j in range(matrix.width)] for row in matrix.rows]


def _combination(coefficients: dict[int, int], rows: list[dict[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for k, v in coefficients.items():
        for j, w in rows[k].items():
            total[j] = total.get(j, 0) + v * w
    return total


def gram_rows(first: Sequence[int], rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The lower triangle of L L^T, row by row. Row i of L holds rows[i] in columns first[i], ..., i."""
    if flint is None:
        for i, (start, row) in enumerate(zip(first, rows, strict=True)):
            products = []
            for j in range(i + 1):
                low = max(start, first[j])
                products.append(sum(map(int.__mul__, row[low - start : j + 1 - start], rows[j][low - first[j] :])))
            yield products
        return
    order = len(rows)
    full = [[0] * start + list(row) + [0] * (order - 1 - i) for i, (start, row) in enumerate(zip(first, rows, strict=True))]
    for begin in range(0, order, BLOCK):
        end = min(begin + BLOCK, order)
        left = flint.fmpz_mat([row[:end] for row in full[begin:end]])
        right = flint.fmpz_mat([row[:end] for row in full[:end]]).transpose()
        for i, row in enumerate((left * right).table(), begin):
            yield [int(v) for v in row[: i + 1]]
