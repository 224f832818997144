"""What the checker may find differently: its intervals and slopes are exact, ours are rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from ..model import activations
from ..model.network import Network
from ..model.nodes import Activation, Affine
from ..model.products import Product
from ..numerics.arrays import Array
from ..numerics.rounding import gamma, terms
from ..problem.derivative import DerivativeProblem
from ..problem.intervals import Factors, Interval
from ..problem.presolve import path_sums
from ..problem.products import narrowed
from ..problem.task import Task
from .flat import Flat

CANCELLED = 2.0**-48  # a coefficient that floats find to be zero, relative to its terms
ENCLOSED = 2.0**-126  # what the two programs' slopes may differ by: some steps of their grid
ROUNDED = 2.0**-92  # what the checker may round coefficients by, relative, and some more

Doubts: TypeAlias = Mapping[int, Array]  # by activation node, one number for each neuron


def find_doubts(
    network: Network, intervals: list[Interval], products: Sequence[Product], factors: Factors
) -> Doubts:
    """By how much the checker's slopes may differ, relative to the half width of their range.

    The checker computes intervals without rounding, so its slope ranges lie inside ours, as far as
    the roundings of all layers add up to."""
    sizes = [np.maximum(np.abs(low), np.abs(high)) for low, high in intervals]
    errors: list[Array] = []  # by node: how far the ends of its interval may be apart
    doubts: dict[int, Array] = {}
    products_to = {product.last: product for product in products}
    for i, node in enumerate(network.nodes):
        if isinstance(node, Activation):
            error = errors[node.source]
            steepest, doubts[i] = _slope_doubt(node, intervals[node.source], error)
            rounding = activations.VALUE_PAD * node.function.rounding_size
            terms_of_lines = (1 + steepest) * (1 + sizes[i] + sizes[node.source])
            errors.append(steepest * error + rounding * terms_of_lines)
            if i in products_to:
                product = products_to[i]
                ranges = narrowed(network, product, factors, intervals)
                of_factors = _errors_of_factors(network, product, factors, errors, sizes)
                doubts.update(_factor_doubts(product, ranges, of_factors))
                of_product = _error_of_product(product, factors, of_factors)
                errors[product.first] = np.maximum(errors[product.first], of_product)
        elif isinstance(node, Affine):
            errors.append(_affine_error(node, sizes[i], errors, sizes))
        else:
            errors.append(np.zeros(node.size))
    return doubts


def _errors_of_factors(
    network: Network,
    product: Product,
    factors: Factors,
    errors: Sequence[Array],
    sizes: Sequence[Array],
) -> tuple[Array, Array]:
    """How far the ends of both factors of a product may be apart: by the errors of what they are made
    of, and by those of the squares' inputs, which cut them."""
    inputs = [network.nodes[i].sources[0] for i in (product.first, product.second)]
    others = sum(errors[i] + gamma(4) * sizes[i] for i in inputs)
    found = []
    for i, factor in ((product.first, product.total), (product.second, product.difference)):
        size = np.maximum(np.abs(factors[i][0]), np.abs(factors[i][1]))
        found.append(np.maximum(_affine_error(factor, size, errors, sizes), others))
    return found[0], found[1]


def _factor_doubts(
    product: Product, ranges: tuple[Interval, Interval], errors: tuple[Array, Array]
) -> Doubts:
    """The doubts of both factors of a product."""
    found = {}
    nodes = (product.first, product.second)
    for i, (low, high), error in zip(nodes, ranges, errors, strict=True):
        found[i] = _relative(2 * error + ENCLOSED, high - low)
    return found


def _error_of_product(product: Product, factors: Factors, errors: tuple[Array, Array]) -> Array:
    """How far the ends of a product may be apart."""
    total, difference = (
        np.maximum(np.abs(factors[i][0]), np.abs(factors[i][1]))
        for i in (product.first, product.second)
    )
    of_total, of_difference = errors
    moved = of_total * (difference + of_difference) + of_difference * total
    return moved + gamma(4) * total * difference


def _affine_error(
    node: Affine, size: Array, errors: Sequence[Array], sizes: Sequence[Array]
) -> Array:
    """How far the ends of an affine node's interval may be apart, by the errors of its sources."""
    error = gamma(8) * size
    for source, matrix in node.terms:
        own = errors[source] + gamma(terms(matrix) + 8) * sizes[source]
        error = error + abs(matrix) @ own
    return error


def _relative(change: Array, width: Array) -> Array:
    """A change of a slope range, relative to half its width; 1 at most, and for NaN."""
    is_open = width > 0
    relative = 2 * change / np.where(is_open, width, 1.0)
    return np.where(is_open, np.fmin(relative, 1.0), 0.0)


def enclosure_doubts(network: Network, problem: DerivativeProblem) -> Doubts:
    """The same for a cell, whose intervals have ends that both programs know: only enclosures of
    slopes differ, and nothing where slopes are constant."""
    doubts: dict[int, Array] = {}
    for layer in problem.layers:
        node = network.nodes[layer.node]
        assert isinstance(node, Activation)
        own = np.zeros(node.size)
        if not node.function.is_piecewise_linear:
            change = 1000 * activations.PAD * layer.steepest + ENCLOSED
            own[layer.neurons] = np.fmin(change / np.maximum(layer.half, ENCLOSED), 1.0)
        doubts[layer.node] = own
    return doubts


def _slope_doubt(node: Activation, interval: Interval, error: Array) -> tuple[Array, Array]:
    """The steepest slope of each neuron, and by how much its range may be another."""
    low, high = interval
    lower, upper = node.function.slope_range(low, high)
    widened = node.function.slope_range(low - error, high + error)
    steepest = np.maximum(np.abs(widened[0]), np.abs(widened[1]))
    moved = np.maximum(lower - widened[0], widened[1] - upper)
    change = moved + 100 * activations.PAD * steepest + ENCLOSED
    return steepest, _relative(change, upper - lower)


def slack_of(network: Network, task: Task, flat: Flat) -> float:
    """What the checker adds for neurons that are not listed, and for what it rounds differently.

    Neurons are not listed if they are substituted in `flat`, or if presolve dropped them because
    their paths cancel."""
    listed = {group.layer.node: group.variables for group in flat.groups}
    substituted = [np.where(group.mask, 0.0, group.layer.half) for group in flat.groups]
    others = []
    for layer in task.raw.layers:
        if not isinstance(network.nodes[layer.node], Activation):
            others.append(np.zeros(layer.size))
            continue
        unlisted = ~np.isin(layer.neurons, listed.get(layer.node, []))
        dropped = np.where(unlisted, CANCELLED * (layer.upper - layer.lower), 0.0)
        others.append(ENCLOSED + ROUNDED * layer.steepest + dropped)
    total = _paths_through(task.problem, substituted) + _paths_through(task.raw, others)
    return total * (1 + 1e-6)


def doubted_paths(problem: DerivativeProblem, doubts: Doubts) -> float:
    """By how much sums over paths may differ where the checker finds other ranges of slopes.

    Their middles may differ, and their widths."""
    spreads = []
    for layer in problem.layers:
        own = doubts.get(layer.node)
        doubt = np.zeros(layer.size) if own is None else own[layer.neurons]
        spreads.append(2 * doubt * layer.half)
    return _paths_through(problem, spreads)


def _paths_through(problem: DerivativeProblem, spreads: list[Array]) -> float:
    """By how much the sum over all paths grows if the slopes do, the last layer first."""
    grown = []
    for layer, spread in zip(problem.layers, spreads, strict=True):
        grown.append(replace(layer, upper=layer.steepest + spread))
    x, _ = path_sums(problem)
    _, gradient = path_sums(replace(problem, layers=tuple(grown)))
    total = 0.0
    for layer, spread, g in zip(problem.layers, spreads, gradient[1:], strict=True):
        y = np.zeros(layer.size)
        for source, matrix in layer.blocks.items():
            y = y + abs(matrix) @ x[source]
        total += float(spread * y @ g)
    return total
