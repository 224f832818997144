"""Shor(): the paper's own SDP (section 5), for reference on small networks.

Slopes are normalized, s = m + h sigma with sigma in [-1, 1], and the objective multiplied out: a sum of t_j times
products of sigmas along paths. Every product of two or more is a new variable, pi_M = pi_{M - a} sigma_a, which makes the
objective quadratic (Park and Boyd, 2017, section 2.1). All variables lie in [-1, 1], so with x = (1, t, sigma, pi) Shor's
relaxation has the dual

    minimize sum of y   such that   diag(y) + sum_M w_M sym[pi_M 1 - pi_{M - a} sigma_a] - Q is positive semidefinite,  y >= 0

where x.Q x is the objective (l2: one y for all of t, counted once). For one hidden layer it has the same optimum as
SDP(); for more it was never smaller in any network tried, and the matrix is far larger: of order 1 + n + n_1 + n_2 + n_1 n_2 for
two hidden layers.

The solver's y and w are a hint: y is raised until the matrix is proved positive semidefinite; the bound is the sum of that y.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np
import scipy.sparse as sp

from .baselines import path_sum_bound
from .definite import is_positive_semidefinite
from .errors import LipoptError
from .methods import Task, UpperBound, register
from .problem import Blocks, DerivativeProblem
from .rounding import Array, Matrix, gamma, up_float
from .solvers.clarabel import minimize_lmi

Monomial: TypeAlias = tuple[int, ...]  # neurons, numbered through all layers, in order
Lifted: TypeAlias = dict[Monomial, Array]  # the coefficients, one for every t_j

LARGEST = 160  # order of the largest matrix


@register("shor")
@dataclass(frozen=True)
class Shor:
    """The paper's lifted SDP, through Clarabel."""

    name: ClassVar[str] = "shor"

    def __call__(self, task: Task) -> UpperBound:
        problem = task.problem
        if problem.norm == "l1" or problem.outputs > 1:
            raise LipoptError("method 'shor' takes one output, in the norm linf or l2; use 'sdp'")
        objective, places = _lift(problem)
        y, free, diagonal = _multipliers(problem, objective, places, task.seconds_left)
        value, matrix = float("inf"), _matrix(places, objective, free)
        raised = _raised(y, matrix, diagonal)
        if raised is not None:
            value = up_float(float(raised.sum()), len(raised))
        value = up_float(value + _rounding(problem) + problem.slack, 2)
        return UpperBound(min(value, path_sum_bound(problem)), details={"order": len(matrix)})


def _lift(problem: DerivativeProblem) -> tuple[Lifted, dict[Monomial | int, int]]:
    """The objective by monomials, and the place in x of every t_j (keys j) and of every monomial; () is the constant 1."""
    first = np.cumsum([0, *problem.sizes[1:]])
    identity = np.eye(problem.inputs)
    values: list[list[Lifted]] = [[{(): row} for row in identity]]
    monomials: set[Monomial] = {()}
    for i, layer in enumerate(problem.layers):
        middle, half = (layer.lower + layer.upper) / 2, (layer.upper - layer.lower) / 2
        z: list[Lifted] = []
        for a, y in enumerate(_combine(layer.blocks, values, layer.size)):
            neuron = int(first[i]) + a
            z.append({m: middle[a] * c for m, c in y.items()} | {(*m, neuron): half[a] * c for m, c in y.items()})
            monomials.update(z[-1])
            if 1 + problem.inputs + len(monomials) > LARGEST:
                raise LipoptError(
                    f"the lifted SDP has more than {LARGEST} variables; method 'shor' is for small networks, use 'sdp'"
                )
        values.append(z)
    objective = _combine(problem.objective, values, 1)[0]
    monomials |= {m[k : k + 1] for m in monomials for k in range(len(m))} | {m[:k] for m in monomials for k in range(len(m))}
    names: list[Monomial | int] = [(), *range(problem.inputs), *sorted(monomials - {()}, key=lambda m: (len(m), m))]
    return objective, {name: k for k, name in enumerate(names)}


def _combine(blocks: Blocks, values: list[list[Lifted]], size: int) -> list[Lifted]:
    """The linear combinations of lifted values that the rows of blocks say."""
    rows: list[Lifted] = [defaultdict(float) for _ in range(size)]  # type: ignore[arg-type]
    for source, matrix in blocks.items():
        entries = sp.coo_array(matrix)
        for row, column, weight in zip(*entries.coords, entries.data, strict=True):
            for monomial, coefficients in values[source][column].items():
                rows[row][monomial] = rows[row][monomial] + weight * coefficients
    return rows


def _multipliers(
    problem: DerivativeProblem, objective: Lifted, places: dict[Monomial | int, int], seconds: float
) -> tuple[Array, Array, list[Array]]:
    """y and w from the solver, and the places that every y stands for."""
    n = len(places)
    inputs = np.arange(1, 1 + problem.inputs)
    groups = [
        np.array([0]),
        *(inputs[:, None] if problem.norm == "linf" else inputs[None]),
        *np.arange(1 + len(inputs), n)[:, None],
    ]
    products = _products(places)
    matrices = [sp.csr_array((np.ones(len(g)), (g, g)), shape=(n, n)) for g in groups]
    matrices += [_equality(n, product, 1.0) for product in products]
    cost = np.concatenate([np.ones(len(groups)), np.zeros(len(products))])
    constant = sp.csr_array(_matrix(places, objective, np.zeros(len(products))))
    found = minimize_lmi(cost, constant, matrices, cost > 0, seconds)
    if found is None:
        found = np.zeros(len(cost))
    return np.maximum(found[: len(groups)], 0.0), found[len(groups) :], groups


def _products(places: dict[Monomial | int, int]) -> list[tuple[int, int, int]]:
    """The places of pi_M, pi_{M - a} and sigma_a for every product."""
    return [(k, places[m[:-1]], places[m[-1:]]) for m, k in places.items() if isinstance(m, tuple) and len(m) > 1]


def _equality(n: int, product: tuple[int, int, int], w: float) -> Matrix:
    whole, part, factor = product
    return sp.csr_array(
        (np.array([w, w, -w, -w]) / 2, ([whole, 0, part, factor], [0, whole, factor, part])),
        shape=(n, n),
    )


def _matrix(places: dict[Monomial | int, int], objective: Lifted, free: Array) -> Array:
    """The matrix without its diagonal. No two terms share an entry, so nothing is rounded."""
    n = len(places)
    matrix = np.zeros((n, n))
    for monomial, coefficients in objective.items():
        k = places[monomial]
        matrix[k, 1 : 1 + len(coefficients)] = matrix[1 : 1 + len(coefficients), k] = -coefficients / 2
    for product, w in zip(_products(places), free, strict=True):
        matrix += _equality(n, product, float(w)).toarray()
    return matrix


def _raised(y: Array, matrix: Array, groups: list[Array]) -> Array | None:
    """y, raised until the matrix with it on the diagonal is proved positive semidefinite."""
    scale = float(np.abs(matrix).sum(axis=1).max())
    full = matrix.copy()
    for step in scale * 4.0 ** np.arange(-20, 1):
        raised = y + step
        for group, value in zip(groups, raised, strict=True):
            full[group, group] = value
        if is_positive_semidefinite(full):
            return raised
    return None


def _rounding(problem: DerivativeProblem) -> float:
    """What rounding the objective's coefficients can amount to: the path sum bounds the sum of all terms in absolute value."""
    roundings = sum(sum(int(m.shape[1]) + 5 for m in blocks.values()) for blocks in problem.all_blocks())
    return gamma(roundings) * path_sum_bound(replace(problem, norm="linf"))
