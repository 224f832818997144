"""Activations in torch: values, and ranges of values and slopes that carry gradients.

`model/activations.py` has the break points and says which slopes are constant between them; here
are the functions, in torch. Ranges are not rounded outward: an estimate is made of them, no proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi, sqrt
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

from ..model.activations import KINDS

Tensor = Any  # PyTorch is not seen by the type checker
Parameters = Mapping[str, Any]  # numbers, or tensors that broadcast with the values


def _clip(x: Tensor, low: Any, high: Any) -> Tensor:
    return torch.minimum(torch.maximum(x, _like(low, x)), _like(high, x))


def _ramp(x: Tensor, alpha: Any, beta: Any) -> Tensor:
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


def _normal(x: Tensor) -> Tensor:
    """The distribution function of the normal distribution."""
    return (1 + torch.erf(x / sqrt(2))) / 2


def _normal_density(x: Tensor) -> Tensor:
    return torch.exp(-x * x / 2) / sqrt(2 * pi)


def _expm1_below(x: Tensor) -> Tensor:
    return torch.expm1(torch.clamp(x, max=0.0))


def _exp_below(x: Tensor) -> Tensor:
    return torch.exp(torch.clamp(x, max=0.0))


VALUES: dict[str, Callable[..., Tensor]] = {
    "relu": torch.relu,
    "abs": torch.abs,
    "leaky_relu": lambda x, alpha: torch.where(x < 0, alpha * x, x),
    "clip": _clip,
    "hard_sigmoid": _ramp,
    "hard_silu": lambda x, alpha, beta: x * _ramp(x, alpha, beta),
    "hard_swish": F.hardswish,
    "elu": lambda x, alpha: torch.where(x < 0, alpha * _expm1_below(x), x),
    "selu": lambda x, alpha, gamma: gamma * torch.where(x < 0, alpha * _expm1_below(x), x),
    "celu": lambda x, alpha: torch.where(x < 0, alpha * _expm1_below(x / alpha), x),
    "softplus": lambda x, beta: torch.logaddexp(beta * x, torch.zeros_like(x)) / beta,
    "softsign": F.softsign,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "silu": lambda x, beta: x * torch.sigmoid(beta * x),
    "gelu": lambda x, beta: x * _normal(beta * x),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "mish": F.mish,
    "power": lambda x, exponent: torch.pow(x, exponent),
    "reciprocal": torch.reciprocal,
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "log": torch.log,
    "sin": torch.sin,
    "cos": torch.cos,
}


def _silu_slope(x: Tensor, beta: Any) -> Tensor:
    u = beta * x
    s = torch.sigmoid(u)
    return s + u * s * (1 - s)


def _gelu_slope(x: Tensor, beta: Any) -> Tensor:
    u = beta * x
    return _normal(u) + u * _normal_density(u)


def _gelu_tanh_slope(x: Tensor) -> Tensor:
    scale = sqrt(2 / pi)
    cube = 0.044715
    x = torch.clamp(x, -30.0, 30.0)
    t = torch.tanh(scale * (x + cube * x**3))
    return (1 + t) / 2 + x / 2 * (1 - t * t) * scale * (1 + 3 * cube * x * x)


def _mish_slope(x: Tensor) -> Tensor:
    t = torch.tanh(F.softplus(x))
    return t + x * (1 - t * t) * torch.sigmoid(x)


# The slopes that are not constant on their piece.
SLOPES: dict[str, Callable[..., Tensor]] = {
    "hard_silu": lambda x, alpha, beta: 2 * alpha * x + beta,
    "hard_swish": lambda x: x / 3 + 0.5,
    "elu": lambda x, alpha: alpha * _exp_below(x),
    "selu": lambda x, alpha, gamma: alpha * gamma * _exp_below(x),
    "celu": lambda x, alpha: _exp_below(x / alpha),
    "softplus": lambda x, beta: torch.sigmoid(beta * x),
    "softsign": lambda x: (1 + torch.abs(x)) ** -2,
    "sigmoid": lambda x: torch.sigmoid(x) * torch.sigmoid(-x),
    "tanh": lambda x: 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x),
    "erf": lambda x: 2 / sqrt(pi) * torch.exp(-x * x),
    "silu": _silu_slope,
    "gelu": _gelu_slope,
    "gelu_tanh": _gelu_tanh_slope,
    "mish": _mish_slope,
    "power": lambda x, exponent: exponent * torch.pow(x, exponent - 1),
    "reciprocal": lambda x: -(x**-2),
    "sqrt": lambda x: 0.5 / torch.sqrt(x),
    "exp": torch.exp,
    "log": torch.reciprocal,
    "sin": torch.cos,
    "cos": lambda x: -torch.sin(x),
}


def value(kind: str, x: Tensor, parameters: Parameters) -> Tensor:
    """The activation at x, elementwise."""
    return VALUES[kind](x, **parameters)


def slope_range(kind: str, lo: Tensor, hi: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
    """The smallest and the largest slope on [lo, hi].

    The slope is monotone on every piece, so it is extreme where a piece begins or ends."""
    low = torch.full_like(lo, torch.inf)
    high = torch.full_like(lo, -torch.inf)
    for piece in _pieces(kind, lo, hi, parameters):
        smallest = torch.minimum(piece.slope_at_left, piece.slope_at_right)
        largest = torch.maximum(piece.slope_at_left, piece.slope_at_right)
        low = torch.where(piece.met, torch.minimum(low, smallest), low)
        high = torch.where(piece.met, torch.maximum(high, largest), high)
    return low, high


def value_range(kind: str, lo: Tensor, hi: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
    """Bounds on the values on [lo, hi].

    On a piece of width w with slopes in [p, q], p < 0 < q, no value exceeds the height where the
    steepest rise from the left end meets the steepest fall to the right end."""
    bottom = torch.full_like(lo, torch.inf)
    top = torch.full_like(lo, -torch.inf)
    for piece in _pieces(kind, lo, hi, parameters):
        start = value(kind, piece.left, parameters)
        end = value(kind, piece.right, parameters)
        w = piece.right - piece.left
        p = torch.minimum(piece.slope_at_left, piece.slope_at_right)
        q = torch.maximum(piece.slope_at_left, piece.slope_at_right)
        turns = (p < 0) & (q > 0)
        spread = torch.where(turns, q - p, torch.ones_like(w))
        rise = torch.clamp((end - start - p * w) / spread, min=0.0)
        fall = torch.clamp((start - end + q * w) / spread, min=0.0)
        highest = torch.where(turns, start + q * rise, torch.maximum(start, end))
        lowest = torch.where(turns, start + p * fall, torch.minimum(start, end))
        bottom = torch.where(piece.met, torch.minimum(bottom, lowest), bottom)
        top = torch.where(piece.met, torch.maximum(top, highest), top)
    return bottom, top


class _Piece:
    """The part of one piece of an activation that lies in [lo, hi]."""

    def __init__(
        self, kind: str, number: int, start: Any, end: Any, ends: tuple[Tensor, Tensor], p: Any
    ) -> None:
        lo, hi = ends
        start = _like(start, lo)
        end = _like(end, lo)
        self.met = (hi >= start) & (lo <= end)  # where there is such a part
        # Elsewhere the numbers below are finite, and not used.
        self.left = torch.minimum(torch.maximum(lo, start), hi)
        self.right = torch.maximum(torch.minimum(hi, end), lo)
        self.slope_at_left = _slope(kind, number, self.left, p)
        self.slope_at_right = _slope(kind, number, self.right, p)


def _pieces(kind: str, lo: Tensor, hi: Tensor, parameters: Parameters) -> list[_Piece]:
    points = _breaks_from(kind, lo, parameters)
    starts = [-torch.inf, *points]
    ends = [*points, torch.inf]
    pieces = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        pieces.append(_Piece(kind, number, start, end, (lo, hi), parameters))
    return pieces


def _breaks_from(kind: str, lo: Tensor, parameters: Parameters) -> list[Any]:
    """The break points that matter to intervals which begin at lo, as in `model/activations`."""
    turn = KINDS[kind].turn
    if turn is None:
        return list(KINDS[kind].breaks(**parameters))
    first = turn + pi * torch.ceil((lo - turn) / pi)
    return [first, first + pi, first + 2 * pi]


def _slope(kind: str, number: int, x: Tensor, parameters: Parameters) -> Tensor:
    """The slope of one piece at x."""
    slopes = KINDS[kind].slopes
    piece = slopes[min(number, len(slopes) - 1)]  # all pieces of a periodic slope are the same
    if callable(piece):
        return SLOPES[kind](x, **parameters)
    constant = parameters[piece] if isinstance(piece, str) else piece
    return _like(constant, x)


def _like(number: Any, x: Tensor) -> Tensor:
    """A number, or a tensor that broadcasts, in the shape of x."""
    return torch.as_tensor(number, dtype=x.dtype, device=x.device).expand_as(x)
