"""What PyTorch's operators do, in the words of the Builder: a table from operator to handler.

The names are those of an exported graph, such as `aten.conv2d.default`. A handler takes the builder,
a name for messages, and the operator's arguments in PyTorch's order, constants as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch

from ..errors import LipoptError
from ..numerics.arrays import Array
from . import gates
from .builder import INTERPOLATED, Builder
from .views import ZERO, View, places_along

Handler: TypeAlias = Callable[..., Any]
Tensor: TypeAlias = View | Array

HANDLERS: dict[str, Handler] = {}

SOFTMAX = "a softmax is not supported; bound the logits before it (logits=True)"
JUMP = "it jumps, so the network is not Lipschitz"
ATTENTION = "attention multiplies tensors that depend on the input"
STATISTICS = "it normalizes by statistics of its input, which is not supported"
# Operators that are refused for a reason worth saying.
REFUSED = {
    "aten.softmax.int": SOFTMAX,
    "aten._softmax.default": SOFTMAX,
    "aten.log_softmax.int": SOFTMAX,
    "aten._log_softmax.default": SOFTMAX,
    "aten.sign.default": JUMP,
    "aten.floor.default": JUMP,
    "aten.ceil.default": JUMP,
    "aten.round.default": JUMP,
    "aten.argmax.default": JUMP,
    "aten.scaled_dot_product_attention.default": ATTENTION,
    "aten.layer_norm.default": STATISTICS,
    "aten.group_norm.default": STATISTICS,
    "aten.rms_norm.default": STATISTICS,
    "aten._native_batch_norm_legit.default": STATISTICS + "; use running statistics",
    "aten._native_batch_norm_legit.no_stats": STATISTICS + "; use running statistics",
    "aten._native_batch_norm_legit_functional.default": STATISTICS + "; use running statistics",
    "aten.lstm.input": "recurrent layers multiply tensors that depend on the input",
    "aten.gru.input": "recurrent layers multiply tensors that depend on the input",
}
# What `logits` cuts off.
TAILS = (
    "aten.softmax.int",
    "aten._softmax.default",
    "aten.log_softmax.int",
    "aten._log_softmax.default",
    "aten.sigmoid.default",
)
# Checks of types and shapes that export leaves in the graph.
IGNORED = ("aten._assert_tensor_metadata.default", "aten._assert_scalar.default")


def _handles(*names: str) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[f"aten.{name}"] = handler
        return handler

    return add


def _each(value: Any, d: int) -> list[int]:
    """An option that is one number for all dimensions, or a list of one for each."""
    if isinstance(value, list | tuple):
        return [int(v) for v in value] * (d if len(value) == 1 else 1)
    return [int(value)] * d


def _array(value: Any) -> Tensor:
    """Numbers and arrays as arrays."""
    return value if isinstance(value, View) else np.asarray(value)


# ---- linear maps


@_handles("linear.default")
def _linear(b: Builder, name: str, x: View, weight: Array, bias: Array | None = None) -> View:
    if isinstance(weight, View) or isinstance(bias, View):
        raise LipoptError("its weights depend on the input, which is not supported")
    return b.linear(name, x, weight, bias)


@_handles("matmul.default", "mm.default", "bmm.default", "mv.default", "dot.default")
def _matmul(b: Builder, name: str, x: Tensor, y: Tensor) -> View:
    if isinstance(x, View) and isinstance(y, View):
        raise LipoptError(
            "it multiplies two tensors that depend on the input (attention?), which is not supported"
        )
    if isinstance(x, View):
        return b.matmul(name, x, np.asarray(y))
    assert isinstance(y, View)
    return b.left_matmul(name, np.asarray(x), y)


@_handles("addmm.default", "baddbmm.default", "addmv.default")
def _addmm(
    b: Builder, name: str, start: Tensor, x: Tensor, y: Tensor, beta: float = 1, alpha: float = 1
) -> View:
    depends = isinstance(x, View) or isinstance(y, View)
    product = _matmul(b, name, x, y) if depends else np.asarray(x) @ np.asarray(y)
    return b.total(name, [product, start], [float(alpha), float(beta)])


def _pairs(padding: Any, d: int) -> list[tuple[int, int]]:
    return [(p, p) for p in _each(padding, d)]


@_handles("conv1d.default", "conv2d.default", "conv3d.default")
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
    return _batched(
        x,
        d,
        lambda batch: b.convolution(
            name,
            batch,
            weight,
            bias,
            strides=_each(stride, d),
            pads=_pairs(padding, d),
            dilations=_each(dilation, d),
            groups=groups,
        ),
    )


@_handles("conv1d.padding", "conv2d.padding", "conv3d.padding")
def _conv_padded(
    b: Builder,
    name: str,
    x: View,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: str = "valid",
    dilation: Any = 1,
    groups: int = 1,
) -> View:
    """With the padding "valid" (none) or "same", for which the stride is 1."""
    d = weight.ndim - 2
    dilations = _each(dilation, d)
    pads = [(0, 0)] * d
    if padding == "same":
        spans = [(k - 1) * step for k, step in zip(weight.shape[2:], dilations, strict=True)]
        pads = [(span // 2, span - span // 2) for span in spans]
    return _batched(
        x,
        d,
        lambda batch: b.convolution(
            name,
            batch,
            weight,
            bias,
            strides=_each(stride, d),
            pads=pads,
            dilations=dilations,
            groups=groups,
        ),
    )


@_handles("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")
def _conv_transpose(
    b: Builder,
    name: str,
    x: View,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> View:
    d = weight.ndim - 2
    strides = _each(stride, d)
    dilations = _each(dilation, d)
    pads = _pairs(padding, d)
    extra = _each(output_padding, d)
    out = []
    for k in range(d):
        span = (weight.shape[2 + k] - 1) * dilations[k] + 1
        out.append((x.shape[k - d] - 1) * strides[k] - 2 * pads[k][0] + span + extra[k])
    return _batched(
        x,
        d,
        lambda batch: b.transposed_convolution(
            name,
            batch,
            weight,
            bias,
            strides=strides,
            pads=pads,
            dilations=dilations,
            groups=groups,
            out=out,
        ),
    )


@_handles("convolution.default")
def _convolution(
    b: Builder,
    name: str,
    x: View,
    weight: Array,
    bias: Array | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> View:
    if transposed:
        return _conv_transpose(
            b, name, x, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return _conv(b, name, x, weight, bias, stride, padding, dilation, groups)


def _batched(x: View, d: int, operation: Callable[[View], View]) -> View:
    """An operation on (batch, channels, *space), also for a tensor without a batch dimension."""
    if len(x.shape) == d + 2:
        return operation(x)
    return operation(x.moved(lambda i: i[None])).moved(lambda i: i[0])


@_handles("_native_batch_norm_legit_no_training.default")
def _batch_norm(
    b: Builder,
    name: str,
    x: View,
    weight: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    momentum: float,
    eps: float,
) -> tuple[View, None, None]:
    return b.normalize(name, x, weight, bias, mean, variance, eps), None, None


@_handles("instance_norm.default")
def _instance_norm(
    b: Builder,
    name: str,
    x: View,
    weight: Array | None,
    bias: Array | None,
    mean: Array | None,
    variance: Array | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> View:
    if use_input_stats:
        raise LipoptError(STATISTICS)
    return b.normalize(name, x, weight, bias, mean, variance, eps)


@_handles("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def _avg_pool(
    b: Builder,
    name: str,
    x: View,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> View:
    d = len(kernel_size)
    kernel = _each(kernel_size, d)
    return _batched(
        x,
        d,
        lambda batch: b.average_pool(
            name,
            batch,
            kernel,
            _each(stride or kernel, d),
            _pairs(padding, d),
            count_pads=count_include_pad,
            ceil=ceil_mode,
            divisor=divisor_override,
        ),
    )


@_handles(
    "adaptive_avg_pool1d.default",
    "adaptive_avg_pool2d.default",
    "adaptive_avg_pool3d.default",
    "_adaptive_avg_pool2d.default",
    "_adaptive_avg_pool3d.default",
)
def _adaptive_avg_pool(b: Builder, name: str, x: View, output_size: Any) -> View:
    return b.adaptive_average_pool(name, x, [int(n) for n in output_size])


@_handles("max_pool1d.default", "max_pool2d.default", "max_pool3d.default")
def _max_pool(
    b: Builder,
    name: str,
    x: View,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> View:
    d = len(kernel_size)
    kernel = _each(kernel_size, d)
    strides = _each(stride or kernel, d)
    pads = _pairs(padding, d)
    return _batched(
        x,
        d,
        lambda batch: b.max_pool(name, batch, kernel, strides, pads, _each(dilation, d), ceil_mode),
    )


@_handles(
    "max_pool1d_with_indices.default",
    "max_pool2d_with_indices.default",
    "max_pool3d_with_indices.default",
)
def _max_pool_with_indices(b: Builder, name: str, *args: Any) -> tuple[View, None]:
    return _max_pool(b, name, *args), None


@_handles(
    "adaptive_max_pool1d.default", "adaptive_max_pool2d.default", "adaptive_max_pool3d.default"
)
def _adaptive_max_pool(b: Builder, name: str, x: View, output_size: Any) -> tuple[View, None]:
    return b.adaptive_max_pool(name, x, [int(n) for n in output_size]), None


@_handles("add.Tensor", "add.Scalar")
def _add(b: Builder, name: str, x: Any, y: Any, alpha: float = 1) -> View:
    return b.total(name, [_array(x), _array(y)], [1.0, float(alpha)])


@_handles("sub.Tensor", "sub.Scalar")
def _sub(b: Builder, name: str, x: Any, y: Any, alpha: float = 1) -> View:
    return b.total(name, [_array(x), _array(y)], [1.0, -float(alpha)])


@_handles("rsub.Tensor", "rsub.Scalar")
def _rsub(b: Builder, name: str, x: Any, y: Any, alpha: float = 1) -> View:
    return b.total(name, [_array(y), _array(x)], [1.0, -float(alpha)])


@_handles("mul.Tensor", "mul.Scalar")
def _mul(b: Builder, name: str, x: Any, y: Any) -> View:
    if isinstance(x, View) and isinstance(y, View):
        return gates.product(b, name, x, y)
    if isinstance(x, View):
        return b.scale_shift(name, x, np.asarray(y), 0.0)
    return b.scale_shift(name, y, np.asarray(x), 0.0)


@_handles("div.Tensor", "div.Scalar")
def _div(b: Builder, name: str, x: Any, y: Any) -> View:
    if not isinstance(y, View):
        return b.divide(name, x, np.asarray(y))
    if isinstance(x, View):
        return gates.quotient(b, name, x, y)
    raise LipoptError("it divides by a tensor that depends on the input, which is not supported")


@_handles("log.default")
def _log(b: Builder, name: str, x: View) -> View:
    return gates.log(b, name, x)


@_handles("neg.default")
def _neg(b: Builder, name: str, x: View) -> View:
    return b.scale_shift(name, x, -1.0, 0.0)


def _axes(x: View, dim: Any) -> list[int]:
    """The axes of a reduction; none given means all, and so does an empty list.

    A tensor without axes may be reduced over an axis 0, which it does not have."""
    if not x.shape or dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(len(x.shape)))
    return _each(dim, 1)


@_handles("mean.default", "mean.dim")
def _mean(
    b: Builder, name: str, x: View, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> View:
    return b.reduce(name, x, _axes(x, dim), keepdim, "mean")


@_handles("sum.default", "sum.dim_IntList", "nansum.default")
def _sum(
    b: Builder, name: str, x: View, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> View:
    return b.reduce(name, x, _axes(x, dim), keepdim, "sum")


@_handles("amax.default", "max.default")
def _amax(b: Builder, name: str, x: View, dim: Any = None, keepdim: bool = False) -> View:
    return b.reduce(name, x, _axes(x, dim), keepdim, "max")


@_handles("amin.default", "min.default")
def _amin(b: Builder, name: str, x: View, dim: Any = None, keepdim: bool = False) -> View:
    return b.reduce(name, x, _axes(x, dim), keepdim, "min")


@_handles("max.dim")
def _max_dim(b: Builder, name: str, x: View, dim: int, keepdim: bool = False) -> tuple[View, None]:
    return b.reduce(name, x, _axes(x, dim), keepdim, "max"), None


@_handles("min.dim")
def _min_dim(b: Builder, name: str, x: View, dim: int, keepdim: bool = False) -> tuple[View, None]:
    return b.reduce(name, x, _axes(x, dim), keepdim, "min"), None


@_handles("cumsum.default")
def _cumsum(b: Builder, name: str, x: View, dim: int, dtype: Any = None) -> View:
    return b.along(name, x, dim, np.tri(x.shape[dim])) if x.shape else x


@_handles("linalg_vector_norm.default")
def _vector_norm(
    b: Builder,
    name: str,
    x: View,
    order: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> View:
    """Sums, maxima and minima of absolute values."""
    reductions = {1.0: "sum", np.inf: "max", -np.inf: "min"}
    if order not in reductions:
        raise LipoptError(f"a norm with p = {order} is not supported; only p = 1 and infinity are")
    sizes = b.activation(f"{name}.abs", x, "abs")
    how = reductions[order]
    return b.reduce(name, sizes, _axes(x, dim), keepdim, how)  # type: ignore[arg-type]


RESIZING = (
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)
PROBED = 2**24  # entries of the images that one probe of a resizing operator returns


def _resize(operator: Any) -> Handler:
    """A handler for an operator that is linear and does the same to every channel.

    Its matrix is what PyTorch makes of the unit images."""

    def handle(b: Builder, name: str, x: View, *args: Any) -> View:
        space = x.shape[2:]
        count = prod(space)
        kind = torch.float64  # the weights of a module in double precision are computed in it
        out = operator(torch.zeros(1, 1, *space, dtype=kind), *args).shape[2:]
        step = max(1, PROBED // prod(out))
        blocks = []
        for start in range(0, count, step):
            rows = min(step, count - start)
            units = torch.zeros(rows, count, dtype=kind)
            units[torch.arange(rows), torch.arange(start, start + rows)] = 1.0
            images = operator(units.reshape(rows, 1, *space), *args)
            blocks.append(sp.csr_array(images.reshape(rows, -1).numpy()))
        matrix = sp.csr_array(sp.vstack(blocks).T)
        flat = x.moved(lambda i: i.reshape(*x.shape[:2], count))
        result = b.linear(name, flat, matrix, None)
        b.inexact[result.node] = INTERPOLATED
        return result.moved(lambda i: i.reshape(*x.shape[:2], *out))

    return handle


for _packet in RESIZING:
    for _overload in ("default", "vec"):
        _operator = getattr(getattr(torch.ops.aten, _packet), _overload)
        _handles(f"{_packet}.{_overload}")(_resize(_operator))


# ---- moving entries


@_handles(
    "clone.default",
    "detach.default",
    "alias.default",
    "contiguous.default",
    "lift_fresh_copy.default",
    "_conj.default",
    "nan_to_num.default",
)
def _identity(b: Builder, name: str, x: View, *args: Any, **options: Any) -> View:
    return x


@_handles("isnan.default", "isinf.default")
def _never(b: Builder, name: str, x: View) -> Any:
    return torch.zeros(x.shape, dtype=torch.bool)


@_handles("_to_copy.default", "to.dtype", "to.device", "to.dtype_layout", "to.other")
def _cast(b: Builder, name: str, x: View, *args: Any, **options: Any) -> View:
    kinds = [a for a in (*args, *options.values()) if isinstance(a, torch.dtype)]
    if any(kind not in (torch.float32, torch.float64) for kind in kinds):
        raise LipoptError("a cast to anything but float32 or float64 rounds its input; remove it")
    return x


@_handles(
    "dropout.default", "native_dropout.default", "alpha_dropout.default", "feature_dropout.default"
)
def _dropout(b: Builder, name: str, x: View, p: float, train: bool) -> View:
    if train and p != 0:
        raise LipoptError("it is random; use it in training alone (training=self.training)")
    return x


@_handles("view.default", "reshape.default", "_unsafe_view.default", "view_copy.default")
def _reshape(b: Builder, name: str, x: View, shape: Sequence[int]) -> View:
    return x.moved(lambda i: i.reshape(tuple(shape)))


@_handles("flatten.using_ints")
def _flatten(b: Builder, name: str, x: View, start: int = 0, end: int = -1) -> View:
    rank = len(x.shape)
    if rank == 0:
        return x.moved(lambda i: i.reshape(1))
    first = start % rank
    last = end % rank
    return x.moved(lambda i: i.reshape(*i.shape[:first], -1, *i.shape[last + 1 :]))


@_handles("squeeze.default", "squeeze.dim", "squeeze.dims")
def _squeeze(b: Builder, name: str, x: View, dim: Any = None) -> View:
    rank = len(x.shape)
    axes = range(rank) if dim is None or not rank else [axis % rank for axis in _each(dim, 1)]
    gone = tuple(axis for axis in axes if x.shape[axis] == 1)
    return x.moved(lambda i: np.squeeze(i, gone))


@_handles("unsqueeze.default")
def _unsqueeze(b: Builder, name: str, x: View, dim: int) -> View:
    return x.moved(lambda i: np.expand_dims(i, dim))


@_handles("transpose.int")
def _transpose(b: Builder, name: str, x: View, first: int, second: int) -> View:
    return x.moved(lambda i: np.swapaxes(i, first, second)) if x.shape else x


@_handles("t.default", "numpy_T.default", "mT.default")
def _turned(b: Builder, name: str, x: View) -> View:
    return x.moved(lambda i: np.swapaxes(i, -1, -2) if i.ndim > 1 else i)


@_handles("permute.default")
def _permute(b: Builder, name: str, x: View, order: Sequence[int]) -> View:
    return x.moved(lambda i: np.transpose(i, order))


@_handles("slice.Tensor")
def _slice(
    b: Builder, name: str, x: View, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> View:
    return x.moved(lambda i: i[_cut(len(x.shape), dim, start, end, step)])


def _cut(rank: int, dim: int, start: Any, end: Any, step: int) -> tuple[slice, ...]:
    """A slice of one axis."""
    cut = [slice(None)] * rank
    cut[dim] = slice(start, end, step)
    return tuple(cut)


@_handles("select.int")
def _select(b: Builder, name: str, x: View, dim: int, index: int) -> View:
    return x.moved(lambda i: np.take(i, index, axis=dim))


@_handles("index_select.default")
def _index_select(b: Builder, name: str, x: View, dim: int, index: Array) -> View:
    return x.moved(lambda i: np.take(i, index, axis=dim))


@_handles("index.Tensor")
def _index(b: Builder, name: str, x: View, indices: Sequence[Array | None]) -> View:
    places = _places(indices)
    # PyTorch and NumPy put the new axes in the same place: where the indices stand together, or
    # in front if an axis between them has none.
    return x.moved(lambda i: i[places])


def _places(indices: Sequence[Any]) -> tuple[Any, ...]:
    if any(isinstance(index, View) for index in indices):
        raise LipoptError("its indices depend on the input")
    return tuple(slice(None) if index is None else index for index in indices)


@_handles("diagonal.default", "diagonal_copy.default")
def _diagonal(
    b: Builder,
    name: str,
    x: View,
    offset: int = 0,
    first: int = 0,
    second: int = 1,
) -> View:
    return x.moved(lambda i: np.diagonal(i, offset, first, second))


@_handles("unfold.default", "unfold_copy.default")
def _unfold(b: Builder, name: str, x: View, dim: int, size: int, step: int) -> View:
    """Windows along an axis; their entries become the last one."""

    def cut(index: Array) -> Array:
        seen = np.lib.stride_tricks.sliding_window_view(index, size, axis=dim)
        return np.moveaxis(np.moveaxis(seen, dim, 0)[::step], 0, dim)

    if not x.shape:
        return x.moved(lambda i: i.reshape(1)[:size])
    return x.moved(cut)


@_handles("gather.default")
def _gather(b: Builder, name: str, x: View, dim: int, index: Array, sparse: bool = False) -> View:
    return x.moved(lambda i: i[places_along(dim, index)]) if x.shape else x


@_handles("cat.default")
def _cat(b: Builder, name: str, tensors: Sequence[Any], dim: int = 0) -> View:
    parts = [_array(t) for t in tensors]
    # An empty vector is left out, as torch does.
    return b.concatenate(name, [part for part in parts if part.shape != (0,)], dim)


@_handles("stack.default")
def _stack(b: Builder, name: str, tensors: Sequence[Any], dim: int = 0) -> View:
    parts: list[Tensor] = []
    for part in map(_array, tensors):
        if isinstance(part, View):
            parts.append(part.moved(lambda i: np.expand_dims(i, dim)))
        else:
            parts.append(np.expand_dims(part, dim))
    return b.concatenate(name, parts, dim)


@_handles("split.Tensor")
def _split(b: Builder, name: str, x: View, size: int, dim: int = 0) -> list[View]:
    cuts = range(size, x.shape[dim], size)
    return [View(x.node, part) for part in np.split(x.index, list(cuts), axis=dim)]


@_handles("split_with_sizes.default")
def _split_with_sizes(
    b: Builder, name: str, x: View, sizes: Sequence[int], dim: int = 0
) -> list[View]:
    return [View(x.node, part) for part in np.split(x.index, np.cumsum(sizes)[:-1], axis=dim)]


@_handles("unbind.int")
def _unbind(b: Builder, name: str, x: View, dim: int = 0) -> list[View]:
    return [_select(b, name, x, dim, k) for k in range(x.shape[dim])]


@_handles("expand.default")
def _expand(b: Builder, name: str, x: View, shape: Sequence[int], implicit: bool = False) -> View:
    new = len(shape) - len(x.shape)
    full = [x.shape[k - new] if n == -1 else n for k, n in enumerate(shape)]
    return x.moved(lambda i: np.broadcast_to(i, full))


@_handles("repeat.default")
def _repeat(b: Builder, name: str, x: View, repeats: Sequence[int]) -> View:
    return x.moved(lambda i: np.tile(i, tuple(repeats)))


@_handles("flip.default")
def _flip(b: Builder, name: str, x: View, dims: Sequence[int]) -> View:
    return x.moved(lambda i: np.flip(i, tuple(dims))) if x.shape else x


@_handles("roll.default")
def _roll(b: Builder, name: str, x: View, shifts: Any, dims: Any = ()) -> View:
    axes = tuple(dims) or None
    return x.moved(lambda i: np.roll(i, tuple(shifts) if axes else shifts[0], axes))


@_handles("tril.default")
def _tril(b: Builder, name: str, x: View, diagonal: int = 0) -> View:
    return x.moved(lambda i: np.where(np.tril(np.ones(i.shape, bool), diagonal), i, ZERO))


@_handles("triu.default")
def _triu(b: Builder, name: str, x: View, diagonal: int = 0) -> View:
    return x.moved(lambda i: np.where(np.triu(np.ones(i.shape, bool), diagonal), i, ZERO))


MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@_handles("pad.default", "constant_pad_nd.default")
def _pad(
    b: Builder, name: str, x: View, pad: Sequence[int], mode: Any = "constant", value: Any = None
) -> View:
    if not isinstance(mode, str):  # constant_pad_nd(x, pad, value)
        value = mode
        mode = "constant"
    pairs = [(int(pad[k]), int(pad[k + 1])) for k in range(0, len(pad), 2)]
    pads = [(0, 0)] * (len(x.shape) - len(pairs)) + pairs[::-1]
    return b.pad(name, x, pads, MODES[mode], 0.0 if value is None else float(value))


@_handles("where.self", "where.ScalarSelf", "where.ScalarOther")
def _where(b: Builder, name: str, condition: Any, x: Any, y: Any) -> View:
    if isinstance(condition, View):
        raise LipoptError("it chooses by a condition on the input, which is not supported")
    options = [_array(x), _array(y)]
    shape = np.broadcast_shapes(np.shape(condition), *(option.shape for option in options))
    return b.choose(name, np.where(np.broadcast_to(condition, shape), 0, 1), options)


@_handles("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(b: Builder, name: str, x: Any, mask: Any, value: Any) -> View:
    return _where(b, name, mask, value, x)


@_handles("slice_scatter.default")
def _slice_scatter(
    b: Builder,
    name: str,
    x: Any,
    new: Any,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> View:
    cut = _cut(len(x.shape), dim, start, end, step)
    return b.overwrite(name, _array(x), _array(new), cut)


@_handles("select_scatter.default")
def _select_scatter(b: Builder, name: str, x: Any, new: Any, dim: int, index: int) -> View:
    cut: list[Any] = [slice(None)] * len(x.shape)
    cut[dim] = index
    return b.overwrite(name, _array(x), _array(new), tuple(cut))


@_handles("index_put.default")
def _index_put(
    b: Builder, name: str, x: Any, indices: Sequence[Any], new: Any, accumulate: bool = False
) -> View:
    if accumulate:
        return b.add_at(name, _array(x), _array(new), _places(indices))
    return b.overwrite(name, _array(x), _array(new), _places(indices))


@_handles("scatter.value", "scatter.src")
def _scatter(b: Builder, name: str, x: Any, dim: int, index: Array, new: Any) -> View:
    new = _array(new)
    x = _array(x)
    if new.shape:
        new = _corner(new, index.shape)
    return b.overwrite(name, x, new, places_along(dim, index))


@_handles("scatter_add.default")
def _scatter_add(b: Builder, name: str, x: Any, dim: int, index: Array, new: Any) -> View:
    return b.add_at(name, _array(x), _corner(_array(new), index.shape), places_along(dim, index))


def _corner(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The first entries along every axis."""
    cut = tuple(slice(n) for n in shape)
    return x.moved(lambda i: i[cut]) if isinstance(x, View) else x[cut]


@_handles("diagonal_scatter.default")
def _diagonal_scatter(
    b: Builder,
    name: str,
    x: Any,
    new: Any,
    offset: int = 0,
    first: int = 0,
    second: int = 1,
) -> View:
    places = np.indices(_array(x).shape)
    move = tuple(np.diagonal(axis, offset, first, second) for axis in places)
    return b.overwrite(name, _array(x), _array(new), move)


@_handles("copy.default")
def _copy(b: Builder, name: str, x: Any, new: Any, non_blocking: bool = False) -> Any:
    shape = _array(x).shape
    new = _array(new)
    if isinstance(new, View):
        return new.moved(lambda i: np.broadcast_to(i, shape))
    return torch.from_numpy(np.broadcast_to(new, shape).copy())


def _filled(shape: Sequence[int], value: float) -> Any:
    """A constant; the reader gives it the type that the graph says."""
    return torch.full(tuple(shape), value, dtype=torch.float64)


@_handles("zeros_like.default", "new_zeros.default")
def _zeros_like(b: Builder, name: str, x: View, shape: Any = None, **options: Any) -> Any:
    return _filled(x.shape if shape is None else shape, 0.0)


@_handles("ones_like.default", "new_ones.default")
def _ones_like(b: Builder, name: str, x: View, shape: Any = None, **options: Any) -> Any:
    return _filled(x.shape if shape is None else shape, 1.0)


@_handles("full_like.default")
def _full_like(b: Builder, name: str, x: View, value: float, **options: Any) -> Any:
    return _filled(x.shape, value)


@_handles("new_full.default")
def _new_full(b: Builder, name: str, x: View, shape: Any, value: float, **options: Any) -> Any:
    return _filled(shape, value)


# ---- activations


def _activation(kind: str) -> Handler:
    """A handler for an activation without parameters."""
    return lambda b, name, x: b.activation(name, x, kind)


_handles("relu.default")(_activation("relu"))
_handles("abs.default")(_activation("abs"))
_handles("selu.default")(_activation("selu"))
_handles("sigmoid.default")(_activation("sigmoid"))
_handles("tanh.default")(_activation("tanh"))
_handles("erf.default")(_activation("erf"))
_handles("hardswish.default")(_activation("hard_swish"))
_handles("silu.default")(_activation("silu"))
_handles("mish.default")(_activation("mish"))
_handles("relu6.default")(
    lambda b, name, x: b.activation(name, x, "clip", {"low": 0.0, "high": 6.0})
)


@_handles("elu.default")
def _elu(
    b: Builder, name: str, x: View, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> View:
    if input_scale != 1:
        raise LipoptError("only ELU with input_scale 1 is supported")
    if scale != 1:
        return b.activation(name, x, "selu", {"alpha": alpha, "gamma": scale})
    return b.activation(name, x, "elu", {"alpha": alpha})


@_handles("celu.default")
def _celu(b: Builder, name: str, x: View, alpha: float = 1.0) -> View:
    return b.activation(name, x, "celu", {"alpha": alpha})


@_handles("leaky_relu.default")
def _leaky_relu(b: Builder, name: str, x: View, slope: float = 0.01) -> View:
    return b.activation(name, x, "leaky_relu", {"alpha": slope})


@_handles("rrelu_with_noise_functional.default", "rrelu_with_noise.default")
def _rrelu_with_noise(b: Builder, name: str, x: View, noise: Any, *args: Any) -> Any:
    return _rrelu(b, name, x, *args), None


@_handles("rrelu.default")
def _rrelu(
    b: Builder,
    name: str,
    x: View,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> View:
    if training:
        raise LipoptError("it is random; use it in training alone (training=self.training)")
    return b.activation(name, x, "leaky_relu", {"alpha": (lower + upper) / 2})


@_handles("prelu.default", "_prelu_kernel.default")
def _prelu(b: Builder, name: str, x: View, weight: Array) -> View:
    if weight.ndim == 1 and weight.size > 1:
        weight = weight.reshape((-1,) + (1,) * (len(x.shape) - 2))
    return b.activation(name, x, "leaky_relu", {"alpha": weight})


@_handles("softplus.default")
def _softplus(b: Builder, name: str, x: View, beta: float = 1.0, threshold: float = 20.0) -> View:
    if threshold < 20:
        raise LipoptError(
            f"softplus with threshold {threshold} jumps where it becomes linear; use the default of 20"
        )
    result = b.activation(name, x, "softplus", {"beta": beta})
    b.gaps[result.node] = float(np.exp(-threshold) / beta)  # PyTorch goes on linearly
    return result


@_handles("log_sigmoid.default")
def _log_sigmoid(b: Builder, name: str, x: View) -> View:
    return b.log_sigmoid(name, x)


@_handles("threshold.default")
def _threshold(b: Builder, name: str, x: View, threshold: float, value: float) -> View:
    if threshold != value:
        raise LipoptError(JUMP)
    return b.activation(name, x, "clip", {"low": value})


@_handles("hardsigmoid.default")
def _hardsigmoid(b: Builder, name: str, x: View) -> View:
    return b.activation(name, x, "hard_sigmoid", {"alpha": 1 / 6, "beta": 0.5})


@_handles("gelu.default")
def _gelu(b: Builder, name: str, x: View, approximate: str = "none") -> View:
    return b.activation(name, x, "gelu_tanh" if approximate == "tanh" else "gelu")


@_handles("hardtanh.default")
def _hardtanh(b: Builder, name: str, x: View, low: float = -1.0, high: float = 1.0) -> View:
    return b.activation(name, x, "clip", {"low": low, "high": high})


@_handles("clamp.default", "clamp.Tensor")
def _clamp(b: Builder, name: str, x: View, low: Any = None, high: Any = None) -> View:
    limits = {"low": -np.inf if low is None else low, "high": np.inf if high is None else high}
    return b.activation(name, x, "clip", limits)


@_handles("clamp_min.default", "clamp_min.Tensor")
def _clamp_min(b: Builder, name: str, x: View, low: Any) -> View:
    return _clamp(b, name, x, low, None)


@_handles("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(b: Builder, name: str, x: View, high: Any) -> View:
    return _clamp(b, name, x, None, high)


@_handles("maximum.default", "max.other", "fmax.default")
def _maximum(b: Builder, name: str, x: Any, y: Any) -> View:
    return b.larger(name, x, y) if isinstance(x, View) else b.larger(name, y, np.asarray(x))


@_handles("minimum.default", "min.other", "fmin.default")
def _minimum(b: Builder, name: str, x: Any, y: Any) -> View:
    if isinstance(x, View):
        return b.larger(name, x, y, largest=False)
    return b.larger(name, y, np.asarray(x), largest=False)
