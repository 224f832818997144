"""Slope ranges, and intervals over a box: the first half of section 3 of spec/certificate.md.

Any slopes that the network has on the domain lie in the ranges; wider ones are sound too.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from .exact import ZERO, Matrix, Vector, round_down, round_up
from .formulas import Interval
from .functions import Hull, hull, offset_above, offset_below, slope_range
from .inputs import Ball, Bounds, least_values
from .network import Network, Node
from .verdicts import require


class LineSlopes(NamedTuple):
    """Slopes of a line below and a line above every neuron of an activation node."""

    below: Vector
    above: Vector


class SurroundingLines(NamedTuple):
    """Lines with offsets: slopes.below y + offsets.lower <= sigma(y), and the same above."""

    slopes: LineSlopes
    offsets: Bounds


Surroundings = Mapping[int, SurroundingLines]  # of activation nodes
Slopes = Mapping[int, list[Interval]]  # slope ranges of activation nodes, one a neuron
Relaxations = Mapping[int, LineSlopes]  # for activation nodes; empty without backward bounds


def slope_ranges(
    network: Network, box: Bounds | None, relaxations: Relaxations, ball: Ball | None = None
) -> Slopes:
    """Section 3, slope ranges: what is known of the slope of every activation neuron."""
    ranges = {}
    if box is None:
        for i, node in network.activations.items():
            ranges[i] = [slope_range(function) for function in node.functions]
        return ranges
    bounds = node_bounds(network, box, relaxations, ball)
    for i, node in network.activations.items():
        ranges[i] = _slopes_between(node, bounds[node.source])
    return ranges


def _slopes_between(node: Node, bounds: Bounds) -> list[Interval]:
    """The slope ranges of an activation node whose input lies between these bounds.

    Kinks at the ends count with both sides, but for piecewise linear functions.
    """
    ranges = []
    for function, lower, upper in zip(node.functions, *bounds, strict=True):
        ranges.append(slope_range(function, lower, upper, not function.is_piecewise_linear))
    return ranges


def node_bounds(
    network: Network, box: Bounds, relaxations: Relaxations, ball: Ball | None = None
) -> list[Bounds]:
    """Section 3, intervals over a box, or a ball in it: bounds on the values of every node."""
    valid = all(low <= high for low, high in zip(box.lower, box.upper, strict=True))
    require(valid, "the box is empty")
    require(ball is None or not ball.misses(box), "the ball has no point in the box")
    bounds = [box]
    lines: dict[int, SurroundingLines] = {}
    for i, node in enumerate(network.nodes[1:], start=1):
        if node.is_activation:
            hulls = list(map(hull, node.functions, *bounds[node.source]))
            flat = LineSlopes([ZERO] * node.size, [ZERO] * node.size)
            bounds.append(_offsets(hulls, flat))
            if i in relaxations:
                slopes = relaxations[i]
                lines[i] = SurroundingLines(slopes, _offsets(hulls, slopes))
        else:
            found = _interval_propagation(node, bounds, ball)
            if relaxations:
                found = _cut(network, i, found, lines, bounds, ball)
            lower = [round_down(value) for value in found.lower]
            upper = [round_up(value) for value in found.upper]
            bounds.append(Bounds(lower, upper))
    return bounds


def _offsets(hulls: Sequence[Hull], slopes: LineSlopes) -> Bounds:
    """Section 3: the offsets c_1 and c_2 of lines with these slopes around every neuron.

    They are computed here, so that any slopes are sound.
    """
    lower = []
    upper = []
    for around, below, above in zip(hulls, *slopes, strict=True):
        lower.append(offset_below(around, below))
        upper.append(offset_above(around, above))
    return Bounds(lower, upper)


def _interval_propagation(node: Node, bounds: Sequence[Bounds], ball: Ball | None) -> Bounds:
    """Section 3, interval propagation: an affine node, from the bounds on its sources."""
    lower = list(node.bias)
    upper = list(node.bias)
    for source, matrix in node.inputs:
        around = ball if source == 0 else None
        lower = _sum(lower, least_values(matrix, bounds[source], around))
        upper = _difference(upper, least_values(-matrix, bounds[source], around))
    return Bounds(lower, upper)


def _cut(
    network: Network,
    i: int,
    bounds: Bounds,
    lines: Surroundings,
    before: Sequence[Bounds],
    ball: Ball | None,
) -> Bounds:
    """Section 3, `relaxations all`: bounds on node i, cut by backward bounds where they are better.

    Neurons whose slope is known already need not be cut.
    """
    unknown = set()
    for reader in network.activations.values():
        if reader.source == i:
            unknown.update(_unknown_slopes(reader, bounds))
    neurons = sorted(unknown)
    # The least value of the neurons, and that of their negatives: minus the largest value.
    signed = [{k: 1} for k in neurons] + [{k: -1} for k in neurons]
    found = _backward(network, i, Matrix(signed, len(bounds.lower)), lines, before, ball)
    least_positives = found[: len(neurons)]
    least_negatives = found[len(neurons) :]
    lower = list(bounds.lower)
    upper = list(bounds.upper)
    for k, positive, negative in zip(neurons, least_positives, least_negatives, strict=True):
        lower[k] = max(lower[k], positive)
        upper[k] = min(upper[k], -negative)
    return Bounds(lower, upper)


def _unknown_slopes(node: Node, bounds: Bounds) -> list[int]:
    """The neurons of an activation node whose slope is not known between these bounds."""
    unknown = []
    for k, (function, lower, upper) in enumerate(zip(node.functions, *bounds, strict=True)):
        if not function.is_defined(lower, upper):
            unknown.append(k)
            continue
        least, steepest = slope_range(function, lower, upper, not function.is_piecewise_linear)
        if least < steepest:
            unknown.append(k)
    return unknown


def _backward(
    network: Network,
    i: int,
    start: Matrix,
    lines: Surroundings,
    before: Sequence[Bounds],
    ball: Ball | None,
) -> Vector:
    """Section 3, backward bounds: lower bounds on `start` times the values of node i.

    From the last node to the first, a node's values are replaced by what they are (affine) or are
    bounded by (activation) in terms of its sources; at last, the inputs by what box and ball say.
    Long coefficients are rounded, and what that changes at most is subtracted: `before` has bounds
    on the values of earlier nodes.
    """
    height = len(start.rows)
    coefficients = [Matrix.zero(height, node.size) for node in network.nodes[:i]]
    coefficients.append(start)
    total = [ZERO] * height
    for k in range(i, -1, -1):
        node = network.nodes[k]
        rows = coefficients[k]
        if not any(rows.rows):
            continue
        if not node.is_activation:
            rows, error = rows.shortened()
            if error:
                sizes = abs(rows).times(_sizes(before[k]))
                total = [value - 2 * error * size for value, size in zip(total, sizes, strict=True)]
        if k == 0:
            total = _sum(total, least_values(rows, before[0], ball))
        elif node.is_activation:
            slopes, offsets = lines[k]
            total = _sum(total, rows.minimum(*offsets))
            coefficients[node.source] += rows.scaled_by_sign(*slopes)
        else:
            total = _sum(total, rows.times(node.bias))
            for source, matrix in node.inputs:
                coefficients[source] += rows @ matrix
    return total


def _sizes(bounds: Bounds) -> Vector:
    """The largest absolute values between these bounds."""
    return [max(-low, high) for low, high in zip(*bounds, strict=True)]


def _sum(left: Sequence[Fraction], right: Sequence[Fraction]) -> Vector:
    return [a + b for a, b in zip(left, right, strict=True)]


def _difference(left: Sequence[Fraction], right: Sequence[Fraction]) -> Vector:
    return [a - b for a, b in zip(left, right, strict=True)]
