"""A question about one convex domain, from its pose and its lower bounds to a Result.

Batches settle the questions of a ball in the same way, each a row of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from .cells.refine import refine
from .certificates.certificate import Certificate
from .certificates.multipliers import seconds_to_write
from .certificates.write import certify as write_certificate
from .errors import LipoptError
from .lower.gradients import sample
from .lower.pop import AsGiven, pop_lower_bound
from .lower.walk import walked
from .methods.auto import MAX_GAP, Auto, better_by_lp
from .methods.baselines import PathSum
from .methods.branch import Branch, cells_in_a_second
from .methods.registry import Method, takes_all_rows, takes_network_as_given
from .model.domain import Domain, describe, pieces
from .model.network import Network
from .model.norms import NormName
from .numerics.arrays import Array, as_index
from .problem.derivative import DerivativeProblem
from .problem.proofs import Proof
from .problem.question import Posed, Question, pose
from .problem.task import Budget, Memory, Sample, Status, Task, UpperBound
from .result import LowerBound, Result

# What rounding may leave between both bounds: relative, and where the constant is 0.
ROUNDING = 1e-6
ZERO = 1e-12
INTERVAL_SHARE = 1 / 2  # of the time for intervals and lower bounds, for intervals


@dataclass(frozen=True, eq=False)
class Asked:
    """What was asked, checked."""

    network: Network
    question: Question
    parts: tuple[Domain, ...]  # the convex parts of the domain: each gets a bound of its own
    output: str  # in words

    @staticmethod
    def check(
        network: Network,
        norm: NormName,
        output_norm: NormName | None,
        scale: Any,
        output: int | Literal["all"] | None,
        margin: tuple[int, int] | None,
        domain: Domain,
    ) -> Asked:
        output = as_index(output)
        if isinstance(margin, tuple | list):
            margin = tuple(as_index(k) for k in margin)
        question = Question.about(
            network,
            norm=norm,
            output=output,
            margin=margin,
            domain=domain,
            scale=scale,
            output_norm=output_norm,
        )
        words = str(output or 0) if margin is None else f"{margin[0]} - {margin[1]}"
        return Asked(network, question, pieces(domain), words)


def pose_in_time(network: Network, question: Question, budget: Budget, certify: bool) -> Posed:
    """The question, with the best intervals that there is time for.

    A certificate starts from intervals that a checker finds again: from all that there are, or from
    plain ones."""

    def show(fraction: float) -> None:
        budget.progress("bounding pre-activations", fraction)

    posed = pose(network, question, show, lambda: budget.seconds_left <= 0)
    if certify and not posed.can_be_found_again:
        posed = pose(network, question, plain=True)
    return refine(posed, budget)


@dataclass(frozen=True, eq=False)
class Inquiry:
    """A question about one convex domain, posed, with its lower bounds."""

    posed: Posed
    best: Sample | None  # the largest gradient that was found
    pop_lower: float  # a lower bound on the optimum of the derivative problem
    seconds: float  # that it took until here
    was_late: bool = False  # whether more time could have given better intervals
    memory: Memory | None = None  # what a similar inquiry has left, to start from
    labels: dict[str, Any] = field(default_factory=dict)  # what a Result says of the question

    @staticmethod
    def start(
        asked: Asked, part: Domain, budget: Budget, samples: int, certify: bool = False
    ) -> Inquiry:
        """Pose the question and look for lower bounds, which get half of the time."""
        start = time.monotonic()
        first = budget.share(INTERVAL_SHARE)
        posed = pose_in_time(asked.network, replace(asked.question, domain=part), first, certify)
        was_late = part is not None and first.seconds_left <= 0
        best = walked(posed, sample(posed, budget, samples), budget)
        pop_lower = pop_lower_of(posed, best, budget)
        labels = {
            "norm": str(asked.question.norm),
            "output_norm": str(asked.question.output_norm),
            "scale": _numbers(asked.question.scale),
            "output": asked.output,
            "domain": describe(part),
            "network": asked.network.hash,
            "source": asked.network.source,
        }
        seconds = time.monotonic() - start
        return Inquiry(posed, best, pop_lower, seconds, was_late, labels=labels)

    def lower_bound(self, seconds: float) -> LowerBound:
        point = _as_tuple(self.best)
        return LowerBound(value_of(self.best), self.pop_lower, point, seconds, **self.labels)

    def result(self, method: Method, budget: Budget, certify: bool) -> Result:
        """What a method says, the largest over all parts; with `certify`, as a certificate."""
        settled = self.settle(method, budget, certify)
        return Result(
            upper=settled.upper,
            lower=value_of(settled.best),
            pop_lower=settled.pop_lower,
            method=method.name,
            seconds=settled.seconds,
            status=settled.status,
            point=_as_tuple(settled.best),
            certificate=settled.certificate,
            proofs=settled.proofs,
            details=settled.details,
            **self.labels,
        )

    def settle(self, method: Method, budget: Budget, certify: bool) -> Settled:
        """The upper bound of a method."""
        start = time.monotonic()
        cells = self._cells_to_try(budget) if isinstance(method, Auto) else 0
        try:
            if isinstance(method, Auto) and cells != 0:
                answer = self._answer_in_cells(method, cells, budget, certify)
            else:
                answer = self._answer(method, budget, certify)
        except KeyboardInterrupt:  # the second one; the first leaves it to methods to end
            if not budget.interruption.has_come:
                raise
            answer = self._answer(PathSum(), budget, certify).with_details(chosen="path-sum")
        if self.was_late and answer.status == "complete":
            answer = answer.with_status("time limit")
        if budget.interruption.has_come:
            answer = answer.with_status("interrupted")
        gap = method.gap_in(budget) if isinstance(method, Branch) else budget.gap
        if answer.status == "complete" and gap is not None and self._leaves(gap, answer.worst):
            answer = answer.with_status("gap not reached")
        return self._settled(answer, certify, start)

    def _leaves(self, gap: float, worst: UpperBound) -> bool:
        """Whether the bounds are farther apart than that, and than what rounding explains."""
        lower = value_of(worst.best or self.best)
        return worst.value > lower * (1 + gap) * (1 + ROUNDING) + ZERO

    def task(self, budget: Budget, certify: bool) -> Task:
        """The task of a question that is one problem, for a method that solves many at once."""
        ((raw, problem),) = self.posed.parts
        return self._task(self.posed, raw, problem, budget, self.pop_lower, certify)

    def settle_with(
        self, method: Method, task: Task, found: UpperBound, seconds: float, certify: bool
    ) -> Settled:
        """The same as `settle`, with a bound that the method has found in so many seconds."""
        check_bounds(method, [found], self._least(method))
        answer = _Answer(self.posed, [task], [found])
        return self._settled(answer, certify, time.monotonic() - seconds)

    def _settled(self, answer: _Answer, certify: bool, start: float) -> Settled:
        """What follows from the bounds on all parts."""
        worst = answer.worst
        upper = worst.value
        details = worst.details
        certificate = None
        if certify:
            certificate = write_certificate(answer.posed, answer.tasks, answer.bounds)
            upper = certificate.bound
            details = {**details, "loss": certificate.loss}
        return Settled(
            upper=upper,
            best=worst.best or self.best,
            pop_lower=self._pop_lower(answer, upper),
            status=answer.status,
            certificate=certificate,
            proofs=tuple(found.proof for found in answer.bounds),
            details=details,
            seconds=self.seconds + time.monotonic() - start,
        )

    def _answer(
        self, method: Method, budget: Budget, certify: bool, upper: float = float("inf")
    ) -> _Answer:
        """A method's bounds on all parts of the problem, of which an upper bound may be known."""
        posed = self.posed.as_given() if takes_network_as_given(method) else self.posed
        parts = posed.parts
        if takes_all_rows(method):
            parts = [(posed.raw, posed.problem)]
        known = self.pop_lower if len(parts) == 1 else 0.0
        tasks = []
        bounds = []
        for k, (raw, problem) in enumerate(parts):
            share = budget.share(1 / (len(parts) - k))
            task = self._task(posed, raw, problem, share, known, certify)
            tasks.append(replace(task, upper=upper))
            bounds.append(method(tasks[-1]))
        check_bounds(method, bounds, self._least(method))
        return _Answer(posed, tasks, bounds)

    def _task(
        self,
        posed: Posed,
        raw: DerivativeProblem,
        problem: DerivativeProblem,
        budget: Budget,
        pop_lower: float,
        certify: bool,
    ) -> Task:
        """One part of the problem."""
        task = Task(
            raw,
            problem,
            budget,
            pop_lower=pop_lower,
            memory=self.memory,
            posed=posed,
            best=self.best,
            keeps_proof=certify,
        )
        if certify and budget.deadline is not None:
            return replace(
                task,
                rehearse=partial(_write_one, posed, task),
                seconds_to_write=seconds_to_write(problem),
            )
        return task

    def _least(self, method: Method) -> float:
        """What no bound can be below: the optimum of the derivative problem, but for branch and
        bound, which divides the domain, and where methods may know squares instead of factors."""
        if self.posed.products or isinstance(method, Branch):
            return value_of(self.best)
        return self.pop_lower

    def _cells_to_try(self, budget: Budget) -> int | None:
        """How many cells branch and bound may examine after `auto`: None for any number."""
        if self.posed.question.domain is None:
            return 0
        if _is_asked_for(budget):
            return None
        return cells_in_a_second(self.posed)

    def _answer_in_cells(
        self, auto: Auto, cells: int | None, budget: Budget, certify: bool
    ) -> _Answer:
        """What `auto` finds, and then branch and bound.

        The LP comes after it, where it gains nothing, and before it where cells take long."""
        cells_take_long = cells_in_a_second(self.posed) == 0
        answer = self._answer(replace(auto, lp=cells_take_long), budget, certify)
        closest = value_of(self.best) * (1 + (budget.gap or MAX_GAP))
        if answer.worst.value <= closest:
            return answer
        left = budget.without(max(task.seconds_to_write for task in answer.tasks))
        try:
            deeper = self._answer(Branch(cells=cells), left, certify, answer.worst.value)
        except LipoptError as error:
            return answer.with_details(refused={"branch": str(error)}).with_lp()
        except KeyboardInterrupt:
            if not budget.interruption.has_come:
                raise
            return answer
        if deeper.worst.value < answer.worst.value:
            return deeper.with_details(chosen="branch")
        if _is_asked_for(budget):
            return answer.with_best_of(deeper.worst).with_status(deeper.worst.status)
        return answer.with_lp().with_best_of(deeper.worst)

    def _pop_lower(self, answer: _Answer, upper: float) -> float | None:
        """The best lower bound on the optimum of the derivative problem; None if the upper bound is
        below it, since it is not a bound on that problem."""
        lowers = [found.pop_lower for found in answer.bounds if found.pop_lower is not None]
        attained = [value_of(found.best) for found in answer.bounds]
        largest = max([self.pop_lower, *lowers, *attained])
        return None if largest > upper else largest


@dataclass(frozen=True, eq=False)
class Settled:
    """What a method has proved about a question."""

    upper: float
    best: Sample | None  # the largest gradient that was found
    pop_lower: float | None  # None if the upper bound is below it, as it may be in cells
    status: Status
    certificate: Certificate | None
    proofs: tuple[Proof | None, ...]
    details: dict[str, Any]
    seconds: float  # from the question on


@dataclass(frozen=True, eq=False)
class _Answer:
    """The tasks that a question was divided into, and a bound for each."""

    posed: Posed
    tasks: Sequence[Task]
    bounds: Sequence[UpperBound]

    @property
    def worst(self) -> UpperBound:
        return max(self.bounds, key=lambda found: found.value)

    @property
    def status(self) -> Status:
        return _status([found.status for found in self.bounds])

    def with_details(self, **details: Any) -> _Answer:
        """The same answer with more details."""
        bounds = []
        for found in self.bounds:
            bounds.append(replace(found, details={**found.details, **details}))
        return replace(self, bounds=bounds)

    def with_status(self, status: Status) -> _Answer:
        """The same bounds with another status."""
        return replace(self, bounds=[replace(found, status=status) for found in self.bounds])

    def with_best_of(self, other: UpperBound) -> _Answer:
        """The same bounds, with the best point that another one found."""
        return replace(self, bounds=[replace(found, best=other.best) for found in self.bounds])

    def with_lp(self) -> _Answer:
        """The same bounds, or those of the LP where they are smaller."""
        bounds = []
        for task, found in zip(self.tasks, self.bounds, strict=True):
            bounds.append(better_by_lp(task, found))
        return replace(self, bounds=bounds)


def pop_lower_of(posed: Posed, best: Sample | None, budget: Budget) -> float:
    """A lower bound on the optimum of the derivative problem, the largest over all its parts."""
    known = None if best is None else posed.slopes_in_problem(best.slopes)
    lowers = [value_of(best)]
    parts = posed.parts
    for (_, problem), given in zip(parts, AsGiven.parts(posed, len(parts)), strict=True):
        lowers.append(pop_lower_bound(problem, budget, known, given))
    return max(lowers)


def _write_one(posed: Posed, task: Task, found: UpperBound) -> None:
    """Write the certificate of a bound on the whole problem."""
    write_certificate(posed, [task], [found])


def _is_asked_for(budget: Budget) -> bool:
    """Whether branch and bound may take more than about a second."""
    return budget.gap is not None or budget.deadline is not None


def value_of(best: Sample | None) -> float:
    """The lower bound on the constant."""
    return 0.0 if best is None else best.value


def _as_tuple(best: Sample | None) -> tuple[float, ...]:
    return _numbers(None if best is None else best.point)


def _numbers(values: Array | None) -> tuple[float, ...]:
    return () if values is None else tuple(float(v) for v in values)


def _status(statuses: Sequence[Status]) -> Status:
    """The worst of several."""
    for status in ("interrupted", "time limit", "cell limit", "gap not reached"):
        if status in statuses:
            return status
    return "complete"


def largest_of(results: Sequence[Result], domain: Domain) -> Result:
    """What follows for a union from the results for its parts: the largest of everything."""
    if domain is None or len(domain.parts) == 1:
        return results[0]
    decided = max(range(len(results)), key=lambda k: results[k].upper)
    attained = max(range(len(results)), key=lambda k: results[k].lower)
    return replace(
        results[decided],
        lower=results[attained].lower,
        point=results[attained].point,
        pop_lower=max(result.pop_lower or 0.0 for result in results),
        seconds=sum(result.seconds for result in results),
        status=_status([result.status for result in results]),
        domain=describe(domain),
        details={**results[decided].details, "box": decided, "boxes": len(results)},
    )


def check_bounds(method: Method, bounds: Sequence[UpperBound], pop_lower: float) -> None:
    """Refuse bounds that are infinite, or below a lower bound."""
    largest = max(found.value for found in bounds)
    if not all(np.isfinite(found.value) for found in bounds):
        raise LipoptError(f"the bound of method '{method.name}' overflows; rescale the network")
    if largest < pop_lower:
        raise RuntimeError(
            f"method '{method.name}' gave {largest} below the lower bound {pop_lower}: please report"
            " this"
        )
