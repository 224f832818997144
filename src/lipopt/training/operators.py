"""The affine operators of an exported graph, applied to columns with the live weights.

A tensor of the graph becomes a tensor with one more axis in front, for the columns. An operator
x -> A x + b of the graph is wanted in three forms: A x (derivatives), |A| x (sums over paths, radii
of intervals), and A x + b (middles of intervals). PyTorch applies all of them itself: |A| by taking
the absolute values of what multiplies, and A x as the difference to the value at zero, unless the
argument that is b is known and can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from ..model.nodes import Affine, Node
from ..readers.torch import Reading
from .matrices import Gather

Tensor = Any  # PyTorch is not seen by the type checker
GraphNode: TypeAlias = Any  # a node of torch.fx
Values: TypeAlias = Mapping[GraphNode, Any]
Form = Literal["linear", "absolute", "affine"]

# Operators of (batch, channels, *space), of which one argument alone, at this place, is the bias.
CONVOLUTIONS = (
    "convolution.default",
    "conv1d.default",
    "conv2d.default",
    "conv3d.default",
    "conv1d.padding",
    "conv2d.padding",
    "conv3d.padding",
    "conv_transpose1d.default",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
)
BIAS = 2
# Operators without weights that treat all channels alike: the columns can join the batch.
IMAGE_OPERATORS = ("upsample", "_upsample", "adaptive_avg_pool", "_adaptive_avg_pool", "avg_pool")
# Operators that are linear as they stand, although they have constants.
SCALINGS = ("mul.Tensor", "mul.Scalar", "div.Tensor", "div.Scalar")
PRODUCTS = (
    *SCALINGS,
    "matmul.default",
    "mm.default",
    "bmm.default",
    "mv.default",
    "dot.default",
)
# Operators whose numbers multiply.
ARITHMETIC = (
    *SCALINGS,
    "add.Tensor",
    "add.Scalar",
    "sub.Tensor",
    "sub.Scalar",
    "rsub.Tensor",
    "rsub.Scalar",
    "addmm.default",
    "baddbmm.default",
    "addmv.default",
)
# Normalizations in evaluation form, and where they have their epsilon.
NORMALIZATIONS = {
    "_native_batch_norm_legit_no_training.default": 6,
    "instance_norm.default": 7,
}
# Operators with fixed weights of both signs: the reader's matrices have the absolute values.
SIGNED = (
    "upsample_bicubic2d.default",
    "upsample_bicubic2d.vec",
    "_upsample_bicubic2d_aa.default",
    "_upsample_bicubic2d_aa.vec",
)


def _add_reversed(x: Tensor, y: Tensor, alpha: Any = 1) -> Tensor:
    return y + alpha * x


def _same(x: Tensor) -> Tensor:
    return x


def _reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x.reshape(tuple(shape))


def _copy(x: Tensor, new: Tensor, non_blocking: bool = False) -> Tensor:
    return new.expand(x.shape)


def _slice_scatter(
    x: Tensor, new: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """Exported graphs say "to the end" by the largest number, which vmap does not take."""
    last = x.shape[dim] if end is None else min(end, x.shape[dim])
    return torch.ops.aten.slice_scatter.default(x, new, dim, start, last, step)


# What stands for an operator that does not take columns.
WITH_COLUMNS: dict[str, Callable[..., Tensor]] = {
    "view.default": _reshape,
    "_unsafe_view.default": _reshape,
    "view_copy.default": _reshape,
    "copy.default": _copy,
    "slice_scatter.default": _slice_scatter,
}
# What stands for an operator with minus signs where absolute values are wanted.
WITHOUT_SIGNS: dict[str, Callable[..., Tensor]] = {
    "sub.Tensor": torch.ops.aten.add.Tensor,
    "sub.Scalar": torch.ops.aten.add.Scalar,
    "rsub.Tensor": _add_reversed,
    "rsub.Scalar": _add_reversed,
    "neg.default": _same,
}


@dataclass(frozen=True, eq=False)
class Operator:
    """One affine operator of the graph."""

    node: GraphNode
    name: str  # of the operator in PyTorch, without "aten."
    columns: tuple[GraphNode, ...]  # its arguments that depend on the input
    has_shift: bool  # whether its value at zero may be other than zero
    gather: Gather | None  # the reader's matrix, where its absolute values are needed

    @staticmethod
    def of(node: GraphNode, reading: Reading, depends: Callable[[GraphNode], bool]) -> Operator:
        """The operator of a node of the graph, with what the reader knows of it."""
        name = str(node.target).removeprefix("aten.")
        columns = tuple(n for n in node.all_input_nodes if depends(n))
        constants = [n for n in node.all_input_nodes if n not in columns]
        weighted = any(_is_real(n) for n in constants) and name not in PRODUCTS
        made = [reading.walk.builder.nodes[k] for k in reading.walk.made[node]]
        gather = _reader_matrix(made, reading.device) if name in SIGNED else None
        return Operator(node, name, columns, weighted or _are_shifted(made), gather)

    def __call__(self, form: Form, values: Values, constants: Values) -> Any:
        """The result for columns: A x, |A| x or A x + b."""
        if self.name in NORMALIZATIONS:
            return self._normalize(form, values, constants)
        if form == "absolute" and self.gather is not None:
            return self._by_reader(self.gather, values)
        if self.name == "linear.default":
            return self._linear(form, values, constants)
        if self.name in CONVOLUTIONS:
            return self._convolve(form, values, constants)
        if self.name.startswith(IMAGE_OPERATORS) and values[self.columns[0]].dim() > 3:
            return self._on_images(values)
        tensors = [values[n] for n in self.columns]
        result = torch.vmap(lambda *given: self._apply(form, given, constants))(*tensors)
        if form == "affine" or not self.has_shift:
            return result
        zeros = [torch.zeros_like(x[0]) for x in tensors]
        return _difference(result, self._apply(form, zeros, constants))

    def _apply(self, form: Form, given: Sequence[Tensor], constants: Values) -> Any:
        """The operator on tensors of the graph, without the axis of the columns."""
        found = dict(zip(self.columns, given, strict=True))

        def argument(node: GraphNode) -> Any:
            return found[node] if node in found else _signless(constants[node], form)

        args = torch.fx.map_arg(self.node.args, argument)
        kwargs = torch.fx.map_arg(self.node.kwargs, argument)
        target = WITH_COLUMNS.get(self.name, self.node.target)
        if form != "absolute":
            return target(*args, **kwargs)
        if self.name in ARITHMETIC:
            args = [_signless_number(value) for value in args]
            kwargs = {key: _signless_number(value) for key, value in kwargs.items()}
        return WITHOUT_SIGNS.get(self.name, target)(*args, **kwargs)

    def _constant(self, place: int, form: Form, constants: Values) -> Any:
        """A constant argument, None if it is not given."""
        if place >= len(self.node.args) or self.node.args[place] is None:
            return None
        return _signless(constants[self.node.args[place]], form)

    def _linear(self, form: Form, values: Values, constants: Values) -> Tensor:
        x = values[self.columns[0]]
        bias = self._constant(BIAS, form, constants) if form == "affine" else None
        return torch.nn.functional.linear(x, self._constant(1, form, constants), bias)

    def _convolve(self, form: Form, values: Values, constants: Values) -> Tensor:
        x = values[self.columns[0]]
        weight = self._constant(1, form, constants)
        bias = self._constant(BIAS, form, constants) if form == "affine" else None
        rest = self.node.args[BIAS + 1 :]
        has_batch = x.dim() == weight.dim() + 1
        images = x.flatten(0, 1) if has_batch else x
        result = self.node.target(images, weight, bias, *rest, **self.node.kwargs)
        return result.unflatten(0, x.shape[:2]) if has_batch else result

    def _on_images(self, values: Values) -> Tensor:
        """An operator without weights on (batch, channels, *space), or without the channels."""
        x = values[self.columns[0]]
        images = x.flatten(0, 1)
        result = self.node.target(images, *self.node.args[1:], **self.node.kwargs)
        return result.unflatten(0, x.shape[:2])

    def _normalize(self, form: Form, values: Values, constants: Values) -> Any:
        """Batch normalization with known statistics; the first of the operator's results."""
        x = values[self.columns[0]]
        along = (-1,) + (1,) * (x.dim() - 3)
        variance = self._constant(4, form, constants)
        factor = torch.rsqrt(variance + self.node.args[NORMALIZATIONS[self.name]])
        weight = self._constant(1, form, constants)
        if weight is not None:
            factor = factor * weight
        result = x * factor.reshape(along)
        if form == "affine":
            shift = -self._constant(3, form, constants) * factor
            bias = self._constant(2, form, constants)
            if bias is not None:
                shift = shift + bias
            result = result + shift.reshape(along)
        return result if self.name == "instance_norm.default" else (result, None, None)

    def _by_reader(self, gather: Gather, values: Values) -> Tensor:
        x = values[self.columns[0]]
        shape = self.node.meta["val"].shape
        return gather.absolute(x.flatten(1)).reshape(x.shape[0], *shape)


def _is_real(node: GraphNode) -> bool:
    """Whether a constant of the graph is a tensor of real numbers."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _are_shifted(nodes: Sequence[Node]) -> bool:
    return any(isinstance(node, Affine) and bool(node.bias.any()) for node in nodes)


def _reader_matrix(nodes: Sequence[Node], device: Any) -> Gather:
    """The matrix of an operator that the reader made one affine node of, perhaps after another.

    The other one puts entries in order, and is the identity on a tensor that is computed."""
    last = nodes[-1]
    assert isinstance(last, Affine)
    return Gather.of(last.matrices[0], device)


def _signless(value: Any, form: Form) -> Any:
    """The absolute values of a tensor of real numbers, if those are wanted."""
    is_real = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.abs() if form == "absolute" and is_real else value


def _signless_number(value: Any) -> Any:
    return abs(value) if type(value) in (int, float) else value


def _difference(x: Any, y: Any) -> Any:
    """x - y, also for several results."""
    if isinstance(x, list | tuple):
        return [_difference(a, b) for a, b in zip(x, y, strict=True)]
    return x - y
