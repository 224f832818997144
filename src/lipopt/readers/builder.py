"""From a model's tensor operations to a Network's nodes: the vocabulary that the readers share.

Every method takes views and constants and returns a view; `name` is the model's name of the layer,
for messages. What a reader's table cannot say in these words, lipopt does not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..model.network import Network
from ..model.nodes import Activation, Affine, Input, Node, value_of
from ..numerics.arrays import Array, Matrix, tidy
from .views import OUTSIDE, ZERO, Pads, View, whole

# Inputs at which tensors are evaluated to see how much they change: standard normal ones, and
# neighbors of each, as far away as balls that people ask about reach.
TYPICAL_INPUTS = 16
TYPICAL_NEIGHBORS = 16
TYPICAL_STEP = 0.1
TYPICAL_SEED = 20261

# What is added to the arguments of a softmax that it does not see: minus infinity, or the least
# number of a type, below which e^x is zero in every type.
HIDDEN_BELOW = -1e30

INTERPOLATED = 16.0  # rounding errors of the weights that resizing computes, cubic ones above all

Reduction = Literal["sum", "mean", "max", "min"]


def _typical_inputs(size: int) -> Array:
    """Inputs as columns: each is followed by its neighbors."""
    rng = np.random.default_rng(TYPICAL_SEED)
    points = rng.normal(size=(size, TYPICAL_INPUTS, 1))
    steps = TYPICAL_STEP * rng.normal(size=(size, TYPICAL_INPUTS, TYPICAL_NEIGHBORS))
    return np.concatenate([points, points + steps], axis=2).reshape(size, -1)


class Builder:
    """Collects the nodes of a network."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._selected: dict[tuple[int, bytes], int] = {}
        # For nodes whose bias is a sum: the sizes of its terms, which an original may add in turn.
        self.summed: dict[int, Array] = {}
        # For nodes whose weights an original computes itself: how many rounding errors they have.
        self.inexact: dict[int, float] = {}
        # For nodes that are known to differ from an original: by how much at most.
        self.gaps: dict[int, float] = {}
        self._typical: list[Array] = []  # values of the first nodes at typical inputs

    def input(self, shape: Sequence[int], batch: bool = True) -> View:
        """The input; with `batch`, the first entry of `shape` is a batch dimension of 1."""
        own = tuple(shape[1:] if batch else shape)
        self.nodes.append(Input(own))
        return whole(0, shape)

    def inputs(self, shapes: Sequence[Sequence[int]]) -> list[View]:
        """Several inputs with these shapes, one after the other in the network's flat input."""
        sizes = [prod(shape) for shape in shapes]
        self.nodes.append(Input((sum(sizes),)))
        views = []
        start = 0
        for shape, size in zip(shapes, sizes, strict=True):
            views.append(View(0, np.arange(start, start + size).reshape(tuple(shape))))
            start += size
        return views

    def network(self, output: View) -> Network:
        """The network that ends in the given view, without the nodes that do not lead there."""
        last = self.materialize("output", output)
        if isinstance(self.nodes[last], Input):
            identity = sp.eye_array(output.size, format="csr")
            last = self.affine("output", [(0, identity)], np.zeros(output.size))
        used = {0, last}
        for i in range(last, 0, -1):
            if i in used:
                used.update(self.nodes[i].sources)
        order = sorted(used)
        place = {old: new for new, old in enumerate(order)}
        return Network(tuple(_renumbered(self.nodes[i], place) for i in order))

    # ---- nodes

    def materialize(self, name: str, x: View) -> int:
        """A node whose values are exactly the entries of the view, in C order."""
        if self._is_whole(x):
            return x.node
        flat = x.index.reshape(-1)
        key = (x.node, flat.tobytes())
        if key not in self._selected:
            self._selected[key] = self.affine(name, [self._term(x)], np.zeros(x.size))
        return self._selected[key]

    def holds(self, node: int, x: View) -> bool:
        """Whether a node has exactly the entries of the view, in C order."""
        if self._is_whole(x):
            return x.node == node
        return self._selected.get((x.node, x.index.reshape(-1).tobytes())) == node

    def _is_whole(self, x: View) -> bool:
        """Whether the view is its node, entry by entry."""
        size = self.nodes[x.node].size
        return x.size == size and np.array_equal(x.index.reshape(-1), np.arange(size))

    def _materialized(self, name: str, x: View) -> View:
        """The same tensor as a view of all entries of one node, without places of ZERO."""
        return whole(self.materialize(f"{name}.input", x), x.shape)

    def _term(self, x: View, factors: Array | None = None) -> tuple[int, Matrix]:
        """A source and the matrix that takes its values to the entries of x, times factors."""
        flat = x.index.reshape(-1)
        kept = np.flatnonzero(flat >= 0)
        data = np.ones(len(kept)) if factors is None else factors.reshape(-1)[kept]
        shape = (len(flat), self.nodes[x.node].size)
        return x.node, sp.csr_array((data, (kept, flat[kept])), shape=shape)

    def affine(self, name: str, terms: Sequence[tuple[int, Matrix]], bias: Array) -> int:
        sums: dict[int, Matrix] = {}
        for source, matrix in terms:
            sums[source] = sums[source] + matrix if source in sums else matrix
        matrices = tuple(tidy(matrix) for matrix in sums.values())
        self.nodes.append(Affine(name, tuple(sums), matrices, np.ascontiguousarray(real(bias))))
        return len(self.nodes) - 1

    def spread(self, x: View) -> Array:
        """How much every entry of a tensor changes between neighboring inputs.

        That is the root mean square over the neighbors of an input, and the mean over inputs where
        it is finite; 0 for what never changes."""
        with np.errstate(all="ignore"):
            for node in self.nodes[len(self._typical) :]:
                if isinstance(node, Input):
                    self._typical.append(_typical_inputs(node.size))
                else:
                    self._typical.append(value_of(node, self._typical))
            values = self._typical[x.node].reshape(-1, TYPICAL_INPUTS, 1 + TYPICAL_NEIGHBORS)
            steps = values[:, :, 1:] - values[:, :, :1]
            changes = np.sqrt(np.mean(steps**2, axis=2))
            is_counted = np.isfinite(changes)
            totals = np.where(is_counted, changes, 0.0).sum(axis=1)
            spreads = totals / np.maximum(is_counted.sum(axis=1), 1)
        return np.where(x.index >= 0, spreads[x.index], 0.0)

    def constants(self, x: View) -> Array:
        """The values of those entries of a tensor that do not depend on the input; NaN for others."""
        node = self.nodes[x.node]
        values = np.full(node.size, np.nan)
        if isinstance(node, Affine):
            weights = np.zeros(node.size)
            for matrix in node.matrices:
                weights = weights + abs(matrix).sum(axis=1)
            values = np.where(weights == 0, node.bias, np.nan)
        return np.where(x.index == ZERO, 0.0, values[x.index])

    def without_mask(self, name: str, x: View) -> tuple[View, Array]:
        """x with zeros in place of what a mask hides from a softmax, and which entries are seen."""
        node = self.nodes[x.node]
        is_hidden = self.hides(x)
        if not isinstance(node, Affine) or not is_hidden.any():
            return x, ~is_hidden
        terms = list(node.terms)
        bias = np.where(node.bias <= HIDDEN_BELOW, 0.0, node.bias)
        return View(self.affine(f"{name}.seen", terms, bias), x.index), ~is_hidden

    def hides(self, x: View) -> Array:
        """Which entries of a tensor are those that a mask was added to."""
        node = self.nodes[x.node]
        is_hidden = np.zeros(node.size, dtype=bool)
        if isinstance(node, Affine):
            is_hidden = node.bias <= HIDDEN_BELOW
        return (x.index >= 0) & is_hidden[x.index]

    # ---- linear maps

    def contract(self, name: str, x: View, weight: Array, bias: Array | None = None) -> View:
        """Matrices applied to the rows of x: (b, i, k) with weights (b, j, k) -> (b, i, j).

        The bias has one entry for each j."""
        stacks, rows, inputs = x.shape
        outputs = weight.shape[1]
        if weight.shape != (stacks, outputs, inputs):
            raise LipoptError(
                f"a weight of shape {list(weight.shape[1:])} does not fit an input of {inputs} entries"
            )
        if stacks == rows == 1:
            source = self.materialize(f"{name}.input", x)
            term = (source, weight[0])
        else:
            shape = (stacks, rows, outputs, inputs)
            columns = np.broadcast_to(x.index[:, :, None, :], shape)
            data = np.broadcast_to(weight[:, None, :, :], shape)
            size = self.nodes[x.node].size
            term = (x.node, from_rows(columns, data, stacks * rows * outputs, size))
        shift = np.zeros(outputs) if bias is None else np.broadcast_to(bias, (outputs,))
        node = self.affine(name, [term], np.tile(shift, stacks * rows))
        return whole(node, (stacks, rows, outputs))

    def linear(self, name: str, x: View, weight: Matrix, bias: Array | None) -> View:
        """weight (outputs, inputs), dense or sparse, applied to the last axis of x."""
        outputs, inputs = weight.shape
        if inputs != x.shape[-1]:
            raise LipoptError(
                f"a weight of shape {[outputs, inputs]} does not fit an input of {x.shape[-1]} entries"
            )
        rows = x.moved(lambda i: i.reshape(1, -1, inputs))
        if sp.issparse(weight):
            source = self.materialize(f"{name}.input", x)
            matrix = sp.kron(sp.eye_array(rows.shape[1]), weight, format="csr")
            shift = np.zeros(outputs) if bias is None else np.broadcast_to(bias, (outputs,))
            node = self.affine(name, [(source, matrix)], np.tile(shift, rows.shape[1]))
            result = whole(node, (1, rows.shape[1], outputs))
        else:
            result = self.contract(name, rows, weight[None], bias)
        return result.moved(lambda i: i.reshape(*x.shape[:-1], outputs))

    def matmul(self, name: str, x: View, weight: Array) -> View:
        """x @ weight, with NumPy's rules for vectors and stacks of matrices."""
        vector = weight.ndim == 1
        if vector:
            weight = weight[:, None]
        row = len(x.shape) == 1
        if row:
            x = x.moved(lambda i: i[None])
        stacks = np.broadcast_shapes(x.shape[:-2], weight.shape[:-2])
        if prod(weight.shape[:-2]) == 1:
            result = self.linear(name, x, weight.reshape(weight.shape[-2:]).T, None)
            result = result.moved(lambda i: i.reshape(*stacks, *i.shape[-2:]))
        else:
            wide = x.moved(lambda i: np.broadcast_to(i, (*stacks, *i.shape[-2:])))
            flat = wide.moved(lambda i: i.reshape(-1, *i.shape[-2:]))
            matrices = np.broadcast_to(weight, (*stacks, *weight.shape[-2:]))
            matrices = np.swapaxes(matrices.reshape(-1, *weight.shape[-2:]), 1, 2)
            result = self.contract(name, flat, matrices)
            result = result.moved(lambda i: i.reshape(*stacks, *i.shape[-2:]))
        if vector:
            result = result.moved(lambda i: i[..., 0])
        if row:
            axis = -1 if vector else -2
            result = result.moved(lambda i: np.squeeze(i, axis))
        return result

    def left_matmul(self, name: str, weight: Array, x: View) -> View:
        """weight @ x = (x^T @ weight^T)^T."""
        if len(x.shape) == 1:
            return self.matmul(name, x, np.swapaxes(weight, -1, -2) if weight.ndim > 1 else weight)
        vector = weight.ndim == 1
        turned = weight if vector else np.swapaxes(weight, -1, -2)
        result = self.matmul(name, x.moved(lambda i: np.swapaxes(i, -1, -2)), turned)
        return result if vector else result.moved(lambda i: np.swapaxes(i, -1, -2))

    def along(self, name: str, x: View, axis: int, weight: Array) -> View:
        """weight (outputs, inputs) applied to one axis of x."""
        last = x.moved(lambda i: np.moveaxis(i, axis, -1))
        result = self.linear(name, last, sp.csr_array(weight), None)
        return result.moved(lambda i: np.moveaxis(i, -1, axis))

    def scale_shift(self, name: str, x: View, scale: Any, shift: Any) -> View:
        """scale * x + shift, entry by entry, with broadcasting; both keep their precision."""
        scale = real(scale)
        shift = real(shift)
        shape = np.broadcast_shapes(x.shape, scale.shape, shift.shape)
        shifts = np.broadcast_to(shift, shape).reshape(-1).copy()
        x = self._materialized(name, x)
        before = self.nodes[x.node]
        plain = shape == x.shape and bool((scale == 1).all())
        if plain and isinstance(before, Affine) and not before.bias.any():
            # The bias of a layer, added as an operation of its own: one node instead of two.
            terms = list(before.terms)
            return whole(self.affine(name, terms, shifts), shape)
        wide = x.moved(lambda i: np.broadcast_to(i, shape))
        term = self._term(wide, np.broadcast_to(scale, shape))
        return whole(self.affine(name, [term], shifts), shape)

    def add(
        self,
        name: str,
        views: Sequence[View],
        factors: Sequence[Array | float],
        is_summed: bool = False,
    ) -> View:
        """A sum of tensors with factors, with broadcasting; also over the last axis if `is_summed`."""
        shape = np.broadcast_shapes(*(x.shape for x in views))
        terms = []
        for x, factor in zip(views, factors, strict=True):
            wide = x.moved(lambda i: np.broadcast_to(i, shape))
            terms.append(self._term(wide, np.broadcast_to(factor, shape)))
        if is_summed:
            count = shape[-1]
            shape = shape[:-1]
            sums = sp.kron(sp.eye_array(prod(shape)), np.ones((1, count)), format="csr")
            terms = [(source, sums @ matrix) for source, matrix in terms]
        return whole(self.affine(name, terms, np.zeros(prod(shape))), shape)

    def total(self, name: str, parts: Sequence[View | Array], signs: Sequence[float]) -> View:
        """A sum of tensors and constants with factors, with broadcasting."""
        views = [x for x in parts if isinstance(x, View)]
        factors = [s for x, s in zip(parts, signs, strict=True) if isinstance(x, View)]
        shifts = [s * real(x) for x, s in zip(parts, signs, strict=True) if not isinstance(x, View)]
        shift = sum(shifts[1:], shifts[0]) if shifts else np.zeros(())
        if len(views) == 1:
            result = self.scale_shift(name, views[0], factors[0], shift)
        else:
            result = self.add(name, views, factors)
            result = self.scale_shift(name, result, 1.0, shift) if shifts else result
        if len(shifts) > 1:
            self.note_terms(result, shifts)
        return result

    def note_terms(self, x: View, terms: Sequence[Array]) -> None:
        """Remember what a bias is the sum of, for the check: its terms may cancel."""
        sizes = [np.broadcast_to(np.abs(term), x.shape).reshape(-1) for term in terms]
        self.summed[x.node] = np.sum(sizes, axis=0)

    def divide(self, name: str, x: View, divisor: Array) -> View:
        """x / divisor, with broadcasting."""
        divisor = np.asarray(divisor, dtype=np.float64)
        if (divisor == 0).any():
            raise LipoptError("it divides by zero")
        return self.scale_shift(name, x, 1.0 / divisor, 0.0)

    def normalize(
        self, name: str, x: View, scale: Any, shift: Any, mean: Any, variance: Any, epsilon: float
    ) -> View:
        """Batch normalization with known statistics: one of each a channel (axis 1), or None."""
        along = (-1,) + (1,) * (len(x.shape) - 2)
        factor = 1.0 / np.sqrt(np.asarray(variance, dtype=np.float64) + epsilon)
        if scale is not None:
            factor = np.asarray(scale, dtype=np.float64) * factor
        center = np.asarray(mean, dtype=np.float64) * factor
        start = np.zeros_like(center) if shift is None else np.asarray(shift, dtype=np.float64)
        shifts = start - center
        result = self.scale_shift(name, x, factor.reshape(along), shifts.reshape(along))
        self.note_terms(result, [center.reshape(along), start.reshape(along)])
        return result

    def reduce(self, name: str, x: View, axes: Sequence[int], keep: bool, how: Reduction) -> View:
        """A sum, mean, maximum or minimum over axes, which stay with length 1 if `keep`."""
        gone = sorted({_axis(axis, len(x.shape)) for axis in axes})
        kept = [axis for axis in range(len(x.shape)) if axis not in gone]
        shape = [x.shape[axis] for axis in kept]
        count = prod(x.shape[axis] for axis in gone)
        if count == 0:
            raise LipoptError("it reduces an empty tensor")
        flat = x.moved(lambda i: i.transpose(*kept, *gone).reshape(*shape, count))
        if how == "max":
            result = self.maximum(name, self._materialized(name, flat))
        elif how == "min":
            negative = self.scale_shift(f"{name}.negative", flat, -1.0, 0.0)
            result = self.scale_shift(name, self.maximum(name, negative), -1.0, 0.0)
        else:
            weight = np.full((1, count), 1.0 / count if how == "mean" else 1.0)
            result = self.linear(name, flat, weight, None).moved(lambda i: i[..., 0])
        return result.moved(lambda i: np.expand_dims(i, tuple(gone))) if keep else result

    # ---- moving entries

    def choose(self, name: str, which: Array, options: Sequence[View | Array]) -> View:
        """The tensor whose entry at a place is that of options[which] there; options broadcast."""
        shape = which.shape
        terms = []
        moved = []
        bias = np.zeros(shape)
        for k, option in enumerate(options):
            mask = which == k
            if isinstance(option, View):
                index = np.where(mask, np.broadcast_to(option.index, shape), ZERO)
                moved.append(View(option.node, index))
                terms.append(self._term(moved[-1]))
            else:
                values = np.broadcast_to(np.asarray(option, dtype=np.float64), shape)
                bias[mask] = values[mask]
        if len({x.node for x in moved}) == 1 and not bias.any():
            indices = np.stack([x.index for x in moved])
            return View(moved[0].node, indices.max(axis=0))  # elsewhere the others are ZERO
        return whole(self.affine(name, terms, bias.reshape(-1)), shape)

    def overwrite(self, name: str, x: View | Array, new: View | Array, move: Any) -> View:
        """x with the entries at x[move] replaced by those of `new`, which broadcasts."""
        targets = np.arange(prod(x.shape)).reshape(x.shape)[move]
        if prod(new.shape) > 1 and len(np.unique(targets)) < targets.size:
            raise LipoptError("two entries go to the same place, and it is not said which stays")
        which = np.zeros(x.shape, np.int64)
        which[move] = 1
        if isinstance(new, View):
            index = np.full(x.shape, ZERO)
            index[move] = new.index
            return self.choose(name, which, [x, View(new.node, index)])
        values = np.zeros(x.shape)
        values[move] = new
        return self.choose(name, which, [x, values])

    def add_at(self, name: str, x: View | Array, new: View | Array, move: Any) -> View:
        """x with `new`, which broadcasts, added to the entries at x[move], perhaps twice to some."""
        targets = np.arange(prod(x.shape)).reshape(x.shape)[move]
        if not isinstance(new, View):
            sums = np.zeros(prod(x.shape))
            np.add.at(sums, targets, np.broadcast_to(new, targets.shape))
            return self.total(name, [x, sums.reshape(x.shape)], [1.0, 1.0])
        wide = new.moved(lambda i: np.broadcast_to(i, targets.shape).reshape(1, -1))
        ones = np.ones(targets.size)
        places = (targets.reshape(-1), np.arange(targets.size))
        matrix = sp.csr_array((ones, places), shape=(prod(x.shape), targets.size))
        added = self.linear(f"{name}.added", wide, matrix, None)
        return self.total(name, [x, added.moved(lambda i: i.reshape(x.shape))], [1.0, 1.0])

    def concatenate(self, name: str, parts: Sequence[View | Array], axis: int) -> View:
        """Tensors and constants joined along an axis."""
        labels = [np.full(part.shape, k) for k, part in enumerate(parts)]
        which = np.concatenate(labels, axis=axis)
        options: list[View | Array] = []
        for k, part in enumerate(parts):
            blanks = [np.full(other.shape, ZERO) for other in parts]
            if isinstance(part, View):
                blanks[k] = part.index
                options.append(View(part.node, np.concatenate(blanks, axis=axis)))
            else:
                joined = [blank.astype(np.float64) for blank in blanks]
                joined[k] = real(part)
                options.append(np.concatenate(joined, axis=axis))
        return self.choose(name, which, options)

    def pad(self, name: str, x: View, pads: Pads, mode: str, value: float) -> View:
        """Padding in one of NumPy's modes; negative padding cuts."""
        wide = [(max(before, 0), max(after, 0)) for before, after in pads]
        cuts = tuple(
            slice(max(-p, 0), n - max(-q, 0)) for (p, q), n in zip(pads, x.shape, strict=True)
        )
        inside = x.moved(lambda i: i[cuts])
        if mode != "constant":
            return inside.moved(lambda i: np.pad(i, wide, mode=mode))  # type: ignore[call-overload]
        result = inside.moved(lambda i: np.pad(i, wide, constant_values=ZERO))
        if value == 0:
            return result
        which = np.pad(np.zeros(inside.shape, np.int64), wide, constant_values=1)
        return self.choose(name, which, [result, np.asarray(value)])

    # ---- maxima and activations

    def maximum(self, name: str, x: View) -> View:
        """The maximum over the last axis, without places that are OUTSIDE.

        max(a, b) = (a + b) / 2 + |a - b| / 2 for pairs of entries, in rounds. No place may be ZERO.
        With b + relu(a - b) instead, sums over paths and products of norms would be larger."""
        rounds = 0
        while (count := x.shape[-1]) > 1:
            half = count // 2
            a, b, rest = np.split(x.index, [half, 2 * half], axis=-1)
            both = (a >= 0) & (b >= 0)
            base = View(x.node, np.concatenate([np.where(b >= 0, b, a), rest], axis=-1))
            if both.any():
                pairs = [View(x.node, a[both]), View(x.node, b[both])]
                difference = self.add(f"{name}.difference{rounds}", pairs, [0.5, -0.5])
                distance = self.activation(f"{name}.abs{rounds}", difference, "abs")
                other = np.full(base.shape, ZERO)
                other[..., :half][both] = a[both]
                gain = np.full(base.shape, ZERO)
                gain[..., :half][both] = np.arange(both.sum())
                share = np.where(other >= 0, 0.5, 1.0)
                known = View(x.node, np.maximum(base.index, ZERO))
                parts = [known, View(x.node, other), View(distance.node, gain)]
                larger = self.add(f"{name}.max{rounds}", parts, [share, share, 1.0])
                base = View(larger.node, np.where(base.index < 0, OUTSIDE, larger.index))
            x = base
            rounds += 1
        return x.moved(lambda i: i[..., 0])

    def larger(self, name: str, x: View, y: View | Array, largest: bool = True) -> View:
        """max(x, y) or min(x, y) = (x + y) / 2 +- |x - y| / 2; with a constant, a clip."""
        if isinstance(y, View):
            difference = self.add(f"{name}.difference", [x, y], [0.5, -0.5])
            distance = self.activation(f"{name}.abs", difference, "abs")
            return self.add(name, [x, y, distance], [0.5, 0.5, 1.0 if largest else -1.0])
        shape = np.broadcast_shapes(x.shape, np.shape(y))
        wide = x.moved(lambda i: np.broadcast_to(i, shape))
        return self.activation(name, wide, "clip", {"low" if largest else "high": y})

    def activation(
        self, name: str, x: View, kind: str, parameters: Mapping[str, Any] | None = None
    ) -> View:
        """An elementwise activation; parameters that are arrays broadcast to the shape of x."""
        source = self.materialize(f"{name}.input", x)
        arrays: dict[str, Array | float] = {}
        for key, value in (parameters or {}).items():
            if np.size(value) == 1:
                arrays[key] = float(np.reshape(value, ()))
            else:
                wide = np.broadcast_to(np.asarray(value, dtype=np.float64), x.shape)
                arrays[key] = wide.reshape(-1)
        self.nodes.append(Activation(name, source, x.size, kind, arrays))
        return whole(len(self.nodes) - 1, x.shape)

    def log_sigmoid(self, name: str, x: View) -> View:
        """log(sigmoid(x)) = -softplus(-x)."""
        negative = self.scale_shift(f"{name}.negative", x, -1.0, 0.0)
        softplus = self.activation(f"{name}.softplus", negative, "softplus")
        return self.scale_shift(name, softplus, -1.0, 0.0)

    def soft_shrink(self, name: str, x: View, width: float) -> View:
        """x - clip(x, -width, width)."""
        if width < 0:
            raise LipoptError(f"the width {width} of a soft shrink must not be negative")
        clip = self.activation(f"{name}.clip", x, "clip", {"low": -width, "high": width})
        return self.add(name, [x, clip], [1.0, -1.0])


def _axis(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < rank:
        raise LipoptError(f"axis {axis} does not exist in a tensor with {rank} axes")
    return axis % rank


def real(values: Any) -> Array:
    """As float32 or float64."""
    array = np.asarray(values)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def from_rows(columns: Array, data: Array, rows: int, size: int) -> sp.csr_array:
    """A matrix from the columns and values of its rows, the same number in each.

    Negative columns stand for no entry."""
    columns = columns.reshape(rows, -1)
    keep = columns >= 0
    starts = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
    kept = columns[keep].astype(np.int32)
    matrix = sp.csr_array((data.reshape(rows, -1)[keep], kept, starts), shape=(rows, size))
    matrix.sort_indices()
    if not matrix.has_canonical_format:
        # An entry that stands at several places has the sum of their weights, in double precision.
        matrix = matrix.astype(np.float64)
        matrix.sum_duplicates()
    return matrix


def _renumbered(node: Node, place: Mapping[int, int]) -> Node:
    if isinstance(node, Affine):
        sources = tuple(place[s] for s in node.sources)
        return Affine(node.name, sources, node.matrices, node.bias)
    if isinstance(node, Activation):
        return Activation(node.name, place[node.source], node.size, node.kind, node.parameters)
    return node
