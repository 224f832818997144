"""The vector network: Shor's relaxation of the derivative problem as a smooth problem over unit vectors.

(z_a - l_a y_a)(z_a - u_a y_a) <= 0 says that z_a = s_a y_a with l_a <= s_a <= u_a. Shor's relaxation puts vectors in R^r
in place of the scalars t_j and z_a, and then it says that z_a lies in the ball with diameter [l_a y_a, u_a y_a]:

    z_a = m_a y_a + h_a |y_a| v_a,      m = (l + u) / 2,  h = (u - l) / 2,  |v_a| = 1
    linf: |t_j| = 1 for every j         l2: sum_j |t_j|^2 = 1         l1: t = e_j times a unit vector, for one j
    maximize |C X|, the Frobenius norm (linf, l2), or the sum of the norms of rows (l1)

One evaluation is a forward pass on r columns at once, its gradient a backward pass. With g = d|C X| / dz and d|C X| / dt,
optimality says that every v_a, t_j points along its g: iterating that is the power method, which needs no step length
and gets close. L-BFGS on log |C X| finishes (the logarithm, for deep networks), with every vector scaled to the length
sqrt(|g_a| h_a |y_a|), which brings the Hessian near a multiple of the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from . import ascent
from .backend import Backend
from .problem import DerivativeProblem
from .rounding import Array

Vectors: TypeAlias = dict[int, tuple[Array, Array]]  # by node: its neurons that are variables, and their unit vectors
SMALLEST = 1e-150  # what |y| is kept above, to divide by it
SMALLEST_SHARE = 1e-6  # of one row in the sum over rows
FLOOR = 1e-8  # the smallest length of a scaled vector, relative to their mean
SUBSPACE = 20  # iterations for new coordinates
LEAST_EXCESS = 1e-6  # of an eigenvalue above 1, for it to count
NOISE = 0.1  # added to known unit vectors
NEW_SHARE = 0.1  # squared length of a new coordinate, relative to all others and to the excess of its eigenvalue


@dataclass(frozen=True, eq=False)
class State:
    """One evaluation. Arrays are (n, problems, rank); sizes drop the last axis."""

    values: Any  # |C X| of every problem
    units: list[Any]  # t, then v of every layer
    y: list[Any]
    y_sizes: list[Any]
    gradients: list[Any]  # in t, then in z of every layer
    outputs: Any  # C X


class VectorNetwork:
    """A batch of problems of the same shape; for l1, of inputs `columns` of one problem. The variables are one flat array."""

    def __init__(self, problems: Sequence[DerivativeProblem], backend: Backend, columns: Array | None = None) -> None:
        first = problems[0]
        self.norm, self.inputs, self.outputs, self.backend = first.norm, first.inputs, first.outputs, backend
        self.columns = columns
        self.batch = len(problems) if columns is None else len(columns)
        every = [problem.all_blocks() for problem in problems]
        self.blocks = [{s: backend.operator([blocks[i][s] for blocks in every]) for s in part} for i, part in enumerate(every[0])]
        ends = [
            np.stack([(v.lower, v.upper) for v in layer], axis=-1) for layer in zip(*(p.layers for p in problems), strict=True)
        ]
        self.middle = [backend.array((lower + upper) / 2)[..., None] for lower, upper in ends]
        self.half = [backend.array((upper - lower) / 2) for lower, upper in ends]
        self.free = [first.inputs if columns is None else 0, *first.sizes[1:]]
        self.places = [(0, np.arange(self.free[0])), *((layer.node, layer.neurons) for layer in first.layers)]

    def rank(self, x: Any) -> int:
        return int(x.shape[0]) // (sum(self.free) * self.batch)

    def start(self, rank: int, seed: int, known: Vectors | None = None) -> Any:
        """Random vectors, as one flat array; known ones, with a little noise, in place of the first problem's."""
        x = np.random.default_rng(seed).standard_normal(sum(self.free) * self.batch * rank)
        for view, (node, neurons) in zip(self._views(x), self.places, strict=True):
            if known is not None and node in known:
                _, new, old = np.intersect1d(neurons, known[node][0], assume_unique=True, return_indices=True)
                vectors = known[node][1][old]
                view[new, 0] *= NOISE / np.sqrt(rank)
                view[new, 0, : vectors.shape[1]] += vectors
        return self.backend.array(x)

    def found(self, state: State) -> Vectors:
        """The vectors of the first problem."""
        units = [self.backend.numpy(v[:, 0]) for v in state.units]
        return {node: (neurons, v) for (node, neurons), v in zip(self.places, units, strict=True)}

    def widen(self, x: Any, most: int, seed: int) -> tuple[Any, int]:
        """The same vectors with up to `most` new coordinates in which the value grows; and how many: at an optimum, none.

        A new coordinate changes the value to second order by -S, the quadratic form of the dual. With the lengths of _rescaled
        that is B - 1, B >= 0. Eigenvectors of B above 1, the negative ones of S, are found by applying B to a random subspace."""
        state, x = self.evaluate(x), self._rescaled(x)
        image = self.backend.array(np.random.default_rng(seed).standard_normal((sum(self.free), self.batch, most)))
        for _ in range(SUBSPACE):
            basis = self.backend.orthonormal(image.swapaxes(0, 1)).swapaxes(0, 1)
            image = self._curvature(state, basis)
        excess = self.backend.numpy((basis * image).sum(0)) - 1
        grows = np.nonzero((excess > LEAST_EXCESS).any(axis=0))[0]
        old = x.reshape(len(basis), self.batch, -1)
        size = (old * old).sum(-1).sum(0)[:, None]
        new = basis[:, :, grows] * (NEW_SHARE * size * self.backend.array(np.maximum(excess[:, grows], 0))) ** 0.5
        return self.backend.concatenate([old, new], 2).reshape(-1), len(grows)

    def evaluate(self, x: Any) -> State:
        """The forward and the backward pass."""
        vectors = self._views(x)
        units = [self._directions(vectors[0]), *(v / (_sizes(v) + SMALLEST)[..., None] for v in vectors[1:])]
        values, y, y_sizes = [units[0]], [], []
        for blocks, middle, half, v in zip(self.blocks, self.middle, self.half, units[1:], strict=False):
            y.append(self._apply(blocks, values))
            y_sizes.append(_sizes(y[-1]) + SMALLEST)
            values.append(middle * y[-1] + (half * y_sizes[-1])[..., None] * v)
        outputs = self._apply(self.blocks[-1], values)
        gradients = [0.0 * v for v in values]
        self._apply_transposed(self.blocks[-1], outputs / self._output_sizes(outputs), gradients)
        for i in range(len(y), 0, -1):
            g = gradients[i]
            along = self.half[i - 1] * (g * units[i]).sum(-1) / y_sizes[i - 1]
            self._apply_transposed(self.blocks[i - 1], self.middle[i - 1] * g + along[..., None] * y[i - 1], gradients)
        return State(self._norms(outputs), units, y, y_sizes, gradients, outputs)

    def power(self, x: Any, iterations: int, growth: float = 0.0) -> Any:
        """Every vector along its gradient, again and again, until no value grows by more than this, relatively."""
        values = self.backend.zeros((self.batch,))
        for _ in range(iterations):
            state = self.evaluate(x)
            if bool((state.values <= values * (1 + growth)).all()):
                break
            values = state.values
            along = [g / (_sizes(g) + SMALLEST)[..., None] for g in state.gradients]
            x = self._flat([state.gradients[0] if self.norm == "l2" else along[0], *along[1:]])
        return x

    def ascend(self, x: Any, iterations: int, stop: Callable[[], bool]) -> tuple[Any, bool]:
        """L-BFGS from x, rescaled; and whether it ended at a critical point."""
        return ascent.minimize(self._loss, self._rescaled(x), iterations, stop)

    def weights(self, state: State) -> list[Any]:
        """How much every vector matters: |g| for t, |g| h |y| for v."""
        sizes = [_sizes(g) for g in state.gradients]
        return [sizes[0], *(g * h * y for g, h, y in zip(sizes[1:], self.half, state.y_sizes, strict=True))]

    def vectors(self, state: State) -> list[Any]:
        """t and z, by source, as arrays (problems, n, rank)."""
        parts = zip(self.middle, self.half, state.y, state.y_sizes, state.units[1:], strict=True)
        z = [m * y + (h * size)[..., None] * v for m, h, y, size, v in parts]
        return [x.swapaxes(0, 1) for x in (state.units[0], *z)]

    def rows(self, state: State) -> Array:
        """The weights of the rows of C in every problem: their shares of the sum for l1, otherwise 1."""
        if self.norm != "l1":
            return np.ones((self.batch, self.outputs))
        shares = np.maximum(self.backend.numpy(_sizes(state.outputs) / (state.values + SMALLEST)).T, SMALLEST_SHARE)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def _loss(self, x: Any) -> tuple[float, Any]:
        """- log |C X|, summed over the batch, and its gradient."""
        state = self.evaluate(x)
        lengths = [_sizes(v)[..., None] + SMALLEST for v in self._views(x)]
        factors = [1.0, *((h * y)[..., None] for h, y in zip(self.half, state.y_sizes, strict=True))]
        parts = []
        for i, (g, f, u, length) in enumerate(zip(state.gradients, factors, state.units, lengths, strict=True)):
            g = f * g / state.values[:, None]
            if i > 0 or self.norm == "linf":
                parts.append(((g * u).sum(-1)[..., None] * u - g) / length)
            elif self.norm == "l2":
                parts.append(((g * u).sum(-1).sum(0)[:, None] * u - g) / (length * length).sum(0) ** 0.5)
            else:
                parts.append(u)
        return -float(self.backend.log(state.values).sum()), self._flat(parts)

    def _rescaled(self, x: Any) -> Any:
        state = self.evaluate(x)
        return self._flat([u * length for u, length in zip(state.units, self._lengths(state), strict=True)])

    def _lengths(self, state: State) -> list[Any]:
        """The square roots of the shares of all vectors in the value; 1 for t unless it is made of unit vectors."""
        shares = [w / state.values for w in self.weights(state)]
        lengths = [(share + FLOOR * share.mean(0) + SMALLEST)[..., None] ** 0.5 for share in shares]
        return lengths if self.norm == "linf" else [0.0 * lengths[0] + 1.0, *lengths[1:]]

    def _curvature(self, state: State, new: Any) -> Any:
        """B applied to the vectors of a new coordinate (or several), given with the lengths of _rescaled."""
        lengths, t, *turns = self._lengths(state), *self._views(new.reshape(-1))
        factors = [(h * y)[..., None] / length for h, y, length in zip(self.half, state.y_sizes, lengths[1:], strict=True)]
        values, y = [self.backend.zeros((self.inputs, *new.shape[1:])) if self.columns is not None else t / lengths[0]], []
        for blocks, middle, factor, turn in zip(self.blocks, self.middle, factors, turns, strict=False):
            y.append(self._apply(blocks, values))
            values.append(middle * y[-1] + factor * turn)
        gradients = [0.0 * v for v in values]
        outputs = self._apply(self.blocks[-1], values) / self._output_sizes(state.outputs)
        self._apply_transposed(self.blocks[-1], outputs, gradients)
        for i in range(len(y), 0, -1):
            along = self.half[i - 1] * _sizes(state.gradients[i]) / state.y_sizes[i - 1]
            self._apply_transposed(self.blocks[i - 1], self.middle[i - 1] * gradients[i] + along[..., None] * y[i - 1], gradients)
        parts = [gradients[0] / lengths[0], *(f * g for f, g in zip(factors, gradients[1:], strict=True))]
        return self._flat([part / state.values[:, None] for part in parts]).reshape(new.shape)

    def _directions(self, t: Any) -> Any:
        if self.norm == "linf":
            return t / (_sizes(t) + SMALLEST)[..., None]
        if self.norm == "l2":
            return t / (t * t).sum(-1).sum(0)[:, None] ** 0.5
        fixed = np.zeros((self.inputs, self.batch, t.shape[2]))
        fixed[self.columns, np.arange(self.batch), 0] = 1.0
        return self.backend.array(fixed)

    def _norms(self, outputs: Any) -> Any:
        return _sizes(outputs).sum(0) if self.norm == "l1" else (outputs * outputs).sum(-1).sum(0) ** 0.5

    def _output_sizes(self, outputs: Any) -> Any:
        return (_sizes(outputs) if self.norm == "l1" else self._norms(outputs))[..., None] + SMALLEST

    def _apply(self, blocks: Any, values: list[Any]) -> Any:
        return sum(_times(m, values[s]) for s, (m, _) in blocks.items())

    def _apply_transposed(self, blocks: Any, g: Any, gradients: list[Any]) -> None:
        for s, (_, m) in blocks.items():
            gradients[s] = gradients[s] + _times(m, g)

    def _views(self, x: Any) -> list[Any]:
        """The vectors of t (none if it is fixed) and of every layer."""
        rank = self.rank(x)
        ends = (np.cumsum(self.free) * self.batch * rank).tolist()
        return [x[e - n * self.batch * rank : e].reshape(n, self.batch, rank) for n, e in zip(self.free, ends, strict=True)]

    def _flat(self, parts: list[Any]) -> Any:
        return self.backend.concatenate([p[:n].reshape(-1) for p, n in zip(parts, self.free, strict=True)])


def _times(matrix: Any, vectors: Any) -> Any:
    """One matrix for all problems, or (problems, n, m), one for each."""
    if matrix.ndim == 3:
        return (matrix @ vectors.swapaxes(0, 1)).swapaxes(0, 1)
    return (matrix @ vectors.reshape(len(vectors), -1)).reshape(matrix.shape[0], *vectors.shape[1:])


def _sizes(vectors: Any) -> Any:
    return (vectors * vectors).sum(-1) ** 0.5
