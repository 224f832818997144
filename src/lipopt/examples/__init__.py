"""The networks that ship with lipopt, and digits to try them on.

The paper's MNIST network (784-300-100-10, ELU), dense and pruned to 5 % of its weights."""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np

from ..model.network import Network
from ..numerics.arrays import Array

LABEL = 8  # the class whose constants the paper's table gives


def example(name: str) -> Network:
    """A network that ships with the package: "dense" or "pruned"."""
    with as_file(files("lipopt.examples") / f"{name}.safetensors") as path:
        return Network.load(path)


def digits() -> tuple[Array, Array]:
    """Twenty MNIST test digits, pixels in [0, 1], and their labels."""
    with as_file(files("lipopt.examples") / "digits.npz") as path, np.load(path) as file:
        return file["images"] / 255.0, file["labels"]
