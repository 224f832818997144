"""ONNX operators that are linear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ...errors import LipoptError
from ...numerics.arrays import Array
from .. import gates, smooth, windowed
from ..builder import INTERPOLATED
from ..views import View, same_pads
from .table import Step, Value, handles


@handles("Gemm")
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
        product = smooth.matmul(step.builder, step.name, a, b)
        return step.builder.scale_shift(step.name, product, alpha, 0.0) if alpha != 1 else product
    weight = np.asarray(b if isinstance(a, View) else a)
    if alpha != 1:
        weight = weight.astype(np.float64) * alpha
    if isinstance(a, View):
        return step.builder.linear(step.name, a, weight.T, None)
    assert isinstance(b, View)
    return step.builder.left_matmul(step.name, weight, b)


@handles("MatMul")
def _matmul(step: Step) -> View:
    a, b = step.inputs
    if isinstance(a, View) and isinstance(b, View):
        return smooth.matmul(step.builder, step.name, a, b)
    if isinstance(a, View):
        return step.builder.matmul(step.name, a, np.asarray(b))
    return step.builder.left_matmul(step.name, np.asarray(a), step.view(1))


@handles("Einsum")
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


@handles("Add", "Sub", "Sum")
def _sum(step: Step) -> View:
    other = -1.0 if step.operator == "Sub" else 1.0
    signs = [1.0] + [other] * (len(step.inputs) - 1)
    parts = [x if isinstance(x, View) else np.asarray(x) for x in step.inputs]
    return step.builder.total(step.name, parts, signs)


@handles("Mean")
def _mean(step: Step) -> View:
    count = len(step.inputs)
    parts = [x if isinstance(x, View) else np.asarray(x) for x in step.inputs]
    total = step.builder.total(step.name, parts, [1.0] * count)
    return step.builder.scale_shift(step.name, total, 1.0 / count, 0.0)


@handles("Mul")
def _mul(step: Step) -> View:
    a, b = step.inputs
    if isinstance(a, View) and isinstance(b, View):
        return gates.product(step.builder, step.name, a, b)
    if isinstance(a, View):
        return step.builder.scale_shift(step.name, a, np.asarray(b), 0.0)
    return step.builder.scale_shift(step.name, step.view(1), np.asarray(a), 0.0)


@handles("Div")
def _div(step: Step) -> View:
    a, b = step.inputs
    if not isinstance(b, View):
        return step.builder.divide(step.name, step.view(0), np.asarray(b))
    numerator = a if isinstance(a, View) else np.asarray(a)
    return gates.quotient(step.builder, step.name, numerator, b)


@handles("Neg")
def _neg(step: Step) -> View:
    return step.builder.scale_shift(step.name, step.view(), -1.0, 0.0)


@handles("BatchNormalization")
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


@handles("Conv")
def _conv(step: Step) -> View:
    x = step.view()
    weight = np.asarray(step.constant(1))
    window = _window(step, weight.shape[2:])
    return windowed.convolution(
        step.builder,
        step.name,
        x,
        weight,
        step.constant(2),
        strides=window.strides,
        pads=_pads(step, x.shape[2:], window),
        dilations=window.dilations,
        groups=step.attribute("group", 1),
    )


@handles("ConvTranspose")
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
    return windowed.transposed_convolution(
        step.builder,
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


@handles("AveragePool")
def _average_pool(step: Step) -> View:
    x = step.view()
    window = _window(step, step.attribute("kernel_shape", []))
    return windowed.average_pool(
        step.builder,
        step.name,
        x,
        window.kernel,
        window.strides,
        _pads(step, x.shape[2:], window),
        dilations=window.dilations,
        count_pads=bool(step.attribute("count_include_pad", 0)),
        ceil=bool(step.attribute("ceil_mode", 0)),
    )


@handles("MaxPool")
def _max_pool(step: Step) -> View:
    x = step.view()
    window = _window(step, step.attribute("kernel_shape", []))
    pads = _pads(step, x.shape[2:], window)
    ceil = bool(step.attribute("ceil_mode", 0))
    return windowed.max_pool(
        step.builder, step.name, x, window.kernel, window.strides, pads, window.dilations, ceil
    )


@handles("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(step: Step) -> View:
    x = step.view()
    space = range(2, len(x.shape))
    how = "mean" if step.operator == "GlobalAveragePool" else "max"
    return step.builder.reduce(step.name, x, space, True, how)  # type: ignore[arg-type]


def reduced_axes(step: Step) -> list[int]:
    """The axes of a reduction: all, if none are given."""
    axes = step.integers("axes", 1)
    if axes:
        return axes
    every = range(len(step.view().shape))
    return [] if step.attribute("noop_with_empty_axes", 0) else list(every)


@handles("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1")
def _reduce(step: Step) -> View:
    x = step.view()
    axes = reduced_axes(step)
    keep = bool(step.attribute("keepdims", 1))
    if step.operator == "ReduceL1":
        x = step.builder.activation(f"{step.name}.abs", x, "abs")
        return step.builder.reduce(step.name, x, axes, keep, "sum")
    if not axes:
        return x
    how = step.operator.removeprefix("Reduce").lower()
    return step.builder.reduce(step.name, x, axes, keep, how)  # type: ignore[arg-type]


@handles("CumSum")
def _cumulative(step: Step) -> View:
    x = step.view()
    axis = int(np.asarray(step.constant(1)).reshape(()))
    earlier = np.tri(x.shape[axis], k=-1 if step.attribute("exclusive", 0) else 0)
    weight = earlier.T if step.attribute("reverse", 0) else earlier
    return step.builder.along(step.name, x, axis, weight)


@handles("Resize", "Upsample")
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
