"""The network file: safetensors with the graph as JSON in its metadata. Weights are read as integers times powers of two."""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

from .exact import MOST_ENTRIES, Matrix, power
from .failures import LimitExceeded, Malformed
from .functions import FUNCTIONS, PARAMETERS, Function, function

FORMAT = "lipopt-network-1"
MOST_BYTES = 2**31
MOST_NODES = 100_000
FLOATS = {"F32": ("I", 8, 23), "F64": ("Q", 11, 52)}  # type code of the bits; bits of exponent and fraction
INTEGERS = {"I32": "i", "I64": "q"}
HEXADECIMAL = re.compile(r"(-?)0x([01])\.([0-9a-f]{1,13})p([+-]\d{1,4})")


@dataclass(frozen=True)
class Input:
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Affine:
    sources: tuple[int, ...]
    matrices: tuple[Matrix, ...]
    bias: list[Fraction]

    @property
    def size(self) -> int:
        return len(self.bias)


@dataclass(frozen=True)
class Activation:
    source: int
    kind: str
    functions: list[Function]  # one a neuron

    @property
    def size(self) -> int:
        return len(self.functions)


Node: TypeAlias = Input | Affine | Activation


@dataclass(frozen=True)
class Network:
    nodes: list[Node]
    sha256: str

    @cached_property
    def read_by_activation(self) -> set[int]:
        return {node.source for node in self.nodes if isinstance(node, Activation)}


def read_bytes(path: str, most: int) -> bytes:
    try:
        if Path(path).stat().st_size > most:
            raise LimitExceeded(f"{path} is larger than {most} bytes")
        return Path(path).read_bytes()
    except OSError as error:
        raise Malformed(f"cannot read {path}: {error.strerror}") from None


def read_network(path: str) -> Network:
    data = read_bytes(path, MOST_BYTES)
    try:
        tensors, document = _open(data)
        entries = _json(document)
        if entries["format"] != FORMAT:
            raise Malformed(f"the network's format is not {FORMAT}")
        if len(entries["nodes"]) > MOST_NODES:
            raise LimitExceeded(f"a network of more than {MOST_NODES} nodes")
        nodes: list[Node] = []
        for i, entry in enumerate(entries["nodes"]):
            nodes.append(_node(i, entry, nodes, tensors))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Malformed(f"the network file is not valid: {type(error).__name__} {error}") from None
    if not nodes:
        raise Malformed("the network has no nodes")
    return Network(nodes, hashlib.sha256(data).hexdigest())


def _json(text: bytes | str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise Malformed("a key occurs twice in the network's JSON")
        return result

    return json.loads(text, object_pairs_hook=once)


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def words(self, code: str) -> Sequence[int]:
        values = array(code)
        values.frombytes(self.data)
        if array("H", [1]).tobytes() == b"\0\1":
            values.byteswap()  # files are little-endian
        return values

    def integers(self) -> list[int]:
        return list(self.words(INTEGERS[self.dtype]))

    def numbers(self, infinite: bool = False) -> list[tuple[int, int] | None]:
        """(n, e) for n 2^e, read from the bits of a float; None for an infinite one, where that is allowed."""
        code, exponent_bits, fraction_bits = FLOATS[self.dtype]
        top = (1 << exponent_bits) - 1
        base = 1 - (top >> 1) - fraction_bits
        result: list[tuple[int, int] | None] = []
        for word in self.words(code):
            fraction, exponent = word & ((1 << fraction_bits) - 1), (word >> fraction_bits) & top
            if exponent == top and (fraction or not infinite):
                raise Malformed("a weight or parameter is NaN or infinite")
            if exponent:
                fraction |= 1 << fraction_bits
            sign = -1 if word >> (fraction_bits + exponent_bits) else 1
            result.append(None if exponent == top else (sign * fraction, base + max(exponent, 1) - 1))
        return result

    def fractions(self, infinite: bool = False) -> list[Fraction | None]:
        return [None if pair is None else pair[0] * power(pair[1]) for pair in self.numbers(infinite)]


def _open(data: bytes) -> tuple[dict[str, Tensor], str]:
    """The tensors of a safetensors file, and the document in its metadata."""
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or start > len(data):
        raise Malformed("the network file is truncated")
    header = _json(data[8:start])
    document = header.pop("__metadata__")["lipopt"]
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        shape = tuple(_count(n) for n in entry["shape"])
        width = {"F32": 4, "I32": 4, "F64": 8, "I64": 8}[entry["dtype"]]
        if not 0 <= begin <= end <= len(data) - start or prod(shape) * width != end - begin:
            raise Malformed(f"tensor '{name}' does not fit its place in the file")
        tensors[name] = Tensor(entry["dtype"], shape, data[start + begin : start + end])
    return tensors, document


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise Malformed(f"{value!r} is not a count")
    return value


def _node(i: int, entry: dict[str, Any], before: list[Node], tensors: dict[str, Tensor]) -> Node:
    node: Node
    if (entry["op"] == "input") != (i == 0):
        raise Malformed("the first node of a network, and no other, is its input")
    if entry["op"] == "input":
        node = Input(tuple(_count(n) for n in entry["shape"]))
    elif entry["op"] == "affine":
        node = _affine(i, entry, before, tensors)
    elif entry["op"] == "activation":
        source = _source(entry["source"], before)
        names = PARAMETERS.get(entry["kind"], ())
        if entry["kind"] not in FUNCTIONS or sorted([*entry["numbers"], *entry["arrays"]]) != sorted(names):
            raise Malformed(f"node {i}: an activation or its parameters are not known")
        size = before[source].size
        columns = [_parameter(i, name, entry, size, tensors) for name in names]
        parameters = zip(*columns, strict=True) if columns else [()] * size
        node = Activation(source, entry["kind"], [function(entry["kind"], p) for p in parameters])
    else:
        raise Malformed(f"node {i} is neither input, affine nor activation")
    if node.size == 0:
        raise Malformed(f"node {i} is empty")
    if node.size > MOST_ENTRIES:
        raise LimitExceeded(f"node {i} has more than {MOST_ENTRIES} entries")
    return node


def _source(value: Any, before: list[Node]) -> int:
    if _count(value) >= len(before):
        raise Malformed("a source is not an earlier node")
    return int(value)


def _affine(i: int, entry: dict[str, Any], before: list[Node], tensors: dict[str, Tensor]) -> Affine:
    bias = [Fraction(b or 0) for b in tensors[f"{i}.bias"].fractions()]
    sources = tuple(_source(s, before) for s in entry["sources"])
    if len(set(sources)) != len(sources) or tensors[f"{i}.bias"].shape != (len(bias),):
        raise Malformed(f"node {i} names a source twice, or its bias is not a vector")
    matrices = []
    for k, (source, layout) in enumerate(zip(sources, entry["layouts"], strict=True)):
        shape = (len(bias), before[source].size)
        if prod(shape) > MOST_ENTRIES and layout == "dense":
            raise LimitExceeded(f"node {i} has a matrix with more than {MOST_ENTRIES} entries")
        triplets = {"dense": _dense, "csr": _csr}[layout](f"{i}.{k}", shape, tensors)
        matrices.append(_matrix(triplets, shape))
    return Affine(sources, tuple(matrices), bias)


def _matrix(triplets: Iterator[tuple[int, int, tuple[int, int]]], shape: tuple[int, int]) -> Matrix:
    stored = [(i, j, n, e) for i, j, (n, e) in triplets if n]
    exponent = min((e for _, _, _, e in stored), default=0)
    rows: list[dict[int, int]] = [{} for _ in range(shape[0])]
    for i, j, n, e in stored:
        rows[i][j] = rows[i].get(j, 0) + (n << (e - exponent))
    return Matrix(rows, shape[1], exponent)


def _dense(prefix: str, shape: tuple[int, int], tensors: dict[str, Tensor]) -> Iterator[tuple[int, int, Any]]:
    tensor = tensors[f"{prefix}.dense"]
    if tensor.shape != shape:
        raise Malformed(f"the matrix {prefix} does not fit its nodes")
    return ((*divmod(position, shape[1]), pair) for position, pair in enumerate(tensor.numbers()))


def _csr(prefix: str, shape: tuple[int, int], tensors: dict[str, Tensor]) -> Iterator[tuple[int, int, Any]]:
    data = tensors[f"{prefix}.data"].numbers()
    columns, starts = tensors[f"{prefix}.indices"].integers(), tensors[f"{prefix}.indptr"].integers()
    valid = len(starts) == shape[0] + 1 and starts[0] == 0 and starts[-1] == len(data) == len(columns)
    if not valid or starts != sorted(starts) or any(not 0 <= j < shape[1] for j in columns):
        raise Malformed(f"the sparse matrix {prefix} is inconsistent")
    return ((i, columns[k], data[k]) for i in range(shape[0]) for k in range(starts[i], starts[i + 1]))


def _parameter(i: int, name: str, entry: dict[str, Any], size: int, tensors: dict[str, Tensor]) -> list[Fraction | None]:
    """The values of a parameter, one a neuron; None if infinite, as the bounds of clip may be."""
    infinite = {"low": "-inf", "high": "inf"}.get(name)
    if name in entry["numbers"]:
        text = entry["numbers"][name]
        return [None if text == infinite else _hexadecimal(text)] * size
    tensor = tensors[f"{i}.{name}"]
    if tensor.shape != (size,) or tensor.dtype != "F64":
        raise Malformed(f"parameter '{name}' of node {i} does not have one float64 entry a neuron")
    wrong = {"-inf": 0x7FF << 52, "inf": 0xFFF << 52}.get(str(infinite))
    if wrong in tensor.words("Q"):
        raise Malformed(f"parameter '{name}' of node {i} is infinite")
    return tensor.fractions(infinite is not None)


def _hexadecimal(text: str) -> Fraction:
    match = HEXADECIMAL.fullmatch(text)
    if match is None:
        raise Malformed(f"{text!r} is not a hexadecimal float")
    sign, whole, fraction, exponent = match.groups()
    value = int(whole + fraction, 16) * power(int(exponent) - 4 * len(fraction))
    return -value if sign else value
