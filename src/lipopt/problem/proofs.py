"""Proofs: what a method found that shows its bound to hold.

Each is data. For each there is a writer in `certificates`, which turns it into lines that lipcheck
verifies; a method whose bound has no such proof leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from ..model.norms import Norm
from ..numerics.arrays import Array
from ..numerics.rounding import gamma, up
from .derivative import DerivativeProblem


@dataclass(frozen=True)
class PathSums:
    """The sum of |products of weights and slopes| over all paths. The problem itself is the proof."""


@dataclass(frozen=True)
class LayerNorms:
    """The product of the norms of the layers."""


@dataclass(frozen=True, eq=False)
class KrivineTerms:
    """Multipliers >= 0 of products of x and 1 - x over small sets of variables.

    multipliers[S, v] belongs to the product of x over the columns of sets[S] whose bit is set in v,
    and of 1 - x over its other columns. Columns that hold -1 are left out; multipliers with such a
    bit are zero. Variables 0 to inputs - 1 are t = 2x - 1; then come the neurons of the presolved
    problem, layer by layer, s = l + (u - l) x; then, if it has several rows, their signs
    r = 2x - 1."""

    sets: Array
    multipliers: Array


@dataclass(frozen=True, eq=False)
class Multipliers:
    """mu, delta and tau (one array per layer) for which the dual matrix S is semidefinite.

    mu is a number that all rows share; or, if the norm on the outputs is l1, one for every row."""

    mu: float | Array
    delta: Array
    tau: list[Array]
    by_input: bool = False  # whether inputs are varied one at a time: the norm on them is l1

    @property
    def bounds(self) -> Array:
        """The sum of mu and of delta, rounded up; or the sum of mu, and delta of every input."""
        delta = self.delta if self.by_input else self.delta.sum(keepdims=True)
        return up(np.sum(self.mu) + delta, np.size(self.mu) + self.delta.size)


@dataclass(frozen=True)
class MatrixNorm:
    """The norm of the objective's matrix, in a problem without neurons."""

    value: float

    @property
    def multipliers(self) -> Multipliers:
        """Half of it as mu, and half as delta."""
        return Multipliers(self.value / 2, np.array([self.value / 2]), [])


@dataclass(frozen=True, eq=False)
class ByInput:
    """A proof for each input on its own; path sums are the proof for the inputs without one."""

    proofs: Mapping[int, Multipliers | KrivineTerms]


@dataclass(frozen=True, eq=False)
class Triangles:
    """Inequalities 1 + q >= 0 among signs, with multipliers >= 0.

    q = a p_i p_j + b p_i p_k + a b p_j p_k for the places i < j < k and the signs a and b."""

    places: Array  # (triangles, 3)
    signs: Array  # (triangles, 2): a and b
    weights: Array

    @staticmethod
    def none() -> Triangles:
        return Triangles(np.zeros((0, 3), np.int64), np.zeros((0, 2)), np.zeros(0))

    @property
    def count(self) -> int:
        return len(self.weights)

    @cached_property
    def coefficients(self) -> Array:
        """Of p_i p_j, p_i p_k and p_j p_k."""
        return np.column_stack([self.signs, self.signs[:, 0] * self.signs[:, 1]])

    def matrix(self, size: int, weights: Array, *, absolute: bool = False) -> Array:
        """The sum of weights times q as a symmetric matrix M, so that it is p.M p / 2.

        With `absolute`, the same sums of absolute values."""
        values = weights[:, None] * self.coefficients
        if absolute:
            values = np.abs(values)
        entries = self.entries(size).ravel()
        upper = np.bincount(entries, values.ravel(), minlength=size * size).reshape(size, size)
        return np.asarray(upper + upper.T)

    def entries(self, size: int) -> Array:
        """Where p_i p_j, p_i p_k and p_j p_k stand in a flat matrix of all products, (triangles, 3)."""
        rows, columns = self._pairs
        return rows * size + columns

    @cached_property
    def _pairs(self) -> tuple[Array, Array]:
        return self.places[:, [0, 0, 1]], self.places[:, [1, 2, 2]]

    def chosen(self, which: Array) -> Triangles:
        return Triangles(self.places[which], self.signs[which], self.weights[which])


Path: TypeAlias = tuple[tuple[int, int], ...]  # neurons, each with 1 or -1: an end of its slope


class Leaf(NamedTuple):
    """A path through neurons, and the number of the form that is 0 where their slopes follow it."""

    path: Path
    form: int


@dataclass(frozen=True, eq=False)
class Alternatives:
    """Trees of which one form is always 0 (methods/sdp/alternatives.py), with multipliers."""

    trees: tuple[tuple[Leaf, ...], ...]
    weights: tuple[Array, ...]  # N of every tree


@dataclass(frozen=True, eq=False)
class SignMultipliers:
    """Multipliers of the SDP with signs (methods/sdp/signs.py): of squares, equations, triangles.

    tau, alpha and beta are those of inner neurons, which others read, in the order of layers."""

    mu: float  # of w^2
    eta: Array  # of e^2, one a neuron
    delta: Array  # of t^2, one an input; or one for all
    tau: Array
    alpha: Array
    beta: Array
    triangles: Triangles
    alternatives: Alternatives

    @property
    def bound(self) -> float:
        """The sum of all that count, rounded up."""
        terms = [self.eta, self.delta, self.triangles.weights, np.array([self.mu])]
        every = np.concatenate(terms)
        size = float(np.abs(every).sum())
        return float(np.nextafter(every.sum() + gamma(len(every) + 2) * size, np.inf))


@dataclass(frozen=True, eq=False)
class OtherNorm:
    """A proof in another norm, in which the constant of one output is never smaller."""

    norm: Norm
    proof: Proof


@dataclass(frozen=True, eq=False)
class Cuts:
    """Better ends of the intervals of some neurons of one group, on one side, and their proofs.

    For a lower end: y - sum of weights * sign (y_c - value) over the constraints c of the cell,
    where every neuron before is replaced by a line with the given slope, is at least `ends` over
    the cell's box. For an upper end the same holds of -y and -ends."""

    is_upper: bool
    neurons: Array
    ends: Array
    weights: Array  # (cuts, constraints)
    slopes: Array  # (cuts, neurons): of lines, or of neurons that are linear in the cell
    multipliers: Array | None = None  # (cuts,): of the ball, if the domain is cut with one

    def only(self, chosen: Array) -> Cuts:
        """Some of the cuts."""
        return replace(
            self,
            neurons=self.neurons[chosen],
            ends=self.ends[chosen],
            weights=self.weights[chosen],
            slopes=self.slopes[chosen],
            multipliers=None if self.multipliers is None else self.multipliers[chosen],
        )


@dataclass(frozen=True)
class InputSplit:
    """An input is at most the value in the first child, and at least the value in the second."""

    place: int
    value: float


@dataclass(frozen=True)
class NeuronSplit:
    """The same for the input of a neuron."""

    neuron: int
    value: float


Split: TypeAlias = InputSplit | NeuronSplit


@dataclass(frozen=True, eq=False)
class Relaxed:
    """A cell's derivative problem, and a method's bound on it with its proof."""

    problem: DerivativeProblem
    value: float
    proof: Proof


@dataclass(eq=False)
class Branching:
    """A cell in the tree of a proof: what was proved in it, and how it ends.

    It is divided, or it is empty, or its derivative is bounded: by a relaxation if there is one, by
    its curvature if there are signs, otherwise by interval arithmetic."""

    cuts: tuple[Cuts, ...]
    fixed: Array  # neurons that are linear here, and were not known to be in the parent
    bound: float = float("inf")  # on the derivative, by what was proved in this cell itself
    is_empty: bool = False
    relaxed: Relaxed | None = None
    # (rows, inputs): the signs of entries of the Jacobian in the whole box, 0 where they are not used
    signs: Array | None = None
    split: Split | None = None  # None with one child: the same cell, looked at again
    children: list[Branching] = field(default_factory=list)

    def divide(self, split: Split | None, children: list[Branching]) -> None:
        """Let the cell end in children. Its own proof is kept where it is the better one."""
        if max(child.bound for child in children) < self.bound:
            self.relaxed = None
            self.signs = None
        self.split = split
        self.children = children

    def pruned(self) -> Branching:
        """The same cells, without children that prove less than the cell itself does."""
        cells = [self]
        for cell in cells:  # the list grows: parents come before their children
            cells.extend(cell.children)
        kept: dict[int, Branching] = {}
        for cell in reversed(cells):
            children = [kept[id(child)] for child in cell.children]
            of_children = max((child.bound for child in children), default=float("inf"))
            if of_children < cell.bound:
                divided = replace(cell, bound=of_children, relaxed=None, signs=None)
                kept[id(cell)] = replace(divided, children=children)
            else:
                kept[id(cell)] = replace(cell, split=None, children=[])
        return kept[id(self)]


@dataclass(frozen=True, eq=False)
class Tree:
    """A division of the domain into cells. Neurons are numbered in the order of nodes and places."""

    nodes: Array  # of every neuron, the activation node that it belongs to
    places: Array  # and its place in that node
    left_out: (
        Array  # (2, neurons): nodes and places of neurons that the objective does not depend on
    )
    root: Branching  # all neurons but these are linear over the whole domain


@dataclass(frozen=True, eq=False)
class MarginLeaf:
    """A cell in which a function of the outputs is bounded by lines.

    The function, less weights * sign (y - value) over the splits on the way to the cell, where
    every neuron is replaced by a line with the given slope, is positive over the whole ball."""

    slopes: Array  # (neurons of the network,)
    weights: Array  # (splits,)
    multiplier: float | None = None  # of the ball, if it is round and clipped


FindCuts: TypeAlias = Callable[[], tuple[Cuts, ...]]


@dataclass(frozen=True, eq=False)
class MarginEmpty:
    """A cell without points: an interval of a neuron is empty, or the ball has no point of its box."""


@dataclass(eq=False)
class MarginSplit:
    """A cell that is divided. Neurons are numbered over all activation nodes."""

    split: Split
    # Where inputs are split, what finds the better ends of intervals in either part.
    cuts: tuple[FindCuts, FindCuts] | None = None
    # Before a part is bounded, nothing is known of it.
    parts: list[MarginTree | None] = field(default_factory=lambda: [None, None])


MarginTree: TypeAlias = MarginLeaf | MarginEmpty | MarginSplit

Proof: TypeAlias = (
    PathSums
    | LayerNorms
    | MatrixNorm
    | KrivineTerms
    | Multipliers
    | SignMultipliers
    | ByInput
    | Tree
    | OtherNorm
)


def best_by_input(proofs: Sequence[Multipliers]) -> dict[int, Multipliers]:
    """For l1, the multipliers with the smallest bound for every input."""
    if not proofs:
        return {}
    best = np.argmin([proof.bounds for proof in proofs], axis=0)
    found = {}
    for j, k in enumerate(best):
        chosen = proofs[k]
        found[j] = replace(chosen, delta=chosen.delta[[j]])
    return found
