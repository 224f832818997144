"""The SDP of convolutional networks: S as a sparse matrix, and in dense blocks, in one run.

    python benchmarks/convolutions.py [--sides 8 12 16 24 32] [--densest 16]

Random networks of two convolutions (16 and 32 channels, 4x4 windows, stride 2) and a dense layer of
100, over images of 3 channels; linf, slopes in [0, 1]. `--densest`: the largest side that dense
blocks are tried on. The exponents are slopes of least-squares lines through the logarithms.
Every table is printed as markdown. Needs torch.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import nn

import lipopt
from lipopt.methods.sdp import sparse_dual
from lipopt.problem.derivative import DerivativeProblem
from lipopt.problem.question import Question, pose
from lipopt.problem.task import Task, UpperBound


def convolutional(side: int) -> DerivativeProblem:
    """The derivative problem of a random network over images of this side."""
    torch.manual_seed(side)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * side**2, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )
    network = lipopt.load(model.double(), input_shape=(3, side, side))
    return pose(network, Question.about(network, output=0)).problem


def solve(problem: DerivativeProblem, as_sparse: bool) -> tuple[UpperBound, float]:
    """The bound, and the seconds that it took."""
    sparse_dual.MIN_VARIABLES = 0 if as_sparse else 10**9
    start = time.perf_counter()
    found = lipopt.SDP()(Task(problem, problem))
    return found, time.perf_counter() - start


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """k of seconds = c size^k."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def show(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sides", type=int, nargs="+", default=[8, 12, 16, 24, 32])
    parser.add_argument("--densest", type=int, default=16)
    arguments = parser.parse_args()
    show("side", "variables", "value", "sparse", "s", "dense", "s", "dense s / sparse s")
    show(*["---"] * 8)
    sizes: dict[str, list[int]] = {"sparse": [], "dense": []}
    seconds: dict[str, list[float]] = {"sparse": [], "dense": []}
    for side in arguments.sides:
        problem = convolutional(side)
        variables = sum(problem.sizes)
        found, time_sparse = solve(problem, as_sparse=True)
        sizes["sparse"].append(variables)
        seconds["sparse"].append(time_sparse)
        row = [side, variables, f"{found.details['primal']:.6g}", f"{found.value:.6g}"]
        row.append(f"{time_sparse:.2f}")
        if side <= arguments.densest:
            dense, time_dense = solve(problem, as_sparse=False)
            sizes["dense"].append(variables)
            seconds["dense"].append(time_dense)
            row += [f"{dense.value:.6g}", f"{time_dense:.2f}", f"{time_dense / time_sparse:.1f}"]
        else:
            row += ["-"] * 3
        show(*row)
    for name in sizes:
        if len(sizes[name]) > 1:
            print(f"\n{name}: time grows with the power {exponent(sizes[name], seconds[name]):.2f}")


if __name__ == "__main__":
    main()
