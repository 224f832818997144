"""Products and quotients that exporters write for activations.

x * gate(x) of SiLU, GELU, Mish and HardSwish, and x / (1 + |x|), which is softsign: these have
bounded slopes over the whole space. Other products and quotients become squares (smooth.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..model.nodes import Activation, Affine
from ..numerics.arrays import Array
from . import smooth
from .builder import Builder
from .views import View, whole


@dataclass(frozen=True)
class _Scaled:
    """scale * (values of a node) + shift, with the same two numbers for every entry."""

    node: int
    scale: float
    shift: float


@dataclass(frozen=True)
class _Gate:
    """x * gate(x) = factor * kind(x)."""

    kind: str
    parameters: dict[str, float]
    factor: float


def product(builder: Builder, name: str, a: View, b: View) -> View:
    """x * gate(x) as the activation that it is; other products as squares."""
    for x, gate in ((a, b), (b, a)):
        if x.shape == gate.shape:
            found = _gated(builder, name, x, gate)
            if found is not None:
                return found
    return smooth.product(builder, name, a, b)


def quotient(builder: Builder, name: str, x: View | Array, divisor: View) -> View:
    """x / (1 + |x|) as softsign; other quotients as products with a reciprocal."""
    if not isinstance(x, View):
        return smooth.quotient(builder, name, x, divisor)
    below = _unscaled(builder, builder.materialize(f"{name}.divisor", divisor))
    size = builder.nodes[below.node]
    source = builder.materialize(f"{name}.input", x)
    shifted = below.scale == 1 and below.shift == 1 and x.shape == divisor.shape
    if shifted and isinstance(size, Activation) and size.kind == "abs" and size.source == source:
        return builder.activation(name, x, "softsign")
    return smooth.quotient(builder, name, x, divisor)


def log(builder: Builder, name: str, x: View) -> View:
    """The logarithm, of a sigmoid as what it is."""
    node = builder.nodes[builder.materialize(f"{name}.input", x)]
    if isinstance(node, Activation) and node.kind == "sigmoid":
        return builder.log_sigmoid(name, whole(node.source, x.shape))
    return builder.activation(name, x, "log")


def _gated(builder: Builder, name: str, x: View, gate: View) -> View | None:
    """(alpha x) * (beta act(gamma x + c) + delta), where these numbers make an activation."""
    outer = _unscaled(builder, builder.materialize(f"{name}.gate", gate))
    act = builder.nodes[outer.node]
    if not isinstance(act, Activation):
        return None
    for base in _scaled(builder, builder.materialize(f"{name}.input", x)):
        known = _known_gate(builder, act, base.node, outer) if base.shift == 0 else None
        if known is None:
            continue
        origin = whole(base.node, x.shape)
        result = builder.activation(name, origin, known.kind, known.parameters)
        factor = base.scale * known.factor
        if factor == 1:
            return result
        return builder.scale_shift(f"{name}.scale", result, factor, 0.0)
    return None


def _known_gate(builder: Builder, act: Activation, x: int, outer: _Scaled) -> _Gate | None:
    """What x * (outer.scale * act(...) + outer.shift) is, where the activation reads x, scaled."""
    if act.kind == "tanh":
        return _mish(builder, act, x, outer)
    inner = _multiple(builder, act.source, x)
    if inner is None:
        return None
    p = act.parameters
    proportional = inner.shift == 0 and inner.scale > 0
    if act.kind == "sigmoid" and proportional and outer.shift == 0:
        return _Gate("silu", {"beta": inner.scale}, outer.scale)
    if act.kind == "erf" and proportional and outer.shift == outer.scale:
        beta = float(inner.scale * np.sqrt(2))
        return _Gate("gelu", {"beta": beta}, 2 * outer.scale)
    if act.kind == "clip" and outer.shift == 0:
        shifted = (inner.scale, inner.shift, p["low"], p["high"])
        if shifted == (1, 3, 0, 6):
            return _Gate("hard_swish", {}, 6 * outer.scale)
    if act.kind == "hard_sigmoid" and proportional and outer.shift == 0:
        parameters = {"alpha": float(p["alpha"] * inner.scale), "beta": float(p["beta"])}
        return _Gate("hard_silu", parameters, outer.scale)
    return None


def _mish(builder: Builder, act: Activation, x: int, outer: _Scaled) -> _Gate | None:
    """x * tanh(softplus(x))."""
    softplus = builder.nodes[act.source]
    if outer.shift != 0 or not isinstance(softplus, Activation) or softplus.kind != "softplus":
        return None
    if softplus.parameters["beta"] != 1 or softplus.source != x:
        return None
    return _Gate("mish", {}, outer.scale)


def _multiple(builder: Builder, i: int, x: int) -> _Scaled | None:
    """Node i as a scaled and shifted copy of node x, if it is one."""
    return next((copy for copy in _scaled(builder, i) if copy.node == x), None)


def _unscaled(builder: Builder, i: int) -> _Scaled:
    """Node i as a scaled and shifted copy of another, as far back as that goes."""
    return list(_scaled(builder, i))[-1]


def _scaled(builder: Builder, i: int) -> Iterator[_Scaled]:
    """Node i as a scaled and shifted copy of itself, of the node before it, and so on."""
    scale = 1.0
    shift = 0.0
    while True:
        yield _Scaled(i, scale, shift)
        node = builder.nodes[i]
        if not isinstance(node, Affine) or len(node.sources) != 1:
            return
        matrix = sp.csr_array(node.matrices[0])
        diagonal = matrix.diagonal()
        is_diagonal = matrix.shape[0] == matrix.shape[1] == matrix.nnz
        uniform = is_diagonal and diagonal[0] != 0 and (diagonal == diagonal[0]).all()
        if not uniform or (node.bias != node.bias[0]).any():
            return
        shift += scale * float(node.bias[0])
        scale *= float(diagonal[0])
        i = node.sources[0]
