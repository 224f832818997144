"""Questions for the property tests, drawn by hypothesis: every layer kind, activation, norm and domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from hypothesis import strategies as st
from networks import ARCHITECTURES, GLOBAL_KINDS, LOCAL_ARCHITECTURES, make_network
from regions import PIECEWISE_LINEAR

from lipopt.model.activations import KINDS
from lipopt.model.domain import Ball, Box
from lipopt.model.network import Network
from lipopt.model.norms import NormName
from lipopt.numerics.arrays import Array

SEEDS = st.integers(0, 2**32 - 1)
NORMS: tuple[NormName, ...] = get_args(NormName)
OUTPUTS: tuple[int | Literal["all"], ...] = (0, 1, "all")


@dataclass(frozen=True)
class Question:
    """A network and what is asked of it."""

    network: Network
    norm: NormName
    output: int | Literal["all"]
    domain: Ball | Box | None
    label: str

    @property
    def is_box(self) -> bool:
        """Whether the domain is a box."""
        if self.domain is None:
            return False
        return self.domain.ball(self.network.input_size) is None

    def __repr__(self) -> str:
        return f"{self.label}, norm {self.norm}, output {self.output}, domain {self.domain}"


def round_balls(center: Array, radius: float, rng: np.random.Generator) -> list[Ball]:
    """Balls in l2 and l1: plain, in units, and cut at the center in some inputs."""
    scale = rng.uniform(0.5, 2, len(center))
    largest = float(center.max())
    return [
        Ball(center, radius, norm="l2"),
        Ball(center, radius, norm="l1"),
        Ball(center, radius, norm="l2", scale=scale, clip=(-np.inf, largest)),
        Ball(center, radius, norm="l1", scale=scale, clip=(-np.inf, largest)),
    ]


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """A network, a norm, an output, a domain."""
    architecture = draw(st.sampled_from((*ARCHITECTURES, *LOCAL_ARCHITECTURES)))
    kind = draw(st.sampled_from(sorted(KINDS)))
    seed = draw(SEEDS)
    network = make_network(architecture, kind, seed)
    rng = np.random.default_rng(seed + 1)
    center = rng.normal(size=network.input_size)
    domains: list[Ball | Box | None] = [
        Ball(center, 0.01),
        Ball(center, 0.5),
        Ball(center, 0.0),
        Box(center - 0.1, center + rng.random()),
        *round_balls(center, 0.3, rng),
    ]
    if kind in GLOBAL_KINDS and architecture in ARCHITECTURES:
        domains.append(None)
    domain = draw(st.sampled_from(domains))
    norm = draw(st.sampled_from(NORMS))
    output = draw(st.sampled_from(OUTPUTS))
    return Question(network, norm, output, domain, f"{architecture} {kind} {seed}")


@st.composite
def piecewise_linear_questions(draw: st.DrawFn) -> Question:
    """A piecewise linear network, a norm, an output, and a domain with an interior.

    Networks of the larger architectures are asked about in small domains: their regions are
    enumerated."""
    architecture = draw(st.sampled_from(ARCHITECTURES))
    kind = draw(st.sampled_from(PIECEWISE_LINEAR))
    seed = draw(SEEDS)
    network = make_network(architecture, kind, seed)
    rng = np.random.default_rng(seed + 1)
    center = rng.normal(size=network.input_size)
    sizes = [0.01, 0.3] if network.input_size > 3 else [0.1, 0.5, 2.0]
    size = draw(st.sampled_from(sizes))
    box = Box(center - 0.3 * size, center + size * rng.uniform(0.1, 1, network.input_size))
    domains: list[Ball | Box] = [Ball(center, size), box, *round_balls(center, size, rng)]
    domain = draw(st.sampled_from(domains))
    norm = draw(st.sampled_from(NORMS))
    output = draw(st.sampled_from(OUTPUTS))
    return Question(network, norm, output, domain, f"{architecture} {kind} {seed}")
