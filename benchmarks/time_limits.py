"""Time limits: how long `bound` takes when it is given so many seconds, on networks that would take longer.

    python benchmarks/time_limits.py [--limit 10]

Prints, for a dense network of 3,072 and a convolutional one of 18,432 neurons, the seconds that it took
and both bounds. A limit is kept if it is exceeded by no more than 10 % and a second.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from torch import nn

import lipopt
from lipopt.model.norms import NormName


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


@dataclass(frozen=True)
class Ask:
    """One call of `bound`."""

    norm: NormName = "linf"
    method: str = "auto"
    is_local: bool = False
    certify: bool = False

    def __str__(self) -> str:
        place = "ball of .01" if self.is_local else "everywhere"
        words = [self.norm, self.method, place]
        if self.certify:
            words.append("certified")
        return ", ".join(words)


def asks() -> Iterator[Ask]:
    """Every norm by `auto`; other methods, and certificates, in l_inf."""
    for norm, is_local in itertools.product(get_args(NormName), (False, True)):
        yield Ask(norm, is_local=is_local)
    for method, is_local in itertools.product(("sdp", "branch", "product"), (False, True)):
        yield Ask(method=method, is_local=is_local)
    for method, is_local in itertools.product(("auto", "branch"), (False, True)):
        yield Ask(method=method, is_local=is_local, certify=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float, default=10.0)
    limit = parser.parse_args().limit
    count = 0
    kept = 0
    for name, network in (("dense", dense()), ("convolutional", convolutional())):
        ball = lipopt.Ball(np.full(network.input_size, 0.5), 0.01)
        for ask in asks():
            start = time.perf_counter()
            result = lipopt.bound(
                network,
                norm=ask.norm,
                domain=ball if ask.is_local else None,
                method=ask.method,
                time_limit=limit,
                certify=ask.certify,
            )
            seconds = time.perf_counter() - start
            is_kept = seconds <= 1.1 * limit + 1
            count += 1
            kept += is_kept
            verdict = "kept" if is_kept else "exceeded"
            print(
                f"{name:13} {ask!s:38} {seconds:5.1f} s of {limit:g}: {verdict:8}"
                f" {result.lower:.4g} <= L <= {result.upper:.4g} ({result.status}, {result.by})",
                flush=True,
            )
    print(f"{kept} of {count} kept")


if __name__ == "__main__":
    main()
