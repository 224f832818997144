"""bound(), lower_bound(), compare(): the entry points. A network and a question in, a Result out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

from .cells.refine import refine
from .certificates.write import certify as write_certificate
from .errors import LipoptError
from .lower.gradients import sample
from .lower.pop import pop_lower_bound
from .methods.auto import MAX_GAP, Auto, better_by_lp
from .methods.baselines import PathSum
from .methods.branch import QUICK_CELLS, Branch, cells_in_a_second
from .methods.registry import Method, find_method, method_names
from .model.domain import Domain, Region, describe, one_box_only, pieces
from .model.network import Network
from .model.norms import NormName
from .numerics.arrays import Array, as_index
from .numerics.blas import arithmetic
from .problem.interruption import Interruption, interruptible
from .problem.question import Posed, Question, pose
from .problem.task import Budget, Sample, Status, Task, UpperBound
from .progress import Progress, progress_as_asked
from .readers import load
from .result import Comparison, LowerBound, Result

SAMPLES = 50_000  # random points for `lower_bound`: the paper's number
QUICK_SAMPLES = 5_000  # random points for the lower bound that stands beside an upper bound
SAMPLING_WORK = (
    20_000_000_000  # multiplications at most in sampling: large networks get fewer points
)
LOWER_SHARE = 1 / 3  # of the time limit, for intervals and lower bounds
INTERVAL_SHARE = 1 / 2  # of that, for intervals


def bound(
    network: Any,
    *,
    input_shape: Sequence[int] | None = None,
    norm: NormName = "linf",
    output_norm: NormName | None = None,
    scale: Any = None,
    output: int | Literal["all"] = 0,
    margin: tuple[int, int] | None = None,
    domain: Domain = None,
    method: str | Method = "auto",
    gap: float | None = None,
    time_limit: float | None = None,
    jobs: int = 1,
    seed: int = 0,
    samples: int | None = None,
    certify: bool = False,
    progress: Progress | bool | None = None,
) -> Result:
    """A proved upper bound on the Lipschitz constant, with lower bounds beside it.

    The constant is that of one output, of the difference of two (`margin`), or of all outputs
    together (`output="all"`). Over Boxes, it is the largest of the constants on each box. All
    numbers of a result are floats and carry no gradient; to train with a constant, use
    `lipopt.training.Penalty` (docs/training.md).

    Args:
        network: a Network, or anything that `load` reads.
        input_shape: the shape of one input of a torch module, without the batch dimension.
        norm: the norm on the inputs, "linf", "l2" or "l1"; with several outputs, also on these.
        output_norm: the norm on the outputs, with `output="all"`: the same, or "linf", or "l2" with
            "linf" on the inputs. None for the same.
        scale: how much of each input counts as 1, such as [1, 100] for degrees and hundreds of feet:
            the norm on the inputs is that of differences / scale. None for 1.
        output: the number of an output, from 0, or "all".
        margin: two outputs (i, j), to bound output i minus output j.
        domain: a Ball, a Box, Boxes, or None for the whole space.
        method: the name of a method, such as "sdp" or "lipopt-3", or its settings, such as
            `LiPopt(3)`. docs/choosing.md compares them.
        gap: how far the upper bound may be above the lower one, relative: 0.01 is one percent. In a
            ball or a box, "auto" then goes on to branch and bound.
        time_limit: seconds, divided among the boxes of a union; None for no limit. When the time is
            up, the best bound so far is returned with the status "time limit". In a ball or a box,
            "auto" uses the time that is left for branch and bound.
        jobs: processes that share the work of branch and bound.
        seed: the seed of everything random.
        samples: random points for the lower bound; 5,000 if not given, fewer for large networks.
        certify: whether to write a certificate too. `upper` is then what the certificate proves, a
            little more than without, and `Result.save` writes the file.
        progress: True for a bar, on a terminal or in a notebook; or a function that is called with
            a message and, where it is known, the fraction of the work that is done.

    Returns:
        A Result: `upper`, `lower`, `pop_lower`, and how they were found. After Ctrl-C it is what was
        found until then, with the status "interrupted". The method stops where it can and proves
        what it has; the second Ctrl-C leaves it at the path sum, or at what is smaller and proved
        already.

    Raises:
        LipoptError: the network cannot be read, the question makes no sense, the method does not
            take the network, the bound overflows, or it cannot be written as a certificate.

    Examples:
        >>> import lipopt
        >>> weights = [[[1.0, -1.0], [2.0, 1.0]], [[1.0, -1.0]]]
        >>> result = lipopt.bound(weights, norm="linf")
        >>> result.lower <= result.pop_lower <= result.upper
        True
        >>> round(result.upper, 3)
        3.0
        >>> ball = lipopt.Ball([1.0, -3.0], radius=0.1)  # one of two neurons is off there
        >>> round(lipopt.bound(weights, domain=ball).upper, 3)
        2.0
        >>> exact = lipopt.bound(weights, domain=lipopt.Ball([0.1, 0.0], radius=1.0), gap=0.0)
        >>> round(exact.lower, 6), round(exact.upper, 6)
        (3.0, 3.0)
    """
    start = time.monotonic()
    chosen = find_method(method)
    if certify:
        one_box_only("a certificate", domain)
    network = load(network, input_shape=input_shape)
    asked = _Asked.check(network, norm, output_norm, scale, output, margin, domain)
    work = _Work.check(network, time_limit, seed, samples, QUICK_SAMPLES, gap, jobs)
    results = []
    with _at_work(network, progress) as user:
        for k, part in enumerate(asked.parts):
            budget = work.budget(len(asked.parts) - k, user, time.monotonic() - start)
            share = budget.share(LOWER_SHARE)
            inquiry = _Inquiry.start(asked, part, share, work.samples, certify)
            results.append(inquiry.result(chosen, budget, certify))
    return replace(_largest(results, domain), seconds=time.monotonic() - start)


def compare(
    network: Any,
    *,
    input_shape: Sequence[int] | None = None,
    methods: Sequence[str | Method] | None = None,
    norm: NormName = "linf",
    output_norm: NormName | None = None,
    scale: Any = None,
    output: int | Literal["all"] = 0,
    margin: tuple[int, int] | None = None,
    domain: Domain = None,
    time_limit: float | None = None,
    seed: int = 0,
    samples: int | None = None,
    certify: bool = False,
    progress: Progress | bool | None = None,
) -> Comparison:
    """The same question put to several methods.

    Intervals, presolve and lower bounds are computed once; lower bounds that one method finds count
    for all.

    Args:
        network: a Network, or anything that `load` reads.
        input_shape: the shape of one input of a torch module, without the batch dimension.
        methods: names of methods or their settings; all but "auto" if not given, those of other
            packages included. Without a time limit, branch and bound ends after some hundred cells.
        norm: the norm on the inputs, "linf", "l2" or "l1".
        output_norm: the norm on the outputs, with `output="all"`: the same, or "linf", or "l2" with
            "linf" on the inputs. None for the same.
        scale: how much of each input counts as 1, such as [1, 100] for degrees and hundreds of feet:
            the norm on the inputs is that of differences / scale. None for 1.
        output: the number of an output, from 0, or "all".
        margin: two outputs (i, j), to bound output i minus output j.
        domain: a Ball, a Box, Boxes, or None for the whole space.
        time_limit: seconds for each method; None for no limit.
        seed: the seed of everything random.
        samples: random points for the lower bound; 5,000 if not given, fewer for large networks.
        certify: whether to write a certificate of every bound.
        progress: True for a bar, or a function that is called with a message and a fraction.

    Returns:
        A Comparison: a list with a Result for every method that took the problem, the smallest
        upper bound first. Its field `refused` has the reasons of the methods that did not. After
        Ctrl-C these include the methods that were not tried.

    Raises:
        LipoptError: as `bound` does; or no method takes the problem.

    Examples:
        >>> import lipopt
        >>> weights = [[[1.0, -1.0], [2.0, 1.0]], [[1.0, -1.0]]]
        >>> results = lipopt.compare(weights, methods=["product", "path-sum", "sdp"])
        >>> results[0].upper <= results[1].upper <= results[2].upper
        True
        >>> results[-1].method, results.refused
        ('product', {})
    """
    if methods is None:
        methods = [name for name in method_names() if name != "auto"]
    chosen = [find_method(method) for method in methods]
    if time_limit is None:
        chosen = [_with_an_end(method) for method in chosen]
    if certify:
        one_box_only("a certificate", domain)
    network = load(network, input_shape=input_shape)
    asked = _Asked.check(network, norm, output_norm, scale, output, margin, domain)
    work = _Work.check(network, time_limit, seed, samples, QUICK_SAMPLES)
    found: dict[int, list[Result]] = {k: [] for k in range(len(chosen))}
    refused: dict[str, str] = {}
    with _at_work(network, progress) as user:
        for part in asked.parts:
            share = work.budget(len(asked.parts), user).share(LOWER_SHARE)
            inquiry = _Inquiry.start(asked, part, share, work.samples, certify)
            for k in list(found):
                try:
                    if user.interruption.has_come:
                        raise LipoptError("interrupted before its turn came")
                    budget = work.budget(len(asked.parts), user)
                    found[k].append(inquiry.result(chosen[k], budget, certify))
                except LipoptError as error:
                    refused[chosen[k].name] = str(error)
                    del found[k]
    if not found:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise LipoptError(f"no method takes this: {reasons}")
    results = [_largest(each, domain) for each in found.values()]
    ordered = sorted(_sharing_lower_bounds(results), key=lambda result: result.upper)
    return Comparison(ordered, refused)


def _sharing_lower_bounds(results: Sequence[Result]) -> list[Result]:
    """The same results; a lower bound that one method found holds for all.

    Only branch and bound gets below the optimum of the POP."""
    pop_lower = max((result.pop_lower or 0.0 for result in results), default=0.0)
    lower = max((result.lower for result in results), default=0.0)
    point = next((result.point for result in results if result.lower == lower), ())
    shared = []
    for result in results:
        own = None if pop_lower > result.upper else pop_lower
        shared.append(replace(result, pop_lower=own, lower=lower, point=point))
    return shared


def lower_bound(
    network: Any,
    *,
    input_shape: Sequence[int] | None = None,
    norm: NormName = "linf",
    output_norm: NormName | None = None,
    scale: Any = None,
    output: int | Literal["all"] = 0,
    margin: tuple[int, int] | None = None,
    domain: Domain = None,
    time_limit: float | None = None,
    seed: int = 0,
    samples: int | None = None,
    progress: Progress | bool | None = None,
) -> LowerBound:
    """Lower bounds on the Lipschitz constant, and on the optimum of the problem that methods relax.

    Args:
        network: a Network, or anything that `load` reads.
        input_shape: the shape of one input of a torch module, without the batch dimension.
        norm: the norm on the inputs, "linf", "l2" or "l1".
        output_norm: the norm on the outputs, with `output="all"`: the same, or "linf", or "l2" with
            "linf" on the inputs. None for the same.
        scale: how much of each input counts as 1, such as [1, 100] for degrees and hundreds of feet:
            the norm on the inputs is that of differences / scale. None for 1.
        output: the number of an output, from 0, or "all".
        margin: two outputs (i, j), for output i minus output j.
        domain: a Ball, a Box, Boxes, or None for the whole space.
        time_limit: in seconds.
        seed: the seed of everything random.
        samples: random points; 50,000 if not given, fewer for large networks.
        progress: True for a bar, or a function that is called with a message and a fraction.

    Returns:
        A LowerBound: both bounds, and the point with the largest gradient that was found.

    Raises:
        LipoptError: the network cannot be read, or the question makes no sense.

    Examples:
        >>> import lipopt
        >>> low = lipopt.lower_bound([[[1.0, -1.0], [2.0, 1.0]], [[1.0, -1.0]]], samples=100)
        >>> low.lower <= low.pop_lower
        True
        >>> len(low.point)
        2
    """
    start = time.monotonic()
    network = load(network, input_shape=input_shape)
    asked = _Asked.check(network, norm, output_norm, scale, output, margin, domain)
    work = _Work.check(network, time_limit, seed, samples, SAMPLES)
    found = []
    with _at_work(network, progress) as user:
        for k, part in enumerate(asked.parts):
            budget = work.budget(len(asked.parts) - k, user, time.monotonic() - start)
            inquiry = _Inquiry.start(asked, part, budget, work.samples)
            found.append(inquiry.lower_bound(time.monotonic() - start))
    largest = max(found, key=lambda low: low.lower)
    return replace(
        largest,
        pop_lower=max(low.pop_lower for low in found),
        seconds=time.monotonic() - start,
        domain=describe(domain),
    )


@dataclass(frozen=True, eq=False)
class _Asked:
    """What was asked, checked."""

    network: Network
    question: Question
    parts: tuple[Domain, ...]  # the convex parts of the domain: each gets a bound of its own
    output: str  # in words

    @staticmethod
    def check(
        network: Network,
        norm: NormName,
        output_norm: NormName | None,
        scale: Any,
        output: int | Literal["all"],
        margin: tuple[int, int] | None,
        domain: Domain,
    ) -> _Asked:
        if not (domain is None or isinstance(domain, Region)):
            kind = type(domain).__name__
            raise LipoptError(f"the domain is a Ball, a Box, Boxes or None, got {kind}")
        output = as_index(output)
        if isinstance(margin, tuple | list):
            margin = tuple(as_index(k) for k in margin)
        question = Question.about(
            network,
            norm=norm,
            output=output,
            margin=margin,
            domain=domain,
            scale=scale,
            output_norm=output_norm,
        )
        words = str(output) if margin is None else f"{margin[0]} - {margin[1]}"
        return _Asked(network, question, pieces(domain), words)


@dataclass(frozen=True)
class _Work:
    """How much work may be done, checked."""

    time_limit: float | None
    seed: int
    samples: int
    gap: float | None
    jobs: int

    @staticmethod
    def check(
        network: Network,
        time_limit: float | None,
        seed: int,
        samples: int | None,
        usual_samples: int,
        gap: float | None = None,
        jobs: int = 1,
    ) -> _Work:
        if samples is None:
            cost = 20 * network.neurons + network.weights  # of one point, in multiplications
            samples = min(usual_samples, max(100, SAMPLING_WORK // cost))
        check_work(time_limit, seed, samples)
        if gap is not None and not (isinstance(gap, Real) and gap >= 0):
            raise LipoptError(f"the gap must be a number >= 0, such as 0.01, got {gap!r}")
        if not isinstance(jobs, Integral) or jobs < 1:
            raise LipoptError(f"the number of jobs must be a whole number > 0, got {jobs!r}")
        return _Work(time_limit, seed, samples, gap, int(jobs))

    def budget(self, parts: int, user: _User, spent: float = 0.0) -> Budget:
        """The budget, from now on, of one of several parts that share what is left of the time."""
        limit = None if self.time_limit is None else max(0.0, self.time_limit - spent) / parts
        return Budget.of(limit, self.seed, user.progress, self.gap, self.jobs, user.interruption)


@dataclass(frozen=True)
class _User:
    """What the user sees of the work, and whether it is to end."""

    progress: Progress | None
    interruption: Interruption


@contextmanager
def _at_work(network: Network, progress: Progress | bool | None) -> Iterator[_User]:
    """While a question is answered: arithmetic that fits the network, progress, Ctrl-C."""
    with (
        arithmetic(network.widest),
        progress_as_asked(progress) as shown,
        interruptible() as interruption,
    ):
        yield _User(shown, interruption)


@dataclass(frozen=True, eq=False)
class _Inquiry:
    """A question about one convex domain, posed, with its lower bounds."""

    posed: Posed
    best: Sample | None  # the largest gradient that was found
    pop_lower: float  # a lower bound on the optimum of the derivative problem
    labels: dict[str, Any]
    seconds: float  # that it took until here

    @staticmethod
    def start(
        asked: _Asked, part: Domain, budget: Budget, samples: int, certify: bool = False
    ) -> _Inquiry:
        """Pose the question and look for lower bounds, which get half of the time.

        A checker takes all intervals that it can get, and a certificate has to start from the same:
        then they take the time that they need."""
        start = time.monotonic()
        first = budget.share(INTERVAL_SHARE)

        def show(fraction: float) -> None:
            budget.progress("bounding pre-activations", fraction)

        def is_late() -> bool:
            return first.seconds_left <= 0 and not certify

        posed = pose(asked.network, replace(asked.question, domain=part), show, is_late)
        posed = refine(posed, first)
        best = sample(posed, budget, samples)
        lowers = [pop_lower_bound(problem, budget, best) for _, problem in posed.parts]
        labels = {
            "norm": str(asked.question.norm),
            "output_norm": str(asked.question.output_norm),
            "scale": _numbers(asked.question.scale),
            "output": asked.output,
            "domain": describe(part),
            "network": asked.network.hash,
            "source": asked.network.source,
        }
        pop_lower = max([*lowers, _value(best)])
        return _Inquiry(posed, best, pop_lower, labels, time.monotonic() - start)

    def lower_bound(self, seconds: float) -> LowerBound:
        point = _as_tuple(self.best)
        return LowerBound(_value(self.best), self.pop_lower, point, seconds, **self.labels)

    def result(self, method: Method, budget: Budget, certify: bool) -> Result:
        """What a method says, the largest over all parts; with `certify`, as a certificate."""
        start = time.monotonic()
        cells = self._cells_to_try(budget) if isinstance(method, Auto) else 0
        try:
            if isinstance(method, Auto) and cells != 0:
                answer = self._answer_in_cells(method, cells, budget, certify)
            else:
                answer = self._answer(method, budget, certify)
        except KeyboardInterrupt:  # the second one; the first leaves it to methods to end
            answer = self._answer(PathSum(), budget, certify).with_details(chosen="path-sum")
        worst = answer.worst
        upper = worst.value
        details = worst.details
        certificate = None
        if certify:
            certificate = write_certificate(answer.posed, answer.tasks, answer.bounds)
            upper = certificate.bound
            details = {**details, "loss": certificate.loss}
        best = worst.best or self.best
        return Result(
            upper=upper,
            lower=_value(best),
            pop_lower=self._pop_lower(answer, upper),
            method=method.name,
            seconds=self.seconds + time.monotonic() - start,
            status="interrupted" if budget.interruption.has_come else answer.status,
            point=_as_tuple(best),
            certificate=certificate,
            proofs=tuple(found.proof for found in answer.bounds),
            details=details,
            **self.labels,
        )

    def _answer(self, method: Method, budget: Budget, certify: bool) -> _Answer:
        """A method's bounds on all parts of the problem."""
        posed = self.posed
        if getattr(method, "keeps_neurons", False):
            posed = posed.unmerged()
        parts = posed.parts
        if getattr(method, "takes_all_rows", False):
            parts = [(posed.raw, posed.problem)]
        known = self.pop_lower if len(parts) == 1 else 0.0
        tasks = []
        bounds = []
        for k, (raw, problem) in enumerate(parts):
            share = budget.share(1 / (len(parts) - k))
            task = Task(raw, problem, share, pop_lower=known, posed=posed, best=self.best)
            tasks.append(replace(task, keeps_proof=certify))
            bounds.append(method(tasks[-1]))
        check_bounds(method, bounds, self._least(bounds))
        return _Answer(posed, tasks, bounds)

    def _least(self, bounds: Sequence[UpperBound]) -> float:
        """What no bound can be below: the optimum of the derivative problem, but for methods that
        divide the domain."""
        if any(found.best is not None for found in bounds):
            return _value(self.best)
        return self.pop_lower

    def _cells_to_try(self, budget: Budget) -> int | None:
        """How many cells branch and bound may examine after `auto`: None for any number."""
        if self.posed.question.domain is None:
            return 0
        if _is_asked_for(budget):
            return None
        return cells_in_a_second(self.posed)

    def _answer_in_cells(
        self, auto: Auto, cells: int | None, budget: Budget, certify: bool
    ) -> _Answer:
        """What `auto` finds, and then branch and bound; the LP only where that gains nothing."""
        answer = self._answer(replace(auto, lp=False), budget, certify)
        closest = _value(self.best) * (1 + (budget.gap or MAX_GAP))
        if answer.worst.value <= closest or budget.seconds_left <= 0:
            return answer
        try:
            deeper = self._answer(Branch(cells=cells), budget, certify)
        except LipoptError as error:
            return answer.with_details(refused={"branch": str(error)}).with_lp()
        except KeyboardInterrupt:
            return answer
        if deeper.worst.value < answer.worst.value:
            return deeper.with_details(chosen="branch")
        if _is_asked_for(budget):
            return answer.with_best_of(deeper.worst).with_status(deeper.worst.status)
        return answer.with_lp().with_best_of(deeper.worst)

    def _pop_lower(self, answer: _Answer, upper: float) -> float | None:
        """The best lower bound on the optimum of the derivative problem; None if the upper bound is
        below it, since it is not a bound on that problem."""
        lowers = [found.pop_lower for found in answer.bounds if found.pop_lower is not None]
        attained = [_value(found.best) for found in answer.bounds]
        largest = max([self.pop_lower, *lowers, *attained])
        return None if largest > upper else largest


@dataclass(frozen=True, eq=False)
class _Answer:
    """The tasks that a question was divided into, and a bound for each."""

    posed: Posed
    tasks: Sequence[Task]
    bounds: Sequence[UpperBound]

    @property
    def worst(self) -> UpperBound:
        return max(self.bounds, key=lambda found: found.value)

    @property
    def status(self) -> Status:
        return _status([found.status for found in self.bounds])

    def with_details(self, **details: Any) -> _Answer:
        """The same answer with more details."""
        bounds = []
        for found in self.bounds:
            bounds.append(replace(found, details={**found.details, **details}))
        return replace(self, bounds=bounds)

    def with_status(self, status: Status) -> _Answer:
        """The same bounds with another status."""
        return replace(self, bounds=[replace(found, status=status) for found in self.bounds])

    def with_best_of(self, other: UpperBound) -> _Answer:
        """The same bounds, with the best point that another one found."""
        return replace(self, bounds=[replace(found, best=other.best) for found in self.bounds])

    def with_lp(self) -> _Answer:
        """The same bounds, or those of the LP where they are smaller."""
        bounds = []
        for task, found in zip(self.tasks, self.bounds, strict=True):
            bounds.append(better_by_lp(task, found))
        return replace(self, bounds=bounds)


def _is_asked_for(budget: Budget) -> bool:
    """Whether branch and bound may take more than about a second."""
    return budget.gap is not None or budget.deadline is not None


def _with_an_end(method: Method) -> Method:
    """A method that ends by itself: branch and bound may take any time."""
    if isinstance(method, Branch) and method.cells is None:
        return replace(method, cells=QUICK_CELLS)
    return method


def _value(best: Sample | None) -> float:
    return 0.0 if best is None else best.value


def _as_tuple(best: Sample | None) -> tuple[float, ...]:
    return _numbers(None if best is None else best.point)


def _numbers(values: Array | None) -> tuple[float, ...]:
    return () if values is None else tuple(float(v) for v in values)


def _status(statuses: Sequence[Status]) -> Status:
    """The worst of several."""
    for status in ("interrupted", "time limit", "cell limit"):
        if status in statuses:
            return status
    return "complete"


def _largest(results: Sequence[Result], domain: Domain) -> Result:
    """What follows for a union from the results for its parts: the largest of everything."""
    if domain is None or len(domain.parts) == 1:
        return results[0]
    decided = max(range(len(results)), key=lambda k: results[k].upper)
    attained = max(range(len(results)), key=lambda k: results[k].lower)
    return replace(
        results[decided],
        lower=results[attained].lower,
        point=results[attained].point,
        pop_lower=max(result.pop_lower or 0.0 for result in results),
        seconds=sum(result.seconds for result in results),
        status=_status([result.status for result in results]),
        domain=describe(domain),
        details={**results[decided].details, "box": decided, "boxes": len(results)},
    )


def check_bounds(method: Method, bounds: Sequence[UpperBound], pop_lower: float) -> None:
    """Refuse bounds that are infinite, or below a lower bound."""
    largest = max(found.value for found in bounds)
    if not all(np.isfinite(found.value) for found in bounds):
        raise LipoptError(f"the bound of method '{method.name}' overflows; rescale the network")
    if largest < pop_lower:
        raise RuntimeError(
            f"method '{method.name}' gave {largest} below the lower bound {pop_lower}: please report"
            " this"
        )


def check_work(time_limit: float | None, seed: int, samples: int) -> None:
    """Raise LipoptError unless time limit, seed and number of samples are valid."""
    if time_limit is not None and not (isinstance(time_limit, Real) and time_limit > 0):
        raise LipoptError(f"the time limit must be a positive number, got {time_limit!r}")
    if not isinstance(seed, Integral) or seed < 0:
        raise LipoptError(f"the seed must be a whole number >= 0, got {seed!r}")
    if not isinstance(samples, Integral) or samples < 1:
        raise LipoptError(f"the number of samples must be a whole number > 0, got {samples!r}")
