"""The dual of Shor's relaxation: multipliers, and a proof that they bound the optimum.

For the derivative problem (problem.py) and any mu > 0, delta >= 0, tau, let S be the symmetric matrix of the quadratic form

    sum_k mu_k w_k^2 - w.C x + sum_j delta_j t_j^2 + sum_a tau_a (z_a - l_a y_a)(z_a - u_a y_a),      x = (t, z),  y = A x

in the variables (t, z, w). If tau >= 0 and S is positive semidefinite, then at every feasible x, where the last sum is <= 0,

    w.C x <= sum_k mu_k w_k^2 + sum_j delta_j t_j^2      for every w, so      |C x| <= mu + sum_j delta_j.

One row, or the Euclidean norm of several: the same mu for all, counted once. delta: one for every input (linf), or one for
all (l2), counted once. For l1, t is one of the unit vectors: S is asked to be positive semidefinite for every input on its
own, without the others, and mu + delta_j is the bound for input j. There |C x| is the sum of the absolute values of rows,
and every row has its own mu.

S is sparse in blocks, one block for every pair of layers that interact. Eliminating variables from the output to the
input (a block Cholesky factorization) keeps it so, and leaves one condition on the inputs, diag(delta) >= K, which
scaling delta repairs. `fit` finds multipliers that way, in plain floating point. `is_proved` then decides: it factorizes
D S D - shift I = L L^T + R, D a scaling by powers of two, and compares the shift with a bound on |R| and on every rounding
error on the way. It assumes nothing about how well the factorization went, only that matrix products are float64 sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from .backend import Backend
from .problem import DerivativeProblem
from .rounding import TINY, Array, gamma, terms, up

Parts: TypeAlias = dict[tuple[int, int], Any]  # blocks (i, j), i >= j, of a symmetric matrix; source numbers, the output last

POWER = 30  # power iterations for the multipliers of one layer
LARGEST = 1e3  # give up when a block needs multipliers inflated by more than this
STIFF = 1e5  # tau of a neuron with known slope, relative to what it has to outweigh
FLOOR = 1e-9  # the smallest delta and tau, relative to the usual
EASY = 100.0  # what delta is multiplied by for inputs that a proof is not about
SMALLEST = 1e-150  # what is divided by is kept above this


@dataclass(frozen=True, eq=False)
class Hint:
    """Multipliers in floating point, for mu = rows / 4, and the squares of the bounds they give: one, or for l1 one an input."""

    squares: Array
    rows: Array
    delta: Array
    tau: list[Array]
    inflation: float


@dataclass(frozen=True, eq=False)
class Multipliers:
    """mu, delta and tau (one array a layer) for which S is proved positive semidefinite."""

    mu: float | Array
    delta: Array
    tau: list[Array]

    @property
    def bounds(self) -> Array:
        """mu + sum of delta, rounded up; for l1 (an array mu), sum of mu + delta for every input."""
        total = np.sum(self.mu) + (self.delta if np.ndim(self.mu) else self.delta.sum(keepdims=True))
        return up(total, np.size(self.mu) + self.delta.size)


class Dual:
    """The dual of one problem, its blocks dense and on the backend."""

    def __init__(self, problem: DerivativeProblem, backend: Backend) -> None:
        self.problem, self.backend = problem, backend
        self.blocks = [{s: backend.dense(m) for s, m in layer.blocks.items()} for layer in problem.layers]
        self.objective = {s: backend.dense(m) for s, m in problem.objective.items()}
        self.sizes = [*problem.sizes, problem.outputs]
        self.last = len(self.sizes) - 1
        self.separate = problem.norm == "l1"  # then part (0, 0) is a diagonal, kept as a vector

    def fit(self, rows: Array, x: list[Any], inflation: float) -> Hint | None:
        """Multipliers near the best ones for vectors x (by source, feasible), with mu = rows / 4: feasible up to rounding.

        Eliminating everything after layer i leaves a quadratic form in z_i and what comes before. Its maximum over the balls of
        z_i, found by the power method from the given z_i, has multipliers tau_i in closed form. So the errors of one layer do not
        build up in the next. `inflation` makes every block more definite than it has to be. None if a block stayed indefinite."""
        parts: Parts = {}
        self._add_output(parts, rows / 4)
        if self._eliminate(parts, self.last) is None:
            return None
        fitted = []
        for i in range(self.last - 1, 0, -1):
            tau = self._best_tau(parts, i, x)
            tau = self._outweigh(parts[i, i], tau * (1 + inflation), 2.0)
            if tau is None:
                return None
            self._add_layer(parts, i, tau)
            if self._eliminate(parts, i) is None:
                return None
            fitted.append(self.backend.numpy(tau))
        delta = self._enough_delta(parts[0, 0], x[0])
        if delta is None:
            return None
        delta = delta * (1 + inflation)
        squares = delta if self.separate else delta.sum(keepdims=True)
        good = ((squares > 0) & (squares < np.inf)).all()
        return Hint(squares, rows, delta, fitted[::-1], inflation) if good else None

    def prove(self, hint: Hint, bound: float) -> Multipliers | None:
        """The multipliers of a hint, scaled to give `bound`, if they can be proved.

        For l1 that is the bound for every input that needs no more; the others get a delta that is easy to prove."""
        if self.separate:
            delta = np.where(hint.delta <= bound**2 * (1 + 1e-12), np.maximum(hint.delta, bound**2), EASY * hint.delta)
            mu: float | Array = bound / 2 * hint.rows
        else:
            delta, mu = hint.delta, bound / 2
        found = Multipliers(mu, delta / (2 * bound), [t / (2 * bound) for t in hint.tau])
        return found if self.is_proved(found) else None

    def is_proved(self, multipliers: Multipliers) -> bool:
        """Whether S is proved positive semidefinite; False means that there is no proof."""
        sizes, array = self.sizes, self.backend.array
        mu, delta = np.broadcast_to(multipliers.mu, sizes[-1]), np.broadcast_to(multipliers.delta, sizes[0])
        if not all(np.isfinite(m).all() and (m >= 0).all() for m in (mu, delta, *multipliers.tau)):
            return False
        parts: Parts = {}
        self._add_output(parts, mu)
        for i, tau in enumerate(multipliers.tau, start=1):
            self._add_layer(parts, i, array(tau))
        _add_diagonal(self._part(parts, 0, 0), array(delta))
        diagonal = [self.backend.numpy(_diagonal(parts[i, i])) for i in range(len(sizes))]
        if not all((d > 0).all() for d in diagonal):
            return False
        scale = [2.0 ** -np.round(np.log2(d) / 2) for d in diagonal]
        for (i, j), part in parts.items():
            part *= array(scale[i]) if part.ndim == 1 else array(scale[i])[:, None]
            part *= array(scale[j])
        assembly = self._assembly_error(mu, delta, multipliers.tau, scale)
        size = sum(float((part * part).sum()) * (1 if i == j else 2) for (i, j), part in parts.items()) ** 0.5
        trace = sum(float(_diagonal(parts[i, i]).sum()) for i in range(len(sizes)))
        products = gamma(sum(sizes) + 4)
        shift = 1.1 * assembly + 3 * products * (trace + size) + sum(sizes) ** 2 * TINY
        for i in range(len(sizes)):
            _add_diagonal(parts[i, i], -shift)
        factor = self._factor(dict(parts))
        if factor is None:
            return False
        residual, weight = self._residual(parts, factor)
        return bool(1.01 * (assembly + residual + products * (weight + size + shift)) + sum(sizes) ** 2 * TINY < shift)

    def _factor(self, parts: Parts) -> Parts | None:
        """The block Cholesky factor, eliminating the output first: blocks (i, k), k >= i, of L."""
        factor: Parts = {}
        for k in range(self.last, -1, -1):
            columns = self._eliminate(parts, k)
            if columns is None:
                return None
            factor.update({(i, k): column for i, column in columns.items()})
        return factor

    def _residual(self, parts: Parts, factor: Parts) -> tuple[float, float]:
        """The Frobenius norm of S - L L^T as computed, and the square of that of L."""
        weight = sum(float((part * part).sum()) for part in factor.values())
        square = 0.0
        for i in range(len(self.sizes)):
            for j in range(i + 1):
                shared = [k for k in range(i, self.last + 1) if (i, k) in factor and (j, k) in factor]
                if not shared and (i, j) not in parts:
                    continue
                rest = sum(_product(factor[i, k], factor[j, k], self.separate and i == 0) for k in shared)
                rest = parts[i, j] - rest if (i, j) in parts else rest
                square += float((rest * rest).sum()) * (1 if i == j else 2)
        return square**0.5, weight

    def _assembly_error(self, mu: Array, delta: Array, tau: list[Array], scale: list[Array]) -> float:
        """A bound, in the spectral norm, on what rounding did to D S D.

        That is gamma times the largest row sum of all terms of D S D in absolute value."""
        rows = [np.zeros(n) for n in self.sizes]
        rows[0] += delta * scale[0]
        rows[-1] += mu * scale[-1]
        for s, m in self.problem.objective.items():
            rows[-1] += abs(m) @ scale[s] / 2
            rows[s] += abs(m).T @ scale[-1] / 2
        count = 0
        for i, (layer, t) in enumerate(zip(self.problem.layers, tau, strict=True), start=1):
            middle, product = np.abs(layer.lower + layer.upper) / 2, np.abs(layer.lower * layer.upper)
            y = sum((abs(m) @ scale[s] for s, m in layer.blocks.items()), np.zeros(layer.size))
            rows[i] += t * (scale[i] + middle * y)
            for s, m in layer.blocks.items():
                rows[s] += abs(m).T @ (t * (middle * scale[i] + product * y))
                count = max(count, terms(m.T.tocsr() if hasattr(m, "tocsr") else m.T))
        roundings = count + len(self.sizes) + 8
        return 1.01 * gamma(roundings) * max(float((s * r).max()) for s, r in zip(scale, rows, strict=True))

    def _part(self, parts: Parts, i: int, j: int) -> Any:
        if (i, j) not in parts:
            diagonal = self.separate and i == 0
            parts[i, j] = self.backend.zeros((self.sizes[i],) if diagonal else (self.sizes[i], self.sizes[j]))
        return parts[i, j]

    def _add_output(self, parts: Parts, mu: Array) -> None:
        _add_diagonal(self._part(parts, self.last, self.last), self.backend.array(mu))
        for s, m in self.objective.items():
            parts[self.last, s] = m / -2

    def _add_layer(self, parts: Parts, i: int, tau: Any) -> None:
        """The terms tau (z - l y)(z - u y) of one layer."""
        layer, array = self.problem.layers[i - 1], self.backend.array
        cross = -(tau * array((layer.lower + layer.upper) / 2))[:, None]
        square = (tau * array(layer.lower * layer.upper))[:, None]
        _add_diagonal(self._part(parts, i, i), tau)
        blocks = sorted(self.blocks[i - 1].items(), reverse=True)
        for place, (s, m) in enumerate(blocks):
            self._part(parts, i, s)
            parts[i, s] += cross * m
            if np.any(layer.lower * layer.upper):
                for q, other in blocks[place:]:
                    self._part(parts, s, q)
                    parts[s, q] += _product(m.T, (square * other).T, self.separate and s == 0)

    def _eliminate(self, parts: Parts, k: int) -> dict[int, Any] | None:
        """Eliminate source k: its columns of L, by source; `parts` becomes the Schur complement. None if k is not definite."""
        diagonal = parts.pop((k, k))
        if diagonal.ndim == 1:
            return {k: diagonal**0.5} if bool((diagonal > 0).all()) else None
        root = self.backend.cholesky(diagonal)
        if root is None:
            return None
        columns = {j: self.backend.solve_lower(root, parts.pop((k, j))).T for j in range(k) if (k, j) in parts}
        for i, left in columns.items():
            for j, right in columns.items():
                if j <= i:
                    parts[i, j] = self._part(parts, i, j) - _product(left, right, self.separate and i == 0)
        return {k: root, **columns}

    def _best_tau(self, parts: Parts, i: int, x: list[Any]) -> Any:
        """tau = |g| / (h |y|), g the gradient of the quadratic form at its maximum over the balls of z_i; within limits."""
        layer, array, rest = self.problem.layers[i - 1], self.backend.array, parts[i, i]
        y = sum(m @ x[s] for s, m in self.blocks[i - 1].items())
        center, radius = array((layer.lower + layer.upper) / 2)[:, None] * y, array((layer.upper - layer.lower) / 2) * _sizes(y)
        fixed = sum((part @ x[j] for (k, j), part in parts.items() if k == i and j < i), 0.0 * x[i])
        z = x[i]
        for _ in range(POWER):
            g = -(rest @ z + fixed)
            z = center + (radius / (_sizes(g) + SMALLEST))[:, None] * g
        needed = -rest.diagonal()
        stiff = STIFF * float(abs(rest).sum(1).max())
        tau = self.backend.numpy(_sizes(rest @ z + fixed) / (radius + SMALLEST))
        usual = min(float(np.median(tau)), stiff)
        return array(np.clip(tau, np.maximum(self.backend.numpy(needed), FLOOR * usual), stiff))

    def _enough_delta(self, rest: Any, t: Any) -> Array | None:
        """delta = |g|, g the gradient of the quadratic form that is left, at its maximum over t; then raised as needed."""
        if self.separate:
            return np.maximum(-self.backend.numpy(rest), SMALLEST)
        for _ in range(POWER):
            g = rest @ t
            sizes = _sizes(g) if self.problem.norm == "linf" else 0 * _sizes(g) + (g * g).sum() ** 0.5
            t = g / -(sizes + SMALLEST)[:, None]
        enough = self._outweigh(rest, sizes + FLOOR * sizes.mean() + SMALLEST, 1.0)
        if enough is None:
            return None
        return self.backend.numpy(enough)[: None if self.problem.norm == "linf" else 1]

    def _outweigh(self, rest: Any, diagonal: Any, margin: float) -> Any | None:
        """`diagonal`, scaled up by no more than is needed for diag(diagonal) + rest to be positive definite (times `margin`)."""

        def works(inflation: float) -> bool:
            matrix = 0.5 * (rest + rest.T)
            _add_diagonal(matrix, diagonal * (1 + inflation))
            return self.backend.cholesky(matrix) is not None

        if works(0.0):
            return diagonal
        high = 1e-10
        while not works(high):
            high *= 10
            if not high <= LARGEST:
                return None
        low = high / 10
        while high > 1.3 * low:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if works(middle) else (middle, high)
        return diagonal * (1 + margin * high)


def _product(left: Any, right: Any, diagonal: bool) -> Any:
    """left @ right.T, or its diagonal alone."""
    return (left * right).sum(-1) if diagonal and left.ndim > 1 else left * right if diagonal else left @ right.T


def _diagonal(matrix: Any) -> Any:
    return matrix if matrix.ndim == 1 else matrix.diagonal()


def _add_diagonal(matrix: Any, values: Any) -> None:
    if matrix.ndim == 1:
        matrix += values
    else:
        index = np.arange(matrix.shape[0])
        matrix[index, index] += values


def _sizes(vectors: Any) -> Any:
    return (vectors * vectors).sum(-1) ** 0.5
