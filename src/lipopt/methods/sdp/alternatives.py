"""Alternatives: linear forms one of which is 0 wherever slopes are ends of their ranges.

A maximum of several numbers is taken in rounds, max(a, b) = (a + b) / 2 + |(a - b) / 2|, and every
absolute value is a neuron with slopes in [-1, 1]. Each of its two ends says which number is the
larger one, and leads to a neuron of the round before, or to the number itself: a tree. Where the
slopes lead to a leaf,

    d = sum over the path of z_a - s_a y_a        s_a = u_a or l_a, as the path turns

is 0, and everywhere it is the maximum minus the number of that leaf. If this number is the ReLU of
something, the path goes on to its neuron, with two leaves in its place; where its slope is 0, d is
the maximum itself, whatever the path was. Forms that are equal count as one.

So one of the forms d_1, ..., d_k is 0, and d.N d >= 0 for every symmetric N whose principal
submatrices of order k - 1 are positive semidefinite. Such N are the multipliers of the alternatives.

That d of a leaf is 0 follows from its path alone, whatever its neurons mean: a tree that looks like
a maximum by chance has valid alternatives too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from ...numerics.arrays import Array
from ...numerics.semidefinite import is_positive_semidefinite
from ...problem.proofs import Alternatives, Leaf, Path

Trees: TypeAlias = tuple[tuple[Leaf, ...], ...]
Children: TypeAlias = dict[int, dict[int, int]]  # by neuron and end of its slope

# Neurons on a path, at most: a maximum of 16 numbers that are ReLUs, or of 32 others.
MAX_DEPTH = 5
# Forms whose coefficients are multiples of this were computed exactly, so that they can be equal.
EXACT = 1 / 64
# How far multipliers are moved into their cone, relative to the largest: far beyond all roundings.
MARGIN = 1e-12


class Neurons(NamedTuple):
    """All neurons, z_a = s_a y_a with y = A x and s between middle - half and middle + half."""

    A: Array
    middle: Array
    half: Array
    columns: Array  # the place of z_a in x, -1 where it has none


def are_maxima(middle: Array, half: Array) -> Array:
    """Whether slopes are those of the absolute values that maxima are made of."""
    return np.asarray((middle == 0) & (half == 1))


def find_trees(neurons: Neurons) -> Trees:
    """The leaves of every tree. One that is too deep goes on in others."""
    children = _children(neurons)
    inside = {child for ends in children.values() for child in ends.values()}
    roots = [a for a, ends in children.items() if ends and a not in inside]
    trees = []
    for root in roots:
        paths = list(_paths(root, children, (), MAX_DEPTH))
        for path in paths:
            last, end = path[-1]
            child = children[last].get(end)
            if child is not None and children[child] and child not in roots:
                roots.append(child)
        forms = np.array([path_form(path, neurons) for path in paths])
        numbers = _numbers(forms)
        if max(numbers) > 0:
            trees.append(tuple(map(Leaf, paths, numbers)))
    return tuple(trees)


def _children(neurons: Neurons) -> Children:
    """Neurons that look like maxima or ReLUs, and those that the ends of their slopes lead to.

    Half the difference of two maxima has half of the neuron of one, and minus half of the other's.
    The ReLU of a maximum has the whole of it."""
    A, middle, half, columns = neurons
    maxima = np.flatnonzero((columns >= 0) & are_maxima(middle, half))
    relus = np.flatnonzero((columns >= 0) & (middle == 0.5) & (half == 0.5))
    either = np.concatenate([maxima, relus])
    children: Children = {a: {} for a in either.tolist()}
    for a in maxima.tolist():
        for end in (1, -1):
            chosen = either[A[a, columns[either]] == end / 2]
            if len(chosen) == 1:
                children[a][end] = int(chosen[0])
    for a in relus.tolist():
        chosen = maxima[A[a, columns[maxima]] == 1]
        if len(chosen) == 1:
            children[a][1] = int(chosen[0])
    return children


def _paths(a: int, children: Children, path: Path, depth: int) -> Iterator[Path]:
    """The paths to all leaves below a neuron."""
    for end in (1, -1):
        longer = (*path, (a, end))
        child = children[a].get(end)
        if child is None or depth == 1:
            yield longer
        else:
            yield from _paths(child, children, longer, depth - 1)


def path_form(path: Path, neurons: Neurons, *, absolute: bool = False) -> Array:
    """The form d of a path, in x; with `absolute`, the sums of the absolute values of terms."""
    size = np.abs if absolute else np.asarray
    minus = 1.0 if absolute else -1.0
    A, middle, half, columns = neurons
    form = np.zeros(A.shape[1])
    for a, end in path:
        form += minus * size(middle[a] + end * half[a]) * size(A[a])
        form[columns[a]] += 1
    return form


def _numbers(forms: Array) -> list[int]:
    """Numbers for forms, the same one for those that are exactly equal."""
    numbers: dict[bytes | int, int] = {}
    found = []
    for k, form in enumerate(forms):
        multiples = form / EXACT
        is_exact = (multiples == np.rint(multiples)).all()
        key = (form + 0.0).tobytes() if is_exact else k  # -0 + 0 is 0
        found.append(numbers.setdefault(key, len(numbers)))
    return found


@dataclass(frozen=True, eq=False)
class AlternativeWeights:
    """Multipliers of the products of forms in the augmented Lagrangian, and its penalties."""

    scale: Array  # of the products of every tree
    penalty: Array  # on the squares of what is missing there; 0 for the Lagrangian itself
    N: Array  # by tree, form and form

    @staticmethod
    def none(forms: Forms) -> AlternativeWeights:
        trees = len(forms.sizes)
        return AlternativeWeights(
            np.ones(trees), np.zeros(trees), np.zeros((trees, forms.widest, forms.widest))
        )

    def updated(self, missing: Array) -> AlternativeWeights:
        """N, moved by what is missing."""
        return replace(self, N=self.N - self.penalty[:, None, None] * missing)

    def in_cones(self, sizes: list[int]) -> AlternativeWeights:
        """N moved into its cones, without penalties."""
        moved = np.zeros_like(self.N)
        for k, size in enumerate(sizes):
            moved[k, :size, :size] = moved_into_cone(self.N[k, :size, :size])
        return replace(self, penalty=0 * self.penalty, N=moved)

    def multipliers(self, trees: Trees, sizes: list[int]) -> Alternatives:
        """Those of the products as they are."""
        weights = []
        for N, scale, size in zip(self.N, self.scale, sizes, strict=True):
            weights.append(scale * N[:size, :size])
        return Alternatives(trees, tuple(weights))


class Added(NamedTuple):
    """What alternatives add to the augmented Lagrangian, and the gradient of that."""

    value: float
    of_x: Array
    of_parts: Array
    missing: Array  # the scaled products of alternatives, less those of their parts


class Forms:
    """The forms of all trees in x, and the shape of the parts of their products.

    Products of forms are a sum of parts, one for each form of a tree: part i has the products of
    vectors of which vector i is 0."""

    def __init__(self, trees: Trees, neurons: Neurons) -> None:
        self.sizes = [1 + max(leaf.form for leaf in tree) for tree in trees]
        self.rows = sp.csr_array(_rows(trees, neurons))
        self.absolute_rows = sp.csr_array(_rows(trees, neurons, absolute=True))
        self.columns = sp.csr_array(self.rows.T)
        self.widest = max(self.sizes, default=0)
        self.places = np.zeros((len(trees), self.widest), np.int64)
        first = 1
        for k, size in enumerate(self.sizes):
            self.places[k, :size] = np.arange(first, first + size)
            first += size
        is_real = self.places > 0
        both = is_real[:, :, None] & is_real[:, None, :]
        self.in_parts = (both & ~np.eye(self.widest, dtype=bool))[..., None]

    @property
    def parts_shape(self) -> tuple[int, int, int, int]:
        """Of the vectors of all parts: by tree, form, part and coordinate."""
        return len(self.sizes), self.widest, self.widest, max(self.widest - 1, 0)

    @property
    def roundings(self) -> int:
        """At most so many, one after the other, are behind an entry of the sum of all d.N d."""
        of_a_form = 3 * MAX_DEPTH
        return 2 * of_a_form + 2 * (self.widest + 1) + len(self.sizes)

    def vectors(self, x: Array) -> Array:
        """d of every tree: by tree, form and coordinate."""
        return np.asarray((self.rows @ x)[self.places])

    def _transposed(self, gradient: Array) -> Array:
        """From gradients in d to those in x."""
        rows = np.zeros((self.rows.shape[0], gradient.shape[-1]))
        rows[self.places.ravel()] = gradient.reshape(-1, gradient.shape[-1])
        rows[0] = 0.0
        return np.asarray(self.columns @ rows)

    def added(self, x: Array, parts: Array, weights: AlternativeWeights) -> Added:
        """N.(D D^T - P P^T) - penalty / 2 |D D^T - P P^T|^2 for the forms D and the parts P.

        For the Lagrangian itself, with N in its cone, the best P is 0."""
        scale = np.sqrt(weights.scale)[:, None, None]
        penalty = weights.penalty[:, None, None]
        D = scale * self.vectors(x)
        P = parts.reshape(*parts.shape[:2], prod(parts.shape[2:]))
        if not penalty.any():
            P = 0 * P
        missing = D @ D.mT - P @ P.mT
        pull = weights.N - penalty * missing
        value = float((weights.N * missing - penalty / 2 * missing**2).sum())
        of_x = self._transposed(2 * scale * (pull @ D))
        of_parts = -2 * (pull @ P).reshape(parts.shape) * self.in_parts
        return Added(value, of_x, of_parts, missing)

    def matrix(self, weights: tuple[Array, ...], *, absolute: bool = False) -> Array:
        """The sum of all d.N d, in x; with `absolute`, of the absolute values of terms."""
        rows = self.absolute_rows if absolute else self.rows
        total = np.zeros((rows.shape[1], rows.shape[1]))
        for N, places in zip(weights, self.places, strict=True):
            own = rows[places[: len(N)]]
            used = np.unique(own.indices)
            entries = own[:, used].toarray()
            size = np.abs(N) if absolute else N
            total[np.ix_(used, used)] += entries.T @ size @ entries
        return total


def _rows(trees: Trees, neurons: Neurons, *, absolute: bool = False) -> Array:
    """The forms of all trees in their order, after a row of zeros."""
    rows = [np.zeros(neurons.A.shape[1])]
    for tree in trees:
        paths = {leaf.form: leaf.path for leaf in tree}
        for number in sorted(paths):
            rows.append(path_form(paths[number], neurons, absolute=absolute))
    return np.array(rows)


def submatrices(N: Array) -> list[Array]:
    """The principal submatrices that one row and column less leaves."""
    every = np.arange(len(N))
    return [N[np.ix_(rest, rest)] for rest in (np.delete(every, i) for i in every)]


def moved_into_cone(N: Array) -> Array:
    """N with a larger diagonal, so that its submatrices are semidefinite."""
    least = min(float(np.linalg.eigvalsh(part)[0]) for part in submatrices(N))
    amount = max(0.0, -least) + MARGIN * np.abs(N).max()
    return np.asarray(N + amount * np.eye(len(N)))


def is_in_cone(N: Array) -> bool:
    """Whether all submatrices are proved semidefinite, or N is 0."""
    return not N.any() or all(is_positive_semidefinite(part) for part in submatrices(N))
