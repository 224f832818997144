"""Alternatives of maxima: forms one of which is 0, and multipliers of their products."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from lipcheck_files import verdict

import lipopt
from lipcheck.alternatives import is_semidefinite, is_tree
from lipopt.lower.pop import enumerate_pop
from lipopt.methods.sdp.alternatives import AlternativeWeights, is_in_cone, moved_into_cone
from lipopt.methods.sdp.cuts import Cuts
from lipopt.methods.sdp.sign_dual import is_proved
from lipopt.methods.sdp.sign_network import SignNetwork, Weights
from lipopt.methods.sdp.signs import SignForm
from lipopt.model.network import Network
from lipopt.model.norms import NormName
from lipopt.numerics.arrays import Array
from lipopt.problem.derivative import DerivativeProblem
from lipopt.problem.proofs import Path as SlopePath
from lipopt.problem.proofs import SignMultipliers, Triangles
from lipopt.problem.question import Question, pose
from lipopt.problem.task import Task
from lipopt.readers.builder import Builder


def pooled(seed: int, count: int = 3, relu: str = "first") -> Network:
    """Maxima of two groups of numbers, two neurons that read them, and the sum of these.

    ReLUs are taken of the numbers first, or of the maxima last, or not at all."""
    rng = np.random.default_rng(seed)
    builder = Builder()
    x = builder.input((2,), batch=False)
    y = builder.linear("first", x, rng.normal(size=(2 * count, 2)), None)
    if relu == "first":
        y = builder.activation("relu", y, "relu")
    y = builder.maximum("max", y.moved(lambda index: index.reshape(2, count)))
    if relu == "last":
        y = builder.activation("relu", y, "relu")
    y = builder.linear("second", y, rng.normal(size=(2, 2)), None)
    y = builder.activation("end", y, "relu")
    return builder.network(builder.linear("sum", y, rng.normal(size=(1, 2)), None))


def pooled_problem(
    seed: int, count: int = 3, relu: str = "first", norm: NormName = "linf"
) -> DerivativeProblem:
    network = pooled(seed, count, relu)
    return pose(network, Question.about(network, norm=norm)).problem


def multipliers(size: int, rng: np.random.Generator) -> Array:
    """Any that are in the cone."""
    N = rng.normal(size=(size, size))
    return moved_into_cone(N + N.T)


@pytest.mark.parametrize("relu", ["first", "last", "none"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_one_form_is_zero_wherever_slopes_are_ends(count: int, relu: str) -> None:
    problem = pooled_problem(0, count, relu)
    form = SignForm.of(problem)
    sizes = form.forms.sizes
    # Every number is an alternative, and so is 0 where a ReLU is taken.
    expected = 0 if (count, relu) == (2, "none") else 2  # a single comparison has its tau
    assert sizes == [count + (relu != "none")] * expected
    rng = np.random.default_rng(0)
    for _ in range(50):
        ends = 2.0 * rng.integers(0, 2, form.neurons) - 1
        x = np.zeros(len(form.C))
        x[: form.inputs] = rng.normal(size=form.inputs)
        slopes = form.middle + ends * form.half
        for layer in form.layers:
            if layer.is_inner:
                x[layer.variables] = slopes[layer.neurons] * (form.A[layer.neurons] @ x)
        vectors = form.forms.vectors(x[:, None])[..., 0]
        for d, size in zip(vectors, sizes, strict=True):
            assert np.abs(d[:size]).min() < 1e-12
            assert d[:size] @ multipliers(size, rng) @ d[:size] >= -1e-9


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("relu", ["first", "last", "none"])
def test_no_bound_is_below_the_optimum(relu: str, norm: NormName) -> None:
    problem = pooled_problem(1, 3, relu, norm)
    optimum = enumerate_pop(problem)
    found = Cuts(stages=1)(Task(problem, problem))
    assert found.value >= optimum
    assert found.pop_lower is not None
    assert found.pop_lower <= optimum * (1 + 1e-9)


def test_they_close_what_triangles_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = pooled_problem(2)
    optimum = enumerate_pop(problem)
    task = Task(problem, problem)
    with_alternatives = Cuts()(task).value
    monkeypatch.setattr("lipopt.methods.sdp.signs.find_trees", lambda neurons: ())
    without = Cuts()(task).value
    assert without > 1.05 * optimum
    assert optimum <= with_alternatives < optimum + 0.5 * (without - optimum)


def test_a_deep_tree_goes_on_in_others() -> None:
    """A maximum of 64 numbers is taken in six rounds, and a path has five neurons at most."""
    rng = np.random.default_rng(0)
    builder = Builder()
    y = builder.linear("first", builder.input((2,), batch=False), rng.normal(size=(64, 2)), None)
    network = builder.network(builder.maximum("max", y))
    form = SignForm.of(pose(network, Question.about(network)).problem)
    # The last round is one: 32 leaves below it; the first round of each has a tree with nothing below.
    assert form.forms.sizes == [32]


@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_gradients(penalty: float) -> None:
    form = SignForm.of(pooled_problem(0))
    network = SignNetwork(form, 4, 2.0)
    rng = np.random.default_rng(0)
    inner = len(form.inner)
    N = np.array([multipliers(size, rng) for size in form.forms.sizes])
    alternatives = AlternativeWeights(rng.random(2), np.full(2, penalty), N)
    a, b, c, d = rng.random((4, inner))
    weights = Weights(a, b, c, d, Triangles.none(), 0.3, alternatives)
    x = network.start(rng)
    direction = rng.normal(size=len(x))
    step = 1e-6 * direction
    ahead = network.loss(x + step, weights)[0]
    behind = network.loss(x - step, weights)[0]
    _, gradient = network.loss(x, weights)
    assert (ahead - behind) / 2e-6 == pytest.approx(gradient @ direction, rel=1e-5)


def test_multipliers_outside_their_cone_prove_nothing() -> None:
    problem = pooled_problem(2)
    proof = Cuts(stages=1)(Task(problem, problem)).proof
    assert isinstance(proof, SignMultipliers)
    form = SignForm.of(problem)
    assert is_proved(form, proof)
    better = tuple(-np.eye(len(N)) for N in proof.alternatives.weights)
    assert not any(is_in_cone(N) for N in better)
    assert not is_proved(
        form, replace(proof, alternatives=replace(proof.alternatives, weights=better))
    )


@pytest.mark.parametrize("seed", range(20))
def test_both_programs_know_the_cone(seed: int) -> None:
    """What is moved into the cone passes in exact arithmetic, and what is far outside does not."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 6))
    N = rng.normal(size=(size, size))
    N = N @ N.T - float(rng.random()) * np.eye(size)
    parts = [np.delete(np.delete(N, i, 0), i, 1) for i in range(size)]
    least = min(float(np.linalg.eigvalsh(part)[0]) for part in parts)
    for matrix, inside in ((moved_into_cone(N), True), (N - (least + 0.01) * np.eye(size), False)):
        assert is_in_cone(matrix) == inside
        exact = []
        for i in range(size):
            part = np.delete(np.delete(matrix, i, 0), i, 1)
            exact.append(is_semidefinite([[Fraction(v) for v in row] for row in part]))
        assert all(exact) == inside


def test_semidefinite_matrices_with_zeros() -> None:
    zero = Fraction(0)
    one = Fraction(1)
    assert is_semidefinite([[one, one], [one, one]])
    assert is_semidefinite([[zero, zero], [zero, one]])
    assert not is_semidefinite([[zero, one], [one, one]])
    assert not is_semidefinite([[-one]])


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([((0, 1),), ((0, -1),)], True),
        ([((0, 1), (1, 1)), ((0, 1), (1, -1)), ((0, -1),)], True),
        ([((0, 1),)], False),
        ([((0, 1), (1, 1)), ((0, -1),)], False),
        ([((0, 1),), ((1, -1),)], False),
        ([((0, 1),), ((0, 1),), ((0, -1),)], False),
        ([()], True),
        ([], False),
    ],
)
def test_trees(paths: list[SlopePath], expected: bool) -> None:
    assert is_tree(paths) == expected


@pytest.mark.parametrize("relu", ["first", "last"])
def test_certificates(relu: str, tmp_path: Path) -> None:
    network = pooled(2, relu=relu)
    result = lipopt.bound(network, method=Cuts(stages=1), certify=True)
    assert result.certificate is not None
    text = result.certificate.text
    assert "alternatives 2" in text
    network.save(tmp_path / "n.safetensors")
    data = (tmp_path / "n.safetensors").read_bytes()
    assert verdict(data, text.encode())[0] == 0
    for line, other in product(text.splitlines(), ("leaf", "multipliers")):
        if line.startswith(other):
            changed = text.replace(line, line.replace(" 1", " -1", 1), 1)
            if changed != text:
                assert verdict(data, changed.encode())[0] != 0
