"""One step of the search: a cell in, its examined parts out. It depends on nothing else, so that it can run anywhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ...cells.cell import Cell
from ...cells.examine import Effort, Examined, examine
from ...cells.reduced import Reduced
from ...model.norms import Norm
from ...numerics.arrays import Array
from ...problem.derivative import DerivativeProblem
from ...problem.proofs import Branching, Cuts, Relaxed, Split
from ...problem.task import Budget, Task
from ..sdp.method import SDP
from .choose import choose_split, wants_boxes

# Interval arithmetic is at most so many times above what the SDP finds, as a rule: with a bound
# further above the target, a cell is divided without trying it.
WITHIN_REACH = 8.0
LARGEST_RELAXATION = 200  # inputs and neurons; with more, the proofs take longer than dividing
RELAXATION_GAP = 2e-3  # relative, between the SDP's optimum and the bound that is proved
MAX_NEURONS = 200  # with more open neurons than that, a cell gets an ascent, not linear programs


@dataclass(frozen=True, eq=False)
class Outcome:
    """A cell that was examined, and what to do next with it."""

    cell: Cell | None  # None if it is empty
    bound: float
    split: Split | None  # where to divide it; None: examine it again with linear programs
    is_final: bool  # nothing more can be done
    cuts: tuple[Cuts, ...]
    fixed: Array
    relaxed: Relaxed | None  # what proves the bound, if it is not interval arithmetic
    candidates: Array  # points where the slope may be large

    def branching(self) -> Branching:
        """The cell as a part of the proof."""
        is_empty = self.cell is None
        return Branching(self.cuts, self.fixed, is_empty=is_empty, relaxed=self.relaxed)

    def without_proof(self) -> Outcome:
        """What is needed to divide the cell, which takes much less memory."""
        nowhere = self.candidates[:, :0]
        return replace(self, cuts=(), relaxed=None, candidates=nowhere)


@dataclass(frozen=True, eq=False)
class Expander:
    """The network that all cells are cells of."""

    reduced: Reduced
    norm: Norm
    root: Cell
    deadline: float | None  # on the clock of time.monotonic

    def __call__(self, outcome: Outcome, target: float) -> list[Outcome] | None:
        """The parts of a cell; None if there is no time left.

        Bounds of at most `target` are good enough."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            return None
        cell = outcome.cell
        assert cell is not None
        if outcome.split is None:
            return [self.examine(cell, target, is_refined=True)]
        parts = []
        for sign in (-1, 1):
            child = cell.child(outcome.split, sign)
            parts.append(self.examine(child, target, is_refined=cell.is_refined))
        return parts

    def examine(self, cell: Cell, target: float, is_refined: bool) -> Outcome:
        """Examine a cell, and choose what to do next with it."""
        effort = Effort.USUAL
        if is_refined:
            is_small = int(cell.is_open.sum()) <= MAX_NEURONS
            effort = Effort.PROGRAMS if is_small else Effort.ASCENT
        found = examine(self.reduced, cell, self.norm, effort, self.deadline)
        if found.cell is None:
            return Outcome(None, 0.0, None, False, found.cuts, found.fixed, None, found.candidates)
        relaxed = None
        if self._should_relax(found, target):
            relaxed = relax(found.problem(), found.bound, self.deadline)
        split = None
        is_final = False
        if not self._should_refine(found.cell):
            split = choose_split(self.reduced, self.root, found)
            is_final = split is None
        return Outcome(
            cell=found.cell,
            bound=found.bound if relaxed is None else relaxed.value,
            split=split,
            is_final=is_final,
            cuts=found.cuts,
            fixed=found.fixed,
            relaxed=relaxed,
            candidates=found.candidates,
        )

    def _should_relax(self, found: Examined, target: float) -> bool:
        """Whether the SDP may decide what interval arithmetic does not."""
        assert found.cell is not None
        neurons = int(found.cell.is_open.sum())
        order = self.reduced.inputs + neurons
        is_within_reach = target < found.bound <= target * WITHIN_REACH
        if not is_within_reach or neurons == 0 or order > LARGEST_RELAXATION:
            return False
        return not self.reduced.has_blurred_kinks

    def _should_refine(self, cell: Cell) -> bool:
        """Whether linear programs come before the next split."""
        if cell.is_refined or wants_boxes(self.reduced, cell):
            return False
        return cell.inputs.is_bounded and bool(cell.is_open.any())


def relax(problem: DerivativeProblem, bound: float, deadline: float | None) -> Relaxed | None:
    """The SDP's bound on a cell, if it is smaller than the one that is known."""
    budget = Budget(deadline)
    found = SDP(gap=RELAXATION_GAP)(Task(problem, problem, budget, upper=bound))
    if found.proof is None or not found.value < bound:
        return None
    return Relaxed(problem, found.value, found.proof)
