"""Shor(): the paper's own SDP (section 5), for reference on small networks.

Slopes are normalized, s = m + h sigma with sigma in [-1, 1], and the objective multiplied out: a
sum of t_j times products of sigmas along paths. Every product of two or more is a new variable,
pi_M = pi_{M - a} sigma_a, which makes the objective quadratic (Park and Boyd, 2017, section 2.1).
All variables lie in [-1, 1], so with x = (1, t, sigma, pi) Shor's relaxation has the dual

    minimize sum of y   such that   y >= 0   and
    diag(y) + sum_M w_M sym[pi_M 1 - pi_{M - a} sigma_a] - Q   is positive semidefinite

where x.Q x is the objective (l2: one y for all of t, counted once). For one hidden layer it has the
same optimum as SDP(); for more it was never smaller in any network tried, and the matrix is far
larger: of order 1 + n + n_1 + n_2 + n_1 n_2 for two hidden layers.

The solver's y and w are a hint: y is raised until the matrix is proved positive semidefinite; the
bound is the sum of that y.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..model.norms import Norm
from ..numerics.arrays import Array, Matrix, as_csr
from ..numerics.rounding import gamma, up_float
from ..numerics.semidefinite import is_positive_semidefinite
from ..problem.derivative import Blocks, DerivativeProblem
from ..problem.proofs import PathSums, Proof
from ..problem.task import Task, UpperBound
from .baselines import path_sum_bound
from .registry import register
from .sdp.method import SDP

Monomial: TypeAlias = tuple[int, ...]  # neurons, numbered through all layers, in order; () is 1
Lifted: TypeAlias = dict[Monomial, Array]  # the coefficients of monomials, one for every t_j
Places: TypeAlias = dict[Monomial | int, int]  # where x has a monomial, or t_j under the key j

MAX_ORDER = 160  # variables of the largest lifted problem: the order of its matrix
MAX_LOSS = 1e-4  # relative: a bound of another method that is worse by less may serve as the proof

# y is raised by 4^-20, 4^-19, ..., 1 times the largest row sum of the matrix's absolute values:
# with the last of them the matrix is diagonally dominant.
RAISING_STEPS = 4.0 ** np.arange(-20, 1)


@register("shor")
@dataclass(frozen=True)
class Shor:
    """The paper's lifted SDP, through Clarabel."""

    name: ClassVar[str] = "shor"

    def __call__(self, task: Task) -> UpperBound:
        problem = task.problem
        if problem.norm.is_by_input or problem.outputs > 1:
            raise LipoptError("method 'shor' takes one output, in the norm linf or l2; use 'sdp'")
        objective, places = _lift(problem)
        groups = _groups(problem, len(places))
        y, w = _multipliers(objective, places, groups, task.seconds_left)
        matrix = _matrix(places, objective, w)
        raised = _raised(y, matrix, groups)
        value = float("inf")
        if raised is not None:
            value = up_float(float(raised.sum()), len(raised))
        value = up_float(value + _rounding(problem) + problem.slack, 2)
        details = {"order": len(matrix)}
        paths = path_sum_bound(problem)
        if paths <= value:
            return UpperBound(paths, proof=PathSums(), details=details)
        proof = _proof(task, value) if task.keeps_proof else None
        return UpperBound(value, proof=proof, details=details)


def _proof(task: Task, value: float) -> Proof | None:
    """The multipliers of the smaller SDP, if its bound is as good.

    A certificate has no rule for the lifted problem."""
    found = SDP()(task)
    if found.value > value * (1 + MAX_LOSS):
        return None
    return found.proof


def _lift(problem: DerivativeProblem) -> tuple[Lifted, Places]:
    """The objective by monomials, and the place in x of every t_j and of every monomial."""
    identity = np.eye(problem.inputs)
    values: list[list[Lifted]] = [[{(): row} for row in identity]]
    monomials: set[Monomial] = {()}
    first = 0  # the number of the layer's first neuron
    for layer in problem.layers:
        middle = layer.middle
        half = layer.half
        z: list[Lifted] = []
        for a, y in enumerate(_combine(layer.blocks, values, layer.size)):
            z.append(_times_slope(y, first + a, middle[a], half[a]))
            monomials.update(z[-1])
            _check_order(1 + problem.inputs + len(monomials))
        values.append(z)
        first += layer.size
    objective = _combine(problem.objective, values, 1)[0]
    return objective, _places(problem.inputs, monomials)


def _times_slope(y: Lifted, neuron: int, middle: float, half: float) -> Lifted:
    """y times the slope m + h sigma of a neuron."""
    product: Lifted = {}
    for monomial, coefficients in y.items():
        product[monomial] = middle * coefficients
    for monomial, coefficients in y.items():
        product[(*monomial, neuron)] = half * coefficients
    return product


def _check_order(order: int) -> None:
    if order > MAX_ORDER:
        raise LipoptError(
            f"the lifted SDP has more than {MAX_ORDER} variables; "
            "method 'shor' is for small networks, use 'sdp'"
        )


def _places(inputs: int, monomials: set[Monomial]) -> Places:
    """Where x = (1, t, sigma, pi) has its entries.

    For every product, pi also has those of its first factors, and sigma has its factors."""
    needed = set(monomials)
    for monomial in monomials:
        for k in range(len(monomial)):
            needed.add(monomial[k : k + 1])
            needed.add(monomial[:k])
    needed.discard(())
    by_length = sorted(needed, key=lambda monomial: (len(monomial), monomial))
    names: list[Monomial | int] = [(), *range(inputs), *by_length]
    return {name: place for place, name in enumerate(names)}


def _combine(blocks: Blocks, values: list[list[Lifted]], size: int) -> list[Lifted]:
    """The linear combinations of lifted values that the rows of blocks say."""
    rows: list[Lifted] = [defaultdict(float) for _ in range(size)]  # type: ignore[arg-type]
    for source, matrix in blocks.items():
        entries = sp.coo_array(as_csr(matrix))
        for row, column, weight in zip(*entries.coords, entries.data, strict=True):
            for monomial, coefficients in values[source][column].items():
                rows[row][monomial] = rows[row][monomial] + weight * coefficients
    return rows


def _groups(problem: DerivativeProblem, order: int) -> list[Array]:
    """The places in x that share an entry of y: each its own, but all of t in the l2 norm."""
    inputs = np.arange(1, 1 + problem.inputs)
    groups = [np.array([0])]
    if problem.norm.bounds_each_input:
        groups.extend(inputs[:, None])
    else:
        groups.append(inputs)
    groups.extend(np.arange(1 + problem.inputs, order)[:, None])
    return groups


def _multipliers(
    objective: Lifted, places: Places, groups: list[Array], seconds: float
) -> tuple[Array, Array]:
    """y and w from the solver; zeros if it found nothing."""
    from ..solvers.clarabel import minimize_lmi

    n = len(places)
    products = _products(places)
    matrices = []
    for group in groups:
        matrices.append(sp.csr_array((np.ones(len(group)), (group, group)), shape=(n, n)))
    for product in products:
        matrices.append(_equality(n, product, 1.0))
    cost = np.concatenate([np.ones(len(groups)), np.zeros(len(products))])
    constant = sp.csr_array(_matrix(places, objective, np.zeros(len(products))))
    found = minimize_lmi(cost, constant, matrices, cost > 0, seconds)
    if found is None:
        found = np.zeros(len(cost))
    y = np.maximum(found[: len(groups)], 0.0)
    w = found[len(groups) :]
    return y, w


def _products(places: Places) -> list[tuple[int, int, int]]:
    """The places of pi_M, pi_{M - a} and sigma_a for every product."""
    products = []
    for monomial, place in places.items():
        if isinstance(monomial, tuple) and len(monomial) > 1:
            products.append((place, places[monomial[:-1]], places[monomial[-1:]]))
    return products


def _equality(n: int, product: tuple[int, int, int], w: float) -> Matrix:
    """w sym[pi_M 1 - pi_{M - a} sigma_a]."""
    whole, part, factor = product
    entries = np.array([w, w, -w, -w]) / 2
    rows = [whole, 0, part, factor]
    columns = [0, whole, factor, part]
    return sp.csr_array((entries, (rows, columns)), shape=(n, n))


def _matrix(places: Places, objective: Lifted, w: Array) -> Array:
    """The matrix without its diagonal. No two terms share an entry, so nothing is rounded."""
    n = len(places)
    matrix = np.zeros((n, n))
    for monomial, coefficients in objective.items():
        place = places[monomial]
        inputs = slice(1, 1 + len(coefficients))
        matrix[place, inputs] = -coefficients / 2
        matrix[inputs, place] = -coefficients / 2
    for product, multiplier in zip(_products(places), w, strict=True):
        matrix += _equality(n, product, float(multiplier)).toarray()
    return matrix


def _raised(y: Array, matrix: Array, groups: list[Array]) -> Array | None:
    """y, raised until the matrix with it on the diagonal is proved positive semidefinite."""
    scale = float(np.abs(matrix).sum(axis=1).max())
    full = matrix.copy()
    for step in scale * RAISING_STEPS:
        raised = y + step
        for group, value in zip(groups, raised, strict=True):
            full[group, group] = value
        if is_positive_semidefinite(full):
            return raised
    return None


def _rounding(problem: DerivativeProblem) -> float:
    """What rounding the coefficients of the objective can amount to.

    The path sum bounds the sum of all terms in absolute value."""
    roundings = 0
    for blocks in problem.all_blocks():
        for matrix in blocks.values():
            roundings += int(matrix.shape[1]) + 5
    return gamma(roundings) * path_sum_bound(replace(problem, norm=Norm.LINF))
