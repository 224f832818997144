"""Balls that are no boxes, in l2 or l1, and the least values of linear functions over them.

A ball with a radius for every input,

    |(x - center) / radii| <= 1        in the norm of the ball

lets a linear function g fall below g . center by the dual norm of radii g, and no further. A domain is
such a ball cut with a box. Any division g = p + q gives a lower bound, with p bounded over the ball and
q over the box. A simple one leaves inputs to the box on which g could only fall across the box's own end,
at the center or before it, and the others to the ball; the box alone is another. The best one follows from
one number, the multiplier m >= 0 of the ball at the point where g is least in both:

    p_j is what is nearest to g_j between  m d(center - upper)  and  m d(center - lower)
    d(v) = v / radius^2 in l2,  sign(v) / radius in l1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from ..numerics.arrays import Array, Matrix, namespace
from ..numerics.rounding import TINY, gamma
from .norms import Norm

INSIDE = 1 - 1e-12  # where points that were moved into a ball lie, relative to its radius
APART = 1 + 1e-9  # a box this far away from the center, in radii, is proved to miss the ball
# With more inputs, steps in each are so short that few of them meet an end of the box: what the best
# division gains over the simple one is not worth its time.
MOST_DIVIDED = 100
MULTIPLIER_STEPS = 5  # towards the best multiplier in l2; few more inputs change sides after these
HALVINGS = 40  # of the interval in which the best multiplier in l1 lies
SMALLEST = 1e-150  # what is divided by is kept above this
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
class Shares:
    """How rows are divided between a ball and a box, for one multiplier each."""

    multipliers: Array  # (rows,)
    to_ball: Array  # (rows, inputs)

    @staticmethod
    def best(
        norm: Norm, rows: Array, center: Array, radii: Array, lower: Array, upper: Array
    ) -> Shares:
        """The best division, or nearly. All but the rows may have a row for each of these."""
        xp = namespace(rows)
        is_free = radii > 0
        inverse = is_free / xp.where(is_free, radii, 1.0)
        if norm is Norm.L2:
            least = (center - upper) * inverse * inverse
            most = (center - lower) * inverse * inverse
            multipliers = _multipliers_in_l2(rows, radii, least, most)
        else:
            least = xp.sign(center - upper) * inverse
            most = xp.sign(center - lower) * inverse
            ends = xp.where(rows > 0, lower, upper)
            multipliers = _multipliers_in_l1(rows, radii, (center - ends) * inverse)
        m = multipliers[:, None]
        return Shares(multipliers, xp.where(is_free, xp.clip(rows, m * least, m * most), rows))


def _multipliers_in_l2(rows: Array, radii: Array, least: Array, most: Array) -> Array:
    """Where the point clip(center - radii^2 g / m, lower, upper) lies on the boundary of the ball.

    Every step solves that for the inputs that are clipped now."""
    xp = namespace(rows)
    sizes = rows * radii
    m = xp.maximum(xp.sqrt(xp.einsum("rj,rj->r", sizes, sizes)), SMALLEST + 0 * sizes[:, 0])
    for _ in range(MULTIPLIER_STEPS):
        clipped = xp.clip(rows, m[:, None] * least, m[:, None] * most)
        is_clipped = clipped != rows
        free = xp.where(is_clipped, 0.0, sizes)
        used = xp.where(is_clipped, clipped * radii / m[:, None], 0.0)
        left = 1 - xp.einsum("rj,rj->r", used, used)
        length = xp.sqrt(xp.einsum("rj,rj->r", free, free))
        is_inside = left > 0
        root = xp.sqrt(xp.where(is_inside, left, 1.0))
        m = xp.maximum(xp.where(is_inside, length / root, 2 * m), SMALLEST + 0 * m)
    return m


def _multipliers_in_l1(rows: Array, radii: Array, room: Array) -> Array:
    """The size of the first input, from the largest on, that the ball does not let reach its end."""
    xp = namespace(rows)
    sizes = abs(rows) * radii
    high = xp.amax(sizes, axis=1)
    low = 0 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        steps = xp.where(sizes > middle[:, None], abs(room), 0.0)
        fits = xp.einsum("rj->r", steps) <= 1
        low = xp.where(fits, low, middle)
        high = xp.where(fits, middle, high)
    return high


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

    def least_divided(self, rows: Array) -> tuple[Array, Array | None]:
        """Better lower bounds, by the best division between ball and box, and its multipliers.

        Without a ball there are none, and where inputs are many."""
        simple = self.least_values(rows)
        if self.ball is None or rows.shape[1] > MOST_DIVIDED:
            return simple, None
        ball = self.ball
        found = Shares.best(ball.norm, rows, ball.center, ball.radii, self.lower, self.upper)
        to_ball = found.to_ball
        to_box = rows - to_ball
        by_box = np.maximum(to_box, 0) @ self.lower + np.minimum(to_box, 0) @ self.upper
        falls = ball.falls(to_ball) * (1 + gamma(4))
        magnitude = np.maximum(np.abs(self.lower), np.abs(self.upper))
        magnitude = np.maximum(magnitude, np.abs(ball.center))
        roundings = 2 * rows.shape[1] + 6
        error = gamma(roundings) * ((np.abs(to_ball) + np.abs(to_box)) @ magnitude)
        divided = to_ball @ ball.center - falls + by_box - 1.01 * error - roundings * TINY
        # What overflows is NaN, and ignored.
        return np.asarray(np.fmax(simple, divided)), found.multipliers

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
