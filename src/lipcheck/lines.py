"""The lines and tokens of a certificate: section 2 of spec/certificate.md, first paragraph."""

import re
from collections.abc import Sequence
from fractions import Fraction

from .exact import TWO, Matrix, Vector
from .verdicts import LIMITS_EXCEEDED, MALFORMED, require

# At most 1,000 digits, so that no integer takes long to read.
INTEGER = "(0|-?[1-9][0-9]{0,999})"
INTEGERS = re.compile(f"{INTEGER}( {INTEGER})*")
LARGEST_EXPONENT = 5_000  # of two, in absolute value, so that no number takes much memory


class Lines:
    """The lines of a file, which are taken one by one.

    Every method that takes a line ends the check as malformed if the line is not as it should be.
    """

    def __init__(self, data: bytes) -> None:
        # Latin-1 has a character for every byte; those that are not ASCII fit no keyword or number.
        self._lines = data.decode("latin-1").split("\n")
        require(self._lines[-1] == "", "certificate: the last line has no end")
        self.taken = 0  # how many lines were taken

    @property
    def left(self) -> int:
        """How many lines were not taken, with the empty one after the last."""
        return len(self._lines) - self.taken

    def require(self, condition: bool, reason: str, verdict: str = MALFORMED) -> None:
        """End the check, with the number of the last line taken, unless the condition holds."""
        require(condition, f"certificate, line {max(self.taken, 1)}: {reason}", verdict)

    def skip_comments(self) -> None:
        """Lines that are for people: printable, and without a meaning here."""
        while self.starts_with("comment"):
            line = self._lines[self.taken]
            self.taken += 1
            self.require(line.isascii() and line.isprintable(), "a comment is printable ASCII")

    def starts_with(self, keyword: str) -> bool:
        """Whether the next line has this keyword."""
        return self._lines[self.taken].startswith(f"{keyword} ")

    def next_is(self, line: str) -> bool:
        """Whether the next line is this one."""
        return self._lines[self.taken] == line

    def text(self, keyword: str) -> str:
        """What follows the keyword on the next line. After the last line, that is an empty one."""
        first, _, text = self._lines[self.taken].partition(" ")
        self.taken += 1
        self.require(first == keyword, f"expected '{keyword}'")
        return text

    def word(self, keyword: str, choices: Sequence[str]) -> str:
        """One of these words."""
        text = self.text(keyword)
        self.require(text in choices, f"'{keyword}' is followed by {' or '.join(choices)}")
        return text

    def integers(self, keyword: str) -> list[int]:
        """One or more integers."""
        text = self.text(keyword)
        valid = INTEGERS.fullmatch(text) is not None
        self.require(valid, f"'{keyword}' is followed by integers")
        return [int(token) for token in text.split(" ")]

    def _some_integers(self, keyword: str, length: int) -> list[int]:
        """So many integers."""
        values = self.integers(keyword)
        reason = f"'{keyword}' is followed by {length} integers, here by {len(values)}"
        self.require(len(values) == length, reason)
        return values

    def integer(self, keyword: str) -> int:
        (value,) = self._some_integers(keyword, 1)
        return value

    def count(self, keyword: str) -> int:
        """A count of things, each of which takes a line at least: what cannot fit is refused."""
        value = self.integer(keyword)
        fits = 0 <= value <= self.left
        self.require(fits, f"the count {value} does not fit the rest of the file")
        return value

    def indices(self, keyword: str, below: int) -> list[int]:
        """A count and as many ascending indices; * stands for all."""
        if self._lines[self.taken] == f"{keyword} *":
            self.taken += 1
            return list(range(below))
        count, *values = self.integers(keyword)
        self.require(count == len(values), "expected a count and as many indices")
        ascending = values == sorted(set(values)) and all(0 <= value < below for value in values)
        self.require(ascending, f"indices are not ascending from 0 and below {below}")
        return values

    def numbers(self, keyword: str, length: int, least: int | None = None) -> Vector:
        """An exponent E, and then so many integers N, for the numbers N * 2^E."""
        exponent, values = self._scaled(keyword, least)
        given = len(values)
        self.require(given == length, f"'{keyword}' has {length} numbers, here {given}")
        unit = TWO**exponent
        return [value * unit for value in values]

    def first_numbers(self, keyword: str, most: int, least: int | None = None) -> Matrix:
        """A row of so many numbers, of which the first are given as above; the others are 0."""
        exponent, values = self._scaled(keyword, least)
        given = len(values)
        self.require(given <= most, f"'{keyword}' has at most {most} numbers, here {given}")
        row = {j: value for j, value in enumerate(values) if value}
        return Matrix([row], most, exponent)

    def _scaled(self, keyword: str, least: int | None) -> tuple[int, list[int]]:
        """An exponent, and integers of which none is below the least."""
        exponent, *values = self.integers(keyword)
        if least is not None:
            large_enough = all(value >= least for value in values)
            self.require(large_enough, f"an integer after '{keyword}' is below {least}")
        small = abs(exponent) <= LARGEST_EXPONENT
        self.require(small, f"an exponent is above {LARGEST_EXPONENT}", LIMITS_EXCEEDED)
        return exponent, values

    def number(self, keyword: str, least: int | None = None) -> Fraction:
        (value,) = self.numbers(keyword, 1, least)
        return value

    def sparse_row(self, width: int) -> dict[int, Fraction]:
        """A row of a matrix in two lines: columns, and their entries."""
        columns = self.indices("columns", width)
        entries = self.numbers("entries", len(columns))
        return dict(zip(columns, entries, strict=True))
