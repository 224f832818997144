"""PyTorch -> Network: the module is traced by torch.fx and interpreted once, with views in place of tensors.

Modules are reduced to their functional forms, tensor methods to functions; `FUNCTIONS` says what each does.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import LipoptError
from ..network import Network
from ..rounding import Array
from ..tensors import as_array
from .builder import Builder, View

try:
    import torch
    from torch import fx, nn
    from torch.nn import functional as F  # noqa: N812
except ImportError as error:
    raise LipoptError("reading a torch module needs PyTorch; install it with: pip install 'lipopt[torch]'") from error

Handler = Callable[..., Any]
FUNCTIONS: dict[Any, Handler] = {}  # functions and names of tensor methods


def read_torch(module: Any, input_shape: Sequence[int] | None) -> Network:
    """The network of a module, in evaluation mode."""
    module = copy.deepcopy(module).cpu().eval()
    try:
        graph = fx.symbolic_trace(module)
    except Exception as error:  # tracing runs the user's own code
        raise LipoptError(f"torch.fx cannot trace this module ({error}); export it to ONNX and load that file") from error
    if len([node for node in graph.graph.nodes if node.op == "placeholder"]) != 1:
        raise LipoptError("the module must take one tensor; wrap it in a module that does")
    builder = Builder()
    start = builder.input((1, *(_first_linear(module) if input_shape is None else input_shape)))
    with torch.no_grad():
        output = _Reader(graph, builder).run(start)
    if not isinstance(output, View):
        raise LipoptError(f"the module must return one tensor that depends on its input, got {type(output).__name__}")
    return builder.network(output)


def _first_linear(module: Any) -> tuple[int, ...]:
    layers = [m for m in module.modules() if isinstance(m, nn.Linear) or type(m).__name__.startswith("Conv")]
    if layers and isinstance(layers[0], nn.Linear):
        return (layers[0].in_features,)
    raise LipoptError(
        "pass input_shape=(...), the shape of one input without the batch dimension: the module's layers do not tell"
    )


class _Reader(fx.Interpreter):  # type: ignore[misc]
    """Runs a traced module on views."""

    def __init__(self, graph: Any, builder: Builder) -> None:
        super().__init__(graph)
        self.builder = builder
        self.current = ""
        self.extra_traceback = False

    def run_node(self, node: Any) -> Any:
        self.current = str(node.name)
        try:
            return super().run_node(node)
        except (LipoptError, ValueError, IndexError, TypeError, KeyError, RuntimeError) as error:
            target = getattr(node.target, "__name__", node.target)
            raise LipoptError(f"layer '{node.name}' ({target}): {error}") from error

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module = self.fetch_attr(target)
        if not any(isinstance(a, View) for a in args):
            return super().call_module(target, args, kwargs)
        if type(module) not in MODULES:
            raise LipoptError(
                f"{type(module).__name__} is not supported; rewrite the model with supported layers, or try its ONNX export"
            )
        function, parameters = MODULES[type(module)]
        return self._call(function, args, {**parameters(module), **kwargs})

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if not _views(args, kwargs):
            return super().call_function(target, args, kwargs)
        return self._call(target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        if not _views(args, kwargs):
            return super().call_method(target, args, kwargs)
        return self._call(str(target), args, kwargs)

    def _call(self, function: Any, args: Any, kwargs: Any) -> Any:
        if function not in FUNCTIONS:
            name = getattr(function, "__name__", function)
            raise LipoptError(f"'{name}' is not supported; rewrite the model with supported layers, or try its ONNX export")
        convert = {key: _plain(value) for key, value in kwargs.items()}
        return FUNCTIONS[function](self.builder, self.current, *(_plain(a) for a in args), **convert)


def _views(args: Any, kwargs: Any) -> bool:
    flat = [x for a in (*args, *kwargs.values()) for x in (a if isinstance(a, list | tuple) else (a,))]
    return any(isinstance(x, View) for x in flat)


def _plain(value: Any) -> Any:
    """Tensors as arrays, alone or in a list."""
    if isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value):
        return [as_array(v) for v in value]
    return as_array(value)


def _handles(*functions: Any) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        FUNCTIONS.update(dict.fromkeys(functions, handler))
        return handler

    return add


def _each(value: Any, d: int) -> list[int]:
    """An option that is one number for all dimensions or one a dimension."""
    return [int(v) for v in value] if isinstance(value, list | tuple) else [int(value)] * d


# ---- linear maps


@_handles(F.linear)
def _linear(b: Builder, name: str, x: View, weight: Array, bias: Array | None = None) -> View:
    return b.linear(name, x, weight, bias)


@_handles(torch.matmul, operator.matmul, torch.mm, "matmul", "mm")
def _matmul(b: Builder, name: str, x: View | Array, y: View | Array) -> View:
    if isinstance(x, View) and not isinstance(y, View) and y.ndim == 2:
        return b.linear(name, x, y.T, None)
    raise LipoptError("only (tensor that depends on the input) @ (constant matrix) is supported")


@_handles(F.conv1d, F.conv2d, F.conv3d)
def _conv(
    b: Builder,
    name: str,
    x: View,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> View:
    d = weight.ndim - 2
    dilations = _each(dilation, d)
    if padding == "same":
        spans = [(k - 1) * step for k, step in zip(weight.shape[2:], dilations, strict=True)]
        pads = [(span // 2, span - span // 2) for span in spans]
    else:
        pads = [(p, p) for p in _each(0 if padding == "valid" else padding, d)]
    return b.convolution(name, x, weight, bias, strides=_each(stride, d), pads=pads, dilations=dilations, groups=groups)


@_handles(F.batch_norm)
def _batch_norm(
    b: Builder,
    name: str,
    x: View,
    mean: Array,
    var: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> View:
    if mean is None or var is None:
        raise LipoptError("a batch norm without running statistics depends on the batch; use track_running_stats=True")
    factor = 1.0 / np.sqrt(var.astype(np.float64) + eps)
    factor = factor if weight is None else weight * factor
    shift = -mean * factor if bias is None else bias - mean * factor
    along = (-1,) + (1,) * (len(x.shape) - 2)
    return b.scale_shift(name, x, factor.reshape(along), shift.reshape(along))


@_handles(F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
def _avg_pool(
    b: Builder,
    name: str,
    x: View,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> View:
    d = len(x.shape) - 2
    if divisor_override is not None:
        raise LipoptError("divisor_override is not supported")
    kernel = _each(kernel_size, d)
    pads = [(p, p) for p in _each(padding, d)]
    return b.average_pool(name, x, kernel, _each(stride or kernel, d), pads, count_include_pad, ceil_mode)


@_handles(F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
def _adaptive_avg_pool(b: Builder, name: str, x: View, output_size: Any) -> View:
    d = len(x.shape) - 2
    sizes = _each(output_size, d)
    if any(n % k for n, k in zip(x.shape[2:], sizes, strict=True)):
        raise LipoptError(f"adaptive pooling of {x.shape[2:]} to {sizes} has windows of different sizes, which is not supported")
    kernel = [n // k for n, k in zip(x.shape[2:], sizes, strict=True)]
    return b.average_pool(name, x, kernel, kernel, [(0, 0)] * d, False)


@_handles(F.max_pool1d, F.max_pool2d, F.max_pool3d)
def _max_pool(
    b: Builder,
    name: str,
    x: View,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> View:
    d = len(x.shape) - 2
    if return_indices:
        raise LipoptError("return_indices is not supported")
    kernel = _each(kernel_size, d)
    pads = [(p, p) for p in _each(padding, d)]
    return b.max_pool(name, x, kernel, _each(stride or kernel, d), pads, _each(dilation, d), ceil_mode)


@_handles(operator.add, operator.iadd, torch.add, "add", "add_")
def _add(b: Builder, name: str, x: Any, y: Any, alpha: float = 1) -> View:
    return _signed_sum(b, name, x, y, alpha)


@_handles(operator.sub, operator.isub, torch.sub, "sub", "sub_")
def _sub(b: Builder, name: str, x: Any, y: Any, alpha: float = 1) -> View:
    return _signed_sum(b, name, x, y, -alpha)


def _signed_sum(b: Builder, name: str, x: Any, y: Any, sign: float) -> View:
    if isinstance(x, View) and isinstance(y, View):
        return b.add(name, [x, y], [1.0, float(sign)])
    return (
        b.scale_shift(name, x, 1.0, sign * np.asarray(y)) if isinstance(x, View) else b.scale_shift(name, y, sign, np.asarray(x))
    )


@_handles(operator.mul, operator.imul, torch.mul, "mul", "mul_")
def _mul(b: Builder, name: str, x: Any, y: Any) -> View:
    if isinstance(x, View) and isinstance(y, View):
        return b.product(name, x, y)
    return b.scale_shift(name, x, np.asarray(y), 0.0) if isinstance(x, View) else b.scale_shift(name, y, np.asarray(x), 0.0)


@_handles(operator.truediv, torch.div, "div", "div_")
def _div(b: Builder, name: str, x: Any, y: Any) -> View:
    if isinstance(y, View):
        raise LipoptError("dividing by a tensor that depends on the input is not supported")
    return b.scale_shift(name, x, 1.0 / np.asarray(y, dtype=np.float64), 0.0)


@_handles(operator.neg, torch.neg, "neg")
def _neg(b: Builder, name: str, x: View) -> View:
    return b.scale_shift(name, x, -1.0, 0.0)


@_handles(torch.mean, "mean")
def _mean(b: Builder, name: str, x: View, dim: Any = None, keepdim: bool = False) -> View:
    return b.reduce(name, x, _axes(x, dim), keepdim, "mean")


@_handles(torch.sum, "sum")
def _sum(b: Builder, name: str, x: View, dim: Any = None, keepdim: bool = False) -> View:
    return b.reduce(name, x, _axes(x, dim), keepdim, "sum")


@_handles(torch.amax, "amax")
def _amax(b: Builder, name: str, x: View, dim: Any = (), keepdim: bool = False) -> View:
    return b.reduce(name, x, _axes(x, dim or None), keepdim, "max")


def _axes(x: View, dim: Any) -> list[int]:
    return list(range(len(x.shape))) if dim is None else _each(dim, 1)


# ---- moving entries


@_handles(F.dropout, F.dropout1d, F.dropout2d, F.alpha_dropout, "contiguous", "clone", "detach", "float", "double")
def _identity(b: Builder, name: str, x: View, *args: Any, **kwargs: Any) -> View:
    return x


@_handles(torch.flatten, "flatten")
def _flatten(b: Builder, name: str, x: View, start_dim: int = 0, end_dim: int = -1) -> View:
    start, end = start_dim % len(x.shape), end_dim % len(x.shape)
    return x.moved(lambda i: i.reshape(*i.shape[:start], -1, *i.shape[end + 1 :]))


@_handles(torch.reshape, "reshape", "view")
def _reshape(b: Builder, name: str, x: View, *shape: Any) -> View:
    return x.moved(lambda i: i.reshape(shape[0] if isinstance(shape[0], list | tuple) else shape))


@_handles("unflatten")
def _unflatten(b: Builder, name: str, x: View, dim: int, sizes: Any) -> View:
    dim = dim % len(x.shape)
    return x.moved(lambda i: i.reshape(*i.shape[:dim], *sizes, *i.shape[dim + 1 :]))


@_handles("size")
def _size(b: Builder, name: str, x: View, dim: int | None = None) -> Any:
    return x.shape if dim is None else x.shape[dim]


@_handles(getattr)
def _getattr(b: Builder, name: str, x: View, attribute: str) -> Any:
    if attribute == "shape":
        return x.shape
    raise LipoptError(f"the attribute '{attribute}' of a tensor is not supported")


@_handles(operator.getitem)
def _getitem(b: Builder, name: str, x: View | Sequence[View], place: Any) -> View:
    return x.moved(lambda i: i[place]) if isinstance(x, View) else x[place]


@_handles(torch.squeeze, "squeeze")
def _squeeze(b: Builder, name: str, x: View, dim: Any = None) -> View:
    return x.moved(lambda i: np.squeeze(i, dim))


@_handles(torch.unsqueeze, "unsqueeze")
def _unsqueeze(b: Builder, name: str, x: View, dim: int) -> View:
    return x.moved(lambda i: np.expand_dims(i, dim))


@_handles(torch.transpose, "transpose")
def _transpose(b: Builder, name: str, x: View, first: int, second: int) -> View:
    return x.moved(lambda i: np.swapaxes(i, first, second))


@_handles(torch.permute, "permute")
def _permute(b: Builder, name: str, x: View, *order: Any) -> View:
    return x.moved(lambda i: np.transpose(i, order[0] if isinstance(order[0], list | tuple) else order))


@_handles(torch.cat, torch.concat)
def _cat(b: Builder, name: str, tensors: Sequence[Any], dim: int = 0) -> View:
    return b.concatenate(name, [t if isinstance(t, View) else np.asarray(_plain(t)) for t in tensors], dim)


@_handles(torch.chunk, "chunk")
def _chunk(b: Builder, name: str, x: View, chunks: int, dim: int = 0) -> list[View]:
    return _split(b, name, x, -(-x.shape[dim] // chunks), dim)


@_handles(torch.split, "split")
def _split(b: Builder, name: str, x: View, sizes: Any, dim: int = 0) -> list[View]:
    cuts = range(sizes, x.shape[dim], sizes) if isinstance(sizes, int) else np.cumsum(sizes)[:-1]
    return [View(x.node, part) for part in np.split(x.index, list(cuts), axis=dim)]


@_handles(F.pad)
def _pad(b: Builder, name: str, x: View, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> View:
    if mode != "constant" or value or any(p < 0 for p in pad):
        raise LipoptError("only padding with zeros is supported")
    pairs = [(pad[k], pad[k + 1]) for k in range(0, len(pad), 2)][::-1]
    return x.moved(lambda i: np.pad(i, [(0, 0)] * (i.ndim - len(pairs)) + pairs, constant_values=-1))


# ---- activations


def _activation(kind: str, **defaults: float) -> Handler:
    """A handler for an activation whose parameters, in torch's order, have these defaults; `inplace` is ignored."""

    def handle(b: Builder, name: str, x: View, *args: Any, inplace: bool = False, **kwargs: Any) -> View:
        given = dict(zip(defaults, args, strict=False))
        return b.activation(name, x, kind, {**defaults, **given, **kwargs})

    return handle


for _functions, _handler in (
    ((F.relu, torch.relu, "relu", "relu_"), _activation("relu")),
    ((torch.abs, "abs"), _activation("abs")),
    ((F.elu,), _activation("elu", alpha=1.0)),
    ((F.celu,), _activation("celu", alpha=1.0)),
    ((F.selu, torch.selu), _activation("selu")),
    ((F.softsign,), _activation("softsign")),
    ((F.sigmoid, torch.sigmoid, "sigmoid"), _activation("sigmoid")),
    ((F.tanh, torch.tanh, "tanh"), _activation("tanh")),
    ((torch.erf, "erf"), _activation("erf")),
    ((F.hardswish,), _activation("hard_swish")),
    ((F.silu,), _activation("silu")),
    ((F.mish,), _activation("mish")),
):
    _handles(*_functions)(_handler)


@_handles(F.leaky_relu)
def _leaky_relu(b: Builder, name: str, x: View, negative_slope: float = 0.01, inplace: bool = False) -> View:
    return b.activation(name, x, "leaky_relu", {"alpha": negative_slope})


@_handles(F.prelu)
def _prelu(b: Builder, name: str, x: View, weight: Array) -> View:
    along = weight.reshape((-1,) + (1,) * (len(x.shape) - 2)) if weight.size > 1 else weight
    return b.activation(name, x, "leaky_relu", {"alpha": along})


@_handles(F.softplus)
def _softplus(b: Builder, name: str, x: View, beta: float = 1.0, threshold: float = 20.0) -> View:
    if threshold < 20:
        raise LipoptError(f"softplus with threshold {threshold} jumps where it becomes linear; use the default of 20")
    return b.activation(name, x, "softplus", {"beta": beta})


@_handles(F.hardsigmoid)
def _hardsigmoid(b: Builder, name: str, x: View, inplace: bool = False) -> View:
    return b.activation(name, x, "hard_sigmoid", {"alpha": 1 / 6, "beta": 0.5})


@_handles(F.gelu)
def _gelu(b: Builder, name: str, x: View, approximate: str = "none") -> View:
    return b.activation(name, x, "gelu_tanh" if approximate == "tanh" else "gelu")


@_handles(F.relu6)
def _relu6(b: Builder, name: str, x: View, inplace: bool = False) -> View:
    return b.activation(name, x, "clip", {"low": 0.0, "high": 6.0})


@_handles(F.hardtanh)
def _hardtanh(b: Builder, name: str, x: View, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> View:
    return b.activation(name, x, "clip", {"low": min_val, "high": max_val})


@_handles(torch.clamp, torch.clip, "clamp", "clip")
def _clamp(b: Builder, name: str, x: View, min: Any = None, max: Any = None) -> View:
    return b.activation(name, x, "clip", {"low": -np.inf if min is None else min, "high": np.inf if max is None else max})


@_handles(torch.maximum)
def _maximum(b: Builder, name: str, x: Any, y: Any) -> View:
    return b.larger(name, x, y) if isinstance(x, View) else b.larger(name, y, x)


@_handles(torch.minimum)
def _minimum(b: Builder, name: str, x: Any, y: Any) -> View:
    return b.larger(name, x, y, largest=False) if isinstance(x, View) else b.larger(name, y, x, largest=False)


@_handles(F.softmax, F.log_softmax, torch.softmax, torch.log_softmax, "softmax", "log_softmax")
def _softmax(b: Builder, name: str, *args: Any, **kwargs: Any) -> View:
    raise LipoptError("softmax is not supported; use the module without it, on the logits")


# ---- modules: the function that does the work, and its arguments


def _attributes(*names: str) -> Callable[[Any], dict[str, Any]]:
    return lambda module: {name: getattr(module, name) for name in names}


_POOL = ("kernel_size", "stride", "padding", "ceil_mode")
MODULES: dict[Any, tuple[Any, Callable[[Any], dict[str, Any]]]] = {
    nn.Linear: (F.linear, _attributes("weight", "bias")),
    nn.Flatten: (torch.flatten, _attributes("start_dim", "end_dim")),
    nn.Unflatten: ("unflatten", lambda m: {"dim": m.dim, "sizes": m.unflattened_size}),
    nn.Identity: ("contiguous", _attributes()),
    nn.ReLU: (F.relu, _attributes()),
    nn.ReLU6: (F.relu6, _attributes()),
    nn.LeakyReLU: (F.leaky_relu, _attributes("negative_slope")),
    nn.PReLU: (F.prelu, _attributes("weight")),
    nn.ELU: (F.elu, _attributes("alpha")),
    nn.SELU: (F.selu, _attributes()),
    nn.CELU: (F.celu, _attributes("alpha")),
    nn.Softplus: (F.softplus, _attributes("beta", "threshold")),
    nn.Softsign: (F.softsign, _attributes()),
    nn.Sigmoid: (torch.sigmoid, _attributes()),
    nn.Tanh: (torch.tanh, _attributes()),
    nn.Hardsigmoid: (F.hardsigmoid, _attributes()),
    nn.Hardswish: (F.hardswish, _attributes()),
    nn.Hardtanh: (F.hardtanh, _attributes("min_val", "max_val")),
    nn.GELU: (F.gelu, _attributes("approximate")),
    nn.SiLU: (F.silu, _attributes()),
    nn.Mish: (F.mish, _attributes()),
    nn.Softmax: (F.softmax, _attributes()),
    nn.LogSoftmax: (F.log_softmax, _attributes()),
}
for _dropout in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout):
    MODULES[_dropout] = ("contiguous", _attributes())
for _batch_norm_module in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
    MODULES[_batch_norm_module] = (
        F.batch_norm,
        lambda m: {"mean": m.running_mean, "var": m.running_var, "weight": m.weight, "bias": m.bias, "eps": m.eps},
    )
for _d in (1, 2, 3):

    def _conv_arguments(m: Any) -> dict[str, Any]:
        if m.padding_mode != "zeros":
            raise LipoptError(f"padding_mode='{m.padding_mode}' is not supported; use zeros")
        return _attributes("weight", "bias", "stride", "padding", "dilation", "groups")(m)

    MODULES[getattr(nn, f"Conv{_d}d")] = (getattr(F, f"conv{_d}d"), _conv_arguments)
    MODULES[getattr(nn, f"AvgPool{_d}d")] = (getattr(F, f"avg_pool{_d}d"), _attributes(*_POOL, "count_include_pad"))
    MODULES[getattr(nn, f"MaxPool{_d}d")] = (getattr(F, f"max_pool{_d}d"), _attributes(*_POOL, "dilation"))
    MODULES[getattr(nn, f"AdaptiveAvgPool{_d}d")] = (getattr(F, f"adaptive_avg_pool{_d}d"), _attributes("output_size"))
    MODULES[getattr(nn, f"ZeroPad{_d}d")] = (F.pad, lambda m: {"pad": m.padding})
