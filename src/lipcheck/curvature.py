"""What the rule `curvature` uses of a box, besides its derivative problem: section 4 of
spec/certificate.md.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from .exact import GRID, ONE, ZERO, Matrix, Vector, round_down, round_up
from .forms import Forms, Ranges
from .formulas import Interval
from .functions import SLOPE_GRID, Function
from .inputs import Bounds
from .network import Network
from .spreads import Spread
from .verdicts import REJECTED, require


class Patch(NamedTuple):
    """A box around its middle. Variables are in the order of the network."""

    radii: Vector  # half of the width of every input, in units of the scale
    slopes_at_middle: list[Interval]  # of all variables
    slopes: list[Interval]  # in the box
    bends: list[Interval]  # second derivatives in the box


def patch_of(
    network: Network, scale: Vector | None, box: Bounds, forms: Forms, ranges: Ranges
) -> Patch:
    """Section 4, rule curvature: what is known of all variables, from the first to the last."""
    half = [(high - low) / 2 for low, high in zip(*box, strict=True)]
    middle = [(low + high) / 2 for low, high in zip(*box, strict=True)]
    columns = forms.columns
    rest = [ONE] + [ZERO] * (columns.width - columns.inputs - 1)  # 1, and what is not known yet
    values = Bounds([*box.lower, *rest], [*box.upper, *rest])
    at_middle = Bounds([*middle, *rest], [*middle, *rest])
    each_input = Matrix([{j: 1} for j in range(columns.inputs)], columns.width)
    derivatives = Spread.exactly(each_input)  # of all columns, a row for every input
    patch = Patch([], [], [], [])
    for i, neurons in forms.variables.items():
        kind = network.nodes[i].kind
        known = f"the second derivatives of '{kind}' are not known"
        require(kind in BENDS or not neurons, known, REJECTED)
        rows = forms.inputs[i]
        own = derivatives.times(rows.transpose())
        plain = ends_of(rows, values)
        near = ends_of(rows, at_middle)
        changes = own.largest().transpose().times(half)
        slopes = []
        for position, k in enumerate(neurons):
            function = network.nodes[i].functions[k]
            column = columns.first[i] + k
            low = near.lower[position]
            high = near.upper[position]
            there = enclosure(function, low, high)
            patch.slopes_at_middle.append(there.slopes)
            at_middle.lower[column], at_middle.upper[column] = there.values
            change = changes[position]
            known_here = ranges[i, k]
            low = max(plain.lower[position], round_down(low - change), known_here.lower)
            high = min(plain.upper[position], round_up(high + change), known_here.upper)
            require(low <= high, "a box has no points", REJECTED)
            here = enclosure(function, low, high)
            slopes.append(here.slopes)
            values.lower[column], values.upper[column] = here.values
            patch.bends.append(bend_range(kind, function, here))
        patch.slopes.extend(slopes)
        places = Matrix([{columns.first[i] + k: 1} for k in neurons], columns.width)
        derivatives = derivatives.plus(own.scaled(slopes).times(places))
    units = scale or [ONE] * columns.inputs
    patch.radii.extend(round_up(r / unit) for r, unit in zip(half, units, strict=True))
    return patch


def ends_of(rows: Matrix, values: Bounds) -> Bounds:
    """The least and the largest values of forms, rounded outward."""
    lower = [round_down(value) for value in rows.minimum(*values)]
    negative = [-value for value in values.upper], [-value for value in values.lower]
    upper = [round_up(-value) for value in rows.minimum(*negative)]
    return Bounds(lower, upper)


class Enclosure(NamedTuple):
    """What is known of an activation that rises on an interval."""

    values: Interval
    slopes: Interval


def enclosure(function: Function, lower: Fraction, upper: Fraction) -> Enclosure:
    """Between the two: values lie between those at the ends, and slopes between those at points."""
    points = function.points(lower, upper, 1)
    slopes: list[int] = []
    for point in points:
        slopes.extend(point.left)
    values = (Fraction(points[0].value[0], GRID), Fraction(points[-1].value[1], GRID))
    least = round_down(Fraction(min(slopes), GRID), SLOPE_GRID)
    most = round_up(Fraction(max(slopes), GRID), SLOPE_GRID)
    return Enclosure(values, (least, most))


def bend_range(kind: str, function: Function, known: Enclosure) -> Interval:
    """Section 4, rule curvature: the second derivatives of an activation."""
    low, high = BENDS[kind](function, *known)
    corners = [factor * slope for factor in (low, high) for slope in known.slopes]
    return round_down(min(corners), SLOPE_GRID), round_up(max(corners), SLOPE_GRID)


# Activations that rise: the second derivative divided by the slope, from values and slopes.
BENDS: dict[str, Callable[[Function, Interval, Interval], Interval]] = {
    "tanh": lambda f, values, slopes: (-2 * values[1], -2 * values[0]),
    "sigmoid": lambda f, values, slopes: (1 - 2 * values[1], 1 - 2 * values[0]),
    "softplus": lambda f, values, slopes: (f.scale * (1 - slopes[1]), f.scale * (1 - slopes[0])),
}
