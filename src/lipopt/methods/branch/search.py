"""The search: the cell with the largest bound is divided first, in rounds, until the bounds meet.

A round takes the cells with the largest bounds, a share of all that are open, whatever does the
work: what is found does not depend on how many processes share it. The more cells are open, the
surer it is that the first of them have to be divided sooner or later. Both bounds hold at every
moment: the upper one is the largest of all cells that are left, the lower one is attained.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...cells.regions import RegionWalk
from ...lower.gradients import JacobianNorm
from ...model.round_ball import InputSet
from ...numerics.arrays import Array
from ...problem.proofs import Branching, NeuronSplit, Split
from ...problem.task import Budget, Sample, Status
from .choose import NeuronSplits
from .expand import Outcome
from .gains import Gains
from .workers import Work
from .writing import Writing

# Walks from linear region to linear region, in every round:
STARTS = 8  # they start from so many points of its cells, and from as many random ones,
RESERVE = 256  # which are the best left of so many,
PROGRAMS = 8  # and may solve so many linear programs for every cell,
PATIENCE = 400  # until so many in a row have found nothing better; then one for every cell
# Where there are no such regions, points around a new best one are tried, at these distances
# relative to the domain's width.
DISTANCES = (0.2, 0.05, 0.01, 0.002)
NEIGHBOURS = 48  # at each of them
SMALL_TREE = 2000  # cells up to which the proof is kept, whether it is asked for or not


@dataclass(frozen=True)
class Rounds:
    """How many cells are divided in a round."""

    share: int  # one in so many open cells,
    smallest: int  # but not fewer than this,
    largest: int  # nor more

    def size(self, count: int) -> int:
        """Of so many open cells."""
        return min(self.largest, max(self.smallest, count // self.share))


FEW_CELLS = Rounds(8, 2, 64)
MANY_BOXES = Rounds(2, 8, 512)  # which take little time each


@dataclass(order=True)
class _Open:
    """A cell that may have to be divided; the largest bound comes first, then the oldest."""

    negative_bound: float
    number: int
    outcome: Outcome = field(compare=False)
    branching: Branching | None = field(compare=False)


@dataclass(eq=False)
class Search:
    """Where the search stands."""

    goal: JacobianNorm
    gap: float  # relative
    budget: Budget
    best: Sample | None
    most_cells: int | None  # None for no limit
    domain: InputSet  # its box may be infinite
    regions: RegionWalk | None  # if the network is piecewise linear and the box is bounded
    tree: Branching | None  # the proof
    keeps_tree: bool  # also if it is large
    rounds: Rounds
    gains: Gains
    writing: Writing
    known: float = float("inf")  # an upper bound that was proved otherwise
    cells: int = 0
    empty: int = 0
    closed: float = 0.0  # the largest bound of the cells that are not looked at again
    status: Status = "complete"
    history: list[tuple[float, float, float, int]] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)
    _reserve: list[Array] = field(default_factory=list)  # random points, the best last
    _in_vain: int = 0  # linear programs of walks since the best point was found
    _start: float = field(default_factory=time.monotonic)

    @property
    def lower(self) -> float:
        return 0.0 if self.best is None else self.best.value

    @property
    def upper(self) -> float:
        if not self._open:
            return self.closed
        return max(self.closed, -self._open[0].negative_bound)

    @property
    def target(self) -> float:
        """Cells with a bound of at most this need not be divided."""
        return self.lower * (1 + self.gap)

    def add(self, outcome: Outcome, branching: Branching | None) -> None:
        """Take in a cell that was examined."""
        self.cells += 1
        if outcome.cell is None:
            self.empty += 1
        elif outcome.is_final or outcome.bound <= self.target:
            self.closed = max(self.closed, outcome.bound)
        else:
            item = _Open(-outcome.bound, self.cells, outcome.without_proof(), branching)
            heapq.heappush(self._open, item)

    def run(self, work: Work) -> None:
        """Divide cells until the bounds meet, or the time is over, or the user has had enough."""
        self._record()
        while self._open and self.upper > self.target:
            reason = self._reason_to_stop()
            if reason is not None:
                self.status = reason
                break
            chosen = self._choose()
            target = self.target
            outcomes = [item.outcome for item in chosen]
            self._take_in(chosen, work(outcomes, target, self.budget.interruption), target)
            self.writing.try_out(self.cells)
            self._record()
        self._record(last=True)

    def _reason_to_stop(self) -> Status | None:
        """Why the search has to end before the bounds meet, if it has to."""
        if self.budget.interruption.has_come:
            return "interrupted"
        if self.budget.seconds_left <= self.writing.seconds_for(self.cells):
            return "time limit"
        if self.most_cells is not None and self.cells >= self.most_cells:
            return "cell limit"
        return None

    def _choose(self) -> list[_Open]:
        """The cells of the next round."""
        count = self.rounds.size(len(self._open))
        chosen: list[_Open] = []
        while self._open and len(chosen) < count:
            item = heapq.heappop(self._open)
            if -item.negative_bound <= self.target:
                self.closed = max(self.closed, -item.negative_bound)
                continue
            item.outcome = replace(item.outcome, split=self._split(item.outcome))
            chosen.append(item)
        return chosen

    def _split(self, outcome: Outcome) -> Split | None:
        """Where to divide a cell; None: it is examined again."""
        if isinstance(outcome.splits, NeuronSplits):
            return self.gains.choose(outcome.splits, outcome.bound)
        return outcome.splits

    def _learn(self, outcome: Outcome, parts: Sequence[Outcome], target: float) -> None:
        """Note what the split of a cell has gained."""
        if isinstance(outcome.split, NeuronSplit) and isinstance(outcome.splits, NeuronSplits):
            bounds = [0.0 if part.cell is None else part.bound for part in parts]
            self.gains.note(outcome.split, outcome.splits, outcome.bound, bounds, target)

    def _put_back(self, items: Sequence[_Open]) -> None:
        for item in items:
            heapq.heappush(self._open, item)

    def _take_in(
        self, chosen: Sequence[_Open], found: Sequence[list[Outcome] | None], target: float
    ) -> None:
        """Replace cells by the parts that they were divided into; None: there was no time for it.

        Bounds of at most `target` were good enough."""
        if not self.keeps_tree and self.cells > SMALL_TREE:
            self._forget_tree(chosen)
        divided = [(item, parts) for item, parts in zip(chosen, found, strict=True) if parts]
        self._put_back([item for item, parts in zip(chosen, found, strict=True) if not parts])
        candidates = [part.candidates for _, parts in divided for part in parts]
        if candidates:
            self.try_points(np.concatenate(candidates, axis=1), len(candidates))
        for item, parts in divided:
            self._learn(item.outcome, parts, target)
            if item.branching is not None:
                item.branching.divide(item.outcome.split, [part.branching() for part in parts])
            for k, part in enumerate(parts):
                child = None if item.branching is None else item.branching.children[k]
                self.add(part, child)

    def _forget_tree(self, chosen: Sequence[_Open]) -> None:
        """Give up the proof, which takes much memory when there are many cells."""
        self.tree = None
        for item in (*self._open, *chosen):
            item.branching = None

    def try_points(self, points: Array, cells: int) -> None:
        """Try points of some cells, and go on from the best ones."""
        before = self.lower
        values = self._try(points)
        if self.regions is not None:
            self._climb(self.regions, points[:, np.argsort(-values)[:STARTS]], cells)
        elif self.lower > before and self.domain.is_bounded:
            self._walk()

    def _climb(self, regions: RegionWalk, points: Array, cells: int) -> None:
        """Walk uphill from the best point so far, these and random ones, with some programs a cell."""
        programs = cells if self._in_vain > PATIENCE else PROGRAMS * cells
        starts = [*points.T, *self._random_points()]
        if self.best is not None:
            starts.insert(0, self.best.point)
        for start in starts:
            before = self.lower
            end, left = regions.climb(start, programs)
            self._in_vain += programs - left
            programs = left
            if end is not None:
                self._try(self.domain.moved_into(end[:, None]))
            if self.lower > before:
                self._in_vain = 0
            if programs == 0:
                return

    def _random_points(self) -> list[Array]:
        """The best of some random points of the domain that were not asked for before."""
        if not self._reserve:
            lower = self.domain.lower[:, None]
            upper = self.domain.upper[:, None]
            rng = np.random.default_rng(self.cells)
            x = self.domain.moved_into(rng.uniform(lower, upper, (len(lower), RESERVE)))
            self._reserve = list(x[:, np.argsort(self._try(x))].T)
        chosen = self._reserve[-STARTS:]
        self._reserve = self._reserve[:-STARTS]
        return chosen[::-1]

    def _walk(self) -> None:
        """Try points around the best one, across kinks of neurons, from far to near."""
        width = (self.domain.upper - self.domain.lower)[:, None]
        rng = np.random.default_rng(self.cells)
        for distance in DISTANCES:
            assert self.best is not None
            steps = rng.standard_normal((len(width), NEIGHBOURS))
            around = self.best.point[:, None] + distance * width * steps
            self._try(self.domain.moved_into(around))

    def _try(self, points: Array) -> Array:
        """Keep the best of the points, if it is better than the best so far; the values of all."""
        if points.shape[1] == 0:
            return np.zeros(0)
        values = self.goal.at(points)
        place = int(values.argmax())
        if values[place] > self.lower:
            found = self.goal.proved(points[:, place].copy())
            if found.value > self.lower:
                self.best = found
        return values

    def _record(self, last: bool = False) -> None:
        """Show where the search stands, and note it if a bound has changed."""
        upper = min(self.upper, self.known)
        gap = upper / self.lower - 1 if self.lower > 0 else float("inf")
        self.budget.progress(
            f"{self.lower:.5g} <= L <= {upper:.5g}, gap {gap:.2%}, {self.cells} cells,"
            f" {len(self._open)} open"
        )
        entry = (time.monotonic() - self._start, self.lower, upper, self.cells)
        if last or not self.history or self.history[-1][1:3] != entry[1:3]:
            self.history.append(entry)
