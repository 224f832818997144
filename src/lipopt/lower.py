"""Lower bounds: on the Lipschitz constant L, from gradients of the real network, and on the derivative problem (POP).

    sampled gradients <= L <= POP optimum <= every certified upper bound

L: gradients at random points (the paper's LBS), then a hill climb from the best of them. A gradient counts only where
the network is differentiable: a neuron at its kink (within rounding) that depends on the input disqualifies a point.
POP: for a fixed rest, the objective is linear in t and in the slopes of each layer, so alternating maximization never
goes down; started from the slopes of the best sample as well, it is never below the sampled bound. Tiny problems are
enumerated: the objective is convex in every slope, so the maximum is at a vertex.

These are floating-point numbers, lowered by a bound on their rounding error; no certificate goes with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
import scipy.sparse as sp

from . import activations
from .domain import Ball, Domain
from .methods import Task
from .network import Activation, Affine, Input, Network
from .problem import NORMS, DerivativeProblem, apply
from .rounding import Array, gamma, terms

SPREAD = 5.0  # the whole space is sampled in the cube [-5, 5]^n, as the authors' code does,
FAR = 100.0  # and for some points in one that is up to so many times as large
BATCH = 2**22  # entries of the largest array of one batch
ENUMERATE = 14  # neurons up to which the POP is enumerated
STARTS, ROUNDS, PROPOSALS = 16, 30, 12  # of the hill climb
NEAR = 1e-9  # how close to a kink, relative to the layer's size, counts as on it
LOSS = 1e-3  # what rounding may take of a value before it is computed in decimals
DIGITS = 24  # of a sum without cancellation
DECIMAL_WORK = 1_000_000  # coefficients times outputs: a second
SAFETY = 1e-9  # relative margin of the floating-point evaluation of slopes


@dataclass(frozen=True, eq=False)
class Sample:
    """The best point found, the norm of the Jacobian there, and the slopes of every activation node there."""

    value: float
    point: Array
    slopes: Mapping[int, Array]


def sample(network: Network, outputs: sp.csr_array, task: Task, domain: Domain, samples: int) -> Sample | None:
    """The largest Jacobian norm at random points, improved by a hill climb; None if no point was differentiable."""
    rng = np.random.default_rng(task.seed)
    n = network.input_size
    low, high = (np.full(n, -SPREAD), np.full(n, SPREAD)) if domain is None else domain.bounds(n)
    widest = max(max(node.size for node in network.nodes), outputs.shape[0] * n)
    batch = max(1, min(samples, BATCH // widest))
    points, values = np.empty((n, 0)), np.empty(0)
    for start in range(0, samples, batch):
        if start and task.seconds_left <= 0:
            break
        x = _points(rng, low, high, domain, min(batch, samples - start))
        points, values = _best(points, values, x, _norms_at(network, outputs, x, task.raw.norm))
        task.progress("sampling gradients", (start + x.shape[1]) / samples)
    box = None if domain is None else (low[:, None], high[:, None])
    rounds = min(ROUNDS, max(4, samples // (STARTS * PROPOSALS)))
    points, values = _climb(network, outputs, task, points, values, high - low, box, rng, rounds)
    if not len(values) or values[0] < 0:
        return None
    return _proved_sample(network, outputs, task.raw.norm, float(values[0]), points[:, 0])


def _proved_sample(network: Network, outputs: sp.csr_array, norm: str, value: float, point: Array) -> Sample:
    """A sample whose value is lowered by the rounding error of the Jacobian's norm."""
    slopes = slopes_at(network, point[:, None])
    exact = max(0.0, value * (1 - SAFETY) - _jacobian_error(network, outputs, slopes, norm))
    return Sample(exact, point, {i: s[:, 0] for i, s in slopes.items()})


def sample_rows(network: Network, outputs: sp.csr_array, norm: str, ball: Ball, samples: int, seed: int) -> list[Sample | None]:
    """The best of the same points for every row of `outputs` on its own: the ball's center and random points, no climb."""
    n, rows = network.input_size, outputs.shape[0]
    points = _points(np.random.default_rng(seed), *ball.bounds(n), ball, samples)
    points[:, 0] = np.reshape(ball.center, -1)
    widest = max(max(node.size for node in network.nodes), rows * n)
    best: list[tuple[float, Array]] = [(-1.0, points[:, 0])] * rows
    for x in np.array_split(points, -(-samples * widest // BATCH), axis=1):
        values = network.node_values(x)
        slopes = slopes_at(network, x, values)
        fine = np.flatnonzero(_differentiable(network, values, slopes))
        jacobian = jacobians(network, outputs, slopes, x.shape[1])
        for k in range(rows if len(fine) else 0):
            norms = jacobian_norms(jacobian[[k]], norm)[fine]
            top = int(norms.argmax())
            if norms[top] > best[k][0]:
                best[k] = float(norms[top]), x[:, fine[top]]
    return [None if value < 0 else _proved_sample(network, outputs[[k], :], norm, value, x) for k, (value, x) in enumerate(best)]


def _points(rng: np.random.Generator, low: Array, high: Array, domain: Domain, count: int) -> Array:
    """Uniform points in a box; of a local one, every other point in a smaller box around the center, of random size; of the
    cube for the whole space, every eighth in one that is up to FAR times as large."""
    x = rng.uniform(low[:, None], high[:, None], (len(low), count))
    if domain is None:
        x[:, ::8] *= FAR ** rng.random(x[:, ::8].shape[1])
    else:
        center = (np.reshape(domain.center, -1) if isinstance(domain, Ball) else low / 2 + high / 2)[:, None]
        x[:, ::2] = np.clip(center + (x[:, ::2] - center) * rng.random(x[:, ::2].shape[1]), low[:, None], high[:, None])
    return x


def _best(points: Array, values: Array, x: Array, new: Array) -> tuple[Array, Array]:
    """The STARTS best of two sets of points, best first."""
    everything, scores = np.concatenate([points, x], axis=1), np.concatenate([values, new])
    order = np.argsort(-scores, kind="stable")[:STARTS]
    return everything[:, order], scores[order]


def _climb(
    network: Network,
    outputs: sp.csr_array,
    task: Task,
    points: Array,
    values: Array,
    width: Array,
    box: tuple[Array, Array] | None,
    rng: np.random.Generator,
    rounds: int,
) -> tuple[Array, Array]:
    """Steps of shrinking size from the best points, each of which keeps its best successor.

    A third of the steps go along the gradient of the gradient's norm, from a difference of two gradients; a third are
    random, and a third random in few inputs."""
    for k in range(rounds):
        if task.seconds_left <= 0 or points.shape[1] == 0:
            break
        step = 0.5 * 0.8**k * width[:, None]
        steps = rng.standard_normal((len(width), points.shape[1], PROPOSALS))
        uphill = np.sign(_norm_slope(network, outputs, points, step, task.raw.norm))
        third = PROPOSALS // 3
        steps[:, :, :third] = uphill[:, :, None] * 0.5 ** np.arange(third)
        steps[:, :, -third:] *= rng.random((len(width), points.shape[1], third)) < 0.2
        tries = points[:, :, None] + step[:, :, None] * steps
        if box is not None:
            tries = np.clip(tries, box[0][:, :, None], box[1][:, :, None])
        scores = _norms_at(network, outputs, tries.reshape(len(width), -1), task.raw.norm).reshape(tries.shape[1:])
        pick = scores.argmax(axis=1)
        rows = np.arange(points.shape[1])
        better = scores[rows, pick] > values
        points = np.where(better, tries[:, rows, pick], points)
        values = np.where(better, scores[rows, pick], values)
        task.progress("climbing", (k + 1) / rounds)
    order = np.argsort(-values, kind="stable")
    return points[:, order], values[order]


def _norm_slope(network: Network, outputs: sp.csr_array, x: Array, step: Array, norm: str) -> Array:
    """Roughly the gradient in x of the norm of J: with t the direction that J stretches most, a difference of J^T r along t."""

    def gradients(points: Array) -> Array:
        return jacobians(network, outputs, slopes_at(network, points), points.shape[1])

    rows = gradients(x)  # (outputs, inputs, columns)
    largest = np.abs(rows).sum(axis=1).argmax(axis=0)
    columns = np.arange(x.shape[1])
    t = _direction(rows[largest, :, columns].T, norm)
    ahead, behind = gradients(x + 0.1 * step * t), gradients(x - 0.1 * step * t)
    return (ahead - behind)[largest, :, columns].T


def slopes_at(network: Network, x: Array, values: list[Array] | None = None) -> dict[int, Array]:
    """The slopes of every activation node, a column for each column of x."""
    values = network.node_values(x) if values is None else values
    return {
        i: activations.slope(node.kind, values[node.source].T, node.parameters).T
        for i, node in enumerate(network.nodes)
        if isinstance(node, Activation)
    }


def _norms_at(network: Network, outputs: sp.csr_array, x: Array, norm: str) -> Array:
    """The norm of the Jacobian at every column of x; -1 where the network may not be differentiable."""
    result = np.empty(x.shape[1])
    batch = max(1, BATCH // max(max(node.size for node in network.nodes), outputs.shape[0] * network.input_size))
    for start in range(0, x.shape[1], batch):
        part = x[:, start : start + batch]
        values = network.node_values(part)
        slopes = slopes_at(network, part, values)
        norms = jacobian_norms(jacobians(network, outputs, slopes, part.shape[1]), norm)
        norms[~_differentiable(network, values, slopes)] = -1.0
        result[start : start + batch] = np.where(np.isfinite(norms), norms, -1.0)
    return result


def jacobians(
    network: Network, outputs: sp.csr_array, slopes: Mapping[int, Array], columns: int = 1, absolute: bool = False
) -> Array:
    """J for given slopes, (outputs, inputs, columns); with `absolute`, of the absolute values of weights and slopes."""
    result = np.empty((outputs.shape[0], network.input_size, columns))
    for row in range(outputs.shape[0]):
        gradient: dict[int, Array] = {len(network.nodes) - 1: np.repeat(outputs[[row], :].toarray().T, columns, axis=1)}
        if absolute:
            gradient = {i: np.abs(g) for i, g in gradient.items()}
        for i in range(len(network.nodes) - 1, 0, -1):
            node = network.nodes[i]
            g = gradient.pop(i, None)
            if g is None:
                continue
            if isinstance(node, Affine):
                parts = [(s, (abs(m) if absolute else m).T @ g) for s, m in zip(node.sources, node.matrices, strict=True)]
            else:
                assert isinstance(node, Activation)
                parts = [(node.source, (np.abs(slopes[i]) if absolute else slopes[i]) * g)]
            for source, part in parts:
                gradient[source] = gradient[source] + part if source in gradient else part
        result[row] = gradient.get(0, np.zeros((network.input_size, columns)))
    return result


def jacobian_norms(jacobian: Array, norm: str) -> Array:
    """The operator norm of every J in (outputs, inputs, columns)."""
    size = np.abs(jacobian)
    if norm == "linf":
        return np.asarray(size.sum(axis=1).max(axis=0))
    if norm == "l1":
        return np.asarray(size.sum(axis=0).max(axis=0))
    largest = np.maximum(size.max(axis=(0, 1)), 1e-300)
    if jacobian.shape[0] == 1:
        return np.asarray(np.sqrt(np.square(jacobian[0] / largest).sum(axis=0)) * largest)
    return np.asarray(np.linalg.norm(np.moveaxis(jacobian / largest, 2, 0), NORMS["l2"], axis=(1, 2)) * largest)


def _differentiable(network: Network, values: list[Array], slopes: Mapping[int, Array]) -> Array:
    """The columns where no neuron that depends on the input is at a kink."""
    at_kink: dict[int, Array] = {}
    for i, node in enumerate(network.nodes):
        if isinstance(node, Activation):
            y = values[node.source]
            near = NEAR * np.abs(y).max(axis=0) + 1e-300
            at_kink[i] = np.zeros(y.shape, bool)
            for point in activations.kinks(node.kind, node.parameters):
                at_kink[i] |= np.abs(y - np.broadcast_to(point, node.size)[:, None]) <= near
    fine = ~np.logical_or.reduce([hit.any(axis=0) for hit in at_kink.values()] + [np.zeros(values[0].shape[1], bool)])
    suspects = np.flatnonzero(~fine)
    if len(suspects) == 0:
        return fine
    reach: list[Array] = []
    fine[suspects] = True
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            reach.append(np.ones((node.size, len(suspects))))
        elif isinstance(node, Affine):
            total = sum(abs(m) @ reach[s] for s, m in zip(node.sources, node.matrices, strict=True))
            reach.append((np.asarray(total) > 0).astype(np.float64).reshape(node.size, len(suspects)))
        else:
            hit = at_kink[i][:, suspects]
            fine[suspects] &= ~(hit & (reach[node.source] > 0)).any(axis=0)
            reach.append(reach[node.source] * ((slopes[i][:, suspects] != 0) | hit))
    return fine


def _jacobian_error(network: Network, outputs: sp.csr_array, slopes: Mapping[int, Array], norm: str) -> float:
    """A bound on the rounding error of a Jacobian's norm."""
    count = sum(
        max((terms(m.T.tocsr() if sp.issparse(m) else m.T) for m in node.matrices), default=0) + len(node.matrices) + 2
        if isinstance(node, Affine)
        else 2
        for node in network.nodes
    )
    absolute = jacobians(network, outputs, slopes, absolute=True)
    return (
        2
        * gamma(count + network.input_size + outputs.shape[0] + 20)
        * float(np.sqrt(outputs.shape[0]))
        * float(jacobian_norms(absolute, norm)[0])
    )


def alternating(problem: DerivativeProblem, task: Task, starts: Sequence[Sequence[Array]] = (), restarts: int = 64) -> float:
    """A lower bound on the POP's optimum: t, then the slopes layer by layer, each the best for the rest, while it helps."""
    rng = np.random.default_rng(task.seed)
    restarts = max(4, min(restarts, BATCH // max(1, sum(problem.sizes))))
    bias = rng.uniform(0.3, 1.0, restarts)
    slopes = []
    for i, layer in enumerate(problem.layers):
        vertex = np.where(rng.random((layer.size, restarts)) < bias, layer.upper[:, None], layer.lower[:, None])
        given = [np.clip(start[i], layer.lower, layer.upper)[:, None] for start in starts]
        slopes.append(np.concatenate([*given, vertex], axis=1))
    columns = restarts + len(starts)
    rows = np.ones((1, columns)) if problem.outputs == 1 else _dual(rng.standard_normal((problem.outputs, columns)), problem.norm)
    value = np.full(columns, -1.0)
    for _ in range(100):
        gradient = problem.backward(slopes, rows)
        x = [_direction(gradient[0], problem.norm)]
        for i, layer in enumerate(problem.layers):
            y = apply(layer.blocks, x, layer.size)
            slopes[i] = np.where(y * gradient[i + 1] > 0, layer.upper[:, None], layer.lower[:, None])
            x.append(slopes[i] * y)
        output = apply(problem.objective, x, problem.outputs)
        if problem.outputs > 1:
            rows = _dual(output, problem.norm)
        new = (rows * output).sum(axis=0)
        done = not (new > value * (1 + 1e-12)).any() or task.seconds_left <= 0
        value = np.maximum(new, value)
        if done:
            break
    best = [s[:, [int(np.argmax(value))]] for s in slopes]
    return pop_value(problem, best)


def pop_value(problem: DerivativeProblem, slopes: Sequence[Array]) -> float:
    """The POP's objective at one choice of slopes (columns of one), lowered by its rounding error.

    In a deep network that error may be larger than the value; then it is computed again, in decimals."""
    value = float(jacobian_norms(_problem_jacobians(problem, slopes), problem.norm)[0])
    count = sum(
        sum(terms(m.T.tocsr() if sp.issparse(m) else m.T) + 2 for m in blocks.values()) for blocks in problem.all_blocks()
    )
    absolute = float(
        jacobian_norms(_problem_jacobians(problem, slopes, absolute=True), problem.norm)[0] * np.sqrt(problem.outputs)
    )
    roundings = count + problem.inputs + problem.outputs + 20
    error = 2 * gamma(roundings) * absolute
    if error > LOSS * value > 0 and np.isfinite(absolute) and problem.nonzeros * problem.outputs <= DECIMAL_WORK:
        digits = DIGITS + int(np.log10(absolute / value))
        value = float(jacobian_norms(_jacobian_in_decimals(problem, slopes, digits), problem.norm)[0])
        error = 2 * (gamma(roundings) * value + roundings * absolute * 10.0 ** (1 - digits))
    return max(0.0, value - error - problem.slack)


def _jacobian_in_decimals(problem: DerivativeProblem, slopes: Sequence[Array], digits: int) -> Array:
    """J for one choice of slopes, computed with that many digits; (outputs, inputs, 1)."""
    exact = np.frompyfunc(Decimal, 1, 1)  # every float64 is a decimal number
    blocks = [{s: exact(m.toarray() if sp.issparse(m) else m) for s, m in part.items()} for part in problem.all_blocks()]
    with localcontext(prec=digits):
        gradients: list[Array] = [np.full((n, problem.outputs), Decimal(0)) for n in problem.sizes]
        for source, matrix in blocks[-1].items():
            gradients[source] += matrix.T
        for i in range(len(problem.layers), 0, -1):
            for source, matrix in blocks[i - 1].items():
                gradients[source] += matrix.T @ (exact(slopes[i - 1]) * gradients[i])
    return gradients[0].T.astype(np.float64)[..., None]


def _problem_jacobians(problem: DerivativeProblem, slopes: Sequence[Array], absolute: bool = False) -> Array:
    if absolute:
        problem = DerivativeProblem(
            problem.norm,
            problem.inputs,
            tuple(type(v)({s: abs(m) for s, m in v.blocks.items()}, v.lower, v.upper, v.node, v.neurons) for v in problem.layers),
            {s: abs(m) for s, m in problem.objective.items()},
        )
        slopes = [np.abs(s) for s in slopes]
    columns = max([s.shape[1] for s in slopes], default=1)
    identity = np.eye(problem.outputs)
    return np.stack([problem.backward(slopes, np.repeat(identity[:, [k]], columns, axis=1))[0] for k in range(problem.outputs)])


def _direction(gradient: Array, norm: str) -> Array:
    """The t in the unit ball that is best for a gradient."""
    if norm == "linf":
        return np.where(gradient < 0, -1.0, 1.0)
    if norm == "l2":
        return gradient / np.maximum(np.linalg.norm(gradient, axis=0), 1e-300)
    best = np.abs(gradient).argmax(axis=0)
    columns = np.arange(gradient.shape[1])
    t = np.zeros_like(gradient)
    t[best, columns] = np.where(gradient[best, columns] < 0, -1.0, 1.0)
    return t


def _dual(output: Array, norm: str) -> Array:
    """The row weights that give the norm of an output vector: the best of the dual unit ball."""
    return _direction(output, {"linf": "l1", "l2": "l2", "l1": "linf"}[norm])


def free_neurons(problem: DerivativeProblem) -> int:
    """The number of slopes that are not known."""
    return sum(int((layer.lower < layer.upper).sum()) for layer in problem.layers)


def enumerate_pop(problem: DerivativeProblem, progress: Callable[[float], None] = lambda fraction: None) -> float:
    """The optimum of the POP over all vertices, lowered by rounding error: exponential in the number of neurons."""
    best, value = None, -1.0
    for slopes in _vertices(problem):
        norms = jacobian_norms(_problem_jacobians(problem, slopes), problem.norm)
        k = int(norms.argmax())
        if norms[k] > value:
            best, value = [s[:, [k if s.shape[1] > 1 else 0]] for s in slopes], float(norms[k])
    return 0.0 if best is None else pop_value(problem, best)  # none if all overflow


def _vertices(problem: DerivativeProblem, chunk_bits: int = 10) -> Iterator[list[Array]]:
    """All vertices of the slope box, in chunks of columns."""
    free = free_neurons(problem)
    inner = min(free, chunk_bits)
    bits = np.array(list(itertools.product((False, True), repeat=inner)), bool).reshape(2**inner, inner).T
    for outer in itertools.product((False, True), repeat=free - inner):
        choice = np.concatenate([bits, np.repeat(np.array(outer, bool)[:, None], 2**inner, axis=1)])
        slopes, start = [], 0
        for layer in problem.layers:
            open_ = np.flatnonzero(layer.lower < layer.upper)
            s = np.repeat(layer.upper[:, None], 2**inner, axis=1)
            part = choice[start : start + len(open_)]
            s[open_] = np.where(part, layer.upper[open_, None], layer.lower[open_, None])
            slopes.append(s)
            start += len(open_)
        yield slopes


def pop_lower_bound(problem: DerivativeProblem, task: Task, best: Sample | None) -> float:
    """The best lower bound on the POP: enumeration if it is tiny, alternating maximization otherwise."""
    if free_neurons(problem) <= ENUMERATE:
        return enumerate_pop(problem)
    starts = (
        []
        if best is None
        else [[best.slopes[layer.node][layer.neurons] if layer.node in best.slopes else layer.lower for layer in problem.layers]]
    )
    return alternating(problem, task, starts)
