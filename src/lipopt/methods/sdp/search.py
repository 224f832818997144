"""The search: rounds of ascent in the vector network alternate with fits of the dual.

    value of the vectors <= optimum of the relaxation <= bound by multipliers, once it is proved

It ends when value and bound of every problem are within the gap, when nothing improves, or when
time is up. The rank of the vectors starts small. When the ascent ends with the gap still open, it
is raised along negative eigenvectors of the dual matrix S, up to sqrt(2 n) + 1 for n variables:
some optimum has that rank. After the search, `prove_candidates` proves the bounds.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf, sqrt
from typing import Any, TypeVar

import numpy as np

from ...numerics.arrays import Array
from ...problem.in_time import OutOfTimeError, in_time
from ...problem.proofs import Multipliers, Proof
from ...problem.task import Budget, Task
from .dual import Dual, Hint
from .sparse_dual import SparseDual
from .vector_network import State, VectorNetwork

T = TypeVar("T")

# The search starts with the rank that some optimum is known to have, divided by this: nearly all
# networks have an optimum of such a rank.
FIRST_RANK_DIVISOR = 4
# The smallest rank to start with, unless less is enough for some optimum.
MIN_FIRST_RANK = 16
# The largest rank to start with where S is sparse. There the time of the ascent grows with the rank;
# in dense networks it does so less, and a higher rank takes fewer iterations.
MAX_FIRST_RANK_IF_SPARSE = 20
# Power iterations before the first fit of the dual, at most.
MAX_POWER_ITERATIONS = 30
# The share of the time that is left for them.
POWER_SHARE = 0.2
# Power iterations end when one of them raises no value by more than this, relative to the value and
# to the gap.
MIN_POWER_GAIN = 3e-3
# L-BFGS iterations between fits of the dual. After these stages the last one is repeated.
STAGE_ITERATIONS = (50, 100, 200)
# The same where S is sparse: a fit takes longer than many iterations. If time is not limited, there is
# none before the first of these stages.
STAGE_ITERATIONS_IF_SPARSE = (100, 50, 100)
# How often the last stage is repeated, at most.
LAST_STAGE_REPEATS = 30
# The order of S from which on work on it is ended at a deadline: a factorization takes a second.
LARGE_ORDER = 3000
# Seconds after the deadline in which a proof may end that was begun before it.
PROOF_GRACE = 0.5
# The ascent has ended if a stage raises no value by more than this, relatively.
MIN_STAGE_GAIN = 1e-7
# The relative inflations of multipliers that are tried in turn. More inflation gives a looser
# bound, but makes the dual definite farther from the optimum.
INFLATIONS = (1e-9, 1e-6, 1e-4, 1e-3, 1e-2)
# What an inflation is multiplied by when its multipliers could not be proved.
INFLATION_STEP = 10
# The last fit of the dual and the proof take as long as so many fits.
FITS_TO_PROVE = 3.5
# A value is taken to be at least this where a gap is relative to it.
MIN_VALUE = 1e-300


@dataclass(eq=False)
class Candidate:
    """The best value and the best multipliers so far of one problem; for l1, of one input."""

    path_sum: float  # a bound that is known without multipliers
    index: int = 0  # which of the bounds of its multipliers counts: for l1, that of its input
    value: float = 0.0
    hint: Hint | None = None
    vectors: list[Any] = field(default_factory=list)  # where the hint was found
    proof: Multipliers | None = None

    @property
    def bound(self) -> float:
        """What will be proved, up to rounding."""
        if self.hint is None:
            return self.path_sum
        return min(self.bound_of(self.hint), self.path_sum)

    @property
    def proved(self) -> float:
        """What is proved."""
        if self.proof is None:
            return self.path_sum
        return min(self.path_sum, float(self.proof.bounds[self.index]))

    def bound_of(self, hint: Hint) -> float:
        """The bound that a hint promises for this candidate."""
        return sqrt(hint.squares[self.index])

    def is_open(self, gap: float) -> bool:
        """Whether bound and value are farther apart than the gap, relatively."""
        return self.bound > self.value * (1 + gap)

    def is_improved_by(self, hint: Hint) -> bool:
        """Whether a hint promises a smaller bound than the one so far."""
        return self.hint is None or hint.squares[self.index] < self.hint.squares[self.index]


@dataclass(frozen=True, eq=False)
class Found:
    """What the search has found for one task."""

    value: float  # a bound, proved, slack included
    pop_lower: float | None  # a lower bound on the optimum, if one was asked for
    proof: Proof | None
    primal: float  # the value of the vectors
    rank: int


@dataclass(eq=False)
class _Reserve:
    """The end of the time that is kept for the last fit of the dual and for the proof."""

    task: Task
    fit: float = 0.0  # seconds of the latest fit

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure a fit."""
        start = time.monotonic()
        yield
        self.fit = time.monotonic() - start

    def is_reached(self) -> bool:
        """Whether the search has to end."""
        return self.task.seconds_left <= FITS_TO_PROVE * self.fit


@dataclass(frozen=True)
class Search:
    """The settings of a search."""

    rank: int | None  # of the vectors; None to start small and raise it as needed
    gap: float  # between values and bounds, relatively, to stop at

    def run(
        self,
        network: VectorNetwork,
        dual: Dual | SparseDual,
        candidates: Sequence[Candidate],
        task: Task,
    ) -> State:
        """Ascend until every bound is within the gap of its value (for l1, of the largest value).

        The candidates get their values and hints; the last state is returned."""
        reserve = _Reserve(task)
        sparse = isinstance(dual, SparseDual)
        for stage, state in enumerate(self._stages(network, task, reserve, sparse)):
            _raise_values(candidates, network, state)
            if stage == 0 and sparse and task.seconds_left == inf:
                continue
            rows = network.rows(state)
            fit_candidates(dual, candidates, rows, network.vectors(state), self.gap, reserve)
            worst = max(candidates, key=_ratio)
            task.budget.progress(
                f"sdp: value {worst.value:.6g}, bound {worst.bound:.6g},"
                f" gap {_ratio(worst) - 1:.1e}"
            )
            if not any(candidate.is_open(self.gap) for candidate in candidates):
                break
        return state

    def _stages(
        self, network: VectorNetwork, task: Task, reserve: _Reserve, sparse: bool
    ) -> Iterator[State]:
        """The state after every stage of the ascent; `sparse`: whether S is."""
        enough = _sufficient_rank(network)
        first = self.rank or min(enough, max(MIN_FIRST_RANK, enough // FIRST_RANK_DIVISOR))
        if sparse and not self.rank:
            first = min(first, MAX_FIRST_RANK_IF_SPARSE)
        x = start_vectors(network, first, task, self.gap)
        state = network.evaluate(x)
        rank = network.rank(x)
        yield state
        stages = STAGE_ITERATIONS_IF_SPARSE if sparse else STAGE_ITERATIONS
        repeats = itertools.repeat(stages[-1], LAST_STAGE_REPEATS)
        for stage, iterations in enumerate(itertools.chain(stages, repeats)):
            if reserve.is_reached():
                return
            before = state.values
            x, ended = network.ascend(x, iterations, reserve.is_reached)
            state = network.evaluate(x)
            yield state
            if ended or bool((state.values <= before * (1 + MIN_STAGE_GAIN)).all()):
                if rank >= enough or self.rank:
                    return
                most = min(rank, enough - rank)
                x, added = network.widen(x, most, task.budget.seed + stage)
                if not added:
                    return
                rank += added


def start_vectors(network: VectorNetwork, rank: int, task: Task, gap: float) -> Any:
    """Vectors after power iterations, from those of a similar problem if the task knows any."""
    known = None if task.memory is None else task.memory.vectors
    if known is not None:
        rank = max(rank, *(same.vectors.shape[1] for same in known.values()))
    start = network.start(rank, task.budget.seed, known)
    part = task.budget.share(POWER_SHARE)
    return network.power(
        start, MAX_POWER_ITERATIONS, MIN_POWER_GAIN * gap, lambda: part.seconds_left <= 0
    )


def remember_vectors(network: VectorNetwork, state: State, task: Task) -> None:
    """Keep the vectors in the task's memory, if it has one, to start a similar problem from."""
    if task.memory is not None:
        task.memory.vectors = network.found(state)


def fit_candidates(
    dual: Dual | SparseDual,
    candidates: Sequence[Candidate],
    rows: Array,
    x: Sequence[Any],
    gap: float,
    reserve: _Reserve,
) -> None:
    """Fit the dual of open candidates at these vectors, and keep the best multipliers.

    Inflations are tried from the smallest on, as long as they improve the bound and there is time:
    the farther the vectors are from the optimum, the more inflation helps."""
    left = [k for k, candidate in enumerate(candidates) if candidate.is_open(gap)]
    latest = np.full(len(candidates), np.inf)  # the squares of the bounds by the last inflation
    for inflation in INFLATIONS:
        if not left:
            return
        open_x = [vectors[left] for vectors in x]
        own = dual.only(left)
        fit = partial(own.fit, rows[left], open_x, np.full(len(left), inflation))
        try:
            with reserve.timed():
                hints = _in_time(own, reserve.task.budget, fit)
        except OutOfTimeError:
            return
        for k, hint in zip(tuple(left), hints, strict=True):
            if hint is None:
                continue
            candidate = candidates[k]
            square = float(hint.squares[candidate.index])
            if candidate.is_improved_by(hint):
                candidate.hint = hint
                candidate.vectors = [vectors[[k]] for vectors in x]
            gets_worse = square > latest[k]
            if gets_worse or not dual.gains_by_inflation or not candidate.is_open(gap):
                left.remove(k)
            latest[k] = square
        if reserve.is_reached() and all(candidate.hint for candidate in candidates):
            return


def prove_candidates(
    dual: Dual | SparseDual, candidates: Sequence[Candidate], budget: Budget, enough: float = 0.0
) -> None:
    """Prove the bounds of the candidates, or only the bound `enough` where theirs is smaller.

    Multipliers that cannot be proved are fitted again with more inflation, which makes it easier.
    Candidates whose path sum is better keep that, and so do all if there is no time."""
    with suppress(OutOfTimeError):
        _prove_in_time(dual, candidates, budget.with_grace(PROOF_GRACE), enough)


def _prove_in_time(
    dual: Dual | SparseDual, candidates: Sequence[Candidate], budget: Budget, enough: float
) -> None:
    left = []
    for k, candidate in enumerate(candidates):
        if max(candidate.bound, enough) < candidate.path_sum:
            left.append(k)
    while left:
        hints = _hints(candidates, left)
        bounds = [max(enough, candidates[k].bound_of(hint)) for k, hint in hints.items()]
        own = dual.only(list(hints))
        proofs = _in_time(own, budget, partial(own.prove, list(hints.values()), bounds))
        left = []
        for (k, hint), proof in zip(hints.items(), proofs, strict=True):
            candidates[k].proof = proof
            if proof is None and hint.inflation < INFLATIONS[-1]:
                left.append(k)
        if left:
            _inflate_hints(dual, candidates, left, budget)
        left = list(_hints(candidates, left))


def _inflate_hints(
    dual: Dual | SparseDual, candidates: Sequence[Candidate], which: list[int], budget: Budget
) -> None:
    """Fit the multipliers of some candidates again, with more inflation; they may get none."""
    hints = _hints(candidates, which)
    rows = np.stack([hint.rows for hint in hints.values()])
    inflation = np.array([INFLATION_STEP * hint.inflation for hint in hints.values()])
    x = []
    for same in zip(*(candidates[k].vectors for k in which), strict=True):
        x.append(dual.backend.concatenate(list(same)))
    own = dual.only(which)
    found = _in_time(own, budget, partial(own.fit, rows, x, inflation))
    for k, hint in zip(which, found, strict=True):
        candidates[k].hint = hint


def _in_time(dual: Dual | SparseDual, budget: Budget, work: Callable[[], T]) -> T:
    """What a dual is asked for, ended at the deadline if it takes long and runs on this processor."""
    if dual.order < LARGE_ORDER or dual.backend.library != "numpy":
        return work()
    return in_time(budget, work)


def _hints(candidates: Sequence[Candidate], which: Sequence[int]) -> dict[int, Hint]:
    """The hints of some candidates, without those that have none."""
    hints = {}
    for k in which:
        hint = candidates[k].hint
        if hint is not None:
            hints[k] = hint
    return hints


def _raise_values(candidates: Sequence[Candidate], network: VectorNetwork, state: State) -> None:
    """The largest values so far. For l1 all get the largest: the optimum is over inputs."""
    before = [candidate.value for candidate in candidates]
    values = np.maximum(before, network.backend.numpy(state.values))
    if network.norm.is_by_input:
        values = np.full(len(values), values.max())
    for candidate, value in zip(candidates, values, strict=True):
        candidate.value = float(value)


def _ratio(candidate: Candidate) -> float:
    """The bound over the value."""
    return candidate.bound / max(candidate.value, MIN_VALUE)


def _sufficient_rank(network: VectorNetwork) -> int:
    """A rank that some optimum has."""
    enough = ceil(sqrt(2 * sum(network.free))) + 1
    inputs = network.free[0]
    neurons = sum(network.free[1:])
    if inputs > neurons:
        # Slopes begin at 0 then, and t can be projected on the span of z and C x.
        enough = min(enough, neurons + network.outputs)
    return enough
