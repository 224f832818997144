"""An interval for every entry of the Jacobian: interval arithmetic on a derivative problem.

Backward, the coefficients of all variables in every row of C have intervals; forward, the derivatives
of all variables in every input have. Each entry is enclosed by both, and neither is always better.
An interval of coefficients times the range of a slope is one again; the products with the next matrix
are those of its middle and its half width. What is rounded is bounded by sums over all paths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..numerics.arrays import Array, dense
from ..numerics.rounding import TINY, gamma
from ..numerics.spread import Spread
from .derivative import Blocks, DerivativeProblem, Layer

MAX_WORK = 2e10  # multiplications of a forward pass, which is not needed: about some seconds


class Entries(NamedTuple):
    """lower <= J <= upper, (outputs, inputs)."""

    lower: Array
    upper: Array


def entry_intervals(problem: DerivativeProblem, raw: DerivativeProblem) -> Entries:
    """Intervals for all entries of the Jacobian, rounded outward.

    Those without a path in the problem before presolve are exactly 0."""
    found = _enclosed(problem, _backward(problem))
    if problem.inputs * problem.nonzeros <= MAX_WORK:
        other = _enclosed(problem, _forward(problem))
        lower = np.maximum(found.lower, other.lower)
        upper = np.minimum(found.upper, other.upper)
        found = Entries(np.minimum(lower, upper), np.maximum(lower, upper))
    has_path = _paths(raw)
    return Entries(np.where(has_path, found.lower, 0.0), np.where(has_path, found.upper, 0.0))


def _paths(problem: DerivativeProblem) -> Array:
    """Whether a path leads from an input to a row of C, (outputs, inputs)."""
    reached = [np.zeros((n, problem.outputs), bool) for n in problem.sizes]
    for source, matrix in problem.objective.items():
        reached[source] |= dense(matrix).T != 0
    for i in range(len(problem.layers), 0, -1):
        layer = problem.layers[i - 1]
        through = (reached[i] & (layer.steepest > 0)[:, None]).astype(np.float64)
        for source, matrix in layer.blocks.items():
            reached[source] |= abs(matrix.T) @ through > 0
    return reached[0].T


def _backward(problem: DerivativeProblem) -> Spread:
    """From the rows of C to the inputs."""
    shapes = [(n, problem.outputs) for n in problem.sizes]
    coefficients = [Spread.zero(shape) for shape in shapes]
    for source, matrix in problem.objective.items():
        coefficients[source] += Spread.exactly(dense(matrix).T.astype(np.float64))
    for i in range(len(problem.layers), 0, -1):
        layer = problem.layers[i - 1]
        through = _with_slopes(coefficients[i], layer)
        for source, matrix in layer.blocks.items():
            coefficients[source] += through.times(matrix.T)
    middle, half, size = coefficients[0]
    return Spread(middle.T, half.T, size.T)


def _forward(problem: DerivativeProblem) -> Spread:
    """From the inputs to the rows of C."""
    x = [Spread.exactly(np.eye(problem.inputs))]
    for layer in problem.layers:
        x.append(_with_slopes(_sum(layer.blocks, x, layer.size), layer))
    return _sum(problem.objective, x, problem.outputs)


def _with_slopes(found: Spread, layer: Layer) -> Spread:
    """Numbers, one row a neuron, times any slopes in the ranges of a layer."""
    return found.scaled(layer.lower[:, None], layer.upper[:, None])


def _sum(blocks: Blocks, x: list[Spread], rows: int) -> Spread:
    total = Spread.zero((rows, x[0].middle.shape[1]))
    for source, matrix in blocks.items():
        total += x[source].times(matrix)
    return total


def _enclosed(problem: DerivativeProblem, found: Spread) -> Entries:
    """The ends, with all that rounding can have changed: a few operations a term, along any path."""
    roundings = 16
    for blocks in problem.all_blocks():
        roundings += 8
        for matrix in blocks.values():
            roundings += max(matrix.shape) + 2
    error = 1.01 * gamma(roundings) * found.size + roundings * TINY + 1.01 * problem.slack
    return Entries(found.middle - found.half - error, found.middle + found.half + error)
