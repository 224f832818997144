"""Sparsity patterns: coverage, validity, and sizes known before anything is built."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import problem_of, random_network, tiny_problem

from lipopt.errors import LipoptError
from lipopt.methods.lp import sparsity
from lipopt.methods.lp.polynomial import norm_gradient, sources
from lipopt.methods.lp.sparsity import (
    PATTERNS,
    all_sets,
    cliques,
    is_valid,
    maximal_sets,
    paper_counts,
    pattern_sizes,
    random_sets,
    set_keys,
    subset_keys,
)

SEEDS = st.integers(0, 2**32 - 1)
CLIQUES = st.lists(st.frozensets(st.integers(0, 5), min_size=1), min_size=1, max_size=5)


def table(sets, variables=6):
    dense = np.array([[float(v in s) for v in range(variables)] for s in sets]).reshape(
        len(sets), variables
    )
    return sp.csr_array(dense)


def rows_of(matrix):
    return [frozenset(matrix.indices[a:b].tolist()) for a, b in itertools.pairwise(matrix.indptr)]


def running_intersection(sets):
    """Definition 1 itself: some order in which what is old in each clique lies in a single earlier one."""
    return any(
        all(
            any(order[i] & frozenset.union(*order[:i]) <= earlier for earlier in order[:i])
            for i in range(1, len(order))
        )
        for order in itertools.permutations(sets)
    )


@given(CLIQUES)
@settings(max_examples=200, deadline=None)
def test_validity_is_the_running_intersection_property(sets):
    no_monomials = np.empty((0, 1), np.int64)
    assert is_valid(table(sets), no_monomials) == running_intersection(sets)


def test_validity_needs_every_monomial():
    assert is_valid(table([{0, 1}, {1, 2}]), np.array([[0, 1], [1, 2]]))
    assert not is_valid(table([{0, 1}, {1, 2}]), np.array([[0, 2]]))


@pytest.mark.parametrize("sizes", [(3, 4, 1), (3, 4, 2, 1), (2, 3, 3, 2, 1)])
def test_output_pattern_of_dense_networks_is_valid(sizes):
    problem = problem_of(random_network(sizes))
    chain = sources(problem)
    output = cliques(chain, "output")
    assert is_valid(output, norm_gradient(problem).monomials)
    assert rows_of(output) == [
        frozenset(range(sum(sizes[:-2]))) | {sum(sizes[:-2]) + i} for i in range(sizes[-2])
    ]


def test_output_pattern_of_pruned_networks_may_not_be():
    problem = problem_of(random_network([40, 40, 1], 10))
    assert not is_valid(cliques(sources(problem), "output"), norm_gradient(problem).monomials)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_patterns_cover_the_polynomial_and_the_last_two_are_valid(seed):
    problem = tiny_problem(seed)
    polynomial = norm_gradient(problem)
    for pattern in PATTERNS[1:]:
        rows = rows_of(cliques(sources(problem), pattern))
        assert all(
            any(set(m[m >= 0]) <= row for row in rows)
            for m in polynomial.monomials
            if (m >= 0).any()
        )
        assert not any(a < b for a in rows for b in rows)
        if pattern in ("chordal", "full"):
            assert is_valid(cliques(sources(problem), pattern), polynomial.monomials)


def test_input_pattern_is_an_input_and_its_descendants():
    first = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    second = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    chain = sources(problem_of([first, second, np.ones((1, 2))]))
    assert set(rows_of(cliques(chain, "input"))) == {frozenset({0, 2, 4}), frozenset({1, 3, 5})}
    assert set(rows_of(cliques(chain, "output"))) == {frozenset({0, 2, 4}), frozenset({1, 3, 5})}


@given(CLIQUES, st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_all_sets_are_the_subsets_of_cliques(sets, k):
    rows = table(sets)
    expected = {frozenset(c) for s in sets for c in itertools.combinations(s, min(k, len(s)))}
    found = all_sets(rows, k)
    assert {frozenset(s[s >= 0].tolist()) for s in found} == expected
    assert len(found) == sparsity.count_sets(rows, k)
    biggest = maximal_sets(found, 6)
    maximal = {frozenset(s[s >= 0].tolist()) for s in biggest}
    assert maximal == {s for s in expected if not any(s < other for other in expected)}
    assert len(maximal) == len(biggest)


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_random_sets_lie_in_cliques(seed):
    rows = table([{0, 1, 2, 3}, {2, 3, 4, 5}, {5}])
    found = random_sets(rows, 3, 50, np.random.default_rng(seed))
    assert found[-1].tolist() == [-1, -1, 5]
    drawn = found[:-1].tolist()
    assert drawn
    assert all(
        len(set(s)) == 3 and (set(s) <= {0, 1, 2, 3} or set(s) <= {2, 3, 4, 5}) for s in drawn
    )


def test_keys_tell_subsets_apart():
    sets = np.array([[-1, 0, 2], [0, 1, 2], [1, 2, 3]])
    keys = subset_keys(sets, 4)
    subsets: dict[tuple[int, ...], int] = {}
    for v, s in itertools.product(range(8), range(3)):
        members = [int(sets[s, b]) for b in range(3) if v >> b & 1]
        assert (keys[v, s] == -1) == (-1 in members)
        if -1 not in members:
            assert subsets.setdefault(tuple(members), keys[v, s]) == keys[v, s]
    assert len(set(subsets.values())) == len(subsets)
    assert (set_keys(sets, 4) == keys.max(axis=0)).all()


def test_keys_that_do_not_fit_are_refused():
    with pytest.raises(LipoptError, match="sdp"):
        set_keys(np.zeros((1, 5), np.int64), 10**4)


def test_unknown_pattern():
    with pytest.raises(LipoptError, match="chordal"):
        cliques(sources(problem_of([np.ones((1, 2))])), "star")


@pytest.mark.parametrize("norm", ["linf", "l1"])
def test_sizes_are_those_of_the_largest_program(norm):
    """There is one for each output under l_inf, and one for each input under l1."""
    weights = random_network([3, 4, 2])
    every = pattern_sizes(problem_of(weights, norm, "all"), 2)
    one = pattern_sizes(problem_of(weights, norm, 0), 2)
    assert [size.pattern for size in every] == [size.pattern for size in one]
    assert all(a.products >= b.products for a, b in zip(every, one, strict=True))


def test_sizes_of_a_dense_network():
    sizes = {
        size.pattern: size for size in pattern_sizes(problem_of(random_network([4, 3, 2, 1])), 3)
    }
    assert (sizes["paths"].cliques, sizes["paths"].largest, sizes["paths"].products) == (
        24,
        3,
        24 * 8,
    )
    assert (sizes["output"].cliques, sizes["output"].largest) == (2, 8)
    assert (sizes["input"].cliques, sizes["input"].largest) == (4, 6)
    assert sizes["full"].sets == comb(9, 3)
    assert sizes["output"].paper == 2 * comb(2 * 8 + 3, 3)


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_sizes_are_those_of_what_is_built(seed):
    problem = tiny_problem(seed)
    for size in pattern_sizes(problem, 4)[1:]:
        rows = cliques(sources(problem), size.pattern)
        assert (size.cliques, size.sets) == (rows.shape[0], len(all_sets(rows, 4)))


def test_sizes_under_the_l1_norm_are_those_of_one_input():
    weights = random_network([4, 3, 2])
    for problem in (problem_of(weights, "l1"), problem_of(weights, "l1", "all")):
        full = pattern_sizes(problem, 3)[-1]
        assert (full.cliques, full.largest) == (1, 4 if problem.outputs == 1 else 5)


def test_counts_of_the_paper():
    problem = problem_of(random_network([20, 9, 5, 1], 2))
    most = [int(np.count_nonzero(w, axis=1).max()) for w in random_network([20, 9, 5, 1], 2)]
    counts = paper_counts(problem, 2)
    assert counts["dense"] == 5 * comb(2 * (1 + 9 + 20) + 2, 2)
    assert counts["unstructured"] == 5 * comb(2 * (1 + most[1] + min(20, most[1] * most[0])) + 2, 2)
    assert counts["2D convolution"] <= counts["unstructured"] <= counts["dense"]
    assert pattern_sizes(problem, 2)[1].paper <= counts["unstructured"]
