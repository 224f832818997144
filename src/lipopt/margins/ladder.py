"""Whether the class stays in balls around points: by the cheapest proof that does it.

center      the point itself has another class
linear      lower bounds on all margins by one backward pass with the usual lines
slopes      the same with the best lines, for the margins that are left
attack      a search for an input with another class
branching   branch and bound on the margins that are left

Every rung takes all balls that those before have left, at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from ..model.network import Network
from ..numerics.arrays import Array
from ..problem.proofs import MarginLeaf, MarginTree
from .ascent import Batch, ascend, evaluate, slopes_of
from .attack import Attack, margin_rows
from .backward import Functions, lower_bounds
from .balls import Balls
from .devices import Device
from .enclosures import Enclosures, Usual, in_passes
from .lines import Ranges, sides
from .search import Limits, Margin, Search

Status: TypeAlias = Literal["certified", "broken", "open"]
Rung: TypeAlias = Literal["center", "linear", "slopes", "attack", "branching"]

SLOPE_STEPS = 20  # of the ascent, for margins that are not divided


@dataclass(frozen=True)
class Effort:
    """How far the ladder is climbed."""

    cells: int  # of branch and bound, at most, for every ball; 0 for none
    deadline: float | None = None  # of branch and bound, on the clock of time.monotonic
    seed: int = 0  # of the attack
    keeps_proofs: bool = False
    device: str | None = None  # of torch, for backward passes; None for NumPy


@dataclass(frozen=True, eq=False)
class Decision:
    """What was found of one ball.

    An open ball has no rung, and neither a counterexample nor proofs."""

    status: Status
    rung: Rung | None
    least: float  # a lower bound on the margins in the ball; at a broken point, on those at it
    against: int  # the class of the least margin, or the one that the counterexample has
    cells: int
    counterexample: Array | None = None
    proofs: dict[int, MarginTree] | None = None  # by class: of the margin between label and class


def decide(network: Network, balls: Balls, labels: Array, effort: Effort) -> list[Decision]:
    """Say of every ball whether the label's output stays the largest in it."""
    ladder = _Ladder(network, balls, labels, effort)
    ladder.try_centers()
    ladder.try_linear()
    ladder.try_slopes()
    ladder.try_attack()
    ladder.try_branching()
    return ladder.decisions()


class _Ladder:
    """All margins of all balls, and what is known of them."""

    def __init__(self, network: Network, balls: Balls, labels: Array, effort: Effort) -> None:
        self.network = network
        self.balls = balls
        self.labels = labels
        self.effort = effort
        self.attack = Attack(network, balls, labels)
        is_other = np.arange(network.output_size)[None] != labels[:, None]
        # Arrays of margins have an entry for every margin of every ball, in their order.
        self.owners, self.others = np.nonzero(is_other)
        self.bounds = np.full(len(self.owners), -np.inf)
        self.rungs: list[Rung] = ["linear"] * len(self.owners)  # the last that was tried
        self.proofs: dict[int, MarginTree] = {}  # by margin; none for the usual lines
        self.cells = np.zeros(balls.count, dtype=int)
        self.at_center: set[int] = set()  # balls that are broken at their centers
        self.choices: dict[int, Array] = {}  # by margin: mixes and forces that the ascent found

    def try_centers(self) -> None:
        """Balls that are broken at their centers are broken."""
        self.attack.look_at(np.arange(self.balls.count), self.balls.centers)
        self.at_center = set(self.attack.broken)

    def try_linear(self) -> None:
        """Enclose all nodes, and bound all margins with the usual lines."""
        device = None
        if self.effort.device is not None:
            device = Device(self.effort.device, self.network)
        self.enclosures = Enclosures.of(self.network, self.balls, device=device)
        left = self._left()
        self.bounds[left] = self.enclosures.lower_bounds(self._functions(left))

    def try_slopes(self) -> None:
        """Look for better lines."""
        for part in self.enclosures.passes(self._left()):
            batch = self._whole_balls(part)
            best = ascend(batch, SLOPE_STEPS)
            if self.effort.keeps_proofs:
                found = evaluate(batch.with_choices(best.choices))
                slopes = slopes_of(self.network, found)
            for k, margin in enumerate(part):
                if best.bounds[k] > self.bounds[margin]:
                    self.bounds[margin] = best.bounds[k]
                    self.rungs[margin] = "slopes"
                    if self.effort.keeps_proofs:
                        multiplier = found.multiplier(k)
                        self.proofs[margin] = MarginLeaf(slopes[k], np.zeros(0), multiplier)
                self.choices[margin] = best.choices[:, k]

    def try_attack(self) -> None:
        """Look for inputs with another class."""
        for part in in_passes(self._left(), self.network):
            self.attack.run(self.owners[part], self.others[part], self.effort.seed)

    def try_branching(self) -> None:
        """Divide the balls whose margins are left."""
        left = self._left()
        if self.effort.cells == 0 or len(left) == 0:
            return
        balls = np.unique(self.owners[left])
        limits = Limits(self.effort.cells, self.effort.deadline)
        search = Search(
            self.enclosures.only(balls),
            limits,
            self.effort.keeps_proofs,
            look_at=lambda owners, points: self.attack.look_at(balls[owners], points),
            is_broken=lambda ball: self.attack.is_broken(int(balls[ball])),
        )
        margins = []
        for margin in left:
            ball = int(np.searchsorted(balls, self.owners[margin]))
            row = self._rows(np.array([margin]))[0]
            margins.append(Margin(ball, row, float(self.bounds[margin]), self.choices[margin]))
        search.run(margins)
        for k, margin in zip(left, margins, strict=True):
            self.cells[self.owners[k]] += margin.cells
            if margin.bound > self.bounds[k]:
                self.bounds[k] = margin.bound
                self.rungs[k] = "branching"
                if margin.tree is not None:
                    self.proofs[k] = margin.tree

    def decisions(self) -> list[Decision]:
        """What was found of every ball."""
        bounds = self.bounds.reshape(self.balls.count, -1)
        if self.effort.keeps_proofs:
            self._prove_by_usual_lines(np.flatnonzero((bounds > 0).all(axis=1)))
        found = []
        for ball in range(self.balls.count):
            if self.attack.is_broken(ball):
                found.append(self._broken(ball))
            else:
                found.append(self._unbroken(ball, bounds[ball]))
        return found

    def _broken(self, ball: int) -> Decision:
        x = self.attack.broken[ball]
        outputs = self.network.forward(x)
        label = self.labels[ball]
        own = outputs[label]
        outputs[label] = -np.inf
        against = int(outputs.argmax())
        rung: Rung = "center" if ball in self.at_center else "attack"
        return Decision(
            "broken", rung, float(own - outputs[against]), against, int(self.cells[ball]), x
        )

    def _unbroken(self, ball: int, bounds: Array) -> Decision:
        """A ball in which all margins are proved to be positive, or one that is open."""
        first = ball * len(bounds)
        weakest = first + int(bounds.argmin())
        least = float(self.bounds[weakest])
        against = int(self.others[weakest])
        cells = int(self.cells[ball])
        if not least > 0:
            return Decision("open", None, least, against, cells)
        order: list[Rung] = ["linear", "slopes", "branching"]
        hardest = max(self.rungs[first : first + len(bounds)], key=order.index)
        proofs = None
        if self.effort.keeps_proofs:
            proofs = {}
            for margin in range(first, first + len(bounds)):
                proofs[int(self.others[margin])] = self.proofs[margin]
        return Decision("certified", hardest, least, against, cells, proofs=proofs)

    def _prove_by_usual_lines(self, balls: Array) -> None:
        """The lines that proved the margins of these balls, where they were the usual ones."""
        own = np.flatnonzero(np.isin(self.owners, balls))
        own = np.array([margin for margin in own if margin not in self.proofs], dtype=int)
        for part in in_passes(own, self.network):
            functions = self._functions(part)
            relaxation = Usual(self.enclosures.around, functions.owners)
            found = lower_bounds(
                self.network, self.balls, self.enclosures.sizes, functions, relaxation
            )
            slopes = slopes_of(self.network, found)
            for k, margin in enumerate(part):
                self.proofs[margin] = MarginLeaf(slopes[k], np.zeros(0), found.multiplier(k))

    def _left(self) -> Array:
        """The margins that are not proved, of balls that are not broken."""
        is_broken = np.zeros(self.balls.count, dtype=bool)
        is_broken[list(self.attack.broken)] = True
        with np.errstate(invalid="ignore"):
            is_proved = self.bounds > 0
        return np.flatnonzero(~is_proved & ~is_broken[self.owners])

    def _rows(self, margins: Array) -> Array:
        labels = self.labels[self.owners[margins]]
        return margin_rows(self.network, labels, self.others[margins])

    def _functions(self, margins: Array) -> Functions:
        """Margins as functions of the outputs."""
        last = len(self.network.nodes) - 1
        return Functions({last: self._rows(margins)}, np.zeros(len(margins)), self.owners[margins])

    def _whole_balls(self, margins: Array) -> Batch:
        """Margins over their whole balls, with the lines that are best in the middle."""
        ranges = Ranges.of(self.enclosures).only(self.owners[margins])
        around = sides(self.network, ranges)
        no_split = np.zeros(ranges.low.shape, dtype=bool)
        mix = around.usual_mix(ranges)
        choices = np.array([mix, np.zeros(mix.shape)])
        functions = self._functions(margins)
        return Batch(self.enclosures, functions, ranges, around, no_split, no_split, choices)
