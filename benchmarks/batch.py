"""Batch runs: what sharing saves, what a problem costs, and how much faster two workers are than one, or a GPU with batches.

    python benchmarks/batch.py sharing | cost | workers | device [--device cuda]

`sharing` and `cost` count CPU seconds on one thread, which a busy machine disturbs little; `workers` needs two idle cores.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import lipopt
from lipopt.batch.answers import answers
from lipopt.batch.rows import Ask, Point, Row
from lipopt.batch.run import METHOD, local_bounds
from lipopt.examples import digits, example
from lipopt.methods.baselines import PathSum
from lipopt.model.domain import Ball
from lipopt.numerics.blas import one_blas_thread
from lipopt.problem.question import Question, pose
from lipopt.problem.task import Task, UpperBound


def solve(
    network: lipopt.Network, asks: Sequence[Ask], points: Iterable[Any], labels: Iterable[Any]
) -> tuple[float, list[Row]]:
    """CPU seconds a row, and the rows."""
    start = time.process_time()
    with one_blas_thread():
        cases = itertools.product(enumerate(zip(points, labels, strict=True)), asks)
        rows: list[Row] = []
        for (k, (x, y)), ask in cases:
            rows += answers(network, ask, [Point(k, x, int(y))])
    return (time.process_time() - start) / len(rows), rows


def sharing() -> None:
    """The pruned MNIST network: ten outputs of three digits at once or one at a time."""
    network, (images, labels) = example("pruned"), digits()
    points = images[:3], labels[:3]
    for radius in (0.01, 0.05):
        constants = Ask((radius,), METHOD, clip=(0.0, 1.0))
        for name, ask in (("sdp", constants), ("path-sum", replace(constants, method=PathSum()))):
            together, _ = solve(network, [ask], *points)
            alone, _ = solve(network, [replace(ask, output=k) for k in range(10)], *points)
            print(
                f"radius {radius}, {name}: shared {together:.3f} s a problem, alone {alone:.3f}, ratio {alone / together:.2f}"
            )


def random_network(width: int, depth: int) -> lipopt.Network:
    """ReLU, 100 inputs, 4 outputs."""
    rng = np.random.default_rng(0)
    sizes = [100, *[width] * depth, 4]
    return lipopt.load(
        [rng.normal(size=(b, a)) * np.sqrt(2 / a) for a, b in itertools.pairwise(sizes)]
    )


def cost() -> None:
    """Random ReLU networks of 100 inputs: CPU seconds a problem, by width, depth and radius."""
    cases = [(width, 2, 0.05) for width in (50, 100, 200, 400)]
    cases += [(100, depth, 0.05) for depth in (4, 6, 8)] + [
        (100, 2, radius) for radius in (0.005, 0.02, 0.1, 0.5)
    ]
    for width, depth, radius in cases:
        points = np.random.default_rng(1).uniform(size=(2, 100))
        seconds, rows = solve(
            random_network(width, depth), [Ask((radius,), METHOD)], points, [0, 0]
        )
        gaps = []
        for row in rows:
            assert row.upper is not None, row.error
            assert row.pop_lower is not None, row.error
            gaps.append(row.upper / row.pop_lower - 1)
        print(
            f"{depth} x {width}, radius {radius}: {seconds:.3f} s a problem, median gap {np.median(gaps):.1%}",
            flush=True,
        )


def workers() -> None:
    """100 problems (25 points x 4 outputs, a random ReLU network with 12 x 100 neurons) with one process and with two."""
    network, rng = random_network(100, 12), np.random.default_rng(1)
    points, seconds = rng.uniform(size=(25, 100)), {}
    for jobs in (1, 2):
        start = time.perf_counter()
        rows = local_bounds(network, points, 0.05, jobs=jobs)
        seconds[jobs] = time.perf_counter() - start
        print(
            f"{jobs} workers: {len(rows)} problems in {seconds[jobs]:.1f} s, {len(rows) / seconds[jobs]:.2f} a second",
            flush=True,
        )
    print(f"ratio {seconds[1] / seconds[2]:.2f}")


def device(name: str) -> None:
    """320 problems (16 digits x 2 radii x 10 outputs, the pruned MNIST network): their SDPs one by one, and as batches."""
    network, (images, _) = example("pruned"), digits()
    balls = [Ball(x, radius, (0.0, 1.0)) for x in images[:16] for radius in (0.01, 0.05)]
    tasks = []
    for ball in balls:
        posed = pose(network, Question.about(network, output="all", domain=ball))
        tasks += [Task(problem, problem) for _, problem in posed.rows]
    sdp = replace(METHOD, device=name)
    sdp.together(tasks[:2])  # starts the device
    ways: dict[str, Callable[[], Sequence[UpperBound | Row]]] = {
        "no device": lambda: [METHOD(task) for task in tasks],
        f"{name}, one by one": lambda: [sdp(task) for task in tasks],
        f"{name}, batches": lambda: sdp.together(tasks),
        f"{name}, all of `lipopt local`": lambda: local_bounds(
            network, images[:16], (0.01, 0.05), clip=(0, 1), method=sdp
        ),
    }
    for way, solve_all in ways.items():
        start = time.perf_counter()
        with one_blas_thread():
            found = solve_all()
        print(f"{way}: {(time.perf_counter() - start) / len(found):.4f} s a problem", flush=True)
        values = [each.value if isinstance(each, UpperBound) else each.upper for each in found]
        print(f"    mean bound {np.mean(np.array(values, float)):.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["sharing", "cost", "workers", "device"])
    parser.add_argument("--device", default="cuda", help="torch device")
    options = parser.parse_args()
    {
        "sharing": sharing,
        "cost": cost,
        "workers": workers,
        "device": lambda: device(options.device),
    }[options.what]()
