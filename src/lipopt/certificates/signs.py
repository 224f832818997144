"""The rule `signs`: multipliers on a grid, and a factor that proves the dual matrix semidefinite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain, product
from math import isqrt

import numpy as np

from ..errors import LipoptError
from ..methods.sdp.sign_dual import dual_matrix
from ..methods.sdp.signs import SignForm
from ..model.network import Network
from ..numerics.arrays import Array, dense
from ..problem.proofs import Alternatives, SignMultipliers
from ..problem.task import Task
from .differences import Doubts, slack_of
from .dyadic import Rounded, join, round_up
from .factor import factor_lines
from .flat import Flat, flatten, variable_lines

SIGN_BITS = 52  # binary digits of the largest multiplier of a kind
SIGN_LOSS = 1e-4  # the largest loss by rounding, relative
INFLATIONS = (0.0, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 3e-5)  # of the multipliers of squares


def signs_part(
    network: Network, task: Task, proof: SignMultipliers, doubts: Doubts
) -> tuple[list[str], float]:
    """A part with the rule `signs`, and the number that it proves."""
    problem = task.problem
    everyone = [np.zeros(layer.size, bool) for layer in problem.layers]
    flat = flatten(problem, settled=everyone)
    inner = SignForm.of(problem).inner
    form = _form(flat, task, inner)
    scaled = _in_variables(proof, flat, inner)
    doubt = _doubt_by_variable(flat, doubts, inner)
    bound = Fraction(proof.bound)
    for room, inflation in product((doubt, 0 * doubt), INFLATIONS):
        grid = _Grid(_inflated(scaled, inflation * proof.bound / form.signs))
        factor = factor_lines(dual_matrix(form, grid.values), room)
        cost = grid.cost()
        if factor is not None and cost <= bound * (1 + Fraction(SIGN_LOSS)):
            head = ["inputs *", *variable_lines(network, flat), "rule signs"]
            lines = [*head, *grid.lines(problem.inputs, inner), *factor]
            return lines, round_up(cost) + slack_of(network, task, flat)
    raise LipoptError(f"the multipliers could not be rounded with a loss of at most {SIGN_LOSS:g}")


class _Grid:
    """Multipliers on their grids of integers times a power of two."""

    def __init__(self, m: SignMultipliers) -> None:
        self.mu = Rounded.of(np.array([m.mu]), SIGN_BITS)
        self.delta = Rounded.of(m.delta, SIGN_BITS)
        self.eta = Rounded.of(m.eta, SIGN_BITS)
        self.tau = Rounded.of(m.tau, SIGN_BITS)
        self.alpha = Rounded.of(m.alpha, SIGN_BITS)
        self.beta = Rounded.of(m.beta, SIGN_BITS)
        self.triangles = Rounded.of(m.triangles.weights, SIGN_BITS)
        self.alternatives = _rounded_alternatives(m.alternatives)
        self.values = SignMultipliers(
            float(self.mu.values[0]),
            self.eta.values,
            self.delta.values,
            self.tau.values,
            self.alpha.values,
            self.beta.values,
            replace(m.triangles, weights=self.triangles.values),
            replace(m.alternatives, weights=tuple(_symmetric(N) for N in self.alternatives)),
        )

    def cost(self) -> Fraction:
        """The bound that the multipliers prove; one delta for all inputs counts once."""
        total = Fraction(0)
        for part in (self.mu, self.delta, self.eta, self.triangles):
            total += sum(map(int, part.integers)) * Fraction(2) ** part.exponent
        return total

    def lines(self, inputs: int, inner: Array) -> list[str]:
        """The lines of the rule, without the factor."""
        triangles = self.values.triangles
        delta = [*self.delta.integers] * (inputs // len(self.delta.integers))
        lines = [
            f"mu {self.mu}",
            f"delta {join([self.delta.exponent, *delta])}",
            f"eta {self.eta}",
            f"inner {join([len(inner), *inner])}",
            f"tau {self.tau}",
            f"alpha {self.alpha}",
            f"beta {self.beta}",
            f"unit {self.triangles.exponent} 1",
            f"triangles {triangles.count}",
        ]
        patterns = (1 - triangles.signs) @ [1, 0.5]  # (1, 1), (1, -1), (-1, 1), (-1, -1)
        for places, pattern, weight in zip(
            triangles.places, patterns, self.triangles.integers, strict=True
        ):
            lines.append(f"triangle {join([*places, int(pattern), int(weight)])}")
        return lines + self._alternatives_lines()

    def _alternatives_lines(self) -> list[str]:
        """The trees with their multipliers, if there are any."""
        trees = self.values.alternatives.trees
        if not trees:
            return []
        lines = [f"alternatives {len(trees)}"]
        for tree, multipliers in zip(trees, self.alternatives, strict=True):
            lines.append(f"leaves {len(tree)}")
            for leaf in tree:
                lines.append(f"leaf {join([leaf.form, *chain.from_iterable(leaf.path)])}")
            lines.append(f"multipliers {multipliers}")
        return lines


def _rounded_alternatives(alternatives: Alternatives) -> list[Rounded]:
    """The lower triangles of N, row by row; each has been moved into its cone by far more."""
    rounded = []
    for N in alternatives.weights:
        rounded.append(Rounded.of(N[np.tril_indices(len(N))], SIGN_BITS))
    return rounded


def _symmetric(lower: Rounded) -> Array:
    """The matrix with this lower triangle."""
    order = isqrt(2 * len(lower.integers))
    N = np.zeros((order, order))
    rows, columns = np.tril_indices(order)
    N[rows, columns] = lower.values
    N[columns, rows] = lower.values
    return N


def _form(flat: Flat, task: Task, inner: Array) -> SignForm:
    """The problem of the certificate with signs: its variables may be centered."""
    form = SignForm.of(task.problem)
    n = flat.inputs
    kept = np.concatenate([np.arange(n), n + inner])
    C = flat.C[0]
    last = C[n:].copy()
    last[inner] = 0.0
    return SignForm(
        task.problem.norm,
        n,
        dense(flat.A)[:, kept],
        (flat.lower + flat.upper) / 2,
        (flat.upper - flat.lower) / 2,
        C[kept],
        last,
        form.layers,
        form.trees,
    )


def _in_variables(m: SignMultipliers, flat: Flat, inner: Array) -> SignMultipliers:
    """The multipliers of the variables of the certificate: x = middle y + weight z."""
    weights = np.concatenate([group.weight for group in flat.groups])[inner]
    return replace(m, tau=m.tau * weights**2, alpha=m.alpha * weights, beta=m.beta * weights)


def _inflated(m: SignMultipliers, amount: float) -> SignMultipliers:
    """The same, with larger multipliers of squares."""
    return replace(m, mu=m.mu + amount, eta=m.eta + amount, delta=m.delta + amount)


def _doubt_by_variable(flat: Flat, doubts: Doubts, inner: Array) -> Array:
    """By how much the checker may find the slope of each variable different; 0 for signs."""
    parts: Sequence[Array] = [np.zeros(0)]
    for group in flat.groups:
        own = doubts.get(group.layer.node)
        count = len(group.variables)
        parts = [*parts, np.zeros(count) if own is None else own[group.variables]]
    every = np.concatenate(parts)
    return np.concatenate([np.zeros(1), every, np.zeros(flat.inputs), every[inner]])
