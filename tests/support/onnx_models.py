"""ONNX models made for tests, and what onnxruntime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from lipopt.model.network import Network

IR_VERSION = 8  # old enough for every onnxruntime


def make_model(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int | str],
    constants: Mapping[str, object] | None = None,
    opset: int = 17,
    outputs: Sequence[str] = ("y",),
    more_inputs: Mapping[str, Sequence[int]] | None = None,
) -> onnx.ModelProto:
    """A model with the input x of the given shape (a name stands for a symbolic size)."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))]
    for name, other in (more_inputs or {}).items():
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(other)))
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    tensors = [
        numpy_helper.from_array(np.asarray(c), name) for name, c in (constants or {}).items()
    ]
    graph = helper.make_graph(nodes, "test", inputs, results, tensors)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def run_model(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    """The model's first output, by onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return np.asarray(session.run(None, dict(feeds))[0])


def agrees(model: onnx.ModelProto, network: Network, shape: Sequence[int], seed: int = 0) -> None:
    """Assert that a network has the model's values at a few points."""
    rng = np.random.default_rng(seed)
    for size in (0.1, 1.0, 10.0):
        x = (size * rng.normal(size=shape)).astype(np.float32)
        expected = run_model(model, {"x": x}).reshape(-1)
        ours = network.forward(x.reshape(-1)).reshape(-1)
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5 * size)
