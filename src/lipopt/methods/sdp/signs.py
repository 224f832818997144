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

Where maxima are taken, there are inequalities for groups of neurons besides (`alternatives`).

Vectors in the places of all variables, and the search for them, are in `sign_network`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...model.norms import Norm
from ...numerics.arrays import Array, dense
from ...problem.derivative import DerivativeProblem
from .alternatives import Forms, Neurons, Trees, are_maxima, find_trees


class SignLayer(NamedTuple):
    """A layer: its neurons, and the variables z that belong to them, if they have any.

    It reads variables before these alone."""

    neurons: slice
    variables: slice

    @property
    def is_inner(self) -> bool:
        return self.variables.stop > self.variables.start


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
    layers: tuple[SignLayer, ...]
    trees: Trees  # of alternatives

    @staticmethod
    def of(problem: DerivativeProblem) -> SignForm:
        """The form of a problem. Neurons of layers that others read, or of maxima, have a z."""
        inner = {source for layer in problem.layers for source in layer.blocks}
        for i, layer in enumerate(problem.layers, start=1):
            if are_maxima(layer.middle, layer.half).any():
                inner.add(i)
        first = {0: 0}  # the first variable of every source that has some
        variables = problem.inputs
        layers = []
        neurons = 0
        for i, layer in enumerate(problem.layers, start=1):
            begin = variables
            if i in inner:
                first[i] = begin
                variables += layer.size
            own = slice(begin, variables)
            layers.append(SignLayer(slice(neurons, neurons + layer.size), own))
            neurons += layer.size
        A = np.zeros((neurons, variables))
        C = np.zeros(variables)
        last = np.zeros(neurons)
        begin = 0
        for i, layer in enumerate(problem.layers, start=1):
            rows = slice(begin, begin + layer.size)
            for source, matrix in layer.blocks.items():
                A[rows, first[source] : first[source] + matrix.shape[1]] = dense(matrix)
            if i in problem.objective and i not in inner:
                last[rows] = dense(problem.objective[i])[0]
            begin += layer.size
        for source, matrix in problem.objective.items():
            if source in first:
                C[first[source] : first[source] + matrix.shape[1]] = dense(matrix)[0]
        middle = np.concatenate([layer.middle for layer in problem.layers])
        half = np.concatenate([layer.half for layer in problem.layers])
        trees = find_trees(Neurons(A, middle, half, _columns(neurons, layers)))
        return SignForm(
            problem.norm, problem.inputs, A, middle, half, C, last, tuple(layers), trees
        )

    @property
    def neurons(self) -> int:
        return len(self.half)

    @property
    def inner(self) -> Array:
        """The neurons that have a variable z, in the order of these variables."""
        inner = [layer.neurons for layer in self.layers if layer.is_inner]
        places = [np.arange(neurons.start, neurons.stop) for neurons in inner]
        return np.concatenate([*places, np.zeros(0, np.int64)])

    @cached_property
    def forms(self) -> Forms:
        """Those of all alternatives."""
        columns = _columns(self.neurons, self.layers)
        return Forms(self.trees, Neurons(self.A, self.middle, self.half, columns))

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


def _columns(neurons: int, layers: Iterable[SignLayer]) -> Array:
    """The places of all z in x; -1 for neurons without one."""
    columns = np.full(neurons, -1)
    for layer in layers:
        if layer.is_inner:
            columns[layer.neurons] = np.arange(layer.variables.start, layer.variables.stop)
    return columns
