"""Triangle inequalities among unit vectors: which are violated, and their sum as a function."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dsyrk

from ...numerics.arrays import Array
from ...problem.proofs import Triangles

# Violations that are too small for a triangle to be added.
MIN_VIOLATION = 1e-3
# Pairs times signs that are looked at in one search for violated triangles. Where there are more,
# some pairs are chosen at random.
MAX_WORK = 20_000_000
# Pairs that are looked at together.
CHUNK = 256
# The largest product in a triangle that is violated is at least this.
MIN_PRODUCT = 1 / 3


def violated_triangles(units: Array, count: int, random: np.random.Generator) -> Triangles:
    """Those of the most violated triangle inequalities among unit vectors, one for each of many pairs.

    Let p = i.j be the largest in absolute value of the three products of a triangle, and s its sign.
    The only inequality of the triangle that can be violated is the one with -s p, and then by

        |p| + |i.k - s j.k| - 1,

    so that |p| > 1/3. For every such pair (i, j), the k that is best is taken."""
    products = units @ units.T
    size = len(units)
    i, j = np.nonzero(np.triu(np.abs(products) > MIN_PRODUCT, 1))
    affordable = max(1, MAX_WORK // size)
    if len(i) > affordable:
        chosen = random.choice(len(i), affordable, replace=False)
        i = i[chosen]
        j = j[chosen]
    largest = products[i, j]
    sign = np.where(largest > 0, 1.0, -1.0)
    k = np.zeros(len(i), np.int64)
    for begin in range(0, len(i), CHUNK):
        part = slice(begin, begin + CHUNK)
        differences = products[i[part]] - sign[part, None] * products[j[part]]
        k[part] = np.abs(differences, out=differences).argmax(axis=1)
    difference = products[i, k] - sign * products[j, k]
    violations = np.abs(largest) + np.abs(difference) - 1
    of_ik = np.where(difference > 0, -1.0, 1.0)
    places = np.column_stack([i, j, k])
    opposite = np.column_stack([-sign * of_ik, of_ik, -sign])  # the coefficients of jk, ik and ij
    order = np.argsort(-violations, kind="stable")
    order = order[violations[order] > MIN_VIOLATION]
    found = _sorted(places[order], opposite[order])
    _, first = np.unique(found.places, axis=0, return_index=True)
    return found.chosen(np.sort(first)[:count])


def _sorted(places: Array, opposite: Array) -> Triangles:
    """Triangles with their places in order, of coefficients of the opposite pairs of each place."""
    order = np.argsort(places, axis=1)
    opposite = np.take_along_axis(opposite, order, axis=1)
    signs = opposite[:, [2, 1]]
    return Triangles(np.take_along_axis(places, order, axis=1), signs, np.zeros(len(places)))


def joined(old: Triangles, new: Triangles) -> Triangles:
    """Old triangles, and those of the new ones that are not among them."""
    both = np.column_stack([old.places, old.signs])
    more = np.column_stack([new.places, new.signs])
    _, first = np.unique(np.concatenate([both, more]), axis=0, return_index=True)
    added = new.chosen(first[first >= old.count] - old.count)
    return Triangles(
        np.concatenate([old.places, added.places]),
        np.concatenate([old.signs, added.signs]),
        np.concatenate([old.weights, added.weights]),
    )


class PairProducts:
    """Triangles as functions of the products of pairs that are in one of them."""

    def __init__(self, triangles: Triangles, signs: int) -> None:
        pairs, places = np.unique(triangles.entries(signs), return_inverse=True)
        rows, columns = np.divmod(pairs, signs)
        self.triangles = triangles
        self.signs = signs
        self.mirrored = columns * signs + rows  # in the lower half of a flat matrix
        self.columns = columns
        self.starts = np.searchsorted(rows, np.arange(signs + 1))
        ends = np.arange(0, 3 * triangles.count + 1, 3)
        shape = (triangles.count, len(pairs))
        self.of_pairs = sp.csr_array((triangles.coefficients.ravel(), places.ravel(), ends), shape)

    @staticmethod
    def none() -> PairProducts:
        return PairProducts(Triangles.none(), 1)

    def sums(self, units: Array) -> Array:
        """1 + q of every triangle."""
        gram = dsyrk(1.0, units.T, trans=1).T
        return np.asarray(1 + self.of_pairs @ gram.ravel()[self.mirrored])

    def gradient(self, units: Array, pulls: Array) -> Array:
        """The gradient of the sum of pulls times q."""
        weights = self.of_pairs.T @ pulls
        shape = (self.signs, self.signs)
        upper = sp.csr_array((weights, self.columns, self.starts), shape)
        return np.asarray(upper @ units + upper.T @ units)
