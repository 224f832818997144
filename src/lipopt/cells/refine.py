"""Better intervals over the whole domain: what every method in a ball or a box starts from.

In the balls that people ask about, intervals from one backward pass are the largest part of what is
lost: with the best lines instead of the usual ones, the first bound on ACAS Xu at radius .01 and .03 is
20 times smaller.
"""

from __future__ import annotations

import numpy as np

from ..errors import LipoptError
from ..model.network import Network
from ..problem.derivative import DerivativeProblem
from ..problem.intervals import Interval
from ..problem.proofs import Branching, Tree
from ..problem.question import Posed, Refinement
from ..problem.task import Budget
from .cell import Cell, whole_domain
from .examine import Effort, examine
from .reduced import Reduced, reduce

# neurons^2 (inputs + neurons), up to which linear programs, or an ascent, are a small part of a
# second or some seconds.
MAX_PROGRAM_WORK = 1e7
MAX_ASCENT_WORK = 1e9


def refine(posed: Posed, budget: Budget) -> Posed:
    """The same question with better intervals, where that is little work and there are any."""
    if posed.intervals is None or posed.problem.neurons == 0 or budget.seconds_left <= 0:
        return posed
    if _shares_sources(posed.network) or _has_smooth_kinks(posed.network):
        return posed
    effort = affordable(posed.problem)
    if effort is Effort.USUAL:
        return posed
    try:
        reduced = reduce(posed)
    except LipoptError:  # too large
        return posed
    budget.progress("refining intervals")
    cell = whole_domain(reduced, posed.intervals, posed.ball)
    found = examine(reduced, cell, effort, budget.deadline)
    if found.cell is None or not found.cuts:
        return posed
    intervals = _with(posed.intervals, reduced, found.cell)
    proof = Tree(
        reduced.nodes, reduced.places, reduced.left_out, Branching(found.cuts, found.fixed)
    )
    return posed.refined(intervals, Refinement(posed.intervals, proof))


def affordable(problem: DerivativeProblem) -> Effort:
    """What can be done for the intervals of a problem with little work."""
    work = problem.neurons**2 * (problem.inputs + problem.neurons)
    if work <= MAX_PROGRAM_WORK:
        return Effort.PROGRAMS
    if work <= MAX_ASCENT_WORK:
        return Effort.ASCENT
    return Effort.USUAL


def _shares_sources(network: Network) -> bool:
    """Whether two activations read the same node: proofs are about the input of one of them."""
    sources = [node.source for node in network.activations.values()]
    return len(set(sources)) < len(sources)


def _has_smooth_kinks(network: Network) -> bool:
    """Whether an activation has kinks but is not piecewise linear.

    Slopes at the ends of its intervals count differently in cells and over the whole domain."""
    return any(node.function.has_smooth_kinks for node in network.activations.values())


def _with(intervals: list[Interval], reduced: Reduced, cell: Cell) -> list[Interval]:
    """The intervals of all nodes, with those of a cell for the neurons that it knows."""
    found = list(intervals)
    for group in reduced.groups:
        source = reduced.source(group)
        low = np.array(found[source][0])
        high = np.array(found[source][1])
        places = reduced.places[group]
        low[places] = np.maximum(low[places], cell.low[group])
        high[places] = np.minimum(high[places], cell.high[group])
        found[source] = (low, high)
    return found
