"""The three norms, and everything in which they differ.

The norm on the inputs is also the one on the outputs, unless another one is asked for. With one output
that is an absolute value. If the norm on the outputs is l_inf, the constant is a maximum over outputs; if
that on the inputs is l1, a maximum over inputs.

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
from ..numerics.arrays import Array, Matrix, dense
from ..numerics.rounding import up_float
from ..numerics.semidefinite import spectral_norm_up

NormName: TypeAlias = Literal["linf", "l2", "l1"]
SMALLEST = 1e-300  # what is divided by is kept above this
TURNS = 5  # towards a better direction, each of which lets the norm grow


class Norm(StrEnum):
    """A norm on inputs and outputs."""

    LINF = "linf"
    L2 = "l2"
    L1 = "l1"

    @property
    def is_by_output(self) -> bool:
        """Whether, on the outputs, the constant of several is the largest of their constants."""
        return self is Norm.LINF

    @property
    def is_by_input(self) -> bool:
        """Whether the constant is the largest over inputs, each varied alone."""
        return self is Norm.L1

    @property
    def bounds_each_input(self) -> bool:
        """Whether a direction is bounded in every input on its own."""
        return self is Norm.LINF

    def is_entrywise(self, output: Norm) -> bool:
        """Whether the absolute values of a matrix's entries say what its operator norm is."""
        return self.is_by_input or output.is_by_output

    def is_hard(self, output: Norm) -> bool:
        """Whether no formula has the operator norm of a matrix: from l_inf to l2, and from both to l1."""
        return not self.is_entrywise(output) and self is not output

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

    def attained_by(self, jacobian: Array, output: Norm | None = None) -> tuple[Array, Array]:
        """Directions r of the outputs and t of the inputs where r.J t is the operator norm of J.

        J is (outputs, inputs) and finite. In plain floating point: the lengths of both may be off 1.
        From l_inf to l2, and from both to l1, they are good ones, not always best."""
        output = output or self
        if output is Norm.LINF:
            row = int(self.dual.of_vectors(jacobian.T).argmax())
            r = np.zeros(len(jacobian))
            r[row] = 1.0
            return r, self.best_direction(jacobian[row][:, None])[:, 0]
        if self is Norm.L1:
            column = int(output.of_vectors(jacobian).argmax())
            t = np.zeros(jacobian.shape[1])
            t[column] = 1.0
            return output.dual.best_direction(jacobian[:, [column]])[:, 0], t
        largest = max(float(np.abs(jacobian).max()), SMALLEST)
        scaled = jacobian / largest
        if not self.is_hard(output):
            left, _, right = np.linalg.svd(scaled, full_matrices=False)
            return left[:, 0], right[0]
        t = self._good_directions(scaled[:, :, None], output)[:, 0]
        return output.dual.best_direction((scaled @ t)[:, None])[:, 0], t

    def _good_directions(self, jacobian: Array, output: Norm) -> Array:
        """t where the norm of J t is large, (inputs, columns), for J in (outputs, inputs, columns).

        The best t for the largest row; then by turns the best direction of the outputs, and t."""
        rows = self.dual.of_vectors(jacobian.swapaxes(0, 1)).argmax(axis=0)
        t = self.best_direction(jacobian[rows, :, np.arange(jacobian.shape[2])].T)
        for _ in range(TURNS):
            r = output.dual.best_direction(np.einsum("mnk,nk->mk", jacobian, t))
            t = self.best_direction(np.einsum("mnk,mk->nk", jacobian, r))
        return t

    def length_up(self, vector: Array) -> float:
        """An upper bound on the norm of a vector."""
        return self.of_matrix_up(vector[:, None])

    def of_jacobians(self, jacobian: Array, output: Norm | None = None) -> Array:
        """The operator norm of every J in (outputs, inputs, columns), in plain floating point.

        It is not finite where J is not. From l_inf to l2, and from both to l1, it is a lower bound:
        |J t| at a t that is good, not always best."""
        output = output or self
        if output is Norm.LINF:
            return np.asarray(self.dual.of_vectors(jacobian.swapaxes(0, 1)).max(axis=0))
        if self is Norm.L1:
            return np.asarray(output.of_vectors(jacobian).max(axis=0))
        largest = np.maximum(np.abs(jacobian).max(axis=(0, 1)), SMALLEST)
        scaled = jacobian / largest
        if self.is_hard(output):
            changes = np.einsum("mnk,nk->mk", scaled, self._good_directions(scaled, output))
            return np.asarray(output.of_vectors(changes) * largest)
        if jacobian.shape[0] == 1:
            return np.asarray(np.sqrt(np.square(scaled[0]).sum(axis=0)) * largest)
        scaled = np.where(np.isfinite(largest), scaled, 0.0)  # the SVD takes finite numbers alone
        lengths = np.linalg.norm(np.moveaxis(scaled, 2, 0), 2, axis=(1, 2))
        return np.asarray(np.where(np.isfinite(largest), lengths * largest, np.nan))

    def of_vectors(self, vectors: Array) -> Array:
        """The norms of vectors along the first axis, in plain floating point."""
        size = np.abs(vectors)
        if self is Norm.LINF:
            return np.asarray(size.max(axis=0))
        if self is Norm.L1:
            return np.asarray(size.sum(axis=0))
        largest = np.maximum(size.max(axis=0), SMALLEST)
        return np.asarray(np.sqrt(np.square(size / largest).sum(axis=0)) * largest)

    def of_matrix_up(self, matrix: Matrix, output: Norm | None = None) -> float:
        """An upper bound on the operator norm of a matrix."""
        output = output or self
        if self is output is Norm.L2:
            return spectral_norm_up(matrix)
        if self is output:
            axis = 1 if self is Norm.LINF else 0
            largest = float(np.max(abs(matrix.astype(np.float64)).sum(axis=axis)))
            return up_float(largest, matrix.shape[axis]) if largest else 0.0
        return self.of_bounds_up(dense(abs(matrix.astype(np.float64))), output)

    def quickly_of_matrix_up(self, matrix: Matrix) -> float:
        """The same where that takes no time: under l2 the root of both other norms' product."""
        if self is not Norm.L2:
            return self.of_matrix_up(matrix)
        product = Norm.LINF.of_matrix_up(matrix) * Norm.L1.of_matrix_up(matrix)
        return float(up_float(float(np.sqrt(up_float(product, 1))), 1)) if product else 0.0

    def of_bounds_up(self, rows: Array, output: Norm | None = None) -> float:
        """An upper bound on the norm of every matrix whose absolute values `rows` bounds.

        All signs agree at best."""
        output = output or self
        largest = float(rows.max(initial=0.0))
        if largest == 0:
            return 0.0
        if self is output is not Norm.L2:
            return self.of_matrix_up(rows)
        count = 2 * rows.size + 4
        if output is Norm.LINF:
            return up_float(float(self.dual.of_vectors(rows.T).max()), count)
        if self is Norm.L1:
            return up_float(float(output.of_vectors(rows).max()), count)
        if self is Norm.LINF:
            return up_float(float(output.of_vectors(rows.sum(axis=1))), count)
        if output is Norm.L1:
            return up_float(float(Norm.L2.of_vectors(rows.sum(axis=0))), count)
        squares = float(np.square(rows / largest).sum())
        frobenius = up_float(largest * float(np.sqrt(squares)), count)
        product = Norm.LINF.of_matrix_up(rows) * Norm.L1.of_matrix_up(rows)
        return min(frobenius, up_float(float(np.sqrt(up_float(product, 1))), 1))


def find_output_norm(norm: Norm, name: str | None, outputs: int) -> Norm:
    """The norm on the outputs: that of the inputs, unless another one is asked for."""
    if name is None:
        return norm
    output = find_norm(name)
    return norm if outputs == 1 else output  # of one number, all norms are the absolute value


def find_norm(name: str) -> Norm:
    """The norm of that name."""
    try:
        return Norm(name)
    except ValueError as error:
        known = ", ".join(Norm)
        raise LipoptError(f"unknown norm '{name}'; use one of {known}") from error
