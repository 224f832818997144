import numpy as np
import pytest
from networks import gaussian_weights, random_problem

from lipopt import LipoptError, bound
from lipopt.lower.pop import enumerate_pop
from lipopt.methods.sdp.method import SDP
from lipopt.methods.shor import Shor
from lipopt.problem.task import Task


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("slopes", ["relu", "leaky", "signed"])
@pytest.mark.parametrize("seed", range(3))
def test_one_hidden_layer_equals_the_vector_network(norm, slopes, seed):
    problem = random_problem(seed, norm=norm, depth=2, slopes=slopes)
    task = Task(problem, problem)
    assert Shor()(task).value == pytest.approx(SDP()(task).value, rel=2e-4)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("depth", [3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_deeper_networks_are_bounded_and_no_tighter(norm, depth, seed):
    problem = random_problem(
        seed, norm=norm, depth=depth, slopes="leaky", skips=seed == 1, widest=3
    )
    task = Task(problem, problem)
    value = Shor()(task).value
    assert enumerate_pop(problem) <= value
    assert SDP()(task).value <= value * (1 + 2e-4)


def test_refusals():
    with pytest.raises(LipoptError, match="small networks"):
        bound(gaussian_weights([20, 20, 20, 1]), method="shor", samples=10)
    with pytest.raises(LipoptError, match="one output"):
        bound(gaussian_weights([4, 3, 1]), norm="l1", method="shor", samples=10)


def test_zero_and_linear():
    assert bound([np.ones((3, 2)), np.zeros((1, 3))], method="shor", samples=10).upper == 0
    assert bound([np.array([[3.0, -4.0]])], method="shor", samples=10).upper == pytest.approx(
        7.0, rel=1e-6
    )
