"""Pre-activation intervals over a box, or a ball: what local slope ranges come from.

Two enclosures, intersected: interval propagation, and backward linear bounds (CROWN, DeepPoly),
which push a linear function of a layer back to the input, replacing every activation by one of
two lines around it. Both are rounded outward: a computed product is widened by gamma(n) times the
product of absolute values, with the magnitude of each node taken from its interval.

Backward bounds are taken of every affine node that an activation reads and that reads more than
the input alone, as spec/certificate.md has it: also before the first activation, where they are
those of the product of the matrices.

A ball that is no box is used where a bound is a linear function of the inputs: in the interval of an
affine node that reads them, and in the last step of a backward bound (model/round_ball.py).

Products are read as u^2 - v^2 = (u + v) (u - v) (model/products.py): interval propagation takes the
range of that difference from the ends of both factors, and from both squares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..model.network import Network
from ..model.nodes import Activation, Affine, Input, Node
from ..model.products import Product
from ..model.round_ball import InputSet, RoundBall
from ..numerics.arrays import Array
from ..numerics.rounding import TINY, gamma, terms, times_up

MAX_ENTRIES = 2**24  # entries of the largest array in a backward pass: 128 MB
# Multiplications in the backward pass of one layer. A layer that would take more keeps the
# intervals of interval propagation.
MAX_WORK = 4e11

MAX_PART_WORK = 2e9  # multiplications between two looks at the clock

Interval = tuple[Array, Array]  # the two ends
Lines = tuple[Array, ...]  # slope and offset of the line below an activation, and of the one above
Factors = Mapping[int, Interval]  # by activation node of a product: the range of one of its factors


@dataclass(eq=False)
class Enclosure:
    """What is known of the values of the nodes of a network over a domain, as far as it was found.

    The squares u^2 and v^2 of a product are read as differences alone. In sums, the first of them has
    the range of u^2 - v^2, and the second is 0."""

    network: Network
    ball: RoundBall | None
    is_late: Callable[[], bool]  # backward bounds are left out once it is late
    intervals: list[Interval] = field(default_factory=list)
    terms: list[Interval] = field(default_factory=list)  # the same, in sums
    lines: dict[int, Lines] = field(default_factory=dict)
    factors: dict[int, Interval] = field(default_factory=dict)
    has_all_cuts: bool = True  # whether no backward bound was left out

    def append(self, interval: Interval) -> None:
        """The interval of the next node."""
        self.intervals.append(interval)
        self.terms.append(interval)

    def multiply(self, product: Product) -> None:
        """The ranges of the factors of a product, and of the product."""
        total = self.interval_of(product.total)
        difference = self.interval_of(product.difference)
        self.factors[product.first] = total
        self.factors[product.second] = difference
        first = self.intervals[product.first]
        second = self.intervals[product.second]
        self.terms[product.first] = range_of_product(total, difference, first, second)
        nothing = np.zeros_like(first[0])
        self.terms[product.second] = (nothing, nothing)

    def interval_of(self, node: Affine) -> Interval:
        """The interval of an affine function of nodes, with all its entries cut by backward bounds."""
        found = affine_interval(node, self.terms, self.ball)
        return self._cut_entries(node, np.arange(node.size), found)

    def tightened(self, i: int, reader: Activation, interval: Interval) -> Interval:
        """The interval of affine node i cut down by backward bounds, until it is late.

        Only of the entries whose slope in `reader` is not known yet."""
        is_cut = self.ball is not None and self.ball.is_cut_by(*self.intervals[0])
        if not (is_cut or reads_more_than_the_input(self.network, i)):
            return interval
        low, high = reader.function.slope_range(*interval)
        node = self.network.nodes[i]
        assert isinstance(node, Affine)
        return self._cut_entries(node, np.flatnonzero(low < high), interval)

    def _cut_entries(self, node: Affine, rows: Array, interval: Interval) -> Interval:
        """The interval of an affine node with some entries cut down by backward bounds."""
        lo = interval[0].copy()
        hi = interval[1].copy()
        before = (*self.network.nodes[: 1 + max(node.sources, default=0)], node)
        work = 2 * len(rows) * _count_weights(before)
        if work > MAX_WORK:
            self.has_all_cuts = False
            return lo, hi
        entries = 2 * len(rows) * max(own.size for own in before)
        parts = 1 + max(entries // MAX_ENTRIES, int(work // MAX_PART_WORK))
        for part in np.array_split(rows, parts):
            if self.is_late():
                self.has_all_cuts = False
                break
            # One row for every entry, and one for its negative: lower bounds of both.
            count = len(part)
            start = np.zeros((2 * count, node.size))
            k = np.arange(count)
            start[k, part] = 1.0
            start[count + k, part] = -1.0
            bound = self._backward_lower(node, start)
            # Where something overflowed, a bound is NaN and is ignored.
            lo[part] = np.fmax(lo[part], bound[:count])
            hi[part] = np.fmin(hi[part], -bound[count:])
        # Rounding can make two valid bounds cross by an ulp on an interval of width zero: keep it
        # non-empty.
        return np.minimum(lo, hi), np.maximum(lo, hi)

    def _backward_lower(self, node: Affine, start: Array) -> Array:
        """Lower bounds on the rows of start @ (values of an affine node), over the domain.

        A coefficient that underflows is off by less than TINY, and multiplies a value of at most its
        magnitude."""
        network = self.network
        state = _Backward({}, np.zeros(len(start)), np.zeros(len(start)))
        magnitude = [np.maximum(np.abs(lo), np.abs(hi)) for lo, hi in self.intervals]
        last = max(node.sources, default=0)
        steps = last + 1
        _through_affine(state, node, start, magnitude, gamma(node.size + steps + 4))
        for k in range(last, 0, -1):
            own = network.nodes[k]
            if k not in state.rows:
                continue
            row = state.rows.pop(k)
            error = gamma(own.size + steps + 4)
            if isinstance(own, Affine):
                _through_affine(state, own, row, magnitude, error)
            elif isinstance(own, Activation):
                _through_activation(state, own, row, magnitude, error, self.lines[k])
        row = state.rows.get(0, np.zeros((len(start), network.input_size)))
        value = InputSet(*self.intervals[0], self.ball).least_values(row)
        constant = state.constant
        slack = state.slack
        # The sums of constants and slacks are rounded too, a few terms each.
        total = value + constant - slack
        return np.asarray(
            total
            - gamma(4 * steps + 8) * (np.abs(value) + np.abs(constant) + slack) * 1.01
            - slack * 1e-3
            - TINY
        )


def enclose(
    network: Network,
    lower: Array,
    upper: Array,
    ball: RoundBall | None = None,
    products: Sequence[Product] = (),
    progress: Callable[[float], None] = lambda fraction: None,
    is_late: Callable[[], bool] = lambda: False,
) -> Enclosure:
    """What is known of the values of every node over the box [lower, upper], cut with a ball.

    Once it `is_late`, by interval propagation alone."""
    found = Enclosure(network, ball, is_late)
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            found.append((lower, upper))
        elif isinstance(node, Affine):
            interval = affine_interval(node, found.terms, ball)
            for k in network.consumers[i]:
                reader = network.nodes[k]
                if isinstance(reader, Activation):
                    interval = found.tightened(i, reader, interval)
            found.append(interval)
        else:
            ends = found.intervals[node.source]
            node.function.require_slopes(node.name, *ends)
            found.lines[i] = node.function.linear_bounds(*ends)
            found.append(node.function.value_range(*ends))
            for product in products:
                if i == product.last:
                    found.multiply(product)
        progress((i + 1) / len(network.nodes))
    return found


def range_of_product(
    total: Interval, difference: Interval, first: Interval, second: Interval
) -> Interval:
    """The range of u^2 - v^2, from those of u + v, u - v, u^2 and v^2."""
    corners = np.stack([one * other for one in total for other in difference])
    # Where something overflowed, an end is NaN and is ignored. Other ends have one rounding.
    lower = np.nextafter(np.fmax(corners.min(axis=0), first[0] - second[1]), -np.inf)
    upper = np.nextafter(np.fmin(corners.max(axis=0), first[1] - second[0]), np.inf)
    return np.minimum(lower, upper), np.maximum(lower, upper)


def affine_interval(node: Affine, intervals: list[Interval], ball: RoundBall | None) -> Interval:
    """The interval of an affine node, from those of its sources; in a ball, the better of two."""
    lower, upper = _interval_of_sum(node, intervals, None)
    if ball is None or 0 not in node.sources:
        return lower, upper
    least, most = _interval_of_sum(node, intervals, ball)
    # Where something overflowed, an end is NaN and is ignored.
    lower = np.fmax(lower, least)
    upper = np.fmin(upper, most)
    return np.minimum(lower, upper), np.maximum(lower, upper)


def _interval_of_sum(node: Affine, intervals: list[Interval], ball: RoundBall | None) -> Interval:
    """The sum of the sources' intervals times the weights; with a ball, inputs lie in that alone."""
    middle = node.bias.astype(np.float64)
    radius = np.zeros(node.size)
    size = np.abs(node.bias.astype(np.float64))
    count = 2
    for source, matrix in node.terms:
        if source == 0 and ball is not None:
            center = ball.center
            own = ball.falls(matrix)
        else:
            lo, hi = intervals[source]
            center = lo / 2 + hi / 2
            spread = np.nextafter(np.maximum(hi - center, center - lo), np.inf)
            own = times_up(matrix, spread)
        middle = middle + matrix @ center
        radius = radius + own
        size = size + times_up(matrix, np.abs(center))
        count += terms(matrix) + 1
    error = gamma(count + 2) * (size + radius) * 1.01 + count * TINY
    return middle - radius - error, middle + radius + error


def _count_weights(nodes: tuple[Node, ...]) -> int:
    """The number of stored weights."""
    count = 0
    for node in nodes:
        if isinstance(node, Affine):
            count += sum(int(matrix.size) for matrix in node.matrices)
    return count


def reads_more_than_the_input(network: Network, i: int) -> bool:
    """Whether backward bounds of affine node i can be better than its interval.

    For a node that reads the input alone they are the same."""
    node = network.nodes[i]
    return isinstance(node, Affine) and any(source > 0 for source in node.sources)


@dataclass(eq=False)
class _Backward:
    """A lower bound, linear in nodes: sum of rows[k] @ (values of node k) + constant - slack."""

    rows: dict[int, Array]
    constant: Array
    slack: Array

    def add(self, source: int, product: Array) -> None:
        """Add a linear function of one node."""
        if source in self.rows:
            self.rows[source] = self.rows[source] + product
        else:
            self.rows[source] = product


def _through_affine(
    state: _Backward, node: Affine, row: Array, magnitude: list[Array], error: float
) -> None:
    """Replace row @ (values of an affine node) by functions of its sources."""
    size = np.abs(row)
    state.constant += row @ node.bias
    state.slack += error * (size @ np.abs(node.bias)) + node.size * TINY
    for source, matrix in node.terms:
        state.add(source, (matrix.T @ row.T).T)
        state.slack += error * (size @ times_up(matrix, magnitude[source]))
        state.slack += node.size * TINY * (1 + magnitude[source].sum())


def _through_activation(
    state: _Backward,
    node: Activation,
    row: Array,
    magnitude: list[Array],
    error: float,
    lines: Lines,
) -> None:
    """Replace row @ (values of an activation) by the lines below it, or above it where row < 0."""
    size = np.abs(row)
    k1, c1, k2, c2 = lines
    positive = np.maximum(row, 0)
    negative = np.minimum(row, 0)
    state.add(node.source, positive * k1 + negative * k2)
    state.constant += positive @ c1 + negative @ c2
    steepest = np.maximum(np.abs(k1), np.abs(k2))
    offset = np.maximum(np.abs(c1), np.abs(c2))
    state.slack += error * (size @ (steepest * magnitude[node.source] + offset))
    state.slack += TINY * (node.size + magnitude[node.source].sum())
