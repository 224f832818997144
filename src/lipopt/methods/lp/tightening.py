"""Tightening: the LP over few sets of variables, and more of them where they matter.

Start from the sets that are monomials of p; look at the pseudo-moments; add the sets, of up to k
variables inside a clique of the pattern, that no extension of those moments satisfies; solve again
from where the last solution ended. That reaches the bound of all sets without building them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from ...errors import LipoptError
from ...numerics.arrays import Array
from ...problem.proofs import KrivineTerms
from ...problem.task import Status, Task
from ...solvers import consensus, highs
from .krivine import (
    Family,
    certified_bound,
    move_multipliers,
    repeat_over_unused,
    to_distribution,
)
from .polynomial import Polynomial
from .sparsity import all_sets, count_sets, maximal_sets, pad, random_sets

MAX_PRODUCTS = 40_000_000  # products of the largest LP: it takes about 4 GB
MAX_SIMPLEX_PRODUCTS = 2000  # products up to which "auto" takes HiGHS's simplex method
MAX_CANDIDATE_PRODUCTS = 2_000_000  # products of the sets that one round chooses from

ITERATIONS_PER_ROUND = 300  # of the consensus solver, between two rounds of adding sets
LAST_ITERATIONS = 20_000  # of the consensus solver, when no more sets are added
ROUND_TOLERANCE = 10.0  # how much less precisely the LP is solved while sets are still added

MIN_GAIN = 1e-4  # a round whose relative gain is below this one has stalled
MAX_STALLS = 2  # stalled rounds in a row after which no more sets are added

MIN_ADDED = 500  # a round may always add this many sets
ADDED_SHARE = 4  # and it may add one for every four sets there are
MIN_VIOLATION = 3e-4  # negative mass (of 1) below which a set is not worth adding
MIN_VIOLATION_SHARE = 0.1  # the same as a share of the largest violation

# Work is counted in products times iterations, about 100 million of them in a second: what is found
# does not depend on how fast the machine is. Finding violated sets is as much work as so many
# iterations over all candidates.
CANDIDATE_ITERATIONS = 30

# `Task.upper` is a bound that another method has found already. An LP whose first solution is more
# than FAR_BEHIND times as large will not overtake it, nor will one that after TRIAL_WORK is still
# more than BEHIND times as large: it is given up.
FAR_BEHIND = 2.0
TRIAL_WORK = 1e8
BEHIND = 1.1


@dataclass(frozen=True, eq=False)
class Potentials:
    """Functions theta_S on the vertices of every set of a family: constant + sum_S theta_S = p."""

    family: Family
    values: Array

    def multipliers(self) -> Array:
        """The multipliers >= 0 of the products that they stand for: max theta_S - theta_S."""
        largest = self.values.max(axis=0, initial=-math.inf)
        return np.where(self.family.index < 0, 0.0, largest - self.values)


@dataclass(frozen=True, eq=False)
class Proof:
    """A bound on the polynomial of one problem (or of one input), and what proves it."""

    value: float
    terms: KrivineTerms
    status: Status


@dataclass(eq=False)
class Tightening:
    """The sets of the LP so far, where its solver stands, and the best potentials found."""

    task: Task
    polynomial: Polynomial
    cliques: sp.csr_array  # the sets that may be added lie in one of its rows
    solver: str  # "auto", "consensus", or one of HiGHS's
    tolerance: float  # relative, of the last solution
    floor: float  # a bound that is as small as this cannot or need not be improved
    bound: float = math.inf
    work: float = 0.0  # products times iterations
    iterations: int = 0
    seconds: dict[str, float] = field(
        default_factory=lambda: {"assembly": 0.0, "solve": 0.0, "tighten": 0.0, "certify": 0.0}
    )

    def __post_init__(self) -> None:
        monomials = self.polynomial.monomials
        degree = self.polynomial.degree
        lengths = (monomials >= 0).sum(axis=1)
        _check_size(int(np.count_nonzero(lengths == degree)), degree)
        sets = maximal_sets(monomials, self.polynomial.variables)
        self.family = Family.of(sets, self.polynomial.variables)
        self.state: consensus.State | None = None
        coefficients = self.family.coefficients(self.polynomial)
        self.best = Potentials(self.family, self.family.at_vertices(coefficients))
        self.all_candidates: Family | None = None  # kept if they are few enough to be built at once
        self.rng = np.random.default_rng(self.task.budget.seed)

    @property
    def finished(self) -> bool:
        """Whether time or work are over, or nothing can be gained."""
        return (
            self.task.seconds_left <= 0
            or self.work >= self.task.budget.work
            or self._is_behind
            or self._is_good_enough(self.bound)
            or len(self.family.sets) == 0
        )

    @property
    def _is_behind(self) -> bool:
        """Whether the LP was solved and is too far behind another method's bound."""
        if self.bound == math.inf:
            return False
        allowed = BEHIND if self.work > TRIAL_WORK else FAR_BEHIND
        return self.bound > allowed * self.task.upper

    def fits(self, degree: int) -> bool:
        """Whether the sets there are would fit in memory as sets of that degree."""
        return len(self.family.sets) * 2**degree <= MAX_PRODUCTS

    def tighten(self, degree: int) -> None:
        """Solve, add the most violated sets of up to `degree` variables; repeat while it helps."""
        _check_size(len(self.family.sets), degree)
        self._continue_with(pad(self.family.sets, degree))
        stalled = -1  # the first round only solves the LP over the sets it was given
        while self.cliques.shape[0] and not self.finished:
            before = self.bound
            self._solve(ROUND_TOLERANCE * self.tolerance, ITERATIONS_PER_ROUND)
            sets = len(self.family.sets)
            self.task.budget.progress(f"degree {degree}: {sets} sets, bound {self.bound:.6g}")
            if self.bound > before * (1 - MIN_GAIN):
                stalled += 1
            else:
                stalled = 0
            if self.finished or stalled == MAX_STALLS or not self._add_violated(degree):
                break
        if not self.finished:
            self._solve(self.tolerance, LAST_ITERATIONS)

    def proof(self) -> Proof:
        """The certificate of the best potentials."""
        with self.timed("certify"):
            multipliers = self.best.multipliers()
            value = certified_bound(self.best.family, self.polynomial, multipliers)
        terms = KrivineTerms(self.best.family.sets, np.ascontiguousarray(multipliers.T))
        status: Status = "complete"
        if self.task.seconds_left <= 0 and not self._is_good_enough(self.bound):
            status = "time limit"
        return Proof(value, terms, status)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the seconds of a block of code as those of a stage."""
        start = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - start

    def _is_good_enough(self, bound: float) -> bool:
        """Whether a bound meets the floor, as precisely as the LP is solved."""
        return bound <= self.floor * (1 + self.tolerance)

    def _solve(self, tolerance: float, iterations: int) -> None:
        """Solve the LP over the sets there are, from the state there is."""
        family = self.family
        with self.timed("assembly"):
            p = family.coefficients(self.polynomial)
            moments = consensus.Moments(family.index, len(family.keys))
            objective = moments.gather(family.at_vertices(p)) / len(family.index)
        with self.timed("solve"):
            by_highs = self._highs_solver()
            if by_highs is not None:
                seconds = self.task.seconds_left
                self.state = _solve_by_highs(family, p, by_highs, tolerance, seconds)
                iterations = 0  # the consensus solver then only finds the potentials
            solution = consensus.solve(
                moments,
                objective,
                self.state,
                tolerance=tolerance,
                iterations=iterations,
                stop=lambda bound: self.finished or self._is_good_enough(bound),
            )
            self.state = solution.state
            self.iterations += solution.iterations
            self.work += max(1, solution.iterations) * family.index.size
            if solution.bound < self.bound:
                self.bound = solution.bound
                self.best = Potentials(family, solution.potentials)

    def _highs_solver(self) -> str | None:
        """The solver of HiGHS for the LP as it is; None for the consensus solver."""
        if self.solver in highs.SOLVERS:
            return self.solver
        if self.solver == "auto" and self.family.index.size <= MAX_SIMPLEX_PRODUCTS:
            return "simplex"
        return None

    def _add_violated(self, degree: int) -> bool:
        """Add the sets that are violated most; False if there are none."""
        with self.timed("tighten"):
            assert self.state is not None
            candidates = self._candidates(degree)
            self.work += CANDIDATE_ITERATIONS * candidates.index.size
            number = self.family.find(candidates.keys)
            is_known = number >= 0
            known = np.where(is_known, self.state.moments[number], 0.0)
            moments = consensus.Moments(candidates.index, len(candidates.keys))
            completed, violation = consensus.complete(moments, known, is_known)
            chosen = self._most_violated(violation, degree)
            if len(chosen):
                sets = np.concatenate([self.family.sets, candidates.sets[chosen]])
                sets = maximal_sets(sets, self.family.variables)
                self._continue_with(sets, candidates, completed)
        return len(chosen) > 0

    def _most_violated(self, violation: Array, degree: int) -> Array:
        """The candidates to add: the most violated ones, as many as one round may add."""
        sets = len(self.family.sets)
        room = min(
            max(MIN_ADDED, sets // ADDED_SHARE),
            MAX_PRODUCTS // 2**degree - sets,
        )
        threshold = max(MIN_VIOLATION, MIN_VIOLATION_SHARE * violation.max())
        violated = np.count_nonzero(violation > threshold)
        by_violation = np.argsort(-violation, kind="stable")
        return by_violation[: max(0, min(violated, room))]

    def _candidates(self, degree: int) -> Family:
        """The sets of the pattern; if they are too many, a random sample, another one each time."""
        if self.all_candidates is not None and self.all_candidates.degree == degree:
            return self.all_candidates
        most = MAX_CANDIDATE_PRODUCTS // 2**degree
        variables = self.family.variables
        # Cliques share sets, so the number of different sets may be far below the count.
        if count_sets(self.cliques, degree) > 4 * most:
            drawn = random_sets(self.cliques, degree, most, self.rng)
            return Family.of(maximal_sets(drawn, variables), variables)
        sets = maximal_sets(all_sets(self.cliques, degree), variables)
        if len(sets) > most:
            return Family.of(self.rng.choice(sets, most, replace=False), variables)
        self.all_candidates = Family.of(sets, variables)
        return self.all_candidates

    def _continue_with(
        self, sets: Array, candidates: Family | None = None, completed: Array | None = None
    ) -> None:
        """Go on with new sets, of which one contains each old set.

        Moments that were known stay, others are taken from the completed ones of the candidates;
        multipliers move to the sets that contain theirs."""
        old = self.family
        new = Family.of(sets, old.variables)
        self.family = new
        if self.state is None:
            return
        moments = np.zeros(len(new.keys))
        if candidates is not None and completed is not None:
            moments = _updated(moments, new, candidates, completed)
        moments = _updated(moments, new, old, self.state.moments)
        multipliers = move_multipliers(old, new, self.state.multipliers)
        self.state = consensus.State(moments, multipliers, self.state.weight)


def _updated(moments: Array, family: Family, other: Family, values: Array) -> Array:
    """The moments of a family, replaced by those of another one where it has them."""
    number = other.find(family.keys)
    return np.where(number >= 0, values[number], moments)


def _check_size(sets: int, degree: int) -> None:
    """Refuse an LP with too many products."""
    products = sets * 2**degree
    if products > MAX_PRODUCTS:
        raise LipoptError(
            f"the LP of degree {degree} starts with {products:.3g} products and would not fit in "
            f"memory (limit {MAX_PRODUCTS:.3g}); use method 'sdp'"
        )


def _solve_by_highs(
    family: Family, p: Array, solver: str, tolerance: float, seconds: float
) -> consensus.State:
    """Moments and multipliers from HiGHS, in the consensus solver's terms."""
    matrix = family.matrix()
    rows = np.flatnonzero(np.diff(matrix.indptr))
    matrix = matrix[rows]
    constant = matrix[:, [0]].toarray().ravel()
    scale = float(np.abs(p).max()) or 1.0
    y, scaled_multipliers, _ = highs.solve(
        matrix[:, 1:],
        -constant,
        p[1:] / scale,
        solver=solver,
        tolerance=tolerance,
        seconds=seconds,
    )
    c = scaled_multipliers * scale
    # HiGHS proves inequalities of coefficients. What is left of x_m is turned into multipliers: it
    # is the sum of the products that have all factors of m.
    slack = np.maximum(-(p + matrix.T @ c), 0)
    slack[0] = 0
    flat = np.zeros(family.index.size)
    flat[rows] = c
    local = flat.reshape(family.index.shape)
    multipliers = repeat_over_unused(family, local) + family.at_vertices(slack)
    return consensus.State(_walsh_moments(family, y), multipliers)


def _walsh_moments(family: Family, y: Array) -> Array:
    """Moments in products of 1 - 2x, from those in products of x but the constant's, which is 1."""
    with_constant = np.append(1.0, y)
    padded = np.append(with_constant, 0.0)  # index -1: subsets with unused columns
    walsh = consensus.walsh(to_distribution(padded[family.index]))
    moments = np.zeros(len(padded))
    moments[family.index] = walsh
    moments[0] = 1.0
    return moments[:-1]
