"""Products: squares that are read as differences alone (section 3 of spec/certificate.md, products).

With u and v the inputs of two nodes of squares, u^2 - v^2 = (u + v) (u - v). What its derivative needs are
the ranges of both factors.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

from .exact import Matrix
from .formulas import Interval
from .lines import Lines
from .network import Network, Node
from .verdicts import REJECTED


class Product(NamedTuple):
    """Two activation nodes of squares."""

    first: int
    second: int


# By activation node: the ranges of u + v for the first node of a product, of u - v for the second.
Factors = Mapping[int, list[Interval]]


def read_products(lines: Lines, network: Network) -> list[Product]:
    """Section 2, `product`: the nodes that are paired, each of them once."""
    products: list[Product] = []
    paired: set[int] = set()
    while lines.starts_with("product"):
        numbers = lines.integers("product")
        fits = len(numbers) == len(set(numbers)) == 2 and paired.isdisjoint(numbers)
        lines.require(fits, "'product' names two activation nodes that are not named before")
        product = Product(*numbers)
        reason = f"nodes {product.first} and {product.second} are no squares that make products"
        lines.require(_is_product(network, product), reason, REJECTED)
        products.append(product)
        paired.update(numbers)
    return products


def _is_product(network: Network, product: Product) -> bool:
    """Section 3, products: squares of affine nodes before both, read as differences alone."""
    if len(network.nodes) - 1 in product or not _are_squares(network, product):
        return False
    for node in network.nodes:
        if node.is_activation and node.source in product:
            return False
        if not _reads_difference(network, node, product):
            return False
    return True


def _are_squares(network: Network, product: Product) -> bool:
    """Whether both nodes are squares of affine nodes before both, of the same size."""
    if not all(i in network.activations for i in product):
        return False
    first, second = (network.activations[i] for i in product)
    sources = [first.source, second.source]
    is_affine = all(network.nodes[i].kind == "affine" for i in sources)
    is_before = max(sources) < min(product)
    is_square = all(function.is_square for function in [*first.functions, *second.functions])
    return first.size == second.size and is_affine and is_before and is_square


def _reads_difference(network: Network, node: Node, product: Product) -> bool:
    """Whether an affine node has opposite matrices for both nodes, or none."""
    width = network.activations[product.first].size
    total = Matrix.zero(node.size, width)
    for source, matrix in node.inputs:
        if source in product:
            total += matrix
    return not any(any(row.values()) for row in total.rows)


def products_in(network: Network, node: Node) -> list[Product]:
    """Section 3, interval propagation: the squares that an affine node reads as differences."""
    squares = []
    for source in sorted(source for source, _ in node.inputs):
        own = network.activations.get(source)
        if own is not None and all(function.is_square for function in own.functions):
            squares.append(source)
    found: list[Product] = []
    paired: set[int] = set()
    for pair in combinations(squares, 2):
        product = Product(*pair)
        is_new = paired.isdisjoint(pair)
        if is_new and _are_squares(network, product) and _reads_difference(network, node, product):
            found.append(product)
            paired.update(pair)
    return found


def factor(network: Network, product: Product, sign: int) -> Node:
    """The affine node u + v, or u - v."""
    u, v = (network.nodes[network.activations[i].source] for i in product)
    inputs = dict(u.inputs)
    for source, matrix in v.inputs:
        signed = matrix if sign > 0 else -matrix
        inputs[source] = inputs[source] + signed if source in inputs else signed
    bias = [a + sign * b for a, b in zip(u.bias, v.bias, strict=True)]
    return Node("affine", u.size, list(inputs.items()), bias)


def narrowed(
    factors: Factors, products: Sequence[Product], inputs: Mapping[int, list[Interval]]
) -> Factors:
    """Section 3, products: the ranges of all factors, cut by those of u and v.

    `inputs` has the ranges of the inputs of activation nodes."""
    found: dict[int, list[Interval]] = {}
    for first, second in products:
        total = []
        difference = []
        rows = zip(inputs[first], inputs[second], factors[first], factors[second], strict=True)
        for (low_u, high_u), (low_v, high_v), sums, differences in rows:
            total.append(_cut(sums, low_u + low_v, high_u + high_v))
            difference.append(_cut(differences, low_u - high_v, high_u - low_v))
        found[first] = total
        found[second] = difference
    return found


def _cut(interval: Interval, least: Fraction, most: Fraction) -> Interval:
    """An interval, less what is beyond two ends; if nothing is left, all of it."""
    lower = max(interval[0], least)
    upper = min(interval[1], most)
    return (lower, upper) if lower <= upper else interval
