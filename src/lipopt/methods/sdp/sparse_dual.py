"""The dual of Shor's relaxation (dual.py) where the matrix S is sparse: convolutional networks.

S has one row for every variable, and where slopes begin at 0 its graph is the graph of the network.
A factorization that chooses its own order of elimination keeps most of that sparsity, which the
block elimination of dual.py does not.

`fit` needs no elimination to find tau. At an optimum of the vector network the gradient g_a of the
form in z_a is a multiple of z_a - m_a y_a, and tau_a is that multiple; going from the last layer to
the first, every g_a is computed with the tau of later layers. The block of the neurons and rows, P,
is then factorized once. With B the block of P with the inputs and K that of the inputs without
delta, diag(delta) has to outweigh B^T P^-1 B - K. A Lanczos iteration finds by how much delta must
be scaled.

`prove` factorizes S as a whole, and compares a shift of its diagonal with a bound on all errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from ...numerics.arrays import Array, Matrix, as_csr
from ...numerics.rounding import TINY, gamma, terms
from ...numerics.sparse_factor import SparseFactor
from ...problem.derivative import DerivativeProblem, apply
from ...problem.proofs import Multipliers
from .backend import Backend, sizes
from .block_matrix import MIN_DIVISOR
from .dual import MAX_RELATIVE_TAU, MIN_RELATIVE_MULTIPLIER, Hint, power_of_two_scale

# The relative size of the residual of the eigenvector that Lanczos finds. The error of the eigenvalue
# is far smaller, unless others are close; at a residual of 1e-4, errors of 1e-5 were seen.
LANCZOS_TOLERANCE = 1e-5
# Lanczos vectors that are kept, and restarts from these, at most.
LANCZOS_VECTORS = 60
LANCZOS_RESTARTS = 100
# By how much delta exceeds what it has to outweigh, relatively: room for the error of Lanczos and for
# the proof.
DELTA_MARGIN = 2e-5
# The largest row sum of |L| |U| that the proof makes room for, at a unit diagonal. Up to 200 was
# seen.
EXPECTED_ROW_SUM = 1000.0
# The smallest number of variables with which sparsity pays: below, dense blocks are done in less
# than a second.
MIN_VARIABLES = 1500
# The largest number of variables. The factors of 17,500 took .2 GB and 5 s.
MAX_VARIABLES = 40_000
# The largest share of pairs of neurons of a layer that read an input in common, in a network whose
# S is taken to be sparse. It is small for convolutions, and near 1 for random sparse matrices,
# whose factors are dense.
MAX_OVERLAP = 0.25
# Rows of a block that are compared with all of its rows, at most.
MAX_COMPARED_ROWS = 200


def is_sparse(problem: DerivativeProblem) -> bool:
    """Whether the dual matrix of a problem is factorized better as a sparse matrix."""
    variables = sum(problem.sizes)
    if problem.norm.is_by_input or not MIN_VARIABLES <= variables <= MAX_VARIABLES:
        return False
    pairs = 0
    overlapping = 0.0
    for layer in problem.layers:
        pairs += layer.size**2
        overlapping += min(layer.size**2, sum(map(_overlaps, layer.blocks.values())))
    return overlapping <= MAX_OVERLAP * pairs


def _overlaps(block: Matrix) -> float:
    """The number of pairs of rows that have a nonzero in a common column, from some of the rows."""
    rows = int(block.shape[0])
    if isinstance(block, np.ndarray):
        return rows**2
    pattern = as_csr(block).astype(bool)
    looked_at = pattern[:: ceil(rows / MAX_COMPARED_ROWS)]
    return int((looked_at @ pattern.T).nnz) * rows / looked_at.shape[0]


@dataclass(frozen=True, eq=False)
class SparseDual:
    """The duals of problems under linf or l2, each with a factorization of its own."""

    problems: tuple[DerivativeProblem, ...]
    backend: Backend  # of the vectors; the matrices are factorized on the CPU
    # Inflation is only for multipliers whose P is not definite: delta is scaled as needed anyway.
    gains_by_inflation: ClassVar[bool] = False

    @property
    def order(self) -> int:
        """The order of S."""
        return sum(self.problems[0].sizes)

    def only(self, which: Sequence[int]) -> SparseDual:
        """The duals of some of the problems."""
        return SparseDual(tuple(self.problems[k] for k in which), self.backend)

    def fit(self, rows: Array, x: Sequence[Any], inflation: Array) -> list[Hint | None]:
        """Multipliers near the best ones for feasible vectors x (by source), with mu = rows / 4.

        They are feasible up to rounding. None if P is not definite."""
        hints = []
        for k, problem in enumerate(self.problems):
            vectors = [self.backend.numpy(same[k]) for same in x]
            hints.append(_fit(problem, rows[k], vectors, float(inflation[k])))
        return hints

    def prove(self, hints: Sequence[Hint], bounds: Sequence[float]) -> list[Multipliers | None]:
        """The multipliers of every hint, scaled to give its bound, if they can be proved."""
        proofs: list[Multipliers | None] = []
        for problem, hint, bound in zip(self.problems, hints, bounds, strict=True):
            tau = [t / (2 * bound) for t in hint.tau]
            mu = bound / 2 * hint.rows if problem.adds_outputs else bound / 2
            multipliers = Multipliers(mu, hint.delta / (2 * bound), tau)
            proofs.append(multipliers if is_proved(problem, multipliers) else None)
        return proofs


def _fit(
    problem: DerivativeProblem, rows: Array, x: Sequence[Array], inflation: float
) -> Hint | None:
    tau, gradient = _stationary_tau(problem, rows, x, 1 + inflation)
    delta = _stationary_delta(problem, gradient)
    if not all(np.isfinite(values).all() for values in (delta, *tau)):
        return None
    S = dual_matrix(problem, Multipliers(rows / 4, np.zeros(problem.inputs), tau))
    factor = SparseFactor.of(S[problem.inputs :, problem.inputs :].tocsc())
    if factor is None:
        return None
    needed = _largest_ratio(factor, S[:, : problem.inputs].tocsr(), delta)
    if needed is None:
        return None
    delta = delta * (needed * (1 + inflation) * (1 + DELTA_MARGIN))
    if not problem.norm.bounds_each_input:
        delta = delta[:1]
    square = delta.sum()
    if not 0 < square < np.inf:
        return None
    return Hint(np.array([square]), rows, delta, tau, inflation)


def _stationary_tau(
    problem: DerivativeProblem, rows: Array, x: Sequence[Array], factor: float
) -> tuple[list[Array], Array]:
    """tau of every layer, times a factor; and the gradient of the form in t.

    The form is sum_k (C x)_k^2 / rows_k - sum_a tau_a (z_a - l_a y_a)(z_a - u_a y_a), by halves."""
    gradient = [np.zeros_like(values) for values in x]
    outputs = apply(problem.objective, x, problem.outputs) / rows[:, None]
    for source, matrix in problem.objective.items():
        gradient[source] += matrix.T @ outputs
    found: list[Array] = []  # from the last layer to the first
    for i in range(len(problem.layers), 0, -1):
        layer = problem.layers[i - 1]
        y = apply(layer.blocks, x, layer.size)
        radius = layer.half * sizes(y)
        tau = _within_limits(sizes(gradient[i]) / (radius + MIN_DIVISOR)) * factor
        product = layer.lower * layer.upper
        through = tau[:, None] * (layer.middle[:, None] * x[i] - product[:, None] * y)
        for source, matrix in layer.blocks.items():
            gradient[source] += matrix.T @ through
        found.append(tau)
    return found[::-1], gradient[0]


def _within_limits(tau: Array) -> Array:
    """tau, neither so small that S is singular nor so large that it drowns all else."""
    positive = tau[tau > 0]
    usual = float(np.median(positive)) if len(positive) else 1.0
    return np.asarray(np.clip(tau, MIN_RELATIVE_MULTIPLIER * usual, MAX_RELATIVE_TAU * usual))


def _stationary_delta(problem: DerivativeProblem, gradient: Array) -> Array:
    """delta of every input for the gradient in t; the same for all under l2."""
    lengths = sizes(gradient)
    if not problem.norm.bounds_each_input:
        lengths = np.full(problem.inputs, np.sqrt((lengths * lengths).sum()))
    return np.asarray(lengths + MIN_RELATIVE_MULTIPLIER * lengths.mean() + MIN_DIVISOR)


def _largest_ratio(factor: SparseFactor, columns: sp.csr_array, delta: Array) -> float | None:
    """The smallest c with c diag(delta) >= B^T P^-1 B - K, by Lanczos; None if it is not found.

    `columns`: K, and B below it."""
    n = len(delta)
    root = 1 / np.sqrt(delta)
    own = columns[:n]
    coupling = columns[n:]
    transposed = coupling.T.tocsr()

    def product(t: Array) -> Array:
        t = root * t.reshape(-1)
        return root * (transposed @ factor.solve(coupling @ t) - own @ t)

    if n < 3:  # eigsh asks for more
        whole = np.column_stack([product(column) for column in np.eye(n)])
        return float(np.linalg.eigvalsh(whole)[-1])
    form = LinearOperator((n, n), matvec=product, dtype=np.float64)
    try:
        largest = eigsh(
            form,
            k=1,
            v0=np.sqrt(delta),
            ncv=min(n, LANCZOS_VECTORS),
            tol=LANCZOS_TOLERANCE,
            maxiter=LANCZOS_RESTARTS,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        return None
    return float(largest[0])


def dual_matrix(
    problem: DerivativeProblem, multipliers: Multipliers, cross_sign: float = -1.0
) -> sp.csc_array:
    """S, in floating point. Its cross terms have the sign `cross_sign`, which is -1 in S itself."""
    sources = len(problem.layers) + 2
    blocks: list[list[Any]] = [[None] * sources for _ in range(sources)]

    def add(i: int, j: int, matrix: Any) -> None:
        blocks[i][j] = matrix if blocks[i][j] is None else blocks[i][j] + matrix

    add(0, 0, _diagonal(multipliers.delta, problem.inputs))
    add(-1, -1, _diagonal(multipliers.mu, problem.outputs))
    for source, matrix in problem.objective.items():
        half = cross_sign * as_csr(matrix) / 2
        add(-1, source, half)
        add(source, -1, half.T)
    for i, (layer, tau) in enumerate(zip(problem.layers, multipliers.tau, strict=True), start=1):
        add(i, i, sp.diags_array(tau))
        cross = sp.diags_array(cross_sign * tau * layer.middle)
        square = sp.diags_array(tau * layer.lower * layer.upper)
        for source, matrix in layer.blocks.items():
            mixed = cross @ as_csr(matrix)
            add(i, source, mixed)
            add(source, i, mixed.T)
            if not square.data.any():
                continue
            for other, other_matrix in layer.blocks.items():
                product = as_csr(matrix).T @ square @ as_csr(other_matrix)
                add(source, other, product)
    return sp.csc_array(sp.block_array(blocks, format="csc"))


def _diagonal(values: Any, size: int) -> Any:
    return sp.diags_array(np.broadcast_to(np.asarray(values, np.float64), size))


def is_proved(problem: DerivativeProblem, multipliers: Multipliers) -> bool:
    """Whether S is proved positive semidefinite; False if there is no proof.

    D S D - shift I = L D' L^T + R, D a scaling by powers of two. If the shift exceeds |R| and what
    rounding did to S, then D S D is positive semidefinite, and S is."""
    S = dual_matrix(problem, multipliers)
    diagonal = S.diagonal()
    values = [np.asarray(multipliers.mu), np.asarray(multipliers.delta), *multipliers.tau]
    usable = all(np.isfinite(v).all() and (v >= 0).all() for v in values)
    if not usable or not (diagonal > 0).all():
        return False
    order = len(diagonal)
    scale = power_of_two_scale(diagonal)
    assembly = _assembly_error(problem, multipliers, scale)
    room = gamma(order + 4) * EXPECTED_ROW_SUM
    shift = 1.1 * assembly + room + order**2 * TINY
    by_scale = sp.diags_array(scale)
    scaled = by_scale @ S @ by_scale
    shifted = scaled - sp.diags_array(np.full(order, shift))
    factor = SparseFactor.of(sp.csc_array(shifted))
    if factor is None:
        return False
    subtraction = gamma(2) * (float(scaled.diagonal().max()) + shift)
    return 1.01 * (assembly + factor.error() + subtraction) < shift


def _assembly_error(problem: DerivativeProblem, multipliers: Multipliers, scale: Array) -> float:
    """A bound, in the spectral norm, on what rounding did to D S D, D = diag(scale).

    That is gamma times the largest row sum of all terms of D S D in absolute value."""
    absolute = problem.absolute()
    layers = []
    for layer in absolute.layers:
        layers.append(replace(layer, lower=np.abs(layer.lower), upper=np.abs(layer.upper)))
    absolute = replace(absolute, layers=tuple(layers))
    rows = scale * (dual_matrix(absolute, multipliers, cross_sign=1.0) @ scale)
    roundings = len(problem.layers) + 8
    for layer in problem.layers:
        for matrix in layer.blocks.values():
            roundings = max(roundings, terms(as_csr(matrix.T)) + len(problem.layers) + 8)
    return 1.01 * gamma(roundings) * float(rows.max()) + TINY
