"""Exact linear algebra on integers times powers of two, and the ways a check can end.

The one optional dependency is used here: python-flint multiplies integer matrices faster, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from math import isqrt
from operator import mul

try:
    import flint
except ImportError:
    flint = None

VERDICTS = {"verified": 0, "rejected": 1, "malformed": 2, "network mismatch": 3, "limits exceeded": 4, "internal error": 70}
MOST_ENTRIES = 50_000_000  # of a matrix
FLINT_FROM = 100_000  # multiplications from which converting to flint's matrices pays
BLOCK = 256  # rows of a product that are held at a time
ZERO, ONE = Fraction(0), Fraction(1)

Vector = list[Fraction]


class Failure(Exception):  # noqa: N818
    """A verdict other than "verified", and the reason."""

    def __init__(self, verdict: str, reason: str) -> None:
        super().__init__(reason)
        self.verdict, self.code = verdict, VERDICTS[verdict]


def require(condition: bool, reason: str, verdict: str = "malformed") -> None:
    if not condition:
        raise Failure(verdict, reason)


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
        return self.scaled([-ONE] * len(self.rows))

    def __abs__(self) -> Matrix:
        return Matrix([{j: abs(v) for j, v in row.items()} for row in self.rows], self.width, self.exponent)

    def __matmul__(self, other: Matrix) -> Matrix:
        work, size = sum(len(other.rows[k]) for row in self.rows for k in row), len(self.rows) * other.width
        require(min(work, size) <= MOST_ENTRIES, f"a matrix product with {size} entries", "limits exceeded")
        if flint is not None and work > FLINT_FROM and size * self.width < 20 * work:
            product = flint.fmpz_mat(self.dense()) * flint.fmpz_mat(other.dense())
            rows = [{j: int(v) for j, v in enumerate(row) if v} for row in product.table()]
        else:
            rows = [{} for _ in self.rows]
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

    def scaled(self, factors: Sequence[Fraction]) -> Matrix:
        """Row i times factors[i]."""
        integers, exponent = align(factors)
        rows = [{j: v * f for j, v in row.items()} if f else {} for row, f in zip(self.rows, integers, strict=True)]
        return Matrix(rows, self.width, self.exponent + exponent)

    def by_sign(self, positive: Sequence[Fraction], negative: Sequence[Fraction]) -> Matrix:
        """Entries > 0 of column j times positive[j], the others times negative[j]."""
        integers, exponent = align([*positive, *negative])
        rows = [{j: v * integers[j if v > 0 else j + self.width] for j, v in row.items()} for row in self.rows]
        return Matrix(rows, self.width, self.exponent + exponent)

    def times(self, positive: Sequence[Fraction], negative: Sequence[Fraction] | None = None) -> Vector:
        """Every row times x; times(low, high) is the minimum over low <= x <= high, times(high, low) the maximum."""
        products = self.by_sign(positive, positive if negative is None else negative)
        return [sum(row.values()) * power(products.exponent) for row in products.rows]


def stack(top: Matrix, bottom: Matrix) -> Matrix:
    above = Matrix(top.rows + [{}] * len(bottom.rows), top.width, top.exponent)
    return above + Matrix([{}] * len(top.rows) + bottom.rows, top.width, bottom.exponent)


def diagonal(values: Sequence[Fraction]) -> Matrix:
    return Matrix([{i: 1} for i in range(len(values))], len(values)).scaled(values)


def power(exponent: int) -> Fraction:
    """2^exponent."""
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def align(values: Sequence[Fraction]) -> tuple[list[int], int]:
    """Integers and one exponent for numbers whose denominators are powers of two."""
    if any(v.denominator & (v.denominator - 1) for v in values):
        raise ArithmeticError("a denominator is not a power of two")
    bits = max((v.denominator.bit_length() - 1 for v in values), default=0)
    return [v.numerator * ((1 << bits) // v.denominator) for v in values], -bits


def root_up(x: Fraction) -> Fraction:
    """A number >= sqrt(x), by at most 2^-64 relative."""
    shift = 128 + max(0, x.denominator.bit_length() - x.numerator.bit_length())
    return Fraction(isqrt((x.numerator << 2 * shift) // x.denominator) + 1, 1 << shift) if x else x


def decimal(x: Fraction) -> str:
    """Twelve digits, rounded up."""
    return str(Context(prec=12, rounding=ROUND_CEILING).divide(Decimal(x.numerator), Decimal(x.denominator)))


def gram_rows(rows: Sequence[list[int]]) -> Iterator[list[int]]:
    """The lower triangle of L L^T, row by row. Row i of L has i + 1 entries."""
    if flint is None:
        for i, row in enumerate(rows):
            yield [sum(map(mul, row, other)) for other in rows[: i + 1]]
        return
    full = [row + [0] * (len(rows) - len(row)) for row in rows]
    for begin in range(0, len(rows), BLOCK):
        product = flint.fmpz_mat(full[begin : begin + BLOCK]) * flint.fmpz_mat(full[: begin + BLOCK]).transpose()
        for i, row in enumerate(product.table(), begin):
            yield [int(v) for v in row[: i + 1]]
