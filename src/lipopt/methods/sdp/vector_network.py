"""The vector network: Shor's relaxation of the derivative problem as a smooth problem.

The constraint (z_a - l_a y_a)(z_a - u_a y_a) <= 0 says that z_a = s_a y_a with l_a <= s_a <= u_a.
Shor's relaxation puts vectors in R^r in place of the scalars t_j and z_a. Then the constraint says
that z_a lies in the ball with diameter [l_a y_a, u_a y_a]:

    z_a = m_a y_a + h_a |y_a| v_a,      m = (l + u) / 2,  h = (u - l) / 2,  |v_a| = 1

    linf:  |t_j| = 1 for every j
    l2:    sum_j |t_j|^2 = 1
    l1:    t = e_j times a unit vector, for one j

    maximize |C X|, the Frobenius norm, or the sum of the norms of rows (l1 on the outputs)

One evaluation is a forward pass on r columns at once, its gradient a backward pass. With g the
gradient of |C X| in z and in t, optimality says that every v_a and t_j points along its g.
Iterating that is the power method, which needs no step length and gets close. L-BFGS on log |C X|
finishes; the logarithm is for deep networks. Every vector is scaled to the length
sqrt(|g_a| h_a |y_a|), which brings the Hessian near a multiple of the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...model.norms import Norm
from ...numerics.arrays import Array
from ...problem.derivative import DerivativeProblem, Layer
from ...solvers import lbfgs
from .backend import Backend, Operator, sizes

Operators: TypeAlias = Mapping[int, Operator]  # blocks of A or C, by source

# Added to lengths before dividing by them, so that nothing is divided by 0.
MIN_LENGTH = 1e-150
# The smallest share of one row in the sum over rows. The dual divides by shares.
MIN_ROW_SHARE = 1e-6
# Added to the share of a vector in the value, relative to the mean share of its layer: vectors
# that do not matter yet must be able to turn.
MIN_RELATIVE_SHARE = 1e-8
# Subspace iterations that find new coordinates. They need not be exact eigenvectors.
SUBSPACE_ITERATIONS = 20
# How far above 1 an eigenvalue must be for its coordinate to count as a direction of growth.
MIN_EXCESS = 1e-6
# The squared length of a new coordinate, relative to all others and to its eigenvalue's excess.
NEW_COORDINATE_SHARE = 0.1
# The length of the noise added to known unit vectors: it lets them leave the optimum of another
# problem.
KNOWN_VECTOR_NOISE = 0.1


class KnownVectors(NamedTuple):
    """Unit vectors of neurons of one node, kept from a problem that was solved before."""

    neurons: Array  # their places in the node
    vectors: Array  # (neurons, rank)


Vectors: TypeAlias = dict[int, KnownVectors]  # by node; the input is node 0


class Place(NamedTuple):
    """Which neurons of the network the vectors of one source belong to."""

    node: int
    neurons: Array


@dataclass(frozen=True, eq=False)
class VectorLayer:
    """One layer of all problems, in arrays of the backend: z = m y + h |y| v."""

    blocks: Operators  # what y is computed from
    middle: Any  # m, (n, problems, 1): it multiplies vectors
    half: Any  # h, (n, problems): it multiplies sizes

    @staticmethod
    def of(layers: Sequence[Layer], backend: Backend) -> VectorLayer:
        """The same layer of several problems."""
        middle = np.stack([layer.middle for layer in layers], axis=-1)
        half = np.stack([layer.half for layer in layers], axis=-1)
        blocks = _operators([layer.blocks for layer in layers], backend)
        return VectorLayer(blocks, backend.array(middle)[..., None], backend.array(half))

    @property
    def size(self) -> int:
        return int(self.half.shape[0])


@dataclass(frozen=True, eq=False)
class State:
    """One evaluation. Arrays are (n, problems, rank); sizes drop the last axis."""

    values: Any  # |C X| of every problem
    units: list[Any]  # t, then v of every layer
    y: list[Any]  # of every layer
    y_sizes: list[Any]  # |y| of every layer
    gradients: list[Any]  # of |C X|: in t, then in z of every layer
    outputs: Any  # C X

    @property
    def rank(self) -> int:
        """The number of coordinates of the vectors."""
        return int(self.units[0].shape[2])


@dataclass(frozen=True, eq=False)
class _Forward:
    """What the forward pass computes."""

    x: list[Any]  # t, then z of every layer
    y: list[Any]
    y_sizes: list[Any]
    outputs: Any


class VectorNetwork:
    """A batch of problems of the same shape; for l1, of some inputs of one problem or of several.

    The variables are one flat array. `VectorNetwork.of` makes a vector network from derivative
    problems. The constructor takes arrays of the backend: torch tensors may carry gradients, and
    then the values of `evaluate` can be differentiated in the weights."""

    def __init__(
        self,
        norm: Norm,
        inputs: int,
        layers: Sequence[VectorLayer],
        objective: Operators,
        backend: Backend,
        *,
        adds_outputs: bool = False,
        columns: Array | None = None,
        places: Sequence[Place] = (),
    ) -> None:
        """`adds_outputs`: whether the norms of rows of C X add up.

        `columns`: for l1, the one input of every problem that is not 0.
        `places`: the neurons of t and of every layer, by which known vectors are recognized."""
        self.norm = norm
        self.inputs = inputs
        self.layers = list(layers)
        self.objective = objective
        self.backend = backend
        self.adds_outputs = adds_outputs
        self.columns = columns
        self.places = list(places)
        neurons = [layer.size for layer in self.layers]
        if columns is None:
            # A problem without neurons is alone.
            self.batch = int(self.layers[0].half.shape[1]) if self.layers else 1
            self.free = [inputs, *neurons]  # the number of vectors of each source to be found
        else:
            self.batch = len(columns)
            self.free = [0, *neurons]

    @staticmethod
    def of(
        problems: Sequence[DerivativeProblem], backend: Backend, columns: Array | None = None
    ) -> VectorNetwork:
        """The vector network of problems of the same shape.

        For l1 with `columns`: of each of these inputs of one problem, or of one input of each."""
        first = problems[0]
        layers = []
        for same in zip(*(problem.layers for problem in problems), strict=True):
            layers.append(VectorLayer.of(same, backend))
        objective = _operators([problem.objective for problem in problems], backend)
        places = [Place(0, np.arange(first.inputs if columns is None else 0))]
        for layer in first.layers:
            places.append(Place(layer.node, layer.neurons))
        return VectorNetwork(
            first.norm,
            first.inputs,
            layers,
            objective,
            backend,
            adds_outputs=first.adds_outputs,
            columns=columns,
            places=places,
        )

    @property
    def outputs(self) -> int:
        """The number of rows of C."""
        block = next(iter(self.objective.values()))
        return int(block.matrix.shape[-2])

    def rank(self, x: Any) -> int:
        """The number of coordinates of the vectors in a flat array."""
        return int(x.shape[0]) // (sum(self.free) * self.batch)

    def start(self, rank: int, seed: int, known: Vectors | None = None) -> Any:
        """Random vectors, as one flat array.

        Known vectors, with a little noise, replace those of the same neurons in the first
        problem."""
        x = np.random.default_rng(seed).standard_normal(sum(self.free) * self.batch * rank)
        if known is not None:
            self._insert_known(x, known)
        return self.backend.array(x)

    def found(self, state: State) -> Vectors:
        """The vectors of the first problem, to start a similar problem from."""
        vectors = {}
        for place, units in zip(self.places, state.units, strict=True):
            first = self.backend.numpy(units[:, 0])
            vectors[place.node] = KnownVectors(place.neurons, first)
        return vectors

    def widen(self, x: Any, most: int, seed: int) -> tuple[Any, int]:
        """The same vectors with new coordinates in which the value grows, and how many there are.

        There are at most `most`, and none at an optimum. A new coordinate changes the value to
        second order by -S, the quadratic form of the dual. With the lengths of `_lengths` that is
        B - 1, B >= 0. Eigenvectors of B above 1, the negative ones of S, are found by applying B
        to a random subspace."""
        state = self.evaluate(x)
        old = self._rescaled(state).reshape(sum(self.free), self.batch, -1)
        random = np.random.default_rng(seed).standard_normal((sum(self.free), self.batch, most))
        image = self.backend.array(random)
        for _ in range(SUBSPACE_ITERATIONS):
            basis = self.backend.orthonormal(image.swapaxes(0, 1)).swapaxes(0, 1)
            image = self._curvature(state, basis)
        excess = self.backend.numpy((basis * image).sum(0)) - 1
        grows = np.nonzero((excess > MIN_EXCESS).any(axis=0))[0]
        size = (old * old).sum(-1).sum(0)[:, None]
        growth = self.backend.array(np.maximum(excess[:, grows], 0))
        new = basis[:, :, grows] * (NEW_COORDINATE_SHARE * size * growth) ** 0.5
        return self.backend.concatenate([old, new], 2).reshape(-1), len(grows)

    def evaluate(self, x: Any) -> State:
        """The forward and the backward pass."""
        units = self._units(x)
        forward = self._pass_forward(units)
        return State(
            values=self._norms(forward.outputs),
            units=units,
            y=forward.y,
            y_sizes=forward.y_sizes,
            gradients=self._pass_backward(units, forward),
            outputs=forward.outputs,
        )

    def power(
        self,
        x: Any,
        iterations: int,
        growth: float = 0.0,
        stop: Callable[[], bool] = lambda: False,
    ) -> Any:
        """The power method: turn every vector along its gradient, again and again.

        It ends when no value grows by more than `growth`, relatively."""
        values = self.backend.zeros((self.batch,))
        for _ in range(iterations):
            if stop():
                break
            state = self.evaluate(x)
            if bool((state.values <= values * (1 + growth)).all()):
                break
            values = state.values
            along = [_normalized(g) for g in state.gradients]
            if self.norm is Norm.L2:
                along[0] = state.gradients[0]
            x = self._flat(along)
        return x

    def ascend(self, x: Any, iterations: int, stop: Callable[[], bool]) -> tuple[Any, bool]:
        """L-BFGS from x, rescaled; and whether it ended at a critical point."""
        start = self._rescaled(self.evaluate(x))
        return lbfgs.minimize(self._loss, start, iterations, stop)

    def weights(self, state: State) -> list[Any]:
        """How much every vector matters: |g| for t, |g| h |y| for v."""
        weights = [sizes(state.gradients[0])]
        for layer, y_size, g in zip(self.layers, state.y_sizes, state.gradients[1:], strict=True):
            weights.append(sizes(g) * layer.half * y_size)
        return weights

    def vectors(self, state: State) -> list[Any]:
        """t and z, by source, as arrays (problems, n, rank)."""
        vectors = [state.units[0].swapaxes(0, 1)]
        for layer, y, y_size, v in zip(
            self.layers, state.y, state.y_sizes, state.units[1:], strict=True
        ):
            z = layer.middle * y + (layer.half * y_size)[..., None] * v
            vectors.append(z.swapaxes(0, 1))
        return vectors

    def rows(self, state: State) -> Array:
        """The weights of the rows of C in every problem: their shares of a sum of norms, else 1."""
        if not self.adds_outputs:
            return np.ones((self.batch, self.outputs))
        exact = self.backend.numpy(sizes(state.outputs) / (state.values + MIN_LENGTH)).T
        shares = np.maximum(exact, MIN_ROW_SHARE)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def _insert_known(self, x: Array, known: Vectors) -> None:
        """Put known vectors in place of random ones, which become the noise on them."""
        rank = self.rank(x)
        for view, place in zip(self._views(x), self.places, strict=True):
            if place.node not in known:
                continue
            _, new, old = np.intersect1d(
                place.neurons, known[place.node].neurons, assume_unique=True, return_indices=True
            )
            vectors = known[place.node].vectors[old]
            view[new, 0] *= KNOWN_VECTOR_NOISE / np.sqrt(rank)
            view[new, 0, : vectors.shape[1]] += vectors

    def _units(self, x: Any) -> list[Any]:
        """t and v: the variables, scaled to the lengths that the norm asks for."""
        vectors = self._views(x)
        units = [self._directions(vectors[0])]
        for v in vectors[1:]:
            units.append(_normalized(v))
        return units

    def _directions(self, t: Any) -> Any:
        """The vectors t of a point of the norm's unit ball."""
        if self.norm.bounds_each_input:
            return _normalized(t)
        if self.norm is Norm.L2:
            return t / (t * t).sum(-1).sum(0)[:, None] ** 0.5
        fixed = np.zeros((self.inputs, self.batch, t.shape[2]))
        fixed[self.columns, np.arange(self.batch), 0] = 1.0
        return self.backend.array(fixed)

    def _pass_forward(self, units: list[Any]) -> _Forward:
        x = [units[0]]
        y = []
        y_sizes = []
        for layer, v in zip(self.layers, units[1:], strict=True):
            y_now = _apply(layer.blocks, x)
            size = sizes(y_now) + MIN_LENGTH
            x.append(layer.middle * y_now + (layer.half * size)[..., None] * v)
            y.append(y_now)
            y_sizes.append(size)
        return _Forward(x, y, y_sizes, _apply(self.objective, x))

    def _pass_backward(self, units: list[Any], forward: _Forward) -> list[Any]:
        """The gradient of |C X| in t, then in z of every layer."""
        gradients = [0.0 * values for values in forward.x]
        outputs = forward.outputs / self._output_sizes(forward.outputs)
        _apply_transposed(self.objective, outputs, gradients)
        for i in range(len(self.layers), 0, -1):
            layer = self.layers[i - 1]
            g = gradients[i]
            along = layer.half * (g * units[i]).sum(-1) / forward.y_sizes[i - 1]
            through = layer.middle * g + along[..., None] * forward.y[i - 1]
            _apply_transposed(layer.blocks, through, gradients)
        return gradients

    def _loss(self, x: Any) -> tuple[float, Any]:
        """- log |C X|, summed over the batch, and its gradient in the variables."""
        state = self.evaluate(x)
        vectors = self._views(x)
        parts = [self._loss_in_t(state, vectors[0])]
        for i, layer in enumerate(self.layers, start=1):
            factor = (layer.half * state.y_sizes[i - 1])[..., None]
            g = factor * state.gradients[i] / state.values[:, None]
            parts.append(_across(g, state.units[i], vectors[i]))
        return -float(self.backend.log(state.values).sum()), self._flat(parts)

    def _loss_in_t(self, state: State, t: Any) -> Any:
        """The gradient of the loss in the variables t."""
        unit = state.units[0]
        g = state.gradients[0] / state.values[:, None]
        if self.norm.bounds_each_input:
            return _across(g, unit, t)
        if self.norm is Norm.L2:
            along = (g * unit).sum(-1).sum(0)[:, None] * unit
            lengths = sizes(t)[..., None] + MIN_LENGTH
            return (along - g) / (lengths * lengths).sum(0) ** 0.5
        return unit  # t is fixed under l1, and `_flat` drops this part

    def _rescaled(self, state: State) -> Any:
        """The variables of a state with the lengths of `_lengths`, as one flat array."""
        lengths = self._lengths(state)
        return self._flat([u * length for u, length in zip(state.units, lengths, strict=True)])

    def _lengths(self, state: State) -> list[Any]:
        """The square roots of the shares of all vectors in the value.

        The length of t is 1 unless it is made of unit vectors."""
        lengths = []
        for weight in self.weights(state):
            share = weight / state.values
            kept_up = share + MIN_RELATIVE_SHARE * share.mean(0) + MIN_LENGTH
            lengths.append(kept_up[..., None] ** 0.5)
        if not self.norm.bounds_each_input:
            lengths[0] = 0.0 * lengths[0] + 1.0
        return lengths

    def _curvature(self, state: State, new: Any) -> Any:
        """B applied to one or several new coordinates, given with the lengths of `_lengths`.

        That is a forward and a backward pass of the network linearized at the state."""
        lengths = self._lengths(state)
        t, *turns = self._views(new.reshape(-1))
        x = [self._change_of_t(t, lengths[0])]
        y = []
        factors = []
        for i, layer in enumerate(self.layers):
            factor = (layer.half * state.y_sizes[i])[..., None] / lengths[i + 1]
            y_now = _apply(layer.blocks, x)
            x.append(layer.middle * y_now + factor * turns[i])
            y.append(y_now)
            factors.append(factor)
        gradients = [0.0 * values for values in x]
        outputs = _apply(self.objective, x) / self._output_sizes(state.outputs)
        _apply_transposed(self.objective, outputs, gradients)
        for i in range(len(self.layers), 0, -1):
            layer = self.layers[i - 1]
            along = layer.half * sizes(state.gradients[i]) / state.y_sizes[i - 1]
            through = layer.middle * gradients[i] + along[..., None] * y[i - 1]
            _apply_transposed(layer.blocks, through, gradients)
        values = state.values[:, None]
        parts = [gradients[0] / lengths[0] / values]
        for factor, g in zip(factors, gradients[1:], strict=True):
            parts.append(factor * g / values)
        return self._flat(parts).reshape(new.shape)

    def _change_of_t(self, t: Any, length: Any) -> Any:
        """How a new coordinate changes t: not at all under l1, where it is fixed."""
        if self.columns is None:
            return t / length
        return self.backend.zeros((self.inputs, *t.shape[1:]))

    def _norms(self, outputs: Any) -> Any:
        """|C X| of every problem."""
        if self.adds_outputs:
            return sizes(outputs).sum(0)
        return (outputs * outputs).sum(-1).sum(0) ** 0.5

    def _output_sizes(self, outputs: Any) -> Any:
        """What C X is divided by in the gradient: the norm of each row, or of all."""
        lengths = sizes(outputs) if self.adds_outputs else self._norms(outputs)
        return lengths[..., None] + MIN_LENGTH

    def _views(self, x: Any) -> list[Any]:
        """The vectors in a flat array: of t (none if it is fixed), then of every layer."""
        rank = self.rank(x)
        views = []
        begin = 0
        for n in self.free:
            end = begin + n * self.batch * rank
            views.append(x[begin:end].reshape(n, self.batch, rank))
            begin = end
        return views

    def _flat(self, parts: list[Any]) -> Any:
        """The inverse of `_views`; a fixed t is dropped."""
        flat = [part[:n].reshape(-1) for part, n in zip(parts, self.free, strict=True)]
        return self.backend.concatenate(flat)


def _operators(blocks: Sequence[Mapping[int, Any]], backend: Backend) -> dict[int, Operator]:
    """The operators of the same blocks of several problems, by source."""
    operators = {}
    for source in blocks[0]:
        operators[source] = backend.operator([own[source] for own in blocks])
    return operators


def _apply(blocks: Operators, x: list[Any]) -> Any:
    """The sum of blocks @ x."""
    total: Any = 0.0
    for source, block in blocks.items():
        total = total + _times(block.matrix, x[source])
    return total


def _apply_transposed(blocks: Operators, g: Any, gradients: list[Any]) -> None:
    """Add the transposed blocks @ g to the gradients of the sources that they read."""
    for source, block in blocks.items():
        gradients[source] = gradients[source] + _times(block.transposed, g)


def _times(matrix: Any, vectors: Any) -> Any:
    """One matrix for all problems, or (problems, n, m), one for each."""
    if matrix.ndim == 3:
        return (matrix @ vectors.swapaxes(0, 1)).swapaxes(0, 1)
    flat = matrix @ vectors.reshape(len(vectors), -1)
    return flat.reshape(matrix.shape[0], *vectors.shape[1:])


def _across(g: Any, unit: Any, vector: Any) -> Any:
    """Minus the gradient in a vector whose direction alone counts: g across it, over its length."""
    along = (g * unit).sum(-1)[..., None] * unit
    return (along - g) / (sizes(vector)[..., None] + MIN_LENGTH)


def _normalized(vectors: Any) -> Any:
    return vectors / (sizes(vectors) + MIN_LENGTH)[..., None]
