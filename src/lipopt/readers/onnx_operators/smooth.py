"""ONNX operators whose slopes are bounded in a ball or a box alone, and softmax."""

from __future__ import annotations

import numpy as np

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
def _softmax(step: Step) -> View:
    x = step.view()
    is_log = step.operator == "LogSoftmax"
    axis = step.attribute("axis", -1 if step.opset >= 13 else 1) % len(x.shape)
    if step.opset >= 13:
        return smooth.softmax(step.builder, step.name, x, axis, is_log)
    # Before opset 13 all axes from this one on are one.
    flat = x.moved(lambda i: i.reshape(*x.shape[:axis], -1))
    result = smooth.softmax(step.builder, step.name, flat, -1, is_log)
    return result.moved(lambda i: i.reshape(x.shape))


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
