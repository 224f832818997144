"""From a network and a domain to slope ranges and the derivative problem of a part (section 3 of spec/certificate.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .exact import ONE, ZERO, Matrix, Vector, require
from .functions import HUGE, Point, offset, slope_range, up
from .network import Network, Node

Bounds = tuple[Vector, Vector]  # lower and upper, one a neuron
Slopes = Mapping[int, Bounds]  # by node: their ranges, or those of lines below and above
Variables = tuple[list[int], bool]  # the neurons of a node that are kept as variables, and whether they are centered


@dataclass(frozen=True)
class Problem:
    """Maximize |C x|, x = (t, z), z_a = s_a A_a x, lower_a <= s_a <= upper_a, with rows of zeros for the inputs t.

    The slack is added to every bound."""

    inputs: int
    A: Matrix
    lower: Vector
    upper: Vector
    C: Matrix
    slack: Fraction


def slope_ranges(network: Network, box: Bounds | None, relaxations: Slopes) -> Slopes:
    """What is known of the slopes of every activation node."""
    space = [([-HUGE] * node.size, [HUGE] * node.size) for node in network.nodes]
    bounds = space if box is None else node_bounds(network, box, relaxations)
    return {i: _slopes(node, *bounds[node.source]) for i, node in network.activations}


def _slopes(node: Node, low: Vector, high: Vector) -> Bounds:
    pairs = [slope_range(f, a, b) for f, a, b in zip(node.functions, low, high, strict=True)]
    return [low for low, _ in pairs], [high for _, high in pairs]


def node_bounds(network: Network, box: Bounds, relaxations: Slopes) -> list[Bounds]:
    """Bounds on the values of every node over the box: interval propagation, cut by backward bounds if there are relaxations."""
    require(all(a <= b for a, b in zip(*box, strict=True)), "the box is empty")
    bounds = [box]
    lines: dict[int, tuple[Bounds, Bounds]] = {}  # slopes of lines below and above every neuron, and their offsets
    for i, node in enumerate(network.nodes[1:], start=1):
        if node.functions:
            points = [f.points(a, b, f.cells) for f, a, b in zip(node.functions, *bounds[node.source], strict=True)]
            flat = [ZERO] * node.size, [ZERO] * node.size
            slopes = relaxations.get(i, flat)
            lines[i] = slopes, _offsets(points, *slopes)
            bounds.append(_offsets(points, *flat))
        else:
            low = _sum(node.bias, *(matrix.times(*bounds[s]) for s, matrix in node.inputs))
            high = _sum(node.bias, *(matrix.times(*reversed(bounds[s])) for s, matrix in node.inputs))
            ranges = [_slopes(reader, low, high) for _, reader in network.activations if relaxations and reader.source == i]
            rows = [k for k in range(node.size) if any(lower[k] < upper[k] for lower, upper in ranges)]  # others are known
            both = Matrix([{k: sign} for sign in (1, -1) for k in rows], node.size)
            found = _backward(network, i, both, lines, box)
            for k, a, b in zip(rows, found[: len(rows)], found[len(rows) :], strict=True):
                low[k], high[k] = max(low[k], a), min(high[k], -b)
            bounds.append(([-up(-x) for x in low], [up(x) for x in high]))
    return bounds


def _offsets(points: Sequence[Sequence[Point]], below: Vector, above: Vector) -> Bounds:
    """Of lines with these slopes below and above every neuron."""
    low = [-offset(p, k, -1) for p, k in zip(points, below, strict=True)]
    return low, [offset(p, k, 1) for p, k in zip(points, above, strict=True)]


def _backward(network: Network, i: int, start: Matrix, lines: Mapping[int, tuple[Bounds, Bounds]], box: Bounds) -> Vector:
    """Lower bounds on start @ (values of node i): coefficients of later nodes are replaced by those of earlier ones."""
    pending = {k: Matrix([{} for _ in start.rows], node.size) for k, node in enumerate(network.nodes[:i])} | {i: start}
    total = [ZERO] * len(start.rows)
    for k in range(i, 0, -1):
        rows, node = pending[k], network.nodes[k]
        if any(rows.rows) and node.functions:
            slopes, offsets = lines[k]
            total = _sum(total, rows.times(*offsets))
            pending[node.source] += rows.by_sign(*slopes)
        elif any(rows.rows):
            total = _sum(total, rows.times(node.bias))
            for source, matrix in node.inputs:
                pending[source] += rows @ matrix
    return _sum(total, pending[0].times(*box))


def _sum(*vectors: Sequence[Fraction]) -> Vector:
    return [sum(values, ZERO) for values in zip(*vectors, strict=True)]


def build_problem(network: Network, ranges: Slopes, W: Matrix, inputs: list[int], kept: Mapping[int, Variables]) -> Problem:
    """Every node as a linear function of the variables; neurons that are not kept are substituted, which the slack pays for."""
    listed = [(0, j) for j in inputs] + [(i, k) for i, (neurons, _) in kept.items() for k in neurons]
    numbers = {place: number for number, place in enumerate(listed)}
    values: list[Matrix] = []
    A, lower, upper = Matrix([{} for _ in numbers], len(numbers)), [ZERO] * len(numbers), [ZERO] * len(numbers)
    spread: dict[int, Vector] = {}
    for i, node in enumerate(network.nodes):
        own = Matrix([{numbers[i, k]: 1} if (i, k) in numbers else {} for k in range(node.size)], len(numbers))
        if not node.functions:
            values.append(sum((matrix @ values[source] for source, matrix in node.inputs), own))
            continue
        y, ends = values[node.source], list(zip(*ranges[i], strict=True))
        neurons, centered = kept[i]
        middle = [(low + high) / 2 for low, high in ends]  # x = middle y + factor z, and at most spread |y| is left out
        factor, spread[i] = [ZERO] * node.size, [(high - low) / 2 for low, high in ends]
        equations: list[dict[int, int]] = [{} for _ in numbers]
        for k in neurons:
            a = numbers[i, k]
            low, high = ends[k] if ends[k][0] < ends[k][1] else slope_range(node.functions[k])
            if centered:
                middle[k], factor[k], low, high = (low + high) / 2, (high - low) / 2, -ONE, ONE
            else:
                middle[k], factor[k] = ZERO, ONE
            spread[i][k], equations[a], lower[a], upper[a] = ZERO, y.rows[k], low, high
        A += Matrix(equations, y.width, y.exponent)
        values.append(own.scaled(factor) + y.scaled(middle))
    slopes = {i: largest_slopes(*ends) for i, ends in ranges.items()}
    slack = all_paths(network, W, {i: _sum(slopes[i], spread[i]) for i in slopes}) - all_paths(network, W, slopes)
    return Problem(len(inputs), A, lower, upper, W @ values[-1], slack)


def all_paths(network: Network, W: Matrix, slopes: Mapping[int, Vector]) -> Fraction:
    """The sum over all paths from inputs to rows of W of the product of absolute weights and these slopes."""
    sizes = [[ONE] * network.nodes[0].size]
    for i, node in enumerate(network.nodes[1:], start=1):
        if node.functions:
            sizes.append([s * y for s, y in zip(slopes[i], sizes[node.source], strict=True)])
        else:
            sizes.append(_sum([ZERO] * node.size, *(abs(matrix).times(sizes[s]) for s, matrix in node.inputs)))
    return sum(abs(W).times(sizes[-1]), ZERO)


def largest_slopes(lower: Vector, upper: Vector) -> Vector:
    return [max(abs(low), abs(high)) for low, high in zip(lower, upper, strict=True)]
