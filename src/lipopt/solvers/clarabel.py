"""Linear matrix inequalities through Clarabel, an interior-point solver.

minimize cost.y   such that   constant + sum_i y_i matrices[i] is positive semidefinite,
                              y_i >= 0 where `signed`
"""

from __future__ import annotations

from collections.abc import Sequence

import clarabel
import numpy as np
import scipy.sparse as sp

from ..numerics.arrays import Array, Matrix

SHORTEST_TIME_LIMIT = 0.01  # seconds; Clarabel takes no limit of zero or less

# With these the solver's y is not near a solution: it is a direction, or not a number.
INFEASIBLE = (
    clarabel.SolverStatus.PrimalInfeasible,
    clarabel.SolverStatus.DualInfeasible,
    clarabel.SolverStatus.AlmostPrimalInfeasible,
    clarabel.SolverStatus.AlmostDualInfeasible,
)


def minimize_lmi(
    cost: Array,
    constant: Matrix,
    matrices: Sequence[Matrix],
    signed: Array,
    time_limit: float = float("inf"),
    tolerance: float = 1e-9,
) -> Array | None:
    """y as the solver left it: nearly feasible and nearly optimal. Callers have to prove it.

    Whether it is solved, almost solved, or cut off by the time limit or by lack of progress makes
    no difference here: the last iterate is the best that there is. None if the solver says that
    there is no solution, or returns something that is not finite."""
    variables = len(cost)
    order = constant.shape[0]
    columns = sp.hstack([_triangle(matrix) for matrix in matrices], format="csc")
    identity = sp.eye_array(variables, format="csc")
    nonnegative = sp.csc_array(-identity[np.flatnonzero(signed), :])
    bounded = nonnegative.shape[0]
    left = sp.vstack([nonnegative, -columns], format="csc")
    right = np.concatenate([np.zeros(bounded), _triangle(constant).toarray()[:, 0]])
    cones = [clarabel.NonnegativeConeT(bounded), clarabel.PSDTriangleConeT(order)]
    quadratic = sp.csc_array((variables, variables))
    solver = clarabel.DefaultSolver(
        sp.csc_matrix(quadratic),
        np.asarray(cost, dtype=np.float64),
        sp.csc_matrix(left),
        right,
        cones,
        _settings(time_limit, tolerance),
    )
    solution = solver.solve()
    y = np.asarray(solution.x)
    if solution.status in INFEASIBLE or not np.isfinite(y).all():
        return None
    return y


def _settings(time_limit: float, tolerance: float) -> clarabel.DefaultSettings:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = tolerance
    settings.tol_gap_rel = tolerance
    settings.tol_feas = tolerance
    if np.isfinite(time_limit):
        settings.time_limit = max(time_limit, SHORTEST_TIME_LIMIT)
    return settings


def _triangle(matrix: Matrix) -> Matrix:
    """The upper triangle column by column as one column, off-diagonal entries times sqrt(2)."""
    full = sp.coo_array(matrix)
    row, column = full.coords
    upper = row <= column
    row = row[upper]
    column = column[upper]
    place = column * (column + 1) // 2 + row
    factor = np.where(row == column, 1.0, np.sqrt(2.0))
    order = matrix.shape[0]
    entries = order * (order + 1) // 2
    return sp.csc_array(
        (factor * full.data[upper], (place, np.zeros_like(place))), shape=(entries, 1)
    )
