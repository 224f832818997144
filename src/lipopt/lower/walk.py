"""From a good sample on to better ones: uphill from linear region to linear region (cells/regions.py).

In a ball, a few linear programs find slopes that no number of random points does: around a digit, 131.4 where
5,000 gradients and the climb from the best of them end at 91.
"""

from __future__ import annotations

from ..cells.programs import round_work
from ..cells.reduced import reduce, seconds_to_reduce
from ..cells.regions import RegionWalk
from ..errors import LipoptError
from ..model.round_ball import InputSet
from ..problem.question import Posed
from ..problem.task import Budget, Sample
from .gradients import JacobianNorm

MOST_PROGRAMS = 50
FEWEST_PROGRAMS = 4  # fewer take more time than what they gain is worth
WORK = 4e5  # neurons (inputs + neurons), for all programs: a tenth of a second
LONGEST_START = 0.1  # seconds to write the network in its open neurons


def walked(posed: Posed, best: Sample | None, budget: Budget) -> Sample | None:
    """The end of a walk from a sample, if it is better; for piecewise linear networks in a ball or box."""
    programs = _affordable_programs(posed)
    if best is None or programs == 0 or budget.seconds_left <= 0:
        return best
    try:
        reduced = reduce(posed)
    except LipoptError:  # too large
        return best
    assert posed.intervals is not None
    inputs = InputSet(*posed.intervals[0], posed.ball)
    end, _ = RegionWalk(reduced, inputs, budget.deadline).climb(best.point, programs)
    if end is None:
        return best
    found = JacobianNorm.of(posed).proved(inputs.moved_into(end[:, None])[:, 0])
    return found if found.value > best.value else best


def _affordable_programs(posed: Posed) -> int:
    """How many linear programs the walk may solve; none where there are no linear regions."""
    neurons = posed.problem.neurons
    if posed.intervals is None or neurons == 0:
        return 0
    if not posed.network.is_piecewise_linear:
        return 0
    if seconds_to_reduce(posed) > LONGEST_START:
        return 0
    work = neurons * (posed.problem.inputs + neurons) * round_work(posed.ball)
    programs = int(WORK / work)
    return min(MOST_PROGRAMS, programs) if programs >= FEWEST_PROGRAMS else 0
