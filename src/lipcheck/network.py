"""The network file: safetensors with the graph as JSON in its metadata. Floats become fractions or integer ratios, exactly;
NaN and infinity have none, which is an error."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from array import array
from dataclasses import dataclass
from fractions import Fraction
from math import inf, prod
from typing import Any, TypeAlias

from .exact import Failure, Matrix, Vector, require
from .functions import KINDS, Function

FORMAT = "lipopt-network-1"
MOST_NEURONS = 1_000_000  # of a node
TYPES = {"F32": "f", "F64": "d", "I32": "i", "I64": "q"}
HEXADECIMAL = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[+-]\d{1,4}")


@dataclass(frozen=True)
class Input:
    size: int
    kind = "input"


@dataclass(frozen=True)
class Affine:
    size: int
    inputs: list[tuple[int, Matrix]]  # source and matrix
    bias: Vector
    kind = "affine"


@dataclass(frozen=True)
class Activation:
    size: int
    source: int
    kind: str
    functions: list[Function]  # one a neuron


Node: TypeAlias = Input | Affine | Activation


@dataclass(frozen=True)
class Network:
    nodes: list[Node]
    sha256: str


Tensors = dict[str, tuple[list[int], "array[Any]"]]  # shapes and entries


def read_network(data: bytes) -> Network:
    nodes: list[Node] = []
    try:
        tensors, document = _open(data)
        graph = _json(document)
        require(graph["format"] == FORMAT and graph["nodes"], f"the network has no nodes, or its format is not {FORMAT}")
        for i, entry in enumerate(graph["nodes"]):
            nodes.append(_node(i, entry, nodes, tensors))
            require(0 < nodes[i].size <= MOST_NEURONS, f"node {i} is empty or has over {MOST_NEURONS} entries", "limits exceeded")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, ArithmeticError) as error:
        raise Failure("malformed", f"the network file is not valid: {type(error).__name__} {error}") from None
    return Network(nodes, hashlib.sha256(data).hexdigest())


def _json(text: bytes | str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        require(len(dict(pairs)) == len(pairs), "a key occurs twice in the network's JSON")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=once)


def _open(data: bytes) -> tuple[Tensors, str]:
    """The tensors of a safetensors file, and the document in its metadata."""
    start = 8 + int.from_bytes(data[:8], "little")
    require(8 <= start <= len(data), "the network file is truncated")
    header, place = _json(data[8:start]), start
    document = header.pop("__metadata__")["lipopt"]
    tensors: Tensors = {}
    for name, entry in sorted(header.items(), key=lambda item: [_count(n) for n in item[1]["data_offsets"]]):
        (begin, end), shape = entry["data_offsets"], [_count(n) for n in entry["shape"]]
        values = array(TYPES[entry["dtype"]])
        fits = (start + begin, end - begin) == (place, prod(shape) * values.itemsize)
        require(fits, f"tensor '{name}' does not fit its place in the file")
        values.frombytes(data[place : start + end])
        if sys.byteorder == "big":
            values.byteswap()
        tensors[name] = shape, values
        place = start + end
    require(place == len(data), "the tensors do not fill the network file")
    return tensors, document


def _entries(tensors: Tensors, name: str, types: str) -> list[Any]:
    require(tensors[name][1].typecode in types, f"the type of tensor '{name}' is wrong")
    return tensors[name][1].tolist()


def _count(value: Any, below: float = inf) -> int:
    require(type(value) is int and 0 <= value < below, f"{value!r} is not a count, or not an earlier node")
    return value


def _node(i: int, entry: dict[str, Any], before: list[Node], tensors: Tensors) -> Node:
    require((entry["op"] == "input") == (i == 0), "the first node of a network, and no other, is its input")
    if entry["op"] == "input":
        return Input(prod(_count(n) for n in entry["shape"]))
    if entry["op"] == "affine":
        bias = [Fraction(v) for v in _entries(tensors, f"{i}.bias", "fd")]
        sources = [_count(source, i) for source in entry["sources"]]
        once = len(set(sources)) == len(sources) and tensors[f"{i}.bias"][0] == [len(bias)]
        require(once, f"node {i} names a source twice, or its bias is not a vector")
        pairs = enumerate(zip(sources, entry["layouts"], strict=True))
        inputs = [(s, _matrix(f"{i}.{k}", len(bias), before[s].size, layout, tensors)) for k, (s, layout) in pairs]
        return Affine(len(bias), inputs, bias)
    require(entry["op"] == "activation" and entry["kind"] in KINDS, f"node {i} is of a kind that is not known")
    source = _count(entry["source"], i)
    return Activation(before[source].size, source, entry["kind"], _functions(i, entry, before[source].size, tensors))


def _matrix(prefix: str, height: int, width: int, layout: str, tensors: Tensors) -> Matrix:
    if layout == "dense":
        data = f"{prefix}.dense"
        require(tensors[data][0] == [height, width], f"the matrix {prefix} does not fit its nodes")
        starts, columns = list(range(0, height * width + 1, width)), list(range(width)) * height
    else:
        data = f"{prefix}.data"
        starts, columns = (_entries(tensors, f"{prefix}.{name}", "iq") for name in ("indptr", "indices"))
    ratios = [value.as_integer_ratio() for value in _entries(tensors, data, "fd")]  # denominators are powers of two
    valid = len(starts) == height + 1 and starts[0] == 0 and starts[-1] == len(ratios) == len(columns)
    valid = valid and starts == sorted(starts) and all(0 <= j < width for j in columns)
    require(valid, f"the matrix {prefix} is inconsistent")
    common = max((d for _, d in ratios), default=1)
    rows: list[dict[int, int]] = [{} for _ in range(height)]
    for row, begin, end in zip(rows, starts, starts[1:], strict=False):
        for j, (n, d) in zip(columns[begin:end], ratios[begin:end], strict=True):
            if n:
                row[j] = row.get(j, 0) + n * (common // d)
    return Matrix(rows, width, 1 - common.bit_length())


def _functions(i: int, entry: dict[str, Any], size: int, tensors: Tensors) -> list[Function]:
    """The activation of every neuron; parameters are numbers or arrays."""
    names, build = KINDS[entry["kind"]]
    require(sorted([*entry["numbers"], *entry["arrays"]]) == sorted(names), f"the parameters of node {i} are not {names}")
    columns: list[Vector] = []
    for name in names:
        if name in entry["numbers"]:
            columns.append([_hexadecimal(name, entry["numbers"][name])] * size)
        else:
            columns.append([Fraction(v) for v in _entries(tensors, f"{i}.{name}", "fd")])
        require(len(columns[-1]) == size, f"parameter '{name}' of node {i} does not have one entry a neuron")
    parameters = list(zip(*columns, strict=True)) if names else [()] * size
    built = {values: build(*values) for values in set(parameters)}
    return [built[values] for values in parameters]


def _hexadecimal(name: str, text: str) -> Any:
    """The double that C99 writes so, or an infinite end of clip."""
    if (name, text) in (("low", "-inf"), ("high", "inf")):
        return float(text)
    require(HEXADECIMAL.fullmatch(text) is not None, f"{text!r} is not a hexadecimal float")
    return Fraction(float.fromhex(text))
