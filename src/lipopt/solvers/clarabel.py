"""Linear matrix inequalities through Clarabel, an interior-point solver.

minimize cost.y   such that   constant + sum_i y_i matrices[i] is positive semidefinite,   y_i >= 0 where `signed`
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..rounding import Array, Matrix


def minimize_lmi(
    cost: Array,
    constant: Matrix,
    matrices: Sequence[Matrix],
    signed: Array,
    time_limit: float = float("inf"),
    tolerance: float = 1e-9,
) -> Array | None:
    """y, as the solver left it: a little infeasible as a rule. None if it found nothing."""
    try:
        import clarabel
    except ImportError as error:
        raise LipoptError("this method needs the solver Clarabel: pip install clarabel") from error
    n = constant.shape[0]
    columns = sp.hstack([_triangle(m) for m in matrices], format="csc")
    nonnegative = sp.csc_array(-sp.eye_array(len(cost), format="csc")[np.flatnonzero(signed), :])
    left = sp.vstack([nonnegative, -columns], format="csc")
    right = np.concatenate([np.zeros(nonnegative.shape[0]), _triangle(constant).toarray()[:, 0]])
    cones = [clarabel.NonnegativeConeT(nonnegative.shape[0]), clarabel.PSDTriangleConeT(n)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    if np.isfinite(time_limit):
        settings.time_limit = max(time_limit, 0.01)
    quadratic = sp.csc_array((len(cost), len(cost)))
    solution = clarabel.DefaultSolver(
        sp.csc_matrix(quadratic), np.asarray(cost, dtype=np.float64), sp.csc_matrix(left), right, cones, settings
    ).solve()
    y = np.asarray(solution.x)
    return y if np.isfinite(y).all() else None


def _triangle(matrix: Matrix) -> Matrix:
    """The upper triangle column by column as one column, off-diagonal entries times sqrt(2)."""
    full = sp.coo_array(matrix)
    row, column = full.coords
    upper = row <= column
    place = column[upper] * (column[upper] + 1) // 2 + row[upper]
    data = np.where(row[upper] == column[upper], 1.0, np.sqrt(2.0)) * full.data[upper]
    n = matrix.shape[0]
    return sp.csc_array((data, (place, np.zeros_like(place))), shape=(n * (n + 1) // 2, 1))
