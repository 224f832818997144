"""LPs through HiGHS: maximize b.y subject to A y >= a and y >= 0, and its dual.

Both forms give the same two vectors: y and the multipliers c >= 0 of the rows. The objective value
that the solver reports is not used: bounds are computed from c. `docs/lp-solvers.md` has the
measurements behind the defaults.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..numerics.arrays import Array

if TYPE_CHECKING:
    import highspy

SOLVERS = ("simplex", "ipm", "ipx", "hipo", "pdlp", "hipdlp")


def solve(
    A: sp.csr_array,
    a: Array,
    b: Array,
    *,
    solver: str = "simplex",
    form: Literal["moments", "multipliers"] = "multipliers",
    tolerance: float = 1e-7,
    seconds: float = math.inf,
) -> tuple[Array, Array, bool]:
    """y, the multipliers of the rows (>= 0), and whether the solver says they are optimal.

    `moments` passes the problem as it stands; `multipliers` its dual: minimize -a.c subject to
    A'c <= -b, c >= 0. Both vectors are zero if the solver found nothing that can be used."""
    import highspy

    if solver not in SOLVERS:
        raise LipoptError(f"unknown solver '{solver}'; use one of {', '.join(SOLVERS)}")
    rows, columns = A.shape
    if form == "moments":
        lp = _model(-b, A, row_lower=a, row_upper=np.full(rows, np.inf))
    else:
        lp = _model(-a, sp.csr_array(A.T), row_lower=np.full(columns, -np.inf), row_upper=-b)
    highs = _solver(solver, tolerance, seconds)
    highs.passModel(lp)
    highs.run()
    solution = highs.getSolution()
    primal = np.array(solution.col_value)
    dual = np.array(solution.row_dual)
    if form == "moments":
        y = primal
        c = dual
    else:
        y = -dual
        c = primal
    if not (_is_usable(y, columns) and _is_usable(c, rows)):
        return np.zeros(columns), np.zeros(rows), False
    optimal = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return np.maximum(y, 0), np.maximum(c, 0), optimal


def _is_usable(vector: Array, size: int) -> bool:
    """Whether the solver returned a vector of the right size, all of it finite."""
    return len(vector) == size and bool(np.isfinite(vector).all())


def _solver(solver: str, tolerance: float, seconds: float) -> highspy.Highs:
    """HiGHS with its options set; only the first-order solvers take a tolerance."""
    import highspy

    options = {"output_flag": False, "solver": solver, "time_limit": max(0.0, seconds)}
    if "pdlp" in solver:
        options["pdlp_optimality_tolerance"] = tolerance
        options["kkt_tolerance"] = tolerance
    highs = highspy.Highs()
    for name, value in options.items():
        highs.setOptionValue(name, value)
    return highs


def _model(
    cost: Array, matrix: sp.csr_array, *, row_lower: Array, row_upper: Array
) -> highspy.HighsLp:
    """Minimize cost.x subject to row_lower <= matrix x <= row_upper and x >= 0."""
    import highspy

    rows, columns = matrix.shape
    lp = highspy.HighsLp()
    lp.num_row_ = rows
    lp.num_col_ = columns
    lp.col_cost_ = cost
    lp.col_lower_ = np.zeros(columns)
    lp.col_upper_ = np.full(columns, np.inf)
    lp.row_lower_ = row_lower
    lp.row_upper_ = row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = matrix.indptr
    lp.a_matrix_.index_ = matrix.indices
    lp.a_matrix_.value_ = matrix.data
    return lp
