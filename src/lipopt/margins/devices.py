"""Backward passes on a torch device: the arrays that they need are copied there, the bounds back.

The code that runs is the same as for NumPy arrays, and so are the error bounds: they hold for sums of
float64 products in any order, which is how torch multiplies in float64 on CPUs and GPUs. TensorFloat32
is for float32 alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..model.network import Network
from ..model.nodes import Activation, Affine
from ..numerics.arrays import Matrix
from ..numerics.devices import as_sparse_tensor, as_tensor, import_torch
from .backward import Functions, Sizes
from .balls import Balls


@dataclass(frozen=True, eq=False)
class Weights:
    """The nodes of a network, with matrices and biases on a device."""

    nodes: list[Any]
    activations: dict[int, Activation]


class Device:
    """A torch device, and the weights of a network on it."""

    def __init__(self, name: str, network: Network) -> None:
        import_torch(name)
        self.name = name
        nodes: list[Any] = []
        for node in network.nodes:
            if isinstance(node, Affine):
                matrices = tuple(self._matrix(matrix) for matrix in node.matrices)
                node = replace(node, matrices=matrices, bias=self.tensor(node.bias))
            nodes.append(node)
        self.weights: Any = Weights(nodes, network.activations)

    def tensor(self, values: Any) -> Any:
        return as_tensor(values, self.name)

    def _matrix(self, matrix: Matrix) -> Any:
        is_dense = isinstance(matrix, np.ndarray)
        return self.tensor(matrix) if is_dense else as_sparse_tensor(matrix, self.name)

    def balls(self, balls: Balls) -> Balls:
        return replace(
            balls,
            lower=self.tensor(balls.lower),
            upper=self.tensor(balls.upper),
            centers=self.tensor(balls.centers),
            radii=self.tensor(balls.radii),
            scale=None if balls.scale is None else self.tensor(balls.scale),
        )

    def sizes(self, sizes: Sizes) -> Sizes:
        return Sizes(
            [self.tensor(part) for part in sizes.magnitude],
            [self.tensor(part) for part in sizes.reach],
            [self.tensor(part) for part in sizes.dust],
        )

    def functions(self, functions: Functions) -> Functions:
        rows = {k: self.tensor(row) for k, row in functions.rows.items()}
        return Functions(rows, self.tensor(functions.constant), self.tensor(functions.owners))
