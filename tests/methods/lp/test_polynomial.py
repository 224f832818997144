"""The norm-gradient polynomial against the chain rule, and its error bound against exact arithmetic."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from networks import problem_of, random_network, slopes_at, tiny_problem

from lipopt.errors import LipoptError
from lipopt.methods.lp.polynomial import count_terms, norm_gradient, sources
from lipopt.model.norms import Norm
from lipopt.problem.derivative import apply

SEEDS = st.integers(0, 2**32 - 1)
Polynomial: TypeAlias = defaultdict[frozenset[int], Fraction]  # coefficients of monomials


def exact_polynomial(chain, exact_widths):
    """The same polynomial in rational arithmetic, as a dictionary from sets of variables to coefficients."""
    values: list[list[Polynomial]] = []
    for source, widths in zip(chain, exact_widths, strict=True):
        dense = {s: m.toarray() for s, m in source.blocks.items()}
        values.append([])
        for a in range(len(source.base)):
            total: Polynomial = defaultdict(Fraction)
            if len(values) == 1:
                total[frozenset()] = Fraction(1)
            for s, matrix in dense.items():
                for b, weight in enumerate(matrix[a]):
                    for monomial, value in values[s][b].items():
                        total[monomial] += Fraction(weight) * value
            product: Polynomial = defaultdict(Fraction)
            for monomial, value in total.items():
                product[monomial] += value * Fraction(source.base[a])
                product[monomial | {source.first + a}] += value * Fraction(widths[a])
            values[-1].append(product)
    result: Polynomial = defaultdict(Fraction)
    for product in values[-1]:
        for monomial, value in product.items():
            result[monomial] += value
    return {m: v for m, v in result.items() if v}


@given(SEEDS)
@settings(max_examples=150, deadline=None)
def test_value_is_the_chain_rule(seed):
    problem = tiny_problem(seed)
    polynomial = norm_gradient(problem)
    x = np.random.default_rng(seed).random(polynomial.variables)
    t, slopes = slopes_at(problem, x)
    expected = apply(problem.objective, problem.forward(t, slopes)[0], 1)[0, 0]
    assert polynomial(x) == pytest.approx(expected, abs=1e-12)


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_value_with_row_signs(seed):
    problem = tiny_problem(seed, "l1", outputs=2)
    assume(problem.objective)
    for j in range(problem.inputs):
        polynomial = norm_gradient(problem, j)
        x = np.random.default_rng(seed).random(polynomial.variables)
        _, slopes = slopes_at(problem, x)
        signs = 2 * x[-2:] - 1
        t = np.eye(problem.inputs)[:, [j]]
        expected = signs @ apply(problem.objective, problem.forward(t, slopes)[0], 2)[:, 0]
        assert polynomial(x) == pytest.approx(expected, abs=1e-12)


@given(SEEDS, st.sampled_from([1.0, 1e-160, 1e100]))
@example(6005, 1e100)
@settings(max_examples=100, deadline=None)
def test_error_bounds_the_sum_of_coefficient_errors(seed, scale):
    problem = tiny_problem(seed)
    problem = replace(problem, objective={s: m * scale for s, m in problem.objective.items()})
    chain = sources(problem)
    ranges = [(v.lower, v.upper) for v in problem.layers]
    widths = [
        [2] * problem.inputs,
        *([Fraction(b) - Fraction(a) for a, b in zip(*r, strict=True)] for r in ranges),
        [0],
    ]
    exact = exact_polynomial(chain, widths)
    polynomial = norm_gradient(problem)
    computed = {
        frozenset(m[m >= 0].tolist()): v
        for m, v in zip(polynomial.monomials, polynomial.coefficients, strict=True)
    }
    assert len(computed) == len(polynomial.coefficients)
    difference = sum(
        abs(exact.get(m, Fraction(0)) - Fraction(computed.get(m, 0.0)))
        for m in exact.keys() | computed.keys()
    )
    assert difference <= Fraction(polynomial.error)
    assert polynomial.error <= 1e-11 * scale


def test_monomials_are_ascending_and_padded_first():
    monomials = norm_gradient(tiny_problem(12)).monomials
    assert (np.sort(monomials, axis=1) == monomials).all()
    assert len(np.unique(monomials, axis=0)) == len(monomials)


@given(SEEDS)
@settings(max_examples=50, deadline=None)
def test_terms_are_counted_before_they_are_built(seed):
    problem = tiny_problem(seed)
    count = count_terms(sources(problem))
    assert len(norm_gradient(problem, limit=count).coefficients) <= count
    if count:
        with pytest.raises(LipoptError, match=r"sdp.*path-sum"):
            norm_gradient(problem, limit=count - 1)


def test_count_of_dense_networks():
    assert count_terms(sources(problem_of(random_network([5, 4, 3, 1])))) == 2 * 5 * 4 * 3


def test_no_path_leaves_nothing():
    problem = problem_of([np.zeros((2, 3)), np.ones((1, 2))])
    assert len(norm_gradient(problem).coefficients) == 0


def test_linear_network():
    polynomial = norm_gradient(problem_of([np.array([[1.0, -2.0]])]))
    assert polynomial.degree == 1
    assert polynomial(np.array([1.0, 0.0, 0.0])) == 3.0


def test_overflow_is_refused():
    with pytest.raises(LipoptError, match="rescale"):
        norm_gradient(
            replace(
                problem_of([np.array([[1e200, 1e200], [1e200, -1e200]]), np.ones((1, 2))]),
                objective={1: np.full((1, 2), 1e200)},
            )
        )


@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_rows_need_an_input_or_l1(norm):
    with pytest.raises(LipoptError, match="one input"):
        norm_gradient(problem_of(random_network([3, 2, 2]), norm, "all"))


def test_rows_that_add_up_have_signs():
    problem = replace(problem_of(random_network([3, 2, 2]), "linf", "all"), output_norm=Norm.L1)
    polynomial = norm_gradient(problem)
    assert polynomial.variables == 3 + 2 + 2
    assert polynomial.degree == 3
