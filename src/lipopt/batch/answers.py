"""All rows of some points, with the work that the questions share done once.

A row goes through three phases, each with a type of its own:

    prepare    pose the questions of a ball, with their lower bounds     -> PendingRow
    settle     bound it, alone or as one of a batch, and certify that    -> Settled
    answered   write the certificate to a file                           -> Row

Intervals, presolve and sampled gradients belong to the ball: all outputs and margins share them.
The SDP of a margin starts from the vectors of the last radius. On a device, the SDPs of all points
that are given together are solved as one batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from ..errors import reason_of
from ..inquiry import INTERVAL_SHARE, Inquiry, Settled, pop_lower_of, pose_in_time, value_of
from ..lower.gradients import sample_rows
from ..methods.sdp.method import SDP
from ..model.domain import flat_scale
from ..model.network import Network
from ..numerics.blas import quiet
from ..problem.question import Question
from ..problem.task import Budget, Memory, Task, UpperBound
from .balls import is_kept, margins_at, target_matrix
from .rows import Ask, Point, Row, Target, blank_row

Memories: TypeAlias = Mapping[Target, Memory]  # what the questions of one radius leave for the next


def new_memories(targets: Sequence[Target]) -> Memories:
    """Empty memories, for the first radius."""
    return {target: Memory() for target in targets}


@dataclass(frozen=True, eq=False)
class Visit:
    """A point, what is asked about it, and what its balls leave for each other."""

    network: Network
    ask: Ask
    point: Point
    targets: list[Target]
    memories: Memories

    @staticmethod
    def of(network: Network, ask: Ask, point: Point) -> Visit:
        """The point with its targets, before the first ball."""
        targets = ask.targets(network.forward(point.x), point.label)
        return Visit(network, ask, point, targets, new_memories(targets))

    def blank_rows(self) -> Iterator[Row]:
        """All rows of the point, in the order of the answer."""
        for radius in self.ask.radii:
            yield from self.blank_rows_of_ball(radius)

    def blank_rows_of_ball(self, radius: float) -> list[Row]:
        """The rows of one ball around the point, one for every target."""
        return [blank_row(self.ask, self.point, radius, target) for target in self.targets]

    def seed(self, target: Target) -> int:
        """A seed for every problem, whatever worker solves it and when."""
        numbers = [self.ask.seed, self.point.number, *target.outputs]
        return int(np.random.SeedSequence(numbers).generate_state(1)[0])


@dataclass(frozen=True, eq=False)
class PendingRow:
    """A row whose upper bound is not known yet."""

    blank: Row  # the row before anything was known
    margin: float | None  # at the point
    seed: int
    inquiry: Inquiry  # the row's question, posed over the ball, with its lower bounds


class Found(NamedTuple):
    """What the SDP has found for a row, as one of a batch."""

    task: Task
    bound: UpperBound
    seconds: float


@quiet()
def answers(network: Network, ask: Ask, points: Sequence[Point]) -> list[Row]:
    """All rows of some points. What fails leaves rows that say why."""
    if ask.batched is not None:
        return _answer_together(network, ask, ask.batched, points)
    rows: list[Row] = []
    for point in points:
        rows += _answer_point(network, ask, point)
    return rows


def unanswered(network: Network, ask: Ask, point: Point, reason: str) -> list[Row]:
    """The rows of a point that could not be solved at all."""
    blanks = Visit.of(network, ask, point).blank_rows()
    return [replace(blank, error=reason) for blank in blanks]


def _answer_point(network: Network, ask: Ask, point: Point) -> list[Row]:
    """The rows of one point, from the largest ball, whose vectors the smaller ones start from."""
    visit = Visit.of(network, ask, point)
    sheet = _Sheet()
    sheet.add(visit.blank_rows())
    for radius in sorted(ask.radii, reverse=True):
        for pending in _prepare_ball(sheet, visit, radius):
            _finish(sheet, ask, pending)
    return sheet.rows


def _answer_together(network: Network, ask: Ask, sdp: SDP, points: Sequence[Point]) -> list[Row]:
    """The rows of several points, their SDPs solved as one batch."""
    sheet = _Sheet()
    batch: list[PendingRow] = []
    for point in points:
        visit = Visit.of(network, ask, point)
        sheet.add(visit.blank_rows())
        for radius in sorted(ask.radii, reverse=True):
            batch += _prepare_ball(sheet, visit, radius)
    found = find_together(ask, sdp, batch)
    for pending in batch:
        _finish(sheet, ask, pending, found.get(pending))
    return sheet.rows


class _Sheet:
    """The rows of some points in the order of the answer, blank until they are answered."""

    def __init__(self) -> None:
        self._answers: dict[Row, Row] = {}  # by blank row

    def add(self, blanks: Iterable[Row]) -> None:
        for blank in blanks:
            self._answers[blank] = blank

    def answer(self, blank: Row, row: Row) -> None:
        if blank not in self._answers:
            raise KeyError(f"no such row: {blank}")
        self._answers[blank] = row

    @property
    def rows(self) -> list[Row]:
        return list(self._answers.values())


def _prepare_ball(sheet: _Sheet, visit: Visit, radius: float) -> list[PendingRow]:
    """The first phase of a ball's rows. If it fails, the rows say why, and none is left."""
    start = time.monotonic()
    try:
        pending = prepare(visit, radius)
    except Exception as error:
        for blank in visit.blank_rows_of_ball(radius):
            sheet.answer(blank, replace(blank, error=reason_of(error)))
        return []
    seconds = (time.monotonic() - start) / len(visit.targets)
    return [replace(each, inquiry=replace(each.inquiry, seconds=seconds)) for each in pending]


def _finish(sheet: _Sheet, ask: Ask, pending: PendingRow, found: Found | None = None) -> None:
    """The last phases of a row, whose bound may be found already. The row may say why they failed."""
    try:
        row = answered(ask, pending, settle(ask, pending, found))
    except Exception as error:
        seconds = pending.inquiry.seconds
        unbounded = replace(pending.blank, margin=pending.margin, seconds=seconds)
        row = replace(unbounded, error=reason_of(error))
    sheet.answer(pending.blank, row)


def prepare(visit: Visit, radius: float) -> list[PendingRow]:
    """First phase: the questions of all targets over one ball, with their lower bounds."""
    network = visit.network
    ask = visit.ask
    targets = visit.targets
    ball = ask.ball(visit.point.x, radius)
    units = None if ask.scale is None else flat_scale(ask.scale, network.input_size)
    question = Question(ask.norm, target_matrix(network, targets), ball, units)
    budget = Budget.of(ask.time_limit, ask.seed).share(INTERVAL_SHARE)
    posed = pose_in_time(network, question, budget, ask.wants_certificates)
    samples = sample_rows(posed, ask.samples, visit.seed(targets[0]))
    margins: Sequence[float | None] = [None] * len(targets)
    if ask.margins:
        margins = margins_at(network, visit.point.x, targets)
    pending = []
    for k, blank in enumerate(visit.blank_rows_of_ball(radius)):
        row = posed.only(k)
        seed = visit.seed(targets[k])
        pop_lower = pop_lower_of(row, samples[k], Budget(seed=seed))
        memory = visit.memories[targets[k]]
        inquiry = Inquiry(row, samples[k], pop_lower, seconds=0.0, memory=memory)
        pending.append(PendingRow(blank, margins[k], seed, inquiry))
    return pending


def settle(ask: Ask, pending: PendingRow, found: Found | None) -> Settled:
    """Second phase: the upper bound of a row, found already or now, with its certificate."""
    if found is not None:
        return pending.inquiry.settle_with(ask.method, *found, certify=ask.wants_certificates)
    budget = Budget.of(ask.time_limit, pending.seed)
    return pending.inquiry.settle(ask.method, budget, ask.wants_certificates)


def find_together(ask: Ask, sdp: SDP, batch: Sequence[PendingRow]) -> dict[PendingRow, Found]:
    """The upper bounds of rows whose SDPs are solved as one batch.

    None is found if the batch fails, for want of memory say: each alone will tell why."""
    start = time.monotonic()
    limit = None if ask.time_limit is None else ask.time_limit * len(batch)
    budget = Budget.of(limit)
    tasks = []
    for pending in batch:
        own = replace(budget, seed=pending.seed)
        tasks.append(pending.inquiry.task(own, ask.wants_certificates))
    try:
        bounds = sdp.together(tasks)
    except Exception:
        return {}
    seconds = (time.monotonic() - start) / max(1, len(batch))
    found = {}
    for pending, task, bound in zip(batch, tasks, bounds, strict=True):
        found[pending] = Found(task, bound, seconds)
    return found


def answered(ask: Ask, pending: PendingRow, settled: Settled) -> Row:
    """Last phase: the row of a question that is settled, its certificate written to a file."""
    row = pending.blank
    file = None
    if ask.certificates is not None and settled.certificate is not None:
        file = Path(ask.certificates) / _file_name(row)
        settled.certificate.save(file)
    certified = None
    if pending.margin is not None and ask.certifies_balls:
        certified = is_kept(pending.margin, row.radius, settled.upper)
    return replace(
        row,
        margin=pending.margin,
        lower=value_of(settled.best),
        pop_lower=settled.pop_lower,
        upper=settled.upper,
        certified=certified,
        method=ask.method.name,
        status=settled.status,
        seconds=settled.seconds,
        certificate=None if file is None else str(file),
    )


def _file_name(row: Row) -> str:
    """The name of a row's certificate: 7-margin-3-5-0.01.cert."""
    question = row.question.replace(" - ", "-").replace(" ", "-")
    return f"{row.point}-{question}-{row.radius}.cert"
