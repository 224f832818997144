"""Cheap upper bounds, rounded upward: the product of layer norms (the paper's UBP) and the path sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .definite import spectral_norm_up
from .methods import Task, UpperBound, register
from .problem import Blocks, DerivativeProblem
from .rounding import Array, Matrix, times_up, up, up_float


def operator_norm_up(matrix: Matrix, norm: str) -> float:
    """An upper bound on the norm of a matrix from inputs to outputs, both in the given norm."""
    if norm == "l2":
        return spectral_norm_up(matrix)
    axis = 1 if norm == "linf" else 0
    largest = float(np.max(abs(matrix.astype(np.float64)).sum(axis=axis)))
    return up_float(largest, matrix.shape[axis]) if largest else 0.0


def product_bound(problem: DerivativeProblem) -> float:
    """The product of the norms of the layers, of a problem that was not presolved; branches add up."""
    size = [1.0]

    def grown(blocks: Blocks, steepest: float) -> float:
        terms = [(steepest, operator_norm_up(m, problem.norm), size[source]) for source, m in blocks.items()]
        terms = [term for term in terms if all(term)]
        return up_float(sum(s * norm * before for s, norm, before in terms), 3 * len(terms)) if terms else 0.0

    for layer in problem.layers:
        size.append(grown(layer.blocks, float(np.maximum(np.abs(layer.lower), np.abs(layer.upper)).max())))
    return grown(problem.objective, 1.0)


def path_sum_rows(problem: DerivativeProblem) -> Array:
    """Upper bounds on the absolute values of the Jacobian, (outputs, inputs): the sum of |products of weights| over all paths."""
    shape = (problem.outputs,)
    gradient = [np.zeros((n, *shape)) for n in problem.sizes]
    for source, matrix in problem.objective.items():
        gradient[source] += abs(matrix).toarray().T if hasattr(matrix, "toarray") else np.abs(matrix).T
    for i in range(len(problem.layers), 0, -1):
        layer = problem.layers[i - 1]
        steepest = np.maximum(np.abs(layer.lower), np.abs(layer.upper))[:, None]
        through = up(steepest * gradient[i], 1)
        for source, matrix in layer.blocks.items():
            gradient[source] = up(
                gradient[source] + times_up(matrix.T.tocsr() if hasattr(matrix, "tocsr") else matrix.T, through), 1
            )
    return gradient[0].T


def path_sum_bound(problem: DerivativeProblem) -> float:
    """The norm of the matrix of path sums, plus the problem's slack."""
    if problem.is_zero:
        return problem.slack
    rows = path_sum_rows(problem)
    norms = {norm: operator_norm_up(rows, norm) for norm in ("linf", "l1")}
    if problem.norm == "l2":
        largest = float(rows.max())
        frobenius = up_float(largest * float(np.sqrt(np.square(rows / largest).sum())), rows.size + 4)
        return up_float(min(frobenius, float(np.sqrt(up_float(norms["linf"] * norms["l1"], 1)))) + problem.slack, 3)
    return up_float(norms[problem.norm] + problem.slack, 1)


@register("product")
@dataclass(frozen=True)
class Product:
    """The product of layer norms."""

    name: ClassVar[str] = "product"

    def __call__(self, task: Task) -> UpperBound:
        return UpperBound(product_bound(task.raw))


@register("path-sum")
@dataclass(frozen=True)
class PathSum:
    """The sum of |products of weights| over all paths from an input to the output."""

    name: ClassVar[str] = "path-sum"

    def __call__(self, task: Task) -> UpperBound:
        return UpperBound(path_sum_bound(task.problem))
