"""A search for inputs that break a class: steps down the margins, for many balls at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.network import Network
from ..model.nodes import Activation
from ..numerics.arrays import Array
from .backward import Functions, Lines, input_coefficients
from .balls import Balls
from .enclosures import Enclosures, in_passes

STARTS = 3  # for every margin: the point itself, and random corners of the ball
STEPS = 25
FIRST_STEP = 1.0  # relative to the radius of the ball
SHRINK = 0.85  # of the step, every time


@dataclass(frozen=True, eq=False)
class Slopes:
    """The relaxation by the slopes at points: what it gives are gradients."""

    network: Network
    values: list[Array]  # of all nodes at the points, (size, points)

    def lines(self, node: int, coefficients: Array) -> Lines:
        own = self.network.nodes[node]
        assert isinstance(own, Activation)
        slopes = own.function.slope(self.values[own.source].T)
        return Lines(slopes, np.zeros(slopes.shape))


class Attack:
    """Inputs in balls at which the class is not the label."""

    def __init__(self, network: Network, balls: Balls, labels: Array) -> None:
        self.network = network
        self.balls = balls
        self.labels = labels
        self.broken: dict[int, Array] = {}  # by ball: an input with another class, proved

    def is_broken(self, ball: int) -> bool:
        return ball in self.broken

    def look_at(self, owners: Array, points: Array) -> None:
        """Try points, each for the ball of its owner; what is outside is moved to the boundary."""
        inside = self.balls.moved_into(points, owners)
        outputs = np.atleast_2d(self.network.forward(inside))
        self._note(owners, inside, outputs)

    def run_on_all(self, seed: int) -> None:
        """Look at the centers, and go down all margins of all balls."""
        everyone = np.arange(self.balls.count)
        self.look_at(everyone, self.balls.centers)
        owners, others = np.nonzero(
            np.arange(self.network.output_size)[None] != self.labels[:, None]
        )
        for part in in_passes(np.arange(len(owners)), self.network):
            self.run(owners[part], others[part], seed)

    def run(self, owners: Array, others: Array, seed: int) -> None:
        """Go down the margins between labels and other classes, from several starts."""
        rng = np.random.default_rng(seed)
        owners = np.repeat(owners, STARTS)
        others = np.repeat(others, STARTS)
        points = self._starts(owners, rng)
        for step in range(STEPS):
            is_left = np.array([not self.is_broken(ball) for ball in owners], dtype=bool)
            owners = owners[is_left]
            others = others[is_left]
            points = points[is_left]
            if len(owners) == 0:
                return
            rows = margin_rows(self.network, self.labels[owners], others)
            gradients = margin_gradients(self.network, points, rows)
            downhill = -self.balls.norm.best_direction(self.balls.in_units(gradients).T).T
            size = FIRST_STEP * SHRINK**step * self.balls.radii[owners][:, None]
            steps = size * self.balls.in_units(downhill)
            points = self.balls.moved_into(points + steps, owners)
            self.look_at(owners, points)

    def _starts(self, owners: Array, rng: np.random.Generator) -> Array:
        """The center of every ball, and points that are least for random functions."""
        rows = rng.choice([-1.0, 1.0], (len(owners), self.balls.inputs))
        others = self.balls.where_least(rows, owners)
        is_first = np.arange(len(owners)) % STARTS == 0
        return np.where(is_first[:, None], self.balls.centers[owners], others)

    def _note(self, owners: Array, points: Array, outputs: Array) -> None:
        """Keep the first input of every ball whose class is proved not to be the label."""
        rows = np.arange(len(owners))
        labels = self.labels[owners]
        own = outputs[rows, labels]
        outputs = outputs.copy()
        outputs[rows, labels] = -np.inf
        for k in np.flatnonzero(outputs.max(axis=1) >= own):
            ball = int(owners[k])
            if not self.is_broken(ball) and is_misclassified(
                self.network, points[k], int(labels[k])
            ):
                self.broken[ball] = points[k].copy()


def is_misclassified(network: Network, x: Array, label: int) -> bool:
    """Whether some other output is proved to be as large as that of the label, at a point."""
    found = Enclosures.of(network, Balls.at(x[None]))
    low, high = found.intervals[-1]
    others = np.delete(low[0], label)
    return bool(others.max() >= high[0, label])


def margin_rows(network: Network, labels: Array, others: Array) -> Array:
    """Rows over the outputs: that of the label, less another."""
    rows = np.zeros((len(labels), network.output_size))
    places = np.arange(len(labels))
    rows[places, labels] = 1.0
    rows[places, others] = -1.0
    return rows


def margin_gradients(network: Network, points: Array, rows: Array) -> Array:
    """The gradients of rows times the outputs, each at a point of its own."""
    nobody = np.zeros(len(points), dtype=int)
    functions = Functions({len(network.nodes) - 1: rows}, np.zeros(len(points)), nobody)
    slopes = Slopes(network, network.node_values(points.T))
    return input_coefficients(network, functions, slopes)
