"""Every network that is read is compared with its original: the same values at random points.

All tensors of the model that depend on its input are compared, not its output alone, so that an
error shows even where a later layer would hide it, and the first tensor that differs can be named.

Two programs that compute the same function differ by rounding. How much rounding explains is tried
out: the network is evaluated again with a random error in every operation, of the size that the
original's precision allows, and what that changes, times a safety factor, is forgiven. So a deep
network that amplifies rounding is forgiven more than a shallow one. Random errors may be small by
chance, and in a large network some are: at least the root mean square of independent errors counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..errors import LipoptError
from ..model import activations
from ..model.nodes import Activation, Affine, Input, Node, value_of
from ..numerics.arrays import Array, squares
from ..numerics.blas import blas_threads
from .builder import Builder
from .views import ZERO, View

SIZES = (0.01, 0.1, 1.0, 1.0, 10.0, 1000.0)  # standard deviations of the points, one each
PAIRS = 2  # evaluations with random rounding errors, and with the opposite errors, for each point
SAFETY = 50.0  # how many times the typical effect of rounding is forgiven
SEED = 20260

Original = Callable[[Array], Mapping[str, Array]]  # an input -> the model's tensors by name


def check_against(
    original: Original,
    builder: Builder,
    tensors: Mapping[str, View],
    describe: Callable[[str], str],
    unit: float | None = None,
) -> None:
    """Raise an error if a tensor of the original has other values than its view of our nodes.

    `tensors` are in the order in which they are computed; `describe` says what is wrong if
    one differs. Tensors that the original does not return are not compared. `unit` is the
    original's relative rounding error, if its tensors do not tell."""
    rng = np.random.default_rng(SEED)
    nodes = builder.nodes
    source = nodes[0]
    assert isinstance(source, Input)
    points = _short(rng.normal(size=(source.size, len(SIZES))) * SIZES)
    theirs = [original(point) for point in points.T]
    with blas_threads(max(node.size for node in nodes)), np.errstate(all="ignore"):
        values = _node_values(nodes, points)
        errors = _rounding_errors(builder, values, unit or _precision(theirs), rng)
    overflowed: set[int] = set()
    for name, view in tensors.items():
        compared = 0
        for k, found in enumerate(theirs):
            if name not in found or k in overflowed:
                continue
            expected = np.asarray(found[name])
            if expected.shape != view.shape:
                raise LipoptError(
                    f"{describe(name)}: it computes a tensor of shape"
                    f" {list(expected.shape)}, lipopt's has {list(view.shape)}; {REPORT}"
                )
            ours = _entries(values[view.node][:, k], view)
            forgiven = _entries(errors[view.node][:, k], view)
            compared += _compare(ours, expected, forgiven, describe(name), SIZES[k])
            if not (np.isfinite(expected) | builder.hides(view)).all():
                # What follows may be finite again, and is another function than over the reals.
                overflowed.add(k)
        if compared == 0 and name in theirs[0]:
            raise LipoptError(
                "the model cannot be compared with what was read: its values are NaN or infinite at"
                " every point that was tried (check=False reads it all the same)"
            )


REPORT = "please report this, with the model if you can (check=False reads it all the same)"


def _compare(ours: Array, theirs: Array, forgiven: Array, what: str, size: float) -> int:
    """Compare one tensor at one point; the number of entries that could be compared."""
    finite = np.isfinite(theirs) & np.isfinite(ours) & np.isfinite(forgiven)
    differences = np.abs(np.where(finite, ours, 0.0) - np.where(finite, theirs, 0.0))
    wrong = differences > np.where(finite, forgiven, np.inf)
    if wrong.any():
        place = np.unravel_index(np.argmax(wrong), wrong.shape)
        raise LipoptError(
            f"{what}: entry {[int(k) for k in place]} of its result is"
            f" {theirs[place]:.9g}, lipopt's is {ours[place]:.9g}, at a random input of size {size:g};"
            f" {REPORT}"
        )
    return int(finite.sum())


def _short(points: Array) -> Array:
    """The points cut to eight binary digits, so that every floating-point format holds them."""
    bits = points.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def _entries(column: Array, view: View) -> Array:
    """The entries of a view, given the values of its node."""
    return np.where(view.index == ZERO, 0.0, column[view.index])


def _precision(theirs: Sequence[Mapping[str, Array]]) -> float:
    """The coarsest relative rounding error among the original's tensors."""
    kinds = {np.asarray(array).dtype for found in theirs for array in found.values()}
    units = [float(np.finfo(kind).eps) / 2 for kind in kinds if kind.kind == "f"]
    return max(units, default=2.0**-53)


def _node_values(nodes: Sequence[Node], points: Array) -> list[Array]:
    """The values of every node, a column for each point."""
    values: list[Array] = []
    for node in nodes:
        values.append(points if isinstance(node, Input) else value_of(node, values))
    return values


def _rounding_errors(
    builder: Builder,
    values: Sequence[Array],
    unit: float,
    rng: np.random.Generator,
) -> list[Array]:
    """How far rounding may take every value from what it is, a column for each point."""
    trials = 2 * PAIRS
    noisy: list[Array] = []
    spreads: list[Array] = []
    errors: list[Array] = []
    for i, node in enumerate(builder.nodes):
        if isinstance(node, Input):
            noisy.append(np.tile(values[i], trials))
            spreads.append(np.zeros_like(values[i]))
            errors.append(np.zeros_like(values[i]))
            continue
        size = unit * builder.inexact.get(i, 1.0) * _size(node, values)
        if i in builder.summed:
            size = size + unit * builder.summed[i][:, None]
        size = size + builder.gaps.get(i, 0.0)
        # With opposite errors one of the two shows on the far side of a kink, where the other is 0.
        half = rng.normal(size=(node.size, PAIRS * values[i].shape[1]))
        noise = np.concatenate([half, -half], axis=1)
        noisy.append(value_of(node, noisy) + np.tile(size, trials) * noise)
        deviations = noisy[i].reshape(node.size, trials, -1) - values[i][:, None, :]
        typical = np.sqrt(np.mean(deviations**2, axis=1))
        spreads.append(np.hypot(_spread(node, values, spreads), size))
        # One node of ours may be several operations of theirs.
        errors.append(SAFETY * (np.fmax(typical, spreads[i]) + 2 * size))
    return errors


def _spread(node: Node, values: Sequence[Array], spreads: Sequence[Array]) -> Array:
    """How far errors of its sources take a node's values, typically, if they are independent."""
    assert not isinstance(node, Input)
    if isinstance(node, Affine):
        total = np.zeros((node.size, values[0].shape[1]))
        for source, matrix in node.terms:
            total += squares(matrix) @ spreads[source] ** 2
        return np.sqrt(total)
    y = values[node.source]
    spread = spreads[node.source]
    ends = []
    for end in (y - spread, y, y + spread):
        ends.append(activations.value(node.kind, end.T, node.parameters).T)
    return np.fmax(np.abs(ends[0] - ends[1]), np.abs(ends[2] - ends[1]))


def _size(node: Node, values: Sequence[Array]) -> Array:
    """The sum of the absolute values of what a node adds up: what its rounding is relative to."""
    assert not isinstance(node, Input)
    if isinstance(node, Affine):
        total = np.abs(node.bias.astype(np.float64))[:, None]
        for source, matrix in node.terms:
            total = total + abs(matrix) @ np.abs(values[source])
        return total
    argument = np.abs(values[node.source])
    result = np.abs(activations.value(node.kind, values[node.source].T, node.parameters).T)
    return argument + result + _cancelled(node)


def _cancelled(node: Activation) -> Array | float:
    """The size of a term that cancels where an activation is written as e^x - 1 or log(1 + e^x).

    Its rounding error stays where x and the value of the activation are tiny."""
    p = {name: np.atleast_1d(value)[:, None] for name, value in node.parameters.items()}
    if node.kind in ("elu", "celu"):
        return np.abs(p["alpha"])
    if node.kind == "selu":
        return np.abs(p["alpha"] * p["gamma"])
    if node.kind == "softplus":
        return 1.0 / p["beta"]
    return 0.0
