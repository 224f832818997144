"""Random networks and questions for the property tests: every layer kind, activation, norm and domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from hypothesis import strategies as st

from lipopt.model.activations import KINDS
from lipopt.model.domain import Ball, Box
from lipopt.model.network import Network
from lipopt.model.norms import NormName
from lipopt.readers.builder import Builder
from lipopt.readers.views import View

SEEDS = st.integers(0, 2**32 - 1)
NORMS: tuple[NormName, ...] = get_args(NormName)
OUTPUTS: tuple[int | Literal["all"], ...] = (0, 1, "all")
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
PARAMETERS = {
    "leaky_relu": {"alpha": -0.3},
    "clip": {"low": -0.5, "high": 0.7},
    "hard_sigmoid": {"alpha": 1 / 6, "beta": 0.5},
    "hard_silu": {"alpha": 0.25, "beta": 0.25},
    "elu": {"alpha": 1.7},
    "celu": {"alpha": 0.6},
    "softplus": {"beta": 2.0},
    "silu": {"beta": 1.3},
}


@dataclass(frozen=True)
class Question:
    """A network and what is asked of it."""

    network: Network
    norm: NormName
    output: int | Literal["all"]
    domain: Ball | Box | None
    label: str

    def __repr__(self) -> str:
        return f"{self.label}, norm {self.norm}, output {self.output}, domain {self.domain}"


def make_network(architecture: str, kind: str, seed: int) -> Network:
    """A tiny network with at most 12 neurons and random weights, some of them zero."""
    if architecture not in ARCHITECTURES:
        raise ValueError(f"no architecture '{architecture}'; use one of {', '.join(ARCHITECTURES)}")
    rng = np.random.default_rng(seed)
    b = Builder()
    parameters = PARAMETERS.get(kind, {})

    def matrix(rows: int, columns: int, density: float = 1.0) -> np.ndarray:
        return rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < density)

    def dense(x: View, size: int, density: float = 1.0) -> View:
        return b.linear("dense", x, matrix(size, x.shape[-1], density), rng.normal(size=size))

    def act(x: View) -> View:
        return b.activation(kind, x, kind, parameters)

    if architecture == "convolution":
        x = b.input((1, 1, 4, 3))
        options: dict[str, Any] = {
            "strides": [2, 1],
            "pads": [(1, 0), (1, 1)],
            "dilations": [1, 1],
            "groups": 1,
        }
        x = act(
            b.convolution("conv", x, rng.normal(size=(1, 1, 3, 2)), rng.normal(size=1), **options)
        )
        x = b.average_pool("pool", x, [2, 2], [1, 1], [(0, 0), (0, 0)], count_pads=True)
        return b.network(dense(x.moved(lambda i: i.reshape(1, -1)), 2))
    if architecture == "max-pool":
        x = b.max_pool("max", b.input((1, 1, 2, 4)), [2, 2], [1, 2], [(0, 0), (0, 0)], [1, 1])
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


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """A network, a norm, an output, a domain."""
    architecture, kind = draw(st.sampled_from(ARCHITECTURES)), draw(st.sampled_from(sorted(KINDS)))
    seed = draw(SEEDS)
    network = make_network(architecture, kind, seed)
    rng = np.random.default_rng(seed + 1)
    center = rng.normal(size=network.input_size)
    domain = draw(
        st.sampled_from(
            [
                None,
                Ball(center, 0.01),
                Ball(center, 0.5),
                Ball(center, 0.0),
                Box(center - 0.1, center + rng.random()),
            ]
        )
    )
    norm = draw(st.sampled_from(NORMS))
    output = draw(st.sampled_from(OUTPUTS))
    return Question(network, norm, output, domain, f"{architecture} {kind} {seed}")
