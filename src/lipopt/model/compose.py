"""A plant and its controller as one network: closed loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from .network import Network
from .nodes import Activation, Affine, Input, Node


def compose(plant: Network, controller: Network, control: str | None = None) -> Network:
    """The closed loop x -> f(x, u(x)) of a plant f and a controller u.

    Args:
        plant: a network of two inputs in one: first those of the controller, the state x, then its
            outputs, the control u. What else it reads can be given to both, as part of the state.
        controller: a network from the state to the control.
        control: the name of the plant's input that is the control, if the plant was read from a
            model of several inputs; its other inputs are the state. Without it, the last entries.

    Returns:
        A network with the controller's input and the plant's output.

    Raises:
        LipoptError: the sizes do not fit, or the plant has no input of that name."""
    for network in (plant, controller):
        if not isinstance(network, Network):
            kind = type(network).__name__
            raise LipoptError(f"compose takes networks, such as `load` gives, got {kind}")
    states = controller.input_size
    controls = controller.output_size
    if plant.input_size != states + controls:
        raise LipoptError(
            f"the plant has {plant.input_size} inputs, but the controller has {states} inputs and"
            f" {controls} outputs: the plant reads the controller's inputs and then its outputs"
        )
    nodes = list(controller.nodes)
    first = states if control is None else _first_entry(plant, control, controls)
    entries = np.arange(states + controls)
    is_control = (entries >= first) & (entries < first + controls)
    every = sp.eye_array(states + controls, format="csr")
    from_state = every[:, ~is_control]
    from_control = every[:, is_control]
    last = len(nodes) - 1
    nodes.append(Affine("loop", (0, last), (from_state, from_control), np.zeros(states + controls)))
    start = len(nodes) - 1  # takes the place of the plant's node 0
    for node in plant.nodes[1:]:
        nodes.append(_moved(node, start))
    return Network(tuple(nodes))


def _first_entry(plant: Network, control: str, controls: int) -> int:
    """Where the input of this name begins among the plant's inputs."""
    inputs = {} if plant.source is None else plant.source.inputs
    start = 0
    for name, size in inputs.items():
        if name == control:
            if size != controls:
                raise LipoptError(
                    f"the plant's input '{name}' has {size} entries, the controller {controls} outputs"
                )
            return start
        start += size
    known = ", ".join(inputs) if inputs else "not known by name"
    raise LipoptError(f"the plant has no input '{control}'; its inputs are {known}")


def _moved(node: Node, start: int) -> Node:
    """A node whose sources have higher numbers by `start`."""
    assert not isinstance(node, Input)
    if isinstance(node, Activation):
        return replace(node, source=node.source + start)
    return replace(node, sources=tuple(source + start for source in node.sources))
