"""Gradients that are known already, and the values that carry them to the parameters of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .live import Tensor


def gradients_in(
    value: Tensor, tensors: Sequence[Tensor], retain: bool = False
) -> tuple[Tensor | None, ...]:
    """The gradients of a value in tensors; None in those that it does not depend on."""
    if not tensors:
        return ()
    return tuple(torch.autograd.grad(value, tensors, retain_graph=retain, allow_unused=True))


class Attached(torch.autograd.Function):  # type: ignore[misc]
    """A value whose gradients in the parameters are known already."""

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, gradients: Sequence[Tensor | None], *parameters: Tensor
    ) -> Tensor:
        ctx.save_for_backward(*gradients)
        return value.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, scale: Tensor) -> Any:
        scaled = [None if g is None else scale * g for g in ctx.saved_tensors]
        return (None, None, *scaled)


class AttachedAtOnce(torch.autograd.Function):  # type: ignore[misc]
    """The same for a value and its gradients in one tensor: one kernel scales all of them."""

    @staticmethod
    def forward(ctx: Any, joined: Tensor, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(joined)
        ctx.shapes = [parameter.shape for parameter in parameters]
        return joined[0].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, scale: Tensor) -> Any:
        (joined,) = ctx.saved_tensors
        sizes = [shape.numel() for shape in ctx.shapes]
        parts = (scale * joined)[1:].split(sizes)
        scaled = [part.reshape(shape) for part, shape in zip(parts, ctx.shapes, strict=True)]
        return (None, *scaled)
