"""Interval arithmetic on the matrices of a derivative problem: rules `interval` and `curvature` of
section 4 of spec/certificate.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .exact import TWO, Matrix, Vector
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

    def row(self, i: int) -> Spread:
        return Spread(self.middle.chosen_rows([i]), self.radius.chosen_rows([i]))

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

    def times_transposed(self, other: Spread) -> Spread:
        """All products with transposes of the others."""
        middle = other.middle.transpose()
        radius = other.radius.transpose()
        spread = abs(self.middle) @ radius + self.radius @ (abs(middle) + radius)
        return Spread(self.middle @ middle, spread)

    def largest(self) -> Matrix:
        """The largest absolute values."""
        return abs(self.middle) + self.radius

    def intervals(self, i: int) -> list[Interval]:
        """The entries of row i."""
        found = []
        for middle, radius in zip(entries(self.middle, i), entries(self.radius, i), strict=True):
            found.append((middle - radius, middle + radius))
        return found


def entries(matrix: Matrix, i: int) -> Vector:
    """Row i, with the zeros that are not stored."""
    unit = TWO**matrix.exponent
    return [matrix.rows[i].get(j, 0) * unit for j in range(matrix.width)]


def runs(problem: Problem) -> list[Run]:
    """All neurons, in runs of consecutive ones that do not read each other."""
    found: list[Run] = []
    for a in range(problem.inputs, problem.C.width):
        sources = problem.A.rows[a]
        if not found or any(b in sources for b in found[-1]):
            found.append([])
        found[-1].append(a)
    return found


def coefficients(problem: Problem, slopes: Sequence[Interval]) -> tuple[Spread, list[Spread]]:
    """The coefficients of the inputs, and those of the neurons of every run, in all rows of C.

    The coefficient of z_a = s_a A_a x is multiplied by the range of s_a, and goes on to the
    variables of A_a."""
    rest = Spread.exactly(problem.C)
    found = []
    for run in reversed(runs(problem)):
        here, rest = rest.take(run)
        found.append(here)
        A = problem.A.chosen_rows(run).reduced()
        rest = rest.plus(here.scaled([slopes[a] for a in run]).times(A))
    inputs, _ = rest.take(range(problem.inputs))
    return inputs, found[::-1]


def derivatives(problem: Problem, slopes: Sequence[Interval], directions: Matrix) -> list[Spread]:
    """For the neurons of every run, the derivatives y_a = A_a x in some directions t, one a row."""
    width = problem.C.width
    x = Spread.exactly(Matrix(directions.rows, width, directions.exponent))
    found = []
    for run in runs(problem):
        y = x.times(problem.A.chosen_rows(run).reduced().transpose())
        found.append(y)
        places = Matrix([{a: 1} for a in run], width)
        x = x.plus(y.scaled([slopes[a] for a in run]).times(places))
    return found


def second_derivatives(left: list[Spread], weights: list[Spread], right: list[Spread]) -> Spread:
    """Section 4, rule curvature: of one row, in directions of the left and of the right."""
    total = Spread.exactly(Matrix.zero(len(left[0].middle.rows), len(right[0].middle.rows)))
    for first, weight, second in zip(left, weights, right, strict=True):
        total = total.plus(first.scaled(weight.intervals(0)).times_transposed(second))
    return total


def largest_products(first: Matrix, last: Matrix, low: Vector, high: Vector) -> Matrix:
    """Of numbers between two entries, and factors of that column: the product is largest at ends."""
    return entrywise_max(first.scaled_by_sign(high, low), last.scaled_by_sign(high, low))


def entrywise_max(left: Matrix, right: Matrix) -> Matrix:
    """The larger entry of the two, in every place."""
    return right + (left - right).positive()
