"""ONNX -> Network: the graph is walked once; constants are folded, tensors become views, every operator has a handler."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from ..errors import LipoptError
from ..network import Network
from ..rounding import Array
from .builder import Builder, View

Value: TypeAlias = View | Array | None
Handler: TypeAlias = Callable[["_Step"], Any]

HANDLERS: dict[str, Handler] = {}
REFUSED = {
    "Softmax": "a Softmax output has no useful Lipschitz bound here; export the logits (drop the last layer)",
    "LogSoftmax": "export the logits (drop the LogSoftmax layer)",
    "ThresholdedRelu": "ThresholdedRelu jumps, so the network is not Lipschitz",
    "Sign": "Sign jumps, so the network is not Lipschitz",
}


def read_onnx(path: Path) -> Network:
    """The network in an .onnx or .onnx.gz file."""
    try:
        if path.name.lower().endswith(".gz"):
            model = onnx.load_from_string(gzip.decompress(path.read_bytes()))
        else:
            model = onnx.load(str(path))
    except (DecodeError, OSError, EOFError, onnx.checker.ValidationError) as error:
        raise LipoptError(f"{path} is not a readable ONNX file (truncated or corrupt?): {error}") from error
    if not model.graph.node:
        raise LipoptError(f"{path} is not a readable ONNX model: its graph is empty")
    return network_from_model(model)


def network_from_model(model: onnx.ModelProto) -> Network:
    """The network of a model in memory."""
    if model.functions:
        import onnx.inliner

        model = onnx.inliner.inline_local_functions(model)
    graph = model.graph
    values: dict[str, Value] = {"": None}
    values.update({tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer})
    if graph.sparse_initializer:
        raise LipoptError("the model has sparse initializers; export it with dense ones")
    inputs = [i for i in graph.input if i.name not in values]
    if len(inputs) != 1 or len(graph.output) != 1:
        names = [i.name for i in inputs], [o.name for o in graph.output]
        raise LipoptError(f"a network needs one input and one output; the model has inputs {names[0]}, outputs {names[1]}")
    builder = Builder()
    values[inputs[0].name] = builder.input(*_input_shape(inputs[0]))
    for node in _needed(graph):
        results = _run(node, values, builder, model)
        for name, value in zip(node.output, results, strict=False):
            values[name] = value
    output = values.get(graph.output[0].name)
    if not isinstance(output, View):
        raise LipoptError(f"the output '{graph.output[0].name}' does not depend on the input")
    return builder.network(output)


def _needed(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes that the output depends on, in their order."""
    wanted, kept = {graph.output[0].name}, []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
            wanted.update(name for attribute in node.attribute for inner in attribute.g.node for name in inner.input)
    return kept[::-1]


def _input_shape(value: Any) -> tuple[list[int], bool]:
    """The shape of the input, and whether its first entry is a batch dimension; a symbolic batch is one."""
    if not value.type.tensor_type.HasField("shape"):
        raise LipoptError(f"input '{value.name}' has no shape; export the model with one")
    dims = value.type.tensor_type.shape.dim
    shape = [d.dim_value if d.HasField("dim_value") else 0 for d in dims]
    batch = len(shape) > 1 and shape[0] <= 1
    if batch:
        shape[0] = 1
    if not shape or any(n <= 0 for n in shape):
        raise LipoptError(f"input '{value.name}' has shape {shape} with unknown sizes; export the model with fixed ones")
    return shape, batch


class _Step:
    """One node of the ONNX graph at work: its inputs as views or constants, its attributes, the builder."""

    def __init__(self, node: onnx.NodeProto, inputs: list[Value], builder: Builder, opset: int) -> None:
        self.node, self.inputs, self.builder, self.opset = node, inputs, builder, opset
        self.name = node.name or node.output[0]
        self.attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def attribute(self, name: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def view(self, k: int = 0) -> View:
        value = self.inputs[k]
        if not isinstance(value, View):
            raise LipoptError(f"input {k} must depend on the network's input")
        return value

    def constant(self, k: int, default: Any = None) -> Any:
        value = self.inputs[k] if k < len(self.inputs) else None
        if isinstance(value, View):
            raise LipoptError(f"input {k} ('{self.node.input[k]}') must be a constant")
        return default if value is None else value

    def integers(self, attribute: str, k: int) -> list[int] | None:
        """A list of integers that is an attribute in old opsets and an input in newer ones."""
        value = self.attributes.get(attribute, self.constant(k))
        return None if value is None else [int(v) for v in np.asarray(value).reshape(-1)]


def _run(node: onnx.NodeProto, values: dict[str, Value], builder: Builder, model: onnx.ModelProto) -> Sequence[Value]:
    label = f"node '{node.name or node.output[0]}' ({node.op_type})"
    missing = [name for name in node.input if name not in values]
    if missing:
        raise LipoptError(f"{label} reads '{missing[0]}', which nothing computes")
    inputs = [values[name] for name in node.input]
    if not any(isinstance(value, View) for value in inputs):
        return _fold(node, inputs, model, label)
    if node.op_type in REFUSED:
        raise LipoptError(f"{label} is not supported: {REFUSED[node.op_type]}")
    if node.op_type not in HANDLERS or node.domain not in ("", "ai.onnx"):
        raise LipoptError(
            f"{label} is not supported; rewrite the model without it, or cut the model before it."
            f" Supported: {', '.join(sorted(HANDLERS))}"
        )
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
    try:
        result = HANDLERS[node.op_type](_Step(node, inputs, builder, opset))
    except (LipoptError, ValueError, IndexError, TypeError, KeyError) as error:
        raise LipoptError(f"{label}: {error}") from error
    return result if isinstance(result, list) else [result]


def _fold(node: onnx.NodeProto, inputs: list[Value], model: onnx.ModelProto, label: str) -> Sequence[Value]:
    """A node with constant inputs, computed by ONNX's own reference implementation."""
    from onnx.reference import ReferenceEvaluator

    feeds = {name: value for name, value in zip(node.input, inputs, strict=True) if name}
    declared = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in feeds]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output if name]
    part = helper.make_model(helper.make_graph([node], "constant", declared, results), opset_imports=model.opset_import)
    try:
        outputs = iter(ReferenceEvaluator(part).run(None, feeds))
    except Exception as error:  # the reference implementation raises all kinds
        raise LipoptError(f"{label} has constant inputs and cannot be computed: {error}") from error
    return [np.asarray(next(outputs)) if name else None for name in node.output]


def _handles(*names: str) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return add


# ---- linear maps


@_handles("Gemm")
def _gemm(step: _Step) -> View:
    x, weight = step.view(0), np.asarray(step.constant(1))
    if step.attribute("transA", 0):
        x = x.moved(np.transpose)
    weight = weight if step.attribute("transB", 0) else weight.T
    alpha, beta = step.attribute("alpha", 1.0), step.attribute("beta", 1.0)
    bias = step.constant(2)
    weight = weight if alpha == 1 else weight.astype(np.float64) * alpha
    if bias is not None and beta != 1:
        bias = np.asarray(bias, dtype=np.float64) * beta
    if bias is not None and np.ndim(bias) > 1 and np.shape(bias)[0] > 1:
        return step.builder.scale_shift(step.name, step.builder.linear(step.name, x, weight, None), 1.0, bias)
    return step.builder.linear(step.name, x, weight, None if bias is None else np.reshape(bias, -1))


@_handles("MatMul")
def _matmul(step: _Step) -> View:
    a, b = step.inputs
    if isinstance(a, View) and isinstance(b, View):
        raise LipoptError("it multiplies two tensors that depend on the input (attention?), which is not supported")
    weight = np.asarray(b if isinstance(a, View) else a)
    if weight.ndim == 1:
        weight = weight[:, None] if isinstance(a, View) else weight[None]
        squeeze = True
    else:
        squeeze = False
    if weight.ndim > 2 and all(n == 1 for n in weight.shape[:-2]):
        weight = weight.reshape(weight.shape[-2:])
    if weight.ndim != 2:
        raise LipoptError(f"a constant of shape {weight.shape} is not a matrix; stacks of matrices are not supported")
    if isinstance(a, View):
        result = step.builder.linear(step.name, a, weight.T, None)
        return result.moved(lambda i: i[..., 0]) if squeeze else result
    x = step.view(1)
    flat = x.shape[0:1] == x.shape
    column = x.moved(lambda i: i[:, None]) if flat else x
    result = step.builder.linear(step.name, column.moved(lambda i: np.swapaxes(i, -1, -2)), weight, None)
    result = result.moved(lambda i: np.swapaxes(i, -1, -2))
    result = result.moved(lambda i: i[..., 0]) if flat else result
    return result.moved(lambda i: i[..., 0, :]) if squeeze and not flat else result


@_handles("Add", "Sub", "Sum")
def _sum(step: _Step) -> View:
    signs = [1.0] + [-1.0 if step.node.op_type == "Sub" else 1.0] * (len(step.inputs) - 1)
    views = [(x, s) for x, s in zip(step.inputs, signs, strict=True) if isinstance(x, View)]
    constants = [s * np.asarray(x) for x, s in zip(step.inputs, signs, strict=True) if not isinstance(x, View)]
    if len(views) == 1:
        x, sign = views[0]
        return step.builder.scale_shift(step.name, x, sign, sum(constants[1:], constants[0]) if constants else 0.0)
    total = step.builder.add(step.name, [x for x, _ in views], [s for _, s in views])
    return step.builder.scale_shift(step.name, total, 1.0, sum(constants[1:], constants[0])) if constants else total


@_handles("Mul", "Div")
def _mul(step: _Step) -> View:
    a, b = step.inputs
    if isinstance(a, View) and isinstance(b, View):
        if step.node.op_type == "Div":
            raise LipoptError("it divides by a tensor that depends on the input, which is not supported")
        return step.builder.product(step.name, a, b)
    if step.node.op_type == "Mul":
        x, factor = (a, b) if isinstance(a, View) else (b, a)
        assert isinstance(x, View)
        return step.builder.scale_shift(step.name, x, np.asarray(factor), 0.0)
    divisor = np.asarray(step.constant(1), dtype=np.float64)
    if (divisor == 0).any():
        raise LipoptError("it divides by zero")
    return step.builder.scale_shift(step.name, step.view(0), 1.0 / divisor, 0.0)


@_handles("Neg")
def _neg(step: _Step) -> View:
    return step.builder.scale_shift(step.name, step.view(), -1.0, 0.0)


@_handles("BatchNormalization")
def _batch_normalization(step: _Step) -> View:
    x = step.view()
    if step.attribute("training_mode", 0):
        raise LipoptError("it is in training mode; export the model in evaluation mode")
    scale, shift, mean, variance = (np.asarray(step.constant(k), dtype=np.float64) for k in range(1, 5))
    factor = scale / np.sqrt(variance + step.attribute("epsilon", 1e-5))
    along = (-1,) + (1,) * (len(x.shape) - 2)
    return step.builder.scale_shift(step.name, x, factor.reshape(along), (shift - mean * factor).reshape(along))


def _pads(step: _Step, x: View, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[tuple[int, int]]:
    auto = step.attribute("auto_pad", "NOTSET")
    d = len(kernel)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = []
        for n, k, s, step_size in zip(x.shape[2:], kernel, strides, dilations, strict=True):
            total = max((-(-n // s) - 1) * s + (k - 1) * step_size + 1 - n, 0)
            small, large = total // 2, total - total // 2
            pads.append((small, large) if auto == "SAME_UPPER" else (large, small))
        return pads
    flat = [0] * (2 * d) if auto == "VALID" else list(step.attribute("pads", [0] * (2 * d)))
    if len(flat) != 2 * d or any(p < 0 for p in flat):
        raise LipoptError(f"pads {flat} are not {2 * d} numbers >= 0")
    return list(zip(flat[:d], flat[d:], strict=True))


@_handles("Conv")
def _conv(step: _Step) -> View:
    x, weight = step.view(), np.asarray(step.constant(1))
    d = weight.ndim - 2
    strides, dilations = step.attribute("strides", [1] * d), step.attribute("dilations", [1] * d)
    pads = _pads(step, x, weight.shape[2:], strides, dilations)
    groups = step.attribute("group", 1)
    bias = step.constant(2)
    return step.builder.convolution(step.name, x, weight, bias, strides=strides, pads=pads, dilations=dilations, groups=groups)


def _pool_settings(step: _Step) -> tuple[View, list[int], list[int], list[tuple[int, int]], list[int], bool]:
    x = step.view()
    kernel = list(step.attribute("kernel_shape", []))
    strides = list(step.attribute("strides", [1] * len(kernel)))
    dilations = list(step.attribute("dilations", [1] * len(kernel)))
    return x, kernel, strides, _pads(step, x, kernel, strides, dilations), dilations, bool(step.attribute("ceil_mode", 0))


@_handles("AveragePool")
def _average_pool(step: _Step) -> View:
    x, kernel, strides, pads, dilations, ceil = _pool_settings(step)
    if any(d != 1 for d in dilations):
        raise LipoptError("dilated average pooling is not supported")
    counts = bool(step.attribute("count_include_pad", 0))
    return step.builder.average_pool(step.name, x, kernel, strides, pads, counts, ceil)


@_handles("MaxPool")
def _max_pool(step: _Step) -> View:
    x, kernel, strides, pads, dilations, ceil = _pool_settings(step)
    return step.builder.max_pool(step.name, x, kernel, strides, pads, dilations, ceil)


@_handles("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(step: _Step) -> View:
    x = step.view()
    kernel = x.shape[2:]
    ones, none = [1] * len(kernel), [(0, 0)] * len(kernel)
    if step.node.op_type == "GlobalMaxPool":
        return step.builder.max_pool(step.name, x, kernel, ones, none, ones)
    return step.builder.average_pool(step.name, x, kernel, ones, none, False)


@_handles("ReduceMean", "ReduceSum", "ReduceMax")
def _reduce(step: _Step) -> View:
    x = step.view()
    axes = step.integers("axes", 1)
    if axes is None:
        if step.attribute("noop_with_empty_axes", 0):
            return x
        axes = list(range(len(x.shape)))
    return step.builder.reduce(step.name, x, axes, bool(step.attribute("keepdims", 1)), step.node.op_type[6:].lower())


# ---- moving entries


@_handles("Identity", "Dropout")
def _identity(step: _Step) -> list[Value]:
    return [step.view(), None]


@_handles("Cast")
def _cast(step: _Step) -> View:
    if step.attribute("to", 0) not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        raise LipoptError("a cast to anything but float32 or float64 rounds its input; remove it")
    return step.view()


@_handles("Shape")
def _shape(step: _Step) -> Array:
    shape = np.array(step.view().shape, dtype=np.int64)
    return shape[slice(step.attribute("start", 0), step.attribute("end", None))]


@_handles("Flatten")
def _flatten(step: _Step) -> View:
    x = step.view()
    axis = step.attribute("axis", 1) % (len(x.shape) + 1) if step.attribute("axis", 1) < 0 else step.attribute("axis", 1)
    return x.moved(lambda i: i.reshape(int(np.prod(i.shape[:axis])), -1))


@_handles("Reshape")
def _reshape(step: _Step) -> View:
    x = step.view()
    shape = step.integers("shape", 1) or []
    if not step.attribute("allowzero", 0):
        shape = [x.shape[k] if n == 0 else n for k, n in enumerate(shape)]
    return x.moved(lambda i: i.reshape(shape))


@_handles("Squeeze", "Unsqueeze")
def _squeeze(step: _Step) -> View:
    axes = step.integers("axes", 1)
    if step.node.op_type == "Unsqueeze":
        return step.view().moved(lambda i: np.expand_dims(i, tuple(axes or ())))
    return step.view().moved(lambda i: np.squeeze(i, None if axes is None else tuple(axes)))


@_handles("Transpose")
def _transpose(step: _Step) -> View:
    return step.view().moved(lambda i: np.transpose(i, step.attribute("perm", None)))


@_handles("Expand")
def _expand(step: _Step) -> View:
    shape = step.integers("shape", 1) or []
    return step.view().moved(lambda i: np.broadcast_to(i, np.broadcast_shapes(i.shape, tuple(shape))))


@_handles("Pad")
def _pad(step: _Step) -> View:
    x = step.view()
    flat = step.integers("pads", 1) or []
    value = step.attributes.get("value", step.constant(2, 0.0))
    if step.attribute("mode", "constant") != "constant" or np.any(np.asarray(value) != 0):
        raise LipoptError("only padding with zeros is supported")
    axes = [axis % len(x.shape) for axis in step.integers("axes", 3) or range(len(x.shape))]
    pads = [(0, 0)] * len(x.shape)
    for k, axis in enumerate(axes):
        pads[axis] = (flat[k], flat[len(axes) + k])
    if any(p < 0 for pair in pads for p in pair):
        raise LipoptError("negative padding is not supported; use Slice")
    return x.moved(lambda i: np.pad(i, pads, constant_values=-1))


@_handles("Concat")
def _concat(step: _Step) -> View:
    parts = [x if isinstance(x, View) else np.asarray(x) for x in step.inputs]
    return step.builder.concatenate(step.name, parts, step.attribute("axis", 1))


@_handles("Slice")
def _slice(step: _Step) -> View:
    x = step.view()
    starts, ends = step.integers("starts", 1) or [], step.integers("ends", 2) or []
    axes = step.integers("axes", 3) or list(range(len(starts)))
    steps = step.integers("steps", 4) or [1] * len(starts)
    cut = [slice(None)] * len(x.shape)
    for start, end, axis, stride in zip(starts, ends, axes, steps, strict=True):
        below_zero = stride < 0 and end < -x.shape[axis]
        cut[axis] = slice(start, None if below_zero else end, stride)
    return x.moved(lambda i: i[tuple(cut)])


@_handles("Split")
def _split(step: _Step) -> list[View]:
    x, axis = step.view(), step.attribute("axis", 0)
    sizes = step.integers("split", 1)
    count = step.attribute("num_outputs", len(step.node.output))
    width = -(-x.shape[axis] // count)
    cuts = np.cumsum(sizes)[:-1] if sizes else np.arange(1, count) * width
    return [View(x.node, part) for part in np.split(x.index, cuts, axis=axis)]


@_handles("Gather")
def _gather(step: _Step) -> View:
    return step.view().moved(lambda i: np.take(i, np.asarray(step.constant(1)), axis=step.attribute("axis", 0)))


# ---- activations


def _activation(kind: str, **names: tuple[str, float]) -> Handler:
    """A handler for an activation whose parameters are attributes with defaults."""

    def handle(step: _Step) -> View:
        parameters = {ours: step.attribute(theirs, default) for ours, (theirs, default) in names.items()}
        return step.builder.activation(step.name, step.view(), kind, parameters)

    return handle


HANDLERS.update(
    {
        "Relu": _activation("relu"),
        "Abs": _activation("abs"),
        "LeakyRelu": _activation("leaky_relu", alpha=("alpha", 0.01)),
        "Elu": _activation("elu", alpha=("alpha", 1.0)),
        "Selu": _activation("selu", alpha=("alpha", 1.67326319217681884765625), gamma=("gamma", 1.05070102214813232421875)),
        "Celu": _activation("celu", alpha=("alpha", 1.0)),
        "Softplus": _activation("softplus"),
        "Softsign": _activation("softsign"),
        "Sigmoid": _activation("sigmoid"),
        "Tanh": _activation("tanh"),
        "Erf": _activation("erf"),
        "HardSigmoid": _activation("hard_sigmoid", alpha=("alpha", 0.2), beta=("beta", 0.5)),
        "HardSwish": _activation("hard_swish"),
        "Mish": _activation("mish"),
        "Swish": _activation("silu", beta=("alpha", 1.0)),
    }
)


@_handles("Gelu")
def _gelu(step: _Step) -> View:
    kind = "gelu_tanh" if step.attribute("approximate", "none") == "tanh" else "gelu"
    return step.builder.activation(step.name, step.view(), kind)


@_handles("PRelu")
def _prelu(step: _Step) -> View:
    return step.builder.activation(step.name, step.view(), "leaky_relu", {"alpha": np.asarray(step.constant(1))})


@_handles("Clip")
def _clip(step: _Step) -> View:
    low = step.attributes.get("min", step.constant(1, -np.inf))
    high = step.attributes.get("max", step.constant(2, np.inf))
    return step.builder.activation(step.name, step.view(), "clip", {"low": low, "high": high})


@_handles("Max", "Min")
def _max(step: _Step) -> View:
    result = next(x for x in step.inputs if isinstance(x, View))
    for other in (x for x in step.inputs if x is not result):
        result = step.builder.larger(
            step.name, result, other if isinstance(other, View) else np.asarray(other), step.node.op_type == "Max"
        )
    return result
