"""Rows of intervals, whose ends are integers that count 1 / GRID and are rounded outward."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from .exact import GRID_BITS, Matrix
from .formulas import Range
from .products import block

SHORT_BITS = 60  # of numbers that are multiplied by matrices

Row = list[int]


class Ends(NamedTuple):
    """Intervals, by their lower and their upper ends."""

    lower: Row
    upper: Row

    @staticmethod
    def of(ranges: Sequence[Range]) -> Ends:
        return Ends([low for low, _ in ranges], [high for _, high in ranges])

    @staticmethod
    def joined(parts: Sequence[Ends]) -> Ends:
        """All intervals of all parts."""
        joined = Ends([], [])
        for lower, upper in parts:
            joined.lower.extend(lower)
            joined.upper.extend(upper)
        return joined

    def plus(self, other: Ends) -> Ends:
        return Ends(sums(self.lower, other.lower), sums(self.upper, other.upper))

    def times(self, other: Ends) -> Ends:
        """Any number in an interval times any number in the other one's."""
        lower = []
        upper = []
        for low, high, least, most in zip(*self, *other, strict=True):
            if least >= 0:
                down = low * (least if low >= 0 else most)
                up = high * (most if high >= 0 else least)
            else:
                corners = (low * least, low * most, high * least, high * most)
                down = min(corners)
                up = max(corners)
            lower.append(down >> GRID_BITS)
            upper.append(-(-up >> GRID_BITS))
        return Ends(lower, upper)

    def largest(self) -> Row:
        """The largest absolute values."""
        return [max(-low, high) for low, high in zip(*self, strict=True)]

    def middles(self) -> Row:
        """Times two, so that they are whole numbers."""
        return sums(self.lower, self.upper)

    def radii(self) -> Row:
        """Times two as well."""
        return [high - low for low, high in zip(*self, strict=True)]


def sums(left: Row, right: Row) -> Row:
    return [a + b for a, b in zip(left, right, strict=True)]


class ShortRow(NamedTuple):
    """Middles and radii of intervals, times two, in short numbers: they count 2^(shift + drop)."""

    shift: int
    middles: Row
    radii: Row


class Weights:
    """A matrix, exactly, for products with rows of intervals.

    Middles and radii are rounded to short numbers, which are multiplied faster; radii are enlarged by
    what that changes."""

    def __init__(self, matrix: Matrix) -> None:
        # Numbers are rounded in proportion to what they are multiplied with, and to what results.
        lengths = lengths_of_rows(matrix)
        self.drops = [max(lengths) - length for length in lengths]
        entries = []
        for row, drop in zip(matrix.rows, self.drops, strict=True):
            entries.append([row.get(j, 0) << drop for j in range(matrix.width)])
        self.signed = block(entries)
        self.sizes = block([list(map(abs, own)) for own in entries])
        self.lengths = [max(map(abs, column)).bit_length() for column in zip(*entries, strict=True)]
        self.exponents = [matrix.exponent - 1 + length for length in self.lengths]

    def after(self, rows: Sequence[Ends]) -> list[Ends]:
        """Rows times the matrix, for all numbers in their intervals."""
        short = [self._short(row) for row in rows]
        by_middles = (block([row.middles for row in short]) * self.signed).table()
        by_radii = (block([row.radii for row in short]) * self.sizes).table()
        found = []
        for (shift, _, _), middle, radius in zip(short, by_middles, by_radii, strict=True):
            lower = []
            upper = []
            columns = zip(middle, radius, self.lengths, self.exponents, strict=True)
            for m, r, length, exponent in columns:
                # Shortened first: so long as numbers are short, they are those of the block.
                right = length - min(exponent + shift, 0)
                left = max(exponent + shift, 0)
                lower.append(int((m - r) >> right) << left)
                upper.append((int((m + r) >> right) + 1) << left)
            found.append(Ends(lower, upper))
        return found

    def _short(self, row: Ends) -> ShortRow:
        """Middles, rounded, and radii with room for that."""
        ends = list(zip(*row, self.drops, strict=True))
        middle = [(low + high) >> drop for low, high, drop in ends]
        radius = [(high - low) >> drop for low, high, drop in ends]
        longest = max(max(middle), -min(middle), max(radius))
        shift = max(longest.bit_length() - SHORT_BITS, 0)
        middles = [value >> shift for value in middle]
        return ShortRow(shift, middles, [(value >> shift) + 2 for value in radius])


def lengths_of_rows(matrix: Matrix) -> list[int]:
    """The number of bits of the longest integer in every row."""
    return [max(map(abs, row.values()), default=0).bit_length() for row in matrix.rows]


def largest_products(left: Sequence[Ends], right: Sequence[Ends]) -> list[Row]:
    """For rows of the left and of the right, the sum of the products of their entries: the largest
    absolute values.

    For factors with middles m, m' and radii r, r', the radius of the product is |m| r' + r (|m'| + r').
    """
    middles = [row.middles() for row in left]
    sizes = [list(map(abs, row)) for row in middles]
    radii = [row.radii() for row in left]
    # |m'| + r' is the largest absolute value; it is not times two.
    others = [(row.middles(), row.radii(), row.largest()) for row in right]
    found = []
    for own in zip(middles, sizes, radii, strict=True):
        totals = []
        for other in others:
            middle, first, second = map(dot, own, other)
            totals.append(rounded_up(abs(middle) + first + 2 * second, GRID_BITS + 2))
        found.append(totals)
    return found


def dot(left: Row, right: Row) -> int:
    return sum(map(mul, left, right))


def rounded_up(value: int, bits: int) -> int:
    """A number divided by 2^bits."""
    return -(-value >> bits)
