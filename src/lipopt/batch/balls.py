"""One ball: the problems of all targets over it, and when a bound certifies a margin.

In a convex domain f_i - f_j changes by at most L |x' - x|, L its Lipschitz constant there. So the
class i at x is kept in the whole ball of radius R around x if  f_i(x) - f_j(x) > R L_j(R)  for
all j, where L_j(R) is a bound for f_i - f_j over that ball. As L_j grows with the ball, a bound for
one radius holds for every smaller one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from ..cells.refine import refine
from ..errors import LipoptError
from ..model.network import Network
from ..numerics.arrays import Array
from ..numerics.rounding import up_float
from ..problem.intervals import enclose
from ..problem.question import Posed, Question, pose
from ..problem.task import Budget, Memory, Task
from .rows import Ask, Target

Memories: TypeAlias = Mapping[Target, Memory]  # what the problems of one radius leave for the next


@dataclass(frozen=True, eq=False)
class BallProblems:
    """The problems of all targets over one ball. Intervals and presolve are done once for all."""

    posed: Posed
    tasks: list[Task]  # one for each target


def new_memories(targets: Sequence[Target]) -> Memories:
    """Empty memories, for the first radius."""
    return {target: Memory() for target in targets}


def pose_ball(
    network: Network,
    question: Question,
    targets: Sequence[Target],
    seed: int,
    memories: Memories,
) -> BallProblems:
    """The problems of the targets, each of which is a row of the question."""
    budget = Budget(seed=seed)
    posed = refine(pose(network, question), budget)
    tasks = []
    for target, (raw, problem) in zip(targets, posed.rows, strict=True):
        tasks.append(Task(raw, problem, budget, memory=memories[target]))
    return BallProblems(posed, tasks)


def target_matrix(network: Network, targets: Sequence[Target]) -> sp.csr_array:
    """The targets as rows of a matrix that multiplies the outputs."""
    matrix = sp.lil_array((len(targets), network.output_size))
    for row, target in enumerate(targets):
        matrix[row, target.output] = 1.0
        if target.minus is not None:
            matrix[row, target.minus] = -1.0
    return sp.csr_array(matrix)


def margins_at(network: Network, x: Array, margins: Sequence[Target]) -> list[float]:
    """Proved lower bounds on the margins at a point; LipoptError if outputs overflow there."""
    lower, upper = enclose(network, x, x).intervals[-1]
    found = []
    for target in margins:
        assert target.minus is not None
        difference = lower[target.output] - upper[target.minus]
        found.append(float(np.nextafter(difference, -np.inf)))
    if not np.isfinite(found).all():
        raise LipoptError("the network's outputs overflow at this point")
    return found


def is_kept(margin: float, radius: float, constant: float) -> bool:
    """Whether a margin is proved positive in a ball: margin > radius * constant, rounded safely."""
    most_change = up_float(float(np.nextafter(radius, np.inf)) * constant, 1)
    return bool(margin > 0 and most_change < margin)


def deadline_of(ask: Ask, rows: int = 1) -> float | None:
    """When the time for so many rows is up, if they start now, on the clock of time.monotonic."""
    if ask.time_limit is None:
        return None
    return time.monotonic() + rows * ask.time_limit


def until(task: Task, deadline: float | None) -> Task:
    """The task with another deadline."""
    return replace(task, budget=replace(task.budget, deadline=deadline))
