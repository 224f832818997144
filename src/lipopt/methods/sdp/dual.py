"""The dual of Shor's relaxation: multipliers, and a proof that they bound the optimum.

For the derivative problem (problem/derivative.py) and any mu > 0, delta >= 0, tau, let S be the
symmetric matrix of the quadratic form

    sum_k mu_k w_k^2 - w.C x + sum_j delta_j t_j^2 + sum_a tau_a (z_a - l_a y_a)(z_a - u_a y_a)

in the variables (t, z, w), with x = (t, z) and y = A x. If tau >= 0 and S is positive semidefinite,
then at every feasible x, where the last sum is <= 0,

    w.C x <= sum_k mu_k w_k^2 + sum_j delta_j t_j^2   for every w, so   |C x| <= mu + sum_j delta_j.

One row, or the Euclidean norm of several: mu is the same for all and is counted once. delta: one
for every input (linf), or one for all (l2), which is counted once. For l1, t is one of the unit
vectors: S is asked to be positive semidefinite for every input on its own, without the others, and
mu + delta_j is the bound for input j. With l1 on the outputs, |C x| is the sum of the absolute values
of rows, every row has its own mu, and the bound has their sum.

S is sparse in blocks, one block for every pair of layers that interact. Eliminating variables from
the output to the input (a block Cholesky factorization) keeps it so, and leaves one condition on
the inputs, diag(delta) >= K, which scaling delta repairs. `fit` finds multipliers that way, in
plain floating point. `are_proved` then decides: it factorizes D S D - shift I = L L^T + R, D a
scaling by powers of two, and compares the shift with a bound on |R| and on every rounding error on
the way. It assumes nothing about how well the factorization went, only that matrix products are
float64 sums. Where inputs outnumber all else and slopes begin at 0, the block of the inputs is
diagonal, and they are eliminated first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...model.norms import Norm
from ...numerics.arrays import Array
from ...numerics.rounding import TINY, gamma
from ...problem.derivative import DerivativeProblem
from ...problem.proofs import Multipliers
from .backend import Backend, sizes
from .block_matrix import MIN_DIVISOR, BlockMatrix, Dense, Layout, squared_norm
from .quadratic_form import QuadraticForm, StackedMultipliers

# Power iterations for the maximum of the quadratic form over the balls of one layer, or over t.
# They start near it.
POWER_ITERATIONS = 10
# The first relative inflation that is tried for the diagonal of a block that is not definite.
# Each further one is ten times as large.
MIN_INFLATION = 1e-10
# The largest one that is tried. If it does not help either, `fit` gives the multipliers up.
MAX_INFLATION = 1e3
# Bisection steps, on a logarithmic scale, between an inflation that is enough and a tenth of it.
INFLATION_BISECTIONS = 4
# How far the diagonal of a layer's block is raised, relative to the inflation that is enough: a
# block that is barely definite would make the next Schur complement large.
TAU_MARGIN = 2.0
# The same for the inputs. There is no next block, and delta counts in the bound.
DELTA_MARGIN = 1.0
# The largest tau, relative to the largest row sum of what it has to outweigh. A neuron with a known
# slope would need an infinite one.
MAX_RELATIVE_TAU = 1e5
# The smallest tau, relative to the median of its layer, and the smallest delta, relative to the
# mean. A zero would leave S singular.
MIN_RELATIVE_MULTIPLIER = 1e-9
# For l1: an input counts as proved with a bound if its delta exceeds the bound's by no more than
# this, relatively.
DELTA_TOLERANCE = 1e-12
# For l1: what delta is multiplied by for inputs that a proof is not about, to make it easy.
UNCLAIMED_DELTA_FACTOR = 100.0


@dataclass(frozen=True, eq=False)
class Hint:
    """Multipliers in plain floating point: a proposal that `Dual.prove` may or may not confirm.

    They are normalized to mu = rows / 4. Then the bound is the square root of the sum of delta,
    or, for l1, the square root of delta_j for input j (`Dual.prove` scales them so that mu and the
    sum of delta are one half of the bound each)."""

    squares: Array  # of the bounds: one, or for l1 one for every input
    rows: Array  # the weights of the rows of C: their sum is 1 where every row has its own mu
    delta: Array
    tau: list[Array]
    inflation: float  # by how much tau and delta were enlarged, relatively, to be on the safe side


@dataclass(frozen=True, eq=False)
class Dual:
    """The duals of problems of the same shape, or of one problem any number of times."""

    norm: Norm
    adds_outputs: bool  # whether every row of C has a mu of its own
    form: QuadraticForm
    # Whether more inflation may give a better bound: blocks are then farther from singular.
    gains_by_inflation: ClassVar[bool] = True

    @staticmethod
    def of(problems: Sequence[DerivativeProblem], backend: Backend) -> Dual:
        """The duals of these problems."""
        first = problems[0]
        return Dual(first.norm, first.adds_outputs, QuadraticForm.of(problems, backend))

    @property
    def backend(self) -> Backend:
        return self.form.backend

    @property
    def count(self) -> int:
        """The number of problems."""
        return self.form.count

    @property
    def order(self) -> int:
        """The order of S."""
        return sum(self.layout.sizes)

    @property
    def layout(self) -> Layout:
        return self.form.layout

    @property
    def wide(self) -> bool:
        """Whether inputs outnumber all else and are eliminated first."""
        return self.layout.wide

    def only(self, which: Sequence[int]) -> Dual:
        """The duals of some of the problems. One problem that all share is shared still."""
        return replace(self, form=self.form.only(which))

    def fit(self, rows: Array, x: Sequence[Any], inflation: Array) -> list[Hint | None]:
        """Multipliers near the best ones for feasible vectors x (by source), with mu = rows / 4.

        They are feasible up to rounding. Eliminating everything after layer i leaves a quadratic
        form in z_i and what comes before. Its maximum over the balls of z_i, found by the power
        method from the given z_i, has multipliers tau_i in closed form. So the errors of one layer
        do not build up in the next. `inflation` makes every block more definite than it has to be.
        None if a block stayed indefinite.

        Where inputs are many, their block of the Schur complement is never formed: it is - G G^T
        for the columns of the factor that belong to the inputs, side by side in G."""
        matrix = self.form.zero()
        self.form.add_output(matrix, self.backend.array(rows / 4))
        eliminated = matrix.eliminate(self.layout.last)
        good = eliminated.definite
        columns = eliminated.columns_of_inputs
        taus: list[Array] = []  # from the last layer to the first
        enlarged = self.backend.array(1 + inflation)[:, None]
        for i in range(self.layout.last - 1, 0, -1):
            best = self._best_tau(matrix, i, x) * enlarged
            tau, enough = self._outweigh(matrix.values(i, i), best, TAU_MARGIN)
            self.form.add_layer(matrix, i, tau)
            eliminated = matrix.eliminate(i)
            columns += eliminated.columns_of_inputs
            good = good & enough & eliminated.definite
            if not good.any():
                return [None] * self.count
            taus.append(self.backend.numpy(tau))
        delta, enough = self._enough_delta(matrix, columns, x[0])
        delta = delta * (1 + inflation)[:, None]
        squares = delta if self.layout.by_input else delta.sum(axis=1, keepdims=True)
        usable = ((squares > 0) & (squares < np.inf)).all(axis=1)
        good = good & enough & usable
        hints: list[Hint | None] = [None] * self.count
        for k in np.flatnonzero(good):
            tau_of_k = [tau[k] for tau in reversed(taus)]
            hints[k] = Hint(squares[k], rows[k], delta[k], tau_of_k, float(inflation[k]))
        return hints

    def prove(self, hints: Sequence[Hint], bounds: Sequence[float]) -> list[Multipliers | None]:
        """The multipliers of every hint, scaled to give its bound, if they can be proved.

        For l1 that is the bound for every input that needs no more; the others get a delta that
        is easy to prove."""
        scaled = []
        for hint, bound in zip(hints, bounds, strict=True):
            scaled.append(self._scale_to_bound(hint, bound))
        proved = self.are_proved(scaled)
        return [m if good else None for m, good in zip(scaled, proved, strict=True)]

    def are_proved(self, multipliers: Sequence[Multipliers]) -> Array:
        """For every problem, whether S is proved positive semidefinite; False if there is no proof.

        The inequality at the end is the argument of the module's docstring; the order of its
        operations is part of it."""
        array = self.backend.array
        numpy = self.backend.numpy
        stacked = StackedMultipliers.of(multipliers, self.layout)
        good = stacked.are_finite_and_nonnegative
        if not good.any():
            return good
        order = self.order
        on_backend = stacked.on(self.backend)
        matrix = self.form.assemble(on_backend)
        diagonals = [numpy(matrix.diagonal(i)) for i in range(len(self.layout.sizes))]
        good = good & np.all([(d > 0).all(axis=1) for d in diagonals], axis=0)
        scale = [array(power_of_two_scale(d)) for d in diagonals]
        matrix.scale(scale)
        assembly = self.form.assembly_error(on_backend, scale)
        size = numpy(matrix.squared_norm) ** 0.5
        trace = numpy(matrix.trace)
        products = gamma(order + 4)
        shift = 1.1 * assembly + 3 * products * (trace + size) + order**2 * TINY
        matrix.add_to_diagonal(-array(shift)[:, None])
        factor, definite = matrix.factorize()
        residual = matrix.residual(factor)
        weight = numpy(sum(squared_norm(block.values) for block in factor.values()))
        small = (
            1.01 * (assembly + residual + products * (weight + size + shift)) + order**2 * TINY
            < shift
        )
        return np.asarray(good & definite & small)

    def _scale_to_bound(self, hint: Hint, bound: float) -> Multipliers:
        """The multipliers of a hint, scaled so that mu and the sum of delta are bound / 2 each."""
        tau = [t / (2 * bound) for t in hint.tau]
        mu = bound / 2 * hint.rows if self.adds_outputs else bound / 2
        if not self.layout.by_input:
            return Multipliers(mu, hint.delta / (2 * bound), tau)
        claimed = hint.delta <= bound**2 * (1 + DELTA_TOLERANCE)
        raised = np.maximum(hint.delta, bound**2)
        delta = np.where(claimed, raised, UNCLAIMED_DELTA_FACTOR * hint.delta)
        return Multipliers(mu, delta / (2 * bound), tau, by_input=True)

    def _best_tau(self, matrix: BlockMatrix, i: int, x: Sequence[Any]) -> Any:
        """tau = |g| / (h |y|), within limits.

        g is the gradient of the quadratic form at its maximum over the balls of z_i."""
        numpy = self.backend.numpy
        layer = self.form.layers[i - 1]
        rest = matrix.values(i, i)
        y = sum(block @ x[source] for source, block in layer.blocks.items())
        center = layer.middle[..., None] * y
        radius = layer.half * sizes(y)
        fixed = 0.0 * x[i]  # the part of the gradient that does not depend on z_i
        for (k, j), block in matrix.blocks.items():
            if k == i and j < i:
                fixed = fixed + block.values @ x[j]
        z = x[i]
        for _ in range(POWER_ITERATIONS):
            g = -(rest @ z + fixed)
            z = center + (radius / (sizes(g) + MIN_DIVISOR))[..., None] * g
        tau = numpy(sizes(rest @ z + fixed) / (radius + MIN_DIVISOR))
        largest = MAX_RELATIVE_TAU * numpy(abs(rest).sum(-1)).max(axis=1, keepdims=True)
        largest = np.where(largest > 0, largest, 1.0)
        usual = np.minimum(_median_of_positive(tau), largest)
        # A tau below minus the diagonal of the rest would leave a negative diagonal.
        smallest = np.maximum(-numpy(matrix.diagonal(i)), MIN_RELATIVE_MULTIPLIER * usual)
        return self.backend.array(np.clip(tau, smallest, largest))

    def _enough_delta(self, matrix: BlockMatrix, columns: list[Any], t: Any) -> tuple[Array, Array]:
        """delta = |g|, raised as needed; and for every problem whether that was enough.

        g is the gradient, at its maximum over t, of the quadratic form that is left. That form is
        block (0, 0), or - G G^T for `columns` side by side in G where inputs are many."""
        numpy = self.backend.numpy
        if self.layout.by_input:
            needed = -numpy(matrix.values(0, 0))
            return np.maximum(needed, MIN_DIVISOR), np.ones(self.count, bool)
        if self.wide:
            delta, enough = self._enough_delta_of_columns(columns, t)
        else:
            rest = matrix.values(0, 0)
            delta = self._delta_at_maximum(lambda t: rest @ t, t)
            delta, enough = self._outweigh(rest, delta, DELTA_MARGIN)
        if self.norm.bounds_each_input:
            return numpy(delta), enough
        return numpy(delta)[:, :1], enough

    def _enough_delta_of_columns(self, columns: list[Any], t: Any) -> tuple[Any, Array]:
        """diag(delta) - G G^T is definite if and only if 1 - G^T diag(1 / delta) G is."""
        G = self.backend.concatenate(columns, 2)
        delta = self._delta_at_maximum(lambda t: -(G @ (G.mT @ t)), t)
        ones = 0 * G[:, 0] + 1
        factor, enough = self._outweigh(-(G.mT @ (G / delta[..., None])), ones, DELTA_MARGIN)
        return delta * factor[:, :1], enough

    def _delta_at_maximum(self, form: Callable[[Any], Any], t: Any) -> Any:
        """|g| at the maximum of the form over t, by the power method; kept above 0.

        `form` is the product with its matrix."""
        for _ in range(POWER_ITERATIONS):
            g = form(t)
            lengths = sizes(g)
            if not self.norm.bounds_each_input:
                lengths = 0 * lengths + squared_norm(g)[:, None] ** 0.5
            t = g / -(lengths + MIN_DIVISOR)[..., None]
        return lengths + MIN_RELATIVE_MULTIPLIER * lengths.mean(-1)[:, None] + MIN_DIVISOR

    def _outweigh(self, rest: Any, diagonal: Any, margin: float) -> tuple[Any, Array]:
        """`diagonal`, raised so that diag(diagonal) + rest is positive definite.

        It is raised by `margin` times what is needed, in relative terms. Also, for every problem,
        whether a definite matrix was found."""

        def is_definite(inflation: Array) -> Array:
            matrix = Dense(0.5 * (rest + rest.mT))
            matrix.add_to_diagonal(diagonal * self.backend.array(1 + inflation)[:, None])
            return self.backend.cholesky(matrix.values)[1]

        as_it_is = is_definite(np.zeros(self.count))
        if as_it_is.all():
            return diagonal, as_it_is
        found = as_it_is.copy()
        high = np.full(self.count, MIN_INFLATION)
        while not found.all() and high.max() <= MAX_INFLATION:
            found |= is_definite(high)
            high = np.where(found, high, 10 * high)
        low = high / 10
        for _ in range(INFLATION_BISECTIONS):
            middle = (low * high) ** 0.5
            good = is_definite(middle)
            low = np.where(good, low, middle)
            high = np.where(good, middle, high)
        needed = np.where(as_it_is, 0.0, high)
        return diagonal * self.backend.array(1 + margin * needed)[:, None], found


def power_of_two_scale(diagonal: Array) -> Array:
    """The powers of two that bring the diagonal of D S D near 1: they scale without rounding."""
    positive = np.where(diagonal > 0, diagonal, 1.0)
    return 2.0 ** -np.round(np.log2(positive) / 2)


def _median_of_positive(tau: Array) -> Array:
    """For every problem the median of the positive entries, (problems, 1); 1 if there are none."""
    positive = np.where(tau > 0, tau, np.nan)
    positive[np.isnan(positive).all(axis=1)] = 1.0
    return np.nanmedian(positive, axis=1, keepdims=True)
