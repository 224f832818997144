"""Sampled gradients: lipopt's batched lower bound against what one would write in PyTorch, on the same points' count.

    python benchmarks/lower.py [--samples 50000]

Prints seconds and the ratio, for networks 784-256-256-10 and 784-300-100-10. Both use the same number of threads.
"""

from __future__ import annotations

import argparse
import itertools
import time

import torch
from torch import nn

import lipopt


def torch_lower(module: nn.Module, samples: int, batch: int = 1000) -> float:
    """The largest l1 norm of the gradient of output 0 at uniform points of [-5, 5]^n."""
    best = 0.0
    for _ in range(samples // batch):
        x = (torch.rand(batch, 784, dtype=torch.float64) * 10 - 5).requires_grad_()
        (gradient,) = torch.autograd.grad(module(x)[:, 0].sum(), x)
        best = max(best, gradient.abs().sum(1).max().item())
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=50_000)
    samples = parser.parse_args().samples
    for sizes in ((784, 256, 256, 10), (784, 300, 100, 10)):
        torch.manual_seed(0)
        layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())][
            :-1
        ]
        module = nn.Sequential(*layers).double()
        network = lipopt.load(module)
        start = time.perf_counter()
        theirs = torch_lower(module, samples)
        middle = time.perf_counter()
        ours = lipopt.lower_bound(network, samples=samples)
        end = time.perf_counter()
        print(
            f"{'-'.join(map(str, sizes))}: torch {theirs:.4f} in {middle - start:.2f} s; lipopt {ours.lower:.4f} "
            f"(POP {ours.pop_lower:.4f}) in {end - middle:.2f} s; ratio {(end - middle) / (middle - start):.2f}"
        )


if __name__ == "__main__":
    main()
