"""Activation functions: value, slope, and what is known of both on an interval.

kinds        every activation, one entry each
parameters   what their parameters may be
slopes       values and slopes, the range of slopes on an interval
bends        second derivatives of some of them
lines        lines around an activation on an interval, the range of its values
function     all of this for one activation with its parameters
"""

from .bends import BENDING, bend_range, rising_range
from .function import Function
from .kinds import KINDS, Kind, Parameters
from .lines import (
    VALUE_PAD,
    LinePair,
    line_pairs,
    linear_bounds,
    offset_and_error,
    rounding_size,
    value_range,
)
from .parameters import check
from .slopes import PAD, kinks, require_slopes, slope, slope_range, value

__all__ = [
    "BENDING",
    "KINDS",
    "PAD",
    "VALUE_PAD",
    "Function",
    "Kind",
    "LinePair",
    "Parameters",
    "bend_range",
    "check",
    "kinks",
    "line_pairs",
    "linear_bounds",
    "offset_and_error",
    "require_slopes",
    "rising_range",
    "rounding_size",
    "slope",
    "slope_range",
    "value",
    "value_range",
]
