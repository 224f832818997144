"""A first-order solver for the LPs of degree k, in the coordinates where their matrix is an isometry.

    maximize  sum_m p_m y_m    over pseudo-moments y, y_0 = 1, such that every set S of k variables has a distribution
                               mu_S(v) >= 0 on {0,1}^k with those moments

In the Walsh basis (products of 1 - 2x instead of products of x) the moments of one set are the Walsh transform of its
distribution: 2^(k/2) times an orthogonal matrix. Scale moment m by the square root of the number of sets it occurs in, and the
map H from all moments to all distributions has H'H = 1, so that the primal-dual hybrid gradient method can take the largest
steps there are. The iteration is the reflected Halpern one with restarts (Lu and Yang, "Restarted Halpern PDHG for linear
programming", 2024); its two matrix products are fast transforms, and it can start anywhere.

Dual: potentials theta_S with constant + sum_S theta_S = p. Any of them prove p <= constant + sum_S max_v theta_S(v). Those of
multipliers c >= 0 are -c plus what is left of p, shared equally among the sets a moment occurs in: every iterate gives a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rounding import Array

CHECK = 50  # iterations between two looks at the bound, fewer where they are slow
STEP = 10  # iterations between two tests for a restart


@dataclass(frozen=True, eq=False)
class State:
    """Where the iteration stands: Walsh moments, multipliers (2^k, sets), and the weight between the two step sizes."""

    moments: Array
    multipliers: Array
    weight: float = 0.02


@dataclass(frozen=True, eq=False)
class Solution:
    """The best potentials seen, their bound, and the last state; `objective` is the value at its moments, near the optimum."""

    potentials: Array
    constant: float
    bound: float
    objective: float
    state: State
    converged: bool
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
    """The map H between Walsh moments and distributions. `index` (2^k, sets) says where each subset's moment is; -1: nowhere."""

    def __init__(self, index: Array, count: int) -> None:
        self.index = np.where(index < 0, count, index)
        self.flat = self.index.ravel()
        self.count = count
        self.occurrences = np.bincount(self.flat, minlength=count + 1)[:count].astype(np.float64)
        self.root = np.sqrt(self.occurrences)
        self.norm = math.sqrt(len(index))
        self._padded = np.zeros(count + 1)

    def spread(self, values: Array) -> Array:
        """The local functions with the given Walsh coefficients: values at the vertices, (2^k, sets)."""
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
    """Maximize objective.y (Walsh coefficients, constant first) until bound and value agree, `stop(bound)`, or iterations end."""
    root, norm = moments.root, moments.norm
    largest = float(np.abs(objective[1:]).max(initial=0.0)) or 1.0
    scale = largest * math.sqrt(_square(objective[1:] / (largest * root[1:]))) or 1.0
    cost = objective / (root * scale)
    start = start or State(np.eye(1, moments.count)[0], np.zeros(moments.index.shape))
    z, c, weight = start.moments * root, start.multipliers / (norm * scale), start.weight
    anchor_z, anchor_c, inner = z, c, 0
    first = previous = 0.0
    check = int(np.clip(CHECK * 400_000 / max(1, c.size), 5, CHECK))
    best: tuple[float, Any, float] = (math.inf, None, 0.0)
    for k in range(iterations + 1):
        if k % check == 0 or k == iterations:
            potentials, constant = _potentials(moments, cost, c)
            bound = constant + float(potentials.max(axis=0).sum())
            if bound < best[0]:
                best = (bound, potentials, constant)
            value = float(cost @ z)
            converged = best[0] - value <= tolerance * abs(best[0]) and _infeasible(moments, z) <= tolerance
            if converged or k == iterations or stop(scale * best[0]):
                break
        new_z = np.clip(z + (cost + moments.adjoint(c)) / weight, -root, root)
        new_z[0] = root[0]
        new_c = np.maximum(c - weight * moments.apply(2 * new_z - z), 0)
        restart = False
        if inner % STEP == 0:
            residual = math.sqrt(weight * _square(new_z - z) + _square(new_c - c) / weight)
            if inner:
                restart = residual <= 0.2 * first or previous < residual <= 0.8 * first or inner >= 0.36 * k
            else:
                first = residual
            previous = residual
        if restart:
            moved_z, moved_c = _square(new_z - anchor_z), _square(new_c - anchor_c)
            if moved_z > 0 and moved_c > 0:
                weight = math.sqrt(weight * math.sqrt(moved_c / moved_z))
            anchor_z, anchor_c, z, c, inner = new_z, new_c, new_z, new_c, 0
        else:
            share = (inner + 1) / (inner + 2)
            z = share * (2 * new_z - z) + (1 - share) * anchor_z
            c = share * (2 * new_c - c) + (1 - share) * anchor_c
            inner += 1
    state = State(z / root, c * (norm * scale), weight)
    bound, potentials, constant = best
    return Solution(potentials * scale, constant * scale, bound * scale, value * scale, state, converged, k)


def _potentials(moments: Moments, cost: Array, c: Array) -> tuple[Array, float]:
    rest = cost + moments.adjoint(c)
    constant = float(rest[0] * moments.root[0])
    rest[0] = 0.0
    return moments.spread(rest / moments.root) - moments.norm * c, constant


def _infeasible(moments: Moments, z: Array) -> float:
    """The negative mass of the distributions, on average."""
    local = moments.apply(z)
    return float(-np.minimum(local, 0).sum()) / (moments.norm * max(1, local.shape[1]))


def _square(a: Array) -> float:
    """The sum of squares; einsum, as threads that BLAS starts for a dot product cost more than all the rest."""
    return float(np.einsum("i,i->", a.ravel(), a.ravel()))


def complete(moments: Moments, values: Array, known: Array, rounds: int = 10) -> tuple[Array, Array]:
    """Fill in the moments that are not known so that distributions become non-negative, by over-relaxed alternating projections.

    Returns the moments and the negative mass that is left in every set."""
    z = values * moments.root
    missing = np.flatnonzero(~known)
    for _ in range(rounds):
        local = np.maximum(moments.apply(z), 0)
        z[missing] += 1.6 * (moments.adjoint(local) - z)[missing]
    local = moments.apply(z)
    return z / moments.root, -np.minimum(local, 0).sum(axis=0) / moments.norm
