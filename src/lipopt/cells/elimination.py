"""Lower bounds on linear functions of neurons, from lines around the neurons before them.

A row of coefficients over (x, p, 1) is a linear function of the inputs and of the outputs p of
neurons. From the last neuron to the first, p_b is replaced by a line in y_b: below the activation where
the coefficient is positive, above it where it is negative; and y_b by its form. What remains is a
function of the inputs, whose least value over a box is known, or over what a ball leaves of it.

Each neuron has two lines on either side, and any line between them will do: the mix says which. The
best mix is a matter of search; the bound holds for every one. It is rounded outward, and lowered by what
can be lost when the mixed slopes and the weights are rounded to HINT_BITS bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.activations import LinePair
from ..model.round_ball import InputSet
from ..numerics.arrays import Array
from ..numerics.rounding import TINY, gamma
from .reduced import Forms

HINT_BITS = 26  # of slopes and weights in a certificate, relative to the largest of a row
HINT = 2.0**-HINT_BITS


@dataclass(frozen=True, eq=False)
class Neurons:
    """Open neurons of one group: forms of their inputs, and lines around their outputs."""

    columns: Array  # of their outputs, among the variables
    forms: Forms
    sizes: Array  # the largest absolute values that the forms can take
    below: LinePair
    above: LinePair

    @property
    def offset_sizes(self) -> Array:
        """The largest absolute offset of these lines."""
        return np.maximum(np.abs(self.below.offsets), np.abs(self.above.offsets)).max(axis=0)

    def mixed(self, is_below: Array, mix: Mix) -> tuple[Array, Array]:
        """Slopes and offsets of the lines below, or above where that is not asked for."""
        below = self.below
        above = self.above
        slopes = np.where(
            is_below, _mixed(below.slopes, mix.below), _mixed(above.slopes, mix.above)
        )
        offsets = np.where(
            is_below, _mixed(below.offsets, mix.below), _mixed(above.offsets, mix.above)
        )
        return slopes, offsets

    def lines(self, coefficients: Array, mix: Mix, y: Array) -> Array:
        """The values of the lines that stand for neurons with these coefficients, at inputs y."""
        slopes, offsets = self.mixed(coefficients > 0, mix)
        return slopes * y + offsets

    def usual_mix(self, low: Array, high: Array, rows: int) -> Mix:
        """The lines that are best at the middle of the intervals: those of CROWN and DeepPoly."""
        middle = (low + high) / 2
        below = self.below.slopes * middle + self.below.offsets
        above = self.above.slopes * middle + self.above.offsets
        shape = (rows, len(middle))
        return Mix(
            np.broadcast_to((below[1] > below[0]).astype(np.float64), shape),
            np.broadcast_to((above[1] < above[0]).astype(np.float64), shape),
        )


@dataclass(frozen=True, eq=False)
class Rows:
    """Linear functions over (x, p, 1), and bounds on how far they may be off.

    The slack counts what the coefficients are off, and one rounding of each for every group."""

    coefficients: Array  # (rows, width)
    slack: Array  # (rows,)
    steepest: float  # the largest slope that a row may have: all of them are rounded relative to it


@dataclass(frozen=True, eq=False)
class Mix:
    """For every row and neuron, where to take the line between the two below and the two above.

    0 is the first line, 1 the second."""

    below: Array  # (rows, neurons of the group)
    above: Array


@dataclass(frozen=True, eq=False)
class Eliminated:
    """Lower bounds, and what they were found with."""

    bounds: Array  # (rows,)
    slopes: Array  # (rows, width): of the lines, in the columns of the neurons that were replaced
    own: Array  # (rows, inputs): the coefficients of the inputs in the end
    met: list[Array]  # for every group, the coefficients that its neurons had
    multipliers: Array | None  # of the ball that the domain is cut with, if it is


def lower_bounds(
    rows: Rows, groups: list[Neurons], mixes: list[Mix], domain: InputSet
) -> Eliminated:
    """Lower bounds on the rows over some inputs, eliminating the last group first."""
    inputs = len(domain.lower)
    coefficients = rows.coefficients.copy()
    slack = rows.slack.copy()
    slopes = np.zeros(coefficients.shape)
    met: list[Array] = []
    roundings = coefficients.shape[1] + 2 * len(groups) + 8
    for neurons, mix in zip(reversed(groups), reversed(mixes), strict=True):
        c = coefficients[:, neurons.columns]
        met.append(c)
        coefficients[:, neurons.columns] = 0.0
        positive = c > 0
        k, c0 = neurons.mixed(positive, mix)
        slopes[:, neurons.columns] = k
        through = c * k
        coefficients += through @ neurons.forms.rows
        coefficients[:, -1] += (c * c0).sum(axis=1)
        size = np.abs(c)
        slack += np.abs(through) @ neurons.forms.errors[:, 0]
        slack += gamma(roundings) * (np.abs(through) @ neurons.sizes + size @ neurons.offset_sizes)
        slack += 2 * HINT * rows.steepest * (size @ neurons.sizes)
    own = coefficients[:, :inputs]
    constant = coefficients[:, -1]
    is_left = coefficients[:, inputs:-1].any(axis=1)  # a neuron that no finite line encloses
    least, multipliers = domain.least_divided(own)
    bounds = least + constant
    slack += gamma(roundings) * (np.abs(least) + np.abs(constant)) + TINY
    proved = np.where(is_left, -np.inf, bounds - 1.01 * slack)
    return Eliminated(proved, slopes, own, met[::-1], multipliers)


def _mixed(pair: Array, mix: Array) -> Array:
    """The number between two, for every row and neuron."""
    return pair[0] + mix * (pair[1] - pair[0])
