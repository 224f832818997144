"""PyTorch operators whose slopes are bounded in a ball or a box alone, and softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...errors import LipoptError
from ...numerics.arrays import Array
from .. import gates, smooth
from ..builder import Builder
from ..views import View
from .activations import activation
from .linear import axes_of
from .table import handles

handles("exp.default")(activation("exp"))
handles("sqrt.default")(activation("sqrt"))
handles("reciprocal.default")(activation("reciprocal"))
handles("sin.default")(activation("sin"))
handles("cos.default")(activation("cos"))


@handles("log.default")
def _log(b: Builder, name: str, x: View) -> View:
    return gates.log(b, name, x)


@handles("square.default")
def _square(b: Builder, name: str, x: View) -> View:
    return smooth.square(b, name, x)


@handles("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(b: Builder, name: str, x: Any, exponent: Any) -> View:
    if isinstance(x, View) and isinstance(exponent, View):
        raise LipoptError("base and exponent depend on the input; write it as exp(y log(x))")
    if isinstance(exponent, View):
        return smooth.exponential(b, name, np.asarray(x), exponent)
    return smooth.power(b, name, x, np.asarray(exponent))


@handles("rsqrt.default")
def _rsqrt(b: Builder, name: str, x: View) -> View:
    return smooth.power(b, name, x, np.asarray(-0.5))


@handles("softmax.int", "_softmax.default")
def _softmax(b: Builder, name: str, x: View, dim: int, dtype: Any = None) -> Any:
    return _tensor(smooth.softmax(b, name, x, dim))


@handles("log_softmax.int", "_log_softmax.default")
def _log_softmax(b: Builder, name: str, x: View, dim: int, dtype: Any = None) -> Any:
    return _tensor(smooth.softmax(b, name, x, dim, is_log=True))


def _tensor(result: View | Array) -> Any:
    """Constants as tensors: a softmax of a single entry is one."""
    return result if isinstance(result, View) else torch.from_numpy(result)


@handles("logsumexp.default")
def _logsumexp(b: Builder, name: str, x: View, dim: Any, keepdim: bool = False) -> View:
    return smooth.logsumexp(b, name, x, axes_of(x, dim), keepdim)


@handles("layer_norm.default")
def _layer_norm(
    b: Builder,
    name: str,
    x: View,
    shape: Any,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> View:
    normal = smooth.normalize(b, name, x, range(-len(shape), 0), eps)
    scale = 1.0 if weight is None else weight
    shift = 0.0 if bias is None else bias
    return b.scale_shift(f"{name}.scale", normal, scale, shift)


@handles("rms_norm.default")
def _rms_norm(
    b: Builder,
    name: str,
    x: View,
    shape: Any,
    weight: Array | None = None,
    eps: float | None = None,
) -> View:
    epsilon = float(np.finfo(np.float32).eps) if eps is None else eps
    normal = smooth.normalize(b, name, x, range(-len(shape), 0), epsilon, is_centered=False)
    return b.scale_shift(f"{name}.scale", normal, 1.0 if weight is None else weight, 0.0)


@handles("group_norm.default")
def _group_norm(
    b: Builder,
    name: str,
    x: View,
    groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> View:
    normal = smooth.normalize_groups(b, name, x, groups, eps)
    return smooth.by_channel(b, f"{name}.scale", normal, weight, bias)


@handles("scaled_dot_product_attention.default")
def _attention(
    b: Builder,
    name: str,
    query: View,
    key: View,
    value: View,
    mask: Any = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> View:
    if dropout:
        raise LipoptError("it is random; use it in evaluation mode")
    shift = smooth.attention_mask(mask, is_causal, query.shape[-2], key.shape[-2])
    return smooth.attention(b, name, query, key, value, shift, scale)
