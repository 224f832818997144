"""LiPopt(k): upper bounds from Krivine certificates of degree k, over chosen sets of variables.

`polynomial` expands the problem, `sparsity` says which sets of variables the certificate may use,
`tightening` searches for it, and `krivine` computes the bound that it proves.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import LipoptError
from ...model.norms import Norm
from ...numerics.rounding import up_float
from ...problem.proofs import ByInput, KrivineTerms, PathSums
from ...problem.task import Status, Task, UpperBound
from ...solvers import highs
from ..baselines import path_sum_bound, path_sum_columns
from ..registry import register
from .polynomial import norm_gradient, sources
from .sparsity import PATTERNS, cliques
from .tightening import Proof, Tightening

SOLVERS = ("auto", "consensus", *highs.SOLVERS)

# Without a degree, LiPopt goes on to the next one while the last one gained at least MIN_GAIN
# (relative), until so much work was done, in products times iterations: about a minute.
MIN_GAIN = 5e-3
PATIENCE_WORK = 6e9


@register("lipopt")
@dataclass(frozen=True)
class LiPopt:
    """The paper's LP of degree k over a sparsity pattern: the method for sparse networks.

    It takes the norms linf and l1. docs/lp.md says how it works.

    Args:
        degree: the degree k, at least the depth of the network. By default it starts there and goes
            up while a degree gains more than 0.5 %.
        pattern: which sets of variables are used: "paths", "input", "output", "chordal" or "full".
        solver: "auto", "consensus" (our own), or one of HiGHS's: "simplex", "ipm", "ipx", "hipo",
            "pdlp", "hipdlp".
        tolerance: the relative accuracy to which the LP is solved. The bound holds whatever it is.

    Raises:
        LipoptError: degree, pattern or solver is not one of these; when it is called, the degree is
            below the depth, the polynomial or the LP is too large, or the norm is l2.

    Examples:
        >>> import lipopt
        >>> weights = [[[1.0, -1.0], [2.0, 1.0]], [[1.0, -1.0]]]
        >>> result = lipopt.bound(weights, method=lipopt.LiPopt(degree=3, pattern="full"))
        >>> result.method, result.details["pattern"]
        ('lipopt-3', 'full')
    """

    degree: int | None = None
    pattern: str = "input"
    solver: str = "auto"  # "auto", "consensus", or one of HiGHS's
    tolerance: float = 1e-5  # relative, of the LP's solution

    def __post_init__(self) -> None:
        if self.degree is not None and self.degree < 1:
            raise LipoptError(f"the degree must be at least 1, got {self.degree}")
        if self.pattern not in PATTERNS:
            raise LipoptError(f"unknown pattern '{self.pattern}'; use one of {', '.join(PATTERNS)}")
        if self.solver not in SOLVERS:
            raise LipoptError(f"unknown solver '{self.solver}'; use one of {', '.join(SOLVERS)}")

    @property
    def name(self) -> str:
        return "lipopt" if self.degree is None else f"lipopt-{self.degree}"

    def __call__(self, task: Task) -> UpperBound:
        problem = task.problem
        if Norm.L2 in problem.norms:
            raise LipoptError(
                "the LP has no useful bound for the l2 norm (docs/lp.md); use method 'sdp'"
            )
        if problem.is_zero:
            return UpperBound(problem.slack, proof=PathSums())
        if problem.norm.is_by_input:
            return self._largest_over_inputs(task)
        if problem.outputs > 1 and not problem.adds_outputs:
            raise LipoptError(
                "the LP takes one output at a time under the l_inf norm; split the rows first"
            )
        proof, details = self._prove(task, None, task.pop_lower)
        if proof.status == "time limit":
            paths = path_sum_bound(problem)
            if paths < proof.value:
                return UpperBound(paths, proof.status, proof=PathSums(), details=details)
        value = up_float(proof.value + problem.slack, 1)
        return UpperBound(value, proof.status, proof=proof.terms, details=details)

    def _largest_over_inputs(self, task: Task) -> UpperBound:
        """The l1 norm: the maximum over inputs.

        Inputs come in the order of their path sums, and the rest is left out as soon as the next
        path sum is no larger than the bound or a lower bound that is known."""
        path_sums = path_sum_columns(task.problem)
        largest = 0.0
        status: Status = "complete"
        details: dict[str, Any] = {}
        proofs: dict[int, KrivineTerms] = {}
        for j in map(int, np.argsort(-path_sums, kind="stable")):
            paths = float(path_sums[j])
            floor = max(largest, task.pop_lower)
            if paths <= floor:
                largest = max(largest, paths)
                break
            if task.seconds_left <= 0:
                largest = max(largest, paths)
                status = "time limit"
                break
            proof, found = self._prove(task, j, floor)
            if proof.status == "time limit":
                status = "time limit"
            if proof.value <= paths:
                proofs[j] = proof.terms
            bound = min(proof.value, paths)
            if bound > largest:
                largest = bound
                details = found
        return UpperBound(
            up_float(largest + task.problem.slack, 1),
            status,
            proof=ByInput(proofs),
            details={**details, "inputs": len(proofs)},
        )

    def _prove(self, task: Task, only: int | None, floor: float) -> tuple[Proof, dict[str, Any]]:
        """A bound on the polynomial of a task (of one input, with `only`), and its details."""
        start = time.perf_counter()
        polynomial = norm_gradient(task.problem, only)
        lowest = max(1, polynomial.degree)
        if self.degree is not None and self.degree < lowest:
            raise LipoptError(
                f"degree {self.degree} is below that of the polynomial; "
                f"use {lowest} (the depth) or more"
            )
        pattern = cliques(sources(task.problem, only), self.pattern)
        largest = max(lowest, int(np.diff(pattern.indptr).max(initial=0)))
        search = Tightening(task, polynomial, pattern, self.solver, self.tolerance, floor=floor)
        search.seconds["assembly"] += time.perf_counter() - start
        if self.degree is not None:
            search.tighten(min(self.degree, largest))
        else:
            _tighten_while_it_pays(search, lowest, largest)
        proof = search.proof()
        return proof, self._details(search)

    def _details(self, search: Tightening) -> dict[str, Any]:
        family = search.best.family
        return {
            "degree": family.degree,
            "pattern": self.pattern,
            "sets": len(family.sets),
            "monomials": len(family.keys),
            "iterations": search.iterations,
            "seconds": {stage: round(s, 3) for stage, s in search.seconds.items()},
        }


def _tighten_while_it_pays(search: Tightening, lowest: int, largest: int) -> None:
    """Go from the lowest degree upward until the next one no longer pays, or does not fit."""
    for degree in range(lowest, largest + 1):
        before = search.bound
        search.tighten(degree)
        pays = degree == lowest or search.bound <= before * (1 - MIN_GAIN)
        enough = search.work > PATIENCE_WORK
        if search.finished or not pays or not search.fits(degree + 1) or enough:
            break
