"""SDP(): the bound of Shor's relaxation for any derivative problem.

    vectors rounded to slopes <= POP optimum <= |C X| at the optimum = mu + sum of delta <= bound

The vector network (vector_network.py) is searched for the optimum, the dual (dual.py) for
multipliers that prove a bound near it (search.py). What is reported is always proved; if nothing
can be proved, that is the path sum. Under l1 the optimum is a maximum over inputs (over_inputs.py).

Where inputs outnumber neurons, slopes are shifted to begin at 0. Then the dual can eliminate the
inputs first, which is cheap.

Many problems of one network (`together`) are filled up to one shape (problem/same_shape.py) and
solved as a batch, which keeps a GPU busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...errors import LipoptError
from ...numerics.blas import blas_threads
from ...numerics.rounding import up_float
from ...problem.derivative import DerivativeProblem
from ...problem.presolve import slopes_from_zero
from ...problem.proofs import ByInput, MatrixNorm, Multipliers, PathSums
from ...problem.same_shape import RealNeurons, padded, real_neurons
from ...problem.task import Status, Task, UpperBound
from ..baselines import path_sum_bound
from ..registry import register
from .backend import Backend, backend, enough_memory
from .batches import (
    check_blocks,
    is_too_large,
    runs_on_cpu,
    seconds_to_begin,
    split_into_batches,
)
from .cuts import Cuts
from .dual import Dual
from .first_layers import smallest_cut, without_first_layers
from .hyperplanes import round_vectors
from .over_inputs import maximum_over_inputs
from .search import Candidate, Found, Search, prove_candidates, remember_vectors
from .sparse_dual import SparseDual, is_sparse
from .vector_network import VectorNetwork


@register("sdp")
@dataclass(frozen=True)
class SDP:
    """Shor's relaxation of the derivative problem: the method for dense and deep networks.

    It takes every norm, one output or all. docs/sdp.md says how it works.

    Args:
        rank: the number of coordinates of the vectors, which then stays. By default it is chosen
            from the size of the problem, and raised when that helps.
        gap: the relative distance between the value of the relaxation and the bound at which the
            search stops.
        device: a torch device, such as "cuda"; None for NumPy on the CPU.
        cuts: whether to add signs and triangle inequalities, which takes longer and closes most of
            the gap to the optimum of the POP. For one output, under linf or l2, on the CPU.

    Raises:
        LipoptError: rank or gap is not positive; when it is called, a layer is too wide for it, the
            problem does not take cuts, or the device is not there.

    Examples:
        >>> import lipopt
        >>> weights = [[[1.0, -1.0], [2.0, 1.0]], [[1.0, -1.0]]]
        >>> result = lipopt.bound(weights, method=lipopt.SDP(gap=1e-6))
        >>> result.upper >= result.pop_lower
        True
    """

    rank: int | None = None
    gap: float = 1e-4
    device: str | None = None
    cuts: bool = False
    name: ClassVar[str] = "sdp"

    def __post_init__(self) -> None:
        if self.rank is not None and self.rank < 1:
            raise LipoptError(f"the rank must be positive, got {self.rank}")
        if not self.gap > 0:
            raise LipoptError(f"the gap must be positive, got {self.gap}")

    def __call__(self, task: Task) -> UpperBound:
        task = replace(task, budget=task.budget.without(task.seconds_to_write))
        if not task.keeps_proof and is_too_large(task.problem, self.device):
            count = smallest_cut(task.problem, self.device)
            if count is not None:
                return self._without_first_layers(task, count)
        return self.together([task])[0]

    def _without_first_layers(self, task: Task, count: int) -> UpperBound:
        """The bound of the rest of a problem that is too large. No certificate goes with it."""
        rest = without_first_layers(task.problem, count)
        smaller = Task(rest, rest, task.budget)
        found = replace(self, cuts=False).together([smaller])[0]
        details = {**found.details, "left_out": f"{count} of {len(task.problem.layers)} layers"}
        details.pop("primal", None)  # it says nothing about the whole
        return replace(found, pop_lower=None, proof=None, details=details)

    def together(self, tasks: Sequence[Task]) -> list[UpperBound]:
        """The bounds of tasks of one network, solved in batches.

        The time is up for a batch when it is for its first task."""
        arrays = backend(self.device)
        found: dict[int, UpperBound] = {}
        for which in split_into_batches([task.problem for task in tasks]):
            batch = [tasks[k] for k in which]
            with self._resources(sum(batch[0].problem.sizes)):
                bounds = self._solve_batch(batch, arrays)
            found.update(zip(which, bounds, strict=True))
        if self.cuts:
            return [self._cut(task, found[k]) for k, task in enumerate(tasks)]
        return [found[k] for k in range(len(tasks))]

    def _cut(self, task: Task, found: UpperBound) -> UpperBound:
        """The bound with cuts, if that is smaller."""
        if not task.problem.layers:
            return found
        pop_lower = max(task.pop_lower, found.pop_lower or 0.0)
        better = Cuts(self.gap)(replace(task, upper=found.value, pop_lower=pop_lower))
        if better.value >= found.value:
            return replace(found, pop_lower=better.pop_lower)
        return replace(better, details={**found.details, **better.details})

    def _resources(self, variables: int) -> AbstractContextManager[Any]:
        """The BLAS threads for a problem of this size, or the memory of the device."""
        if self.device is None or runs_on_cpu(self.device):
            return blas_threads(variables)
        return enough_memory(self.device)

    def _solve_batch(self, tasks: Sequence[Task], arrays: Backend) -> list[UpperBound]:
        problems = [task.problem for task in tasks]
        norm, output = problems[0].norms
        if not problems[0].layers and not norm.is_hard(output):
            return [_linear_bound(problem) for problem in problems]
        check_blocks(problems, self.device)
        if tasks[0].seconds_left <= seconds_to_begin(problems):
            return [_out_of_time(task) for task in tasks]
        search = Search(self.rank, self.gap)
        if problems[0].norm.is_by_input:
            bounds = []
            for task in tasks:
                bounds.append(_report(task, maximum_over_inputs(task, search, arrays)))
            return bounds
        return _solve_together(tasks, search, arrays)


def _solve_together(tasks: Sequence[Task], search: Search, arrays: Backend) -> list[UpperBound]:
    """The bounds of tasks under linf or l2, as one batch."""
    problems = [task.problem for task in tasks]
    if problems[0].inputs > max(problem.neurons for problem in problems):
        problems = [slopes_from_zero(problem) for problem in problems]
    same = padded(problems) if len(problems) > 1 else problems
    network = VectorNetwork.of(same, arrays)
    dual = _dual(same, arrays)
    candidates = []
    for task in tasks:
        path_sum = path_sum_bound(replace(task.problem, slack=0.0))
        candidates.append(Candidate(path_sum))
    # Vectors are remembered for a single task alone: those of a batch are padded.
    first = tasks[0] if len(tasks) == 1 else replace(tasks[0], memory=None)
    state = search.run(network, dual, candidates, first)
    remember_vectors(network, state, first)
    prove_candidates(dual, candidates, first.budget)
    bounds = []
    for k, task in enumerate(tasks):
        candidate = candidates[k]
        neurons = real_neurons(task.problem, same[k])
        pop_lower = None
        if task.finds_pop_lower:
            pop_lower = round_vectors(network, state, k, neurons, task)
        found = Found(
            value=candidate.proved + problems[k].slack,
            pop_lower=pop_lower,
            proof=_without_padding(candidate.proof, neurons),
            primal=candidate.value,
            rank=state.rank,
        )
        bounds.append(_report(task, found))
    return bounds


def _dual(problems: Sequence[DerivativeProblem], arrays: Backend) -> Dual | SparseDual:
    """The dual of problems of the same shape, sparse or in dense blocks."""
    if len(problems) == 1 and is_sparse(problems[0]):
        return SparseDual(tuple(problems), arrays)
    return Dual.of(problems, arrays)


def _without_padding(
    proof: Multipliers | None, neurons: Sequence[RealNeurons]
) -> Multipliers | None:
    """The multipliers of real neurons."""
    if proof is None:
        return None
    return replace(proof, tau=[proof.tau[real.place][: real.size] for real in neurons])


def _report(task: Task, found: Found) -> UpperBound:
    """The bound of a search; without multipliers, it is the path sum."""
    status: Status = "time limit" if task.seconds_left <= 0 else "complete"
    details: dict[str, Any] = {"primal": found.primal, "rank": found.rank}
    proof = found.proof
    if proof is None or (isinstance(proof, ByInput) and not proof.proofs):
        proof = PathSums()
        details["chosen"] = "path-sum"
    return UpperBound(up_float(found.value, 1), status, found.pop_lower, proof, details)


def _out_of_time(task: Task) -> UpperBound:
    """What is known without a search."""
    bound = path_sum_bound(task.problem)
    return UpperBound(bound, "time limit", proof=PathSums(), details={"chosen": "path-sum"})


def _linear_bound(problem: DerivativeProblem) -> UpperBound:
    """The bound where no hidden neuron is left: the norm of a matrix."""
    norm, output = problem.norms
    total = norm.of_matrix_up(problem.objective[0], output) + problem.slack
    value = up_float(total, 1) if total else 0.0
    return UpperBound(value, proof=MatrixNorm(value))
