"""Section 6.1 and the appendix: bounds and times on random networks, against their sparsity."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from statistics import mean

import matplotlib.pyplot as plt
import numpy as np

from .estimators import LBS, answer
from .networks import DENSE, depth, random_network
from .style import LOOK, legend_above, save
from .table import LIMITED, Cell, Row, Setup, fill

LEVELS: dict[str, tuple[int | str, ...]] = {
    "40x40": (5, 10, 15, 20, DENSE),
    "80x80": (5, 10, 15, 20, DENSE),
    "160x160": (5, 10, 15, 20),
    "320x320": (5, 10, 15, 20),
    "5x5x10": (5, DENSE),
    "10x10x10": (5, DENSE),
    "20x20x10": (5, 10, 15, DENSE),
    "40x40x10": (5, 10, 15, 20, DENSE),
}
SMALL: dict[str, tuple[int | str, ...]] = {"8x8": (3, DENSE), "5x5x5": (2, DENSE)}
NETWORKS = {"full": 10, "quick": 1, "tiny": 1}
SAMPLES = {"full": 50_000, "quick": 5_000, "tiny": 200}
SECONDS = {"full": 30.0, "quick": 4.0, "tiny": 5.0}
POP = "POP lower bound"
OFF_AXIS = "UBP"  # said in the caption
Values = dict[
    tuple[str, str], dict[str, dict[str, float]]
]  # by (architecture, sparsity), estimator, seed


def run(setup: Setup) -> None:
    levels = SMALL if setup.scale == "tiny" else LEVELS
    cells: list[Cell] = [
        {"architecture": architecture, "sparsity": sparsity, "seed": seed, "estimator": estimator}
        for seed in range(NETWORKS[setup.scale])
        for architecture in levels
        for sparsity in levels[architecture]
        for estimator in estimators(architecture)
    ]
    rows = fill(
        setup, "random", cells, partial(_measure, SAMPLES[setup.scale], SECONDS[setup.scale])
    )
    for hidden in (1, 2):
        draw(
            setup,
            [row for row in rows if depth(row["architecture"]) == hidden + 1],
            f"random_{hidden}hidden",
        )


def estimators(architecture: str) -> list[str]:
    """The paper's: both degrees, and its own SDP where products of slopes have to be lifted (for one layer it is ours)."""
    d = depth(architecture)
    return [
        LBS,
        "UBP",
        "Lip-SDP",
        "SDP",
        *(["SDP (paper's)"] if d > 2 else []),
        f"LiPopt-{d}",
        f"LiPopt-{d + 1}",
    ]


def _measure(samples: int, seconds: float, cell: Cell) -> Cell:
    network = random_network(cell["architecture"], cell["sparsity"], cell["seed"])
    return answer(network, cell["estimator"], samples, seconds)


def draw(setup: Setup, rows: Sequence[Row], name: str) -> None:
    """Three figures: the relative error, the time and the value of every estimator, a panel for each size."""
    limited = sum(row["status"] == LIMITED for row in rows)
    setting = (
        f"Mean of {_count(rows)} random networks per point, bars from the smallest to the largest. "
        f"{limited} LPs ended at the time limit of {SECONDS[setup.scale]:g} s: they hold, but more time would improve them. "
    )
    values = _bounds(rows)
    errors = _relative(values)
    shown = [e for e in estimators(rows[0]["architecture"]) if e != OFF_AXIS]
    _panels(
        setup,
        f"{name}_error",
        errors,
        [e for e in shown if e != LBS],
        "(bound - LBS) / LBS",
        f"Relative error of the bounds, the lower the better. {setting}Not on the axis: UBP, {_range(errors, OFF_AXIS)}.",
    )
    _panels(
        setup,
        f"{name}_time",
        _column(rows, "seconds"),
        shown,
        "seconds",
        f"Time of one bound, one thread on a shared machine. {setting}Not on the axis: UBP, about a millisecond.",
        log=True,
    )
    _panels(
        setup,
        f"{name}_values",
        values,
        [LBS, POP, *(e for e in shown if e != LBS)],
        "bound on the Lipschitz constant",
        f"Bounds on the l_inf Lipschitz constant. {setting}Not on the axis: UBP, {_range(values, OFF_AXIS)}.",
    )


def _count(rows: Sequence[Row]) -> str:
    """The number of networks of a point, or the smallest and the largest."""
    numbers = Counter(
        (row["architecture"], row["sparsity"], row["estimator"]) for row in rows
    ).values()
    return (
        str(max(numbers)) if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"
    )


def _bounds(rows: Sequence[Row]) -> Values:
    """The upper bounds, LBS, and the best lower bound on the POP that any estimator found."""
    values = _column(rows, "upper")
    for panel, each in _column(rows, "lower").items():
        values[panel][LBS] = each[LBS]
    for panel, each in _column(rows, "pop_lower").items():
        for found in each.values():
            for seed, value in found.items():
                best = values[panel].setdefault(POP, {})
                best[seed] = max(value, best.get(seed, 0.0))
    return values


def _column(rows: Sequence[Row], column: str) -> Values:
    result: Values = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row[column]:
            result[row["architecture"], row["sparsity"]][row["estimator"]][row["seed"]] = float(
                row[column]
            )
    return result


def _relative(values: Values) -> Values:
    return {
        panel: {
            e: {seed: v / each[LBS][seed] - 1 for seed, v in found.items() if seed in each[LBS]}
            for e, found in each.items()
        }
        for panel, each in values.items()
    }


def _range(values: Values, estimator: str) -> str:
    means = [mean(each[estimator].values()) for each in values.values()]
    return f"{min(means):.3g} to {max(means):.3g}"


def _panels(
    setup: Setup,
    name: str,
    values: Values,
    shown: Sequence[str],
    label: str,
    caption: str,
    log: bool = False,
) -> None:
    architectures = list(dict.fromkeys(architecture for architecture, _ in values))
    figure, axes = plt.subplots(
        1,
        len(architectures),
        figsize=(3 * len(architectures), 3),
        layout="constrained",
        squeeze=False,
    )
    for ax, architecture in zip(axes[0], architectures, strict=True):
        levels = [sparsity for a, sparsity in values if a == architecture]
        for k, estimator in enumerate(shown):
            found = [list(values[architecture, s].get(estimator, {}).values()) for s in levels]
            if any(found):
                x = np.array([x for x, v in enumerate(found) if v]) + 0.05 * (k - len(shown) / 2)
                low, middle, high = (np.array([f(v) for v in found if v]) for f in (min, mean, max))
                spread = middle - low, high - middle
                ax.errorbar(
                    x, middle, spread, label=estimator, elinewidth=0.8, capsize=2, **LOOK[estimator]
                )
        ax.set_title(architecture)
        ax.set_xticks(range(len(levels)), levels)
        ax.set_xlim(-0.5, len(levels) - 0.5)
        ax.set_xlabel("connections per neuron, s")
        ax.set_yscale("log") if log else ax.set_ylim(bottom=0)
    axes[0][0].set_ylabel(label)
    legend_above(figure, axes[0])
    save(figure, setup, name, caption)
