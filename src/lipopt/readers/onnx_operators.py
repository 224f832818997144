"""What every ONNX operator does, in the words of the Builder: a table from operator to handler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ..errors import LipoptError
from ..numerics.arrays import Array
from . import gates
from .builder import INTERPOLATED, Builder
from .views import View, places_along, same_pads

Value: TypeAlias = View | Array | None
Handler: TypeAlias = Callable[["Step"], View | Array | Sequence[View]]

HANDLERS: dict[str, Handler] = {}

# Operators that are refused for a reason worth saying.
REFUSED = {
    "Softmax": "a softmax is not supported; bound the logits before it (logits=True, --logits)",
    "LogSoftmax": "a softmax is not supported; bound the logits before it (logits=True, --logits)",
    "ThresholdedRelu": "it jumps, so the network is not Lipschitz",
    "Hardmax": "it jumps, so the network is not Lipschitz",
    "ArgMax": "it jumps, so the network is not Lipschitz; cut the graph before it (output=NAME)",
    "Sign": "it jumps, so the network is not Lipschitz",
    "Floor": "it jumps, so the network is not Lipschitz",
    "Ceil": "it jumps, so the network is not Lipschitz",
    "Round": "it jumps, so the network is not Lipschitz",
    "Attention": "attention multiplies tensors that depend on the input",
    "MultiHeadAttention": "attention multiplies tensors that depend on the input",
    "Loop": "loops are not supported; export the model with its loops unrolled",
    "Scan": "loops are not supported; export the model with its loops unrolled",
}
TWO_TENSORS = (
    "it multiplies two tensors that depend on the input (attention?), which is not supported"
)
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)


@dataclass(frozen=True, eq=False)
class Step:
    """One node of the ONNX graph at work: its inputs as views or constants, and the builder."""

    node: onnx.NodeProto
    inputs: Sequence[Value]
    builder: Builder
    opset: int

    @property
    def name(self) -> str:
        return self.node.name or self.node.output[0]

    @property
    def operator(self) -> str:
        return self.node.op_type

    @cached_property
    def attributes(self) -> dict[str, Any]:
        return {a.name: helper.get_attribute_value(a) for a in self.node.attribute}

    def attribute(self, name: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def number(self, name: str, default: float) -> float:
        """An attribute that is a number; in ONNX all are single precision, defaults too."""
        return float(np.float32(self.attribute(name, default)))

    def view(self, k: int = 0) -> View:
        """Input k, which must depend on the network's input."""
        value = self.inputs[k] if k < len(self.inputs) else None
        if not isinstance(value, View):
            raise LipoptError(f"its input {k} must depend on the network's input")
        return value

    def constant(self, k: int, default: Any = None) -> Any:
        """Input k, which must be a constant, or the default if it is not there."""
        value = self.inputs[k] if k < len(self.inputs) else None
        if isinstance(value, View):
            raise LipoptError(f"its input {k} ('{self.node.input[k]}') must be a constant")
        return default if value is None else value

    def integers(self, attribute: str, k: int) -> list[int] | None:
        """A list of integers: an attribute in old opsets, an input in newer ones."""
        value = self.attributes.get(attribute)
        if value is None:
            value = self.constant(k)
        return None if value is None else [int(v) for v in np.asarray(value).reshape(-1)]


def _handles(*names: str) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return add


# ---- linear maps


@_handles("Gemm")
def _gemm(step: Step) -> View:
    a = _turned(step.inputs[0], step.attribute("transA", 0))
    b = _turned(step.inputs[1], step.attribute("transB", 0))
    c = step.inputs[2] if len(step.inputs) > 2 else None
    alpha = step.attribute("alpha", 1.0)
    beta = step.attribute("beta", 1.0)
    if not isinstance(a, View) and not isinstance(b, View):
        left = alpha * np.asarray(a, dtype=np.float64)
        right = np.asarray(b, dtype=np.float64)
        result = step.builder.total(step.name, [left @ right, step.view(2)], [1.0, beta])
        step.builder.note_terms(result, [np.abs(left) @ np.abs(right)])
        return result
    product = _gemm_product(step, a, b, alpha)
    if c is None:
        return product
    if not isinstance(c, View) and beta != 1:
        c = np.asarray(c, dtype=np.float64) * beta
        beta = 1.0
    return step.builder.total(step.name, [product, c], [1.0, beta])


def _turned(value: Value, transposed: int) -> Value:
    if not transposed or value is None:
        return value
    return value.moved(np.transpose) if isinstance(value, View) else np.transpose(value)


def _gemm_product(step: Step, a: Value, b: Value, alpha: float) -> View:
    """alpha * a @ b; the weights keep their precision where alpha is 1."""
    if isinstance(a, View) and isinstance(b, View):
        raise LipoptError(TWO_TENSORS)
    weight = np.asarray(b if isinstance(a, View) else a)
    if alpha != 1:
        weight = weight.astype(np.float64) * alpha
    if isinstance(a, View):
        return step.builder.linear(step.name, a, weight.T, None)
    assert isinstance(b, View)
    return step.builder.left_matmul(step.name, weight, b)


@_handles("MatMul")
def _matmul(step: Step) -> View:
    a, b = step.inputs
    if isinstance(a, View) and isinstance(b, View):
        raise LipoptError(TWO_TENSORS)
    if isinstance(a, View):
        return step.builder.matmul(step.name, a, np.asarray(b))
    return step.builder.left_matmul(step.name, np.asarray(a), step.view(1))


@_handles("Einsum")
def _einsum(step: Step) -> View:
    """One tensor and at most one constant: letters of both are contracted or stacked."""
    equation = step.attribute("equation", "").replace(" ", "")
    left, arrow, result = equation.partition("->")
    letters = left.split(",")
    views = [k for k, value in enumerate(step.inputs) if isinstance(value, View)]
    plain = arrow and all(len(set(word)) == len(word) for word in (*letters, result))
    if "." in equation or not plain or len(views) != 1 or len(letters) > 2:
        raise LipoptError(
            f"the equation '{equation}' is not supported; use one tensor and one constant, '->', each letter once in a term"
        )
    x = step.view(views[0])
    mine = letters[views[0]]
    if len(letters) == 1:
        other = ""
        constant = np.ones(())
    else:
        other = letters[1 - views[0]]
        constant = np.asarray(step.constant(1 - views[0]))
    size = dict(zip(mine, x.shape, strict=True)) | dict(zip(other, constant.shape, strict=True))
    stacked = [c for c in mine if c in other and c in result]
    rows = [c for c in mine if c not in other and c in result]
    summed = [c for c in mine if c not in result]
    outputs = [c for c in other if c not in mine and c in result]
    # The constant in the letters (stacked, outputs, summed); those of x alone have weight one.
    wanted = "".join([*stacked, *outputs, *(c for c in summed if c in other)])
    weight = np.einsum(f"{other}->{wanted}", constant)
    for axis, letter in enumerate(summed, start=len(stacked) + len(outputs)):
        if letter not in other:
            weight = np.repeat(np.expand_dims(weight, axis), size[letter], axis)

    def count(group: list[str]) -> int:
        return prod(size[c] for c in group)

    order = [mine.index(c) for c in (*stacked, *rows, *summed)]
    shape = (count(stacked), count(rows), count(summed))
    moved = x.moved(lambda i: np.transpose(i, order).reshape(shape))
    stacks = weight.reshape(count(stacked), count(outputs), count(summed))
    product = step.builder.contract(step.name, moved, stacks)
    letters_out = [*stacked, *rows, *outputs]
    full = product.moved(lambda i: i.reshape([size[c] for c in letters_out]))
    return full.moved(lambda i: np.transpose(i, [letters_out.index(c) for c in result]))


@_handles("Add", "Sub", "Sum")
def _sum(step: Step) -> View:
    other = -1.0 if step.operator == "Sub" else 1.0
    signs = [1.0] + [other] * (len(step.inputs) - 1)
    parts = [x if isinstance(x, View) else np.asarray(x) for x in step.inputs]
    return step.builder.total(step.name, parts, signs)


@_handles("Mean")
def _mean(step: Step) -> View:
    count = len(step.inputs)
    parts = [x if isinstance(x, View) else np.asarray(x) for x in step.inputs]
    total = step.builder.total(step.name, parts, [1.0] * count)
    return step.builder.scale_shift(step.name, total, 1.0 / count, 0.0)


@_handles("Mul")
def _mul(step: Step) -> View:
    a, b = step.inputs
    if isinstance(a, View) and isinstance(b, View):
        return gates.product(step.builder, step.name, a, b)
    if isinstance(a, View):
        return step.builder.scale_shift(step.name, a, np.asarray(b), 0.0)
    return step.builder.scale_shift(step.name, step.view(1), np.asarray(a), 0.0)


@_handles("Div")
def _div(step: Step) -> View:
    a, b = step.inputs
    if not isinstance(b, View):
        return step.builder.divide(step.name, step.view(0), np.asarray(b))
    if isinstance(a, View):
        return gates.quotient(step.builder, step.name, a, b)
    raise LipoptError("it divides by a tensor that depends on the input, which is not supported")


@_handles("Log")
def _log(step: Step) -> View:
    return gates.log(step.builder, step.name, step.view())


@_handles("Neg")
def _neg(step: Step) -> View:
    return step.builder.scale_shift(step.name, step.view(), -1.0, 0.0)


@_handles("BatchNormalization")
def _batch_normalization(step: Step) -> View:
    old_training = step.opset < 7 and not step.attribute("is_test", 0)
    if step.attribute("training_mode", 0) or old_training:
        raise LipoptError("it is in training mode; export the model in evaluation mode")
    if not step.attribute("spatial", 1):
        raise LipoptError("spatial=0 is not supported; export the model with a newer opset")
    scale, shift, mean, variance = (step.constant(k) for k in range(1, 5))
    epsilon = step.number("epsilon", 1e-5)
    return step.builder.normalize(step.name, step.view(), scale, shift, mean, variance, epsilon)


@dataclass(frozen=True)
class _Window:
    """The attributes that convolutions and poolings share."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]


def _window(step: Step, kernel: Sequence[int]) -> _Window:
    d = len(kernel)
    declared = list(step.attribute("kernel_shape", kernel))
    if declared != list(kernel):
        raise LipoptError(f"kernel_shape {declared} differs from its weights' {list(kernel)}")
    strides = list(step.attribute("strides", [1] * d))
    dilations = list(step.attribute("dilations", [1] * d))
    if len(strides) != d or len(dilations) != d or min([1, *strides, *dilations]) < 1:
        raise LipoptError(f"strides {strides} and dilations {dilations} do not fit {d} dimensions")
    return _Window(list(kernel), strides, dilations)


def _pads(step: Step, space: Sequence[int], window: _Window) -> list[tuple[int, int]]:
    auto = step.attribute("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        if step.operator.endswith("Pool"):
            _check_same_pool(space, window)
        lower = auto == "SAME_LOWER"
        return same_pads(space, window.kernel, window.strides, window.dilations, lower)
    d = len(window.kernel)
    flat = [0] * (2 * d) if auto == "VALID" else list(step.attribute("pads", [0] * (2 * d)))
    if len(flat) != 2 * d or any(p < 0 for p in flat):
        raise LipoptError(f"pads {flat} are not {2 * d} numbers >= 0")
    return list(zip(flat[:d], flat[d:], strict=True))


def _check_same_pool(space: Sequence[int], window: _Window) -> None:
    """Refuse SAME padding of a pooling where implementations differ on what it is."""
    if max(window.dilations) > 1:
        # onnxruntime pads as if there were no dilation, against the specification.
        raise LipoptError("auto_pad=SAME with dilations is not supported; export it with pads")
    for n, k, s in zip(space, window.kernel, window.strides, strict=True):
        if (-(-n // s) - 1) * s + k < n:
            # Some cut entries off at the front, as if the padding were negative.
            raise LipoptError(
                "auto_pad=SAME with windows that end before the input does is not supported; export it with pads"
            )


@_handles("Conv")
def _conv(step: Step) -> View:
    x = step.view()
    weight = np.asarray(step.constant(1))
    window = _window(step, weight.shape[2:])
    return step.builder.convolution(
        step.name,
        x,
        weight,
        step.constant(2),
        strides=window.strides,
        pads=_pads(step, x.shape[2:], window),
        dilations=window.dilations,
        groups=step.attribute("group", 1),
    )


@_handles("ConvTranspose")
def _conv_transpose(step: Step) -> View:
    x = step.view()
    weight = np.asarray(step.constant(1))
    window = _window(step, weight.shape[2:])
    d = len(window.kernel)
    extra = list(step.attribute("output_padding", [0] * d))
    # The length of the output along each axis if nothing is cut off.
    full = []
    for n, k, s, dilation, more in zip(
        x.shape[2:], window.kernel, window.strides, window.dilations, extra, strict=True
    ):
        full.append(s * (n - 1) + more + (k - 1) * dilation + 1)
    auto = step.attribute("auto_pad", "NOTSET")
    out = step.attribute("output_shape", None)
    if out is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        out = [n * s for n, s in zip(x.shape[2:], window.strides, strict=True)]
        if any(wanted > length for wanted, length in zip(out, full, strict=True)):
            # The specification pads to this size, onnxruntime does not.
            raise LipoptError(
                f"auto_pad={auto} asks for {out}, more than the kernel reaches ({full}); export it with pads"
            )
    if out is None:
        pads = _pads(step, x.shape[2:], window)
        out = [length - before - after for length, (before, after) in zip(full, pads, strict=True)]
    else:
        pads = []
        for length, wanted in zip(full, out, strict=True):
            total = max(length - wanted, 0)
            half = total // 2
            pads.append((half, total - half) if auto == "SAME_UPPER" else (total - half, half))
    return step.builder.transposed_convolution(
        step.name,
        x,
        weight,
        step.constant(2),
        strides=window.strides,
        pads=pads,
        dilations=window.dilations,
        groups=step.attribute("group", 1),
        out=out,
    )


@_handles("AveragePool")
def _average_pool(step: Step) -> View:
    x = step.view()
    window = _window(step, step.attribute("kernel_shape", []))
    return step.builder.average_pool(
        step.name,
        x,
        window.kernel,
        window.strides,
        _pads(step, x.shape[2:], window),
        dilations=window.dilations,
        count_pads=bool(step.attribute("count_include_pad", 0)),
        ceil=bool(step.attribute("ceil_mode", 0)),
    )


@_handles("MaxPool")
def _max_pool(step: Step) -> View:
    x = step.view()
    window = _window(step, step.attribute("kernel_shape", []))
    pads = _pads(step, x.shape[2:], window)
    ceil = bool(step.attribute("ceil_mode", 0))
    return step.builder.max_pool(
        step.name, x, window.kernel, window.strides, pads, window.dilations, ceil
    )


@_handles("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(step: Step) -> View:
    x = step.view()
    space = range(2, len(x.shape))
    how = "mean" if step.operator == "GlobalAveragePool" else "max"
    return step.builder.reduce(step.name, x, space, True, how)  # type: ignore[arg-type]


@_handles("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1")
def _reduce(step: Step) -> View:
    x = step.view()
    axes = step.integers("axes", 1)
    if not axes:
        every = range(len(x.shape))
        axes = [] if step.attribute("noop_with_empty_axes", 0) else list(every)
    keep = bool(step.attribute("keepdims", 1))
    if step.operator == "ReduceL1":
        x = step.builder.activation(f"{step.name}.abs", x, "abs")
        return step.builder.reduce(step.name, x, axes, keep, "sum")
    if not axes:
        return x
    how = step.operator.removeprefix("Reduce").lower()
    return step.builder.reduce(step.name, x, axes, keep, how)  # type: ignore[arg-type]


@_handles("CumSum")
def _cumulative(step: Step) -> View:
    x = step.view()
    axis = int(np.asarray(step.constant(1)).reshape(()))
    earlier = np.tri(x.shape[axis], k=-1 if step.attribute("exclusive", 0) else 0)
    weight = earlier.T if step.attribute("reverse", 0) else earlier
    return step.builder.along(step.name, x, axis, weight)


@_handles("Resize", "Upsample")
def _resize(step: Step) -> View:
    """Resizing is linear along each axis; the weights are what ONNX's own implementation says."""
    x = step.view()
    old = step.operator == "Upsample" or step.opset < 11
    attributes = {name: step.attribute(name, None) for name in step.attributes}
    _check_resize(attributes)
    attributes.pop("keep_aspect_ratio_policy", None)
    axes = list(attributes.pop("axes", range(len(x.shape))))
    scales = attributes.pop("scales", None)
    if scales is None:
        scales = step.constant(1 if old else 2)
    sizes = None if old else step.constant(3)
    if old:
        attributes["coordinate_transformation_mode"] = "asymmetric"
        attributes["nearest_mode"] = "floor"
    if attributes.get("mode") == "bilinear":
        attributes["mode"] = "linear"
    nearest = attributes.get("mode", "nearest") == "nearest"
    if old and nearest and any(s < 1 and 1 / s % 1 for s in np.asarray(scales, np.float64)):
        raise LipoptError(
            "before opset 11, 'nearest' does not say which entry is the nearest one; export it with a newer opset"
        )
    for k, axis in enumerate(axes):
        n = x.shape[axis]
        if sizes is not None and np.size(sizes):
            given = {"sizes": np.array([n, int(sizes[k])], np.int64)}
            unchanged = int(sizes[k]) == n
        elif attributes.get("coordinate_transformation_mode") == "align_corners":
            # Only the size of the result matters, which the reference does not round as it should.
            size = int(np.float32(n) * np.float32(scales[k]))
            given = {"sizes": np.array([n, size], np.int64)}
            unchanged = float(scales[k]) == 1
        else:
            _check_size_is_clear(n, float(scales[k]))
            given = {"scales": np.array([1.0, float(scales[k])], np.float32)}
            unchanged = float(scales[k]) == 1
        if not unchanged:
            x = step.builder.along(step.name, x, axis, _resize_weights(n, given, attributes))
            if not nearest:
                step.builder.inexact[x.node] = INTERPOLATED
    return x


def _check_resize(attributes: dict[str, Any]) -> None:
    """Refuse what is not linear along each axis, or not the same in all implementations."""
    mode = attributes.get("coordinate_transformation_mode")
    if mode == "tf_crop_and_resize":
        raise LipoptError(f"coordinate_transformation_mode '{mode}' is not supported")
    if attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise LipoptError("only the aspect ratio policy 'stretch' is supported")
    if attributes.get("antialias", 0) and mode == "align_corners":
        raise LipoptError(f"antialias with '{mode}' is not supported: implementations differ")


def _check_size_is_clear(n: int, scale: float) -> None:
    """Refuse a size that depends on whether the product is rounded to single precision."""
    single = int(np.float32(n) * np.float32(scale))
    if single != int(n * scale):
        raise LipoptError(
            f"whether {n} entries times {scale:.9g} are {single} or {int(n * scale)} depends on"
            " rounding; export it with sizes instead of scales"
        )


def _resize_weights(n: int, given: dict[str, Array], attributes: dict[str, Any]) -> Array:
    """The matrix (outputs, inputs) of resizing one axis: every unit vector resized."""
    inputs = ["x", "", "scales" if "scales" in given else "", "sizes" if "sizes" in given else ""]
    node = helper.make_node("Resize", [name for name in inputs], ["y"], **attributes)
    outputs = evaluate([node], {"x": np.eye(n, dtype=np.float32), **given}, ["y"], 19)
    weights = np.ascontiguousarray(outputs[0].T)
    mode = attributes.get("coordinate_transformation_mode")
    if mode == "pytorch_half_pixel" and len(weights) == 1:
        # The specification takes the first entry here, the reference implementation another.
        if attributes.get("antialias", 0):
            raise LipoptError(f"antialias with '{mode}' to a single entry is not supported")
        return np.eye(1, n)
    return weights


def evaluate(
    nodes: Sequence[onnx.NodeProto], feeds: dict[str, Any], names: Sequence[str], opset: int
) -> list[Array]:
    """The named results of some nodes, by ONNX's own reference implementation."""
    unknown = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in feeds]
    results = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in names]
    graph = helper.make_graph(nodes, "part", unknown, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    outputs = ReferenceEvaluator(model).run(None, feeds)
    return [np.asarray(output) for output in outputs]


# ---- moving entries


@_handles("Identity")
def _identity(step: Step) -> View:
    return step.view()


@_handles("Dropout")
def _dropout(step: Step) -> View:
    ratio = step.attributes.get("ratio", step.constant(1, 0.5))
    old_training = step.opset < 7 and not step.attribute("is_test", 0)
    training = old_training or bool(np.any(step.constant(2, False)))
    if training and np.any(np.asarray(ratio) != 0):
        raise LipoptError("it is random (training mode); export the model in evaluation mode")
    return step.view()


@_handles("Cast", "CastLike")
def _cast(step: Step) -> View:
    if step.operator == "Cast" and step.attribute("to", 0) not in FLOATS:
        raise LipoptError("a cast to anything but float32 or float64 rounds its input; remove it")
    if step.operator == "CastLike":
        like = step.inputs[1]
        if not isinstance(like, View) and np.asarray(like).dtype not in (np.float32, np.float64):
            raise LipoptError("a cast to anything but float32 or float64 rounds its input")
    return step.view()


@_handles("Shape")
def _shape(step: Step) -> Array:
    shape = np.array(step.view().shape, dtype=np.int64)
    return shape[slice(step.attribute("start", 0), step.attribute("end", None))]


@_handles("Size")
def _size(step: Step) -> Array:
    return np.array(step.view().size, dtype=np.int64)


@_handles("Flatten")
def _flatten(step: Step) -> View:
    x = step.view()
    axis = step.attribute("axis", 1)
    if axis < 0:
        axis += len(x.shape)
    rows = prod(x.shape[:axis])
    columns = prod(x.shape[axis:])
    return x.moved(lambda i: i.reshape(rows, columns))


@_handles("Reshape")
def _reshape(step: Step) -> View:
    x = step.view()
    shape = step.integers("shape", 1) or []
    if not step.attribute("allowzero", 0):
        shape = [x.shape[k] if n == 0 else n for k, n in enumerate(shape)]
    return x.moved(lambda i: i.reshape(shape))


@_handles("Squeeze")
def _squeeze(step: Step) -> View:
    axes = step.integers("axes", 1)
    return step.view().moved(lambda i: np.squeeze(i, None if axes is None else tuple(axes)))


@_handles("Unsqueeze")
def _unsqueeze(step: Step) -> View:
    axes = tuple(step.integers("axes", 1) or ())
    return step.view().moved(lambda i: np.expand_dims(i, axes))


@_handles("Transpose")
def _transpose(step: Step) -> View:
    return step.view().moved(lambda i: np.transpose(i, step.attribute("perm", None)))


@_handles("Expand")
def _expand(step: Step) -> View:
    shape = tuple(step.integers("shape", 1) or ())
    return step.view().moved(lambda i: np.broadcast_to(i, np.broadcast_shapes(i.shape, shape)))


@_handles("Tile")
def _tile(step: Step) -> View:
    repeats = step.integers("repeats", 1) or []
    return step.view().moved(lambda i: np.tile(i, repeats))


@_handles("DepthToSpace")
def _depth_to_space(step: Step) -> View:
    x = step.view()
    batch, channels, height, width = x.shape
    block = step.attribute("blocksize", 1)
    depth = channels // block**2
    if step.attribute("mode", "DCR") == "DCR":
        split = (batch, block, block, depth, height, width)
        order = (0, 3, 4, 1, 5, 2)
    else:
        split = (batch, depth, block, block, height, width)
        order = (0, 1, 4, 2, 5, 3)
    out = (batch, depth, height * block, width * block)
    return x.moved(lambda i: i.reshape(split).transpose(order).reshape(out))


@_handles("SpaceToDepth")
def _space_to_depth(step: Step) -> View:
    x = step.view()
    batch, channels, height, width = x.shape
    block = step.attribute("blocksize", 1)
    split = (batch, channels, height // block, block, width // block, block)
    out = (batch, channels * block**2, height // block, width // block)
    return x.moved(lambda i: i.reshape(split).transpose(0, 3, 5, 1, 2, 4).reshape(out))


@_handles("Trilu")
def _trilu(step: Step) -> View:
    x = step.view()
    k = int(np.asarray(step.constant(1, 0)).reshape(()))
    keep = np.triu if step.attribute("upper", 1) else np.tril
    return x.moved(lambda i: np.where(keep(np.ones(i.shape, bool), k), i, -1))


@_handles("Pad")
def _pad(step: Step) -> View:
    x = step.view()
    rank = len(x.shape)
    flat = step.integers("pads", 1)
    flat = step.integers("paddings", 1) if flat is None else flat
    value = float(np.asarray(step.attributes.get("value", step.constant(2, 0.0))).reshape(()))
    axes = step.integers("axes", 3)
    axes = list(range(rank)) if axes is None else [axis % rank for axis in axes]
    if flat is None or len(flat) != 2 * len(axes):
        raise LipoptError(f"pads {flat} are not two numbers for each of {len(axes)} axes")
    pads = [(0, 0)] * rank
    for k, axis in enumerate(axes):
        pads[axis] = (flat[k], flat[len(axes) + k])
    return step.builder.pad(step.name, x, pads, step.attribute("mode", "constant"), value)


@_handles("Concat")
def _concat(step: Step) -> View:
    parts = [x if isinstance(x, View) else np.asarray(x) for x in step.inputs]
    return step.builder.concatenate(step.name, parts, step.attribute("axis", 1))


@_handles("Where")
def _where(step: Step) -> View:
    condition = np.asarray(step.constant(0), dtype=bool)
    options = [x if isinstance(x, View) else np.asarray(x) for x in step.inputs[1:]]
    shape = np.broadcast_shapes(condition.shape, *(option.shape for option in options))
    which = np.where(np.broadcast_to(condition, shape), 0, 1)
    return step.builder.choose(step.name, which, options)


@_handles("Slice")
def _slice(step: Step) -> View:
    x = step.view()
    starts = step.integers("starts", 1) or []
    ends = step.integers("ends", 2) or []
    axes = step.integers("axes", 3)
    axes = list(range(len(starts))) if axes is None else axes
    steps = step.integers("steps", 4) or [1] * len(starts)
    cut = [slice(None)] * len(x.shape)
    for start, end, axis, stride in zip(starts, ends, axes, steps, strict=True):
        past_the_front = stride < 0 and end < -x.shape[axis]
        cut[axis] = slice(start, None if past_the_front else end, stride)
    return x.moved(lambda i: i[tuple(cut)])


@_handles("Split")
def _split(step: Step) -> list[View]:
    x = step.view()
    axis = step.attribute("axis", 0)
    sizes = step.integers("split", 1)
    if sizes is None:
        count = step.attribute("num_outputs", len(step.node.output))
        width = -(-x.shape[axis] // count)
        cuts = np.arange(1, count) * width
    else:
        cuts = np.cumsum(sizes)[:-1]
    return [View(x.node, part) for part in np.split(x.index, cuts, axis=axis)]


@_handles("Gather")
def _gather(step: Step) -> View:
    places = np.asarray(step.constant(1))
    return step.view().moved(lambda i: np.take(i, places, axis=step.attribute("axis", 0)))


@_handles("GatherElements")
def _gather_elements(step: Step) -> View:
    places = np.asarray(step.constant(1))
    move = places_along(step.attribute("axis", 0), places)
    return step.view().moved(lambda i: i[move])


@_handles("GatherND")
def _gather_nd(step: Step) -> View:
    """The last axis of the indices holds places along as many axes, after `batch_dims` others."""
    batch = step.attribute("batch_dims", 0)
    places = np.asarray(step.constant(1))
    found = [places[..., k] for k in range(places.shape[-1])]
    rows = found[0].ndim
    grid = []
    for k in range(batch):
        shape = [-1 if axis == k else 1 for axis in range(rows)]
        grid.append(np.arange(places.shape[k]).reshape(shape))
    return step.view().moved(lambda i: i[(*grid, *found)])


@_handles("ScatterElements", "Scatter")
def _scatter_elements(step: Step) -> View:
    places = np.asarray(step.constant(1))
    return _scatter(step, places_along(step.attribute("axis", 0), places))


@_handles("ScatterND")
def _scatter_nd(step: Step) -> View:
    """The last axis of the indices holds places along as many of the first axes."""
    places = np.asarray(step.constant(1))
    return _scatter(step, tuple(places[..., k] for k in range(places.shape[-1])))


def _scatter(step: Step, move: tuple[Array, ...]) -> View:
    start, _, new = (x if isinstance(x, View) else np.asarray(x) for x in step.inputs)
    reduction = step.attribute("reduction", "none")
    if reduction not in ("none", "add"):
        raise LipoptError(f"reduction='{reduction}' is not supported; only 'none' and 'add' are")
    write = step.builder.overwrite if reduction == "none" else step.builder.add_at
    return write(step.name, start, new, move)


@_handles("Compress")
def _compress(step: Step) -> View:
    kept = np.flatnonzero(np.asarray(step.constant(1)))
    return step.view().moved(lambda i: np.take(i, kept, axis=step.attribute("axis", None)))


@_handles("ReverseSequence")
def _reverse_sequence(step: Step) -> View:
    """The first entries along one axis reversed, as many as are given for each of another axis."""
    time = step.attribute("time_axis", 0)
    batch = step.attribute("batch_axis", 1)
    lengths = np.asarray(step.constant(1))

    def reverse(index: Array) -> Array:
        result = np.moveaxis(index, (batch, time), (0, 1)).copy()
        for row, length in zip(result, lengths, strict=True):
            row[:length] = row[:length][::-1].copy()
        return np.moveaxis(result, (0, 1), (batch, time))

    return step.view().moved(reverse)


# ---- activations


def _activation(kind: str, **names: tuple[str, float]) -> Handler:
    """A handler for an activation whose parameters are attributes with defaults."""

    def handle(step: Step) -> View:
        parameters = {}
        for ours, (theirs, default) in names.items():
            parameters[ours] = step.number(theirs, default)
        return step.builder.activation(step.name, step.view(), kind, parameters)

    return handle


SELU = {
    "alpha": ("alpha", 1.67326319217681884765625),
    "gamma": ("gamma", 1.05070102214813232421875),
}
HANDLERS["Relu"] = _activation("relu")
HANDLERS["Abs"] = _activation("abs")
HANDLERS["LeakyRelu"] = _activation("leaky_relu", alpha=("alpha", 0.01))
HANDLERS["Elu"] = _activation("elu", alpha=("alpha", 1.0))
HANDLERS["Selu"] = _activation("selu", **SELU)
HANDLERS["Celu"] = _activation("celu", alpha=("alpha", 1.0))
HANDLERS["Softplus"] = _activation("softplus")
HANDLERS["Softsign"] = _activation("softsign")
HANDLERS["Sigmoid"] = _activation("sigmoid")
HANDLERS["Tanh"] = _activation("tanh")
HANDLERS["Erf"] = _activation("erf")
HANDLERS["HardSigmoid"] = _activation("hard_sigmoid", alpha=("alpha", 0.2), beta=("beta", 0.5))
HANDLERS["HardSwish"] = _activation("hard_swish")
HANDLERS["Mish"] = _activation("mish")
HANDLERS["Swish"] = _activation("silu", beta=("alpha", 1.0))


@_handles("Gelu")
def _gelu(step: Step) -> View:
    kind = "gelu_tanh" if step.attribute("approximate", "none") == "tanh" else "gelu"
    return step.builder.activation(step.name, step.view(), kind)


@_handles("PRelu")
def _prelu(step: Step) -> View:
    slopes = np.asarray(step.constant(1))
    return step.builder.activation(step.name, step.view(), "leaky_relu", {"alpha": slopes})


@_handles("Shrink")
def _shrink(step: Step) -> View:
    width = step.attribute("lambd", 0.5)
    if step.attribute("bias", 0.0) != width:
        raise LipoptError("it jumps, so the network is not Lipschitz")
    return step.builder.soft_shrink(step.name, step.view(), width)


@_handles("Clip")
def _clip(step: Step) -> View:
    low = step.attributes.get("min", step.constant(1, -np.inf))
    high = step.attributes.get("max", step.constant(2, np.inf))
    return step.builder.activation(step.name, step.view(), "clip", {"low": low, "high": high})


@_handles("Max", "Min")
def _max(step: Step) -> View:
    views = [x for x in step.inputs if isinstance(x, View)]
    constants = [np.asarray(x) for x in step.inputs if not isinstance(x, View)]
    others: list[View | Array] = [*views[1:], *constants]
    result = views[0]
    for other in others:
        result = step.builder.larger(step.name, result, other, step.operator == "Max")
    return result
