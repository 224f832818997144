"""A task: one derivative problem to bound, what limits the work, and the bound that comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from ..model.norms import Norm
from ..numerics.arrays import Array
from ..progress import Progress
from .derivative import DerivativeProblem
from .interruption import Interruption
from .proofs import Proof
from .question import Posed

Status: TypeAlias = Literal[
    "complete", "gap not reached", "cell limit", "time limit", "interrupted"
]


def is_past(deadline: float | None) -> bool:
    """Whether a deadline, on the clock of time.monotonic, has come; None for no deadline."""
    return deadline is not None and time.monotonic() > deadline


def _silent(message: str, fraction: float | None = None) -> None:
    """Progress that is not shown."""


@dataclass(frozen=True)
class Budget:
    """What limits the work: a deadline, a seed of everything random, where progress is shown.

    After Ctrl-C no time is left."""

    deadline: float | None = None  # on the clock of time.monotonic
    seed: int = 0
    progress: Progress = _silent
    gap: float | None = None  # between both bounds, relative: where branch and bound may stop
    jobs: int = 1  # processes that may share the work
    work: float = float("inf")  # of an LP, in products times iterations
    interruption: Interruption = field(default_factory=Interruption)

    @staticmethod
    def of(
        time_limit: float | None,
        seed: int = 0,
        progress: Progress | None = None,
        gap: float | None = None,
        jobs: int = 1,
        interruption: Interruption | None = None,
    ) -> Budget:
        """A budget whose clock starts now."""
        deadline = None if time_limit is None else time.monotonic() + time_limit
        budget = Budget(deadline, seed, progress or _silent, gap, jobs)
        return budget if interruption is None else replace(budget, interruption=interruption)

    @property
    def seconds_left(self) -> float:
        if self.interruption.has_come:
            return 0.0
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def at_most(self, seconds: float) -> Budget:
        """The same budget, with no more than so many seconds from now."""
        end = time.monotonic() + seconds
        return replace(self, deadline=end if self.deadline is None else min(self.deadline, end))

    def with_grace(self, seconds: float) -> Budget:
        """The same budget with so many seconds more, if time is limited at all."""
        return self if self.deadline is None else replace(self, deadline=self.deadline + seconds)

    def without(self, seconds: float) -> Budget:
        """The same budget without its last seconds, if time is limited at all."""
        return self.with_grace(-seconds)

    def share(self, part: float) -> Budget:
        """The same budget with a part of the time that is left, if time is limited at all."""
        return self if self.deadline is None else self.at_most(self.seconds_left * part)


@dataclass
class Memory:
    """What a method keeps from one problem, to start a similar one of the same network."""

    vectors: Any = None  # of the SDP


@dataclass(frozen=True, eq=False)
class Sample:
    """A point of the domain, the norm of the Jacobian there, and the slopes of every activation."""

    value: float
    point: Array
    slopes: Mapping[int, Array]


@dataclass(frozen=True, eq=False)
class Task:
    """One problem to bound, and what is known about it already."""

    raw: DerivativeProblem  # as the network stands, affine nodes included
    problem: DerivativeProblem  # after presolve
    budget: Budget = Budget()
    pop_lower: float = 0.0  # a lower bound on the optimum
    upper: float = float("inf")  # an upper bound: what stays far above it is not worth its time
    memory: Memory | None = None
    posed: Posed | None = None  # the question that the problem comes from
    best: Sample | None = None  # where the largest slope was found
    keeps_proof: bool = True  # also if it takes much memory
    finds_pop_lower: bool = True  # whether a lower bound on the optimum is asked for as well
    # Where time is limited, what writes a bound's certificate: to learn how long that takes.
    rehearse: Callable[[UpperBound], object] | None = None
    seconds_to_write: float = 0.0  # about how long the certificate of an SDP takes

    @property
    def seconds_left(self) -> float:
        return self.budget.seconds_left

    def in_norm(self, norm: Norm) -> Task:
        """The same problem in another norm, of which nothing is known."""
        raw = replace(self.raw, norm=norm, output_norm=norm)
        problem = replace(self.problem, norm=norm, output_norm=norm)
        return replace(self, raw=raw, problem=problem, pop_lower=0.0, memory=None)


@dataclass(frozen=True, eq=False)
class UpperBound:
    """A proved upper bound on the optimum of a task's problem, slack included."""

    value: float
    status: Status = "complete"
    pop_lower: float | None = None  # a lower bound on the optimum, if the method found one
    proof: Proof | None = None  # None if it cannot be written as a certificate
    details: dict[str, Any] = field(default_factory=dict)
    best: Sample | None = None  # where the largest slope was found, if the method looked for it
