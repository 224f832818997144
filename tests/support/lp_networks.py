"""Networks for the tests of the LP hierarchy: the random ones of the paper's section 6.1, and tiny ones of every shape."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator

from lipopt.model.norms import Norm
from lipopt.numerics.arrays import Array, Matrix
from lipopt.problem.derivative import DerivativeProblem, Layer
from lipopt.problem.presolve import drop_unused
from lipopt.problem.question import Question, pose
from lipopt.readers import load


def random_network(sizes: Sequence[int], sparsity: int | None = None, seed: int = 1) -> list[Array]:
    """sizes = n0, n1, ..., 1. Every neuron feeds `sparsity` neurons of the next layer; the output layer is dense."""
    rng = np.random.default_rng(seed)
    weights = []
    for i, (columns, rows) in enumerate(pairwise(sizes)):
        w = rng.uniform(-1, 1, (rows, columns)) / np.sqrt(columns)
        if sparsity and i < len(sizes) - 2 and sparsity < rows:
            mask = np.zeros((rows, columns), bool)
            for j in range(columns):
                mask[rng.choice(rows, sparsity, replace=False), j] = True
            w = w * mask
        weights.append(w)
    return weights


def problem_of(
    weights: Sequence[Array], norm: str = "linf", output: int | Literal["all"] = 0
) -> DerivativeProblem:
    """The presolved problem of plain weights with ReLU between them."""
    network = load(list(weights))
    return pose(network, Question.about(network, norm=norm, output=output)).problem


def tiny_problem(seed: int, norm: str = "linf", outputs: int = 1) -> DerivativeProblem:
    """One to three layers of one to three neurons: skips, zeros, sparse and dense blocks, all kinds of slope ranges."""
    rng = np.random.default_rng(seed)
    inputs = int(rng.integers(1, 4))
    sizes = [inputs]
    layers: list[Layer] = []
    for i in range(int(rng.integers(1, 4))):
        n = int(rng.integers(1, 4))
        reads = {i} | {int(s) for s in range(i) if rng.random() < 0.3}
        kind = rng.integers(0, 4, n)
        lower = np.select(
            [kind == 0, kind == 1, kind == 2],
            [np.zeros(n), rng.uniform(0, 0.4, n), rng.uniform(-0.3, 0, n)],
            0.5,
        )
        upper = np.where(kind == 3, 0.5, lower + rng.uniform(0.2, 1, n))
        layers.append(
            Layer({s: block(rng, n, sizes[s]) for s in reads}, lower, upper, i, np.arange(n))
        )
        sizes.append(n)
    reads = {len(layers)} | {int(s) for s in range(len(layers)) if rng.random() < 0.3}
    problem = DerivativeProblem(
        Norm(norm), inputs, tuple(layers), {s: block(rng, outputs, sizes[s]) for s in reads}
    )
    return drop_unused(problem)


def block(rng: Generator, rows: int, columns: int) -> Matrix:
    """A random block, some of it zero, dense or sparse."""
    matrix = rng.uniform(-1, 1, (rows, columns)) * (rng.random((rows, columns)) < 0.8)
    return sp.csr_array(matrix) if rng.random() < 0.5 else matrix


def slopes_at(problem: DerivativeProblem, x: Array) -> tuple[Array, list[Array]]:
    """t and the slopes of every layer at a point of the cube, in columns of one."""
    parts = np.split(x[: sum(problem.sizes)], np.cumsum(problem.sizes)[:-1])
    slopes = [
        v.lower + (v.upper - v.lower) * part
        for v, part in zip(problem.layers, parts[1:], strict=True)
    ]
    return (2 * parts[0] - 1)[:, None], [s[:, None] for s in slopes]
