"""The rule `sdp`: multipliers on a grid, and a factor that proves the dual matrix semidefinite."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..methods.baselines import path_sum_bound
from ..methods.sdp.sparse_dual import is_sparse
from ..model.network import Network
from ..model.norms import Norm
from ..numerics.arrays import Array, as_csr, tidy
from ..problem.derivative import DerivativeProblem
from ..problem.presolve import one_input
from ..problem.proofs import Multipliers
from ..problem.task import Task
from .differences import Doubts, slack_of
from .dyadic import Rounded, round_up, together
from .factor import factor_lines
from .flat import Flat, flatten, settled_neurons, variable_lines

SDP_BITS = 52  # binary digits of the largest multiplier of a layer
SDP_LOSS = 1e-4  # the largest loss by rounding, relative
SETTLED = 1e-6  # what neurons that are not variables may add to the claim, relative to the bound
# What is written and computed for a matrix of the dual, on a slow machine: its entries, and the
# multiplications of its factorization; the rows of a sparse one.
SECONDS_FOR_AN_ENTRY = 2.8e-7
SECONDS_FOR_A_MULTIPLICATION = 1.5e-11
SECONDS_FOR_A_SPARSE_ROW = 1.6e-4
INFLATIONS = (0.0, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 3e-5)  # of the multipliers, for every layer


def seconds_to_write(problem: DerivativeProblem) -> float:
    """About how long a part with the rule `sdp` takes, on a slow machine."""
    order = float(sum(problem.sizes) + problem.outputs)
    if is_sparse(problem):
        return SECONDS_FOR_A_SPARSE_ROW * order
    return SECONDS_FOR_AN_ENTRY * order**2 + SECONDS_FOR_A_MULTIPLICATION * order**3


def multipliers_part(
    network: Network, task: Task, only: int | None, proof: Multipliers, doubts: Doubts
) -> tuple[list[str], float]:
    """A part with the rule `sdp`, for all inputs or for one, and the number that it proves.

    Where slopes are so small that the two programs' enclosures of them differ by more than an SDP
    can bear, its multipliers prove nothing to the checker. The path sum does, and such a bound is
    next to zero either way."""
    bound = float(proof.bounds.max())
    inputs = "inputs *"
    if only is not None:
        inputs = f"inputs 1 {only}"
        task = replace(task, raw=one_input(task.raw, only), problem=one_input(task.problem, only))
    whole = flatten(task.problem)
    enclosed = slack_of(network, task, whole)
    if enclosed > SDP_LOSS * bound:
        lines = [inputs, *variable_lines(network, whole), "rule path-sum"]
        return lines, path_sum_bound(task.problem) + enclosed
    flat = flatten(task.problem, settled=settled_neurons(task.problem, SETTLED * bound))
    lines, cost = _rounded_lines(flat, proof, bound, task.problem.norms, doubts)
    head = [inputs, *variable_lines(network, flat), "rule sdp"]
    return [*head, *lines], round_up(cost) + slack_of(network, task, flat)


def _rounded_lines(
    flat: Flat, proof: Multipliers, bound: float, norms: tuple[Norm, Norm], doubts: Doubts
) -> tuple[list[str], Fraction]:
    """Rounded multipliers with a factor, and the bound they prove.

    They are inflated by as little as a factor needs, more towards the input. A factor with room for
    the difference between the two programs is tried first."""
    tau = []
    for values, group in zip(proof.tau, flat.groups, strict=True):
        if group.mask.any():
            tau.append(values[group.mask] * (group.weight[group.mask] ** 2))
    mu = np.broadcast_to(proof.mu, len(flat.C)).astype(np.float64)
    delta = np.broadcast_to(proof.delta, flat.inputs).astype(np.float64)
    doubt = _doubt_by_variable(flat, doubts)
    for room, inflation in itertools.product((doubt, 0 * doubt), INFLATIONS):
        grid = _Grid.of(mu, tau, delta, inflation)
        factor = factor_lines(_dual_matrix(flat, grid), room)
        if factor is None:
            continue
        cost = grid.cost(norms)
        if cost <= Fraction(bound) * (1 + Fraction(SDP_LOSS)):
            return [*grid.lines(), *factor], cost
    raise LipoptError(
        f"the SDP's multipliers could not be rounded with a loss of at most {SDP_LOSS:g}"
    )


def _doubt_by_variable(flat: Flat, doubts: Doubts) -> Array:
    """By how much the checker may find the slope of each variable different; 0 for t and rows."""
    parts = [np.zeros(flat.inputs)]
    for group in flat.groups:
        own = doubts.get(group.layer.node)
        count = len(group.variables)
        parts.append(np.zeros(count) if own is None else own[group.variables])
    return np.concatenate([*parts, np.zeros(len(flat.C))])


@dataclass(frozen=True, eq=False)
class _Grid:
    """Multipliers on their grids of integers times a power of two; tau has one entry per layer."""

    mu: Rounded
    tau: list[Rounded]
    delta: Rounded

    @staticmethod
    def of(mu: Array, tau: list[Array], delta: Array, inflation: float) -> _Grid:
        """Inflated once for mu, and once more for every layer towards the input.

        A uniform factor would do nothing: the cross terms would grow with it."""
        layers = []
        step = 1
        for values in reversed(tau):
            step += 1
            layers.append(Rounded.of(values * (1 + step * inflation), SDP_BITS))
        return _Grid(
            Rounded.of(mu * (1 + inflation), SDP_BITS),
            layers[::-1],
            Rounded.of(delta * (1 + (step + 1) * inflation), SDP_BITS),
        )

    def cost(self, norms: tuple[Norm, Norm]) -> Fraction:
        """The bound that the multipliers prove."""
        norm, output = norms
        return _cost(self.delta, norm.bounds_each_input) + _cost(self.mu, output is Norm.L1)

    def lines(self) -> list[str]:
        return [f"mu {self.mu}", f"delta {self.delta}", f"tau {together(self.tau)}"]


def _cost(multipliers: Rounded, every: bool) -> Fraction:
    """The sum of multipliers that count one by one, or the largest of those that count once."""
    values = [int(n) * Fraction(2) ** multipliers.exponent for n in multipliers.integers]
    return sum(values, Fraction(0)) if every else max(values)


def _dual_matrix(flat: Flat, grid: _Grid) -> sp.csr_array:
    """S of the rule `sdp`, in floating point.

    For a neuron, sym[(e - l A)(e - u A)^T] is e e^T, less (l + u) / 2 times e A^T and its transpose,
    plus l u A A^T."""
    tau = np.concatenate([*(part.values for part in grid.tau), np.zeros(0)])
    n = flat.inputs
    variables = flat.A.shape[1]
    crossed = sp.diags_array(tau * (flat.lower + flat.upper) / 2) @ as_csr(flat.A)
    crossed = sp.block_array([[sp.csr_array((n, variables))], [crossed]], format="csr")
    own = _weighted_squares(flat, tau * flat.lower * flat.upper) - crossed - crossed.T
    C = sp.csr_array(flat.C / 2)
    S = sp.block_array([[own, C.T], [C, None]], format="csr")
    diagonal = np.concatenate([grid.delta.values, tau, grid.mu.values])
    return sp.csr_array(S + sp.diags_array(diagonal))


def _weighted_squares(flat: Flat, weights: Array) -> sp.csr_array:
    """The sum of A_a A_a^T over all neurons, with weights; layer by layer, each in its columns."""
    width = flat.A.shape[1]
    total = sp.csr_array((width, width))
    first = 0
    for group in flat.groups:
        rows = slice(first, first + len(group.variables))
        first = rows.stop
        A = as_csr(flat.A[rows, :])
        columns = np.unique(A.indices)
        own = tidy(A[:, columns])
        square = sp.coo_array(own.T @ (sp.diags_array(weights[rows]) @ own))
        places = (columns[square.row], columns[square.col])
        total = total + sp.csr_array((square.data, places), shape=total.shape)
    return total
