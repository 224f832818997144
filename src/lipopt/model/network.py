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
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..numerics.arrays import Array, Matrix, as_array, stored
from ..numerics.convolution import Convolution
from .activations import Function, check
from .tensor_file import Tensor, file_pieces

FORMAT = "lipopt-network-1"
TYPES = ("F32", "F64", "I32", "I64")  # of the tensors in a file
LARGEST_INPUT = 10**8  # entries; a file may declare any number, and arrays of that size are made


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
        for piece in self._file_pieces():
            digest.update(piece)
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the network to a file: safetensors, with the graph in its metadata.

        This is the file that a certificate is about: lipcheck reads it, and `hash` is its SHA-256.

        Args:
            path: where to write it; a file that is there is overwritten."""
        with Path(path).open("wb") as file:
            file.writelines(self._file_pieces())

    def _file_pieces(self) -> Iterator[bytes]:
        """The bytes of the file, some at a time."""
        tensors: dict[str, Tensor] = {}
        graph: list[dict[str, Any]] = []
        for i, node in enumerate(self.nodes):
            if isinstance(node, Input):
                graph.append({"op": "input", "shape": list(node.shape)})
            elif isinstance(node, Affine):
                for k, matrix in enumerate(node.matrices):
                    tensors.update(_matrix_tensors(f"{i}.{k}", matrix))
                tensors[f"{i}.bias"] = Tensor.of(node.bias)
                graph.append({"op": "affine", "name": node.name, "sources": list(node.sources)})
            else:
                for name, p in node.parameters.items():
                    tensors[f"{i}.{name}"] = Tensor.of(np.array(p, dtype=np.float64))
                graph.append(
                    {
                        "op": "activation",
                        "name": node.name,
                        "source": node.source,
                        "kind": node.kind,
                    }
                )
        document = json.dumps(
            {"format": FORMAT, "nodes": graph}, separators=(",", ":"), sort_keys=True
        )
        return file_pieces(tensors, "lipopt", document)

    @staticmethod
    def load(path: str | Path) -> Network:
        """Read a network that `save` has written.

        Raises:
            LipoptError: the file is not there, or is not such a network."""
        try:
            graph, tensors = _read_file(path)
            network = Network(tuple(_read_nodes(graph, tensors)))
            if tensors:
                raise LipoptError(f"tensors belong to no node: {', '.join(sorted(tensors))}")
        except LipoptError as error:
            raise LipoptError(f"{path} is not a valid network file: {error}") from error
        return network


def _matrix_tensors(prefix: str, matrix: Matrix) -> dict[str, Tensor]:
    if isinstance(matrix, np.ndarray):
        return {f"{prefix}.dense": Tensor.of(matrix)}
    if sp.issparse(matrix):
        return {
            f"{prefix}.data": Tensor.of(matrix.data),
            f"{prefix}.indices": Tensor.of(matrix.indices.astype(np.int32)),
            f"{prefix}.indptr": Tensor.of(matrix.indptr.astype(np.int64)),
        }
    starts = np.concatenate([[0], np.cumsum(matrix.entries_by_row())])
    shape = (matrix.size,)
    return {
        f"{prefix}.data": Tensor(matrix.dtype, shape, lambda: _parts(matrix, "data")),
        f"{prefix}.indices": Tensor(np.dtype(np.int32), shape, lambda: _parts(matrix, "indices")),
        f"{prefix}.indptr": Tensor.of(starts.astype(np.int64)),
    }


def _parts(matrix: Convolution, name: Literal["data", "indices"]) -> Iterator[Array]:
    """The values of a convolution's matrix, or their columns, some rows at a time."""
    for part in matrix.row_parts():
        yield part.data if name == "data" else part.indices.astype(np.int32)


def _read_file(path: str | Path) -> tuple[list[Any], dict[str, Array]]:
    """The nodes of the graph as they are stored, and the tensors."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="np") as file:
            metadata = file.metadata() or {}
            with Path(path).open("rb") as stored:
                length = int.from_bytes(stored.read(8), "little")
                header = json.loads(stored.read(length), object_pairs_hook=_once)
            for name in file.keys():  # noqa: SIM118
                kind = header[name]["dtype"]
                if kind not in TYPES:
                    raise LipoptError(
                        f"tensor '{name}' is of type {kind}, none of {', '.join(TYPES)}"
                    )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if "lipopt" not in metadata:
            raise LipoptError("it has no lipopt graph; export the model to ONNX instead")
        graph = json.loads(metadata["lipopt"], object_pairs_hook=_once)
    except LipoptError:
        raise
    except SafetensorError as error:
        raise LipoptError(str(error)) from error
    except RecursionError as error:
        raise LipoptError("its JSON is nested too deeply") from error
    except ValueError as error:
        raise LipoptError(f"its graph is not JSON: {error}") from error
    if not isinstance(graph, dict) or graph.get("format") != FORMAT:
        raise LipoptError(f"the format of its graph is not {FORMAT}, which this version reads")
    if not isinstance(graph.get("nodes"), list):
        raise LipoptError("its graph has no list of nodes")
    return graph["nodes"], tensors


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object none of whose keys occurs twice."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise LipoptError("a key occurs twice in its JSON")
    return entries


def _read_nodes(entries: Sequence[Any], tensors: dict[str, Array]) -> Iterator[Node]:
    """The nodes; takes away the tensors that they use."""
    sizes: list[int] = []
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise LipoptError(f"node {i} is not described by a JSON object")
        node = _read_node(i, entry, sizes, tensors)
        sizes.append(node.size)
        yield node


def _read_node(
    i: int, entry: Mapping[str, Any], sizes: Sequence[int], tensors: dict[str, Array]
) -> Node:
    op = entry.get("op")
    if op == "input":
        return Input(_input_shape(entry.get("shape")))
    if op not in ("affine", "activation"):
        raise LipoptError(f"node {i} is of an unknown kind, {reprlib.repr(op)}")
    name = entry.get("name")
    if not isinstance(name, str):
        raise LipoptError(f"node {i} has no name")
    if op == "affine":
        return _read_affine(i, name, entry.get("sources"), sizes, tensors)
    kind = entry.get("kind")
    source = _source(i, entry.get("source"))
    if not isinstance(kind, str):
        raise LipoptError(f"node {i} does not say what activation it is")
    parameters = {key: _floats(tensors, f"{i}.{key}")[()] for key in check(kind, {})}
    return Activation(name, source, sizes[source], kind, parameters)


def _input_shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape):
        shown = reprlib.repr(shape)
        raise LipoptError(f"the shape of its input, {shown}, is no list of positive whole numbers")
    if prod(shape) > LARGEST_INPUT:
        raise LipoptError(f"its input has more than the {LARGEST_INPUT:,} entries that are read")
    return tuple(shape)


def _source(i: int, source: Any) -> int:
    if type(source) is not int or not 0 <= source < i:
        raise LipoptError(f"node {i} has a source {reprlib.repr(source)}, which is no earlier node")
    return source


def _read_affine(
    i: int, name: str, sources: Any, sizes: Sequence[int], tensors: dict[str, Array]
) -> Affine:
    if not isinstance(sources, list):
        raise LipoptError(f"node {i} has no list of sources")
    bias = _floats(tensors, f"{i}.bias")
    if bias.ndim != 1:
        raise LipoptError(f"tensor '{i}.bias' has shape {bias.shape}, and is no vector")
    shapes = [(len(bias), sizes[_source(i, source)]) for source in sources]
    matrices = tuple(_read_matrix(f"{i}.{k}", shape, tensors) for k, shape in enumerate(shapes))
    return Affine(name, tuple(sources), matrices, bias)


def _read_matrix(prefix: str, shape: tuple[int, int], tensors: dict[str, Array]) -> Matrix:
    if f"{prefix}.dense" in tensors:
        return _floats(tensors, f"{prefix}.dense")
    data = _floats(tensors, f"{prefix}.data")
    indices = _take(tensors, f"{prefix}.indices")
    starts = _take(tensors, f"{prefix}.indptr")
    vectors = data.ndim == indices.ndim == starts.ndim == 1
    if not vectors or indices.dtype.kind != "i" or starts.dtype.kind != "i":
        raise LipoptError(f"the sparse matrix {prefix} has parts that are no vectors, or fractions")
    valid = (
        len(starts) == shape[0] + 1 and starts[0] == 0 and starts[-1] == len(data) == len(indices)
    )
    if (
        not valid
        or (np.diff(starts) < 0).any()
        or (indices < 0).any()
        or (indices >= shape[1]).any()
    ):
        raise LipoptError(f"the sparse matrix {prefix} is inconsistent")
    matrix = sp.csr_array((data, indices, starts), shape=shape)
    sorted_ = matrix.sorted_indices()
    rows = np.repeat(np.arange(shape[0]), np.diff(starts))
    repeated = (np.diff(sorted_.indices) == 0) & (np.diff(rows) == 0)
    if repeated.any():  # their sum would have to be rounded
        raise LipoptError(f"the sparse matrix {prefix} has two entries in one place")
    return matrix


def _take(tensors: dict[str, Array], name: str) -> Array:
    if name not in tensors:
        raise LipoptError(f"it has no tensor '{name}'")
    return tensors.pop(name)


def _floats(tensors: dict[str, Array], name: str) -> Array:
    """A tensor of floats; whole numbers are converted, if that is exact."""
    stored = _take(tensors, name)
    if stored.dtype.kind == "f":
        return stored
    converted = stored.astype(np.float64)
    if (np.abs(converted) >= 2.0**53).any():
        raise LipoptError(f"tensor '{name}' has whole numbers that are too large to be floats")
    return converted
