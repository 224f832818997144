"""Section 6.3: local constants against the radius of the ball, for random networks and for digits of the trained network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from statistics import mean

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

import lipopt
from lipopt.examples import LABEL, digits, example

from .estimators import LBS, answer
from .networks import random_network
from .style import LOOK, legend_above, save
from .table import LIMITED, Cell, Row, Setup, fill

ARCHITECTURE = {"full": "80x80x10", "quick": "40x40x10", "tiny": "6x6x5"}
SPARSITY = 5
NETWORKS = {"full": 15, "quick": 3, "tiny": 1}
DIGITS = {"full": 10, "quick": 2, "tiny": 1}
RADII = {
    "full": (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    "quick": (0.1, 1.0, 5.0),
    "tiny": (0.1, 1.0),
}
PIXEL_RADII = {
    "full": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
    "quick": (0.003, 0.03),
    "tiny": (0.01,),
}
GLOBAL = "inf"  # the radius of the whole space
ESTIMATORS = (LBS, "LiPopt-3", "SDP", "auto")
GLOBAL_LINES = ("LiPopt-3", "SDP")
SAMPLES = {"full": 50_000, "quick": 2_000, "tiny": 50}
PIXEL_SAMPLES = {"full": 2_000, "quick": 200, "tiny": 10}
SECONDS = {"full": 20.0, "quick": 8.0, "tiny": 3.0}


def run(setup: Setup) -> None:
    scale = setup.scale
    random: list[Cell] = [
        {
            "architecture": ARCHITECTURE[scale],
            "sparsity": SPARSITY,
            "seed": seed,
            "radius": radius,
            "estimator": estimator,
        }
        for seed in range(NETWORKS[scale])
        for radius in (*RADII[scale], GLOBAL)
        for estimator in ESTIMATORS
    ]
    pixels: list[Cell] = [
        {"network": "pruned", "digit": digit, "radius": radius, "estimator": estimator}
        for digit in range(DIGITS[scale])
        for radius in (*PIXEL_RADII[scale], *([GLOBAL] if digit == 0 else []))
        for estimator in ESTIMATORS
    ]
    networks = fill(
        setup, "local_random", random, partial(_measure_network, SAMPLES[scale], SECONDS[scale])
    )
    images = fill(
        setup, "local_digits", pixels, partial(_measure_digit, PIXEL_SAMPLES[scale], SECONDS[scale])
    )
    _draw(setup, networks, images)


def _measure_network(samples: int, seconds: float, cell: Cell) -> Cell:
    network = random_network(cell["architecture"], cell["sparsity"], cell["seed"])
    center = np.random.default_rng(cell["seed"]).standard_normal(network.input_size)
    domain = None if cell["radius"] == GLOBAL else lipopt.Ball(center, cell["radius"])
    return answer(network, cell["estimator"], samples, seconds, domain=domain)


def _measure_digit(samples: int, seconds: float, cell: Cell) -> Cell:
    center = digits()[0][2 * cell["digit"]]
    domain = None if cell["radius"] == GLOBAL else lipopt.Ball(center, cell["radius"], clip=(0, 1))
    return answer(
        example(cell["network"]), cell["estimator"], samples, seconds, output=LABEL, domain=domain
    )


def _draw(setup: Setup, networks: Sequence[Row], images: Sequence[Row]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    count = len({row["seed"] for row in networks})
    _panel(
        axes[0],
        networks,
        "seed",
        f"random networks {ARCHITECTURE[setup.scale]}, s = {SPARSITY}, {count} in all",
    )
    _panel(
        axes[1],
        images,
        "network",
        f"pruned MNIST network, test digits, {len({row['digit'] for row in images})} in all",
    )
    axes[0].set_ylabel("bound / global SDP bound")
    legend_above(figure, axes)
    limited = sum(row["status"] == LIMITED for row in [*networks, *images])
    caption = (
        "Local constants over l_inf balls, relative to the SDP bound of the same network over the whole space: mean, and range "
        "from the smallest to the largest. "
        "Left: balls around normal random points, slopes of ELU. "
        f"Right: around test digits, cut to pixels in [0, 1], output {LABEL}. "
        f"{limited} bounds ended at the time limit of {SECONDS[setup.scale]:g} s: they hold, but more time would improve them."
    )
    save(figure, setup, "local", caption)


def _panel(ax: Axes, rows: Sequence[Row], by: str, title: str) -> None:
    """Bounds relative to the global SDP bound of the row with the same `by`."""
    radii = sorted({float(row["radius"]) for row in rows} - {np.inf})
    scale = {
        row[by]: float(row["upper"])
        for row in rows
        if row["radius"] == GLOBAL and row["estimator"] == "SDP"
    }
    values: dict[tuple[str, float], list[float]] = defaultdict(list)
    for row in rows:
        text = row["lower" if row["estimator"] == LBS else "upper"]
        if text and row[by] in scale:
            values[row["estimator"], float(row["radius"])].append(float(text) / scale[row[by]])
    for k, estimator in enumerate(ESTIMATORS):
        found = [values[estimator, radius] for radius in radii]
        low, middle, high = (np.array([f(v) for v in found]) for f in (min, mean, max))
        x = np.array(radii) * 1.04 ** (k - 1.5)  # side by side
        ax.errorbar(
            x,
            middle,
            (middle - low, high - middle),
            label=estimator,
            elinewidth=0.8,
            capsize=2,
            **LOOK[estimator],
        )
    for estimator in GLOBAL_LINES:
        look = {"color": LOOK[estimator]["color"], "linestyle": LOOK[estimator]["linestyle"]}
        ax.axhline(
            mean(values[estimator, np.inf]), linewidth=0.8, label=f"{estimator}, global", **look
        )
    ax.set(title=title, xscale="log", xlabel="radius of the ball")
    ax.set_ylim(bottom=0)
    ax.set_xticks(radii, [f"{radius:g}" for radius in radii])
    ax.xaxis.minorticks_off()
