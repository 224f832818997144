"""Cuts: the search for vectors and multipliers of the SDP with signs (see `signs`).

It starts at an optimum of Shor's relaxation, with all alternatives. A round adds the most violated
triangle inequalities, ascends in the augmented Lagrangian, moves the multipliers by what is violated, and drops triangles
that are slack. After some rounds the multipliers stay, and the Lagrangian itself is maximized: its
maximum is what these multipliers bound, and there the dual is fitted. All this is a stage. The next
one has vectors of a higher rank, since the rank of an optimum grows with the number of triangles.
The search ends when a stage improves the bound no further.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from ...errors import LipoptError
from ...lower.pop import alternating
from ...numerics.arrays import Array
from ...numerics.blas import blas_threads
from ...numerics.rounding import up_float
from ...problem.derivative import DerivativeProblem
from ...problem.proofs import SignMultipliers, Triangles
from ...problem.task import Status, Task, UpperBound
from ...solvers import lbfgs
from ..baselines import path_sum_bound
from .alternatives import AlternativeWeights
from .sign_dual import fit, prove
from .sign_network import MIN_LENGTH, Point, SignNetwork, Weights
from .signs import SignForm
from .triangles import MIN_VIOLATION, joined, violated_triangles

# The largest number of variables: the dual is a dense matrix of that order.
MAX_ORDER = 2500
# The number of coordinates of the vectors: at first, at most, and by what factor it grows with every
# stage. With fewer than an optimum has, ascents end where nothing is proved.
RANK = 64
MAX_RANK = 200
RANK_GROWTH = 1.3
# L-BFGS iterations for Shor's relaxation, in a round, in the last round before the dual is fitted,
# and for the Lagrangian itself; and the relative gain of some of them below which an ascent ends.
FIRST_ITERATIONS = 200
ROUND_ITERATIONS = 60
LAST_ITERATIONS = 300
FINAL_ITERATIONS = 300
# The last of these where there are alternatives: their multipliers leave tau no room for errors.
FINAL_ITERATIONS_WITH_ALTERNATIVES = 600
MIN_ASCENT_GAIN = 1e-7
# Rounds with new triangles and without, before the dual is fitted, and how often that is done.
ROUNDS = 10
LAST_ROUNDS = 2
STAGES = 12
# Parts of the time that is left which these rounds may take, if time is limited.
ROUNDS_SHARE = 0.5
LAST_ROUNDS_SHARE = 0.6
# The search ends when a stage improves the bound by less than this, relatively.
MIN_GAIN = 1e-3
# Penalties, for an objective of about 1: on triangles, divided by the number of signs, and on
# equations and alternatives, relative to the share of a neuron in the objective.
TRIANGLE_PENALTY = 0.6
EQUATION_PENALTY = 5.0
ALTERNATIVE_PENALTY = 2.0
# Products of forms are scaled as if they were at least this, relative to the largest.
MIN_SCALE = 1e-9
# Triangles that are added in a round, relative to the number of signs.
ADDED_TRIANGLES = 6
# Noise on the vectors, by which they leave a saddle point of the Lagrangian.
NOISE = 1e-3
# Hyperplanes that round the vectors to slopes, for a lower bound on the POP, and how often the best
# slopes are changed at random, at most.
HYPERPLANES = 64
SHAKES = 10


def can_cut(problem: DerivativeProblem) -> bool:
    """Whether the search takes the problem: one row, not l1, open slopes alone, not too large."""
    if problem.outputs > 1 or problem.norm.is_by_input or not problem.layers:
        return False
    open_slopes = all((layer.half > 0).all() for layer in problem.layers)
    return open_slopes and largest_order(problem) <= MAX_ORDER


def largest_order(problem: DerivativeProblem) -> int:
    """The order of the dual's matrix, or more: inputs, w, and two variables a neuron."""
    return problem.inputs + 2 * problem.neurons + 1


@dataclass(frozen=True)
class Cuts:
    """The SDP with signs and triangle inequalities, for one row under l_inf or l2.

    Args:
        gap: the relative distance to the lower bound at which the search stops.
        stages: of the search, at most; it ends before if one of them improves nothing."""

    gap: float = 1e-4
    stages: int = STAGES
    name: ClassVar[str] = "cuts"

    def __call__(self, task: Task) -> UpperBound:
        if not can_cut(task.problem):
            raise LipoptError(
                "cuts are for one output under linf or l2, and for matrices of an order of up to"
                f" {MAX_ORDER}"
            )
        with blas_threads(sum(task.problem.sizes)):
            return _Search(task, self).run()


class _Search:
    """The state of a search."""

    def __init__(self, task: Task, settings: Cuts) -> None:
        self.task = task
        self.settings = settings
        self.phase = task.budget  # of what is done now
        self.form = SignForm.of(task.problem)
        scale = min(task.upper, path_sum_bound(task.problem))
        self.largest_rank = min(MAX_RANK, self.form.order)
        self.network = SignNetwork(self.form, min(RANK, self.largest_rank), scale)
        inner = len(self.form.inner)
        self.weights = Weights(
            scale=np.ones(inner),
            penalty=np.zeros(inner),
            alpha=np.zeros(inner),
            beta=np.zeros(inner),
            triangles=Triangles.none(),
            rho=TRIANGLE_PENALTY / self.form.signs,
            alternatives=AlternativeWeights.none(self.form.forms),
        )
        self.random = np.random.default_rng(task.budget.seed)
        self.violation = np.inf  # of equations and triangles that were taken in
        self.best: SignMultipliers | None = None
        self.pop_lower = task.pop_lower

    def run(self) -> UpperBound:
        x = self._start()
        for _ in range(self.settings.stages):
            before = self._bound()
            x = self._stage(x)
            if self._is_done() or self._bound() > before * (1 - MIN_GAIN):
                break
            rank = int(self.network.rank * RANK_GROWTH)
            self.network, x = self.network.widened(x, min(rank, self.largest_rank))
        return self._report()

    def _stage(self, x: Array) -> Array:
        """Rounds with new triangles, rounds without, and a fit of the dual."""
        self.phase = self.task.budget.share(ROUNDS_SHARE)
        for _ in range(ROUNDS):
            if not self._add_triangles(x) and self.violation < MIN_VIOLATION:
                break
            x = self._round(x, ROUND_ITERATIONS)
        self.phase = self.task.budget.share(LAST_ROUNDS_SHARE)
        for _ in range(LAST_ROUNDS):
            x = self._round(x, LAST_ITERATIONS)
        self.phase = self.task.budget
        self._fit(x)
        return x

    def _is_done(self) -> bool:
        """Whether time is up, or the bound meets the lower bound."""
        closed = self._bound() <= self.pop_lower * (1 + self.settings.gap)
        return closed or self.task.seconds_left <= 0

    def _bound(self) -> float:
        """The bound that was found so far."""
        return float("inf") if self.best is None else self.best.bound

    def _start(self) -> Array:
        """Vectors of Shor's relaxation, with signs for which the equations hold.

        Penalties are for an objective whose value there is 1."""
        network = self.network
        x = network.power(network.start(self.random), self.weights)
        x = self._ascend(x, FIRST_ITERATIONS)
        point = network.point(x)
        value = network.value(point)
        if value > 0:
            self.network = SignNetwork(self.form, network.rank, network.scale * value)
        shares = self.network.residuals(x, self.weights).shares
        radii = self.form.half[self.form.inner] * point.lengths
        penalty = EQUATION_PENALTY * shares
        self.weights = replace(self.weights, scale=1 / radii, penalty=penalty)
        self._weigh_alternatives(point, shares)
        return self.network.reflected(point)

    def _weigh_alternatives(self, point: Point, shares: Array) -> None:
        """Scale the products of forms to about 1, and let penalties be relative to shares."""
        forms = self.form.forms
        squares = (forms.vectors(point.x) ** 2).sum(axis=(1, 2))
        squares = np.maximum(squares, MIN_SCALE * squares.max(initial=0.0)) + MIN_LENGTH
        roots = [tree[0].path[0][0] for tree in self.form.trees]
        own = shares[np.searchsorted(self.form.inner, roots)]
        weights = replace(
            self.weights.alternatives,
            scale=forms.sizes / squares,
            penalty=ALTERNATIVE_PENALTY * own,
        )
        self.weights = replace(self.weights, alternatives=weights)

    def _ascend(self, x: Array, iterations: int) -> Array:
        """L-BFGS in the augmented Lagrangian, from a point near x that is no saddle point."""
        x = self.network.flat(self.network.point(x))
        x = x + NOISE * self.random.standard_normal(len(x))
        loss = partial(self.network.loss, weights=self.weights)
        return lbfgs.minimize(loss, x, iterations, self._is_phase_over, MIN_ASCENT_GAIN)[0]

    def _is_phase_over(self) -> bool:
        return self.phase.seconds_left <= 0

    def _round(self, x: Array, iterations: int) -> Array:
        """An ascent, and new multipliers."""
        x = self._ascend(x, iterations)
        self._update(x)
        return x

    def _add_triangles(self, x: Array) -> bool:
        """Add those that are violated most; and whether there were any."""
        units = self.network.units(self.network.point(x))
        more = violated_triangles(units, ADDED_TRIANGLES * self.form.signs, self.random)
        before = self.weights.triangles.count
        both = joined(self.weights.triangles, more)
        self.weights = replace(self.weights, triangles=both)
        return both.count > before

    def _update(self, x: Array) -> None:
        """Move multipliers by what is violated, and drop triangles whose multiplier is 0."""
        weights = self.weights
        residuals = self.network.residuals(x, weights)
        pulls = np.maximum(0.0, weights.triangles.weights - weights.rho * residuals.sums)
        violations = [
            np.abs(residuals.first),
            np.abs(residuals.second),
            -residuals.sums,
            np.abs(residuals.missing).ravel(),
        ]
        self.violation = float(np.max(np.concatenate(violations), initial=0.0))
        self.weights = replace(
            weights,
            alpha=weights.alpha + weights.penalty * residuals.first,
            beta=weights.beta + weights.penalty * residuals.second,
            alternatives=weights.alternatives.updated(residuals.missing),
            triangles=replace(weights.triangles, weights=pulls).chosen(pulls > 0),
        )

    def _fit(self, x: Array) -> None:
        """Maximize the Lagrangian itself, fit the dual there, and round its vectors."""
        augmented = self.weights
        used = augmented.triangles.weights > 0
        self.weights = replace(
            augmented,
            penalty=0 * augmented.penalty,
            alternatives=augmented.alternatives.in_cones(self.form.forms.sizes),
            triangles=augmented.triangles.chosen(used),
            rho=0.0,
        )
        final = FINAL_ITERATIONS_WITH_ALTERNATIVES if self.form.trees else FINAL_ITERATIONS
        x = self._ascend(x, final)
        point = self.network.point(x)
        found = fit(self.network, point, self.weights)
        if found is not None and found.bound < self._bound():
            self.best = found
        self.weights = augmented
        self._round_to_slopes(point)
        self.task.budget.progress(
            f"cuts: {augmented.triangles.count} triangles, bound {self._bound():.6g}"
        )

    def _round_to_slopes(self, point: Point) -> None:
        """A lower bound on the POP: slopes by random hyperplanes, then alternating maximization."""
        planes = self.random.standard_normal((self.network.rank, HYPERPLANES))
        same = (point.e @ planes) * (self.network.w @ planes) > 0
        starts = []
        for k in range(HYPERPLANES):
            slopes = []
            begin = 0
            for layer in self.task.problem.layers:
                own = same[begin : begin + layer.size, k]
                slopes.append(np.where(own, layer.upper, layer.lower))
                begin += layer.size
            starts.append(slopes)
        found = alternating(self.task.problem, self.task.budget, starts, restarts=1, shakes=SHAKES)
        self.pop_lower = max(self.pop_lower, found)

    def _report(self) -> UpperBound:
        """The bound, if it is proved and better than the one that was known."""
        proof = None if self.best is None else prove(self.form, self.best)
        status: Status = "time limit" if self.task.seconds_left <= 0 else "complete"
        details = {"triangles": 0 if proof is None else proof.triangles.count}
        if proof is None:
            return UpperBound(float("inf"), status, self.pop_lower, None, details)
        value = up_float(proof.bound + self.task.problem.slack, 1)
        return UpperBound(value, status, self.pop_lower, proof, details)
