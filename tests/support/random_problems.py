"""Random derivative problems of every kind."""

from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from lipopt.problem.derivative import DerivativeProblem, Layer
from lipopt.problem.presolve import drop_unused

SLOPES = {
    "relu": lambda rng, n: (np.zeros(n), np.ones(n)),
    "leaky": lambda rng, n: (np.full(n, 0.1), np.ones(n)),
    "signed": lambda rng, n: (-rng.random(n), rng.random(n)),
    "local": lambda rng, n: _local(rng, n),
}


def _local(rng, n):
    lower = 0.5 * rng.random(n)
    return lower, lower + rng.random(n) * (rng.random(n) < 0.7)  # some slopes are known


def random_problem(
    seed, *, norm="linf", depth=3, slopes="relu", skips=False, outputs=1, widest=6, inputs=None
):
    """`depth` weight matrices; layers of up to `widest` neurons (and as many inputs, if none are given), some blocks sparse."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, widest + 1, depth)
    sizes[0] = inputs or sizes[0]

    def blocks(rows, i):
        sources = [i - 1, *(j for j in range(i - 1) if skips and rng.random() < 0.5)]
        found = {}
        for s in sources:
            matrix = rng.standard_normal((rows, sizes[s])) / np.sqrt(sizes[s])
            sparse = matrix * (rng.random(matrix.shape) < 0.7)
            found[s] = sp.csr_array(sparse) if rng.random() < 0.3 else matrix
        return found

    layers = tuple(
        Layer(blocks(sizes[i], i), *SLOPES[slopes](rng, sizes[i]), i, np.arange(sizes[i]))
        for i in range(1, depth)
    )
    return drop_unused(DerivativeProblem(norm, int(sizes[0]), layers, blocks(outputs, depth)))


def gaussian_weights(sizes, seed=0):
    """The paper's random networks: standard normal weights, scaled to keep values near 1."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((b, a)) / np.sqrt(a) for a, b in pairwise(sizes)]
