"""What a run of `certify` found, in numbers: for every radius, and the certified radii."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from .verdicts import CERTIFIED_RADIUS, Verdict


@dataclass(frozen=True)
class BallSummary:
    """All balls of one radius."""

    radius: float
    points: int
    right: int  # points whose class is the label: the clean accuracy
    certified: int
    broken: int  # with those whose class is not the label
    open: int
    failed: int  # rows without an answer
    proofs: dict[str, int]  # how many balls were certified by each proof


@dataclass(frozen=True)
class VerdictSummary:
    """A whole run."""

    radii: tuple[BallSummary, ...]
    certified_radii: dict[int, float]  # by point
    broken_radii: dict[int, float]  # by point: the least radius with a counterexample, if any
    failed: int  # rows without an answer
    reason: str | None = None  # why the first of them failed

    def to_json(self) -> str:
        """The numbers, as one line of JSON."""
        radii = []
        for point, radius in self.certified_radii.items():
            broken = self.broken_radii.get(point)
            radii.append({"point": point, "radius": radius, "broken_radius": broken})
        return json.dumps(
            {
                "radii": [asdict(radius) for radius in self.radii],
                "certified_radii": radii,
                "failed": self.failed,
            }
        )


@dataclass
class _Tally:
    """What is counted of the balls of one radius."""

    points: int = 0
    failed: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    proofs: Counter[str] = field(default_factory=Counter)

    def count(self, row: Verdict) -> None:
        self.points += 1
        if row.status is None:
            self.failed += 1
            return
        self.statuses[row.status] += 1
        if row.proof is not None:
            self.proofs[row.proof] += 1

    def summary(self, radius: float) -> BallSummary:
        wrong = self.proofs["center"]
        return BallSummary(
            radius,
            self.points,
            right=self.points - self.failed - wrong,
            certified=self.statuses["certified"],
            broken=self.statuses["broken"],
            open=self.statuses["open"],
            failed=self.failed,
            proofs={name: self.proofs[name] for name in ("linear", "slopes", "branching")},
        )


def summarize_verdicts(rows: Iterable[Verdict]) -> VerdictSummary:
    """The summary of the rows of a run."""
    tallies: dict[float, _Tally] = defaultdict(_Tally)
    certified: dict[int, float] = {}
    broken: dict[int, float] = {}
    failed = 0
    reason = None
    for row in rows:
        if row.error is not None:
            failed += 1
            if reason is None:
                reason = row.error
        if row.question != CERTIFIED_RADIUS:
            tallies[row.radius].count(row)
        elif row.error is None:
            certified[row.point] = row.radius
            if row.broken_radius is not None:
                broken[row.point] = row.broken_radius
    radii = [tallies[radius].summary(radius) for radius in sorted(tallies)]
    ordered = dict(sorted(certified.items()))
    return VerdictSummary(tuple(radii), ordered, broken, failed, reason)
