"""The table of ONNX operators, and one step of the walk: a node with its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper

from ...errors import LipoptError
from ...numerics.arrays import Array
from ..builder import Builder
from ..views import View

Value: TypeAlias = View | Array | None
Handler: TypeAlias = Callable[["Step"], View | Array | Sequence[View]]

HANDLERS: dict[str, Handler] = {}

# Operators that are refused for a reason worth saying.
REFUSED = {
    "ThresholdedRelu": "it jumps, so the network is not Lipschitz",
    "Hardmax": "it jumps, so the network is not Lipschitz",
    "ArgMax": "it jumps, so the network is not Lipschitz; cut the graph before it (output=NAME)",
    "Sign": "it jumps, so the network is not Lipschitz",
    "Floor": "it jumps, so the network is not Lipschitz",
    "Ceil": "it jumps, so the network is not Lipschitz",
    "Round": "it jumps, so the network is not Lipschitz",
    "Loop": "loops are not supported; export the model with its loops unrolled",
    "Scan": "loops are not supported; export the model with its loops unrolled",
}
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)


@dataclass(frozen=True, eq=False)
class Step:
    """One node of the ONNX graph at work: its inputs as views or constants, and the builder."""

    node: onnx.NodeProto
    inputs: Sequence[Value]
    builder: Builder
    opset: int

    @property
    def name(self) -> str:
        return self.node.name or self.node.output[0]

    @property
    def operator(self) -> str:
        return self.node.op_type

    @cached_property
    def attributes(self) -> dict[str, Any]:
        return {a.name: helper.get_attribute_value(a) for a in self.node.attribute}

    def attribute(self, name: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def number(self, name: str, default: float) -> float:
        """An attribute that is a number; in ONNX all are single precision, defaults too."""
        return float(np.float32(self.attribute(name, default)))

    def view(self, k: int = 0) -> View:
        """Input k, which must depend on the network's input."""
        value = self.inputs[k] if k < len(self.inputs) else None
        if not isinstance(value, View):
            raise LipoptError(f"its input {k} must depend on the network's input")
        return value

    def constant(self, k: int, default: Any = None) -> Any:
        """Input k, which must be a constant, or the default if it is not there."""
        value = self.inputs[k] if k < len(self.inputs) else None
        if isinstance(value, View):
            raise LipoptError(f"its input {k} ('{self.node.input[k]}') must be a constant")
        return default if value is None else value

    def integers(self, attribute: str, k: int) -> list[int] | None:
        """A list of integers: an attribute in old opsets, an input in newer ones."""
        value = self.attributes.get(attribute)
        if value is None:
            value = self.constant(k)
        return None if value is None else [int(v) for v in np.asarray(value).reshape(-1)]


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Put a handler into the table, under all these operators."""

    def add(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return add
