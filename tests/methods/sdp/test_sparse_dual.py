"""The dual with a sparse matrix: the same bounds as with dense blocks, and exact proofs."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from conic import shor_value
from exact import is_exactly_semidefinite
from networks import SLOPES, random_problem

from lipopt import LipoptError
from lipopt.lower.pop import enumerate_pop, free_neurons
from lipopt.methods.sdp import sparse_dual
from lipopt.methods.sdp.batches import split_into_batches
from lipopt.methods.sdp.method import SDP
from lipopt.methods.sdp.sparse_dual import is_proved, is_sparse
from lipopt.model.norms import Norm
from lipopt.numerics.sparse_factor import SparseFactor
from lipopt.problem.derivative import DerivativeProblem, Layer
from lipopt.problem.presolve import presolve
from lipopt.problem.proofs import Multipliers
from lipopt.problem.task import Task


@pytest.fixture
def every_matrix_is_sparse(monkeypatch):
    """Small and dense problems are solved as if they were large and sparse."""
    monkeypatch.setattr(sparse_dual, "MIN_VARIABLES", 0)
    monkeypatch.setattr(sparse_dual, "MAX_OVERLAP", 1.0)


def along_a_line(seed, width=40, depth=3, norm="linf", slopes=(0.0, 1.0)):
    """Layers along a line, in which every neuron reads its three neighbours."""
    rng = np.random.default_rng(seed)
    layers = []
    for i in range(depth):
        weights = rng.standard_normal((3, width))
        block = sp.csr_array(sp.diags_array(weights, offsets=[-1, 0, 1], shape=(width, width)))
        lower = np.full(width, slopes[0])
        upper = np.full(width, slopes[1])
        layers.append(Layer({i: block}, lower, upper, i + 1, np.arange(width)))
    objective = {depth: sp.csr_array(rng.standard_normal((1, width)))}
    return DerivativeProblem(Norm(norm), width, tuple(layers), objective)


@pytest.mark.usefixtures("every_matrix_is_sparse")
@pytest.mark.parametrize("slopes", SLOPES)
@pytest.mark.parametrize(("norm", "outputs"), [("linf", 1), ("l2", 1), ("l2", 3)])
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_equals_a_conic_solver(norm, outputs, depth, slopes):
    problem = presolve(
        random_problem(
            depth, norm=norm, depth=depth, slopes=slopes, skips=depth > 2, outputs=outputs
        )
    )
    found = SDP()(Task(problem, problem))
    assert found.value == pytest.approx(shor_value(problem), rel=1e-3)
    if free_neurons(problem) <= 14:
        assert enumerate_pop(problem) <= found.value
    if isinstance(found.proof, Multipliers):
        assert is_exactly_semidefinite(problem, found.proof)


@pytest.mark.usefixtures("every_matrix_is_sparse")
@pytest.mark.parametrize("slopes", [(0.0, 1.0), (0.1, 1.0), (-0.2, 1.1)])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_equals_dense_blocks(norm, slopes, monkeypatch):
    problem = along_a_line(3, norm=norm, slopes=slopes)
    assert is_sparse(problem)
    sparse = SDP()(Task(problem, problem))
    monkeypatch.setattr(sparse_dual, "MIN_VARIABLES", 10**9)
    assert not is_sparse(problem)
    dense = SDP()(Task(problem, problem))
    assert sparse.value == pytest.approx(dense.value, rel=3e-4)
    assert sparse.details["primal"] <= sparse.value


@pytest.mark.usefixtures("every_matrix_is_sparse")
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_sums_of_outputs_equal_dense_blocks(norm, monkeypatch):
    rows = sp.csr_array(np.random.default_rng(0).standard_normal((3, 8)))
    line = along_a_line(3, width=8, depth=2, norm=norm)
    problem = replace(line, objective={2: rows}, output_norm=Norm.L1)
    assert is_sparse(problem)
    sparse = SDP()(Task(problem, problem))
    monkeypatch.setattr(sparse_dual, "MIN_VARIABLES", 10**9)
    dense = SDP()(Task(problem, problem))
    assert sparse.value == pytest.approx(dense.value, rel=3e-4)
    assert isinstance(sparse.proof, Multipliers)
    assert is_exactly_semidefinite(problem, sparse.proof)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_proved_is_exactly_so(seed, monkeypatch):
    """Multipliers that are barely enough are proved, those that are barely not enough are not."""
    monkeypatch.setattr(sparse_dual, "MIN_VARIABLES", 0)
    problem = along_a_line(seed, width=8, depth=2, slopes=(-0.1, 1.0))
    proof = SDP(gap=1e-6)(Task(problem, problem)).proof
    assert isinstance(proof, Multipliers)
    for change in (1e-2, 1e-4, 1e-6, 1e-8, 0.0, -1e-8, -1e-6, -1e-4, -1e-2):
        changed = replace(proof, delta=proof.delta * (1 + change))
        if is_proved(problem, changed):
            assert is_exactly_semidefinite(problem, changed)
        else:
            assert change < 1e-4
    assert is_proved(problem, replace(proof, delta=proof.delta * 1.01))
    assert not is_proved(problem, replace(proof, delta=proof.delta * 0.99))
    assert not is_proved(problem, replace(proof, mu=float("nan")))
    assert not is_proved(problem, replace(proof, tau=[-tau for tau in proof.tau]))


def test_which_problems_are_sparse():
    """Convolutions are; neurons that read everything, or anything at random, are not."""
    local = along_a_line(0, width=600)
    assert is_sparse(local)
    assert not is_sparse(replace(local, norm=Norm("l1")))
    assert not is_sparse(along_a_line(0, width=60))
    rng = np.random.default_rng(0)
    scattered = sp.random_array((600, 600), density=0.1, rng=rng, format="csr")
    layers = [replace(layer, blocks={i: scattered}) for i, layer in enumerate(local.layers)]
    assert not is_sparse(replace(local, layers=tuple(layers)))


def test_sparse_problems_are_alone_in_their_batch():
    problems = [along_a_line(seed, width=600) for seed in range(3)]
    assert list(split_into_batches(problems)) == [[0], [1], [2]]


def test_a_wide_sparse_layer_is_not_refused(monkeypatch):
    monkeypatch.setattr("lipopt.methods.sdp.batches.MAX_BLOCK_ON_CPU", 500)
    problem = along_a_line(1, width=600, depth=2)
    assert SDP(gap=0.01)(Task(problem, problem)).value > 0
    monkeypatch.setattr(sparse_dual, "MAX_VARIABLES", 1000)
    with pytest.raises(LipoptError, match="a layer of 600 is too wide"):
        SDP()(Task(problem, problem))


def definite(seed, n=30):
    rng = np.random.default_rng(seed)
    half = sp.random_array((n, n), density=0.1, rng=rng)
    return sp.csc_array(half @ half.T + sp.eye_array(n))


@pytest.mark.parametrize("seed", range(5))
def test_error_of_the_factors(seed):
    """In exact arithmetic, M - L D L^T is no larger than what is said."""
    matrix = definite(seed)
    factor = SparseFactor.of(matrix)
    assert factor is not None
    order = np.argsort(factor.factors.perm_c)
    permuted = matrix.toarray()[np.ix_(order, order)]
    lower = _fractions(factor.factors.L.toarray())
    pivots = [Fraction(float(p)) for p in factor.factors.U.diagonal()]
    product = (lower * np.array(pivots)) @ lower.T
    rows = np.abs(_fractions(permuted) - product).sum(axis=1)
    assert max(rows) <= factor.error() < 1e-10


def test_factors_of_matrices_that_are_not_definite():
    matrix = definite(0)
    assert SparseFactor.of(sp.csc_array(matrix - 2 * sp.eye_array(30))) is None
    assert SparseFactor.of(sp.csc_array(np.array([[0.0, 1.0], [1.0, 0.0]]))) is None
    assert SparseFactor.of(sp.csc_array(np.zeros((2, 2)))) is None
    assert SparseFactor.of(sp.csc_array(np.array([[1.0, np.nan], [np.nan, 1.0]]))) is None


def test_solving():
    matrix = definite(1)
    right = np.random.default_rng(0).standard_normal(30)
    factor = SparseFactor.of(matrix)
    assert factor is not None
    assert matrix @ factor.solve(right) == pytest.approx(right)


def _fractions(array):
    return np.vectorize(Fraction, otypes=[object])(array)


def test_multipliers_that_are_not_positive_are_no_hint(monkeypatch):
    """Lanczos may end at a scale below 0 where the ascent has just begun."""
    problem = along_a_line(0, width=600)
    bound = SDP()(Task(problem, problem)).value
    monkeypatch.setattr(sparse_dual, "_largest_ratio", lambda factor, columns, delta: -1e-9)
    assert SDP()(Task(problem, problem)).value >= bound
