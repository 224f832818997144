"""Closed loops: a plant and its controller as one network."""

import numpy as np
import pytest
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


def test_a_controller_that_does_not_fit_is_refused() -> None:
    plant = lipopt.load([np.ones((1, 4))])
    controller = lipopt.load([np.ones((2, 3))])
    with pytest.raises(lipopt.LipoptError, match=r"plant has 4 inputs.* 3 inputs and 2 outputs"):
        lipopt.compose(plant, controller)
