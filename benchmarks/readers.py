"""How long reading takes, and the comparison with the model, beside running it in onnxruntime.

    python benchmarks/readers.py [MODEL.onnx ...]

Without arguments, networks are made: dense, convolutional, residual.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import lipopt

REPEATS = 3  # the best of so many runs counts


class Residual(nn.Module):
    """Two convolutions beside an identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.norm(self.first(x)))
        return torch.relu(x + self.second(inner))


def dense() -> tuple[nn.Module, tuple[int, ...]]:
    layers = (nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return nn.Sequential(*layers), (784,)


def convolutional() -> tuple[nn.Module, tuple[int, ...]]:
    layers = (
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 8 * 8, 10),
    )
    return nn.Sequential(*layers), (3, 32, 32)


def residual() -> tuple[nn.Module, tuple[int, ...]]:
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    blocks = [Residual(16) for _ in range(4)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), *blocks, *head), (3, 32, 32)


def seconds(work: Callable[[], object]) -> float:
    """The shortest time of several runs."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def run_once(path: Path) -> None:
    """What a user would do to see values: load the model in onnxruntime, and run it."""
    session = onnxruntime.InferenceSession(str(path))
    (start,) = session.get_inputs()
    shape = [n if isinstance(n, int) else 1 for n in start.shape]
    session.run(None, {start.name: np.zeros(shape, np.float32)})


def row(name: str, path: Path, module: nn.Module | None, shape: tuple[int, ...]) -> list[str]:
    plain = seconds(lambda: lipopt.load(path, check=False))
    checked = seconds(lambda: lipopt.load(path))
    runtime = seconds(lambda: run_once(path))
    exported = "-"
    if module is not None:
        exported = f"{seconds(lambda: lipopt.load(module, input_shape=shape)):.2f}"
    times = [f"{t:.3f}" for t in (runtime, plain, checked)]
    return [name, str(lipopt.load(path).neurons), *times, f"{checked / plain:.1f}", exported]


def main() -> None:
    table = Table(title="seconds")
    for heading in (
        "model",
        "neurons",
        "onnxruntime, one run",
        "read",
        "read and compare",
        "ratio",
    ):
        table.add_column(heading)
    table.add_column("as a torch module, compared")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for argument in sys.argv[1:]:
            table.add_row(*row(Path(argument).name, Path(argument), None, ()))
        for make in (dense, convolutional, residual) if len(sys.argv) == 1 else ():
            module, shape = make()
            path = Path(folder) / f"{make.__name__}.onnx"
            example = torch.zeros(1, *shape)
            torch.onnx.export(module.eval(), (example,), path, dynamo=False)
            table.add_row(*row(make.__name__, path, module, shape))
    Console().print(table)


if __name__ == "__main__":
    main()
