"""Intervals of many numbers, as middles and half widths, in plain floating point.

Sums and products are those of interval arithmetic. What is rounded on the way is not counted here:
beside every number goes the sum of the absolute values of all terms that it is made of, and whoever
knows how many roundings there were widens the interval by so many times that size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .arrays import Array, Matrix


class Spread(NamedTuple):
    """Numbers between middle - half and middle + half; and their largest sums over all terms."""

    middle: Array
    half: Array
    size: Array

    @staticmethod
    def zero(shape: tuple[int, ...]) -> Spread:
        return Spread(np.zeros(shape), np.zeros(shape), np.zeros(shape))

    @staticmethod
    def exactly(values: Array) -> Spread:
        return Spread(values, np.zeros(values.shape), np.abs(values))

    def __add__(self, other: Spread) -> Spread:  # type: ignore[override]
        return Spread(self.middle + other.middle, self.half + other.half, self.size + other.size)

    @property
    def low(self) -> Array:
        return self.middle - self.half

    @property
    def high(self) -> Array:
        return self.middle + self.half

    def times(self, matrix: Matrix) -> Spread:
        """matrix @ these numbers."""
        return Spread(matrix @ self.middle, abs(matrix) @ self.half, abs(matrix) @ self.size)

    def scaled(self, lower: Array, upper: Array) -> Spread:
        """These numbers times any factors between lower and upper, entry by entry."""
        corners = np.array(
            [self.low * lower, self.low * upper, self.high * lower, self.high * upper]
        )
        least = corners.min(axis=0)
        most = corners.max(axis=0)
        steepest = np.maximum(np.abs(lower), np.abs(upper))
        return Spread((least + most) / 2, (most - least) / 2, steepest * self.size)

    def transposed_times(self, other: Spread) -> Spread:
        """The transposes of these matrices times other matrices, both any numbers in their intervals."""
        left = np.abs(self.middle).mT
        return Spread(
            self.middle.mT @ other.middle,
            left @ other.half + self.half.mT @ (np.abs(other.middle) + other.half),
            self.size.mT @ other.size,
        )

    def widened(self, relative: float) -> Spread:
        """The same numbers, with so much more room, relative to their sizes."""
        return Spread(self.middle, self.half + relative * self.size, self.size)
