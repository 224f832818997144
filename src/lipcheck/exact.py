"""Exact linear algebra on integers times powers of two, and the ways a check can end.

The one optional dependency is used here: python-flint multiplies integer matrices faster, with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from operator import mul

try:
    import flint
except ImportError:
    flint = None

VERDICTS = {"verified": 0, "rejected": 1, "malformed": 2, "network mismatch": 3, "limits exceeded": 4, "internal error": 70}
DENSE_FROM, DENSE_SHARE = 100_000, 4  # from so many products of numbers, one in so many not zero, matrices count as dense
ZERO, ONE, TWO = Fraction(0), Fraction(1), Fraction(2)

Vector = list[Fraction]


class Failure(Exception):  # noqa: N818
    """Two arguments: a verdict other than "verified", and the reason."""


def require(condition: bool, reason: str, verdict: str = "malformed") -> None:
    if not condition:
        raise Failure(verdict, reason)


@dataclass(frozen=True)
class Matrix:
    """rows[i][j] * 2^exponent; zeros need not be stored."""

    rows: list[dict[int, int]]
    width: int
    exponent: int = 0

    @staticmethod
    def of(rows: Sequence[Mapping[int, Fraction]], width: int) -> Matrix:
        integers, exponent = align([value for row in rows for value in row.values()])
        values = iter(integers)
        return Matrix([{j: next(values) for j in row} for row in rows], width, exponent)

    @staticmethod
    def diagonal(values: Sequence[Fraction]) -> Matrix:
        return Matrix.of([{i: value} if value else {} for i, value in enumerate(values)], len(values))

    def __add__(self, other: Matrix) -> Matrix:
        exponent = min(self.exponent, other.exponent)
        rows = [{j: v << (self.exponent - exponent) for j, v in row.items()} for row in self.rows]
        for row, more in zip(rows, other.rows, strict=True):
            for j, v in more.items():
                row[j] = row.get(j, 0) + (v << (other.exponent - exponent))
        return Matrix(rows, self.width, exponent)

    def __sub__(self, other: Matrix) -> Matrix:
        return self + Matrix.diagonal([-ONE] * len(other.rows)) @ other

    def __abs__(self) -> Matrix:
        return Matrix([{j: abs(v) for j, v in row.items()} for row in self.rows], self.width, self.exponent)

    def __matmul__(self, other: Matrix) -> Matrix:
        work, size = sum(len(other.rows[k]) for row in self.rows for k in row), len(self.rows) * other.width
        rows: list[dict[int, int]] = [{} for _ in self.rows]
        if work > DENSE_FROM and size * self.width < DENSE_SHARE * work:
            products = inner_products(self.dense(), other.transpose().dense())
            rows = [{j: v for j, v in enumerate(row) if v} for row in products]
        else:
            for total, row in zip(rows, self.rows, strict=True):
                for k, v in row.items():
                    for j, w in other.rows[k].items():
                        total[j] = total.get(j, 0) + v * w
        return Matrix(rows, other.width, self.exponent + other.exponent)

    def transpose(self) -> Matrix:
        rows: list[dict[int, int]] = [{} for _ in range(self.width)]
        for i, row in enumerate(self.rows):
            for j, v in row.items():
                rows[j][i] = v
        return Matrix(rows, len(self.rows), self.exponent)

    def dense(self) -> list[list[int]]:
        return [[row.get(j, 0) for j in range(self.width)] for row in self.rows]

    def first(self, height: int, width: int) -> Matrix:
        """The first rows and columns."""
        return Matrix([{j: v for j, v in row.items() if j < width} for row in self.rows[:height]], width, self.exponent)

    def by_sign(self, positive: Sequence[Fraction], negative: Sequence[Fraction]) -> Matrix:
        """Entries > 0 of column j times positive[j], the others times negative[j]."""
        integers, exponent = align([*positive, *negative])
        rows = [{j: v * integers[j if v > 0 else j + self.width] for j, v in row.items()} for row in self.rows]
        return Matrix(rows, self.width, self.exponent + exponent)

    def times(self, positive: Sequence[Fraction], negative: Sequence[Fraction] | None = None) -> Vector:
        """Every row times x; times(low, high) is the minimum over low <= x <= high, times(high, low) the maximum."""
        products = self.by_sign(positive, positive if negative is None else negative)
        unit = TWO**products.exponent
        return [sum(row.values()) * unit for row in products.rows]


def inner_products(left: list[list[int]], right: list[list[int]]) -> list[list[int]]:
    """Every row of the one with every row of the other; shorter rows go on with zeros."""
    if flint is None:
        return [[sum(map(mul, a, b)) for b in right] for a in left]
    width = max(map(len, left + right))
    a, b = (flint.fmpz_mat([row + [0] * (width - len(row)) for row in rows]) for rows in (left, right))
    return [[int(v) for v in row] for row in (a * b.transpose()).table()]


def align(values: Sequence[Fraction | float]) -> tuple[list[int], int]:
    """Integers and one exponent for numbers whose denominators are powers of two."""
    ratios = [v.as_integer_ratio() for v in values]
    common = max((d for _, d in ratios), default=1)
    if any(common % d for _, d in ratios) or common & (common - 1):
        raise ArithmeticError("a denominator is not a power of two")
    return [n * (common // d) for n, d in ratios], 1 - common.bit_length()


def decimal(x: Fraction) -> str:
    """Twelve digits, rounded up; a power of two if it is far from 1."""
    n, d = x.as_integer_ratio()
    shift = max(0, min(n.bit_length(), d.bit_length()) - 256)
    n, d = -(-n >> shift), d >> shift
    size = n.bit_length() - d.bit_length() + 1
    if abs(size) > 10_000:
        return f"2^{size}"
    return str(Context(prec=12, rounding=ROUND_CEILING).divide(Decimal(n), Decimal(d)))
