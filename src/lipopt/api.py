"""bound(), lower_bound(), compare(): the entry points. A network and a question in, a Result out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal

from .errors import LipoptError
from .inquiry import Asked, Inquiry, largest_of
from .methods.branch import QUICK_CELLS, Branch
from .methods.registry import Method, find_method, method_names
from .model.domain import Domain, check_domain, describe, example_in, one_box_only
from .model.network import Network
from .model.norms import NormName
from .numerics.blas import arithmetic
from .problem.interruption import Interruption, interruptible
from .problem.task import Budget
from .progress import Progress, progress_as_asked
from .readers import load_for
from .result import Comparison, LowerBound, Result

SAMPLES = 50_000  # random points for `lower_bound`: the paper's number,
SAMPLING_WORK = 2e10  # in so many multiplications at most: large networks get fewer points
# The same for the lower bound that stands beside an upper bound. The climb from the best of them
# gains more than further points.
QUICK_SAMPLES = 5_000
QUICK_SAMPLING_WORK = 5e7
FEWEST_SAMPLES = 100  # however large the network is
LOWER_SHARE = 1 / 3  # of the time limit, for intervals and lower bounds


def bound(
    network: Any,
    *,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None,
    norm: NormName = "linf",
    output_norm: NormName | None = None,
    scale: Any = None,
    output: int | Literal["all"] | None = None,
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
        output_norm: the norm on the outputs, with `output="all"`: "linf", "l2" or "l1". None for the
            same as on the inputs.
        scale: how much of each input counts as 1, such as [1, 100] for degrees and hundreds of feet:
            the norm on the inputs is that of differences / scale. None for 1.
        output: the number of an output, from 0, or "all". None for output 0, or the margin.
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
    check_domain(domain)
    if certify:
        one_box_only("a certificate", domain)
    network = load_for(network, input_shape, example_in(domain))
    asked = Asked.check(network, norm, output_norm, scale, output, margin, domain)
    work = _Work.check(network, time_limit, seed, samples, is_quick=True, gap=gap, jobs=jobs)
    results = []
    with _at_work(network, progress) as user:
        for k, part in enumerate(asked.parts):
            budget = work.budget(len(asked.parts) - k, user, time.monotonic() - start)
            share = budget.share(LOWER_SHARE)
            inquiry = Inquiry.start(asked, part, share, work.samples, certify)
            results.append(inquiry.result(chosen, budget, certify))
    return replace(largest_of(results, domain), seconds=time.monotonic() - start)


def compare(
    network: Any,
    *,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None,
    methods: Sequence[str | Method] | None = None,
    norm: NormName = "linf",
    output_norm: NormName | None = None,
    scale: Any = None,
    output: int | Literal["all"] | None = None,
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
            packages included, and "branch" in a ball or a box alone. Without a time limit, branch
            and bound ends after some hundred cells.
        norm: the norm on the inputs, "linf", "l2" or "l1".
        output_norm: the norm on the outputs, with `output="all"`: "linf", "l2" or "l1". None for the
            same as on the inputs.
        scale: how much of each input counts as 1, such as [1, 100] for degrees and hundreds of feet:
            the norm on the inputs is that of differences / scale. None for 1.
        output: the number of an output, from 0, or "all". None for output 0, or the margin.
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
        methods = _methods_to_compare(domain)
    if isinstance(methods, str) or not methods:
        raise LipoptError(f"methods are a list, such as ['sdp', 'lipopt-3'], got {methods!r}")
    chosen = [find_method(method) for method in methods]
    if time_limit is None:
        chosen = [_with_an_end(method) for method in chosen]
    check_domain(domain)
    if certify:
        one_box_only("a certificate", domain)
    network = load_for(network, input_shape, example_in(domain))
    asked = Asked.check(network, norm, output_norm, scale, output, margin, domain)
    work = _Work.check(network, time_limit, seed, samples, is_quick=True)
    found: dict[int, list[Result]] = {k: [] for k in range(len(chosen))}
    refused: dict[str, str] = {}
    with _at_work(network, progress) as user:
        for part in asked.parts:
            share = work.budget(len(asked.parts), user).share(LOWER_SHARE)
            inquiry = Inquiry.start(asked, part, share, work.samples, certify)
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
    results = [largest_of(each, domain) for each in found.values()]
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
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None,
    norm: NormName = "linf",
    output_norm: NormName | None = None,
    scale: Any = None,
    output: int | Literal["all"] | None = None,
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
        output_norm: the norm on the outputs, with `output="all"`: "linf", "l2" or "l1". None for the
            same as on the inputs.
        scale: how much of each input counts as 1, such as [1, 100] for degrees and hundreds of feet:
            the norm on the inputs is that of differences / scale. None for 1.
        output: the number of an output, from 0, or "all". None for output 0, or the margin.
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
    check_domain(domain)
    network = load_for(network, input_shape, example_in(domain))
    asked = Asked.check(network, norm, output_norm, scale, output, margin, domain)
    work = _Work.check(network, time_limit, seed, samples, is_quick=False)
    found = []
    with _at_work(network, progress) as user:
        for k, part in enumerate(asked.parts):
            budget = work.budget(len(asked.parts) - k, user, time.monotonic() - start)
            inquiry = Inquiry.start(asked, part, budget, work.samples)
            found.append(inquiry.lower_bound(time.monotonic() - start))
    largest = max(found, key=lambda low: low.lower)
    return replace(
        largest,
        pop_lower=max(low.pop_lower for low in found),
        seconds=time.monotonic() - start,
        domain=describe(domain),
    )


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
        *,
        is_quick: bool,
        gap: float | None = None,
        jobs: int = 1,
    ) -> _Work:
        if samples is None:
            cost = 20 * network.neurons + network.weights  # of one point, in multiplications
            affordable = int((QUICK_SAMPLING_WORK if is_quick else SAMPLING_WORK) / cost)
            most = QUICK_SAMPLES if is_quick else SAMPLES
            samples = min(most, max(FEWEST_SAMPLES, affordable))
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


def _methods_to_compare(domain: Domain) -> list[str]:
    """All methods but `auto`. Branch and bound comes last, and only where it has a domain to divide."""
    names = [name for name in method_names() if name not in ("auto", Branch.name)]
    return names if domain is None else [*names, Branch.name]


def _with_an_end(method: Method) -> Method:
    """A method that ends by itself: branch and bound may take any time."""
    if isinstance(method, Branch) and method.cells is None:
        return replace(method, cells=QUICK_CELLS)
    return method


def check_work(time_limit: float | None, seed: int, samples: int) -> None:
    """Raise LipoptError unless time limit, seed and number of samples are valid."""
    if time_limit is not None and not (isinstance(time_limit, Real) and time_limit > 0):
        raise LipoptError(f"the time limit must be a positive number, got {time_limit!r}")
    if not isinstance(seed, Integral) or seed < 0:
        raise LipoptError(f"the seed must be a whole number >= 0, got {seed!r}")
    if not isinstance(samples, Integral) or samples < 1:
        raise LipoptError(f"the number of samples must be a whole number > 0, got {samples!r}")
