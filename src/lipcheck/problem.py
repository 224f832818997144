"""From a network and a domain to slope ranges and the derivative problem of a part (section 3 of spec/certificate.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .exact import ONE, ZERO, Malformed, Matrix, Vector, align, diagonal, power
from .functions import FINE, cells, down, offset_above, offset_below, slope_range, up
from .network import Activation, Affine, Input, Network

Bounds = tuple[Vector, Vector]  # lower and upper, one a neuron
Ranges = Mapping[int, Bounds]  # of slopes, by node
Relaxations = Mapping[int, Bounds]  # slopes of lines below and above every neuron, by node


@dataclass(frozen=True)
class Problem:
    """Maximize |C x|, x = (t, z), z_a = s_a y_a, y_a = A_a x, lower_a <= s_a <= upper_a; the slack is added to every bound."""

    inputs: int
    A: Matrix
    lower: Vector
    upper: Vector
    C: Matrix
    slack: Fraction


def slope_ranges(network: Network, box: Bounds | None, relaxations: Relaxations) -> Ranges:
    """What is known of the slopes of every activation node."""
    bounds = None if box is None else node_bounds(network, box, relaxations)
    ranges = {}
    for i, node in enumerate(network.nodes):
        if isinstance(node, Activation):
            ends = ([None] * node.size, [None] * node.size) if bounds is None else bounds[node.source]
            pairs = [slope_range(f, lo, hi) for f, lo, hi in zip(node.functions, *ends, strict=True)]
            ranges[i] = [low for low, _ in pairs], [high for _, high in pairs]
    return ranges


def node_bounds(network: Network, box: Bounds, relaxations: Relaxations) -> list[Bounds]:
    """Bounds on the values of every node over the box: interval propagation, cut by backward bounds if there are relaxations."""
    if any(a > b for a, b in zip(*box, strict=True)):
        raise Malformed("the box is empty")
    bounds: list[Bounds] = []
    lines: dict[int, tuple[Bounds, Bounds]] = {}  # (k, c) below and above every neuron
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            bounds.append(box)
        elif isinstance(node, Affine):
            low, high = _affine_bounds(node, bounds)
            rows = _undecided(network, i, low, high) if relaxations else []
            lows = _backward(network, i, Matrix([{k: 1} for k in rows], node.size), lines, box)
            highs = _backward(network, i, Matrix([{k: -1} for k in rows], node.size), lines, box)
            for k, a, b in zip(rows, lows, highs, strict=True):
                low[k], high[k] = max(low[k], a), min(high[k], -b)
            bounds.append(([down(x, FINE) for x in low], [up(x, FINE) for x in high]))
        else:
            parts = [cells(f, lo, hi) for f, lo, hi in zip(node.functions, *bounds[node.source], strict=True)]
            flat = [ZERO] * node.size
            below, above = relaxations.get(i, (flat, flat))
            lines[i] = (
                (below, [offset_below(p, k) for p, k in zip(parts, below, strict=True)]),
                (above, [offset_above(p, k) for p, k in zip(parts, above, strict=True)]),
            )
            bounds.append(([offset_below(p, ZERO) for p in parts], [offset_above(p, ZERO) for p in parts]))
    return bounds


def _affine_bounds(node: Affine, bounds: Sequence[Bounds]) -> Bounds:
    low, high = list(node.bias), list(node.bias)
    for source, matrix in node.inputs:
        size = len(bounds[source][0])
        ends, exponent = align([*bounds[source][0], *bounds[source][1]])
        unit = power(matrix.exponent + exponent)
        for i, row in enumerate(matrix.rows):
            low[i] += unit * sum(v * ends[j if v > 0 else j + size] for j, v in row.items())
            high[i] += unit * sum(v * ends[j + size if v > 0 else j] for j, v in row.items())
    return low, high


def _undecided(network: Network, i: int, low: Vector, high: Vector) -> list[int]:
    """The entries of node i whose slope, in some activation that reads it, is not known from these bounds."""
    readers = [node for node in network.nodes if isinstance(node, Activation) and node.source == i]
    ranges = [[slope_range(f, a, b) for f, a, b in zip(node.functions, low, high, strict=True)] for node in readers]
    return [k for k in range(len(low)) if any(pairs[k][0] < pairs[k][1] for pairs in ranges)]


def _backward(network: Network, i: int, start: Matrix, lines: Mapping[int, tuple[Bounds, Bounds]], box: Bounds) -> Vector:
    """Lower bounds on start @ (values of node i): coefficients of later nodes are replaced by those of earlier ones."""
    pending, total = {i: start}, [ZERO] * len(start.rows)
    for k in range(i, 0, -1):
        if k not in pending:
            continue
        rows, node = pending.pop(k), network.nodes[k]
        if isinstance(node, Affine):
            total = _sum(total, rows.times(node.bias))
            earlier = [(source, rows @ matrix) for source, matrix in node.inputs]
        else:
            assert isinstance(node, Activation)
            (below, offsets_below), (above, offsets_above) = lines[k]
            positive, negative = _signs(rows)
            total = _sum(_sum(total, positive.times(offsets_below)), negative.times(offsets_above))
            earlier = [(node.source, positive @ diagonal(below) + negative @ diagonal(above))]
        for source, matrix in earlier:
            pending[source] = pending[source] + matrix if source in pending else matrix
    positive, negative = _signs(pending.get(0, Matrix([{} for _ in total], len(box[0]))))
    return _sum(_sum(total, positive.times(box[0])), negative.times(box[1]))


def _sum(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def _signs(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """The positive and the negative entries."""
    positive = [{j: v for j, v in row.items() if v > 0} for row in matrix.rows]
    negative = [{j: v for j, v in row.items() if v < 0} for row in matrix.rows]
    return Matrix(positive, matrix.width, matrix.exponent), Matrix(negative, matrix.width, matrix.exponent)


@dataclass(frozen=True)
class Variables:
    """The neurons of an activation node that are kept as variables."""

    places: list[int]
    centered: bool


def build_problem(network: Network, ranges: Ranges, W: Matrix, inputs: list[int], kept: Mapping[int, Variables]) -> Problem:
    """Every node as a linear function of the variables; neurons that are not kept are substituted, which the slack pays for."""
    listed = [(0, j) for j in inputs] + [(i, k) for i, variables in kept.items() for k in variables.places]
    numbers = {place: number for number, place in enumerate(listed)}
    values: list[Matrix] = []
    equations = Matrix([], len(numbers))
    lower: Vector = []
    upper: Vector = []
    spread: dict[int, Vector] = {}
    for i, node in enumerate(network.nodes):
        own = Matrix([{numbers[i, k]: 1} if (i, k) in numbers else {} for k in range(node.size)], len(numbers))
        if isinstance(node, Input):
            values.append(own)
        elif isinstance(node, Affine):
            values.append(sum((matrix @ values[source] for source, matrix in node.inputs), own))
        else:
            variables = kept.get(i, Variables([], False))
            low, high = _widened(node, ranges[i], variables)
            middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
            half = [(b - a) / 2 for a, b in zip(low, high, strict=True)]
            spread[i] = [ZERO if (i, k) in numbers else h for k, h in enumerate(half)]
            if not variables.centered:
                middle = [ZERO if (i, k) in numbers else m for k, m in enumerate(middle)]
            values.append(own.scaled(half if variables.centered else [ONE] * node.size) + values[node.source].scaled(middle))
            equations = _stacked(equations, values[node.source], variables.places)
            lower += [-ONE if variables.centered else low[k] for k in variables.places]
            upper += [ONE if variables.centered else high[k] for k in variables.places]
    return Problem(len(inputs), equations, lower, upper, W @ values[-1], _slack(network, ranges, W, spread))


def _widened(node: Activation, ranges: Bounds, variables: Variables) -> Bounds:
    """The slope ranges, that of the whole space for a variable whose slope is known."""
    low, high = list(ranges[0]), list(ranges[1])
    for k in variables.places:
        if low[k] == high[k]:
            low[k], high[k] = slope_range(node.functions[k])
    return low, high


def _stacked(above: Matrix, values: Matrix, indices: Sequence[int]) -> Matrix:
    """`above` with the rows `indices` of `values` under it."""
    exponent = min(above.exponent, values.exponent)
    rows = [(row, above.exponent - exponent) for row in above.rows]
    rows += [(values.rows[k], values.exponent - exponent) for k in indices]
    return Matrix([{j: v << shift for j, v in row.items()} for row, shift in rows], above.width, exponent)


def _slack(network: Network, ranges: Ranges, W: Matrix, spread: Mapping[int, Vector]) -> Fraction:
    """The sum of h Y G over substituted neurons."""
    if not any(any(widths) for widths in spread.values()):
        return ZERO
    steepest = {i: largest_slopes(*bounds) for i, bounds in ranges.items()}
    sizes: list[Vector] = []
    for i, node in enumerate(network.nodes):
        total = [ONE if isinstance(node, Input) else ZERO] * node.size
        if isinstance(node, Affine):
            for source, matrix in node.inputs:
                total = _sum(total, abs(matrix).times(sizes[source]))
        elif isinstance(node, Activation):
            total = [s * y for s, y in zip(steepest[i], sizes[node.source], strict=True)]
        sizes.append(total)
    gradient = [[ZERO] * node.size for node in network.nodes]
    gradient[-1] = abs(W).transpose().times([ONE] * len(W.rows))
    slack = ZERO
    for i in range(len(network.nodes) - 1, 0, -1):
        node = network.nodes[i]
        if isinstance(node, Affine):
            for source, matrix in node.inputs:
                gradient[source] = _sum(gradient[source], abs(matrix).transpose().times(gradient[i]))
        elif isinstance(node, Activation):
            slack += sum(h * y * g for h, y, g in zip(spread[i], sizes[node.source], gradient[i], strict=True))
            through = [s * g for s, g in zip(steepest[i], gradient[i], strict=True)]
            gradient[node.source] = _sum(gradient[node.source], through)
    return slack


def largest_slopes(lower: Vector, upper: Vector) -> Vector:
    return [max(abs(low), abs(high)) for low, high in zip(lower, upper, strict=True)]
