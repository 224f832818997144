"""Network files written entry by entry, so that a test can get one of them wrong."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

TYPES = {
    "float32": "F32",
    "float64": "F64",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "complex64": "C64",
    "bool": "BOOL",
}
NODES: tuple[dict[str, Any], ...] = (
    {"op": "input", "shape": [2]},
    {"op": "affine", "name": "first", "sources": [0]},
    {"op": "activation", "name": "bend", "source": 1, "kind": "leaky_relu"},
    {"op": "affine", "name": "last", "sources": [2]},
)
TENSORS: dict[str, Any] = {
    "1.0.dense": np.array([[1.0, -1.0], [2.0, 0.5], [0.0, 1.0]]),
    "1.bias": np.zeros(3),
    "2.alpha": np.array(0.1),
    "3.0.data": np.ones(2),
    "3.0.indices": np.array([0, 2], np.int32),
    "3.0.indptr": np.array([0, 2], np.int64),
    "3.bias": np.zeros(1),
}


def graph(changes: Mapping[int, Mapping[str, Any]] | None = None) -> str:
    """The JSON of the nodes, some of their fields changed."""
    nodes = [{**node, **(changes or {}).get(i, {})} for i, node in enumerate(NODES)]
    return json.dumps({"format": "lipopt-network-1", "nodes": nodes})


def network_file(
    document: str | None = None, tensors: Mapping[str, Any] | None = None, twice: Sequence[str] = ()
) -> bytes:
    """A safetensors file with this graph and these tensors; those named in `twice` stand in its header twice."""
    entries = []
    data = b""
    for name, tensor in {**TENSORS, **(tensors or {})}.items():
        if tensor is None:
            continue
        array = np.asarray(tensor)
        offsets = [len(data), len(data) + array.nbytes]
        entry = {"dtype": TYPES[str(array.dtype)], "shape": array.shape, "data_offsets": offsets}
        entries += [f"{json.dumps(name)}:{json.dumps(entry)}"] * (2 if name in twice else 1)
        data += array.tobytes()
    metadata = json.dumps({"lipopt": graph() if document is None else document})
    header = ("{" + ",".join([f'"__metadata__":{metadata}', *entries]) + "}").encode()
    return len(header).to_bytes(8, "little") + header + data
