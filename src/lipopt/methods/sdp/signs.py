"""Signs: Shor's relaxation with a sign for every neuron, and inequalities that hold among signs.

The derivative problem of one row is linear in every slope and, under l_inf, in every t_j. So it is
largest where all slopes are ends of their ranges and all t_j are 1 or -1. There, with a number w and
a number e_a for every neuron, each of them 1 or -1,

    z_a = m_a y_a + h_a w e_a y_a        m = (l + u) / 2,  h = (u - l) / 2

and, since squares of signs are 1, two equations have products of two variables alone:

    w z_a = m_a w y_a + h_a e_a y_a,     e_a z_a = m_a e_a y_a + h_a w y_a

By themselves they add nothing to Shor's relaxation. But three signs p, q, r satisfy

    p q + p r + q r >= -1                and the same with two of them negated

and these triangle inequalities, among w, all e_a and (under l_inf) all t_j, cut off most of what the
relaxation has beyond the optimum. A neuron that no other neuron reads needs no z: the first equation
says what w z_a is in the objective.

Vectors in R^r take the places of all variables, as in the vector network: |w| = |e_a| = |t_j| = 1 and
z_a = m_a y_a + h_a |y_a| v_a with |v_a| = 1. What is maximized is the augmented Lagrangian

    w.C x - sum of alpha g_1 + beta g_2 + weights / 2 (g_1^2 + g_2^2)
          - sum over triangles of (max(0, lambda - rho (1 + q))^2 - lambda^2) / (2 rho)

where g_1 and g_2 are the two sides of the equations, subtracted, and q is the sum of three products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...model.norms import Norm
from ...numerics.arrays import Array, dense
from ...problem.derivative import DerivativeProblem
from ...problem.proofs import Triangles

MIN_LENGTH = 1e-150  # added to lengths before dividing by them


class InnerLayer(NamedTuple):
    """A layer that other layers read: its neurons, and the variables z that belong to them."""

    neurons: slice
    variables: slice


@dataclass(frozen=True, eq=False)
class SignForm:
    """A derivative problem of one row, in the variables w, e (one a neuron) and x = (t, z)."""

    norm: Norm
    inputs: int
    A: Array  # y = A x, (neurons, variables x)
    middle: Array
    half: Array
    C: Array  # the objective in x, without what `last` says
    last: Array  # its coefficients of neurons that have no z; 0 for others
    layers: tuple[InnerLayer, ...]

    @staticmethod
    def of(problem: DerivativeProblem) -> SignForm:
        """The form of a problem. Neurons of layers that others read have a variable z."""
        read = {source for layer in problem.layers for source in layer.blocks}
        first = {0: 0}  # the first variable of every source that has some
        variables = problem.inputs
        layers = []
        neurons = 0
        for i, layer in enumerate(problem.layers, start=1):
            if i in read:
                first[i] = variables
                own = slice(variables, variables + layer.size)
                layers.append(InnerLayer(slice(neurons, neurons + layer.size), own))
                variables += layer.size
            neurons += layer.size
        A = np.zeros((neurons, variables))
        C = np.zeros(variables)
        last = np.zeros(neurons)
        begin = 0
        for i, layer in enumerate(problem.layers, start=1):
            rows = slice(begin, begin + layer.size)
            for source, matrix in layer.blocks.items():
                A[rows, first[source] : first[source] + matrix.shape[1]] = dense(matrix)
            if i in problem.objective and i not in read:
                last[rows] = dense(problem.objective[i])[0]
            begin += layer.size
        for source, matrix in problem.objective.items():
            if source in first:
                C[first[source] : first[source] + matrix.shape[1]] = dense(matrix)[0]
        middle = np.concatenate([layer.middle for layer in problem.layers])
        half = np.concatenate([layer.half for layer in problem.layers])
        return SignForm(problem.norm, problem.inputs, A, middle, half, C, last, tuple(layers))

    @property
    def neurons(self) -> int:
        return len(self.half)

    @property
    def inner(self) -> Array:
        """The neurons that have a variable z."""
        places = [np.arange(layer.neurons.start, layer.neurons.stop) for layer in self.layers]
        return np.concatenate([*places, np.zeros(0, np.int64)])

    @property
    def signs(self) -> int:
        """The number of variables that are signs: w, all e, and t under l_inf."""
        return 1 + self.neurons + (self.inputs if self.norm.bounds_each_input else 0)

    @property
    def order(self) -> int:
        """The number of all variables."""
        return 1 + self.neurons + len(self.C)

    def bilinear(self, *, absolute: bool = False) -> Array:
        """The objective as a matrix between (w, e) and x; with `absolute`, of absolute values."""
        size = np.abs if absolute else np.asarray
        A = size(self.A)
        objective = np.zeros((1 + self.neurons, len(self.C)))
        objective[0] = size(self.C) + size(self.last * self.middle) @ A
        objective[1:] = size(self.last * self.half)[:, None] * A
        return objective


@dataclass(frozen=True, eq=False)
class Weights:
    """Multipliers of the augmented Lagrangian, and its penalties."""

    scale: Array  # of the equations of inner neurons
    penalty: Array  # on their squares, one an inner neuron; 0 for the Lagrangian itself
    alpha: Array
    beta: Array
    triangles: Triangles
    rho: float  # the penalty on triangles; 0 for the Lagrangian itself


@dataclass(frozen=True, eq=False)
class Point:
    """Vectors, and what follows from them. y and v are those of inner neurons."""

    t: Array
    e: Array
    v: Array
    x: Array
    y: Array
    lengths: Array  # |y|


@dataclass(frozen=True, eq=False)
class Residuals:
    """How far constraints are from holding, and what matters how much."""

    first: Array  # g_1 of every inner neuron, scaled
    second: Array  # g_2
    sums: Array  # 1 + q of every triangle
    shares: Array  # |gradient in z| h |y| of every inner neuron


@dataclass(eq=False)
class _Gradient:
    """Gradients that terms of the augmented Lagrangian add to."""

    units: Array  # w and e
    t: Array
    v: Array
    x: Array
    y: Array


class SignNetwork:
    """The augmented Lagrangian as a function of one flat array: t, e and v. w is fixed."""

    def __init__(self, form: SignForm, rank: int, scale: float) -> None:
        """The objective is divided by `scale`."""
        self.form = form
        self.rank = rank
        self.scale = scale
        self.objective = form.bilinear() / scale
        self.inner = form.inner
        self.w = np.zeros((1, rank))
        self.w[0, 0] = 1.0

    def start(self, seed: int) -> Array:
        """Random vectors."""
        count = self.form.inputs + self.form.neurons + len(self.inner)
        return np.random.default_rng(seed).standard_normal(count * self.rank)

    def reflected(self, point: Point) -> Array:
        """The same t and v with e for which the equations hold.

        The reflection that takes y / |y| to v takes w to e."""
        across = point.y / point.lengths[:, None] - point.v
        square = (across * across).sum(1) + MIN_LENGTH
        e = point.e.copy()
        e[self.inner] = self.w - 2 * across * (across @ self.w[0] / square)[:, None]
        return np.concatenate([point.t, e, point.v]).ravel()

    def units(self, point: Point) -> Array:
        """The vectors of all signs: w, e and, under l_inf, t."""
        signs = [self.w, point.e]
        if self.form.norm.bounds_each_input:
            signs.append(point.t)
        return np.concatenate(signs)

    def point(self, flat: Array) -> Point:
        """The vectors of a flat array, scaled to their lengths, and the forward pass."""
        form = self.form
        raw = self._views(flat)
        t = _unit(raw[0]) if form.norm.bounds_each_input else raw[0] / np.linalg.norm(raw[0])
        v = _unit(raw[2])
        x = np.zeros((len(form.C), self.rank))
        x[: form.inputs] = t
        y = np.zeros((len(self.inner), self.rank))
        for layer, own in self.inner_layers():
            now = form.A[layer.neurons] @ x
            lengths = np.linalg.norm(now, axis=1) + MIN_LENGTH
            turned = (form.half[layer.neurons] * lengths)[:, None] * v[own]
            x[layer.variables] = form.middle[layer.neurons][:, None] * now + turned
            y[own] = now
        return Point(t, _unit(raw[1]), v, x, y, np.linalg.norm(y, axis=1) + MIN_LENGTH)

    def value(self, point: Point) -> float:
        """The objective itself."""
        return float((np.concatenate([self.w, point.e]) * (self.objective @ point.x)).sum())

    def loss(self, flat: Array, weights: Weights) -> tuple[float, Array]:
        """The augmented Lagrangian and its gradient, negated: what is minimized."""
        value, gradient, _ = self._evaluate(flat, weights)
        return -value, -gradient

    def residuals(self, flat: Array, weights: Weights) -> Residuals:
        return self._evaluate(flat, weights)[2]

    def _views(self, flat: Array) -> list[Array]:
        rows = flat.reshape(-1, self.rank)
        first_e = self.form.inputs
        first_v = first_e + self.form.neurons
        return [rows[:first_e], rows[first_e:first_v], rows[first_v:]]

    def inner_layers(self) -> list[tuple[InnerLayer, slice]]:
        """Inner layers, each with its places among all inner neurons."""
        places = []
        begin = 0
        for layer in self.form.layers:
            size = layer.neurons.stop - layer.neurons.start
            places.append((layer, slice(begin, begin + size)))
            begin += size
        return places

    def _evaluate(self, flat: Array, weights: Weights) -> tuple[float, Array, Residuals]:
        point = self.point(flat)
        units = np.concatenate([self.w, point.e])
        gradient = _Gradient(
            units=self.objective @ point.x,
            t=np.zeros_like(point.t),
            v=np.zeros_like(point.v),
            x=self.objective.T @ units,
            y=np.zeros_like(point.y),
        )
        value = self.value(point)
        cost, first, second = self._equations(point, weights, gradient)
        more, sums = self._triangles(point, weights, gradient)
        shares = self._backward(point, gradient)
        raw = self._views(flat)
        of_t = gradient.t + gradient.x[: self.form.inputs]
        parts = [
            self._tangent_in_t(of_t, point.t, raw[0]),
            _tangent(gradient.units[1:], point.e, raw[1]),
            _tangent(gradient.v, point.v, raw[2]),
        ]
        residuals = Residuals(first, second, sums, shares)
        return value - cost - more, np.concatenate(parts).ravel(), residuals

    def _equations(
        self, point: Point, weights: Weights, gradient: _Gradient
    ) -> tuple[float, Array, Array]:
        """What the equations cost, and the scaled g_1 and g_2.

        g_1 = h (|y| w.v - e.y) and g_2 = h (|y| e.v - w.y)."""
        e = point.e[self.inner]
        y = point.y
        v = point.v
        lengths = point.lengths
        scale = weights.scale * self.form.half[self.inner]
        along = (e * v).sum(1)
        first = scale * (lengths * v[:, 0] - (e * y).sum(1))
        second = scale * (lengths * along - y[:, 0])
        squares = weights.penalty / 2 * (first**2 + second**2)
        cost = float((weights.alpha * first + weights.beta * second + squares).sum())
        a = ((weights.alpha + weights.penalty * first) * scale)[:, None]
        b = ((weights.beta + weights.penalty * second) * scale)[:, None]
        long = lengths[:, None]
        gradient.v -= long * (a * self.w + b * e)
        gradient.units[1 + self.inner] -= b * long * v - a * y
        stretch = a * v[:, :1] + b * along[:, None]
        gradient.y -= stretch * y / long - a * e - b * self.w
        return cost, first, second

    def _triangles(
        self, point: Point, weights: Weights, gradient: _Gradient
    ) -> tuple[float, Array]:
        """What the triangles cost, and 1 + q of each. With rho = 0, -lambda (1 + q)."""
        triangles = weights.triangles
        units = self.units(point)
        sums = triangles.sums(units)
        if weights.rho:
            pull = np.maximum(0.0, triangles.weights - weights.rho * sums)
            cost = float((pull**2 - triangles.weights**2).sum() / (2 * weights.rho))
        else:
            pull = triangles.weights
            cost = -float(pull @ sums)
        added = triangles.matrix(len(units), pull) @ units
        neurons = self.form.neurons
        gradient.units += added[: 1 + neurons]
        if self.form.norm.bounds_each_input:
            gradient.t += added[1 + neurons :]
        return cost, sums

    def _backward(self, point: Point, gradient: _Gradient) -> Array:
        """From z to v and y, the last layer first; and the shares of inner neurons."""
        form = self.form
        shares = np.zeros(len(self.inner))
        for layer, own in reversed(self.inner_layers()):
            half = form.half[layer.neurons]
            lengths = point.lengths[own]
            of_z = gradient.x[layer.variables]
            gradient.v[own] += (half * lengths)[:, None] * of_z
            along = half * (of_z * point.v[own]).sum(1) / lengths
            of_y = gradient.y[own] + form.middle[layer.neurons][:, None] * of_z
            of_y += along[:, None] * point.y[own]
            gradient.x += form.A[layer.neurons].T @ of_y
            shares[own] = np.linalg.norm(of_z, axis=1) * half * lengths
        return shares

    def _tangent_in_t(self, gradient: Array, t: Array, raw: Array) -> Array:
        """The gradient in the variables that t is made of by scaling."""
        if self.form.norm.bounds_each_input:
            return _tangent(gradient, t, raw)
        return (gradient - (gradient * t).sum() * t) / np.linalg.norm(raw)


def _unit(vectors: Array) -> Array:
    """The vectors with length 1."""
    return vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + MIN_LENGTH)


def _tangent(gradient: Array, units: Array, raw: Array) -> Array:
    """The gradient in vectors, of which `units` are those of length 1."""
    along = (gradient * units).sum(axis=1, keepdims=True)
    return (gradient - along * units) / (np.linalg.norm(raw, axis=1, keepdims=True) + MIN_LENGTH)
