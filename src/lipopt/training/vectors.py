"""The vector network of a live network: one evaluation, and one power step.

It is the relaxation of methods/sdp/vector_network.py, with the live weights:

    z_a = m_a y_a + h_a |y_a| v_a,      m = (l + u) / 2,  h = (u - l) / 2,  |v_a| = 1

Every v_a and every t_j is a vector in R^r. Its coordinates are columns, and pass through the affine
maps of the network as a batch of r inputs would. The value at any unit vectors is at most the
optimum of the relaxation; at the best ones its gradient in the weights is that of the optimum (the
envelope theorem). A power step turns all vectors along their gradients, as spectral normalization
does for one matrix. Vectors of several problems of the same network are a batch, (problems, r, n).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..model.norms import Norm
from .live import LiveNetwork, Tensor
from .operators import Values
from .rules import Linear, Slopes

# Squared lengths are taken to be at least this. The gradient through a smaller one is zero.
MIN_SQUARE = 1e-36


@dataclass(frozen=True, eq=False)
class Vectors:
    """The variables: vectors for the input, and unit vectors for every activation."""

    t: Tensor  # (problems, r, inputs)
    v: list[Tensor]  # (problems, r, neurons) each

    @property
    def all(self) -> list[Tensor]:
        return [self.t, *self.v]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One pass through the vector network."""

    values: Tensor  # of every problem
    t: Tensor
    y: list[Tensor]  # before every activation
    z: list[Tensor]  # after it


class VectorNetwork:
    """The vector network of a live network, for rows of its outputs."""

    def __init__(self, live: LiveNetwork, norm: Norm, rows: Tensor) -> None:
        self.live = live
        self.norm = norm
        self.rows = rows

    def evaluate(self, vectors: Vectors, slopes: Slopes, constants: Values) -> Evaluation:
        """The value of every problem, as a function of the weights and of t and z."""
        t = vectors.t.detach().requires_grad_()
        rule = _VectorRule(slopes, vectors.v)
        start = t.reshape(-1, *self.live.input_shape)
        outputs = self.live.run(rule, start, constants) @ self.rows.T
        values = self._norms(outputs.reshape(*t.shape[:2], -1))
        count = len(self.live.activations)
        y = [rule.y[k] for k in range(count)]
        z = [rule.z[k] for k in range(count)]
        return Evaluation(values, t, y, z)

    def turned(self, vectors: Vectors, gradients: Sequence[Tensor | None]) -> Vectors:
        """The vectors after a power step, given the gradients of the values in t and z.

        A vector without a gradient stays. Under l1, t is fixed."""
        g_t, *g_z = gradients
        t = vectors.t
        if self.norm is Norm.LINF:
            t = _along(g_t, t, dim=(1,))
        elif self.norm is Norm.L2:
            t = _along(g_t, t, dim=(1, 2))
        turned = []
        for g, v in zip(g_z, vectors.v, strict=True):
            turned.append(_along(g, v, dim=(1,)))
        return Vectors(t, turned)

    def _norms(self, outputs: Tensor) -> Tensor:
        """|C X| of every problem, from (problems, r, rows)."""
        if self.norm.is_by_input:
            return _length(outputs, (1,)).sum(-1).flatten()
        return _length(outputs, (1, 2)).flatten()


class _VectorRule(Linear):
    """z = m y + h |y| v."""

    def __init__(self, slopes: Slopes, units: Sequence[Tensor]) -> None:
        self.slopes = slopes
        self.units = units
        self.y: dict[int, Tensor] = {}
        self.z: dict[int, Tensor] = {}

    def activation(self, number: int, y: Tensor) -> Tensor:
        v = self.units[number]
        slopes = self.slopes[number]
        y = y.reshape(v.shape)
        if isinstance(slopes.middle, float):
            z = _InBall.apply(y, v, slopes.middle, slopes.half)
        else:
            z = slopes.middle * y + slopes.half * _length(y, (1,)) * v
        self.y[number] = y
        self.z[number] = z
        return z.flatten(0, 1)


class _InBall(torch.autograd.Function):  # type: ignore[misc]
    """m y + h |y| v for numbers m and h: one step of the backward pass instead of ten."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, v: Tensor, middle: float, half: float) -> Tensor:
        size = _length(y, (1,)).mul_(half)
        ctx.save_for_backward(y, v, size)
        ctx.middle = middle
        ctx.half = half
        return torch.addcmul(y * middle, size, v)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: Tensor) -> Any:
        """The gradient of |y| is y / |y|; `size` is h |y|."""
        y, v, size = ctx.saved_tensors
        if ctx.half == 0:
            return g * ctx.middle, None, None, None
        along = (g * v).sum(1, keepdim=True).mul_(ctx.half**2).div_(size)
        return torch.addcmul(g * ctx.middle, along, y), None, None, None


def start_vectors(
    live: LiveNetwork, norm: Norm, rank: int, inputs: Tensor, seed: int, like: Tensor
) -> Vectors:
    """Random vectors; `inputs` are those that the problems are about, under l1."""
    problems = len(inputs)
    generator = torch.Generator().manual_seed(seed)

    def random(size: int) -> Tensor:
        numbers = torch.randn(problems, rank, size, generator=generator, dtype=torch.float64)
        return (numbers / _length(numbers, (1,))).to(like)

    size = int(np.prod(live.network.input_shape))
    t = one_hot(inputs, rank, size, like) if norm.is_by_input else random(size)
    if norm is Norm.L2:
        t = t / _length(t, (1, 2))
    return Vectors(t, [random(activation.size) for activation in live.activations])


def one_hot(inputs: Tensor, rank: int, size: int, like: Tensor) -> Tensor:
    """t for single inputs, one for each problem: a unit vector there, and zero elsewhere."""
    first = torch.nn.functional.one_hot(inputs, size).to(like)
    rest = first.new_zeros(len(inputs), rank - 1, size)
    return torch.cat([first[:, None], rest], dim=1)


def _length(x: Tensor, dim: tuple[int, ...]) -> Tensor:
    """The lengths of vectors along axes, which stay.

    (PyTorch's own norm is much slower along an axis that is not the last.)"""
    return x.square().sum(dim, keepdim=True).clamp_min(MIN_SQUARE).sqrt()


def _along(g: Tensor | None, old: Tensor, dim: tuple[int, ...]) -> Tensor:
    """Unit vectors along g, or the old ones where g is zero or not a number."""
    if g is None:
        return old
    square = g.square().sum(dim, keepdim=True)
    return torch.where(square > MIN_SQUARE, g * square.rsqrt(), old)
