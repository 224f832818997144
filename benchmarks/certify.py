"""Certified points, by the proof that it takes: networks with two hidden layers, trained in three ways.

    python benchmarks/certify.py [--data FOLDER] [--points 100] [--survey 10000] [--device cuda]

FOLDER holds MNIST in its usual four files (train-images-idx3-ubyte.gz and so on); without it, the 8 x 8 digits of
scikit-learn are used. Needs torch. Columns, all of the same points:

    linear      one backward pass with the usual lines (CROWN, DeepPoly): a stand-in for tools that do this
    slopes      the same with optimized lines
    certified   by `lipopt.certify`, with branch and bound
    unbroken    points that no attack breaks: no proof can certify more
    x linear    processor time of `certify` on the points that linear bounds decide, relative to these bounds alone
    seconds     processor time of `certify` on all points

With `--device`, backward passes run on that torch device; times are then those of the clock, since processor time does
not count what a GPU does. `--survey N` certifies N points at one radius, and attacks them with code of its own: none that
is certified may fall.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import lipopt
from lipopt.margins.attack import margin_rows
from lipopt.margins.backward import Functions
from lipopt.margins.balls import Balls
from lipopt.margins.devices import Device
from lipopt.margins.enclosures import Enclosures
from lipopt.margins.ladder import Effort, decide
from lipopt.numerics.arrays import Array
from lipopt.numerics.blas import one_blas_thread
from lipopt.readers.points import read_labels, read_points

BATCH = 128
CLIP = (0.0, 1.0)
CELLS = 1000  # of branch and bound for a point, as `certify` has it
STANDARD = "standard"
WEIGHT_DECAYED = "weight decay"
ADVERSARIAL = "adversarial"
SURVEY_RADIUS = 0.02
SURVEY_STEPS = 40  # of the attack on surveyed points
WEIGHT_DECAY = 1e-4
ADVERSARIAL_RADIUS = 0.1


@dataclass(frozen=True)
class Case:
    """A network, and the radii that it is asked about."""

    way: str  # of training
    width: int  # of both hidden layers
    radii: tuple[float, ...]


CASES = (
    Case(STANDARD, 100, (0.01, 0.02, 0.03, 0.05)),
    Case(WEIGHT_DECAYED, 100, (0.02, 0.05)),
    Case(ADVERSARIAL, 100, (0.05, 0.1)),
    Case(ADVERSARIAL, 256, (0.05,)),
)


class Data:
    """Images in [0, 1] and labels, for training and for tests."""

    def __init__(self, folder: Path | None) -> None:
        if folder is None:
            from sklearn.datasets import load_digits

            images, labels = load_digits(return_X_y=True)
            images = images / 16
            order = np.random.default_rng(0).permutation(len(images))
            first, rest = order[:1400], order[1400:]
            self.train = images[first], labels[first]
            self.test = images[rest], labels[rest]
            self.epochs = 60
        else:
            self.train = self._read(folder, "train")
            self.test = self._read(folder, "t10k")
            self.epochs = 5

    def _read(self, folder: Path, name: str) -> tuple[Array, Array]:
        images = read_points(folder / f"{name}-images-idx3-ubyte.gz", 255.0)
        labels = read_labels(folder / f"{name}-labels-idx1-ubyte.gz")
        return images.reshape(len(images), -1), labels


def trained(data: Data, case: Case) -> nn.Sequential:
    """The network of a case."""
    torch.manual_seed(0)
    x = torch.tensor(data.train[0], dtype=torch.float32)
    y = torch.tensor(data.train[1], dtype=torch.int64)
    model = nn.Sequential(
        nn.Linear(x.shape[1], case.width),
        nn.ReLU(),
        nn.Linear(case.width, case.width),
        nn.ReLU(),
        nn.Linear(case.width, 10),
    )
    decay = WEIGHT_DECAY if case.way == WEIGHT_DECAYED else 0.0
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=decay)
    for _ in range(data.epochs):
        for batch in torch.randperm(len(x)).split(BATCH):
            images = x[batch]
            if case.way == ADVERSARIAL:
                images = attacked(model, images, y[batch], ADVERSARIAL_RADIUS, 1)
            loss = cross_entropy(model(images), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def attacked(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, steps: int
) -> torch.Tensor:
    """Images after steps along the signs of the loss's gradient, from a random start."""
    low = (x - radius).clamp(*CLIP)
    high = (x + radius).clamp(*CLIP)
    moved = x + radius * (2 * torch.rand_like(x) - 1)
    for step in range(steps):
        moved = moved.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(cross_entropy(model(moved), y, reduction="sum"), moved)
        moved = torch.clamp(moved + 1.25 * radius * 0.9**step * gradient.sign(), low, high)
    return moved.detach()


def balls_around(x: Array, radius: float) -> Balls:
    return Balls.around(x, np.full(len(x), radius), CLIP)


def linear_margins(
    network: lipopt.Network, x: Array, labels: Array, radius: float, device: str | None
) -> Array:
    """Lower bounds on all margins by linear bounds alone, (points, classes - 1)."""
    where = None if device is None else Device(device, network)
    balls = balls_around(x, radius)
    owners, others = np.nonzero(np.arange(network.output_size)[None] != labels[:, None])
    rows = margin_rows(network, labels[owners], others)
    functions = Functions({len(network.nodes) - 1: rows}, np.zeros(len(owners)), owners)
    enclosures = Enclosures.of(network, balls, device=where)
    return enclosures.lower_bounds(functions).reshape(len(x), -1)


def measured(
    network: lipopt.Network, x: Array, labels: Array, radius: float, device: str | None
) -> list[str]:
    """A row of the table, without its name."""
    clock = time.process_time if device is None else time.perf_counter
    effort = Effort(CELLS, device=device)
    is_linear = (linear_margins(network, x, labels, radius, device) > 0).all(axis=1)
    start = clock()
    linear_margins(network, x[is_linear], labels[is_linear], radius, device)
    linear_seconds = clock() - start
    start = clock()
    decide(network, balls_around(x[is_linear], radius), labels[is_linear], effort)
    ratio = (clock() - start) / linear_seconds
    start = clock()
    found = decide(network, balls_around(x, radius), labels, effort)
    seconds = clock() - start
    certified = [decision.rung for decision in found if decision.status == "certified"]
    unbroken = sum(decision.status != "broken" for decision in found)
    by_slopes = certified.count("linear") + certified.count("slopes")
    counts = [certified.count("linear"), by_slopes, len(certified), unbroken]
    return [*map(str, counts), f"{ratio:.2f}", f"{seconds:.1f}"]


def table(data: Data, points: int, device: str | None) -> Iterator[str]:
    """The table in Markdown, a line at a time."""
    yield "| network | radius | linear | slopes | certified | unbroken | x linear | seconds |"
    yield "|---|---|---|---|---|---|---|---|"
    x = data.test[0][:points]
    labels = data.test[1][:points].astype(int)
    for case in CASES:
        model = trained(data, case)
        network = lipopt.load(model, input_shape=(x.shape[1],))
        for radius in case.radii:
            name = f"{case.way} {case.width}x2"
            yield f"| {name} | {radius} | {' | '.join(measured(network, x, labels, radius, device))} |"


def survey(data: Data, points: int, device: str | None) -> str:
    """How many of many points are certified, and how many of these an attack breaks."""
    model = trained(data, CASES[0])
    x = data.test[0][:points]
    labels = data.test[1][:points].astype(int)
    verdicts = lipopt.certify(
        model,
        x,
        SURVEY_RADIUS,
        input_shape=(x.shape[1],),
        labels=labels,
        clip=CLIP,
        cells=200,
        device=device,
    )
    certified = [verdict.point for verdict in verdicts if verdict.status == "certified"]
    broken = sum(verdict.status == "broken" for verdict in verdicts)
    images = torch.tensor(x[certified], dtype=torch.float64)
    classes = torch.tensor(labels[certified])
    moved = attacked(model.double(), images, classes, SURVEY_RADIUS, SURVEY_STEPS)
    fallen = int((model(moved).argmax(1) != classes).sum())
    counts = f"{len(certified)} certified, {broken} broken"
    return f"{len(x)} points, radius {SURVEY_RADIUS}: {counts}; certified but fallen: {fallen}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--survey", type=int, default=0)
    parser.add_argument("--device")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = Data(options.data)
    with one_blas_thread():
        if options.survey:
            print(survey(data, options.survey, options.device))
            return
        for line in table(data, options.points, options.device):
            print(line, flush=True)


if __name__ == "__main__":
    main()
