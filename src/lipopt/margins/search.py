"""Branch and bound on margins: balls are divided into cells until the margin is positive in each.

A cell is the part of a ball where the inputs of some neurons lie on one side of a value. In a cell
these neurons have better lines, and what is known of their inputs is a constraint that a force may
use. The cells of many margins are divided together, in rounds: the ones with the least bounds first.
Bounds of intervals are those of the ball; only the lines of split neurons change.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import numpy as np

from ..model import activations
from ..numerics.arrays import Array
from ..problem.proofs import MarginLeaf, MarginSplit, MarginTree
from . import programs
from .ascent import Batch, Evaluated, ascend, differentiate, evaluate, slopes_of
from .backward import Functions
from .enclosures import Enclosures, functions_of
from .lines import Ranges, changed_sides, groups, sides

LARGEST_ROUND = 128  # cells after which no further ball takes part in a round,
LARGEST_SHARE = 16  # and cells of one margin in it
CELL_ENTRIES = 2**19  # of the arrays of a round: 4 MB each; with large networks it has fewer cells
STEPS = 16  # of the ascent in a new cell
CANDIDATES = 6  # neurons that are tried, before one is split
SECOND = 0.1  # how much the sum of both bounds counts, beside the worse one
NARROWEST = 2.0**-30  # intervals that are narrower are not split, relative to their size


@dataclass(frozen=True)
class NeuronSplit:
    """The input of a neuron is at least the value (sign 1), or at most (sign -1)."""

    neuron: int
    sign: int
    value: float


@dataclass(frozen=True)
class Limits:
    """When a search is given up."""

    cells: int  # that are bounded, for every ball
    deadline: float | None  # on the clock of time.monotonic

    @property
    def is_time_up(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline


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
    splits: tuple[NeuronSplit, ...] = field(compare=False)
    choices: Array = field(compare=False)  # (2, neurons)
    branch: MarginSplit | None = field(compare=False, default=None)  # its parent in the tree

    @property
    def side(self) -> int:
        """Which part of its parent it is."""
        return 0 if self.splits[-1].sign < 0 else 1


_Item: TypeAlias = tuple[Margin, _Cell]
LookAt: TypeAlias = Callable[[Array, Array], None]  # the balls of points, and points


class Search:
    """Branch and bound on margins in some balls."""

    def __init__(self, enclosures: Enclosures, limits: Limits, keeps_trees: bool) -> None:
        self.enclosures = enclosures
        self.limits = limits
        self.keeps_trees = keeps_trees
        self.ranges = Ranges.of(enclosures)
        self.sides = sides(enclosures.network, self.ranges)
        most = CELL_ENTRIES // max(1, 2 * CANDIDATES * enclosures.network.neurons)
        self.round = max(1, min(LARGEST_ROUND, most))

    def run(
        self, margins: Sequence[Margin], look_at: LookAt, is_broken: Callable[[int], bool]
    ) -> None:
        """Divide balls until all margins are proved or given up.

        `look_at` is told where bounds are attained. A ball that is broken needs no proof."""
        for margin in margins:
            margin.open = [_Cell(margin.bound, 0, (), margin.choices.astype(np.float32))]
        active = list(margins)
        while active and not self.limits.is_time_up:
            self._divide(self._choose(active), look_at)
            cells: Counter[int] = Counter()
            for margin in margins:
                cells[margin.ball] += margin.cells
            left = []
            for margin in active:
                margin.bound = margin.open[0].bound if margin.open else margin.closed
                is_over = margin.is_stuck or is_broken(margin.ball)
                if margin.open and not is_over and cells[margin.ball] < self.limits.cells:
                    left.append(margin)
            active = left

    def _choose(self, active: Sequence[Margin]) -> list[_Item]:
        """The cells of the next round: all margins of as many balls as it takes.

        How many cells a margin gives does not depend on the others: what is found of a ball is the
        same, whatever balls are searched with it."""
        share = min(LARGEST_SHARE, self.round)
        chosen: list[_Item] = []
        for margin in active:
            if len(chosen) >= self.round and margin.ball != chosen[-1][0].ball:
                break
            for _ in range(min(share, len(margin.open))):
                chosen.append((margin, heapq.heappop(margin.open)))
        return chosen

    def _divide(self, chosen: Sequence[_Item], look_at: LookAt) -> None:
        """Split cells, and bound the parts. A linear program decides what cannot be split."""
        batch = self._batch(chosen)
        values = self._split_values(batch)
        scores = self._scores(batch, differentiate(self.enclosures, batch), values)
        can_split = scores.max(axis=1, initial=0.0) > 0
        for k in np.flatnonzero(~can_split):
            self._decide(chosen[int(k)], batch, int(k), look_at)
        places = np.flatnonzero(can_split)
        if len(places) == 0:
            return
        cells = [chosen[int(k)] for k in places]
        neurons = self._choose_neurons(cells, batch.only(places), values[places], scores[places])
        children = []
        for (margin, cell), neuron, value in zip(cells, neurons, values[places], strict=True):
            at = float(value[neuron])
            branch = self._grow(margin, cell, int(neuron), at)
            for sign in (-1, 1):
                splits = (*cell.splits, NeuronSplit(int(neuron), sign, at))
                children.append((margin, _Cell(cell.bound, 0, splits, cell.choices, branch)))
        self._bound(children, look_at)

    def _grow(self, margin: Margin, cell: _Cell, neuron: int, value: float) -> MarginSplit | None:
        """The cell as a part of the proof, if that is kept."""
        if not self.keeps_trees:
            return None
        branch = MarginSplit(neuron, value)
        self._replace(margin, cell, branch)
        return branch

    def _replace(self, margin: Margin, cell: _Cell, tree: MarginTree) -> None:
        """Let a cell of the proof be something else."""
        if cell.branch is None:
            margin.tree = tree
        else:
            cell.branch.parts[cell.side] = tree

    def _bound(self, cells: Sequence[_Item], look_at: LookAt) -> None:
        """Bound cells by steps of an ascent, and keep those in which the margin is not proved."""
        batch = self._batch(cells)
        best = ascend(self.enclosures, batch, STEPS)
        found = evaluate(self.enclosures, batch.with_choices(best.choices))
        owners = batch.functions.owners
        look_at(owners, self.enclosures.balls.where_least(found.own, owners))
        slopes = slopes_of(self.enclosures.network, found)
        for k, item in enumerate(cells):
            self._note(item, float(best.bounds[k]), best.choices[:, k], slopes[k])

    def _decide(self, item: _Item, batch: Batch, k: int, look_at: LookAt) -> None:
        """Bound a cell by its linear program. Without success, its margin is given up."""
        hints = programs.solve(self.enclosures, batch, k)
        if hints is None:
            self._give_up(item)
            return
        if hints.point is not None:
            look_at(batch.functions.owners[[k]], hints.point[None])
        tried = batch.only(np.full(len(hints.choices), k))
        found = evaluate(self.enclosures, tried.with_choices(hints.choices.transpose(1, 0, 2)))
        best = int(found.bounds.argmax())
        if found.bounds[best] > 0:
            slopes = slopes_of(self.enclosures.network, found)
            self._note(item, float(found.bounds[best]), hints.choices[best], slopes[best])
        else:
            self._give_up(item)

    def _give_up(self, item: _Item) -> None:
        """Keep a cell as it is, and let its margin be open."""
        margin, cell = item
        heapq.heappush(margin.open, cell)
        margin.is_stuck = True

    def _note(self, item: _Item, bound: float, choices: Array, slopes: Array) -> None:
        """A bound that was found for a cell, and what shows it. Without a proof, the cell is kept."""
        margin, cell = item
        margin.cells += 1
        if bound > 0:
            margin.closed = min(margin.closed, bound)
        else:
            kept = choices.astype(np.float32)
            bound = max(bound, cell.bound)
            again = _Cell(bound, margin.cells, cell.splits, kept, cell.branch)
            heapq.heappush(margin.open, again)
        if self.keeps_trees:
            self._replace(margin, cell, MarginLeaf(slopes, _weights(cell.splits, choices[1])))

    def _batch(self, cells: Sequence[_Item]) -> Batch:
        """Cells as arrays."""
        owners = np.array([margin.ball for margin, _ in cells])
        rows = np.array([margin.row for margin, _ in cells])
        last = len(self.enclosures.network.nodes) - 1
        functions = Functions({last: rows}, np.zeros(len(cells)), owners)
        choices = np.array([cell.choices for _, cell in cells], dtype=np.float64)
        splits = [cell.splits for _, cell in cells]
        return self._with_splits(functions, choices.transpose(1, 0, 2), splits)

    def _with_splits(
        self, functions: Functions, choices: Array, splits: Sequence[Sequence[NeuronSplit]]
    ) -> Batch:
        """Cells given by their splits: their intervals, and the lines that follow."""
        low = self.ranges.low[functions.owners]
        high = self.ranges.high[functions.owners]
        is_low_split = np.zeros(low.shape, bool)
        is_high_split = np.zeros(low.shape, bool)
        flat = list(chain.from_iterable(splits))
        cells = np.repeat(np.arange(len(splits)), [len(own) for own in splits])
        neurons = np.array([split.neuron for split in flat], dtype=int)
        values = np.array([split.value for split in flat])
        is_low = np.array([split.sign > 0 for split in flat], dtype=bool)
        for ends, marks, chosen, better in (
            (low, is_low_split, is_low, np.maximum),
            (high, is_high_split, ~is_low, np.minimum),
        ):
            better.at(ends, (cells[chosen], neurons[chosen]), values[chosen])
            marks[cells[chosen], neurons[chosen]] = True
        ranges = Ranges(low, high)
        before = self.sides.only(functions.owners)
        around = changed_sides(
            self.enclosures.network, before, ranges, is_low_split | is_high_split
        )
        return Batch(functions, ranges, around, is_low_split, is_high_split, choices)

    def _choose_neurons(
        self, chosen: Sequence[_Item], batch: Batch, values: Array, scores: Array
    ) -> Array:
        """For every cell the neuron to split, such that the worse part has the best bound.

        Some candidates are tried with the mixes and forces of the cell."""
        candidates = np.argsort(-scores, axis=1, kind="stable")[:, :CANDIDATES]
        count = candidates.shape[1]
        splits = []
        for k, (_, cell) in enumerate(chosen):
            for neuron in candidates[k]:
                for sign in (-1, 1):
                    own = NeuronSplit(int(neuron), sign, float(values[k, neuron]))
                    splits.append((*cell.splits, own))
        repeated = np.repeat(np.arange(batch.count), 2 * count)
        functions = functions_of(batch.functions, repeated)
        tried = self._with_splits(functions, batch.choices[:, repeated], splits)
        bounds = evaluate(self.enclosures, tried).bounds.reshape(batch.count, count, 2)
        shortfall = np.minimum(bounds, 0.0)
        worth = shortfall.min(axis=2) + SECOND * shortfall.sum(axis=2)
        can_split = np.take_along_axis(scores, candidates, axis=1) > 0
        picked = np.where(can_split, worth, -np.inf).argmax(axis=1)
        return candidates[np.arange(batch.count), picked]

    def _split_values(self, batch: Batch) -> Array:
        """Where each neuron would be split: at a kink inside its interval, or in the middle."""
        low = batch.ranges.low
        high = batch.ranges.high
        values = (low + high) / 2
        for group in groups(self.enclosures.network):
            own = group.neurons
            for kink in activations.kinks(group.kind, group.parameters):
                is_inside = (low[:, own] < kink) & (kink < high[:, own])
                values[:, own] = np.where(is_inside, kink, values[:, own])
        return values

    def _scores(self, batch: Batch, found: Evaluated, values: Array) -> Array:
        """How much is lost by the lines of every neuron, at its split and where the bound is."""
        scores = np.full(values.shape, -1.0)
        for group in groups(self.enclosures.network):
            if group.node not in found.bounded.met:
                continue
            own = group.neurons
            c = found.bounded.met[group.node]
            v = values[:, own]
            below = batch.sides.below
            above = batch.sides.above
            bottom = (below.slopes[:, :, own] * v + below.offsets[:, :, own]).max(axis=0)
            top = (above.slopes[:, :, own] * v + above.offsets[:, :, own]).min(axis=0)
            lines = found.bounded.lines[group.node]
            y = np.clip(found.inputs[:, own], batch.ranges.low[:, own], batch.ranges.high[:, own])
            at_y = activations.value(group.kind, y, group.parameters)
            lost = np.abs(at_y - lines.slopes * y - lines.offsets)
            low = batch.ranges.low[:, own]
            high = batch.ranges.high[:, own]
            slopes = activations.slope_range(group.kind, low, high, group.parameters)
            is_wide = high - low > NARROWEST * np.maximum(np.abs(low), np.abs(high))
            can_split = is_wide & (slopes[0] < slopes[1])
            scores[:, own] = np.where(can_split, np.abs(c) * (top - bottom + lost), -1.0)
        return scores


def _weights(splits: Sequence[NeuronSplit], force: Array) -> Array:
    """Forces as weights of the constraints that splits make: the last one on its side counts."""
    weights = np.zeros(len(splits))
    is_taken = set()
    for k in range(len(splits) - 1, -1, -1):
        split = splits[k]
        side = (split.neuron, split.sign)
        if side not in is_taken:
            weights[k] = max(0.0, -split.sign * float(force[split.neuron]))
        is_taken.add(side)
    return weights
