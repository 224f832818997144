"""Steps towards the best lines and forces, for many cells at once, each with one function to bound.

At the point of the ball where a bound is attained, replace every neuron by its line. The derivative
of the bound in a mix is then the neuron's coefficient times how much the one line is above the
other there; in a force, how far the neuron's input is beyond the end of its interval. Steps are
those of Adam (Kingma and Ba), and the best bound of every cell is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..model.activations import LinePair
from ..model.network import Network
from ..numerics.arrays import Array, as_array, namespace
from .backward import Bounded, Functions, lower_bounds, values_along
from .devices import Device
from .enclosures import Enclosures, functions_of
from .lines import Group, Mixed, Ranges, Sides, groups

STEP = 0.25  # of a mix, the first one
FORCE_STEP = 0.3  # of a force, relative to the largest coefficient of its node
SHRINK = 0.93  # of a step, every time
MEMORY = 0.8  # of the mean of derivatives,
SQUARE_MEMORY = 0.95  # and of their squares
BURST = 4  # steps, after which cells that are done are put aside
TINY_DERIVATIVE = 1e-12  # keeps quotients finite


@dataclass(frozen=True, eq=False)
class Batch:
    """Cells, and the lines and forces that bound their functions."""

    enclosures: Enclosures  # of the balls, or parts of balls, that own the functions
    functions: Functions
    ranges: Ranges
    sides: Sides
    # Whether the lower, or the upper, end of an interval was made by a split: then it is a
    # constraint, which a force may use.
    is_low_split: Array
    is_high_split: Array
    choices: Array  # (2, cells, neurons): mixes and forces

    @property
    def count(self) -> int:
        return len(self.is_low_split)

    def only(self, chosen: Array) -> Batch:
        """Some of the cells."""
        return Batch(
            self.enclosures,
            functions_of(self.functions, chosen),
            self.ranges.only(chosen),
            self.sides.only(chosen),
            self.is_low_split[chosen],
            self.is_high_split[chosen],
            self.choices[:, chosen],
        )

    def with_choices(self, choices: Array) -> Batch:
        return replace(self, choices=choices)


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The bounds of cells, and the derivatives and points that go with them."""

    bounded: Bounded
    points: Array  # (cells, inputs): where the bounds are attained
    inputs: Array  # (cells, neurons): of neurons there, with lines in place of those before them
    derivatives: Array  # (2, cells, neurons): in mixes and forces
    sizes: Array  # (cells, neurons): the largest coefficient of the neuron's node


def evaluate(batch: Batch) -> Bounded:
    """The bounds of all cells, with the mixes and forces that they have."""
    enclosures = batch.enclosures
    neurons = {group.node: group.neurons for group in groups(enclosures.network)}
    relaxation = Mixed(neurons, batch.sides, batch.ranges, *batch.choices)
    return lower_bounds(
        enclosures.network, enclosures.balls, enclosures.sizes, batch.functions, relaxation
    )


def bounds_of(batch: Batch) -> Array:
    """The same without what they were found with, on the device of the enclosures if there is one."""
    device = batch.enclosures.device
    found = evaluate(batch if device is None else _on(device, batch))
    return np.asarray(as_array(found.bounds))


def differentiate(batch: Batch) -> Evaluated:
    """The same, with what tells how to make the bounds better."""
    network = batch.enclosures.network
    found = evaluate(batch)
    points = batch.enclosures.balls.where_least(found.own, batch.functions.owners)
    values = values_along(network, points, found.lines)
    xp = namespace(points)
    inputs = xp.zeros_like(batch.ranges.low)
    derivatives = xp.zeros_like(batch.choices)
    sizes = xp.zeros_like(inputs)
    for group in groups(network):
        if group.node in found.met:
            own = group.neurons
            y = values[group.source]
            inputs[:, own] = y
            derivatives[0, :, own] = _mix_derivatives(batch, group, found.met[group.node], y)
            derivatives[1, :, own] = _force_derivatives(batch, group, y)
            sizes[:, own] = xp.amax(abs(found.met[group.node]), axis=1, keepdims=True)
    return Evaluated(found, points, inputs, derivatives, sizes)


def _mix_derivatives(batch: Batch, group: Group, c: Array, y: Array) -> Array:
    """The coefficients times how much the second lines are above the first at y."""
    pair = batch.sides.chosen(group.neurons, c > 0)
    return c * ((pair.slopes[1] - pair.slopes[0]) * y + (pair.offsets[1] - pair.offsets[0]))


def _force_derivatives(batch: Batch, group: Group, y: Array) -> Array:
    """y - end, for the end that a force belongs to; without one, an end that y is beyond."""
    own = group.neurons
    force = batch.choices[1][:, own]
    below = y - batch.ranges.low[:, own]
    above = y - batch.ranges.high[:, own]
    uses_low = batch.is_low_split[:, own] & ((force < 0) | ((force == 0) & (below < 0)))
    uses_high = batch.is_high_split[:, own] & ((force > 0) | ((force == 0) & (above > 0)))
    xp = namespace(y)
    return xp.where(uses_low, below, xp.where(uses_high, above, 0.0))


@dataclass(frozen=True, eq=False)
class Best:
    """The best bound of every cell, and the mixes and forces that gave it."""

    bounds: Array
    choices: Array

    def keep(self, cells: Array, bounds: Array, choices: Array) -> None:
        """Take over what is better, for these cells."""
        is_better = bounds > self.bounds[cells]
        self.bounds[cells[is_better]] = bounds[is_better]
        self.choices[:, cells[is_better]] = choices[:, is_better]


def ascend(batch: Batch, steps: int, target: float = 0.0) -> Best:
    """Better mixes and forces for every cell, on the device of their enclosures if they have one.

    A bound above the target is good enough."""
    device = batch.enclosures.device
    if device is None:
        return _ascend(batch, steps, target)
    found = _ascend(_on(device, batch), steps, target)
    return Best(as_array(found.bounds), as_array(found.choices))


def _on(device: Device, batch: Batch) -> Batch:
    """A batch in arrays of a device."""
    low = device.tensor(batch.ranges.low)
    high = device.tensor(batch.ranges.high)
    pairs = []
    for pair in (batch.sides.below, batch.sides.above):
        pairs.append(LinePair(device.tensor(pair.slopes), device.tensor(pair.offsets)))
    return Batch(
        batch.enclosures.on_device(),
        device.functions(batch.functions),
        Ranges(low, high),
        Sides(*pairs),
        device.tensor(batch.is_low_split),
        device.tensor(batch.is_high_split),
        device.tensor(batch.choices),
    )


def _ascend(batch: Batch, steps: int, target: float) -> Best:
    xp = namespace(batch.choices)
    best = Best(0 * batch.functions.constant - np.inf, batch.choices + 0.0)
    left = xp.arange(batch.count, device=batch.choices.device)
    mean = xp.zeros_like(batch.choices)
    square = xp.zeros_like(batch.choices)
    for step in range(steps):
        found = differentiate(batch)
        best.keep(left, found.bounded.bounds, batch.choices)
        mean += (1 - MEMORY) * (found.derivatives - mean)
        square += (1 - SQUARE_MEMORY) * (found.derivatives**2 - square)
        batch = batch.with_choices(_stepped(batch, found, mean, square, step))
        if step % BURST == 0 or step == steps - 1:
            is_left = best.bounds[left] <= target
            left = left[is_left]
            batch = batch.only(is_left)
            mean = mean[:, is_left]
            square = square[:, is_left]
        if len(left) == 0:
            return best
    best.keep(left, evaluate(batch).bounds, batch.choices)
    return best


def _stepped(batch: Batch, found: Evaluated, mean: Array, square: Array, step: int) -> Array:
    """Mixes and forces after a step, within their limits."""
    xp = namespace(mean)
    size = xp.stack([xp.full_like(found.sizes, STEP), FORCE_STEP * found.sizes])
    unbiased = xp.sqrt(square / (1 - SQUARE_MEMORY ** (step + 1)))
    direction = mean / (1 - MEMORY ** (step + 1)) / (unbiased + TINY_DERIVATIVE)
    choices = batch.choices + SHRINK**step * size * direction
    force = choices[1]
    # A force of one sign belongs to one end. It does not turn into one that belongs to the other.
    none = 0 * force
    least = xp.where(batch.is_low_split & (batch.choices[1] <= 0), -np.inf, none)
    most = xp.where(batch.is_high_split & (batch.choices[1] >= 0), np.inf, none)
    return xp.stack([xp.clip(choices[0], 0.0, 1.0), xp.clip(force, least, most)])


def slopes_of(network: Network, found: Bounded) -> Array:
    """The slopes of the lines that took the place of all neurons, (rows, neurons)."""
    parts = [np.zeros((len(found.bounds), 0))]
    for group in groups(network):
        if group.node in found.lines:
            parts.append(found.lines[group.node].slopes)
        else:
            width = group.neurons.stop - group.neurons.start
            parts.append(np.zeros((len(found.bounds), width)))
    return np.concatenate(parts, axis=1)
