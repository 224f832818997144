"""What a batch run found: a line for every radius, and a histogram."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import LipoptError
from .local import RADIUS, Row


@dataclass(frozen=True)
class RadiusSummary:
    """All rows of one radius. `certified` counts the points all of whose margins are; None if not all margins were asked for."""

    radius: float
    points: int
    certified: int | None
    failed: int
    uppers: tuple[float, ...]
    gaps: tuple[float, ...]  # upper bound / lower bound on the POP - 1

    def numbers(self) -> dict[str, float | None]:
        """Without the lists: their medians and largest."""
        counts = {"radius": self.radius, "points": self.points, "certified": self.certified, "failed": self.failed}
        return {**counts, **_spread("upper", self.uppers), **_spread("gap", self.gaps)}


@dataclass(frozen=True)
class Summary:
    """A whole run: its radii, and the certified radii of its points."""

    radii: tuple[RadiusSummary, ...]
    certified_radii: dict[int, float]  # by point
    unfinished: int  # problems that ended at the time limit
    failed: int
    reason: str | None = None  # why the first of them failed

    def to_json(self) -> str:
        """The numbers, as one line of JSON."""
        radii = [radius.numbers() for radius in self.radii]
        certified = [{"point": point, "radius": radius} for point, radius in self.certified_radii.items()]
        return json.dumps({"radii": radii, "certified_radii": certified, "unfinished": self.unfinished, "failed": self.failed})


def summarize(rows: Iterable[Row], outputs: int) -> Summary:
    """Of the rows of a run on a network with that many outputs."""
    uppers: dict[float, list[float]] = defaultdict(list)
    gaps: dict[float, list[float]] = defaultdict(list)
    failures: dict[float, int] = defaultdict(int)
    kept: dict[float, dict[int, int]] = defaultdict(lambda: defaultdict(int))  # by radius and point, margins that are certified
    asked: dict[float, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    certified_radii: dict[int, float] = {}
    reasons: list[str] = []
    unfinished = 0
    for row in rows:
        reasons += [] if row.error is None else [row.error]
        unfinished += row.status == "time limit"
        if row.question == RADIUS:
            certified_radii |= {} if row.error else {row.point: row.radius}
            continue
        failures[row.radius] += row.error is not None
        asked[row.radius][row.point] += row.certified is not None or (row.error is not None and row.question.startswith("margin"))
        kept[row.radius][row.point] += row.certified is True
        if row.upper is not None:
            uppers[row.radius].append(row.upper)
            gaps[row.radius] += [row.upper / row.pop_lower - 1] if row.pop_lower else []
    radii = tuple(
        RadiusSummary(
            radius,
            len(asked[radius]),
            _certified(asked[radius], kept[radius], outputs - 1),
            failures[radius],
            tuple(uppers[radius]),
            tuple(gaps[radius]),
        )
        for radius in sorted(asked)
    )
    return Summary(radii, dict(sorted(certified_radii.items())), unfinished, len(reasons), next(iter(reasons), None))


def _certified(asked: dict[int, int], kept: dict[int, int], margins: int) -> int | None:
    """The points with all margins certified; None unless all were asked for everywhere."""
    if margins < 1 or any(count < margins for count in asked.values()):
        return None
    return sum(count == margins for count in kept.values())


def _spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {f"median_{name}": None, f"worst_{name}": None}
    return {f"median_{name}": float(np.median(values)), f"worst_{name}": max(values)}


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn in the end."""
    supported = _figure().canvas.get_supported_filetypes()
    if path.suffix[1:] not in supported:
        raise LipoptError(f"cannot draw a picture '{path}'; end its name in .{', .'.join(sorted(supported))}")


def draw(summary: Summary, path: Path) -> None:
    """Histograms of the constants, in a color for every radius, and of the certified radii."""
    figure = _figure()
    panels = bool(summary.radii) + bool(summary.certified_radii)
    axes = iter(figure.subplots(1, max(1, panels), squeeze=False)[0])
    if summary.radii:
        left = next(axes)
        uppers = [u for radius in summary.radii for u in radius.uppers]
        bins = np.histogram_bin_edges(uppers, bins=min(50, max(10, len(uppers) // 10)))
        for radius in summary.radii:
            left.hist(radius.uppers, bins=bins, histtype="step", linewidth=1.5, label=f"radius {radius.radius:g}")
        left.set(xlabel="upper bound on the local Lipschitz constant", ylabel="problems")
        left.legend()
    if summary.certified_radii:
        right = next(axes)
        right.hist(list(summary.certified_radii.values()), bins=30)
        right.set(xlabel="certified radius", ylabel="points")
    for panel in figure.axes:
        panel.yaxis.get_major_locator().set_params(integer=True)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise LipoptError(f"cannot write the picture {path}: {error.strerror}") from error


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LipoptError("a picture needs matplotlib: pip install 'lipopt[plot]'") from error
    return Figure(figsize=(8, 4), layout="constrained")
