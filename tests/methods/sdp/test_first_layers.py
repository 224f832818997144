"""Problems that are too large: what is left of them has a larger optimum, and a smaller path sum."""

from __future__ import annotations

import numpy as np
import pytest
from networks import make_network

import lipopt
from lipopt.lower.pop import enumerate_pop
from lipopt.methods.baselines import path_sum_bound
from lipopt.methods.sdp import sparse_dual
from lipopt.methods.sdp.first_layers import smallest_cut, without_first_layers
from lipopt.problem.derivative import DerivativeProblem
from lipopt.problem.question import Question, pose
from lipopt.problem.task import Task

ROUNDING = 1 + 1e-12


def small_problem(architecture: str, seed: int, norm: str = "linf") -> DerivativeProblem:
    network = make_network(architecture, "relu", seed)
    return pose(network, Question.about(network, norm=norm)).problem


@pytest.mark.parametrize("architecture", ["dense", "residual", "concatenation", "input skip"])
def test_the_optimum_grows_with_every_layer_that_is_left_out(architecture: str) -> None:
    for seed in range(5):
        problem = small_problem(architecture, seed)
        path_sum = path_sum_bound(problem)
        before = enumerate_pop(problem)
        for count in range(1, len(problem.layers)):
            rest = without_first_layers(problem, count)
            assert len(rest.layers) == len(problem.layers) - count
            optimum = enumerate_pop(rest)
            assert before <= optimum * ROUNDING
            assert optimum <= path_sum * ROUNDING
            assert path_sum_bound(rest) == pytest.approx(path_sum)
            assert optimum <= lipopt.SDP()(Task(rest, rest)).value
            before = optimum


def test_a_network_that_is_too_large_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) for shape in ((30, 10), (12, 30), (12, 12), (1, 12))]
    whole = lipopt.bound(weights, method="sdp", samples=10)
    path_sum = lipopt.bound(weights, method="path-sum", samples=10)
    monkeypatch.setattr("lipopt.methods.sdp.batches.MAX_BLOCK_ON_CPU", 20)
    found = lipopt.bound(weights, method="sdp", samples=10)
    assert found.details["left_out"] == "2 of 3 layers"
    assert whole.upper < found.upper < path_sum.upper
    with pytest.raises(lipopt.LipoptError, match="too wide"):
        lipopt.bound(weights, method="sdp", samples=10, certify=True)


def test_what_is_left_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_dual, "MAX_VARIABLES", 0)
    monkeypatch.setattr("lipopt.methods.sdp.batches.MAX_BLOCK_ON_CPU", 3)
    assert smallest_cut(small_problem("dense", 0), None) is None
    monkeypatch.setattr("lipopt.methods.sdp.batches.MAX_BLOCK_ON_CPU", 4)
    assert smallest_cut(small_problem("dense", 0), None) == 1
    assert smallest_cut(small_problem("dense", 0, norm="l2"), None) is None
