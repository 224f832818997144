"""Lower bounds on the Lipschitz constant L: gradients of the network itself.

Gradients at random points (the paper's LBS), then a hill climb from the best of them. A neuron at its
kink, within rounding, has a range of slopes; a gradient counts with what is left of its norm whatever
the slopes in these ranges are.

What is searched for in plain floating point is proved at the best points (lower/verified.py); no
certificate goes with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from ..model.domain import Domain
from ..model.network import Network
from ..model.nodes import Activation, Affine
from ..model.norms import Norm
from ..model.round_ball import InputSet
from ..numerics.arrays import Array
from ..problem.question import Posed
from ..problem.task import Budget, Sample
from .uphill import gradients, uphill
from .verified import NormsNear, SlopesNear, norm_near

CUBE = 5.0  # the whole space is sampled in [-5, 5]^n, as the authors' code does
FAR = 100.0  # every eighth of these points lies up to 100 times farther out
BATCH_ENTRIES = 2**22  # of the largest array when many points are evaluated at once
MAX_BATCH_WORK = 300_000_000  # multiplications between two looks at the clock
CLIMBING_WORK = 1_000_000_000  # multiplications that other norms are tried with
STARTS = 16  # points that the hill climb starts from
ROUNDS = 30  # steps of the hill climb at most, and at least
FEWEST_ROUNDS = 4
ROUNDS_WORK = 100_000_000  # multiplications of all steps, unless these are the fewest
IDLE_ROUNDS = 5  # after so many in which no point gains more than LEAST_GAIN of its value, it ends
LEAST_GAIN = 1e-4
FIRST_STEP = 0.5  # of a climb, relative to the width of the domain; later ones
SHRINK = 0.8  # are so much shorter than the one before
PROPOSALS = 12  # points tried around each point in one step:
UPHILL = np.array([1.0, 0.5, 0.25, 0.125])  # these steps uphill,
ALONG = np.array([1.0, -1.0, 0.1, -0.1])  # these along the direction that is stretched most,
MOVED = 0.2  # and random ones, in this share of the inputs
NEAR = 1e-9  # the distance from a kink, relative to the layer's size, that counts as on it
ENOUGH = 1e-6  # relative: points that can be better by no more are not proved
SMALLEST = 1e-300  # keeps relative distances positive


@dataclass(frozen=True, eq=False)
class JacobianNorm:
    """The function whose largest value is looked for: the norm of the Jacobian at a point."""

    network: Network
    rows: sp.csr_array
    norm: Norm
    scale: Array | None = None  # how much of each input counts as 1; None for 1
    output_norm: Norm | None = None  # None for the same norm

    @staticmethod
    def of(posed: Posed) -> JacobianNorm:
        """The norm that a question is about."""
        question = posed.question
        return JacobianNorm(
            posed.network, question.rows, question.norm, question.scale, question.output_norm
        )

    def of_jacobians(self, jacobian: Array) -> Array:
        """The norms of Jacobians, in the units of the inputs."""
        if self.scale is not None:
            jacobian = jacobian * self.scale[:, None]
        return self.norm.of_jacobians(jacobian, self.output_norm)

    @property
    def entries(self) -> int:
        """The entries of the largest array that one point takes."""
        return max(self.network.widest, self.rows.shape[0] * self.network.input_size)

    def at(self, x: Array) -> Array:
        """The value at every column of x; -1 where it overflows."""
        result = np.empty(x.shape[1])
        batch = max(1, BATCH_ENTRIES // self.entries)
        for start in range(0, x.shape[1], batch):
            part = x[:, start : start + batch]
            values = self.network.node_values(part)
            slopes = slopes_at(self.network, part, values)
            norms = self.of_jacobians(jacobians(self.network, self.rows, slopes, part.shape[1]))
            at_kinks = _columns_at_kinks(self.network, values)
            if len(at_kinks):
                norms[at_kinks] = self._at_kinks(part[:, at_kinks])
            result[start : start + batch] = np.where(np.isfinite(norms), norms, -1.0)
        return result

    def _at_kinks(self, x: Array) -> Array:
        """The least norm of the Jacobian, whatever the slopes of neurons at their kinks are."""
        slopes, halves = slopes_at_kinks(self.network, self.network.node_values(x))
        middle = jacobians(self.network, self.rows, slopes, x.shape[1])
        spread = jacobian_spreads(self.network, self.rows, slopes, halves, x.shape[1])
        return self.of_jacobians(middle) - self.of_jacobians(spread)

    def uphill(self, x: Array, step: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Which way the value grows at every column of x, across the kinks that a step can reach.

        Also the direction that is stretched most there."""
        columns = np.arange(x.shape[1])
        values = self.network.node_values(x)
        slopes = slopes_at(self.network, x, values)
        rows = jacobians(self.network, self.rows, slopes, x.shape[1])
        largest = np.abs(rows).sum(axis=1).argmax(axis=0)
        t = self.norm.best_direction(rows[largest, :, columns].T)
        start = self.rows[largest, :].toarray().T
        signs = rng.choice([-1.0, 1.0], x.shape)
        shaken = self.network.node_values(x + step * signs)
        return uphill(self.network, values, shaken, slopes, start, t), t

    def proved(self, point: Array) -> Sample:
        """The sample at a point, with a value that is proved."""
        near = SlopesNear.of(self.network, point)
        return Sample(self.with_slopes(near), point, near.middle)

    def with_slopes(self, near: SlopesNear) -> float:
        """A lower bound on the norm of the Jacobian, whatever the slopes in these ranges are."""
        slopes = {i: middle[:, None] for i, middle in near.middle.items()}
        jacobian = jacobians(self.network, self.rows, slopes)[..., 0]
        norms = NormsNear(self.norm, self.output_norm or self.norm, self.scale)
        return norm_near(self.network, self.rows, norms, near, jacobian)


@dataclass(frozen=True, eq=False)
class _Best:
    """The best points so far, best first, and their values."""

    points: Array  # (inputs, points)
    values: Array

    def joined(self, points: Array, values: Array) -> _Best:
        """The STARTS best of these and others."""
        everything = np.concatenate([self.points, points], axis=1)
        scores = np.concatenate([self.values, values])
        order = np.argsort(-scores, kind="stable")[:STARTS]
        return _Best(everything[:, order], scores[order])

    def proved(self, goal: JacobianNorm) -> Sample | None:
        """The point whose proved value is largest; None if nothing can be proved."""
        found: Sample | None = None
        for point, value in zip(self.points.T, self.values, strict=True):
            if value < 0 or (found is not None and value <= found.value * (1 + ENOUGH)):
                break
            sample = goal.proved(point)
            if found is None or sample.value > found.value:
                found = sample
        return found


def sample(posed: Posed, budget: Budget, samples: int) -> Sample | None:
    """The largest Jacobian norm at random points, improved by a hill climb.

    None if no point was differentiable."""
    network = posed.network
    domain = posed.question.domain
    goal = JacobianNorm.of(posed)
    rng = np.random.default_rng(budget.seed)
    n = network.input_size
    low = np.full(n, -CUBE)
    high = np.full(n, CUBE)
    if domain is not None:
        low, high = domain.bounds(n)
    batch = max(1, min(samples, BATCH_ENTRIES // goal.entries))
    if budget.deadline is not None:
        batch = max(1, min(batch, MAX_BATCH_WORK // (1 + network.weights)))
    best = _Best(np.empty((n, 0)), np.empty(0))
    for start in range(0, samples, batch):
        if start and budget.seconds_left <= 0:
            break
        x = _points(rng, low, high, domain, min(batch, samples - start))
        best = best.joined(x, goal.at(x))
        budget.progress("sampling gradients", (start + x.shape[1]) / samples)
    affordable = int(ROUNDS_WORK / (STARTS * PROPOSALS * (1 + network.weights)))
    rounds = min(ROUNDS, max(FEWEST_ROUNDS, affordable))
    inside = None if domain is None else InputSet(low, high, domain.ball(n))
    starts = best.points
    for each in _goals(goal, rounds):
        points = best.points if each is goal else starts
        found = _climb(
            each, _Best(points, each.at(points)), high - low, inside, budget, rng, rounds
        )
        best = best.joined(found.points, goal.at(found.points))
    return best.proved(goal)


def _goals(goal: JacobianNorm, rounds: int) -> list[JacobianNorm]:
    """What to climb for in turn: the goal itself, and in small networks other norms before that.

    Points with a large gradient in one norm tend to have a large one in the others."""
    proposals = rounds * STARTS * PROPOSALS
    if 3 * proposals * goal.network.weights > CLIMBING_WORK:
        return [goal]
    others = [replace(goal, norm=norm) for norm in Norm if norm is not goal.norm]
    return [*others, goal]


def sample_rows(posed: Posed, samples: int, seed: int) -> list[Sample | None]:
    """The best of the same points of a ball or box for every row of a question on its own.

    The points are the middle and random ones; there is no climb."""
    network = posed.network
    domain = posed.question.domain
    assert domain is not None
    goal = JacobianNorm.of(posed)
    n = network.input_size
    rows = goal.rows.shape[0]
    points = _points(np.random.default_rng(seed), *domain.bounds(n), domain, samples)
    points[:, 0] = domain.middle(n)
    own = [replace(goal, rows=goal.rows[[k], :]) for k in range(rows)]
    best_values = np.full(rows, -1.0)
    best_points = np.repeat(points[:, [0]], rows, axis=1)
    for x in np.array_split(points, -(-samples * goal.entries // BATCH_ENTRIES), axis=1):
        values = network.node_values(x)
        jacobian = jacobians(network, goal.rows, slopes_at(network, x, values), x.shape[1])
        at_kinks = _columns_at_kinks(network, values)
        for k in range(rows):
            norms = own[k].of_jacobians(jacobian[[k]])
            if len(at_kinks):
                norms[at_kinks] = own[k].at(x[:, at_kinks])
            top = int(np.where(np.isfinite(norms), norms, -1.0).argmax())
            if norms[top] > best_values[k]:
                best_values[k] = norms[top]
                best_points[:, k] = x[:, top]
    found: list[Sample | None] = []
    for k in range(rows):
        if best_values[k] < 0:
            found.append(None)
        else:
            found.append(own[k].proved(best_points[:, k].copy()))
    return found


def sample_jacobians(posed: Posed, samples: int, seed: int) -> Array:
    """Jacobians at random points where no neuron is at a kink, (outputs, inputs, points).

    They are in the units of the inputs."""
    network = posed.network
    question = posed.question
    n = network.input_size
    low = np.full(n, -CUBE)
    high = np.full(n, CUBE)
    if question.domain is not None:
        low, high = question.domain.bounds(n)
    x = _points(np.random.default_rng(seed), low, high, question.domain, samples)
    found = [np.zeros((question.rows.shape[0], n, 0))]
    batch = max(1, BATCH_ENTRIES // JacobianNorm.of(posed).entries)
    for start in range(0, samples, batch):
        part = x[:, start : start + batch]
        values = network.node_values(part)
        slopes = slopes_at(network, part, values)
        fine = np.delete(np.arange(part.shape[1]), _columns_at_kinks(network, values))
        found.append(jacobians(network, question.rows, slopes, part.shape[1])[:, :, fine])
    seen = np.concatenate(found, axis=2)
    return seen if question.scale is None else seen * question.scale[:, None]


def _points(rng: np.random.Generator, low: Array, high: Array, domain: Domain, count: int) -> Array:
    """Uniform points in a box; those outside of a ball are moved to its boundary.

    In a domain, every other point lies in a smaller box around its middle, of random size. In the
    cube for the whole space, every eighth point lies up to FAR times farther out."""
    x = low[:, None] + (high - low)[:, None] * rng.random((len(low), count))
    if domain is None:
        x[:, ::8] *= FAR ** rng.random(x[:, ::8].shape[1])
        return x
    middle = domain.middle(len(low))[:, None]
    closer = middle + (x[:, ::2] - middle) * rng.random(x[:, ::2].shape[1])
    x[:, ::2] = np.clip(closer, low[:, None], high[:, None])
    return InputSet(low, high, domain.ball(len(low))).moved_into(x)


def _climb(
    goal: JacobianNorm,
    best: _Best,
    width: Array,
    domain: InputSet | None,
    budget: Budget,
    rng: np.random.Generator,
    rounds: int,
) -> _Best:
    """Steps of shrinking size from the best points, each of which keeps its best successor.

    A third of them go uphill, a third are random in few inputs. The others go along the direction
    that is stretched most, from the point or from the middle: neurons that are on there stay on."""
    points = best.points
    values = best.values
    rows = np.arange(points.shape[1])
    middle = np.zeros(len(width)) if domain is None else (domain.lower + domain.upper) / 2
    idle = 0
    for k in range(rounds):
        if budget.seconds_left <= 0 or points.shape[1] == 0 or idle == IDLE_ROUNDS:
            break
        step = FIRST_STEP * SHRINK**k * width[:, None]
        uphill, t = goal.uphill(points, step, rng)
        t = t / np.maximum(np.abs(t).max(axis=0), SMALLEST)
        steps = np.concatenate(
            [
                np.sign(uphill)[:, :, None] * UPHILL,
                t[:, :, None] * ALONG,
                _in_few_inputs(rng, (*points.shape, PROPOSALS - len(UPHILL) - len(ALONG))),
            ],
            axis=2,
        )
        tries = points[:, :, None] + step[:, :, None] * steps
        from_middle = (rng.random(points.shape[1]) ** 2) * FIRST_STEP * width[:, None] * t
        first = len(UPHILL)  # of the steps along t: the first two start from the middle
        tries[:, :, first] = middle[:, None] + from_middle
        tries[:, :, first + 1] = middle[:, None] - from_middle
        if domain is not None:
            tries = domain.moved_into(tries.reshape(len(width), -1)).reshape(tries.shape)
        scores = goal.at(tries.reshape(len(width), -1)).reshape(tries.shape[1:])
        pick = scores.argmax(axis=1)
        found = scores[rows, pick]
        better = found > values
        idle = 0 if (found > values * (1 + LEAST_GAIN)).any() else idle + 1
        points = np.where(better, tries[:, rows, pick], points)
        values = np.where(better, found, values)
        budget.progress("climbing", (k + 1) / rounds)
    order = np.argsort(-values, kind="stable")
    return _Best(points[:, order], values[order])


def _in_few_inputs(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Random steps that leave most inputs as they are."""
    steps = np.zeros(shape)
    moves = rng.random(shape) < MOVED
    steps[moves] = rng.standard_normal(np.count_nonzero(moves))
    return steps


def slopes_at(network: Network, x: Array, values: list[Array] | None = None) -> dict[int, Array]:
    """The slopes of every activation node, a column for each column of x."""
    values = network.node_values(x) if values is None else values
    slopes = {}
    for i, node in network.activations.items():
        slopes[i] = node.function.slope(values[node.source].T).T
    return slopes


def jacobians(
    network: Network, outputs: sp.csr_array, slopes: Mapping[int, Array], columns: int = 1
) -> Array:
    """J for given slopes, (outputs, inputs, columns)."""
    rows = []
    for row in outputs.toarray():
        start = np.repeat(row[:, None], columns, axis=1)
        found = gradients(network, start, slopes)
        rows.append(found.get(0, np.zeros((network.input_size, columns))))
    return rows[0][None] if len(rows) == 1 else np.stack(rows)


def jacobian_spreads(
    network: Network,
    outputs: sp.csr_array,
    slopes: Mapping[int, Array],
    halves: Mapping[int, Array],
    columns: int,
) -> Array:
    """How far J can be from that of the given slopes if each is off by `halves`, at most.

    (outputs, inputs, columns), in plain floating point."""
    result = np.empty((outputs.shape[0], network.input_size, columns))
    for row in range(outputs.shape[0]):
        start = np.repeat(outputs[[row], :].toarray().T, columns, axis=1)
        result[row] = _gradient_spread(network, start, slopes, halves)
    return result


def _gradient_spread(
    network: Network, start: Array, slopes: Mapping[int, Array], halves: Mapping[int, Array]
) -> Array:
    """How far the gradient of start . output can be off, (inputs, columns)."""
    nothing = np.zeros((network.input_size, start.shape[1]))
    state: dict[int, tuple[Array, Array]] = {len(network.nodes) - 1: (start, 0.0 * start)}

    def add(source: int, g: Array, spread: Array) -> None:
        if source in state:
            g = state[source][0] + g
            spread = state[source][1] + spread
        state[source] = (g, spread)

    for i in range(len(network.nodes) - 1, 0, -1):
        if i not in state:
            continue
        node = network.nodes[i]
        g, spread = state.pop(i)
        if isinstance(node, Affine):
            for source, matrix in node.terms:
                add(source, matrix.T @ g, abs(matrix).T @ spread)
        else:
            assert isinstance(node, Activation)
            off = np.abs(slopes[i]) * spread + halves[i] * (np.abs(g) + spread)
            add(node.source, slopes[i] * g, off)
    return state.get(0, (nothing, nothing))[1]


def slopes_at_kinks(
    network: Network, values: list[Array]
) -> tuple[dict[int, Array], dict[int, Array]]:
    """The middle of every slope's range, and half its width, where inputs are known up to NEAR."""
    middle = {}
    half = {}
    for i, node in network.activations.items():
        y = values[node.source]
        near = _near(y)
        low, high = node.function.slope_range((y - near).T, (y + near).T)
        middle[i] = (low + high).T / 2
        half[i] = (high - low).T / 2
    return middle, half


def _columns_at_kinks(network: Network, values: list[Array]) -> Array:
    """The columns where a neuron is at a kink of its activation."""
    found = np.zeros(values[0].shape[1], bool)
    for node in network.activations.values():
        y = values[node.source]
        near = _near(y)
        for point in node.function.kinks:
            kink = np.broadcast_to(point, node.size)[:, None]
            found |= (np.abs(y - kink) <= near).any(axis=0)
    return np.flatnonzero(found)


def _near(y: Array) -> Array:
    """How well the inputs of a layer's neurons are known, by column."""
    return np.asarray(NEAR * np.abs(y).max(axis=0) + SMALLEST)
