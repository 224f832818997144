"""What is left when time is up: wider intervals and larger norms, which hold still."""

import numpy as np
from hypothesis import given, settings
from strategies import SEEDS, Question, questions

import lipopt
from lipopt.methods.baselines import product_bound
from lipopt.problem.intervals import preactivation_intervals
from lipopt.problem.question import Question as Asked
from lipopt.problem.question import pose


@settings(max_examples=20)
@given(questions(), SEEDS)
def test_late_intervals_hold(question: Question, seed: int) -> None:
    network = question.network
    if question.domain is None:
        return
    ends = question.domain.bounds(network.input_size)
    late = preactivation_intervals(network, *ends, is_late=lambda: True)
    in_time = preactivation_intervals(network, *ends)
    rng = np.random.default_rng(seed)
    x = rng.uniform(ends[0][:, None], ends[1][:, None], (network.input_size, 20))
    values = network.node_values(x)
    for value, wide, narrow in zip(values, late, in_time, strict=True):
        room = 1e-9 * (1 + np.abs(value))
        assert (wide[0][:, None] <= value + room).all()
        assert (value <= wide[1][:, None] + room).all()
        assert (wide[0] <= narrow[0] + room.max()).all()
        assert (narrow[1] <= wide[1] + room.max()).all()


@settings(max_examples=20)
@given(questions())
def test_a_late_product_of_norms_is_no_smaller(question: Question) -> None:
    asked = Asked.about(
        question.network, norm=question.norm, output=question.output, domain=question.domain
    )
    raw = pose(question.network, asked).raw
    late = product_bound(raw, is_late=True)
    assert late >= product_bound(raw) * (1 - 1e-12)
    low = lipopt.lower_bound(
        question.network,
        norm=question.norm,
        output=question.output,
        domain=question.domain,
        samples=20,
    )
    assert late >= low.lower
