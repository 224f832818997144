"""lipopt and other tools on the same questions about the same random ReLU networks.

    python benchmarks/peers.py global      eclipse-nn: l2, all outputs, whole space
    python benchmarks/peers.py local       auto_LiRPA: l_inf, output 0, l_inf balls; eclipse-nn: l2, l2 balls
    python benchmarks/peers.py radius      Marabou: the largest radius at which the class is proved

Each needs the other tool: `pip install eclipse-nn`, `pip install maraboupy`, and auto_LiRPA from its repository (0.7.1 or
later); none of them is needed by lipopt. Times are processor seconds in one thread (set OMP_NUM_THREADS=1), imports, the
building of models and a first call excluded. "lipopt local" is the time for one of BATCH balls that are asked about together,
around that point and random ones. The lower bound in a row is lipopt's: no correct upper bound is below it. Weights are normal
with variance 1/fan-in, biases normal with variance 1/100. Every table is printed as markdown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any

import torch
from torch import nn

import lipopt
from lipopt.model.norms import NormName

Sizes = tuple[int, ...]
GLOBAL = [(10, 20, 20, 2), (20, 50, 50, 50, 5), (50, 100, 100, 100, 10), (20, *[60] * 10, 5)]
LOCAL = [(10, 20, 20, 1), (50, 100, 100, 1), (784, 100, 100, 1)]
LOCAL_RADII = (0.01, 0.1, 1.0)
BATCH = 10  # balls
CLASSIFIERS = [(5, 15, 15, 3), (10, 30, 30, 3), (20, 50, 50, 3)]
MARABOU_SECONDS = 90  # of wall-clock time, for each query
PROVED = "unsat"  # what Marabou says if there is no counterexample
HALVINGS = 6  # of the interval in which Marabou's radius is searched


def network(sizes: Sizes, seed: int = 0) -> nn.Sequential:
    """A random network in double precision, with weights that single precision has too."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        linear = nn.Linear(inputs, outputs, dtype=torch.float64)
        nn.init.normal_(linear.weight, std=inputs**-0.5)
        nn.init.normal_(linear.bias, std=0.1)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).float().double().eval().requires_grad_(False)


def name(sizes: Sizes) -> str:
    """A network's sizes, as they are written in tables."""
    return "-".join(map(str, sizes))


def timed(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, float]:
    """What a function returns, and the processor seconds it took."""
    start = time.process_time()
    value = function(*arguments, **options)
    return value, time.process_time() - start


def show(*cells: object) -> None:
    """One row of a table."""
    texts = [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells]
    print("| " + " | ".join(texts) + " |", flush=True)


def header(*names: str) -> None:
    """The first two rows of a table."""
    show(*names)
    print("|" + "---|" * len(names), flush=True)


def whole_space() -> None:
    """ECLipsE and lipopt's bounds for the vector of outputs in l2."""
    from eclipse_nn import LipConstEstimator

    header("network", "lower bound", "method", "upper bound", "processor seconds")
    for sizes in GLOBAL:
        model = network(sizes)
        loaded = lipopt.load(model)
        for method in ("product", "sdp"):
            result, seconds = timed(lipopt.bound, loaded, method=method, norm="l2", output="all")
            show(name(sizes), result.lower, f"lipopt {method}", result.upper, seconds)
        estimator = LipConstEstimator(model=model)
        for method in ("ECLipsE_Fast", "ECLipsE"):
            value, seconds = timed(estimator.estimate, method)
            show(name(sizes), "", method, float(value), seconds)


def balls() -> None:
    """Bounds on the gradient by auto_LiRPA and by lipopt, in l_inf; ECLipsE's and lipopt's in l2."""
    _lipopt_in_a_ball(LOCAL[0], network(LOCAL[0]), torch.zeros(LOCAL[0][0]), 0.1, "linf")
    header("network", "radius", "norm", "lower bound", "method", "upper bound", "processor seconds")
    for sizes in LOCAL:
        model = network(sizes)
        x = torch.randn(sizes[0], dtype=torch.float64)
        for radius in LOCAL_RADII:
            _lipopt_in_a_ball(sizes, model, x, radius, "linf")
            _lirpa_in_a_ball(sizes, model, x, radius)
            _lipopt_in_a_ball(sizes, model, x, radius, "l2")
            _eclipse_in_a_ball(sizes, model, x, radius)


def _lipopt_in_a_ball(
    sizes: Sizes, model: nn.Module, x: torch.Tensor, radius: float, norm: NormName
) -> None:
    ball = lipopt.Ball(x.numpy(), radius, norm=norm)
    loaded = lipopt.load(model)
    for method in ("sdp", "auto"):
        result, seconds = timed(lipopt.bound, loaded, method=method, domain=ball, norm=norm)
        show(name(sizes), radius, norm, result.lower, f"lipopt {method}", result.upper, seconds)
    others = torch.randn(BATCH - 1, len(x), dtype=torch.float64)
    points = torch.cat([x[None].double(), others]).numpy()
    rows, seconds = timed(
        lipopt.local_bounds, loaded, points, radius, norm=norm, ball_norm=norm, output=0
    )
    show(name(sizes), radius, norm, rows[0].lower, "lipopt local", rows[0].upper, seconds / BATCH)


def _lirpa_in_a_ball(sizes: Sizes, model: nn.Module, x: torch.Tensor, radius: float) -> None:
    bounded = jacobian_module(model, x)
    value, seconds = timed(gradient_bound, bounded, x, radius)
    show(name(sizes), radius, "linf", "", "auto_LiRPA", value, seconds)


def _eclipse_in_a_ball(sizes: Sizes, model: nn.Module, x: torch.Tensor, radius: float) -> None:
    from eclipse_nn import LipConstEstimator

    estimator = LipConstEstimator(model=model)
    arguments = (x.numpy(), radius, "relu", "Fast")
    (value, _, code), seconds = timed(estimator.estimate_gen_local, *arguments)
    found = float(value) if code == 0 else f"failed ({code})"
    show(name(sizes), radius, "l2", "", "ECLipsE-Gen-Local Fast", found, seconds)


def jacobian_module(model: nn.Module, x: torch.Tensor) -> Any:
    """The l1 norm of a model's gradient, as a module that auto_LiRPA can bound."""
    from auto_LiRPA import BoundedModule, BoundedTensor
    from auto_LiRPA.jacobian import GradNorm, JacobianOP

    class Gradient(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = deepcopy(model).float()  # its Jacobians are bounded in single precision
            self.norm = GradNorm(norm=1)

        def forward(self, point: torch.Tensor) -> torch.Tensor:
            return self.norm(JacobianOP.apply(self.model(point), point))

    return BoundedModule(Gradient(), (BoundedTensor(x[None].float()),))


def gradient_bound(bounded: Any, x: torch.Tensor, radius: float) -> float:
    """auto_LiRPA's upper bound on the l1 norm of the gradient in a ball."""
    from auto_LiRPA import BoundedTensor
    from auto_LiRPA.perturbations import PerturbationLpNorm

    ball = BoundedTensor(x[None].float(), PerturbationLpNorm(norm=float("inf"), eps=radius))
    return float(bounded.compute_jacobian_bounds((ball,), bound_lower=False)[1])


def radii() -> None:
    """Certified radii of lipopt, and of Marabou, which decides every query by a complete search."""
    header("network", "tool", "largest radius proved", "not proved", "why", "processor seconds")
    for sizes in CLASSIFIERS:
        model = network(sizes)
        x = torch.randn(sizes[0], dtype=torch.float64)
        label = int(model(x).argmax())
        loaded = lipopt.load(model)
        found, seconds = timed(lipopt.certified_radius, loaded, x, label)
        show(name(sizes), "lipopt", found, "", "", seconds)
        (kept, broken, why), seconds = timed(marabou_radii, model, x, label)
        show(name(sizes), "Marabou", kept, broken, why, seconds)


def marabou_radii(model: nn.Sequential, x: torch.Tensor, label: int) -> tuple[float, float, str]:
    """A radius that Marabou proves, a larger one that it does not, and why it does not."""
    kept = 0.0
    broken = 1.0
    why = "not tried"
    for _ in range(HALVINGS):
        middle = (kept + broken) / 2
        verdict = marabou_verdict(model, x, label, middle)
        if verdict == PROVED:
            kept = middle
        else:
            broken = middle
            why = verdict
    return kept, broken, why


def marabou_verdict(model: nn.Sequential, x: torch.Tensor, label: int, radius: float) -> str:
    """Marabou's first answer but "unsat" to: does another output exceed the label's in the ball?"""
    from maraboupy import Marabou, MarabouCore

    options = Marabou.createOptions(timeoutInSeconds=MARABOU_SECONDS, verbosity=0)
    for other in range(model[-1].out_features):
        if other == label:
            continue
        query = MarabouCore.InputQuery()
        last = encode(query, model, x, radius)
        wrong = MarabouCore.Equation(MarabouCore.Equation.GE)
        wrong.addAddend(1.0, last + other)
        wrong.addAddend(-1.0, last + label)
        wrong.setScalar(0.0)
        query.addEquation(wrong)
        code, _, _ = MarabouCore.solve(query, options, "")
        if code != PROVED:
            return str(code)
    return PROVED


def encode(query: Any, model: nn.Sequential, x: torch.Tensor, radius: float) -> int:
    """Write a network and its ball into a query; the number of the first output variable."""
    from maraboupy import MarabouCore

    linears = [layer for layer in model if isinstance(layer, nn.Linear)]
    hidden = sum(layer.out_features for layer in linears[:-1])
    query.setNumberOfVariables(len(x) + 2 * hidden + linears[-1].out_features)
    for i, value in enumerate(x.tolist()):
        query.setLowerBound(i, value - radius)
        query.setUpperBound(i, value + radius)
    source = 0
    first = len(x)
    for layer in linears:
        for i, row in enumerate(layer.weight.tolist()):
            equation = MarabouCore.Equation(MarabouCore.Equation.EQ)
            for j, weight in enumerate(row):
                equation.addAddend(weight, source + j)
            equation.addAddend(-1.0, first + i)
            equation.setScalar(-float(layer.bias[i]))
            query.addEquation(equation)
        if layer is linears[-1]:
            return first
        size = layer.out_features
        for i in range(size):
            MarabouCore.addReluConstraint(query, first + i, first + size + i)
            query.setLowerBound(first + size + i, 0.0)
        source = first + size
        first += 2 * size
    raise AssertionError("a network has layers")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("table", choices=["global", "local", "radius"])
    table = parser.parse_args().table
    {"global": whole_space, "local": balls, "radius": radii}[table]()


if __name__ == "__main__":
    main()
