"""What the rule `curvature` uses of a box: section 4 of spec/certificate.md.

All numbers are integers that count 1 / GRID, and rounded outward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from operator import mul
from typing import NamedTuple

from .ends import Ends, Row, Weights, largest_products, rounded_up
from .exact import GRID, GRID_BITS, ONE, ZERO, Matrix, Vector, on_grid
from .forms import Forms, Ranges
from .formulas import Enclosed, Range, enclosed, sigmoid, softplus, tanh
from .inputs import Bounds
from .network import Network
from .problem import Place
from .verdicts import REJECTED, require

# Activations that rise.


class Enclosure(NamedTuple):
    """What is known of an activation on an interval."""

    values: Range
    slopes: Range


class Bending(NamedTuple):
    """An activation that rises, with slopes of 1 at most, and second derivatives of twice the slope."""

    at: Enclosed  # value and slope
    turns: bool  # the slope rises up to 0 and falls from there; otherwise it rises
    factors: Callable[[Enclosure], Range]  # second derivatives are slopes times these


BENDING = {
    "tanh": Bending(enclosed(tanh), True, lambda f: (-2 * f.values[1], -2 * f.values[0])),
    "sigmoid": Bending(
        enclosed(sigmoid), True, lambda f: (GRID - 2 * f.values[1], GRID - 2 * f.values[0])
    ),
    "softplus": Bending(
        enclosed(softplus), False, lambda f: (GRID - f.slopes[1], GRID - f.slopes[0])
    ),
}


class Neuron:
    """A variable: sigma(y) = f(scale y) / scale, with f one of these."""

    def __init__(self, place: Place, bending: Bending, scale: Fraction) -> None:
        self.place = place
        self.bending = bending
        self.numerator, self.denominator = scale.as_integer_ratio()

    def at(self, y: int) -> tuple[Range, Range]:
        """Value and slope."""
        if self.numerator == self.denominator:
            return self.bending.at(y)
        (low, high), slopes = self.bending.at(y * self.numerator // self.denominator)
        low = low * self.denominator // self.numerator
        high = -(-high * self.denominator // self.numerator)
        return (low, high), slopes

    def between(self, lower: int, upper: int) -> Enclosure:
        """Values lie between those at the ends, slopes between those at the ends and at 0."""
        (low, _), left = self.at(lower)
        (_, high), right = self.at(upper)
        most = max(left[1], right[1])
        if self.bending.turns and lower < 0 < upper:
            _, (_, most) = self.bending.at(0)
        return Enclosure((low, high), (min(left[0], right[0]), most))

    def near(self, lower: int, upper: int) -> Enclosure:
        """The same, for a short interval: by how much values and slopes change at most.

        The logarithm of the slope changes by twice the distance, and e^(2 d) <= 1 + 4 d for d <= 1/2."""
        length = upper - lower
        distance = -(-length * self.numerator // self.denominator)
        if 2 * distance > GRID:
            return self.between(lower, upper)
        (low, high), (least, most) = self.at(lower)
        bend = rounded_up(4 * distance * most, GRID_BITS)
        return Enclosure((low, high + length), (max(least - bend, 0), most + bend))

    def bends(self, known: Enclosure) -> Range:
        """Second derivatives."""
        low, high = self.bending.factors(known)
        least, most = known.slopes
        corners = (low * least, low * most, high * least, high * most)
        unit = self.denominator * GRID
        return min(corners) * self.numerator // unit, -(-max(corners) * self.numerator // unit)


# The forms of a leaf, as layers.


class Link(NamedTuple):
    """What a layer, or the output, reads from an earlier layer."""

    source: int
    forward: Weights
    backward: Weights


class Layer(NamedTuple):
    """The variables of an activation node: they read a sum over all links, and a constant."""

    neurons: list[Neuron]
    links: list[Link]
    constants: Ends


class Layers(NamedTuple):
    """The forms of a leaf. Layers are numbered from 1; number 0 is the inputs."""

    inputs: int
    layers: list[Layer]
    outputs: list[Link]
    rows: int  # of W f


@lru_cache(maxsize=1)  # boxes of one tree have the same forms
def layers_of(network: Network, forms: Forms) -> Layers:
    """The check ends if an activation is not one of the above."""
    inputs = forms.columns.inputs
    columns: list[Sequence[int]] = [range(inputs)]
    layers = []
    for i, neurons in forms.variables.items():
        if not neurons:
            continue
        kind = network.nodes[i].kind
        require(kind in BENDING, f"the second derivatives of '{kind}' are not known", REJECTED)
        functions = network.nodes[i].functions
        own = [Neuron((i, k), BENDING[kind], functions[k].scale) for k in neurons]
        constants, _ = forms.inputs[i].take([forms.columns.constant])
        bias = Ends.of([on_grid(value, value) for value in constants.row_sums()])
        layers.append(Layer(own, links_of(forms.inputs[i], columns), bias))
        columns.append(forms.columns.neurons(i, neurons))
    outputs = links_of(forms.outputs, columns)
    return Layers(inputs, layers, outputs, len(forms.outputs.rows))


def links_of(rows: Matrix, columns: Sequence[Sequence[int]]) -> list[Link]:
    """What forms read; if that is nothing, the inputs with zeros alone."""
    found: list[Link] = []
    for source, own in reversed(list(enumerate(columns))):
        taken, rows = rows.take(own)
        if any(taken.rows) or (source == 0 and not found):
            taken = taken.reduced()
            found.append(Link(source, Weights(taken.transpose()), Weights(taken)))
    return found


def read(links: Sequence[Link], known: Sequence[list[Ends]]) -> list[Ends]:
    """The sum over all links, row by row, if this is known of all layers before."""
    return reduce(added, [link.forward.after(known[link.source]) for link in links])


def added(left: Sequence[Ends], right: Sequence[Ends]) -> list[Ends]:
    return list(map(Ends.plus, left, right))


def coefficients(layers: Layers, slopes: Sequence[Sequence[Ends]]) -> list[list[Ends]]:
    """Of all layers, derivatives of the rows of W f in the outputs of their neurons.

    `slopes` are those of all layers; every one of several ranges has rows of its own."""
    choices = len(slopes[0])
    sizes = [layers.inputs, *(len(layer.neurons) for layer in layers.layers)]
    found = [[Ends([0] * size, [0] * size)] * (layers.rows * choices) for size in sizes]
    pending = [exactly(row) for row in identity(layers.rows)] * choices
    links = layers.outputs
    for number in range(len(layers.layers), -1, -1):
        for link in links:
            found[link.source] = added(found[link.source], link.backward.after(pending))
        if number > 0:
            factors = [choice for choice in slopes[number - 1] for _ in range(layers.rows)]
            pending = list(map(Ends.times, found[number], factors))
            links = layers.layers[number - 1].links
    return found


def identity(size: int) -> list[Row]:
    """The rows of the identity matrix."""
    return [[GRID if i == j else 0 for j in range(size)] for i in range(size)]


def exactly(row: Row) -> Ends:
    """Intervals with one number in each."""
    return Ends(row, row)


# What is known of a box.


class Patch(NamedTuple):
    """A box around its middle. Gradients are those of the rows of W f.

    Inputs count in units of the scale."""

    layers: Layers
    units: Ends  # of the inputs
    radii: Row  # half of the width of every input
    slopes: list[Ends]  # of every layer, in the box
    at_middle: list[Ends]  # gradients
    in_box: list[Ends]
    weights: list[Ends]  # derivatives in outputs of variables, times second derivatives of these
    inner: list[Ends]  # derivatives of inputs of variables, in every input

    def changes(self, row: int) -> Row:
        """How far every entry of a gradient can be from the one at the middle."""
        return self._changes(row, self.inner)

    def change_along(self, row: int, signs: Row) -> int:
        """The same for the sum of entries with these signs."""
        direction = exactly([sign * GRID for sign in signs]).times(self.units)
        known = [[direction]]
        found = []
        for layer, slopes in zip(self.layers.layers, self.slopes, strict=True):
            (own,) = read(layer.links, known)
            found.append(own)
            known.append([own.times(slopes)])
        (change,) = self._changes(row, [Ends.joined(found)])
        return change

    def _changes(self, row: int, directions: list[Ends]) -> Row:
        weighted = [direction.times(self.weights[row]) for direction in directions]
        return [change(bends, self.radii) for bends in largest_products(weighted, self.inner)]


def patch_of(
    network: Network, scale: Vector | None, box: Bounds, forms: Forms, ranges: Ranges
) -> Patch:
    """Section 4, rule curvature: what is known of all variables, from the first to the last."""
    layers = layers_of(network, forms)
    exact_units = scale or [ONE] * layers.inputs
    units = Ends.of([on_grid(unit, unit) for unit in exact_units])
    middle = [(low + high) / 2 for low, high in zip(*box, strict=True)]
    radii = []
    for low, high, unit in zip(*box, exact_units, strict=True):
        _, radius = on_grid(ZERO, (high - low) / 2 / unit)
        radii.append(radius)
    # Of every layer: values at the middle, values in the box, derivatives in every input.
    inputs = [Ends.of(list(map(on_grid, *ends))) for ends in ((middle, middle), box)]
    inputs += [exactly(row).times(units) for row in identity(layers.inputs)]
    known = [inputs]
    neurons = []
    inner = []
    for layer in layers.layers:
        rows = read(layer.links, known)
        found = neurons_of(layer, rows, radii, ranges)
        derivatives = rows[2:]
        outputs = [found.at_middle.values, found.values]
        known.append(outputs + [row.times(found.slopes) for row in derivatives])
        neurons.append(found)
        inner.append(derivatives)
    slopes = [(found.at_middle.slopes, found.slopes) for found in neurons]
    gradients, *outer = coefficients(layers, slopes)
    gradients = [row.times(units) for row in gradients]
    bends = Ends.joined([found.bends for found in neurons])
    weights = [Ends.joined(rows).times(bends) for rows in zip(*outer, strict=True)]
    return Patch(
        layers,
        units,
        radii,
        [found.slopes for found in neurons],
        gradients[: layers.rows],
        gradients[layers.rows :],
        weights[layers.rows :],
        [Ends.joined(rows) for rows in zip(*inner, strict=True)],
    )


class Outputs(NamedTuple):
    """What is known of the activations of a layer."""

    values: Ends
    slopes: Ends


class KnownNeurons(NamedTuple):
    """What is known of a layer in a box."""

    at_middle: Outputs
    values: Ends
    slopes: Ends
    bends: Ends  # second derivatives


def neurons_of(layer: Layer, rows: Sequence[Ends], radii: Row, ranges: Ranges) -> KnownNeurons:
    """Section 4, rule curvature: a layer, by what its neurons read, row by row."""
    near = rows[0].plus(layer.constants)
    plain = rows[1].plus(layer.constants)
    derivatives = rows[2:]
    there = []
    here = []
    bends = []
    all_sizes = zip(*(row.largest() for row in derivatives), strict=True)
    for neuron, *ends, sizes in zip(layer.neurons, *near, *plain, all_sizes, strict=True):
        low, high, least, most = ends
        there.append(neuron.near(low, high))
        first, last = ranges[neuron.place].on_grid
        moved = change(sizes, radii)
        lower = max(low - moved, least, first)
        upper = min(high + moved, most, last)
        require(lower <= upper, "a box has no points", REJECTED)
        known = neuron.between(lower, upper)
        here.append(known)
        bends.append(neuron.bends(known))
    values, slopes = map(Ends.of, zip(*here, strict=True))
    at_middle = Outputs(*map(Ends.of, zip(*there, strict=True)))
    return KnownNeurons(at_middle, values, slopes, Ends.of(bends))


def change(sizes: Sequence[int], radii: Row) -> int:
    """How far a function is from its value at the middle, by the sizes of its derivatives."""
    return rounded_up(sum(map(mul, sizes, radii)), GRID_BITS)
