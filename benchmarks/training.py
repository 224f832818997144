"""What a penalty costs: a training step with it, beside a plain step and a step with spectral normalization.

    python benchmarks/training.py [--device cuda] [--threads N] [--rounds N]

The network is 784-300-100-10, the batch 256, the optimizer Adam. Steps of all kinds take turns, so that a busy machine slows all
of them alike; shown are medians, and the ratio to the plain step.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from lipopt.training import Penalty

BATCH = 256
STEPS = 20  # of one kind before the next takes its turn
STRENGTH = 1e-4

Step = Callable[[], None]


def network(device: str) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)]
    return nn.Sequential(*layers).to(device)


def spectral_network(device: str) -> nn.Sequential:
    """The same, with every matrix divided by its largest singular value."""
    model = network(device)
    for layer in model:
        if isinstance(layer, nn.Linear):
            spectral_norm(layer)
    return model


def step_of(model: nn.Sequential, penalty: Penalty | None, device: str, every: int = 1) -> Step:
    """A training step on batches that lie on the device; `every` so many have the penalty."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    x = torch.rand(10 * BATCH, 784, device=device)
    y = torch.randint(0, 10, (10 * BATCH,), device=device)

    numbers = itertools.count()

    def step() -> None:
        chosen = torch.randint(0, len(x), (BATCH,), device=device)
        loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen])
        if penalty is not None and next(numbers) % every == 0:
            loss = loss + every * STRENGTH * penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def penalized(device: str, every: int = 1, **options: Any) -> Step:
    model = network(device)
    return step_of(model, Penalty(model, outputs="margins", **options), device, every)


def seconds_of(step: Step, device: str) -> float:
    """The time of one step, the mean of several in a row."""
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    if device != "cpu":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / STEPS


def main(device: str, rounds: int) -> None:
    plain = network(device)
    steps = {
        "plain": step_of(plain, None, device),
        "estimate, rank 16": penalized(device),
        "every second step": penalized(device, every=2),
        "estimate, rank 8": penalized(device, rank=8),
        "path sum": penalized(device, kind="path-sum"),
        "spectral normalization": step_of(spectral_network(device), None, device),
    }
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            found[name].append(seconds_of(step, device))
    first = median(found["plain"])
    for name, seconds in found.items():
        usual = median(seconds)
        print(f"{name:24s} {1e3 * usual:7.3f} ms   {usual / first:5.2f} times a plain step")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"{options.device}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    main(options.device, options.rounds)
