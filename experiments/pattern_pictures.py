"""Figures 1 and 2: the cliques of a sparsity pattern, in a network of depth three and in a 2D convolutional network."""

from __future__ import annotations

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Polygon

import lipopt
from lipopt.methods.lp.polynomial import sources
from lipopt.methods.lp.sparsity import cliques
from lipopt.problem.question import Question, pose

from .networks import random_network
from .style import BLUE, save
from .table import Setup

SIZES = (6, 5, 4)  # of the network of figure 1
GRIDS = (8, 6, 4)  # sides of the layers of figure 2, filters of 3 x 3
PALE = "#c8c8c8"


def run(setup: Setup) -> None:
    _depth_three(setup)
    _pyramid(setup)


def sets_of(network: lipopt.Network, pattern: str) -> list[list[int]]:
    """The cliques of a pattern; variables are the inputs, then the hidden neurons layer by layer."""
    problem = pose(network, Question.about(network)).raw
    rows = cliques(sources(problem), pattern)
    return [sorted(int(v) for v in rows.indices[a:b]) for a, b in pairwise(rows.indptr)]


def _depth_three(setup: Setup) -> None:
    network = random_network("x".join(map(str, SIZES)), 2, 3)
    chosen = [("output", clique) for clique in sets_of(network, "output")[:3]] + [
        ("input", sets_of(network, "input")[0])
    ]
    figure, axes = plt.subplots(
        1, len(chosen), figsize=(3 * len(chosen), 3.2), layout="constrained"
    )
    for ax, (pattern, clique) in zip(axes, chosen, strict=True):
        _draw_network(ax, network, set(clique))
        ax.set_title(
            f"{pattern} pattern\n" + "{" + ", ".join(_name(v) for v in clique) + "}", fontsize=8
        )
    caption = (
        "Sparsity pattern of a network of depth three (figure 1). A set of the paper's pattern (9) is a neuron of the last "
        "hidden layer and all its ancestors (`output`, three of its sets). "
        "The authors' code takes an input and all its descendants instead (`input`, right)."
    )
    save(figure, setup, "pattern_depth3", caption)


def _name(variable: int) -> str:
    layer = int(np.searchsorted(np.cumsum(SIZES), variable, side="right"))
    return f"{'tuv'[layer]}{variable - sum(SIZES[:layer]) + 1}"


def _draw_network(ax: Axes, network: lipopt.Network, clique: set[int]) -> None:
    matrices = [node.matrices[0] for node in network.nodes if hasattr(node, "matrices")]
    weights = [m.toarray() if hasattr(m, "toarray") else m for m in matrices]
    sizes = [*SIZES, 1]
    first = np.cumsum([0, *sizes])
    place = {first[k] + i: (k, (n - 1) / 2 - i) for k, n in enumerate(sizes) for i in range(n)}
    for k, w in enumerate(weights):
        for b, a in zip(*np.nonzero(w), strict=True):
            ends = first[k] + a, first[k + 1] + b
            inside = set(map(int, ends)) <= clique
            xs, ys = zip(*(place[e] for e in ends), strict=True)
            ax.plot(
                xs, ys, color=BLUE if inside else PALE, linewidth=1.8 if inside else 0.7, zorder=1
            )
    for v, (x, y) in place.items():
        inside = v in clique
        ax.scatter(x, y, s=230, color=BLUE if inside else "white", edgecolors="black", zorder=2)
        ax.text(
            x,
            y,
            _name(v) if v < first[-2] else "f",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if inside else "black",
            zorder=3,
        )
    ax.set_xlim(-0.4, 3.4)
    ax.axis("off")


def convolution(side: int) -> np.ndarray:
    """The matrix of a 3 x 3 filter on a grid, without padding."""
    inner = side - 2
    matrix = np.zeros((inner**2, side**2))
    for row, column in np.ndindex(inner, inner):
        for i, j in np.ndindex(3, 3):
            matrix[row * inner + column, (row + i) * side + column + j] = 1.0
    return matrix


def _pyramid(setup: Setup) -> None:
    network = lipopt.load(
        [convolution(GRIDS[0]), convolution(GRIDS[1]), np.ones((1, GRIDS[2] ** 2))]
    )
    clique = sets_of(network, "output")[5]
    figure, ax = plt.subplots(figsize=(6, 4.6), layout="constrained")
    first = np.cumsum([0, *(side**2 for side in GRIDS)])
    for layer, side in enumerate(GRIDS):
        inside = {v - first[layer] for v in clique if first[layer] <= v < first[layer + 1]}
        for cell in range(side**2):
            row, column = divmod(cell, side)
            corners = [(row + i, column + j) for i, j in ((0, 0), (0, 1), (1, 1), (1, 0))]
            points = [_project(i - side / 2, j - side / 2, layer) for i, j in corners]
            ax.add_patch(
                Polygon(
                    points,
                    facecolor=BLUE if cell in inside else "white",
                    edgecolor="#555555",
                    linewidth=0.7,
                )
            )
        x, y = _project(0, side / 2, layer)
        ax.text(
            x + 0.5,
            y,
            ("input", "hidden layer 1", "hidden layer 2")[layer] + f"\n{len(inside)} of {side**2}",
            va="center",
            fontsize=8,
        )
    ax.set_aspect("equal")
    ax.autoscale_view()
    ax.axis("off")
    caption = (
        f"One set of the pattern (9) in a 2D convolutional network with 3 x 3 filters (figure 2): a pyramid of {len(clique)} "
        f"of the {first[-1]} variables, whatever the size of the image."
    )
    save(figure, setup, "pattern_pyramid", caption)


def _project(row: float, column: float, layer: int) -> tuple[float, float]:
    """A point of a layer's plane, seen from the side and above."""
    return column + 0.5 * row, -0.45 * row + 4.2 * layer
