"""A network over a domain, in the neurons whose slope is not known there.

Variables are the inputs x and the outputs p of these neurons, which are numbered in the order of
the network. Neurons with a known slope are linear and are substituted, and those that the objective
does not depend on are left out. What remains are *forms*,

    y_a = form_a . (x, p, 1)        the input of neuron a

and the same for the rows of the objective. Forms are rounded. Their errors bound what that changes:
in the value y_a over the domain, and in its derivative over all directions |t| <= 1 and all slopes.
Over the whole space values are not used, and their errors mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..model.activations import Function, LinePair
from ..model.network import Network
from ..model.nodes import Activation, Affine
from ..model.norms import Norm
from ..numerics.arrays import Array, as_csr
from ..numerics.rounding import gamma, terms, up
from ..problem.intervals import Interval
from ..problem.question import Posed, slope_ranges

MAX_ENTRIES = 2**27  # of all forms together: 1 GB
# Multiplications in a second, on a slow machine, by sparse matrices and by dense ones.
SPARSE_SPEED = 6e8
DENSE_SPEED = 5e9


@dataclass(frozen=True, eq=False)
class Reduced:
    """Neurons, their forms, and what bounds the rounding of these."""

    network: Network
    inputs: int
    nodes: Array  # of every neuron, the activation node that it belongs to
    places: Array  # and its place in that node
    left_out: Array  # (2, neurons): nodes and places of those that the objective does not depend on
    groups: tuple[slice, ...]  # the neurons of each activation node
    forms: Forms  # of the inputs of all neurons
    rows: sp.csr_array  # the functions of the outputs whose constant is asked for
    objective: Forms  # of these rows
    # (inputs + neurons + 1, 2): the largest absolute values of the variables over the domain, and
    # of their derivatives in directions |t| <= 1.
    sizes: Array
    steepest: float  # the largest absolute slope that any neuron has in the domain, at least 1
    norm: Norm
    output_norm: Norm | None
    scale: Array | None  # how much of each input counts as 1 in the norm; None for 1

    @property
    def neurons(self) -> int:
        return len(self.nodes)

    @property
    def width(self) -> int:
        """The number of variables, and one more for the constant."""
        return self.inputs + self.neurons + 1

    def in_units(self, columns: Array) -> Array:
        """Columns of inputs, multiplied by the units of these; one rounding each."""
        return columns if self.scale is None else columns * self.scale

    def norms_of(self, jacobians: Array) -> Array:
        """The norms of Jacobians, (rows, inputs, columns), in plain floating point."""
        if self.scale is not None:
            jacobians = jacobians * self.scale[:, None]
        return self.norm.of_jacobians(jacobians, self.output_norm)

    def columns(self, neurons: Array) -> Array:
        """The places of neurons among the variables."""
        return self.inputs + neurons

    def source(self, group: slice) -> int:
        """The node that a group's activation reads."""
        return self.network.activations[self.nodes[group.start]].source

    def inputs_of_neurons(self, points: Array) -> Array:
        """The input of every neuron at points of the domain, (neurons, points)."""
        values = self.network.node_values(points)
        found = np.empty((self.neurons, points.shape[1]))
        for group in self.groups:
            found[group] = values[self.source(group)][self.places[group]]
        return found

    def slope_range(self, group: slice, low: Array, high: Array) -> tuple[Array, Array]:
        """The slopes of neurons of a group whose inputs lie between low and high."""
        return self.function(group).slope_range(low, high, is_open=True)

    def line_pairs(self, group: slice, low: Array, high: Array) -> tuple[LinePair, LinePair]:
        """Two lines below and two above every neuron of a group, on these intervals."""
        return self.function(group).line_pairs(low, high)

    def offset_and_error(
        self, group: slice, slopes: Array, low: Array, high: Array
    ) -> tuple[Array, Array]:
        """What the neurons of a group differ by from slope times input, and how exactly."""
        return self.function(group).offset_and_error(slopes, low, high)

    def is_piecewise_linear(self, group: slice) -> bool:
        return self.function(group).is_piecewise_linear

    @property
    def has_smooth_neurons(self) -> bool:
        return not all(self.is_piecewise_linear(group) for group in self.groups)

    @property
    def has_blurred_kinks(self) -> bool:
        """Whether slopes jump at points that are computed from parameters, with rounding.

        A range that ends there is not the same for the checker, which knows them exactly. That is
        no matter where wider ranges are as good, nor for piecewise linear activations."""
        functions = [self.function(group) for group in self.groups]
        return any(function.spec.computed and function.has_smooth_kinks for function in functions)

    def slope_width(self, group: slice, low: Array, high: Array) -> Array:
        """The widths of these ranges."""
        lower, upper = self.slope_range(group, low, high)
        return upper - lower

    def break_points(self, group: slice) -> Array:
        """Where the slope jumps or turns, (break points, neurons)."""
        size = group.stop - group.start
        points = self.function(group).breaks
        found = [np.broadcast_to(point, size) for point in points]
        return np.array(found).reshape(len(found), size)

    def linear_pieces(self) -> tuple[Array, Array, Array]:
        """The ends, slopes and offsets of the pieces of all neurons, which are piecewise linear.

        (pieces + 1, neurons) and twice (pieces, neurons). Neurons with fewer pieces than others have
        empty ones, at infinity."""
        breaks = [self.break_points(group) for group in self.groups]
        most = max((len(points) for points in breaks), default=0)
        ends = np.full((most + 2, self.neurons), np.inf)
        slopes = np.zeros((most + 1, self.neurons))
        offsets = np.zeros((most + 1, self.neurons))
        ends[0] = -np.inf
        for group, points in zip(self.groups, breaks, strict=True):
            count = len(points)
            function = self.function(group)
            inside = np.zeros((count + 1, points.shape[1]))
            if count:
                middle = (points[:-1] + points[1:]) / 2
                inside = np.concatenate([points[:1] - 1.0, middle, points[-1:] + 1.0])
            ends[1 : count + 1, group] = points
            own = function.slope(inside)
            slopes[: count + 1, group] = own
            offsets[: count + 1, group] = function.value(inside) - own * inside
        return ends, slopes, offsets

    def function(self, group: slice) -> Function:
        """The activation of the neurons of a group."""
        node = self.network.activations[self.nodes[group.start]]
        return node.function.only(self.places[group])


@dataclass(frozen=True, eq=False)
class Forms:
    """Rows of coefficients over (x, p, 1), and by how much they may be off."""

    rows: Array  # (n, width)
    errors: Array  # (n, 2): of the value, of the derivative

    def __getitem__(self, places: Array | slice) -> Forms:
        return Forms(self.rows[places], self.errors[places])


def seconds_to_reduce(posed: Posed) -> float:
    """About how long `reduce` takes, on a slow machine: its matrices have a column for each variable."""
    width = posed.problem.inputs + posed.problem.neurons
    seconds = 0.0
    for node in posed.network.nodes:
        if isinstance(node, Affine):
            for matrix in node.matrices:
                speed = SPARSE_SPEED if sp.issparse(matrix) else DENSE_SPEED
                seconds += matrix.size * width / speed
    return seconds


def reduce(posed: Posed) -> Reduced:
    """The network of a question, in the neurons whose slope is not known over its domain."""
    network = posed.network
    intervals = posed.intervals
    inputs = network.input_size
    ranges = slope_ranges(network, intervals)
    is_open = _open_neurons(network, ranges)
    read = _read_entries(network, posed.question.rows, ranges)
    variables = _number_variables(inputs, is_open, read)
    width = inputs + sum(len(places) for places, _ in variables.values()) + 1
    if width * max(node.size for node in network.nodes) > MAX_ENTRIES:
        raise LipoptError(
            "the network is too large to be divided into cells: its neurons, written in the inputs and"
            f" in the neurons whose slope is not known, take {width} numbers each; use 'sdp'"
        )
    sizes = np.zeros((width, 2))
    sizes[:inputs, 0] = _largest(intervals, 0, inputs)
    sizes[:inputs, 1] = 1.0 if posed.question.scale is None else posed.question.scale
    sizes[-1, 0] = 1.0
    units = np.zeros((inputs, width))
    units[np.arange(inputs), np.arange(inputs)] = 1.0
    forms = [Forms(units, np.zeros((inputs, 2)))]
    for i, node in enumerate(network.nodes[1:], start=1):
        if isinstance(node, Affine):
            forms.append(_affine_forms(node, forms, sizes))
            continue
        assert isinstance(node, Activation)
        before = forms[node.source]
        places, columns = variables[i]
        steepest = np.maximum(np.abs(ranges[i][0]), np.abs(ranges[i][1]))
        slopes = np.abs(before.rows) @ sizes[:, 1] + before.errors[:, 1]
        sizes[columns, 0] = _largest(intervals, i, node.size)[places]
        sizes[columns, 1] = up(steepest * slopes, width + 3)[places]
        own = _linear_forms(node, before, ranges[i][0], intervals)
        own.rows[is_open[i]] = 0.0  # also where nothing reads them
        own.rows[places, columns] = 1.0
        own.errors[is_open[i]] = 0.0
        forms.append(own)
    largest = [float(np.abs(ends).max(initial=1.0)) for ends in ranges.values()]
    left_out = {i: np.flatnonzero(is_open[i] & ~read[i]) for i in is_open}
    return _assemble(posed, variables, left_out, forms, sizes, max(largest, default=1.0))


def _open_neurons(network: Network, ranges: Mapping[int, Interval]) -> dict[int, Array]:
    """For every activation node, which of its neurons are not linear."""
    found = {}
    for i, (low, high) in ranges.items():
        is_linear = (low == high) & network.activations[i].function.is_piecewise_linear
        found[i] = ~is_linear
    return found


def _read_entries(
    network: Network, rows: sp.csr_array, ranges: Mapping[int, Interval]
) -> list[Array]:
    """Which entries of every node these rows of the outputs depend on; not through constant neurons."""
    read = [np.zeros(node.size, bool) for node in network.nodes]
    read[-1][rows.indices] = True
    for i in range(len(network.nodes) - 1, 0, -1):
        node = network.nodes[i]
        if isinstance(node, Activation):
            low, high = ranges[i]
            read[node.source] |= read[i] & ((low != 0) | (high != 0))
            continue
        assert isinstance(node, Affine)
        for source, matrix in node.terms:
            chosen = as_csr(matrix[np.flatnonzero(read[i]), :])
            read[source][chosen.indices[chosen.data != 0]] = True
    return read


def _number_variables(
    inputs: int, is_open: Mapping[int, Array], read: Sequence[Array]
) -> dict[int, tuple[Array, Array]]:
    """For every activation node, the places of its variables and their columns."""
    found = {}
    first = inputs
    for i, own in is_open.items():
        places = np.flatnonzero(own & read[i])
        found[i] = (places, first + np.arange(len(places)))
        first += len(places)
    return found


def _assemble(
    posed: Posed,
    variables: Mapping[int, tuple[Array, Array]],
    left_out: Mapping[int, Array],
    forms: Sequence[Forms],
    sizes: Array,
    steepest: float,
) -> Reduced:
    """The forms of the inputs of all variables, and of the rows of the objective."""
    network = posed.network
    chosen = []
    nodes = []
    groups = []
    for i, (places, columns) in variables.items():
        if len(places) == 0:
            continue
        chosen.append(forms[network.activations[i].source][places])
        nodes.append(np.full(len(places), i))
        first = int(columns[0]) - network.input_size
        groups.append(slice(first, first + len(places)))
    rows = posed.question.rows
    output = Affine("objective", (0,), (rows,), np.zeros(rows.shape[0]))
    objective = _affine_forms(output, [forms[-1]], sizes)
    none = np.zeros((0, len(sizes)))
    return Reduced(
        network=network,
        inputs=network.input_size,
        nodes=np.concatenate([np.empty(0, int), *nodes]),
        places=np.concatenate([np.empty(0, int), *(places for places, _ in variables.values())]),
        left_out=_pairs(left_out),
        groups=tuple(groups),
        forms=Forms(
            np.concatenate([none, *(part.rows for part in chosen)]),
            np.concatenate([np.zeros((0, 2)), *(part.errors for part in chosen)]),
        ),
        rows=rows,
        objective=objective,
        sizes=sizes,
        steepest=steepest,
        norm=posed.question.norm,
        output_norm=posed.question.output_norm,
        scale=posed.question.scale,
    )


def _pairs(places: Mapping[int, Array]) -> Array:
    """Nodes and places of neurons, (2, neurons)."""
    pairs = [np.empty((2, 0), int)]
    for i, own in places.items():
        pairs.append(np.array([np.full(len(own), i), own]))
    return np.concatenate(pairs, axis=1)


def _largest(intervals: list[Interval] | None, i: int, size: int) -> Array:
    """The largest absolute value of the entries of node i; over the whole space it is not used."""
    if intervals is None:
        return np.zeros(size)
    low, high = intervals[i]
    return np.maximum(np.abs(low), np.abs(high))


def _affine_forms(node: Affine, forms: Sequence[Forms], sizes: Array) -> Forms:
    """The forms of an affine node, from those of its sources."""
    rows = np.zeros((node.size, len(sizes)))
    rows[:, -1] = node.bias
    errors = np.zeros((node.size, 2))
    magnitude = np.abs(rows) @ sizes
    roundings = len(sizes) + 2
    for source, matrix in node.terms:
        weights = matrix.astype(np.float64)
        rows += weights @ forms[source].rows
        errors += abs(weights) @ forms[source].errors
        magnitude += abs(weights) @ (np.abs(forms[source].rows) @ sizes)
        roundings += terms(matrix) + 2
    return Forms(rows, up(errors + gamma(roundings) * magnitude, roundings))


def _linear_forms(
    node: Activation, before: Forms, slopes: Array, intervals: list[Interval] | None
) -> Forms:
    """Slope times input, plus what that differs from the activation on its interval."""
    offset = np.zeros(node.size)
    error = np.zeros(node.size)
    if intervals is not None:
        ends = intervals[node.source]
        offset, error = node.function.offset_and_error(slopes, *ends)
    return scaled_forms(before, slopes, offset, error)


def scaled_forms(forms: Forms, slopes: Array, offset: Array, error: Array) -> Forms:
    """The forms of slope y + offset, where the offset is off by `error` at most."""
    rows = slopes[:, None] * forms.rows
    rows[:, -1] += offset
    errors = np.abs(slopes)[:, None] * forms.errors
    errors[:, 0] += error
    return Forms(rows, up(errors, 2))
