"""Linear functions over a polytope that grows in dimension: many small LPs through HiGHS.

Each starts from the basis of the last one, so that it takes few steps. What comes back are hints:
a point and multipliers. Whoever uses them computes bounds from them anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..numerics.arrays import Array

# Steps of the simplex method, for every row and variable: it needs fewer than one, as a rule, but
# may go in circles where coefficients are of very different sizes.
MOST_STEPS = 2


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a linear function is smallest, and a multiplier for every row; signs as in HiGHS."""

    point: Array
    multipliers: Array


class Polytope:
    """All v with lower <= v <= upper and row_lower <= rows v <= row_upper.

    An l1 ball is such a polytope too, with a distance for each variable, which the solver alone sees."""

    def __init__(self, lower: Array, upper: Array) -> None:
        import highspy

        self._optimal = highspy.HighsModelStatus.kOptimal
        self._infeasible = highspy.HighsModelStatus.kInfeasible
        self._highs = highspy.Highs()
        for name, value in {"output_flag": False, "threads": 1, "presolve": "off"}.items():
            self._highs.setOptionValue(name, value)
        self.rows = 0
        self._places = np.zeros(0, np.int32)  # of the variables among the solver's
        self.add_columns(lower, upper)

    @property
    def columns(self) -> int:
        return len(self._places)

    def add_columns(self, lower: Array, upper: Array) -> None:
        """New variables, in no row yet."""
        self._places = np.concatenate([self._places, self._new_columns(lower, upper)])

    def add_l1_ball(self, center: Array, radii: Array) -> None:
        """Keep the sum of |v - center| / radii at most 1; a variable with radius 0 is free."""
        count = int(np.count_nonzero(radii > 0))
        own = self._places[: len(radii)][radii > 0]
        distances = self._new_columns(np.zeros(count), np.full(count, np.inf))
        inverse = 1 / radii[radii > 0]
        middle = center[radii > 0] * inverse
        columns = np.stack([own, distances], axis=1).reshape(-1)
        ones = np.ones(count)
        for sign in (1.0, -1.0):
            values = np.stack([sign * inverse, -ones], axis=1).reshape(-1)
            starts = 2 * np.arange(count)
            self._add(starts, columns, values, np.full(count, -np.inf), sign * middle)
        self._add(np.zeros(1), distances, ones, np.array([-np.inf]), np.ones(1))

    def _new_columns(self, lower: Array, upper: Array) -> Array:
        """The solver's numbers of new variables."""
        count = len(lower)
        none = np.zeros(0, np.int32)
        starts = np.zeros(count, np.int32)
        first = self._highs.getNumCol()
        self._highs.addCols(count, np.zeros(count), lower, upper, 0, starts, none, np.zeros(0))
        return np.arange(first, first + count, dtype=np.int32)

    def add_rows(self, rows: Array, lower: Array, upper: Array) -> None:
        """New rows over the first variables, as a dense array."""
        places, columns = np.nonzero(rows)
        counts = np.bincount(places, minlength=len(rows))
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self._add(starts, self._places[columns], rows[places, columns], lower, upper)

    def _add(
        self, starts: Array, columns: Array, values: Array, lower: Array, upper: Array
    ) -> None:
        """New rows, in the solver's numbers of variables."""
        count = len(lower)
        first = starts.astype(np.int32)
        self._highs.addRows(count, lower, upper, len(values), first, columns, values)
        self.rows += count

    def remove_rows(self, rows: list[int]) -> None:
        """Take back some rows; those after them move up."""
        self._highs.deleteRows(len(rows), np.array(sorted(rows), dtype=np.int32))
        self.rows -= len(rows)

    def has_points(self) -> bool:
        """Whether the solver finds a point, or does not say that there is none."""
        self._set_cost(np.zeros(0))
        self._run()
        return bool(self._highs.getModelStatus() != self._infeasible)

    def minimize(self, cost: Array) -> Minimum | None:
        """The minimum of cost . v, where costs that are missing are zero; None if none was found."""
        self._set_cost(cost)
        self._run()
        if self._highs.getModelStatus() != self._optimal:
            return None
        solution = self._highs.getSolution()
        multipliers = np.array(solution.row_dual)
        point = np.array(solution.col_value)[self._places]
        # HiGHS takes no rows with huge coefficients, and has then fewer than were given to it.
        is_complete = len(multipliers) == self.rows
        if not (is_complete and np.isfinite(point).all() and np.isfinite(multipliers).all()):
            return None
        return Minimum(point, multipliers)

    def ray(self) -> Array | None:
        """Multipliers of the rows that show that there is no point, after none was found."""
        _, exists, multipliers = self._highs.getDualRay()
        is_complete = exists and len(multipliers) == self.rows
        if not (is_complete and np.isfinite(multipliers).all()):
            return None
        return np.asarray(multipliers)

    def _run(self) -> None:
        """Let the solver work, from the basis of its last answer on."""
        steps = MOST_STEPS * (self.rows + self._highs.getNumCol())
        self._highs.setOptionValue("simplex_iteration_limit", steps)
        self._highs.run()

    def _set_cost(self, cost: Array) -> None:
        """Costs of the first variables; the others cost nothing."""
        whole = np.zeros(self.columns)
        whole[: len(cost)] = cost
        self._highs.changeColsCost(self.columns, self._places, whole)
