"""The derivative problem of a part: the second half of section 3 of spec/certificate.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from .exact import ONE, ZERO, Matrix, Vector
from .formulas import Interval
from .functions import Function, slope_range
from .intervals import Slopes
from .network import Network, Node

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


def build_problem(
    network: Network,
    ranges: Slopes,
    W: Matrix,
    inputs: list[int],
    kept: Mapping[int, Kept],
    scale: Vector | None = None,
) -> tuple[Problem, Fraction]:
    """Section 3: the problem that the rules see, in the listed variables, and the slack.

    With a scale, inputs are x = scale t."""
    variables = _number_variables(ranges, inputs, kept)
    whole = _substitute(network, ranges, W, variables, scale)
    listed = variables.listed
    A = whole.A.first(listed, listed)
    C = whole.C.first(len(W.rows), listed)
    part = Problem(whole.inputs, A, whole.slopes[:listed], C)
    if listed == len(variables.numbers):
        return part, ZERO
    return part, _slack(whole, part)


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
    network: Network, ranges: Slopes, W: Matrix, variables: Variables, scale: Vector | None
) -> Problem:
    """Section 3: the problem in all variables, by substitution from the input to the output."""
    count = len(variables.numbers)
    A = Matrix.zero(count, count)
    slopes = [(ZERO, ZERO)] * count
    values: list[Matrix] = []  # of every node: coefficients of the variables
    for i, node in enumerate(network.nodes):
        value = _own_variables(i, node, variables.numbers)
        if i == 0 and scale is not None:
            value = Matrix.diagonal(scale) @ value
        if node.is_activation:
            y = values[node.source]
            chosen = _substitutions(i, node, ranges[i], variables)
            equations: list[dict[int, int]] = [{} for _ in range(count)]
            for k, substitution in enumerate(chosen):
                if (i, k) in variables.numbers:
                    number = variables.numbers[i, k]
                    equations[number] = y.rows[k]
                    slopes[number] = substitution.slopes
            A += Matrix(equations, count, y.exponent)
            middles = Matrix.diagonal([substitution.middle for substitution in chosen])
            factors = Matrix.diagonal([substitution.factor for substitution in chosen])
            value = factors @ value + middles @ y
        else:
            for source, matrix in node.inputs:
                value += matrix @ values[source]
        values.append(value)
    return Problem(variables.inputs, A, slopes, W @ values[-1])


class Substitution(NamedTuple):
    """x = middle y + factor z, z = s y, with s in a range of slopes."""

    middle: Fraction
    factor: Fraction
    slopes: Interval


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


def path_sums(problem: Problem) -> Matrix:
    """For all rows of C and all inputs, the sum over all paths from the input to the row of
    products of absolute coefficients and largest absolute slopes: at least any derivative.

    A step leads from a variable to earlier ones, so that no path is endless.
    """
    rows = len(problem.C.rows)
    steepest = [max(-low, high) for low, high in problem.slopes]
    step = Matrix.diagonal(steepest) @ abs(problem.A)
    total = Matrix.zero(rows, problem.inputs)
    paths = abs(problem.C)  # from each row back to a variable: by no step, then one more each time
    while any(paths.rows):
        total += paths.first(rows, problem.inputs)
        paths = paths @ step
    return total
