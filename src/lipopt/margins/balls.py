"""Many balls at once, and the least values that linear functions have in them.

Arrays have a row for every ball. A linear function belongs to one of the balls, its owner. A ball
is cut with a box: that of the clip range, or, in l_inf, what the ball is itself. How a linear
function is bounded in both together is said in model/round_ball.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..model.norms import Norm
from ..model.round_ball import APART, INSIDE, MOST_DIVIDED, TINY_ROOT, Shares
from ..numerics.arrays import Array, Matrix, dense, namespace
from ..numerics.rounding import TINY, gamma

# What radii in units and products with them can be off, relatively: more than all of their roundings.
SCALING = gamma(8)


@dataclass(frozen=True, eq=False)
class Balls:
    """Balls around points, and the boxes that enclose them."""

    lower: Array  # (balls, inputs), rounded outward
    upper: Array
    centers: Array
    radii: Array  # (balls,)
    norm: Norm = Norm.LINF
    is_clipped: bool = False
    scale: Array | None = None  # (inputs,): how much of each input counts as 1; None for 1

    @staticmethod
    def around(
        points: Array,
        radii: Array,
        clip: tuple[float, float] | None = None,
        norm: Norm = Norm.LINF,
        scale: Array | None = None,
    ) -> Balls:
        """The balls around points, one a row, each with a radius of its own."""
        radius = radii[:, None]
        reach = radius if scale is None else np.nextafter(radius * scale, np.inf)
        lower = np.where(radius > 0, np.nextafter(points - reach, -np.inf), points)
        upper = np.where(radius > 0, np.nextafter(points + reach, np.inf), points)
        if clip is not None:
            lower = np.maximum(lower, clip[0])
            upper = np.minimum(upper, clip[1])
        return Balls(lower, upper, points, radii, norm, clip is not None, scale)

    @staticmethod
    def at(points: Array) -> Balls:
        """Points, as balls of radius 0."""
        return Balls.around(points, np.zeros(len(points)))

    @property
    def count(self) -> int:
        return len(self.lower)

    @property
    def inputs(self) -> int:
        return int(self.lower.shape[1])

    @property
    def is_round(self) -> bool:
        """Whether the balls are no boxes."""
        return self.norm is not Norm.LINF

    @cached_property
    def largest(self) -> Array:
        """The largest absolute value of every input."""
        return namespace(self.lower).maximum(abs(self.lower), abs(self.upper))

    @cached_property
    def middle(self) -> Array:
        return self.lower / 2 + self.upper / 2

    @cached_property
    def spread(self) -> Array:
        """How far inputs are from the middle of the box at most, rounded up."""
        xp = namespace(self.lower)
        distance = xp.maximum(self.upper - self.middle, self.middle - self.lower)
        return xp.nextafter(distance, distance + np.inf)

    def only(self, chosen: Array) -> Balls:
        """Some of the balls."""
        return replace(
            self,
            lower=self.lower[chosen],
            upper=self.upper[chosen],
            centers=self.centers[chosen],
            radii=self.radii[chosen],
        )

    @staticmethod
    def joined(parts: Sequence[Balls]) -> Balls:
        """Balls of one norm and scale, one after the other."""
        return replace(
            parts[0],
            lower=np.concatenate([part.lower for part in parts]),
            upper=np.concatenate([part.upper for part in parts]),
            centers=np.concatenate([part.centers for part in parts]),
            radii=np.concatenate([part.radii for part in parts]),
        )

    def in_units(self, rows: Array) -> Array:
        """How linear functions grow if every input grows by its unit."""
        return rows if self.scale is None else rows * self.scale

    def _lengths(self, steps: Array) -> Array:
        """The norms of steps, in units."""
        relative = steps if self.scale is None else steps / self.scale
        return np.linalg.norm(relative, 1 if self.norm is Norm.L1 else 2, axis=1)

    def halves(self, inputs: Array) -> Balls:
        """Each ball cut in the middle of one of its inputs: the lower halves, then the upper ones."""
        places = np.arange(self.count)
        lower = self.lower.copy()
        upper = self.upper.copy()
        upper[places, inputs] = self.middle[places, inputs]
        lower[places, inputs] = self.middle[places, inputs]
        below = replace(self, upper=upper, is_clipped=True)
        above = replace(self, lower=lower, is_clipped=True)
        return Balls.joined([below, above])

    @property
    def are_missed(self) -> Array:
        """Whether the boxes are proved to have no point of their balls."""
        if not self.is_round:
            return np.zeros(self.count, dtype=bool)
        steps = np.clip(self.centers, self.lower, self.upper) - self.centers
        return np.asarray(self._lengths(steps) > APART * self.radii)

    def least(self, rows: Array, owners: Array) -> Array:
        """Lower bounds on rows @ x over the balls of their owners, rounded down."""
        xp = namespace(rows)
        size = abs(rows)
        center = xp.einsum("rj,rj->r", rows, self.middle[owners])
        change = xp.einsum("rj,rj->r", size, self.spread[owners])
        # The sums are off by gamma times the sums of absolute values.
        magnitude = xp.einsum("rj,rj->r", size, self.largest[owners])
        error = gamma(2 * self.inputs + 4) * (magnitude + change) + (2 * self.inputs + 4) * TINY
        by_box = center - change - 1.01 * error
        if not self.is_round:
            return by_box
        is_left = self._is_left_to_box(rows, owners)
        starts = xp.where(is_left, self._corners(rows, owners), self.centers[owners])
        left_to_ball = self.in_units(xp.where(is_left, 0.0, rows))
        falls = self.radii[owners] * _dual_norms(left_to_ball, self.norm)
        by_ball = xp.einsum("rj,rj->r", rows, starts) - falls * (1 + SCALING) - TINY
        # What overflows is NaN, and ignored.
        return xp.fmax(by_box, by_ball - 1.01 * error)

    def least_divided(self, rows: Array, owners: Array) -> tuple[Array, Array | None]:
        """Better lower bounds, by the best division between balls and boxes, and its multipliers.

        There are none for balls that no box cuts, and where inputs are many."""
        simple = self.least(rows, owners)
        if not (self.is_round and self.is_clipped) or self.inputs > MOST_DIVIDED:
            return simple, None
        xp = namespace(rows)
        centers = self.centers[owners]
        radii = self.in_units(self.radii[owners][:, None] + 0 * centers)
        lower = self.lower[owners]
        upper = self.upper[owners]
        found = Shares.best(self.norm, rows, centers, radii, lower, upper)
        to_ball = found.to_ball
        to_box = rows - to_ball
        corners = xp.where(to_box > 0, lower, upper)
        falls = self.radii[owners] * _dual_norms(self.in_units(to_ball), self.norm)
        magnitude = xp.maximum(self.largest[owners], abs(centers))
        error = gamma(2 * self.inputs + 6) * xp.einsum(
            "rj,rj->r", abs(to_ball) + abs(to_box), magnitude
        )
        divided = xp.einsum("rj,rj->r", to_ball, centers) - falls * (1 + SCALING) - TINY
        divided = divided + xp.einsum("rj,rj->r", to_box, corners)
        divided = divided - 1.01 * error - (2 * self.inputs + 6) * TINY
        # What overflows is NaN, and ignored.
        return xp.fmax(simple, divided), found.multipliers

    def where_least(self, rows: Array, owners: Array) -> Array:
        """Points of the balls where rows @ x is least, or nearly."""
        corners = self._corners(rows, owners)
        if not self.is_round:
            return corners
        xp = namespace(rows)
        is_left = self._is_left_to_box(rows, owners)
        steepest = _best_directions(self.in_units(xp.where(is_left, 0.0, rows)), self.norm)
        inside = self.centers[owners] - self.radii[owners][:, None] * self.in_units(steepest)
        return xp.where(is_left, corners, inside)

    def interval(self, matrix: Matrix) -> tuple[Array, Array]:
        """matrix @ center, and how far matrix @ x can be from it, rounded up: (balls, rows)."""
        growth = self.in_units(dense(matrix).astype(np.float64))
        falls = self.radii[:, None] * _dual_norms(growth, self.norm)[None]
        return (matrix @ self.centers.T).T, falls * (1 + SCALING) + TINY

    def moved_into(self, points: Array, owners: Array) -> Array:
        """Points, those outside of their owners' balls moved to points that are proved to be inside."""
        centers = self.centers[owners]
        if self.is_round:
            steps = np.clip(points, self.lower[owners], self.upper[owners]) - centers
            lengths = self._lengths(steps)
            reach = self._reach()[owners]
            factors = np.minimum(1.0, reach / np.maximum(lengths, np.finfo(np.float64).tiny))
            return np.clip(
                centers + factors[:, None] * steps, self.lower[owners], self.upper[owners]
            )
        reach = self.radii[owners][:, None]
        if self.scale is not None:
            reach = np.nextafter(reach * self.scale, 0.0)
        lower = np.minimum(np.nextafter(centers - reach, np.inf), centers)
        upper = np.maximum(np.nextafter(centers + reach, -np.inf), centers)
        lower = np.maximum(lower, self.lower[owners])
        upper = np.minimum(upper, self.upper[owners])
        return np.clip(points, lower, upper)

    def _reach(self) -> Array:
        """Up to which distance from the center points are inside, although they are rounded."""
        units = 1.0 if self.scale is None else self.scale
        size = self.radii * self.inputs + (np.abs(self.centers) / units).sum(axis=1)
        return np.maximum(0.0, self.radii * INSIDE - gamma(self.inputs + 8) * size)

    def _corners(self, rows: Array, owners: Array) -> Array:
        return namespace(rows).where(rows > 0, self.lower[owners], self.upper[owners])

    def _is_left_to_box(self, rows: Array, owners: Array) -> Array:
        """The inputs whose end, in the direction in which a row falls, is no further than the center."""
        xp = namespace(rows)
        centers = self.centers[owners]
        return xp.where(rows > 0, self.lower[owners] >= centers, self.upper[owners] <= centers)


def _dual_norms(rows: Array, norm: Norm) -> Array:
    """The dual norms of rows, rounded up, for balls in l2 or l1."""
    xp = namespace(rows)
    if norm is Norm.L1:
        return xp.amax(abs(rows), axis=1)
    squares = xp.einsum("rj,rj->r", rows, rows)
    return xp.sqrt(squares) * (1 + gamma(rows.shape[1] + 4)) + TINY_ROOT


def _best_directions(rows: Array, norm: Norm) -> Array:
    """Directions of length 1 in which every row grows most, as a point that is only tried."""
    if isinstance(rows, np.ndarray):
        return norm.best_direction(rows.T).T
    return namespace(rows).from_numpy(norm.best_direction(rows.cpu().numpy().T).T).to(rows.device)
