"""ONNX operators whose slopes are bounded in a ball or a box alone, and softmax."""

from __future__ import annotations

import numpy as np

from ...errors import LipoptError
from ...numerics.arrays import Array
from .. import gates, smooth
from ..views import View
from .activations import activation
from .linear import reduced_axes
from .table import HANDLERS, Step, handles

HANDLERS["Exp"] = activation("exp")
HANDLERS["Sqrt"] = activation("sqrt")
HANDLERS["Reciprocal"] = activation("reciprocal")
HANDLERS["Sin"] = activation("sin")
HANDLERS["Cos"] = activation("cos")


@handles("Log")
def _log(step: Step) -> View:
    return gates.log(step.builder, step.name, step.view())


@handles("Pow")
def _pow(step: Step) -> View:
    x = step.inputs[0]
    if isinstance(x, View):
        return smooth.power(step.builder, step.name, x, np.asarray(step.constant(1)))
    return smooth.exponential(step.builder, step.name, np.asarray(x), step.view(1))


@handles("Softmax", "LogSoftmax")
def _softmax(step: Step) -> View | Array:
    x = step.view()
    is_log = step.operator == "LogSoftmax"
    axis = step.attribute("axis", -1 if step.opset >= 13 else 1) % len(x.shape)
    if step.opset >= 13:
        return smooth.softmax(step.builder, step.name, x, axis, is_log)
    # Before opset 13 all axes from this one on are one.
    flat = x.moved(lambda i: i.reshape(*x.shape[:axis], -1))
    result = smooth.softmax(step.builder, step.name, flat, -1, is_log)
    if isinstance(result, View):
        return result.moved(lambda i: i.reshape(x.shape))
    return result.reshape(x.shape)


@handles("ReduceSumSquare", "ReduceL2", "ReduceLogSumExp", "ReduceLogSum")
def _reduce(step: Step) -> View:
    x = step.view()
    axes = reduced_axes(step)
    keep = bool(step.attribute("keepdims", 1))
    if step.operator == "ReduceLogSumExp":
        return smooth.logsumexp(step.builder, step.name, x, axes, keep)
    if step.operator == "ReduceLogSum":
        total = step.builder.reduce(f"{step.name}.sum", x, axes, keep, "sum")
        return step.builder.activation(step.name, total, "log")
    squares = smooth.square(step.builder, f"{step.name}.square", x)
    total = step.builder.reduce(step.name, squares, axes, keep, "sum")
    if step.operator == "ReduceSumSquare":
        return total
    return step.builder.activation(step.name, total, "sqrt")


@handles("LayerNormalization", "RMSNormalization")
def _layer_normalization(step: Step) -> View:
    x = step.view()
    first = step.attribute("axis", -1) % len(x.shape)
    axes = range(first, len(x.shape))
    is_centered = step.operator == "LayerNormalization"
    epsilon = step.number("epsilon", 1e-5)
    normal = smooth.normalize(step.builder, step.name, x, axes, epsilon, is_centered)
    scale = step.constant(1, 1.0)
    shift = step.constant(2, 0.0)
    return step.builder.scale_shift(f"{step.name}.scale", normal, scale, shift)


@handles("InstanceNormalization", "GroupNormalization")
def _group_normalization(step: Step) -> View:
    """Normalization of groups of channels; an instance is a group of one channel."""
    x = step.view()
    channels = x.shape[1]
    groups = step.attribute("num_groups", channels)
    epsilon = step.number("epsilon", 1e-5)
    normal = smooth.normalize_groups(step.builder, step.name, x, groups, epsilon)
    scale = np.asarray(step.constant(1))
    shift = np.asarray(step.constant(2))
    if len(scale) != channels:  # before opset 21 a group has one of each
        scale = np.repeat(scale, channels // groups)
        shift = np.repeat(shift, channels // groups)
    return smooth.by_channel(step.builder, f"{step.name}.scale", normal, scale, shift)


# Inputs of Attention after queries, keys, values and the mask.
CACHES = ("past_key", "past_value", "nonpad_kv_seqlen")


@handles("Attention")
def _attention(step: Step) -> View:
    """Attention of opset 23 and later: (batch, heads, tokens, width), or heads joined with width."""
    for name, value in zip(CACHES, step.inputs[4:], strict=False):
        if value is not None:
            raise LipoptError(
                f"its input {name} is not supported; export the model without a cache"
            )
    for name, default in (("softcap", 0.0), ("left_window_size", -1), ("right_window_size", -1)):
        if step.attribute(name, default) != default:
            raise LipoptError(
                f"its attribute {name} is not supported; write it with a mask, or Tanh"
            )
    query = _with_heads(step, 0, "q_num_heads")
    key = _with_heads(step, 1, "kv_num_heads")
    value = _with_heads(step, 2, "kv_num_heads")
    given = step.inputs[3] if len(step.inputs) > 3 else None
    is_causal = bool(step.attribute("is_causal", 0))
    mask = smooth.attention_mask(given, is_causal, query.shape[-2], key.shape[-2])
    scale = step.number("scale", 0.0) or None
    result = smooth.attention(step.builder, step.name, query, key, value, mask, scale)
    if len(step.view(0).shape) == 4:
        return result
    batch, _, tokens, _ = result.shape
    return result.moved(lambda i: np.swapaxes(i, 1, 2).reshape(batch, tokens, -1))


def _with_heads(step: Step, k: int, attribute: str) -> View:
    """Input k as (batch, heads, tokens, width)."""
    x = step.view(k)
    if len(x.shape) == 4:
        return x
    batch, tokens, _ = x.shape
    heads = step.attribute(attribute, 1)
    return x.moved(lambda i: np.swapaxes(i.reshape(batch, tokens, heads, -1), 1, 2))
