"""bound(), lower_bound(), compare(): the entry points. A network and a question in, a Result out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from . import auto, shor  # noqa: F401  (importing a method registers it)
from .certificate import certify as write_certificate
from .domain import Ball, Box, Boxes, Domain, describe, one_box_only, pieces
from .errors import LipoptError
from .lower import Sample, pop_lower_bound, sample
from .methods import REGISTER, Method, Task, find_method
from .network import Affine, Network
from .presolve import presolve, split_rows
from .problem import NORMS, DerivativeProblem, Norm, derivative_problem, output_matrix, slope_ranges
from .readers import load
from .result import LowerBound, Result
from .threads import blas_threads

Progress = Callable[..., None]
QUIET = np.errstate(over="ignore", under="ignore", invalid="ignore")  # what overflows is found and refused at the end
SAMPLES = 50_000  # the paper's number of points for the lower bound
QUICK = 5_000  # and what goes with an upper bound
SAMPLING_WORK = 20_000_000_000  # but no more multiplications than this


@QUIET
def bound(
    network: Any,
    *,
    input_shape: Sequence[int] | None = None,
    norm: Norm = "linf",
    output: int | Literal["all"] = 0,
    margin: tuple[int, int] | None = None,
    domain: Domain = None,
    method: str | Method = "auto",
    time_limit: float | None = None,
    seed: int = 0,
    samples: int | None = None,
    certify: bool = False,
    progress: Progress | None = None,
) -> Result:
    """A proved upper bound on the Lipschitz constant, with lower bounds beside it.

    The constant is that of one output, of the difference of two (`margin`), or of all together (`output="all"`, the same norm
    on inputs and outputs). Over Boxes, it is the largest of the constants on each box.

    Args:
        network: a Network, or anything that `load` reads.
        input_shape: the shape of one input of a torch module, without the batch dimension.
        norm: "linf", "l2" or "l1", on the inputs.
        output: which output, or "all".
        margin: two outputs (i, j), to bound output i minus output j.
        domain: a Ball, a Box, Boxes, or None for the whole space.
        method: the name of a method or its settings, such as `LiPopt(3)`.
        time_limit: in seconds.
        seed: of everything random.
        samples: random points for the lower bound; 5,000 if not given, fewer for large networks.
        certify: make `upper` what a file proves that `Result.save` writes.
        progress: called with a message and a fraction.

    Raises:
        LipoptError: the question makes no sense, or the method does not take the network.
    """
    chosen = find_method(method)
    network = load(network, input_shape=input_shape)
    parts = _parts(domain, certify)
    share = _share(time_limit, len(parts))
    results = []
    for part in parts:
        question = _Question.ask(network, norm, output, margin, part, share, seed, samples, QUICK, progress)
        results.append(question.result(chosen, question.lower(), certify))
    return _largest(results, domain)


@QUIET
def compare(
    network: Any,
    *,
    input_shape: Sequence[int] | None = None,
    methods: Sequence[str | Method] | None = None,
    norm: Norm = "linf",
    output: int | Literal["all"] = 0,
    margin: tuple[int, int] | None = None,
    domain: Domain = None,
    time_limit: float | None = None,
    seed: int = 0,
    samples: int | None = None,
    certify: bool = False,
    progress: Progress | None = None,
    on_refusal: Callable[[str, LipoptError], None] | None = None,
) -> list[Result]:
    """The same question put to several methods (by default all that are registered), best first.

    The time limit is per method. A method that refuses the problem raises its error, or is left out and passed to
    `on_refusal`."""
    chosen = [find_method(m) for m in (sorted(set(REGISTER) - {"auto"}) if methods is None else methods)]
    network = load(network, input_shape=input_shape)
    parts = _parts(domain, certify)
    share = _share(time_limit, len(parts))
    found: dict[int, list[Result]] = {k: [] for k in range(len(chosen))}  # of methods that do not refuse
    for part in parts:
        question = _Question.ask(network, norm, output, margin, part, share, seed, samples, QUICK, progress)
        low = question.lower()
        for number in list(found):
            try:
                found[number].append(question.restarted(share).result(chosen[number], low, certify))
            except LipoptError as error:
                if on_refusal is None:
                    raise
                on_refusal(chosen[number].name, error)
                del found[number]
    results = [_largest(each, domain) for each in found.values()]
    best = max((r.pop_lower or 0.0 for r in results), default=0.0)  # what one method found holds for all
    return sorted((replace(r, pop_lower=best) for r in results), key=lambda r: r.upper)


@QUIET
def lower_bound(
    network: Any,
    *,
    input_shape: Sequence[int] | None = None,
    norm: Norm = "linf",
    output: int | Literal["all"] = 0,
    margin: tuple[int, int] | None = None,
    domain: Domain = None,
    time_limit: float | None = None,
    seed: int = 0,
    samples: int | None = None,
    progress: Progress | None = None,
) -> LowerBound:
    """Lower bounds on the Lipschitz constant and on the optimum of the derivative problem."""
    start = time.perf_counter()
    network = load(network, input_shape=input_shape)
    parts = _parts(domain)
    share = _share(time_limit, len(parts))
    found = []
    for part in parts:
        question = _Question.ask(network, norm, output, margin, part, share, seed, samples, SAMPLES, progress)
        best, pop = question.lower()
        value = 0.0 if best is None else best.value
        point = () if best is None else tuple(float(v) for v in best.point)
        found.append(LowerBound(value, pop, point, time.perf_counter() - start, **question.labels))
    largest = max(found, key=lambda low: low.lower)
    return replace(
        largest,
        pop_lower=max(low.pop_lower for low in found),
        seconds=time.perf_counter() - start,
        domain=describe(domain),
    )


def _parts(domain: Domain, certify: bool = False) -> tuple[Domain, ...]:
    """The convex parts of a domain, each of which gets a bound of its own."""
    if not (domain is None or isinstance(domain, Ball | Box | Boxes)):
        raise LipoptError(f"the domain is a Ball, a Box, Boxes or None, got {type(domain).__name__}")
    if certify and isinstance(domain, Boxes):
        raise one_box_only("a certificate", domain)
    return pieces(domain)


def _share(time_limit: float | None, parts: int) -> float | None:
    """The time for each of several parts; what is no time limit is refused later."""
    return time_limit / parts if isinstance(time_limit, Real) else time_limit


def _largest(results: Sequence[Result], domain: Domain) -> Result:
    """What follows for a union from the results for its parts: the largest of everything."""
    if not isinstance(domain, Boxes):
        return results[0]
    decided = max(range(len(results)), key=lambda k: results[k].upper)
    return replace(
        results[decided],
        lower=max(r.lower for r in results),
        pop_lower=max(r.pop_lower or 0.0 for r in results),
        seconds=sum(r.seconds for r in results),
        status="time limit" if any(r.status == "time limit" for r in results) else "complete",
        domain=describe(domain),
        certificate=[r.certificate for r in results],
        details={**results[decided].details, "box": decided, "boxes": len(results)},
    )


@dataclass(frozen=True, eq=False)
class _Question:
    """A question made ready: one task per row of outputs that has to be bounded on its own."""

    network: Network
    outputs: sp.csr_array
    domain: Domain
    samples: int
    tasks: tuple[Task, ...]
    labels: dict[str, Any]

    @staticmethod
    def ask(
        network: Network,
        norm: Norm,
        output: int | Literal["all"],
        margin: tuple[int, int] | None,
        domain: Domain,
        time_limit: float | None,
        seed: int,
        samples: int | None,
        usual_samples: int,
        progress: Progress | None,
    ) -> _Question:
        if norm not in NORMS:
            raise LipoptError(f"unknown norm '{norm}'; use one of {', '.join(NORMS)}")
        if margin is not None and output != 0:
            raise LipoptError("ask for an output or for a margin, not for both")
        if samples is None:
            work = 20 * network.neurons + sum(
                int(m.size) for node in network.nodes if isinstance(node, Affine) for m in node.matrices
            )
            samples = min(usual_samples, max(100, SAMPLING_WORK // work))
        check_work(time_limit, seed, samples)
        deadline = None if time_limit is None else time.monotonic() + time_limit
        show: Progress = progress or (lambda message, fraction=None: None)
        outputs = output_matrix(network, output, margin)
        ranges = slope_ranges(network, domain, lambda fraction: show("bounding pre-activations", fraction))
        raw = derivative_problem(network, ranges, norm, outputs)
        solved = presolve(raw)
        tasks = tuple(Task(r, p, deadline, seed, 0.0, show) for r, p in zip(_split(raw), _split(solved), strict=True))
        labels = {
            "norm": norm,
            "output": f"{margin[0]} - {margin[1]}" if margin else str(output),
            "domain": describe(domain),
            "network": network.hash,
            "source": network.source,
        }
        return _Question(network, outputs, domain, samples, tasks, labels)

    def restarted(self, time_limit: float | None) -> _Question:
        """The same question with a fresh time limit."""
        deadline = None if time_limit is None else time.monotonic() + time_limit
        return replace(self, tasks=tuple(replace(task, deadline=deadline) for task in self.tasks))

    def lower(self) -> tuple[Sample | None, float]:
        """The best sample, and a lower bound on the POP, in a third of the time there is."""
        deadline = time.monotonic() + self.tasks[0].seconds_left / 3
        tasks = [replace(task, deadline=None if task.deadline is None else deadline) for task in self.tasks]
        with blas_threads(max(node.size for node in self.network.nodes)):
            best = sample(self.network, self.outputs, tasks[0], self.domain, self.samples)
            pop = max(pop_lower_bound(task.problem, task, best) for task in tasks)
        return best, max(pop, 0.0 if best is None else best.value)

    def result(self, method: Method, low: tuple[Sample | None, float], certify: bool = False) -> Result:
        """What the method says, the worst over all rows; with `certify`, as a certificate that can be saved."""
        best, pop = low
        start = time.perf_counter()
        bounds = [method(replace(task, pop_lower=pop if len(self.tasks) == 1 else 0.0)) for task in self.tasks]
        worst = max(bounds, key=lambda b: b.value)
        if not all(np.isfinite(b.value) for b in bounds):
            raise LipoptError(f"the bound of method '{method.name}' overflows; rescale the network")
        if worst.value < pop:
            raise RuntimeError(f"method '{method.name}' gave {worst.value} below the lower bound {pop}: please report this")
        proof = worst.certificate if len(bounds) == 1 else [b.certificate for b in bounds]
        upper, details = worst.value, worst.details
        if certify:
            proof = write_certificate(self.network, self.outputs, self.domain, self.tasks, bounds)
            upper, details = proof.bound, {**details, "loss": proof.loss}
        return Result(
            upper=upper,
            lower=0.0 if best is None else best.value,
            pop_lower=max([pop, *(b.pop_lower for b in bounds if b.pop_lower is not None)]),
            method=method.name,
            seconds=time.perf_counter() - start,
            status="time limit" if any(b.status == "time limit" for b in bounds) else "complete",
            certificate=proof,
            details=details,
            **self.labels,
        )


def check_work(time_limit: float | None, seed: int, samples: int) -> None:
    """Refuse what is no time limit, seed or number of samples."""
    if time_limit is not None and not (isinstance(time_limit, Real) and time_limit > 0):
        raise LipoptError(f"the time limit must be a positive number, got {time_limit!r}")
    if not isinstance(seed, Integral) or seed < 0:
        raise LipoptError(f"the seed must be a whole number >= 0, got {seed!r}")
    if not isinstance(samples, Integral) or samples < 1:
        raise LipoptError(f"the number of samples must be a whole number > 0, got {samples!r}")


def _split(problem: DerivativeProblem) -> list[DerivativeProblem]:
    """The maximum norm of several outputs is a maximum over rows; other norms take all rows together."""
    return split_rows(problem) if problem.norm == "linf" and problem.outputs > 1 else [problem]
