"""Values and slopes of an activation, and the range of its slopes on an interval.

The slope is monotone on every piece (kinds.py). Hence the slopes on [lo, hi] lie between those at
the two ends of the piece's part of [lo, hi], over the pieces that it meets in more than an end.
Slopes that are not constant on a piece are widened, relative to the size s of their terms, by
PAD (4 + |log s|): more than the error of evaluating them (a few units in the last place, and as
many of the exponent x in e^x) or of the break point (where it is a turning point, the slope is flat
there).

Infinity is infinite: the ends of an interval may be, and a slope there is its limit. Break points
that are computed from parameters are off by two roundings, so a piece is taken to begin and end a
little further out (`_blur`). These arguments need products and quotients of parameters that neither
overflow nor vanish: `check` refuses parameters beyond 2^100, and those that must be positive below
2^-100, but for activations that are evaluated with a single rounding, which need no limit.
"""

from __future__ import annotations

import numpy as np

from ...errors import LipoptError
from ...numerics.arrays import Array
from ...numerics.rounding import TINY
from .kinds import KINDS, Kind, Parameters, Slope

PAD = 2e-15  # of slopes that are not constant, relative to the size of their terms (see above)
BREAK_PAD = 4e-16  # of computed break points, relative to them: three roundings
# Slopes that are not constant are rounded outward to multiples of 1 / GRID, as lipcheck does it.
GRID = 2.0**128
# Slopes of a smaller size are widened as if they had this one. What underflows is less than PAD
# times this number.
MIN_SLOPE_SIZE = 2.0**-900
KINK = 1e-14  # slopes on the two sides of a break point that differ by less are the same
POINT = 2.0**-900  # intervals that are no wider, for rounding, may be a point to the checker


def _slope_at(piece: Slope, x: Array | float, parameters: Parameters) -> Array | float:
    """The slope of a piece at x."""
    if callable(piece):
        return piece(x, **parameters)
    if isinstance(piece, str):
        return parameters[piece]
    return piece


def value(kind: str, x: Array, parameters: Parameters) -> Array:
    """The activation at x, elementwise; parameters that are arrays go along the last axis."""
    return np.asarray(KINDS[kind].value(x, **parameters), dtype=np.float64)


def slope(kind: str, x: Array, parameters: Parameters) -> Array:
    """The derivative at x (at a kink, that of the right-hand piece)."""
    spec = KINDS[kind]
    breaks = spec.breaks(**parameters)
    result = np.broadcast_to(_slope_at(spec.slopes[0], x, parameters), x.shape)
    for point, piece in zip(breaks, spec.slopes[1:], strict=True):
        result = np.where(x >= point, _slope_at(piece, x, parameters), result)
    return np.array(result, dtype=np.float64)


def kinks(kind: str, parameters: Parameters) -> tuple[Array | float, ...]:
    """The points where the derivative jumps."""
    spec = KINDS[kind]
    points = spec.breaks(**parameters)
    found = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for point, left, right in zip(points, spec.slopes[:-1], spec.slopes[1:], strict=True):
            before = _slope_at(left, np.asarray(point), parameters)
            after = _slope_at(right, np.asarray(point), parameters)
            if np.any(np.abs(np.subtract(before, after)) > KINK):
                found.append(point)
    return tuple(found)


def slope_range(
    kind: str, lo: Array, hi: Array, parameters: Parameters, *, is_open: bool = False
) -> tuple[Array, Array]:
    """The range of slopes between lo and hi, rounded outward.

    With `is_open`, and for piecewise linear activations, a kink at an end does not count with the
    slope beyond it, unless the interval is a point: docs/theory.md says why. Otherwise it does, so that the
    checker, whose ends are rounded differently, finds the same range. lo and hi may be infinite;
    NaN stands for an end that is not known. Slopes are infinite where nothing is known of them:
    they overflow, or the function is not defined on the whole interval."""
    spec = KINDS[kind]
    lo = np.where(np.isnan(lo), -np.inf, lo)
    hi = np.where(np.isnan(hi), np.inf, hi)
    is_defined = _is_defined(spec, lo, hi)
    if spec.turn is not None:
        lo, hi = _within_two_periods(lo, hi)
    points = [np.asarray(point) for point in breaks_from(kind, lo, parameters)]
    starts = [np.asarray(-np.inf), *points]
    ends = [*points, np.asarray(np.inf)]
    pieces = spec.slopes if spec.turn is None else spec.slopes * len(starts)
    low = np.full(lo.shape, np.inf)
    high = np.full(lo.shape, -np.inf)
    with np.errstate(invalid="ignore"):
        both_sides = (lo == hi) | (hi - lo <= POINT)
    if not (is_open or spec.piecewise_linear):
        both_sides = np.ones(lo.shape, bool)
    with np.errstate(all="ignore"):
        for start, end, piece in zip(starts, ends, pieces, strict=True):
            begin = start - _blur(spec, start)
            finish = end + _blur(spec, end)
            met = (hi > begin) & (lo < finish) | both_sides & (hi >= begin) & (lo <= finish)
            if callable(piece):
                ranges = [
                    _slope_enclosure(spec, piece, np.maximum(lo, start), parameters),
                    _slope_enclosure(spec, piece, np.minimum(hi, end), parameters),
                ]
            else:
                constant = np.asarray(_slope_at(piece, lo, parameters))
                ranges = [(constant, constant)]
            for below, above in ranges:
                low = np.where(met, np.minimum(low, below), low)
                high = np.where(met, np.maximum(high, above), high)
    is_known = is_defined & ~np.isnan(low) & ~np.isnan(high)
    low = np.where(is_known, np.maximum(low, spec.limits[0]), -np.inf)
    high = np.where(is_known, np.minimum(high, spec.limits[1]), np.inf)
    return low, high


def _is_defined(spec: Kind, lo: Array, hi: Array) -> Array:
    """Whether the function is defined on the whole of [lo, hi]."""
    if spec.argument == "positive":
        return lo > 0
    if spec.argument == "not zero":
        return (lo > 0) | (hi < 0)
    return np.ones(lo.shape, bool)


def breaks_from(kind: str, lo: Array, parameters: Parameters) -> tuple[Array | float, ...]:
    """The break points that matter to an interval which begins at lo.

    A periodic slope has all its values between the first three turning points from there on."""
    spec = KINDS[kind]
    if spec.turn is None:
        return spec.breaks(**parameters)
    first = spec.turn + np.pi * np.ceil((lo - spec.turn) / np.pi)
    return (first, first + np.pi, first + 2 * np.pi)


def _within_two_periods(lo: Array, hi: Array) -> tuple[Array, Array]:
    """An interval on which a function of period 2 pi has the same values, with finite ends."""
    length = 4 * np.pi
    hi = np.where(np.isinf(hi), np.where(np.isinf(lo), 0.0, lo) + length, hi)
    return np.where(np.isinf(lo), hi - length, lo), hi


def require_slopes(name: str, kind: str, lo: Array, hi: Array, parameters: Parameters) -> None:
    """Refuse a layer whose slopes have no bound on the intervals [lo, hi] of its argument."""
    spec = KINDS[kind]
    if not spec.is_local:
        return
    low, high = slope_range(kind, lo, hi, parameters)
    unknown = np.isinf(low) | np.isinf(high)
    if not unknown.any():
        return
    first = int(np.argmax(unknown))
    label = f"layer '{name}' ({kind})"
    if np.isinf(lo[first]) and np.isinf(hi[first]):
        raise LipoptError(
            f"{label} has slopes without a bound over the whole space; ask in a ball or a box"
            " (domain=lipopt.Ball(x, radius), or --center and --radius)"
        )
    interval = f"[{lo[first]:.6g}, {hi[first]:.6g}]"
    if not _is_defined(spec, lo, hi)[first]:
        need = "positive" if spec.argument == "positive" else "other than zero"
        raise LipoptError(
            f"{label} needs arguments that are {need}, and entry {first} is only known to lie in"
            f" {interval} over this domain; ask in a smaller box"
        )
    raise LipoptError(
        f"{label} has slopes that overflow where entry {first} of its argument is in {interval};"
        " ask in a smaller box"
    )


def _slope_enclosure(
    spec: Kind, piece: Slope, x: Array, parameters: Parameters
) -> tuple[Array, Array]:
    """The slope at x of a piece where it is not constant, rounded outward."""
    at_x = np.broadcast_to(np.asarray(_slope_at(piece, x, parameters)), x.shape)
    terms = np.abs(at_x) if spec.terms is None else spec.terms(x, **parameters)
    size = np.maximum(terms, MIN_SLOPE_SIZE)
    pad = PAD * size * (4 + np.abs(np.log(size)))
    below = np.floor((at_x - pad) * GRID) / GRID
    above = np.ceil((at_x + pad) * GRID) / GRID
    return below, above


def _blur(spec: Kind, point: Array) -> Array:
    """How far a break point may be from the true one: not at all if it is given.

    Otherwise it has two roundings, 2.3e-16 relative, and adding the blur to it has one more; and
    what underflows."""
    if not spec.computed:
        return np.zeros(point.shape)
    return np.where(np.isfinite(point), BREAK_PAD * np.abs(point) + TINY, 0.0)
