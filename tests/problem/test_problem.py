"""The derivative problem, presolve and the baselines."""

from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from strategies import Question, questions

import lipopt.api
from lipopt.lower.gradients import jacobians
from lipopt.methods.registry import REGISTER, find_method
from lipopt.model import activations
from lipopt.model.nodes import Activation
from lipopt.model.norms import Norm, NormName
from lipopt.model.round_ball import InputSet
from lipopt.numerics.semidefinite import is_positive_semidefinite, spectral_norm_up
from lipopt.problem.question import Posed, pose
from lipopt.problem.question import Question as Asked
from lipopt.readers.builder import Builder

NORMS: tuple[NormName, ...] = get_args(NormName)


def posed_of(question: Question) -> Posed:
    network = question.network
    asked = Asked.about(network, norm=question.norm, output=question.output, domain=question.domain)
    return pose(network, asked)


@given(questions())
def test_the_problem_is_the_chain_rule(question: Question) -> None:
    """With the slopes of a point, the problem's gradient in t is the network's gradient, before and after presolve."""
    posed = posed_of(question)
    network = posed.network
    low, high = (np.full(network.input_size, -2.0), np.full(network.input_size, 2.0))
    ball = None
    if question.domain is not None:
        low, high = question.domain.bounds(network.input_size)
        ball = question.domain.ball(network.input_size)
    x = np.random.default_rng(0).uniform(low, high)[:, None]
    x = InputSet(low, high, ball).moved_into(x)
    values = network.node_values(x)
    slopes = {
        i: activations.slope(n.kind, values[n.source].T, n.parameters).T
        for i, n in enumerate(network.nodes)
        if isinstance(n, Activation)
    }
    expected = jacobians(network, posed.question.rows, slopes)[:, :, 0]
    for problem, known in (
        (posed.raw, slopes),
        (posed.problem, posed.slopes_in_problem(slopes)),
    ):
        chosen = [
            known[layer.node][layer.neurons] if layer.node in known else np.ones((layer.size, 1))
            for layer in problem.layers
        ]
        for k in range(problem.outputs):
            row = problem.backward(chosen, np.eye(problem.outputs)[:, [k]])[0][:, 0]
            np.testing.assert_allclose(row, expected[k], rtol=1e-9, atol=1e-9)
        for s, layer in zip(chosen, problem.layers, strict=True):
            assert (layer.lower - 1e-12 <= s[:, 0]).all()
            assert (s[:, 0] <= layer.upper + 1e-12).all()


@given(questions())
def test_presolve_leaves_variables_only(question: Question) -> None:
    posed = posed_of(question)
    assert all((layer.lower < layer.upper).all() for layer in posed.problem.layers)
    assert posed.problem.neurons <= posed.raw.neurons
    assert 0 <= posed.problem.slack <= 1e-9


def test_a_small_ball_makes_the_network_linear() -> None:
    rng = np.random.default_rng(1)
    network = lipopt.load(
        [rng.normal(size=(6, 4)), rng.normal(size=(6, 6)), rng.normal(size=(1, 6))]
    )
    x = rng.normal(size=4)
    r = lipopt.bound(network, domain=lipopt.Ball(x, 1e-9), method="path-sum", samples=10)
    assert r.upper == pytest.approx(r.lower, rel=1e-6)
    assert r.pop_lower is not None
    assert r.lower <= r.pop_lower <= r.upper


def test_dead_neurons_zero_weights_and_zero_output() -> None:
    w = [np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]), np.array([[2.0, 5.0, 0.0]])]
    for norm in NORMS:
        assert lipopt.bound(lipopt.load(w), norm=norm, method="path-sum").upper == pytest.approx(
            2.0
        )
    for method in ("product", "path-sum", "auto"):
        for norm in NORMS:
            r = lipopt.bound(lipopt.load([w[0], np.zeros((1, 3))]), method=method, norm=norm)
            assert (r.lower, r.pop_lower, r.upper) == (0, 0, 0)


def test_the_path_sum_is_rounded_upward() -> None:
    rng = np.random.default_rng(2)
    for _ in range(30):
        w = [rng.normal(size=(4, 3)), rng.normal(size=(4, 4)), rng.normal(size=(1, 4))]
        a = [[[abs(Fraction(v)) for v in row] for row in m] for m in w]
        row = a[2][0]
        for m in (a[1], a[0]):
            columns = range(len(m[0]))
            row = [sum((row[i] * m[i][j] for i in range(len(m))), Fraction(0)) for j in columns]
        network = lipopt.load(w, activation="relu")
        assert Fraction(lipopt.bound(network, method="path-sum", samples=1).upper) >= sum(row)
        assert Fraction(
            lipopt.bound(network, method="path-sum", norm="l1", samples=1).upper
        ) >= max(row)
        assert Fraction(
            lipopt.bound(network, method="path-sum", norm="l2", samples=1).upper
        ) ** 2 >= sum(v * v for v in row)
        product = max(sum(r) for r in a[0]) * max(sum(r) for r in a[1]) * sum(a[2][0])
        assert Fraction(lipopt.bound(network, method="product", samples=1).upper) >= product


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1.0, 1e30, 1e150])
def test_tiny_and_huge_weights(size: float) -> None:
    w = [np.array([[size, -size], [size, size]]), np.array([[1.0, 1.0]])]
    exact_constants: dict[NormName, float] = {"linf": 4.0, "l2": 8**0.5, "l1": 2.0}
    for norm, exact in exact_constants.items():  # path sums: 2, 2
        assert lipopt.bound(lipopt.load(w), norm=norm, method="path-sum").upper == pytest.approx(
            exact * size
        )
        assert (
            lipopt.bound(lipopt.load(w), norm=norm, method="product").upper
            >= exact * size * (1 - 1e-9) / 2**0.5
        )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("method", sorted(REGISTER))
def test_weights_at_the_ends_of_float64(norm: NormName, method: str) -> None:
    """Products of weights that overflow are refused; those that underflow give a tiny bound, not zero, and no endless search."""
    weights = [np.full((3, 2), 1.5), np.full((3, 3), -1.5), np.full((1, 3), 2.0)]
    options: dict[str, Any] = {"norm": norm, "methods": [method], "samples": 10}
    with pytest.raises(lipopt.LipoptError, match="no method takes this") as refused:
        lipopt.compare([1e120 * w for w in weights], **options)
    if "overflow" in str(refused.value):
        (result,) = lipopt.compare([1e-110 * w for w in weights], **options)
        assert 0 < result.upper < 1e-300
    else:
        assert (method, norm) in (("lipopt", "l2"), ("shor", "l1"))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("method", ["auto", "path-sum", "sdp", "product"])
@pytest.mark.parametrize(
    "exponents",
    [[-600, -600, 1000], [-200, -900, 500], [-300, -400, -400], [-537, -538, 100, 100]],
    ids=str,
)
def test_products_that_vanish_on_the_way_are_paid_for(
    norm: NormName, method: str, exponents: list[int]
) -> None:
    """Powers of two in diagonal matrices, whose products are exact unless they underflow; a later matrix makes them large."""
    builder = Builder()
    x = builder.input((1, 5))
    for exponent in exponents:
        x = builder.linear("diagonal", x, 2.0**exponent * np.eye(5), np.zeros(5))
    result = lipopt.bound(builder.network(x), norm=norm, output="all", method=method, samples=10)
    assert Fraction(result.upper) >= Fraction(2) ** sum(exponents)


def test_slopes_that_vanish_on_the_way_are_paid_for() -> None:
    builder = Builder()
    x = builder.linear("small", builder.input((1, 5)), 2.0**-900 * np.eye(5), np.zeros(5))
    x = builder.activation("slope", x, "leaky_relu", {"alpha": 2.0**-200})
    x = builder.linear("large", x, 2.0**900 * np.eye(5), np.zeros(5))
    at_a_point = lipopt.Ball(np.full(5, -1.0), 0.0)
    result = lipopt.bound(builder.network(x), domain=at_a_point, method="path-sum", samples=10)
    assert result.upper >= 2.0**-200


@pytest.mark.parametrize("norm", NORMS)
def test_a_kink_near_the_largest_floats_counts(norm: NormName) -> None:
    """x - clip(x, -1e305, inf) has slope 1 below -1e305."""
    builder = Builder()
    x = builder.input((1, 1))
    clipped = builder.activation("clip", x, "clip", {"low": -1e305})
    network = builder.network(builder.add("difference", [x, clipped], [1.0, -1.0]))
    assert lipopt.bound(network, norm=norm, samples=10).upper >= 1


def test_a_steep_ramp_is_not_taken_for_a_constant() -> None:
    """The rounding error of alpha x + beta is larger than 1 here: the ReLU that follows may be active."""
    builder = Builder()
    alpha = 1.7386346616200606e19
    x = builder.input((1, 1))
    x = builder.activation(
        "ramp", x, "hard_sigmoid", {"alpha": alpha, "beta": -5.795448872066868e18}
    )
    x = builder.linear("shift", x, np.eye(1), np.array([-0.5]))
    x = builder.linear(
        "scale", builder.activation("relu", x, "relu", {}), np.eye(1) / alpha, np.zeros(1)
    )
    around = lipopt.Box(0.33333333333333326, 0.3333333333333333)
    assert lipopt.bound(builder.network(x), domain=around, samples=10).upper >= 1 - 1e-15


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**6), st.booleans())
def test_spectral_norm(rows: int, columns: int, seed: int, sparse: bool) -> None:
    matrix = np.random.default_rng(seed).normal(size=(rows, columns))
    true = np.linalg.norm(matrix, 2)
    bound = spectral_norm_up(sp.csr_array(matrix) if sparse else matrix)
    assert true * (1 - 1e-14) <= bound <= true * (1 + 1e-8)


def test_positive_semidefinite_is_proved_or_not() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(20, 20))
    good = a @ a.T + 1e-3 * np.eye(20)
    assert is_positive_semidefinite(good)
    lowest = np.linalg.eigvalsh(good)[0]
    assert not is_positive_semidefinite(good - 1.001 * lowest * np.eye(20))
    assert not is_positive_semidefinite(good, error=1.1 * lowest)
    assert not is_positive_semidefinite(np.full((2, 2), np.nan))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "l3"}, "unknown norm 'l3'"),
        ({"output": 2}, "output 2 is out of range"),
        ({"output": -1}, "output -1 is out of range"),
        ({"output": "some"}, "a whole number or 'all', got 'some'"),
        ({"output": True}, "a whole number or 'all', got True"),
        ({"margin": (0, 0)}, "two different outputs"),
        ({"margin": (0, 5)}, "output 5 is out of range"),
        ({"margin": (0, 1), "output": 1}, "an output or for a margin"),
        ({"seed": "q"}, "the seed must be .* got 'q'"),
        ({"samples": 1.5}, "the number of samples must be .* got 1.5"),
        ({"time_limit": "a"}, "the time limit must be .* got 'a'"),
        ({"domain": "box"}, "the domain is a Ball, a Box, Boxes or None, got str"),
        ({"time_limit": 0}, "the time limit must be .* got 0"),
        ({"time_limit": -1.0}, "the time limit must be .* got -1.0"),
        ({"time_limit": float("nan")}, "the time limit must be .* got nan"),
        ({"samples": 0}, "the number of samples must be .* got 0"),
        ({"method": "nope"}, "unknown method 'nope'"),
        ({"method": "path-sum-3"}, "method 'path-sum' takes no number"),
        ({"method": 3}, "a method is a name or a settings object, got 3"),
    ],
)
def test_bad_questions(options: dict[str, Any], message: str) -> None:
    network = lipopt.load([np.ones((2, 2))])
    with pytest.raises(lipopt.LipoptError, match=message):
        lipopt.bound(network, **options)


def test_methods_are_found_by_name() -> None:
    assert find_method("path-sum").name == "path-sum"


def test_a_margin_is_a_difference() -> None:
    network = lipopt.load([np.array([[1.0, 2.0], [3.0, -1.0]])])
    assert lipopt.bound(network, margin=(0, 1), method="path-sum").upper == pytest.approx(5.0)
    assert lipopt.bound(network, output="all", method="path-sum").upper == pytest.approx(4.0)
    assert lipopt.bound(network, output="all", norm="l1", method="path-sum").upper == pytest.approx(
        4.0
    )
    assert lipopt.bound(network, output="all", norm="l2", method="product").upper == pytest.approx(
        np.linalg.norm([[1, 2], [3, -1]], 2)
    )


def test_results_do_not_depend_on_anything_but_the_seed() -> None:
    rng = np.random.default_rng(0)
    network = lipopt.load([rng.normal(size=(30, 5)), rng.normal(size=(1, 30))])
    first, second, other = (lipopt.lower_bound(network, seed=s, samples=300) for s in (1, 1, 2))
    assert (first.lower, first.pop_lower, first.point) == (
        second.lower,
        second.pop_lower,
        second.point,
    )
    assert first.point != other.point
    assert Norm.LINF.of_jacobians(np.ones((1, 5, 2))).tolist() == [5.0, 5.0]


def test_path_sums_of_a_maximum_count_every_entry_once() -> None:
    builder = Builder()
    network = builder.network(builder.maximum("max", builder.input((1, 4))))
    assert lipopt.api.bound(network, method="path-sum").upper == pytest.approx(4.0)
