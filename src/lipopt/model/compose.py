"""A plant and its controller as one network: closed loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from .network import Activation, Affine, Input, Network, Node


def compose(plant: Network, controller: Network) -> Network:
    """The closed loop x -> f(x, u(x)) of a plant f and a controller u.

    Args:
        plant: a network of two inputs in one: first those of the controller, the state x, then its
            outputs, the control u. What else it reads can be given to both, as part of the state.
        controller: a network from the state to the control.

    Returns:
        A network with the controller's input and the plant's output.

    Raises:
        LipoptError: the sizes do not fit."""
    states = controller.input_size
    controls = controller.output_size
    if plant.input_size != states + controls:
        raise LipoptError(
            f"the plant has {plant.input_size} inputs, but the controller has {states} inputs and"
            f" {controls} outputs: the plant reads the controller's inputs and then its outputs"
        )
    nodes = list(controller.nodes)
    state = sp.eye_array(states + controls, states, format="csr")
    control = sp.eye_array(states + controls, controls, k=-states, format="csr")
    last = len(nodes) - 1
    nodes.append(Affine("loop", (0, last), (state, control), np.zeros(states + controls)))
    start = len(nodes) - 1  # takes the place of the plant's node 0
    for node in plant.nodes[1:]:
        nodes.append(_moved(node, start))
    return Network(tuple(nodes))


def _moved(node: Node, start: int) -> Node:
    """A node whose sources have higher numbers by `start`."""
    assert not isinstance(node, Input)
    if isinstance(node, Activation):
        return replace(node, source=node.source + start)
    return replace(node, sources=tuple(source + start for source in node.sources))
