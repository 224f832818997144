"""The network file: section 5 of spec/certificate.md.

Floats become fractions or integer ratios, exactly. Infinity and NaN have none: an error.
"""

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import inf, isinf, prod
from typing import Any, NamedTuple

from .exact import Matrix, align
from .functions import KINDS, Function
from .verdicts import MALFORMED, Failure, require

FORMAT = "lipopt-network-1"
LENGTH_BYTES = 8  # at the start of the file: the length of the header
LARGEST_INPUT = 10**8  # entries, so that a short file cannot ask for endless memory
TYPES = {"F32": "f", "F64": "d", "I32": "i", "I64": "q"}  # letters of the module struct

# What Python raises where JSON or tensors are not what the code below takes them for.
STRUCTURE_ERRORS = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
NUMBER_ERRORS = (ArithmeticError, struct.error)


class Tensor(NamedTuple):
    """Entries in C order, floats or integers."""

    shape: list[int]
    entries: list[Any]


Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Node:
    """The input; or an affine node, with inputs and a bias; or an activation, with a source and
    functions."""

    kind: str
    size: int
    inputs: Sequence[tuple[int, Matrix]] = ()  # sources, and their matrices
    bias: Sequence[Fraction] = ()
    source: int = 0
    functions: Sequence[Function] = ()  # one a neuron

    @property
    def is_activation(self) -> bool:
        return self.kind not in ("input", "affine")


@dataclass(frozen=True, eq=False)
class Network:
    """Nodes in the order of the file; the first is the input, the last the output."""

    nodes: list[Node]
    activations: dict[int, Node]  # the activation nodes, by index
    sha256: str

    @property
    def input_size(self) -> int:
        return self.nodes[0].size

    @property
    def output_size(self) -> int:
        return self.nodes[-1].size


def read_network(data: bytes) -> Network:
    """The network in a file of these bytes."""
    try:
        graph, tensors = _read_safetensors(data)
        nodes = _read_nodes(graph, tensors)
    except (*STRUCTURE_ERRORS, *NUMBER_ERRORS) as error:
        reason = f"not a network file of lipopt (safetensors): {type(error).__name__} {error}"
        raise Failure(MALFORMED, reason) from None
    activations = {i: node for i, node in enumerate(nodes) if node.is_activation}
    return Network(nodes, activations, hashlib.sha256(data).hexdigest())


def _read_safetensors(data: bytes) -> tuple[dict[str, Any], Tensors]:
    """Section 5, first paragraph: the graph, which is JSON in the metadata, and all tensors."""
    start = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
    header = json.loads(data[LENGTH_BYTES:start], object_pairs_hook=_keys_once)
    metadata = header.pop("__metadata__")
    graph = json.loads(metadata["lipopt"], object_pairs_hook=_keys_once)
    tensors = {}
    for name, entry in header.items():
        shape = [_count(length) for length in entry["shape"]]
        begin, end = [start + _count(offset) for offset in entry["data_offsets"]]
        letter = TYPES[entry["dtype"]]
        entries = struct.unpack(f"<{prod(shape)}{letter}", data[begin:end])
        tensors[name] = Tensor(shape, list(entries))
    return graph, tensors


def _keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; with a key twice, two readers might see two networks in one file."""
    result = dict(pairs)
    require(len(result) == len(pairs), "a key occurs twice in the network's JSON")
    return result


def _count(value: Any, below: float = inf) -> int:
    """A number from JSON that is a whole number, not negative, and below the limit."""
    valid = type(value) is int and 0 <= value < below
    require(valid, f"{value!r:.50} is not a count, is too large, or not an earlier node")
    return value


def _read_nodes(graph: dict[str, Any], tensors: Tensors) -> list[Node]:
    """Section 5, the table of nodes: every tensor belongs to one of them."""
    known = graph["format"] == FORMAT and graph["nodes"]
    require(known, f"the network has no nodes, or its format is not {FORMAT}")
    unused = dict(tensors)
    nodes: list[Node] = []
    for i, entry in enumerate(graph["nodes"]):
        node = _read_node(i, entry, nodes, unused)
        require(node.size > 0, f"node {i} is empty")
        nodes.append(node)
    require(not unused, f"tensors belong to no node: {', '.join(sorted(unused))}")
    return nodes


def _read_node(i: int, entry: dict[str, Any], before: list[Node], unused: Tensors) -> Node:
    """Node i. The tensors that it uses are taken away from the unused ones."""
    op = entry["op"]
    require((op == "input") == (i == 0), "the first node of a network, and no other, is its input")
    if op == "input":
        size = prod(_count(length) for length in entry["shape"])
        return Node("input", _count(size, LARGEST_INPUT + 1))
    if op == "affine":
        return _read_affine(i, entry, before, unused)
    return _read_activation(i, entry, before, unused)


def _read_affine(i: int, entry: dict[str, Any], before: list[Node], unused: Tensors) -> Node:
    """Section 5, `affine`: matrices for its sources, and a bias."""
    shape, bias = unused.pop(f"{i}.bias")
    sources = [_count(source, i) for source in entry["sources"]]
    valid = len(set(sources)) == len(sources) and shape == [len(bias)]
    require(valid, f"node {i} names a source twice, or its bias is not a vector")
    inputs = []
    for k, source in enumerate(sources):
        matrix = _read_matrix(f"{i}.{k}", len(bias), before[source].size, unused)
        inputs.append((source, matrix))
    return Node("affine", len(bias), inputs, [Fraction(value) for value in bias])


def _read_activation(i: int, entry: dict[str, Any], before: list[Node], unused: Tensors) -> Node:
    """Section 5, `activation`: a function for every neuron."""
    kind = entry["kind"]
    source = _count(entry["source"], i)
    known = entry["op"] == "activation" and kind in KINDS
    require(known, f"node {i} is of a kind that is not known")
    size = before[source].size
    parameters, build = KINDS[kind]
    columns = []
    for name in parameters:
        columns.append(_read_parameter(f"{i}.{name}", size, kind == "clip", unused))
    build_once = cache(build)  # neurons with the same parameters share one function
    functions = []
    for k in range(size):
        values = [column[k] for column in columns]
        functions.append(build_once(*values))
    return Node(kind, size, source=source, functions=functions)


def _read_matrix(prefix: str, height: int, width: int, unused: Tensors) -> Matrix:
    """Section 5, tensors of an affine node: a dense matrix, or three vectors in CSR form."""
    if f"{prefix}.dense" in unused:
        shape, entries = unused.pop(f"{prefix}.dense")
        require(shape == [height, width], f"the matrix {prefix} does not fit its nodes")
        starts = list(range(0, height * width + 1, width))
        columns = list(range(width)) * height
    else:
        data = unused.pop(f"{prefix}.data")
        indptr = unused.pop(f"{prefix}.indptr")
        indices = unused.pop(f"{prefix}.indices")
        are_vectors = len(data.shape) == len(indptr.shape) == len(indices.shape) == 1
        require(are_vectors, f"the matrix {prefix} is not made of vectors")
        entries = data.entries
        starts = indptr.entries
        columns = indices.entries
        ascending = len(starts) == height + 1 and starts[0] == 0 and starts == sorted(starts)
        complete = ascending and starts[-1] == len(entries) == len(columns)
        in_range = all(type(j) is int and 0 <= j < width for j in columns)
        require(complete and in_range, f"the matrix {prefix} is inconsistent")
    integers, exponent = align(entries)
    rows = []
    for begin, end in pairwise(starts):
        row: dict[int, int] = {}
        for j, value in zip(columns[begin:end], integers[begin:end], strict=True):
            if value:
                row[j] = row.get(j, 0) + value
        rows.append(row)
    return Matrix(rows, width, exponent)


def _read_parameter(name: str, size: int, may_be_infinite: bool, unused: Tensors) -> list[Any]:
    """Section 5, tensors of an activation: one number a neuron, or one for all."""
    shape, entries = unused.pop(name)
    require(shape in ([], [size]), f"the parameter {name} is not a number, or one a neuron")
    numbers: list[Any] = []
    for value in entries:
        if may_be_infinite and isinf(value):
            numbers.append(value)
        else:
            numbers.append(Fraction(value))
    if shape == []:
        return numbers * size
    return numbers
