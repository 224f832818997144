"""Merging: neurons whose inputs are multiples of each other (section 3 of spec/certificate.md)."""

from dataclasses import replace
from fractions import Fraction

from .exact import ONE, ZERO, Matrix, shifted
from .functions import Function
from .lines import Lines
from .network import Network, Node
from .verdicts import REJECTED

HOMOGENEOUS = ("relu", "abs", "leaky_relu")  # linear on each side of 0

CONSTANT = -1  # in the place of a node, for the constant of a form
Form = dict[tuple[int, int], int]  # coefficients by node and entry


def read_merges(lines: Lines, network: Network) -> Network:
    """Section 2, `merge`: the network that the rest of the certificate is about."""
    places = list(range(len(network.nodes)))  # of the nodes of the file, in the merged network
    nodes = list(network.nodes)
    last = -1
    while lines.starts_with("merge"):
        number = lines.integer("merge")
        is_next = number > last and number in network.activations
        lines.require(is_next, "'merge' names activation nodes, in their order")
        last = number
        size = network.nodes[number].size
        neurons = lines.indices("neurons", size)
        others = lines.integers("into")
        gone = set(neurons)
        kept = [k for k in range(size) if k not in gone]
        fits = len(neurons) == len(others) and set(others) <= set(kept)
        lines.require(fits, "neurons are merged into others that are left, one for each")
        i = places[number]
        merged = _merge(lines, nodes, i, kept, dict(zip(neurons, others, strict=True)))
        nodes[i:] = [*merged, *(_moved(node, i) for node in nodes[i + 1 :])]
        places = [place if place < i else place + 2 for place in places]
    activations = {i: node for i, node in enumerate(nodes) if node.is_activation}
    return Network(nodes, activations, network.sha256)


def _moved(node: Node, i: int) -> Node:
    """A node after activation i, which became three nodes and is read from the last of them."""

    def place(source: int) -> int:
        return source if source < i else source + 2

    inputs = [(place(source), matrix) for source, matrix in node.inputs]
    return replace(node, inputs=inputs, source=place(node.source))


def _merge(
    lines: Lines, nodes: list[Node], i: int, kept: list[int], into: dict[int, int]
) -> list[Node]:
    """Section 3, merging: the inputs that are left, their activation, and all outputs."""
    node = nodes[i]
    column = {k: number for number, k in enumerate(kept)}
    outputs: list[dict[int, Fraction]] = [{} for _ in range(node.size)]
    linear: list[dict[int, Fraction]] = [{} for _ in range(node.size)]
    for k in kept:
        outputs[k][column[k]] = ONE
    forms = _input_forms(nodes, node.source, sorted({*into, *into.values()}))
    for a, b in into.items():
        function = node.functions[a]
        factor = _factor(forms[a], forms[b])
        has_formula = factor == 1 or (node.kind in HOMOGENEOUS and factor != 0)
        can_merge = has_formula and function is node.functions[b]
        lines.require(can_merge, f"neurons {a} and {b} of node {i} cannot be merged", REJECTED)
        outputs[a][column[b]] = abs(factor)
        if factor < 0:
            linear[a][column[b]] = factor * _sum_of_slopes(function)
    width = len(kept)
    choice = Matrix([{k: 1} for k in kept], node.size)
    functions = [node.functions[k] for k in kept]
    inputs = [(i + 1, Matrix.of(outputs, width))]
    if any(value for row in linear for value in row.values()):
        inputs.append((i, Matrix.of(linear, width)))
    return [
        Node("affine", width, [(node.source, choice)], [ZERO] * width),
        replace(node, size=width, source=i, functions=functions),
        Node("affine", node.size, inputs, [ZERO] * node.size),
    ]


def _sum_of_slopes(function: Function) -> Fraction:
    """The slopes on both sides of 0, added."""
    return sum((line.slope for line in function.lines), ZERO)


def _factor(a: Form, b: Form) -> Fraction:
    """c with a = c b, if its denominator is a power of two; 0 if there is none."""
    if a.keys() != b.keys() or not a:
        return ZERO
    place = next(iter(a))
    if any(a[k] * b[place] != b[k] * a[place] for k in a):
        return ZERO
    factor = Fraction(a[place], b[place])
    is_dyadic = factor.denominator & (factor.denominator - 1) == 0
    return factor if is_dyadic else ZERO


def _input_forms(nodes: list[Node], source: int, chosen: list[int]) -> dict[int, Form]:
    """Entries of a node as functions of inputs and of outputs of activations, up to one factor.

    From the last node to the first, an affine one is replaced by what it is computed from.
    """
    values = {source: Matrix([{k: 1} for k in chosen], nodes[source].size)}
    constants = Matrix.zero(len(chosen), 1)
    for i in range(source, 0, -1):
        node = nodes[i]
        if i not in values or node.is_activation:
            continue
        outer = values.pop(i)
        constants += outer @ Matrix.of([{0: value} for value in node.bias], 1)
        for k, matrix in node.inputs:
            product = outer @ matrix
            values[k] = values[k] + product if k in values else product
    values[CONSTANT] = constants
    exponent = min(value.exponent for value in values.values())
    forms: dict[int, Form] = {}
    for row, k in enumerate(chosen):
        form: Form = {}
        for i, value in values.items():
            entries = shifted(value.rows[row], value.exponent - exponent)
            form.update({(i, j): entry for j, entry in entries.items() if entry})
        forms[k] = form
    return forms
