"""A question and its answer in plain words, for people who were not there when it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..model.domain import Ball, Domain
from ..model.norms import Norm
from ..names import printable
from ..numerics.arrays import Array
from ..numerics.rounding import up_float, written_down, written_up
from ..problem.question import Question
from ..result import Result

MOST_NUMBERS = 12  # of a center or a box that are written out
USUAL_CHANGE = 0.01  # of inputs in the sentence about a domain that is no ball

# What a change of the inputs by a number means.
CHANGES = {
    Norm.LINF: "no input changes by more than {}",
    Norm.L2: "the inputs change by no more than {} in the l2 norm (the root of the sum of all squared changes)",
    Norm.L1: "the inputs change by no more than {} in the l1 norm (the sum of all changes)",
}
NORMS = {
    Norm.LINF: "l_inf: the size of a change is the largest change of any one input",
    Norm.L2: "l2: the size of a change is the root of the sum of its squares",
    Norm.L1: "l1: the size of a change is the sum of the changes of all inputs",
}
METHODS = {
    "product": "product of the norms of all layers, the classical bound",
    "path-sum": "sum over all paths through the network of the products of their weights",
    "sdp": "semidefinite relaxation: all slopes of all neurons at once",
    "lipopt": "linear programs from products of constraints",
    "branch": "branch and bound: the region is divided until both bounds meet",
    "auto": "the best of several methods",
}


@dataclass(frozen=True)
class Units:
    """The units of inputs and outputs, empty if there are none."""

    input: str = ""
    output: str = ""

    def of_change(self, text: str) -> str:
        """A change of the inputs, with its unit."""
        return f"{text} {self.input}".strip()

    def of_result(self, text: str) -> str:
        """A change of the outputs, with its unit."""
        return f"{text} {self.output}".strip()

    @property
    def of_constant(self) -> str:
        """The unit of a Lipschitz constant, with a space before it; empty if there is none."""
        if not self.input and not self.output:
            return ""
        return f" {self.output or 1} per {self.input or 1}"


def asked_for(output: str) -> str:
    """What was bounded: "output 3"."""
    if output == "all":
        return "all outputs together"
    return "output " + output.replace(" - ", " minus output ")


def usual_change(domain: Domain) -> float:
    """The change of the inputs that the sentence is about: the radius of a ball, or a small number."""
    if isinstance(domain, Ball) and domain.radius > 0:
        return domain.radius
    return USUAL_CHANGE


def plain_sentence(result: Result, asked: Question, change: float, units: Units) -> str:
    """What the bound says about a change of the inputs, for people who know no Lipschitz constants."""
    most = written_up(up_float(result.upper * change, 1))
    where = "Whatever the inputs are" if asked.domain is None else "Within the region below"
    if_so = CHANGES[asked.norm].format(units.of_change(exact(change)))
    then = f"{asked_for(result.output)} changes by at most {units.of_result(most)}"
    if result.output == "all":
        other = _other_norm(asked)
        norm = "same" if other is None else other.words
        then = f"the outputs change by at most {units.of_result(most)}, measured in the {norm} norm"
    return f"{where}, if {if_so}, then {then}."


def norm(asked: Question, names: Sequence[str] | None) -> str:
    """How a change is measured."""
    text = NORMS[asked.norm]
    if asked.scale is not None:
        text += f", each counted in its unit: {_numbers(asked.scale, names)}"
    other = _other_norm(asked)
    if other is not None:
        text += f"; changes of the outputs are measured in the {other.words} norm"
    return text


def _other_norm(asked: Question) -> Norm | None:
    """The norm on the outputs, if it is not that on the inputs."""
    if asked.output_norm == asked.norm:
        return None
    return asked.output_norm


def class_sentence(label: int, own: int, radius: float, ball: Ball, units: Units) -> str:
    """Up to which change from the center of a ball a class is proved; there it may be another."""
    if own != label:
        return f"At the center the network's class is {own}, not {label}."
    if radius == 0:
        return f"It could not be proved that the network's class stays {label} around the center."
    change = CHANGES[Norm(ball.norm)].format(units.of_change(written_down(radius)))
    if ball.scale is not None:
        change += ", counted in the units of the ball"
    range_kept = "" if ball.clip is None else f" and {_clip(ball.clip)}"
    return f"Starting from the center, the network's class stays {label} as long as {change}{range_kept}."


def gap_sentence(result: Result) -> str:
    """How far the bound may be from the truth."""
    if not result.lower:
        return "No point with a slope was found, so nothing is known about how far the bound is from the truth."
    return (
        f"Somewhere the slope is at least {written_down(result.lower)}, so no bound can be smaller than that:"
        f" this one is at most {result.upper / result.lower:.3f} times what is possible."
    )


def region(domain: Domain, size: int, names: Sequence[str] | None) -> list[str]:
    """The domain in numbers, a line for each paragraph."""
    if domain is None:
        return ["the whole space: every input may have any value"]
    if isinstance(domain, Ball):
        return _ball(domain, names)
    lower, upper = domain.bounds(size)
    if size <= MOST_NUMBERS:
        intervals = []
        for k in range(size):
            intervals.append(f"{input_name(k, names)} from {exact(lower[k])} to {exact(upper[k])}")
        return [f"a box: {'; '.join(intervals)}"]
    ends = f"lower ends from {exact(lower.min())} to {exact(lower.max())}"
    others = f"upper ends from {exact(upper.min())} to {exact(upper.max())}"
    return [f"a box of {size} inputs: {ends}, {others}"]


def _ball(ball: Ball, names: Sequence[str] | None) -> list[str]:
    """A ball in numbers."""
    norm = Norm(ball.norm)
    change = CHANGES[norm].format(f"{ball.radius:g}")
    lines = [
        f"a ball of radius {ball.radius:g} in the {norm.words} norm: from the center, {change}"
    ]
    if ball.scale is not None:
        lines.append(f"a change counts as 1 when it is: {_numbers(ball.scale, names)}")
    if ball.clip is not None:
        lines.append(_clip(ball.clip))
    lines.append(f"center: {_numbers(ball.center, names)}")
    return lines


def input_name(number: int, names: Sequence[str] | None) -> str:
    """The name of an input, or its number."""
    return f"input {number}" if names is None else printable(names[number])


def _numbers(values: Array, names: Sequence[str] | None) -> str:
    """A few numbers, or what is to be said about many; one number stands for all inputs."""
    values = np.reshape(values, -1)
    if len(values) == 1:
        return f"{exact(values[0])} in every input"
    if len(values) > MOST_NUMBERS:
        return f"{len(values)} numbers from {exact(values.min())} to {exact(values.max())}"
    return ", ".join(f"{input_name(k, names)} = {exact(v)}" for k, v in enumerate(values))


def exact(value: float) -> str:
    """A number with all its digits: what is proved is about this one, not about a rounded one."""
    return repr(float(value)).removesuffix(".0")


def _clip(clip: tuple[float, float]) -> str:
    """A range that all inputs stay in."""
    low, high = clip
    return f"all inputs stay between {exact(low)} and {exact(high)}"
