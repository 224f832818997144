"""Time limits: how long `bound` takes when it is given so many seconds, on networks that would take longer.

    python benchmarks/time_limits.py [--limit 10]

Prints, for dense networks of 3,072 and a convolutional one of 18,432 neurons, the seconds that it took and both bounds.
A limit is kept if it is exceeded by no more than 10 % and a second.
"""

from __future__ import annotations

import argparse
import itertools
import time

import numpy as np
import torch
from torch import nn

import lipopt
from lipopt.model.norms import Norm


def dense() -> lipopt.Network:
    rng = np.random.default_rng(0)
    sizes = (784, 1024, 1024, 1024, 10)
    weights = []
    for inputs, outputs in itertools.pairwise(sizes):
        weights.append(rng.standard_normal((outputs, inputs)) * (2 / inputs) ** 0.5)
    return lipopt.load(weights)


def convolutional() -> lipopt.Network:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 8, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2048, 10),
    ]
    return lipopt.load(nn.Sequential(*layers), input_shape=(3, 32, 32))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float, default=10.0)
    limit = parser.parse_args().limit
    for name, network in (("dense", dense()), ("convolutional", convolutional())):
        ball = lipopt.Ball(np.full(network.input_size, 0.5), 0.01)
        for norm, domain in itertools.product(Norm, (None, ball)):
            start = time.perf_counter()
            result = lipopt.bound(network, norm=norm.value, domain=domain, time_limit=limit)
            seconds = time.perf_counter() - start
            kept = "kept" if seconds <= 1.1 * limit + 1 else "exceeded"
            place = "everywhere" if domain is None else "ball of .01"
            print(
                f"{name:14} {norm:5} {place:12} {seconds:6.1f} s of {limit:g}: {kept:9}"
                f" {result.lower:.4g} <= L <= {result.upper:.4g} ({result.status})",
                flush=True,
            )


if __name__ == "__main__":
    main()
