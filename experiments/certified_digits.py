"""The README's picture: how many of twenty digits are proved to keep their class, against the radius.

For every digit three radii: what the product of the layers' norms proves (margin / constant, over the whole space), what
lipopt proves, and where an attack has found another class. The true radius lies between the last two.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np

import lipopt
from lipopt.examples import digits, example

from .style import BLUE, GRAY, ORANGE, save
from .table import Cell, Row, Setup, fill

NETWORK = "dense"
CLIP = (0.0, 1.0)  # pixels
SMALLEST_DRAWN = 2e-5  # radius
LARGEST_DRAWN = 0.2
CELLS = 80  # of branch and bound, for all radii of a digit
CURVES = {
    "textbook": ("proved by the product of the layers' norms", GRAY),
    "certified": ("proved by lipopt", BLUE),
    "attacked": ("not broken by an attack", ORANGE),
}


def run(setup: Setup) -> None:
    """Fill the table, then draw it."""
    number = {"full": 20, "quick": 5, "tiny": 1}[setup.scale]
    cells = [{"digit": k} for k in range(number)]
    _draw(setup, fill(setup, "certified_digits", cells, _radii))


def _radii(cell: Cell) -> Cell:
    """The three radii of one digit."""
    images, labels = digits()
    network = example(NETWORK)
    image = images[cell["digit"]]
    label = int(labels[cell["digit"]])
    (found,) = lipopt.certify(
        network, image[None], labels=[label], certified_radius=True, clip=CLIP, cells=CELLS
    )
    return {
        "textbook": _textbook(network, image, label),
        "certified": found.radius,
        "attacked": LARGEST_DRAWN if found.broken_radius is None else found.broken_radius,
    }


def _textbook(network: lipopt.Network, image: np.ndarray, label: int) -> float:
    """The smallest margin / constant, with the product of the layers' norms for a constant."""
    values = network(image)
    radii = []
    for other in range(network.output_size):
        if other != label:
            product = lipopt.bound(network, margin=(label, other), method="product", samples=1)
            radii.append((values[label] - values[other]) / product.upper)
    return min(radii)


def _draw(setup: Setup, rows: Sequence[Row]) -> None:
    """For each way of knowing, the share of digits whose radius is at least so large."""
    figure, ax = plt.subplots(figsize=(6.4, 3), layout="constrained")
    share = 100 * np.arange(len(rows), -1, -1) / len(rows)
    for name, (label, color) in CURVES.items():
        radii = np.sort([float(row[name]) for row in rows])
        ax.step([0.0, *radii], share, where="post", color=color, label=label, linewidth=2)
    ax.set_xscale("log")
    ax.set_xlim(SMALLEST_DRAWN, LARGEST_DRAWN)
    ax.set_ylim(0, 103)
    ax.set_xlabel("radius: the largest change of any pixel (0 is black, 1 is white)")
    ax.set_ylabel("digits that keep their class, %")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(CURVES), fontsize=8)
    caption = (
        f"{len(rows)} MNIST digits, the dense network (784-300-100-10, ELU) that ships with lipopt. "
        "The truth lies between the blue and the orange curve."
    )
    save(figure, setup, "certified_digits", caption)
