"""Section 4: the number of products of the LP, against the paper's counts, for dense, pruned and convolutional networks."""

from __future__ import annotations

from math import comb

import matplotlib.pyplot as plt
import numpy as np

import lipopt
from lipopt.methods.lp.sparsity import pattern_sizes
from lipopt.problem.question import Question, pose

from .networks import DENSE, random_network
from .style import BLACK, BLUE, GREEN, ORANGE, PURPLE, legend_above, save
from .table import Cell, Row, Setup, fill

WIDTHS = {"full": (8, 12, 16, 24, 32, 48, 64), "quick": (8, 16, 32), "tiny": (8, 12)}
KINDS = ("dense", "pruned, s = 5", "convolution, 3 wide")
DEGREE = 3
LOOK = {
    "full": (BLACK, "s", "-"),
    "output": (BLUE, "o", "-"),
    "input": (GREEN, "D", "--"),
    "chordal": (PURPLE, "^", "-."),
    "paths": (ORANGE, "v", ":"),
}


def run(setup: Setup) -> None:
    cells: list[Cell] = [
        {"kind": kind, "width": width, "pattern": pattern}
        for kind in KINDS
        for width in WIDTHS[setup.scale]
        for pattern in LOOK
    ]
    rows = fill(setup, "sizes", cells, _measure)
    _draw(setup, rows)


def network(kind: str, width: int) -> lipopt.Network:
    """Two hidden layers as wide as the input, one output."""
    if kind == "dense":
        return random_network(f"{width}x{width}x{width}", DENSE, 0)
    if kind.startswith("pruned"):
        return random_network(f"{width}x{width}x{width}", 5, 0)
    rng = np.random.default_rng(0)
    band = [sum(np.eye(width, k=k) * rng.uniform(-1, 1) for k in (-1, 0, 1)) for _ in range(2)]
    return lipopt.load([*band, rng.uniform(-1, 1, (1, width))], activation="elu")


def _measure(cell: Cell) -> Cell:
    net = network(cell["kind"], cell["width"])
    problem = pose(net, Question.about(net)).problem
    size = next(size for size in pattern_sizes(problem, DEGREE) if size.pattern == cell["pattern"])
    variables = 3 * cell["width"]
    return {
        "cliques": size.cliques,
        "largest": size.largest,
        "products": size.products,
        "paper": size.paper,
        "no_sparsity": comb(2 * variables + DEGREE, DEGREE),
    }


def _draw(setup: Setup, rows: list[Row]) -> None:
    figure, axes = plt.subplots(
        1, len(KINDS), figsize=(4 * len(KINDS), 3.4), layout="constrained", sharey=True
    )
    for ax, kind in zip(axes, KINDS, strict=True):
        here = sorted(
            (row for row in rows if row["kind"] == kind), key=lambda row: int(row["width"])
        )
        for pattern, (color, marker, line) in LOOK.items():
            points = [row for row in here if row["pattern"] == pattern]
            x = [int(row["width"]) for row in points]
            ax.plot(
                x,
                [int(row["products"]) for row in points],
                color=color,
                marker=marker,
                linestyle=line,
                label=pattern,
            )
            if pattern == "output":
                label = "output, the paper's count (10)"
                ax.plot(
                    x,
                    [int(row["paper"]) for row in points],
                    color=BLUE,
                    linestyle=":",
                    linewidth=1,
                    label=label,
                )
        ax.set(
            title=kind,
            xscale="log",
            yscale="log",
            xlabel="width n of the input and of both hidden layers",
        )
        ax.set_xticks(x, x)
        ax.minorticks_off()
    axes[0].set_ylabel(f"products of degree {DEGREE}")
    legend_above(figure, axes)
    caption = (
        "Products of the LP of degree 3 by sparsity pattern, square-free ones alone, if all were built; sets that lie in several "
        "cliques are counted in each, as in the paper. Dotted: all products of degree 3 over the cliques of pattern (9), the "
        "paper's count. lipopt starts from `paths` and adds what is violated. Two hidden layers, one output."
    )
    save(figure, setup, "sizes", caption)
