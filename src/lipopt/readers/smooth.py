"""Products, quotients, powers, softmax, normalization and attention, as graphs of activations.

    x y         = ((a x + y / a)^2 - (a x - y / a)^2) / 4
    x / y       = x (1 / y)
    logsumexp   = b + softplus(a - b) for pairs, in rounds, as for a maximum
    softmax_i   = sigmoid(x_i - logsumexp of the others)

Slopes of softmax are bounded over the whole space. Those of products are not: a network with
products has a constant in a ball or a box alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..errors import LipoptError
from ..model.activations.parameters import MAX_EXPONENT
from ..numerics.arrays import Array
from .builder import Builder
from .views import ZERO, View

# Factors of a product are balanced by powers of two, to the square roots of these at most.
LARGEST_RATIO = 2.0**60


def square(builder: Builder, name: str, x: View) -> View:
    """x^2, entry by entry."""
    return builder.activation(name, x, "power", {"exponent": 2.0})


def power(builder: Builder, name: str, x: View, exponent: Array) -> View:
    """x^exponent for one constant exponent; if it is no whole number, x must be positive."""
    exponents = np.unique(exponent)
    if exponents.size != 1:
        raise LipoptError("only powers with a single exponent are supported")
    p = float(exponents[0])
    x = x.moved(lambda i: np.broadcast_to(i, np.broadcast_shapes(i.shape, np.shape(exponent))))
    if p < 0:
        return reciprocal(builder, name, power(builder, f"{name}.power", x, np.asarray(-p)))
    if p == 0:
        raise LipoptError("it is a power of 0, and does not depend on the input")
    if p == 1:
        return x
    if p == 0.5:
        return builder.activation(name, x, "sqrt")
    if p == round(p) and p <= MAX_EXPONENT:
        return builder.activation(name, x, "power", {"exponent": p})
    log = builder.activation(f"{name}.log", x, "log")
    scaled = builder.scale_shift(f"{name}.scaled", log, p, 0.0)
    return builder.activation(name, scaled, "exp")


def exponential(builder: Builder, name: str, base: Array, x: View) -> View:
    """base^x for constant bases: e^(log(base) x)."""
    if not (np.asarray(base) > 0).all():
        raise LipoptError("the base of its power must be positive")
    factor = np.log(np.asarray(base, dtype=np.float64))
    return builder.activation(name, builder.scale_shift(f"{name}.scaled", x, factor, 0.0), "exp")


def reciprocal(builder: Builder, name: str, x: View) -> View:
    """1 / x, entry by entry."""
    return builder.activation(name, x, "reciprocal")


def product(builder: Builder, name: str, x: View, y: View) -> View:
    """x y, entry by entry, with broadcasting."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    x = x.moved(lambda i: np.broadcast_to(i, shape))
    y = y.moved(lambda i: np.broadcast_to(i, shape))
    if x.node == y.node and np.array_equal(x.index, y.index):
        return square(builder, name, x)
    x = x.moved(lambda i: i[..., None])
    y = y.moved(lambda i: i[..., None])
    return sum_of_products(builder, name, x, y)


def sum_of_products(builder: Builder, name: str, x: View, y: View) -> View:
    """The sum of x y over the last axis, of two tensors of the same shape.

    A factor that is constant, as what a mask hides, makes a linear term of its product."""
    x_constants = builder.constants(x)
    y_constants = builder.constants(y)
    is_open = np.isnan(x_constants) & np.isnan(y_constants)
    by_x = np.where(np.isnan(x_constants), 0.0, x_constants)
    by_y = np.where(np.isnan(y_constants) | ~np.isnan(x_constants), 0.0, y_constants)
    views = []
    factors: list[Array | float] = []
    if is_open.any():
        pair = _squares(
            builder, name, View(x.node, x.index[is_open]), View(y.node, y.index[is_open])
        )
        for squares, factor in zip(pair, (0.25, -0.25), strict=True):
            index = np.full(x.shape, ZERO)
            index[is_open] = squares.index
            views.append(View(squares.node, index))
            factors.append(factor)
    for view, constants in ((y, by_x), (x, by_y)):
        if constants.any():
            views.append(view)
            factors.append(constants)
    if not views:
        raise LipoptError("all of its products are zero, and do not depend on the input")
    return builder.add(name, views, factors, is_summed=True)


def _squares(builder: Builder, name: str, x: View, y: View) -> tuple[View, View]:
    """(a x + y / a)^2 and (a x - y / a)^2, entry by entry.

    Slopes of the two squares are as exact as those of both factors together. So the factors are
    balanced: with a = sqrt(spread of y / spread of x), rounded to a power of two, both change about
    as much between neighboring inputs, and no factor loses more than the other."""
    with np.errstate(all="ignore"):
        ratio = builder.spread(y) / builder.spread(x)
        ratio = np.where((ratio > 0) & np.isfinite(ratio), ratio, 1.0)
    ratio = np.clip(ratio, 1 / LARGEST_RATIO, LARGEST_RATIO)
    scale = 2.0 ** np.round(np.log2(ratio) / 2)
    plus = builder.add(f"{name}.plus", [x, y], [scale, 1 / scale])
    minus = builder.add(f"{name}.minus", [x, y], [scale, -1 / scale])
    return (
        square(builder, f"{name}.plus.square", plus),
        square(builder, f"{name}.minus.square", minus),
    )


def quotient(builder: Builder, name: str, x: View | Array, y: View) -> View:
    """x / y, entry by entry, with broadcasting."""
    inverse = reciprocal(builder, f"{name}.reciprocal", y)
    if isinstance(x, View):
        return product(builder, name, x, inverse)
    return builder.scale_shift(name, inverse, np.asarray(x), 0.0)


def matmul(builder: Builder, name: str, x: View, y: View) -> View:
    """x @ y for two tensors that depend on the input, with NumPy's rules for vectors and stacks."""
    is_row = len(x.shape) == 1
    is_column = len(y.shape) == 1
    if is_row:
        x = x.moved(lambda i: i[None])
    if is_column:
        y = y.moved(lambda i: i[:, None])
    if x.shape[-1] != y.shape[-2]:
        raise LipoptError(
            f"tensors of shapes {list(x.shape)} and {list(y.shape)} cannot be multiplied"
        )
    stacks = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    shape = (*stacks, x.shape[-2], y.shape[-1], x.shape[-1])
    left = x.moved(lambda i: np.broadcast_to(i[..., :, None, :], shape))
    right = y.moved(lambda i: np.broadcast_to(np.swapaxes(i, -1, -2)[..., None, :, :], shape))
    result = sum_of_products(builder, name, left, right)
    if is_column:
        result = result.moved(lambda i: i[..., 0])
    if is_row:
        result = result.moved(lambda i: np.take(i, 0, axis=-1 if is_column else -2))
    return result


# ---- softmax


@dataclass(frozen=True)
class _Round:
    """One round of a tree over the last axis: pairs become one, an odd entry stays."""

    first: View
    second: View
    rest: View | None


def _part(x: View, start: int, stop: int) -> View:
    """Some entries of the last axis."""
    return x.moved(lambda i: i[..., start:stop])


def _log_sum(builder: Builder, name: str, a: View, b: View) -> View:
    """log(e^a + e^b) = b + softplus(a - b)."""
    difference = builder.add(f"{name}.difference", [a, b], [1.0, -1.0])
    gain = builder.activation(f"{name}.softplus", difference, "softplus")
    return builder.add(name, [b, gain], [1.0, 1.0])


def _rounds(builder: Builder, name: str, x: View) -> list[_Round]:
    """The rounds of pairs from the entries of the last axis to the last two."""
    rounds: list[_Round] = []
    while (count := x.shape[-1]) > 1:
        half = count // 2
        first = _part(x, 0, half)
        second = _part(x, half, 2 * half)
        rest = _part(x, 2 * half, count) if count % 2 else None
        rounds.append(_Round(first, second, rest))
        if count > 2:
            pairs = _log_sum(builder, f"{name}.round{len(rounds)}", first, second)
            x = pairs if rest is None else builder.concatenate(f"{name}.join", [pairs, rest], -1)
        else:
            break
    return rounds


def logsumexp(builder: Builder, name: str, x: View, axes: Sequence[int], keep: bool) -> View:
    """log(sum of e^x) over axes, which stay with length 1 if `keep`."""
    gone = sorted({axis % len(x.shape) for axis in axes})
    kept = [axis for axis in range(len(x.shape)) if axis not in gone]
    shape = [x.shape[axis] for axis in kept]
    flat = x.moved(lambda i: i.transpose(*kept, *gone).reshape(*shape, -1))
    rounds = _rounds(builder, name, flat)
    total = flat
    if rounds:
        total = _log_sum(builder, name, rounds[-1].first, rounds[-1].second)
    total = total.moved(lambda i: i[..., 0])
    return total.moved(lambda i: np.expand_dims(i, tuple(gone))) if keep else total


def log_odds(builder: Builder, name: str, x: View) -> View:
    """x_i - logsumexp of the other entries of the last axis: the log-odds of a softmax.

    The tree of pairs is walked back: what is outside of an entry is its partner, and what is
    outside of the pair."""
    outside: View | None = None
    for number, step in reversed(list(enumerate(_rounds(builder, name, x)))):
        label = f"{name}.back{number}"
        if outside is None:
            outside = builder.concatenate(f"{label}.join", [step.second, step.first], -1)
            continue
        half = step.first.shape[-1]
        beyond = _part(outside, 0, half)
        parts = [
            _log_sum(builder, f"{label}.first", step.second, beyond),
            _log_sum(builder, f"{label}.second", step.first, beyond),
        ]
        if step.rest is not None:
            parts.append(_part(outside, half, half + 1))
        outside = builder.concatenate(f"{label}.join", parts, -1)
    assert outside is not None
    return builder.add(f"{name}.odds", [x, outside], [1.0, -1.0])


def softmax(builder: Builder, name: str, x: View, axis: int, is_log: bool = False) -> View | Array:
    """The softmax along an axis, or its logarithm; that of a single entry is a constant.

    It is the sigmoid of the log-odds, so that what is known of it stays in [0, 1]. Entries that a
    mask hides are 0."""
    last = x.moved(lambda i: np.moveaxis(i, axis, -1))
    if last.shape[-1] == 1:
        return np.zeros(x.shape) if is_log else np.ones(x.shape)
    last, is_seen = builder.without_mask(name, last)
    if not is_seen.all():
        if is_log:
            raise LipoptError("the logarithm of what its mask hides is infinite")
        weights = _masked_softmax(builder, name, last, is_seen)
        return weights.moved(lambda i: np.moveaxis(i, -1, axis))
    odds = log_odds(builder, name, last)
    act = builder.log_sigmoid if is_log else partial(builder.activation, kind="sigmoid")
    result = act(name, odds)
    return result.moved(lambda i: np.moveaxis(i, -1, axis))


# ---- normalization and attention


def normalize(
    builder: Builder,
    name: str,
    x: View,
    axes: Sequence[int],
    epsilon: float,
    is_centered: bool = True,
) -> View:
    """x less its mean over axes, divided by its standard deviation there: sqrt(variance + epsilon).

    Without `is_centered`, x divided by the root of its mean square (RMS normalization)."""
    centered = x
    if is_centered:
        mean = builder.reduce(f"{name}.mean", x, axes, True, "mean")
        centered = builder.add(f"{name}.centered", [x, mean], [1.0, -1.0])
    squares = square(builder, f"{name}.square", centered)
    variance = builder.reduce(f"{name}.variance", squares, axes, True, "mean")
    shifted = builder.scale_shift(f"{name}.epsilon", variance, 1.0, epsilon)
    deviation = builder.activation(f"{name}.deviation", shifted, "sqrt")
    return quotient(builder, name, centered, deviation)


def normalize_groups(builder: Builder, name: str, x: View, groups: int, epsilon: float) -> View:
    """`normalize` for groups of channels (axis 1), each with all of its places."""
    apart = x.moved(lambda i: i.reshape(x.shape[0], groups, -1))
    return normalize(builder, name, apart, [2], epsilon).moved(lambda i: i.reshape(x.shape))


def by_channel(
    builder: Builder, name: str, x: View, scale: Array | None, shift: Array | None
) -> View:
    """scale * x + shift, with one of each for a channel (axis 1), or none."""
    along = (-1,) + (1,) * (len(x.shape) - 2)
    factors = np.ones(()) if scale is None else np.reshape(scale, along)
    shifts = np.zeros(()) if shift is None else np.reshape(shift, along)
    return builder.scale_shift(name, x, factors, shifts)


def attention(
    builder: Builder,
    name: str,
    query: View,
    key: View,
    value: View,
    mask: Array | None = None,
    scale: float | None = None,
) -> View:
    """softmax(scale query @ key^T + mask) @ value; masked entries are -infinity.

    Keys and values may have fewer heads (axis -3): each is for as many heads of the query."""
    key = _for_all_heads(key, query)
    value = _for_all_heads(value, query)
    turned = key.moved(lambda i: np.swapaxes(i, -1, -2))
    scores = matmul(builder, f"{name}.scores", query, turned)
    factor = 1 / np.sqrt(query.shape[-1]) if scale is None else scale
    shift = np.broadcast_to(0.0 if mask is None else mask, scores.shape)
    scaled = builder.scale_shift(f"{name}.scaled", scores, factor, shift)
    weights = softmax(builder, f"{name}.softmax", scaled, -1)
    if isinstance(weights, View):
        return matmul(builder, name, weights, value)
    return builder.left_matmul(name, weights, value)


def attention_mask(mask: Any, is_causal: bool, queries: int, keys: int) -> Array | None:
    """What is added to the scores of attention: a mask, of numbers or of what is seen, and
    minus infinity for keys after the query."""
    if isinstance(mask, View):
        raise LipoptError("its mask depends on the input, which is not supported: make it constant")
    shift = None if mask is None else np.asarray(mask)
    if shift is not None and shift.dtype == bool:
        shift = np.where(shift, 0.0, -np.inf)
    if not is_causal:
        return shift
    causal = np.where(np.tri(queries, keys, dtype=bool), 0.0, -np.inf)
    return causal if shift is None else shift + causal


def _for_all_heads(x: View, query: View) -> View:
    """Keys or values, with each head as often as there are heads of the query for it."""
    if len(x.shape) < 3 or x.shape[-3] == query.shape[-3]:
        return x
    times = query.shape[-3] // x.shape[-3]
    if times * x.shape[-3] != query.shape[-3]:
        raise LipoptError(f"{query.shape[-3]} heads cannot share {x.shape[-3]} heads of keys")
    return x.moved(lambda i: np.repeat(i, times, axis=-3))


def _masked_softmax(builder: Builder, name: str, x: View, is_seen: Array) -> View:
    """The softmax over those entries of the last axis that are seen; the others are 0."""
    rows = is_seen.reshape(-1, x.shape[-1])
    if not rows.any(axis=1).all():
        raise LipoptError("a row of its mask hides all entries")
    entries = x.index.reshape(rows.shape)
    which = np.zeros(rows.shape, np.int64)  # which option an entry is taken from; 0: it is hidden
    options: list[View | Array] = [np.zeros(())]
    for pattern in np.unique(rows, axis=0):
        place = np.ix_(np.flatnonzero((rows == pattern).all(axis=1)), np.flatnonzero(pattern))
        which[place] = len(options)
        if pattern.sum() == 1:
            options.append(np.ones(()))
            continue
        seen = softmax(builder, f"{name}.{len(options)}", View(x.node, entries[place]), -1)
        assert isinstance(seen, View)
        index = np.full(rows.shape, ZERO)
        index[place] = seen.index
        options.append(View(seen.node, index))
    weights = builder.choose(name, which, options)
    return weights.moved(lambda i: i.reshape(x.shape))
