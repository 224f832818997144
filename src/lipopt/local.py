"""Local bounds at some points: all that is asked about them, with the work that the questions share done once.

In a convex domain f_i - f_j changes by at most L |x' - x|, L its Lipschitz constant there. So the class i at x is kept in
the whole linf ball of radius R around x if  f_i(x) - f_j(x) > R L_j(R)  for all j, L_j(R) a bound for f_i - f_j over that ball.
As L_j grows with the ball, a bound for one radius holds for every smaller one.

Intervals, presolve and sampled gradients belong to the ball: all outputs and margins share them. The SDP of a margin starts from
the vectors of the last radius. To certify, what is known or cheap is tried first: the bound of a larger ball, the path sum,
multipliers that serve all margins at once. On a device, the SDPs of all points that are given together are solved as one batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp

from . import activations
from .api import QUIET, check_work
from .baselines import PathSum, path_sum_bound
from .certificate import Certificate, certify
from .data import check_points
from .domain import Ball
from .errors import LipoptError
from .intervals import preactivation_intervals
from .lower import pop_lower_bound, sample_rows
from .methods import Method, Task, UpperBound, find_method
from .network import Affine, Input, Network
from .presolve import only_rows, presolve, split_rows
from .problem import Norm, derivative_problem, output_matrix, slope_ranges
from .readers import load
from .rounding import Array, up_float
from .sdp import SDP
from .tensors import as_array

Point: TypeAlias = tuple[int, Array, int | None]  # its number, itself, its label
Question: TypeAlias = int | tuple[int, int]  # an output, or the difference of two
Memories: TypeAlias = Mapping[Question | None, dict[str, Any] | None]  # of a point, by question; None: of all questions at once
Margins: TypeAlias = Literal["all", "runner-up"]
RADIUS = "certified radius"
PRECISION = 2e-4  # of a certified radius, relative to the largest one that is not hopeless
STEP = 0.25  # of the way from a radius that will be kept, as it seems, to one that is not: bounds grow slowly with the radius
T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """The answer to one question at one point, or in `error` why there is none."""

    point: int
    radius: float
    question: str  # "output 3", "margin 3 - 5", or "certified radius", which then is `radius`
    label: int | None = None
    margin: float | None = None  # a lower bound on the margin at the point itself
    lower: float | None = None
    pop_lower: float | None = None  # None where it was not needed to certify
    upper: float | None = None
    certified: bool | None = None  # margin > radius * upper; None where that is not asked
    method: str | None = None
    status: str | None = None
    seconds: float = 0.0
    certificate: str | None = None  # the file that proves `upper`
    error: str | None = None


@dataclass(frozen=True)
class Ask:
    """What is asked at every point: the constants of every output, of one, or of the label's margins, for all radii."""

    radii: tuple[float, ...]
    method: Method
    norm: Norm = "linf"
    output: int | None = None
    margins: Margins | None = None
    certify: bool = False  # solve no further than it takes to decide whether the point is certified
    largest: float | None = None  # the largest radius to try for a certified radius; None if that is not asked
    clip: tuple[float, float] | None = None
    time_limit: float | None = None  # seconds for one question
    samples: int = 200
    seed: int = 0
    certificates: str | None = None  # the folder to write certificates to

    @property
    def batched(self) -> SDP | None:
        """The SDP, if it runs on a device, where many problems are solved as one batch."""
        return self.method if isinstance(self.method, SDP) and self.method.device is not None else None

    def questions(self, outputs: Array, label: int | None) -> list[Question]:
        """The outputs or margins to bound, at a point with these outputs."""
        if self.margins is None or label is None:
            return list(range(len(outputs))) if self.output is None else [self.output]
        others = [j for j in range(len(outputs)) if j != label]
        return [(label, j) for j in (others if self.margins == "all" else [max(others, key=lambda j: float(outputs[j]))])]

    def rows_per_point(self, outputs: int) -> int:
        """How many rows one point of a network with that many outputs has."""
        each = {None: outputs if self.output is None else 1, "all": outputs - 1, "runner-up": 1}[self.margins]
        return len(self.radii) * each + (self.largest is not None)


@dataclass(frozen=True, eq=False)
class _Problem:
    """A row that lacks its upper bound, and how to get it."""

    row: Row
    task: Task
    method: Method
    prove: Callable[[list[UpperBound]], Certificate]
    found: UpperBound | None = None  # a bound that is good enough
    known: Row | None = None  # the row of a larger ball, if its bound is


@QUIET
def answers(network: Network, ask: Ask, points: Sequence[Point]) -> list[Row]:
    """All rows of some points. What fails leaves rows that say why."""
    sdp = ask.batched
    if len(points) > 1 and sdp is None:
        return [row for point in points for row in answers(network, ask, [point])]
    items: list[Row | _Problem] = []
    for number, point, label in points:
        questions = ask.questions(network.forward(point), label)
        known: dict[str, Row] = {}  # by question: what is proved for a larger ball
        memories = _memories(questions)
        by_radius: dict[float, list[Row | _Problem]] = {}
        for radius in sorted(ask.radii, reverse=True):
            ball, blanks = Ball(point, radius, ask.clip), _blanks(ask, questions, radius, number, label)
            prepared = _or_error(blanks, partial(_prepared, network, ask, ball, questions, blanks, known, memories))
            by_radius[radius] = list(prepared) if sdp else [_row(ask, item) for item in prepared]
            known |= {row.question: row for row in by_radius[radius] if isinstance(row, Row) and row.upper is not None}
        items += [item for radius in ask.radii for item in by_radius[radius]]
        if ask.largest is not None:
            blank = _blank_radius(ask, number, label)
            items += _or_error([blank], partial(_radius_row, network, ask, point, blank))
    batch = [item for item in items if isinstance(item, _Problem) and item.method is sdp]
    found = {} if sdp is None else _solved_together(sdp, _deadline(ask, len(batch)), batch)
    return [_row(ask, item, found) for item in items]


def unanswered(network: Network, ask: Ask, point: Point, reason: str) -> list[Row]:
    """The rows of a point that could not be solved at all."""
    number, x, label = point
    questions = ask.questions(network.forward(x), label)
    rows = [row for radius in ask.radii for row in _blanks(ask, questions, radius, number, label)]
    rows += [] if ask.largest is None else [_blank_radius(ask, number, label)]
    return [replace(row, error=reason) for row in rows]


@QUIET
def certified_radius(
    network: Any,
    point: Any,
    label: int,
    *,
    input_shape: Sequence[int] | None = None,
    largest: float = 1.0,
    precision: float = PRECISION,
    clip: tuple[float, float] | None = None,
    method: str | Method = "sdp",
    time_limit: float | None = None,
) -> float:
    """A radius, up to `largest`, such that `label` has the largest output on the linf ball around the point; 0 if there is none.

    It is returned only if it was certified; one that is larger by `precision`, relative to the first that was tried, was not."""
    network = load(network, input_shape=input_shape)
    chosen = find_method(method)
    if network.output_size < 2:
        raise LipoptError("a certified radius needs a network with two outputs or more")
    if not 0 < largest < np.inf:
        raise LipoptError(f"the largest radius must be a positive number, got {largest}")
    if not 0 < precision < 1:
        raise LipoptError(f"the precision must lie between 0 and 1, got {precision}")
    output_matrix(network, label, None)
    ask = Ask((), chosen, margins="all", largest=float(largest), clip=clip, time_limit=time_limit)
    check_work(time_limit, ask.seed, ask.samples)
    (row,) = check_points(network, np.asarray(as_array(point))[None])
    return _certified_radius(network, ask, row, label, precision)


@QUIET
def unknown_slopes(network: Network, points: Array, radius: float) -> Array:
    """Roughly the number of neurons whose slope varies in the ball around every point: what its problems will cost.

    Plain interval arithmetic, all points at once."""
    lower, upper, count = [points.T - radius], [points.T + radius], np.zeros(len(points))
    for node in network.nodes[1:]:
        assert not isinstance(node, Input)
        if isinstance(node, Affine):
            center = spread = np.zeros((node.size, len(points)))
            for s, m in zip(node.sources, node.matrices, strict=True):
                center = center + m @ (lower[s] + upper[s]) / 2
                spread = spread + abs(m) @ (upper[s] - lower[s]) / 2
            lower.append(center + node.bias[:, None] - spread)
            upper.append(center + node.bias[:, None] + spread)
        else:
            ends = lower[node.source].T, upper[node.source].T
            low, high = activations.slope_range(node.kind, *ends, node.parameters)
            count += (low < high).sum(axis=1)
            values = activations.value_range(node.kind, *ends, node.parameters)
            lower.append(values[0].T)
            upper.append(values[1].T)
    return count


def _row(ask: Ask, item: Row | _Problem, found: Mapping[_Problem, tuple[UpperBound, float]] | None = None) -> Row:
    """The row itself, or the problem's once it is solved."""
    if isinstance(item, Row):
        return item
    blank = replace(item.row, lower=None, pop_lower=None)
    return _or_error([blank], partial(_solved, ask, item, (found or {}).get(item)))[0]


def _or_error(blanks: Sequence[Row], solve: Callable[[], Sequence[T]]) -> Sequence[T | Row]:
    """What was solved, or the blank rows with the reason why they could not be solved."""
    try:
        return solve()
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, LipoptError):
            reason = f"{type(error).__name__}: {reason}"
        return [replace(row, error=reason) for row in blanks]


def _blanks(ask: Ask, questions: Sequence[Question], radius: float, number: int, label: int | None) -> list[Row]:
    return [Row(number, radius, _words(question), label, method=ask.method.name) for question in questions]


def _blank_radius(ask: Ask, number: int, label: int | None) -> Row:
    return Row(number, 0.0, RADIUS, label, method=ask.method.name)


def _words(question: Question) -> str:
    return f"margin {question[0]} - {question[1]}" if isinstance(question, tuple) else f"output {question}"


def _prepared(
    network: Network,
    ask: Ask,
    ball: Ball,
    questions: Sequence[Question],
    blanks: Sequence[Row],
    known: Mapping[str, Row],
    memories: Memories,
) -> list[_Problem]:
    """All rows of one ball, with their lower bounds. `known`: the rows of a larger ball, by question."""
    start = time.perf_counter()
    outputs = _rows(network, questions)
    whole, tasks = _tasks(network, ask, ball, questions, memories)
    samples = sample_rows(network, outputs, ask.norm, ball, ask.samples, _seed(ask, blanks[0].point, questions[0]))
    margins = _margins(network, ball, questions) if ask.margins else [None] * len(questions)
    lowers = [0.0 if best is None else best.value for best in samples]
    decided = _decided(ask, ball.radius, margins, lowers, tasks)
    problems: list[_Problem] = []
    for k, (question, row, task, margin, lower) in enumerate(zip(questions, blanks, tasks, margins, lowers, strict=True)):
        task = replace(task, seed=_seed(ask, row.point, question))
        pop = lower if decided[k] else max(lower, float(pop_lower_bound(task.problem, task, samples[k])))
        task, shown = replace(task, pop_lower=pop), None if decided[k] else pop
        row = replace(row, margin=margin, lower=lower, pop_lower=shown)
        problems.append(_Problem(row, task, ask.method, partial(certify, network, outputs[[k], :], ball, [task])))
    if ask.certify:
        problems = _settled(ask, ball.radius, whole, problems, known)
    shared = (time.perf_counter() - start) / len(questions)
    return [replace(p, row=replace(p.row, seconds=shared)) for p in problems]


def _decided(
    ask: Ask, radius: float, margins: Sequence[float | None], lowers: Sequence[float], tasks: Sequence[Task]
) -> list[bool]:
    """To certify, the questions that need no lower bound on the POP: gradients rule the point out, or the path sum will do."""
    if not ask.certify:
        return [False] * len(tasks)
    given = np.array(margins, dtype=float)
    hopeless = bool((radius * np.array(lowers) >= given).any())
    return [hopeless or _kept(margin, radius, path_sum_bound(task.problem)) for margin, task in zip(given, tasks, strict=True)]


def _settled(ask: Ask, radius: float, whole: Task, problems: Sequence[_Problem], known: Mapping[str, Row]) -> list[_Problem]:
    """The problems of a ball with what certifies their margins: a bound for a larger ball, the path sum, or multipliers for all.

    Where some lower bound shows that a margin cannot be certified, the path sum has to do for the whole point."""
    margins = np.array([p.row.margin for p in problems], dtype=float)
    if any(radius * p.task.pop_lower >= margin for p, margin in zip(problems, margins, strict=True)):
        return [replace(p, method=PathSum()) for p in problems]
    settled: dict[int, _Problem] = {}
    for k, p in enumerate(problems):
        larger = known.get(p.row.question)
        if larger is not None and larger.upper is not None and _kept(margins[k], radius, larger.upper):
            settled[k] = replace(p, known=larger)
        elif _kept(margins[k], radius, path_sum_bound(p.task.problem)):
            settled[k] = replace(p, method=PathSum())
    left = [k for k in range(len(problems)) if k not in settled]
    for k, found in _shared_bounds(ask, radius, whole, left, margins).items():
        settled[k] = replace(problems[k], found=found)
    return [settled.get(k, p) for k, p in enumerate(problems)]


def _shared_bounds(ask: Ask, radius: float, whole: Task, rows: Sequence[int], margins: Array) -> dict[int, UpperBound]:
    """Bounds that keep margins of these rows, from multipliers that serve all of them; again for the rest if they keep half."""
    found: dict[int, UpperBound] = {}
    left = list(rows)
    while isinstance(ask.method, SDP) and ask.batched is None and len(left) > 1:
        task = replace(whole, problem=only_rows(whole.problem, left))
        bounds = ask.method.every_row(task, margins[left].min() / margins[left]) or []
        found |= {k: bound for k, bound in zip(left, bounds, strict=False) if _kept(margins[k], radius, bound.value)}
        before, left = len(left), [k for k in left if k not in found]
        if 2 * len(left) > before:
            break
    return found


def _solved_together(sdp: SDP, deadline: float | None, batch: Sequence[_Problem]) -> dict[_Problem, tuple[UpperBound, float]]:
    """The bounds of a batch, and the seconds of each. None if it fails: then each alone will tell why."""
    start = time.perf_counter()
    try:
        found = sdp.together([replace(problem.task, deadline=deadline) for problem in batch])
    except Exception:
        return {}
    seconds = (time.perf_counter() - start) / max(1, len(batch))
    return {problem: (bound, seconds) for problem, bound in zip(batch, found, strict=True)}


def _solved(ask: Ask, problem: _Problem, given: tuple[UpperBound, float] | None) -> list[Row]:
    """The row with its upper bound, solved alone if none is there, and with its certificate."""
    row, task, method, known = problem.row, replace(problem.task, deadline=_deadline(ask)), problem.method, problem.known
    if known is not None:
        return [replace(known, radius=row.radius, lower=row.lower, pop_lower=row.pop_lower, certified=True, seconds=row.seconds)]
    start = time.perf_counter()
    found, seconds = given or (problem.found or method(task), 0.0)
    if not np.isfinite(found.value):
        raise LipoptError(f"the bound of method '{method.name}' overflows; rescale the network")
    if found.value < task.pop_lower:
        raise RuntimeError(f"method '{method.name}' gave {found.value} below {task.pop_lower}, a lower bound: please report this")
    upper, file = found.value, None
    if ask.certificates is not None:
        certificate, file = problem.prove([found]), Path(ask.certificates) / _file_name(row)
        certificate.save(file)
        upper = certificate.bound
    solved = replace(
        row,
        pop_lower=None if row.pop_lower is None else max(task.pop_lower, found.pop_lower or 0.0),
        upper=upper,
        certified=None if row.margin is None or ask.norm != "linf" else _kept(row.margin, row.radius, upper),
        method=method.name,
        status=found.status,
        seconds=row.seconds + seconds + time.perf_counter() - start,
        certificate=None if file is None else str(file),
    )
    return [solved]


def _file_name(row: Row) -> str:
    return f"{row.point}-{row.question.replace(' - ', '-').replace(' ', '-')}-{row.radius}.cert"


def _radius_row(network: Network, ask: Ask, point: Array, blank: Row) -> list[Row]:
    start = time.perf_counter()
    assert blank.label is not None
    radius = _certified_radius(network, ask, point, blank.label)
    seconds = time.perf_counter() - start
    status = "time limit" if ask.time_limit is not None and seconds > ask.time_limit else "complete"
    return [replace(blank, radius=radius, certified=radius > 0, status=status, seconds=seconds)]


def _certified_radius(network: Network, ask: Ask, point: Array, label: int, precision: float = PRECISION) -> float:
    """Between a radius that is certified and one that is not. Margins are tried in the order of how soon they fail.

    A bound L for a radius that is too large for some margin holds for smaller ones, so margin / L is small enough for it."""
    assert ask.largest is not None
    questions: list[Question] = [(label, j) for j in range(network.output_size) if j != label]
    center = Ball(point, 0.0, ask.clip)
    margins = np.array(_margins(network, center, questions))
    if not (margins > 0).all():
        return 0.0
    gradients = sample_rows(network, _rows(network, questions), "linf", center, 1, ask.seed)
    hopeless = np.array([np.inf if g is None else m / max(g.value, 1e-300) for m, g in zip(margins, gradients, strict=True)])
    order = np.argsort(hopeless, kind="stable")
    questions, margins, deadline = [questions[k] for k in order], margins[order], _deadline(ask)
    low, high = 0.0, min(ask.largest, float(hopeless.min()))
    tried, close, memories = high, precision * high, _memories(questions)
    small_enough = np.full(len(margins), np.inf)  # for margins that were bounded when a radius failed
    while tried > low:
        ball = Ball(point, tried, ask.clip)
        open_ = np.nonzero((small_enough == np.inf) | (small_enough < tried))[0]
        failed = _first_failure(network, ask, ball, [questions[k] for k in open_], margins[open_], deadline, memories)
        if failed is None:
            low = tried
        else:
            small_enough[open_[: len(failed)]] = margins[open_[: len(failed)]] / failed * (1 - 1e-9)
            high = tried
        if deadline is not None and time.monotonic() > deadline:
            break
        likely = max(low, min(high, float(small_enough.min())))
        tried = likely if high - likely <= close else likely + STEP * (high - likely)
    return low


def _first_failure(
    network: Network,
    ask: Ask,
    ball: Ball,
    questions: Sequence[Question],
    margins: Array,
    deadline: float | None,
    memories: Memories,
) -> list[float] | None:
    """None if every margin is kept in the ball; otherwise the bounds up to the first one that may not be."""
    if not questions:
        return None
    whole, tasks = _tasks(network, replace(ask, norm="linf"), ball, questions, memories)
    bounds = [path_sum_bound(task.problem) for task in tasks]
    left = [k for k, value in enumerate(bounds) if not _kept(margins[k], ball.radius, value)]
    shared = _shared_bounds(ask, ball.radius, whole, left, margins)
    for k in left:
        found = shared.get(k) or ask.method(replace(tasks[k], deadline=deadline))
        bounds[k] = min(bounds[k], found.value)
        if not _kept(margins[k], ball.radius, bounds[k]):
            return bounds[: k + 1]
    return None


def _kept(margin: float, radius: float, constant: float) -> bool:
    """Whether a margin stays positive in the ball, proved: margin > radius * constant, rounded to the safe side."""
    return bool(margin > 0 and up_float(float(np.nextafter(radius, np.inf)) * constant, 1) < margin)


def _margins(network: Network, ball: Ball, questions: Sequence[Question]) -> list[float]:
    """Lower bounds on the margins at the ball's center."""
    center = np.reshape(ball.center, -1)
    lower, upper = preactivation_intervals(network, center, center)[-1]
    margins = [float(np.nextafter(lower[q[0]] - upper[q[1]], -np.inf)) for q in questions if isinstance(q, tuple)]
    if not np.isfinite(margins).all():
        raise LipoptError("the network's outputs overflow at this point")
    return margins


def _memories(questions: Sequence[Question]) -> Memories:
    """What the problems of one radius leave for those of the next."""
    return {question: {} for question in [*questions, None]}


def _rows(network: Network, questions: Sequence[Question]) -> sp.csr_array:
    """The outputs, or differences of two, as rows of a matrix."""
    pairs = [question if isinstance(question, tuple) else (question,) for question in questions]
    entries = [(sign, k, output) for k, pair in enumerate(pairs) for sign, output in zip((1.0, -1.0), pair, strict=False)]
    signs, rows, columns = zip(*entries, strict=True)
    return sp.csr_array((signs, (rows, columns)), shape=(len(pairs), network.output_size))


def _tasks(network: Network, ask: Ask, ball: Ball, questions: Sequence[Question], memories: Memories) -> tuple[Task, list[Task]]:
    """A task for all questions together, and one for each; intervals and presolve are done once for all."""
    raw = derivative_problem(network, slope_ranges(network, ball), ask.norm, _rows(network, questions))
    whole = Task(raw, presolve(raw), seed=ask.seed, memory=memories[None])
    parts = zip(split_rows(raw), split_rows(whole.problem), questions, strict=True)
    return whole, [replace(whole, raw=r, problem=p, memory=memories[question]) for r, p, question in parts]


def _deadline(ask: Ask, problems: int = 1) -> float | None:
    return None if ask.time_limit is None else time.monotonic() + problems * ask.time_limit


def _seed(ask: Ask, point: int, question: Question) -> int:
    """A seed for every problem, whatever worker solves it and when."""
    numbers = question if isinstance(question, tuple) else (question,)
    return int(np.random.SeedSequence([ask.seed, point, *numbers]).generate_state(1)[0])
