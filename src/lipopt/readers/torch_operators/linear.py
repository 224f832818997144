"""PyTorch operators that are linear."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from ...errors import LipoptError
from ...numerics.arrays import Array
from .. import gates, smooth, windowed
from ..builder import INTERPOLATED, Builder
from ..views import View
from .table import Handler, Tensor, as_tensor, each, handles


@handles("linear.default")
def _linear(b: Builder, name: str, x: View, weight: Array, bias: Array | None = None) -> View:
    if isinstance(weight, View) or isinstance(bias, View):
        raise LipoptError("its weights depend on the input, which is not supported")
    return b.linear(name, x, weight, bias)


@handles("matmul.default", "mm.default", "bmm.default", "mv.default", "dot.default")
def _matmul(b: Builder, name: str, x: Tensor, y: Tensor) -> View:
    if isinstance(x, View) and isinstance(y, View):
        return smooth.matmul(b, name, x, y)
    if isinstance(x, View):
        return b.matmul(name, x, np.asarray(y))
    assert isinstance(y, View)
    return b.left_matmul(name, np.asarray(x), y)


@handles("addmm.default", "baddbmm.default", "addmv.default")
def _addmm(
    b: Builder, name: str, start: Tensor, x: Tensor, y: Tensor, beta: float = 1, alpha: float = 1
) -> View:
    depends = isinstance(x, View) or isinstance(y, View)
    product = _matmul(b, name, x, y) if depends else np.asarray(x) @ np.asarray(y)
    return b.total(name, [product, start], [float(alpha), float(beta)])


def _pairs(padding: Any, d: int) -> list[tuple[int, int]]:
    return [(p, p) for p in each(padding, d)]


@handles("conv1d.default", "conv2d.default", "conv3d.default")
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
    return _convolved(b, name, x, weight, bias, stride, _pairs(padding, d), dilation, groups)


@handles("conv1d.padding", "conv2d.padding", "conv3d.padding")
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
    pads = [(0, 0)] * d
    if padding == "same":
        steps = each(dilation, d)
        spans = [(k - 1) * step for k, step in zip(weight.shape[2:], steps, strict=True)]
        pads = [(span // 2, span - span // 2) for span in spans]
    return _convolved(b, name, x, weight, bias, stride, pads, dilation, groups)


def _convolved(
    b: Builder,
    name: str,
    x: View,
    weight: Array,
    bias: Array | None,
    stride: Any,
    pads: list[tuple[int, int]],
    dilation: Any,
    groups: int,
) -> View:
    d = weight.ndim - 2

    def convolution(batch: View) -> View:
        return windowed.convolution(
            b,
            name,
            batch,
            weight,
            bias,
            strides=each(stride, d),
            pads=pads,
            dilations=each(dilation, d),
            groups=groups,
        )

    return _batched(x, d, convolution)


@handles("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")
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
    strides = each(stride, d)
    dilations = each(dilation, d)
    pads = _pairs(padding, d)
    extra = each(output_padding, d)
    out = []
    for k in range(d):
        span = (weight.shape[2 + k] - 1) * dilations[k] + 1
        out.append((x.shape[k - d] - 1) * strides[k] - 2 * pads[k][0] + span + extra[k])
    return _batched(
        x,
        d,
        lambda batch: windowed.transposed_convolution(
            b,
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


@handles("convolution.default")
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


@handles("_native_batch_norm_legit_no_training.default")
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


@handles("instance_norm.default")
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
        normal = smooth.normalize_groups(b, name, x, x.shape[1], eps)
        return smooth.by_channel(b, f"{name}.scale", normal, weight, bias)
    return b.normalize(name, x, weight, bias, mean, variance, eps)


@handles("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
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
    kernel = each(kernel_size, d)
    return _batched(
        x,
        d,
        lambda batch: windowed.average_pool(
            b,
            name,
            batch,
            kernel,
            each(stride or kernel, d),
            _pairs(padding, d),
            count_pads=count_include_pad,
            ceil=ceil_mode,
            divisor=divisor_override,
        ),
    )


@handles(
    "adaptive_avg_pool1d.default",
    "adaptive_avg_pool2d.default",
    "adaptive_avg_pool3d.default",
    "_adaptive_avg_pool2d.default",
    "_adaptive_avg_pool3d.default",
)
def _adaptive_avg_pool(b: Builder, name: str, x: View, output_size: Any) -> View:
    return windowed.adaptive_average_pool(b, name, x, [int(n) for n in output_size])


@handles("max_pool1d.default", "max_pool2d.default", "max_pool3d.default")
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
    kernel = each(kernel_size, d)
    strides = each(stride or kernel, d)
    pads = _pairs(padding, d)
    return _batched(
        x,
        d,
        lambda batch: windowed.max_pool(
            b, name, batch, kernel, strides, pads, each(dilation, d), ceil_mode
        ),
    )


@handles(
    "max_pool1d_with_indices.default",
    "max_pool2d_with_indices.default",
    "max_pool3d_with_indices.default",
)
def _max_pool_with_indices(b: Builder, name: str, *args: Any) -> tuple[View, None]:
    return _max_pool(b, name, *args), None


@handles(
    "adaptive_max_pool1d.default", "adaptive_max_pool2d.default", "adaptive_max_pool3d.default"
)
def _adaptive_max_pool(b: Builder, name: str, x: View, output_size: Any) -> tuple[View, None]:
    return windowed.adaptive_max_pool(b, name, x, [int(n) for n in output_size]), None


@handles("add.Tensor", "add.Scalar")
def _add(b: Builder, name: str, x: Any, y: Any, alpha: float = 1) -> View:
    return b.total(name, [as_tensor(x), as_tensor(y)], [1.0, float(alpha)])


@handles("sub.Tensor", "sub.Scalar")
def _sub(b: Builder, name: str, x: Any, y: Any, alpha: float = 1) -> View:
    return b.total(name, [as_tensor(x), as_tensor(y)], [1.0, -float(alpha)])


@handles("rsub.Tensor", "rsub.Scalar")
def _rsub(b: Builder, name: str, x: Any, y: Any, alpha: float = 1) -> View:
    return b.total(name, [as_tensor(y), as_tensor(x)], [1.0, -float(alpha)])


@handles("mul.Tensor", "mul.Scalar")
def _mul(b: Builder, name: str, x: Any, y: Any) -> View:
    if isinstance(x, View) and isinstance(y, View):
        return gates.product(b, name, x, y)
    if isinstance(x, View):
        return b.scale_shift(name, x, np.asarray(y), 0.0)
    return b.scale_shift(name, y, np.asarray(x), 0.0)


@handles("div.Tensor", "div.Scalar")
def _div(b: Builder, name: str, x: Any, y: Any) -> View:
    if not isinstance(y, View):
        return b.divide(name, x, np.asarray(y))
    return gates.quotient(b, name, as_tensor(x), y)


@handles("neg.default")
def _neg(b: Builder, name: str, x: View) -> View:
    return b.scale_shift(name, x, -1.0, 0.0)


def axes_of(x: View, dim: Any) -> list[int]:
    """The axes of a reduction; none given means all, and so does an empty list.

    A tensor without axes may be reduced over an axis 0, which it does not have."""
    if not x.shape or dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(len(x.shape)))
    return each(dim, 1)


@handles("mean.default", "mean.dim")
def _mean(
    b: Builder, name: str, x: View, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> View:
    return b.reduce(name, x, axes_of(x, dim), keepdim, "mean")


@handles("sum.default", "sum.dim_IntList", "nansum.default")
def _sum(
    b: Builder, name: str, x: View, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> View:
    return b.reduce(name, x, axes_of(x, dim), keepdim, "sum")


@handles("amax.default", "max.default")
def _amax(b: Builder, name: str, x: View, dim: Any = None, keepdim: bool = False) -> View:
    return b.reduce(name, x, axes_of(x, dim), keepdim, "max")


@handles("amin.default", "min.default")
def _amin(b: Builder, name: str, x: View, dim: Any = None, keepdim: bool = False) -> View:
    return b.reduce(name, x, axes_of(x, dim), keepdim, "min")


@handles("max.dim")
def _max_dim(b: Builder, name: str, x: View, dim: int, keepdim: bool = False) -> tuple[View, None]:
    return b.reduce(name, x, axes_of(x, dim), keepdim, "max"), None


@handles("min.dim")
def _min_dim(b: Builder, name: str, x: View, dim: int, keepdim: bool = False) -> tuple[View, None]:
    return b.reduce(name, x, axes_of(x, dim), keepdim, "min"), None


@handles("cumsum.default")
def _cumsum(b: Builder, name: str, x: View, dim: int, dtype: Any = None) -> View:
    return b.along(name, x, dim, np.tri(x.shape[dim])) if x.shape else x


@handles("linalg_vector_norm.default")
def _vector_norm(
    b: Builder,
    name: str,
    x: View,
    order: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> View:
    """Sums, maxima and minima of absolute values, and roots of sums of squares."""
    if order == 2:
        squares = smooth.square(b, f"{name}.square", x)
        total = b.reduce(f"{name}.sum", squares, axes_of(x, dim), keepdim, "sum")
        return b.activation(name, total, "sqrt")
    reductions = {1.0: "sum", np.inf: "max", -np.inf: "min"}
    if order not in reductions:
        raise LipoptError(
            f"a norm with p = {order} is not supported; only p = 1, 2 and infinity are"
        )
    sizes = b.activation(f"{name}.abs", x, "abs")
    how = reductions[order]
    return b.reduce(name, sizes, axes_of(x, dim), keepdim, how)  # type: ignore[arg-type]


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
        handles(f"{_packet}.{_overload}")(_resize(_operator))
