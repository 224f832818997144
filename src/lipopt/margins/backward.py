"""Lower bounds on many linear functions of nodes, each over a ball of its own, in one backward pass.

From the last node to the first, the values of an affine node are replaced by what they are in terms
of its sources, and every neuron by a line in its input: one below the activation where the
coefficient is positive, one above it where it is negative. What remains is a function of the
inputs, whose least value over a ball is known. Which lines, and which multiples of what is known of
a neuron's input are subtracted, is for the relaxation to say; every choice gives a bound.

Bounds are rounded down: a computed product is lowered by gamma(n) times the product of absolute
values, with the magnitude of each node taken from its interval. That holds for sums in any order, so
for BLAS and for torch on any device alike: arrays may be those of either, in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..model.network import Network
from ..model.nodes import Affine
from ..numerics.arrays import Array, Matrix, namespace
from ..numerics.rounding import TINY, gamma
from .balls import Balls


@dataclass(frozen=True, eq=False)
class Functions:
    """Linear functions of nodes, one a row, each over the ball of its owner."""

    rows: Mapping[int, Array]  # by node, the coefficients of its entries
    constant: Array
    owners: Array  # the number of the ball


@dataclass(frozen=True, eq=False)
class Sizes:
    """How large the values of nodes are in every ball, as far as rounding errors depend on it."""

    magnitude: list[Array]  # by node: the largest absolute value of each entry
    reach: list[Array]  # by node: the same with all terms of an affine node in absolute value
    dust: list[Array]  # by node: what coefficients that underflow can change, for each ball


@dataclass(frozen=True, eq=False)
class Lines:
    """For every row and neuron of an activation node, the line that takes its place.

    With forces, force * (y - end) is added, y the input of the neuron: at most 0, if the force is
    negative and y >= end, or positive and y <= end."""

    slopes: Array
    offsets: Array
    forces: Array | None = None
    ends: Array | None = None


class Relaxation(Protocol):
    """What chooses lines around neurons."""

    def lines(self, node: int, coefficients: Array) -> Lines:
        """The lines for rows in which the neurons of an activation node have these coefficients."""


@dataclass(frozen=True, eq=False)
class Bounded:
    """Lower bounds, and what they were found with."""

    bounds: Array  # (rows,)
    own: Array  # (rows, inputs): the coefficients of the inputs in the end
    met: dict[int, Array]  # by activation node: the coefficients of its neurons
    lines: dict[int, Lines]  # and the lines that took their place
    multipliers: Array | None  # (rows,): of balls that are cut with boxes

    def multiplier(self, row: int) -> float | None:
        """That of the ball of a row."""
        return None if self.multipliers is None else float(self.multipliers[row])


def lower_bounds(
    network: Network,
    balls: Balls,
    sizes: Sizes,
    functions: Functions,
    relaxation: Relaxation,
    *,
    is_simple: bool = False,
) -> Bounded:
    """Lower bounds on the functions, each over the ball of its owner.

    If it `is_simple`, balls that are cut with boxes have the simple division, as in the intervals of
    a certificate; otherwise the best."""
    owners = functions.owners
    rows = dict(functions.rows)
    constant = functions.constant + 0.0
    slack = 0 * constant
    met: dict[int, Array] = {}
    used: dict[int, Lines] = {}
    last = max(rows)
    for k in range(last, 0, -1):
        row = rows.pop(k, None)
        if row is None:
            continue
        node = network.nodes[k]
        error = gamma(node.size + last + 6)
        slack += sizes.dust[k][owners]
        if isinstance(node, Affine):
            constant += row @ node.bias
            slack += error * _dot(abs(row), sizes.reach[k][owners])
            for source, matrix in node.terms:
                _add(rows, source, times(row, matrix))
            continue
        source = node.sources[0]
        lines = relaxation.lines(k, row)
        met[k] = row
        used[k] = lines
        through = row * lines.slopes
        constant += _dot(row, lines.offsets)
        steepness = abs(through)
        offsets = _dot(abs(row), abs(lines.offsets))
        if lines.forces is not None and lines.ends is not None:
            through = through + lines.forces
            constant -= _dot(lines.forces, lines.ends)
            steepness += abs(lines.forces)
            offsets += _dot(abs(lines.forces), abs(lines.ends))
        slack += error * (_dot(steepness, sizes.magnitude[source][owners]) + offsets)
        _add(rows, source, through)
    own = rows.get(0)
    if own is None:
        own = 0 * balls.lower[owners]
    multipliers = None
    if is_simple:
        value = balls.least(own, owners)
    else:
        value, multipliers = balls.least_divided(own, owners)
    # The sums of constants and slacks are rounded too, a few terms each.
    rounding = gamma(6 * last + 8) * (abs(value) + abs(constant) + slack) * 1.01
    bounds = value + constant - slack - rounding - slack * 1e-3 - TINY
    return Bounded(bounds, own, met, used, multipliers)


def input_coefficients(network: Network, functions: Functions, relaxation: Relaxation) -> Array:
    """The coefficients of the inputs in the end, and no bounds."""
    rows = dict(functions.rows)
    for k in range(max(rows), 0, -1):
        row = rows.pop(k, None)
        if row is None:
            continue
        node = network.nodes[k]
        if isinstance(node, Affine):
            for source, matrix in node.terms:
                _add(rows, source, times(row, matrix))
        else:
            _add(rows, node.sources[0], row * relaxation.lines(k, row).slopes)
    return rows.get(0, np.zeros((len(functions.owners), network.input_size)))


def values_along(network: Network, x: Array, lines: Mapping[int, Lines]) -> list[Array]:
    """The values of all nodes where the input is x and every neuron is its line, a row for each x."""
    values = [x]
    for k, node in enumerate(network.nodes[1:], start=1):
        if isinstance(node, Affine):
            total = node.bias[None] + 0 * x[:, :1]
            for source, matrix in node.terms:
                total += (matrix @ values[source].T).T
            values.append(total)
        elif k in lines:
            values.append(lines[k].slopes * values[node.sources[0]] + lines[k].offsets)
        else:
            values.append(values[node.sources[0]])  # no function depends on it
    return values


def times(rows: Array, matrix: Matrix) -> Array:
    """rows @ matrix, where the matrix may be sparse."""
    return (matrix.T @ rows.T).T


def _add(rows: dict[int, Array], source: int, product: Array) -> None:
    rows[source] = rows[source] + product if source in rows else product


def _dot(left: Array, right: Array) -> Array:
    """The product of every row of one array with the same row of the other."""
    return namespace(left).einsum("rj,rj->r", left, right)
