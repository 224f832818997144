"""Vectors in the places of the variables of `signs`, and the augmented Lagrangian of these vectors.

As in the vector network, |w| = |e_a| = |t_j| = 1, and z_a = m_a y_a + h_a |y_a| v_a with |v_a| = 1.
What is maximized is the augmented Lagrangian

    w.C x - sum of alpha g_1 + beta g_2 + weights / 2 (g_1^2 + g_2^2)
          - sum over triangles of (max(0, lambda - rho (1 + q))^2 - lambda^2) / (2 rho)
          + sum over alternatives of N.R - penalty / 2 |R|^2

where g_1 and g_2 are the two sides of the equations, subtracted, q is the sum of three products,
and R is what the products of the forms of alternatives exceed those of their parts by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

from ...numerics.arrays import Array
from ...problem.proofs import Triangles
from .alternatives import AlternativeWeights
from .signs import SignForm, SignLayer
from .triangles import PairProducts

MIN_LENGTH = 1e-150  # added to lengths before dividing by them
POWER_ITERATIONS = 30  # that vectors start with


@dataclass(frozen=True, eq=False)
class Weights:
    """Multipliers of the augmented Lagrangian, and its penalties."""

    scale: Array  # of the equations of inner neurons
    penalty: Array  # on their squares, one an inner neuron; 0 for the Lagrangian itself
    alpha: Array
    beta: Array
    triangles: Triangles
    rho: float  # the penalty on triangles; 0 for the Lagrangian itself
    alternatives: AlternativeWeights


@dataclass(frozen=True, eq=False)
class Point:
    """Vectors, and what follows from them. v and lengths are those of inner neurons."""

    t: Array
    e: Array
    v: Array
    x: Array
    y: Array
    lengths: Array  # |y|
    parts: Array  # of the products of alternatives


@dataclass(frozen=True, eq=False)
class Residuals:
    """How far constraints are from holding, and what matters how much."""

    first: Array  # g_1 of every inner neuron, scaled
    second: Array  # g_2
    sums: Array  # 1 + q of every triangle
    missing: Array  # the scaled products of alternatives, less those of their parts
    shares: Array  # |gradient in z| h |y| of every inner neuron


@dataclass(eq=False)
class _Gradient:
    """Gradients that terms of the augmented Lagrangian add to."""

    e: Array
    t: Array
    v: Array
    x: Array
    y: Array
    parts: Array


class _Evaluation(NamedTuple):
    """The augmented Lagrangian at a point."""

    point: Point
    value: float
    gradient: _Gradient
    residuals: Residuals


class SignNetwork:
    """The augmented Lagrangian as a function of one flat array: t, e, v and parts.

    w is fixed: it is the first vector of the basis."""

    def __init__(self, form: SignForm, rank: int, scale: float) -> None:
        """The objective is divided by `scale`."""
        self.form = form
        self.rank = rank
        self.scale = scale
        self.inner = form.inner
        self.of_x = form.C / scale
        self.along_y = form.last * form.middle / scale  # of w.y in the objective
        self.across_y = form.last * form.half / scale  # of e.y
        self.w = np.zeros((1, rank))
        self.w[0, 0] = 1.0
        self.products = PairProducts.none()

    def start(self, random: np.random.Generator) -> Array:
        """Random vectors."""
        x = random.standard_normal(self._entries + prod(self.form.forms.parts_shape))
        x[self._entries :] /= max(self.form.forms.widest, 1)  # lengths of about 1
        return x

    @property
    def _entries(self) -> int:
        """Of t, e and v."""
        return (self.form.inputs + self.form.neurons + len(self.inner)) * self.rank

    def power(self, flat: Array, weights: Weights) -> Array:
        """A power method: every vector is turned along its gradient, several times."""
        for _ in range(POWER_ITERATIONS):
            gradient = self._evaluate(flat, weights).gradient
            turned = np.concatenate([gradient.t, gradient.e, gradient.v])
            flat = np.concatenate([turned.ravel(), flat[self._entries :]])
        return flat

    def flat(self, point: Point) -> Array:
        """The vectors of a point, those of length 1 scaled to it, as one array."""
        vectors = np.concatenate([point.t, point.e, point.v])
        return np.concatenate([vectors.ravel(), point.parts.ravel()])

    def widened(self, flat: Array, rank: int) -> tuple[SignNetwork, Array]:
        """A network with vectors of a higher rank, and the same vectors there."""
        network = SignNetwork(self.form, rank, self.scale)
        rows = flat[: self._entries].reshape(-1, self.rank)
        more = np.zeros((len(rows), rank - self.rank))
        wide = np.hstack([rows, more]).ravel()
        return network, np.concatenate([wide, flat[self._entries :]])

    def reflected(self, point: Point) -> Array:
        """The same t and v with e for which the equations hold.

        The reflection that takes y / |y| to v takes w to e."""
        across = point.y[self.inner] / point.lengths[:, None] - point.v
        square = _dots(across, across) + MIN_LENGTH
        e = point.e.copy()
        e[self.inner] = self.w - 2 * across * (across[:, 0] / square)[:, None]
        return self.flat(replace(point, e=e))

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
        x = np.empty((len(form.C), self.rank))
        x[: form.inputs] = t
        y = np.empty((form.neurons, self.rank))
        lengths = np.empty(len(self.inner))
        for layer in form.layers:
            now = self._weights(layer) @ x[: layer.variables.start]
            y[layer.neurons] = now
            if layer.is_inner:
                own = self._among_inner(layer)
                lengths[own] = np.sqrt(_dots(now, now)) + MIN_LENGTH
                turned = (form.half[layer.neurons] * lengths[own])[:, None] * v[own]
                x[layer.variables] = form.middle[layer.neurons][:, None] * now + turned
        return Point(t, _unit(raw[1]), v, x, y, lengths, self._parts(flat))

    def value(self, point: Point) -> float:
        """The objective itself."""
        along = self.of_x @ point.x[:, 0] + self.along_y @ point.y[:, 0]
        return float(along + self.across_y @ _dots(point.e, point.y))

    def loss(self, flat: Array, weights: Weights) -> tuple[float, Array]:
        """The augmented Lagrangian and its gradient, negated: what is minimized."""
        found = self._evaluate(flat, weights)
        point = found.point
        raw = self._views(flat)
        parts = [
            self._tangent_in_t(found.gradient.t, point.t, raw[0]),
            _tangent(found.gradient.e, point.e, raw[1]),
            _tangent(found.gradient.v, point.v, raw[2]),
        ]
        gradient = np.concatenate([np.concatenate(parts).ravel(), found.gradient.parts.ravel()])
        return -found.value, -gradient

    def residuals(self, flat: Array, weights: Weights) -> Residuals:
        return self._evaluate(flat, weights).residuals

    def _views(self, flat: Array) -> list[Array]:
        rows = flat[: self._entries].reshape(-1, self.rank)
        first_e = self.form.inputs
        first_v = first_e + self.form.neurons
        return [rows[:first_e], rows[first_e:first_v], rows[first_v:]]

    def _parts(self, flat: Array) -> Array:
        """The vectors of the parts of alternatives, of which some are 0."""
        forms = self.form.forms
        return np.asarray(flat[self._entries :].reshape(forms.parts_shape) * forms.in_parts)

    def _weights(self, layer: SignLayer) -> Array:
        """The weights of a layer: those of the variables before its own."""
        return self.form.A[layer.neurons, : layer.variables.start]

    def _among_inner(self, layer: SignLayer) -> slice:
        """The places of an inner layer among all inner neurons."""
        inputs = self.form.inputs
        return slice(layer.variables.start - inputs, layer.variables.stop - inputs)

    def inner_layers(self) -> list[tuple[SignLayer, slice]]:
        """Inner layers, each with its places among all inner neurons."""
        inner = [layer for layer in self.form.layers if layer.is_inner]
        return [(layer, self._among_inner(layer)) for layer in inner]

    def _evaluate(self, flat: Array, weights: Weights) -> _Evaluation:
        point = self.point(flat)
        gradient = _Gradient(
            e=self.across_y[:, None] * point.y,
            t=np.zeros_like(point.t),
            v=np.zeros_like(point.v),
            x=np.zeros_like(point.x),
            y=self.across_y[:, None] * point.e,
            parts=np.zeros_like(point.parts),
        )
        gradient.x[:, 0] = self.of_x
        gradient.y[:, 0] += self.along_y
        cost, first, second = self._equations(point, weights, gradient)
        more, sums = self._triangles(point, weights, gradient)
        added = self.form.forms.added(point.x, point.parts, weights.alternatives)
        gradient.x += added.of_x
        gradient.parts += added.of_parts
        shares = self._backward(point, gradient)
        gradient.t += gradient.x[: self.form.inputs]
        residuals = Residuals(first, second, sums, added.missing, shares)
        value = self.value(point) - cost - more + added.value
        return _Evaluation(point, value, gradient, residuals)

    def _equations(
        self, point: Point, weights: Weights, gradient: _Gradient
    ) -> tuple[float, Array, Array]:
        """What the equations cost, and the scaled g_1 and g_2.

        g_1 = h (|y| w.v - e.y) and g_2 = h (|y| e.v - w.y)."""
        e = point.e[self.inner]
        y = point.y[self.inner]
        v = point.v
        lengths = point.lengths
        scale = weights.scale * self.form.half[self.inner]
        along = _dots(e, v)
        first = scale * (lengths * v[:, 0] - _dots(e, y))
        second = scale * (lengths * along - y[:, 0])
        squares = weights.penalty / 2 * (first**2 + second**2)
        cost = float((weights.alpha * first + weights.beta * second + squares).sum())
        a = (weights.alpha + weights.penalty * first) * scale
        b = (weights.beta + weights.penalty * second) * scale
        of_v = (b * lengths)[:, None] * e
        of_v[:, 0] += a * lengths
        gradient.v -= of_v
        gradient.e[self.inner] -= (b * lengths)[:, None] * v - a[:, None] * y
        stretch = (a * v[:, 0] + b * along) / lengths
        of_y = stretch[:, None] * y - a[:, None] * e
        of_y[:, 0] -= b
        gradient.y[self.inner] -= of_y
        return cost, first, second

    def _triangles(
        self, point: Point, weights: Weights, gradient: _Gradient
    ) -> tuple[float, Array]:
        """What the triangles cost, and 1 + q of each. With rho = 0, -lambda (1 + q)."""
        triangles = weights.triangles
        units = self.units(point)
        if self.products.triangles is not triangles:
            self.products = PairProducts(triangles, len(units))
        sums = self.products.sums(units)
        if weights.rho:
            pull = np.maximum(0.0, triangles.weights - weights.rho * sums)
            cost = float((pull**2 - triangles.weights**2).sum() / (2 * weights.rho))
        else:
            pull = triangles.weights
            cost = -float(pull @ sums)
        added = self.products.gradient(units, pull)
        neurons = self.form.neurons
        gradient.e += added[1 : 1 + neurons]
        if self.form.norm.bounds_each_input:
            gradient.t += added[1 + neurons :]
        return cost, sums

    def _backward(self, point: Point, gradient: _Gradient) -> Array:
        """From z to v and y, the last layer first; and the shares of inner neurons."""
        form = self.form
        shares = np.zeros(len(self.inner))
        for layer in reversed(form.layers):
            of_y = gradient.y[layer.neurons]
            if layer.is_inner:
                own = self._among_inner(layer)
                half = form.half[layer.neurons]
                lengths = point.lengths[own]
                of_z = gradient.x[layer.variables]
                gradient.v[own] += (half * lengths)[:, None] * of_z
                along = half * _dots(of_z, point.v[own]) / lengths
                of_y += form.middle[layer.neurons][:, None] * of_z
                of_y += along[:, None] * point.y[layer.neurons]
                shares[own] = np.sqrt(_dots(of_z, of_z)) * half * lengths
            gradient.x[: layer.variables.start] += self._weights(layer).T @ of_y
        return shares

    def _tangent_in_t(self, gradient: Array, t: Array, raw: Array) -> Array:
        """The gradient in the variables that t is made of by scaling."""
        if self.form.norm.bounds_each_input:
            return _tangent(gradient, t, raw)
        return (gradient - (gradient * t).sum() * t) / np.linalg.norm(raw)


def _dots(a: Array, b: Array) -> Array:
    """The products of vectors, row by row."""
    return np.einsum("ij,ij->i", a, b)


def _lengths(vectors: Array) -> Array:
    return np.sqrt(_dots(vectors, vectors)) + MIN_LENGTH


def _unit(vectors: Array) -> Array:
    """The vectors with length 1."""
    return vectors / _lengths(vectors)[:, None]


def _tangent(gradient: Array, units: Array, raw: Array) -> Array:
    """The gradient in vectors, of which `units` are those of length 1."""
    along = _dots(gradient, units)[:, None]
    return (gradient - along * units) / _lengths(raw)[:, None]
