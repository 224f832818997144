"""Lines around an activation on an interval, and the range of its values.

All of them come from values and slope ranges alone, so that one proof serves every activation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...numerics.arrays import Array
from ...numerics.rounding import TINY
from .kinds import KINDS, Parameters
from .slopes import breaks_from, slope, slope_range, value

# How much computed numbers are widened, to enclose the true ones.
VALUE_PAD = 1e-14  # of values, relative to 1 + |x| + |value| times `rounding_size`
EXACT_PAD = 1e-15  # of values that are rounded at most a few times, relative to the value
LINE_PAD = 4e-15  # of the offsets of lines, relative to their terms: 36 roundings; some 20 occur
MIN_WIDTH = 1e-300  # the slope of a chord is a quotient by the interval's width, or by this

CELLS = 16  # cells per interval in `linear_bounds`
# Of an interval of a sine or cosine. With more turning points than this in it, of the function no
# more is used than that it is between -1 and 1; the same in lipcheck.
MOST_TURNS = 16
# Sides of a hull at the end of an interval are compared a little inside of it, where they differ.
NEAR_END = 2.0**-10  # relative to the interval's width


def rounding_size(kind: str, parameters: Parameters) -> Array | float:
    """What the error of a value is relative to, besides 1 + |x|: 1, or more if its offset is large.

    The argument v = alpha x + beta of a ramp is cut to [0, 1]. If |alpha x| > 2 (1 + |beta|),
    then |v| > 2 and the rounded one is cut as v is. Otherwise both roundings together are below 6
    units of 1 + |beta|, and cutting does not increase that."""
    offset = KINDS[kind].offset
    if offset is None:
        return 1.0
    return 1 + np.abs(parameters[offset])


def linear_bounds(
    kind: str, lo: Array, hi: Array, parameters: Parameters
) -> tuple[Array, Array, Array, Array]:
    """Lines k1 x + c1 <= value(x) <= k2 x + c2 on [lo, hi], as (k1, c1, k2, c2), rounded outward.

    Candidates for k are the slopes at both ends and of the chord; the best at the middle of the
    interval is taken. For ReLU these are the lines of CROWN and DeepPoly."""
    cells = _cells(kind, lo, hi, parameters)
    low, high = slope_range(kind, lo, hi, parameters)
    width = np.maximum(hi - lo, MIN_WIDTH)
    with np.errstate(over="ignore"):
        chord = np.clip((cells.values[..., -1] - cells.values[..., 0]) / width, low, high)
    slopes_at_lo = slope_range(kind, lo, lo, parameters)
    slopes_at_hi = slope_range(kind, hi, hi, parameters)
    middle = (lo + hi) / 2
    k1 = np.zeros_like(lo)
    c1 = np.full(lo.shape, -np.inf)
    k2 = np.zeros_like(lo)
    c2 = np.full(lo.shape, np.inf)
    for k in (chord, *slopes_at_lo, *slopes_at_hi):
        below, above = cells.offsets(k)
        is_higher = k * middle + below > k1 * middle + c1
        k1 = np.where(is_higher, k, k1)
        c1 = np.where(is_higher, below, c1)
        is_lower = k * middle + above < k2 * middle + c2
        k2 = np.where(is_lower, k, k2)
        c2 = np.where(is_lower, above, c2)
    return k1, c1, k2, c2


@dataclass(frozen=True, eq=False)
class LinePair:
    """Two lines on the same side of an activation, for every neuron: slopes x + offsets.

    The line between them with weight w on the second is on that side as well."""

    slopes: Array  # (2, n)
    offsets: Array  # (2, n)


def line_pairs(
    kind: str, lo: Array, hi: Array, parameters: Parameters
) -> tuple[LinePair, LinePair]:
    """Two lines below the activation on [lo, hi] and two above it, rounded outward.

    For a piecewise linear one they are sides of the hull of its graph: those at the two ends of the
    interval. For others the best of some slopes at each quarter of the interval."""
    cells = _cells(kind, lo, hi, parameters)
    if KINDS[kind].piecewise_linear:
        slopes = _chords(cells)
        inset = (hi - lo) * NEAR_END
        x = np.array([lo + inset, hi - inset])
    else:
        inset = (hi - lo) / 4
        x = np.array([lo + inset, hi - inset])
        touching = [slope(kind, point, parameters) for point in x]
        slopes = np.array([*_end_chord(cells), *touching, cells.low[..., 0], cells.low[..., -1]])
    below, above = cells.offsets(slopes)
    places = np.arange(slopes.shape[1])
    highest = (slopes * x[:, None] + below).argmax(axis=1)
    lowest = (slopes * x[:, None] + above).argmin(axis=1)
    return (
        LinePair(slopes[highest, places], below[highest, places]),
        LinePair(slopes[lowest, places], above[lowest, places]),
    )


def _chords(cells: _Cells) -> Array:
    """The slopes between any two points of a grid, (pairs, n)."""
    first, second = np.triu_indices(cells.points.shape[-1], 1)
    width = np.maximum(cells.points[..., second] - cells.points[..., first], MIN_WIDTH)
    with np.errstate(over="ignore"):
        chords = (cells.values[..., second] - cells.values[..., first]) / width
    return np.moveaxis(chords, -1, 0)


def _end_chord(cells: _Cells) -> Array:
    """The slope between the first and the last point of a grid, (1, n)."""
    width = np.maximum(cells.points[..., -1] - cells.points[..., 0], MIN_WIDTH)
    with np.errstate(over="ignore"):
        return ((cells.values[..., -1] - cells.values[..., 0]) / width)[None]


def offset_and_error(
    kind: str, k: Array, lo: Array, hi: Array, parameters: Parameters
) -> tuple[Array, Array]:
    """c and e with |value(x) - (k x + c)| <= e on [lo, hi]."""
    below, above = _cells(kind, lo, hi, parameters).offsets(k)
    middle = below / 2 + above / 2
    return middle, np.nextafter(np.maximum(above - middle, middle - below), np.inf)


def value_range(kind: str, lo: Array, hi: Array, parameters: Parameters) -> tuple[Array, Array]:
    """The range of values on [lo, hi], rounded outward."""
    cells = _cells(kind, lo, hi, parameters)
    if KINDS[kind].is_unrounded:
        return cells.values.min(axis=-1), cells.values.max(axis=-1)
    bottom, top = cells.offsets(np.zeros_like(lo))
    least, most = KINDS[kind].values
    return np.maximum(bottom, least), np.minimum(top, most)


@dataclass(frozen=True)
class _Cells:
    """A grid on every interval, and what is known of the function from there.

    A line is above the function if it is above all vertices `above`, and the same below."""

    points: Array  # (n, cells + 1)
    values: Array  # at the points
    low: Array  # (n, cells): the smallest slope in a cell, if it is not linear
    above: _Vertices
    below: _Vertices
    pad: Array  # (n,): a bound on the error of values and vertices

    def offsets(self, k: Array) -> tuple[Array, Array]:
        """Bounds on value(x) - k x over the interval; k has the shape of the intervals, or more."""
        column = k[..., None]
        top = (self.above.heights - column * self.above.places).max(-1)
        bottom = (self.below.heights - column * self.below.places).min(-1)
        # A place is rounded a few times, and the product; the heights have their own pad.
        steepest = np.abs(k) * np.abs(self.points).max(-1)
        sizes = np.maximum(np.abs(self.values).max(-1), steepest)
        pad = self.pad + LINE_PAD * (sizes + steepest) + TINY
        return bottom - pad, top + pad


@dataclass(frozen=True)
class _Vertices:
    places: Array  # (n, vertices)
    heights: Array

    def mirrored(self) -> _Vertices:
        return _Vertices(self.places, -self.heights)


def _cells(kind: str, lo: Array, hi: Array, parameters: Parameters) -> _Cells:
    """The grid on [lo, hi]: cells of equal width, and the break points."""
    spec = KINDS[kind]
    columns = {name: _as_column(p) for name, p in parameters.items()}
    grid = _grid(kind, lo, hi, columns)
    values = value(kind, grid, columns)
    largest = np.abs(values).max(-1)
    if spec.exact:
        pad = EXACT_PAD * largest
    else:
        pad = VALUE_PAD * rounding_size(kind, parameters) * (1 + largest + np.abs(grid).max(-1))
    at_points = _Vertices(grid, values)
    if spec.piecewise_linear:
        return _Cells(grid, values, np.empty(0), at_points, at_points, pad)
    low, high = slope_range(kind, grid[..., :-1], grid[..., 1:], columns)
    # A height is a value and a slope times a width, each rounded a few times.
    steepest = np.maximum(np.abs(low), np.abs(high))
    pad = pad + LINE_PAD * (largest + (steepest * np.diff(grid)).max(-1))
    above = _vertices(at_points, low, high, spec.values[1])
    below = _vertices(at_points.mirrored(), -high, -low, -spec.values[0]).mirrored()
    if spec.turn is not None:
        is_long = (hi - lo > MOST_TURNS * np.pi)[..., None]
        above = _Vertices(above.places, np.where(is_long, spec.values[1], above.heights))
        below = _Vertices(below.places, np.where(is_long, spec.values[0], below.heights))
    return _Cells(grid, values, low, above, below, pad)


def _grid(kind: str, lo: Array, hi: Array, parameters: Parameters) -> Array:
    """The ends of cells, (n, cells + 1): all break points, and places of equal distance between
    the ends of the interval if the function is not linear between these."""
    spec = KINDS[kind]
    left = lo[..., None]
    right = hi[..., None]
    fractions = np.linspace(0.0, 1.0, 2 if spec.piecewise_linear else CELLS + 1)
    points = [left + (right - left) * fractions]
    if spec.turn is None:
        for point in spec.breaks(**parameters):
            points.append(np.broadcast_to(point, left.shape))
    else:
        first, *_ = breaks_from(kind, left, parameters)
        points.append(np.asarray(first + np.pi * np.arange(MOST_TURNS)))
    grid = np.sort(np.clip(np.concatenate(points, axis=-1), left, right), axis=-1)
    grid[..., 0] = lo
    grid[..., -1] = hi
    return grid


def _vertices(points: _Vertices, fall: Array, rise: Array, most: float) -> _Vertices:
    """Vertices above a function with these values, and slopes between `fall` and `rise` in cells.

    In a cell it is at most as high as the steepest rise from the left end and the steepest fall to
    the right end allow, so below the point where the two meet. It is below `most` too: if that is
    lower, below the two points where they reach it. An error in the place of a vertex, which is a
    quotient by rise - fall, moves it along one of the two lines: from the other it is then off by
    rise - fall times the error, so by a few roundings of the terms of the quotient."""
    start = points.heights[..., :-1]
    end = points.heights[..., 1:]
    left = points.places[..., :-1]
    right = points.places[..., 1:]
    w = right - left
    spread = rise - fall
    is_open = spread > 0
    climb = (end - start - fall * w) / np.where(is_open, spread, 1.0)
    climb = np.where(is_open, np.clip(climb, 0.0, w), 0.0)
    places = [points.places, left + climb]
    heights = [points.heights, start + rise * climb]
    if most < np.inf:
        is_cut = (fall < 0) & (rise > 0) & (heights[1] > most)
        up = np.clip((most - start) / np.where(is_cut, rise, 1.0), 0.0, w)
        down = np.clip((most - end) / np.where(is_cut, -fall, 1.0), 0.0, w)
        places += [np.where(is_cut, right - down, left + climb)]
        places[1] = np.where(is_cut, left + up, left + climb)
        heights[1] = np.where(is_cut, most, heights[1])
        heights += [heights[1]]
    return _Vertices(np.concatenate(places, axis=-1), np.concatenate(heights, axis=-1))


def _as_column(parameter: Array | float) -> Array | float:
    """A parameter that goes along the last but one axis, or a single number."""
    return np.asarray(parameter)[..., None] if np.ndim(parameter) else parameter
