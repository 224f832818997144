"""The network file: safetensors with the graph as JSON in its metadata. Weights are read as integers times powers of two."""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

from .exact import LimitExceeded, Malformed, Matrix, Vector, power
from .functions import KINDS, Function, function

FORMAT = "lipopt-network-1"
MOST_BYTES = 2**31
MOST_NEURONS = 1_000_000  # of a node
TYPES = {"F32": "I", "F64": "Q", "I32": "i", "I64": "q"}  # type codes; floats are taken as their bits
FLOATS = {"F32": (8, 23), "F64": (11, 52)}  # bits of exponent and fraction
HEXADECIMAL = re.compile(r"(-?)0x([01])\.([0-9a-f]{1,13})p([+-]\d{1,4})")


@dataclass(frozen=True)
class Input:
    size: int
    shape: list[int]


@dataclass(frozen=True)
class Affine:
    size: int
    inputs: list[tuple[int, Matrix]]  # source and matrix
    bias: Vector


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


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: list[int]
    data: bytes

    def words(self) -> list[int]:
        """The entries, floats as their bits."""
        values = array(TYPES[self.dtype])
        values.frombytes(self.data)
        if array("H", [1]).tobytes() == b"\0\1":
            values.byteswap()  # files are little-endian
        return list(values)

    def integers(self) -> list[int]:
        if self.dtype in FLOATS:
            raise Malformed("the indices of a sparse matrix are not integers")
        return self.words()

    def numbers(self) -> list[tuple[int, int]]:
        """(n, e) for every float n 2^e."""
        exponent_bits, fraction_bits = FLOATS[self.dtype]
        top, hidden = (1 << exponent_bits) - 1, 1 << fraction_bits
        lowest = 1 - (top >> 1) - fraction_bits
        result = []
        for word in self.words():
            fraction, exponent = word & (hidden - 1), (word >> fraction_bits) & top
            if exponent == top:
                raise Malformed("a weight or parameter is NaN or infinite")
            fraction += hidden if exponent else 0
            result.append((-fraction if word >> (exponent_bits + fraction_bits) else fraction, lowest + max(exponent - 1, 0)))
        return result


def read_bytes(path: str, most: int) -> bytes:
    try:
        if Path(path).stat().st_size > most:
            raise LimitExceeded(f"{path} is larger than {most} bytes")
        return Path(path).read_bytes()
    except OSError as error:
        raise Malformed(f"cannot read {path}: {error.strerror}") from None


def read_network(data: bytes) -> Network:
    nodes: list[Node] = []
    try:
        tensors, document = _open(data)
        graph = _json(document)
        if graph["format"] != FORMAT or not graph["nodes"]:
            raise Malformed(f"the network has no nodes, or its format is not {FORMAT}")
        for i, entry in enumerate(graph["nodes"]):
            nodes.append(_node(i, entry, nodes, tensors))
            if not 0 < nodes[i].size <= MOST_NEURONS:
                raise LimitExceeded(f"node {i} has {nodes[i].size} entries; 1 to {MOST_NEURONS} are allowed")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Malformed(f"the network file is not valid: {type(error).__name__} {error}") from None
    return Network(nodes, hashlib.sha256(data).hexdigest())


def _json(text: bytes | str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise Malformed("a key occurs twice in the network's JSON")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=once)


def _open(data: bytes) -> tuple[dict[str, Tensor], str]:
    """The tensors of a safetensors file, and the document in its metadata."""
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or start > len(data):
        raise Malformed("the network file is truncated")
    place = start
    header = _json(data[8:start])
    document = header.pop("__metadata__")["lipopt"]
    tensors = {}
    for name, entry in sorted(header.items(), key=lambda item: [_count(n) for n in item[1]["data_offsets"]]):
        (begin, end), shape = entry["data_offsets"], [_count(n) for n in entry["shape"]]
        if (start + begin, end - begin) != (place, prod(shape) * array(TYPES[entry["dtype"]]).itemsize):
            raise Malformed(f"tensor '{name}' does not fit its place in the file")
        tensors[name] = Tensor(entry["dtype"], shape, data[place : start + end])
        place = start + end
    if place != len(data):
        raise Malformed("the tensors do not fill the network file")
    return tensors, document


def _count(value: Any, below: int | None = None) -> int:
    if type(value) is not int or value < 0 or (below is not None and value >= below):
        raise Malformed(f"{value!r} is not a count, or not an earlier node")
    return value


def _node(i: int, entry: dict[str, Any], before: list[Node], tensors: dict[str, Tensor]) -> Node:
    if (entry["op"] == "input") != (i == 0):
        raise Malformed("the first node of a network, and no other, is its input")
    if entry["op"] == "input":
        shape = [_count(n) for n in entry["shape"]]
        return Input(prod(shape), shape)
    if entry["op"] == "affine":
        bias = [n * power(e) for n, e in tensors[f"{i}.bias"].numbers()]
        sources = [_count(source, i) for source in entry["sources"]]
        if len(set(sources)) != len(sources) or tensors[f"{i}.bias"].shape != [len(bias)]:
            raise Malformed(f"node {i} names a source twice, or its bias is not a vector")
        pairs = enumerate(zip(sources, entry["layouts"], strict=True))
        inputs = [(s, _matrix(f"{i}.{k}", (len(bias), before[s].size), layout, tensors)) for k, (s, layout) in pairs]
        return Affine(len(bias), inputs, bias)
    if entry["op"] == "activation" and entry["kind"] in KINDS:
        source = _count(entry["source"], i)
        size = before[source].size
        return Activation(size, source, entry["kind"], _functions(i, entry, size, tensors))
    raise Malformed(f"node {i} is of a kind that is not known")


def _matrix(prefix: str, shape: tuple[int, int], layout: str, tensors: dict[str, Tensor]) -> Matrix:
    if layout == "dense":
        data, width = tensors[f"{prefix}.dense"], shape[1]
        if data.shape != list(shape):
            raise Malformed(f"the matrix {prefix} does not fit its nodes")
        starts, columns = list(range(0, prod(shape) + 1, width)), list(range(width)) * shape[0]
    else:
        data = tensors[f"{prefix}.data"]
        starts, columns = tensors[f"{prefix}.indptr"].integers(), tensors[f"{prefix}.indices"].integers()
    numbers = data.numbers()
    exponent = min((e for n, e in numbers if n), default=0)
    valid = len(starts) == shape[0] + 1 and starts[0] == 0 and starts[-1] == len(numbers) == len(columns)
    if not valid or starts != sorted(starts) or any(not 0 <= j < shape[1] for j in columns):
        raise Malformed(f"the matrix {prefix} is inconsistent")
    rows: list[dict[int, int]] = [{} for _ in range(shape[0])]
    for row, begin, end in zip(rows, starts, starts[1:], strict=False):
        for j, (n, e) in zip(columns[begin:end], numbers[begin:end], strict=True):
            if n:
                row[j] = row.get(j, 0) + (n << (e - exponent))
    return Matrix(rows, shape[1], exponent)


def _functions(i: int, entry: dict[str, Any], size: int, tensors: dict[str, Tensor]) -> list[Function]:
    """The activation of every neuron; parameters are numbers or arrays."""
    names = KINDS[entry["kind"]].parameters
    if sorted([*entry["numbers"], *entry["arrays"]]) != sorted(names):
        raise Malformed(f"the parameters of node {i} are not {names}")
    columns: list[list[Fraction | None]] = []
    for name in names:
        if name in entry["numbers"]:
            columns.append([_hexadecimal(name, entry["numbers"][name])] * size)
        else:
            columns.append([n * power(e) for n, e in tensors[f"{i}.{name}"].numbers()])
        if len(columns[-1]) != size:
            raise Malformed(f"parameter '{name}' of node {i} does not have one entry a neuron")
    return [function(entry["kind"], values) for values in (zip(*columns, strict=True) if names else [()] * size)]


def _hexadecimal(name: str, text: str) -> Fraction | None:
    """The number that C99 writes so; None for an infinite bound of clip."""
    if (name, text) in (("low", "-inf"), ("high", "inf")):
        return None
    match = HEXADECIMAL.fullmatch(text)
    if match is None:
        raise Malformed(f"{text!r} is not a hexadecimal float")
    sign, whole, fraction, exponent = match.groups()
    value = int(whole + fraction, 16) * power(int(exponent) - 4 * len(fraction))
    return -value if sign else value
