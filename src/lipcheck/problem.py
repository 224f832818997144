"""From a network and a claim to the derivative problem of each part (section 3 of spec/certificate.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .exact import Matrix, align, diagonal, multiply, power
from .failures import Malformed
from .functions import FINE, cells, down, offset_above, offset_below, slope_range, up
from .network import Activation, Affine, Input, Network
from .parse import Certificate, Functional, Part

ZERO = Fraction(0)
Vector = list[Fraction]
Bounds = tuple[Vector, Vector]  # lower and upper, one a neuron


@dataclass(frozen=True)
class Problem:
    """Maximize |C x|, x = (t, z), z_a = s_a y_a, y_a = A_a x, lower_a <= s_a <= upper_a; the slack is added to every bound."""

    inputs: int
    A: Matrix
    lower: Vector
    upper: Vector
    C: Matrix
    slack: Fraction

    @property
    def steepest(self) -> Vector:
        return [max(abs(low), abs(high)) for low, high in zip(self.lower, self.upper, strict=True)]


def output_rows(network: Network, outputs: Sequence[Functional]) -> Matrix:
    """W as a matrix."""
    size = network.nodes[-1].size
    if not outputs or any(i >= size for row in outputs for i in row):
        raise Malformed("the certificate's outputs are none, or not all of this network")
    integers, exponent = align([value for row in outputs for value in row.values()])
    values = iter(integers)
    return Matrix([{i: next(values) for i in row} for row in outputs], size, exponent)


def slope_ranges(network: Network, certificate: Certificate) -> dict[int, Bounds]:
    """What is known of the slopes of every activation node over the certificate's domain."""
    bounds = None if certificate.box is None else node_bounds(network, certificate)
    ranges = {}
    for i, node in enumerate(network.nodes):
        if isinstance(node, Activation):
            lows, highs = ([None] * node.size,) * 2 if bounds is None else bounds[node.source]
            pairs = [slope_range(f, lo, hi) for f, lo, hi in zip(node.functions, lows, highs, strict=True)]
            ranges[i] = [low for low, _ in pairs], [high for _, high in pairs]
    return ranges


def node_bounds(network: Network, certificate: Certificate) -> list[Bounds]:
    """Bounds on the values of every node over the box."""
    assert certificate.box is not None
    lower, upper = certificate.box
    if len(lower) != network.nodes[0].size or len(upper) != len(lower) or any(a > b for a, b in zip(lower, upper, strict=True)):
        raise Malformed("the box does not fit the network's input, or it is empty")
    if any(i >= len(network.nodes) or not isinstance(network.nodes[i], Activation) for i in certificate.relaxations):
        raise Malformed("a relaxation does not belong to an activation")
    backward = Backward(network, {})
    bounds: list[Bounds] = []
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            bounds.append((lower, upper))
        elif isinstance(node, Affine):
            low, high = _affine_bounds(node, bounds)
            if certificate.relaxations:
                low, high = _cut(low, high, *backward.bounds(i, _undecided(network, i, low, high), bounds[0]))
            bounds.append(([down(x, FINE) for x in low], [up(x, FINE) for x in high]))
        else:
            parts = [cells(f, lo, hi) for f, lo, hi in zip(node.functions, *bounds[node.source], strict=True)]
            zero = [ZERO] * node.size
            below, above = certificate.relaxations.get(i, (zero, zero))
            if len(below) != node.size or len(above) != node.size:
                raise Malformed(f"the relaxation of node {i} does not fit the network")
            backward.lines[i] = Lines(
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
    """The entries of node i whose slope in some activation that reads it is not known from its bounds."""
    readers = [node for node in network.nodes if isinstance(node, Activation) and node.source == i]
    ranges = [[slope_range(f, a, b) for f, a, b in zip(node.functions, low, high, strict=True)] for node in readers]
    return [k for k in range(len(low)) if any(pairs[k][0] < pairs[k][1] for pairs in ranges)]


def _cut(low: Vector, high: Vector, rows: list[int], lows: Vector, highs: Vector) -> Bounds:
    for k, a, b in zip(rows, lows, highs, strict=True):
        low[k], high[k] = max(low[k], a), min(high[k], b)
    return low, high


@dataclass(frozen=True)
class Lines:
    """k x + c below and above every neuron of an activation node, on its interval: (k, c) each."""

    below: tuple[Vector, Vector]
    above: tuple[Vector, Vector]


@dataclass(frozen=True)
class Backward:
    """Bounds on linear functions of a node, pushed back to the input."""

    network: Network
    lines: dict[int, Lines]

    def bounds(self, i: int, rows: list[int], box: Bounds) -> tuple[list[int], Vector, Vector]:
        """Bounds on the entries `rows` of node i."""
        width = self.network.nodes[i].size
        lows = self._lower(i, Matrix([{k: 1} for k in rows], width, 0), box)
        highs = self._lower(i, Matrix([{k: -1} for k in rows], width, 0), box)
        return rows, lows, [-x for x in highs]

    def _lower(self, i: int, start: Matrix, box: Bounds) -> Vector:
        """Lower bounds on start @ (values of node i): the coefficients of later nodes are replaced by those of earlier ones."""
        pending = {i: start}
        total = [ZERO] * len(start.rows)
        for k in range(i, 0, -1):
            if k not in pending:
                continue
            rows, node = pending.pop(k), self.network.nodes[k]
            if isinstance(node, Affine):
                total = _sum(total, rows.times(node.bias))
                earlier = {source: multiply(rows, m) for source, m in node.inputs}
            else:
                assert isinstance(node, Activation)
                positive, negative = _signs(rows)
                below, above = self.lines[k].below, self.lines[k].above
                total = _sum(_sum(total, positive.times(below[1])), negative.times(above[1]))
                earlier = {node.source: multiply(positive, diagonal(below[0])) + multiply(negative, diagonal(above[0]))}
            for source, matrix in earlier.items():
                pending[source] = pending[source] + matrix if source in pending else matrix
        if 0 in pending:
            positive, negative = _signs(pending[0])
            total = _sum(_sum(total, positive.times(box[0])), negative.times(box[1]))
        return total


def _sum(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def _signs(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """The positive and the negative entries."""
    positive = [{j: v for j, v in row.items() if v > 0} for row in matrix.rows]
    negative = [{j: v for j, v in row.items() if v < 0} for row in matrix.rows]
    return Matrix(positive, matrix.width, matrix.exponent), Matrix(negative, matrix.width, matrix.exponent)


@dataclass(frozen=True)
class Slopes:
    """How every neuron of a node enters: x = middle y + weight z, z its variable (if any); the slack pays for `spread`."""

    middle: Vector
    weight: Vector
    spread: Vector
    lower: Vector  # of the variables alone
    upper: Vector


def build_problem(network: Network, ranges: dict[int, Bounds], W: Matrix, part: Part) -> Problem:
    """The part's problem: neurons that are not listed are substituted by their middle slope, which the slack pays for."""
    numbers, inputs = _variable_numbers(network, part)
    width = len(numbers)
    kinds = {i: (centered, indices) for i, centered, indices in part.neurons}
    slopes: dict[int, Slopes] = {}
    values: list[Matrix] = []  # every node as a linear function of the variables
    equations = Matrix([], width, 0)
    for i, node in enumerate(network.nodes):
        variables = Matrix([{numbers[i, k]: 1} if (i, k) in numbers else {} for k in range(node.size)], width, 0)
        if isinstance(node, Input):
            values.append(variables)
        elif isinstance(node, Affine):
            values.append(sum((multiply(matrix, values[source]) for source, matrix in node.inputs), variables))
        else:
            centered, indices = kinds.get(i, (False, []))
            slopes[i] = _slopes(node, ranges[i], centered, set(indices))
            equations = _stacked(equations, values[node.source], indices)
            values.append(variables.scaled(slopes[i].weight) + values[node.source].scaled(slopes[i].middle))
    lower = [low for each in slopes.values() for low in each.lower]
    upper = [high for each in slopes.values() for high in each.upper]
    slack = _slack(network, ranges, W, {i: each.spread for i, each in slopes.items()})
    return Problem(inputs, equations, lower, upper, multiply(W, values[-1]), slack)


def _variable_numbers(network: Network, part: Part) -> tuple[dict[tuple[int, int], int], int]:
    """The number of every variable by node and place, and how many are inputs."""
    listed = [(0, part.inputs if part.inputs is not None else range(network.nodes[0].size))]
    listed += [(i, indices) for i, _, indices in part.neurons]
    for i, indices in listed:
        node = network.nodes[i] if i < len(network.nodes) else None
        if not isinstance(node, Activation if i else Input) or any(k >= node.size for k in indices):
            raise Malformed(f"variables of node {i} are not neurons of an activation, or not inputs")
    places = [(i, k) for i, indices in listed for k in indices]
    return {place: number for number, place in enumerate(places)}, len(listed[0][1])


def _slopes(node: Activation, ranges: Bounds, centered: bool, listed: set[int]) -> Slopes:
    slopes = Slopes([], [], [], [], [])
    for k, (low, high) in enumerate(zip(*ranges, strict=True)):
        if k in listed and low == high:
            low, high = slope_range(node.functions[k])
        middle, half = (low + high) / 2, (high - low) / 2
        plain = k in listed and not centered
        slopes.middle.append(ZERO if plain else middle)
        slopes.weight.append(Fraction(1) if plain else half if k in listed else ZERO)
        slopes.spread.append(ZERO if k in listed else half)
        if k in listed:
            slopes.lower.append(low if plain else Fraction(-1))
            slopes.upper.append(high if plain else Fraction(1))
    return slopes


def _stacked(above: Matrix, values: Matrix, indices: Sequence[int]) -> Matrix:
    """`above` with the rows `indices` of `values` under it."""
    exponent = min(above.exponent, values.exponent)
    rows = [(row, above.exponent - exponent) for row in above.rows]
    rows += [(values.rows[k], values.exponent - exponent) for k in indices]
    return Matrix([{j: v << shift for j, v in row.items()} for row, shift in rows], above.width, exponent)


def _slack(network: Network, ranges: dict[int, Bounds], W: Matrix, spread: dict[int, Vector]) -> Fraction:
    """The sum of h Y G over substituted neurons (section 3)."""
    if not any(any(widths) for widths in spread.values()):
        return ZERO
    steepest = {i: [max(abs(a), abs(b)) for a, b in zip(*bounds, strict=True)] for i, bounds in ranges.items()}
    sizes: list[Vector] = []
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            sizes.append([Fraction(1)] * node.size)
        elif isinstance(node, Affine):
            total = [ZERO] * node.size
            for source, matrix in node.inputs:
                total = _sum(total, abs(matrix).times(sizes[source]))
            sizes.append(total)
        else:
            sizes.append([s * y for s, y in zip(steepest[i], sizes[node.source], strict=True)])
    gradient = [[ZERO] * node.size for node in network.nodes]
    gradient[-1] = abs(W).transpose().times([Fraction(1)] * len(W.rows))
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
