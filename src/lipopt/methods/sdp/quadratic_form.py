"""The quadratic form of the dual, as a symmetric matrix S in blocks.

For the derivative problem (problem/derivative.py) and multipliers mu, delta and tau, S is the
matrix, in the variables (t, z, w), of

    sum_k mu_k w_k^2 - w.C x + sum_j delta_j t_j^2 + sum_a tau_a (z_a - l_a y_a)(z_a - u_a y_a)

with x = (t, z) and y = A x. It has one block for every pair of layers that interact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...numerics.arrays import Array, Matrix
from ...numerics.rounding import gamma, terms
from ...problem.derivative import DerivativeProblem, Layer
from ...problem.proofs import Multipliers
from .backend import Backend
from .block_matrix import BlockMatrix, Dense, Layout


@dataclass(frozen=True, eq=False)
class StackedMultipliers:
    """The multipliers of all problems of a batch, (problems, n), in NumPy or on the backend."""

    mu: Any  # one for every row of C
    delta: Any  # one for every input
    tau: list[Any]  # of every layer, one for every neuron

    @staticmethod
    def of(multipliers: Sequence[Multipliers], layout: Layout) -> StackedMultipliers:
        """In NumPy; a mu or a delta that counts for all is repeated."""
        mu = np.stack([np.broadcast_to(m.mu, layout.sizes[-1]) for m in multipliers])
        delta = np.stack([np.broadcast_to(m.delta, layout.sizes[0]) for m in multipliers])
        tau = []
        for same in zip(*(m.tau for m in multipliers), strict=True):
            tau.append(np.stack(same))
        return StackedMultipliers(mu, delta, tau)

    def on(self, backend: Backend) -> StackedMultipliers:
        """The same on the backend."""
        tau = [backend.array(t) for t in self.tau]
        return StackedMultipliers(backend.array(self.mu), backend.array(self.delta), tau)

    @property
    def are_finite_and_nonnegative(self) -> Array:
        """For every problem, whether all of its multipliers are (they must be in NumPy)."""
        good = [_are_finite_and_nonnegative(m) for m in (self.mu, self.delta, *self.tau)]
        return np.all(good, axis=0)


@dataclass(frozen=True, eq=False)
class StackedLayer:
    """One layer of all problems, on the backend."""

    blocks: dict[int, Any]  # (problems, n, m), by source
    lower: Any  # (problems, n)
    upper: Any

    @staticmethod
    def of(layers: Sequence[Layer], backend: Backend) -> StackedLayer:
        return StackedLayer(
            blocks=_stack_blocks([layer.blocks for layer in layers], backend),
            lower=backend.array(np.stack([layer.lower for layer in layers])),
            upper=backend.array(np.stack([layer.upper for layer in layers])),
        )

    def only(self, index: Array) -> StackedLayer:
        """The same layer of some of the problems."""
        blocks = {source: matrix[index] for source, matrix in self.blocks.items()}
        return StackedLayer(blocks, self.lower[index], self.upper[index])

    @property
    def middle(self) -> Any:
        """The middle of each slope's range."""
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> Any:
        """Half the width of each slope's range."""
        return (self.upper - self.lower) / 2

    @property
    def product(self) -> Any:
        """The product of the two ends of each slope's range."""
        return self.lower * self.upper


@dataclass(frozen=True, eq=False)
class QuadraticForm:
    """The forms of problems of the same shape, or of one problem any number of times.

    Blocks are (problems, n, m), or (1, n, m) where all problems share them."""

    layout: Layout
    count: int  # of problems
    layers: list[StackedLayer]
    objective: dict[int, Any]  # C, by source
    roundings: int  # in the computation of an entry of S, at most
    backend: Backend

    @staticmethod
    def of(problems: Sequence[DerivativeProblem], backend: Backend) -> QuadraticForm:
        """The forms of these problems."""
        layers = []
        for same in zip(*(problem.layers for problem in problems), strict=True):
            layers.append(StackedLayer.of(same, backend))
        layout = _layout(problems)
        return QuadraticForm(
            layout=layout,
            count=len(problems),
            layers=layers,
            objective=_stack_blocks([problem.objective for problem in problems], backend),
            roundings=_most_terms(problems) + len(layout.sizes) + 8,
            backend=backend,
        )

    def only(self, which: Sequence[int]) -> QuadraticForm:
        """The forms of some of the problems. One problem that all share is shared still."""
        count = len(which)
        any_block = next(iter(self.objective.values()))
        if len(any_block) == 1 or count == self.count:
            return replace(self, count=count)
        index = np.asarray(which)
        layers = [layer.only(index) for layer in self.layers]
        objective = {source: matrix[index] for source, matrix in self.objective.items()}
        return replace(self, count=count, layers=layers, objective=objective)

    def zero(self) -> BlockMatrix:
        """S without any of its terms."""
        return BlockMatrix.zero(self.layout, self.count, self.backend)

    def assemble(self, multipliers: StackedMultipliers) -> BlockMatrix:
        """S, for multipliers on the backend."""
        matrix = self.zero()
        self.add_output(matrix, multipliers.mu)
        for i, tau in enumerate(multipliers.tau, start=1):
            self.add_layer(matrix, i, tau)
        matrix.block(0, 0).add_to_diagonal(multipliers.delta)
        return matrix

    def add_output(self, matrix: BlockMatrix, mu: Any) -> None:
        """Add the terms mu w^2 - w.C x."""
        last = self.layout.last
        matrix.block(last, last).add_to_diagonal(mu)
        for source, block in self.objective.items():
            matrix.block(last, source).values -= block / 2

    def add_layer(self, matrix: BlockMatrix, i: int, tau: Any) -> None:
        """Add the terms tau (z - l y)(z - u y) of one layer: tau (z^2 - 2 m z y + l u y^2)."""
        layer = self.layers[i - 1]
        cross = -(tau * layer.middle)[..., None]
        square = (tau * layer.product)[..., None]
        has_squares = bool((layer.product != 0).any())
        matrix.block(i, i).add_to_diagonal(tau)
        blocks = sorted(layer.blocks.items(), reverse=True)
        for place, (source, block) in enumerate(blocks):
            matrix.block(i, source).values += cross * block
            if not has_squares:
                continue
            for other, other_block in blocks[place:]:
                left = Dense(block.mT)
                right = Dense((square * other_block).mT)
                product = self.layout.product(source, other, left, right)
                matrix.block(source, other).values += product.values

    def assembly_error(self, multipliers: StackedMultipliers, scale: list[Any]) -> Array:
        """Bounds, in the spectral norm, on what rounding did to D S D, D = diag(scale).

        That is gamma times the largest row sum of all terms of D S D in absolute value."""
        rows = [0.0 * s for s in scale]
        rows[0] += multipliers.delta * scale[0]
        rows[-1] += multipliers.mu * scale[-1]
        for source, block in self.objective.items():
            rows[-1] += _times(abs(block), scale[source]) / 2
            rows[source] += _times(abs(block).mT, scale[-1]) / 2
        for i, (layer, tau) in enumerate(zip(self.layers, multipliers.tau, strict=True), start=1):
            middle = abs(layer.middle)
            product = abs(layer.product)
            y = 0.0 * tau
            for source, block in layer.blocks.items():
                y = y + _times(abs(block), scale[source])
            rows[i] += tau * (scale[i] + middle * y)
            for source, block in layer.blocks.items():
                through = tau * (middle * scale[i] + product * y)
                rows[source] += _times(abs(block).mT, through)
        largest = [self.backend.numpy(s * r).max(axis=1) for s, r in zip(scale, rows, strict=True)]
        return np.asarray(1.01 * gamma(self.roundings) * np.max(largest, axis=0))


def _layout(problems: Sequence[DerivativeProblem]) -> Layout:
    first = problems[0]
    sizes = (*first.sizes, first.outputs)
    by_input = first.norm.is_by_input
    many_inputs = first.inputs > sum(sizes[1:])
    wide = not by_input and many_inputs and not _inputs_interact(problems)
    return Layout(sizes, by_input, wide)


def _inputs_interact(problems: Sequence[DerivativeProblem]) -> bool:
    """Whether S has products of two inputs: a layer that reads them has l u y^2 with l u != 0."""
    for problem in problems:
        for layer in problem.layers:
            if 0 in layer.blocks and (layer.lower * layer.upper).any():
                return True
    return False


def _most_terms(problems: Sequence[DerivativeProblem]) -> int:
    """The largest number of terms in a column of a layer's block."""
    most = 0
    for problem in problems:
        for layer in problem.layers:
            for block in layer.blocks.values():
                most = max(most, terms(_columns_as_rows(block)))
    return most


def _columns_as_rows(block: Matrix) -> Matrix:
    return block.T.tocsr() if sp.issparse(block) else block.T


def _stack_blocks(blocks: Sequence[Mapping[int, Matrix]], backend: Backend) -> dict[int, Any]:
    """The same blocks of several problems, by source."""
    stacked = {}
    for source in blocks[0]:
        stacked[source] = backend.stack([own[source] for own in blocks])
    return stacked


def _are_finite_and_nonnegative(multipliers: Array) -> Array:
    return np.asarray((np.isfinite(multipliers) & (multipliers >= 0)).all(axis=1))


def _times(matrix: Any, vector: Any) -> Any:
    """A matrix times a vector, for every problem."""
    return (matrix @ vector[..., None])[..., 0]
