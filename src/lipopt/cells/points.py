"""Points of a cell: what is attained at them cannot be excluded from it, and the slope there may be large."""

from __future__ import annotations

import numpy as np

from ..numerics.arrays import Array
from .cell import Cell, Points
from .reduced import Reduced

MAX_POINTS = 256  # that a cell keeps, if its points and the neurons there take no more than
POINT_ENTRIES = 20_000  # numbers; with larger networks, fewer
FEWEST_POINTS = 16
INWARD = 0.1  # how far a candidate is moved towards the middle of its cell, relative
CORNER = 1e-3  # the same for corners of a cell, which may lie outside of it by rounding


def most_points(reduced: Reduced) -> int:
    """How many points a cell keeps."""
    return min(MAX_POINTS, max(FEWEST_POINTS, POINT_ENTRIES // reduced.width))


def with_found(reduced: Reduced, cell: Cell, found: list[Array]) -> Points:
    """The points of a cell, and those that linear programs found, the newest last."""
    if not found:
        return cell.points
    corners = np.array(found).T
    middle = corners.mean(axis=1, keepdims=True)
    tried = np.concatenate([middle, corners + CORNER * (middle - corners)], axis=1)
    return _joined(cell.points, _inside(reduced, cell, tried), most_points(reduced))


def candidates(points: Points) -> Array:
    """Points inside of the cell, if it is convex, (inputs, points).

    Some are close to corners, where neurons are near their kinks. So every point is moved towards the
    mean of all; the newest one is tried as it is, too."""
    if points.count == 0:
        return points.x
    middle = points.x.mean(axis=1, keepdims=True)
    moved = points.x + INWARD * (middle - points.x)
    return np.concatenate([points.x[:, -1:], middle, moved], axis=1)


def _inside(reduced: Reduced, cell: Cell, x: Array) -> Points:
    """Those of the points that lie in the cell, after they were moved to its box and ball."""
    moved = cell.inputs.moved_into(x)
    points = Points(moved, reduced.inputs_of_neurons(moved))
    return points.only(cell.holds(points))


def _joined(first: Points, second: Points, most: int) -> Points:
    """The points of both, but no more than so many: the last ones."""
    return Points(
        np.concatenate([first.x, second.x], axis=1)[:, -most:],
        np.concatenate([first.y, second.y], axis=1)[:, -most:],
    )
