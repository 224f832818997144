"""Trees of cells, which version 2 has: sections 2 and 3 of spec/certificate.md.

A cell is a part of the domain. What is known of it is inherited by the cells that it is split into;
nothing that is inherited is changed in place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from .claim import Claim
from .curvature import patch_of
from .exact import Matrix, Vector, decimal_down
from .forms import Forms, InputRange, Ranges, fix, forms_of, lower_bounds, network_of
from .functions import HUGE
from .inputs import Ball, Bounds
from .intervals import Enclosure, factor_ranges
from .lines import Lines
from .network import Network
from .parts import Derivative, Subject, check_parts
from .problem import Place
from .rules import RULES
from .squares import Factors, Product, narrowed
from .verdicts import LIMITS_EXCEEDED, REJECTED, Failure, require

KINDS = ["neuron", "input", "same", "empty", "leaf"]  # of cells
RULES_OF_LEAVES = [name for name in RULES if name != "product"]


class Constraint(NamedTuple):
    """sign (y - end) >= 0, where y is the input of a neuron."""

    place: Place
    sign: int  # 1 for a lower end, -1 for an upper one
    end: Fraction


class Hints(NamedTuple):
    """What shows that a form is at least some number: one row each."""

    weights: Matrix  # a column for each constraint of the cell
    slopes: Matrix  # a column for each of its variables
    multiplier: Fraction | None = None  # of the ball


class Cut(NamedTuple):
    """A constraint that follows from others, and the hints that say how."""

    constraint: Constraint
    hints: Hints


@dataclass(frozen=True)
class Cell:
    """Section 3, cells: what is known of one."""

    box: Bounds | None  # None is the whole space
    ball: Ball | None  # that the box is cut with
    constraints: list[Constraint]  # those that the splits of neurons made, first to last
    forms: Forms
    ranges: Ranges  # of all variables, and all neurons with constraints


CheckLeaf = Callable[[Cell, int], None]  # what checks a leaf: the cell, and its number


def check_tree(lines: Lines, claim: Claim, domain: Cell, check: CheckLeaf) -> None:
    """Section 2, trees: the leaves are checked, and cover the domain.

    The cells that a cell is split into cover it, and nothing is claimed of an empty one.
    """
    number = 0
    waiting = [domain]
    while waiting:
        cell = waiting.pop()
        children = check_cell(lines, claim, cell, number, check)
        waiting.extend(reversed(children))
        number += 1


def check_slopes(lines: Lines, claim: Claim, enclosure: Enclosure | None) -> None:
    """Section 2, trees: the derivative is bounded by B in all leaves of a tree."""
    factors: Factors = {}
    if enclosure is not None:
        factors = factor_ranges(claim.network, claim.products, enclosure)
    domain = whole_domain(claim, enclosure)
    check_tree(lines, claim, domain, partial(check_leaf, lines, claim, factors))


def check_leaf(lines: Lines, claim: Claim, factors: Factors, cell: Cell, number: int) -> None:
    """Section 2, trees: the parts of a leaf."""
    subject = leaf(claim.network, cell, number, claim.scale, claim.products, factors)
    check_parts(lines, claim, subject)


def check_values(lines: Lines, claim: Claim, enclosure: Enclosure | None) -> None:
    """Section 2, values: every row of W has a tree, and is at least B in all leaves of it."""
    domain = whole_domain(claim, enclosure)
    uncovered = set(range(len(claim.rows)))
    for _ in range(lines.count("trees")):
        rows = lines.indices("rows", len(claim.rows))
        lines.require(len(rows) > 0, "a tree has no rows", REJECTED)
        check_tree(lines, claim, domain, partial(check_least, lines, claim, rows))
        uncovered -= set(rows)
    require(not uncovered, "the trees do not cover the rows", REJECTED)


def check_least(lines: Lines, claim: Claim, rows: list[int], cell: Cell, number: int) -> None:
    """Section 2, values: a leaf of a tree for these rows."""
    if cell.box is None:
        raise Failure(REJECTED, "a claim on values is not about the whole space")
    hints = [read_hints(lines, cell) for _ in rows]
    outputs = cell.forms.outputs.chosen_rows(rows)
    for row, least in zip(rows, least_values(cell, cell.box, outputs, hints), strict=True):
        obtained = f"obtained {decimal_down(least)} for row {row} in cell {number}"
        reason = f"claimed {decimal_down(claim.bound)}, {obtained}"
        require(least >= claim.bound, reason, REJECTED)


def whole_domain(claim: Claim, enclosure: Enclosure | None) -> Cell:
    """Section 3, cells: the first one."""
    network = claim.network
    ranges = {}
    if enclosure is None:
        for i, node in network.activations.items():
            for k, function in enumerate(node.functions):
                ranges[i, k] = InputRange(function, -HUGE, HUGE)
    else:
        for i, node in network.activations.items():
            ends = zip(*enclosure.bounds[node.source], strict=True)
            for k, (lower, upper) in enumerate(ends):
                ranges[i, k] = InputRange(node.functions[k], lower, upper)
    W = Matrix.of(claim.rows, network.output_size)
    return Cell(claim.box, claim.ball, [], forms_of(network, W), ranges)


def check_cell(lines: Lines, claim: Claim, cell: Cell, number: int, check: CheckLeaf) -> list[Cell]:
    """Section 2, trees: one cell. The cells that it is split into are returned."""
    network = claim.network
    for _ in range(lines.count("cuts")):
        cell = cut(lines, network, cell)
    fixed = {}
    for i, node in network.activations.items():
        fixed[i] = lines.indices("fixed", node.size)
    kind = lines.word("cell", KINDS)
    if kind == "empty":
        is_empty = any(known.is_empty for known in cell.ranges.values())
        if cell.box is not None and cell.ball is not None:
            is_empty = is_empty or cell.ball.misses(cell.box)
        lines.require(is_empty, f"cell {number} is not shown to be empty", REJECTED)
        return []
    cell = without_fixed(lines, cell, fixed)
    if kind == "same":
        return [cell]
    if kind == "neuron":
        return split_neuron(lines, network, cell)
    if kind == "input":
        return split_input(lines, network, cell)
    check(cell, number)
    return []


# Cuts.


def cut(lines: Lines, network: Network, cell: Cell) -> Cell:
    """Section 3, cuts: a group of them, each proved from what is known before the group."""
    i = lines.integer("node")
    lines.require(i in network.activations, f"node {i} is not an activation")
    cuts = read_cuts(lines, network, cell, i, 1)
    cuts += read_cuts(lines, network, cell, i, -1)
    ranges = dict(cell.ranges)
    for ((place, sign, end), _), least in zip(cuts, least_ends(cell, cuts), strict=True):
        proved = least >= sign * end
        lines.require(proved, f"an end for {name(place)} is not proved", REJECTED)
        ranges[place] = ranges[place].cut(sign, end)
    return replace(cell, ranges=ranges)


def read_cuts(lines: Lines, network: Network, cell: Cell, i: int, sign: int) -> list[Cut]:
    """Section 2, cuts: lower ends (sign 1) or upper ends (sign -1) of node i, with their hints."""
    keyword = "lower" if sign > 0 else "upper"
    neurons = lines.indices(keyword, network.nodes[i].size)
    ends = lines.numbers("ends", len(neurons))
    cuts = []
    for k, end in zip(neurons, ends, strict=True):
        cuts.append(Cut(Constraint((i, k), sign, end), read_hints(lines, cell)))
    return cuts


def least_ends(cell: Cell, cuts: list[Cut]) -> Vector:
    """Section 3, cuts: lower bounds on sign y."""
    if cell.box is None:
        raise Failure(REJECTED, "there are no cuts over the whole space")
    rows = [signed(input_form(cell, place), sign) for (place, sign, _), _ in cuts]
    start = Matrix.stack(rows, cell.forms.columns.width)
    return least_values(cell, cell.box, start, [hints for _, hints in cuts])


def read_hints(lines: Lines, cell: Cell) -> Hints:
    """Section 2: the weights of constraints, the slopes of lines, the multiplier of a ball."""
    weights = lines.first_numbers("weights", len(cell.constraints), least=0)
    slopes = lines.first_numbers("slopes", cell.forms.count)
    multiplier = None
    if cell.ball is not None and lines.starts_with("ball"):
        multiplier = lines.number("ball", least=0)
    return Hints(weights, slopes, multiplier)


def least_values(cell: Cell, box: Bounds, rows: Matrix, hints: list[Hints]) -> Vector:
    """Section 3, cuts: lower bounds on forms, by the constraints of the cell and the hints."""
    forms = cell.forms
    weights = Matrix.stack([entry.weights for entry in hints], len(cell.constraints))
    slopes = Matrix.stack([entry.slopes for entry in hints], forms.count)
    # Constraints and weights are >= 0: what is bounded is at most the form itself.
    rest = rows - weights @ forms.constraints
    multipliers = [entry.multiplier for entry in hints]
    return lower_bounds(forms, cell.ranges, box, cell.ball, rest, slopes, multipliers)


def input_form(cell: Cell, place: Place) -> Matrix:
    """Section 3, cells: the form of the input y of a neuron, in one row."""
    i, k = place
    variables = cell.forms.variables[i]
    if k in variables:
        return cell.forms.inputs[i].chosen_rows([variables.index(k)])
    for number, (constrained, sign, end) in enumerate(cell.constraints):
        if constrained == place:
            row = cell.forms.constraints.chosen_rows([number])  # sign (y - end)
            return signed(row, sign) + constant(cell, end)
    raise Failure(REJECTED, f"{name(place)} is no variable of the cell, and was not split")


def signed(row: Matrix, sign: int) -> Matrix:
    """The row, or its negative."""
    if sign > 0:
        return row
    return -row


def constant(cell: Cell, value: Fraction) -> Matrix:
    """The form of a number, in one row."""
    columns = cell.forms.columns
    return Matrix.of([{columns.constant: value}], columns.width)


def name(place: Place) -> str:
    i, k = place
    return f"neuron {k} of node {i}"


# Fixed neurons, splits and leaves.


def without_fixed(lines: Lines, cell: Cell, fixed: dict[int, list[int]]) -> Cell:
    """Section 3, fixed: the cell with these neurons as variables no longer."""
    for i, neurons in fixed.items():
        variables = set(cell.forms.variables[i])
        for k in neurons:
            is_line = k in variables and cell.ranges[i, k].is_line
            reason = f"{name((i, k))} is no variable of the cell, or not linear in it"
            lines.require(is_line, reason, REJECTED)
    forms = fix(cell.forms, cell.ranges, fixed)
    return replace(cell, forms=forms)


def split_neuron(lines: Lines, network: Network, cell: Cell) -> list[Cell]:
    """Section 2, `cell neuron`: where y <= value, and where y >= value."""
    numbers = lines.integers("neuron")
    lines.require(len(numbers) == 2, "'neuron' is followed by a node and a neuron of it")
    i, k = numbers
    exists = i in network.activations and 0 <= k < network.nodes[i].size
    lines.require(exists, f"there is no {name((i, k))} with an activation")
    value = lines.number("value")
    # HUGE stands for infinity in ranges over the whole space.
    lines.require(abs(value) < HUGE, "a value is too large", LIMITS_EXCEEDED)
    row = input_form(cell, (i, k)) - constant(cell, value)
    children = []
    for sign in (-1, 1):
        constraint = Constraint((i, k), sign, value)
        rows = [cell.forms.constraints, signed(row, sign)]
        constraints = Matrix.stack(rows, row.width)
        forms = replace(cell.forms, constraints=constraints)
        ranges = dict(cell.ranges)
        ranges[i, k] = ranges[i, k].cut(sign, value)
        constraints_here = [*cell.constraints, constraint]
        children.append(replace(cell, constraints=constraints_here, forms=forms, ranges=ranges))
    return children


def split_input(lines: Lines, network: Network, cell: Cell) -> list[Cell]:
    """Section 2, `cell input`: where x_j <= value, and where x_j >= value."""
    j = lines.integer("input")
    lines.require(0 <= j < network.input_size, f"there is no input {j}")
    value = lines.number("value")
    if cell.box is None:
        raise Failure(REJECTED, "inputs are split in a box alone")
    lower, upper = cell.box
    lines.require(lower[j] <= value <= upper[j], "the value is not in the box", REJECTED)
    first = Bounds(lower, [*upper[:j], value, *upper[j + 1 :]])
    second = Bounds([*lower[:j], value, *lower[j + 1 :]], upper)
    return [replace(cell, box=first), replace(cell, box=second)]


def leaf(
    network: Network,
    cell: Cell,
    number: int,
    scale: Vector | None = None,
    products: Sequence[Product] = (),
    factors: Factors | None = None,
) -> Subject:
    """Section 3, cells: what the parts of a leaf bound. `factors` are those of the domain."""
    find_derivative = partial(derivative_in_cell, network, cell, products, factors or {})
    positions = {}
    for i, neurons in cell.forms.variables.items():
        positions[i] = {k: position for position, k in enumerate(neurons)}
    find_patch = None
    if cell.box is not None and cell.ball is None and not cell.constraints:
        find_patch = partial(patch_of, network, scale, cell.box, cell.forms, cell.ranges)
    where = f" of cell {number}"
    return Subject(find_derivative, positions, RULES_OF_LEAVES, where, find_patch)


def derivative_in_cell(
    network: Network, cell: Cell, products: Sequence[Product], factors: Factors
) -> Derivative:
    """Section 3, leaves: the derivative problem of the forms of a cell."""
    small, nodes, products_here = network_of(cell.forms, network, products)
    ranges = {}
    inputs = {}
    for i, neurons in cell.forms.variables.items():
        known = [cell.ranges[i, k] for k in neurons]
        ranges[nodes[i]] = [entry.slopes for entry in known]
        inputs[i] = [(entry.lower, entry.upper) for entry in known]
    # Squares are no lines: all neurons of products are variables.
    factors_here = {}
    for i, intervals in narrowed(factors, products, inputs).items():
        factors_here[nodes[i]] = intervals
    height = small.output_size
    W = Matrix([{row: 1} for row in range(height)], height)
    return Derivative(small, nodes, ranges, W, products_here, factors_here)
