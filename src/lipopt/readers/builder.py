"""From a model's tensor operations to a Network's nodes: what the ONNX and PyTorch readers share.

A tensor is a View: a node of the network and, in the tensor's shape, the place of each entry in that node (-1 for a
zero). Reshaping, transposing, slicing, padding and gathering only move places and cost nothing; a node is made when values
are computed. Convolutions and poolings read the places in their windows, and so become sparse matrices directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..network import Activation, Affine, Input, Network, Node, tidy
from ..rounding import Array, Matrix


@dataclass(frozen=True, eq=False)
class View:
    """A tensor: `index` has the tensor's shape and holds places in `node`, or -1 for a constant zero."""

    node: int
    index: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.index.shape

    @property
    def size(self) -> int:
        return self.index.size

    def moved(self, move: Callable[[Array], Array]) -> View:
        """The view after an operation that only moves entries."""
        return View(self.node, np.ascontiguousarray(move(self.index)))


class Builder:
    """Collects nodes; every method takes and returns views. Names are those of the model's layers, for messages."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._selected: dict[tuple[int, bytes], int] = {}

    def input(self, shape: Sequence[int], batch: bool = True) -> View:
        """The input; with `batch`, the first entry of `shape` is a batch dimension of 1."""
        self.nodes.append(Input(tuple(shape[1:] if batch else shape)))
        return View(0, np.arange(prod(shape)).reshape(shape))

    def network(self, output: View) -> Network:
        """The network that ends in the given view, without the nodes that do not lead there."""
        last = self.materialize("output", output)
        if isinstance(self.nodes[last], Input):
            last = self._affine("output", [(0, sp.eye_array(output.size, format="csr"))], np.zeros(output.size))
        used = {last}
        for i in range(last, 0, -1):
            if i in used:
                node = self.nodes[i]
                used.update(() if isinstance(node, Input) else node.sources)
        order = sorted(used | {0})
        place = {old: new for new, old in enumerate(order)}
        return Network(tuple(_renumbered(self.nodes[i], place) for i in order))

    def materialize(self, name: str, x: View) -> int:
        """A node whose values are exactly the entries of the view, in C order."""
        if self._is_whole(x):
            return x.node
        size, flat = self.nodes[x.node].size, x.index.reshape(-1)
        key = (x.node, flat.tobytes())
        if key not in self._selected:
            self._selected[key] = self._affine(name, [(x.node, _selection(flat, size))], np.zeros(len(flat)))
        return self._selected[key]

    def _is_whole(self, x: View) -> bool:
        """Whether the view is its node, entry by entry."""
        size = self.nodes[x.node].size
        return x.size == size and np.array_equal(x.index.reshape(-1), np.arange(size))

    def _affine(self, name: str, terms: Sequence[tuple[int, Matrix]], bias: Array) -> int:
        sums: dict[int, Matrix] = {}
        for source, matrix in terms:
            sums[source] = sums[source] + matrix if source in sums else matrix
        bias = bias if bias.dtype in (np.float32, np.float64) else bias.astype(np.float64)
        self.nodes.append(Affine(name, tuple(sums), tuple(tidy(m) for m in sums.values()), np.ascontiguousarray(bias)))
        return len(self.nodes) - 1

    def _view(self, node: int, shape: Sequence[int]) -> View:
        return View(node, np.arange(prod(shape)).reshape(shape))

    def linear(self, name: str, x: View, weight: Array, bias: Array | None) -> View:
        """weight (outputs, inputs) applied to the last axis of x."""
        rows, last = prod(x.shape[:-1]), x.shape[-1]
        if weight.shape[1] != last:
            raise LipoptError(f"layer '{name}': a matrix with {weight.shape[1]} columns does not fit an input of {last}")
        source = self.materialize(f"{name}.input", x)
        matrix = weight if rows == 1 else sp.kron(sp.eye_array(rows), sp.csr_array(weight), format="csr")
        shift = np.zeros(weight.shape[0]) if bias is None else np.broadcast_to(bias, (weight.shape[0],))
        return self._view(self._affine(name, [(source, matrix)], np.tile(shift, rows)), (*x.shape[:-1], weight.shape[0]))

    def scale_shift(self, name: str, x: View, scale: Any, shift: Any) -> View:
        """scale * x + shift, entry by entry, with broadcasting; scale and shift keep their precision."""
        scale, shift = _real(scale), _real(shift)
        shape = np.broadcast_shapes(x.shape, scale.shape, shift.shape)
        x = self._view(self.materialize(f"{name}.input", x), x.shape)
        before = self.nodes[x.node]
        if shape == x.shape and (scale == 1).all() and isinstance(before, Affine) and not before.bias.any():
            bias = np.broadcast_to(shift, shape).reshape(-1).copy()
            return self._view(self._affine(name, list(zip(before.sources, before.matrices, strict=True)), bias), shape)
        flat = np.broadcast_to(x.index, shape).reshape(-1)
        factors, shifts = np.broadcast_to(scale, shape).reshape(-1), np.broadcast_to(shift, shape).reshape(-1)
        matrix = _selection(flat, self.nodes[x.node].size, factors)
        return self._view(self._affine(name, [(x.node, matrix)], shifts.copy()), shape)

    def add(self, name: str, views: Sequence[View], signs: Sequence[float]) -> View:
        """A signed sum of tensors, with broadcasting."""
        shape = np.broadcast_shapes(*(x.shape for x in views))
        terms = [
            (x.node, _selection(np.broadcast_to(x.index, shape).reshape(-1), self.nodes[x.node].size, np.full(prod(shape), sign)))
            for x, sign in zip(views, signs, strict=True)
        ]
        return self._view(self._affine(name, terms, np.zeros(prod(shape))), shape)

    def concatenate(self, name: str, parts: Sequence[View | Array], axis: int) -> View:
        """Tensors and constants joined along an axis."""
        views = [p for p in parts if isinstance(p, View)]
        constants = [p for p in parts if not isinstance(p, View)]
        if len({x.node for x in views}) == 1 and not any(np.any(c) for c in constants):
            indices = [p.index if isinstance(p, View) else np.full(np.shape(p), -1) for p in parts]
            return View(views[0].node, np.concatenate(indices, axis=axis))
        shape = np.concatenate([np.empty(p.shape, bool) for p in parts], axis=axis).shape
        terms = []
        for k, x in enumerate(parts):
            if isinstance(x, View):
                index = [x.index if j == k else np.full(p.shape, -1) for j, p in enumerate(parts)]
                terms.append((x.node, _selection(np.concatenate(index, axis=axis).reshape(-1), self.nodes[x.node].size)))
        bias = np.concatenate([np.zeros(p.shape) if isinstance(p, View) else _real(p) for p in parts], axis=axis)
        return self._view(self._affine(name, terms, bias.reshape(-1)), shape)

    def convolution(
        self,
        name: str,
        x: View,
        weight: Array,
        bias: Array | None,
        *,
        strides: Sequence[int],
        pads: Sequence[tuple[int, int]],
        dilations: Sequence[int],
        groups: int,
    ) -> View:
        """A convolution of x (1, channels, *space) with weight (outputs, channels / groups, *kernel)."""
        outputs, per_group, *kernel = weight.shape
        if x.shape[1] != per_group * groups or outputs % groups:
            raise LipoptError(
                f"layer '{name}': {x.shape[1]} channels do not fit weights of shape {weight.shape}, {groups} groups"
            )
        seen = windows(x.index[0], kernel, strides, pads, dilations)  # (channels, *out, *kernel)
        out = seen.shape[1 : 1 + len(kernel)]
        space, taps = prod(out), prod(kernel)
        # (groups, positions, inputs of one output) and (groups, outputs of a group, inputs of one output)
        places = seen.reshape(groups, per_group, space, taps).transpose(0, 2, 1, 3).reshape(groups, 1, space, -1)
        values = weight.reshape(groups, outputs // groups, 1, per_group * taps)
        shape = (groups, outputs // groups, space, per_group * taps)
        columns, data = np.broadcast_to(places, shape).reshape(-1), np.broadcast_to(values, shape).reshape(-1)
        matrix = _from_rows(columns, data, outputs * space, self.nodes[x.node].size)
        shift = np.zeros(outputs) if bias is None else np.asarray(bias)
        return self._view(self._affine(name, [(x.node, matrix)], np.repeat(shift, space)), (1, outputs, *out))

    def average_pool(
        self,
        name: str,
        x: View,
        kernel: Sequence[int],
        strides: Sequence[int],
        pads: Sequence[tuple[int, int]],
        count_pads: bool,
        ceil: bool = False,
    ) -> View:
        """Averages over windows; padding counts or not, what `ceil` adds beyond it never does."""
        ones = [1] * len(kernel)
        wide = _ceil_pads(x.shape[2:], kernel, strides, pads) if ceil else list(pads)
        seen = windows(x.index[0], kernel, strides, wide, ones)
        flat = seen.reshape(*seen.shape[: 1 + len(kernel)], -1)
        if count_pads:
            padded = np.pad(np.zeros(x.shape[2:], np.int64), list(pads))
            extra = [(0, w[1] - p[1]) for w, p in zip(wide, pads, strict=True)]
            inside = windows(np.pad(padded, extra, constant_values=-1)[None], kernel, strides, [(0, 0)] * len(kernel), ones)
            counts = np.broadcast_to((inside >= 0).reshape(1, *flat.shape[1:-1], -1).sum(-1), flat.shape[:-1])
        else:
            counts = (flat >= 0).sum(-1)
        data = np.repeat(1.0 / np.maximum(counts, 1).reshape(-1), flat.shape[-1])
        matrix = _from_rows(flat.reshape(-1), data, prod(flat.shape[:-1]), self.nodes[x.node].size)
        return self._view(self._affine(name, [(x.node, matrix)], np.zeros(matrix.shape[0])), (1, *flat.shape[:-1]))

    def max_pool(
        self,
        name: str,
        x: View,
        kernel: Sequence[int],
        strides: Sequence[int],
        pads: Sequence[tuple[int, int]],
        dilations: Sequence[int],
        ceil: bool = False,
    ) -> View:
        """Maxima over windows; padding is left out."""
        wide = _ceil_pads(x.shape[2:], kernel, strides, pads, dilations) if ceil else list(pads)
        x = self._view(self.materialize(f"{name}.input", x), x.shape)
        seen = windows(x.index[0], kernel, strides, wide, dilations)
        flat = seen.reshape(*seen.shape[: 1 + len(kernel)], -1)
        if (flat < 0).all(axis=-1).any():
            raise LipoptError(f"layer '{name}': a pooling window lies wholly in the padding")
        return self.maximum(name, View(x.node, flat[None]))

    def maximum(self, name: str, x: View) -> View:
        """The maximum over the last axis, places of -1 left out: max(a, b) = b + relu(a - b), in rounds."""
        k = 0
        while (count := x.shape[-1]) > 1:
            half = count // 2
            a, b, rest = np.split(x.index, [half, 2 * half], axis=-1)
            both = (a >= 0) & (b >= 0)
            gain = np.full(a.shape, -1)
            gain[both] = np.arange(both.sum())
            base = View(x.node, np.concatenate([np.where(b >= 0, b, a), rest], axis=-1))
            if both.any():
                difference = self.add(f"{name}.difference{k}", [View(x.node, a[both]), View(x.node, b[both])], [1.0, -1.0])
                relu = self.activation(f"{name}.relu{k}", difference, "relu")
                step = View(relu.node, np.concatenate([gain, np.full(rest.shape, -1)], axis=-1))
                larger = self.add(f"{name}.max{k}", [base, step], [1.0, 1.0])
                base = View(larger.node, np.where(base.index < 0, -1, larger.index))
            x = base
            k += 1
        return x.moved(lambda i: i[..., 0])

    def reduce(self, name: str, x: View, axes: Sequence[int], keep: bool, how: str) -> View:
        """The "mean", "sum" or "max" over some axes, which stay with length 1 if `keep`."""
        axes = sorted(axis % len(x.shape) for axis in axes)
        kept = [axis for axis in range(len(x.shape)) if axis not in axes]
        flat = x.moved(lambda i: i.transpose(*kept, *axes).reshape(*(x.shape[axis] for axis in kept), -1))
        if how == "max":
            result = self.maximum(name, self._view(self.materialize(f"{name}.input", flat), flat.shape))
        else:
            weight = np.full((1, flat.shape[-1]), 1.0 / flat.shape[-1] if how == "mean" else 1.0)
            result = self.linear(name, flat, weight, None).moved(lambda i: i[..., 0])
        return result.moved(lambda i: np.expand_dims(i, tuple(axes))) if keep else result

    def larger(self, name: str, x: View, y: View | Array, largest: bool = True) -> View:
        """max(x, y) = y + relu(x - y), min(x, y) = x - relu(x - y); with a constant, a clip."""
        if isinstance(y, View):
            gain = self.activation(f"{name}.relu", self.add(f"{name}.difference", [x, y], [1.0, -1.0]), "relu")
            return self.add(name, [y if largest else x, gain], [1.0, 1.0 if largest else -1.0])
        wide = x.moved(lambda i: np.broadcast_to(i, np.broadcast_shapes(x.shape, np.shape(y))))
        return self.activation(name, wide, "clip", {"low" if largest else "high": y})

    def activation(self, name: str, x: View, kind: str, parameters: Mapping[str, Any] | None = None) -> View:
        """An elementwise activation; parameters that are arrays broadcast to the shape of x."""
        source = self.materialize(f"{name}.input", x)
        arrays = {
            key: float(np.reshape(p, ()))
            if np.size(p) == 1
            else np.broadcast_to(_real(p).astype(np.float64), x.shape).reshape(-1)
            for key, p in (parameters or {}).items()
        }
        self.nodes.append(Activation(name, source, x.size, kind, arrays))
        return self._view(len(self.nodes) - 1, x.shape)

    def product(self, name: str, a: View, b: View) -> View:
        """x * gate(x) where that is a known activation (SiLU, GELU, Mish, HardSwish); other products are errors."""
        for x, gate in ((a, b), (b, a)):
            if x.shape == gate.shape and (found := self._gated(name, x, gate)) is not None:
                return found
        raise LipoptError(
            f"layer '{name}' multiplies two tensors that depend on the input; only x * gate(x) of SiLU, GELU, Mish and"
            " HardSwish is supported (export GELU as one node: opset 20 or later)"
        )

    def _gated(self, name: str, x: View, gate: View) -> View | None:
        """alpha x * (beta act(gamma x + c) + delta), where act with these numbers makes a known activation."""
        alpha, zero, base = self._unscaled(self.materialize(f"{name}.input", x))
        beta, delta, inner = self._unscaled(self.materialize(f"{name}.gate", gate))
        act = self.nodes[inner]
        if zero != 0 or not isinstance(act, Activation):
            return None
        gamma, c, origin = self._unscaled(act.source)
        p, before = act.parameters, self.nodes[origin]
        kind: str | None = None
        parameters: dict[str, float] = {}
        factor = alpha * beta
        if act.kind == "tanh" and isinstance(before, Activation) and before.kind == "softplus":
            plain = (gamma, c, delta, before.parameters["beta"]) == (1, 0, 0, 1)
            gamma, c, origin = self._unscaled(before.source)
            kind = "mish" if plain and (gamma, c) == (1, 0) else None
        elif act.kind == "sigmoid" and (c, delta) == (0, 0) and gamma > 0:
            kind, parameters = "silu", {"beta": gamma}
        elif act.kind == "erf" and c == 0 and delta == beta and gamma > 0:
            kind, parameters, factor = "gelu", {"beta": gamma * np.sqrt(2)}, 2 * alpha * beta
        elif act.kind == "hard_sigmoid" and (gamma, c, delta) == (1, 0, 0):
            kind = "hard_swish" if np.isclose(p["alpha"], 1 / 6, rtol=1e-6) and p["beta"] == 0.5 else None
        elif act.kind == "clip" and (gamma, c, delta, p["low"], p["high"]) == (1, 3, 0, 0, 6):
            kind, factor = "hard_swish", 6 * alpha * beta
        if kind is None or origin != base:
            return None
        result = self.activation(name, View(base, np.arange(x.size).reshape(x.shape)), kind, parameters)
        return result if factor == 1 else self.scale_shift(f"{name}.scale", result, factor, 0.0)

    def _unscaled(self, i: int) -> tuple[float, float, int]:
        """Node i as scale * node + shift with the same two numbers for every entry, as far back as that goes."""
        scale, shift = 1.0, 0.0
        while isinstance(node := self.nodes[i], Affine) and len(node.sources) == 1:
            matrix = sp.csr_array(node.matrices[0])
            diagonal = matrix.diagonal()
            uniform = matrix.shape[0] == matrix.shape[1] == matrix.nnz and (diagonal == diagonal[0]).all() and diagonal[0] != 0
            if not uniform or (node.bias != node.bias[0]).any():
                break
            scale, shift, i = scale * float(diagonal[0]), shift + scale * float(node.bias[0]), node.sources[0]
        return scale, shift, i


def windows(
    index: Array, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[tuple[int, int]], dilations: Sequence[int]
) -> Array:
    """The entries of `index` (channels, *space) under every window: (channels, *out, *kernel), -1 in the padding."""
    d = len(kernel)
    padded = np.pad(index, [(0, 0), *pads], constant_values=-1)
    spans = [(k - 1) * step + 1 for k, step in zip(kernel, dilations, strict=True)]
    if any(span > n for span, n in zip(spans, padded.shape[1:], strict=True)):
        raise LipoptError(f"a window of {spans} does not fit an input of {padded.shape[1:]}")
    seen = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=tuple(range(1, d + 1)))
    return seen[(slice(None), *(slice(None, None, s) for s in strides), *(slice(None, None, step) for step in dilations))]


def _ceil_pads(
    space: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int] | None = None,
) -> list[tuple[int, int]]:
    """Padding that rounds the number of windows up; a last window must start inside the input or its left padding."""
    result = []
    for n, k, s, (left, right), step in zip(space, kernel, strides, pads, dilations or [1] * len(kernel), strict=True):
        span = (k - 1) * step + 1
        count = -(-(n + left + right - span) // s) + 1
        if (count - 1) * s >= n + left:
            count -= 1
        result.append((left, max(right, (count - 1) * s + span - n - left)))
    return result


def _real(values: Any) -> Array:
    array = np.asarray(values)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _selection(flat: Array, size: int, factors: Array | None = None) -> sp.csr_array:
    """The matrix whose row i is factors[i] at column flat[i]; a zero row where flat[i] is -1."""
    kept = np.flatnonzero(flat >= 0)
    data = np.ones(len(kept)) if factors is None else factors[kept]
    return sp.csr_array((data, (kept, flat[kept])), shape=(len(flat), size))


def _from_rows(columns: Array, data: Array, rows: int, size: int) -> sp.csr_array:
    """A matrix from the columns and values of its rows, the same number in each; columns of -1 are left out."""
    keep = columns >= 0
    starts = np.concatenate([[0], np.cumsum(keep.reshape(rows, -1).sum(axis=1))])
    matrix = sp.csr_array((data[keep], columns[keep].astype(np.int32), starts), shape=(rows, size))
    matrix.sum_duplicates()
    return matrix


def _renumbered(node: Node, place: Mapping[int, int]) -> Node:
    if isinstance(node, Affine):
        return Affine(node.name, tuple(place[s] for s in node.sources), node.matrices, node.bias)
    if isinstance(node, Activation):
        return Activation(node.name, place[node.source], node.size, node.kind, node.parameters)
    return node
