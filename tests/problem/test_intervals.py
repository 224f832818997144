"""What is left when time is up: wider intervals and larger norms, which hold still."""

import numpy as np
from hypothesis import given, settings
from networks import make_network
from strategies import SEEDS, Question, questions

import lipopt
from lipopt.methods.baselines import product_bound
from lipopt.model.products import find_products
from lipopt.problem.intervals import enclose
from lipopt.problem.question import Question as Asked
from lipopt.problem.question import pose


@settings(max_examples=20)
@given(questions(), SEEDS)
def test_late_intervals_hold(question: Question, seed: int) -> None:
    network = question.network
    if question.domain is None:
        return
    ends = question.domain.bounds(network.input_size)
    late = enclose(network, *ends, is_late=lambda: True).intervals
    in_time = enclose(network, *ends).intervals
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
@given(SEEDS)
def test_products_lie_between_their_corners(seed: int) -> None:
    """Their ranges hold, and those of positive factors are positive."""
    network = make_network("logarithm of a product", "tanh", seed)
    (product,) = find_products(network)
    read = network.consumers[product.first][0]
    rng = np.random.default_rng(seed)
    center = rng.standard_normal(network.input_size)
    ends = (center - 1.0, center + 1.0)
    found = enclose(network, *ends, products=(product,))
    values = network.node_values(rng.uniform(*ends, (50, network.input_size)).T)
    squares = values[product.first] - values[product.second]
    low, high = found.terms[product.first]
    assert (low[:, None] <= squares + 1e-12).all()
    assert (squares <= high[:, None] + 1e-12).all()
    low, high = found.intervals[read]
    assert (low > 0.2**2 - 1e-9).all()
    assert (high < 1.2**2 + 1e-9).all()


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
