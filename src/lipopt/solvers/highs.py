"""LPs through HiGHS: maximize b.y subject to A y >= a and y >= 0, and its dual.

Both forms give the same two vectors: y and the multipliers c >= 0 of the rows. What the solver calls them worth is not looked at.
`docs/lp-solvers.md` has the measurements behind the defaults.
"""

from __future__ import annotations

import math
from typing import Literal

import highspy
import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..rounding import Array

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

    `moments` passes the problem as it stands; `multipliers` its dual: minimize -a.c subject to A'c <= -b, c >= 0."""
    if solver not in SOLVERS:
        raise LipoptError(f"unknown solver '{solver}'; use one of {', '.join(SOLVERS)}")
    rows, columns = A.shape
    if form == "moments":
        lp = _model(-b, np.zeros(columns), np.full(columns, np.inf), a, np.full(rows, np.inf), A)
    else:
        lp = _model(-a, np.zeros(rows), np.full(rows, np.inf), np.full(columns, -np.inf), -b, sp.csr_array(A.T))
    highs = highspy.Highs()
    options = {"output_flag": False, "solver": solver, "time_limit": max(0.0, seconds)}
    if "pdlp" in solver:
        options |= {"pdlp_optimality_tolerance": tolerance, "kkt_tolerance": tolerance}
    for name, value in options.items():
        highs.setOptionValue(name, value)
    highs.passModel(lp)
    highs.run()
    solution = highs.getSolution()
    optimal = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    if form == "moments":
        y, c = np.array(solution.col_value), np.array(solution.row_dual)
    else:
        y, c = -np.array(solution.row_dual), np.array(solution.col_value)
    usable = len(y) == columns and len(c) == rows and bool(np.isfinite(y).all() and np.isfinite(c).all())
    if not usable:
        return np.zeros(columns), np.zeros(rows), False
    return np.maximum(y, 0), np.maximum(c, 0), optimal


def _model(cost: Array, lower: Array, upper: Array, row_lower: Array, row_upper: Array, matrix: sp.csr_array) -> highspy.HighsLp:
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = matrix.shape
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, lower, upper
    lp.row_lower_, lp.row_upper_ = row_lower, row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    return lp
