"""Local bounds for many points, and the radius around a point in which a classification cannot change.

In a convex domain f_i - f_j changes by at most L |x' - x|, L its Lipschitz constant there. So the class i at x is kept in
the whole linf ball of radius R around x if  f_i(x) - f_j(x) > R L_j(R)  for all j, L_j(R) a bound for f_i - f_j over that ball.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from .api import bound
from .baselines import path_sum_bound
from .domain import Ball
from .errors import LipoptError
from .intervals import preactivation_intervals
from .methods import Method, Task, find_method
from .network import Network
from .presolve import presolve, split_rows
from .problem import Norm, derivative_problem, output_matrix, slope_ranges
from .readers import load
from .result import Result
from .rounding import Array, up_float


def local_bounds(
    network: Any,
    points: Iterable[Any],
    radius: float,
    *,
    norm: Norm = "linf",
    output: int | Literal["all"] = 0,
    margin: tuple[int, int] | None = None,
    clip: tuple[float, float] | None = None,
    method: str | Method = "sdp",
    time_limit: float | None = None,
    samples: int = 200,
) -> list[Result]:
    """A bound over the linf ball around every point. The time limit is per point."""
    network, chosen = load(network), find_method(method)
    question: dict[str, Any] = {"norm": norm, "output": output, "margin": margin, "time_limit": time_limit, "samples": samples}
    return [bound(network, domain=Ball(point, radius, clip), method=chosen, **question) for point in points]


def certified_radius(
    network: Any,
    point: Any,
    label: int,
    *,
    largest: float = 1.0,
    steps: int = 12,
    clip: tuple[float, float] | None = None,
    method: str | Method = "sdp",
) -> float:
    """A radius, up to `largest`, such that `label` has the largest output on the linf ball around the point; 0 if there is none.

    Found by bisection: `steps` radii are tried, and one is returned only if it was certified."""
    network, chosen = load(network), find_method(method)
    if network.output_size < 2:
        raise LipoptError("a certified radius needs a network with two outputs or more")
    if not 0 < largest < np.inf:
        raise LipoptError(f"the largest radius must be a positive number, got {largest}")
    output_matrix(network, label, None)
    margins = _margins(network, Ball(point, 0.0, clip), label)
    if not (margins > 0).all():
        return 0.0
    low, high, tried = 0.0, float(largest), float(largest)
    for _ in range(steps):
        if _is_certified(network, Ball(point, tried, clip), label, margins, chosen):
            low = tried
        else:
            high = tried
        if low == largest:
            break
        tried = (low + high) / 2
    return low


def _margins(network: Network, ball: Ball, label: int) -> Array:
    """Lower bounds on output `label` minus every other, at the center of a ball of radius 0."""
    lower, upper = preactivation_intervals(network, *ball.bounds(network.input_size))[-1]
    return np.asarray(np.nextafter(lower[label] - np.delete(upper, label), -np.inf))


def _is_certified(network: Network, ball: Ball, label: int, margins: Array, method: Method) -> bool:
    """Whether every margin exceeds the radius times its Lipschitz bound."""
    m = network.output_size
    others = np.delete(np.arange(m), label)
    rows = np.arange(m - 1)
    entries = (np.repeat([1.0, -1.0], m - 1), (np.tile(rows, 2), np.concatenate([np.full(m - 1, label), others])))
    differences = sp.csr_array(entries, shape=(m - 1, m))
    problem = derivative_problem(network, slope_ranges(network, ball), "linf", differences)
    radius = float(np.nextafter(ball.radius, np.inf))  # the ball's own rounding
    for raw, part, margin in zip(split_rows(problem), split_rows(presolve(problem)), margins, strict=True):
        if up_float(radius * path_sum_bound(part), 1) < margin:
            continue
        if not up_float(radius * method(Task(raw, part)).value, 1) < margin:
            return False
    return True
