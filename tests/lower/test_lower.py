"""Lower bounds: they are attained by points, and kinks do not fool them."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import NORMS, SEEDS, Question, questions

import lipopt
from lipopt.lower.gradients import JacobianNorm
from lipopt.lower.pop import pop_value
from lipopt.model.nodes import Affine
from lipopt.model.norms import Norm, NormName
from lipopt.problem.derivative import DerivativeProblem, Layer


@given(questions())
@settings(max_examples=40)
def test_the_gradient_at_the_point_has_that_norm(question: Question) -> None:
    """The reported point, differentiated numerically, gives the reported lower bound."""
    low = lipopt.lower_bound(
        question.network,
        samples=100,
        norm=question.norm,
        output=question.output,
        domain=question.domain,
    )
    if not low.point:
        return
    x = np.array(low.point)
    if question.domain is not None:
        lower, upper = question.domain.bounds(len(x))
        assert (lower <= x).all()
        assert (x <= upper).all()
    h = 1e-7
    both = [x[:, None] + sign * h * np.eye(len(x)) for sign in (1, -1)]
    rows = slice(None) if question.output == "all" else [question.output]
    jacobian = (
        (question.network.node_values(both[0])[-1] - question.network.node_values(both[1])[-1])
        / (2 * h)
    )[rows]
    norm = np.linalg.norm(jacobian, {"linf": np.inf, "l2": 2, "l1": 1}[question.norm])
    assert low.lower == pytest.approx(
        norm, rel=1e-2, abs=1e-4
    )  # a kink within h of the point shifts the difference


def test_a_kink_is_not_a_gradient() -> None:
    """relu(x) - relu(-x) = x has slope 1 everywhere, though at 0 a chain rule with slope 1 for both says 2.

    A tiny weight of another input keeps the two neurons from being one."""
    w = [np.array([[1.0, 0.0], [-1.0, 1e-12]]), np.array([[1.0, -1.0]])]
    r = lipopt.lower_bound(lipopt.load(w), domain=lipopt.Ball([0.0, 0.0], 0.0))
    assert r.lower <= 1 + 1e-12
    assert r.pop_lower == pytest.approx(2)


def test_neurons_that_are_constant_do_not_spoil_the_sample() -> None:
    w = [np.array([[0.0, 0.0], [1.0, 2.0]]), np.array([[1.0, 1.0]])]
    assert lipopt.lower_bound(lipopt.load(w)).lower == pytest.approx(3)


@settings(max_examples=20)
@given(SEEDS)
def test_alternating_maximization_finds_the_optimum_of_small_problems(seed: int) -> None:
    from lipopt.lower import pop as lower
    from lipopt.problem.question import Question, pose
    from lipopt.problem.task import Budget

    rng = np.random.default_rng(seed)
    network = lipopt.load(
        [rng.normal(size=(5, 4)), rng.normal(size=(5, 5)), rng.normal(size=(1, 5))]
    )
    problem = pose(network, Question.about(network)).problem
    optimum = lower.enumerate_pop(problem)
    found = lower.alternating(problem, Budget(), restarts=200)
    assert 0.97 * optimum <= found <= optimum * (1 + 1e-12)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_shaking_raises_the_lower_bound(norm: NormName) -> None:
    from lipopt.lower import pop as lower
    from lipopt.problem.question import Question, pose
    from lipopt.problem.task import Budget

    rng = np.random.default_rng(0)
    network = lipopt.load([rng.normal(size=s) for s in ((60, 40), (60, 60), (60, 60), (3, 60))])
    problem = pose(network, Question.about(network, norm=norm, output="all")).problem
    plain = lower.alternating(problem, Budget(), restarts=4)
    shaken = lower.alternating(problem, Budget(), restarts=4, shakes=20)
    upper = lipopt.bound(network, norm=norm, output="all", method="sdp", samples=10).upper
    assert plain < shaken <= upper


def test_against_torch_gradients() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    ).double()
    low = lipopt.lower_bound(module, samples=500)
    x = torch.tensor(low.point, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(module(x).sum(), x)
    assert low.lower == pytest.approx(gradient.abs().sum().item(), rel=1e-6)


@pytest.mark.parametrize(("norm", "outputs"), [("linf", 1), ("linf", 3), ("l1", 2), ("l2", 1)])
def test_deep_networks_have_a_lower_bound_too(norm: str, outputs: int) -> None:
    """Where paths cancel beyond float64's last digit: close to the value in exact arithmetic, and not above it."""
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal((20, 20)) / np.sqrt(20) for _ in range(40)]
    layers = tuple(
        Layer({i: w}, np.zeros(20), np.ones(20), i + 1, np.arange(20))
        for i, w in enumerate(weights)
    )
    problem = DerivativeProblem(
        Norm(norm), 20, layers, {40: sp.csr_array(rng.standard_normal((outputs, 20)))}
    )
    slopes = [rng.integers(0, 2, (20, 1)).astype(float) for _ in layers]
    exact = np.frompyfunc(Fraction, 1, 1)
    gradients = [np.full((n, outputs), Fraction(0)) for n in problem.sizes]
    for i, blocks in reversed(list(enumerate(problem.all_blocks(), start=1))):
        through = (
            exact(np.eye(outputs))
            if i == len(problem.sizes)
            else exact(slopes[i - 1]) * gradients[i]
        )
        for source, matrix in blocks.items():
            gradients[source] += (
                exact(matrix.toarray() if sp.issparse(matrix) else matrix).T @ through
            )
    sizes = abs(gradients[0])
    value = {
        "linf": sizes.sum(axis=0).max(),
        "l1": sizes.sum(axis=1).max(),
        "l2": float((sizes**2).sum()) ** 0.5,
    }[norm]
    assert float(value) * (1 - 1e-6) <= pop_value(problem, slopes) <= value


def test_regions_far_from_the_origin_are_found() -> None:
    steep = lipopt.load(
        [np.ones((2, 1)), np.array([[1.0, 10.0]])], biases=[[0.0, -200.0], None]
    )  # relu(x) + 10 relu(x - 200)
    assert lipopt.lower_bound(steep, samples=1000).lower > 10.99


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_tiny_weights_and_neurons_at_zero_cost_what_they_contribute(norm: NormName) -> None:
    """Of three neurons, one is at its kink everywhere, and one has an input of 1e-10 everywhere."""
    first = np.array([[1.0, 2.0], [0.0, 0.0], [1e-10, 1e-10]])
    network = lipopt.load([first, np.eye(3), np.array([[1.0, 5.0, 1.0]])])
    sizes = {"linf": 3.0, "l2": 5**0.5, "l1": 2.0}
    low = lipopt.lower_bound(network, norm=norm, samples=100)
    assert sizes[norm] * (1 - 1e-8) <= low.lower <= sizes[norm] * (1 + 1e-8)


@settings(max_examples=20)
@given(SEEDS, st.sampled_from(NORMS))
def test_a_point_at_kinks_proves_no_more_than_points_around_it(seed: int, norm: NormName) -> None:
    """At the origin, every neuron of a network without biases is at its kink."""
    rng = np.random.default_rng(seed)
    sizes = [3, 4, 4, 2]
    network = lipopt.load([rng.normal(size=(b, a)) for a, b in itertools.pairwise(sizes)])
    rows = sp.csr_array(np.eye(2))
    goal = JacobianNorm(network, rows, Norm(norm))
    around = goal.at(1e-3 * rng.standard_normal((3, 500)))
    assert goal.proved(np.zeros(3)).value <= around.min()
    assert goal.at(np.zeros((3, 1)))[0] <= around.min()


@pytest.mark.parametrize("depth", [30])
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_very_deep_networks_have_a_lower_bound(depth: int, norm: NormName) -> None:
    """Close to the norm of a gradient in exact arithmetic, and not above it."""
    rng = np.random.default_rng(depth)
    weights = [rng.standard_normal((12, 12)) * (2 / 12) ** 0.5 for _ in range(depth)]
    network = lipopt.load([*weights, rng.standard_normal((1, 12))])
    low = lipopt.lower_bound(network, norm=norm, samples=50)
    exact: Any = np.frompyfunc(Fraction, 1, 1)
    values = exact(np.array(low.point))
    gradients = exact(np.eye(12))
    for w in weights:
        inputs = exact(w) @ values
        gradients = exact(w) @ gradients * (inputs > 0)[:, None]
        values = np.where(inputs > 0, inputs, 0)
    last = network.nodes[-1]
    assert isinstance(last, Affine)
    sizes = abs(exact(last.matrices[0]) @ gradients)[0]
    value = {"linf": sizes.sum(), "l2": float((sizes**2).sum()) ** 0.5, "l1": sizes.max()}[norm]
    assert float(value) * (1 - 1e-4) <= low.lower <= value


def test_what_overflows_ends_sampling_in_no_error() -> None:
    huge = [np.full((3, 2), 1e200), np.full((3, 3), 1e200)]
    with pytest.raises(lipopt.LipoptError, match="overflows"):
        lipopt.bound(lipopt.load(huge), norm="l2", output="all", samples=20)


@settings(max_examples=15)
@given(SEEDS, st.sampled_from(NORMS))
def test_uphill_is_the_derivative_of_the_gradients_norm(seed: int, norm: NormName) -> None:
    """Of smooth networks, where a small step reaches no kink because there is none."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(5, 3)), rng.normal(size=(4, 5)), rng.normal(size=(1, 4))]
    network = lipopt.load(weights, activation="tanh")
    goal = JacobianNorm(network, sp.csr_array(np.eye(1)), Norm(norm))
    x = rng.normal(size=(3, 1))
    ascent, _ = goal.uphill(x, np.full((3, 1), 1e-5), rng)
    both = [goal.at(x + sign * 1e-6 * np.eye(3)) for sign in (1.0, -1.0)]
    expected = (both[0] - both[1]) / 2e-6
    assert ascent[:, 0] == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_uphill_crosses_kinks() -> None:
    """relu(x + 5) + 10 relu(x - 1) has slope 1 around 0, and uphill from there is where it has 11."""
    network = lipopt.load([np.ones((2, 1)), np.array([[1.0, 10.0]])], biases=[[5.0, -1.0], None])
    goal = JacobianNorm(network, sp.csr_array(np.eye(1)), Norm.LINF)
    rng = np.random.default_rng(0)
    far, _ = goal.uphill(np.zeros((1, 1)), np.full((1, 1), 2.0), rng)
    near, _ = goal.uphill(np.zeros((1, 1)), np.full((1, 1), 0.1), rng)
    assert far[0, 0] > 0
    assert near[0, 0] == 0


def test_a_value_that_rounding_takes_is_found_in_the_problem_as_given() -> None:
    """Normalizations that are substituted round coefficients; in deep networks that is a large slack."""
    from lipopt.lower.pop import AsGiven, pop_value
    from lipopt.problem.question import Question, pose

    rng = np.random.default_rng(0)
    layers: list[torch.nn.Module] = []
    for _ in range(24):
        layers += [torch.nn.Linear(30, 30), torch.nn.BatchNorm1d(30), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(30, 1)).eval()
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.orthogonal_(module.weight)
        if isinstance(module, torch.nn.BatchNorm1d):
            torch.nn.init.uniform_(module.weight, 0.9, 1.1)
    network = lipopt.load(model.double())
    posed = pose(network, Question.about(network))
    (given,) = AsGiven.parts(posed, 1)
    assert given is not None
    slopes = [
        np.where(rng.random(layer.size) < 0.7, layer.upper, layer.lower)[:, None]
        for layer in posed.problem.layers
    ]
    rounded = pop_value(posed.problem, slopes)
    value = given.value(posed.problem, slopes)
    plain = posed.problem.norm.of_jacobians(posed.problem.backward(slopes)[0][None])[0]
    assert rounded < 0.999 * value
    assert value == pytest.approx(plain, rel=1e-6)
