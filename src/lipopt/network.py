"""Network: a frozen feed-forward graph with exact weights, as every reader produces it.

Node 0 is the input, the last node is the output, and every other node takes its values from earlier ones:

    Affine      y = M_1 x_1 + M_2 x_2 + ... + b      dense, convolution, pooling, normalization, sums, concatenation
    Activation  y = sigma(x), elementwise

Weights are kept as they were stored (float32 or float64, dense or sparse); arithmetic is in float64. The file format
is safetensors with the graph as JSON in its metadata; the network's hash is the SHA-256 of that file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from . import activations
from .errors import LipoptError
from .rounding import Array, Matrix
from .tensors import as_array

FORMAT = "lipopt-network-1"
SPARSE_BELOW = 0.25  # density under which a matrix is kept as CSR


@dataclass(frozen=True)
class Input:
    """The network's input, flattened in C order from `shape`."""

    shape: tuple[int, ...]

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", activations.check(self.kind, self.parameters))


Node: TypeAlias = Input | Affine | Activation


@dataclass(frozen=True)
class Source:
    """Where a network was read from."""

    files: Mapping[str, str]  # the names of the files, and their SHA-256
    part: str = ""  # in words, which part of the model, if not all of it


def tidy(matrix: Any) -> Matrix:
    """A matrix in the form it is kept in: float32 or float64, dense or CSR, no stored zeros."""
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    if sp.issparse(matrix):
        sparse = sp.csr_array(matrix)
        sparse.sum_duplicates()
        sparse.eliminate_zeros()
        return sparse.toarray() if sparse.nnz > SPARSE_BELOW * prod(sparse.shape) else sparse
    if np.count_nonzero(matrix) <= SPARSE_BELOW * matrix.size:
        return sp.csr_array(matrix)
    return np.ascontiguousarray(matrix)


@dataclass(frozen=True, eq=False)
class Network:
    """A feed-forward network. Use `lipopt.load` to make one."""

    nodes: tuple[Node, ...]
    source: Source | None = None

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
                    raise LipoptError(f"activation '{node.name}': parameters must be numbers or have one entry a neuron")

    def _check_affine(self, i: int, node: Affine) -> None:
        if len(node.sources) != len(node.matrices) or len(set(node.sources)) != len(node.sources):
            raise LipoptError(f"layer '{node.name}' must have one matrix a source")
        for source, matrix in zip(node.sources, node.matrices, strict=True):
            if not 0 <= source < i or matrix.shape != (node.size, self.nodes[source].size):
                raise LipoptError(f"layer '{node.name}': a matrix of shape {matrix.shape} does not fit its source")
            if not np.isfinite(matrix.data if sp.issparse(matrix) else matrix).all():
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
        """Whether one input may have this shape: the network's or flat, or, if the network takes flat inputs, any of its size.

        Dimensions of size 1 do not matter."""
        given, wanted = ([n for n in s if n != 1] for s in (shape, self.input_shape))
        return given in (wanted, [self.input_size]) or (len(wanted) < 2 and prod(given) == self.input_size)

    @property
    def input_size(self) -> int:
        """The number of inputs."""
        return self.nodes[0].size

    @property
    def output_size(self) -> int:
        """The number of outputs."""
        return self.nodes[-1].size

    @property
    def neurons(self) -> int:
        """The number of activation units."""
        return sum(node.size for node in self.nodes if isinstance(node, Activation))

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For every node, the nodes that read it."""
        lists: list[list[int]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for source in () if isinstance(node, Input) else node.sources:
                lists[source].append(i)
        return tuple(tuple(row) for row in lists)

    def forward(self, x: Any) -> Array:
        """Outputs for a batch of inputs (in the network's shape, or flat), or for a single one."""
        x = np.asarray(as_array(x), dtype=np.float64)
        single = x.shape in (self.input_shape, (self.input_size,)) or not (x.ndim and self.takes(x.shape[1:]))
        if single and not self.takes(x.shape):
            raise LipoptError(f"inputs of shape {x.shape} do not fit a network that takes {self.input_shape}, or a batch of that")
        y = self.node_values(x.reshape(-1, self.input_size).T)[-1].T
        return y[0] if single else y

    __call__ = forward

    def node_values(self, columns: Array) -> list[Array]:
        """The values of every node; a column for each input."""
        values: list[Array] = []
        for node in self.nodes:
            if isinstance(node, Input):
                values.append(columns)
            elif isinstance(node, Affine):
                total = np.repeat(node.bias.astype(np.float64)[:, None], columns.shape[1], axis=1)
                for source, matrix in zip(node.sources, node.matrices, strict=True):
                    total += matrix @ values[source]
                values.append(total)
            else:
                values.append(activations.value(node.kind, values[node.source].T, node.parameters).T)
        return values

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the network's file."""
        return hashlib.sha256(self._serialize()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the network to a file (safetensors, the graph in its metadata)."""
        Path(path).write_bytes(self._serialize())

    def _serialize(self) -> bytes:
        from safetensors.numpy import save

        tensors: dict[str, Any] = {}
        graph: list[dict[str, Any]] = []
        for i, node in enumerate(self.nodes):
            if isinstance(node, Input):
                graph.append({"op": "input", "shape": list(node.shape)})
            elif isinstance(node, Affine):
                for k, matrix in enumerate(node.matrices):
                    tensors.update(_matrix_tensors(f"{i}.{k}", matrix))
                tensors[f"{i}.bias"] = np.ascontiguousarray(node.bias)
                graph.append({"op": "affine", "name": node.name, "sources": list(node.sources)})
            else:
                tensors.update({f"{i}.{name}": np.array(p, dtype=np.float64) for name, p in node.parameters.items()})
                graph.append({"op": "activation", "name": node.name, "source": node.source, "kind": node.kind})
        document = json.dumps({"format": FORMAT, "nodes": graph}, separators=(",", ":"), sort_keys=True)
        return save(tensors, metadata={"lipopt": document})

    @staticmethod
    def load(path: str | Path) -> Network:
        """Read a network written by `save`."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="np") as file:
                document = (file.metadata() or {}).get("lipopt")
                if document is None:
                    raise LipoptError(f"{path} is a safetensors file without a lipopt graph; export the model to ONNX instead")
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            graph = json.loads(document)
            if graph.get("format") != FORMAT:
                raise LipoptError(f"{path} has format {graph.get('format')!r}, this version reads {FORMAT!r}")
            network = Network(tuple(_read_nodes(graph["nodes"], tensors)))
        except (SafetensorError, json.JSONDecodeError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise LipoptError(f"{path} is not a valid network file: {error}") from error
        if tensors:
            raise LipoptError(f"{path} holds tensors that belong to no node: {', '.join(sorted(tensors))}")
        return network


def _matrix_tensors(prefix: str, matrix: Matrix) -> dict[str, Any]:
    if not sp.issparse(matrix):
        return {f"{prefix}.dense": np.ascontiguousarray(matrix)}
    return {
        f"{prefix}.data": matrix.data,
        f"{prefix}.indices": matrix.indices.astype(np.int32),
        f"{prefix}.indptr": matrix.indptr.astype(np.int64),
    }


def _read_nodes(entries: Sequence[Mapping[str, Any]], tensors: dict[str, Any]) -> Iterator[Node]:
    """The nodes; takes away the tensors that they use."""
    sizes: list[int] = []
    for i, entry in enumerate(entries):
        node: Node
        if entry["op"] == "input":
            node = Input(tuple(int(n) for n in entry["shape"]))
        elif entry["op"] == "affine":
            bias = tensors.pop(f"{i}.bias")
            shapes = [(len(bias), sizes[source]) for source in entry["sources"]]
            matrices = tuple(_read_matrix(f"{i}.{k}", shape, tensors) for k, shape in enumerate(shapes))
            node = Affine(str(entry["name"]), tuple(entry["sources"]), matrices, bias)
        elif entry["op"] == "activation":
            kind, source = entry["kind"], int(entry["source"])
            parameters = {name: tensors.pop(f"{i}.{name}")[()] for name in activations.check(kind, {})}
            node = Activation(str(entry["name"]), source, sizes[source], kind, parameters)
        else:
            raise LipoptError(f"node {i} of the network file has unknown kind {entry['op']!r}")
        sizes.append(node.size)
        yield node


def _read_matrix(prefix: str, shape: tuple[int, int], tensors: dict[str, Any]) -> Matrix:
    if f"{prefix}.dense" in tensors:
        return np.asarray(tensors.pop(f"{prefix}.dense"))
    data, indices, indptr = (tensors.pop(f"{prefix}.{part}") for part in ("data", "indices", "indptr"))
    valid = len(indptr) == shape[0] + 1 and indptr[0] == 0 and indptr[-1] == len(data) == len(indices)
    if not valid or (np.diff(indptr) < 0).any() or (indices < 0).any() or (indices >= shape[1]).any():
        raise LipoptError(f"the sparse matrix {prefix} of the network file is inconsistent")
    return sp.csr_array((data, indices, indptr), shape=shape)
