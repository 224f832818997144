"""From a network and a domain to slope ranges and the derivative problem of a part (section 3 of spec/certificate.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .exact import ONE, ZERO, Matrix, Vector, require
from .functions import Interval, Point, offset, slope_range, up
from .network import Network

Bounds = tuple[Vector, Vector]  # lower and upper, one a neuron
Slopes = Mapping[int, list[Interval]]  # ranges of the slopes of every activation node, one a neuron
Kept = Mapping[int, tuple[list[int], bool]]  # the neurons of every activation node that are variables, and whether centered


@dataclass(frozen=True)
class Problem:
    """Maximize |C x|, x = (t, z), z_a = s_a A_a x, the slopes s_a in their ranges. Rows of A that belong to t are zero."""

    inputs: int
    A: Matrix
    slopes: list[Interval]
    C: Matrix


def slope_ranges(network: Network, box: Bounds | None, relaxations: Mapping[int, Bounds]) -> Slopes:
    """What is known of the slopes of every activation node."""
    if box is None:
        return {i: list(map(slope_range, node.functions)) for i, node in network.activations.items()}
    bounds = node_bounds(network, box, relaxations)
    return {i: list(map(slope_range, node.functions, *bounds[node.source])) for i, node in network.activations.items()}


def node_bounds(network: Network, box: Bounds, relaxations: Mapping[int, Bounds]) -> list[Bounds]:
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
            readers = [node for node in network.activations.values() if relaxations and node.source == i]
            ranges = [map(slope_range, reader.functions, low, high) for reader in readers]
            rows = [k for k, slopes in enumerate(zip(*ranges, strict=True)) if any(a < b for a, b in slopes)]  # or they are known
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


def build_problem(network: Network, ranges: Slopes, W: Matrix, inputs: list[int], kept: Kept) -> tuple[Problem, Fraction]:
    """The problem in the listed variables, and a slack: what paths through other neurons of unknown slope add to it at most."""
    listed = [(0, j) for j in inputs] + [(i, k) for i, (neurons, _) in kept.items() for k in neurons]
    unknown = [(i, k) for i, ends in ranges.items() for k, (low, high) in enumerate(ends) if low < high]
    numbers = {place: number for number, place in enumerate(dict.fromkeys(listed + unknown))}  # no place twice
    values: list[Matrix] = []
    A, slopes = Matrix([{} for _ in numbers], len(numbers)), [(ZERO, ZERO)] * len(numbers)
    for i, node in enumerate(network.nodes):
        own = Matrix([{numbers[i, k]: 1} if (i, k) in numbers else {} for k in range(node.size)], len(numbers))
        if not node.functions:
            values.append(sum((matrix @ values[source] for source, matrix in node.inputs), own))
            continue
        y, middle, factor = values[node.source], [(low + high) / 2 for low, high in ranges[i]], [ZERO] * node.size
        equations: list[dict[int, int]] = [{} for _ in numbers]
        for k, (low, high) in enumerate(ranges[i]):  # x = middle y + factor z
            if (i, k) in numbers:
                number = numbers[i, k]
                if low == high and node.functions[k].cells == 1:  # piecewise linear
                    low, high = slope_range(node.functions[k])
                if kept[i][1] or number >= len(listed):
                    middle[k], factor[k], low, high = (low + high) / 2, (high - low) / 2, -ONE, ONE
                else:
                    middle[k], factor[k] = ZERO, ONE
                equations[number], slopes[number] = y.rows[k], (low, high)
        A += Matrix(equations, y.width, y.exponent)
        values.append(Matrix.diagonal(factor) @ own + Matrix.diagonal(middle) @ y)
    whole, count = Problem(len(inputs), A, slopes, W @ values[-1]), len(listed)
    part = Problem(len(inputs), A.first(count, count), slopes[:count], whole.C.first(len(W.rows), count))
    left_out = path_sums(whole) - path_sums(part)
    return part, sum(left_out.times([ONE] * len(inputs)), ZERO)


def path_sums(problem: Problem) -> Matrix:
    """For all rows of C and inputs, the sum over all paths of products of absolute coefficients and largest absolute slopes."""
    rows, n = len(problem.C.rows), problem.inputs
    step = Matrix.diagonal([max(-low, high) for low, high in problem.slopes]) @ abs(problem.A)
    total, paths = Matrix([{} for _ in range(rows)], n), abs(problem.C)  # paths of one length, then of the next
    while any(paths.rows):
        total += paths.first(rows, n)
        paths = paths @ step
    return total
