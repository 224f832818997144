"""Balls that are no boxes, in l2 or l1, and the least values of linear functions over them.

A ball with a radius for every input,

    |(x - center) / radii| <= 1        in the norm of the ball

lets a linear function g fall below g . center by the dual norm of radii g, and no further. A domain is
such a ball cut with a box. There the inputs on which g could only fall across the box's own end, at the
center or before it, are left to the box, and the others to the ball: any division of g between the two
gives a lower bound. So does the box alone, and the larger of the two bounds counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from ..numerics.arrays import Array, Matrix
from ..numerics.rounding import TINY, gamma
from .norms import Norm

INSIDE = 1 - 1e-12  # where points that were moved into a ball lie, relative to its radius
APART = 1 + 1e-9  # a box this far away from the center, in radii, is proved to miss the ball
# What the root of a sum of squares can lose because squares underflow.
TINY_ROOT = 2.0**-500


@dataclass(frozen=True, eq=False)
class RoundBall:
    """All x with |(x - center) / radii| <= 1, in l2 or l1. An input with radius 0 is fixed."""

    norm: Norm
    center: Array
    radii: Array

    def distances(self, x: Array) -> Array:
        """|(x - center) / radii| for every column of x, in plain floating point."""
        return self._lengths(x - self.center[:, None])

    def _lengths(self, steps: Array) -> Array:
        """The norm of steps / radii, by column; infinite across an input that is fixed."""
        radii = self.radii[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(steps == 0, 0.0, np.abs(steps) / radii)
        if self.norm is Norm.L1:
            return np.asarray(relative.sum(axis=0))
        return np.asarray(np.sqrt(np.square(relative).sum(axis=0)))

    def pulled(self, x: Array) -> Array:
        """The columns of x, those that are not inside moved towards the center until they are."""
        steps = np.where(self.radii[:, None] > 0, x - self.center[:, None], 0.0)
        lengths = np.maximum(self._lengths(steps), np.finfo(np.float64).tiny)
        factors = np.minimum(1.0, self._reach() / lengths)
        return np.asarray(np.where(factors < 1, self.center[:, None] + factors * steps, x))

    def _reach(self) -> float:
        """Up to which distance points are inside, although they are rounded."""
        is_free = self.radii > 0
        relative = 1 + np.abs(self.center[is_free]) / self.radii[is_free]
        return max(0.0, INSIDE - gamma(4) * float(relative.sum()))

    def misses(self, lower: Array, upper: Array) -> bool:
        """Whether a box is proved to have no point of the ball."""
        nearest = np.clip(self.center, lower, upper)
        return bool(self.distances(nearest[:, None])[0] > APART)

    def is_cut_by(self, lower: Array, upper: Array) -> bool:
        """Whether the ball reaches beyond a box."""
        below = self.center - self.radii < lower
        above = self.center + self.radii > upper
        return bool((below | above).any())

    def falls(self, rows: Matrix) -> Array:
        """How far rows @ x can fall below rows @ center, at most: the dual norms, rounded up."""
        sizes = abs(rows) * self.radii
        if self.norm is Norm.L1:
            largest = sizes.max(axis=1)
            largest = largest.toarray().reshape(-1) if hasattr(largest, "toarray") else largest
            return np.asarray(largest * (1 + gamma(4)) + TINY)
        squares = (sizes * sizes).sum(axis=1)
        roundings = rows.shape[1] + 4
        return np.asarray(np.sqrt(squares) * (1 + gamma(roundings)) + TINY_ROOT)

    def steepest_points(self, rows: Array) -> Array:
        """Where in the ball every row is least, (rows, inputs)."""
        sizes = rows * self.radii
        directions = self.norm.best_direction(sizes.T).T
        return np.asarray(self.center - self.radii * directions)

    def nearest_mean(self, x: Array) -> Array:
        """The mean of columns of x, with weights, that is nearest to the center in the l2 norm."""
        relative = np.zeros(x.shape)
        is_free = self.radii > 0
        relative[is_free] = (x - self.center[:, None])[is_free] / self.radii[is_free][:, None]
        heavy = 1e3 * float(np.abs(relative).max(initial=1.0))  # keeps the sum of weights near 1
        rows = np.concatenate([relative, np.full((1, x.shape[1]), heavy)])
        weights, _ = nnls(rows, np.append(np.zeros(len(x)), heavy))
        return np.asarray(x @ (weights / weights.sum()))

    def tangent(self, x: Array) -> tuple[Array, float]:
        """A row and an end, row @ y <= end for all y in the ball, that a point outside violates."""
        relative = np.zeros(len(x))
        is_free = self.radii > 0
        relative[is_free] = (x - self.center)[is_free] / self.radii[is_free]
        direction = self.norm.dual.best_direction(relative[:, None])[:, 0]
        row = np.zeros(len(x))
        row[is_free] = direction[is_free] / self.radii[is_free]
        return row, float(1 + row @ self.center)


@dataclass(frozen=True, eq=False)
class InputSet:
    """A box of inputs, or what a ball leaves of it."""

    lower: Array
    upper: Array
    ball: RoundBall | None = None

    @property
    def is_bounded(self) -> bool:
        return bool(np.isfinite(self.lower).all() and np.isfinite(self.upper).all())

    @property
    def is_empty(self) -> bool:
        """Whether box and ball are proved to have no point in common."""
        return self.ball is not None and self.ball.misses(self.lower, self.upper)

    def holds(self, x: Array) -> Array:
        """Which columns of x lie in it."""
        inside = (x >= self.lower[:, None]) & (x <= self.upper[:, None])
        found = inside.all(axis=0)
        if self.ball is not None:
            found &= self.ball.distances(x) <= 1
        return np.asarray(found)

    def moved_into(self, x: Array) -> Array:
        """The columns of x, moved to the box, and then into the ball, if its center is in the box."""
        inside = np.clip(x, self.lower[:, None], self.upper[:, None])
        if self.ball is None:
            return inside
        return np.clip(self.ball.pulled(inside), self.lower[:, None], self.upper[:, None])

    def least_values(self, rows: Array) -> Array:
        """Lower bounds on rows @ x; rounded down."""
        by_box = np.maximum(rows, 0) @ self.lower + np.minimum(rows, 0) @ self.upper
        magnitude = np.maximum(np.abs(self.lower), np.abs(self.upper))
        if self.ball is not None:
            magnitude = np.maximum(magnitude, np.abs(self.ball.center))
        roundings = 2 * rows.shape[1] + 4
        error = gamma(roundings) * (np.abs(rows) @ magnitude) + roundings * TINY
        if self.ball is None:
            return np.asarray(by_box - 1.01 * error)
        is_left = self._is_left_to_box(rows, self.ball)
        corners = np.where(rows > 0, self.lower, self.upper)
        starts = np.where(is_left, corners, self.ball.center)
        falls = self.ball.falls(np.where(is_left, 0.0, rows))
        by_ball = (rows * starts).sum(axis=1) - falls * (1 + gamma(4))
        # What overflows is NaN, and ignored.
        return np.asarray(np.fmax(by_box, by_ball) - 1.01 * error)

    def least_points(self, rows: Array) -> Array:
        """Points where the bounds of `least_values` are attained, (rows, inputs)."""
        corners = np.where(rows > 0, self.lower, self.upper)
        if self.ball is None:
            return corners
        is_left = self._is_left_to_box(rows, self.ball)
        found = self.ball.steepest_points(np.where(is_left, 0.0, rows))
        found = np.where(is_left, corners, found)
        by_box = (rows * corners).sum(axis=1)
        by_ball = (rows * found).sum(axis=1)
        return np.asarray(np.where((by_box > by_ball)[:, None], corners, found))

    def _is_left_to_box(self, rows: Array, ball: RoundBall) -> Array:
        """The inputs whose end, in the direction in which a row falls, is no further than the center."""
        return np.where(rows > 0, self.lower >= ball.center, self.upper <= ball.center)
