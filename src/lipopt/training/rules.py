"""How tensors pass through the live network: sums over paths, intervals, fixed derivatives.

The rule of the vector network is in vectors.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from .activations import slope_range, value_range
from .live import LiveActivation, Tensor
from .matrices import Gather
from .operators import Operator, Values


@dataclass(frozen=True, eq=False)
class Range:
    """The range of the slopes of one activation.

    All fields are numbers, or tensors with an entry for each neuron, perhaps for several inputs."""

    low: Any
    high: Any
    middle: Any
    half: Any  # of its width

    @staticmethod
    def between(low: Any, high: Any) -> Range:
        return Range(low, high, (low + high) / 2, (high - low) / 2)

    @property
    def inputs(self) -> int:
        """For how many inputs it is known."""
        if isinstance(self.low, torch.Tensor) and self.low.dim() > 1:
            return len(self.low)
        return 1

    @property
    def steepest(self) -> Any:
        if isinstance(self.low, torch.Tensor):
            return torch.maximum(self.low.abs(), self.high.abs())
        return max(abs(self.low), abs(self.high))

    def detached(self) -> Range:
        """The same without gradients."""
        if not isinstance(self.low, torch.Tensor):
            return self
        return Range.between(self.low.detach(), self.high.detach())

    def for_problems(self, problems: int) -> Range:
        """The same, (problems, 1, neurons), for several problems of every input; numbers stay."""
        if not isinstance(self.low, torch.Tensor):
            return self
        ends = []
        for end in (self.low, self.high):
            rows = end.reshape(self.inputs, 1, -1)
            ends.append(rows.repeat_interleave(problems // self.inputs, dim=0))
        return Range.between(*ends)


Slopes: TypeAlias = list[Range]  # of every activation


class Linear:
    """What rules for derivatives share: affine maps without their biases."""

    def affine(self, operator: Operator, values: Values, constants: Values) -> Any:
        return operator("linear", values, constants)

    def weighted(self, terms: Sequence[tuple[Gather, Tensor]], bias: Tensor) -> Tensor:
        return sum(matrix(x) for matrix, x in terms)


class Given(Linear):
    """The derivatives of activations are given, and what they are made of is kept.

    With unit vectors for them this reads off the matrices between activations."""

    def __init__(self, given: Sequence[Tensor]) -> None:
        self.given = given
        self.before: dict[int, Tensor] = {}  # y of every activation

    def activation(self, number: int, y: Tensor) -> Tensor:
        self.before[number] = y
        return self.given[number]


class PathSums:
    """Absolute values of all weights, and the steepest slopes."""

    def __init__(self, slopes: Slopes, goal: Any, rows: Tensor) -> None:
        self.slopes = slopes
        self.goal = goal  # the operator that computes the output
        self.rows = rows
        self.applied_rows = False  # whether the rows were multiplied into the last operator

    def affine(self, operator: Operator, values: Values, constants: Values) -> Any:
        if operator.node is self.goal and operator.name == "linear.default":
            # |C W| is less than |C| |W|.
            self.applied_rows = True
            x = values[operator.columns[0]]
            weight = constants[operator.node.args[1]]
            return torch.nn.functional.linear(x, (self.rows.to(weight) @ weight).abs())
        return operator("absolute", values, constants)

    def weighted(self, terms: Sequence[tuple[Gather, Tensor]], bias: Tensor) -> Tensor:
        return sum(matrix.absolute(x) for matrix, x in terms)

    def activation(self, number: int, y: Tensor) -> Tensor:
        return self.slopes[number].steepest * y

    def finish(self, outputs: Tensor) -> Tensor:
        """The sums over paths to the rows, from what the network returned."""
        return outputs if self.applied_rows else outputs @ self.rows.to(outputs).abs().T


class Intervals:
    """Middles and radii of intervals: the columns are all middles, then all radii."""

    def __init__(self, activations: Sequence[LiveActivation], constants: Values) -> None:
        self.activations = activations
        self.constants = constants
        self.slopes: dict[int, Range] = {}  # of every activation, by its number

    def affine(self, operator: Operator, values: Values, constants: Values) -> Any:
        middles = {}
        radii = {}
        for node in operator.columns:
            middle, radius = values[node].chunk(2)
            middles[node] = middle
            radii[node] = radius
        moved = operator("affine", middles, constants)
        spread = operator("absolute", radii, constants)
        return _joined(moved, spread)

    def weighted(self, terms: Sequence[tuple[Gather, Tensor]], bias: Tensor) -> Tensor:
        middle: Any = bias.to(terms[0][1])
        radius: Any = 0.0
        for matrix, x in terms:
            middle_of_x, radius_of_x = x.chunk(2)
            middle = middle + matrix(middle_of_x)
            radius = radius + matrix.absolute(radius_of_x)
        return torch.cat([middle, radius])

    def activation(self, number: int, y: Tensor) -> Tensor:
        middle, radius = y.chunk(2)
        lo = middle - radius
        hi = middle + radius
        activation = self.activations[number]
        parameters = activation.values_of_parameters(self.constants, y)
        low, high = slope_range(activation.kind, lo, hi, parameters)
        self.slopes[number] = Range.between(low, high)
        bottom, top = value_range(activation.kind, lo, hi, parameters)
        return torch.cat([(bottom + top) / 2, (top - bottom) / 2])


def _joined(x: Any, y: Any) -> Any:
    """Middles and radii as one tensor, also for several results; normalization has empty ones."""
    if x is None:
        return None
    if isinstance(x, list | tuple):
        return [_joined(a, b) for a, b in zip(x, y, strict=True)]
    return torch.cat([x, y])
