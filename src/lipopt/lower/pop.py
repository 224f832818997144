"""Lower bounds on the optimum of the derivative problem (POP), which upper bounds relax.

For a fixed rest, the objective is linear in t and in the slopes of each layer, so alternating
maximization never goes down; started from the slopes of the best sample as well, it is never below
the sampled bound. Tiny problems are enumerated: the objective is convex in every slope, so the
maximum is at a vertex.

These are floating-point numbers, lowered by a bound on their rounding error; no certificate goes
with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..numerics.arrays import Array, dense
from ..numerics.rounding import gamma, terms
from ..problem.derivative import DerivativeProblem, apply
from ..problem.question import Posed
from ..problem.task import Budget
from .gradients import JacobianNorm
from .verified import SlopesNear

BATCH_ENTRIES = 2**22  # of the largest array when many choices of slopes are evaluated at once
ENUMERATED = 14  # neurons of unknown slope up to which all vertices are tried
RESTARTS = 24  # random starts of alternating maximization
SWEEPS = 100  # rounds of alternating maximization at most
IMPROVEMENT = 1e-12  # relative gain of a round below which it ends
# The shares of slopes that are changed when the best choice is shaken: few of them lead back to it,
# many leave nothing of it.
SHAKEN_SHARES = np.repeat([0.01, 0.03, 0.1, 0.3], 4)
FAILED_SHAKES = 4  # in a row, after which no more are tried
MIN_SHAKE_GAIN = 1e-3  # relative gain of a round, and of one that has not failed
DECIMAL_LOSS = 1e-3  # a value that may lose more than this share to rounding is found in decimals
DIGITS = 24  # of a decimal sum without cancellation
DECIMAL_WORK = 1_000_000  # coefficients times outputs for which decimals take a second
CHUNK_BITS = 10  # vertices are tried in chunks of 2^10


@dataclass(frozen=True, eq=False)
class AsGiven:
    """A problem before presolve: without slack, and with the nodes of the network."""

    goal: JacobianNorm
    raw: DerivativeProblem

    @staticmethod
    def parts(posed: Posed, count: int) -> list[AsGiven | None]:
        """Those of the parts of a question, so many. In factors, slopes are not those of nodes: none."""
        if posed.products:
            return [None] * count
        goal = JacobianNorm.of(posed)
        if count == 1:
            return [AsGiven(goal, posed.raw)]
        return [AsGiven(replace(goal, rows=goal.rows[[k], :]), posed.raw) for k in range(count)]

    def value(self, problem: DerivativeProblem, slopes: Sequence[Array]) -> float:
        """A lower bound on the value for slopes of what presolve has left."""
        found = {layer.node: layer.lower.copy() for layer in self.raw.layers}
        for layer, s in zip(problem.layers, slopes, strict=True):
            found[layer.node][layer.neurons] = s[:, 0]
        return self.goal.with_slopes(SlopesNear.exactly(found))


def pop_lower_bound(
    problem: DerivativeProblem,
    budget: Budget,
    known: Mapping[int, Array] | None,
    given: AsGiven | None = None,
) -> float:
    """The best lower bound: enumeration if the problem is tiny, otherwise maximization.

    `known` are slopes to start from, by node, such as those at the best sample. If rounding takes
    much of the value, it is found again in the problem as it was `given`."""
    if free_neurons(problem) <= ENUMERATED:
        return enumerate_pop(problem)
    starts = [] if known is None else [_by_layer(problem, known)]
    best = _maximized(problem, budget, starts)
    value = pop_value(problem, best.slopes)
    if given is not None and value < best.value * (1 - DECIMAL_LOSS):
        value = max(value, given.value(problem, best.slopes))
    return value


def _by_layer(problem: DerivativeProblem, known: Mapping[int, Array]) -> list[Array]:
    """Slopes by layer; affine nodes have their only slope."""
    slopes = []
    for layer in problem.layers:
        if layer.node in known:
            slopes.append(known[layer.node][layer.neurons])
        else:
            slopes.append(layer.lower)
    return slopes


class _Best(NamedTuple):
    """The best of several choices of slopes."""

    slopes: list[Array]  # by layer, (neurons, 1)
    rows: Array  # the direction of the outputs that counts, (outputs, 1)
    value: float


def alternating(
    problem: DerivativeProblem,
    budget: Budget,
    starts: Sequence[Sequence[Array]] = (),
    restarts: int = RESTARTS,
    shakes: int = 0,
) -> float:
    """A lower bound: the value at the best choice of slopes that is found."""
    best = _maximized(problem, budget, starts, restarts, shakes)
    return pop_value(problem, best.slopes)


def _maximized(
    problem: DerivativeProblem,
    budget: Budget,
    starts: Sequence[Sequence[Array]] = (),
    restarts: int = RESTARTS,
    shakes: int = 0,
) -> _Best:
    """Alternating: t, then the slopes layer by layer, each the best for the rest, while it helps.

    Then some slopes of the best choice are changed at random, and it begins again from there, up to
    `shakes` times."""
    rng = np.random.default_rng(budget.seed)
    restarts = max(4, min(restarts, BATCH_ENTRIES // max(1, sum(problem.sizes))))
    slopes = _random_vertices(problem, rng, restarts, starts)
    columns = restarts + len(starts)
    rows = np.ones((1, columns))
    if problem.outputs > 1:
        directions = rng.standard_normal((problem.outputs, columns))
        rows = problem.norms[1].dual.best_direction(directions)
    best = _ascend(problem, budget, slopes, rows, IMPROVEMENT)
    failures = 0
    for _ in range(shakes):
        if failures == FAILED_SHAKES or budget.seconds_left <= 0:
            break
        shaken = _shaken(problem, best, rng)
        rows = np.repeat(best.rows, len(SHAKEN_SHARES), axis=1)
        found = _ascend(problem, budget, shaken, rows, MIN_SHAKE_GAIN)
        failures = 0 if found.value > best.value * (1 + MIN_SHAKE_GAIN) else failures + 1
        if found.value > best.value:
            best = found
    return best


def _ascend(
    problem: DerivativeProblem, budget: Budget, slopes: list[Array], rows: Array, gain: float
) -> _Best:
    """Alternating maximization from the slopes in every column, while a round gains that much."""
    value = np.full(rows.shape[1], -1.0)
    for _ in range(SWEEPS):
        gradient = problem.backward(slopes, rows)
        x = [problem.norm.best_direction(gradient[0])]
        for i, layer in enumerate(problem.layers):
            y = apply(layer.blocks, x, layer.size)
            rises = y * gradient[i + 1] > 0
            slopes[i] = np.where(rises, layer.upper[:, None], layer.lower[:, None])
            x.append(slopes[i] * y)
        output = apply(problem.objective, x, problem.outputs)
        if problem.outputs > 1:
            rows = problem.norms[1].dual.best_direction(output)
        new = (rows * output).sum(axis=0)
        improved = (new > value * (1 + gain)).any()
        value = np.maximum(new, value)
        if not improved or budget.seconds_left <= 0:
            break
    k = int(np.argmax(value))
    return _Best([s[:, [k]] for s in slopes], rows[:, [k]], float(value[k]))


def _shaken(problem: DerivativeProblem, best: _Best, rng: np.random.Generator) -> list[Array]:
    """The slopes of the best choice, a share of them at the other end in every column."""
    slopes = []
    for layer, s in zip(problem.layers, best.slopes, strict=True):
        is_moved = rng.random((layer.size, len(SHAKEN_SHARES))) < SHAKEN_SHARES
        slopes.append(np.where(is_moved, (layer.lower + layer.upper)[:, None] - s, s))
    return slopes


def _random_vertices(
    problem: DerivativeProblem,
    rng: np.random.Generator,
    restarts: int,
    starts: Sequence[Sequence[Array]],
) -> list[Array]:
    """The given slopes and random ends of the slope ranges, by layer: (neurons, columns)."""
    share_of_upper = rng.uniform(0.3, 1.0, restarts)
    slopes = []
    for i, layer in enumerate(problem.layers):
        is_upper = rng.random((layer.size, restarts)) < share_of_upper
        vertex = np.where(is_upper, layer.upper[:, None], layer.lower[:, None])
        given = [np.clip(start[i], layer.lower, layer.upper)[:, None] for start in starts]
        slopes.append(np.concatenate([*given, vertex], axis=1))
    return slopes


def pop_value(problem: DerivativeProblem, slopes: Sequence[Array]) -> float:
    """The objective at one choice of slopes (columns of one), lowered by its rounding error.

    In a deep network that error may exceed the value; then it is computed again, in decimals."""
    value = float(problem.norm.of_jacobians(_jacobians(problem, slopes), problem.output_norm)[0])
    sizes = _jacobians(problem.absolute(), [np.abs(s) for s in slopes])
    absolute = float(
        problem.norm.of_jacobians(sizes, problem.output_norm)[0] * np.sqrt(problem.outputs)
    )
    roundings = problem.inputs + problem.outputs + 20
    for blocks in problem.all_blocks():
        for matrix in blocks.values():
            roundings += terms(matrix.T.tocsr() if sp.issparse(matrix) else matrix.T) + 2
    error = 2 * gamma(roundings) * absolute
    loses = error > DECIMAL_LOSS * value > 0
    affordable = problem.nonzeros * problem.outputs <= DECIMAL_WORK
    if loses and affordable and np.isfinite(absolute):
        digits = DIGITS + int(np.log10(absolute / value))
        value = float(
            problem.norm.of_jacobians(
                _jacobian_in_decimals(problem, slopes, digits), problem.output_norm
            )[0]
        )
        error = 2 * (gamma(roundings) * value + roundings * absolute * 10.0 ** (1 - digits))
    return max(0.0, value - error - problem.slack)


def _jacobians(problem: DerivativeProblem, slopes: Sequence[Array]) -> Array:
    """J for every column of slopes, (outputs, inputs, columns)."""
    columns = max([s.shape[1] for s in slopes], default=1)
    identity = np.eye(problem.outputs)
    rows = []
    for k in range(problem.outputs):
        start = np.repeat(identity[:, [k]], columns, axis=1)
        rows.append(problem.backward(slopes, start)[0])
    return np.stack(rows)


def _jacobian_in_decimals(
    problem: DerivativeProblem, slopes: Sequence[Array], digits: int
) -> Array:
    """J for one choice of slopes, computed with that many digits; (outputs, inputs, 1)."""
    with localcontext(prec=digits):
        gradients: list[Array] = [np.full((n, problem.outputs), Decimal(0)) for n in problem.sizes]
        for source, matrix in problem.objective.items():
            gradients[source] += _decimals(dense(matrix)).T
        for i in range(len(problem.layers), 0, -1):
            through = _decimals(slopes[i - 1]) * gradients[i]
            for source, matrix in problem.layers[i - 1].blocks.items():
                gradients[source] += _decimals(dense(matrix)).T @ through
    return gradients[0].T.astype(np.float64)[..., None]


def _decimals(values: Array) -> Array:
    """Floats as decimals, exactly: every float64 is a decimal number."""
    return np.asarray(np.frompyfunc(Decimal, 1, 1)(values))


def free_neurons(problem: DerivativeProblem) -> int:
    """The number of slopes that are not known."""
    return sum(int((layer.lower < layer.upper).sum()) for layer in problem.layers)


def enumerate_pop(problem: DerivativeProblem) -> float:
    """The optimum over all vertices, lowered by rounding error: exponential in the neurons."""
    best = None
    value = -1.0
    for slopes in _vertices(problem):
        norms = problem.norm.of_jacobians(_jacobians(problem, slopes), problem.output_norm)
        k = int(norms.argmax())
        if norms[k] > value:
            best = [s[:, [k if s.shape[1] > 1 else 0]] for s in slopes]
            value = float(norms[k])
    return 0.0 if best is None else pop_value(problem, best)  # None if all values overflow


def _vertices(problem: DerivativeProblem) -> Iterator[list[Array]]:
    """All vertices of the slope box, in chunks of columns."""
    free = free_neurons(problem)
    inner = min(free, CHUNK_BITS)
    choices = list(itertools.product((False, True), repeat=inner))
    bits = np.array(choices, bool).reshape(2**inner, inner).T
    for outer in itertools.product((False, True), repeat=free - inner):
        same = np.repeat(np.array(outer, bool)[:, None], 2**inner, axis=1)
        choice = np.concatenate([bits, same])
        slopes = []
        start = 0
        for layer in problem.layers:
            open_ = np.flatnonzero(layer.lower < layer.upper)
            part = choice[start : start + len(open_)]
            s = np.repeat(layer.upper[:, None], 2**inner, axis=1)
            s[open_] = np.where(part, layer.upper[open_, None], layer.lower[open_, None])
            slopes.append(s)
            start += len(open_)
        yield slopes
