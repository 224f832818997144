"""Safetensors files piece by piece: the matrices of large convolutions do not fit in memory.

The bytes are those that the package safetensors writes: the length of the header, the header as
JSON, padded with spaces to a multiple of 8, and the tensors, ordered by type and then by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..numerics.arrays import Array

# The types of tensors, in the order in which a file has them.
KINDS: dict[np.dtype[Any], str] = {
    np.dtype(np.int64): "I64",
    np.dtype(np.float64): "F64",
    np.dtype(np.float32): "F32",
    np.dtype(np.int32): "I32",
}


@dataclass(frozen=True)
class Tensor:
    """A tensor whose entries come in parts, one after the other."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Callable[[], Iterator[Array]]

    @staticmethod
    def of(array: Array) -> Tensor:
        """An array, in one part."""
        return Tensor(array.dtype, array.shape, lambda: iter([array]))


def file_pieces(tensors: Mapping[str, Tensor], key: str, document: str) -> Iterator[bytes]:
    """The bytes of a file with these tensors, and with one document in its metadata."""
    kinds = list(KINDS)
    order = sorted(tensors, key=lambda name: (kinds.index(tensors[name].dtype), name))
    header: dict[str, Any] = {"__metadata__": {key: document}}
    start = 0
    for name in order:
        tensor = tensors[name]
        end = start + prod(tensor.shape) * tensor.dtype.itemsize
        header[name] = {
            "dtype": KINDS[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        start = end
    written = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    written += b" " * (-len(written) % 8)
    yield len(written).to_bytes(8, "little")
    yield written
    for name in order:
        for part in tensors[name].parts():
            yield part.tobytes()
