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
from .squares import Factors, Product, factor, products_in
from .verdicts import require


class LineSlopes(NamedTuple):
    """Slopes of a line below and a line above every neuron of an activation node."""

    below: Vector
    above: Vector


class SurroundingLines(NamedTuple):
    """Lines with offsets: slopes.below y + offsets.lower <= sigma(y), and the same above."""

    slopes: LineSlopes
    offsets: Bounds


Slopes = Mapping[int, list[Interval]]  # slope ranges of activation nodes, one a neuron
Relaxations = Mapping[int, LineSlopes]  # for activation nodes; empty without backward bounds


class Enclosure(NamedTuple):
    """What is known of the values of all nodes over a box, or a ball in it, as far as it was found."""

    bounds: list[Bounds]  # on the values of every node
    lines: dict[int, SurroundingLines]  # around activation nodes; empty without backward bounds
    ball: Ball | None
    factors: dict[Product, tuple[Bounds, Bounds]]  # of products: bounds on u + v, and on u - v


def slope_ranges(network: Network, enclosure: Enclosure | None) -> Slopes:
    """Section 3, slope ranges: what is known of the slope of every activation neuron. Without an
    enclosure, over the whole space."""
    ranges = {}
    for i, node in network.activations.items():
        if enclosure is None:
            ranges[i] = [slope_range(function) for function in node.functions]
        else:
            ranges[i] = _slopes_between(node, enclosure.bounds[node.source])
    return ranges


def _slopes_between(node: Node, bounds: Bounds) -> list[Interval]:
    """The slope ranges of an activation node whose input lies between these bounds.

    Kinks at the ends count with both sides, but for piecewise linear functions.
    """
    ranges = []
    for function, lower, upper in zip(node.functions, *bounds, strict=True):
        ranges.append(slope_range(function, lower, upper, not function.is_piecewise_linear))
    return ranges


def enclose(
    network: Network, box: Bounds, relaxations: Relaxations, ball: Ball | None = None
) -> Enclosure:
    """Section 3, intervals over a box, or a ball in it: bounds on the values of every node."""
    valid = all(low <= high for low, high in zip(box.lower, box.upper, strict=True))
    require(valid, "the box is empty")
    require(ball is None or not ball.misses(box), "the ball has no point in the box")
    enclosure = Enclosure([box], {}, ball, {})
    bounds = enclosure.bounds
    for i, node in enumerate(network.nodes[1:], start=1):
        if node.is_activation:
            hulls = list(map(hull, node.functions, *bounds[node.source]))
            flat = LineSlopes([ZERO] * node.size, [ZERO] * node.size)
            bounds.append(_offsets(hulls, flat))
            if i in relaxations:
                slopes = relaxations[i]
                enclosure.lines[i] = SurroundingLines(slopes, _offsets(hulls, slopes))
        else:
            found = _interval_propagation(network, node, enclosure)
            if relaxations:
                unknown = _neurons_to_cut(network, i, found)
                found = _cut(network, node, unknown, found, enclosure)
            bounds.append(_rounded(found))
    return enclosure


def factor_ranges(network: Network, products: Sequence[Product], enclosure: Enclosure) -> Factors:
    """Section 3, products: where u + v and u - v lie in the domain."""
    ranges = {}
    for product in products:
        for i, bounds in zip(product, _factors(network, product, enclosure), strict=True):
            ranges[i] = list(zip(*bounds, strict=True))
    return ranges


def _factors(network: Network, product: Product, enclosure: Enclosure) -> tuple[Bounds, Bounds]:
    """Section 3, products: bounds on u + v and u - v; found once."""
    if product not in enclosure.factors:
        total, difference = (
            _affine_bounds(network, factor(network, product, sign), enclosure) for sign in (1, -1)
        )
        enclosure.factors[product] = (total, difference)
    return enclosure.factors[product]


def _affine_bounds(network: Network, node: Node, enclosure: Enclosure) -> Bounds:
    """Bounds on an affine function of the nodes of a network, with all entries cut."""
    found = _interval_propagation(network, node, enclosure)
    if enclosure.lines:
        found = _cut(network, node, list(range(node.size)), found, enclosure)
    return _rounded(found)


def _rounded(bounds: Bounds) -> Bounds:
    """Outward, to short numbers."""
    lower = [round_down(value) for value in bounds.lower]
    upper = [round_up(value) for value in bounds.upper]
    return Bounds(lower, upper)


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


def _interval_propagation(network: Network, node: Node, enclosure: Enclosure) -> Bounds:
    """Section 3, interval propagation: an affine node, from the bounds on its sources."""
    terms = dict(enumerate(enclosure.bounds))
    for product in products_in(network, node):
        terms[product.first] = _range_of_product(network, product, enclosure)
        nothing = [ZERO] * len(terms[product.first].lower)
        terms[product.second] = Bounds(nothing, nothing)
    lower = list(node.bias)
    upper = list(node.bias)
    for source, matrix in node.inputs:
        around = enclosure.ball if source == 0 else None
        lower = _sum(lower, least_values(matrix, terms[source], around))
        upper = _difference(upper, least_values(-matrix, terms[source], around))
    return Bounds(lower, upper)


def _range_of_product(network: Network, product: Product, enclosure: Enclosure) -> Bounds:
    """Section 3, interval propagation: u^2 - v^2, from its factors, and from both squares."""
    lower = []
    upper = []
    totals, differences = (
        zip(*found, strict=True) for found in _factors(network, product, enclosure)
    )
    first, second = (zip(*enclosure.bounds[i], strict=True) for i in product)
    for total, difference, u, v in zip(totals, differences, first, second, strict=True):
        corners = [one * other for one in total for other in difference]
        lower.append(max(min(corners), u[0] - v[1]))
        upper.append(min(max(corners), u[1] - v[0]))
    return Bounds(lower, upper)


def _neurons_to_cut(network: Network, i: int, bounds: Bounds) -> list[int]:
    """The entries of node i that activations read without a slope that is known already."""
    unknown = set()
    for reader in network.activations.values():
        if reader.source == i:
            unknown.update(_unknown_slopes(reader, bounds))
    return sorted(unknown)


def _cut(
    network: Network, node: Node, entries: list[int], bounds: Bounds, enclosure: Enclosure
) -> Bounds:
    """Section 3, `relaxations all`: bounds on an affine node, with some entries cut by backward
    bounds where these are better."""
    # The least value of the entries, and that of their negatives: minus the largest value.
    signed = [{k: 1} for k in entries] + [{k: -1} for k in entries]
    found = _backward(network, node, Matrix(signed, node.size), enclosure)
    least_positives = found[: len(entries)]
    least_negatives = found[len(entries) :]
    lower = list(bounds.lower)
    upper = list(bounds.upper)
    for k, positive, negative in zip(entries, least_positives, least_negatives, strict=True):
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


def _backward(network: Network, node: Node, start: Matrix, enclosure: Enclosure) -> Vector:
    """Section 3, backward bounds: lower bounds on `start` times the values of an affine node.

    From the last node to the first, a node's values are replaced by what they are (affine) or are
    bounded by (activation) in terms of its sources; at last, the inputs by what box and ball say.
    Long coefficients are rounded, and what that changes at most is subtracted: bounds on the values
    of earlier nodes are known.
    """
    before, lines, ball, _ = enclosure
    height = len(start.rows)
    coefficients = {}
    for source, matrix in node.inputs:
        coefficients[source] = start @ matrix
    total = start.times(node.bias)
    for k in range(max(coefficients, default=0), -1, -1):
        own = network.nodes[k]
        rows = coefficients.pop(k, Matrix.zero(height, own.size))
        if not any(rows.rows):
            continue
        if not own.is_activation:
            rows, error = rows.shortened()
            if error:
                sizes = abs(rows).times(_sizes(before[k]))
                total = [value - 2 * error * size for value, size in zip(total, sizes, strict=True)]
        if k == 0:
            total = _sum(total, least_values(rows, before[0], ball))
        elif own.is_activation:
            slopes, offsets = lines[k]
            total = _sum(total, rows.minimum(*offsets))
            _add(coefficients, own.source, rows.scaled_by_sign(*slopes))
        else:
            total = _sum(total, rows.times(own.bias))
            for source, matrix in own.inputs:
                _add(coefficients, source, rows @ matrix)
    return total


def _add(coefficients: dict[int, Matrix], source: int, rows: Matrix) -> None:
    coefficients[source] = coefficients[source] + rows if source in coefficients else rows


def _sizes(bounds: Bounds) -> Vector:
    """The largest absolute values between these bounds."""
    return [max(-low, high) for low, high in zip(*bounds, strict=True)]


def _sum(left: Sequence[Fraction], right: Sequence[Fraction]) -> Vector:
    return [a + b for a, b in zip(left, right, strict=True)]


def _difference(left: Sequence[Fraction], right: Sequence[Fraction]) -> Vector:
    return [a - b for a, b in zip(left, right, strict=True)]
