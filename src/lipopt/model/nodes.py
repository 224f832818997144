"""The nodes of a network: its input, affine maps and activations.

    Affine      y = M_1 x_1 + M_2 x_2 + ... + b      dense, convolution, pooling, normalization, sums, concatenation
    Activation  y = sigma(x), elementwise

Weights are kept as they were stored (float32 or float64, dense or sparse); arithmetic is in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import ClassVar, TypeAlias

import numpy as np

from ..numerics.arrays import Array, Matrix
from .activations import Function, check


@dataclass(frozen=True)
class Input:
    """The network's input, flattened in C order from `shape`."""

    shape: tuple[int, ...]
    sources: ClassVar[tuple[int, ...]] = ()

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, eq=False)
class Affine:
    """y = sum of matrix @ source, plus bias."""

    name: str
    sources: tuple[int, ...]
    matrices: tuple[Matrix, ...] = field(repr=False)
    bias: Array = field(repr=False)

    @property
    def size(self) -> int:
        return len(self.bias)

    @property
    def terms(self) -> Iterator[tuple[int, Matrix]]:
        """Each source with its matrix."""
        return zip(self.sources, self.matrices, strict=True)


@dataclass(frozen=True, eq=False)
class Activation:
    """y = sigma(source), elementwise; parameters are numbers, or arrays with one entry a neuron."""

    name: str
    source: int
    size: int
    kind: str
    parameters: Mapping[str, Array | float] = field(default_factory=dict)

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.source,)

    @cached_property
    def function(self) -> Function:
        """sigma."""
        return Function(self.kind, self.parameters)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", check(self.kind, self.parameters))


Node: TypeAlias = Input | Affine | Activation


def value_of(node: Affine | Activation, values: Sequence[Array]) -> Array:
    """The values of a node, given those of the nodes before it: a column for each input."""
    if isinstance(node, Activation):
        return node.function.value(values[node.source].T).T
    inputs = values[0].shape[1]
    total = np.repeat(node.bias.astype(np.float64)[:, None], inputs, axis=1)
    for source, matrix in node.terms:
        total += matrix @ values[source]
    return total
