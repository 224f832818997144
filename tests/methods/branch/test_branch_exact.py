"""Branch and bound against the exact constant: all linear regions of tiny networks, enumerated."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from lipcheck_files import file_of, verdict
from mixed_integer import local_constant
from networks import gaussian_weights, make_network
from regions import exact_constant, jacobian_at, jacobians_in, operator_norm
from strategies import Question, piecewise_linear_questions

import lipopt
from lipopt.methods.branch import Branch
from lipopt.model.network import Network
from lipopt.model.norms import NormName
from lipopt.numerics.arrays import Array
from lipopt.problem.proofs import Branching, NeuronSplit
from lipopt.result import Result

ROUNDING = 1e-9  # relative, of the oracle: it computes in floats
CLOSE = 1e-6  # relative, between both bounds and the constant where the search ends by itself
SAMPLES = 200
MOST_CELLS = 1000  # of the search in networks with some hundred linear regions at most


def rows_of(network: Network, output: int | Literal["all"]) -> Array:
    """The outputs that are asked about, as a matrix."""
    everything = np.eye(network.output_size)
    return everything if output == "all" else everything[[output]]


def exact(question: Question) -> float:
    network = question.network
    assert question.domain is not None
    lower, upper = question.domain.bounds(network.input_size)
    ball = question.domain.ball(network.input_size)
    rows = rows_of(network, question.output)
    return exact_constant(network, question.norm, rows, lower, upper, ball)


def ask(question: Question, branch: Branch, **options) -> Result:
    return lipopt.bound(
        question.network,
        norm=question.norm,
        output=question.output,
        domain=question.domain,
        method=branch,
        samples=SAMPLES,
        **options,
    )


def check(result: Result, constant: float) -> None:
    """Both bounds hold, now and at every moment before."""
    most = constant * (1 + ROUNDING)
    least = constant * (1 - ROUNDING)
    assert result.lower <= most
    assert least <= result.upper
    for _, lower, upper, _ in result.details["history"]:
        assert lower <= most
        assert least <= upper


def check_point(question: Question, result: Result) -> None:
    """The lower bound is the norm of the Jacobian at the point, which lies in the domain."""
    network = question.network
    assert question.domain is not None
    x = np.array(result.point)
    lower, upper = question.domain.bounds(network.input_size)
    assert (lower <= x).all()
    assert (x <= upper).all()
    ball = question.domain.ball(network.input_size)
    assert ball is None or ball.distances(x[:, None])[0] <= 1
    jacobian = rows_of(network, question.output) @ jacobian_at(network, x)
    attained = operator_norm(jacobian, question.norm)
    assert result.lower <= attained * (1 + ROUNDING)
    assert attained <= result.lower * (1 + 1e-7) + 1e-12


def small_question(sizes: tuple[int, ...], seed: int, radius: float) -> Question:
    """A ReLU network with one output in a ball: more regions than the networks above have."""
    network = lipopt.load(gaussian_weights(sizes, seed), biases=biases_of(sizes, seed))
    center = np.random.default_rng(seed + 2).standard_normal(sizes[0])
    return Question(network, "linf", 0, lipopt.Ball(center, radius), f"{sizes} {seed}")


def biases_of(sizes: tuple[int, ...], seed: int) -> list[Array]:
    rng = np.random.default_rng(seed + 1)
    return [0.5 * rng.standard_normal(n) for n in sizes[1:]]


# ---- the oracle


def test_the_oracle_knows_a_hat() -> None:
    """f(x, y) = |x - 1| - 2 relu(x) + y: gradients (-1, 1), (-3, 1) and (-1, 1) again."""
    hat = lipopt.load(
        [[[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [[1, 1, -2, 1, -1]]],
        biases=[[-1.0, 1.0, 0.0, 0.0, 0.0], [0.0]],
    )

    def constant(norm: str, left: float, right: float) -> float:
        return exact_constant(hat, norm, np.eye(1), np.array([left, -1.0]), np.array([right, 1.0]))

    assert constant("linf", -5, 5) == pytest.approx(4)
    assert constant("l1", -5, 5) == pytest.approx(3)
    assert constant("l2", -5, 5) == pytest.approx(np.sqrt(10))
    assert constant("linf", -5, 0) == pytest.approx(2)
    assert constant("linf", 1, 5) == pytest.approx(2)


@pytest.mark.parametrize("kind", ["relu", "leaky_relu", "abs", "clip"])
def test_jacobians_of_the_oracle_are_differences(kind: str) -> None:
    network = make_network("residual", kind, 3)
    rng = np.random.default_rng(4)
    step = 1e-6
    for _ in range(20):
        x = rng.normal(size=network.input_size)
        shifts = step * np.eye(network.input_size)
        differences = (network(x + shifts) - network(x - shifts)).T / (2 * step)
        assert np.allclose(jacobian_at(network, x), differences, atol=1e-6)


def test_every_sampled_jacobian_belongs_to_a_region() -> None:
    network = make_network("dense", "clip", 5)
    lower = np.full(network.input_size, -1.5)
    upper = np.full(network.input_size, 1.0)
    known = np.array(jacobians_in(network, lower, upper))
    rng = np.random.default_rng(6)
    for _ in range(200):
        jacobian = jacobian_at(network, rng.uniform(lower, upper))
        assert np.abs(known - jacobian).max(axis=(1, 2)).min() < 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_the_oracle_agrees_with_a_mixed_integer_program(seed: int) -> None:
    sizes = (3, 4, 4, 1)
    question = small_question(sizes, seed, 1.0)
    assert question.domain is not None
    found = local_constant(
        gaussian_weights(sizes, seed), biases_of(sizes, seed), *question.domain.bounds(3)
    )
    assert found.is_finished
    assert found.lower == pytest.approx(exact(question), rel=1e-5)
    assert found.upper == pytest.approx(exact(question), rel=1e-5)


# ---- branch and bound


def is_exact_on_regions(question: Question) -> bool:
    """Whether the bound of a cell is the norm itself where the network is linear: of several outputs
    in the l2 norm, it is a bound on the spectral norm."""
    return question.norm != "l2" or question.output != "all"


def ends_soon(question: Question) -> bool:
    """Whether the search ends after a few hundred cells: see test_a_kink_at_the_end_of_an_interval."""
    return not question.label.startswith("activations in a row")


@settings(max_examples=40)
@given(piecewise_linear_questions().filter(ends_soon))
def test_sandwich(question: Question) -> None:
    """sampled <= branch's lower <= exact <= branch's upper, and a gap of one percent at most."""
    sampled = lipopt.lower_bound(
        question.network,
        norm=question.norm,
        output=question.output,
        domain=question.domain,
        samples=SAMPLES,
    )
    result = ask(question, Branch(gap=0.01, cells=MOST_CELLS))
    constant = exact(question)
    check(result, constant)
    check_point(question, result)
    assert sampled.lower <= result.lower
    assert result.status == "complete"
    if is_exact_on_regions(question):
        attained = result.lower if question.is_box else constant
        assert result.upper <= attained * (1 + 0.01) + 1e-12


@settings(max_examples=25)
@given(piecewise_linear_questions().filter(is_exact_on_regions).filter(ends_soon))
def test_a_gap_of_zero_gives_the_constant(question: Question) -> None:
    result = ask(question, Branch(gap=0.0, cells=MOST_CELLS))
    constant = exact(question)
    check(result, constant)
    assert result.status == "complete"
    assert result.upper == pytest.approx(constant, rel=CLOSE, abs=1e-12)
    if question.is_box:  # slivers of linear regions at the edge of a ball may not be found
        assert result.lower == pytest.approx(constant, rel=CLOSE, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_a_round_ball_is_searched_to_the_end(norm: NormName, seed: int) -> None:
    sizes = (10, 20, 20, 1)
    weights = [matrix / np.sqrt(matrix.shape[1]) for matrix in gaussian_weights(sizes, seed)]
    center = np.random.default_rng(seed).standard_normal(sizes[0])
    ball = lipopt.Ball(center, 0.3, norm=norm)
    result = lipopt.bound(weights, norm=norm, domain=ball, method="branch")
    assert result.status == "complete"
    assert result.upper <= result.lower * 1.01


def test_a_kink_at_the_end_of_an_interval() -> None:
    """abs(abs(y)): the outer one has its kink at 0, where its interval ends but for a rounding error.

    A network with 32 linear regions is then divided into thousands of cells."""
    network = make_network("activations in a row", "abs", 416)
    center = np.random.default_rng(417).normal(size=3)
    question = Question(network, "l1", "all", lipopt.Ball(center, 2.0), "abs in a row")
    assert ask(question, Branch(gap=0.01, cells=200)).status == "complete"


@settings(max_examples=15)
@given(piecewise_linear_questions())
def test_bounds_hold_wherever_the_search_ends(question: Question) -> None:
    constant = exact(question)
    for cells in (1, 2, 4, 8, 16, 32):
        result = ask(question, Branch(gap=0.0, cells=cells))
        check(result, constant)
        assert result.status in ("complete", "cell limit")


@pytest.fixture(scope="module")
def long_question() -> tuple[Question, float]:
    """A question that takes a few hundred cells, and its answer."""
    question = small_question((3, 7, 7, 1), 0, 3.0)
    return question, exact(question)


def test_results_do_not_depend_on_the_number_of_processes(
    long_question: tuple[Question, float],
) -> None:
    question, constant = long_question
    alone = ask(question, Branch(gap=0.0))
    together = ask(question, Branch(gap=0.0), jobs=2)
    check(together, constant)
    assert alone.details["cells"] > 20
    for name in ("lower", "upper", "point", "status"):
        assert getattr(alone, name) == getattr(together, name)
    for name in ("cells", "empty", "neurons"):
        assert alone.details[name] == together.details[name]


def interrupt_after(rounds: int) -> Callable[..., None]:
    """Progress that presses Ctrl-C once, when bounds have been shown so many times."""
    shown = 0

    def progress(message: str, fraction: float | None = None) -> None:
        nonlocal shown
        shown += "<= L <=" in message
        if "<= L <=" in message and shown == rounds:
            signal.raise_signal(signal.SIGINT)

    return progress


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupted_search_returns_what_it_has(
    long_question: tuple[Question, float], jobs: int
) -> None:
    question, constant = long_question
    before = signal.getsignal(signal.SIGINT)
    result = ask(question, Branch(gap=0.0), jobs=jobs, progress=interrupt_after(4))
    assert result.status == "interrupted"
    assert signal.getsignal(signal.SIGINT) is before
    check(result, constant)
    check_point(question, result)


@pytest.mark.parametrize("seconds", [1e-6, 0.05])
def test_a_search_that_is_out_of_time_returns_what_it_has(
    long_question: tuple[Question, float], seconds: float
) -> None:
    question, constant = long_question
    result = ask(question, Branch(gap=0.0), time_limit=seconds)
    assert result.status == "time limit"
    check(result, constant)
    check_point(question, result)


def test_auto_goes_on_to_the_constant(long_question: tuple[Question, float]) -> None:
    question, constant = long_question
    result = lipopt.bound(question.network, domain=question.domain, method="auto", gap=0.0)
    assert result.details["chosen"] == "branch"
    assert result.lower == pytest.approx(constant, rel=CLOSE)
    assert result.upper == pytest.approx(constant, rel=CLOSE)


@pytest.mark.parametrize("cells", [1, 20])
def test_branch_is_never_behind_the_sdp_of_the_whole_domain(cells: int) -> None:
    """Interval arithmetic is many times above it here; the certificate has the better proof, too."""
    sizes = (15, 40, 40, 1)
    network = lipopt.load(gaussian_weights(sizes, seed=1), biases=biases_of(sizes, 1))
    ball = lipopt.Ball(np.zeros(15), 1.0)
    whole = lipopt.bound(network, domain=ball, method="sdp", samples=50)
    paths = lipopt.bound(network, domain=ball, method="path-sum", samples=50)
    assert paths.upper > 4 * whole.upper
    found = lipopt.bound(network, domain=ball, method=Branch(cells=cells), samples=50, certify=True)
    assert found.upper <= whole.upper * 1.01
    assert found.certificate is not None
    code, claim = verdict(file_of(network), found.certificate.text.encode())
    assert code == 0
    assert claim is not None
    assert claim.bound == found.upper


def test_children_that_prove_less_are_left_out() -> None:
    none = np.empty(0, int)
    root = Branching((), none, bound=2.0)
    better = Branching((), none, bound=1.5)
    worse = Branching((), none, bound=3.0)
    root.divide(NeuronSplit(0, 0.0), [better, worse])
    worse.divide(
        NeuronSplit(1, 0.0), [Branching((), none, bound=1.0), Branching((), none, bound=4.0)]
    )
    assert root.pruned().bound == 2.0
    assert not root.pruned().children
    worse.children[1].divide(None, [Branching((), none, bound=0.5)])
    kept = root.pruned()
    assert kept.bound == 1.5
    assert [child.bound for child in kept.children] == [1.5, 1.0]
    assert root.children[1].bound == 3.0  # the search goes on with the tree as it was
