"""Branch and bound on margins: balls are divided into cells until the margin is positive in each.

The cells of many margins are divided together, in rounds: the ones with the least bounds first. Cells
that have no neuron to split are decided by a linear program.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from ..numerics.arrays import Array
from ..problem.proofs import MarginEmpty, MarginLeaf, MarginSplit, MarginTree
from ..problem.task import is_past
from . import programs, splits
from .ascent import Batch, ascend, differentiate, evaluate, slopes_of
from .cells import Constraint, Place, Region, are_empty, batch_of
from .enclosures import Enclosures
from .splits import CANDIDATES, Candidates, Division

LARGEST_ROUND = 128  # cells after which no further ball takes part in a round,
LARGEST_DEVICE_ROUND = 2048  # the same if backward passes run on a device,
LARGEST_SHARE = 16  # and cells of one margin in it
CELL_ENTRIES = 2**19  # of the arrays of a round: 4 MB each; with large networks it has fewer cells
STEPS = 16  # of the ascent in a new cell


@dataclass(frozen=True)
class Limits:
    """When a search is given up."""

    cells: int  # that are bounded, for every ball
    deadline: float | None  # on the clock of time.monotonic

    @property
    def is_time_up(self) -> bool:
        return is_past(self.deadline)


@dataclass(eq=False)
class Margin:
    """A margin in a ball: what is to be proved, and how far that has come."""

    ball: int
    row: Array  # its weights over the outputs
    bound: float  # a lower bound
    choices: Array  # (2, neurons): mixes and forces that give this bound over the whole ball
    cells: int = 0  # that were bounded
    tree: MarginTree | None = None  # what proves the bound, if that is kept
    is_stuck: bool = False  # whether there is a cell that cannot be proved, nor split
    closed: float = np.inf  # the least bound of cells that need not be divided
    open: list[_Cell] = field(default_factory=list)  # a heap


@dataclass(order=True)
class _Cell:
    """A part of a margin's ball. The one with the least bound comes first."""

    bound: float
    number: int
    place: Place = field(compare=False)
    choices: Array = field(compare=False)  # (2, neurons)
    branch: MarginSplit | None = field(compare=False, default=None)  # its parent in the tree
    side: int = field(compare=False, default=0)  # which part of its parent it is


_Item: TypeAlias = tuple[Margin, _Cell]
LookAt: TypeAlias = Callable[[Array, Array], None]  # the balls of points, and points


class Search:
    """Branch and bound on margins in some balls.

    `look_at` is told where bounds are attained. A ball that is broken needs no proof."""

    def __init__(
        self,
        enclosures: Enclosures,
        limits: Limits,
        keeps_trees: bool,
        look_at: LookAt,
        is_broken: Callable[[int], bool],
    ) -> None:
        self.regions = Region.of(enclosures)
        self.limits = limits
        self.keeps_trees = keeps_trees
        self.look_at = look_at
        self.is_broken = is_broken
        most = CELL_ENTRIES // max(1, 2 * CANDIDATES * enclosures.network.neurons)
        self.share = max(1, min(LARGEST_SHARE, most))
        self.round = max(1, min(LARGEST_ROUND, most))
        if enclosures.device is not None:
            self.round = LARGEST_DEVICE_ROUND

    def run(self, margins: Sequence[Margin]) -> None:
        """Divide balls until all margins are proved or given up."""
        for margin in margins:
            place = Place(self.regions[margin.ball])
            margin.open = [_Cell(margin.bound, 0, place, margin.choices.astype(np.float32))]
        active = list(margins)
        while active and not self.limits.is_time_up:
            self._divide(self._choose(active))
            cells: Counter[int] = Counter()
            for margin in margins:
                cells[margin.ball] += margin.cells
            left = []
            for margin in active:
                margin.bound = margin.open[0].bound if margin.open else margin.closed
                is_over = margin.is_stuck or self.is_broken(margin.ball)
                if margin.open and not is_over and cells[margin.ball] < self.limits.cells:
                    left.append(margin)
            active = left

    def _choose(self, active: Sequence[Margin]) -> list[_Item]:
        """The cells of the next round: all margins of as many balls as it takes.

        How many cells a margin gives does not depend on the others: what is found of a ball is the
        same, whatever balls are searched with it."""
        chosen: list[_Item] = []
        for margin in active:
            if len(chosen) >= self.round and margin.ball != chosen[-1][0].ball:
                break
            for _ in range(min(self.share, len(margin.open))):
                chosen.append((margin, heapq.heappop(margin.open)))
        return chosen

    def _divide(self, chosen: Sequence[_Item]) -> None:
        """Split cells, and bound the parts."""
        batch = _batch(chosen)
        places = [cell.place for _, cell in chosen]
        candidates = Candidates.of(batch, differentiate(batch))
        at_neurons = np.flatnonzero(candidates.exist & ~candidates.prefers_inputs)
        at_inputs = list(np.flatnonzero(candidates.exist & candidates.prefers_inputs))
        for k in np.flatnonzero(~candidates.exist):
            if not self._is_decided(chosen[int(k)], batch, int(k)):
                at_inputs.append(k)
        children = []
        if len(at_neurons):
            divisions = splits.at_neurons(places, batch, candidates, at_neurons)
            for k, division in zip(at_neurons, divisions, strict=True):
                children += self._parts(chosen[int(k)], division)
        halves = splits.at_inputs([places[k] for k in at_inputs])
        for k, half in zip(at_inputs, halves, strict=True):
            if half is None:
                self._give_up(chosen[int(k)])
            else:
                children += self._parts(chosen[int(k)], half)
        if children:
            self._bound(children)

    def _parts(self, item: _Item, division: Division) -> list[_Item]:
        """The parts of a cell that is split."""
        margin, cell = item
        branch = None
        if self.keeps_trees:
            below, above = division.parts
            is_new = below.region is not cell.place.region
            cuts = (below.region.cuts, above.region.cuts) if is_new else None
            branch = MarginSplit(division.split, cuts)
            self._replace(item, branch)
        parts = []
        for side, place in enumerate(division.parts):
            parts.append((margin, _Cell(cell.bound, 0, place, cell.choices, branch, side)))
        return parts

    def _replace(self, item: _Item, tree: MarginTree) -> None:
        """Let a cell of the proof be something else."""
        margin, cell = item
        if cell.branch is None:
            margin.tree = tree
        else:
            cell.branch.parts[cell.side] = tree

    def _bound(self, cells: Sequence[_Item]) -> None:
        """Bound cells by steps of an ascent, and keep those in which the margin is not proved."""
        batch = _batch(cells)
        is_empty = are_empty(batch)
        for k in np.flatnonzero(is_empty):
            self._note_empty(cells[int(k)])
        left = np.flatnonzero(~is_empty)
        if len(left) == 0:
            return
        batch = batch.only(left)
        best = ascend(batch, STEPS)
        found = evaluate(batch.with_choices(best.choices))
        points = batch.enclosures.balls.where_least(found.own, batch.functions.owners)
        items = [cells[int(k)] for k in left]
        self.look_at(np.array([margin.ball for margin, _ in items], dtype=int), points)
        slopes = slopes_of(batch.enclosures.network, found)
        no_weights = np.zeros(0)
        for number, item in enumerate(items):
            bound = float(best.bounds[number])
            leaf = MarginLeaf(slopes[number], no_weights, found.multiplier(number))
            self._note(item, bound, best.choices[:, number], leaf)

    def _is_decided(self, item: _Item, batch: Batch, k: int) -> bool:
        """Whether the linear program of a cell proves its margin."""
        hints = programs.solve(batch, k)
        if hints is None:
            return False
        if hints.point is not None:
            self.look_at(np.array([item[0].ball]), hints.point[None])
        tried = batch.only(np.full(len(hints.choices), k))
        found = evaluate(tried.with_choices(hints.choices.transpose(1, 0, 2)))
        best = int(found.bounds.argmax())
        is_proved = bool(found.bounds[best] > 0)
        if is_proved:
            slopes = slopes_of(batch.enclosures.network, found)
            leaf = MarginLeaf(slopes[best], np.zeros(0), found.multiplier(best))
            self._note(item, float(found.bounds[best]), hints.choices[best], leaf)
        return is_proved

    def _give_up(self, item: _Item) -> None:
        """Keep a cell as it is, and let its margin be open."""
        margin, cell = item
        heapq.heappush(margin.open, cell)
        margin.is_stuck = True

    def _note_empty(self, item: _Item) -> None:
        """A cell without points."""
        item[0].cells += 1
        if self.keeps_trees:
            self._replace(item, MarginEmpty())

    def _note(self, item: _Item, bound: float, choices: Array, leaf: MarginLeaf) -> None:
        """A bound that was found for a cell, and what shows it, but for the weights of its splits.

        Without a proof, the cell is kept."""
        margin, cell = item
        margin.cells += 1
        if bound > 0:
            margin.closed = min(margin.closed, bound)
        else:
            kept = choices.astype(np.float32)
            bound = max(bound, cell.bound)
            again = _Cell(bound, margin.cells, cell.place, kept, cell.branch, cell.side)
            heapq.heappush(margin.open, again)
        if self.keeps_trees:
            weights = _weights(cell.place.constraints, choices[1])
            self._replace(item, replace(leaf, weights=weights))


def _batch(cells: Sequence[_Item]) -> Batch:
    """Cells as arrays."""
    rows = np.array([margin.row for margin, _ in cells])
    choices = np.array([cell.choices for _, cell in cells], dtype=np.float64)
    return batch_of([cell.place for _, cell in cells], rows, choices.transpose(1, 0, 2))


def _weights(constraints: Sequence[Constraint], force: Array) -> Array:
    """Forces as weights of constraints: the last one on its side counts."""
    weights = np.zeros(len(constraints))
    is_taken = set()
    for k in range(len(constraints) - 1, -1, -1):
        constraint = constraints[k]
        side = (constraint.neuron, constraint.sign)
        if side not in is_taken:
            weights[k] = max(0.0, -constraint.sign * float(force[constraint.neuron]))
        is_taken.add(side)
    return weights
