"""Balls in l2 and l1 that are cut with boxes: what is certified, and how far branch and bound gets.

    python benchmarks/clipped.py

Networks with 4 inputs, two hidden layers of 12 and 8 neurons and 3 outputs, weights and biases standard normal, inputs uniform in
[0, 1], clipped to [-0.2, 1] or not at all. Then the digits that ship with lipopt, clipped to [0, 1].
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import numpy as np

import lipopt
from lipopt.examples import digits, example
from lipopt.methods.branch import Branch
from lipopt.model.norms import NormName

CLIPS: tuple[tuple[float, float] | None, ...] = (None, (-0.2, 1.0))
NORMS: tuple[NormName, ...] = ("l2", "l1")
RADII: dict[NormName, Sequence[float]] = {"l2": (0.3, 0.5), "l1": (1.0, 2.0, 4.0)}  # of digits
NETWORKS = 6


def network(rng: np.random.Generator, kind: str) -> lipopt.Network:
    sizes = (4, 12, 8, 3)
    weights = [rng.normal(size=(b, a)) for a, b in itertools.pairwise(sizes)]
    return lipopt.load(weights, biases=[rng.normal(size=n) for n in sizes[1:]], activation=kind)


def certified(kind: str, norm: NormName, clip: tuple[float, float] | None) -> None:
    """Balls of three radii around six points of every network, with up to 300 cells each."""
    start = time.process_time()
    rows: list[lipopt.Verdict] = []
    for seed in range(NETWORKS):
        rng = np.random.default_rng(seed)
        model = network(rng, kind)
        points = rng.uniform(0, 1, (6, 4))
        rows += lipopt.certify(model, points, (0.2, 0.4, 0.8), norm=norm, clip=clip, cells=300)
    seconds = time.process_time() - start
    counts = [sum(row.status == status for row in rows) for status in ("certified", "open")]
    cells = sum(row.cells for row in rows)
    print(f"certify {kind} {norm} {clip}: {counts[0]} certified, {counts[1]} open,", end=" ")
    print(f"{cells} cells, {seconds:.1f} s", flush=True)


def bounded(kind: str, norm: NormName, clip: tuple[float, float] | None) -> None:
    """The gap that 100 cells leave in a ball of .5, for the l2 constant of output 0."""
    start = time.process_time()
    gaps = []
    for seed in range(NETWORKS):
        rng = np.random.default_rng(seed)
        model = network(rng, kind)
        ball = lipopt.Ball(rng.uniform(0, 1, 4), 0.5, clip, norm=norm)
        found = lipopt.bound(model, norm="l2", domain=ball, method=Branch(cells=100))
        gaps.append(f"{found.upper / found.lower - 1:.1%}")
    seconds = time.process_time() - start
    print(f"bound {kind} {norm} {clip}: {' '.join(gaps)}, {seconds:.1f} s", flush=True)


def main() -> None:
    for kind, norm, clip in itertools.product(("tanh", "relu"), NORMS, CLIPS):
        certified(kind, norm, clip)
        bounded(kind, norm, clip)
    images, labels = digits()
    for norm in NORMS:
        start = time.process_time()
        radii = RADII[norm]
        found = lipopt.certify(
            example("dense"), images, radii, labels=labels, norm=norm, clip=(0, 1), cells=100
        )
        counts = []
        for radius in radii:
            own = [row for row in found if row.radius == radius]
            counts.append(f"{sum(row.status == 'certified' for row in own)} at {radius:g}")
        seconds = time.process_time() - start
        print(f"digits {norm}: {', '.join(counts)} of {len(images)}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
