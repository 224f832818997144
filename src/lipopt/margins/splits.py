"""Where cells are split: at a neuron, or in the middle of an input.

Neurons that are split are linear in the end, and few of them are soon done with. Smooth ones never are, and
many take many cells: then inputs are split, if there are few of these, and all nodes are enclosed anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..numerics.arrays import Array
from ..problem.proofs import InputSplit, NeuronSplit, Split
from .ascent import Batch, Evaluated, bounds_of
from .cells import Place, are_empty, batch_of, can_halve, halves
from .lines import groups

CANDIDATES = 6  # neurons that are tried, before one is split
SECOND = 0.1  # how much the sum of both bounds counts, beside the worse one
NARROWEST = 2.0**-30  # intervals that are narrower are not split, relative to their size
FEW_INPUTS = 10  # that are split rather than smooth neurons,
MANY_NEURONS = 8  # or than more neurons than this, for every input


@dataclass(frozen=True, eq=False)
class Division:
    """A split of a cell, and its two parts."""

    split: Split
    parts: tuple[Place, Place]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The neurons of cells that can be split."""

    values: Array  # (cells, neurons): where
    scores: Array  # how much is lost by the lines of each; at most 0 if it cannot be split
    prefers_inputs: Array  # (cells,): whether inputs should be split instead

    @staticmethod
    def of(batch: Batch, found: Evaluated) -> Candidates:
        values = _split_values(batch)
        scores = _scores(batch, found, values)
        inputs = batch.enclosures.network.input_size
        is_smooth = np.zeros(values.shape[1], dtype=bool)
        for group in groups(batch.enclosures.network):
            is_smooth[group.neurons] = not group.function.is_piecewise_linear
        is_open = scores > 0
        is_hard = (is_open & is_smooth).any(axis=1) | (is_open.sum(axis=1) > MANY_NEURONS * inputs)
        can_split_inputs = inputs <= FEW_INPUTS and can_halve(batch.enclosures)
        return Candidates(values, scores, is_hard & can_split_inputs)

    @property
    def exist(self) -> Array:
        """Which cells have any."""
        return np.asarray((self.scores > 0).any(axis=1))


def at_neurons(
    places: Sequence[Place], batch: Batch, candidates: Candidates, chosen: Array
) -> list[Division]:
    """Split the chosen cells at neurons, such that the worse part has the best bound.

    Some neurons are tried, those that look best, with the mixes and forces of the cell."""
    scores = candidates.scores[chosen]
    best = np.argsort(-scores, axis=1, kind="stable")[:, :CANDIDATES]
    parts = []
    for k, neurons in zip(chosen, best, strict=True):
        for neuron in neurons:
            value = float(candidates.values[k, neuron])
            parts.append(places[k].beyond(int(neuron), -1, value))
            parts.append(places[k].beyond(int(neuron), 1, value))
    repeated = np.repeat(chosen, 2 * best.shape[1])
    rows = batch.functions.rows[max(batch.functions.rows)]
    tried = batch_of(parts, rows[repeated], batch.choices[:, repeated])
    shortfall = np.where(are_empty(tried), 0.0, np.minimum(bounds_of(tried), 0.0))
    shortfall = shortfall.reshape(*best.shape, 2)
    worth = shortfall.min(axis=2) + SECOND * shortfall.sum(axis=2)
    can_split = np.take_along_axis(scores, best, axis=1) > 0
    picked = np.where(can_split, worth, -np.inf).argmax(axis=1)
    divisions = []
    for number, k in enumerate(chosen):
        neuron = int(best[number, picked[number]])
        first = 2 * (number * best.shape[1] + int(picked[number]))
        split = NeuronSplit(neuron, float(candidates.values[k, neuron]))
        divisions.append(Division(split, (parts[first], parts[first + 1])))
    return divisions


def at_inputs(places: Sequence[Place]) -> list[Division | None]:
    """Split cells in the middle of their widest inputs; None for those that cannot be."""
    found: list[Division | None] = [None] * len(places)
    chosen = []
    inputs = []
    for k, place in enumerate(places):
        balls = place.region.enclosures.balls
        width = balls.upper[0] - balls.lower[0]
        widest = int(width.argmax())
        is_wide = width[widest] > NARROWEST * balls.largest[0, widest]
        if is_wide and can_halve(place.region.enclosures):
            chosen.append(k)
            inputs.append(widest)
    regions = [places[k].region for k in chosen]
    if not regions:
        return found
    pairs = halves(regions, np.array(inputs))
    for k, widest, (below, above) in zip(chosen, inputs, pairs, strict=True):
        value = float(places[k].region.enclosures.balls.middle[0, widest])
        constraints = places[k].constraints
        parts = (Place(below, constraints), Place(above, constraints))
        found[k] = Division(InputSplit(widest, value), parts)
    return found


def _split_values(batch: Batch) -> Array:
    """Where each neuron would be split: at a kink inside its interval, or in the middle."""
    low = batch.ranges.low
    high = batch.ranges.high
    values = (low + high) / 2
    for group in groups(batch.enclosures.network):
        own = group.neurons
        for kink in group.function.kinks:
            is_inside = (low[:, own] < kink) & (kink < high[:, own])
            values[:, own] = np.where(is_inside, kink, values[:, own])
    return values


def _scores(batch: Batch, found: Evaluated, values: Array) -> Array:
    """How much is lost by the lines of every neuron, at its split and where the bound is."""
    scores = np.full(values.shape, -1.0)
    for group in groups(batch.enclosures.network):
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
        low = batch.ranges.low[:, own]
        high = batch.ranges.high[:, own]
        y = np.clip(found.inputs[:, own], low, high)
        at_y = group.function.value(y)
        lost = np.abs(at_y - lines.slopes * y - lines.offsets)
        slopes = group.function.slope_range(low, high)
        is_wide = high - low > NARROWEST * np.maximum(np.abs(low), np.abs(high))
        can_split = is_wide & (slopes[0] < slopes[1])
        scores[:, own] = np.where(can_split, np.abs(c) * (top - bottom + lost), -1.0)
    return scores
