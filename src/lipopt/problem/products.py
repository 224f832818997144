"""Products in the derivative problem: two squares with slopes that belong together become two neurons
with slopes that do not.

With u and v the inputs of the squares, what reads u^2 - v^2 reads x_1 + x_2 in their place, where

    x_1 = s_1 (y_u - y_v),    s_1 in the range of u + v
    x_2 = s_2 (y_u + y_v),    s_2 in the range of u - v
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..model.network import Network
from ..model.nodes import Activation
from ..model.products import Product
from ..numerics.arrays import Array, as_csr
from .derivative import Blocks, DerivativeProblem
from .intervals import Factors, Interval


def factored(
    network: Network,
    problem: DerivativeProblem,
    products: Sequence[Product],
    ranges: Factors,
    intervals: list[Interval],
) -> DerivativeProblem:
    """The derivative problem as the network stands, with factors in the place of squares.

    Factors lie in these ranges, and in what the intervals of the squares' inputs leave."""
    layers = list(problem.layers)
    place = {layer.node: k for k, layer in enumerate(layers)}
    negative = set()  # sources whose neurons count with the opposite sign
    for product in products:
        first = place[product.first]
        second = place[product.second]
        u = layers[first]
        v = layers[second]
        total, difference = narrowed(network, product, ranges, intervals)
        layers[first] = replace(
            u, blocks=_added(u.blocks, v.blocks, -1.0), lower=total[0], upper=total[1]
        )
        layers[second] = replace(
            v, blocks=_added(u.blocks, v.blocks, 1.0), lower=difference[0], upper=difference[1]
        )
        negative.add(second + 1)
    for k, layer in enumerate(layers):
        layers[k] = replace(layer, blocks=_with_signs(layer.blocks, negative))
    objective = _with_signs(problem.objective, negative)
    return replace(problem, layers=tuple(layers), objective=objective)


def slopes_of_factors(products: Sequence[Product], slopes: Mapping[int, Array]) -> dict[int, Array]:
    """The slopes of all activation nodes at a point, with factors in the place of squares."""
    found = dict(slopes)
    for product in products:
        # 2 u and 2 v are the slopes of the squares.
        found[product.first] = (slopes[product.first] + slopes[product.second]) / 2
        found[product.second] = (slopes[product.first] - slopes[product.second]) / 2
    return found


def narrowed(
    network: Network, product: Product, ranges: Factors, intervals: list[Interval]
) -> tuple[Interval, Interval]:
    """The ranges of u + v and u - v, cut by those of u and v."""
    low_u, high_u = intervals[_source(network, product.first)]
    low_v, high_v = intervals[_source(network, product.second)]
    total = _cut(ranges[product.first], low_u + low_v, high_u + high_v)
    difference = _cut(ranges[product.second], low_u - high_v, high_u - low_v)
    return total, difference


def _source(network: Network, i: int) -> int:
    node = network.nodes[i]
    assert isinstance(node, Activation)
    return node.source


def _cut(interval: Interval, low: Array, high: Array) -> Interval:
    """An interval without what is beyond these ends, which have one rounding."""
    lower = np.maximum(interval[0], np.nextafter(low, -np.inf))
    upper = np.minimum(interval[1], np.nextafter(high, np.inf))
    # Ends that are both proved may cross by a rounding.
    return np.minimum(lower, upper), np.maximum(lower, upper)


def _added(left: Blocks, right: Blocks, sign: float) -> Blocks:
    """left + sign right, without the blocks that cancel. No entry is rounded (model/products.py)."""
    blocks = {}
    for source in sorted({*left, *right}):
        if source not in right:
            blocks[source] = left[source]
        elif source not in left:
            blocks[source] = sign * right[source]
        else:
            total = as_csr(left[source]) + sign * as_csr(right[source])
            total.eliminate_zeros()
            if total.nnz:
                blocks[source] = total
    return blocks


def _with_signs(blocks: Blocks, negative: set[int]) -> Blocks:
    return {source: -block if source in negative else block for source, block in blocks.items()}
