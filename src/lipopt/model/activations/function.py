"""An activation with its parameters, as one object."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...numerics.arrays import Array
from . import bends, lines, slopes
from .kinds import KINDS, Kind, Parameters
from .lines import LinePair


@dataclass(frozen=True, eq=False)
class Function:
    """sigma, elementwise: its parameters are numbers, or arrays with one entry a neuron."""

    kind: str
    parameters: Parameters

    @property
    def spec(self) -> Kind:
        return KINDS[self.kind]

    @property
    def is_piecewise_linear(self) -> bool:
        return self.spec.piecewise_linear

    @property
    def has_smooth_kinks(self) -> bool:
        """Whether the slope jumps at kinks, and changes between them."""
        return bool(self.kinks) and not self.is_piecewise_linear

    @property
    def breaks(self) -> tuple[Array | float, ...]:
        """Where the slope jumps or turns."""
        return tuple(self.spec.breaks(**self.parameters))

    def only(self, places: Array) -> Function:
        """The functions of some neurons."""
        chosen: dict[str, Array | float] = {}
        for name, value in self.parameters.items():
            chosen[name] = np.asarray(value)[places] if np.ndim(value) else value
        return Function(self.kind, chosen)

    def value(self, y: Array) -> Array:
        """Values, with neurons along the last axis."""
        return slopes.value(self.kind, y, self.parameters)

    def slope(self, y: Array) -> Array:
        """Slopes, with neurons along the last axis."""
        return slopes.slope(self.kind, y, self.parameters)

    @cached_property
    def kinks(self) -> tuple[Array | float, ...]:
        """Where the slope jumps."""
        return slopes.kinks(self.kind, self.parameters)

    def slope_range(
        self, lower: Array, upper: Array, *, is_open: bool = False
    ) -> tuple[Array, Array]:
        """The least and the largest slopes on intervals; without their ends if `is_open`."""
        return slopes.slope_range(self.kind, lower, upper, self.parameters, is_open=is_open)

    def require_slopes(self, name: str, lower: Array, upper: Array) -> None:
        """Raise LipoptError unless the slopes of this layer are bounded on these intervals."""
        slopes.require_slopes(name, self.kind, lower, upper, self.parameters)

    def value_range(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """The least and the largest values on intervals, rounded outward."""
        return lines.value_range(self.kind, lower, upper, self.parameters)

    def linear_bounds(self, lower: Array, upper: Array) -> tuple[Array, Array, Array, Array]:
        """Slopes and offsets of a line below and of one above, on intervals."""
        return lines.linear_bounds(self.kind, lower, upper, self.parameters)

    def line_pairs(self, lower: Array, upper: Array) -> tuple[LinePair, LinePair]:
        """Two lines below and two above, on intervals."""
        return lines.line_pairs(self.kind, lower, upper, self.parameters)

    def offset_and_error(self, slope: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
        """What the values differ by from slope times y on intervals, and how exactly."""
        return lines.offset_and_error(self.kind, slope, lower, upper, self.parameters)

    @property
    def rounding_size(self) -> Array | float:
        """What rounding errors of values are relative to."""
        return lines.rounding_size(self.kind, self.parameters)

    def bend_range(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """The least and the largest second derivatives on intervals."""
        return bends.bend_range(self.kind, lower, upper, self.parameters)

    def rising_range(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """The values at both ends, of a function that rises, rounded outward."""
        return bends.rising_range(self.kind, lower, upper, self.parameters)
