"""PyTorch operators that act on every entry."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import LipoptError
from ...numerics.arrays import Array
from ..builder import Builder
from ..views import View
from .table import JUMP, Handler, handles


def activation(kind: str) -> Handler:
    """A handler for an activation without parameters."""
    return lambda b, name, x: b.activation(name, x, kind)


handles("relu.default")(activation("relu"))
handles("abs.default")(activation("abs"))
handles("selu.default")(activation("selu"))
handles("sigmoid.default")(activation("sigmoid"))
handles("tanh.default")(activation("tanh"))
handles("erf.default")(activation("erf"))
handles("hardswish.default")(activation("hard_swish"))
handles("silu.default")(activation("silu"))
handles("mish.default")(activation("mish"))
handles("relu6.default")(
    lambda b, name, x: b.activation(name, x, "clip", {"low": 0.0, "high": 6.0})
)


@handles("elu.default")
def _elu(
    b: Builder, name: str, x: View, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> View:
    if input_scale != 1:
        raise LipoptError("only ELU with input_scale 1 is supported")
    if scale != 1:
        return b.activation(name, x, "selu", {"alpha": alpha, "gamma": scale})
    return b.activation(name, x, "elu", {"alpha": alpha})


@handles("celu.default")
def _celu(b: Builder, name: str, x: View, alpha: float = 1.0) -> View:
    return b.activation(name, x, "celu", {"alpha": alpha})


@handles("leaky_relu.default")
def _leaky_relu(b: Builder, name: str, x: View, slope: float = 0.01) -> View:
    return b.activation(name, x, "leaky_relu", {"alpha": slope})


@handles("rrelu_with_noise_functional.default", "rrelu_with_noise.default")
def _rrelu_with_noise(b: Builder, name: str, x: View, noise: Any, *args: Any) -> Any:
    return _rrelu(b, name, x, *args), None


@handles("rrelu.default")
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


@handles("prelu.default", "_prelu_kernel.default")
def _prelu(b: Builder, name: str, x: View, weight: Array) -> View:
    if weight.ndim == 1 and weight.size > 1:
        weight = weight.reshape((-1,) + (1,) * (len(x.shape) - 2))
    return b.activation(name, x, "leaky_relu", {"alpha": weight})


@handles("softplus.default")
def _softplus(b: Builder, name: str, x: View, beta: float = 1.0, threshold: float = 20.0) -> View:
    if threshold < 20:
        raise LipoptError(
            f"softplus with threshold {threshold} jumps where it becomes linear; use the default of 20"
        )
    result = b.activation(name, x, "softplus", {"beta": beta})
    b.gaps[result.node] = float(np.exp(-threshold) / beta)  # PyTorch goes on linearly
    return result


@handles("log_sigmoid.default")
def _log_sigmoid(b: Builder, name: str, x: View) -> View:
    return b.log_sigmoid(name, x)


@handles("threshold.default")
def _threshold(b: Builder, name: str, x: View, threshold: float, value: float) -> View:
    if threshold != value:
        raise LipoptError(JUMP)
    return b.activation(name, x, "clip", {"low": value})


@handles("hardsigmoid.default")
def _hardsigmoid(b: Builder, name: str, x: View) -> View:
    return b.activation(name, x, "hard_sigmoid", {"alpha": 1 / 6, "beta": 0.5})


@handles("gelu.default")
def _gelu(b: Builder, name: str, x: View, approximate: str = "none") -> View:
    return b.activation(name, x, "gelu_tanh" if approximate == "tanh" else "gelu")


@handles("hardtanh.default")
def _hardtanh(b: Builder, name: str, x: View, low: float = -1.0, high: float = 1.0) -> View:
    return b.activation(name, x, "clip", {"low": low, "high": high})


@handles("clamp.default", "clamp.Tensor")
def _clamp(b: Builder, name: str, x: View, low: Any = None, high: Any = None) -> View:
    limits = {"low": -np.inf if low is None else low, "high": np.inf if high is None else high}
    return b.activation(name, x, "clip", limits)


@handles("clamp_min.default", "clamp_min.Tensor")
def _clamp_min(b: Builder, name: str, x: View, low: Any) -> View:
    return _clamp(b, name, x, low, None)


@handles("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(b: Builder, name: str, x: View, high: Any) -> View:
    return _clamp(b, name, x, None, high)


@handles("maximum.default", "max.other", "fmax.default")
def _maximum(b: Builder, name: str, x: Any, y: Any) -> View:
    return b.larger(name, x, y) if isinstance(x, View) else b.larger(name, y, np.asarray(x))


@handles("minimum.default", "min.other", "fmin.default")
def _minimum(b: Builder, name: str, x: Any, y: Any) -> View:
    if isinstance(x, View):
        return b.larger(name, x, y, largest=False)
    return b.larger(name, y, np.asarray(x), largest=False)
