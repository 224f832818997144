"""The file of a network: safetensors, with the graph as JSON in its metadata.

The network's hash is the SHA-256 of this file. lipcheck reads it on its own: section 5 of spec/certificate.md.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..numerics.arrays import Array, Matrix
from ..numerics.convolution import Convolution
from .activations import check
from .nodes import Activation, Affine, Input, Node
from .tensor_file import Tensor, file_pieces

FORMAT = "lipopt-network-1"
TYPES = ("F32", "F64", "I32", "I64")  # of the tensors in a file
LARGEST_INPUT = 10**8  # entries; a file may declare any number, and arrays of that size are made


def file_of(nodes: Sequence[Node]) -> Iterator[bytes]:
    """The bytes of the file of a network with these nodes, some at a time."""
    tensors: dict[str, Tensor] = {}
    graph: list[dict[str, Any]] = []
    for i, node in enumerate(nodes):
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
    document = json.dumps({"format": FORMAT, "nodes": graph}, separators=(",", ":"), sort_keys=True)
    return file_pieces(tensors, "lipopt", document)


def read_nodes(path: str | Path) -> tuple[Node, ...]:
    """The nodes of a network that is stored in a file.

    Raises:
        LipoptError: the file is not there, or is not such a network."""
    graph, tensors = _read_file(path)
    nodes = tuple(_read_nodes(graph, tensors))
    if tensors:
        raise LipoptError(f"tensors belong to no node: {', '.join(sorted(tensors))}")
    return nodes


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
