"""A first-order solver for the LPs of degree k, in coordinates where their matrix is an isometry.

    maximize  sum_m p_m y_m    over pseudo-moments y, y_0 = 1, such that every set S of k variables
                               has a distribution mu_S(v) >= 0 on {0,1}^k with those moments

In the Walsh basis (products of 1 - 2x instead of products of x) the moments of one set are the
Walsh transform of its distribution: 2^(k/2) times an orthogonal matrix. Scale moment m by the
square root of the number of sets it occurs in, and the map H from all moments to all
distributions has H'H = 1, so that the primal-dual hybrid gradient method can take the largest
steps there are. The iteration is the reflected Halpern one with restarts (Lu and Yang, "Restarted
Halpern PDHG for linear programming", 2024); its two matrix products are fast transforms, and it
can start anywhere.

Dual: potentials theta_S with constant + sum_S theta_S = p. Any of them prove
p <= constant + sum_S max_v theta_S(v). Those of multipliers c >= 0 are -c plus what is left of p,
shared equally among the sets a moment occurs in: every iterate gives a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..numerics.arrays import Array

# The bound is computed every MAX_CHECK_INTERVAL iterations. In LPs with more than CHECK_ENTRIES
# products, where iterations are slow, it is computed more often in proportion.
MAX_CHECK_INTERVAL = 50
MIN_CHECK_INTERVAL = 5
CHECK_ENTRIES = 400_000

# Restarts, after Lu and Yang. Every RESTART_INTERVAL iterations the residual (how far one step
# moves) is compared with the one right after the last restart.
RESTART_INTERVAL = 10
SUFFICIENT_DECREASE = 0.2  # the residual fell to this share: restart
NECESSARY_DECREASE = 0.8  # it fell to this share and grows again: restart
LONGEST_RUN = 0.36  # no restart for this share of all iterations: restart

OVER_RELAXATION = 1.6  # step length of the projections in `complete`; 1 is a plain projection


@dataclass(frozen=True, eq=False)
class State:
    """Where the iteration stands."""

    moments: Array  # in the Walsh basis
    multipliers: Array  # (2^k, sets)
    weight: float = 0.02  # the ratio between the two step sizes


@dataclass(frozen=True, eq=False)
class Solution:
    """The best potentials that were seen with their bound, and the last state."""

    potentials: Array
    bound: float
    state: State
    iterations: int


def walsh(a: Array) -> Array:
    """The Walsh-Hadamard transform along the first axis, in place."""
    step = 1
    while step < len(a):
        view = a.reshape(len(a) // (2 * step), 2, step, -1)
        total = view[:, 0] + view[:, 1]
        np.subtract(view[:, 0], view[:, 1], out=view[:, 1])
        view[:, 0] = total
        step *= 2
    return a


class Moments:
    """The map H between Walsh moments and distributions.

    `index` (2^k, sets) has the number of each subset's moment; -1 for subsets without one."""

    def __init__(self, index: Array, count: int) -> None:
        self.index = np.where(index < 0, count, index)
        self.flat = self.index.ravel()
        self.count = count
        self.occurrences = np.bincount(self.flat, minlength=count + 1)[:count].astype(np.float64)
        self.root = np.sqrt(self.occurrences)
        self.norm = math.sqrt(len(index))
        self._padded = np.zeros(count + 1)

    def spread(self, values: Array) -> Array:
        """The local functions with these Walsh coefficients, by values at vertices, (2^k, sets)."""
        self._padded[:-1] = values
        return walsh(np.take(self._padded, self.index))

    def gather(self, local: Array) -> Array:
        """The sums over sets of local Walsh transforms; `local` is overwritten."""
        return np.bincount(self.flat, walsh(local).ravel(), self.count + 1)[: self.count]

    def apply(self, z: Array) -> Array:
        """H z."""
        return self.spread(z / (self.root * self.norm))

    def adjoint(self, c: Array) -> Array:
        """H' c."""
        return self.gather(c.copy()) / (self.root * self.norm)


def solve(
    moments: Moments,
    objective: Array,
    start: State | None = None,
    *,
    tolerance: float,
    iterations: int,
    stop: Callable[[float], bool] = lambda bound: False,
) -> Solution:
    """Maximize objective.y, in Walsh coefficients with the constant first.

    Ends when the bound and the value at feasible moments agree up to `tolerance` (relative), when
    `stop(bound)` says so, or after so many iterations."""
    root = moments.root
    scale = _scale(objective, root)
    cost = objective / (root * scale)
    if start is None:
        start = State(np.eye(1, moments.count)[0], np.zeros(moments.index.shape))
    multiplier_scale = moments.norm * scale
    halpern = _Halpern(
        moments, cost, start.moments * root, start.multipliers / multiplier_scale, start.weight
    )
    interval = _check_interval(halpern.c.size)
    best: _Bound | None = None
    done = 0
    while True:
        if done % interval == 0 or done == iterations:
            found = _bound(moments, cost, halpern.c)
            if best is None or found.value < best.value:
                best = found
            if (
                done == iterations
                or _has_converged(halpern, best.value, tolerance)
                or stop(scale * best.value)
            ):
                break
        halpern.advance(done)
        done += 1
    state = State(halpern.z / root, halpern.c * multiplier_scale, halpern.weight)
    return Solution(best.potentials * scale, best.value * scale, state, done)


def _scale(objective: Array, root: Array) -> float:
    """The norm of the scaled objective without its constant; 1 if it is zero."""
    largest = float(np.abs(objective[1:]).max(initial=0.0)) or 1.0
    return largest * math.sqrt(_square(objective[1:] / (largest * root[1:]))) or 1.0


def _check_interval(products: int) -> int:
    """Iterations between two looks at the bound."""
    interval = MAX_CHECK_INTERVAL * CHECK_ENTRIES / max(1, products)
    return int(np.clip(interval, MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL))


@dataclass(frozen=True, eq=False)
class _Bound:
    """A bound of the scaled problem, and the potentials that prove it."""

    value: float
    potentials: Array


def _bound(moments: Moments, cost: Array, c: Array) -> _Bound:
    """The bound that multipliers prove."""
    rest = cost + moments.adjoint(c)
    constant = float(rest[0] * moments.root[0])
    rest[0] = 0.0
    potentials = moments.spread(rest / moments.root) - moments.norm * c
    return _Bound(constant + float(potentials.max(axis=0).sum()), potentials)


def _has_converged(halpern: _Halpern, bound: float, tolerance: float) -> bool:
    """Whether bound and value agree, and the moments are nearly feasible."""
    value = float(halpern.cost @ halpern.z)
    if not bound - value <= tolerance * abs(bound):
        return False
    return _negative_mass(halpern.moments, halpern.z) <= tolerance


def _negative_mass(moments: Moments, z: Array) -> float:
    """The negative mass of the distributions, on average over the sets."""
    local = moments.apply(z)
    return float(-np.minimum(local, 0).sum()) / (moments.norm * max(1, local.shape[1]))


@dataclass(eq=False)
class _Halpern:
    """The reflected Halpern iteration on scaled moments z and scaled multipliers c.

    Every iterate is an average of the reflected step and of the anchor, where the last restart
    was. The step is kept in between: if its arrays were freed in every iteration, the system would
    take their memory back, and clearing it anew costs a tenth of the time."""

    moments: Moments
    cost: Array
    z: Array
    c: Array
    weight: float
    since_restart: int = 0  # iterations
    first_residual: float = 0.0  # right after the last restart
    last_residual: float = 0.0  # at the last test for a restart
    anchor_z: Array = field(init=False)
    anchor_c: Array = field(init=False)
    step_z: Array = field(init=False)
    step_c: Array = field(init=False)

    def __post_init__(self) -> None:
        self.anchor_z = self.z
        self.anchor_c = self.c
        self.step_z = self.z
        self.step_c = self.c

    def advance(self, done: int) -> None:
        """One iteration; `done` were made before, restarts included."""
        self._step()
        if self._is_restart_due(done):
            self._restart()
        else:
            self._average()

    def _step(self) -> None:
        """One step of the primal-dual hybrid gradient method."""
        root = self.moments.root
        uphill = self.z + (self.cost + self.moments.adjoint(self.c)) / self.weight
        self.step_z = np.clip(uphill, -root, root)
        self.step_z[0] = root[0]
        downhill = self.c - self.weight * self.moments.apply(2 * self.step_z - self.z)
        self.step_c = np.maximum(downhill, 0)

    def _is_restart_due(self, done: int) -> bool:
        """Whether to start afresh from the step, by the residuals since the last restart."""
        if self.since_restart % RESTART_INTERVAL != 0:
            return False
        moved_z = _square(self.step_z - self.z)
        moved_c = _square(self.step_c - self.c)
        residual = math.sqrt(self.weight * moved_z + moved_c / self.weight)
        previous = self.last_residual
        self.last_residual = residual
        if self.since_restart == 0:
            self.first_residual = residual
            return False
        return (
            residual <= SUFFICIENT_DECREASE * self.first_residual
            or previous < residual <= NECESSARY_DECREASE * self.first_residual
            or self.since_restart >= LONGEST_RUN * done
        )

    def _restart(self) -> None:
        """Make the step the anchor, and balance the step sizes by how far both parts moved."""
        moved_z = _square(self.step_z - self.anchor_z)
        moved_c = _square(self.step_c - self.anchor_c)
        if moved_z > 0 and moved_c > 0:
            self.weight = math.sqrt(self.weight * math.sqrt(moved_c / moved_z))
        self.anchor_z = self.step_z
        self.anchor_c = self.step_c
        self.z = self.step_z
        self.c = self.step_c
        self.since_restart = 0

    def _average(self) -> None:
        """Reflect the step, and average with the anchor, whose share falls as 1 / iterations."""
        share = (self.since_restart + 1) / (self.since_restart + 2)
        self.z = share * (2 * self.step_z - self.z) + (1 - share) * self.anchor_z
        self.c = share * (2 * self.step_c - self.c) + (1 - share) * self.anchor_c
        self.since_restart += 1


def _square(a: Array) -> float:
    """The sum of squares.

    By einsum: the threads that BLAS starts for a dot product cost more than all the rest."""
    return float(np.einsum("i,i->", a.ravel(), a.ravel()))


def complete(
    moments: Moments, values: Array, known: Array, rounds: int = 10
) -> tuple[Array, Array]:
    """Fill in unknown moments so that the distributions become as non-negative as possible.

    By over-relaxed alternating projections. Returns all moments, and the negative mass that is left
    in every set."""
    z = values * moments.root
    missing = np.flatnonzero(~known)
    for _ in range(rounds):
        local = np.maximum(moments.apply(z), 0)
        z[missing] += OVER_RELAXATION * (moments.adjoint(local) - z)[missing]
    local = moments.apply(z)
    negative_mass = -np.minimum(local, 0).sum(axis=0) / moments.norm
    return z / moments.root, negative_mass
