"""LiPopt-k: sound whatever the solver does, exact where the theory says so, and the published figures."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from networks import problem_of, random_network, tiny_problem

import lipopt
from lipopt.errors import LipoptError
from lipopt.lower.pop import enumerate_pop
from lipopt.methods.baselines import path_sum_bound
from lipopt.methods.lp import tightening
from lipopt.methods.lp.krivine import Family, certified_bound
from lipopt.methods.lp.method import LiPopt
from lipopt.methods.lp.polynomial import Polynomial, norm_gradient, sources
from lipopt.methods.lp.sparsity import all_sets, cliques, maximal_sets, pad
from lipopt.methods.registry import find_method
from lipopt.model.norms import Norm
from lipopt.problem.proofs import KrivineTerms, PathSums
from lipopt.problem.task import Budget, Task
from lipopt.solvers import consensus, highs

SEEDS = st.integers(0, 2**32 - 1)


def run(problem, method, pop_lower=0.0, **limits):
    return method(Task(problem, problem, Budget(**limits), pop_lower=pop_lower))


def value(problem, degree=None, pattern="input", **settings):
    return run(problem, LiPopt(degree, pattern, **settings)).value


def depth(problem):
    return max(1, norm_gradient(problem).degree)


def free_variables(problem):
    used = norm_gradient(problem).monomials
    return len(np.unique(used[used >= 0]))


def everything(problem, degree, pattern):
    """The LP over all sets of a pattern, built at once and solved by HiGHS's simplex method: the optimum."""
    polynomial = norm_gradient(problem)
    sets = np.concatenate(
        [all_sets(cliques(sources(problem), pattern), degree), pad(polynomial.monomials, degree)]
    )
    family = Family.of(maximal_sets(sets, polynomial.variables), polynomial.variables)
    matrix, p = family.matrix(), family.coefficients(polynomial)
    _, c, optimal = highs.solve(
        matrix[:, 1:], -matrix[:, [0]].toarray().ravel(), p[1:], solver="simplex"
    )
    assert optimal
    return certified_bound(family, polynomial, c.reshape(family.index.shape))


def exact_value(problem, products, polynomial):
    """q_0 + sum of max(q_m, 0) in rational arithmetic, from the certificate as it is exported."""
    q = {
        frozenset(m[m >= 0].tolist()): Fraction(v)
        for m, v in zip(polynomial.monomials, polynomial.coefficients, strict=True)
    }
    for members, row in zip(products.sets.tolist(), products.multipliers, strict=True):
        for v, multiplier in enumerate(row):
            if multiplier == 0:
                continue
            terms: dict[frozenset[int], Fraction] = {frozenset(): Fraction(multiplier)}
            for b, variable in enumerate(members):
                if variable < 0:
                    assert not v >> b & 1
                    continue
                longer = {m | {variable}: c if v >> b & 1 else -c for m, c in terms.items()}
                terms = longer if v >> b & 1 else terms | longer
            for m, c in terms.items():
                q[m] = q.get(m, Fraction(0)) + c
    return q.pop(frozenset(), Fraction(0)) + sum(max(c, Fraction(0)) for c in q.values())


@given(SEEDS)
@settings(max_examples=120, deadline=None)
def test_bounds_are_sound_and_decrease_to_the_optimum(seed):
    problem = tiny_problem(seed)
    exact = enumerate_pop(problem)
    lowest, most = depth(problem), free_variables(problem)
    assume(most <= 8)
    previous = path_sum_bound(problem)
    for degree in range(lowest, max(lowest, most) + 1):
        bound = value(problem, degree, "full")
        assert exact <= bound <= previous * (1 + 1e-6) + 1e-12
        previous = bound
    assert previous == pytest.approx(exact, rel=1e-6, abs=1e-9)


@given(SEEDS, st.sampled_from(["paths", "output", "input", "chordal"]))
@settings(max_examples=100, deadline=None)
def test_every_pattern_is_sound_and_chordal_is_exact_at_its_largest_clique(seed, pattern):
    problem = tiny_problem(seed)
    exact = enumerate_pop(problem)
    largest = int(np.diff(cliques(sources(problem), pattern).indptr).max(initial=0))
    for degree in range(depth(problem), depth(problem) + 2):
        assert value(problem, degree, pattern) >= exact
    if pattern == "chordal":
        assert value(problem, max(largest, depth(problem)), pattern) == pytest.approx(
            exact, rel=1e-6, abs=1e-9
        )


@given(SEEDS, st.sampled_from(["paths", "output", "input", "chordal", "full"]), st.integers(0, 1))
@settings(max_examples=60, deadline=None)
def test_tightening_reaches_the_bound_of_all_sets(seed, pattern, more):
    problem = tiny_problem(seed)
    if not norm_gradient(problem).degree:
        return
    degree = depth(problem) + more
    assert value(problem, degree, pattern) == pytest.approx(
        everything(problem, degree, pattern), rel=1e-5, abs=1e-9
    )


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_certificate_proves_the_bound_in_exact_arithmetic(seed):
    problem = tiny_problem(seed)
    polynomial = norm_gradient(problem)
    found = run(problem, LiPopt(depth(problem) + 1))
    if isinstance(found.proof, PathSums):
        return
    assert isinstance(found.proof, KrivineTerms)
    assert (found.proof.multipliers >= 0).all()
    exact = exact_value(problem, found.proof, polynomial)
    assert exact <= Fraction(found.value) <= exact + Fraction(1e-9) * (1 + abs(exact))


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_any_multipliers_give_a_bound(seed):
    problem = tiny_problem(seed)
    polynomial = norm_gradient(problem)
    rng = np.random.default_rng(seed)
    family = Family.of(
        maximal_sets(polynomial.monomials, polynomial.variables), polynomial.variables
    )
    multipliers = np.where(
        family.index < 0, 0.0, rng.exponential(10.0 ** rng.integers(-20, 5), family.index.shape)
    )
    bound = certified_bound(family, polynomial, multipliers)
    assert bound >= enumerate_pop(problem)
    assert Fraction(bound) >= exact_value(
        problem, KrivineTerms(family.sets, multipliers.T), polynomial
    )


def test_multipliers_that_are_no_proof_are_refused():
    polynomial = Polynomial(1, np.array([[0]]), np.array([1.0]), 0.0)
    family = Family.of(np.array([[0]]), 1)
    for bad in (-1e-30, np.nan, np.inf):
        with pytest.raises(LipoptError, match=">= 0"):
            certified_bound(family, polynomial, np.array([[bad], [0.0]]))
    assert certified_bound(family, polynomial, np.array([[1e308], [0.0]])) >= 1e308


def test_a_monomial_outside_all_sets_is_refused():
    polynomial = Polynomial(2, np.array([[0, 1]]), np.array([1.0]), 0.0)
    with pytest.raises(LipoptError, match="no set"):
        certified_bound(Family.of(np.array([[-1, 0], [-1, 1]]), 2), polynomial, np.zeros((4, 2)))


@given(SEEDS, st.sampled_from([1, 2]))
@settings(max_examples=60, deadline=None)
def test_l1_norm_of_one_and_several_outputs(seed, outputs):
    problem = tiny_problem(seed, "l1", outputs)
    exact = enumerate_pop(problem)
    found = run(problem, LiPopt())
    assert exact <= found.value
    if outputs == 1 and problem.objective:
        cube = replace(problem, norm=Norm.LINF)
        most = max(depth(cube), free_variables(cube))
        assert value(problem, most, "full") == pytest.approx(exact, rel=1e-6, abs=1e-9)


def test_l1_leaves_out_inputs_that_cannot_matter():
    weights = random_network([20, 6, 1], 3)
    weights[0][:, 5] *= 50
    found = run(problem_of(weights, "l1"), LiPopt(2))
    assert list(found.proof.proofs) == [5]


def test_a_lower_bound_that_is_met_ends_the_work():
    problem = problem_of(random_network([8, 5, 1], 3))
    optimum = enumerate_pop(problem)
    assert run(problem, LiPopt(), pop_lower=optimum).value == pytest.approx(optimum, rel=2e-5)
    early = run(problem, LiPopt(), pop_lower=path_sum_bound(problem))
    assert early.status == "complete"
    assert early.value >= optimum


@pytest.mark.parametrize("solver", ["consensus", *highs.SOLVERS])
@pytest.mark.parametrize("pattern", ["paths", "input"])
def test_all_solvers_agree(solver, pattern):
    if solver == "hipo":
        pytest.importorskip("highspy_extras")
    problem = problem_of(random_network([6, 5, 4, 1], 3))
    assert value(problem, 3, pattern, solver=solver) == pytest.approx(
        everything(problem, 3, pattern), rel=3e-5
    )


def test_both_forms_agree():
    polynomial = norm_gradient(problem_of(random_network([6, 5, 1], 3)))
    family = Family.of(
        maximal_sets(polynomial.monomials, polynomial.variables), polynomial.variables
    )
    matrix, p = family.matrix(), family.coefficients(polynomial)
    constant = matrix[:, [0]].toarray().ravel()
    values = []
    for form in ("moments", "multipliers"):
        y, c, optimal = highs.solve(matrix[:, 1:], -constant, p[1:], form=form)
        assert optimal
        values += [p[0] + p[1:] @ y, p[0] + constant @ c]
    assert np.ptp(values) < 1e-9


def test_a_solver_that_fails_says_so():
    impossible = sp.csr_array(np.array([[1.0], [-1.0]]))
    for form in ("moments", "multipliers"):
        y, c, optimal = highs.solve(impossible, np.array([2.0, 3.0]), np.array([1.0]), form=form)
        assert not optimal
        assert np.isfinite(y).all()
        assert np.isfinite(c).all()
        assert (c >= 0).all()
    with pytest.raises(LipoptError, match="simplex"):
        highs.solve(impossible, np.zeros(2), np.zeros(1), solver="magic")


def test_matrix_rows_are_the_products():
    rng = np.random.default_rng(5)
    family = Family.of(np.array([[-1, 0, 3], [1, 2, 3]]), 4)
    x = rng.random(4)
    moments = np.ones(len(family.keys))
    for v, s in np.ndindex(*family.index.shape):
        if family.index[v, s] >= 0:
            moments[family.index[v, s]] = np.prod(
                [x[family.sets[s, b]] for b in range(3) if v >> b & 1]
            )
    products = (family.matrix() @ moments).reshape(family.index.shape)
    for v, s in np.ndindex(*family.index.shape):
        factors = [x[m] if v >> b & 1 else 1 - x[m] for b, m in enumerate(family.sets[s]) if m >= 0]
        expected = np.prod(factors) if family.index[v, s] >= 0 else 0.0
        assert products[v, s] == pytest.approx(expected)


def test_consensus_map_is_an_isometry():
    rng = np.random.default_rng(0)
    family = Family.of(maximal_sets(norm_gradient(tiny_problem(7)).monomials, 20), 20)
    moments = consensus.Moments(family.index, len(family.keys))
    z, c = rng.standard_normal(len(family.keys)), rng.standard_normal(family.index.shape)
    assert np.linalg.norm(moments.apply(z)) == pytest.approx(np.linalg.norm(z))
    assert (moments.apply(z) * c).sum() == pytest.approx(z @ moments.adjoint(c))


class TestEdges:
    """The shapes that go wrong elsewhere."""

    def test_input_with_one_connection(self):
        first = np.array([[1.0, 0.5, 0.0], [0.0, -1.0, 0.25], [0.0, 0.75, 0.0]])
        problem = problem_of([first, np.array([[1.0, 2.0, -1.0]])])
        for pattern in ("paths", "input", "output", "chordal", "full"):
            assert value(problem, 3, pattern) >= enumerate_pop(problem)

    def test_disconnected_neuron(self):
        problem = problem_of([np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([[3.0, 5.0]])])
        assert value(problem, 2) == pytest.approx(9.0)

    def test_one_neuron(self):
        assert value(problem_of([np.array([[2.0]]), np.array([[-3.0]])]), 2) == pytest.approx(6.0)

    def test_zero_weights(self):
        assert value(problem_of([np.zeros((3, 2)), np.zeros((1, 3))]), 2) == 0.0

    def test_linear_network(self):
        assert value(problem_of([np.array([[1.0, -2.0, 0.5]])])) == pytest.approx(3.5)

    def test_slopes_fixed_by_the_domain(self):
        weights = random_network([3, 4, 3, 1])
        whole = lipopt.bound(weights, method="lipopt")
        small = lipopt.bound(
            weights, method="lipopt", domain=lipopt.Ball(np.array([0.3, -0.2, 0.5]), 1e-6)
        )
        assert small.lower <= small.upper <= whole.upper
        assert small.upper == pytest.approx(small.lower, rel=1e-6)

    def test_huge_and_tiny_weights(self):
        weights = random_network([4, 3, 1])
        expected = value(problem_of(weights), 3)
        for scale in (1e-150, 1e150):
            assert value(problem_of([weights[0], weights[1] * scale]), 3) == pytest.approx(
                expected * scale, rel=1e-5
            )


class TestBadInput:
    """What cannot be done is said, and never a number that is no bound."""

    def test_degree_below_the_depth(self):
        with pytest.raises(LipoptError, match="use 3"):
            value(problem_of(random_network([3, 3, 3, 1])), 2)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"degree": 0}, "the degree must be at least 1"),
            ({"pattern": "star"}, "unknown pattern 'star'"),
            ({"solver": "magic"}, "unknown solver 'magic'"),
        ],
    )
    def test_settings(self, settings, message):
        with pytest.raises(LipoptError, match=message):
            LiPopt(**settings)

    def test_time_that_is_over(self):
        problem = problem_of(random_network([20, 20, 1], 5))
        found = run(problem, LiPopt(3), deadline=time.monotonic() - 1)
        assert found.status == "time limit"
        assert found.value == pytest.approx(path_sum_bound(problem))
        assert (
            run(replace(problem, norm=Norm.L1), LiPopt(3), deadline=time.monotonic() - 1).status
            == "time limit"
        )

    def test_an_lp_that_does_not_fit(self, monkeypatch):
        monkeypatch.setattr(tightening, "MAX_PRODUCTS", 100)
        with pytest.raises(LipoptError, match=r"memory.*sdp"):
            value(problem_of(random_network([10, 10, 1])), 2)

    def test_l2_and_rows(self):
        with pytest.raises(LipoptError, match="sdp"):
            value(problem_of(random_network([3, 3, 1]), "l2"), 2)
        with pytest.raises(LipoptError, match="one output"):
            value(problem_of(random_network([3, 3, 2]), output="all"), 2)


def test_names():
    assert find_method("lipopt-3") == LiPopt(3)
    assert find_method("lipopt") == LiPopt()
    assert (LiPopt(4).name, LiPopt().name) == ("lipopt-4", "lipopt")


def test_no_degree_is_no_worse_than_the_degree_it_reaches():
    """A round that adds few sets and gains nothing, here the first of degree 4, does not end the search."""
    rng = np.random.default_rng(0)
    weights = [rng.uniform(-1, 1, (b, a)) / np.sqrt(a) for a, b in ((2, 16), (16, 16), (16, 1))]
    problem = problem_of(weights)
    assert run(problem, LiPopt()).value <= run(problem, LiPopt(4)).value * (1 + 1e-3)


def test_no_degree_goes_up_while_it_pays():
    problem = problem_of(random_network([20, 20, 10, 1], 5))
    found = run(problem, LiPopt(), pop_lower=0.24791)
    assert found.details["degree"] == 4
    assert found.value == pytest.approx(0.2479, abs=6e-5)


@pytest.mark.parametrize(
    ("sizes", "connections", "degree", "pattern", "expected"),
    [
        ((40, 40, 1), 10, 2, "paths", 1.2640),
        ((40, 40, 1), 10, 2, "input", 1.2640),
        ((40, 40, 1), 10, 3, "input", 0.9704),
        ((80, 80, 1), 10, 2, "paths", 1.2229),
        ((80, 80, 1), 10, 3, "input", 1.0383),
        ((40, 40, 1), None, 2, "paths", 5.2141),
        ((40, 40, 1), None, 3, "input", 3.0497),
        ((20, 20, 10, 1), 5, 3, "paths", 0.2988),
        ((20, 20, 10, 1), 5, 3, "input", 0.2603),
        ((10, 10, 10, 1), None, 3, "paths", 0.7462),
        ((10, 10, 10, 1), None, 3, "input", 0.7462),
    ],
)
def test_measured_figures(sizes, connections, degree, pattern, expected):
    assert value(problem_of(random_network(sizes, connections)), degree, pattern) == pytest.approx(
        expected, abs=6e-5
    )
