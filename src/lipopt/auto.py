"""Auto(): what fits the problem, in the order of cost, until the bound meets the lower bound; the smallest bound wins.

The baselines cost nothing. The SDP takes seconds and is the best choice for dense and deep networks. The LP is better on
sparse networks and in small balls, where its polynomial is short; it gets a limited time, and gives up if it is far behind.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from .backend import backend
from .baselines import PathSum, Product
from .errors import LipoptError
from .krivine import LiPopt
from .methods import Method, Status, Task, UpperBound, register
from .polynomial import count_terms, sources
from .sdp import SDP

CLOSE = 1e-3  # relative distance to the lower bound at which no other method is tried
TERMS = 300_000  # the longest polynomial the LP is tried on
LP_SECONDS = 10.0


@register("auto")
@dataclass(frozen=True)
class Auto:
    """The smallest bound of the baselines, the SDP and, where it may win, the LP."""

    device: str | None = None
    name: ClassVar[str] = "auto"

    def __call__(self, task: Task) -> UpperBound:
        backend(self.device)  # an error if it is not there
        best: UpperBound | None = None
        refused: dict[str, str] = {}
        cut = False
        for method, part in self._plan(task):
            try:
                found = method(replace(part, pop_lower=task.pop_lower, upper=task.upper))
            except LipoptError as error:
                refused[method.name] = str(error)
                continue
            cut |= found.status == "time limit"
            task = replace(task, pop_lower=max(task.pop_lower, found.pop_lower or 0.0), upper=min(task.upper, found.value))
            if best is None or found.value < best.value:
                best = replace(found, details={**found.details, "chosen": method.name})
            if best.value <= task.pop_lower * (1 + CLOSE) or task.seconds_left <= 0:
                break
        assert best is not None  # the baselines refuse nothing
        status: Status = "time limit" if cut or task.seconds_left <= 0 else "complete"
        details = {**best.details, "refused": refused} if refused else best.details
        return replace(best, pop_lower=task.pop_lower, status=status, details=details)

    def _plan(self, task: Task) -> Iterator[tuple[Method, Task]]:
        yield PathSum(), task
        yield Product(), task
        yield SDP(device=self.device), task
        if task.problem.norm == "linf" and count_terms(sources(task.problem)) <= TERMS:
            yield LiPopt(), replace(task, deadline=min(task.deadline or float("inf"), time.monotonic() + LP_SECONDS))
