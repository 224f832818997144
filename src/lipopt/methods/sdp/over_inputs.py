"""The SDP under l1: the optimum is a maximum over inputs, each varied alone.

The problems of the inputs share everything but t. They are searched in batches, those with the
largest path sums first. Multipliers found for one input prove a bound for every input, so an input
whose bound is no larger than the largest one so far is settled, and is not searched.

If an input does not reach all neurons, as in a convolution, it has a problem of its own without
them: they would need infinite multipliers. What is proved for it holds for that input alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...numerics.arrays import Array
from ...numerics.rounding import gamma
from ...problem.derivative import DerivativeProblem
from ...problem.presolve import drop_unused, one_input
from ...problem.proofs import ByInput, Multipliers, best_by_input
from ...problem.same_shape import padded, real_neurons
from ...problem.task import Task
from ..baselines import path_sum_columns
from .backend import Backend
from .dual import Dual
from .hyperplanes import round_vectors
from .search import Candidate, Found, Search, prove_candidates
from .vector_network import State, VectorNetwork

# The number of inputs that are searched together. Later ones may be settled by their proofs.
INPUTS_PER_BATCH = 8


def maximum_over_inputs(task: Task, search: Search, arrays: Backend) -> Found:
    """The bound of a task under l1."""
    problem = task.problem
    paths = path_sum_columns(problem)
    left = np.argsort(-paths, kind="stable")
    known = _Known(paths)
    # Inputs that no neuron reads have a constant derivative: their path sum.
    is_read = _are_read(problem)
    known.value = float(np.max(known.bounds[~is_read], initial=0.0))
    known.primal = known.value
    known.pop_lower = known.value * (1 - 2 * gamma(2 * problem.outputs + 4))
    # Skip these, and inputs that no path leaves.
    left = left[is_read[left] & (paths[left] > 0)]
    left = left[known.bounds[left] > known.value]
    whole = Dual.of([problem], arrays)
    # The first fit tells how long a proof takes: where time is limited it is one of few inputs.
    count = INPUTS_PER_BATCH if task.budget.deadline is None else 1
    while len(left):
        batch = _InputBatch.of(problem, left[:count], whole)
        candidates = batch.candidates(known)
        state = search.run(batch.network, batch.dual, candidates, replace(task, memory=None))
        known.prove(batch, candidates, task)
        known.note_values(batch, candidates, state, task)
        left = left[count:]
        left = left[known.bounds[left] > known.value]
        count = min(2 * count, INPUTS_PER_BATCH)
        if task.seconds_left <= 0:
            known.value = float(np.max(known.bounds[left], initial=known.value))
            break
    return Found(
        value=known.value + problem.slack,
        pop_lower=known.pop_lower,
        proof=ByInput({**best_by_input(known.for_all), **known.for_one}),
        primal=known.primal,
        rank=known.rank,
    )


def _are_read(problem: DerivativeProblem) -> Array:
    """Which inputs a neuron reads."""
    are_read = np.zeros(problem.inputs, bool)
    for layer in problem.layers:
        if 0 in layer.blocks:
            sums = np.asarray(abs(layer.blocks[0]).sum(axis=0))
            are_read |= sums.reshape(-1) > 0
    return are_read


@dataclass(frozen=True, eq=False)
class _InputBatch:
    """Some inputs, and their problems, ready to be searched together."""

    inputs: Array
    problems: Sequence[DerivativeProblem]  # of each input
    filled: Sequence[DerivativeProblem]  # the same, padded to one shape
    shared: bool  # whether they all are the whole problem: then proofs hold for all inputs
    network: VectorNetwork
    dual: Dual

    @staticmethod
    def of(problem: DerivativeProblem, inputs: Array, whole: Dual) -> _InputBatch:
        """The batch of these inputs; `whole` is the dual of the whole problem."""
        alone = [drop_unused(one_input(problem, int(j))) for j in inputs]
        if all(part.neurons == problem.neurons for part in alone):
            same = [problem] * len(inputs)
            network = VectorNetwork.of([problem], whole.backend, inputs)
            return _InputBatch(inputs, same, same, True, network, whole)
        filled = padded(alone)
        only_input = np.zeros(len(inputs), np.int64)
        network = VectorNetwork.of(filled, whole.backend, only_input)
        dual = Dual.of(filled, whole.backend)
        return _InputBatch(inputs, alone, filled, False, network, dual)

    def candidates(self, known: _Known) -> list[Candidate]:
        """One candidate for each input."""
        candidates = []
        for j in self.inputs:
            index = int(j) if self.shared else 0
            candidates.append(Candidate(float(known.bounds[j]), index, known.primal))
        return candidates


@dataclass(eq=False)
class _Known:
    """What is known so far."""

    bounds: Array  # for every input: its path sum, or less if that is proved
    value: float = 0.0  # the largest bound of an input that was searched
    pop_lower: float = 0.0  # a lower bound on the optimum
    primal: float = 0.0  # the largest value of any vectors
    rank: int = 0  # of the latest vectors
    for_all: list[Multipliers] = field(default_factory=list)  # proofs that hold for all inputs
    for_one: dict[int, Multipliers] = field(default_factory=dict)  # proofs that hold for one

    def note_values(
        self, batch: _InputBatch, candidates: Sequence[Candidate], state: State, task: Task
    ) -> None:
        """Keep the values of a search and, if there is time, round the vectors of its best input."""
        self.primal = max(self.primal, *(candidate.value for candidate in candidates))
        self.rank = state.rank
        if task.seconds_left <= 0:
            return
        best = int(batch.network.backend.numpy(state.values).argmax())
        neurons = real_neurons(batch.problems[best], batch.filled[best])
        alone = replace(task, problem=batch.problems[best])
        low = round_vectors(batch.network, state, best, neurons, alone)
        self.pop_lower = max(self.pop_lower, low)

    def prove(self, batch: _InputBatch, candidates: Sequence[Candidate], task: Task) -> None:
        """Prove the bounds of the inputs that are not settled, from the largest on, in time."""
        order = sorted(range(len(candidates)), key=lambda k: -candidates[k].bound)
        for k in order:
            j = int(batch.inputs[k])
            candidate = candidates[k]
            if self.bounds[j] <= self.value:
                continue
            if task.seconds_left <= 0 and self.value > 0:
                self.value = float(self.bounds[j])
                continue
            prove_candidates(batch.dual.only([k]), [candidate], task.budget, self.value)
            self.value = max(self.value, candidate.proved)
            if candidate.proof is None:
                continue
            if batch.shared:
                self.for_all.append(candidate.proof)
                self.bounds = np.minimum(self.bounds, candidate.proof.bounds)
            else:
                self.for_one[j] = _expand_proof(
                    candidate.proof, batch.problems[k], batch.filled[k], task.problem
                )
                self.bounds[j] = min(self.bounds[j], candidate.proved)


def _expand_proof(
    proof: Multipliers,
    part: DerivativeProblem,
    filled: DerivativeProblem,
    whole: DerivativeProblem,
) -> Multipliers:
    """Multipliers for the whole problem, from those of a part of its neurons; others get 0.

    `filled` is the part, padded: the multipliers are of that."""
    tau = {layer.node: np.zeros(layer.size) for layer in whole.layers}
    neurons = {layer.node: layer.neurons for layer in whole.layers}
    for layer, real in zip(part.layers, real_neurons(part, filled), strict=True):
        places = np.searchsorted(neurons[layer.node], layer.neurons)
        tau[layer.node][places] = proof.tau[real.place][: real.size]
    return replace(proof, tau=list(tau.values()))
