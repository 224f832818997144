"""Verdicts: whether the class of points stays in balls around them, and up to which radius.

A `Certify` says what is asked of every point; the answers are rows of type `Verdict`. All points
that are given together climb the ladder of proofs together (margins/ladder.py), from the smallest
radius to the largest: what breaks a ball breaks every larger one, and where branch and bound has
given up, it is not tried in a larger ball.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .. import notebook
from ..api import check_work
from ..certificates.margins import certify_margins
from ..errors import LipoptError, reason_of
from ..margins.balls import Balls
from ..margins.ladder import Decision, Effort, decide
from ..model.domain import Ball, check_clip, flat_scale
from ..model.network import Network
from ..model.norms import Norm, find_norm
from ..numerics.arrays import Array
from ..numerics.blas import quiet
from ..numerics.devices import import_torch
from ..numerics.rounding import written_down, written_up
from .radius import Radii, broken_radii, largest_radius, search_radii
from .rows import Point, Scale, read_radii, read_scale

CELLS = 1000  # of branch and bound for one ball: about a second on a network with 200 neurons
CLASS = "class"  # the question of a row about one ball
CERTIFIED_RADIUS = "certified radius"  # and of one that holds a certified radius
LARGEST_CHUNK = 64  # points that are looked at together,
LARGEST_DEVICE_CHUNK = 512  # and on a device


@dataclass(frozen=True)
class Verdict:
    """Whether the class of a point stays in the ball around it, or in `error` why that is unknown.

    Attributes:
        point: the number of the point in the data, from 0.
        radius: the radius of the ball; in a row "certified radius", the radius that was
            certified, 0 if none was.
        question: "class" or "certified radius".
        label: the class of the point.
        status: "certified": the label's output is proved to be the largest in the whole ball;
            "broken": there is an input in the ball with another class; "open": neither was found.
        proof: what decided: "center" (the point itself has another class), "linear", "slopes" or
            "branching" (docs/certify.md), "attack"; None for an open ball.
        margin: a lower bound on the least margin in the ball; of a broken one, the margin at the
            counterexample.
        against: the class of that margin.
        counterexample: the input with another class, flat.
        broken_radius: in a row "certified radius", the least radius at which an input with another
            class was found.
        cells: the cells of branch and bound.
        seconds: the time that was spent, the row's share of what rows have in common.
        certificate: the file that proves a certified ball, if certificates were asked for.
        error: why there is no answer, in one line; None if there is one.

    Examples:
        >>> import lipopt
        >>> network = lipopt.load([[[1.0, 0.0], [0.0, 1.0]]])
        >>> for verdict in lipopt.certify(network, [[2.0, 1.0]], radius=[0.4, 0.6]):
        ...     print(verdict.radius, verdict.status, verdict.proof)
        0.4 certified linear
        0.6 broken attack
    """

    point: int
    radius: float
    question: str
    label: int | None = None
    status: str | None = None
    proof: str | None = None
    margin: float | None = None
    against: int | None = None
    counterexample: list[float] | None = None
    broken_radius: float | None = None
    cells: int = 0
    seconds: float = 0.0
    certificate: str | None = None
    error: str | None = None

    def as_text(self) -> dict[str, str]:
        """What a table for people shows of it; rounded to the safe side."""
        was_asked = self.question != CERTIFIED_RADIUS
        return {
            "point": str(self.point),
            "label": str(self.label),
            "question": self.question,
            "radius": f"{self.radius:g}" if was_asked else written_down(self.radius),
            "status": self.error or self.status or "",
            "proof": self.proof or "",
            "margin": "" if self.margin is None else written_down(self.margin),
            "broken at": "" if self.broken_radius is None else written_up(self.broken_radius),
        }


class Verdicts(list[Verdict]):
    """What `certify` returns: a list of verdicts, which notebooks show as a table.

    Args:
        verdicts: the verdicts, sorted by point.

    Examples:
        >>> import lipopt
        >>> network = lipopt.load([[[1.0, 0.0], [0.0, 1.0]]])
        >>> lipopt.certify(network, [[2.0, 1.0]], radius=[0.4, 0.6])
        <1 certified, 1 broken, 0 open>
    """

    def __init__(self, verdicts: Iterable[Verdict]) -> None:
        super().__init__(verdicts)

    def table(self) -> Any:
        """The verdicts as a pandas frame, a column for every field."""
        return notebook.frame([asdict(verdict) for verdict in self])

    def __repr__(self) -> str:
        statuses = [verdict.status for verdict in self]
        counts = [f"{statuses.count(name)} {name}" for name in ("certified", "broken", "open")]
        return f"<{', '.join(counts)}>"

    def _repr_html_(self) -> str:
        return notebook.html_table([verdict.as_text() for verdict in self])


@dataclass(frozen=True)
class Certify:
    """What is asked of every point: whether its class stays in some balls, and up to which radius.

    The header of a results file holds these fields by name, in this order."""

    radii: tuple[float, ...]
    norm: Norm = Norm.LINF  # of the balls
    scale: Scale = None
    largest: float | None = (
        None  # radius to look for a certified one up to; None: that is not asked
    )
    clip: tuple[float, float] | None = None
    cells: int = CELLS
    time_limit: float | None = None  # seconds for one row
    seed: int = 0
    certificates: str | None = None  # the folder to write certificates to
    device: str | None = None  # of torch, for backward passes

    format: ClassVar[str] = "lipopt-certify-2"  # of results files, changed if old ones cannot go on
    needs_label: ClassVar[bool] = True
    batched: ClassVar[None] = None

    @staticmethod
    def of(
        radius: Any,
        *,
        norm: str = "linf",
        scale: Any = None,
        clip: Any = None,
        certified_radius: bool = False,
        largest: float | None = None,
        certificates: Any = None,
        **others: Any,
    ) -> Certify:
        """What `certify` was called with; LipoptError if an argument has the wrong form."""
        clip_range = None if clip is None else check_clip(clip)
        units = read_scale(scale)
        if certified_radius and largest is None:
            largest = largest_radius(clip_range, units)
        return Certify(
            read_radii(radius),
            norm=find_norm(norm),
            scale=units,
            largest=largest,
            clip=clip_range,
            certificates=None if certificates is None else str(certificates),
            **others,
        )

    def ball(self, x: Array, radius: float) -> Ball:
        """The ball around a point that is asked about."""
        return Ball(x, radius, self.clip, norm=self.norm.value, scale=self.scale)

    def balls(self, points: Array, radii: Array) -> Balls:
        """The balls around many points, one a row."""
        units = None if self.scale is None else flat_scale(self.scale, points.shape[1])
        return Balls.around(points, radii, self.clip, self.norm, units)

    def settings(self) -> dict[str, Any]:
        """As the header of a results file has it."""
        return asdict(self)

    def rows_per_point(self, outputs: int) -> int:
        """How many rows one point has, whatever the number of outputs."""
        return len(self.radii) + (self.largest is not None)

    def points_per_chunk(self, outputs: int) -> int:
        """How many points are looked at together at most."""
        return LARGEST_CHUNK if self.device is None else LARGEST_DEVICE_CHUNK

    def effort(self, cells: int, points: int, keeps_proofs: bool = False) -> Effort:
        """The work that may be done on the balls of so many points."""
        deadline = None
        if self.time_limit is not None:
            deadline = time.monotonic() + points * self.time_limit
        return Effort(cells, deadline, self.seed, keeps_proofs, self.device)

    def check(self, network: Network) -> None:
        """Refuse questions that make no sense, or that this network has no answer to."""
        if network.output_size < 2:
            raise LipoptError("a class needs a network with two outputs or more")
        if not self.radii and self.largest is None:
            raise LipoptError("give a radius, or ask for the certified radius")
        if self.scale is not None:
            flat_scale(self.scale, network.input_size)  # LipoptError if it has another size
        if isinstance(self.cells, bool) or not isinstance(self.cells, int) or self.cells < 0:
            raise LipoptError(f"the number of cells must be a whole number >= 0, got {self.cells}")
        check_work(self.time_limit, self.seed, 1)
        if self.device is not None:
            import_torch(self.device)


@quiet()
def verdicts(network: Network, ask: Certify, points: Sequence[Point]) -> list[Verdict]:
    """All rows of some points. What fails leaves rows that say why."""
    rows = _on_balls(network, ask, points)
    if ask.largest is not None:
        rows += _certified_radii(network, ask, points)
    return sorted(rows, key=lambda row: row.point)


def no_verdicts(ask: Certify, point: Point, reason: str) -> list[Verdict]:
    """The rows of a point that could not be looked at at all."""
    blanks = [Verdict(point.number, radius, CLASS, point.label) for radius in ask.radii]
    if ask.largest is not None:
        blanks.append(Verdict(point.number, 0.0, CERTIFIED_RADIUS, point.label))
    return [replace(blank, error=reason) for blank in blanks]


def _on_balls(network: Network, ask: Certify, points: Sequence[Point]) -> list[Verdict]:
    """Verdicts on the balls of all radii, from the smallest to the largest."""
    broken: dict[int, Verdict] = {}  # by point: in a smaller ball
    given_up: set[int] = set()
    rows = []
    for radius in sorted(ask.radii):
        hopeful = []
        others = []
        for point in points:
            if point.number in broken:
                smaller = broken[point.number]
                rows.append(replace(smaller, radius=radius, seconds=0.0, cells=0))
            elif point.number in given_up:
                others.append(point)
            else:
                hopeful.append(point)
        found = _decide(network, ask, hopeful, radius, ask.cells)
        found += _decide(network, ask, others, radius, 0)
        for row in found:
            if row.status == "broken":
                broken[row.point] = row
            elif row.status == "open":
                given_up.add(row.point)
        rows += found
    return rows


def _decide(
    network: Network, ask: Certify, points: Sequence[Point], radius: float, cells: int
) -> list[Verdict]:
    """Verdicts on the balls of one radius. If they fail together, each alone tells why."""
    if not points:
        return []
    start = time.perf_counter()
    x, labels = stacked(points)
    balls = ask.balls(x, np.full(len(points), radius))
    effort = ask.effort(cells, len(points), keeps_proofs=ask.certificates is not None)
    rows = []
    try:
        check_outputs(network, x)
        decisions = decide(network, balls, labels, effort)
        for point, decision in zip(points, decisions, strict=True):
            row = _verdict(point, radius, decision)
            if ask.certificates is not None and decision.proofs is not None:
                row = replace(row, certificate=_write(network, ask, point, row, decision))
            rows.append(row)
    except Exception as error:
        if len(points) == 1:
            blank = Verdict(points[0].number, radius, CLASS, points[0].label)
            return [replace(blank, error=reason_of(error))]
        rows = []
        for point in points:
            rows += _decide(network, ask, [point], radius, cells)
        return rows
    seconds = (time.perf_counter() - start) / len(points)
    return [replace(row, seconds=seconds) for row in rows]


def _verdict(point: Point, radius: float, decision: Decision) -> Verdict:
    counterexample = None
    if decision.counterexample is not None:
        counterexample = [float(value) for value in decision.counterexample]
    return Verdict(
        point.number,
        radius,
        CLASS,
        point.label,
        status=decision.status,
        proof=decision.rung,
        margin=decision.least if np.isfinite(decision.least) else None,
        against=decision.against,
        counterexample=counterexample,
        cells=decision.cells,
    )


def _write(network: Network, ask: Certify, point: Point, row: Verdict, decision: Decision) -> str:
    """Write the certificate of a row's ball; the name of the file."""
    assert ask.certificates is not None
    assert decision.proofs is not None
    assert point.label is not None
    ball = ask.ball(point.x, row.radius)
    certificate = certify_margins(network, ball, point.label, decision.proofs, decision.least)
    name = f"{point.number}-{row.question.replace(' ', '-')}-{row.radius}.cert"
    file = Path(ask.certificates) / name
    certificate.save(file)
    return str(file)


def _certified_radii(network: Network, ask: Certify, points: Sequence[Point]) -> list[Verdict]:
    """The rows of the certified radii."""
    assert ask.largest is not None
    start = time.perf_counter()
    x, labels = stacked(points)
    try:
        check_outputs(network, x)
        effort = ask.effort(ask.cells, len(points), keeps_proofs=ask.certificates is not None)
        found = search_radii(network, x, labels, ask.balls, ask.largest, effort)
        broken = broken_radii(network, x, labels, ask.balls, found, ask.seed)
        rows = []
        for k, point in enumerate(points):
            rows.append(_radius_row(network, ask, point, found, k))
    except Exception as error:
        if len(points) == 1:
            blank = Verdict(points[0].number, 0.0, CERTIFIED_RADIUS, points[0].label)
            return [replace(blank, error=reason_of(error))]
        rows = []
        for point in points:
            rows += _certified_radii(network, ask, [point])
        return rows
    seconds = (time.perf_counter() - start) / len(points)
    finished = []
    for row, above in zip(rows, broken, strict=True):
        broken_radius = float(above) if np.isfinite(above) else None
        finished.append(replace(row, broken_radius=broken_radius, seconds=seconds))
    return finished


def _radius_row(network: Network, ask: Certify, point: Point, found: Radii, k: int) -> Verdict:
    """The row of the certified radius of a point, number k of those that were searched together."""
    row = Verdict(point.number, float(found.certified[k]), CERTIFIED_RADIUS, point.label)
    if found.is_wrong[k]:
        return replace(row, status="broken", proof="center")
    decision = found.proofs[k]
    if decision is None:
        return replace(row, status="open")
    row = replace(row, status="certified", proof=decision.rung)
    if decision.proofs is None:
        return row
    # The least margin is next to nothing there: half of it leaves room for all roundings.
    half = replace(decision, least=decision.least / 2)
    return replace(row, certificate=_write(network, ask, point, row, half))


def stacked(points: Sequence[Point]) -> tuple[Array, Array]:
    """Points and their labels as arrays."""
    labels = []
    for point in points:
        assert point.label is not None
        labels.append(point.label)
    return np.array([point.x for point in points]), np.array(labels)


def check_outputs(network: Network, x: Array) -> None:
    """Refuse points at which the network overflows."""
    if not np.isfinite(network.forward(x)).all():
        raise LipoptError("the network's outputs overflow at this point")
