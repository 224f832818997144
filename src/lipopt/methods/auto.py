"""Auto(): the methods that fit the problem, in the order of cost; the smallest bound wins.

The path sum costs nothing, and the product of layer norms little. The SDP is the best choice for
dense and deep networks, and is always asked, so that `auto` is never looser than it. The LP is
better on sparse networks and in small balls, where its polynomial is short. It is tried where it
has something to gain, between the bound so far and the lower bound of the problem, that is worth
its work; where branch and bound follows, only if that has found nothing better. Over the whole
space, where there is no domain to divide, cuts in the SDP come last, if a time limit or a gap is
asked for.

For one output, the constant in l2 is at most that in l_inf, and the one in l1 at most that in l2.
So what is proved in such a norm counts too, where its lower bound says that it may be smaller.

All limits are counts of operations: a slow machine finds the same bound as a fast one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ..errors import LipoptError
from ..lower.pop import pop_lower_bound
from ..problem.proofs import OtherNorm
from ..problem.task import Task, UpperBound
from .baselines import PathSum, Product
from .lp.method import LiPopt
from .lp.polynomial import count_terms, sources
from .registry import Method, register
from .sdp.backend import backend
from .sdp.cuts import Cuts, can_cut, largest_order
from .sdp.method import SDP

ROUNDING_GAP = 1e-9  # relative gap between the bounds that rounding may leave where they meet
MAX_GAP = 1e-3  # relative gap to the lower bound below which the LP is not tried
LP_WORK = 1e9  # of an LP at most, in products times iterations: about ten seconds
# What an LP may take of that until its first bound, and for every unit of what it may gain, relative
# to the lower bound: one percent is worth a second.
FIRST_WORK = 4e8
WORK_PER_GAIN = 8e9
MIN_CUT_GAP = 0.01  # relative gap to the lower bound below which cuts are not tried
CUT_SECONDS = 4e-6  # for every entry of the matrix of cuts: with less they find nothing
FIRST_ITERATIONS = 100  # that an LP takes until its first bound
SMALLEST = 1e-300  # what is divided by is kept above this


@register("auto")
@dataclass(frozen=True)
class Auto:
    """The smallest bound of the baselines, the SDP with its cuts and, where it may win, the LP."""

    device: str | None = None
    lp: bool = True  # whether the LP may be tried
    name: ClassVar[str] = "auto"

    def __call__(self, task: Task) -> UpperBound:
        backend(self.device)  # raises an error if the device is not there
        attempts = _Attempts(task)
        attempts.make(PathSum())
        if not attempts.are_over(ROUNDING_GAP):
            attempts.make(SDP(device=self.device))
        if not _is_refined(task) or not task.keeps_proof:  # leaves have no rule for layer norms
            attempts.make(Product())
        if self.lp:
            attempts.make_lp()
        if not attempts.are_over(MIN_CUT_GAP) and _may_cut(attempts.task):
            gap = task.budget.gap
            attempts.make(Cuts() if gap is None else Cuts(gap))
        if not attempts.are_over(MAX_GAP):
            attempts.keep_better(self._in_larger_norm(attempts.task))
        return attempts.answer()

    def _in_larger_norm(self, task: Task) -> UpperBound | None:
        """What is proved of one output in the next larger norm, if that may be smaller."""
        norm = task.problem.norm.next_larger
        inner, outer = task.problem.norms
        if norm is None or task.problem.outputs > 1 or inner is not outer:
            return None
        other = task.in_norm(norm)
        known = None
        if task.best is not None and task.posed is not None:
            known = task.posed.slopes_in_problem(task.best.slopes)
        lower = pop_lower_bound(other.problem, task.budget, known)
        if lower >= task.upper:
            return None
        found = self(replace(other, pop_lower=lower))
        if found.proof is None or isinstance(found.proof, OtherNorm):
            return found
        details = {**found.details, "norm": str(norm)}
        return replace(found, proof=OtherNorm(norm, found.proof), details=details)


@dataclass(eq=False)
class _Attempts:
    """What the methods that were tried have found."""

    task: Task  # with the best bounds so far
    best: UpperBound | None = None
    was_cut_off: bool = False
    refused: dict[str, str] = field(default_factory=dict)

    def make(self, method: Method, work: float = float("inf")) -> None:
        """Try a method, with a limit on its work."""
        task = replace(self.task, budget=replace(self.task.budget, work=work))
        try:
            found = method(task)
        except LipoptError as error:
            self.refused[method.name] = str(error)
            return
        except KeyboardInterrupt:  # what is proved already is kept
            if self.best is None or not task.budget.interruption.has_come:
                raise
            self.was_cut_off = True
            return
        self.was_cut_off |= found.status == "time limit"
        source = found.details.get("chosen", method.name)
        if source != method.name:
            self.refused[method.name] = f"it found nothing smaller than '{source}'"
        self.task = replace(
            self.task,
            pop_lower=max(self.task.pop_lower, found.pop_lower or 0.0),
            upper=min(self.task.upper, found.value),
        )
        self.keep_better(replace(found, details={**found.details, "chosen": source}))

    def make_lp(self) -> None:
        """Try the LP, if it may win."""
        if not self.are_over(MAX_GAP) and _lp_may_win(self.task):
            self.make(LiPopt(), work=LP_WORK)

    def keep_better(self, found: UpperBound | None) -> None:
        """Keep a bound if it is the smallest so far."""
        if found is not None and (self.best is None or found.value < self.best.value):
            self.best = found

    def are_over(self, gap: float) -> bool:
        """Whether both bounds are so close, or the time is up."""
        is_met = self.task.upper <= self.task.pop_lower * (1 + gap)
        return is_met or self.task.seconds_left <= 0

    def answer(self) -> UpperBound:
        """The smallest bound, and what became of the others."""
        best = self.best
        assert best is not None  # the baselines refuse nothing
        details = best.details
        if self.refused:
            details = {**details, "refused": self.refused}
        was_cut_off = self.was_cut_off or self.task.seconds_left <= 0
        return replace(
            best,
            pop_lower=self.task.pop_lower,
            status="time limit" if was_cut_off else "complete",
            details=details,
        )


def better_by_lp(task: Task, found: UpperBound) -> UpperBound:
    """The smaller of a bound that was found without the LP and that of the LP, if it may win."""
    known = max(task.pop_lower, found.pop_lower or 0.0)
    attempts = _Attempts(replace(task, upper=found.value, pop_lower=known), best=found)
    attempts.make_lp()
    return attempts.answer()


def _lp_may_win(task: Task) -> bool:
    """Whether an LP is worth its work until its first bound.

    That bound is the farther above the best one, the farther the path sum is."""
    problem = task.problem
    if not problem.norm.bounds_each_input or problem.outputs > 1:
        return False
    degree = len(problem.layers) + 1
    terms = count_terms(sources(problem)) / 2  # those of the degree
    products = terms * 2.0**degree
    path_sum = PathSum()(task).value
    work = FIRST_ITERATIONS * products * path_sum / task.upper
    gain = (task.upper - task.pop_lower) / max(task.pop_lower, SMALLEST)
    return work <= min(FIRST_WORK, WORK_PER_GAIN * gain)


def _is_refined(task: Task) -> bool:
    return task.posed is not None and task.posed.refinement is not None


def _may_cut(task: Task) -> bool:
    """Whether cuts are for this task: asked for, over the whole space, and with time for them."""
    is_asked_for = task.budget.deadline is not None or task.budget.gap is not None
    is_global = task.posed is not None and task.posed.question.domain is None
    has_time = task.seconds_left >= CUT_SECONDS * largest_order(task.problem) ** 2
    return is_asked_for and is_global and has_time and can_cut(task.problem)
