"""ONNX operators that act on every entry."""

from __future__ import annotations

import numpy as np

from ...errors import LipoptError
from ...numerics.arrays import Array
from ..views import View
from .table import HANDLERS, Handler, Step, handles


def activation(kind: str, **names: tuple[str, float]) -> Handler:
    """A handler for an activation whose parameters are attributes with defaults."""

    def handle(step: Step) -> View:
        parameters = {}
        for ours, (theirs, default) in names.items():
            parameters[ours] = step.number(theirs, default)
        return step.builder.activation(step.name, step.view(), kind, parameters)

    return handle


SELU = {
    "alpha": ("alpha", 1.67326319217681884765625),
    "gamma": ("gamma", 1.05070102214813232421875),
}
HANDLERS["Relu"] = activation("relu")
HANDLERS["Abs"] = activation("abs")
HANDLERS["LeakyRelu"] = activation("leaky_relu", alpha=("alpha", 0.01))
HANDLERS["Elu"] = activation("elu", alpha=("alpha", 1.0))
HANDLERS["Selu"] = activation("selu", **SELU)
HANDLERS["Celu"] = activation("celu", alpha=("alpha", 1.0))
HANDLERS["Softplus"] = activation("softplus")
HANDLERS["Softsign"] = activation("softsign")
HANDLERS["Sigmoid"] = activation("sigmoid")
HANDLERS["Tanh"] = activation("tanh")
HANDLERS["Erf"] = activation("erf")
HANDLERS["HardSigmoid"] = activation("hard_sigmoid", alpha=("alpha", 0.2), beta=("beta", 0.5))
HANDLERS["HardSwish"] = activation("hard_swish")
HANDLERS["Mish"] = activation("mish")
HANDLERS["Swish"] = activation("silu", beta=("alpha", 1.0))


@handles("Gelu")
def _gelu(step: Step) -> View:
    kind = "gelu_tanh" if step.attribute("approximate", "none") == "tanh" else "gelu"
    return step.builder.activation(step.name, step.view(), kind)


@handles("PRelu")
def _prelu(step: Step) -> View:
    slopes = np.asarray(step.constant(1))
    return step.builder.activation(step.name, step.view(), "leaky_relu", {"alpha": slopes})


@handles("Shrink")
def _shrink(step: Step) -> View:
    width = step.attribute("lambd", 0.5)
    if step.attribute("bias", 0.0) != width:
        raise LipoptError("it jumps, so the network is not Lipschitz")
    return step.builder.soft_shrink(step.name, step.view(), width)


@handles("Clip")
def _clip(step: Step) -> View:
    low = step.attributes.get("min", step.constant(1, -np.inf))
    high = step.attributes.get("max", step.constant(2, np.inf))
    return step.builder.activation(step.name, step.view(), "clip", {"low": low, "high": high})


@handles("Max", "Min")
def _max(step: Step) -> View:
    views = [x for x in step.inputs if isinstance(x, View)]
    constants = [np.asarray(x) for x in step.inputs if not isinstance(x, View)]
    others: list[View | Array] = [*views[1:], *constants]
    result = views[0]
    for other in others:
        result = step.builder.larger(step.name, result, other, step.operator == "Max")
    return result
