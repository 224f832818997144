"""The bound of a cell: interval arithmetic on the derivative, from the last neuron to the first.

The objective's coefficient of a neuron lies in an interval; times the range of its slope, that is
what the neuron's form is multiplied by. So intervals for the coefficients of the inputs are found:
bounds on every entry of the Jacobian. This is the rule `interval` of spec/certificate.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..numerics.arrays import Array
from ..numerics.rounding import gamma, up, up_float
from ..problem.derivative import Blocks, DerivativeProblem, Layer
from ..problem.presolve import drop_unused
from .reduced import Reduced
from .walk import Walk


@dataclass(frozen=True, eq=False)
class SlopeBound:
    """A bound on the norm of every Jacobian in a cell, and what it depends on."""

    value: float
    errors: float  # what rounded forms can change in the derivative; it is part of the value
    # (neurons,): the largest absolute coefficient of every neuron, 0 for those that are linear.
    reach: Array


def slope_bound(walk: Walk) -> SlopeBound:
    """The bound of a cell whose walk is at its end."""
    reduced = walk.reduced
    inputs = reduced.inputs
    objective = walk.objective()
    least = objective.rows.copy()
    most = objective.rows.copy()
    size = np.abs(objective.rows)
    reach = np.zeros(reduced.neurons)
    roundings = reduced.width + 4
    for group in reversed(reduced.groups):
        neurons = group.start + np.flatnonzero(walk.is_open[group])
        if len(neurons) == 0:
            continue
        columns = reduced.columns(neurons)
        lower = walk.slopes[0][neurons]
        upper = walk.slopes[1][neurons]
        low, high = _product(least[:, columns], most[:, columns], lower, upper)
        forms = walk.forms.rows[neurons]
        rising = np.maximum(forms, 0)
        falling = np.minimum(forms, 0)
        reach[neurons] = np.maximum(np.abs(least[:, columns]), np.abs(most[:, columns])).max(axis=0)
        least += low @ rising + high @ falling
        most += high @ rising + low @ falling
        steepest = np.maximum(np.abs(lower), np.abs(upper))
        size += (size[:, columns] * steepest) @ np.abs(forms)
        roundings += 2 * len(neurons) + 8
    bounds = np.maximum(-least, most)[:, :inputs] + gamma(roundings) * size[:, :inputs]
    errors = _derivative_errors(walk, size, objective.errors[:, 1])
    in_units = up(reduced.in_units(np.maximum(bounds, 0.0)), roundings + 2)
    value = reduced.norm.of_bounds_up(in_units, reduced.output_norm)
    total = up_float(value + errors, len(objective.rows) + 2)
    return SlopeBound(total if np.isfinite(total) else np.inf, errors, reach)


def derivative_problem(walk: Walk, errors: float) -> DerivativeProblem:
    """The derivative problem of a cell whose walk is at its end, for methods that relax it."""
    reduced = walk.reduced
    sources = [np.arange(reduced.inputs)]  # the columns of the inputs, then of every layer
    layers = []
    for group in reduced.groups:
        neurons = group.start + np.flatnonzero(walk.is_open[group])
        if len(neurons) == 0:
            continue
        blocks = _blocks(reduced, walk.forms.rows[neurons], sources)
        lower = walk.slopes[0][neurons]
        upper = walk.slopes[1][neurons]
        node = int(reduced.nodes[group.start])
        layers.append(Layer(blocks, lower, upper, node, reduced.places[neurons]))
        sources.append(reduced.columns(neurons))
    objective = _blocks(reduced, walk.objective().rows, sources)
    if not objective:
        objective = {0: np.zeros((len(walk.reduced.objective.rows), reduced.inputs))}
    problem = DerivativeProblem(
        reduced.norm, reduced.inputs, tuple(layers), objective, errors, reduced.output_norm
    )
    return drop_unused(problem)


def _blocks(reduced: Reduced, rows: Array, sources: list[Array]) -> Blocks:
    """The columns of every source, but for those without coefficients."""
    blocks = {}
    for source, columns in enumerate(sources):
        block = rows[:, columns]
        if source == 0:
            block = reduced.in_units(block)
        if block.any():
            blocks[source] = block
    return blocks


def _product(least: Array, most: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The interval of products of coefficients and slopes."""
    corners = np.array([least * lower, least * upper, most * lower, most * upper])
    return corners.min(axis=0), corners.max(axis=0)


def _derivative_errors(walk: Walk, size: Array, own: Array) -> float:
    """What rounded forms can change in the derivative, summed over the rows of the objective; and
    what rounding can when inputs get units.

    `size` bounds the absolute coefficients of all variables."""
    reduced = walk.reduced
    columns = reduced.columns(np.flatnonzero(walk.is_open))
    steepest = np.maximum(np.abs(walk.slopes[0]), np.abs(walk.slopes[1]))[walk.is_open]
    through = size[:, columns] * steepest
    total = own + through @ walk.forms.errors[walk.is_open, 1]
    if reduced.scale is not None:
        total = total + gamma(4) * (size[:, : reduced.inputs] @ reduced.scale)
    return up_float(float(total.sum()), reduced.width * len(own))
