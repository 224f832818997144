"""The derivative problem of a part: the second half of section 3 of spec/certificate.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from .exact import ONE, ZERO, Matrix, Vector, shifted
from .formulas import Interval
from .functions import Function, slope_range
from .intervals import Slopes
from .network import Network, Node
from .squares import Product

Place = tuple[int, int]  # a node, and a neuron (or an input) of it


class Kept(NamedTuple):
    """The neurons of an activation node that a part lists as variables, and in which form."""

    neurons: list[int]
    centered: bool


@dataclass(frozen=True)
class Problem:
    """Maximize |C x|, x = (t, z), z_a = s_a A_a x, over |t| <= 1 and slopes s_a in their ranges.

    Rows of A and slopes that belong to inputs t are zero.
    """

    inputs: int
    A: Matrix
    slopes: list[Interval]
    C: Matrix


@dataclass(frozen=True)
class Variables:
    """Section 3, variables: their numbers, in the order inputs, listed neurons, others."""

    inputs: int  # how many are inputs
    listed: int  # how many are inputs or listed neurons: those that the certificate can name
    numbers: Mapping[Place, int]
    kept: Mapping[int, Kept]


class Substitution(NamedTuple):
    """x = middle y + factor z, z = s y, with s in a range of slopes."""

    middle: Fraction
    factor: Fraction
    slopes: Interval

    @property
    def steepest(self) -> Fraction:
        """The largest absolute slope of x, or more."""
        low, high = self.slopes
        return abs(self.middle) + abs(self.factor) * max(-low, high)


class FactorPlace(NamedTuple):
    """An activation node of a product: x = s (y_u + sign y_v), and readers read outer x."""

    u: int  # the affine nodes that both nodes of the product read
    v: int
    sign: int
    outer: int


FactorPlaces = Mapping[int, FactorPlace]  # by activation node


def factor_places(network: Network, products: Sequence[Product]) -> FactorPlaces:
    """Section 3, products: what the nodes of products compute in the derivative problem."""
    places = {}
    for first, second in products:
        u = network.activations[first].source
        v = network.activations[second].source
        places[first] = FactorPlace(u, v, -1, 1)
        places[second] = FactorPlace(u, v, 1, -1)
    return places


Substitutions = Mapping[int, list[Substitution]]  # for activation nodes, one a neuron
Errors = Mapping[int, Fraction]  # of the coefficients of activation nodes' inputs, relative


def build_problem(
    network: Network,
    ranges: Slopes,
    W: Matrix,
    inputs: list[int],
    kept: Mapping[int, Kept],
    scale: Vector | None = None,
    places: FactorPlaces | None = None,
) -> tuple[Problem, Fraction]:
    """Section 3: the problem that the rules see, in the listed variables, and the slack.

    With a scale, inputs are x = scale t."""
    places = places or {}
    variables = _number_variables(ranges, inputs, kept)
    chosen = {}
    for i, node in network.activations.items():
        chosen[i] = _substitutions(i, node, ranges[i], variables)
    whole, errors = _substitute(network, chosen, W, variables, scale, places)
    listed = variables.listed
    A = whole.A.first(listed, listed)
    C = whole.C.first(len(W.rows), listed)
    part = Problem(whole.inputs, A, whole.slopes[:listed], C)
    slack = ZERO
    if listed < len(variables.numbers):
        slack += _slack(whole, part)
    if any(errors.values()):
        slack += rounding_slack(network, chosen, W, inputs, scale, errors, places)
    return part, slack


def _number_variables(ranges: Slopes, inputs: list[int], kept: Mapping[int, Kept]) -> Variables:
    """Section 3, variables: inputs, listed neurons, and neurons that are not listed but whose slope
    is not known. The last ones have numbers here alone; no functional or set names them."""
    places = [(0, j) for j in inputs]
    for i, (neurons, _) in kept.items():
        places.extend((i, k) for k in neurons)
    numbers = {place: number for number, place in enumerate(places)}
    for i, intervals in ranges.items():
        for k, (low, high) in enumerate(intervals):
            if low < high and (i, k) not in numbers:
                numbers[i, k] = len(numbers)
    return Variables(len(inputs), len(places), numbers, kept)


def _substitute(
    network: Network,
    chosen: Substitutions,
    W: Matrix,
    variables: Variables,
    scale: Vector | None,
    places: FactorPlaces,
) -> tuple[Problem, Errors]:
    """Section 3: the problem in all variables, by substitution from the input to the output.

    Long coefficients of the inputs of neurons are rounded, by at most what is returned, relative.
    """
    count = len(variables.numbers)
    numbers: list[int] = []  # of the variables of activation nodes, as they come
    equations = []  # of these variables
    slopes = [(ZERO, ZERO)] * count
    values: list[Matrix] = []  # of every node: coefficients of the variables
    errors = {}
    for i, node in enumerate(network.nodes):
        value = _own_variables(i, node, variables.numbers)
        if i == 0 and scale is not None:
            value = value.scaled_rows(scale)
        if node.is_activation:
            y, errors[i] = _input(values, i, node, places).shortened()
            own = [k for k in range(node.size) if (i, k) in variables.numbers]
            equations.append(y.chosen_rows(own))
            for k in own:
                number = variables.numbers[i, k]
                numbers.append(number)
                slopes[number] = chosen[i][k].slopes
            middles = [substitution.middle for substitution in chosen[i]]
            factors = [substitution.factor for substitution in chosen[i]]
            value = value.scaled_rows(factors) + y.scaled_rows(middles)
            if i in places and places[i].outer < 0:
                value = -value
        else:
            for source, matrix in node.inputs:
                value += matrix @ values[source]
        values.append(value)
    stacked = Matrix.stack(equations, count)
    rows: list[dict[int, int]] = [{} for _ in range(count)]
    for number, row in zip(numbers, stacked.rows, strict=True):
        rows[number] = row
    A = Matrix(rows, count, stacked.exponent)
    return Problem(variables.inputs, A, slopes, W @ values[-1]), errors


def _input(values: Sequence[Matrix], i: int, node: Node, places: FactorPlaces) -> Matrix:
    """The input y of activation node i, by the values of earlier nodes."""
    if i not in places:
        return values[node.source]
    u, v, sign, _ = places[i]
    if sign > 0:
        return values[u] + values[v]
    return values[u] - values[v]


def _substitutions(
    i: int,
    node: Node,
    intervals: Sequence[Interval],
    variables: Variables,
) -> list[Substitution]:
    """Section 3, variables: what stands for the neurons of activation node i."""
    chosen = []
    centered = variables.kept[i].centered
    for k, function in enumerate(node.functions):
        number = variables.numbers.get((i, k))
        if number is not None and number < variables.listed:
            chosen.append(_listed_neuron(function, intervals[k], centered))
        else:
            # Also for neurons that are no variables: their range is a point, and the factor 0.
            chosen.append(_centered(intervals[k]))
    return chosen


def _listed_neuron(function: Function, slopes: Interval, centered: bool) -> Substitution:
    """Section 3, variables: a listed neuron, in the form that the part says.

    If its range is a point, the certificate may have been written without knowing that: it gets
    the range of the whole space, which is wider, so sound too.
    """
    low, high = slopes
    if low == high and function.is_piecewise_linear:
        slopes = slope_range(function)
    if centered:
        return _centered(slopes)
    return Substitution(ZERO, ONE, slopes)


def _centered(slopes: Interval) -> Substitution:
    """x = m y + h z, -1 <= s <= 1: the same slopes, m + h s."""
    low, high = slopes
    return Substitution((low + high) / 2, (high - low) / 2, (-ONE, ONE))


def _own_variables(i: int, node: Node, numbers: Mapping[Place, int]) -> Matrix:
    """The variables that belong to entries of node i; the other entries are zero."""
    matrix = Matrix.zero(node.size, len(numbers))
    for k, row in enumerate(matrix.rows):
        if (i, k) in numbers:
            row[numbers[i, k]] = 1
    return matrix


def _slack(whole: Problem, part: Problem) -> Fraction:
    """Section 3, slack: all paths of the whole problem that are not in that of the part.

    C x is a sum over paths, and what is left out of it cannot be larger than that.
    """
    left_out = path_sums(whole) - path_sums(part)
    return sum(left_out.row_sums(), ZERO)


def rounding_slack(
    network: Network,
    chosen: Substitutions,
    W: Matrix,
    inputs: list[int],
    scale: Vector | None,
    errors: Errors,
    places: FactorPlaces,
) -> Fraction:
    """Section 3, slack: what rounded coefficients change in all rows, at most.

    An input y of an activation is off by the error times the sum over all paths to it, and that is
    multiplied by at most the sum over all paths from it to the rows.
    """
    sizes = [[ZERO] * network.input_size]  # sums over all paths to the entries of all nodes
    for j in inputs:
        sizes[0][j] = ONE if scale is None else scale[j]
    losses: dict[int, Vector] = {}
    for i, node in enumerate(network.nodes[1:], start=1):
        size = [ZERO] * node.size
        if node.is_activation:
            own = [ZERO] * node.size
            for source in _sources(i, node, places):
                own = _added(own, sizes[source])
            losses[i] = [errors[i] * y for y in own]
            for k, substitution in enumerate(chosen[i]):
                size[k] = substitution.steepest * (own[k] + losses[i][k])
        else:
            for source, matrix in node.inputs:
                size = _added(size, abs(matrix).times(sizes[source]))
        sizes.append(size)
    return _paths_from(network, chosen, W, losses, places)


def _sources(i: int, node: Node, places: FactorPlaces) -> list[int]:
    """The nodes that activation node i reads in the derivative problem."""
    return [places[i].u, places[i].v] if i in places else [node.source]


def _paths_from(
    network: Network,
    chosen: Substitutions,
    W: Matrix,
    losses: Mapping[int, Vector],
    places: FactorPlaces,
) -> Fraction:
    """The sum over all paths to the rows from inputs of activations, times the loss there."""
    gains = [[ZERO] * node.size for node in network.nodes]
    gains[-1] = abs(W.transpose()).row_sums()
    slack = ZERO
    for i in range(len(network.nodes) - 1, 0, -1):
        node = network.nodes[i]
        if node.is_activation:
            steepest = [substitution.steepest for substitution in chosen[i]]
            gain = [a * b for a, b in zip(gains[i], steepest, strict=True)]
            slack += sum((a * b for a, b in zip(gain, losses[i], strict=True)), ZERO)
            for source in _sources(i, node, places):
                gains[source] = _added(gains[source], gain)
        else:
            for source, matrix in node.inputs:
                gain = abs(matrix.transpose()).times(gains[i])
                gains[source] = _added(gains[source], gain)
    return slack


def _added(left: Vector, right: Vector) -> Vector:
    return [a + b for a, b in zip(left, right, strict=True)]


def path_sums(problem: Problem) -> Matrix:
    """For all rows of C and all inputs, the sum over all paths from the input to the row of
    products of absolute coefficients and largest absolute slopes: at least any derivative."""
    steepest = [max(-low, high) for low, high in problem.slopes]
    step = Matrix.stack([abs(problem.A).scaled_rows(steepest)], problem.A.width)
    order = _last_to_first(step.rows)
    levels = [0] * step.width  # the longest path from a row of C
    for v in order:
        for j in step.rows[v]:
            levels[j] = max(levels[j], levels[v] + 1)
    depth = max(levels)
    unit = -step.exponent  # a step adds so many bits after the point
    exponent = problem.C.exponent - depth * unit
    totals = []
    for row in abs(problem.C).rows:
        sums = dict(shifted(row, depth * unit))
        for v in order:
            paths = sums.get(v, 0) >> unit  # no bit is lost, since a step is left
            for j, value in step.rows[v].items():
                sums[j] = sums.get(j, 0) + paths * value
        totals.append({j: value for j, value in sums.items() if j < problem.inputs})
    return Matrix(totals, problem.inputs, exponent)


def _last_to_first(rows: Sequence[Mapping[int, int]]) -> list[int]:
    """The variables, each after all that read it: row v is what variable v reads.

    Variables read earlier ones alone, so that all of them are reached."""
    readers = [0] * len(rows)
    for row in rows:
        for j in row:
            readers[j] += 1
    ready = [v for v, count in enumerate(readers) if count == 0]
    order = []
    while ready:
        v = ready.pop()
        order.append(v)
        for j in rows[v]:
            readers[j] -= 1
            if readers[j] == 0:
                ready.append(j)
    return order
