"""Cuts: the search for vectors and multipliers of the SDP with signs (see `signs`).

It starts at an optimum of Shor's relaxation. A round adds the most violated triangle inequalities,
ascends in the augmented Lagrangian, moves the multipliers by what is violated, and drops triangles
that are slack. After some rounds the multipliers stay, and the Lagrangian itself is maximized: its
maximum is what these multipliers bound, and there the dual is fitted. It ends when that improves
the bound no further.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import ceil
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
from .sign_dual import fit, prove
from .signs import Point, SignForm, SignNetwork, Weights

# The largest number of variables: the dual is a dense matrix of that order.
MAX_ORDER = 2500
# The number of coordinates of the vectors. With fewer, ascents end where nothing is proved.
RANK = 64
# L-BFGS iterations for Shor's relaxation, in a round, in the last round before the dual is fitted,
# and for the Lagrangian itself.
FIRST_ITERATIONS = 200
ROUND_ITERATIONS = 60
LAST_ITERATIONS = 300
FINAL_ITERATIONS = 200
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
# equations, relative to the share of a neuron in the objective.
TRIANGLE_PENALTY = 0.6
EQUATION_PENALTY = 5.0
# Triangles that are added in a round, relative to the number of signs.
ADDED_TRIANGLES = 4
# Violations that are too small for a triangle to be added.
MIN_VIOLATION = 1e-3
# Pairs times signs that are looked at in one search for violated triangles; where there are more,
# some signs are chosen at random.
MAX_SEPARATION_WORK = 100_000_000
# Noise on the vectors, by which they leave a saddle point of the Lagrangian.
NOISE = 1e-3
# Hyperplanes that round the vectors to slopes, for a lower bound on the POP.
HYPERPLANES = 64


def can_cut(problem: DerivativeProblem, most: int = MAX_ORDER) -> bool:
    """Whether the search takes the problem: one row, not l1, open slopes alone, not too large."""
    if problem.outputs > 1 or problem.norm.is_by_input or not problem.layers:
        return False
    open_slopes = all((layer.half > 0).all() for layer in problem.layers)
    return open_slopes and problem.inputs + 2 * problem.neurons + 1 <= most


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
        self.network = SignNetwork(self.form, min(RANK, self.form.order), scale)
        inner = len(self.form.inner)
        self.weights = Weights(
            scale=np.ones(inner),
            penalty=np.zeros(inner),
            alpha=np.zeros(inner),
            beta=np.zeros(inner),
            triangles=Triangles.none(),
            rho=TRIANGLE_PENALTY / self.form.signs,
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
        x = self._ascend(network.start(self.task.budget.seed), FIRST_ITERATIONS)
        point = network.point(x)
        value = network.value(point)
        if value > 0:
            self.network = SignNetwork(self.form, network.rank, network.scale * value)
        shares = self.network.residuals(x, self.weights).shares
        radii = self.form.half[self.form.inner] * point.lengths
        penalty = EQUATION_PENALTY * shares
        self.weights = replace(self.weights, scale=1 / radii, penalty=penalty)
        return self.network.reflected(point)

    def _ascend(self, x: Array, iterations: int) -> Array:
        """L-BFGS in the augmented Lagrangian."""
        loss = partial(self.network.loss, weights=self.weights)
        return lbfgs.minimize(loss, x, iterations, lambda: self.phase.seconds_left <= 0)[0]

    def _round(self, x: Array, iterations: int) -> Array:
        """An ascent, and new multipliers."""
        x = self._ascend(_flat(self.network.point(x)), iterations)
        self._update(x)
        return x

    def _add_triangles(self, x: Array) -> bool:
        """Add those that are violated most; and whether there were any."""
        units = self.network.units(self.network.point(x))
        more = violated_triangles(units, ADDED_TRIANGLES * self.form.signs, self.random)
        before = self.weights.triangles.count
        joined = _joined(self.weights.triangles, more)
        self.weights = replace(self.weights, triangles=joined)
        return joined.count > before

    def _update(self, x: Array) -> None:
        """Move multipliers by what is violated, and drop triangles whose multiplier is 0."""
        weights = self.weights
        residuals = self.network.residuals(x, weights)
        pulls = np.maximum(0.0, weights.triangles.weights - weights.rho * residuals.sums)
        violations = [np.abs(residuals.first), np.abs(residuals.second), -residuals.sums]
        self.violation = float(np.max(np.concatenate(violations), initial=0.0))
        self.weights = replace(
            weights,
            alpha=weights.alpha + weights.penalty * residuals.first,
            beta=weights.beta + weights.penalty * residuals.second,
            triangles=replace(weights.triangles, weights=pulls).chosen(pulls > 0),
        )

    def _fit(self, x: Array) -> None:
        """Maximize the Lagrangian itself, fit the dual there, and round its vectors."""
        augmented = self.weights
        used = augmented.triangles.weights > 0
        self.weights = replace(
            augmented,
            penalty=0 * augmented.penalty,
            triangles=augmented.triangles.chosen(used),
            rho=0.0,
        )
        noise = NOISE * self.random.standard_normal(len(x))
        x = self._ascend(_flat(self.network.point(x)) + noise, FINAL_ITERATIONS)
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
        found = alternating(self.task.problem, self.task.budget, starts, restarts=1)
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


def _flat(point: Point) -> Array:
    """The vectors of a point, with length 1, as one array."""
    return np.concatenate([point.t, point.e, point.v]).ravel()


def _joined(old: Triangles, new: Triangles) -> Triangles:
    """Old triangles, and those of the new ones that are not among them."""
    both = np.column_stack([old.places, old.signs])
    more = np.column_stack([new.places, new.signs])
    _, first = np.unique(np.concatenate([both, more]), axis=0, return_index=True)
    added = new.chosen(first[first >= old.count] - old.count)
    return Triangles(
        np.concatenate([old.places, added.places]),
        np.concatenate([old.signs, added.signs]),
        np.concatenate([old.weights, added.weights]),
    )


def violated_triangles(units: Array, count: int, random: np.random.Generator) -> Triangles:
    """The most violated triangle inequalities among unit vectors.

    For a pair (j, k) and a sign i before both, with p.q for the products, they are violated by
    |i.j + i.k| - j.k - 1 and by |i.j - i.k| + j.k - 1."""
    products = units @ units.T
    signs = len(units)
    affordable = max(1, MAX_SEPARATION_WORK // signs**2)
    chosen = np.arange(signs - 2)
    if len(chosen) > affordable:
        chosen = random.choice(chosen, affordable, replace=False)
    each = ceil(4 * count / len(chosen))  # for every i, of each of the two kinds
    violations = [np.zeros(0)]
    places = [np.zeros((0, 3), np.int64)]
    kinds = [np.zeros((0, 2))]
    for i in chosen.tolist():
        j, k = np.triu_indices(signs - i - 1, 1)
        j += i + 1
        k += i + 1
        to_j = products[i, j]
        to_k = products[i, k]
        between = products[j, k]
        for same in (1.0, -1.0):  # the product of the signs of i.j and i.k
            amount = np.abs(to_j + same * to_k) - same * between - 1
            best = np.flatnonzero(amount > MIN_VIOLATION)
            if len(best) > each:
                best = best[np.argpartition(-amount[best], each)[:each]]
            first = -np.where(to_j[best] + same * to_k[best] > 0, 1.0, -1.0)
            violations.append(amount[best])
            places.append(np.column_stack([np.full(len(best), i), j[best], k[best]]))
            kinds.append(np.column_stack([first, same * first]))
    order = np.argsort(-np.concatenate(violations), kind="stable")[:count]
    found = np.concatenate(places)[order]
    return Triangles(found, np.concatenate(kinds)[order], np.zeros(len(order)))
