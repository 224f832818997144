"""The SDP of convolutional networks, and what a network of the size of ResNet-18 costs.

    python benchmarks/convolutions.py [--sides 8 12 16 24 32] [--densest 16]
    python benchmarks/convolutions.py resnet18 [--width 64] [--lower]

The first: S as a sparse matrix, and in dense blocks, in one run. Random networks of two convolutions
(16 and 32 channels, 4x4 windows, stride 2) and a dense layer of 100, over images of 3 channels; linf,
slopes in [0, 1]. `--densest`: the largest side that dense blocks are tried on. The exponents are slopes
of least-squares lines through the logarithms.

The second: ResNet-18 for CIFAR (3x32x32, basic blocks 2-2-2-2) with random weights and statistics, the
first stage as wide as `--width`, the last eight times that. Processor seconds of every step, and the
peak of the memory after it; `--lower` for the lower bounds too, which take minutes.
Every table is printed as markdown. Needs torch.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

import lipopt
from lipopt.lower.gradients import sample
from lipopt.lower.pop import AsGiven, pop_lower_bound
from lipopt.methods.baselines import path_sum_bound, product_bound
from lipopt.methods.sdp import sparse_dual
from lipopt.numerics.blas import quiet
from lipopt.problem.derivative import DerivativeProblem
from lipopt.problem.question import Question, pose
from lipopt.problem.task import Budget, Task, UpperBound


def convolutional_network(side: int) -> lipopt.Network:
    """A random network over images of this side."""
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
    return lipopt.load(model.double(), input_shape=(3, side, side))


def convolutional(side: int) -> DerivativeProblem:
    """The derivative problem of such a network."""
    network = convolutional_network(side)
    return pose(network, Question.about(network, output=0)).problem


def solve(problem: DerivativeProblem, as_sparse: bool) -> tuple[UpperBound, float]:
    """The bound, and the seconds that it took."""
    sparse_dual.MIN_VARIABLES = 0 if as_sparse else 10**9
    start = time.perf_counter()
    found = lipopt.SDP()(Task(problem, problem))
    return found, time.perf_counter() - start


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def resnet18(width: int) -> nn.Module:
    """ResNet-18 for CIFAR, untrained, as if it had been trained: with statistics."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for factor in (1, 2, 4, 8):
        stride = 1 if factor == 1 else 2
        layers += [Block(inputs, factor * width, stride), Block(factor * width, factor * width, 1)]
        inputs = factor * width
    model = nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(inputs, 10)).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.1)
    return model


def step(name: str, run: Callable[[], Any], number: Callable[[Any], object] = lambda _: "") -> Any:
    """Run one step, and show what it found and what it cost."""
    start = time.process_time()
    found = run()
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    show(name, number(found), f"{seconds:.1f}", f"{peak:.1f}")
    return found


def measure_resnet18(width: int, with_lower: bool) -> None:
    model = resnet18(width)
    show("step", "found", "s", "GB")
    show(*["---"] * 4)
    network = step(
        "reading, and comparing with the original",
        lambda: lipopt.load(model, input_shape=(3, 32, 32)),
        lambda found: f"{found.neurons} neurons, {found.weights:.3g} entries of matrices",
    )
    with quiet():
        posed = step("presolve", lambda: pose(network, Question.about(network)))
        step("path sum", lambda: path_sum_bound(posed.problem), written)
        for norm in ("linf", "l2", "l1"):
            raw = pose(network, Question.about(network, norm=norm)).raw
            step(f"product of norms, {norm}", partial(product_bound, raw), written)
        step("hash of the file", lambda: network.hash[:16], str)
        if with_lower:
            best = step("gradients at points", lambda: sample(posed, Budget(), 20))
            known = posed.slopes_in_problem(best.slopes)
            (given,) = AsGiven.parts(posed, 1)
            step(
                "lower bound on the POP",
                lambda: pop_lower_bound(posed.problem, Budget(), known, given),
                written,
            )


def written(value: float) -> str:
    return f"{value:.4g}"


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """k of seconds = c size^k."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def show(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["sdp", "resnet18"], default="sdp")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lower", action="store_true")
    parser.add_argument("--sides", type=int, nargs="+", default=[8, 12, 16, 24, 32])
    parser.add_argument("--densest", type=int, default=16)
    arguments = parser.parse_args()
    if arguments.what == "resnet18":
        measure_resnet18(arguments.width, arguments.lower)
    else:
        measure_sdp(arguments.sides, arguments.densest)


def measure_sdp(sides: list[int], densest: int) -> None:
    show("side", "variables", "value", "sparse", "s", "dense", "s", "dense s / sparse s")
    show(*["---"] * 8)
    sizes: dict[str, list[int]] = {"sparse": [], "dense": []}
    seconds: dict[str, list[float]] = {"sparse": [], "dense": []}
    for side in sides:
        problem = convolutional(side)
        variables = sum(problem.sizes)
        found, time_sparse = solve(problem, as_sparse=True)
        sizes["sparse"].append(variables)
        seconds["sparse"].append(time_sparse)
        row = [side, variables, f"{found.details['primal']:.6g}", f"{found.value:.6g}"]
        row.append(f"{time_sparse:.2f}")
        if side <= densest:
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
