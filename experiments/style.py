"""One look for all figures: every estimator has its color, marker and dash, so that a print in black and white can be read."""

from __future__ import annotations

import textwrap
from datetime import date
from typing import Any

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from .table import Setup

BLACK, BLUE, ORANGE, GREEN, PURPLE, GRAY = (
    "#000000",
    "#0060a8",
    "#d55e00",
    "#1b8a5a",
    "#8a4f9e",
    "#777777",
)
LOOK: dict[str, dict[str, Any]] = {
    "LBS": {"color": BLACK, "marker": "v", "linestyle": ":"},
    "POP lower bound": {"color": GRAY, "marker": "^", "linestyle": ":"},
    "LiPopt-2": {"color": ORANGE, "marker": "o", "linestyle": "--", "markerfacecolor": "white"},
    "LiPopt-3": {"color": BLUE, "marker": "o", "linestyle": "-"},
    "LiPopt-4": {"color": GREEN, "marker": "s", "linestyle": "-"},
    "SDP": {"color": PURPLE, "marker": "D", "linestyle": "-.", "markerfacecolor": "white"},
    "SDP (paper's)": {"color": PURPLE, "marker": "x", "linestyle": (0, (1, 1))},
    "Lip-SDP": {"color": GRAY, "marker": "P", "linestyle": "--"},
    "UBP": {"color": GRAY, "marker": "*", "linestyle": "-"},
    "auto": {"color": BLACK, "marker": ".", "linestyle": "-"},
}
plt.rcParams.update(
    {
        "axes.grid": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.dpi": 110,
        "font.size": 9,
        "grid.alpha": 0.3,
        "legend.frameon": False,
        "lines.linewidth": 1.3,
        "lines.markersize": 5,
    }
)


def save(figure: Figure, setup: Setup, name: str, caption: str) -> None:
    """Write a figure with its caption, the command that makes it and the date below it."""
    width = int(figure.get_figwidth() * 17)
    text = textwrap.fill(caption, width) + f"\n{setup.command}   {date.today()}"
    figure.text(0.01, -0.02, text, ha="left", va="top", fontsize=7.5, color="#333333")
    figure.savefig(setup.folder / f"{name}.png", bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def legend_above(figure: Figure, axes: Any) -> None:
    """One legend for all panels, above them."""
    found = {
        label: handle
        for ax in axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    order = sorted(found, key=lambda label: list(LOOK).index(label) if label in LOOK else len(LOOK))
    figure.legend(
        [found[label] for label in order],
        order,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=len(found),
    )
