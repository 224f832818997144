"""The SDP with signs and triangle inequalities: optimum <= bound <= SDP, proofs that prove, certificates."""

import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from lipcheck_files import verdict
from networks import gaussian_weights, problem_of, random_problem

import lipopt
import lipopt.examples
from lipcheck.exact import Matrix
from lipcheck.problem import Problem
from lipcheck.signs import PATTERNS, Equations, SignTriangle, sign_matrix
from lipopt.lower.pop import enumerate_pop
from lipopt.methods.sdp.alternatives import AlternativeWeights
from lipopt.methods.sdp.cuts import Cuts, can_cut
from lipopt.methods.sdp.sign_dual import dual_matrix, is_proved
from lipopt.methods.sdp.sign_network import SignNetwork, Weights
from lipopt.methods.sdp.signs import SignForm
from lipopt.methods.sdp.triangles import MIN_VIOLATION, PairProducts, violated_triangles
from lipopt.model.norms import NormName
from lipopt.numerics.arrays import Array
from lipopt.problem.derivative import DerivativeProblem
from lipopt.problem.proofs import Alternatives, SignMultipliers, Triangles
from lipopt.problem.task import Task, UpperBound


def both(problem: DerivativeProblem) -> tuple[UpperBound, UpperBound]:
    """The SDP's bound, and that with cuts."""
    task = Task(problem, problem)
    plain = lipopt.SDP()(task)
    return plain, Cuts(stages=1)(task)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("slopes", ["relu", "signed", "leaky"])
@pytest.mark.parametrize("skips", [False, True])
def test_no_bound_is_below_the_optimum(norm: NormName, slopes: str, skips: bool) -> None:
    problem = random_problem(3, norm=norm, slopes=slopes, skips=skips)
    optimum = enumerate_pop(problem)
    plain, cut = both(problem)
    assert optimum <= min(cut.value, plain.value)
    assert cut.pop_lower is not None
    assert cut.pop_lower <= optimum * (1 + 1e-9)


def test_most_of_the_gap_is_closed() -> None:
    problem = problem_of(gaussian_weights((8, 8, 8, 1), seed=0))
    optimum = enumerate_pop(problem)
    plain, cut = both(problem)
    assert plain.value > 1.05 * optimum
    assert optimum <= cut.value < optimum + 0.25 * (plain.value - optimum)


def multipliers(form: SignForm, rng: np.random.Generator) -> SignMultipliers:
    """Any numbers."""
    inner = len(form.inner)
    inputs = form.inputs if form.norm.bounds_each_input else 1
    places = np.array([[0, 1, 2], [1, 2, form.signs - 1], [0, 1, 3]])
    signs = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    return SignMultipliers(
        mu=float(rng.normal()),
        eta=rng.normal(size=form.neurons),
        delta=rng.normal(size=inputs),
        tau=rng.normal(size=inner),
        alpha=rng.normal(size=inner),
        beta=rng.normal(size=inner),
        triangles=Triangles(places, signs, rng.random(3)),
        alternatives=Alternatives((), ()),
    )


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_whatever_the_multipliers_the_form_bounds_the_objective(norm: NormName) -> None:
    """At all vertices, v.S v is at most what the multipliers add up to, minus the objective."""
    problem = random_problem(1, norm=norm, slopes="signed", skips=True, widest=3)
    form = SignForm.of(problem)
    rng = np.random.default_rng(0)
    m = multipliers(form, rng)
    S = dual_matrix(form, m)
    for bits in product((0, 1), repeat=form.neurons + form.inputs + 1):
        choice = 2.0 * np.array(bits) - 1
        w = choice[0]
        e = choice[1 : 1 + form.neurons]
        t = choice[1 + form.neurons :]
        if norm == "l2":
            t = t / np.linalg.norm(t)
        slopes = []
        for layer, signs in zip(problem.layers, _by_layer(problem, w * e), strict=True):
            slopes.append((layer.middle + layer.half * signs)[:, None])
        x, _ = problem.forward(t[:, None], slopes)
        value = 0.0
        for source, matrix in problem.objective.items():
            value += float((matrix @ x[source])[0, 0])
        read = {source for layer in problem.layers for source in layer.blocks}
        inner = [x[source][:, 0] for source in range(1, len(x)) if source in read]
        v = np.concatenate([[w], e, t, *inner])
        assert v @ S @ v <= m.bound - w * value + 1e-9


def _by_layer(problem: DerivativeProblem, values: Array) -> list[Array]:
    return np.split(values, np.cumsum(problem.sizes[1:])[:-1])


def test_errors_are_relative_to_sums_of_absolute_values() -> None:
    """Two triangles that cancel each other in an entry do not in the bound on its rounding error."""
    places = np.array([[0, 1, 2], [0, 1, 3]])
    opposite = Triangles(places, np.array([[1.0, 1.0], [-1.0, 1.0]]), np.array([0.5, 0.5]))
    assert opposite.matrix(4, opposite.weights)[0, 1] == 0
    assert opposite.matrix(4, opposite.weights, absolute=True)[0, 1] == 1


def test_the_checker_has_the_same_matrix() -> None:
    """That of the specification, written twice."""
    problem = random_problem(1, slopes="signed", skips=True, widest=3)
    form = SignForm.of(problem)
    m = multipliers(form, np.random.default_rng(0))
    n = problem.inputs
    x = n + np.arange(form.neurons)
    kept = np.concatenate([np.arange(n), x[form.inner]])
    A = np.zeros((n + form.neurons, n + form.neurons))
    A[n:, kept] = form.A
    C = np.zeros((1, n + form.neurons))
    C[0, kept] = form.C
    C[0, n:] += form.last
    slopes = [(Fraction(0), Fraction(0))] * n
    for layer in problem.layers:
        slopes += zip(fractions(layer.lower), fractions(layer.upper), strict=True)
    exact = Problem(n, exact_matrix(A), slopes, exact_matrix(C))
    equations = Equations(form.inner.tolist(), *map(fractions, (m.tau, m.alpha, m.beta)))
    triangles = []
    for places, (a, b), weight in zip(
        m.triangles.places, m.triangles.signs, m.triangles.weights, strict=True
    ):
        pattern = PATTERNS.index((int(a), int(b)))
        i, j, k = map(int, places)
        triangles.append(SignTriangle((i, j, k), pattern, Fraction(weight)))
    squares = fractions([m.mu, *m.eta, *m.delta])
    S = sign_matrix(exact, squares, equations, triangles, [])
    found = np.zeros((form.order, form.order))
    for i, row in enumerate(S.rows):
        for j, value in row.items():
            found[i, j] = float(value * Fraction(2) ** S.exponent)
    np.testing.assert_allclose(found, dual_matrix(form, m), rtol=1e-12, atol=1e-12)


def exact_matrix(values: Array) -> Matrix:
    return Matrix.of([dict(enumerate(fractions(row))) for row in values], values.shape[1])


def fractions(values: Iterable[float]) -> list[Fraction]:
    return [Fraction(float(value)) for value in values]


def test_numbers_that_prove_nothing_are_not_proved() -> None:
    problem = problem_of(gaussian_weights((4, 5, 4, 1), seed=1))
    _, cut = both(problem)
    proof = cut.proof
    assert isinstance(proof, SignMultipliers)
    form = SignForm.of(problem)
    assert is_proved(form, proof)
    optimum = enumerate_pop(problem)
    less = proof.bound - optimum * (1 - 1e-6)
    assert not is_proved(form, replace(proof, mu=proof.mu - less))
    assert not is_proved(form, replace(proof, tau=0 * proof.tau))
    assert not is_proved(form, replace(proof, mu=np.nan))
    negated = replace(proof.triangles, weights=-proof.triangles.weights)
    huge = replace(proof, triangles=negated, mu=1e3, eta=proof.eta + 1e3, delta=proof.delta + 1e3)
    assert not is_proved(form, huge)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("rho", [0.0, 0.3])
def test_gradients(norm: NormName, rho: float) -> None:
    problem = random_problem(0, norm=norm, slopes="signed", skips=True)
    form = SignForm.of(problem)
    network = SignNetwork(form, 4, 2.0)
    rng = np.random.default_rng(0)
    x = network.start(rng)
    triangles = violated_triangles(network.units(network.point(x)), 20, rng)
    triangles = replace(triangles, weights=rng.random(triangles.count))
    inner = len(form.inner)
    a, b, c, d = rng.random((4, inner))
    weights = Weights(a, b, c, d, triangles, rho, AlternativeWeights.none(form.forms))
    direction = rng.normal(size=len(x))
    step = 1e-6 * direction
    ahead = network.loss(x + step, weights)[0]
    behind = network.loss(x - step, weights)[0]
    _, gradient = network.loss(x, weights)
    assert (ahead - behind) / 2e-6 == pytest.approx(gradient @ direction, rel=1e-5)


def test_more_coordinates_change_nothing() -> None:
    form = SignForm.of(random_problem(0, slopes="signed", skips=True))
    network = SignNetwork(form, 4, 2.0)
    x = network.start(np.random.default_rng(0))
    wide, same = network.widened(x, 7)
    assert wide.rank == 7
    assert wide.value(wide.point(same)) == pytest.approx(network.value(network.point(x)))


def unit_vectors(count: int) -> Array:
    units = np.random.default_rng(0).normal(size=(count, 3))
    return np.asarray(units / np.linalg.norm(units, axis=1, keepdims=True))


def every_triangle(count: int) -> Triangles:
    """All inequalities among so many signs, with any multipliers."""
    places = []
    signs = []
    for three in combinations(range(count), 3):
        for pattern in product((1.0, -1.0), repeat=2):
            places.append(three)
            signs.append(pattern)
    weights = np.random.default_rng(1).random(len(places))
    return Triangles(np.array(places), np.array(signs), weights)


def sums(triangles: Triangles, units: Array) -> Array:
    """1 + q of each, from the definition."""
    first, second, third = (units[triangles.places[:, k]] for k in range(3))
    a, b = triangles.signs.T
    q = a * (first * second).sum(1) + b * (first * third).sum(1)
    return np.asarray(1 + q + a * b * (second * third).sum(1))


def test_the_most_violated_triangles_are_found() -> None:
    units = unit_vectors(9)
    found = violated_triangles(units, 1000, np.random.default_rng(0))
    amounts = sums(found, units)
    every = every_triangle(9)
    worst = sums(every, units)
    assert amounts[0] == pytest.approx(worst.min())
    assert (amounts < 0).all()
    assert (np.diff(amounts) >= 0).all()
    assert len(np.unique(found.places, axis=0)) == found.count
    # Every pair that is in a violated triangle as its largest product is in one that was found.
    gram = np.abs(units @ units.T)
    pairs = {pair for three in found.places.tolist() for pair in combinations(three, 2)}
    for three, amount in zip(every.places.tolist(), worst, strict=True):
        if amount < -MIN_VIOLATION:
            largest = max(combinations(three, 2), key=lambda pair: gram[pair])
            assert largest in pairs
    assert violated_triangles(units, 3, np.random.default_rng(0)).count == 3


def test_some_pairs_are_looked_at_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    units = unit_vectors(30)
    every = violated_triangles(units, 1000, np.random.default_rng(0))
    monkeypatch.setattr("lipopt.methods.sdp.triangles.MAX_WORK", 30 * 20)
    some = violated_triangles(units, 1000, np.random.default_rng(0))
    assert 0 < some.count <= 20 < every.count
    assert (sums(some, units) < 0).all()


def test_products_of_pairs_say_what_triangles_are() -> None:
    units = unit_vectors(7)
    triangles = every_triangle(7)
    products = PairProducts(triangles, 7)
    np.testing.assert_allclose(products.sums(units), sums(triangles, units))
    gradient = triangles.matrix(7, triangles.weights) @ units
    np.testing.assert_allclose(products.gradient(units, triangles.weights), gradient)


def test_what_cuts_are_not_for_is_refused() -> None:
    weights = gaussian_weights((3, 4, 2), seed=0)
    method = lipopt.SDP(cuts=True)
    with pytest.raises(lipopt.LipoptError, match="cuts are for one output"):
        lipopt.bound(weights, norm="l1", method=method)
    with pytest.raises(lipopt.LipoptError, match="cuts are for one output"):
        lipopt.bound(weights, norm="l2", output="all", method=method)
    assert not can_cut(random_problem(0, norm="l1"))


@pytest.mark.parametrize(
    ("norm", "kind", "radius"),
    [("linf", "relu", None), ("l2", "leaky_relu", None), ("linf", "tanh", 2.0)],
)
def test_certificates(norm: NormName, kind: str, radius: float | None, tmp_path: Path) -> None:
    network = lipopt.load(gaussian_weights((4, 5, 4, 1), seed=0), activation=kind)
    domain = None if radius is None else lipopt.Ball(np.zeros(4), radius)
    method = lipopt.SDP(cuts=True)
    result = lipopt.bound(
        network, norm=norm, domain=domain, method=method, certify=True, time_limit=3.0
    )
    assert result.certificate is not None
    text = result.certificate.text
    assert "rule signs" in text
    network.save(tmp_path / "n.safetensors")
    data = (tmp_path / "n.safetensors").read_bytes()
    assert verdict(data, text.encode())[0] == 0
    without = re.sub("\nmu .*\n", "\nmu 0 0\n", text)
    assert verdict(data, without.encode())[0] == 1


def test_auto_uses_cuts_over_the_whole_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipopt.methods.auto.FIRST_WORK", 0.0)  # no LP
    weights = gaussian_weights((8, 8, 8, 1), seed=0)
    plain = lipopt.bound(weights, method="sdp")
    auto = lipopt.bound(weights, gap=0.02)
    assert auto.details["chosen"] == "cuts"
    assert auto.upper < plain.upper * 0.98


def test_auto_leaves_cuts_out_without_time_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: Cuts, task: Task) -> UpperBound:
        raise AssertionError("cuts were tried")

    monkeypatch.setattr(Cuts, "__call__", never)
    lipopt.bound(lipopt.examples.example("dense"), output=8, time_limit=5.0, samples=10)
