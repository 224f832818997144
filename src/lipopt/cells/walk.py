"""A walk through the neurons of a cell, from the first group to the last.

At every group, the forms of its inputs are written in the variables that are still open in the cell;
then better ends of its intervals are looked for; then it is known which of its neurons are linear
here, and which lines enclose the others. At the end stands the derivative of the objective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.activations import LinePair
from ..numerics.arrays import Array
from ..numerics.rounding import gamma, up
from ..problem.proofs import Cuts
from .ascent import ascend
from .cell import Cell
from .elimination import HINT, Mix, Neurons, Rows, lower_bounds
from .reduced import Forms, Reduced, scaled_forms

END_BITS = 24  # binary digits of new ends, relative to the size of the interval
SHORT = 2.0**8  # multiples of 1 / SHORT are exact among slopes that are rounded to HINT_BITS bits
WORTH = 1e-3  # how much of its interval a cut takes away at least, or it is not kept


@dataclass(eq=False)
class Walk:
    """Where the walk stands: everything about the groups before `position` is settled."""

    reduced: Reduced
    cell: Cell
    low: Array
    high: Array
    slopes: tuple[Array, Array]  # ranges of all neurons, as far as the walk has come
    forms: Forms  # of the inputs of all neurons, in open variables
    outputs: Forms  # of the outputs of all neurons: linear ones in open variables
    groups: list[Neurons]  # the open neurons of the groups before
    is_open: Array
    cuts: list[Cuts]
    position: int = 0

    @staticmethod
    def start(reduced: Reduced, cell: Cell) -> Walk:
        """Before the first group."""
        n = reduced.neurons
        empty = Forms(np.zeros((n, reduced.width)), np.zeros((n, 2)))
        also = Forms(np.zeros((n, reduced.width)), np.zeros((n, 2)))
        slopes = (np.zeros(n), np.zeros(n))
        return Walk(
            reduced,
            cell,
            cell.low.copy(),
            cell.high.copy(),
            slopes,
            empty,
            also,
            [],
            np.ones(n, bool),
            [],
        )

    @property
    def group(self) -> slice:
        """The neurons that the walk stands at."""
        return self.reduced.groups[self.position]

    def write_forms(self) -> None:
        """The forms of this group's inputs, with what is linear before it substituted."""
        group = self.group
        found = self._substituted(self.reduced.forms[group], group.start)
        self.forms.rows[group] = found.rows
        self.forms.errors[group] = found.errors

    def _substituted(self, forms: Forms, count: int) -> Forms:
        """Forms with the outputs of the first neurons replaced by what these are in the cell."""
        inputs = self.reduced.inputs
        neurons = slice(inputs, inputs + count)
        weights = forms.rows[:, neurons]
        outputs = self.outputs[slice(0, count)]
        rows = forms.rows.copy()
        rows[:, neurons] = 0.0
        rows += weights @ outputs.rows
        size = np.abs(weights)
        magnitude = np.abs(forms.rows) @ self.reduced.sizes
        magnitude += size @ (np.abs(outputs.rows) @ self.reduced.sizes)
        errors = forms.errors + size @ outputs.errors
        roundings = self.reduced.width + count + 4
        return Forms(rows, up(errors + gamma(roundings) * magnitude, roundings))

    def objective(self) -> Forms:
        """The rows of the objective in open variables, after the last group."""
        return self._substituted(self.reduced.objective, self.reduced.neurons)

    def rows(self, neurons: Array, sign: float, weights: Array) -> Rows:
        """sign times the inputs of neurons, less weights times the constraints of the cell."""
        coefficients = sign * self.forms.rows[neurons]
        errors = self.forms.errors[neurons, 0]
        lost = np.zeros(len(neurons))
        for k, constraint in enumerate(self.cell.constraints):
            weight = weights[:, k]
            if not weight.any():
                continue
            form = constraint.sign * self.forms.rows[constraint.neuron]
            form[-1] -= constraint.sign * constraint.value
            coefficients -= weight[:, None] * form
            errors = errors + weight * self.forms.errors[constraint.neuron, 0]
            lost += np.abs(form) @ self.reduced.sizes[:, 0]
        roundings = 2 * len(self.cell.constraints) + 2 * len(self.reduced.groups) + 4
        size = np.abs(coefficients) @ self.reduced.sizes[:, 0]
        size += weights.sum(axis=1) * lost
        slack = errors + gamma(roundings) * size + HINT * weights.max(axis=1, initial=0.0) * lost
        return Rows(coefficients, slack, self.reduced.steepest)

    def bound(self, neurons: Array, sign: float, weights: Array, mixes: list[Mix]) -> Cuts:
        """Lower ends (sign = 1) or upper ends (sign = -1) of neurons, with their proofs."""
        rows = self.rows(neurons, sign, weights)
        found = lower_bounds(rows, self.groups, mixes, self.cell.inputs)
        inputs = self.reduced.inputs
        slopes = found.slopes[:, inputs : inputs + self.reduced.neurons]
        known = ~self.is_open[: self.group.start]
        slopes[:, : self.group.start][:, known] = self.slopes[0][: self.group.start][known]
        ends = _shortened(found.bounds, self.low[neurons], self.high[neurons])
        return Cuts(sign < 0, neurons, sign * ends, weights, slopes, found.multipliers)

    def better_mixes(
        self, neurons: Array, sign: float, weights: Array, deadline: float | None
    ) -> list[Mix]:
        """Mixes that are better than the usual ones, for every neuron on its own."""
        rows = self.rows(neurons, sign, weights)
        mixes = self.usual_mixes(len(neurons))
        return ascend(rows, self.groups, mixes, self.cell.inputs, deadline)

    def usual_mixes(self, rows: int) -> list[Mix]:
        """For every group before, the lines that are best in the middle."""
        mixes = []
        for neurons in self.groups:
            places = neurons.columns - self.reduced.inputs
            mixes.append(neurons.usual_mix(self.low[places], self.high[places], rows))
        return mixes

    def keep(self, cuts: Cuts) -> None:
        """Take over the ends that are better than what is known by more than a little."""
        width = self.high[cuts.neurons] - self.low[cuts.neurons]
        sign = -1.0 if cuts.is_upper else 1.0
        known = self.high if cuts.is_upper else self.low
        gain = sign * (cuts.ends - known[cuts.neurons])
        with np.errstate(invalid="ignore"):
            better = np.isfinite(cuts.ends) & (gain > WORTH * width)
        if not better.any():
            return
        chosen = cuts.only(better)
        known[chosen.neurons] = chosen.ends
        self.cuts.append(chosen)

    @property
    def is_empty(self) -> bool:
        """Whether some interval is empty, and with it the cell."""
        return bool((self.low > self.high).any())

    def undecided(self) -> Array:
        """The neurons of this group whose slope is not known."""
        group = self.group
        low, high = self.reduced.slope_range(group, self.low[group], self.high[group])
        return group.start + np.flatnonzero(low < high)

    def settle(self) -> None:
        """Say which neurons of this group are linear in the cell, enclose the others, and go on."""
        group = self.group
        low = self.low[group]
        high = self.high[group]
        lower, upper = self.reduced.slope_range(group, low, high)
        self.slopes[0][group] = lower
        self.slopes[1][group] = upper
        is_linear = (lower == upper) & self.reduced.is_piecewise_linear(group)
        self.is_open[group] = ~is_linear
        own = self.forms[group]
        bounded = bool(np.isfinite(low).all() and np.isfinite(high).all())
        offset = np.zeros(len(low))
        error = np.full(len(low), np.inf)  # nothing is known of values on infinite intervals
        if bounded:
            offset, error = self.reduced.offset_and_error(group, lower, low, high)
            error = error + self._hint_error(group, lower)
        outputs = scaled_forms(own, lower, offset, error)
        places = np.flatnonzero(~is_linear)
        columns = self.reduced.columns(group.start + places)
        outputs.rows[places] = 0.0
        outputs.rows[places, columns] = 1.0
        outputs.errors[places] = 0.0
        self.outputs.rows[group] = outputs.rows
        self.outputs.errors[group] = outputs.errors
        if bounded and len(places):
            below, above = self.reduced.line_pairs(group, low, high)
            forms = own[places]
            sizes = np.abs(forms.rows) @ self.reduced.sizes[:, 0]
            self.groups.append(
                Neurons(columns, forms, sizes, _of(below, places), _of(above, places))
            )
        self.position += 1

    def _hint_error(self, group: slice, slopes: Array) -> Array:
        """What rounded slopes of linear neurons change in a certificate, which has them among the
        slopes of lines until they are fixed. Slopes of few bits are not rounded."""
        is_short = np.rint(slopes * SHORT) == slopes * SHORT
        size = np.abs(self.forms.rows[group]) @ self.reduced.sizes[:, 0]
        return np.where(is_short, 0.0, HINT * self.reduced.steepest * size)


def _of(pair: LinePair, places: Array) -> LinePair:
    return LinePair(pair.slopes[:, places], pair.offsets[:, places])


def _shortened(bounds: Array, low: Array, high: Array) -> Array:
    """Bounds rounded down to numbers of few digits, relative to the size of the interval."""
    size = np.maximum(np.maximum(np.abs(low), np.abs(high)), np.finfo(np.float64).tiny)
    grid = 2.0 ** (np.ceil(np.log2(size)) - END_BITS)
    return np.floor(bounds / grid) * grid
