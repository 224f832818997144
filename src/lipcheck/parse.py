"""The certificate's text, line by line, checked for form alone (section 2 of spec/certificate.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NoReturn

from .exact import LimitExceeded, Malformed, Matrix, Vector, align, power

MOST_BYTES = 2**30
LARGEST_EXPONENT = 5_000
INTEGERS = re.compile(rb"(0|-?[1-9][0-9]{0,999})( (0|-?[1-9][0-9]{0,999}))*")


class Lines:
    """The lines of a file, taken one by one."""

    def __init__(self, data: bytes) -> None:
        self.lines = data.split(b"\n")
        self.position = 0
        if self.lines.pop() != b"":
            self.fail("the last line has no end")

    def fail(self, reason: str) -> NoReturn:
        raise Malformed(f"certificate, line {max(self.position, 1)}: {reason}")

    def next_is(self, start: str) -> bool:
        return self.position < len(self.lines) and self.lines[self.position].startswith(start.encode())

    def rest(self, keyword: str) -> bytes:
        """What follows the keyword on the next line."""
        if not self.next_is(keyword + " "):
            self.position = min(self.position + 1, len(self.lines))
            self.fail(f"expected '{keyword}'")
        self.position += 1
        return self.lines[self.position - 1][len(keyword) + 1 :]

    def word(self, keyword: str, choices: Sequence[str]) -> str:
        rest = self.rest(keyword)
        for choice in choices:
            if rest == choice.encode():
                return choice
        self.fail(f"'{keyword}' is followed by {' or '.join(choices)}")

    def integers(self, keyword: str, length: int | None = None) -> list[int]:
        rest = self.rest(keyword)
        if not INTEGERS.fullmatch(rest):
            self.fail(f"'{keyword}' is followed by integers")
        values = [int(token) for token in rest.split(b" ")]
        if length is not None and len(values) != length:
            self.fail(f"'{keyword}' is followed by {length} integers, here by {len(values)}")
        return values

    def count(self, keyword: str) -> int:
        (value,) = self.integers(keyword, 1)
        if not 0 <= value <= len(self.lines) - self.position:
            self.fail(f"the count {value} does not fit the rest of the file")
        return value

    def exponents(self, keyword: str, length: int) -> list[int]:
        return [self.limited(value) for value in self.integers(keyword, length)]

    def limited(self, exponent: int) -> int:
        if abs(exponent) > LARGEST_EXPONENT:
            raise LimitExceeded(f"line {self.position}: the exponent {exponent} is larger than {LARGEST_EXPONENT}")
        return exponent

    def numbers(self, keyword: str, length: int) -> Vector:
        """Integers after their common exponent."""
        exponent, *values = self.integers(keyword, length + 1)
        unit = power(self.limited(exponent))
        return [n * unit for n in values]

    def multipliers(self, keyword: str, length: int) -> Vector:
        values = self.numbers(keyword, length)
        if any(value < 0 for value in values):
            self.fail("a multiplier is negative")
        return values

    def indices(self, keyword: str, below: int) -> list[int]:
        """A count and as many ascending indices; * stands for all."""
        if self.next_is(f"{keyword} *"):
            self.word(keyword, ["*"])
            return list(range(below))
        count, *values = self.integers(keyword)
        if len(values) != count:
            self.fail(f"'{keyword}' is * or a count and as many indices")
        return self.ascending(values, below)

    def pairs(self, keyword: str, below: int) -> dict[int, Fraction]:
        """Ascending indices with their values, after an exponent and a count."""
        exponent, *values = self.integers(keyword)
        if not values or len(values) != 1 + 2 * values[0]:
            self.fail(f"'{keyword}' is an exponent, a count and as many pairs")
        unit = power(self.limited(exponent))
        return {i: n * unit for i, n in zip(self.ascending(values[1::2], below), values[2::2], strict=True)}

    def ascending(self, indices: list[int], below: int) -> list[int]:
        if any(a >= b for a, b in zip([-1, *indices], [*indices, below], strict=True)):
            self.fail(f"indices are not ascending from 0 and below {below}")
        return indices


def sparse_rows(rows: Sequence[dict[int, Fraction]], width: int) -> Matrix:
    """A matrix from rows as `pairs` reads them."""
    integers, exponent = align([value for row in rows for value in row.values()])
    values = iter(integers)
    return Matrix([{i: next(values) for i in row} for row in rows], width, exponent)
