"""Which way to go for a larger gradient, also where the gradient is constant: across kinks.

With r and t the directions of the outputs and inputs that are stretched most, and s_a the slope of
neuron a at its input y_a,

    d(r.J t) = sum over neurons of  (gradient of r.f after a) (derivative of y_a along t)  ds_a
    ds_a     = (slope at y_a + tau - slope at y_a - tau) / (2 tau) dy_a

A slope of a ReLU changes at its kink alone. So tau is as large as what a step of the size that is tried
changes in the inputs of a layer: the kinks count that such a step can reach.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..model.network import Network
from ..model.nodes import Activation, Affine, Input
from ..numerics.arrays import Array

SMALLEST = 1e-300  # what is divided by is kept above this


def uphill(
    network: Network,
    values: list[Array],
    shaken: list[Array],
    slopes: Mapping[int, Array],
    start: Array,
    t: Array,
) -> Array:
    """Roughly the gradient of r.J t, (inputs, columns); `start` is r as a function of the outputs.

    `values` are those of all nodes; `shaken` the same after a random step of the size that is tried."""
    after = gradients(network, start, slopes)
    along = _derivatives(network, slopes, t)
    bends: dict[int, Array] = {}
    for i, node in network.activations.items():
        if i not in after:
            continue
        y = values[node.source]
        tau = np.abs(shaken[node.source] - y).mean(axis=0) + SMALLEST
        ahead = node.function.slope((y + tau).T).T
        behind = node.function.slope((y - tau).T).T
        bend = after[i] * along[node.source] * (ahead - behind) / (2 * tau)
        bends[node.source] = bends.get(node.source, 0.0) + bend
    found = gradients(network, 0.0 * start, slopes, bends)
    return found.get(0, 0.0 * t)


def gradients(
    network: Network,
    start: Array,
    slopes: Mapping[int, Array],
    added: Mapping[int, Array] | None = None,
) -> dict[int, Array]:
    """The gradients of start . output in every node that it depends on, from the output backward.

    `added`: linear functions of other nodes that count too, by node."""
    found: dict[int, Array] = dict(added or {})

    def add(source: int, part: Array) -> None:
        found[source] = found[source] + part if source in found else part

    add(len(network.nodes) - 1, start)
    for i in range(len(network.nodes) - 1, 0, -1):
        node = network.nodes[i]
        if i not in found:
            continue
        if isinstance(node, Affine):
            for source, matrix in node.terms:
                add(source, matrix.T @ found[i])
        else:
            assert isinstance(node, Activation)
            add(node.source, slopes[i] * found[i])
    return found


def _derivatives(network: Network, slopes: Mapping[int, Array], t: Array) -> list[Array]:
    """The derivatives of every node along t, (size, columns)."""
    found: list[Array] = []
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            found.append(t)
        elif isinstance(node, Affine):
            total = np.zeros((node.size, t.shape[1]))
            for source, matrix in node.terms:
                total = total + matrix @ found[source]
            found.append(total)
        else:
            found.append(slopes[i] * found[node.source])
    return found
