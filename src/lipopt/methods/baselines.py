"""Cheap upper bounds, rounded up: the product of layer norms (the paper's UBP), the path sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ..numerics.arrays import Array, Matrix, dense
from ..numerics.rounding import times_up, up, up_float
from ..problem.derivative import Blocks, DerivativeProblem
from ..problem.in_time import OutOfTimeError, in_time
from ..problem.proofs import LayerNorms, PathSums
from ..problem.task import Task, UpperBound
from .registry import register

LARGE = 1000  # neurons, from which on a spectral norm may take longer than there is time


def product_bound(problem: DerivativeProblem, is_late: bool = False) -> float:
    """The product of the norms of the layers, of a problem that was not presolved.

    The norms of branches add up. If it `is_late`, norms are bounded by those of absolute values."""
    norm, output = problem.norms
    of_matrix = norm.quickly_of_matrix_up if is_late else norm.of_matrix_up
    sizes = [1.0]  # bounds on the norms of x, by source
    for layer in problem.layers:
        sizes.append(_grown(of_matrix, layer.blocks, sizes, float(layer.steepest.max())))
    if norm is output:
        return _grown(of_matrix, problem.objective, sizes, 1.0)
    of_last_matrix = partial(norm.of_matrix_up, output=output)
    return _grown(of_last_matrix, problem.objective, sizes, 1.0)


def _grown(
    norm: Callable[[Matrix], float], blocks: Blocks, sizes: list[float], steepest: float
) -> float:
    """A bound on the norm of what blocks make of x, times the steepest slope."""
    terms = []
    for source, matrix in blocks.items():
        factors = (steepest, norm(matrix), sizes[source])
        if all(factors):  # exactly zero terms need no rounding
            terms.append(factors[0] * factors[1] * factors[2])
    if not terms:
        return 0.0
    return up_float(sum(terms), 3 * len(terms))


def path_sum_rows(problem: DerivativeProblem) -> Array:
    """Upper bounds on the absolute values of the Jacobian, (outputs, inputs).

    An entry is the sum of |products of weights and steepest slopes| over all paths."""
    gradient = [np.zeros((n, problem.outputs)) for n in problem.sizes]
    for source, matrix in problem.objective.items():
        gradient[source] += dense(abs(matrix)).T
    for i in range(len(problem.layers), 0, -1):
        layer = problem.layers[i - 1]
        through = up(layer.steepest[:, None] * gradient[i], 1)
        for source, matrix in layer.blocks.items():
            added = times_up(matrix.T, through)
            gradient[source] = up(gradient[source] + added, 1)
    return gradient[0].T


def path_sum_columns(problem: DerivativeProblem) -> Array:
    """Upper bounds on how much each input alone can change, in the norm on the outputs."""
    rows = path_sum_rows(problem)
    return up(problem.norms[1].of_vectors(rows), 2 * problem.outputs)


def path_sum_bound(problem: DerivativeProblem) -> float:
    """The norm of the matrix of path sums, plus the problem's slack."""
    if problem.is_zero:
        return problem.slack
    norm = problem.norm.of_bounds_up(path_sum_rows(problem), problem.output_norm)
    return up_float(norm + problem.slack, 3)


@register("product")
@dataclass(frozen=True)
class Product:
    """The product of layer norms."""

    name: ClassVar[str] = "product"
    # Merging makes fewer neurons, but more layers; and leaves of trees have no rule for layer norms.
    takes_network_as_given: ClassVar[bool] = True

    def __call__(self, task: Task) -> UpperBound:
        bound = partial(product_bound, task.raw)
        try:
            value = in_time(task.budget, bound) if task.raw.neurons > LARGE else bound()
        except OutOfTimeError:
            value = product_bound(task.raw, is_late=True)
        return UpperBound(value, proof=LayerNorms())


@register("path-sum")
@dataclass(frozen=True)
class PathSum:
    """The sum of |products of weights| over all paths from an input to the output."""

    name: ClassVar[str] = "path-sum"

    def __call__(self, task: Task) -> UpperBound:
        return UpperBound(path_sum_bound(task.problem), proof=PathSums())
