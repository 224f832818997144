"""LiPopt-k: upper bounds from Krivine certificates of degree k (the paper's section 3), over chosen sets of variables.

    theta_k = min { lambda : lambda - p = sum_S sum_v c_Sv h_Sv,  c >= 0 }
    h_Sv = product of x_b for b in v, and of 1 - x_b for b in S - v

p is multilinear on [0,1]^n, so square-free products are enough: a set S of k variables has 2^k of them, which add up to 1 and
span all polynomials on S. The dual LP is over pseudo-moments: a distribution on {0,1}^S for every S, equal on what sets share.

Start from the sets that are monomials of p; look at the pseudo-moments; add the sets, of up to k variables inside a clique of the
pattern, that no extension of those moments satisfies; solve again from where the last solution ended. That reaches the bound of
all sets without building them.

The bound that is reported is computed from the multipliers c >= 0 alone, whatever the solver did: with q = p + sum c h,

    p <= q <= q_0 + sum_{m != 1} max(q_m, 0)       on [0,1]^n, in monomials of x

and the rounding errors of q are added: a sum of n numbers is off by at most gamma(n) times the sum of their absolute values.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from .baselines import path_sum_bound, path_sum_rows
from .errors import LipoptError
from .methods import Status, Task, UpperBound, register
from .polynomial import Polynomial, norm_gradient, sources
from .rounding import Array, gamma, up, up_float
from .solvers import consensus, highs
from .sparsity import PATTERNS, all_sets, cliques, count_sets, maximal_sets, pad, random_sets, set_keys, subset_keys

SIMPLEX = 2000  # products up to which HiGHS's simplex solver is used
PRODUCTS = 40_000_000  # the most products an LP may have: about 4 GB
CANDIDATES = 2_000_000  # products of the sets one round of tightening looks at
ROUND = 300  # iterations between two rounds of tightening
LAST = 20_000  # iterations when there is nothing left to add
GAIN, STALLS = 1e-4, 2  # tightening ends after that many rounds with less than that relative gain
FEWEST, SHARE = 500, 4  # a round may add that many sets, or that share of those there are
VIOLATED, WORTH = 3e-4, 0.1  # the negative mass a set must have to be added, and the share of the worst one's
TRIAL, BEHIND = 3.0, 1.1  # after so many seconds, no more than this times the upper bound that is known; or it is given up
PAYS = 5e-3  # the relative gain for which plain LiPopt goes on to the next degree
PATIENCE = 60.0  # the seconds after which it does not


@dataclass(frozen=True, eq=False)
class Products:
    """The terms of a certificate: multipliers[S, v] >= 0 of the product of x over columns v of sets[S] and 1 - x over the others.

    Bit b of v stands for column b. Columns of sets that hold -1 are left out; multipliers with such a bit are zero.
    Variables 0 to inputs - 1 are t = 2x - 1, then come the neurons of the presolved problem layer by layer, s = l + (u - l) x,
    and then, if it has several rows, their signs r = 2x - 1. Under the l1 norm a certificate has one of these for each input."""

    sets: Array
    multipliers: Array


@dataclass(frozen=True, eq=False)
class Family:
    """Sets of k variables and the monomials of all their subsets: index[v, S] is that of columns v of sets[S], -1 for none."""

    variables: int
    sets: Array
    keys: Array  # the monomials, by key; the constant first
    index: Array

    @staticmethod
    def of(sets: Array, variables: int) -> Family:
        keys = subset_keys(sets, variables)
        present = keys >= 0
        monomials, inverse = np.unique(np.append(keys[present], 0), return_inverse=True)
        index = np.full(keys.shape, -1)
        index[present] = inverse[:-1]
        return Family(variables, sets, monomials, index)

    @property
    def degree(self) -> int:
        return int(self.sets.shape[1])

    def find(self, keys: Array) -> Array:
        """The places of monomials, -1 where they are none of these."""
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, place, -1)

    def coefficients(self, polynomial: Polynomial) -> Array:
        """The coefficients of a polynomial whose monomials are all among these."""
        whole = set_keys(polynomial.monomials, self.variables)
        place = self.find(whole)
        if (place < 0).any():
            raise LipoptError("a monomial lies in no set of the LP")
        return np.bincount(place, polynomial.coefficients, len(self.keys))

    def somewhere(self) -> Array:
        """For every monomial, one place in the flattened index where it is; the constant may have none."""
        place = np.full(len(self.keys) + 1, -1)
        flat = self.index.ravel()
        place[flat] = np.arange(len(flat))
        return place[:-1]

    def at_vertices(self, coefficients: Array) -> Array:
        """Functions of the sets that add up to a polynomial: each monomial goes to one set. Values at the vertices of {0,1}^k."""
        local = np.zeros(self.index.size)
        place = self.somewhere()
        local[place[place >= 0]] = coefficients[place >= 0]
        return _butterfly(local.reshape(self.index.shape), 1, 0, 1.0)

    def matrix(self) -> sp.csr_array:
        """One row per product, (2^k, sets) flattened, one column per monomial; no entries in rows of places left over."""
        signs: Array = np.ones((1, 1))
        for _ in range(self.degree):
            signs = np.kron(signs, [[1.0, -1.0], [0.0, 1.0]])
        v, monomial = np.nonzero(signs)
        rows = v[:, None] * len(self.sets) + np.arange(len(self.sets))
        columns = self.index[monomial]
        kept = (columns >= 0) & (self.index[v] >= 0)
        values = np.broadcast_to(signs[v, monomial][:, None], kept.shape)
        return sp.csr_array((values[kept], (rows[kept], columns[kept])), (self.index.size, len(self.keys)))


def _butterfly(local: Array, target: int, source: int, factor: float) -> Array:
    """In place, for every bit: the half of `local` (2^k, sets) with that bit = target gets factor times the other half added."""
    step = 1
    while step < len(local):
        view = local.reshape(len(local) // (2 * step), 2, step, -1)
        view[:, target] += factor * view[:, source]
        step *= 2
    return local


@np.errstate(over="ignore")  # then the bound is infinite
def certified_bound(family: Family, polynomial: Polynomial, multipliers: Array) -> float:
    """An upper bound on a polynomial over the cube from multipliers >= 0 (2^k, sets) of the family's products."""
    if not (multipliers >= 0).all() or not np.isfinite(multipliers).all():
        raise LipoptError("multipliers must be numbers >= 0")
    p = family.coefficients(polynomial)
    index, n = np.where(family.index < 0, len(p), family.index).ravel(), len(p) + 1
    terms = np.bincount(index, minlength=n)[:-1]
    q = p + np.bincount(index, _butterfly(multipliers.copy(), 1, 0, -1.0).ravel(), n)[:-1]
    size = np.abs(p) + np.bincount(index, _butterfly(multipliers.copy(), 1, 0, 1.0).ravel(), n)[:-1]
    error = float((terms + family.degree + 2) @ size) * gamma(1) * 1.01
    if not (np.isfinite(q).all() and math.isfinite(error)):
        return math.inf
    return float(np.nextafter(math.fsum([q[0], *np.maximum(q[1:], 0), error, polynomial.error]), math.inf))


@dataclass(frozen=True, eq=False)
class Proof:
    """A bound on the polynomial of one problem (or of one input), and what proves it."""

    value: float
    products: Products
    status: Status
    details: dict[str, Any]


@register("lipopt")
@dataclass(frozen=True)
class LiPopt:
    """The LP of degree k over a sparsity pattern. Without a degree: from the depth of the network upward, while it pays."""

    degree: int | None = None
    pattern: str = "input"
    solver: str = "auto"  # "consensus", or one of HiGHS's
    tolerance: float = 1e-5  # relative, of the LP's solution

    def __post_init__(self) -> None:
        if self.degree is not None and self.degree < 1:
            raise LipoptError(f"the degree must be at least 1, got {self.degree}")
        if self.pattern not in PATTERNS:
            raise LipoptError(f"unknown pattern '{self.pattern}'; use one of {', '.join(PATTERNS)}")
        if self.solver not in ("auto", "consensus", *highs.SOLVERS):
            raise LipoptError(f"unknown solver '{self.solver}'; use one of auto, consensus, {', '.join(highs.SOLVERS)}")

    @property
    def name(self) -> str:
        return "lipopt" if self.degree is None else f"lipopt-{self.degree}"

    def __call__(self, task: Task) -> UpperBound:
        problem = task.problem
        if problem.norm == "l2":
            raise LipoptError("the LP has no useful bound for the l2 norm (docs/lp.md); use method 'sdp'")
        if problem.is_zero:
            return UpperBound(problem.slack)
        if problem.norm == "l1":
            return self._largest(task)
        if problem.outputs > 1:
            raise LipoptError("the LP takes one output at a time under the l_inf norm; split the rows first")
        proof = self._prove(task, None, task.pop_lower)
        if proof.status == "time limit" and (paths := path_sum_bound(problem)) < proof.value:
            return UpperBound(paths, proof.status, details=proof.details)
        return UpperBound(up_float(proof.value + problem.slack, 1), proof.status, None, proof.products, proof.details)

    def _largest(self, task: Task) -> UpperBound:
        """The l1 norm: the maximum over inputs, those whose path sum is below what others reach left out."""
        sums = up(path_sum_rows(task.problem).sum(axis=0), task.problem.outputs)
        best = 0.0
        status: Status = "complete"
        details: dict[str, Any] = {}
        proofs: dict[int, Products] = {}
        for j in np.argsort(-sums, kind="stable"):
            if sums[j] <= max(best, task.pop_lower):
                best = max(best, float(sums[j]))
                break
            if task.seconds_left <= 0:
                best, status = max(best, float(sums[j])), "time limit"
                break
            proof = self._prove(task, int(j), max(best, task.pop_lower))
            if proof.value <= sums[j]:
                proofs[int(j)] = proof.products
            best, details = max((best, details), (min(proof.value, float(sums[j])), proof.details), key=lambda pair: pair[0])
            status = proof.status
        return UpperBound(up_float(best + task.problem.slack, 1), status, None, proofs, {**details, "inputs": len(proofs)})

    def _prove(self, task: Task, only: int | None, floor: float) -> Proof:
        begin = time.perf_counter()
        polynomial = norm_gradient(task.problem, only)
        lowest = max(1, polynomial.degree)
        if self.degree is not None and self.degree < lowest:
            raise LipoptError(f"degree {self.degree} is below that of the polynomial; use {lowest} (the depth) or more")
        pattern = cliques(sources(task.problem, only), self.pattern)
        largest = max(lowest, int(np.diff(pattern.indptr).max(initial=0)))
        search = _Search(self, task, polynomial, pattern, floor, begin)
        search.seconds["assembly"] += time.perf_counter() - begin
        if self.degree is not None:
            search.tighten(min(self.degree, largest))
            return search.proof()
        for degree in range(lowest, largest + 1):
            before = search.bound
            search.tighten(degree)
            pays = degree == lowest or search.bound <= before * (1 - PAYS)
            fits = len(search.family.sets) * 2 ** (degree + 1) <= PRODUCTS
            if search.finished or not (pays and fits) or time.perf_counter() - begin > PATIENCE:
                break
        return search.proof()


@dataclass(eq=False)
class _Search:
    """The sets of the LP so far, where its solver stands, and the best potentials found: sum_S theta_S = p - constant."""

    method: LiPopt
    task: Task
    polynomial: Polynomial
    pattern: sp.csr_array
    floor: float
    begin: float  # on the clock of time.perf_counter
    bound: float = math.inf
    iterations: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: {"assembly": 0.0, "solve": 0.0, "tighten": 0.0, "certify": 0.0})

    def __post_init__(self) -> None:
        monomials, degree = self.polynomial.monomials, self.polynomial.degree
        _check_size(int(np.count_nonzero((monomials >= 0).sum(axis=1) == degree)), degree)
        sets = maximal_sets(monomials, self.polynomial.variables)
        self.family = Family.of(sets, self.polynomial.variables)
        self.state: consensus.State | None = None
        self.best = (self.family, self.family.at_vertices(self.family.coefficients(self.polynomial)))
        self.all: Family | None = None
        self.rng = np.random.default_rng(self.task.seed)

    @property
    def finished(self) -> bool:
        """Whether the time is over, or nothing can be gained."""
        behind = time.perf_counter() - self.begin > TRIAL and self.bound > BEHIND * self.task.upper
        return self.task.seconds_left <= 0 or behind or self._met(self.bound) or len(self.family.sets) == 0

    def _met(self, bound: float) -> bool:
        """Whether a bound is as good as the LP is solved."""
        return bound <= self.floor * (1 + self.method.tolerance)

    def tighten(self, degree: int) -> None:
        """Solve, add the sets of up to `degree` variables that are violated most, and so on until that no longer helps."""
        _check_size(len(self.family.sets), degree)
        self._extend(pad(self.family.sets, degree))
        stalled = -1  # the first round, with the sets there were, may gain nothing
        while self.pattern.shape[0] and not self.finished:
            before = self.bound
            self._solve(10 * self.method.tolerance, ROUND)
            self.task.progress(f"degree {degree}: {len(self.family.sets)} sets, bound {self.bound:.6g}")
            stalled = stalled + 1 if self.bound > before * (1 - GAIN) else 0
            if self.finished or stalled == STALLS or not self._separate(degree):
                break
        if not self.finished:
            self._solve(self.method.tolerance, LAST)

    def proof(self) -> Proof:
        """The certificate of the best potentials."""
        start = time.perf_counter()
        family, potentials = self.best
        multipliers = np.where(family.index < 0, 0.0, potentials.max(axis=0, initial=-math.inf) - potentials)
        value = certified_bound(family, self.polynomial, multipliers)
        self.seconds["certify"] += time.perf_counter() - start
        details = {
            "degree": family.degree,
            "pattern": self.method.pattern,
            "sets": len(family.sets),
            "monomials": len(family.keys),
            "iterations": self.iterations,
            "seconds": {name: round(s, 3) for name, s in self.seconds.items()},
        }
        status: Status = "time limit" if self.task.seconds_left <= 0 and not self._met(self.bound) else "complete"
        return Proof(value, Products(family.sets, np.ascontiguousarray(multipliers.T)), status, details)

    def _solve(self, tolerance: float, iterations: int) -> None:
        """Solve the LP over the sets there are, from the state there is."""
        start = time.perf_counter()
        family = self.family
        p = family.coefficients(self.polynomial)
        moments = consensus.Moments(family.index, len(family.keys))
        objective = moments.gather(family.at_vertices(p)) / len(family.index)
        self.seconds["assembly"] += time.perf_counter() - start
        start = time.perf_counter()
        solver = self.method.solver
        small = solver == "auto" and family.index.size <= SIMPLEX
        if small or solver in highs.SOLVERS:
            self.state = _by_highs(family, p, "simplex" if small else solver, tolerance, self.task.seconds_left)
            iterations = 0
        solution = consensus.solve(
            moments,
            objective,
            self.state,
            tolerance=tolerance,
            iterations=iterations,
            stop=lambda bound: self.finished or self._met(bound),
        )
        self.state = solution.state
        self.iterations += solution.iterations
        if solution.bound < self.bound:
            self.bound, self.best = solution.bound, (family, solution.potentials)
        self.seconds["solve"] += time.perf_counter() - start

    def _separate(self, degree: int) -> bool:
        """Add the sets that are violated most; False if there are none."""
        start = time.perf_counter()
        assert self.state is not None
        candidates = self._candidates(degree)
        place = self.family.find(candidates.keys)
        known = np.where(place >= 0, self.state.moments[place], 0.0)
        moments = consensus.Moments(candidates.index, len(candidates.keys))
        completed, violation = consensus.complete(moments, known, place >= 0)
        room = min(max(FEWEST, len(self.family.sets) // SHARE), PRODUCTS // 2**degree - len(self.family.sets))
        violated = np.count_nonzero(violation > max(VIOLATED, WORTH * violation.max()))
        chosen = np.argsort(-violation, kind="stable")[: max(0, min(violated, room))]
        if len(chosen):
            sets = maximal_sets(np.concatenate([self.family.sets, candidates.sets[chosen]]), self.family.variables)
            self._extend(sets, candidates, completed)
        self.seconds["tighten"] += time.perf_counter() - start
        return len(chosen) > 0

    def _candidates(self, degree: int) -> Family:
        """The sets of the pattern, or a random sample of them, a new one each time, if they are too many."""
        if self.all is not None and self.all.degree == degree:
            return self.all
        most, variables = CANDIDATES // 2**degree, self.family.variables
        if count_sets(self.pattern, degree) > 4 * most:  # cliques share sets: there may be fewer than it seems
            return Family.of(maximal_sets(random_sets(self.pattern, degree, most, self.rng), variables), variables)
        sets = maximal_sets(all_sets(self.pattern, degree), variables)
        if len(sets) > most:
            return Family.of(self.rng.choice(sets, most, replace=False), variables)
        self.all = Family.of(sets, variables)
        return self.all

    def _extend(self, sets: Array, candidates: Family | None = None, completed: Array | None = None) -> None:
        """Go on with these sets, each old one inside one of them: moments as they were or were completed, multipliers moved."""
        old, new = self.family, Family.of(sets, self.family.variables)
        if self.state is not None:
            moments = np.zeros(len(new.keys))
            for family, values in ((candidates, completed), (old, self.state.moments)):
                if family is not None and values is not None:
                    place = family.find(new.keys)
                    moments = np.where(place >= 0, values[place], moments)
            self.state = consensus.State(moments, _moved(old, new, self.state.multipliers), self.state.weight)
        self.family = new


def _check_size(sets: int, degree: int) -> None:
    if sets * 2**degree > PRODUCTS:
        raise LipoptError(
            f"the LP of degree {degree} starts with {sets * 2**degree:.3g} products and would not fit in memory "
            f"(limit {PRODUCTS:.3g}); use method 'sdp'"
        )


def _by_highs(family: Family, p: Array, solver: str, tolerance: float, seconds: float) -> consensus.State:
    """Moments and multipliers from HiGHS, in the consensus solver's terms."""
    matrix = family.matrix()
    rows = np.flatnonzero(np.diff(matrix.indptr))
    matrix = matrix[rows]
    constant = matrix[:, [0]].toarray().ravel()
    scale = float(np.abs(p).max()) or 1.0
    y, c, _ = highs.solve(matrix[:, 1:], -constant, p[1:] / scale, solver=solver, tolerance=tolerance, seconds=seconds)
    c = c * scale
    slack = np.maximum(-(p + matrix.T @ c), 0)  # as a product: x_m is the sum of the products that have all its factors
    slack[0] = 0
    multipliers = np.zeros(family.index.size)
    multipliers[rows] = c
    multipliers = _twins(family, multipliers.reshape(family.index.shape)) + family.at_vertices(slack)
    local = np.append(np.append(1.0, y), 0.0)[family.index]
    walsh = consensus.walsh(_butterfly(local, 0, 1, -1.0))
    moments = np.zeros(len(p) + 1)
    moments[family.index] = walsh
    moments[0] = 1.0
    return consensus.State(moments[:-1], multipliers)


def _twins(family: Family, multipliers: Array) -> Array:
    """The same multipliers whether or not bits of places left over are set: to the consensus solver, variables of no effect."""
    places = 2 ** np.arange(family.degree)
    own = np.arange(len(multipliers))[:, None] & ((family.sets >= 0) @ places)
    return multipliers[own, np.arange(len(family.sets))]


def _moved(old: Family, new: Family, multipliers: Array) -> Array:
    """Multipliers of the products of old sets, moved to a new set that contains each."""
    result = np.zeros(new.index.size)
    whole = set_keys(old.sets, old.variables)
    mask, place = np.divmod(new.somewhere()[new.find(whole)], len(new.sets))
    shift = (old.sets < 0).sum(axis=1)
    for v in range(len(new.index)):
        bits, below = np.zeros(len(whole), np.int64), shift.copy()
        for b in range(new.degree):
            inside = mask >> b & 1
            bits |= inside * (v >> b & 1) << below
            below += inside
        result += np.bincount(v * len(new.sets) + place, multipliers[bits, np.arange(len(whole))], len(result))
    return result.reshape(new.index.shape)
