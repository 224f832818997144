"""One step of the search: some cells in, their examined parts out. It depends on nothing else, so that it can run anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...cells.cell import Cell
from ...cells.curvature import examine_boxes
from ...cells.examine import Effort, Examined, examine
from ...cells.reduced import Reduced
from ...numerics.arrays import Array
from ...problem.derivative import DerivativeProblem
from ...problem.proofs import Branching, Cuts, InputSplit, Relaxed, Split
from ...problem.task import Budget, Task, is_past
from ..sdp.method import SDP
from .choose import NeuronSplits, are_boxes_enough, possible_splits, wants_boxes

# Interval arithmetic is so many times above what the SDP finds, as a rule, or as many as it is over
# the whole domain: with a bound further above the target, a cell is divided without trying it.
WITHIN_REACH = 8.0
FARTHEST_REACH = 64.0
LARGEST_RELAXATION = 1000  # inputs and neurons; with more, the proofs take longer than dividing
RELAXATION_GAP = 2e-3  # relative, between the SDP's optimum and the bound that is proved
MAX_NEURONS = 200  # with more open neurons than that, a cell gets an ascent, not linear programs


@dataclass(frozen=True, eq=False)
class Outcome:
    """A cell that was examined, and what to do next with it."""

    cell: Cell | None  # None if it is empty
    proved: float  # the bound that is proved in the cell itself
    bound: float  # the smallest one: that of a cell around it may be smaller
    # Where it can be divided; None: examine it again, with linear programs.
    splits: InputSplit | NeuronSplits | None
    is_final: bool  # nothing more can be done
    cuts: tuple[Cuts, ...]
    fixed: Array
    relaxed: Relaxed | None  # what proves the bound, if it is not interval arithmetic,
    signs: Array | None  # or these, with the curvature of a box
    candidates: Array  # points where the slope may be large
    split: Split | None = None  # where it is to be divided

    def branching(self) -> Branching:
        """The cell as a part of the proof."""
        is_empty = self.cell is None
        return Branching(
            self.cuts,
            self.fixed,
            bound=0.0 if is_empty else self.proved,
            is_empty=is_empty,
            relaxed=self.relaxed,
            signs=self.signs,
        )

    def inside(self, around: Outcome) -> Outcome:
        """The same, as a part of another cell, whose bound holds here too."""
        return replace(self, bound=min(self.bound, around.bound))

    def without_proof(self) -> Outcome:
        """What is needed to divide the cell, which takes much less memory."""
        nowhere = self.candidates[:, :0]
        return replace(self, cuts=(), relaxed=None, signs=None, candidates=nowhere)


@dataclass(frozen=True, eq=False)
class Expander:
    """The network that all cells are cells of."""

    reduced: Reduced
    root: Cell
    deadline: float | None  # on the clock of time.monotonic
    reach: float = WITHIN_REACH

    def begin(self, target: float) -> tuple[Outcome, Expander]:
        """The whole domain, examined; and the expander with the reach that was seen there."""
        (found,) = self._examined([self.root])
        (relaxed,) = replace(self, reach=np.inf)._relaxed([found], target)
        reach = WITHIN_REACH
        if relaxed is not None:
            reach = min(max(reach, found.bound / relaxed.value), FARTHEST_REACH)
        return self._outcome(found, relaxed), replace(self, reach=reach)

    def __call__(self, outcomes: Sequence[Outcome], target: float) -> list[list[Outcome] | None]:
        """The parts of every cell; None for those that there is no time left for.

        Bounds of at most `target` are good enough."""
        divided = []
        for outcome in outcomes:
            divided.append(None if is_past(self.deadline) else _parts(outcome))
        cells = [cell for parts in divided if parts is not None for cell in parts]
        found = iter(self._examine_all(cells, target))
        results: list[list[Outcome] | None] = []
        for outcome, parts in zip(outcomes, divided, strict=True):
            if parts is None:
                results.append(None)
            else:
                results.append([next(found).inside(outcome) for _ in parts])
        return results

    def _examine_all(self, cells: Sequence[Cell], target: float) -> list[Outcome]:
        """Examine cells, and choose what to do next with them."""
        examined = self._examined(cells)
        relaxed = self._relaxed(examined, target)
        return [self._outcome(*pair) for pair in zip(examined, relaxed, strict=True)]

    @property
    def has_boxes(self) -> bool:
        """Whether all cells are boxes, which are examined together."""
        return are_boxes_enough(self.reduced.network, self.root.inputs)

    def _examined(self, cells: Sequence[Cell]) -> list[Examined]:
        """Cells one by one, boxes together."""
        if self.has_boxes:
            return examine_boxes(self.reduced, cells)
        return [self._examine(cell) for cell in cells]

    def _examine(self, cell: Cell) -> Examined:
        effort = Effort.USUAL
        if cell.is_refined:
            is_small = int(cell.is_open.sum()) <= MAX_NEURONS
            effort = Effort.PROGRAMS if is_small else Effort.ASCENT
        return examine(self.reduced, cell, effort, self.deadline)

    def _relaxed(self, examined: Sequence[Examined], target: float) -> list[Relaxed | None]:
        """The bounds of the SDP for those cells where it may help, all in one go."""
        chosen = [k for k, found in enumerate(examined) if self._should_relax(found, target)]
        problems = [examined[k].problem() for k in chosen]
        bounds = [examined[k].bound for k in chosen]
        found: list[Relaxed | None] = [None] * len(examined)
        for k, relaxed in zip(chosen, relax(problems, bounds, self.deadline), strict=True):
            found[k] = relaxed
        return found

    def _outcome(self, found: Examined, relaxed: Relaxed | None) -> Outcome:
        """A cell that was examined, with what to do next."""
        proved = found.bound if relaxed is None else relaxed.value
        splits = None
        is_final = False
        if found.cell is not None and not self._should_refine(found.cell):
            splits = possible_splits(self.reduced, self.root, found)
            is_final = splits is None
        return Outcome(
            cell=found.cell,
            proved=proved,
            bound=proved,
            splits=splits,
            is_final=is_final,
            cuts=found.cuts,
            fixed=found.fixed,
            relaxed=relaxed,
            signs=found.signs,
            candidates=found.candidates,
        )

    def _should_relax(self, found: Examined, target: float) -> bool:
        """Whether the SDP may decide what interval arithmetic does not."""
        if found.cell is None or self.has_boxes:
            return False
        neurons = int(found.cell.is_open.sum())
        order = self.reduced.inputs + neurons
        is_within_reach = target < found.bound <= target * self.reach
        if not is_within_reach or order > LARGEST_RELAXATION:
            return False
        if neurons == 0 and self._has_exact_norms():
            return False
        return not self.reduced.has_blurred_kinks

    def _has_exact_norms(self) -> bool:
        """Whether interval arithmetic finds the norm of a Jacobian that is known."""
        reduced = self.reduced
        is_one_row = reduced.rows.shape[0] == 1
        return is_one_row or reduced.norm.is_entrywise(reduced.output_norm or reduced.norm)

    def _should_refine(self, cell: Cell) -> bool:
        """Whether linear programs come before the next split."""
        if self.has_boxes or cell.is_refined or wants_boxes(self.reduced, cell):
            return False
        return cell.inputs.is_bounded and bool(cell.is_open.any())


def _parts(outcome: Outcome) -> list[Cell]:
    """The parts of a cell, yet to be examined; without a split the cell itself, for better intervals."""
    cell = outcome.cell
    assert cell is not None
    if outcome.split is None:
        return [replace(cell, is_refined=True)]
    return [cell.child(outcome.split, sign) for sign in (-1, 1)]


def relax(
    problems: Sequence[DerivativeProblem], bounds: Sequence[float], deadline: float | None
) -> list[Relaxed | None]:
    """The SDP's bounds on cells, where they are smaller than those that are known."""
    tasks = []
    for problem, bound in zip(problems, bounds, strict=True):
        tasks.append(Task(problem, problem, Budget(deadline), upper=bound, finds_pop_lower=False))
    relaxed: list[Relaxed | None] = []
    for task, found in zip(tasks, SDP(gap=RELAXATION_GAP).together(tasks), strict=True):
        if found.proof is None or not found.value < task.upper:
            relaxed.append(None)
        else:
            relaxed.append(Relaxed(task.problem, found.value, found.proof))
    return relaxed
