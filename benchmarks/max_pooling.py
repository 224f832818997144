"""What the gap of the SDP is made of where maxima are taken, on networks small enough to enumerate.

    python benchmarks/max_pooling.py [--seeds 3] [--size 5 3 4 4]

Sizes: inputs, groups, entries of a group, neurons behind them. Every group is the maximum of the
ReLU of its entries, as in a convolutional network; linf, slopes in [0, 1], one output. The optimum
of the POP is found by trying every choice of an entry, or of 0, in every group and of every slope.

tree       ReLU, then maxima of pairs, in rounds: what `sdp` relaxes
chain      ReLU, then maxima of pairs, one entry after the other
relu last  maxima of pairs, in rounds, then ReLU: the same function
hull       one vector for a group, such that all products of vectors of the group are an average of
           what they are where one entry, or 0, is chosen

Every relaxation is solved by Clarabel, as a problem over products of vectors. Then come bounds that
lipopt proves, with processor seconds:

triangles     `sdp` with cuts, without the alternatives of maxima
alternatives  `sdp` with cuts: their multipliers are those of the hull
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from unittest.mock import patch

import clarabel
import numpy as np
import scipy.sparse as sp

import lipopt
from lipopt.model.network import Network
from lipopt.readers.builder import Builder

Vector = np.ndarray  # a linear function of the basic vectors
Maximum = Callable[["Relaxation", Sequence[Vector]], Vector]
MOST = 100  # basic vectors, at most


class Relaxation:
    """Vectors, and constraints on their products."""

    def __init__(self) -> None:
        self.count = 0
        self.equations: list[tuple[Vector, Vector, float]] = []
        self.inequalities: list[tuple[Vector, Vector]] = []

    def vector(self) -> Vector:
        self.count += 1
        return np.eye(1, MOST, self.count - 1)[0]

    def relu(self, y: Vector) -> Vector:
        """z with <z, z - y> <= 0."""
        z = self.vector()
        self.inequalities.append((z, z - y))
        return z

    def maximum(self, objective: Vector) -> float:
        """The largest length of the objective."""
        n = self.count
        column, row = np.tril_indices(n)  # the upper triangle, column by column
        scale = np.where(row == column, 0.5, np.sqrt(0.5))

        def product(a: Vector, b: Vector) -> Vector:
            return scale * (a[row] * b[column] + b[row] * a[column])

        rows = [product(a, b) for a, b, _ in self.equations]
        rows += [product(a, b) for a, b in self.inequalities]
        right = [value for _, _, value in self.equations] + [0.0] * len(self.inequalities)
        left = sp.vstack([sp.csc_matrix(np.array(rows)), -sp.eye(len(row))], format="csc")
        cones = [
            clarabel.ZeroConeT(len(self.equations)),
            clarabel.NonnegativeConeT(len(self.inequalities)),
            clarabel.PSDTriangleConeT(n),
        ]
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        cost = -product(objective, objective)
        quadratic = sp.csc_matrix((len(row), len(row)))
        all_right = np.concatenate([right, np.zeros(len(row))])
        solver = clarabel.DefaultSolver(quadratic, cost, left, all_right, cones, settings)
        return float(np.sqrt(-solver.solve().obj_val))


def larger(relaxation: Relaxation, a: Vector, b: Vector) -> Vector:
    return b + relaxation.relu(a - b)


def tree(relaxation: Relaxation, entries: Sequence[Vector]) -> Vector:
    left = list(entries)
    while len(left) > 1:
        half = len(left) // 2
        pairs = zip(left[:half], left[half : 2 * half], strict=True)
        left = [larger(relaxation, a, b) for a, b in pairs] + left[2 * half :]
    return left[0]


def relu_then_tree(relaxation: Relaxation, entries: Sequence[Vector]) -> Vector:
    return tree(relaxation, [relaxation.relu(entry) for entry in entries])


def relu_then_chain(relaxation: Relaxation, entries: Sequence[Vector]) -> Vector:
    largest = relaxation.relu(entries[0])
    for entry in entries[1:]:
        largest = larger(relaxation, relaxation.relu(entry), largest)
    return largest


def tree_then_relu(relaxation: Relaxation, entries: Sequence[Vector]) -> Vector:
    return relaxation.relu(tree(relaxation, entries))


def hull(relaxation: Relaxation, entries: Sequence[Vector]) -> Vector:
    """The sum of w_ii, where w_ij is x_j if entry i is chosen, and 0 if not.

    The w_ij of one j sum up to x_j, or to less if 0 is chosen; those of different i are orthogonal."""
    k = len(entries)
    chosen = []
    for _ in range(k):
        chosen.append([relaxation.vector() for _ in range(k)])
    rest = [entry - sum(own) for entry, own in zip(entries, zip(*chosen, strict=True), strict=True)]
    for one, other in itertools.combinations([*chosen, rest], 2):
        for a, b in itertools.product(one, other):
            relaxation.equations.append((a, b, 0.0))
    return np.sum([chosen[i][i] for i in range(k)], axis=0)


RELAXATIONS: dict[str, Maximum] = {
    "tree": relu_then_tree,
    "chain": relu_then_chain,
    "relu last": tree_then_relu,
    "hull": hull,
}


class SmallNetwork:
    """Random weights: to the entries of all groups, to the neurons behind them, to the output."""

    def __init__(self, sizes: Sequence[int], seed: int) -> None:
        inputs, self.groups, self.entries, neurons = sizes
        rng = np.random.default_rng(seed)
        self.first = rng.normal(size=(self.groups, self.entries, inputs)) / np.sqrt(inputs)
        self.second = rng.normal(size=(neurons, self.groups)) / np.sqrt(self.groups)
        self.last = rng.normal(size=neurons)

    def optimum(self) -> float:
        """That of the POP."""
        options = np.concatenate([self.first, np.zeros_like(self.first[:, :1])], axis=1)
        slopes = np.array(list(itertools.product((0.0, 1.0), repeat=len(self.last))))
        best = 0.0
        for choice in itertools.product(range(self.entries + 1), repeat=self.groups):
            chosen = options[np.arange(self.groups), list(choice)]
            gradients = (slopes * self.last) @ (self.second @ chosen)
            best = max(best, float(np.abs(gradients).sum(axis=1).max()))
        return best

    def relaxed(self, maximum: Maximum) -> float:
        relaxation = Relaxation()
        t = [relaxation.vector() for _ in range(self.first.shape[2])]
        for vector in t:
            relaxation.equations.append((vector, vector, 1.0))
        pooled = [maximum(relaxation, list(group @ np.array(t))) for group in self.first]
        neurons = [relaxation.relu(y) for y in self.second @ np.array(pooled)]
        return relaxation.maximum(self.last @ np.array(neurons))

    def network(self) -> Network:
        builder = Builder()
        x = builder.input(self.first.shape[2:], batch=False)
        entries = builder.linear("first", x, self.first.reshape(-1, self.first.shape[2]), None)
        relu = builder.activation("relu", entries, "relu")
        shape = (self.groups, self.entries)
        pooled = builder.maximum("pool", relu.moved(lambda index: index.reshape(shape)))
        y = builder.linear("second", pooled, self.second, None)
        z = builder.activation("relu2", y, "relu")
        return builder.network(builder.linear("last", z, self.last[None], None))

    def bound(self) -> tuple[float, float]:
        """That of lipopt, with cuts; and the seconds."""
        start = time.process_time()
        upper = lipopt.bound(self.network(), method=lipopt.SDP(cuts=True)).upper
        return upper, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--size", type=int, nargs=4, default=[5, 3, 4, 4])
    arguments = parser.parse_args()
    head = ["seed", "optimum", *RELAXATIONS, "triangles", "s", "alternatives", "s"]
    print("| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    gaps = []
    for seed in range(arguments.seeds):
        network = SmallNetwork(arguments.size, seed)
        optimum = network.optimum()
        cells = [str(seed), f"{optimum:.4f}"]
        own = []
        for maximum in RELAXATIONS.values():
            value = network.relaxed(maximum)
            own.append(value / optimum - 1)
            cells.append(f"{value:.4f} ({own[-1]:.1%})")
        with patch("lipopt.methods.sdp.signs.find_trees", lambda neurons: ()):
            before = network.bound()
        for value, seconds in (before, network.bound()):
            own.append(value / optimum - 1)
            cells += [f"{value:.4f} ({own[-1]:.1%})", f"{seconds:.1f}"]
        gaps.append(own)
        print("| " + " | ".join(cells) + " |", flush=True)
    *relaxed, cut, closed = [f"{gap:.1%}" for gap in np.mean(gaps, axis=0)]
    print("| " + " | ".join(["mean", "", *relaxed, cut, "", closed, ""]) + " |")


if __name__ == "__main__":
    main()
