"""A picture of a batch run: histograms of its constants and of its certified radii."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..batch.summary import Summary
from ..errors import LipoptError

FEWEST_BINS = 10
MOST_BINS = 50
ROWS_PER_BIN = 10  # between these two limits
RADIUS_BINS = 30
FIGURE_SIZE = (8, 4)  # inches
DOTS_PER_INCH = 150


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn in the end, before the run begins."""
    supported = _figure().canvas.get_supported_filetypes()
    if path.suffix[1:] not in supported:
        endings = ", .".join(sorted(supported))
        raise LipoptError(f"cannot draw a picture '{path}'; end its name in .{endings}")


def draw(summary: Summary, path: Path) -> None:
    """Histograms of the constants, in a color for every radius, and of the certified radii."""
    figure = _figure()
    panels = []
    if summary.radii:
        panels.append(_draw_constants)
    if summary.certified_radii:
        panels.append(_draw_certified_radii)
    axes = figure.subplots(1, max(1, len(panels)), squeeze=False)[0]
    for draw_panel, panel in zip(panels, axes, strict=False):
        draw_panel(panel, summary)
    for panel in figure.axes:
        panel.yaxis.get_major_locator().set_params(integer=True)
    try:
        figure.savefig(path, dpi=DOTS_PER_INCH)
    except OSError as error:
        raise LipoptError(f"cannot write the picture {path}: {error.strerror}") from error


def _draw_constants(panel: Any, summary: Summary) -> None:
    uppers: list[float] = []
    for radius in summary.radii:
        uppers += radius.uppers
    count = min(MOST_BINS, max(FEWEST_BINS, len(uppers) // ROWS_PER_BIN))
    bins = np.histogram_bin_edges(uppers, bins=count)
    for radius in summary.radii:
        name = f"radius {radius.radius:g}"
        panel.hist(radius.uppers, bins=bins, histtype="step", linewidth=1.5, label=name)
    panel.set(xlabel="upper bound on the local Lipschitz constant", ylabel="problems")
    panel.legend()


def _draw_certified_radii(panel: Any, summary: Summary) -> None:
    panel.hist(list(summary.certified_radii.values()), bins=RADIUS_BINS)
    panel.set(xlabel="certified radius", ylabel="points")


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LipoptError("a picture needs matplotlib: pip install 'lipopt[plot]'") from error
    return Figure(figsize=FIGURE_SIZE, layout="constrained")
