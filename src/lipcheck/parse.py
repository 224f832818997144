"""The certificate's text, line by line, checked for form alone (section 2 of spec/certificate.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from .exact import Matrix, Vector, align, power, require

LARGEST_EXPONENT = 5_000
INTEGERS = re.compile(rb"(0|-?[1-9][0-9]{0,999})( (0|-?[1-9][0-9]{0,999}))*")


class Lines:
    """The lines of a file, taken one by one."""

    def __init__(self, data: bytes) -> None:
        self.lines = data.split(b"\n")
        self.position = 0
        self.require(self.lines.pop() == b"", "the last line has no end")

    def require(self, condition: bool, reason: str, verdict: str = "malformed") -> None:
        require(condition, f"certificate, line {max(self.position, 1)}: {reason}", verdict)

    def next_is(self, start: str) -> bool:
        return self.position < len(self.lines) and self.lines[self.position].startswith(start.encode())

    def rest(self, keyword: str) -> bytes:
        """What follows the keyword on the next line."""
        found = self.next_is(keyword + " ")
        self.position += 1
        self.require(found, f"expected '{keyword}'")
        return self.lines[self.position - 1][len(keyword) + 1 :]

    def word(self, keyword: str, choices: Sequence[str]) -> str:
        rest = self.rest(keyword).decode("latin-1")
        self.require(rest in choices, f"'{keyword}' is followed by {' or '.join(choices)}")
        return rest

    def integers(self, keyword: str, length: int | None = None) -> list[int]:
        rest = self.rest(keyword)
        self.require(INTEGERS.fullmatch(rest) is not None, f"'{keyword}' is followed by integers")
        values = [int(token) for token in rest.split(b" ")]
        self.require(length in (None, len(values)), f"'{keyword}' is followed by {length} integers, here by {len(values)}")
        return values

    def count(self, keyword: str) -> int:
        (value,) = self.integers(keyword, 1)
        self.require(0 <= value <= len(self.lines) - self.position, f"the count {value} does not fit the rest of the file")
        return value

    def exponents(self, keyword: str, length: int) -> list[int]:
        return [self.limited(value) for value in self.integers(keyword, length)]

    def limited(self, exponent: int) -> int:
        self.require(abs(exponent) <= LARGEST_EXPONENT, f"an exponent is larger than {LARGEST_EXPONENT}", "limits exceeded")
        return exponent

    def power(self, exponent: int) -> Fraction:
        return power(self.limited(exponent))

    def numbers(self, keyword: str, length: int) -> Vector:
        """Integers after their common exponent."""
        exponent, *values = self.integers(keyword, length + 1)
        unit = self.power(exponent)
        return [n * unit for n in values]

    def multipliers(self, keyword: str, length: int) -> Vector:
        values = self.numbers(keyword, length)
        self.require(all(value >= 0 for value in values), "a multiplier is negative")
        return values

    def indices(self, keyword: str, below: int) -> list[int]:
        """A count and as many ascending indices; * stands for all."""
        if self.next_is(f"{keyword} *"):
            self.word(keyword, ["*"])
            return list(range(below))
        return self.counted(self.integers(keyword), below)

    def pairs(self, keyword: str, below: int) -> dict[int, Fraction]:
        """Ascending indices with their values, after an exponent and a count."""
        exponent, *values = self.integers(keyword)
        self.require(len(values) % 2 == 1, f"'{keyword}' is an exponent, a count and as many pairs")
        indices, unit = self.counted([values[0], *values[1::2]], below), self.power(exponent)
        return {i: n * unit for i, n in zip(indices, values[2::2], strict=True)}

    def counted(self, values: list[int], below: int) -> list[int]:
        """A count and as many ascending indices."""
        self.require(values[:1] == [len(values) - 1], "expected a count and as many indices")
        ascending = all(a < b for a, b in zip([-1, *values[1:]], [*values[1:], below], strict=True))
        self.require(ascending, f"indices are not ascending from 0 and below {below}")
        return values[1:]


def sparse_rows(rows: Sequence[dict[int, Fraction]], width: int) -> Matrix:
    """A matrix from rows as `pairs` reads them."""
    integers, exponent = align([value for row in rows for value in row.values()])
    values = iter(integers)
    return Matrix([{i: next(values) for i in row} for row in rows], width, exponent)
