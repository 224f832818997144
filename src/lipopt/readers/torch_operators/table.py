"""The table of PyTorch operators, and those that are refused, cut off or ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...numerics.arrays import Array
from ..views import View

Handler: TypeAlias = Callable[..., Any]
Tensor: TypeAlias = View | Array

HANDLERS: dict[str, Handler] = {}

JUMP = "it jumps, so the network is not Lipschitz"
STATISTICS = "it normalizes by statistics of a batch; use running statistics"
# Operators that are refused for a reason worth saying.
REFUSED = {
    "aten.sign.default": JUMP,
    "aten.floor.default": JUMP,
    "aten.ceil.default": JUMP,
    "aten.round.default": JUMP,
    "aten.argmax.default": JUMP,
    "aten._native_batch_norm_legit.default": STATISTICS,
    "aten._native_batch_norm_legit.no_stats": STATISTICS,
    "aten._native_batch_norm_legit_functional.default": STATISTICS,
    "aten.lstm.input": "recurrent layers are not supported",
    "aten.gru.input": "recurrent layers are not supported",
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


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Put a handler into the table, under all these operators."""

    def add(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[f"aten.{name}"] = handler
        return handler

    return add


def each(value: Any, d: int) -> list[int]:
    """An option that is one number for all dimensions, or a list of one for each."""
    if isinstance(value, list | tuple):
        return [int(v) for v in value] * (d if len(value) == 1 else 1)
    return [int(value)] * d


def as_tensor(value: Any) -> Tensor:
    """Numbers and arrays as arrays."""
    return value if isinstance(value, View) else np.asarray(value)
