"""Krivine certificates of degree k (the paper's section 3): products, and what they prove.

    theta_k = min { lambda : lambda - p = sum_S sum_v c_Sv h_Sv,  c >= 0 }
    h_Sv = product of x_b for b in v, and of 1 - x_b for b in S - v

p is multilinear on [0,1]^n, so square-free products are enough: a set S of k variables has 2^k of
them, which add up to 1 and span all polynomials on S. The dual LP is over pseudo-moments: a
distribution on {0,1}^S for every S, such that two sets agree on the variables they share.

A bound is computed from the multipliers c >= 0 alone, whatever the solver did: with q = p + sum c
h,

    p <= q <= q_0 + sum_{m != 1} max(q_m, 0)       on [0,1]^n, in monomials of x

and the rounding errors of q are added: a sum of n numbers is off by at most gamma(n) times the sum
of their absolute values.

Functions on the sets are arrays of shape (2^k, sets), here called local. Bit b of the row number
says whether column b of the set belongs to v. The entries are coefficients of monomials, values at
vertices or multipliers of products; `to_vertices` and its neighbours go from one to another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ...errors import LipoptError
from ...numerics.arrays import Array
from ...numerics.rounding import gamma
from .polynomial import Polynomial
from .sparsity import set_keys, subset_keys


def to_vertices(local: Array) -> Array:
    """Coefficients of monomials to values at the vertices, in place: sums over all subsets."""
    for without_bit, with_bit in _halves(local):
        with_bit += without_bit
    return local


def to_monomials(local: Array) -> Array:
    """Multipliers of products to coefficients of monomials, in place. Inverse of `to_vertices`."""
    for without_bit, with_bit in _halves(local):
        with_bit -= without_bit
    return local


def to_distribution(local: Array) -> Array:
    """Moments to the distribution on the vertices that has them, in place."""
    for without_bit, with_bit in _halves(local):
        without_bit -= with_bit
    return local


def _halves(local: Array) -> Iterator[tuple[Array, Array]]:
    """For each bit, views of the entries without it, and of the same entries with it."""
    step = 1
    while step < len(local):
        view = local.reshape(len(local) // (2 * step), 2, step, -1)
        yield view[:, 0], view[:, 1]
        step *= 2


@dataclass(frozen=True, eq=False)
class Family:
    """Sets of up to k variables, and the monomials of all their subsets.

    index[v, S] is the number of the monomial with the columns v of sets[S], or -1 where v has a
    column that is not used (which holds -1 in `sets`)."""

    variables: int
    sets: Array
    keys: Array  # the key of every monomial, ascending; the constant comes first
    index: Array

    @staticmethod
    def of(sets: Array, variables: int) -> Family:
        keys = subset_keys(sets, variables)
        present = keys >= 0
        with_constant = np.append(keys[present], 0)
        monomials, number = np.unique(with_constant, return_inverse=True)
        index = np.full(keys.shape, -1)
        index[present] = number[:-1]
        return Family(variables, sets, monomials, index)

    @property
    def degree(self) -> int:
        return int(self.sets.shape[1])

    def find(self, keys: Array) -> Array:
        """The numbers of the monomials with these keys; -1 where the family has none."""
        number = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[number] == keys, number, -1)

    def coefficients(self, polynomial: Polynomial) -> Array:
        """The coefficients of a polynomial by monomial. All its monomials must be in the family."""
        whole = set_keys(polynomial.monomials, self.variables)
        number = self.find(whole)
        if (number < 0).any():
            raise LipoptError("a monomial lies in no set of the LP")
        return np.bincount(number, polynomial.coefficients, len(self.keys))

    def representatives(self) -> Array:
        """For every monomial, one place in the flattened index that holds it.

        The constant has -1 if there are no sets."""
        place = np.full(len(self.keys) + 1, -1)  # the last entry takes what the index leaves out
        flat = self.index.ravel()
        place[flat] = np.arange(len(flat))
        return place[:-1]

    def at_vertices(self, coefficients: Array) -> Array:
        """Local functions that add up to a polynomial, by their values at the vertices.

        Each monomial goes to one of the sets that contain it."""
        local = np.zeros(self.index.size)
        place = self.representatives()
        found = place >= 0
        local[place[found]] = coefficients[found]
        return to_vertices(local.reshape(self.index.shape))

    def matrix(self) -> sp.csr_array:
        """The monomials of the products: one row per product, one column per monomial.

        Rows are in the order of the flattened index; those of unused columns are empty."""
        signs: Array = np.ones((1, 1))
        for _ in range(self.degree):
            signs = np.kron(signs, [[1.0, -1.0], [0.0, 1.0]])
        v, monomial = np.nonzero(signs)
        rows = v[:, None] * len(self.sets) + np.arange(len(self.sets))
        columns = self.index[monomial]
        kept = (columns >= 0) & (self.index[v] >= 0)
        values = np.broadcast_to(signs[v, monomial][:, None], kept.shape)
        shape = (self.index.size, len(self.keys))
        return sp.csr_array((values[kept], (rows[kept], columns[kept])), shape)


@np.errstate(over="ignore")  # a bound that overflows is infinite
def certified_bound(family: Family, polynomial: Polynomial, multipliers: Array) -> float:
    """An upper bound on a polynomial over the cube, from multipliers >= 0 of the products.

    The multipliers are local, (2^k, sets)."""
    if not (multipliers >= 0).all() or not np.isfinite(multipliers).all():
        raise LipoptError("multipliers must be numbers >= 0")
    p = family.coefficients(polynomial)
    count = len(p)
    index = np.where(family.index < 0, count, family.index).ravel()

    def add_up(local: Array) -> Array:
        """The sums over all sets, by monomial; the last one, of unused columns, is dropped."""
        return np.bincount(index, local.ravel(), count + 1)[:-1]

    terms = np.bincount(index, minlength=count + 1)[:-1]
    q = p + add_up(to_monomials(multipliers.copy()))
    # Without the signs, the sum over subsets has the absolute values of the terms of q.
    size = np.abs(p) + add_up(to_vertices(multipliers.copy()))
    error = float((terms + family.degree + 2) @ size) * gamma(1) * 1.01
    if not (np.isfinite(q).all() and math.isfinite(error)):
        return math.inf
    bound = math.fsum([q[0], *np.maximum(q[1:], 0), error, polynomial.error])
    return float(np.nextafter(bound, math.inf))


def repeat_over_unused(family: Family, multipliers: Array) -> Array:
    """The same multipliers whether or not the bits of unused columns are set.

    The consensus solver treats these columns as variables; this way they have no effect."""
    bits = 2 ** np.arange(family.degree)
    used = (family.sets >= 0) @ bits
    source = np.arange(len(multipliers))[:, None] & used
    return multipliers[source, np.arange(len(family.sets))]


def move_multipliers(old: Family, new: Family, multipliers: Array) -> Array:
    """Multipliers over old sets as multipliers over new ones, of which one contains each old set.

    A product over a subset is the sum of those products over the whole set that agree with it
    there: every vertex of the new set takes the multiplier of its restriction to the old one."""
    moved = np.zeros(new.index.size)
    whole = set_keys(old.sets, old.variables)
    place = new.representatives()[new.find(whole)]
    columns, target = np.divmod(place, len(new.sets))
    unused = (old.sets < 0).sum(axis=1)
    old_sets = np.arange(len(whole))
    for v in range(len(new.index)):
        restricted = _restrict(v, columns, unused, new.degree)
        values = multipliers[restricted, old_sets]
        moved += np.bincount(v * len(new.sets) + target, values, len(moved))
    return moved.reshape(new.index.shape)


def _restrict(v: int, columns: Array, first: Array, degree: int) -> Array:
    """The bits of v that are set in `columns`, close together, from bit number `first` on."""
    bits = np.zeros(len(columns), np.int64)
    position = first.copy()
    for b in range(degree):
        inside = (columns >> b) & 1
        bits |= (inside * ((v >> b) & 1)) << position
        position += inside
    return bits
