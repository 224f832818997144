"""Walks from linear region to linear region, beside an upper bound."""

import numpy as np
import pytest
from networks import gaussian_weights
from regions import exact_constant

import lipopt
from lipopt.lower.gradients import sample
from lipopt.lower.walk import walked
from lipopt.model.domain import Domain
from lipopt.problem.question import Posed, Question, pose
from lipopt.problem.task import Budget, Sample

SIZES = (3, 6, 5, 1)
FEW = 5  # random points


def asked(seed: int, domain: Domain, activation: str = "relu") -> tuple[Posed, Sample]:
    """A question, and the best of few points."""
    rng = np.random.default_rng(seed)
    biases = [0.5 * rng.standard_normal(n) for n in SIZES[1:]]
    network = lipopt.load(gaussian_weights(SIZES, seed), biases=biases, activation=activation)
    posed = pose(network, Question.about(network, domain=domain))
    found = sample(posed, Budget(), FEW)
    assert found is not None
    return posed, found


@pytest.mark.parametrize("seed", range(20))
def test_a_walk_ends_at_a_slope_that_is_attained(seed: int) -> None:
    """It is not below the sample that it starts from, and not above the exact constant."""
    ball = lipopt.Ball(np.zeros(3), 1.0)
    posed, best = asked(seed, ball)
    found = walked(posed, best, Budget())
    assert found is not None
    lower, upper = ball.bounds(3)
    assert ((lower <= found.point) & (found.point <= upper)).all()
    constant = exact_constant(posed.network, "linf", np.eye(1), lower, upper)
    assert best.value <= found.value <= constant * (1 + 1e-9)


def test_walks_gain() -> None:
    gains = 0
    for seed in range(20):
        posed, best = asked(seed, lipopt.Ball(np.zeros(3), 1.0))
        found = walked(posed, best, Budget())
        assert found is not None
        gains += found.value > best.value
    assert gains > 0


@pytest.mark.parametrize(
    ("domain", "activation", "budget"),
    [
        (None, "relu", Budget()),
        (lipopt.Ball(np.zeros(3), 1.0), "tanh", Budget()),
        (lipopt.Ball(np.zeros(3), 0.0), "relu", Budget()),
        (lipopt.Ball(np.zeros(3), 1.0), "relu", Budget(deadline=0.0)),
    ],
    ids=["whole space", "smooth", "a point", "no time left"],
)
def test_there_is_nowhere_to_walk(domain: Domain, activation: str, budget: Budget) -> None:
    posed, best = asked(0, domain, activation)
    assert walked(posed, best, budget) is best
    assert walked(posed, None, budget) is None
