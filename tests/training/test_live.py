"""The live network: the same linear maps as the reader's, absolute values, and intervals that hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from live_models import MODELS, live_model
from networks import PARAMETERS
from random_torch import random_module

from lipopt.errors import LipoptError
from lipopt.model import activations as reference
from lipopt.model.activations import KINDS
from lipopt.model.nodes import Activation, Affine, Input
from lipopt.readers.torch import read_module
from lipopt.training import activations
from lipopt.training.live import LiveNetwork
from lipopt.training.rules import Intervals, Linear, PathSums, Range

RANDOM_SEEDS = [3, 50, 103, 243, 440]  # the later ones have found errors


class FixedSlopes(Linear):
    """Every activation has known slopes."""

    def __init__(self, slopes: Mapping[int, Any]) -> None:
        self.slopes = slopes

    def activation(self, number: int, y: torch.Tensor) -> torch.Tensor:
        return self.slopes[number] * y


class Reading:
    """A live network, and random slopes for it and for the reader's nodes."""

    def __init__(self, module: torch.nn.Module, shape: tuple[int, ...], seed: int) -> None:
        self.reading = read_module(module, input_shape=shape, check=False)
        self.live = LiveNetwork(self.reading)
        self.nodes = self.reading.walk.builder.nodes
        rng = np.random.default_rng(seed)
        self.by_node = {}
        self.by_number = {}
        for k, number in self.live._numbers.items():
            slopes = rng.uniform(-1, 1, self.nodes[k].size)
            self.by_node[k] = slopes
            self.by_number[number] = torch.tensor(slopes)
        self.t = rng.normal(size=(self.live.network.input_size, 3))

    def columns(self, t: np.ndarray) -> torch.Tensor:
        return torch.tensor(t.T.copy()).reshape(3, *self.live.input_shape)

    def derivatives(self, t: np.ndarray, absolute: bool) -> np.ndarray:
        """The same by the reader's own matrices."""
        values = []
        for k, node in enumerate(self.nodes):
            if isinstance(node, Input):
                values.append(t)
            elif isinstance(node, Affine):
                total = np.zeros((node.size, 3))
                for source, matrix in node.terms:
                    total += (abs(matrix) if absolute else matrix) @ values[source]
                values.append(total)
            else:
                slopes = self.by_node.get(k, np.zeros(node.size))[:, None]
                values.append((abs(slopes) if absolute else slopes) * values[node.source])
        goal = self.reading.walk.values[self.reading.walk.goal]
        with_zero = np.concatenate([values[goal.node], np.zeros((1, 3))])
        return with_zero[goal.index.reshape(-1)]


def check_maps(made: Reading) -> None:
    constants = made.live.constants()
    rule = FixedSlopes(made.by_number)
    found = made.live.run(rule, made.columns(made.t), constants).detach().numpy().T
    expected = made.derivatives(made.t, absolute=False)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())
    t = np.abs(made.t)
    ranges = [
        Range.between(0 * made.by_number[k], made.by_number[k].abs())
        for k in range(len(made.live.activations))
    ]
    sums = PathSums(ranges, None, torch.eye(len(expected), dtype=torch.float64))
    found = made.live.run(sums, made.columns(t), constants).detach().numpy().T
    # The reader adds up what one operator and the next do; the sum over paths does not know that.
    assert (found >= made.derivatives(t, absolute=True) * (1 - 1e-6) - 1e-9).all()


def check_intervals(made: Reading, module: torch.nn.Module) -> None:
    """The network's values at points of a box lie in the interval of its outputs."""
    constants = made.live.constants()
    middle = torch.randn(2, *made.live.input_shape, dtype=torch.float64)
    radius = 0.3 * torch.rand_like(middle)
    rule = Intervals(made.live.activations, constants)
    with torch.no_grad():
        found = made.live.run(rule, torch.cat([middle, radius]), constants)
        middles, radii = found.chunk(2)
        module.eval()
        for _ in range(10):
            points = middle + radius * (2 * torch.rand_like(middle) - 1)
            for k in range(2):
                value = module(points[k].clone()).reshape(-1)
                excess = (value - middles[k]).abs() - radii[k]
                assert float(excess.max()) <= 1e-6 * (1 + float(value.abs().max()))


@pytest.mark.parametrize("name", MODELS)
def test_maps_of_models(name: str) -> None:
    module, inputs = live_model(name)
    made = Reading(module, tuple(inputs.shape[1:]), 0)
    check_maps(made)
    check_intervals(made, module)


@pytest.mark.parametrize("seed", RANDOM_SEEDS)
def test_maps_of_random_modules(seed: int) -> None:
    draft = random_module(seed)
    module = draft.module.double()
    try:
        made = Reading(module, draft.shape, seed)
    except LipoptError:
        pytest.skip("the reader refuses it")
    check_maps(made)
    check_intervals(made, module)


def test_weights_are_live() -> None:
    module, _ = live_model("dense")
    made = Reading(module, (5,), 0)
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(-2)
    made.reading = read_module(module, input_shape=(5,), check=False)
    made.nodes = made.reading.walk.builder.nodes
    check_maps(made)


# ---- activations


@pytest.mark.parametrize("kind", KINDS)
def test_activations_are_those_of_the_model(kind: str) -> None:
    """The same values and slope ranges as in NumPy, and values that stay in their ranges."""
    parameters = reference.check(kind, PARAMETERS.get(kind, {}))
    rng = np.random.default_rng(0)
    lo = rng.normal(size=200) * 3
    if KINDS[kind].argument != "any":
        lo = np.abs(lo) + 0.1
    hi = lo + rng.exponential(size=200)
    numbers = {name: float(p) for name, p in parameters.items()}
    ends = torch.tensor(lo), torch.tensor(hi)
    values = activations.value(kind, ends[0], numbers)
    np.testing.assert_allclose(values, reference.value(kind, lo, parameters), atol=1e-12)
    low, high = activations.slope_range(kind, *ends, numbers)
    expected = reference.slope_range(kind, lo, hi, parameters)
    np.testing.assert_allclose(low, expected[0], atol=1e-9, rtol=1e-12)
    np.testing.assert_allclose(high, expected[1], atol=1e-9, rtol=1e-12)
    bottom, top = activations.value_range(kind, *ends, numbers)
    for share in np.linspace(0, 1, 11):
        inside = activations.value(kind, ends[0] + share * (ends[1] - ends[0]), numbers)
        assert bool((inside >= bottom - 1e-9).all())
        assert bool((inside <= top + 1e-9).all())


def test_every_activation_is_there() -> None:
    assert set(activations.VALUES) == set(KINDS)
    curved = {kind for kind, spec in KINDS.items() if any(callable(s) for s in spec.slopes)}
    assert set(activations.SLOPES) == curved


def test_the_activations_are_numbered() -> None:
    module, _ = live_model("maxima")
    made = Reading(module, (4,), 0)
    assert sorted(made.by_number) == list(range(len(made.live.activations)))
    assert all(isinstance(made.nodes[k], Activation) for k in made.by_node)
