"""Random derivative problems of every kind."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator

from lipopt.model.norms import Norm
from lipopt.numerics.arrays import Array
from lipopt.problem.derivative import Blocks, DerivativeProblem, Layer
from lipopt.problem.presolve import drop_unused

SLOPES: dict[str, Callable[[Generator, int], tuple[Array, Array]]] = {
    "relu": lambda rng, n: (np.zeros(n), np.ones(n)),
    "leaky": lambda rng, n: (np.full(n, 0.1), np.ones(n)),
    "signed": lambda rng, n: (-rng.random(n), rng.random(n)),
    "local": lambda rng, n: _local(rng, n),
}


def _local(rng: Generator, n: int) -> tuple[Array, Array]:
    lower = 0.5 * rng.random(n)
    return lower, lower + rng.random(n) * (rng.random(n) < 0.7)  # some slopes are known


def random_problem(
    seed: int,
    *,
    norm: str = "linf",
    depth: int = 3,
    slopes: str = "relu",
    skips: bool = False,
    outputs: int = 1,
    widest: int = 6,
    inputs: int | None = None,
) -> DerivativeProblem:
    """`depth` weight matrices; layers of up to `widest` neurons (and as many inputs, if none are given), some blocks sparse."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, widest + 1, depth)
    sizes[0] = inputs or sizes[0]

    def blocks(rows: int, i: int) -> Blocks:
        sources = [i - 1, *(j for j in range(i - 1) if skips and rng.random() < 0.5)]
        found = {}
        for s in sources:
            matrix = rng.standard_normal((rows, sizes[s])) / np.sqrt(sizes[s])
            sparse = matrix * (rng.random(matrix.shape) < 0.7)
            found[s] = sp.csr_array(sparse) if rng.random() < 0.3 else matrix
        return found

    layers = []
    for i in range(1, depth):
        read = blocks(sizes[i], i)
        lower, upper = SLOPES[slopes](rng, sizes[i])
        layers.append(Layer(read, lower, upper, i, np.arange(sizes[i])))
    found = tuple(layers)
    return drop_unused(DerivativeProblem(Norm(norm), int(sizes[0]), found, blocks(outputs, depth)))


def gaussian_weights(sizes: Sequence[int], seed: int = 0) -> list[Array]:
    """The paper's random networks: standard normal weights, scaled to keep values near 1."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((b, a)) / np.sqrt(a) for a, b in pairwise(sizes)]
