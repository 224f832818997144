"""Network: a frozen feed-forward graph with exact weights, as every reader produces it.

Node 0 is the input, the last node is the output, and every other node (nodes.py) takes its values from
earlier ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import LipoptError
from ..numerics.arrays import Array, as_array, stored
from .network_file import file_of, read_nodes
from .nodes import Activation, Affine, Input, Node, value_of


@dataclass(frozen=True)
class Source:
    """Where a network was read from."""

    files: Mapping[str, str]  # the names of the files, and their SHA-256
    part: str = ""  # in words, which part of the model, if not all of it
    # If the model has several inputs: their names and sizes, in the order in which they are joined.
    inputs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Network:
    """A feed-forward network with exact weights. Use `lipopt.load` to make one.

    Args:
        nodes: the input first, the output last; each node reads earlier ones.
        source: the files that the network was read from, if any, and which part of the model.

    Raises:
        LipoptError: the nodes do not fit each other, or a weight is NaN or infinite.

    Examples:
        >>> import lipopt
        >>> network = lipopt.load([[[1.0, -1.0], [2.0, 1.0]], [[1.0, -1.0]]])
        >>> network.input_size, network.output_size, network.neurons, network.weights
        (2, 1, 2, 6)
        >>> network([1.0, 0.0])
        array([-1.])
        >>> len(network.hash)
        64
    """

    nodes: tuple[Node, ...]
    source: Source | None = None

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.input_shape))
        return f"<Network: {shape} inputs, {self.neurons:,} neurons, {self.output_size} outputs>"

    def __post_init__(self) -> None:
        if not self.nodes or not isinstance(self.nodes[0], Input):
            raise LipoptError("a network starts with its input")
        for i, node in enumerate(self.nodes):
            if node.size == 0:
                raise LipoptError(f"node {i} of the network is empty (size 0)")
            if i and isinstance(node, Input):
                raise LipoptError("a network has one input")
            if isinstance(node, Affine):
                self._check_affine(i, node)
            if isinstance(node, Activation):
                if not 0 <= node.source < i or self.nodes[node.source].size != node.size:
                    raise LipoptError(f"activation '{node.name}' does not fit its source")
                if any(np.shape(p) not in ((), (node.size,)) for p in node.parameters.values()):
                    raise LipoptError(
                        f"activation '{node.name}': parameters must be numbers or have one entry a neuron"
                    )

    def _check_affine(self, i: int, node: Affine) -> None:
        if len(node.sources) != len(node.matrices) or len(set(node.sources)) != len(node.sources):
            raise LipoptError(f"layer '{node.name}' must have one matrix a source")
        for source, matrix in node.terms:
            if not 0 <= source < i or matrix.shape != (node.size, self.nodes[source].size):
                raise LipoptError(
                    f"layer '{node.name}': a matrix of shape {matrix.shape} does not fit its source"
                )
            if not np.isfinite(stored(matrix)).all():
                raise LipoptError(f"layer '{node.name}' has weights that are NaN or infinite")
        if not np.isfinite(node.bias).all():
            raise LipoptError(f"layer '{node.name}' has biases that are NaN or infinite")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, without a batch dimension."""
        node = self.nodes[0]
        assert isinstance(node, Input)
        return node.shape

    def takes(self, shape: Sequence[int]) -> bool:
        """Whether one input may have this shape.

        That is the network's shape, or flat, or any shape of the right size if the network takes
        flat inputs. Dimensions of size 1 do not matter."""
        given, wanted = ([n for n in s if n != 1] for s in (shape, self.input_shape))
        return given in (wanted, [self.input_size]) or (
            len(wanted) < 2 and prod(given) == self.input_size
        )

    @property
    def input_size(self) -> int:
        """The number of inputs."""
        return self.nodes[0].size

    def join_inputs(self, values: Mapping[str, Any]) -> Array:
        """Values of the inputs of a model that has several, by name, as one flat input of the network.

        What it returns can be a center, a bound of a box, or a scale.

        Args:
            values: for the name of every input, its entries, or a number that stands for all of them.

        Raises:
            LipoptError: a name is missing or unknown, or an input has another number of entries.

        Examples:
            A network that was read from a model with the inputs "state" and "torque":

            >>> import lipopt
            >>> from lipopt.model.network import Input, Network, Source
            >>> source = Source({}, inputs={"state": 2, "torque": 1})
            >>> network = Network((Input((3,)),), source)
            >>> network.join_inputs({"state": [0.1, 0.0], "torque": 0.5})
            array([0.1, 0. , 0.5])
        """
        sizes = {} if self.source is None else self.source.inputs
        if not sizes:
            raise LipoptError("the network was read from a model with one input, which has no name")
        if values.keys() != sizes.keys():
            raise LipoptError(
                f"give a value for each of the inputs {', '.join(sizes)}, and no other"
            )
        parts = []
        for name, size in sizes.items():
            part = np.asarray(as_array(values[name]), dtype=np.float64)
            if part.ndim > 0 and part.size != size:
                raise LipoptError(f"input '{name}' has {size} entries, got {part.size}")
            parts.append(np.broadcast_to(part.reshape(-1), size))
        return np.concatenate(parts)

    @property
    def output_size(self) -> int:
        """The number of outputs."""
        return self.nodes[-1].size

    @property
    def widest(self) -> int:
        """The size of the largest node."""
        return max(node.size for node in self.nodes)

    @property
    def weights(self) -> int:
        """The number of stored weights."""
        affine = [node for node in self.nodes if isinstance(node, Affine)]
        return sum(int(matrix.size) for node in affine for matrix in node.matrices)

    @property
    def neurons(self) -> int:
        """The number of activation units."""
        return sum(node.size for node in self.activations.values())

    @cached_property
    def activations(self) -> dict[int, Activation]:
        """The activation nodes, by their numbers."""
        found = {}
        for i, node in enumerate(self.nodes):
            if isinstance(node, Activation):
                found[i] = node
        return found

    @property
    def is_piecewise_linear(self) -> bool:
        """Whether all activations are."""
        return all(node.function.is_piecewise_linear for node in self.activations.values())

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For every node, the nodes that read it."""
        lists: list[list[int]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for source in node.sources:
                lists[source].append(i)
        return tuple(tuple(row) for row in lists)

    def forward(self, x: Any) -> Array:
        """The network's outputs, in float64; calling the network does the same.

        Args:
            x: one input, or a batch of them along the first axis; in the network's shape, or flat.

        Returns:
            The outputs: a vector for one input, a row for every input of a batch.

        Raises:
            LipoptError: the shape does not fit the network.

        Examples:
            >>> import lipopt
            >>> network = lipopt.load([[[1.0, -1.0]], [[2.0]]])
            >>> network.forward([[1.0, 0.0], [0.0, 1.0]])
            array([[2.],
                   [0.]])
        """
        x = np.asarray(as_array(x), dtype=np.float64)
        single = x.shape in (self.input_shape, (self.input_size,)) or not (
            x.ndim and self.takes(x.shape[1:])
        )
        if single and not self.takes(x.shape):
            raise LipoptError(
                f"inputs of shape {x.shape} do not fit a network that takes {self.input_shape}, or a batch of that"
            )
        y = self.node_values(x.reshape(-1, self.input_size).T)[-1].T
        return y[0] if single else y

    __call__ = forward

    def node_values(self, columns: Array) -> list[Array]:
        """The values of every node, in the order of `nodes`.

        Args:
            columns: an array (input_size, inputs), a column for each input.

        Returns:
            An array (node.size, inputs) for each node."""
        values: list[Array] = []
        for node in self.nodes:
            values.append(columns if isinstance(node, Input) else value_of(node, values))
        return values

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the network's file."""
        digest = hashlib.sha256()
        for piece in file_of(self.nodes):
            digest.update(piece)
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the network to a file: safetensors, with the graph in its metadata.

        This is the file that a certificate is about: lipcheck reads it, and `hash` is its SHA-256.

        Args:
            path: where to write it; a file that is there is overwritten."""
        with Path(path).open("wb") as file:
            file.writelines(file_of(self.nodes))

    @staticmethod
    def load(path: str | Path) -> Network:
        """Read a network that `save` has written.

        Raises:
            LipoptError: the file is not there, or is not such a network."""
        try:
            return Network(read_nodes(path))
        except LipoptError as error:
            raise LipoptError(f"{path} is not a valid network file: {error}") from error
