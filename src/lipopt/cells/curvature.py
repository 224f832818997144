"""Bounds on the derivative over many boxes at once, from its value at the middle and how it bends.

Let g be the gradient of a row of the objective, c the middle of a box and r its half widths. Along
the segment from c to a point x of the box, g changes by H (x - c), where H is a mean of second
derivatives in the box: entry by entry, by at most the sum of |H_jk| r_k over k. In l_inf the norm of
g is a sum of absolute values. Where the sign s_j of an entry is known in the box, all of these change
together, by at most the sum over k of |sum_j s_j H_jk| r_k. That is exact up to the square of the
box's width, where interval arithmetic on slopes is off by the width itself.

Second derivatives are sums over neurons b,

    H_jk = sum_b a_b sigma''(y_b) (dy_b / dx_j) (dy_b / dx_k),      a_b the derivative in b's output

with intervals for all factors: a_b from the last node to the first, derivatives of y_b from the first
to the last. This is the rule `curvature` of spec/certificate.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..numerics.arrays import Array
from ..numerics.rounding import up
from ..numerics.spread import Spread
from ..problem.derivative import DerivativeProblem
from .boxes import Boxes, most_change
from .cell import Cell, Points
from .examine import Examined
from .reduced import Reduced

MARGIN = 2.0**-30  # relative: signs are known by so much at least, so that a checker finds them too


def examine_boxes(reduced: Reduced, cells: Sequence[Cell]) -> list[Examined]:
    """Examine cells that are boxes, and parts of one domain."""
    if not cells:
        return []
    lower = np.array([cell.lower for cell in cells])
    upper = np.array([cell.upper for cell in cells])
    boxes = Boxes.of(reduced, (cells[0].low, cells[0].high), lower, upper)
    curved = _curved(reduced, boxes)
    return [_examined(reduced, cell, k, curved) for k, cell in enumerate(cells)]


def _examined(reduced: Reduced, cell: Cell, k: int, curved: _Curved) -> Examined:
    """What was found of one of the boxes."""
    nowhere = Points(cell.points.x[:, :0], cell.points.y[:, :0])
    middle = cell.lower / 2 + cell.upper / 2
    corner = np.clip(middle + curved.uphill[k] * (cell.upper - cell.lower), cell.lower, cell.upper)
    unknown = np.zeros(reduced.neurons)
    return Examined(
        cell=replace(cell, points=nowhere),
        bound=float(curved.values[k]),
        reach=unknown,
        forms=reduced.forms.rows,
        problem=_no_problem,
        slopes=(unknown, unknown),
        cuts=(),
        fixed=np.empty(0, int),
        candidates=np.stack([middle, corner], axis=1),
        signs=curved.signs[k],
        spreads=curved.spreads[k],
    )


def _no_problem() -> DerivativeProblem:
    raise AssertionError("boxes that are examined together are not relaxed")


@dataclass(frozen=True, eq=False)
class _Curved:
    """The bounds of many boxes, and what they depend on."""

    values: Array  # (boxes,)
    signs: Array  # (boxes, rows, inputs): of entries of the Jacobian, 0 where they are not used
    spreads: Array  # (boxes, inputs): what the width of each input contributes to a bound
    uphill: Array  # (boxes, inputs): the direction in which the derivative grows


def _curved(reduced: Reduced, boxes: Boxes) -> _Curved:
    """Bounds on the norms of all Jacobians in boxes: the smaller of this one and of interval
    arithmetic on slopes."""
    coefficients = boxes.coefficients(boxes.slopes)
    weights = {}
    for i, (least, most) in boxes.bends.items():
        if i in coefficients:  # the objective depends on it
            weights[i] = coefficients[i].scaled(least[..., None], most[..., None])
    own = boxes.derivatives(boxes.each_input())
    at_middle = boxes.coefficients(boxes.slopes_at_middle)[0].widened(boxes.error)
    rows = []
    for k in range(len(boxes.rows)):
        gradient = _of_row(at_middle, k)
        bends = _bends(own, weights, own, k).widened(boxes.error)
        signs = _known_signs(gradient, most_change(bends, boxes.radii))
        along = boxes.derivatives(boxes.scale[:, None] * signs[..., None])
        together = _bends(along, weights, own, k).widened(boxes.error)
        rows.append(_Row(gradient, bends, signs, together, boxes.radii))
    bounds = [row.total[:, None] for row in rows]
    if not reduced.norm.bounds_each_input:
        bounds = [row.entries for row in rows]
    plain = coefficients[0].widened(boxes.error)
    values = np.minimum(
        _norms(reduced, np.stack(bounds, axis=1)),
        _norms(reduced, (np.abs(plain.middle) + plain.half).mT),
    )
    totals = np.array([row.total for row in rows])
    worst = (totals.argmax(axis=0), np.arange(boxes.count))
    return _Curved(
        values=values,
        signs=np.stack([row.signs for row in rows], axis=1),
        spreads=np.array([row.spreads for row in rows])[worst],
        uphill=np.array([row.uphill for row in rows])[worst],
    )


def _norms(reduced: Reduced, bounds: Array) -> Array:
    """The norms of Jacobians, from bounds on their entries, or on the sums of their rows."""
    bounds = up(bounds, 4 * bounds.shape[-1] + 16)
    found = [reduced.norm.of_bounds_up(own, reduced.output_norm) for own in bounds]
    return np.where(np.isfinite(found), found, np.inf)


def _known_signs(gradient: Spread, change: Array) -> Array:
    """The signs of entries that do not change by more than they are at the middle; 0 for others."""
    smallest = np.abs(gradient.middle) - gradient.half
    is_known = smallest[..., 0] >= change * (1 + MARGIN)
    return np.where(is_known, np.sign(gradient.middle[..., 0]), 0.0)


@dataclass(frozen=True, eq=False)
class _Row:
    """What is known of one row of the objective in many boxes."""

    gradient: Spread  # at the middles, (boxes, inputs, 1)
    bends: Spread  # second derivatives, (boxes, inputs, inputs)
    signs: Array  # (boxes, inputs)
    together: Spread  # how the sum of entries with known signs changes, (boxes, 1, inputs)
    radii: Array  # (boxes, inputs)

    @property
    def largest(self) -> Array:
        """The largest absolute values of the gradient at the middles."""
        return (np.abs(self.gradient.middle) + self.gradient.half)[..., 0]

    @property
    def entries(self) -> Array:
        """Bounds on the absolute values of the entries."""
        return self.largest + most_change(self.bends, self.radii)

    @property
    def total(self) -> Array:
        """Bounds on the sums of these."""
        alone = most_change(self.bends, self.radii) * (self.signs == 0)
        change = most_change(self.together, self.radii)[:, 0]
        return self.largest.sum(axis=1) + alone.sum(axis=1) + change

    @property
    def spreads(self) -> Array:
        """By how much the bound is off because of the width of every input."""
        is_alone = (self.signs == 0)[..., None]
        alone = (self.bends.half + np.abs(self.bends.middle)) * is_alone
        return (self.together.half[:, 0] + alone.sum(axis=1)) * self.radii

    @property
    def uphill(self) -> Array:
        """The direction in which the sum of entries with known signs grows."""
        return np.sign(self.together.middle[:, 0])


def _of_row(coefficients: Spread, row: int) -> Spread:
    """The coefficients of one row of the objective, in one column."""
    return Spread(*(part[..., row : row + 1] for part in coefficients))


def _bends(
    left: Mapping[int, Spread], weights: Mapping[int, Spread], right: Mapping[int, Spread], row: int
) -> Spread:
    """Second derivatives of a row in any direction of the left and any of the right."""
    first = next(iter(left))
    shape = (len(left[first].middle), left[first].middle.shape[-1], right[first].middle.shape[-1])
    total = Spread.zero(shape)
    for i, weight in weights.items():
        own = _of_row(weight, row)
        weighted = left[i].scaled(own.low, own.high)
        weighted = weighted._replace(size=left[i].size * own.size)
        total = total + weighted.transposed_times(right[i])
    return total
