"""Random ONNX graphs: every operator that is read, in every form that some opset allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx_draft import (
    STEPS,
    Draft,
    RandomGraph,
    broadcast_shape,
    needs,
    of_rank,
    partner,
    step,
    wider_shape,
)
from random_onnx_moves import zeros_around


def random_graph(seed: int) -> RandomGraph:
    """A graph of two to eight operators that depend on the input."""
    draft = Draft(np.random.default_rng(seed))
    count = draft.integer(2, 8)
    for _ in range(20 * count):
        if draft.steps >= count:
            break
        draft.try_step()
    return draft.finished()


# ---- linear maps


@step
def gemm(g: Draft, x: str) -> str | None:
    x = of_rank(g, x, 2)
    options: dict[str, Any] = {}
    shape = list(g.shape_of(x))
    if g.chance(0.3):
        options["transA"] = 1
        shape.reverse()
    weight = [shape[1], g.integer(1, 5)]
    rows = [shape[0], weight[1]]
    if g.chance(0.5):
        options["transB"] = 1
        weight.reverse()
    if g.chance(0.4):
        options["alpha"] = float(g.pick([0.5, -2.0, 0.3]))
    if g.chance(0.4):
        options["beta"] = float(g.pick([0.5, -2.0, 0.0]))
    inputs = [x, g.real(g.floats(*weight))]
    if g.opset < 11 or g.chance(0.7):
        inputs.append(g.real(g.floats(*broadcast_shape(g, rows))))
    return g.node("Gemm", inputs, **options)


@step
def gemm_from_the_left(g: Draft, x: str) -> str | None:
    """The weights stand first, or the bias depends on the input."""
    x = of_rank(g, x, 2)
    rows, columns = g.shape_of(x)
    height = g.integer(1, 4)
    if g.chance(0.5):
        weight = g.real(g.floats(height, rows))
        return g.node("Gemm", [weight, x, g.real(g.floats(columns))])
    a = g.real(g.floats(rows, height))
    b = g.real(g.floats(height, columns))
    return g.node("Gemm", [a, b, x], beta=0.5)


@step
def matmul(g: Draft, x: str) -> str | None:
    shape = list(g.shape_of(x))
    if not shape:
        return None
    stacks = [n if g.chance(0.5) else 1 for n in shape[:-2]]
    stacks = stacks[g.integer(0, len(stacks)) :]
    if g.chance(0.2):
        stacks = [g.integer(1, 2), *([1] * len(shape[:-2]))]
    if g.chance(0.5):
        weight = [*stacks, shape[-1], g.integer(1, 4)]
        if g.chance(0.15):
            weight = [shape[-1]]
        return g.node("MatMul", [x, g.real(g.floats(*weight))])
    inner = shape[-2] if len(shape) > 1 else shape[0]
    weight = [*stacks, g.integer(1, 4), inner]
    if g.chance(0.15):
        weight = [inner]
    return g.node("MatMul", [g.real(g.floats(*weight)), x])


@step
@needs(12)
def einsum(g: Draft, x: str) -> str | None:
    rank = g.rank(x)
    if not 1 <= rank <= 4:
        return None
    letters = "abcd"[:rank]
    shape = dict(zip(letters, g.shape_of(x), strict=True))
    shape["z"] = g.integer(1, 3)
    other = "".join(g.some([*letters, "z"], 0))
    result = "".join(g.some(sorted({*letters, *other}), 0))
    if not other:
        return g.node("Einsum", [x], equation=f"{letters}->{result}")
    weight = g.real(g.floats(*(shape[c] for c in other)))
    if g.chance(0.5):
        return g.node("Einsum", [x, weight], equation=f"{letters},{other}->{result}")
    return g.node("Einsum", [weight, x], equation=f"{other},{letters} -> {result}")


@step
def arithmetic(g: Draft, x: str) -> str | None:
    operator = g.pick(["Add", "Sub", "Mul", "Div"])
    array = g.floats(*wider_shape(g, g.shape_of(x)))
    if operator == "Div":
        array = (np.abs(array) + 0.5).astype(g.kind)
    inputs = [x, g.real(array)]
    if operator != "Div" and g.chance(0.4):
        inputs.reverse()
    return g.node(operator, inputs)


@step
def joined(g: Draft, x: str) -> str | None:
    """A sum, mean or maximum of tensors that broadcast, and of constants."""
    operator = g.pick(["Add", "Sub", "Sum", "Mean", "Max", "Min", "Max", "Min"])
    inputs = [x]
    for _ in range(1 if operator in ("Add", "Sub") else g.integer(0, 2)):
        if operator not in ("Add", "Sub") and g.chance(0.3):
            inputs.append(g.real(g.floats(*wider_shape(g, g.shape_of(x)))))
        else:
            inputs.append(partner(g, x))
    return g.node(operator, [inputs[k] for k in g.rng.permutation(len(inputs))])


@step
def negative(g: Draft, x: str) -> str | None:
    return g.node("Neg", [x])


@step
def batch_norm(g: Draft, x: str) -> str | None:
    if g.rank(x) < 2:
        x = of_rank(g, x, g.integer(2, 4))
    channels = g.shape_of(x)[1]
    arrays = [g.floats(channels) for _ in range(3)]
    arrays.append((g.floats(channels) ** 2 + 0.1).astype(g.kind))
    inputs = [x, *(g.real(array) for array in arrays)]
    return g.node("BatchNormalization", inputs, epsilon=float(g.pick([1e-5, 1e-2])))


def window_options(g: Draft, kernel: Sequence[int], dilated: bool) -> dict[str, Any]:
    """Strides, dilations and padding."""
    d = len(kernel)
    options: dict[str, Any] = {}
    if g.chance(0.5):
        options["strides"] = g.integers(1, 3, d)
    if dilated and g.chance(0.3):
        options["dilations"] = g.integers(1, 2, d)
    if g.chance(0.3):
        options["auto_pad"] = g.pick(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
    elif g.chance(0.6):
        options["pads"] = [g.integer(0, max(0, k - 1)) for k in (*kernel, *kernel)]
    return options


@step
def conv(g: Draft, x: str) -> str | None:
    d = g.integer(1, 3)
    x = of_rank(g, x, d + 2)
    channels = g.shape_of(x)[1]
    groups = g.pick([n for n in range(1, channels + 1) if channels % n == 0])
    kernel = g.integers(1, 3, d)
    outputs = groups * g.integer(1, 2)
    weight = g.real(g.floats(outputs, channels // groups, *kernel))
    options = window_options(g, kernel, True)
    if groups > 1:
        options["group"] = groups
    if g.chance(0.5):
        options["kernel_shape"] = kernel
    inputs = [x, weight]
    if g.chance(0.5):
        inputs.append(g.real(g.floats(outputs)))
    return g.node("Conv", inputs, **options)


STEPS.append(conv)


@step
def conv_transpose(g: Draft, x: str) -> str | None:
    d = g.integer(1, 2)
    x = of_rank(g, x, d + 2)
    channels = g.shape_of(x)[1]
    groups = g.pick([n for n in range(1, channels + 1) if channels % n == 0])
    kernel = g.integers(1, 3, d)
    per_group = g.integer(1, 2)
    weight = g.real(g.floats(channels, per_group, *kernel))
    options = window_options(g, kernel, True)
    strides = options.get("strides", [1] * d)
    if g.chance(0.4):
        options["output_padding"] = [g.integer(0, s - 1) for s in strides]
    if g.chance(0.2):
        space = g.shape_of(x)[2:]
        sizes = zip(space, strides, strict=True)
        options["output_shape"] = [n * s + g.integer(0, 1) for n, s in sizes]
        options.pop("pads", None)
    if groups > 1:
        options["group"] = groups
    inputs = [x, weight]
    if g.chance(0.5):
        inputs.append(g.real(g.floats(groups * per_group)))
    return g.node("ConvTranspose", inputs, **options)


@step
def pool(g: Draft, x: str) -> str | None:
    operator = g.pick(["AveragePool", "AveragePool", "MaxPool"])
    d = g.integer(1, 3)
    x = of_rank(g, x, d + 2)
    if g.chance(0.3):
        x = zeros_around(g, x) or x
    kernel = g.integers(1, 3, d)
    dilated = g.opset >= (10 if operator == "MaxPool" else 19)
    options = window_options(g, kernel, dilated)
    if operator == "AveragePool" and g.chance(0.6):
        options["count_include_pad"] = g.integer(0, 1)
    if g.opset >= 10 and g.chance(0.4):
        options["ceil_mode"] = g.integer(0, 1)
    return g.node(operator, [x], kernel_shape=kernel, **options)


STEPS.append(pool)


@step
def global_pool(g: Draft, x: str) -> str | None:
    x = of_rank(g, x, g.integer(3, 5))
    if g.chance(0.3):
        x = zeros_around(g, x) or x
    return g.node(g.pick(["GlobalAveragePool", "GlobalMaxPool"]), [x])


REDUCTIONS = ["ReduceSum", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1"]


@step
def reduction(g: Draft, x: str) -> str | None:
    operator = g.pick(REDUCTIONS)
    as_input = g.opset >= (13 if operator == "ReduceSum" else 18)
    options: dict[str, Any] = {}
    if g.chance(0.6):
        options["keepdims"] = g.integer(0, 1)
    how = g.rng.random()
    axes = g.axes(g.rank(x)) if how < 0.75 and g.rank(x) else None
    if not as_input:
        if axes is not None:
            options["axes"] = axes
        return g.node(operator, [x], **options)
    if g.chance(0.3):
        options["noop_with_empty_axes"] = g.integer(0, 1)
    if axes is None and g.chance(0.5):
        return g.node(operator, [x], **options)
    return g.node(operator, [x, g.whole(axes or [])], **options)


STEPS.append(reduction)


@step
@needs(11)
def cumulative(g: Draft, x: str) -> str | None:
    if g.rank(x) == 0:
        return None
    axis = g.whole(g.axis(g.rank(x)))
    options = {"exclusive": g.integer(0, 1), "reverse": g.integer(0, 1)}
    return g.node("CumSum", [x, axis], **options)


@step
def resized(g: Draft, x: str) -> str | None:
    x = of_rank(g, x, g.integer(3, 4))
    rank = g.rank(x)
    # Scales whose inverses are rounded make the nearest entry depend on the precision.
    choices = [1.0, 2.0, 3.0, 0.5, 1.5]
    scales = [1.0, 1.0, *(float(g.pick(choices)) for _ in range(rank - 2))]
    if g.opset < 10:
        scales = [max(1.0, s) for s in scales]
        mode = g.pick(["nearest", "linear"])
        if g.opset < 9:
            return g.node("Upsample", [x], mode=mode, scales=scales)
        return g.node("Upsample", [x, g.constant(np.array(scales, np.float32))], mode=mode)
    if g.opset == 10:
        given = g.constant(np.array(scales, np.float32))
        return g.node("Resize", [x, given], mode=g.pick(["nearest", "linear"]))
    options = _resize_options(g)
    if options["mode"] == "cubic":
        x = of_rank(g, x, 4)
        scales = [1.0, 1.0, *(float(g.pick([2.0, 0.5, 1.5])) for _ in range(2))]
        rank = 4
    elif options["mode"] == "linear" and g.chance(0.3):
        scales[-1] = 0.7
    axes = list(range(rank))
    if g.opset >= 18 and g.chance(0.4):
        axes = list(range(2, rank))
        options["axes"] = [axis - rank if g.chance(0.3) else axis for axis in axes]
    shape = g.shape_of(x)
    if g.chance(0.4):
        sizes = [max(1, int(shape[axis] * scales[axis])) for axis in axes]
        return g.node("Resize", [x, "", "", g.whole(sizes)], **options)
    given = g.constant(np.array([scales[axis] for axis in axes], np.float32))
    return g.node("Resize", [x, "" if g.opset >= 13 else g.real([]), given], **options)


def _resize_options(g: Draft) -> dict[str, Any]:
    options: dict[str, Any] = {"mode": g.pick(["nearest", "linear", "cubic"])}
    modes = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    if g.opset >= 19:
        modes.append("half_pixel_symmetric")
    if g.opset == 11:
        modes.append("tf_half_pixel_for_nn")
    if g.chance(0.7):
        options["coordinate_transformation_mode"] = g.pick(modes)
    if options["mode"] == "nearest" and g.chance(0.6):
        choices = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        options["nearest_mode"] = g.pick(choices)
    if options["mode"] == "cubic":
        if g.chance(0.4):
            options["cubic_coeff_a"] = -0.5
        if g.chance(0.3):
            options["exclude_outside"] = 1
    if g.opset >= 18 and g.chance(0.2) and options["mode"] != "nearest":
        options["antialias"] = 1
    return options


# ---- activations

PLAIN = {
    "Relu": 6,
    "Abs": 6,
    "Softplus": 1,
    "Softsign": 1,
    "Sigmoid": 6,
    "Tanh": 6,
    "Erf": 9,
    "HardSwish": 14,
    "Mish": 18,
}


@step
def activation(g: Draft, x: str) -> str | None:
    operator = g.pick([name for name, opset in PLAIN.items() if opset <= g.opset])
    if operator == "HardSwish" and g.kind is np.float64:
        return None  # in double precision, implementations differ on whether 1/6 is single
    return g.node(operator, [x])


@step
def activation_with_parameters(g: Draft, x: str) -> str | None:
    choices: list[tuple[str, dict[str, Any]]] = [
        ("LeakyRelu", {"alpha": float(g.pick([0.01, 0.3, 1.5, -0.2]))}),
        ("Elu", {"alpha": float(g.pick([1.0, 0.5, 2.0]))}),
        ("Selu", {}),
        ("Selu", {"alpha": 1.5, "gamma": 0.9}),
        ("HardSigmoid", {}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ]
    if g.opset >= 12:
        choices.append(("Celu", {"alpha": float(g.pick([1.0, 0.5, 2.0]))}))
    if g.opset >= 9 and g.kind is np.float32:  # onnxruntime computes it in single precision
        choices.append(("Shrink", {"lambd": 0.5, "bias": 0.5}))
    if g.opset >= 20:
        choices.append(("Gelu", {"approximate": g.pick(["none", "tanh"])}))
    operator, options = g.pick(choices)
    return g.node(operator, [x], **(options if g.chance(0.8) else {}))


STEPS.append(activation)


@step
def prelu(g: Draft, x: str) -> str | None:
    return g.node("PRelu", [x, g.real(g.floats(*broadcast_shape(g, g.shape_of(x))))])


@step
def clip(g: Draft, x: str) -> str | None:
    low = g.pick([None, -0.5, 0.0])
    high = g.pick([None, 0.5, 6.0])
    if g.opset < 11:
        ends = {"min": low, "max": high}
        return g.node("Clip", [x], **{name: end for name, end in ends.items() if end is not None})
    inputs = [x, "" if low is None else g.real(low)]
    if high is not None:
        inputs.append(g.real(high))
    return g.node("Clip", inputs)


@step
def gated(g: Draft, x: str) -> str | None:
    """x * gate(x), or a product that only looks like one."""
    inner = x
    if g.chance(0.3):
        inner = g.node("Mul", [x, g.real(1.5)])
    gate = g.node(g.pick(["Sigmoid", "HardSigmoid"]), [inner])
    if g.chance(0.2):
        gate = g.node("Mul", [gate, g.real(g.floats())])
    factors = [x, gate]
    if g.chance(0.5):
        factors.reverse()
    return g.node("Mul", factors)
