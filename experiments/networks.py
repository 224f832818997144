"""The networks of the paper's section 6.1: random weights, at most s connections from a neuron to the next layer, ELU."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import numpy as np

import lipopt

DENSE = "dense"


def random_network(architecture: str, sparsity: int | str, seed: int) -> lipopt.Network:
    """For "80x80x10": 80 inputs, hidden layers of 80 and 10, one output. Weights are uniform in [-1/sqrt(n), 1/sqrt(n)],
    n the size of the layer before; the output layer is dense; there are no biases."""
    rng = np.random.default_rng(seed)
    sizes = [*map(int, architecture.split("x")), 1]
    weights = []
    for before, after in pairwise(sizes):
        w = rng.uniform(-1, 1, (after, before)) / sqrt(before)
        if sparsity != DENSE and after > 1:
            rank = (
                rng.random(w.shape).argsort(axis=0).argsort(axis=0)
            )  # of the targets of every neuron, at random
            w[rank >= int(sparsity)] = 0.0
        weights.append(w)
    return lipopt.load(weights, activation="elu")


def depth(architecture: str) -> int:
    """The paper's depth: the number of layers of weights, and the degree of the polynomial."""
    return len(architecture.split("x"))
