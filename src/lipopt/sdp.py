"""SDP(): the bound of Shor's relaxation for any derivative problem, by the vector network and its dual.

    vectors rounded to slopes <= POP optimum <= |C X| at the optimum = mu + sum of delta <= the bound that is reported

Rounds of ascent alternate with the dual (dual.py), until the two are within the gap, nothing improves, or time is up.
What is reported is always proved; if nothing can be proved, that is the path sum. The rank starts small and is
raised when the ascent ends with the gap still open, up to sqrt(2 n) + 1 for n variables: some optimum has that rank.

For l1 the optimum is a maximum over inputs: batches of problems that share everything but t, those with the largest path
sums first. Multipliers found for one input prove bounds for all; an input that is settled that way is not searched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from typing import Any, ClassVar

import numpy as np

from .backend import Backend, backend
from .baselines import operator_norm_up, path_sum_bound, path_sum_rows
from .dual import Dual, Hint, Multipliers
from .errors import LipoptError
from .lower import alternating
from .methods import Status, Task, UpperBound, register
from .problem import DerivativeProblem
from .rounding import Array, up, up_float
from .threads import blas_threads
from .vector_network import State, VectorNetwork

FIRST_RANK, RANK_SHARE = 16, 4  # to start with at least, and that share of the rank that is enough
POWER = 30  # power iterations before the first look at the dual
STAGES = (50, 100, 200)  # L-BFGS iterations between looks at the dual; the last repeats
MOST_STAGES = 30
STALLED = 1e-7  # relative gain of a stage that counts as none
INFLATIONS = (1e-9, 1e-6, 1e-4, 1e-3, 1e-2)  # of the multipliers, to make the dual definite
HYPERPLANES = 32  # to round the vectors with; fewer on problems with more than ROUNDING_WORK / HYPERPLANES coefficients
ROUNDING_WORK = 200_000_000
BATCH = 8  # inputs solved together for l1
LARGEST_BLOCK = 12_000  # order of the largest dense block of the dual: about ten such matrices are kept


@register("sdp")
@dataclass(frozen=True)
class SDP:
    """Shor's relaxation. `rank` of the vectors (chosen from the size by default), relative `gap` to stop at, torch `device`."""

    rank: int | None = None
    gap: float = 1e-4
    device: str | None = None
    name: ClassVar[str] = "sdp"

    def __post_init__(self) -> None:
        if self.rank is not None and self.rank < 1:
            raise LipoptError(f"the rank must be positive, got {self.rank}")
        if not self.gap > 0:
            raise LipoptError(f"the gap must be positive, got {self.gap}")

    def __call__(self, task: Task) -> UpperBound:
        arrays = backend(self.device)
        problem = task.problem
        if not problem.layers:
            return UpperBound(_linear_norm(problem))
        if max(problem.sizes) > LARGEST_BLOCK:
            raise LipoptError(
                f"a layer of {max(problem.sizes)} is too wide for the SDP, which takes up to {LARGEST_BLOCK}; use 'path-sum'"
            )
        with blas_threads(sum(problem.sizes)) if self.device in (None, "cpu") else nullcontext():
            if problem.norm == "l1":
                return self._maximum_over_inputs(task, arrays)
            network = VectorNetwork(problem, arrays)
            case = _Case(Dual(problem, arrays), path_sum_bound(replace(problem, slack=0.0)))
            state = self._search(network, [case], task)
            value, proof = case.proved()
            return _upper_bound(task, value, _rounded(network, state, task), proof, _details(case.value, state))

    def _maximum_over_inputs(self, task: Task, arrays: Backend) -> UpperBound:
        """l1: the inputs with the largest path sums first. A proof for one holds for others too; those need no search."""
        problem, dual = task.problem, Dual(task.problem, arrays)
        sums = up(path_sum_rows(problem).sum(axis=0), problem.outputs)
        left = np.argsort(-sums, kind="stable")
        value = low = primal = 0.0
        proofs: list[Multipliers] = []
        while len(left):
            cases = [_Case(dual, float(sums[j]), int(j), primal) for j in left[:BATCH]]
            network = VectorNetwork(problem, arrays, left[:BATCH])
            state = self._search(network, cases, task)
            primal = max(primal, *(case.value for case in cases))
            low = max(low, _rounded(network, state, task))
            for case in sorted(cases, key=lambda case: -case.bound):
                if sums[case.index] > value:
                    bound, proof = case.proved(value)
                    value = max(value, bound)
                    if proof is not None:
                        proofs.append(proof)
                        sums = np.minimum(sums, proof.bounds)
            left = left[BATCH:][sums[left[BATCH:]] > value]
            if task.seconds_left <= 0:
                value = float(np.max(sums[left], initial=value))
                break
        return _upper_bound(task, value, low, proofs, _details(primal, state))

    def _search(self, network: VectorNetwork, cases: Sequence[_Case], task: Task) -> State:
        """Ascend until the largest bound of all cases is within the gap of the largest value; the last state."""
        for state in self._states(network, task):
            low = max(*(case.value for case in cases), float(state.values.max()))
            for k, case in enumerate(cases):
                case.value = low
                if case.bound > low * (1 + self.gap):
                    case.look(network.rows(state, k), network.vectors(state, k), self.gap)
            high = max(case.bound for case in cases)
            task.progress(f"sdp: value {low:.6g}, bound {high:.6g}, gap {high / max(low, 1e-300) - 1:.1e}")
            if high <= low * (1 + self.gap):
                break
        return state

    def _states(self, network: VectorNetwork, task: Task) -> Iterator[State]:
        """The state after every stage of the ascent."""
        enough = ceil(sqrt(2 * sum(network.free))) + 1
        rank = self.rank or min(enough, max(FIRST_RANK, enough // RANK_SHARE))
        x = network.power(network.start(rank, task.seed), POWER)
        state = network.evaluate(x)
        yield state
        for stage, iterations in enumerate(itertools.chain(STAGES, itertools.repeat(STAGES[-1], MOST_STAGES))):
            if task.seconds_left <= 0:
                return
            x, ended = network.ascend(x, iterations, lambda: task.seconds_left <= 0)
            before, state = float(state.values.max()), network.evaluate(x)
            yield state
            if ended or float(state.values.max()) <= before * (1 + STALLED):
                if rank >= enough or self.rank:
                    return
                rank = min(2 * rank, enough)
                x = network.widen(x, rank, task.seed + stage)


@register("lip-sdp")
@dataclass(frozen=True)
class LipSDP:
    """LipSDP-Neuron (Fazlyab et al., 2019), as the paper compares it: the l2 bound, times sqrt(n_0) for linf."""

    gap: float = 1e-4
    device: str | None = None
    name: ClassVar[str] = "lip-sdp"

    def __call__(self, task: Task) -> UpperBound:
        problem = task.problem
        found = SDP(gap=self.gap, device=self.device)(replace(task, problem=replace(problem, norm="l2")))
        factor = {"l2": 1, "linf": problem.inputs, "l1": problem.outputs}[problem.norm]
        if factor == 1:
            return found
        return UpperBound(up_float(found.value * sqrt(factor), 2), found.status, details={**found.details, "l2": found.value})


@dataclass(eq=False)
class _Case:
    """One problem's search (for l1, one input's): the best value and the best multipliers so far."""

    dual: Dual
    path_sum: float
    index: int = 0
    value: float = 0.0
    hint: Hint | None = None
    vectors: list[Any] = field(default_factory=list)  # where the hint was found

    @property
    def bound(self) -> float:
        """What will be proved, up to rounding."""
        return self.path_sum if self.hint is None else min(sqrt(self.hint.squares[self.index]), self.path_sum)

    def look(self, rows: Array, x: list[Any], gap: float) -> None:
        """Fit the dual at these vectors and keep the best: the farther from the optimum, the more inflation helps."""
        latest = np.inf
        for inflation in INFLATIONS:
            hint = self.dual.fit(rows, x, inflation)
            if hint is None:
                continue
            square = float(hint.squares[self.index])
            if self.hint is None or square < self.hint.squares[self.index]:
                self.hint, self.vectors = hint, x
            if self.bound <= self.value * (1 + gap) or square > latest:
                break
            latest = square

    def proved(self, enough: float = 0.0) -> tuple[float, Multipliers | None]:
        """A proved bound, no smaller than needed, and its multipliers; the path sum, and none, if that is better."""
        hint = self.hint if max(self.bound, enough) < self.path_sum else None
        while hint is not None:
            proof = self.dual.prove(hint, max(enough, sqrt(hint.squares[self.index])))
            if proof is not None:
                return min(self.path_sum, float(proof.bounds[self.index])), proof
            hint = self.dual.fit(hint.rows, self.vectors, 10 * hint.inflation) if hint.inflation < INFLATIONS[-1] else None
        return self.path_sum, None


def _upper_bound(task: Task, value: float, low: float, certificate: Any, details: dict[str, Any]) -> UpperBound:
    value = up_float(value + task.problem.slack, 1)
    status: Status = "time limit" if task.seconds_left <= 0 else "complete"
    return UpperBound(value, status, low, certificate, details)


def _details(primal: float, state: State) -> dict[str, Any]:
    return {"primal": primal, "rank": int(state.units[0].shape[2])}


def _linear_norm(problem: DerivativeProblem) -> float:
    """No hidden neuron is left: the norm of a matrix."""
    total = operator_norm_up(problem.objective[0], problem.norm) + problem.slack
    return up_float(total, 1) if total else 0.0


def _rounded(network: VectorNetwork, state: State, task: Task) -> float:
    """A lower bound on the POP: slopes on the side of random hyperplanes where the vectors are, then alternating maximization."""
    problem, numpy = task.problem, network.backend.numpy
    k = int(numpy(state.values).argmax())
    count = max(4, min(HYPERPLANES, ROUNDING_WORK // max(1, problem.nonzeros)))
    planes = np.random.default_rng(task.seed).standard_normal((state.units[0].shape[2], count))
    slopes = []
    for layer, y, v in zip(problem.layers, state.y, state.units[1:], strict=True):
        same_side = (numpy(y)[:, k] @ planes) * (numpy(v)[:, k] @ planes) > 0
        slopes.append(np.where(same_side, layer.upper[:, None], layer.lower[:, None]))
    starts = [[s[:, i] for s in slopes] for i in range(count)]
    return alternating(problem, task, starts, restarts=4)
