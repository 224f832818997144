"""Auto(): the methods that fit the problem, in the order of cost; the smallest bound wins.

It stops as soon as the bound meets the lower bound. The baselines cost nothing. The SDP takes
seconds and is the best choice for dense and deep networks. The LP is better on sparse networks
and in small balls, where its polynomial is short; it gets a limited time, and gives up if it is
far behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from ..errors import LipoptError
from ..problem.task import Status, Task, UpperBound
from .baselines import PathSum, Product
from .lp.method import LiPopt
from .lp.polynomial import count_terms, sources
from .registry import Method, register
from .sdp.backend import backend
from .sdp.method import SDP

MAX_GAP = 1e-3  # relative gap to the lower bound below which no further method is tried
MAX_LP_TERMS = 300_000  # terms of the longest polynomial that the LP is tried on
LP_SECONDS = 10.0  # seconds that the LP gets at most


@register("auto")
@dataclass(frozen=True)
class Auto:
    """The smallest bound of the baselines, the SDP and, where it may win, the LP."""

    device: str | None = None
    name: ClassVar[str] = "auto"

    def __call__(self, task: Task) -> UpperBound:
        backend(self.device)  # raises an error if the device is not there
        best: UpperBound | None = None
        refused: dict[str, str] = {}
        was_cut_off = False
        for method, part in self._plan(task):
            try:
                found = method(replace(part, pop_lower=task.pop_lower, upper=task.upper))
            except LipoptError as error:
                refused[method.name] = str(error)
                continue
            was_cut_off |= found.status == "time limit"
            task = replace(
                task,
                pop_lower=max(task.pop_lower, found.pop_lower or 0.0),
                upper=min(task.upper, found.value),
            )
            if best is None or found.value < best.value:
                best = replace(found, details={**found.details, "chosen": method.name})
            if best.value <= task.pop_lower * (1 + MAX_GAP) or task.seconds_left <= 0:
                break
        assert best is not None  # the baselines refuse nothing
        status: Status = "complete"
        if was_cut_off or task.seconds_left <= 0:
            status = "time limit"
        details = best.details
        if refused:
            details = {**details, "refused": refused}
        return replace(best, pop_lower=task.pop_lower, status=status, details=details)

    def _plan(self, task: Task) -> Iterator[tuple[Method, Task]]:
        """The methods to try, each with its task; the next one is planned when the last is done."""
        yield PathSum(), task
        yield Product(), task
        yield SDP(device=self.device), task
        if task.problem.norm.is_by_output and count_terms(sources(task.problem)) <= MAX_LP_TERMS:
            yield LiPopt(), replace(task, budget=task.budget.at_most(LP_SECONDS))
