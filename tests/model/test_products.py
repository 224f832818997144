"""Which squares are products, and that their factors are found."""

import numpy as np
import pytest
from networks import LOCAL_ARCHITECTURES, make_network

import lipopt
from lipopt.methods.baselines import path_sum_bound
from lipopt.model.network import Network
from lipopt.model.products import find_products
from lipopt.problem.presolve import presolve
from lipopt.problem.question import Posed, Question, pose
from lipopt.readers import smooth
from lipopt.readers.builder import Builder


def gated(*, weight: float = 1.0, reads_a_square: bool = False, scale: float = 1.0) -> Network:
    """(x + y) (x - y), as squares of which the second is read with another weight, or elsewhere too."""
    b = Builder()
    x = b.input((1, 2))
    plus = b.linear("plus", x, np.array([[scale, 1.0]]), None)
    minus = b.linear("minus", x, np.array([[1.0, -1.0]]), None)
    first = smooth.square(b, "first", plus)
    second = smooth.square(b, "second", minus)
    views = [first, second]
    factors: list = [0.25, -0.25 * weight]
    if reads_a_square:
        views.append(b.activation("tanh", second, "tanh"))
        factors.append(1.0)
    return b.network(b.add("product", views, factors))


def test_a_product_and_its_factors() -> None:
    network = gated()
    (product,) = find_products(network)
    names = [getattr(network.nodes[i], "name", "") for i in (product.first, product.second)]
    assert names == ["first", "second"]
    (total,) = product.total.matrices
    (difference,) = product.difference.matrices
    assert (total.toarray() == [[2.0, 0.0]]).all()  # x + y + x - y
    assert (difference.toarray() == [[0.0, 2.0]]).all()


@pytest.mark.parametrize(
    "network",
    [
        gated(weight=0.5),
        gated(reads_a_square=True),
        gated(scale=1 + 2.0**-52),  # the sum of this and 1 is rounded
        lipopt.load([[[1.0, 2.0]], [[1.0]]], activation="power"),
    ],
    ids=["other weights", "read elsewhere", "rounded", "one square"],
)
def test_what_is_no_product(network: Network) -> None:
    assert find_products(network) == ()


@pytest.mark.parametrize("architecture", LOCAL_ARCHITECTURES)
def test_products_of_readers_are_found(architecture: str) -> None:
    network = make_network(architecture, "tanh", 0)
    squares = [node for node in network.nodes if getattr(node, "kind", "") == "power"]
    assert 2 * len(find_products(network)) == len(squares) > 0


def test_a_network_whose_output_is_a_square_has_no_products() -> None:
    b = Builder()
    x = b.input((1, 2))
    square = smooth.square(b, "square", b.linear("sum", x, np.ones((1, 2)), None))
    assert find_products(b.network(square)) == ()


def posed_in_a_box(network: Network, radius: float) -> Posed:
    center = np.random.default_rng(0).standard_normal(network.input_size)
    return pose(network, Question.about(network, domain=lipopt.Ball(center, radius)))


def test_slopes_are_the_factors() -> None:
    """Of 4 x y with x in [1, 2] and y in [3, 5] the slopes are twice x and y, not sums of both."""
    network = gated()
    posed = pose(network, Question.about(network, domain=lipopt.Box([1.0, 3.0], [2.0, 5.0])))
    (layer_of_y, layer_of_x) = posed.problem.layers
    assert np.allclose([layer_of_y.lower, layer_of_y.upper], [[2.0], [4.0]])
    assert np.allclose([layer_of_x.lower, layer_of_x.upper], [[6.0], [10.0]])
    bound = lipopt.bound(network, domain=lipopt.Box([1.0, 3.0], [2.0, 5.0]), method="path-sum")
    assert bound.upper == pytest.approx(2.0 + 5.0)  # |y| + |x|
    assert bound.lower <= bound.upper


def test_factors_make_bounds_tighter() -> None:
    """Than squares with slopes of their own, where products follow each other."""
    tighter = 0
    for seed in range(20):
        posed = posed_in_a_box(make_network("products in a row", "tanh", seed), 0.3)
        with_squares = presolve(posed.raw)
        path_sums = [path_sum_bound(problem) for problem in (posed.problem, with_squares)]
        tighter += path_sums[0] < path_sums[1]
    assert tighter == 20
