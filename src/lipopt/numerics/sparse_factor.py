"""Sparse symmetric matrices M = L D L^T, and how far the computed factors are from M.

SuperLU eliminates along the diagonal, in an order that keeps the factors sparse (minimum degree),
and returns M = L U up to rounding. U is then D L^T up to rounding, D the diagonal of U. If D > 0,
the exact product L D L^T of these floating-point numbers is positive semidefinite, and

    |M - L D L^T| <= gamma(n) |L| |U| + |L| |U - D L^T|        entry by entry

(Higham, "Accuracy and Stability of Numerical Algorithms", theorem 9.3, for any order of the sums).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import SuperLU, splu

from .arrays import Array
from .rounding import TINY, gamma


@dataclass(frozen=True, eq=False)
class SparseFactor:
    """The factors of a sparse symmetric matrix, whose diagonal D is positive."""

    factors: SuperLU

    @staticmethod
    def of(matrix: sp.csc_array) -> SparseFactor | None:
        """The factors; None if the matrix is not positive definite, up to rounding."""
        try:
            factors = splu(
                matrix,
                permc_spec="MMD_AT_PLUS_A",
                diag_pivot_thresh=0.0,
                options={"SymmetricMode": True},
            )
        except RuntimeError:  # a pivot is exactly 0
            return None
        # A pivot off the diagonal is taken where the one on it is 0.
        if not np.array_equal(factors.perm_r, factors.perm_c):
            return None
        pivots = factors.U.diagonal()
        if not (np.isfinite(pivots).all() and (pivots > 0).all()):
            return None
        return SparseFactor(factors)

    def solve(self, right: Array) -> Array:
        """M^-1 right, in plain floating point."""
        return np.asarray(self.factors.solve(right))

    @property
    def order(self) -> Array:
        """The order of elimination: the rows of M that those of the factors belong to."""
        return np.argsort(self.factors.perm_c)

    def cholesky(self) -> sp.csr_array:
        """L D^(1/2), by rows, in plain floating point."""
        pivots = self.factors.U.diagonal()
        return sp.csr_array(self.factors.L @ sp.diags_array(np.sqrt(pivots)))

    def error(self) -> float:
        """An upper bound on the spectral norm of M - L D L^T: its largest row sum."""
        lower = self.factors.L
        lower.sort_indices()  # and both by rows: their difference is found fastest so
        upper = self.factors.U.tocsr()
        symmetric = sp.diags_array(upper.diagonal()) @ lower.T
        n = lower.shape[0]
        ones = np.ones(n)
        asymmetry = abs(upper - symmetric) @ ones
        rounded = gamma(n + 4) * (abs(upper) @ ones + abs(symmetric) @ ones)
        rows = abs(lower) @ (asymmetry + rounded)
        return 1.01 * float(rows.max()) + n * n * TINY
