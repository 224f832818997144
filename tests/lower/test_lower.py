"""Lower bounds: they are attained by points, and kinks do not fool them."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from strategies import SEEDS, Question, questions

import lipopt
from lipopt.lower.pop import pop_value
from lipopt.model.norms import Norm
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
    """relu(x) - relu(-x) = x has slope 1 everywhere, though at 0 a chain rule with slope 1 for both says 2."""
    w = [np.array([[1.0], [-1.0]]), np.array([[1.0, -1.0]])]
    r = lipopt.lower_bound(lipopt.load(w), domain=lipopt.Ball([0.0], 0.0))
    assert r.lower <= 1
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
