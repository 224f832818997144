"""Branch(): the constant itself, by dividing the domain into cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from ...cells.cell import Cell, Points, whole_domain
from ...cells.points import most_points
from ...cells.programs import round_work
from ...cells.reduced import Reduced, reduce, seconds_to_reduce
from ...cells.regions import RegionWalk
from ...errors import LipoptError
from ...lower.gradients import JacobianNorm
from ...model.round_ball import InputSet
from ...problem.proofs import Tree
from ...problem.question import Posed
from ...problem.task import Budget, Task, UpperBound
from ..baselines import PathSum
from ..registry import register
from .choose import are_boxes_enough
from .expand import Expander
from .gains import Gains
from .search import FEW_CELLS, MANY_BOXES, Search
from .workers import workers
from .writing import Writing

# Over the whole space no cell is ever empty, and the gap may never close: there are no more cells
# than this, unless a time limit says how long it may take.
MOST_CELLS = 2000
GAP = 0.01  # relative, unless another one is asked for
# What may be done without being asked for: about a second.
QUICK_CELLS = 200
QUICK_WORK = 15_000_000  # neurons^2 (inputs + neurons), for every cell; more in a round ball


@register("branch")
@dataclass(frozen=True)
class Branch:
    """Branch and bound: cells, until upper and lower bound are as close as `gap` says."""

    gap: float | None = None  # relative; None for what the budget says, or one percent
    cells: int | None = None  # the largest number of cells; None for no limit
    name: ClassVar[str] = "branch"
    takes_all_rows: ClassVar[bool] = True

    def __call__(self, task: Task) -> UpperBound:
        posed = task.posed
        if posed is None:
            raise LipoptError("branch and bound needs a network, not a problem alone")
        if task.budget.seconds_left <= seconds_to_reduce(posed):
            return _out_of_time(task)
        reduced = reduce(posed)
        cell = with_points(reduced, whole_domain(reduced, posed.intervals, posed.ball), task)
        expander = Expander(reduced, cell, task.budget.deadline)
        lower = 0.0 if task.best is None else task.best.value
        first, expander = expander.begin(lower * (1 + self.gap_in(task.budget)))
        tree = first.branching()
        most = self.cells
        if posed.question.domain is None and task.budget.deadline is None and most is None:
            most = MOST_CELLS
        search = Search(
            goal=JacobianNorm.of(posed),
            gap=self.gap_in(task.budget),
            budget=task.budget,
            best=task.best,
            most_cells=most,
            domain=cell.inputs,
            regions=region_walk(expander),
            tree=tree,
            keeps_tree=task.keeps_proof,
            rounds=MANY_BOXES if expander.has_boxes else FEW_CELLS,
            gains=Gains.none(reduced.neurons),
            writing=Writing(None),
            known=task.upper,
        )
        if task.rehearse is not None:
            search.writing.write = partial(_rehearse, task.rehearse, reduced, search)
        search.try_points(first.candidates, cells=1)
        search.add(first, tree)
        with workers(expander, task.budget.jobs) as work:
            search.run(work)
        return UpperBound(
            search.upper,
            search.status,
            proof=_proof(reduced, search),
            best=search.best,
            details={
                "cells": search.cells,
                "empty": search.empty,
                "neurons": reduced.neurons,
                "history": search.history,
            },
        )

    def gap_in(self, budget: Budget) -> float:
        """The gap that is asked for."""
        for gap in (self.gap, budget.gap):
            if gap is not None:
                return gap
        return GAP


def _out_of_time(task: Task) -> UpperBound:
    """What is known without a single cell."""
    found = PathSum()(task)
    lower = 0.0 if task.best is None else task.best.value
    return replace(
        found,
        status="time limit",
        best=task.best,
        details={
            "cells": 0,
            "empty": 0,
            "neurons": task.problem.neurons,
            "history": [(0.0, lower, found.value, 0)],
        },
    )


def _proof(reduced: Reduced, search: Search) -> Tree | None:
    """The proof of a search, if it was kept."""
    if search.tree is None:
        return None
    return Tree(reduced.nodes, reduced.places, reduced.left_out, search.tree.pruned())


def _rehearse(write: Callable[[UpperBound], object], reduced: Reduced, search: Search) -> None:
    """Write what is proved until now."""
    write(UpperBound(search.upper, proof=_proof(reduced, search)))


def region_walk(expander: Expander) -> RegionWalk | None:
    """Walks between linear regions, if there are any."""
    reduced = expander.reduced
    inputs = expander.root.inputs
    if reduced.has_smooth_neurons or not inputs.is_bounded:
        return None
    return RegionWalk(reduced, inputs, expander.deadline)


def with_points(reduced: Reduced, cell: Cell, task: Task) -> Cell:
    """A bounded cell with random points of it, and the best that is known."""
    if not cell.inputs.is_bounded:
        return cell
    rng = np.random.default_rng(task.budget.seed)
    shape = (reduced.inputs, most_points(reduced))
    x = rng.uniform(cell.lower[:, None], cell.upper[:, None], shape)
    if task.best is not None:
        x[:, -1] = task.best.point
    x = cell.inputs.moved_into(x)
    return replace(cell, points=Points(x, reduced.inputs_of_neurons(x)))


def cells_in_a_second(posed: Posed) -> int:
    """How many cells about a second of work is, by the count of its operations; 0 if hardly any.

    Boxes take a fraction of that, but their certificates are checked no faster."""
    if posed.intervals is not None:
        domain = InputSet(*posed.intervals[0], posed.ball)
        if are_boxes_enough(posed.network, domain):
            return QUICK_CELLS
    neurons = posed.problem.neurons
    work = max(1, neurons) ** 2 * (posed.problem.inputs + neurons) * round_work(posed.ball)
    cells = min(QUICK_CELLS, QUICK_WORK // work)
    return cells if cells >= neurons else 0
