"""The dual of Shor's relaxation: multipliers, and a proof that they bound the optimum.

For the derivative problem (problem.py) and any mu > 0, delta >= 0, tau, let S be the symmetric matrix of the quadratic form

    sum_k mu_k w_k^2 - w.C x + sum_j delta_j t_j^2 + sum_a tau_a (z_a - l_a y_a)(z_a - u_a y_a),      x = (t, z),  y = A x

in the variables (t, z, w). If tau >= 0 and S is positive semidefinite, then at every feasible x, where the last sum is <= 0,

    w.C x <= sum_k mu_k w_k^2 + sum_j delta_j t_j^2      for every w, so      |C x| <= mu + sum_j delta_j.

One row, or the Euclidean norm of several: the same mu for all, counted once. delta: one for every input (linf), or one for
all (l2), counted once. For l1, t is one of the unit vectors: S is asked to be positive semidefinite for every input on its
own, without the others, and mu + delta_j is the bound for input j. There |C x| is the sum of the absolute values of rows,
and every row has its own mu. In the same way, multipliers of several rows prove a bound for every row on its own (`every_row`).

S is sparse in blocks, one block for every pair of layers that interact. Eliminating variables from the output to the
input (a block Cholesky factorization) keeps it so, and leaves one condition on the inputs, diag(delta) >= K, which
scaling delta repairs. `fit` finds multipliers that way, in plain floating point. `are_proved` then decides: it factorizes
D S D - shift I = L L^T + R, D a scaling by powers of two, and compares the shift with a bound on |R| and on every rounding
error on the way. It assumes nothing about how well the factorization went, only that matrix products are float64 sums.
Where inputs outnumber all else and slopes begin at 0, the block of the inputs is diagonal, and they are eliminated first.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from .backend import Backend
from .problem import DerivativeProblem, Layer
from .rounding import TINY, Array, gamma, terms, up

Parts: TypeAlias = dict[tuple[int, int], Any]  # blocks (i, j), i >= j, of a symmetric matrix; source numbers, the output last

POWER = 30  # power iterations for the multipliers of one layer
LEAST, LARGEST = 1e-10, 1e3  # the inflations of multipliers that are tried for a block that is not definite
BISECTIONS = 4  # between one that is enough and a tenth of it
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


def best_by_input(proofs: Sequence[Multipliers]) -> dict[int, Multipliers]:
    """For l1, the multipliers with the smallest bound for every input."""
    best = np.argmin([proof.bounds for proof in proofs], axis=0) if proofs else []
    return {j: Multipliers(proofs[k].mu, proofs[k].delta[[j]], proofs[k].tau) for j, k in enumerate(best)}


class Dual:
    """The duals of problems of the same shape, each on its own, or of one problem any number of times; on the backend.

    Arrays have a first axis for the problems: blocks are (problems, n, m), or (1, n, m) where all share them."""

    def __init__(self, problems: Sequence[DerivativeProblem], backend: Backend, every_row: bool = False) -> None:
        first = problems[0]
        self.norm, self.backend, self.count = first.norm, backend, len(problems)
        self.sizes = [*first.sizes, first.outputs]
        self.last = len(self.sizes) - 1
        self.separate = 0 if first.norm == "l1" else self.last if every_row else None  # only the diagonal of its block matters
        self.layers = [_stack_layer([problem.layers[i] for problem in problems], backend) for i in range(len(first.layers))]
        self.objective = {s: backend.stack([problem.objective[s] for problem in problems]) for s in first.objective}
        squares = any(0 in layer.blocks and (layer.lower * layer.upper).any() for p in problems for layer in p.layers)
        self.wide = self.separate != 0 and not squares and first.inputs > sum(self.sizes[1:])  # then inputs are eliminated first
        columns = [m.T for problem in problems for layer in problem.layers for m in layer.blocks.values()]
        self.roundings = max(terms(m.tocsr() if sp.issparse(m) else m) for m in columns) + len(self.sizes) + 8  # in an entry of S

    def only(self, which: Sequence[int]) -> Dual:
        """The duals of some of the problems."""
        chosen = copy(self)
        chosen.count = len(which)
        if len(next(iter(self.objective.values()))) > 1 and chosen.count < self.count:
            index = np.asarray(which)
            chosen.layers = [layer.only(index) for layer in self.layers]
            chosen.objective = {s: m[index] for s, m in self.objective.items()}
        return chosen

    def fit(self, rows: Array, x: Sequence[Any], inflation: Array) -> list[Hint | None]:
        """Multipliers near the best ones for vectors x (by source, feasible), with mu = rows / 4: feasible up to rounding.

        Eliminating everything after layer i leaves a quadratic form in z_i and what comes before. Its maximum over the balls of
        z_i, found by the power method from the given z_i, has multipliers tau_i in closed form. So the errors of one layer do not
        build up in the next. `inflation` makes every block more definite than it has to be. None if a block stayed indefinite."""
        parts: Parts = {}
        self._add_output(parts, rows / 4)
        columns, good = self._eliminate(parts, self.last)
        fitted, inputs = [], [columns[0]] if 0 in columns else []
        larger = self.backend.array(1 + inflation)[:, None]
        for i in range(self.last - 1, 0, -1):
            tau, enough = self._outweigh(parts[i, i], self._best_tau(parts, i, x) * larger, 2.0)
            self._add_layer(parts, i, tau)
            columns, definite = self._eliminate(parts, i)
            inputs += [columns[0]] if 0 in columns else []
            good &= enough & definite
            if not good.any():
                return [None] * self.count
            fitted.append(self.backend.numpy(tau))
        delta, enough = self._enough_delta(parts, inputs, x[0])
        delta = delta * (1 + inflation)[:, None]
        squares = delta if self.separate == 0 else delta.sum(axis=1, keepdims=True)
        good &= enough & ((squares > 0) & (squares < np.inf)).all(axis=1)
        return [
            Hint(squares[k], rows[k], delta[k], [tau[k] for tau in fitted[::-1]], float(inflation[k])) if good[k] else None
            for k in range(self.count)
        ]

    def prove(self, hints: Sequence[Hint], bounds: Sequence[float]) -> list[Multipliers | None]:
        """The multipliers of every hint, scaled to give its bound, if they can be proved.

        For l1 that is the bound for every input that needs no more; the others get a delta that is easy to prove."""
        found = [self._scaled(hint, bound) for hint, bound in zip(hints, bounds, strict=True)]
        return [m if good else None for m, good in zip(found, self.are_proved(found), strict=True)]

    def squares_of_rows(self, hint: Hint) -> Array:
        """The squares of the bounds that multipliers of all rows together give for every row; inf if they give none."""
        parts: Parts = {}
        self._add_output(parts, np.zeros((1, self.sizes[-1])))
        for i, tau in enumerate(hint.tau, start=1):
            self._add_layer(parts, i, self.backend.array(tau[None]))
        _add_diagonal(self._part(parts, 0, 0), self.backend.array(np.broadcast_to(hint.delta, (1, self.sizes[0]))))
        definite = [self._eliminate(parts, k)[1].all() for k in self._order()[:-1]]
        needed = -4 * self.backend.numpy(parts[self.last, self.last])[0]
        return needed * hint.delta.sum() if all(definite) else np.full(self.sizes[-1], np.inf)

    def _scaled(self, hint: Hint, bound: float) -> Multipliers:
        if self.separate == 0:
            delta = np.where(hint.delta <= bound**2 * (1 + 1e-12), np.maximum(hint.delta, bound**2), EASY * hint.delta)
            mu: float | Array = bound / 2 * hint.rows
        else:
            delta, mu = hint.delta, bound / 2
        return Multipliers(mu, delta / (2 * bound), [t / (2 * bound) for t in hint.tau])

    def are_proved(self, multipliers: Sequence[Multipliers]) -> Array:
        """For every problem, whether S is proved positive semidefinite; False means that there is no proof."""
        sizes, array, numpy = self.sizes, self.backend.array, self.backend.numpy
        mu = np.stack([np.broadcast_to(m.mu, sizes[-1]) for m in multipliers])
        delta = np.stack([np.broadcast_to(m.delta, sizes[0]) for m in multipliers])
        tau = [np.stack([m.tau[i] for m in multipliers]) for i in range(len(self.layers))]
        good = np.all([(np.isfinite(m) & (m >= 0)).all(axis=1) for m in (mu, delta, *tau)], axis=0)
        if not good.any():
            return good
        parts: Parts = {}
        self._add_output(parts, mu)
        for i, t in enumerate(tau, start=1):
            self._add_layer(parts, i, array(t))
        _add_diagonal(self._part(parts, 0, 0), array(delta))
        diagonal = [numpy(_diagonal(parts[i, i])) for i in range(len(sizes))]
        good &= np.all([(d > 0).all(axis=1) for d in diagonal], axis=0)
        scale = [array(2.0 ** -np.round(np.log2(np.where(d > 0, d, 1.0)) / 2)) for d in diagonal]
        for (i, j), part in parts.items():
            part *= scale[i] if part.ndim == 2 else scale[i][..., None]
            part *= scale[j] if part.ndim == 2 else scale[j][:, None, :]
        assembly = self._assembly_error(array(mu), array(delta), [array(t) for t in tau], scale)
        size = numpy(sum(_squares(part) * (1 if i == j else 2) for (i, j), part in parts.items())) ** 0.5
        trace = numpy(sum(_diagonal(parts[i, i]).sum(-1) for i in range(len(sizes))))
        products = gamma(sum(sizes) + 4)
        shift = 1.1 * assembly + 3 * products * (trace + size) + sum(sizes) ** 2 * TINY
        for i in range(len(sizes)):
            _add_diagonal(parts[i, i], -array(shift)[:, None])
        factor, definite = self._factor(dict(parts))
        residual, weight = self._residual(parts, factor)
        small = 1.01 * (assembly + residual + products * (weight + size + shift)) + sum(sizes) ** 2 * TINY < shift
        return np.asarray(good & definite & small)

    def _factor(self, parts: Parts) -> tuple[Parts, Array]:
        """The block Cholesky factor: blocks (i, k) of L for every source k and later ones i; and whether there is one."""
        factor: Parts = {}
        good = np.ones(self.count, bool)
        for k in self._order():
            columns, definite = self._eliminate(parts, k)
            factor.update({(i, k): column for i, column in columns.items()})
            good &= definite
        return factor, good

    def _order(self) -> list[int]:
        """In which sources are eliminated: a separate one last, inputs first if they are many, otherwise from the output on."""
        return sorted(range(len(self.sizes)), key=lambda k: (k == self.separate, k > 0 or not self.wide, -k))

    def _residual(self, parts: Parts, factor: Parts) -> tuple[Array, Array]:
        """The Frobenius norm of S - L L^T as computed, and the square of that of L."""
        weight = sum(_squares(part) for part in factor.values())
        square: Any = 0.0
        for i in range(len(self.sizes)):
            for j in range(i + 1):
                shared = [k for k in range(len(self.sizes)) if (i, k) in factor and (j, k) in factor]
                if not shared and (i, j) not in parts:
                    continue
                rest = sum(_product(factor[i, k], factor[j, k], i == j == self.separate) for k in shared)
                rest = parts[i, j] - rest if (i, j) in parts else rest
                square = square + _squares(rest) * (1 if i == j else 2)
        return self.backend.numpy(square) ** 0.5, self.backend.numpy(weight)

    def _assembly_error(self, mu: Any, delta: Any, tau: list[Any], scale: list[Any]) -> Array:
        """Bounds, in the spectral norm, on what rounding did to D S D.

        That is gamma times the largest row sum of all terms of D S D in absolute value."""
        rows = [0.0 * s for s in scale]
        rows[0] += delta * scale[0]
        rows[-1] += mu * scale[-1]
        for s, m in self.objective.items():
            rows[-1] += _times(abs(m), scale[s]) / 2
            rows[s] += _times(abs(m).mT, scale[-1]) / 2
        for i, (layer, t) in enumerate(zip(self.layers, tau, strict=True), start=1):
            middle, product = abs(layer.lower + layer.upper) / 2, abs(layer.lower * layer.upper)
            y = sum((_times(abs(m), scale[s]) for s, m in layer.blocks.items()), 0.0 * t)
            rows[i] += t * (scale[i] + middle * y)
            for s, m in layer.blocks.items():
                rows[s] += _times(abs(m).mT, t * (middle * scale[i] + product * y))
        largest = [self.backend.numpy(s * r).max(axis=1) for s, r in zip(scale, rows, strict=True)]
        return np.asarray(1.01 * gamma(self.roundings) * np.max(largest, axis=0))

    def _part(self, parts: Parts, i: int, j: int) -> Any:
        if (i, j) not in parts:
            diagonal = i == j and (i == self.separate or (i == 0 and self.wide))  # then it is kept as a vector
            shape = (self.count, self.sizes[i]) if diagonal else (self.count, self.sizes[i], self.sizes[j])
            parts[i, j] = self.backend.zeros(shape)
        return parts[i, j]

    def _add_output(self, parts: Parts, mu: Array) -> None:
        _add_diagonal(self._part(parts, self.last, self.last), self.backend.array(mu))
        for s, m in self.objective.items():
            part = self._part(parts, self.last, s)
            part -= m / 2

    def _add_layer(self, parts: Parts, i: int, tau: Any) -> None:
        """The terms tau (z - l y)(z - u y) of one layer."""
        layer = self.layers[i - 1]
        cross = -(tau * ((layer.lower + layer.upper) / 2))[..., None]
        both = layer.lower * layer.upper
        square = (tau * both)[..., None]
        _add_diagonal(self._part(parts, i, i), tau)
        blocks = sorted(layer.blocks.items(), reverse=True)
        for place, (s, m) in enumerate(blocks):
            part = self._part(parts, i, s)
            part += cross * m
            if bool((both != 0).any()):
                for q, other in blocks[place:]:
                    part = self._part(parts, s, q)
                    part += _product(m.mT, (square * other).mT, s == q == self.separate)

    def _eliminate(self, parts: Parts, k: int) -> tuple[dict[int, Any], Array]:
        """Eliminate source k: its columns of L, by source, and whether it is definite; `parts` becomes the Schur complement."""
        diagonal = parts.pop((k, k))
        below = {j: parts.pop((k, j)) for j in range(k) if (k, j) in parts}
        below |= {i: parts.pop((i, k)).mT for i in range(k + 1, len(self.sizes)) if (i, k) in parts}
        if diagonal.ndim == 2:
            root, definite = abs(diagonal) ** 0.5, self.backend.numpy((diagonal > 0).all(-1))
            columns = {j: (part / (root + SMALLEST)[..., None]).mT for j, part in below.items()}
        else:
            root, definite = self.backend.cholesky(diagonal)
            columns = {j: self.backend.solve_lower(root, part).mT for j, part in below.items()}
        for i, left in columns.items():
            for j, right in columns.items():
                if j <= i and not (self.wide and i == 0):
                    parts[i, j] = self._part(parts, i, j) - _product(left, right, i == j == self.separate)
        return {k: root, **columns}, definite

    def _best_tau(self, parts: Parts, i: int, x: Sequence[Any]) -> Any:
        """tau = |g| / (h |y|), g the gradient of the quadratic form at its maximum over the balls of z_i; within limits."""
        layer, numpy, rest = self.layers[i - 1], self.backend.numpy, parts[i, i]
        y = sum(m @ x[s] for s, m in layer.blocks.items())
        center, radius = ((layer.lower + layer.upper) / 2)[..., None] * y, (layer.upper - layer.lower) / 2 * _sizes(y)
        fixed = sum((part @ x[j] for (k, j), part in parts.items() if k == i and j < i), 0.0 * x[i])
        z = x[i]
        for _ in range(POWER):
            g = -(rest @ z + fixed)
            z = center + (radius / (_sizes(g) + SMALLEST))[..., None] * g
        stiff = STIFF * numpy(abs(rest).sum(-1)).max(axis=1, keepdims=True)
        stiff = np.where(stiff > 0, stiff, 1.0)
        tau = numpy(_sizes(rest @ z + fixed) / (radius + SMALLEST))
        positive = np.where(tau > 0, tau, np.nan)
        positive[np.isnan(positive).all(axis=1)] = 1.0
        usual = np.minimum(np.nanmedian(positive, axis=1, keepdims=True), stiff)
        return self.backend.array(np.clip(tau, np.maximum(-numpy(_diagonal(rest)), FLOOR * usual), stiff))

    def _enough_delta(self, parts: Parts, columns: list[Any], t: Any) -> tuple[Array, Array]:
        """delta = |g|, g the gradient of the quadratic form that is left, at its maximum over t; then raised as needed.

        That form is part (0, 0), or - G G^T for `columns` G: diag(delta) - G G^T is as definite as 1 - G^T diag(1 / delta) G."""
        if self.separate == 0:
            return np.maximum(-self.backend.numpy(parts[0, 0]), SMALLEST), np.ones(self.count, bool)
        if self.wide:
            G = self.backend.concatenate(columns, 2)
        for _ in range(POWER):
            g = -(G @ (G.mT @ t)) if self.wide else parts[0, 0] @ t
            sizes = _sizes(g) if self.norm == "linf" else 0 * _sizes(g) + _squares(g)[:, None] ** 0.5
            t = g / -(sizes + SMALLEST)[..., None]
        delta = sizes + FLOOR * sizes.mean(-1)[:, None] + SMALLEST
        if self.wide:
            factor, enough = self._outweigh(-(G.mT @ (G / delta[..., None])), 0 * G[:, 0] + 1, 1.0)
            delta = delta * factor[:, :1]
        else:
            delta, enough = self._outweigh(parts[0, 0], delta, 1.0)
        return self.backend.numpy(delta)[:, : None if self.norm == "linf" else 1], enough

    def _outweigh(self, rest: Any, diagonal: Any, margin: float) -> tuple[Any, Array]:
        """`diagonal`, scaled up by no more than is needed for diag(diagonal) + rest to be positive definite (times `margin`).

        And for every problem whether that was found."""

        def works(inflation: Array) -> Array:
            matrix = 0.5 * (rest + rest.mT)
            _add_diagonal(matrix, diagonal * self.backend.array(1 + inflation)[:, None])
            return self.backend.cholesky(matrix)[1]

        definite = works(np.zeros(self.count))
        if definite.all():
            return diagonal, definite
        found, high = definite.copy(), np.full(self.count, LEAST)
        while not found.all() and high.max() <= LARGEST:
            found |= works(high)
            high = np.where(found, high, 10 * high)
        low = high / 10
        for _ in range(BISECTIONS):
            middle = (low * high) ** 0.5
            good = works(middle)
            low, high = np.where(good, low, middle), np.where(good, middle, high)
        return diagonal * self.backend.array(1 + margin * np.where(definite, 0.0, high))[:, None], found


@dataclass(frozen=True, eq=False)
class _Layers:
    """One layer of all problems."""

    blocks: dict[int, Any]
    lower: Any
    upper: Any

    def only(self, index: Array) -> _Layers:
        return _Layers({s: m[index] for s, m in self.blocks.items()}, self.lower[index], self.upper[index])


def _stack_layer(layers: Sequence[Layer], backend: Backend) -> _Layers:
    blocks = {s: backend.stack([layer.blocks[s] for layer in layers]) for s in layers[0].blocks}
    return _Layers(blocks, *(backend.array(np.stack(ends)) for ends in zip(*((v.lower, v.upper) for v in layers), strict=True)))


def _product(left: Any, right: Any, diagonal: bool) -> Any:
    """left @ right^T, or its diagonal alone. Diagonal matrices are vectors."""
    if right.ndim == 2:
        return left * (right if left.ndim == 2 else right[:, None])
    return (left * right).sum(-1) if diagonal else left @ right.mT


def _times(matrix: Any, vector: Any) -> Any:
    return (matrix @ vector[..., None])[..., 0]


def _diagonal(matrix: Any) -> Any:
    return matrix if matrix.ndim == 2 else matrix.diagonal(0, 1, 2)


def _add_diagonal(matrix: Any, values: Any) -> None:
    if matrix.ndim == 2:
        matrix += values
    else:
        index = np.arange(matrix.shape[1])
        matrix[:, index, index] += values


def _sizes(vectors: Any) -> Any:
    return (vectors * vectors).sum(-1) ** 0.5


def _squares(part: Any) -> Any:
    """The sum of squares, for every problem."""
    return (part * part).reshape(len(part), -1).sum(-1)
