"""Bounds for every row of C at once, from multipliers of all rows together.

The multipliers are those of the Euclidean norm of all rows, weighted. Without its mu, the dual
matrix is the same for each row alone, so one factorization gives the mu that each row needs.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import scipy.sparse as sp

from ...numerics.arrays import Array
from ...numerics.blas import blas_threads
from ...numerics.rounding import up, up_float
from ...problem.derivative import DerivativeProblem
from ...problem.presolve import only_rows, slopes_from_zero
from ...problem.proofs import Multipliers
from ...problem.task import Task, UpperBound
from .backend import backend
from .batches import MAX_BLOCK_ON_CPU, largest_block
from .dual import Dual, Hint
from .search import MIN_FIRST_RANK, remember_vectors, start_vectors
from .vector_network import VectorNetwork

# The relative inflation of multipliers that serve several rows. It is also the gap that power
# iterations aim at, and the margin on mu: more precision is lost by sharing multipliers anyway.
SHARED_INFLATION = 1e-3


def bound_every_row(task: Task, weights: Array) -> list[UpperBound] | None:
    """Bounds for every row of C on its own, under linf; None if that fails.

    They are looser than bounds found one by one, but cost no more than one of them. A larger weight
    of a row gives it a tighter bound."""
    whole = task.problem
    if not whole.layers or largest_block(whole) > MAX_BLOCK_ON_CPU:
        return None
    problem = slopes_from_zero(whole) if whole.inputs > whole.neurons else whole
    with blas_threads(sum(problem.sizes)):
        hint = _fit_all_rows(problem, weights, task)
        if hint is None:
            return None
        proof = _prove_every_row(problem, hint)
        if proof is None:
            return None
    total = up_float(float(hint.delta.sum()), problem.inputs)
    values = up(2 * np.sqrt(proof.mu * total) + problem.slack, 4)
    bounds = []
    for k, value in enumerate(values):
        own = _proof_of_row(proof, k, whole)
        bounds.append(UpperBound(float(value), proof=own, details={"rows": problem.outputs}))
    return bounds


def _fit_all_rows(problem: DerivativeProblem, weights: Array, task: Task) -> Hint | None:
    """Multipliers of the Euclidean norm of all rows, weighted."""
    objective = {}
    for source, matrix in problem.objective.items():
        objective[source] = sp.diags_array(weights) @ matrix
    weighted = replace(problem, objective=objective)
    arrays = backend(None)
    network = VectorNetwork.of([weighted], arrays)
    state = network.evaluate(start_vectors(network, MIN_FIRST_RANK, task, SHARED_INFLATION))
    remember_vectors(network, state, task)
    dual = Dual.of([weighted], arrays)
    inflation = np.array([SHARED_INFLATION])
    return dual.fit(network.rows(state), network.vectors(state), inflation)[0]


def _prove_every_row(problem: DerivativeProblem, hint: Hint) -> Multipliers | None:
    """Multipliers with a mu for every row, for which the dual matrix of each row is proved."""
    rows = Dual.of([problem], backend(None), every_row=True)
    squares = rows.squares_of_rows(hint)
    if not (squares > 0).all() or not (squares < np.inf).all():
        return None
    total = float(hint.delta.sum())
    mu = squares / (4 * total) * (1 + SHARED_INFLATION)
    found = Multipliers(mu, hint.delta, hint.tau)
    return found if rows.are_proved([found])[0] else None


def _proof_of_row(proof: Multipliers, k: int, whole: DerivativeProblem) -> Multipliers:
    """The multipliers of one row, without the neurons that it does not read.

    They are scaled so that mu and the sum of delta are the same: half of the bound."""
    tau = {}
    neurons = {}
    for layer, values in zip(whole.layers, proof.tau, strict=True):
        tau[layer.node] = values
        neurons[layer.node] = layer.neurons
    mu = float(np.asarray(proof.mu)[k])
    scale = sqrt(float(proof.delta.sum()) / mu)
    kept = []
    for own in only_rows(whole, [k]).layers:
        is_kept = np.isin(neurons[own.node], own.neurons)
        kept.append(tau[own.node][is_kept] / scale)
    return Multipliers(mu * scale, proof.delta / scale, kept)
