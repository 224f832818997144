"""SDP(): the bound of Shor's relaxation for any derivative problem, by the vector network and its dual.

    vectors rounded to slopes <= POP optimum <= |C X| at the optimum = mu + sum of delta <= the bound that is reported

Rounds of ascent alternate with the dual (dual.py), until the two are within the gap, nothing improves, or time is up.
What is reported is always proved; if nothing can be proved, that is the path sum. The rank starts small and is
raised along negative eigenvectors of the dual matrix S when the ascent ends with the gap still open, up to sqrt(2 n) + 1 for
n variables: some optimum has that rank.

For l1 the optimum is a maximum over inputs: batches of problems that share everything but t, those with the largest path
sums first. Multipliers found for one input prove bounds for all; an input that is settled that way is not searched. If an input
does not reach all neurons, as in a convolution, it has a problem of its own without them: they would need infinite multipliers.

Where inputs outnumber neurons, slopes are shifted to begin at 0, and the dual eliminates the inputs first, which is cheap.

Many problems of one network (`together`) are filled up to one shape (padding.py) and solved as a batch, which keeps a GPU busy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, sqrt
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from .backend import Backend, backend, enough_memory
from .baselines import operator_norm_up, path_sum_bound, path_sum_rows
from .dual import Dual, Hint, Multipliers, best_by_input
from .errors import LipoptError
from .lower import alternating
from .methods import Status, Task, UpperBound, register
from .padding import padded, real_neurons
from .presolve import drop_unused, one_input, only_rows, slopes_from_zero
from .problem import DerivativeProblem
from .rounding import Array, up, up_float
from .threads import blas_threads
from .vector_network import State, VectorNetwork

FIRST_RANK, RANK_SHARE = 16, 4  # to start with at least, and that share of the rank that is enough
POWER = 30  # power iterations at most before the first look at the dual
GROWTH = 3e-3  # of a value in one of them, relative to the gap, that is worth another one
STAGES = (50, 100, 200)  # L-BFGS iterations between looks at the dual; the last repeats
MOST_STAGES = 30
STALLED = 1e-7  # relative gain of a stage that counts as none
INFLATIONS = (1e-9, 1e-6, 1e-4, 1e-3, 1e-2)  # of the multipliers, to make the dual definite
ROUGH = 1e-3  # the inflation for multipliers that serve several rows
HYPERPLANES = 32  # to round the vectors with; fewer on problems with more than ROUNDING_WORK / HYPERPLANES coefficients
ROUNDING_WORK = 200_000_000
BATCH = 8  # inputs solved together for l1
BATCH_ENTRIES = 2**28  # of the dense matrices of the duals of one batch
SMALLEST = 1e-300  # what is divided by is kept above this
LARGEST_BLOCK, ON_DEVICE = 12_000, 32_000  # order of the largest dense block of the dual: five or more such matrices are kept


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
        return self.together([task])[0]

    def together(self, tasks: Sequence[Task]) -> list[UpperBound]:
        """The bounds of tasks of one network, solved in batches. The time is up for a batch when it is for its first task."""
        arrays = backend(self.device)
        found: dict[int, UpperBound] = {}
        for which in _batches([task.problem for task in tasks]):
            batch = [tasks[k] for k in which]
            with blas_threads(sum(batch[0].problem.sizes)) if self.device in (None, "cpu") else enough_memory(self.device):
                found.update(zip(which, self._solve(batch, arrays), strict=True))
        return [found[k] for k in range(len(tasks))]

    def _solve(self, tasks: Sequence[Task], arrays: Backend) -> list[UpperBound]:
        problems = [task.problem for task in tasks]
        widest = max(_widest(problem) for problem in problems)
        if not problems[0].layers:
            return [UpperBound(_linear_norm(problem)) for problem in problems]
        most = LARGEST_BLOCK if self.device in (None, "cpu") else ON_DEVICE
        if widest > most:
            advice = (
                f"; use 'path-sum', or a GPU (--device cuda), which takes {ON_DEVICE}" if most < ON_DEVICE else "; use 'path-sum'"
            )
            raise LipoptError(f"a layer of {widest} is too wide for the SDP, which takes up to {most}{advice}")
        if problems[0].norm == "l1":
            return [self._maximum_over_inputs(task, arrays) for task in tasks]
        if problems[0].inputs > max(problem.neurons for problem in problems):
            problems = [slopes_from_zero(problem) for problem in problems]  # so that inputs can be eliminated first
        same = padded(problems) if len(problems) > 1 else problems
        network, dual = VectorNetwork(same, arrays), Dual(same, arrays)
        cases = [_Case(path_sum_bound(replace(task.problem, slack=0.0))) for task in tasks]
        first = tasks[0] if len(tasks) == 1 else replace(tasks[0], memory=None)
        state = self._search(network, dual, cases, first)
        _keep(network, state, first)
        _prove(dual, cases)
        results = []
        for k, (task, case) in enumerate(zip(tasks, cases, strict=True)):
            neurons = real_neurons(task.problem, same[k])
            proof = case.proof and replace(case.proof, tau=[case.proof.tau[i][:size] for i, size in neurons])
            low = _rounded(network, state, k, neurons, task)
            results.append(_upper_bound(task, case.proved + problems[k].slack, low, proof, _details(case.value, state)))
        return results

    def every_row(self, task: Task, weights: Array) -> list[UpperBound] | None:
        """Bounds for every row of C on its own, under linf: looser than one by one, but for the price of one. None if that fails.

        The multipliers are those of the Euclidean norm of all rows with these weights: a larger weight, a tighter bound."""
        whole = task.problem
        if not whole.layers or _widest(whole) > LARGEST_BLOCK:
            return None
        problem = slopes_from_zero(whole) if whole.inputs > whole.neurons else whole
        together = replace(problem, objective={s: sp.diags_array(weights) @ m for s, m in problem.objective.items()})
        with blas_threads(sum(problem.sizes)):
            arrays, rows = backend(None), Dual([problem], backend(None), every_row=True)
            network = VectorNetwork([together], arrays)
            state = network.evaluate(_power(network, FIRST_RANK, task, ROUGH))
            _keep(network, state, task)
            (hint,) = Dual([together], arrays).fit(network.rows(state), network.vectors(state), np.array([ROUGH]))
            squares = np.full(1, inf) if hint is None else rows.squares_of_rows(hint)
            if hint is None or not (squares > 0).all() or not (squares < inf).all():
                return None
            total = float(hint.delta.sum())
            found = Multipliers(squares / (4 * total) * (1 + ROUGH), hint.delta, hint.tau)
            if not rows.are_proved([found])[0]:
                return None
        values = up(2 * np.sqrt(found.mu * up_float(total, problem.inputs)) + problem.slack, 4)
        return [
            UpperBound(float(value), certificate=_of_row(found, k, whole), details={"rows": problem.outputs})
            for k, value in enumerate(values)
        ]

    def _maximum_over_inputs(self, task: Task, arrays: Backend) -> UpperBound:
        """l1: the inputs with the largest path sums first. A proof for one holds for others too; those need no search."""
        problem, dual = task.problem, Dual([task.problem], arrays)
        paths = path_sum_rows(problem).sum(axis=0)
        sums, left = up(paths, problem.outputs), np.argsort(-paths, kind="stable")
        left = left[paths[left] > 0]  # others reach nothing; some do, or no layer would be left
        value = low = primal = 0.0
        proofs: list[Multipliers] = []
        own: dict[int, Multipliers] = {}  # for inputs that have a problem of their own
        while len(left):
            chosen = left[:BATCH]
            alone = [drop_unused(one_input(problem, int(j))) for j in chosen]
            shared = all(part.neurons == problem.neurons for part in alone)
            if shared:
                alone = same = [problem] * len(chosen)
                network, batch = VectorNetwork([problem], arrays, chosen), dual
            else:
                same = padded(alone)
                network, batch = VectorNetwork(same, arrays, np.zeros(len(chosen), np.int64)), Dual(same, arrays)
            cases = [_Case(float(sums[j]), int(j) if shared else 0, primal) for j in chosen]
            state = self._search(network, batch, cases, replace(task, memory=None))
            primal = max(primal, *(case.value for case in cases))
            best = int(arrays.numpy(state.values).argmax())
            part = replace(task, problem=alone[best])
            low = max(low, _rounded(network, state, best, real_neurons(alone[best], same[best]), part))
            for k in sorted(range(len(chosen)), key=lambda k: -cases[k].bound):
                j, case = int(chosen[k]), cases[k]
                if sums[j] > value:
                    _prove(batch.only([k]), [case], value)
                    value = max(value, case.proved)
                    if case.proof is not None and shared:
                        proofs.append(case.proof)
                        sums = np.minimum(sums, case.proof.bounds)
                    elif case.proof is not None:
                        own[j] = _expanded(case.proof, alone[k], same[k], problem)
                        sums[j] = min(sums[j], case.proved)
            left = left[BATCH:][sums[left[BATCH:]] > value]
            if task.seconds_left <= 0:
                value = float(np.max(sums[left], initial=value))
                break
        value += problem.slack
        return _upper_bound(task, value, low, {**best_by_input(proofs), **own} if own else proofs, _details(primal, state))

    def _search(self, network: VectorNetwork, dual: Dual, cases: Sequence[_Case], task: Task) -> State:
        """Ascend until every bound is within the gap of its value (for l1, of the largest value); the last state."""
        for state in self._states(network, task):
            values = np.maximum([case.value for case in cases], network.backend.numpy(state.values))
            for case, value in zip(cases, values, strict=True):
                case.value = float(values.max() if network.norm == "l1" else value)
            _look(dual, cases, network.rows(state), network.vectors(state), self.gap)
            worst = max(cases, key=lambda case: case.bound / max(case.value, SMALLEST))
            gap = worst.bound / max(worst.value, SMALLEST) - 1
            task.progress(f"sdp: value {worst.value:.6g}, bound {worst.bound:.6g}, gap {gap:.1e}")
            if not any(case.is_open(self.gap) for case in cases):
                break
        return state

    def _states(self, network: VectorNetwork, task: Task) -> Iterator[State]:
        """The state after every stage of the ascent."""
        enough = ceil(sqrt(2 * sum(network.free))) + 1
        if network.free[0] > (neurons := sum(network.free[1:])):
            enough = min(enough, neurons + network.outputs)  # slopes begin at 0: t can be projected on the span of z and C x
        rank = self.rank or min(enough, max(FIRST_RANK, enough // RANK_SHARE))
        x = _power(network, rank, task, self.gap)
        state, rank = network.evaluate(x), network.rank(x)
        yield state
        for stage, iterations in enumerate(itertools.chain(STAGES, itertools.repeat(STAGES[-1], MOST_STAGES))):
            if task.seconds_left <= 0:
                return
            x, ended = network.ascend(x, iterations, lambda: task.seconds_left <= 0)
            before, state = state.values, network.evaluate(x)
            yield state
            if ended or bool((state.values <= before * (1 + STALLED)).all()):
                if rank >= enough or self.rank:
                    return
                x, added = network.widen(x, min(rank, enough - rank), task.seed + stage)
                rank += added
                if not added:
                    return


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
        if problem.norm == "l2":
            return found
        value, proof = up_float(found.value * sqrt(factor), 2), found.certificate
        if isinstance(proof, Multipliers):  # mu and delta are as large as each other: scaled so that they are again
            scale = sqrt(factor) if problem.norm == "linf" else 1 / sqrt(factor)
            mu = proof.mu * scale if problem.norm == "linf" else np.full(problem.outputs, proof.mu * scale)
            proof = Multipliers(mu, np.full(problem.inputs, float(proof.delta[0]) / scale), [t / scale for t in proof.tau])
        return UpperBound(value, found.status, certificate=proof, details={**found.details, "l2": found.value})


@dataclass(eq=False)
class _Case:
    """One problem's search (for l1, one input's): the best value and the best multipliers so far."""

    path_sum: float
    index: int = 0
    value: float = 0.0
    hint: Hint | None = None
    vectors: list[Any] = field(default_factory=list)  # where the hint was found
    proof: Multipliers | None = None

    @property
    def bound(self) -> float:
        """What will be proved, up to rounding."""
        return self.path_sum if self.hint is None else min(sqrt(self.hint.squares[self.index]), self.path_sum)

    @property
    def proved(self) -> float:
        return self.path_sum if self.proof is None else min(self.path_sum, float(self.proof.bounds[self.index]))

    def is_open(self, gap: float) -> bool:
        return self.bound > self.value * (1 + gap)


def _power(network: VectorNetwork, rank: int, task: Task, gap: float) -> Any:
    """Power iterations, from vectors of a similar problem if there are any."""
    known = (task.memory or {}).get("vectors")
    rank = rank if known is None else max(rank, *(vectors.shape[1] for _, vectors in known.values()))
    return network.power(network.start(rank, task.seed, known), POWER, GROWTH * gap)


def _keep(network: VectorNetwork, state: State, task: Task) -> None:
    if task.memory is not None:
        task.memory["vectors"] = network.found(state)


def _look(dual: Dual, cases: Sequence[_Case], rows: Array, x: Sequence[Any], gap: float) -> None:
    """Fit the dual of open cases at these vectors and keep the best: the farther from the optimum, the more inflation helps."""
    left = [k for k, case in enumerate(cases) if case.is_open(gap)]
    latest = np.full(len(cases), np.inf)
    for inflation in INFLATIONS:
        if not left:
            return
        hints = dual.only(left).fit(rows[left], [v[left] for v in x], np.full(len(left), inflation))
        for k, hint in zip(tuple(left), hints, strict=True):
            if hint is None:
                continue
            case, square = cases[k], float(hint.squares[cases[k].index])
            if case.hint is None or square < case.hint.squares[case.index]:
                case.hint, case.vectors = hint, [v[[k]] for v in x]
            if not case.is_open(gap) or square > latest[k]:
                left.remove(k)
            latest[k] = square


def _prove(dual: Dual, cases: Sequence[_Case], enough: float = 0.0) -> None:
    """Prove the bounds of the cases, none smaller than needed; the more inflation, the easier. Path sums that are better stay."""
    left = [k for k, case in enumerate(cases) if max(case.bound, enough) < case.path_sum]
    while left:
        hints = {k: hint for k in left if (hint := cases[k].hint) is not None}
        bounds = [max(enough, sqrt(hint.squares[cases[k].index])) for k, hint in hints.items()]
        for k, proof in zip(hints, dual.only(list(hints)).prove(list(hints.values()), bounds), strict=True):
            cases[k].proof = proof
        left = [k for k, hint in hints.items() if cases[k].proof is None and hint.inflation < INFLATIONS[-1]]
        if left:
            x = [dual.backend.concatenate(list(same)) for same in zip(*(cases[k].vectors for k in left), strict=True)]
            rows, inflation = np.stack([hints[k].rows for k in left]), np.array([10 * hints[k].inflation for k in left])
            for k, hint in zip(left, dual.only(left).fit(rows, x, inflation), strict=True):
                cases[k].hint = hint
            left = [k for k in left if cases[k].hint is not None]


def _widest(problem: DerivativeProblem) -> int:
    """The order of the largest dense block of the dual. Inputs have none of their own if they outnumber neurons, or under l1."""
    if problem.norm == "l1" or problem.inputs > problem.neurons:
        return max(*problem.sizes[1:], ceil(sqrt(problem.inputs * problem.neurons)), 0)  # of blocks with the neurons
    return max(problem.sizes)


def _batches(problems: Sequence[DerivativeProblem]) -> Iterator[list[int]]:
    """The numbers of problems to solve as one batch: of similar size, in as many as fit; those without layers on their own."""
    order = sorted(range(len(problems)), key=lambda k: (len(problems[k].layers), problems[k].neurons))
    batch: list[int] = []
    for k in order:
        full = sum(problems[k].sizes) ** 2 * (len(batch) + 1) > BATCH_ENTRIES
        if batch and (full or not problems[batch[0]].layers):
            yield batch
            batch = []
        batch.append(k)
    if batch:
        yield batch


def _expanded(proof: Multipliers, part: DerivativeProblem, filled: DerivativeProblem, whole: DerivativeProblem) -> Multipliers:
    """Multipliers of a problem without some neurons, which get none, for the whole problem."""
    tau = {layer.node: np.zeros(layer.size) for layer in whole.layers}
    places = {layer.node: layer.neurons for layer in whole.layers}
    for layer, (i, size) in zip(part.layers, real_neurons(part, filled), strict=True):
        tau[layer.node][np.searchsorted(places[layer.node], layer.neurons)] = proof.tau[i][:size]
    return replace(proof, tau=list(tau.values()))


def _of_row(proof: Multipliers, k: int, whole: DerivativeProblem) -> Multipliers:
    """Multipliers of all rows for the problem of one, scaled so that mu and the sum of delta are the same: half of the bound."""
    tau = {layer.node: (layer.neurons, values) for layer, values in zip(whole.layers, proof.tau, strict=True)}
    kept = [values[np.isin(neurons, own.neurons)] for own in only_rows(whole, [k]).layers for neurons, values in [tau[own.node]]]
    mu = float(np.asarray(proof.mu)[k])
    scale = sqrt(float(proof.delta.sum()) / mu)
    return Multipliers(mu * scale, proof.delta / scale, [values / scale for values in kept])


def _upper_bound(task: Task, value: float, low: float, certificate: Any, details: dict[str, Any]) -> UpperBound:
    value = up_float(value, 1)
    status: Status = "time limit" if task.seconds_left <= 0 else "complete"
    return UpperBound(value, status, low, certificate, details if certificate else {**details, "chosen": "path-sum"})


def _details(primal: float, state: State) -> dict[str, Any]:
    return {"primal": primal, "rank": int(state.units[0].shape[2])}


def _linear_norm(problem: DerivativeProblem) -> float:
    """No hidden neuron is left: the norm of a matrix."""
    total = operator_norm_up(problem.objective[0], problem.norm) + problem.slack
    return up_float(total, 1) if total else 0.0


def _rounded(network: VectorNetwork, state: State, k: int, neurons: list[tuple[int, int]], task: Task) -> float:
    """A lower bound on the POP: slopes on the side of random hyperplanes where the vectors are, then alternating maximization."""
    problem, numpy = task.problem, network.backend.numpy
    count = max(4, min(HYPERPLANES, ROUNDING_WORK // max(1, problem.nonzeros)))
    planes = np.random.default_rng(task.seed).standard_normal((state.units[0].shape[2], count))
    slopes = []
    for layer, (i, size) in zip(problem.layers, neurons, strict=True):
        same_side = (numpy(state.y[i][:size, k]) @ planes) * (numpy(state.units[i + 1][:size, k]) @ planes) > 0
        slopes.append(np.where(same_side, layer.upper[:, None], layer.lower[:, None]))
    starts = [[s[:, i] for s in slopes] for i in range(count)]
    return alternating(problem, task, starts, restarts=4)
