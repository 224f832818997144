"""Activation functions: value, slope, and what is known of both on an interval.

Every activation is described by its break points b_1 < ... < b_r and its slope on each of the r +
1 pieces between them, *monotone on every piece*: break points are kinks and turning points of the
slope alike. Hence the slopes on [lo, hi] lie between the slopes at the two ends of the piece's
part of [lo, hi], over the pieces that it meets in more than an end. Slopes that are not constant
on a piece are widened, relative to the size s of their terms, by PAD (4 + |log s|): more than the
error of evaluating them (a few units in the last place, and as many of the exponent x in e^x) or of
the break point (where it is a turning point, the slope is flat there).

Infinity is infinite: the ends of an interval may be, and a slope there is its limit. Break points
that are computed from parameters are off by two roundings, so a piece is taken to begin and end a
little further out (`_blur`). These arguments need products and quotients of parameters that neither
overflow nor vanish: `check` refuses parameters beyond 2^100, and those that must be positive below
2^-100, but for activations that are evaluated with a single rounding, which need no limit.

`linear_bounds` encloses the activation between two lines, from values and slope ranges alone, so
that one proof serves every activation. An activation is one entry of KINDS: nothing else in this
module knows one by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from scipy.special import erf as erf_function
from scipy.special import expit, ndtr

from ..errors import LipoptError
from ..numerics.arrays import Array
from ..numerics.rounding import TINY

Parameters: TypeAlias = Mapping[str, Array | float]
Sign: TypeAlias = Callable[[Array], Array]  # the identity, or the absolute value
Slope: TypeAlias = Callable[..., Array] | str | float  # a function, a parameter's name, or a number

# How much computed numbers are widened, to enclose the true ones.
PAD = 2e-15  # of slopes that are not constant, relative to the size of their terms (see above)
VALUE_PAD = 1e-14  # of values, relative to 1 + |x| + |value| times `rounding_size`
EXACT_PAD = 1e-15  # of values that are rounded at most once, relative to the value
LINE_PAD = 4e-15  # of the offsets of lines, relative to their terms: 36 roundings; some 20 occur
BREAK_PAD = 4e-16  # of computed break points, relative to them: three roundings

# Slopes that are not constant are rounded outward to multiples of 1 / GRID, as lipcheck does it.
GRID = 2.0**128
# Slopes of a smaller size are widened as if they had this one. What underflows is less than PAD
# times this number.
MIN_SLOPE_SIZE = 2.0**-900
MIN_WIDTH = 1e-300  # the slope of a chord is a quotient by the interval's width, or by this

# Limits on parameters, so that their products and quotients neither overflow nor vanish.
MAX_PARAMETER = 2.0**100
MIN_POSITIVE_PARAMETER = 2.0**-100

# Arguments beyond these are replaced by them. There slopes are at their limits in float64 and up to
# less than 1 / GRID, and intermediate results stay finite.
LOGISTIC_FAR = 800.0  # for e^-x and x e^-x
NORMAL_FAR = 40.0  # for e^(-x^2 / 2) and x times that
GELU_TANH_FAR = 30.0  # for the cube in the argument of the logistic function

CELLS = 16  # cells per interval in `linear_bounds`
# Sides of a hull at the end of an interval are compared a little inside of it, where they differ.
NEAR_END = 2.0**-10  # relative to the interval's width

# Where the second derivative of the function vanishes (to the last place; tested in high
# precision).
SILU_TURN = 2.3993572805154677
GELU_TANH_TURN = 1.4185040087908284
MISH_TURNS = (-2.256376396360793, 1.4905711794854285)
SQRT_2 = 1.4142135623730951
_GELU_TANH_SCALE = 0.7978845608028654  # sqrt(2 / pi)
_GELU_TANH_CUBE = 0.044715  # the coefficient of x^3 in GELU's approximation by tanh


@dataclass(frozen=True)
class Kind:
    """One activation. Its functions take x, where they depend on it, and parameters by name."""

    value: Callable[..., Array]
    breaks: Callable[..., tuple[Array | float, ...]]  # break points, ascending
    slopes: tuple[Slope, ...]  # on every piece between them
    defaults: Mapping[str, float] = field(default_factory=dict)  # the parameters and their defaults
    positive: tuple[str, ...] = ()  # parameters that must be positive
    # A pair of parameters that are the ends of an interval: ordered, and they may be infinite.
    interval: tuple[str, str] | None = None
    exact: bool = False  # whether a value is rounded at most once
    # Whether break points are computed from parameters, with rounding, rather than given.
    computed: bool = False
    # A parameter that is added before the sum is cut off: values have the rounding error of the
    # sum.
    offset: str | None = None
    # The sum of the absolute values of a slope's terms, where they may cancel.
    terms: Callable[..., Array] | None = None

    @property
    def is_unrounded(self) -> bool:
        """Whether values are computed without rounding: x, -x or a given number."""
        return self.exact and all(slope in (-1.0, 0.0, 1.0) for slope in self.slopes)

    @property
    def piecewise_linear(self) -> bool:
        """Whether slopes are constant on every piece: numbers or parameters."""
        return not any(callable(slope) for slope in self.slopes)


def _no_breaks(**_: Any) -> tuple[float, ...]:
    return ()


def _at_zero(**_: Any) -> tuple[float, ...]:
    return (0.0,)


def _slope_at(piece: Slope, x: Array | float, parameters: Parameters) -> Array | float:
    """The slope of a piece at x."""
    if callable(piece):
        return piece(x, **parameters)
    if isinstance(piece, str):
        return parameters[piece]
    return piece


def _softplus(x: Array, beta: float = 1.0) -> Array:
    return np.logaddexp(0.0, beta * x) / beta


def _ramp_ends(alpha: Array | float, beta: Array | float) -> tuple[Array | float, ...]:
    """Where alpha x + beta is 0 and 1: two roundings at most."""
    return (-beta / alpha, (1 - beta) / alpha)


def _silu_slope(x: Array, beta: float, sign: Sign = np.asarray) -> Array:
    u = np.clip(beta * x, -LOGISTIC_FAR, LOGISTIC_FAR)
    s = expit(u)
    return s + sign(u) * s * expit(-u)


def _gelu_slope(x: Array, beta: float, sign: Sign = np.asarray) -> Array:
    u = np.clip(beta * x, -NORMAL_FAR, NORMAL_FAR)
    return ndtr(u) + sign(u) * np.exp(-u * u / 2) / np.sqrt(2 * np.pi)


def _gelu_tanh(x: Array) -> Array:
    return x * expit(2 * _GELU_TANH_SCALE * (x + _GELU_TANH_CUBE * x**3))


def _gelu_tanh_slope(x: Array, sign: Sign = np.asarray) -> Array:
    x = np.clip(x, -GELU_TANH_FAR, GELU_TANH_FAR)
    u = 2 * _GELU_TANH_SCALE * (x + _GELU_TANH_CUBE * x**3)
    inner = 1 + 3 * _GELU_TANH_CUBE * x**2
    return expit(u) + sign(x) * expit(u) * expit(-u) * 2 * _GELU_TANH_SCALE * inner


def _mish_slope(x: Array, sign: Sign = np.asarray) -> Array:
    x = np.clip(x, -LOGISTIC_FAR, LOGISTIC_FAR)
    t = np.tanh(_softplus(x))
    return t + sign(x) * (1 - t) * (1 + t) * expit(x)


KINDS: dict[str, Kind] = {
    "relu": Kind(lambda x: np.maximum(x, 0), _at_zero, (0.0, 1.0), exact=True),
    "abs": Kind(np.abs, _at_zero, (-1.0, 1.0), exact=True),
    "leaky_relu": Kind(
        lambda x, alpha: np.where(x < 0, alpha * x, x),
        _at_zero,
        ("alpha", 1.0),
        {"alpha": 0.01},
        exact=True,
    ),
    "clip": Kind(
        lambda x, low, high: np.clip(x, low, high),
        lambda low, high: (low, high),
        (0.0, 1.0, 0.0),
        {"low": -np.inf, "high": np.inf},
        interval=("low", "high"),
        exact=True,
    ),
    "hard_sigmoid": Kind(
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
        _ramp_ends,
        (0.0, "alpha", 0.0),
        {"alpha": 0.2, "beta": 0.5},
        positive=("alpha",),
        computed=True,
        offset="beta",
    ),
    "hard_silu": Kind(
        lambda x, alpha, beta: x * np.clip(alpha * x + beta, 0, 1),
        _ramp_ends,
        (0.0, lambda x, alpha, beta: 2 * alpha * x + beta, 1.0),
        {"alpha": 0.2, "beta": 0.5},
        positive=("alpha",),
        computed=True,
        offset="beta",
        terms=lambda x, alpha, beta: 2 * alpha * np.abs(x) + np.abs(beta),
    ),
    "hard_swish": Kind(
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        lambda: (-3.0, 3.0),
        (0.0, lambda x: x / 3 + 0.5, 1.0),
        terms=lambda x: np.abs(x) / 3 + 0.5,
    ),
    "elu": Kind(
        lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
        _at_zero,
        (lambda x, alpha: alpha * np.exp(np.minimum(x, 0)), 1.0),
        {"alpha": 1.0},
    ),
    "selu": Kind(
        lambda x, alpha, gamma: gamma * np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
        _at_zero,
        (lambda x, alpha, gamma: alpha * gamma * np.exp(np.minimum(x, 0)), "gamma"),
        {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805},
    ),
    "celu": Kind(
        lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0) / alpha), x),
        _at_zero,
        (lambda x, alpha: np.exp(np.minimum(x, 0) / alpha), 1.0),
        {"alpha": 1.0},
        positive=("alpha",),
    ),
    "softplus": Kind(
        _softplus,
        _no_breaks,
        (lambda x, beta: expit(beta * x),),
        {"beta": 1.0},
        positive=("beta",),
    ),
    "softsign": Kind(
        lambda x: x / (1 + np.abs(x)),
        _at_zero,
        (lambda x: (1 / (1 + np.abs(x))) ** 2,) * 2,
    ),
    "sigmoid": Kind(expit, _at_zero, (lambda x: expit(x) * expit(-x),) * 2),
    "tanh": Kind(np.tanh, _at_zero, (lambda x: 4 * expit(2 * x) * expit(-2 * x),) * 2),
    "erf": Kind(erf_function, _at_zero, (lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x),) * 2),
    "silu": Kind(
        lambda x, beta: x * expit(beta * x),
        lambda beta: (-SILU_TURN / beta, SILU_TURN / beta),
        (_silu_slope,) * 3,
        {"beta": 1.0},
        positive=("beta",),
        computed=True,
        terms=partial(_silu_slope, sign=np.abs),
    ),
    "gelu": Kind(
        lambda x, beta: x * ndtr(beta * x),
        lambda beta: (-SQRT_2 / beta, SQRT_2 / beta),
        (_gelu_slope,) * 3,
        {"beta": 1.0},
        positive=("beta",),
        computed=True,
        terms=partial(_gelu_slope, sign=np.abs),
    ),
    "gelu_tanh": Kind(
        _gelu_tanh,
        lambda: (-GELU_TANH_TURN, GELU_TANH_TURN),
        (_gelu_tanh_slope,) * 3,
        terms=partial(_gelu_tanh_slope, sign=np.abs),
    ),
    "mish": Kind(
        lambda x: x * np.tanh(_softplus(x)),
        lambda: MISH_TURNS,
        (_mish_slope,) * 3,
        terms=partial(_mish_slope, sign=np.abs),
    ),
}


def check(kind: str, parameters: Parameters) -> dict[str, Array | float]:
    """The parameters of an activation as float64, with its defaults filled in.

    Raises LipoptError with what is wrong with them."""
    if kind not in KINDS:
        raise LipoptError(f"unknown activation '{kind}'; use one of {', '.join(sorted(KINDS))}")
    spec = KINDS[kind]
    unknown = set(parameters) - set(spec.defaults)
    if unknown:
        known = sorted(spec.defaults)
        raise LipoptError(
            f"activation '{kind}' has no parameter '{unknown.pop()}'; it takes {known}"
        )
    full: dict[str, Array | float] = {}
    for name, default in spec.defaults.items():
        full[name] = np.asarray(parameters.get(name, default), dtype=np.float64)[()]
    if any(np.isnan(p).any() for p in full.values()):
        raise LipoptError(f"activation '{kind}' has a parameter that is not a number")
    limited = set(full)
    if spec.interval is not None:
        _check_interval(kind, spec.interval, full)
        limited -= set(spec.interval)
    for name, p in full.items():
        if name in limited:
            _check_size(kind, name, p)
    return full


def _check_interval(
    kind: str, names: tuple[str, str], parameters: Mapping[str, Array | float]
) -> None:
    """Refuse two parameters that are not the ends of an interval of numbers."""
    low, high = names
    if not np.all(np.less_equal(parameters[low], parameters[high])):
        raise LipoptError(f"activation '{kind}' needs {low} <= {high}")
    low_is_infinity = np.any(np.equal(parameters[low], np.inf))
    high_is_minus_infinity = np.any(np.equal(parameters[high], -np.inf))
    if low_is_infinity or high_is_minus_infinity:
        raise LipoptError(
            f"activation '{kind}' needs {low} < infinity and {high} > -infinity: "
            "it would have no value"
        )


def _check_size(kind: str, name: str, parameter: Array | float) -> None:
    """Refuse what the error bounds of this module do not cover."""
    spec = KINDS[kind]
    if not np.isfinite(parameter).all():
        raise LipoptError(f"activation '{kind}' has a parameter that is not a finite number")
    if name in spec.positive:
        if not np.all(np.greater(parameter, 0)):
            raise LipoptError(f"activation '{kind}' needs {name} > 0, got {parameter}")
        if np.any(np.less(parameter, MIN_POSITIVE_PARAMETER)):
            raise LipoptError(
                f"activation '{kind}' needs {name} >= 2^-100, got {parameter}; "
                "rescale the layers around it"
            )
    if not spec.exact and np.any(np.abs(parameter) > MAX_PARAMETER):
        raise LipoptError(
            f"activation '{kind}' needs |{name}| <= 2^100, got {parameter}; "
            "rescale the layers around it"
        )


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
    for point, left, right in zip(points, spec.slopes[:-1], spec.slopes[1:], strict=True):
        before = _slope_at(left, point, parameters)
        after = _slope_at(right, point, parameters)
        if np.any(np.abs(np.subtract(before, after)) > VALUE_PAD):
            found.append(point)
    return tuple(found)


def slope_range(
    kind: str, lo: Array, hi: Array, parameters: Parameters, *, is_open: bool = False
) -> tuple[Array, Array]:
    """The range of slopes between lo and hi, rounded outward.

    With `is_open`, and for piecewise linear activations, a kink at an end does not count with the
    slope beyond it, unless lo = hi: docs/theory.md says why. Otherwise it does, so that the
    checker, whose ends are rounded differently, finds the same range. lo and hi may be infinite;
    NaN stands for an end that is not known."""
    spec = KINDS[kind]
    lo = np.where(np.isnan(lo), -np.inf, lo)
    hi = np.where(np.isnan(hi), np.inf, hi)
    points = [np.asarray(point) for point in spec.breaks(**parameters)]
    starts = [np.asarray(-np.inf), *points]
    ends = [*points, np.asarray(np.inf)]
    low = np.full(lo.shape, np.inf)
    high = np.full(lo.shape, -np.inf)
    both_sides = lo == hi
    if not (is_open or spec.piecewise_linear):
        both_sides = np.ones(lo.shape, bool)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start, end, piece in zip(starts, ends, spec.slopes, strict=True):
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
    return low, high


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
    return cells.offsets(np.zeros_like(lo))


@dataclass(frozen=True)
class _Cells:
    """A grid on every interval: values at its points, and slope ranges in its cells."""

    is_linear: bool  # whether the function is linear in every cell
    points: Array  # (n, cells + 1)
    values: Array  # at the points
    low: Array  # (n, cells): the smallest slope in a cell, if it is not linear
    high: Array  # and the largest
    pad: Array  # (n,): a bound on the error of the values

    def offsets(self, k: Array) -> tuple[Array, Array]:
        """Bounds on value(x) - k x over the interval; k has the shape of the intervals, or more.

        A function that is linear in every cell takes them at the points. Otherwise, in a cell of
        width w, g = value - k x has slope in [p, q]; where p < 0 < q, g is at most the height where
        the steepest rise from the left end meets the steepest fall to the right end."""
        k = k[..., None]
        g = self.values - k * self.points
        terms = np.abs(self.values).max(-1) + np.abs(k * self.points).max(-1)
        if self.is_linear:
            pad = self.pad + LINE_PAD * terms + TINY
            return g.min(-1) - pad, g.max(-1) + pad
        left = g[..., :-1]
        right = g[..., 1:]
        w = np.diff(self.points)
        p = self.low - k
        q = self.high - k
        inside = (p < 0) & (q > 0)
        spread = np.where(inside, q - p, 1.0)
        rise = np.where(inside, np.clip((right - left - p * w) / spread, 0.0, w), 0.0)
        fall = np.where(inside, np.clip((left - right + q * w) / spread, 0.0, w), 0.0)
        top = np.maximum(np.maximum(left, right), left + np.maximum(q, 0) * rise)
        bottom = np.minimum(np.minimum(left, right), left + np.minimum(p, 0) * fall)
        # Heights are sums of values, k x, and slopes times w. Each is rounded a few times; a
        # quotient by `spread` is multiplied by p or q, which is no larger.
        terms = terms + (np.maximum(np.abs(p), np.abs(q)) * w).max(-1)
        pad = self.pad + LINE_PAD * terms + TINY
        return bottom.min(-1) - pad, top.max(-1) + pad


def _cells(kind: str, lo: Array, hi: Array, parameters: Parameters) -> _Cells:
    """The grid on [lo, hi]: cells of equal width, and the break points."""
    columns = {name: _as_column(p) for name, p in parameters.items()}
    left = lo[..., None]
    right = hi[..., None]
    is_linear = KINDS[kind].piecewise_linear  # between its break points, which are then enough
    fractions = np.linspace(0.0, 1.0, 2 if is_linear else CELLS + 1)
    points = [left + (hi - lo)[..., None] * fractions]
    for point in KINDS[kind].breaks(**columns):
        points.append(np.broadcast_to(point, left.shape))
    grid = np.sort(np.clip(np.concatenate(points, axis=-1), left, right), axis=-1)
    grid[..., 0] = lo
    grid[..., -1] = hi
    values = value(kind, grid, columns)
    low = np.empty(0)
    high = np.empty(0)
    if not is_linear:
        low, high = slope_range(kind, grid[..., :-1], grid[..., 1:], columns)
    largest = np.abs(values).max(-1)
    if KINDS[kind].exact:
        pad = EXACT_PAD * largest
    else:
        pad = VALUE_PAD * rounding_size(kind, parameters) * (1 + largest + np.abs(grid).max(-1))
    return _Cells(is_linear, grid, values, low, high, pad)


def _as_column(parameter: Array | float) -> Array | float:
    """A parameter that goes along the last but one axis, or a single number."""
    return np.asarray(parameter)[..., None] if np.ndim(parameter) else parameter
