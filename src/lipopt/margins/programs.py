"""The linear program of a cell: the best mixes and forces, up to rounding.

The variables are the inputs, the inputs y of neurons that were split or are not linear in the cell,
and the outputs p of those that are not linear. A row says what y is, one for each line where p is,
and one for each end of an interval that a split made. The multipliers of lines say how to mix them,
those of ends are forces. If the cell has no points, the multipliers that show it are forces too:
large enough multiples of them make every bound positive.

An l1 ball is a polytope itself; an l2 ball is cut out of its box by tangents, at the points outside of
it that were found.
All that is found are hints; bounds are computed from them anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.network import Network
from ..model.nodes import Affine
from ..model.norms import Norm
from ..model.round_ball import RoundBall
from ..numerics.arrays import Array
from ..solvers.polytope import Minimum, Polytope
from .ascent import Batch
from .lines import Group, groups

TANGENTS = 40  # to a ball, at most
NEAR = 1 + 1e-9  # distance from the center, in radii, of points that need no tangent
# Of the multipliers that show a cell to be empty, relative to the coefficients of the outputs.
MULTIPLES = 8.0 ** np.arange(10)
LARGEST_FORM = 2**24  # entries of the largest array: 128 MB
# The kinds of rows that a neuron can have, in `_Program.rows`.
BELOW = (0, 1)
ABOVE = (2, 3)
LOW_END = 4
HIGH_END = 5


@dataclass(frozen=True, eq=False)
class Hints:
    """What the program of a cell says."""

    choices: Array  # (hints, 2, neurons): mixes and forces, any of which may be good
    point: Array | None = None  # of the cell, where the margin is least as far as lines tell


def solve(batch: Batch, cell: int) -> Hints | None:
    """Mixes and forces for one cell of a batch; None if nothing was found."""
    network = batch.enclosures.network
    if _is_too_large(network):
        return None
    program = _Program(batch.only(np.array([cell])))
    found = program.minimize()
    if found is not None:
        mixes, forces = program.choices(found.multipliers)
        point = found.point[: network.input_size]
        return Hints(np.array([[mixes, forces]]), point)
    ray = program.polytope.ray()
    if ray is None or not ray.any():
        return None
    mixes, forces = program.choices(ray)
    size = np.abs(program.margin).max() / np.abs(ray).max()
    return Hints(np.array([[mixes, multiple * size * forces] for multiple in MULTIPLES]))


def _is_too_large(network: Network) -> bool:
    """Whether the rows over all variables would take too much memory."""
    widest = max(node.size for node in network.nodes)
    return widest * (network.input_size + 2 * network.neurons) > LARGEST_FORM


class _Program:
    """The polytope of one cell, and which of its rows belong to which neuron.

    The form of a node has a row for each entry: coefficients of the columns so far, a constant last."""

    def __init__(self, one: Batch) -> None:
        self.network = one.enclosures.network
        self.low = one.ranges.low[0]
        self.high = one.ranges.high[0]
        self.is_low_split = one.is_low_split[0]
        self.is_high_split = one.is_high_split[0]
        self.slopes = np.concatenate([one.sides.below.slopes[:, 0], one.sides.above.slopes[:, 0]])
        self.offsets = np.concatenate(
            [one.sides.below.offsets[:, 0], one.sides.above.offsets[:, 0]]
        )
        self.mixes = one.choices[0, 0]
        self.margin = one.functions.rows[len(self.network.nodes) - 1][0]
        balls = one.enclosures.balls
        owner = int(one.functions.owners[0])
        self.polytope = Polytope(balls.lower[owner], balls.upper[owner])
        self.ball = None  # what tangents have to cut out
        radii = balls.in_units(np.full(balls.inputs, balls.radii[owner]))
        if balls.norm is Norm.L1:
            self.polytope.add_l1_ball(balls.centers[owner], radii)
        elif balls.is_round:
            self.ball = RoundBall(balls.norm, balls.centers[owner], radii)
        self.rows = np.full((6, len(self.low)), -1)  # by kind and neuron; -1 for none
        self.cost = self.margin @ self._write()[:, :-1]

    def _write(self) -> Array:
        """All columns and rows, from the first node to the last; returns the form of the outputs."""
        by_node = {group.node: group for group in groups(self.network)}
        inputs = self.network.input_size
        forms = [np.eye(inputs, inputs + 1)]
        for i, node in enumerate(self.network.nodes[1:], start=1):
            if isinstance(node, Affine):
                total = np.zeros((node.size, self.polytope.columns + 1))
                total[:, -1] = node.bias
                for source, matrix in node.terms:
                    total += matrix @ self._widened(forms[source])
                forms.append(total)
            else:
                forms.append(self._activation(by_node[i], forms[node.sources[0]]))
        return self._widened(forms[-1])

    def _activation(self, group: Group, form: Array) -> Array:
        """The form of an activation node: its lines, or its outputs as new columns."""
        own = np.arange(group.neurons.start, group.neurons.stop)
        slopes = group.function.slope_range(self.low[own], self.high[own])
        is_open = slopes[0] < slopes[1]
        is_split = self.is_low_split[own] | self.is_high_split[own]
        kept = np.flatnonzero(is_open | is_split)
        inputs = np.full(len(own), -1)
        inputs[kept] = self._add_columns(len(kept))
        form = self._widened(form)
        self._add_definitions(form[kept], inputs[kept])
        form[kept] = 0.0
        form[kept, inputs[kept]] = 1.0
        for kind, is_own, ends in (
            (LOW_END, self.is_low_split[own], self.low),
            (HIGH_END, self.is_high_split[own], self.high),
        ):
            self._add_rows(kind, own[is_own], form[is_own, :-1], ends[own[is_own]])
        opened = np.flatnonzero(is_open)
        outputs = self._add_columns(len(opened))
        form = self._widened(form)
        for kind in (*BELOW, *ABOVE):
            rows = -self.slopes[kind, own[opened], None] * form[opened, :-1]
            rows[np.arange(len(opened)), outputs] = 1.0
            self._add_rows(kind, own[opened], rows, self.offsets[kind, own[opened]])
        form *= self.slopes[0, own, None]
        form[:, -1] += self.offsets[0, own]
        form[opened] = 0.0
        form[opened, outputs] = 1.0
        return form

    def _add_columns(self, count: int) -> Array:
        first = self.polytope.columns
        infinite = np.full(count, np.inf)
        self.polytope.add_columns(-infinite, infinite)
        return first + np.arange(count)

    def _add_definitions(self, form: Array, columns: Array) -> None:
        """Say what new columns are."""
        rows = -form[:, :-1]
        rows[np.arange(len(columns)), columns] = 1.0
        self.polytope.add_rows(rows, form[:, -1], form[:, -1])

    def _add_rows(self, kind: int, neurons: Array, rows: Array, ends: Array) -> None:
        """Rows of neurons that are at least their ends, or at most."""
        infinite = np.full(len(ends), np.inf)
        self.rows[kind, neurons] = self.polytope.rows + np.arange(len(ends))
        if kind in (*BELOW, LOW_END):
            self.polytope.add_rows(rows, ends, infinite)
        else:
            self.polytope.add_rows(rows, -infinite, ends)

    def _widened(self, form: Array) -> Array:
        """A copy of a form, with zeros for columns that were added since."""
        wide = np.zeros((len(form), self.polytope.columns + 1))
        wide[:, : form.shape[1] - 1] = form[:, :-1]
        wide[:, -1] = form[:, -1]
        return wide

    def minimize(self) -> Minimum | None:
        """The least margin, with tangents to the ball where it is outside; None if there is none."""
        found = self.polytope.minimize(self.cost)
        for _ in range(TANGENTS):
            if found is None or self.ball is None:
                return found
            point = found.point[: self.network.input_size]
            if self.ball.distances(point[:, None])[0] <= NEAR:
                return found
            row, end = self.ball.tangent(point)
            self.polytope.add_rows(row[None], np.array([-np.inf]), np.array([end]))
            found = self.polytope.minimize(self.cost)
        return found

    def choices(self, multipliers: Array) -> tuple[Array, Array]:
        """Mixes and forces. Where no line has a multiplier, the mix stays as it was."""
        sizes = np.append(np.abs(multipliers), 0.0)  # the last one is for rows that there are not
        by_kind = sizes[self.rows]
        below = by_kind[list(BELOW)]
        above = by_kind[list(ABOVE)]
        pair = np.where(below.sum(axis=0) >= above.sum(axis=0), below, above)
        total = pair.sum(axis=0)
        is_used = total > 0
        mixes = np.where(is_used, pair[1] / np.where(is_used, total, 1.0), self.mixes)
        return mixes, by_kind[HIGH_END] - by_kind[LOW_END]
