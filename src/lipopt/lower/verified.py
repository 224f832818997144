"""The norm of the Jacobian near a point, as a lower bound that holds in spite of rounding and of kinks.

Around a point x, in the domain, there are points where the network is differentiable; there the slope
of every neuron lies in its range over the interval of its input at x, which rounding makes wider than
a number. So for directions r of the outputs and t of the inputs, both of norm 1,

    constant >= the least r.J(s) t over all slopes s in these ranges.

A neuron whose range is wide because x is at its kink costs only what it contributes. With ^ for computed
values, g for gradients of r.J t by node, and u for derivatives of nodes along t,

    r.J(s) t = g^_0.t - sum over nodes of delta.u      where delta = g^ - (what its readers' g^ imply).

delta is bounded by the rounding errors of one step of the backward pass, and by the widths of the slopes;
u by the forward pass and all of its errors. Errors of one pass are not multiplied by absolute values
of all later weights, so the bound has digits left in deep networks, where such products are huge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..model.network import Network
from ..model.nodes import Activation, Affine, Input
from ..model.norms import Norm
from ..numerics.arrays import Array
from ..numerics.rounding import TINY, gamma, terms, times_up, up, up_float
from ..problem.intervals import enclose

# Weights of a network whose inputs of neurons at a point are still cut down by backward bounds,
# which take minutes beyond.
LARGEST_WITH_BACKWARD = 100_000_000


@dataclass(frozen=True, eq=False)
class SlopesNear:
    """For every activation node, the middle of each slope's range near a point, and half its width."""

    middle: Mapping[int, Array]
    half: Mapping[int, Array]

    @staticmethod
    def exactly(slopes: Mapping[int, Array]) -> SlopesNear:
        """Slopes that are known, whether there is such a point or not."""
        return SlopesNear(slopes, {i: np.zeros_like(s) for i, s in slopes.items()})

    @staticmethod
    def of(network: Network, point: Array) -> SlopesNear:
        is_quick = not network.is_piecewise_linear or network.weights > LARGEST_WITH_BACKWARD
        intervals = enclose(network, point, point, is_late=lambda: is_quick).intervals
        middle = {}
        half = {}
        for i, node in network.activations.items():
            lo, hi = intervals[node.source]
            wider = (np.nextafter(lo, -np.inf), np.nextafter(hi, np.inf))
            low, high = node.function.slope_range(*wider)
            middle[i] = low / 2 + high / 2
            half[i] = up(np.maximum(high - middle[i], middle[i] - low), 1)
            half[i] = np.where(low == high, 0.0, half[i])
        return SlopesNear(middle, half)


class NormsNear(NamedTuple):
    """The norms on inputs and outputs, and how much of each input counts as 1; None for 1."""

    inputs: Norm
    outputs: Norm
    scale: Array | None

    def directions(self, jacobian: Array) -> tuple[Array, Array]:
        """Good directions r of the outputs and t of the inputs; their lengths may be any."""
        if self.scale is None:
            return self.inputs.attained_by(jacobian, self.outputs)
        r, t = self.inputs.attained_by(jacobian * self.scale, self.outputs)
        return r, t * self.scale

    def lengths_up(self, r: Array, t: Array) -> float:
        """An upper bound on the product of the norms of both directions."""
        if self.scale is not None:
            t = up(np.abs(t) / self.scale, 1)
        return up_float(self.outputs.dual.length_up(r) * self.inputs.length_up(t), 1)


def norm_near(
    network: Network, rows: sp.csr_array, norms: NormsNear, slopes: SlopesNear, jacobian: Array
) -> float:
    """A lower bound on the constant; `jacobian`, (outputs, inputs), is that of the middle slopes."""
    if not np.isfinite(jacobian).all():
        return 0.0
    r, t = norms.directions(jacobian)
    sizes = _sizes_of_derivatives(network, slopes, t)
    start = rows.T @ r
    lost = gamma(len(r) + 2) * (abs(rows).T @ np.abs(r)) @ sizes[-1]
    gradient: dict[int, Array] = {len(network.nodes) - 1: start}
    for i in range(len(network.nodes) - 1, 0, -1):
        g = gradient.pop(i, None)
        if g is None:
            continue
        for source, part, error in _backward(network.nodes[i], g, slopes, i):
            lost += error @ sizes[source]
            if source in gradient:
                gradient[source] = gradient[source] + part
                lost += gamma(1) * np.abs(gradient[source]) @ sizes[source]
            else:
                gradient[source] = part
    g = gradient.get(0, np.zeros(network.input_size))
    lost += gamma(network.input_size + 2) * (np.abs(g) @ np.abs(t)) + network.input_size * TINY
    least = abs(float(g @ t)) - up_float(1.01 * float(lost), 2 * len(network.nodes))
    lengths = norms.lengths_up(r, t)
    if not (least > 0 and np.isfinite(lengths)):
        return 0.0
    return float(np.nextafter(least / lengths, 0.0))


def _backward(
    node: Activation | Affine | Input, g: Array, slopes: SlopesNear, i: int
) -> list[tuple[int, Array, Array]]:
    """One step of the backward pass: for each source its part of the gradient, and the error of it."""
    if isinstance(node, Activation):
        part = slopes.middle[i] * g
        error = slopes.half[i] * np.abs(g) * (1 + gamma(2)) + gamma(1) * np.abs(part) + TINY
        return [(node.source, part, error)]
    assert isinstance(node, Affine)
    found = []
    for source, matrix in node.terms:
        back = matrix.T
        error = gamma(terms(back)) * times_up(back, np.abs(g)) + node.size * TINY
        found.append((source, back @ g, error))
    return found


def _sizes_of_derivatives(network: Network, slopes: SlopesNear, t: Array) -> list[Array]:
    """Upper bounds on the absolute values of the derivatives of every node along t."""
    values: list[Array] = []
    errors: list[Array] = []
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            values.append(t)
            errors.append(np.zeros(node.size))
        elif isinstance(node, Affine):
            value = np.zeros(node.size)
            error = np.zeros(node.size)
            for source, matrix in node.terms:
                value = value + matrix @ values[source]
                rounding = gamma(terms(matrix) + len(node.sources)) * np.abs(values[source])
                error = up(error + times_up(matrix, errors[source] + rounding), 2)
            values.append(value)
            errors.append(error)
        else:
            middle = np.abs(slopes.middle[i])
            size = np.abs(values[node.source])
            spread = (middle + slopes.half[i]) * errors[node.source] + slopes.half[i] * size
            values.append(slopes.middle[i] * values[node.source])
            errors.append(up(spread + gamma(1) * middle * size, 4))
    return [up(np.abs(value) + error, 1) for value, error in zip(values, errors, strict=True)]
