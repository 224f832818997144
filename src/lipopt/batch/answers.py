"""All rows of some points, with the work that the questions share done once.

A row goes through four phases, each with a type of its own:

    prepare   pose the problems of a ball, with their lower bounds    -> PendingRow
    settle    decide how to bound each: what is known or cheap first  -> PlannedRow
    solve     bound it, together with others or alone                 -> SolvedRow
    prove     write its certificate                                   -> Row

Intervals, presolve and sampled gradients belong to the ball: all outputs and margins share them.
The SDP of a margin starts from the vectors of the last radius. On a device, the SDPs of all points
that are given together are solved as one batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..api import check_bounds
from ..certificates.write import certify
from ..errors import LipoptError
from ..lower.gradients import sample_rows
from ..lower.pop import pop_lower_bound
from ..methods.baselines import PathSum, path_sum_bound
from ..methods.registry import Method
from ..methods.sdp.method import SDP
from ..model.network import Network
from ..numerics.arrays import Array
from ..numerics.blas import quiet
from ..problem.task import Budget, Sample, Task, UpperBound
from .balls import (
    BallProblems,
    Memories,
    deadline_of,
    is_kept,
    margins_at,
    new_memories,
    pose_ball,
    shared_bounds,
    until,
)
from .radius import radius_row
from .rows import Ask, Point, Row, Target, blank_radius_row, blank_row


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
        if self.ask.largest is not None:
            yield blank_radius_row(self.ask, self.point)

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


@dataclass(frozen=True, eq=False)
class PlannedRow:
    """A pending row, and the way to its upper bound."""

    pending: PendingRow
    method: Method
    bound: UpperBound | None = None  # one by this method that is good enough already
    larger: Row | None = None  # the row of a larger ball whose bound is good enough
    seconds: float = 0.0  # the row's share of the time that was spent on its ball so far


@dataclass(frozen=True, eq=False)
class SolvedRow:
    """A planned row with its upper bound."""

    planned: PlannedRow
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
    """The rows of one point, from the largest ball, whose bounds serve the smaller ones too."""
    visit = Visit.of(network, ask, point)
    sheet = _Sheet()
    sheet.add(visit.blank_rows())
    larger: dict[Target, Row] = {}
    for radius in sorted(ask.radii, reverse=True):
        for planned in _plan_ball(sheet, visit, radius, larger):
            row = _finish(sheet, ask, planned, None)
            if row.upper is not None:
                larger[planned.pending.target] = row
    _answer_radius(sheet, visit)
    return sheet.rows


def _answer_together(network: Network, ask: Ask, sdp: SDP, points: Sequence[Point]) -> list[Row]:
    """The rows of several points, their SDPs solved as one batch."""
    sheet = _Sheet()
    plan: list[PlannedRow] = []
    for point in points:
        visit = Visit.of(network, ask, point)
        sheet.add(visit.blank_rows())
        for radius in sorted(ask.radii, reverse=True):
            plan += _plan_ball(sheet, visit, radius, larger={})
        _answer_radius(sheet, visit)
    solved = solve_together(ask, sdp, [planned for planned in plan if planned.method is sdp])
    for planned in plan:
        _finish(sheet, ask, planned, solved.get(planned))
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


def _plan_ball(
    sheet: _Sheet, visit: Visit, radius: float, larger: Mapping[Target, Row]
) -> list[PlannedRow]:
    """The first two phases of a ball's rows. If they fail, the rows say why, and none is left."""
    start = time.perf_counter()
    try:
        pending = prepare(visit, radius)
        plan = settle(visit.ask, pending, larger)
    except Exception as error:
        for blank in visit.blank_rows_of_ball(radius):
            sheet.answer(blank, replace(blank, error=_reason(error)))
        return []
    seconds = (time.perf_counter() - start) / len(visit.targets)
    return [replace(planned, seconds=seconds) for planned in plan]


def _finish(sheet: _Sheet, ask: Ask, planned: PlannedRow, solved: SolvedRow | None) -> Row:
    """The last two phases of a row, solved alone if it is not solved yet. It may say why not."""
    pending = planned.pending
    try:
        if planned.larger is not None:
            row = _row_of_larger_ball(planned, planned.larger)
        else:
            row = prove(ask, solved or solve(ask, planned))
    except Exception as error:
        unbounded = replace(pending.row, lower=None, pop_lower=None, seconds=planned.seconds)
        row = replace(unbounded, error=_reason(error))
    sheet.answer(pending.blank, row)
    return row


def _answer_radius(sheet: _Sheet, visit: Visit) -> None:
    """The certified radius of a point, if it is asked for."""
    if visit.ask.largest is None:
        return
    blank = blank_radius_row(visit.ask, visit.point)
    try:
        row = radius_row(visit.network, visit.ask, visit.point.x, blank)
    except Exception as error:
        row = replace(blank, error=_reason(error))
    sheet.answer(blank, row)


def _reason(error: Exception) -> str:
    """An error as one line; with its type, if it is not one that lipopt foresees."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, LipoptError):
        return text
    return f"{type(error).__name__}: {text}"


def prepare(visit: Visit, radius: float) -> list[PendingRow]:
    """First phase: the problems of all targets over one ball, with their lower bounds."""
    network = visit.network
    ask = visit.ask
    targets = visit.targets
    ball = ask.ball(visit.point.x, radius)
    problems = pose_ball(network, ask.norm, ball, targets, ask.seed, visit.memories)
    rows = problems.posed.question.rows
    samples = sample_rows(network, rows, ask.norm, ball, ask.samples, visit.seed(targets[0]))
    lowers = [0.0 if sample is None else sample.value for sample in samples]
    margins: Sequence[float | None] = [None] * len(targets)
    if ask.margins:
        margins = margins_at(network, visit.point.x, targets)
    needed = _which_need_pop_lower(ask, problems, margins, lowers)
    pending = []
    for k, blank in enumerate(visit.blank_rows_of_ball(radius)):
        budget = Budget(seed=visit.seed(targets[k]))
        task = replace(problems.tasks[k], budget=budget, pop_lower=lowers[k])
        row = replace(blank, margin=margins[k], lower=lowers[k])
        if needed[k]:
            task = _with_pop_lower(task, samples[k])
            row = replace(row, pop_lower=task.pop_lower)
        pending.append(PendingRow(blank, row, targets[k], k, problems, task))
    return pending


def _with_pop_lower(task: Task, sample: Sample | None) -> Task:
    """The task with a lower bound on its optimum, which is at least the one it has."""
    found = float(pop_lower_bound(task.problem, task.budget, sample))
    return replace(task, pop_lower=max(task.pop_lower, found))


def _which_need_pop_lower(
    ask: Ask, problems: BallProblems, margins: Sequence[float | None], lowers: Sequence[float]
) -> list[bool]:
    """For each target, whether a lower bound on the POP is worth its time.

    To certify it is not, if a gradient rules the point out, or if the path sum keeps the margin."""
    if not ask.certify:
        return [True] * len(lowers)
    radius = problems.ball.radius
    known = np.array(margins, dtype=float)
    if (radius * np.array(lowers) >= known).any():
        return [False] * len(lowers)
    needed = []
    for margin, task in zip(known, problems.tasks, strict=True):
        needed.append(not is_kept(margin, radius, path_sum_bound(task.problem)))
    return needed


def settle(
    ask: Ask, pending: Sequence[PendingRow], larger: Mapping[Target, Row]
) -> list[PlannedRow]:
    """Second phase: how to bound the rows of a ball.

    To certify, what is known or cheap comes first: the bound of a larger ball, the path sum,
    multipliers that serve all margins at once. Where some lower bound shows that a margin cannot be
    certified, neither can the point, and the path sum has to do for all its rows."""
    plan = [PlannedRow(each, ask.method) for each in pending]
    if not ask.certify:
        return plan
    problems = pending[0].problems
    radius = problems.ball.radius
    margins = np.array([each.row.margin for each in pending], dtype=float)
    if _is_ruled_out(pending, margins, radius):
        return [PlannedRow(each, PathSum()) for each in pending]
    unsettled = []
    for k, each in enumerate(pending):
        row = larger.get(each.target)
        if row is not None and row.upper is not None and is_kept(margins[k], radius, row.upper):
            plan[k] = PlannedRow(each, ask.method, larger=row)
        elif is_kept(margins[k], radius, path_sum_bound(each.task.problem)):
            plan[k] = PlannedRow(each, PathSum())
        else:
            unsettled.append(k)
    for k, bound in shared_bounds(ask, problems, unsettled, margins).items():
        plan[k] = PlannedRow(pending[k], ask.method, bound=bound)
    return plan


def _is_ruled_out(pending: Sequence[PendingRow], margins: Array, radius: float) -> bool:
    """Whether some margin cannot be certified, whatever the method."""
    lowers = np.array([each.task.pop_lower for each in pending])
    return bool((radius * lowers >= margins).any())


def solve(ask: Ask, planned: PlannedRow) -> SolvedRow:
    """Third phase: the upper bound of a row on its own, if it is not there already."""
    start = time.perf_counter()
    bound = planned.bound
    if bound is None:
        bound = planned.method(until(planned.pending.task, deadline_of(ask)))
    return SolvedRow(planned, bound, time.perf_counter() - start)


def solve_together(ask: Ask, sdp: SDP, batch: Sequence[PlannedRow]) -> dict[PlannedRow, SolvedRow]:
    """Third phase for rows whose SDPs are solved as one batch.

    None is solved if the batch fails, for want of memory say: each alone will tell why."""
    start = time.perf_counter()
    deadline = deadline_of(ask, len(batch))
    try:
        bounds = sdp.together([until(planned.pending.task, deadline) for planned in batch])
    except Exception:
        return {}
    seconds = (time.perf_counter() - start) / max(1, len(batch))
    solved = {}
    for planned, bound in zip(batch, bounds, strict=True):
        solved[planned] = SolvedRow(planned, bound, seconds)
    return solved


def prove(ask: Ask, solved: SolvedRow) -> Row:
    """Last phase: the row with its upper bound; with a certificate, the bound that this proves."""
    start = time.perf_counter()
    planned = solved.planned
    pending = planned.pending
    row = pending.row
    bound = solved.bound
    check_bounds(planned.method, [bound], pending.task.pop_lower)
    upper = bound.value
    file = None
    if ask.certificates is not None:
        file = Path(ask.certificates) / _file_name(row)
        upper = _write_certificate(pending, bound, file)
    pop_lower = row.pop_lower
    if pop_lower is not None:
        pop_lower = max(pop_lower, bound.pop_lower or 0.0)
    certified = None
    if row.margin is not None and ask.certifies_balls:
        certified = is_kept(row.margin, row.radius, upper)
    return replace(
        row,
        pop_lower=pop_lower,
        upper=upper,
        certified=certified,
        method=planned.method.name,
        status=bound.status,
        seconds=planned.seconds + solved.seconds + time.perf_counter() - start,
        certificate=None if file is None else str(file),
    )


def _row_of_larger_ball(planned: PlannedRow, larger: Row) -> Row:
    """The row of a ball inside another one: bound and certificate of the larger ball serve it."""
    own = planned.pending.row
    return replace(
        larger,
        radius=own.radius,
        lower=own.lower,
        pop_lower=own.pop_lower,
        certified=True,
        seconds=planned.seconds,
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
