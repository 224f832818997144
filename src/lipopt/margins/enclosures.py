"""What is known of a network in many balls: intervals of all nodes, and lines around activations.

The same numbers as in problem/intervals.py, for all balls at once: arrays have a row for every
ball.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..model.network import Network
from ..model.nodes import Activation, Affine
from ..model.products import Product, find_products
from ..numerics.arrays import Array, as_array, dense, namespace
from ..numerics.rounding import TINY, gamma, terms, up
from ..problem.intervals import (
    MAX_WORK,
    Interval,
    range_of_product,
    reads_more_than_the_input,
)
from .backward import Functions, Lines, Sizes, lower_bounds
from .balls import Balls
from .devices import Device

ROOM = 2.0**-30  # of new ends, relative to the terms of their sums
PASS_ENTRIES = 2**20  # of the largest array in one backward pass: 8 MB, what a cache can hold
DEVICE_PASS_ENTRIES = 2**26  # on a device: 512 MB, so that its memory takes some ten of them


@dataclass(frozen=True, eq=False)
class LinesAround:
    """slope y + offset below an activation and above it, for every ball and neuron."""

    below: tuple[Array, Array]
    above: tuple[Array, Array]

    @staticmethod
    def joined(parts: Sequence[LinesAround]) -> LinesAround:
        """Those of several balls, one after the other."""
        ends = []
        for side in ("below", "above"):
            slopes = np.concatenate([getattr(part, side)[0] for part in parts])
            offsets = np.concatenate([getattr(part, side)[1] for part in parts])
            ends.append((slopes, offsets))
        return LinesAround(*ends)

    def on(self, device: Device) -> LinesAround:
        """The same on a device."""
        below = (device.tensor(self.below[0]), device.tensor(self.below[1]))
        above = (device.tensor(self.above[0]), device.tensor(self.above[1]))
        return LinesAround(below, above)


@dataclass(frozen=True, eq=False)
class Usual:
    """The relaxation by the usual lines of every ball, those of CROWN and DeepPoly."""

    around: Mapping[int, LinesAround]  # by activation node
    owners: Array  # of the rows

    def lines(self, node: int, coefficients: Array) -> Lines:
        around = self.around[node]
        is_below = coefficients > 0
        found = []
        for below, above in zip(around.below, around.above, strict=True):
            xp = namespace(is_below)
            found.append(xp.where(is_below, below[self.owners], above[self.owners]))
        return Lines(*found)


@dataclass(frozen=True, eq=False)
class Enclosures:
    """A network in many balls, as far as its nodes are enclosed."""

    network: Network
    balls: Balls
    intervals: list[Interval]  # by node, (balls, size)
    around: dict[int, LinesAround]  # by activation node
    sizes: Sizes
    device: Device | None = None  # where backward passes run; None for NumPy

    @staticmethod
    def of(
        network: Network,
        balls: Balls,
        whole: Enclosures | None = None,
        device: Device | None = None,
    ) -> Enclosures:
        """Intervals of all nodes, by interval propagation and backward bounds.

        If the balls are parts of others, intervals of the whole are known. New ends of sums leave
        room then, so that a certificate can show them with rounded slopes: products are no such
        sums, and are used of the whole alone."""
        found = Enclosures(network, balls, [], {}, Sizes([], [], []), device)
        found._append((balls.lower, balls.upper))
        terms = [(balls.lower, balls.upper)]  # intervals of nodes, in sums
        products = find_products(network) if whole is None else ()
        products_to = {product.last: product for product in products}
        for i, node in enumerate(network.nodes[1:], start=1):
            if isinstance(node, Affine):
                interval = _affine_interval(node, terms, balls)
                for k in network.consumers[i]:
                    reader = network.nodes[k]
                    if isinstance(reader, Activation):
                        interval = found._tightened(i, reader, interval, whole is None)
                if whole is not None:
                    interval = _within(interval, whole.intervals[i], ROOM * found._reach(node))
                found._append(interval)
            else:
                assert isinstance(node, Activation)
                ends = found.intervals[node.source]
                k1, c1, k2, c2 = node.function.linear_bounds(*ends)
                found.around[i] = LinesAround((k1, c1), (k2, c2))
                interval = node.function.value_range(*ends)
                found._append(interval)
            terms.append(interval)
            if i in products_to:
                _multiply(products_to[i], terms, balls)
        return found

    @staticmethod
    def joined(parts: Sequence[Enclosures]) -> Enclosures:
        """Those of several balls, one after the other."""
        first = parts[0]
        intervals = []
        sizes = Sizes([], [], [])
        for i in range(len(first.intervals)):
            low = np.concatenate([part.intervals[i][0] for part in parts])
            high = np.concatenate([part.intervals[i][1] for part in parts])
            intervals.append((low, high))
            sizes.magnitude.append(np.concatenate([part.sizes.magnitude[i] for part in parts]))
            sizes.reach.append(np.concatenate([part.sizes.reach[i] for part in parts]))
            sizes.dust.append(np.concatenate([part.sizes.dust[i] for part in parts]))
        around = {}
        for i in first.around:
            around[i] = LinesAround.joined([part.around[i] for part in parts])
        balls = Balls.joined([part.balls for part in parts])
        return Enclosures(first.network, balls, intervals, around, sizes, first.device)

    def only(self, chosen: Array) -> Enclosures:
        """The same for some of the balls."""
        intervals = [(low[chosen], high[chosen]) for low, high in self.intervals]
        around = {}
        for i, lines in self.around.items():
            below = (lines.below[0][chosen], lines.below[1][chosen])
            above = (lines.above[0][chosen], lines.above[1][chosen])
            around[i] = LinesAround(below, above)
        sizes = Sizes(
            [part[chosen] for part in self.sizes.magnitude],
            [part[chosen] for part in self.sizes.reach],
            [part[chosen] for part in self.sizes.dust],
        )
        balls = self.balls.only(chosen)
        return Enclosures(self.network, balls, intervals, around, sizes, self.device)

    def lower_bounds(self, functions: Functions, *, is_simple: bool = False) -> Array:
        """Lower bounds on functions of nodes, with the usual lines."""
        here = self if self.device is None else self.on_device()
        found = [np.zeros(0)]
        for part in self.passes(np.arange(len(functions.owners))):
            own = functions_of(functions, part)
            if self.device is not None:
                own = self.device.functions(own)
            relaxation = Usual(here.around, own.owners)
            bounded = lower_bounds(
                here.network, here.balls, here.sizes, own, relaxation, is_simple=is_simple
            )
            found.append(np.asarray(as_array(bounded.bounds)))
        return np.concatenate(found)

    def passes(self, numbers: Array) -> Iterator[Array]:
        """Numbers of functions, in parts that one backward pass takes at once."""
        entries = PASS_ENTRIES if self.device is None else DEVICE_PASS_ENTRIES
        return in_passes(numbers, self.network, entries)

    def on_device(self) -> Enclosures:
        """The same in arrays of its device, as far as backward passes need it."""
        assert self.device is not None
        around = {i: lines.on(self.device) for i, lines in self.around.items()}
        balls = self.device.balls(self.balls)
        return Enclosures(self.device.weights, balls, [], around, self.device.sizes(self.sizes))

    def _append(self, interval: Interval) -> None:
        """The interval of the next node, and the sizes that follow from it."""
        i = len(self.intervals)
        node = self.network.nodes[i]
        self.intervals.append(interval)
        magnitude = np.maximum(np.abs(interval[0]), np.abs(interval[1]))
        reach = magnitude
        reached = np.zeros(self.balls.count)
        if isinstance(node, Affine):
            reach = self._reach(node)
        for source in node.sources:
            reached = reached + self.sizes.magnitude[source].sum(axis=1)
        self.sizes.magnitude.append(magnitude)
        self.sizes.reach.append(reach)
        self.sizes.dust.append(2 * node.size * TINY * (1 + reached))

    def _reach(self, node: Affine) -> Array:
        """The sums of an affine node with all terms in absolute value, rounded up."""
        reach = np.repeat(np.abs(node.bias.astype(np.float64))[None], self.balls.count, axis=0)
        for source, matrix in node.terms:
            reach = reach + _times_up(matrix, self.sizes.magnitude[source])
        return up(reach, len(node.sources) + 1)

    def _tightened(
        self, i: int, reader: Activation, interval: Interval, is_simple: bool
    ) -> Interval:
        """The interval of affine node i cut by backward bounds, where a slope is not known yet.

        Over whole balls they are simple: a certificate has lines for parts of balls alone."""
        is_cut = self.balls.is_round and self.balls.is_clipped
        if not (is_cut or reads_more_than_the_input(self.network, i)):
            return interval
        low = interval[0].copy()
        high = interval[1].copy()
        slopes = reader.function.slope_range(low, high)
        owners, entries = np.nonzero(slopes[0] < slopes[1])
        work = 2 * len(owners) * self.network.weights
        if work > MAX_WORK * self.balls.count:
            return interval
        for part in self.passes(np.arange(len(owners))):
            own = owners[part]
            places = entries[part]
            rising = entries_of(self.network, i, places, own, 1.0)
            falling = entries_of(self.network, i, places, own, -1.0)
            least = self.lower_bounds(rising, is_simple=is_simple)
            most = -self.lower_bounds(falling, is_simple=is_simple)
            # Where something overflowed, a bound is NaN and is ignored.
            low[own, places] = np.fmax(low[own, places], least)
            high[own, places] = np.fmin(high[own, places], most)
        # Rounding can make two valid bounds cross by an ulp on an interval of width zero.
        return np.minimum(low, high), np.maximum(low, high)


def _within(interval: Interval, whole: Interval, room: Array) -> Interval:
    """An interval that leaves room, as far as another one that is known does."""
    low = np.maximum(interval[0] - room, whole[0])
    high = np.minimum(interval[1] + room, whole[1])
    return np.minimum(low, high), np.maximum(low, high)


def in_passes(numbers: Array, network: Network, entries: int = PASS_ENTRIES) -> Iterator[Array]:
    """Numbers of functions, in parts that one backward pass takes at once."""
    if len(numbers) == 0:
        return
    widest = max(network.neurons, *(node.size for node in network.nodes))
    yield from np.array_split(numbers, -(-len(numbers) * widest // entries))


def entries_of(network: Network, i: int, entries: Array, owners: Array, sign: float) -> Functions:
    """sign times entries of affine node i, in terms of its sources."""
    node = network.nodes[i]
    assert isinstance(node, Affine)
    rows: dict[int, Array] = {}
    for source, matrix in node.terms:
        product = sign * dense(matrix[entries]).astype(np.float64)
        rows[source] = rows[source] + product if source in rows else product
    return Functions(rows, sign * node.bias[entries].astype(np.float64), owners)


def functions_of(functions: Functions, chosen: Array) -> Functions:
    """Some of the functions."""
    rows = {k: row[chosen] for k, row in functions.rows.items()}
    return Functions(rows, functions.constant[chosen], functions.owners[chosen])


def _multiply(product: Product, terms: list[Interval], balls: Balls) -> None:
    """Give the first square of a product, in sums, the range of the product, and the second one 0."""
    total = _affine_interval(product.total, terms, balls)
    difference = _affine_interval(product.difference, terms, balls)
    first = terms[product.first]
    second = terms[product.second]
    terms[product.first] = range_of_product(total, difference, first, second)
    nothing = np.zeros_like(second[0])
    terms[product.second] = (nothing, nothing)


def _affine_interval(node: Affine, intervals: list[Interval], balls: Balls) -> Interval:
    """The intervals of an affine node, from those of its sources; in round balls, the better of two."""
    lower, upper = _interval_of_sum(node, intervals, None)
    if not balls.is_round or 0 not in node.sources:
        return lower, upper
    least, most = _interval_of_sum(node, intervals, balls)
    # Where something overflowed, an end is NaN and is ignored.
    lower = np.fmax(lower, least)
    upper = np.fmin(upper, most)
    return np.minimum(lower, upper), np.maximum(lower, upper)


def _interval_of_sum(node: Affine, intervals: list[Interval], balls: Balls | None) -> Interval:
    """The sum of the sources' intervals times the weights; with balls, inputs lie in those alone."""
    middle = node.bias.astype(np.float64)[None]
    radius = np.zeros((1, node.size))
    size = np.abs(middle)
    count = 2
    for source, matrix in node.terms:
        if source == 0 and balls is not None:
            center = balls.centers
            product, own = balls.interval(matrix)
        else:
            low, high = intervals[source]
            center = low / 2 + high / 2
            spread = np.nextafter(np.maximum(high - center, center - low), np.inf)
            product = (matrix @ center.T).T
            own = _times_up(matrix, spread)
        middle = middle + product
        radius = radius + own
        size = size + _times_up(matrix, np.abs(center))
        count += terms(matrix) + 1
    error = gamma(count + 2) * (size + radius) * 1.01 + count * TINY
    return middle - radius - error, middle + radius + error


def _times_up(matrix: Array, x: Array) -> Array:
    """Upper bounds on x @ |matrix|.T for x >= 0, a row for every ball."""
    return up((abs(matrix) @ x.T).T, terms(matrix))
