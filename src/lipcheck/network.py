"""The network file: safetensors with the graph as JSON in its metadata. Floats become fractions or integer ratios, exactly;
NaN and infinity have none, which is an error."""

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import inf, isinf, prod
from typing import Any

from .exact import Failure, Matrix, align, require
from .functions import KINDS, Function

FORMAT = "lipopt-network-1"
LARGEST_INPUT = 10**8  # entries
TYPES = {"F32": "f", "F64": "d", "I32": "i", "I64": "q"}

Tensors = dict[str, tuple[list[int], list[Any]]]  # shapes and entries


@dataclass(frozen=True)
class Node:
    """The input; or an affine node, with inputs and a bias; or an activation, with a source and functions."""

    kind: str
    size: int
    inputs: Sequence[tuple[int, Matrix]] = ()  # sources and matrices
    bias: Sequence[Fraction] = ()
    source: int = 0
    functions: Sequence[Function] = ()  # one a neuron


@dataclass(frozen=True)
class Network:
    nodes: list[Node]
    activations: dict[int, Node]  # those nodes that are
    sha256: str


def read_network(data: bytes) -> Network:
    nodes, tensors, start = list[Node](), Tensors(), 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:start], object_pairs_hook=_once)
        graph = json.loads(header.pop("__metadata__")["lipopt"], object_pairs_hook=_once)
        for name, entry in header.items():
            shape, (begin, end) = [_count(n) for n in entry["shape"]], [start + _count(n) for n in entry["data_offsets"]]
            tensors[name] = shape, list(struct.unpack(f"<{prod(shape)}{TYPES[entry['dtype']]}", data[begin:end]))
        require(graph["format"] == FORMAT and graph["nodes"], f"the network has no nodes, or its format is not {FORMAT}")
        for i, entry in enumerate(graph["nodes"]):
            nodes.append(_node(i, entry, nodes, tensors))
            require(nodes[i].size > 0, f"node {i} is empty")
        require(not tensors, f"tensors belong to no node: {', '.join(sorted(tensors))}")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, ArithmeticError, struct.error) as error:
        raise Failure("malformed", f"not a network file of lipopt (safetensors): {type(error).__name__} {error}") from None
    return Network(nodes, {i: node for i, node in enumerate(nodes) if node.functions}, hashlib.sha256(data).hexdigest())


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    require(len(dict(pairs)) == len(pairs), "a key occurs twice in the network's JSON")
    return dict(pairs)


def _count(value: Any, below: float = inf) -> int:
    require(type(value) is int and 0 <= value < below, f"{value!r:.50} is not a count, is too large, or not an earlier node")
    return value


def _node(i: int, entry: dict[str, Any], before: list[Node], tensors: Tensors) -> Node:
    """Takes away the tensors that it uses."""
    op = entry["op"]
    require((op == "input") == (i == 0), "the first node of a network, and no other, is its input")
    if op == "input":
        return Node("input", _count(prod(_count(n) for n in entry["shape"]), LARGEST_INPUT + 1))
    if op == "affine":
        shape, bias = tensors.pop(f"{i}.bias")
        sources = [_count(source, i) for source in entry["sources"]]
        valid = len(set(sources)) == len(sources) and shape == [len(bias)]
        require(valid, f"node {i} names a source twice, or its bias is not a vector")
        inputs = [(s, _matrix(f"{i}.{k}", len(bias), before[s].size, tensors)) for k, s in enumerate(sources)]
        return Node("affine", len(bias), inputs, [Fraction(v) for v in bias])
    kind, source = entry["kind"], _count(entry["source"], i)
    require(op == "activation" and kind in KINDS, f"node {i} is of a kind that is not known")
    size, (names, function) = before[source].size, KINDS[kind]
    columns = [_parameter(f"{i}.{name}", size, kind == "clip", tensors) for name in names]
    built = cache(function)
    return Node(kind, size, source=source, functions=[built(*(column[k] for column in columns)) for k in range(size)])


def _matrix(prefix: str, height: int, width: int, tensors: Tensors) -> Matrix:
    if f"{prefix}.dense" in tensors:
        shape, values = tensors.pop(f"{prefix}.dense")
        require(shape == [height, width], f"the matrix {prefix} does not fit its nodes")
        starts, columns = list(range(0, height * width + 1, width)), list(range(width)) * height
    else:
        parts = [tensors.pop(f"{prefix}.{name}") for name in ("data", "indptr", "indices")]
        require(all(len(shape) == 1 for shape, _ in parts), f"the matrix {prefix} is not made of vectors")
        values, starts, columns = (entries for _, entries in parts)
    valid = len(starts) == height + 1 and starts[0] == 0 and starts[-1] == len(values) == len(columns)
    valid = valid and starts == sorted(starts) and all(0 <= j < width and type(j) is int for j in columns)
    require(valid, f"the matrix {prefix} is inconsistent")
    integers, exponent = align(values)
    rows: list[dict[int, int]] = [{} for _ in range(height)]
    for row, begin, end in zip(rows, starts, starts[1:], strict=False):
        for j, n in zip(columns[begin:end], integers[begin:end], strict=True):
            if n:
                row[j] = row.get(j, 0) + n
    return Matrix(rows, width, exponent)


def _parameter(name: str, size: int, infinite: bool, tensors: Tensors) -> list[Any]:
    """One number a neuron, or one for all; the ends of clip may be infinite."""
    shape, values = tensors.pop(name)
    require(shape in ([], [size]), f"the parameter {name} is not a number, or one a neuron")
    numbers = [v if infinite and isinf(v) else Fraction(v) for v in values]
    return numbers if shape else numbers * size
