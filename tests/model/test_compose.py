"""Closed loops: a plant and its controller as one network."""

import numpy as np
import pytest
import torch
from networks import make_network

import lipopt


def test_the_loop_is_the_plant_at_the_controllers_output() -> None:
    controller = make_network("residual", "tanh", 1)
    plant = lipopt.load(
        [np.random.default_rng(k).normal(size=s) for k, s in enumerate(((4, 5), (3, 4)))],
        activation="sin",
    )
    loop = lipopt.compose(plant, controller)
    assert loop.input_size == 3
    assert loop.output_size == 3
    for x in np.random.default_rng(0).normal(size=(5, 3)):
        both = np.concatenate([x, controller.forward(x)])
        np.testing.assert_allclose(loop.forward(x), plant.forward(both), rtol=1e-12)


class Pendulum(torch.nn.Module):
    """One step of a pendulum, with its torque first."""

    def forward(self, torque: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        angle = state[:, :1]
        speed = state[:, 1:]
        faster = speed + 0.1 * (torch.sin(angle) + torque * torch.cos(angle))
        return torch.cat([angle + 0.1 * speed, faster], dim=1)


def test_the_plants_inputs_have_names() -> None:
    plant = lipopt.load(Pendulum().double(), input_shape=[(1,), (2,)])
    assert plant.source is not None
    assert plant.source.inputs == {"torque": 1, "state": 2}
    controller = lipopt.load([np.array([[-2.0, -1.0]])])
    loop = lipopt.compose(plant, controller, control="torque")
    state = torch.tensor([[0.3, -0.2]], dtype=torch.float64)
    torque = torch.tensor([[-2 * 0.3 + 0.2]], dtype=torch.float64)
    np.testing.assert_allclose(loop([0.3, -0.2]), Pendulum()(torque, state)[0], rtol=1e-12)
    with pytest.raises(lipopt.LipoptError, match="no input 'u'; its inputs are torque, state"):
        lipopt.compose(plant, controller, control="u")
    with pytest.raises(lipopt.LipoptError, match="'state' has 2 entries, the controller 1"):
        lipopt.compose(plant, controller, control="state")


def test_values_of_inputs_are_joined_by_name() -> None:
    plant = lipopt.load(Pendulum().double(), input_shape=[(1,), (2,)])
    joined = plant.join_inputs({"state": [0.3, -0.2], "torque": 0.5})
    assert joined.tolist() == [0.5, 0.3, -0.2]  # in the order of the model
    assert plant.join_inputs({"torque": [1], "state": 2}).tolist() == [1.0, 2.0, 2.0]
    with pytest.raises(lipopt.LipoptError, match="each of the inputs torque, state, and no other"):
        plant.join_inputs({"state": 0.0})
    with pytest.raises(lipopt.LipoptError, match="and no other"):
        plant.join_inputs({"state": 0.0, "torque": 0.0, "u": 0.0})
    with pytest.raises(lipopt.LipoptError, match="input 'state' has 2 entries, got 3"):
        plant.join_inputs({"state": [1.0, 2.0, 3.0], "torque": 0.0})
    with pytest.raises(lipopt.LipoptError, match="one input, which has no name"):
        lipopt.load([np.ones((1, 4))]).join_inputs({"x": 0.0})


def test_a_controller_that_does_not_fit_is_refused() -> None:
    plant = lipopt.load([np.ones((1, 4))])
    controller = lipopt.load([np.ones((2, 3))])
    with pytest.raises(lipopt.LipoptError, match=r"plant has 4 inputs.* 3 inputs and 2 outputs"):
        lipopt.compose(plant, controller)
    with pytest.raises(lipopt.LipoptError, match=r"compose takes networks.* got list"):
        lipopt.compose([[1.0]], controller)  # type: ignore[arg-type]
