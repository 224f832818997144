"""Products, which readers write as squares: x y = ((a x + y / a)^2 - (a x - y / a)^2) / 4.

Where two nodes of squares u^2 and v^2 are read as differences alone, what is read is

    u^2 - v^2 = (u + v) (u - v),        with the derivative  (u + v) (u' - v') + (u - v) (u' + v').

u + v and u - v are the factors, up to constants. They may lie anywhere in their ranges, as far as is known,
but the slopes 2 u and 2 v of the squares may not: that is what the derivative problem gains by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy.sparse as sp

from ..numerics.arrays import as_csr
from .network import Network
from .nodes import Activation, Affine

BIAS = -1  # in the place of a source


@dataclass(frozen=True, eq=False)
class Product:
    """Two activation nodes of squares that are read as differences alone, and the factors of these."""

    first: int
    second: int
    total: Affine  # the input of the first, plus that of the second
    difference: Affine  # the input of the first, less that of the second

    @property
    def last(self) -> int:
        """The later of both nodes."""
        return max(self.first, self.second)


def find_products(network: Network) -> tuple[Product, ...]:
    """All products of a network; a node of squares belongs to one at most."""
    found: list[Product] = []
    paired: set[int] = set()
    for first, second in _candidates(network):
        if paired.isdisjoint((first, second)) and _are_differences(network, first, second):
            product = _product(network, first, second)
            if product is not None:
                found.append(product)
                paired |= {first, second}
    return tuple(found)


def _candidates(network: Network) -> Iterator[tuple[int, int]]:
    """Nodes of squares of the same size that the same nodes read."""
    squares: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for i, node in network.activations.items():
        if _is_square(node):
            key = (node.size, tuple(network.consumers[i]))
            squares.setdefault(key, []).append(i)
    for alike in squares.values():
        yield from combinations(alike, 2)


def _is_square(node: Activation) -> bool:
    return node.kind == "power" and bool(np.all(np.asarray(node.parameters["exponent"]) == 2))


def _are_differences(network: Network, first: int, second: int) -> bool:
    """Whether all that reads the one reads the other with opposite weights."""
    readers = network.consumers[first]
    if not readers or second == len(network.nodes) - 1:
        return False
    for k in readers:
        reader = network.nodes[k]
        if not isinstance(reader, Affine):
            return False
        weights = dict(reader.terms)
        total = as_csr(weights[first]) + as_csr(weights[second])
        if total.count_nonzero():
            return False
    return True


def _product(network: Network, first: int, second: int) -> Product | None:
    """The product of two nodes, if its factors are computed before both, and without rounding."""
    sources = [network.nodes[i].sources[0] for i in (first, second)]
    u, v = (network.nodes[i] for i in sources)
    if not (isinstance(u, Affine) and isinstance(v, Affine)) or max(sources) > min(first, second):
        return None
    total = _combined(u, v, 1.0)
    difference = _combined(u, v, -1.0)
    if total is None or difference is None:
        return None
    return Product(first, second, total, difference)


def _combined(u: Affine, v: Affine, sign: float) -> Affine | None:
    """u + sign v; None if some entry of it would be rounded."""
    own = _columns(u)
    other = _columns(v)
    matrices: dict[int, sp.csr_array] = {}
    for source in sorted({*own, *other}):
        if source not in other:
            matrices[source] = own[source]
        elif source not in own:
            matrices[source] = sign * other[source]
        elif _is_sum_exact(own[source], other[source]):
            matrices[source] = own[source] + sign * other[source]
            matrices[source].eliminate_zeros()
        else:
            return None
    bias = matrices.pop(BIAS).toarray().reshape(-1)
    return Affine(u.name, tuple(matrices), tuple(matrices.values()), bias)


def _columns(node: Affine) -> dict[int, sp.csr_array]:
    """The matrices of an affine node by source, and its bias, in float64."""
    found = {BIAS: sp.csr_array(node.bias[:, None], dtype=np.float64)}
    for source, matrix in node.terms:
        found[source] = as_csr(matrix)
    return found


def _is_sum_exact(left: sp.csr_array, right: sp.csr_array) -> bool:
    """Whether sum and difference need no rounding: entries that are both not zero have one size."""
    both = left.astype(bool).multiply(right.astype(bool))
    return (abs(left) - abs(right)).multiply(both).count_nonzero() == 0
