"""The certified radius of a point: the largest ball found in which its class is proved.

The search keeps a radius that is certified and a larger one that is not, and tries radii between.
A bound L on a margin's constant for a radius that is too large holds for all smaller radii, so the
margin is kept in every ball of radius below margin / L. That tells which radius to try next.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..api import check_work
from ..errors import LipoptError
from ..lower.gradients import sample_rows
from ..methods.baselines import path_sum_bound
from ..methods.registry import Method, find_method
from ..model.network import Network
from ..model.norms import NormName, find_norm
from ..numerics.arrays import Array, as_array, as_index
from ..numerics.blas import quiet
from ..problem.question import output_matrix
from ..readers import load
from ..readers.points import check_points
from .balls import (
    Memories,
    deadline_of,
    is_kept,
    margins_at,
    new_memories,
    pose_ball,
    shared_bounds,
    target_matrix,
    until,
)
from .rows import LARGEST_RADIUS, Ask, Row, Target, label_margins

PRECISION = 2e-4  # where a search ends, relative to the first radius that was tried
# The next radius to try: a quarter of the way from the expected answer to the smallest failure.
# Bounds grow slowly with the radius, so the answer is expected to be near what the last bounds say.
STEP = 0.25
ROUNDING = 1e-9  # relative: margin / L may be rounded up, and must not fail for that alone
TINY_GRADIENT = 1e-300  # below it, a gradient rules no radius out, and nothing is divided by zero


@quiet()
def certified_radius(
    network: Any,
    point: Any,
    label: int,
    *,
    input_shape: Sequence[int] | None = None,
    largest: float = LARGEST_RADIUS,
    precision: float = PRECISION,
    norm: NormName = "linf",
    clip: tuple[float, float] | None = None,
    method: str | Method = "sdp",
    time_limit: float | None = None,
) -> float:
    """A radius of a ball around a point in which the network's class is proved to stay.

    Args:
        network: a Network, or anything that `load` reads, with two outputs or more.
        point: the center of the ball, in the network's input shape or flat.
        label: the output that has to be the largest in the whole ball.
        input_shape: the shape of one input of a torch module, without the batch dimension.
        largest: the largest radius to try.
        precision: how far the search goes, relative to the first radius that is tried.
        norm: the norm of the ball, and of the constants that prove it: "linf", "l2" or "l1".
        clip: a range (low, high) that all inputs lie in, such as (0, 1) for pixels.
        method: the name of a method or its settings, such as `SDP(gap=1e-3)`.
        time_limit: in seconds; after it, what was certified until then is returned.

    Returns:
        A radius that was certified, 0 if none was. Unless the time was up, or it is `largest`,
        a radius that is larger by `precision` could not be certified.

    Raises:
        LipoptError: an argument makes no sense, or the method does not take the network.

    Examples:
        >>> import lipopt
        >>> network = lipopt.load([[[1.0, 0.0], [0.0, 1.0]]])
        >>> radius = lipopt.certified_radius(network, [2.0, 1.0], label=0)  # x_0 > x_1 up to 1/2
        >>> 0.4999 < radius < 0.5
        True
    """
    network = load(network, input_shape=input_shape)
    chosen = find_method(method)
    if network.output_size < 2:
        raise LipoptError("a certified radius needs a network with two outputs or more")
    if not 0 < largest < np.inf:
        raise LipoptError(f"the largest radius must be a positive number, got {largest}")
    if not 0 < precision < 1:
        raise LipoptError(f"the precision must lie between 0 and 1, got {precision}")
    label = as_index(label)
    output_matrix(network, label, None)  # LipoptError if there is no such output
    ask = Ask(
        (),
        chosen,
        norm=find_norm(norm),
        ball_norm=find_norm(norm),
        margins="all",
        largest=float(largest),
        clip=clip,
        time_limit=time_limit,
    )
    check_work(time_limit, ask.seed, ask.samples)
    (x,) = check_points(network, np.asarray(as_array(point))[None])
    return search_radius(network, ask, x, label, precision)


def radius_row(network: Network, ask: Ask, x: Array, blank: Row) -> Row:
    """The row of a point's certified radius."""
    assert blank.label is not None
    start = time.perf_counter()
    radius = search_radius(network, ask, x, blank.label)
    seconds = time.perf_counter() - start
    in_time = ask.time_limit is None or seconds <= ask.time_limit
    status = "complete" if in_time else "time limit"
    return replace(blank, radius=radius, certified=radius > 0, status=status, seconds=seconds)


def search_radius(
    network: Network, ask: Ask, x: Array, label: int, precision: float = PRECISION
) -> float:
    """The largest radius, up to `ask.largest`, that was certified; 0 if there is none."""
    assert ask.largest is not None
    targets = label_margins(label, network.output_size)
    margins = np.array(margins_at(network, x, targets))
    if not (margins > 0).all():
        return 0.0
    hopeless = _hopeless_radii(network, ask, x, targets, margins)
    order = np.argsort(hopeless, kind="stable")  # the margins that fail first are tried first
    ordered = [targets[k] for k in order]
    search = _Search(
        network, ask, x, ordered, margins[order], new_memories(ordered), deadline_of(ask)
    )
    first = min(ask.largest, float(hopeless.min()))
    return search.run(first, precision * first)


def _hopeless_radii(
    network: Network, ask: Ask, x: Array, targets: Sequence[Target], margins: Array
) -> Array:
    """For every margin a radius that no bound can certify: the gradient at the point forbids it."""
    matrix = target_matrix(network, targets)
    center = ask.ball(x, 0.0)
    gradients = sample_rows(network, matrix, ask.norm, center, 1, ask.seed)
    radii = []
    for margin, gradient in zip(margins, gradients, strict=True):
        if gradient is None:
            radii.append(np.inf)
        else:
            radii.append(margin / max(gradient.value, TINY_GRADIENT))
    return np.array(radii)


@dataclass(frozen=True, eq=False)
class _Search:
    """The margins of a point, in the order in which they are tried, and what limits the search."""

    network: Network
    ask: Ask
    x: Array
    targets: list[Target]
    margins: Array  # lower bounds at the point, all positive
    memories: Memories
    deadline: float | None

    def run(self, first: float, close: float) -> float:
        """Search from the radius `first` downwards, until the ends are `close` to each other."""
        certified = 0.0
        failed = first
        # For every margin that was bounded when a radius failed, a radius that is small enough.
        small_enough = np.full(len(self.margins), np.inf)
        tried = first
        while tried > certified:
            unsure = np.nonzero((small_enough == np.inf) | (small_enough < tried))[0]
            bounds = self._bounds_up_to_failure(tried, unsure)
            if bounds is None:
                certified = tried
            else:
                failed = tried
                bounded = unsure[: len(bounds)]
                small_enough[bounded] = self.margins[bounded] / bounds * (1 - ROUNDING)
            if self.deadline is not None and time.monotonic() > self.deadline:
                break
            expected = max(certified, min(failed, float(small_enough.min())))
            tried = expected
            if failed - expected > close:
                tried = expected + STEP * (failed - expected)
        return certified

    def _bounds_up_to_failure(self, radius: float, numbers: Array) -> list[float] | None:
        """None if all these margins are kept in the ball; otherwise bounds up to the first failure.

        The path sum is tried first, then multipliers that serve all margins, then each alone."""
        if len(numbers) == 0:
            return None
        ball = self.ask.ball(self.x, radius)
        targets = [self.targets[k] for k in numbers]
        margins = self.margins[numbers]
        problems = pose_ball(
            self.network, self.ask.norm, ball, targets, self.ask.seed, self.memories
        )
        bounds = [path_sum_bound(task.problem) for task in problems.tasks]
        left = [k for k, bound in enumerate(bounds) if not is_kept(margins[k], radius, bound)]
        shared = shared_bounds(self.ask, problems, left, margins)
        for k in left:
            found = shared.get(k)
            if found is None:
                found = self.ask.method(until(problems.tasks[k], self.deadline))
            bounds[k] = min(bounds[k], found.value)
            if not is_kept(margins[k], radius, bounds[k]):
                return bounds[: k + 1]
        return None
