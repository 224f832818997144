"""Random hyperplanes round the vectors of the relaxation to slopes: a lower bound on the POP.

A hyperplane cuts every pair (y_a, v_a) to a pair of signs. Equal signs pick the slope u_a, others
l_a. Alternating maximization starts from the slopes of every hyperplane.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...lower.pop import alternating
from ...problem.same_shape import RealNeurons
from ...problem.task import Task
from .vector_network import State, VectorNetwork

# The largest number of hyperplanes.
MAX_HYPERPLANES = 32
# The largest number of coefficients of the problem times hyperplanes. Large problems get fewer
# hyperplanes, to limit the time that rounding takes.
MAX_ROUNDING_WORK = 200_000_000
# The smallest number of hyperplanes, however large the problem is.
MIN_HYPERPLANES = 4
# Random starts of the alternating maximization in addition to those of the hyperplanes.
RESTARTS = 4
# How often the best slopes are changed at random and maximized again, at most.
SHAKES = 40


def round_vectors(
    network: VectorNetwork, state: State, k: int, neurons: Sequence[RealNeurons], task: Task
) -> float:
    """A lower bound on the optimum of the task's problem, from the vectors of problem k.

    `neurons`: where the layers of the task's problem are in the network. The problems of a batch
    get less time for it."""
    problem = task.problem
    numpy = network.backend.numpy
    affordable = MAX_ROUNDING_WORK // max(1, problem.nonzeros)
    count = max(MIN_HYPERPLANES, min(MAX_HYPERPLANES, affordable))
    random = np.random.default_rng(task.budget.seed)
    planes = random.standard_normal((state.rank, count))
    slopes = []  # of every layer, (n, hyperplanes)
    for layer, real in zip(problem.layers, neurons, strict=True):
        y = numpy(state.y[real.place][: real.size, k])
        v = numpy(state.units[real.place + 1][: real.size, k])
        same_side = (y @ planes) * (v @ planes) > 0
        slopes.append(np.where(same_side, layer.upper[:, None], layer.lower[:, None]))
    starts = []
    for i in range(count):
        starts.append([of_layer[:, i] for of_layer in slopes])
    is_one_of_many = network.batch > 1 or task.memory is not None
    shakes = 0 if is_one_of_many else SHAKES
    return alternating(problem, task.budget, starts, restarts=RESTARTS, shakes=shakes)
