"""The exact Lipschitz constant of a tiny piecewise linear network in a box: all of its linear regions, one by one.

A region is a set of inputs on which every activation stays on one of its pieces. Regions without an
interior do not count: the constant is the largest norm of a Jacobian at points where the network is
differentiable, and these are dense. Nothing here uses lipopt's own activations, intervals or norms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog, nnls

from lipopt.model.network import Network
from lipopt.model.nodes import Activation, Affine, Node
from lipopt.model.round_ball import RoundBall
from lipopt.numerics.arrays import Array

PIECEWISE_LINEAR = ("relu", "leaky_relu", "abs", "clip")
INTERIOR = 1e-8  # a region must hold a ball of this radius
TOLERANCE = 1e-10  # of the linear programs, the smallest that HiGHS takes
CONSTANT = 1e-12  # a form with smaller coefficients is constant


@dataclass(frozen=True)
class Piece:
    """slope y + offset, for y between start and end."""

    start: float
    end: float
    slope: float
    offset: float


@dataclass(frozen=True, eq=False)
class Form:
    """The values of a node as affine functions of the input: matrix x + bias."""

    matrix: Array
    bias: Array

    def at(self, x: Array) -> Array:
        return np.asarray(self.matrix @ x + self.bias)


@dataclass(frozen=True, eq=False)
class Region:
    """All x with rows x <= ends, a point inside of it, and what the nodes so far are there."""

    rows: Array
    ends: Array
    point: Array  # with a ball of radius INTERIOR around it
    forms: list[Form] = field(default_factory=list)

    def with_form(self, form: Form) -> Region:
        return replace(self, forms=[*self.forms, form])

    def cut(self, rows: Array, ends: Array) -> Region | None:
        """The part of the region where rows x <= ends too; None if it has no interior."""
        all_rows = np.concatenate([self.rows, rows])
        all_ends = np.concatenate([self.ends, ends])
        point: Array | None = self.point
        room = (ends - rows @ self.point) / np.linalg.norm(rows, axis=1)
        if (room < INTERIOR).any():
            point = inner_point(all_rows, all_ends)
        if point is None:
            return None
        return replace(self, rows=all_rows, ends=all_ends, point=point)


def exact_constant(
    network: Network,
    norm: str,
    rows: Array,
    lower: Array,
    upper: Array,
    ball: RoundBall | None = None,
) -> float:
    """The Lipschitz constant of rows @ network in the box, cut with a ball, in a norm on both sides."""
    largest = 0.0
    for region in linear_regions(network, lower, upper):
        if ball is None or distance(region, ball) < 1:
            jacobian = region.forms[-1].matrix
            largest = max(largest, operator_norm(np.asarray(rows) @ jacobian, norm))
    return largest


def distance(region: Region, ball: RoundBall) -> float:
    """The smallest |(x - center) / radii| over a region, in the norm of the ball."""
    rows = region.rows * ball.radii
    ends = region.ends - region.rows @ ball.center
    if ball.norm == "l2":
        # Lawson and Hanson, "Solving Least Squares Problems", chapter 23: least distance programming.
        n = rows.shape[1]
        stacked = np.concatenate([-rows.T, -ends[None]])
        solution, _ = nnls(stacked, np.append(np.zeros(n), 1.0))
        rest = stacked @ solution - np.append(np.zeros(n), 1.0)
        return float(np.linalg.norm(rest[:n] / rest[n]))
    n = rows.shape[1]
    both = np.concatenate(
        [rows, -rows], axis=1
    )  # differences are positive parts less negative ones
    return float(linprog(np.ones(2 * n), A_ub=both, b_ub=ends).fun)


def jacobians_in(network: Network, lower: Array, upper: Array) -> list[Array]:
    """The Jacobian on every linear region of the network that meets the inside of the box."""
    if not (lower < upper).all():
        raise ValueError("the box has no interior")
    return [region.forms[-1].matrix for region in linear_regions(network, lower, upper)]


def jacobian_at(network: Network, x: Array) -> Array:
    """The Jacobian at a point where the network is differentiable."""
    forms: list[Form] = []
    for node in network.nodes:
        if isinstance(node, Activation):
            form = forms[node.source]
            chosen = []
            for k, y in enumerate(form.at(x)):
                chosen.append(piece_at(pieces(node, k), float(y)))
            forms.append(activated(form, chosen))
        else:
            forms.append(affine_form(node, forms, len(x)))
    return forms[-1].matrix


def operator_norm(matrix: Array, norm: str) -> float:
    """The norm of a matrix, for the same norm on both sides."""
    orders = {"linf": np.inf, "l2": 2, "l1": 1}
    return float(np.linalg.norm(matrix, orders[norm]))


# ---- regions


def linear_regions(network: Network, lower: Array, upper: Array) -> list[Region]:
    """The linear regions of a network in a box; the last form of each is the network's output."""
    n = len(lower)
    sides = np.concatenate([np.eye(n), -np.eye(n)])
    ends = np.concatenate([upper, -lower])
    regions = [Region(sides, ends, (lower + upper) / 2)]
    for node in network.nodes:
        if isinstance(node, Activation):
            found = []
            for region in regions:
                found += split(region, node)
            regions = found
        else:
            regions = [r.with_form(affine_form(node, r.forms, n)) for r in regions]
    return regions


def affine_form(node: Node, forms: Sequence[Form], inputs: int) -> Form:
    """The form of the input, or of an affine node."""
    if not isinstance(node, Affine):
        return Form(np.eye(inputs), np.zeros(inputs))
    matrix = np.zeros((node.size, inputs))
    bias = node.bias.astype(np.float64)
    for source, weights in node.terms:
        dense = weights.toarray() if sp.issparse(weights) else np.asarray(weights)
        matrix = matrix + dense @ forms[source].matrix
        bias = bias + dense @ forms[source].bias
    return Form(matrix, bias)


def split(region: Region, node: Activation) -> list[Region]:
    """The parts of a region on which an activation is linear, with its form."""
    form = region.forms[node.source]
    parts: list[tuple[Region, list[Piece]]] = [(region, [])]
    for k in range(node.size):
        longer = []
        for part, chosen in parts:
            for piece, smaller in split_neuron(part, form, k, pieces(node, k)):
                longer.append((smaller, [*chosen, piece]))
        parts = longer
    return [part.with_form(activated(form, chosen)) for part, chosen in parts]


def split_neuron(
    region: Region, form: Form, k: int, choices: Sequence[Piece]
) -> list[tuple[Piece, Region]]:
    """The parts of a region on which one neuron is linear."""
    row = form.matrix[k]
    if np.abs(row).max() <= CONSTANT:
        return [(piece_at(choices, float(form.bias[k])), region)]
    low, high = range_in_box(region, row, float(form.bias[k]))
    found = []
    for piece in choices:
        if piece.end <= low or high <= piece.start:
            continue
        rows = np.array([row, -row])
        ends = np.array([piece.end - form.bias[k], form.bias[k] - piece.start])
        finite = np.isfinite(ends)
        smaller = region.cut(rows[finite], ends[finite])
        if smaller is not None:
            found.append((piece, smaller))
    return found


def range_in_box(region: Region, row: Array, bias: float) -> tuple[float, float]:
    """The smallest and the largest value of row x + bias in the box that a region is a part of."""
    n = len(row)
    upper = region.ends[:n]
    lower = -region.ends[n : 2 * n]
    low = np.where(row > 0, lower, upper) @ row + bias
    high = np.where(row > 0, upper, lower) @ row + bias
    return float(low), float(high)


def activated(form: Form, chosen: Sequence[Piece]) -> Form:
    """The form of an activation on the chosen pieces."""
    slopes = np.array([piece.slope for piece in chosen])
    offsets = np.array([piece.offset for piece in chosen])
    return Form(slopes[:, None] * form.matrix, slopes * form.bias + offsets)


def inner_point(rows: Array, ends: Array) -> Array | None:
    """The middle of the largest ball in {rows x <= ends}; None if it is too small to be one."""
    n = rows.shape[1]
    lengths = np.linalg.norm(rows, axis=1)
    scaled = np.column_stack([rows / lengths[:, None], np.ones(len(rows))])
    radius = np.append(np.zeros(n), -1.0)
    free = [(None, None)] * n
    solution = linprog(
        radius,
        A_ub=scaled,
        b_ub=ends / lengths,
        bounds=[*free, (0, None)],
        method="highs-ds",
        options={
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        },
    )
    if solution.status == 2:  # infeasible
        return None
    if solution.status != 0:
        raise RuntimeError(f"a linear program of {len(rows)} rows failed: {solution.message}")
    if solution.x[n] < INTERIOR:
        return None
    return np.asarray(solution.x[:n])


# ---- activations


def pieces(node: Activation, k: int) -> list[Piece]:
    """The pieces of neuron k of an activation, from left to right."""
    parameters = {}
    for name, value in node.parameters.items():
        parameters[name] = float(np.broadcast_to(value, node.size)[k])
    if node.kind == "clip":
        low = parameters["low"]
        high = parameters["high"]
        return [
            Piece(-np.inf, low, 0.0, low),
            Piece(low, high, 1.0, 0.0),
            Piece(high, np.inf, 0.0, high),
        ]
    left = {"relu": 0.0, "abs": -1.0, "leaky_relu": parameters.get("alpha")}
    if node.kind not in left:
        raise ValueError(f"activation '{node.kind}' is not piecewise linear")
    slope = left[node.kind]
    assert slope is not None
    return [Piece(-np.inf, 0.0, slope, 0.0), Piece(0.0, np.inf, 1.0, 0.0)]


def piece_at(choices: Sequence[Piece], y: float) -> Piece:
    """The piece that y lies on; the last one, between two."""
    found = choices[0]
    for piece in choices:
        if y >= piece.start:
            found = piece
    return found
