"""All random networks and problems of the tests: the same seed gives the same numbers, and unknown names are refused.

random_network, gaussian_weights   weight matrices, of which problem_of makes a derivative problem
make_network                       networks of every architecture and activation
side_by_side                       two of them in one
random_problem, tiny_problem       derivative problems with all kinds of slope ranges
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator

from lipopt.model.activations import KINDS, check, value
from lipopt.model.network import Network
from lipopt.model.nodes import Activation, Affine, Input, Node
from lipopt.model.norms import Norm
from lipopt.numerics.arrays import Array, Matrix
from lipopt.problem.derivative import Blocks, DerivativeProblem, Layer
from lipopt.problem.presolve import drop_unused
from lipopt.problem.question import Question, pose
from lipopt.readers import load, smooth, windowed
from lipopt.readers.builder import Builder
from lipopt.readers.views import View

ARCHITECTURES = (
    "dense",
    "sparse",
    "wide",
    "residual",
    "convolution",
    "max-pool",
    "concatenation",
    "one layer",
    "affine first",
    "affine between",
    "affine last",
    "affine everywhere",
    "input skip",
    "activations in a row",
)
# Those with products of numbers that depend on the input: they have constants in a ball or a box alone.
LOCAL_ARCHITECTURES = ("product", "products in a row", "logarithm of a product")
PARAMETERS = {
    "leaky_relu": {"alpha": -0.3},
    "clip": {"low": -0.5, "high": 0.7},
    "hard_sigmoid": {"alpha": 1 / 6, "beta": 0.5},
    "hard_silu": {"alpha": 0.25, "beta": 0.25},
    "elu": {"alpha": 1.7},
    "celu": {"alpha": 0.6},
    "softplus": {"beta": 2.0},
    "silu": {"beta": 1.3},
    "power": {"exponent": 3.0},
}
# Those whose slopes are bounded over the whole space.
GLOBAL_KINDS = tuple(sorted(kind for kind, spec in KINDS.items() if not spec.is_local))
SLOPES: dict[str, Callable[[Generator, int], tuple[Array, Array]]] = {
    "relu": lambda rng, n: (np.zeros(n), np.ones(n)),
    "leaky": lambda rng, n: (np.full(n, 0.1), np.ones(n)),
    "signed": lambda rng, n: (-rng.random(n), rng.random(n)),
    "local": lambda rng, n: _local(rng, n),
}


def defined(kind: str, x: float) -> float:
    """A number moved to where the activation is defined."""
    if KINDS[kind].argument == "any":
        return x
    return abs(x) + 0.01


# ---- weight matrices


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


def gaussian_weights(sizes: Sequence[int], seed: int = 0) -> list[Array]:
    """Standard normal weights, scaled to keep values near 1."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((b, a)) / np.sqrt(a) for a, b in pairwise(sizes)]


# ---- networks


def make_network(architecture: str, kind: str, seed: int) -> Network:
    """A tiny network with at most 12 neurons and random weights, some of them zero."""
    known = (*ARCHITECTURES, *LOCAL_ARCHITECTURES)
    if architecture not in known:
        raise ValueError(f"no architecture '{architecture}'; use one of {', '.join(known)}")
    if kind not in KINDS:
        raise ValueError(f"no activation '{kind}'; use one of {', '.join(sorted(KINDS))}")
    rng = np.random.default_rng(seed)
    b = Builder()
    parameters = PARAMETERS.get(kind, {})

    def matrix(rows: int, columns: int, density: float = 1.0) -> np.ndarray:
        return rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < density)

    def dense(x: View, size: int, density: float = 1.0) -> View:
        return b.linear("dense", x, matrix(size, x.shape[-1], density), rng.normal(size=size))

    def act(x: View) -> View:
        if kind in GLOBAL_KINDS:
            return b.activation(kind, x, kind, parameters)
        # Where slopes are not bounded, or the function is not defined, near 1 and from there on a
        # scale of 50, so that it is defined in all domains that tests ask about.
        near = b.scale_shift(kind, x, 0.02, 1.0)
        at_one = value(kind, np.ones(1), check(kind, parameters))
        return b.scale_shift(kind, b.activation(kind, near, kind, parameters), 20.0, -20 * at_one)

    if architecture == "convolution":
        x = b.input((1, 1, 4, 3))
        options: dict[str, Any] = {
            "strides": [2, 1],
            "pads": [(1, 0), (1, 1)],
            "dilations": [1, 1],
            "groups": 1,
        }
        x = act(
            windowed.convolution(
                b, "conv", x, rng.normal(size=(1, 1, 3, 2)), rng.normal(size=1), **options
            )
        )
        x = windowed.average_pool(b, "pool", x, [2, 2], [1, 1], [(0, 0), (0, 0)], count_pads=True)
        return b.network(dense(x.moved(lambda i: i.reshape(1, -1)), 2))
    if architecture == "max-pool":
        x = windowed.max_pool(
            b, "max", b.input((1, 1, 2, 4)), [2, 2], [1, 2], [(0, 0), (0, 0)], [1, 1]
        )
        return b.network(dense(act(dense(x.moved(lambda i: i.reshape(1, -1)), 2)), 2))
    x = b.input((1, 12 if architecture == "wide" else 3))  # wide: more inputs than neurons
    if architecture == "one layer":
        return b.network(dense(x, 2))
    if architecture == "activations in a row":
        return b.network(dense(act(act(dense(act(x), 3))), 2))
    if architecture == "input skip":
        return b.network(dense(act(b.add("skip", [x, dense(act(dense(x, 3)), 3)], [1.0, 0.5])), 2))
    if architecture.startswith("affine"):
        doubled = architecture.removeprefix("affine ")
        for place in ("first", "between", "last"):
            x = dense(x, 3)
            if doubled in (place, "everywhere"):
                x = dense(x, 4)
            x = x if place == "last" else act(x)
        return b.network(x)
    if architecture == "product":
        gate = act(dense(x, 2))
        return b.network(dense(act(smooth.product(b, "product", gate, dense(x, 2))), 2))
    if architecture == "products in a row":
        x = smooth.product(b, "first", act(dense(x, 2)), dense(x, 2))
        rows = x.moved(lambda i: i.reshape(1, 2))
        return b.network(dense(smooth.matmul(b, "second", rows, dense(x, 4).moved(_square)), 2))
    if architecture == "logarithm of a product":
        # Both factors are positive; the difference of the squares that it is read as need not be.
        x = act(dense(x, 3))
        factors = []
        for _ in range(2):
            sigmoid = b.activation("sigmoid", dense(x, 1), "sigmoid")
            factors.append(b.scale_shift("positive", sigmoid, 1.0, 0.2))
        x = smooth.product(b, "product", factors[0], factors[1])
        return b.network(dense(b.activation("log", x, "log"), 2))
    density = 0.4 if architecture == "sparse" else 1.0
    x = act(dense(x, 4, density))
    if architecture == "residual":
        x = b.add("skip", [x, dense(act(dense(x, 3)), 4)], [1.0, 1.0])
        x = act(x)
    elif architecture == "concatenation":
        left, right = x.moved(lambda i: i[:, :2]), x.moved(lambda i: i[:, 2:])
        x = b.concatenate("join", [act(dense(left, 2)), right, np.ones((1, 1))], 1)
    else:
        x = act(dense(x, 4, density))
    return b.network(dense(x, 2, density))


def _square(index: Array) -> Array:
    """Four entries as two rows of two."""
    return index.reshape(2, 2)


# ---- derivative problems


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
    if slopes not in SLOPES:
        raise ValueError(f"no slopes '{slopes}'; use one of {', '.join(SLOPES)}")
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


def slopes_at(problem: DerivativeProblem, x: Array) -> tuple[Array, list[Array]]:
    """t and the slopes of every layer at a point of the cube, in columns of one."""
    parts = np.split(x[: sum(problem.sizes)], np.cumsum(problem.sizes)[:-1])
    slopes = [
        v.lower + (v.upper - v.lower) * part
        for v, part in zip(problem.layers, parts[1:], strict=True)
    ]
    return (2 * parts[0] - 1)[:, None], [s[:, None] for s in slopes]


def side_by_side(one: Network, other: Network) -> Network:
    """Two networks with the same graph as one network, their entries in turn.

    Each has its own inputs and outputs: those of `one` are at the even places."""
    nodes: list[Node] = []
    for left, right in zip(one.nodes, other.nodes, strict=True):
        if isinstance(left, Input):
            nodes.append(Input((2 * left.size,)))
        elif isinstance(left, Activation):
            assert all(np.ndim(value) == 0 for value in left.parameters.values())
            nodes.append(replace(left, size=2 * left.size))
        else:
            assert isinstance(right, Affine)
            matrices = []
            for even, odd in zip(left.matrices, right.matrices, strict=True):
                both = sp.kron(even, [[1, 0], [0, 0]]) + sp.kron(odd, [[0, 0], [0, 1]])
                matrices.append(sp.csr_array(both))
            bias = np.stack([left.bias, right.bias], axis=1).reshape(-1)
            nodes.append(replace(left, matrices=tuple(matrices), bias=bias))
    return Network(tuple(nodes))
