"""Interval arithmetic on the matrices of a derivative problem: rule `interval` of section 4 of
spec/certificate.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .exact import Matrix, Vector
from .formulas import Interval
from .problem import Problem

Run = list[int]  # consecutive neurons that do not read each other


class Spread(NamedTuple):
    """All matrices between middle - radius and middle + radius, entry by entry."""

    middle: Matrix
    radius: Matrix

    @staticmethod
    def exactly(matrix: Matrix) -> Spread:
        return Spread(matrix, Matrix.zero(len(matrix.rows), matrix.width))

    def plus(self, other: Spread) -> Spread:
        return Spread(self.middle + other.middle, self.radius + other.radius)

    def take(self, columns: Sequence[int]) -> tuple[Spread, Spread]:
        """These columns; and the same with zeros in their place."""
        middle, middle_rest = self.middle.take(columns)
        radius, radius_rest = self.radius.take(columns)
        return Spread(middle, radius), Spread(middle_rest, radius_rest)

    def times(self, matrix: Matrix) -> Spread:
        return Spread(self.middle @ matrix, self.radius @ abs(matrix))

    def scaled(self, factors: Sequence[Interval]) -> Spread:
        """Every column times any number in its interval."""
        low = [factor[0] for factor in factors]
        high = [factor[1] for factor in factors]
        first = self.middle - self.radius
        last = self.middle + self.radius
        largest = largest_products(first, last, low, high)
        smallest = -largest_products(-first, -last, low, high)
        return Spread((largest + smallest).half(), (largest - smallest).half())

    def largest(self) -> Matrix:
        """The largest absolute values."""
        return abs(self.middle) + self.radius


def runs(problem: Problem) -> list[Run]:
    """All neurons, in runs of consecutive ones that do not read each other."""
    found: list[Run] = []
    for a in range(problem.inputs, problem.C.width):
        sources = problem.A.rows[a]
        if not found or any(b in sources for b in found[-1]):
            found.append([])
        found[-1].append(a)
    return found


def coefficients(problem: Problem) -> Spread:
    """The coefficients of the inputs in all rows of C.

    The coefficient of z_a = s_a A_a x is multiplied by the range of s_a, and goes on to the
    variables of A_a."""
    rest = Spread.exactly(problem.C)
    for run in reversed(runs(problem)):
        here, rest = rest.take(run)
        A = problem.A.chosen_rows(run).reduced()
        rest = rest.plus(here.scaled([problem.slopes[a] for a in run]).times(A))
    inputs, _ = rest.take(range(problem.inputs))
    return inputs


def largest_products(first: Matrix, last: Matrix, low: Vector, high: Vector) -> Matrix:
    """Of numbers between two entries, and factors of that column: the product is largest at ends."""
    return entrywise_max(first.scaled_by_sign(high, low), last.scaled_by_sign(high, low))


def entrywise_max(left: Matrix, right: Matrix) -> Matrix:
    """The larger entry of the two, in every place."""
    return right + (left - right).positive()
