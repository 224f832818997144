"""What `lipopt demo` shows: the paper's MNIST network (784-300-100-10, ELU), dense and pruned to 5 % of its weights."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

import numpy as np

from . import tables
from .api import Progress, compare
from .domain import Ball
from .errors import LipoptError
from .network import Network
from .rounding import Array

LABEL = 8  # the class of the paper's table
METHODS = ("product", "path-sum", "lip-sdp", "sdp", "lipopt-3")


def example(name: str) -> Network:
    """A network that ships with the package: "dense" or "pruned"."""
    with as_file(files("lipopt") / "data" / f"{name}.safetensors") as path:
        return Network.load(path)


def digits() -> tuple[Array, Array]:
    """Twenty MNIST test digits, pixels in [0, 1], and their labels."""
    with as_file(files("lipopt") / "data" / "digits.npz") as path, np.load(path) as file:
        return file["images"] / 255.0, file["labels"]


def run(console: Any, progress: Progress | None) -> None:
    """Global constants of both networks, then local ones around a digit."""
    images, labels = digits()
    for name in ("pruned", "dense"):
        network = example(name)
        right = (network.forward(images).argmax(axis=1) == labels).sum()
        console.rule(f"{name} MNIST network (784-300-100-10, ELU), {right} of {len(labels)} digits right", align="left")
        for domain in (None, *(Ball(images[2 * LABEL], radius, clip=(0, 1)) for radius in (0.01, 0.1))):
            refused: list[tuple[str, str]] = []

            def note(method: str, error: LipoptError, refused: list[tuple[str, str]] = refused) -> None:
                refused.append((method, str(error)))

            options: dict[str, Any] = {"output": LABEL, "domain": domain, "samples": 2000, "methods": METHODS, "time_limit": 5}
            tables.show(console, compare(network, progress=progress, on_refusal=note, **options), refused)
            console.print()
