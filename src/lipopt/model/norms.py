"""The three norms, and everything in which they differ.

The norm on the inputs is also the one on the outputs. With one output that is an absolute value.

                        l_inf                     l2                    l1
    directions t        |t_j| <= 1, each          |t|_2 <= 1            +-e_j: one input
    operator norm       the largest row sum       spectral norm         the largest column sum
    so a constant is    a maximum over outputs    one problem           a maximum over inputs
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

import numpy as np

from ..errors import LipoptError
from ..numerics.arrays import Array, Matrix
from ..numerics.rounding import up_float
from ..numerics.semidefinite import spectral_norm_up

NormName: TypeAlias = Literal["linf", "l2", "l1"]
SMALLEST = 1e-300  # what is divided by is kept above this


class Norm(StrEnum):
    """A norm on inputs and outputs."""

    LINF = "linf"
    L2 = "l2"
    L1 = "l1"

    @property
    def is_by_output(self) -> bool:
        """Whether the constant of several outputs is the largest of their constants."""
        return self is Norm.LINF

    @property
    def is_by_input(self) -> bool:
        """Whether the constant is the largest over inputs, each varied alone."""
        return self is Norm.L1

    @property
    def bounds_each_input(self) -> bool:
        """Whether a direction is bounded in every input on its own."""
        return self is Norm.LINF

    @property
    def words(self) -> str:
        """Its name as people write it."""
        return "l_inf" if self is Norm.LINF else str(self)

    @property
    def dual(self) -> Norm:
        """The norm of linear functions on the unit ball of this one."""
        return {Norm.LINF: Norm.L1, Norm.L2: Norm.L2, Norm.L1: Norm.LINF}[self]

    @property
    def next_larger(self) -> Norm | None:
        """The norm in which the constant of one output is the next larger one, if there is one.

        It is the dual norm of a gradient, and |g|_inf <= |g|_2 <= |g|_1."""
        return {Norm.L1: Norm.L2, Norm.L2: Norm.LINF, Norm.LINF: None}[self]

    def best_direction(self, gradient: Array) -> Array:
        """The point of the unit ball where a linear function is largest, for each column."""
        if self is Norm.LINF:
            return np.where(gradient < 0, -1.0, 1.0)
        if self is Norm.L2:
            return gradient / np.maximum(np.linalg.norm(gradient, axis=0), SMALLEST)
        best = np.abs(gradient).argmax(axis=0)
        columns = np.arange(gradient.shape[1])
        t = np.zeros_like(gradient)
        t[best, columns] = np.where(gradient[best, columns] < 0, -1.0, 1.0)
        return t

    def attained_by(self, jacobian: Array) -> tuple[Array, Array]:
        """Directions r of the outputs and t of the inputs where r.J t is the operator norm of J.

        J is (outputs, inputs) and finite. In plain floating point: the lengths of both may be off 1."""
        size = np.abs(jacobian)
        if self is Norm.L2:
            largest = max(float(size.max()), SMALLEST)
            left, _, right = np.linalg.svd(jacobian / largest, full_matrices=False)
            return left[:, 0], right[0]
        r = np.zeros(len(jacobian))
        t = np.zeros(jacobian.shape[1])
        if self is Norm.LINF:
            row = int(size.sum(axis=1).argmax())
            r[row] = 1.0
            return r, np.where(jacobian[row] < 0, -1.0, 1.0)
        column = int(size.sum(axis=0).argmax())
        t[column] = 1.0
        return np.where(jacobian[:, column] < 0, -1.0, 1.0), t

    def length_up(self, vector: Array) -> float:
        """An upper bound on the norm of a vector."""
        return self.of_matrix_up(vector[:, None])

    def of_jacobians(self, jacobian: Array) -> Array:
        """The operator norm of every J in (outputs, inputs, columns), in plain floating point.

        It is not finite where J is not."""
        size = np.abs(jacobian)
        if self is Norm.LINF:
            return np.asarray(size.sum(axis=1).max(axis=0))
        if self is Norm.L1:
            return np.asarray(size.sum(axis=0).max(axis=0))
        largest = np.maximum(size.max(axis=(0, 1)), SMALLEST)
        scaled = jacobian / largest
        if jacobian.shape[0] == 1:
            return np.asarray(np.sqrt(np.square(scaled[0]).sum(axis=0)) * largest)
        scaled = np.where(np.isfinite(largest), scaled, 0.0)  # the SVD takes finite numbers alone
        lengths = np.linalg.norm(np.moveaxis(scaled, 2, 0), 2, axis=(1, 2))
        return np.asarray(np.where(np.isfinite(largest), lengths * largest, np.nan))

    def of_matrix_up(self, matrix: Matrix) -> float:
        """An upper bound on the operator norm of a matrix."""
        if self is Norm.L2:
            return spectral_norm_up(matrix)
        axis = 1 if self is Norm.LINF else 0
        largest = float(np.max(abs(matrix.astype(np.float64)).sum(axis=axis)))
        return up_float(largest, matrix.shape[axis]) if largest else 0.0

    def quickly_of_matrix_up(self, matrix: Matrix) -> float:
        """The same where that takes no time: under l2 the root of both other norms' product."""
        if self is not Norm.L2:
            return self.of_matrix_up(matrix)
        product = Norm.LINF.of_matrix_up(matrix) * Norm.L1.of_matrix_up(matrix)
        return float(up_float(float(np.sqrt(up_float(product, 1))), 1)) if product else 0.0

    def of_bounds_up(self, rows: Array) -> float:
        """An upper bound on the norm of every matrix whose absolute values `rows` bounds."""
        if self is not Norm.L2:
            return self.of_matrix_up(rows)
        largest = float(rows.max())
        squares = float(np.square(rows / largest).sum())
        frobenius = up_float(largest * float(np.sqrt(squares)), rows.size + 4)
        product = Norm.LINF.of_matrix_up(rows) * Norm.L1.of_matrix_up(rows)
        return min(frobenius, float(np.sqrt(up_float(product, 1))))

    def squared_ratio_to_l2(self, inputs: int, outputs: int) -> int:
        """The square of the factor by which the l2 constant must be multiplied to bound this one."""
        return {Norm.L2: 1, Norm.LINF: inputs, Norm.L1: outputs}[self]


def find_norm(name: str) -> Norm:
    """The norm of that name."""
    try:
        return Norm(name)
    except ValueError as error:
        known = ", ".join(Norm)
        raise LipoptError(f"unknown norm '{name}'; use one of {known}") from error
