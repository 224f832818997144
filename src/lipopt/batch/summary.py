"""What a run on local constants found, in numbers, for every radius."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .rows import Row


@dataclass(frozen=True)
class RadiusSummary:
    """All rows of one radius."""

    radius: float
    points: int
    certified: int | None  # points with all margins certified; None if not all were asked for
    failed: int  # rows without an answer
    uppers: tuple[float, ...]
    gaps: tuple[float, ...]  # upper bound / lower bound on the POP - 1

    def numbers(self) -> dict[str, float | None]:
        """Plain numbers: of the bounds and of the gaps, the median and the largest."""
        counts = {
            "radius": self.radius,
            "points": self.points,
            "certified": self.certified,
            "failed": self.failed,
        }
        return {**counts, **_spread("upper", self.uppers), **_spread("gap", self.gaps)}


@dataclass(frozen=True)
class Summary:
    """A whole run."""

    radii: tuple[RadiusSummary, ...]
    unfinished: int  # rows that ended at the time limit
    failed: int  # rows without an answer
    reason: str | None = None  # why the first of them failed

    def to_json(self) -> str:
        """The numbers, as one line of JSON."""
        return json.dumps(
            {
                "radii": [radius.numbers() for radius in self.radii],
                "unfinished": self.unfinished,
                "failed": self.failed,
            }
        )


@dataclass
class _Tally:
    """What is counted of the rows of one radius."""

    failed: int = 0
    uppers: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    margins: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # asked, by point
    kept: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # certified, by point

    def count(self, row: Row) -> None:
        failed = row.error is not None
        is_margin = row.certified is not None or (failed and row.question.startswith("margin"))
        self.failed += failed
        self.margins[row.point] += is_margin
        self.kept[row.point] += row.certified is True
        if row.upper is not None:
            self.uppers.append(row.upper)
            if row.pop_lower:
                self.gaps.append(row.upper / row.pop_lower - 1)

    def summary(self, radius: float, margins: int) -> RadiusSummary:
        """The summary for a network that has so many margins at every point."""
        return RadiusSummary(
            radius,
            points=len(self.margins),
            certified=self._certified_points(margins),
            failed=self.failed,
            uppers=tuple(self.uppers),
            gaps=tuple(self.gaps),
        )

    def _certified_points(self, margins: int) -> int | None:
        """The points with all margins certified; None unless all were asked for everywhere."""
        if margins < 1 or any(count < margins for count in self.margins.values()):
            return None
        return sum(count == margins for count in self.kept.values())


def summarize(rows: Iterable[Row], outputs: int) -> Summary:
    """The summary of the rows of a run on a network with that many outputs."""
    tallies: dict[float, _Tally] = defaultdict(_Tally)
    unfinished = 0
    failed = 0
    reason = None
    for row in rows:
        unfinished += row.status == "time limit"
        if row.error is not None:
            failed += 1
            if reason is None:
                reason = row.error
        tallies[row.radius].count(row)
    radii = [tallies[radius].summary(radius, outputs - 1) for radius in sorted(tallies)]
    return Summary(tuple(radii), unfinished, failed, reason)


def _spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """The median and the largest of some values, by name."""
    if not values:
        return {f"median_{name}": None, f"worst_{name}": None}
    return {f"median_{name}": float(np.median(values)), f"worst_{name}": max(values)}
