"""Walks between linear regions: slopes that they find are attained in the domain."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import ARCHITECTURES, make_network
from strategies import SEEDS

import lipopt
from lipopt.cells.cell import whole_domain
from lipopt.cells.reduced import reduce
from lipopt.cells.regions import RegionWalk
from lipopt.lower.gradients import JacobianNorm
from lipopt.model.activations import KINDS
from lipopt.model.norms import NormName
from lipopt.problem.question import Posed, Question, pose

PIECEWISE_LINEAR = [kind for kind in sorted(KINDS) if KINDS[kind].piecewise_linear]
PROGRAMS = 60
ROUNDING = 1e-6  # relative


def walk_in(posed: Posed) -> RegionWalk | None:
    """Walks in the domain of a question; None if all neurons are linear there."""
    reduced = reduce(posed)
    if reduced.neurons == 0:
        return None
    cell = whole_domain(reduced, posed.intervals, posed.ball)
    return RegionWalk(reduced, cell.inputs, None)


def goal_of(posed: Posed) -> JacobianNorm:
    return JacobianNorm(posed.network, posed.question.rows, posed.question.norm)


@settings(max_examples=60)
@given(
    st.sampled_from(ARCHITECTURES),
    st.sampled_from(PIECEWISE_LINEAR),
    SEEDS,
    st.sampled_from([0.1, 0.5, 2.0]),
    st.sampled_from(["linf", "l2", "l1"]),
    st.sampled_from(["linf", "l2", "l1"]),
)
def test_walks_go_uphill_inside_of_the_domain(
    architecture: str, kind: str, seed: int, radius: float, norm: NormName, of_ball: NormName
) -> None:
    network = make_network(architecture, kind, seed)
    rng = np.random.default_rng(seed)
    ball = lipopt.Ball(rng.normal(size=network.input_size), radius, norm=of_ball)
    posed = pose(network, Question.about(network, norm=norm, output="all", domain=ball))
    walk = walk_in(posed)
    if walk is None:
        return
    goal = goal_of(posed)
    inside = rng.uniform(walk.inputs.lower, walk.inputs.upper)
    start = walk.inputs.moved_into(inside[:, None])[:, 0]
    before = goal.at(start[:, None])[0]
    if before < 0:  # at a kink
        return
    own = walk.reduced.norms_of(walk.region_at(start).jacobian[:, :, None])[0]
    assert own == pytest.approx(before, rel=ROUNDING)
    end, left = walk.climb(start, PROGRAMS)
    assert 0 <= left <= PROGRAMS
    if end is not None:
        assert walk.inputs.holds(end[:, None]).all()
        assert goal.at(end[:, None])[0] > before


def test_walks_find_what_random_points_miss() -> None:
    """A network in ten inputs: some walks from random points against a thousand times as many points."""
    rng = np.random.default_rng(0)
    shapes = ((20, 10), (20, 20), (1, 20))
    weights = [rng.normal(size=shape) / np.sqrt(shape[1]) for shape in shapes]
    network = lipopt.load(weights)
    ball = lipopt.Ball(np.zeros(10), 1.0)
    posed = pose(network, Question.about(network, domain=ball))
    walk = walk_in(posed)
    assert walk is not None
    goal = goal_of(posed)
    points = rng.uniform(-1, 1, (10, 8000))
    ends = [walk.climb(point, 40)[0] for point in points[:, :8].T]
    found = [goal.at(end[:, None])[0] for end in ends if end is not None]
    assert max(found) > goal.at(points).max()
