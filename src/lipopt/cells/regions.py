"""Uphill from linear region to linear region: slopes that are attained, for piecewise linear networks.

In a region every neuron is at one piece of its activation, and the Jacobian is constant. It is linear
in the slope of each neuron on its own, so that crossing one kink changes it by a matrix of rank one,

    J' = J + (s' - s) (coefficients of the neuron in the outputs) (derivative of its input)

and the norms behind all kinks are known at once. The best ones come first; a linear program says
whether such a region has an interior, and finds a point deep in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..model.round_ball import InputSet
from ..numerics.arrays import Array
from ..problem.task import is_past
from .programs import deepest_point
from .reduced import Reduced

LEAST_GAIN = 1e-9  # relative: what a step uphill gains at least


@dataclass(frozen=True, eq=False)
class Region:
    """A linear region, or one that has no points: which piece every neuron is at, and what follows."""

    pieces: Array  # (neurons,)
    forms: Array  # (neurons, inputs + 1): the inputs of neurons, and a constant
    jacobian: Array  # (rows, inputs)
    reach: Array  # (rows, neurons): the coefficients of their outputs in the rows


@dataclass(eq=False)
class RegionWalk:
    """Steps between the regions of a network in a bounded domain."""

    reduced: Reduced
    inputs: InputSet
    deadline: float | None  # on the clock of time.monotonic
    tried: set[bytes] = field(default_factory=set)  # regions that a program was solved for

    def __post_init__(self) -> None:
        self.ends, self.slopes, self.offsets = self.reduced.linear_pieces()

    def climb(self, point: Array, programs: int) -> tuple[Array | None, int]:
        """The last point of a walk uphill, None if it has no step, and how many programs are left."""
        found = None
        if programs == 0 or is_past(self.deadline):
            return found, programs
        region = self.region_at(point)
        while programs > 0 and not is_past(self.deadline):
            better = self._better_neighbours(region)
            if not better:
                break
            for pieces in better[:programs]:
                programs -= 1
                self.tried.add(pieces.tobytes())
                candidate = self._region(pieces)
                deepest = self._deepest_point(candidate)
                if deepest is not None:
                    found = deepest
                    region = candidate
                    break
                if is_past(self.deadline):
                    break
        return found, programs

    def region_at(self, point: Array) -> Region:
        """The region that a point lies in."""
        y = self.reduced.inputs_of_neurons(point[:, None])[:, 0]
        return self._region((self.ends[1:-1] < y).sum(axis=0))

    def _region(self, pieces: Array) -> Region:
        """What follows from the pieces that all neurons are at."""
        reduced = self.reduced
        inputs = reduced.inputs
        neurons = np.arange(reduced.neurons)
        slopes = self.slopes[pieces, neurons]
        rows = reduced.forms.rows
        between = rows[:, inputs:-1]
        forms = np.zeros((reduced.neurons, inputs + 1))
        outputs = np.zeros((reduced.neurons, inputs + 1))
        for group in reduced.groups:
            before = slice(0, group.start)
            forms[group] = between[group, before] @ outputs[before]
            forms[group, :-1] += rows[group, :inputs]
            forms[group, -1] += rows[group, -1]
            outputs[group] = slopes[group, None] * forms[group]
            outputs[group, -1] += self.offsets[pieces[group], neurons[group]]
        reach = reduced.objective.rows[:, inputs:-1].copy()
        for group in reversed(reduced.groups):
            before = slice(0, group.start)
            reach[:, before] += (reach[:, group] * slopes[group]) @ between[group, before]
        direct = reduced.objective.rows[:, :inputs]
        jacobian = direct + (reach * slopes) @ rows[:, :inputs]
        return Region(pieces, forms, jacobian, reach)

    def _better_neighbours(self, region: Region) -> list[Array]:
        """The regions behind one kink that were not tried and have a larger norm, the best first."""
        inputs = self.reduced.inputs
        all_neurons = np.arange(self.reduced.neurons)
        now = self.slopes[region.pieces, all_neurons]
        value = float(self.reduced.norms_of(region.jacobian[:, :, None])[0])
        found: list[tuple[float, Array]] = []
        for step in (-1, 1):
            place = region.pieces + step
            inside = (place >= 0) & (place < len(self.slopes))
            place = np.where(inside, place, region.pieces)
            is_piece = self.ends[place, all_neurons] < self.ends[place + 1, all_neurons]
            neurons = np.flatnonzero(inside & is_piece)
            change = (self.slopes[place, all_neurons] - now)[neurons]
            reach = region.reach[:, neurons] * change
            moved = reach[:, None, :] * region.forms[neurons, :inputs].T
            norms = self.reduced.norms_of(region.jacobian[:, :, None] + moved)
            for k in np.flatnonzero(norms > value * (1 + LEAST_GAIN)):
                pieces = region.pieces.copy()
                pieces[neurons[k]] += step
                if pieces.tobytes() not in self.tried:
                    found.append((float(norms[k]), pieces))
        found.sort(key=lambda pair: -pair[0])
        return [pieces for _, pieces in found]

    def _deepest_point(self, region: Region) -> Array | None:
        """A point far from all kinks, None if the region has no interior."""
        neurons = np.arange(self.reduced.neurons)
        low = self.ends[region.pieces, neurons]
        high = self.ends[region.pieces + 1, neurons]
        has_low = np.isfinite(low)
        has_high = np.isfinite(high)
        linear = region.forms[:, :-1]
        constant = region.forms[:, -1]
        rows = np.concatenate([linear[has_low], -linear[has_high]])
        ends = np.concatenate([(low - constant)[has_low], (constant - high)[has_high]])
        return deepest_point(self.inputs, rows, ends)
