"""All rows of some points, with the work that the questions share done once.

A row goes through three phases, each with a type of its own:

    prepare   pose the problems of a ball, with their lower bounds    -> PendingRow
    solve     bound it, together with others or alone                 -> SolvedRow
    prove     write its certificate                                   -> Row

Intervals, presolve and sampled gradients belong to the ball: all outputs and margins share them.
The SDP of a margin starts from the vectors of the last radius. On a device, the SDPs of all points
that are given together are solved as one batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..certificates.write import certify
from ..errors import reason_of
from ..inquiry import check_bounds
from ..lower.gradients import sample_rows
from ..lower.pop import pop_lower_bound
from ..methods.sdp.method import SDP
from ..model.domain import flat_scale
from ..model.network import Network
from ..numerics.blas import quiet
from ..problem.question import Posed, Question
from ..problem.task import Budget, Sample, Task, UpperBound
from .balls import (
    BallProblems,
    Memories,
    deadline_of,
    is_kept,
    margins_at,
    new_memories,
    pose_ball,
    target_matrix,
    until,
)
from .rows import Ask, Point, Row, Target, blank_row


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
    """A row with its lower bounds, and the problem whose upper bound it lacks."""

    blank: Row  # the row before anything was known
    row: Row  # with its margin and its lower bounds
    target: Target
    place: int  # of the target among those of the ball
    problems: BallProblems
    task: Task
    seconds: float = 0.0  # the row's share of the time that was spent on its ball so far


@dataclass(frozen=True, eq=False)
class SolvedRow:
    """A pending row with its upper bound."""

    pending: PendingRow
    bound: UpperBound
    seconds: float  # to find the bound


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
            _finish(sheet, ask, pending, None)
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
    solved = solve_together(ask, sdp, batch)
    for pending in batch:
        _finish(sheet, ask, pending, solved.get(pending))
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
    start = time.perf_counter()
    try:
        pending = prepare(visit, radius)
    except Exception as error:
        for blank in visit.blank_rows_of_ball(radius):
            sheet.answer(blank, replace(blank, error=reason_of(error)))
        return []
    seconds = (time.perf_counter() - start) / len(visit.targets)
    return [replace(each, seconds=seconds) for each in pending]


def _finish(sheet: _Sheet, ask: Ask, pending: PendingRow, solved: SolvedRow | None) -> None:
    """The last two phases of a row, solved alone if it is not solved yet. It may say why not."""
    try:
        row = prove(ask, solved or solve(ask, pending))
    except Exception as error:
        unbounded = replace(pending.row, lower=None, pop_lower=None, seconds=pending.seconds)
        row = replace(unbounded, error=reason_of(error))
    sheet.answer(pending.blank, row)


def prepare(visit: Visit, radius: float) -> list[PendingRow]:
    """First phase: the problems of all targets over one ball, with their lower bounds."""
    network = visit.network
    ask = visit.ask
    targets = visit.targets
    ball = ask.ball(visit.point.x, radius)
    units = None if ask.scale is None else flat_scale(ask.scale, network.input_size)
    question = Question(ask.norm, target_matrix(network, targets), ball, units)
    problems = pose_ball(network, question, targets, ask.seed, visit.memories)
    samples = sample_rows(problems.posed, ask.samples, visit.seed(targets[0]))
    lowers = [0.0 if sample is None else sample.value for sample in samples]
    margins: Sequence[float | None] = [None] * len(targets)
    if ask.margins:
        margins = margins_at(network, visit.point.x, targets)
    pending = []
    for k, blank in enumerate(visit.blank_rows_of_ball(radius)):
        budget = Budget(seed=visit.seed(targets[k]))
        task = replace(problems.tasks[k], budget=budget, pop_lower=lowers[k])
        task = _with_pop_lower(task, problems.posed, samples[k])
        row = replace(blank, margin=margins[k], lower=lowers[k], pop_lower=task.pop_lower)
        pending.append(PendingRow(blank, row, targets[k], k, problems, task))
    return pending


def _with_pop_lower(task: Task, posed: Posed, sample: Sample | None) -> Task:
    """The task with a lower bound on its optimum, which is at least the one it has."""
    known = None if sample is None else posed.slopes_in_problem(sample.slopes)
    found = float(pop_lower_bound(task.problem, task.budget, known))
    return replace(task, pop_lower=max(task.pop_lower, found))


def solve(ask: Ask, pending: PendingRow) -> SolvedRow:
    """Second phase: the upper bound of a row on its own."""
    start = time.perf_counter()
    bound = ask.method(until(pending.task, deadline_of(ask)))
    return SolvedRow(pending, bound, time.perf_counter() - start)


def solve_together(ask: Ask, sdp: SDP, batch: Sequence[PendingRow]) -> dict[PendingRow, SolvedRow]:
    """Second phase for rows whose SDPs are solved as one batch.

    None is solved if the batch fails, for want of memory say: each alone will tell why."""
    start = time.perf_counter()
    deadline = deadline_of(ask, len(batch))
    try:
        bounds = sdp.together([until(pending.task, deadline) for pending in batch])
    except Exception:
        return {}
    seconds = (time.perf_counter() - start) / max(1, len(batch))
    solved = {}
    for pending, bound in zip(batch, bounds, strict=True):
        solved[pending] = SolvedRow(pending, bound, seconds)
    return solved


def prove(ask: Ask, solved: SolvedRow) -> Row:
    """Last phase: the row with its upper bound; with a certificate, the bound that this proves."""
    start = time.perf_counter()
    pending = solved.pending
    row = pending.row
    bound = solved.bound
    check_bounds(ask.method, [bound], pending.task.pop_lower)
    upper = bound.value
    file = None
    if ask.certificates is not None:
        file = Path(ask.certificates) / _file_name(row)
        upper = _write_certificate(pending, bound, file)
    certified = None
    if row.margin is not None and ask.certifies_balls:
        certified = is_kept(row.margin, row.radius, upper)
    return replace(
        row,
        pop_lower=max(row.pop_lower or 0.0, bound.pop_lower or 0.0),
        upper=upper,
        certified=certified,
        method=ask.method.name,
        status=bound.status,
        seconds=pending.seconds + solved.seconds + time.perf_counter() - start,
        certificate=None if file is None else str(file),
    )


def _write_certificate(pending: PendingRow, bound: UpperBound, file: Path) -> float:
    """Write the certificate of a row's bound; the bound that it proves."""
    posed = pending.problems.posed.only(pending.place)
    certificate = certify(posed, [pending.task], [bound])
    certificate.save(file)
    return certificate.bound


def _file_name(row: Row) -> str:
    """The name of a row's certificate: 7-margin-3-5-0.01.cert."""
    question = row.question.replace(" - ", "-").replace(" ", "-")
    return f"{row.point}-{question}-{row.radius}.cert"
