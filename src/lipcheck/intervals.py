"""Slope ranges, and intervals over a box: the first half of section 3 of spec/certificate.md.

Any slopes that the network has on the domain lie in the ranges; wider ones are sound too.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from .exact import ZERO, Matrix, Vector, round_down, round_up
from .functions import Hull, Interval, hull, offset_above, offset_below, slope_range
from .network import Network, Node
from .verdicts import require


class Bounds(NamedTuple):
    """lower <= values <= upper, for every entry of a node, or every input of a box."""

    lower: Vector
    upper: Vector


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


def slope_ranges(network: Network, box: Bounds | None, relaxations: Relaxations) -> Slopes:
    """Section 3, slope ranges: what is known of the slope of every activation neuron."""
    ranges = {}
    if box is None:
        for i, node in network.activations.items():
            ranges[i] = [slope_range(function) for function in node.functions]
        return ranges
    bounds = node_bounds(network, box, relaxations)
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


def node_bounds(network: Network, box: Bounds, relaxations: Relaxations) -> list[Bounds]:
    """Section 3, intervals over a box: bounds on the values of every node."""
    valid = all(low <= high for low, high in zip(box.lower, box.upper, strict=True))
    require(valid, "the box is empty")
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
            found = _interval_propagation(node, bounds)
            if relaxations:
                found = _cut(network, i, found, lines, box)
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


def _interval_propagation(node: Node, bounds: Sequence[Bounds]) -> Bounds:
    """Section 3, interval propagation: an affine node, from the bounds on its sources."""
    lower = list(node.bias)
    upper = list(node.bias)
    for source, matrix in node.inputs:
        lower = _sum(lower, matrix.minimum(*bounds[source]))
        upper = _sum(upper, matrix.maximum(*bounds[source]))
    return Bounds(lower, upper)


def _cut(network: Network, i: int, bounds: Bounds, lines: Surroundings, box: Bounds) -> Bounds:
    """Section 3, `relaxations all`: bounds on node i, cut by backward bounds where they are better.

    Neurons whose slope is known already need not be cut.
    """
    unknown = set()
    for reader in network.activations.values():
        if reader.source == i:
            for k, (least, steepest) in enumerate(_slopes_between(reader, bounds)):
                if least < steepest:
                    unknown.add(k)
    neurons = sorted(unknown)
    # The least value of the neurons, and that of their negatives: minus the largest value.
    signed = [{k: 1} for k in neurons] + [{k: -1} for k in neurons]
    found = _backward(network, i, Matrix(signed, len(bounds.lower)), lines, box)
    least_values = found[: len(neurons)]
    least_negatives = found[len(neurons) :]
    lower = list(bounds.lower)
    upper = list(bounds.upper)
    for k, least_value, least_negative in zip(neurons, least_values, least_negatives, strict=True):
        lower[k] = max(lower[k], least_value)
        upper[k] = min(upper[k], -least_negative)
    return Bounds(lower, upper)


def _backward(network: Network, i: int, start: Matrix, lines: Surroundings, box: Bounds) -> Vector:
    """Section 3, backward bounds: lower bounds on `start` times the values of node i.

    From the last node to the first, a node's values are replaced by what they are (affine) or are
    bounded by (activation) in terms of its sources; at last, the input by the ends of the box.
    """
    height = len(start.rows)
    coefficients = [Matrix.zero(height, node.size) for node in network.nodes[:i]]
    coefficients.append(start)
    total = [ZERO] * height
    for k in range(i, 0, -1):
        node = network.nodes[k]
        rows = coefficients[k]
        if not any(rows.rows):
            continue
        if node.is_activation:
            slopes, offsets = lines[k]
            total = _sum(total, rows.minimum(*offsets))
            coefficients[node.source] += rows.scaled_by_sign(*slopes)
        else:
            total = _sum(total, rows.times(node.bias))
            for source, matrix in node.inputs:
                coefficients[source] += rows @ matrix
    return _sum(total, coefficients[0].minimum(*box))


def _sum(left: Sequence[Fraction], right: Sequence[Fraction]) -> Vector:
    return [a + b for a, b in zip(left, right, strict=True)]
