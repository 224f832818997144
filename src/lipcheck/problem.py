"""From a network and a domain to slope ranges and the derivative problem of a part (section 3 of spec/certificate.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .exact import ONE, ZERO, Matrix, Vector, require, stack
from .functions import FINE, HUGE, Cell, cells, down, offset, slope_range, up
from .network import Activation, Affine, Input, Network

Bounds = tuple[Vector, Vector]  # lower and upper, one a neuron
Ranges = Mapping[int, Bounds]  # of slopes, by node
Variables = tuple[list[int], bool]  # the neurons of a node that are kept as variables, and whether they are centered
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
    space = [([-HUGE] * node.size, [HUGE] * node.size) for node in network.nodes]
    bounds = space if box is None else node_bounds(network, box, relaxations)
    activations = [(i, node) for i, node in enumerate(network.nodes) if isinstance(node, Activation)]
    return {i: _slopes(node, *bounds[node.source]) for i, node in activations}


def _slopes(node: Activation, low: Vector, high: Vector) -> Bounds:
    pairs = [slope_range(f, a, b) for f, a, b in zip(node.functions, low, high, strict=True)]
    return [low for low, _ in pairs], [high for _, high in pairs]


def node_bounds(network: Network, box: Bounds, relaxations: Relaxations) -> list[Bounds]:
    """Bounds on the values of every node over the box: interval propagation, cut by backward bounds if there are relaxations."""
    require(all(a <= b for a, b in zip(*box, strict=True)), "the box is empty")
    bounds: list[Bounds] = []
    lines: dict[int, tuple[Bounds, Bounds]] = {}  # slopes of lines below and above every neuron, and their offsets
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            bounds.append(box)
        elif isinstance(node, Affine):
            low = _sum(node.bias, *(matrix.times(*bounds[s]) for s, matrix in node.inputs))
            high = _sum(node.bias, *(matrix.times(*reversed(bounds[s])) for s, matrix in node.inputs))
            rows = _undecided(network, i, low, high) if relaxations else []
            lows = _backward(network, i, Matrix([{k: 1} for k in rows], node.size), lines, box)
            highs = _backward(network, i, Matrix([{k: -1} for k in rows], node.size), lines, box)
            for k, a, b in zip(rows, lows, highs, strict=True):
                low[k], high[k] = max(low[k], a), min(high[k], -b)
            bounds.append(([down(x, FINE) for x in low], [up(x, FINE) for x in high]))
        else:
            parts = [cells(f, lo, hi) for f, lo, hi in zip(node.functions, *bounds[node.source], strict=True)]
            flat = [ZERO] * node.size
            slopes = relaxations.get(i, (flat, flat))
            bounds.append(_offsets(parts, flat, flat))
            lines[i] = slopes, _offsets(parts, *slopes)
    return bounds


def _offsets(parts: Sequence[Sequence[Cell]], below: Vector, above: Vector) -> Bounds:
    """Of lines with these slopes below and above every neuron."""
    low = [-offset(p, k, -1) for p, k in zip(parts, below, strict=True)]
    return low, [offset(p, k, 1) for p, k in zip(parts, above, strict=True)]


def _undecided(network: Network, i: int, low: Vector, high: Vector) -> list[int]:
    """The entries of node i whose slope, in some activation that reads it, is not known from these bounds."""
    ranges = [_slopes(node, low, high) for node in network.nodes if isinstance(node, Activation) and node.source == i]
    return [k for k in range(len(low)) if any(lower[k] < upper[k] for lower, upper in ranges)]


def _backward(network: Network, i: int, start: Matrix, lines: Mapping[int, tuple[Bounds, Bounds]], box: Bounds) -> Vector:
    """Lower bounds on start @ (values of node i): coefficients of later nodes are replaced by those of earlier ones."""
    pending = {k: Matrix([{} for _ in start.rows], node.size) for k, node in enumerate(network.nodes[:i])} | {i: start}
    total = [ZERO] * len(start.rows)
    for k in range(i, 0, -1):
        rows, node = pending[k], network.nodes[k]
        if not any(rows.rows):
            continue
        if isinstance(node, Affine):
            total = _sum(total, rows.times(node.bias))
            for source, matrix in node.inputs:
                pending[source] += rows @ matrix
        elif isinstance(node, Activation):
            slopes, offsets = lines[k]
            total = _sum(total, rows.times(*offsets))
            pending[node.source] += rows.by_sign(*slopes)
    return _sum(total, pending[0].times(*box))


def _sum(*vectors: Vector) -> Vector:
    return [sum(values, ZERO) for values in zip(*vectors, strict=True)]


def build_problem(network: Network, ranges: Ranges, W: Matrix, inputs: list[int], kept: Mapping[int, Variables]) -> Problem:
    """Every node as a linear function of the variables; neurons that are not kept are substituted, which the slack pays for."""
    listed = [(0, j) for j in inputs] + [(i, k) for i, (places, _) in kept.items() for k in places]
    numbers = {place: number for number, place in enumerate(listed)}
    values: list[Matrix] = []
    equations, lower, upper = Matrix([], len(numbers)), list[Fraction](), list[Fraction]()
    spread: dict[int, Vector] = {}
    for i, node in enumerate(network.nodes):
        own = Matrix([{numbers[i, k]: 1} if (i, k) in numbers else {} for k in range(node.size)], len(numbers))
        if isinstance(node, Input):
            values.append(own)
        elif isinstance(node, Affine):
            values.append(sum((matrix @ values[source] for source, matrix in node.inputs), own))
        else:
            y = values[node.source]
            ends = list(zip(*ranges[i], strict=True))
            middle = [(low + high) / 2 for low, high in ends]  # x = middle y + factor z, and at most spread |y| is left out
            factor, spread[i] = [ZERO] * node.size, [(high - low) / 2 for low, high in ends]
            places, centered = kept.get(i, ([], False))
            for k in places:
                low, high = ends[k] if ends[k][0] < ends[k][1] else slope_range(node.functions[k])
                if centered:
                    middle[k], factor[k], low, high = (low + high) / 2, (high - low) / 2, -ONE, ONE
                else:
                    middle[k], factor[k] = ZERO, ONE
                spread[i][k] = ZERO
                lower.append(low)
                upper.append(high)
            equations = stack(equations, Matrix([y.rows[k] for k in places], y.width, y.exponent))
            values.append(own.scaled(factor) + y.scaled(middle))
    return Problem(len(inputs), equations, lower, upper, W @ values[-1], _slack(network, ranges, W, spread))


def _slack(network: Network, ranges: Ranges, W: Matrix, spread: Mapping[int, Vector]) -> Fraction:
    """The sum of h Y G over substituted neurons: errors pass through the network like sizes, Y, and each neuron adds h Y."""
    if not any(any(widths) for widths in spread.values()):
        return ZERO
    sizes, errors = [[ONE] * network.nodes[0].size], [[ZERO] * network.nodes[0].size]
    for i, node in enumerate(network.nodes):
        if isinstance(node, Affine):
            sources = [(s, abs(matrix)) for s, matrix in node.inputs]
            sizes.append(_sum([ZERO] * node.size, *(matrix.times(sizes[s]) for s, matrix in sources)))
            errors.append(_sum([ZERO] * node.size, *(matrix.times(errors[s]) for s, matrix in sources)))
        elif isinstance(node, Activation):
            steepest, y, e = largest_slopes(*ranges[i]), sizes[node.source], errors[node.source]
            sizes.append([s * a for s, a in zip(steepest, y, strict=True)])
            errors.append([s * b + h * a for s, a, b, h in zip(steepest, y, e, spread[i], strict=True)])
    return sum(abs(W).times(errors[-1]), ZERO)


def largest_slopes(lower: Vector, upper: Vector) -> Vector:
    return [max(abs(low), abs(high)) for low, high in zip(lower, upper, strict=True)]
