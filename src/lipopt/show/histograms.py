"""Pictures of batch runs: a histogram of constants, or certified accuracy against the radius."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..batch.summary import Summary
from ..batch.verdict_summary import VerdictSummary
from ..errors import LipoptError

FEWEST_BINS = 10
MOST_BINS = 50
ROWS_PER_BIN = 10  # between these two limits
FIGURE_SIZE = (8, 4)  # inches
DOTS_PER_INCH = 150


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn in the end, before the run begins."""
    supported = _figure().canvas.get_supported_filetypes()
    if path.suffix[1:] not in supported:
        endings = ", .".join(sorted(supported))
        raise LipoptError(f"cannot draw a picture '{path}'; end its name in .{endings}")


def draw(summary: Summary, path: Path) -> None:
    """A histogram of the constants, in a color for every radius."""
    figure = _figure()
    panel = figure.subplots()
    _draw_constants(panel, summary)
    panel.yaxis.get_major_locator().set_params(integer=True)
    _save(figure, path)


def draw_verdicts(summary: VerdictSummary, path: Path) -> None:
    """Certified accuracy against the radius, with what no attack broke above it; or both radii."""
    figure = _figure()
    panel = figure.subplots()
    if summary.radii:
        _draw_accuracy(panel, summary)
    if summary.certified_radii:
        _draw_radii(panel, summary)
    panel.set(xlabel="radius", ylabel="share of the points", ylim=(0, 1))
    panel.set_xlim(left=0)
    panel.legend()
    _save(figure, path)


def _draw_accuracy(panel: Any, summary: VerdictSummary) -> None:
    """What was certified and what was not broken, at each radius that was asked for."""
    radii = [0.0]
    first = summary.radii[0]
    certified = [first.right / first.points]
    unbroken = [first.right / first.points]
    for entry in summary.radii:
        radii.append(entry.radius)
        certified.append(entry.certified / entry.points)
        unbroken.append(1 - (entry.broken + entry.failed) / entry.points)
    panel.plot(radii, unbroken, "s--", label="no counterexample found")
    panel.plot(radii, certified, "o-", label="certified")
    panel.fill_between(radii, certified, unbroken, alpha=0.15)


def _draw_radii(panel: Any, summary: VerdictSummary) -> None:
    """The same, from the certified and the broken radius of every point."""
    points = len(summary.certified_radii)
    certified = np.sort(list(summary.certified_radii.values()))
    unbroken = [summary.broken_radii.get(point, np.inf) for point in summary.certified_radii]
    broken = np.sort(unbroken)
    known = broken[np.isfinite(broken)]
    share = 1 - np.arange(points) / points
    panel.step(known, share[: len(known)], "--", label="broken radii above")
    panel.step(certified, share, label="certified radii above")


def _save(figure: Any, path: Path) -> None:
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


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LipoptError("a picture needs matplotlib: pip install 'lipopt[plot]'") from error
    return Figure(figsize=FIGURE_SIZE, layout="constrained")
