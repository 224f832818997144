"""Boxes of inputs and what balls leave of them: section 3 of spec/certificate.md, inputs in a ball."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from .exact import (
    ONE,
    TWO,
    ZERO,
    Matrix,
    Vector,
    root_rounded_up,
    shortened_down,
    sum_of_squares,
)

PART_BITS = 64  # of a part of an entry that is left to a ball


class Bounds(NamedTuple):
    """lower <= values <= upper, for every entry of a node, or every input of a box."""

    lower: Vector
    upper: Vector


class Ball(NamedTuple):
    """Section 1: all x with |(x - center) / radii| <= 1. An input whose radius is 0 is fixed."""

    norm: str  # l2 or l1
    center: Vector
    radii: Vector

    def is_within(self, box: Bounds) -> bool:
        """Whether the box holds all of the ball."""
        sides = zip(self.center, self.radii, *box, strict=True)
        return all(low <= c - r and c + r <= high for c, r, low, high in sides)

    def misses(self, box: Bounds) -> bool:
        """Section 3, inputs in a ball: whether no point of the box is in the ball."""
        total = ZERO
        for c, r, low, high in zip(self.center, self.radii, *box, strict=True):
            gap = max(low - c, c - high, ZERO)
            if gap > r:
                return True
            if gap > 0 and self.norm == "l2":
                total += (gap / r) ** 2
            elif gap > 0:
                total += gap / r
        return total > ONE

    def falls(self, rows: Matrix) -> Vector:
        """How far rows times x can fall below rows times center, at most: the dual norm."""
        falls = []
        scaled = rows.scaled_by_sign(self.radii, self.radii)
        for number in range(len(rows.rows)):
            row = abs(scaled.chosen_rows([number]))
            if self.norm == "l2":
                falls.append(root_rounded_up(sum_of_squares(row)))
            else:
                falls.append(row.largest())
        return falls


def least_divided(
    rows: Matrix, box: Bounds, ball: Ball | None, multipliers: Sequence[Fraction | None]
) -> Vector:
    """Section 3, inputs in a ball: the same as `least_values`, or more for rows with a multiplier."""
    found = least_values(rows, box, ball)
    if ball is None:
        return found
    for number, multiplier in enumerate(multipliers):
        if multiplier is not None:
            row = rows.chosen_rows([number])
            found[number] = max(found[number], _divided_value(row, box, ball, multiplier))
    return found


def _divided_value(row: Matrix, box: Bounds, ball: Ball, multiplier: Fraction) -> Fraction:
    """What remains of a row if the multiplier says which part of it is left to the ball."""
    (entries,) = row.rows
    unit = TWO**row.exponent
    part = {}
    for j in range(row.width):
        entry = entries.get(j, 0) * unit
        part[j] = _left_to_ball(entry, box.lower[j], box.upper[j], ball, j, multiplier)
    to_ball = Matrix.of([part], row.width)
    (at_center,) = to_ball.times(ball.center)
    (fall,) = ball.falls(to_ball)
    (at_ends,) = (row - to_ball).minimum(*box)
    return at_center - fall + at_ends


def _left_to_ball(
    entry: Fraction, low: Fraction, high: Fraction, ball: Ball, j: int, multiplier: Fraction
) -> Fraction:
    """The part of an entry that is left to the ball. What is no entry is rounded: any part will do."""
    radius = ball.radii[j]
    if radius == 0:
        return entry
    below = ball.center[j] - high
    above = ball.center[j] - low
    if ball.norm == "l2":
        factor = multiplier / radius**2
    else:
        factor = multiplier / radius
        below = Fraction((below > 0) - (below < 0))
        above = Fraction((above > 0) - (above < 0))
    part = min(max(entry, factor * below), factor * above)
    return part if part == entry else shortened_down(part, PART_BITS)


def least_values(rows: Matrix, box: Bounds, ball: Ball | None) -> Vector:
    """Section 3, inputs in a ball: the least value of every row times x, or less.

    Inputs that the box holds back from the center on, where a row falls, are left to the box.
    """
    by_box = rows.minimum(*box)
    if ball is None:
        return by_box
    held, free = _divided(rows, box, ball.center)
    found = []
    parts = (by_box, held.minimum(*box), free.times(ball.center), ball.falls(free))
    for whole, at_ends, at_center, fall in zip(*parts, strict=True):
        found.append(max(whole, at_ends + at_center - fall))
    return found


def _divided(rows: Matrix, box: Bounds, center: Vector) -> tuple[Matrix, Matrix]:
    """The entries on which x could only fall across an end of the box that is no further than the
    center; and the others."""
    held_below = [low >= c for low, c in zip(box.lower, center, strict=True)]
    held_above = [high <= c for high, c in zip(box.upper, center, strict=True)]
    held = []
    free = []
    for row in rows.rows:
        mine: dict[int, int] = {}
        rest: dict[int, int] = {}
        for j, value in row.items():
            is_held = held_below[j] if value > 0 else held_above[j]
            (mine if is_held else rest)[j] = value
        held.append(mine)
        free.append(rest)
    return Matrix(held, rows.width, rows.exponent), Matrix(free, rows.width, rows.exponent)
