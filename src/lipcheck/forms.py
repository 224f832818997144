"""Forms: the cells' variables in terms of each other (section 3 of spec/certificate.md, cells).

A form is a row of a matrix, over columns that are numbered as in Columns. It says what a number is
on the cell, exactly: the input of a neuron, or a row of W f.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from .exact import GRID, TWO, ZERO, Matrix, Vector, on_grid
from .formulas import Interval, Range
from .functions import Function, Hull, hull, largest_gap, slope_range
from .inputs import Ball, Bounds, least_divided
from .network import Network, Node
from .problem import Place
from .squares import Product


@dataclass(frozen=True)
class Columns:
    """What the columns of forms stand for: the inputs, the number 1, outputs of neurons."""

    inputs: int
    first: Mapping[int, int]  # for every activation node, the column of its first neuron
    width: int

    @staticmethod
    def of(network: Network) -> Columns:
        first = {}
        width = network.input_size + 1
        for i, node in network.activations.items():
            first[i] = width
            width += node.size
        return Columns(network.input_size, first, width)

    @property
    def constant(self) -> int:
        """The column of the number 1."""
        return self.inputs

    def neurons(self, i: int, neurons: Sequence[int]) -> list[int]:
        """The columns of these neurons of activation node i."""
        return [self.first[i] + k for k in neurons]


@dataclass(frozen=True)
class InputRange:
    """lower <= y <= upper for the input y of a neuron, and what follows."""

    function: Function
    lower: Fraction
    upper: Fraction
    is_empty: bool = False  # no y is possible: the ends are those before that was found

    @cached_property
    def slopes(self) -> Interval:
        return slope_range(self.function, self.lower, self.upper)

    @cached_property
    def on_grid(self) -> Range:
        """The ends, rounded outward."""
        return on_grid(self.lower, self.upper)

    @cached_property
    def hull(self) -> Hull:
        return hull(self.function, self.lower, self.upper)

    @property
    def is_line(self) -> bool:
        """Section 3, fixed: whether the function is a line between the ends."""
        low, high = self.slopes
        return low == high and self.function.is_piecewise_linear

    @property
    def offset(self) -> Fraction:
        """Of that line, exactly: what is piecewise linear is not rounded."""
        slope, _ = self.slopes
        return self.function.on_a_line(self.lower) - slope * self.lower

    def cut(self, sign: int, end: Fraction) -> InputRange:
        """Where also y >= end (sign 1), or y <= end (sign -1)."""
        lower = self.lower
        upper = self.upper
        if sign > 0:
            lower = max(lower, end)
        else:
            upper = min(upper, end)
        if self.is_empty or lower > upper:
            return InputRange(self.function, self.lower, self.upper, is_empty=True)
        return InputRange(self.function, lower, upper)


Ranges = Mapping[Place, InputRange]


@dataclass(frozen=True, eq=False)
class Forms:
    """Section 3, cells: the variables of a cell, and the forms that are known."""

    columns: Columns
    variables: dict[int, list[int]]  # neurons of every activation node, ascending
    inputs: Mapping[int, Matrix]  # of every activation node: a row for each of its variables
    constraints: Matrix  # a row for each constraint: what is >= 0
    outputs: Matrix  # the rows of W f

    @property
    def count(self) -> int:
        """How many variables there are."""
        return sum(len(neurons) for neurons in self.variables.values())


# The forms of the domain.


def forms_of(network: Network, W: Matrix) -> Forms:
    """Section 3, cells: the forms of the domain, where all activation neurons are variables."""
    columns = Columns.of(network)
    variables = {}
    inputs = {}
    for i, node in network.activations.items():
        variables[i] = list(range(node.size))
        identity = Matrix([{k: 1} for k in range(node.size)], node.size)
        inputs[i] = _form(network, columns, node.source, identity)
    outputs = _form(network, columns, len(network.nodes) - 1, W)
    constraints = Matrix.zero(0, columns.width)
    return Forms(columns, variables, inputs, constraints, outputs)


def _form(network: Network, columns: Columns, i: int, start: Matrix) -> Matrix:
    """`start` times the values of node i, in terms of the inputs and outputs of neurons.

    From node i to the first one, the values of affine nodes are replaced by what they are.
    """
    height = len(start.rows)
    total = Matrix.zero(height, columns.width)
    coefficients = {i: start}
    for k in range(i, -1, -1):
        if k not in coefficients:
            continue
        rows = coefficients.pop(k)
        node = network.nodes[k]
        if k == 0:
            total += _moved(rows, 0, columns.width)
        elif node.is_activation:
            total += _moved(rows, columns.first[k], columns.width)
        else:
            bias = [{columns.constant: value} for value in rows.times(node.bias)]
            total += Matrix.of(bias, columns.width)
            for source, matrix in node.inputs:
                before = coefficients.get(source, Matrix.zero(height, matrix.width))
                coefficients[source] = before + rows @ matrix
    return total.reduced()


def _moved(matrix: Matrix, first: int, width: int) -> Matrix:
    """The same columns, from number `first` on, in a wider matrix."""
    rows = []
    for row in matrix.rows:
        rows.append({first + j: value for j, value in row.items()})
    return Matrix(rows, width, matrix.exponent)


# Fixed neurons.


class FixedNeurons(NamedTuple):
    """Neurons of a node that are lines: their columns, and the forms of their outputs."""

    columns: list[int]
    outputs: Matrix


def fix(forms: Forms, ranges: Ranges, fixed: Mapping[int, list[int]]) -> Forms:
    """Section 3, fixed: these neurons are variables no longer. In their place there are lines."""
    lines = {}
    variables = dict(forms.variables)
    inputs = dict(forms.inputs)
    for i, neurons in fixed.items():
        if neurons:
            lines[i] = _fixed_neurons(forms, ranges, i, neurons)
            gone = set(neurons)
            variables[i] = [k for k in forms.variables[i] if k not in gone]
            rows = _positions(forms.variables[i], variables[i])
            inputs[i] = forms.inputs[i].chosen_rows(rows)
    if not lines:
        return forms
    for i, rows_of_node in inputs.items():
        inputs[i] = _substitute(rows_of_node, lines)
    constraints = _substitute(forms.constraints, lines)
    outputs = _substitute(forms.outputs, lines)
    return Forms(forms.columns, variables, inputs, constraints, outputs)


def _fixed_neurons(forms: Forms, ranges: Ranges, i: int, neurons: list[int]) -> FixedNeurons:
    """The outputs s y + c of neurons of node i that are lines."""
    slopes = []
    offsets = []
    for k in neurons:
        slope, _ = ranges[i, k].slopes
        slopes.append(slope)
        offsets.append({forms.columns.constant: ranges[i, k].offset})
    rows = _positions(forms.variables[i], neurons)
    outputs = forms.inputs[i].chosen_rows(rows).scaled_rows(slopes)
    outputs += Matrix.of(offsets, forms.columns.width)
    return FixedNeurons(forms.columns.neurons(i, neurons), outputs.reduced())


def _positions(variables: Sequence[int], chosen: Sequence[int]) -> list[int]:
    """Where the chosen neurons stand among the variables of their node."""
    positions = {k: position for position, k in enumerate(variables)}
    return [positions[k] for k in chosen]


def _substitute(rows: Matrix, lines: dict[int, FixedNeurons]) -> Matrix:
    """The same forms, with lines in place of the neurons.

    From the last node to the first: a line may contain neurons of earlier nodes that are lines.
    """
    for i in reversed(lines):
        columns, outputs = lines[i]
        taken, rest = rows.take(columns)
        if any(taken.rows):
            rows = (rest + taken.reduced() @ outputs).reduced()
    return rows


# Bounds.


def lower_bounds(
    forms: Forms,
    ranges: Ranges,
    box: Bounds,
    ball: Ball | None,
    rows: Matrix,
    slopes: Matrix,
    multipliers: Sequence[Fraction | None],
) -> Vector:
    """Section 3, cuts: a lower bound on each of these forms.

    From the last node to the first, variables are replaced by lines below or above them. In every
    row they have slopes of their own.
    """
    height = len(rows.rows)
    totals = [ZERO] * height
    end = forms.count
    for i in reversed(forms.variables):
        neurons = forms.variables[i]
        begin = end - len(neurons)
        taken, rest = rows.take(forms.columns.neurons(i, neurons))
        if any(taken.rows):
            hulls = [ranges[i, k].hull for k in neurons]
            slopes_here, _ = slopes.take(range(begin, end))
            totals = [a - b for a, b in zip(totals, _gaps(taken, hulls, slopes_here), strict=True)]
            rows = rest + _times(taken, slopes_here) @ forms.inputs[i]
        end = begin
    constants, _ = rows.take([forms.columns.constant])
    least = least_divided(rows.first(height, forms.columns.inputs), box, ball, multipliers)
    sums = zip(totals, constants.row_sums(), least, strict=True)
    return [a + b + c for a, b, c in sums]


def _gaps(coefficients: Matrix, hulls: Sequence[Hull], slopes: Matrix) -> Vector:
    """For every row, what is lost at most if lines with these slopes take the place of variables:
    lines below where the coefficient is positive, and above where it is negative."""
    denominator = 1 << -slopes.exponent
    unit = TWO**coefficients.exponent / (denominator * GRID)
    totals = []
    for row, slopes_of_row in zip(coefficients.rows, slopes.rows, strict=True):
        total = 0
        for position, coefficient in row.items():
            slope = slopes_of_row.get(position, 0)
            if coefficient > 0:
                gap = largest_gap(hulls[position].below, -slope, denominator)
                total += coefficient * gap
            else:
                gap = largest_gap(hulls[position].above, slope, denominator)
                total -= coefficient * gap
        totals.append(total * unit)
    return totals


def _times(left: Matrix, right: Matrix) -> Matrix:
    """The product of two matrices entry by entry."""
    rows = []
    for row, factors in zip(left.rows, right.rows, strict=True):
        product = {}
        for j, value in row.items():
            if j in factors:
                product[j] = value * factors[j]
        rows.append(product)
    return Matrix(rows, left.width, left.exponent + right.exponent)


# The network of a cell.


class SmallNetwork(NamedTuple):
    """The network of a cell, and its products."""

    network: Network
    nodes: dict[int, int]  # its activation nodes, by those of the file
    products: list[Product]


def network_of(forms: Forms, network: Network, products: Sequence[Product] = ()) -> SmallNetwork:
    """Section 3, cells: a network of the variables alone, whose outputs are the rows of W f.

    It has an affine node before every activation node; of a product, both are before its first
    node. Biases are left out, since derivatives do not depend on them.
    """
    nodes = [network.nodes[0]]
    columns = {0: list(range(forms.columns.inputs))}  # of nodes that others read
    activations = {}
    numbers: dict[int, int] = {}  # of activation nodes of the file, and
    inputs: dict[int, int] = {}  # of what they read
    for i, neurons in forms.variables.items():
        together = next((product for product in products if i in product), [i])
        for k in together:
            if k not in inputs:
                inputs[k] = len(nodes)
                nodes.append(_affine(forms.inputs[k], columns))
        functions = [network.nodes[i].functions[k] for k in neurons]
        numbers[i] = len(nodes)
        node = Node(network.nodes[i].kind, len(neurons), source=inputs[i], functions=functions)
        activations[len(nodes)] = node
        columns[len(nodes)] = forms.columns.neurons(i, neurons)
        nodes.append(node)
    nodes.append(_affine(forms.outputs, columns))
    small = [Product(numbers[first], numbers[second]) for first, second in products]
    return SmallNetwork(Network(nodes, activations, network.sha256), numbers, small)


def _affine(rows: Matrix, sources: Mapping[int, Sequence[int]]) -> Node:
    """An affine node whose values are these forms."""
    inputs = []
    for source, columns in sources.items():
        taken, rows = rows.take(columns)
        if any(taken.rows):
            inputs.append((source, taken.reduced()))
    return Node("affine", len(rows.rows), inputs)
