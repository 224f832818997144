"""The certified radius of a point: the largest ball found in which its class is proved.

For every point the search keeps a radius that is certified and a larger one that is not, and halves
what is between. All points are tried together, each at a radius of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ..margins.attack import Attack, margin_gradients, margin_rows
from ..margins.balls import Balls
from ..margins.ladder import Decision, Effort, decide
from ..model.network import Network
from ..numerics.arrays import Array
from .rows import Scale

PRECISION = 2e-4  # where a search ends, relative to the radius
LARGEST_GROWTH = (
    2.0**20
)  # a search ends at so many times the first guess, if nothing ends it before
RADIUS_CELLS = 8  # each of the radii that are tried gets one in so many of the cells
MOST_TRIES = 60  # radii that are tried for a point, at most: floats have no more between them
ATTACKS = 10  # radii that are attacked: then the least that is broken is known to about one percent
ATTACK_GROWTH = 8.0  # the next radius is so much larger, as long as none is broken
SMALLEST = 2.0**-30  # a radius that is smaller than the first guess by this is not tried
LARGEST_GUESS = 1e6  # of a radius; more is found if it is certified
TINY_GRADIENT = 1e-300  # nothing is divided by zero


def largest_radius(clip: tuple[float, float] | None, scale: Scale = None) -> float:
    """The radius of a ball that has all inputs in the clip range; infinite without one."""
    if clip is None:
        return float("inf")
    low, high = clip
    return (high - low) / float(np.min(1.0 if scale is None else scale))


@dataclass(frozen=True, eq=False)
class Radii:
    """What a search found of every point."""

    certified: Array  # the largest radius that was certified; 0 if none was
    proofs: list[Decision | None]  # what certified it; None if none was
    broken: Array  # the least radius with an input of another class; infinite if none was found
    largest: Array  # where the search for larger radii ended

    @property
    def is_wrong(self) -> Array:
        """Whether the point itself has another class."""
        return self.broken == 0


Around: TypeAlias = Callable[[Array, Array], Balls]  # makes balls of points and radii


def search_radii(
    network: Network,
    points: Array,
    labels: Array,
    around: Around,
    largest: float,
    effort: Effort,
    precision: float = PRECISION,
) -> Radii:
    """For every point a radius that is certified, and one that is broken, up to `largest`, which
    may be infinite."""
    each = replace(effort, cells=-(-effort.cells // RADIUS_CELLS))
    certified = np.zeros(len(points))
    proofs: list[Decision | None] = [None] * len(points)
    failed = np.full(len(points), np.inf)  # the least radius that could not be certified
    broken = np.full(len(points), np.inf)
    first = np.minimum(_expected(network, points, labels), largest)
    ends = np.minimum(largest, LARGEST_GROWTH * first)
    tried = first.copy()
    for _ in range(MOST_TRIES):
        is_close = np.isfinite(failed) & (failed - certified <= precision * failed)
        is_hopeless = tried < SMALLEST * first
        left = np.flatnonzero(~is_close & ~is_hopeless & (certified < ends))
        if len(left) == 0:
            break
        balls = around(points[left], tried[left])
        found = decide(network, balls, labels[left], each)
        for k, decision in zip(left, found, strict=True):
            if decision.status == "certified":
                certified[k] = tried[k]
                proofs[k] = decision
            else:
                failed[k] = tried[k]
            if decision.status == "broken":
                broken[k] = tried[k]
            if decision.rung == "center":
                failed[k] = 0.0
                broken[k] = 0.0
        tried = np.minimum(_between(certified, failed, tried), ends)
    return Radii(certified, proofs, broken, ends)


def broken_radii(
    network: Network,
    points: Array,
    labels: Array,
    around: Around,
    known: Radii,
    seed: int,
) -> Array:
    """For every point the least radius, of some above its certified one, at which an input with
    another class was found; infinite if there is none."""
    largest = known.largest
    broken = known.broken.copy()
    unbroken = np.maximum(known.certified, SMALLEST * largest)
    beyond = np.where(known.certified > 0, np.minimum(2 * known.certified, largest), largest)
    tried = np.where(np.isfinite(broken), np.sqrt(unbroken * broken), beyond)
    for _ in range(ATTACKS):
        attack = Attack(network, around(points, tried), labels)
        attack.run_on_all(seed)
        is_broken = np.array([attack.is_broken(k) for k in range(len(points))], dtype=bool)
        broken = np.where(is_broken, np.minimum(broken, tried), broken)
        unbroken = np.where(is_broken, unbroken, tried)
        beyond = np.minimum(ATTACK_GROWTH * tried, largest)
        tried = np.where(np.isfinite(broken), np.sqrt(unbroken * broken), beyond)
    return broken


def _between(certified: Array, failed: Array, tried: Array) -> Array:
    """The next radii: twice or half of the last, as long as one end is not known."""
    is_bracketed = (certified > 0) & np.isfinite(failed)
    outward = np.where(certified > 0, 2 * tried, tried / 2)
    middle = np.where(np.isfinite(failed), (certified + failed) / 2, 0.0)
    return np.where(is_bracketed, middle, outward)


def _expected(network: Network, points: Array, labels: Array) -> Array:
    """Where each class would change, if the gradients were the same everywhere."""
    outputs = network.forward(points)
    is_other = np.arange(network.output_size)[None] != labels[:, None]
    owners, others = np.nonzero(is_other)
    rows = margin_rows(network, labels[owners], others)
    margins = np.einsum("ro,ro->r", rows, outputs[owners])
    gradients = np.abs(margin_gradients(network, points[owners], rows)).sum(axis=1)
    positive = np.maximum(margins, 0.0)
    radii = positive / np.maximum(gradients, positive / LARGEST_GUESS + TINY_GRADIENT)
    least = radii.reshape(len(points), -1).min(axis=1)
    return np.where(least > 0, least, 1.0)
