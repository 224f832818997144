"""Every ONNX operator against onnx.reference, exporters' oddities, and what is refused."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import lipopt
from lipopt.errors import LipoptError
from lipopt.model.nodes import Affine
from lipopt.readers.onnx import network_from_model

RNG = np.random.default_rng(0)
IMAGE = (1, 2, 6, 5)


def array(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def model(
    nodes: list,
    shape: tuple,
    constants: dict | None = None,
    opset: int = 17,
    symbolic: bool = False,
) -> onnx.ModelProto:
    dims = ["batch", *shape[1:]] if symbolic else list(shape)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    tensors = [
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in (constants or {}).items()
    ]
    graph = helper.make_graph(nodes, "test", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def agrees(proto: onnx.ModelProto, shape: tuple) -> None:
    network = network_from_model(proto)
    reference = ReferenceEvaluator(proto)
    for _ in range(3):
        x = array(*shape)
        expected = np.asarray(reference.run(None, {"x": x})[0]).reshape(-1)
        np.testing.assert_allclose(network.forward(x).reshape(-1), expected, rtol=1e-5, atol=1e-5)


def node(op: str, *inputs: str, output: str = "y", **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, ["x", *inputs], [output], **attributes)


SINGLE: dict[str, tuple[onnx.NodeProto, tuple[int, ...], dict[str, Any], int]] = {
    "Gemm": (
        node("Gemm", "w", "b", transB=1, alpha=0.5, beta=2.0),
        (1, 4),
        {"w": array(3, 4), "b": array(3)},
        17,
    ),
    "Gemm old": (node("Gemm", "w", "b"), (1, 4), {"w": array(4, 3), "b": array(1, 3)}, 8),
    "MatMul": (node("MatMul", "w"), (1, 2, 4), {"w": array(4, 3)}, 17),
    "MatMul vector": (node("MatMul", "w"), (1, 4), {"w": array(4)}, 17),
    "MatMul left": (
        helper.make_node("MatMul", ["w", "x"], ["y"]),
        (1, 4, 2),
        {"w": array(3, 4)},
        17,
    ),
    "Add": (node("Add", "c"), IMAGE, {"c": array(2, 1, 1)}, 17),
    "Add wider": (node("Add", "c"), (1, 3), {"c": array(2, 3)}, 17),
    "Sub": (helper.make_node("Sub", ["c", "x"], ["y"]), (1, 4), {"c": array(4)}, 17),
    "Mul": (node("Mul", "c"), IMAGE, {"c": array(5)}, 17),
    "Div": (node("Div", "c"), IMAGE, {"c": array(2, 1, 1)}, 17),
    "Neg": (node("Neg"), (1, 4), {}, 17),
    "Sum": (helper.make_node("Sum", ["x", "c", "x"], ["y"]), (1, 4), {"c": array(4)}, 17),
    "Conv": (
        node("Conv", "w", "b", strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2]),
        IMAGE,
        {"w": array(4, 2, 3, 2), "b": array(4)},
        17,
    ),
    "Conv groups": (
        node("Conv", "w", group=2, pads=[1, 1, 1, 1]),
        IMAGE,
        {"w": array(4, 1, 3, 3)},
        17,
    ),
    "Conv 1d": (node("Conv", "w", strides=[2], pads=[1, 1]), (1, 3, 9), {"w": array(2, 3, 3)}, 17),
    "Conv same": (
        node("Conv", "w", auto_pad="SAME_UPPER", strides=[2, 2]),
        IMAGE,
        {"w": array(1, 2, 3, 3)},
        17,
    ),
    "BatchNormalization": (
        node("BatchNormalization", "s", "b", "m", "v", epsilon=1e-3),
        IMAGE,
        {"s": array(2), "b": array(2), "m": array(2), "v": array(2) ** 2},
        15,
    ),
    "AveragePool": (
        node("AveragePool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
        IMAGE,
        {},
        17,
    ),
    "AveragePool counting": (
        node("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        IMAGE,
        {},
        17,
    ),
    "AveragePool ceil": (
        node("AveragePool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        IMAGE,
        {},
        17,
    ),
    "GlobalAveragePool": (node("GlobalAveragePool"), IMAGE, {}, 17),
    "GlobalMaxPool": (node("GlobalMaxPool"), IMAGE, {}, 17),
    "MaxPool": (
        node("MaxPool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
        IMAGE,
        {},
        17,
    ),
    "MaxPool ceil": (
        node("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        IMAGE,
        {},
        17,
    ),
    "MaxPool 1d": (node("MaxPool", kernel_shape=[3], strides=[2]), (1, 2, 9), {}, 17),
    "ReduceMean": (node("ReduceMean", axes=[2, 3], keepdims=0), IMAGE, {}, 13),
    "ReduceSum": (node("ReduceSum", "a"), IMAGE, {"a": np.array([1])}, 17),
    "ReduceMax": (node("ReduceMax", axes=[-1]), IMAGE, {}, 13),
    "Flatten": (node("Flatten", axis=2), IMAGE, {}, 17),
    "Reshape": (node("Reshape", "s"), IMAGE, {"s": np.array([0, 6, -1])}, 17),
    "Squeeze": (node("Squeeze", "a"), (1, 3, 1), {"a": np.array([2])}, 17),
    "Squeeze old": (node("Squeeze", axes=[2]), (1, 3, 1), {}, 11),
    "Unsqueeze": (node("Unsqueeze", "a"), (1, 3), {"a": np.array([1])}, 17),
    "Transpose": (node("Transpose", perm=[0, 2, 3, 1]), IMAGE, {}, 17),
    "Expand": (node("Expand", "s"), (1, 3, 1), {"s": np.array([1, 3, 4])}, 17),
    "Pad": (node("Pad", "p"), IMAGE, {"p": np.array([0, 0, 1, 0, 0, 0, 2, 1])}, 17),
    "Pad old": (node("Pad", pads=[0, 0, 1, 0, 0, 0, 2, 1]), IMAGE, {}, 10),
    "Concat": (
        helper.make_node("Concat", ["x", "c", "x"], ["y"], axis=1),
        (1, 3),
        {"c": array(1, 2)},
        17,
    ),
    "Slice": (
        node("Slice", "s", "e", "a", "t"),
        IMAGE,
        {
            "s": np.array([1, -1]),
            "e": np.array([5, -100]),
            "a": np.array([2, 3]),
            "t": np.array([2, -1]),
        },
        17,
    ),
    "Gather": (node("Gather", "i", axis=1), (1, 5), {"i": np.array([[3, 0], [-1, 3]])}, 17),
    "Identity": (node("Identity"), (1, 4), {}, 17),
    "Dropout": (node("Dropout"), (1, 4), {}, 17),
    "Cast": (node("Cast", to=TensorProto.DOUBLE), (1, 4), {}, 17),
    "Relu": (node("Relu"), (1, 4), {}, 17),
    "Abs": (node("Abs"), (1, 4), {}, 17),
    "LeakyRelu": (node("LeakyRelu", alpha=0.2), (1, 4), {}, 17),
    "PRelu": (node("PRelu", "s"), IMAGE, {"s": array(2, 1, 1)}, 17),
    "Elu": (node("Elu", alpha=0.7), (1, 4), {}, 17),
    "Selu": (node("Selu"), (1, 4), {}, 17),
    "Celu": (node("Celu", alpha=0.7), (1, 4), {}, 17),
    "Softplus": (node("Softplus"), (1, 4), {}, 17),
    "Softsign": (node("Softsign"), (1, 4), {}, 17),
    "Sigmoid": (node("Sigmoid"), (1, 4), {}, 17),
    "Tanh": (node("Tanh"), (1, 4), {}, 17),
    "Erf": (node("Erf"), (1, 4), {}, 17),
    "HardSigmoid": (node("HardSigmoid", alpha=0.3), (1, 4), {}, 17),
    "HardSwish": (node("HardSwish"), (1, 4), {}, 17),
    "Clip": (node("Clip", "l", "h"), (1, 4), {"l": np.float32(-0.3), "h": np.float32(0.4)}, 17),
    "Clip old": (node("Clip", min=-0.3, max=0.4), (1, 4), {}, 8),
    "Clip one side": (node("Clip", "l"), (1, 4), {"l": np.float32(0.1)}, 17),
    "Gelu": (node("Gelu"), (1, 4), {}, 20),
    "Gelu tanh": (node("Gelu", approximate="tanh"), (1, 4), {}, 20),
    "Mish": (node("Mish"), (1, 4), {}, 18),
    "Max": (node("Max", "c"), (1, 4), {"c": np.float32(0.1)}, 17),
    "Max constant": (node("Max", "c"), (1, 4), {"c": array(4)}, 17),
    "Min": (node("Min", "c"), (1, 4), {"c": array(4)}, 17),
}


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_operator(name: str) -> None:
    single, shape, constants, opset = SINGLE[name]
    agrees(model([single], shape, constants, opset), shape)


def chain(*steps: tuple) -> list:
    return [
        helper.make_node(op, inputs, outputs, **attributes)
        for op, inputs, outputs, attributes in steps
    ]


HALF, ROOT = np.float32(0.5), np.float32(np.sqrt(2))
CHAINS = {
    "silu": chain(("Sigmoid", ["x"], ["s"], {}), ("Mul", ["x", "s"], ["y"], {})),
    "swish with beta": chain(
        ("Mul", ["x", "c"], ["m"], {}),
        ("Sigmoid", ["m"], ["s"], {}),
        ("Mul", ["s", "x"], ["y"], {}),
    ),
    "mish": chain(
        ("Softplus", ["x"], ["p"], {}), ("Tanh", ["p"], ["t"], {}), ("Mul", ["x", "t"], ["y"], {})
    ),
    "gelu": chain(
        ("Div", ["x", "root"], ["d"], {}),
        ("Erf", ["d"], ["e"], {}),
        ("Add", ["e", "one"], ["a"], {}),
        ("Mul", ["x", "a"], ["m"], {}),
        ("Mul", ["m", "half"], ["y"], {}),
    ),
    "gelu, half first": chain(
        ("Mul", ["x", "half"], ["h"], {}),
        ("Div", ["x", "root"], ["d"], {}),
        ("Erf", ["d"], ["e"], {}),
        ("Add", ["one", "e"], ["a"], {}),
        ("Mul", ["h", "a"], ["y"], {}),
    ),
    "hard swish of hard sigmoid": chain(
        ("HardSigmoid", ["x"], ["h"], {"alpha": 1 / 6}), ("Mul", ["x", "h"], ["y"], {})
    ),
    "hard swish of clip": chain(
        ("Add", ["x", "three"], ["a"], {}),
        ("Clip", ["a", "zero", "six"], ["c2"], {}),
        ("Mul", ["x", "c2"], ["m"], {}),
        ("Div", ["m", "six"], ["y"], {}),
    ),
    "max of two": chain(("Neg", ["x"], ["n"], {}), ("Max", ["x", "n"], ["y"], {})),
    "split": chain(
        ("Split", ["x", "sizes"], ["a", "b"], {"axis": 1}),
        ("Relu", ["a"], ["r"], {}),
        ("Concat", ["b", "r"], ["y"], {"axis": 1}),
    ),
    "shape": chain(
        ("Shape", ["x"], ["shape"], {}),
        ("Gather", ["shape", "zero_index"], ["batch"], {}),
        ("Unsqueeze", ["batch", "zero_axis"], ["b1"], {}),
        ("Concat", ["b1", "minus"], ["target"], {"axis": 0}),
        ("Reshape", ["x", "target"], ["y"], {}),
    ),
    "residual": chain(
        ("MatMul", ["x", "w"], ["h"], {}),
        ("Relu", ["h"], ["r"], {}),
        ("MatMul", ["r", "w"], ["g"], {}),
        ("Add", ["x", "g"], ["y"], {}),
    ),
}
CONSTANTS = {
    "c": np.float32(1.5),
    "root": ROOT,
    "one": np.float32(1),
    "half": HALF,
    "three": np.float32(3),
    "zero": np.float32(0),
    "six": np.float32(6),
    "sizes": np.array([3, 1]),
    "zero_index": np.array(0),
    "zero_axis": np.array([0]),
    "minus": np.array([-1]),
    "w": array(4, 4),
}


@pytest.mark.parametrize("name", sorted(CHAINS))
def test_chain(name: str) -> None:
    agrees(model(CHAINS[name], (1, 4), CONSTANTS), (1, 4))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("silu", "silu"),
        ("mish", "mish"),
        ("gelu", "gelu"),
        ("hard swish of clip", "hard_swish"),
    ],
)
def test_gates_become_one_activation(name: str, kind: str) -> None:
    network = network_from_model(model(CHAINS[name], (1, 4), CONSTANTS))
    assert [n.kind for n in network.nodes if hasattr(n, "kind")] == [kind]


@pytest.mark.parametrize("opset", [8, 13, 17, 21])
def test_opsets_and_symbolic_batch(opset: int) -> None:
    nodes = chain(
        ("Sub", ["x", "mean"], ["s"], {}),
        ("Div", ["s", "std"], ["d"], {}),
        ("Flatten", ["d"], ["f"], {}),
        ("MatMul", ["f", "w"], ["m"], {}),
        ("Add", ["m", "b"], ["a"], {}),
        ("Relu", ["a"], ["y"], {}),
    )
    constants = {
        "mean": array(1, 1, 1, 5),
        "std": array(1) ** 2 + 1,
        "w": array(5, 3),
        "b": array(3),
    }
    agrees(model(nodes, (1, 1, 1, 5), constants, opset, symbolic=True), (1, 1, 1, 5))


def test_constants_are_folded() -> None:
    nodes = chain(
        ("Constant", [], ["k"], {"value": numpy_helper.from_array(array(4, 3))}),
        ("Transpose", ["k"], ["kt"], {}),
        ("Mul", ["kt", "half"], ["w2"], {}),
        ("Transpose", ["w2"], ["w3"], {}),
        ("MatMul", ["x", "w3"], ["y"], {}),
    )
    agrees(model(nodes, (1, 4), CONSTANTS), (1, 4))


def test_nodes_that_the_output_does_not_depend_on_are_no_obstacle() -> None:
    nodes = chain(("Sin", ["x"], ["s"], {}), ("Relu", ["x"], ["y"], {}), ("Exp", ["s"], ["e"], {}))
    agrees(model(nodes, (1, 4), {}), (1, 4))


def test_a_convolution_is_never_dense() -> None:
    """16k neurons on a 3x32x32 input: a dense matrix would take 400 MB; the sparse one has 27 entries a row at most."""
    proto = model([node("Conv", "w", pads=[1, 1, 1, 1])], (1, 3, 32, 32), {"w": array(16, 3, 3, 3)})
    affine = network_from_model(proto).nodes[1]
    assert isinstance(affine, Affine)
    assert affine.size == 16384
    assert affine.matrices[0].nnz <= 27 * affine.size


def test_weights_are_kept_exactly(tmp_path: Path) -> None:
    w = array(3, 4)
    network = network_from_model(model([node("Gemm", "w", transB=1)], (1, 4), {"w": w}))
    affine = network.nodes[1]
    assert isinstance(affine, Affine)
    assert affine.matrices[0].dtype == np.float32
    np.testing.assert_array_equal(affine.matrices[0], w)


def test_gzip(tmp_path: Path) -> None:
    proto = model([node("Relu")], (1, 4))
    (tmp_path / "m.onnx.gz").write_bytes(gzip.compress(proto.SerializeToString()))
    np.testing.assert_array_equal(
        lipopt.load(tmp_path / "m.onnx.gz").forward([-1, 0, 1, 2]), [0, 0, 1, 2]
    )


REFUSED = {
    "unknown operator": (model([node("LRN", size=3)], IMAGE), "LRN"),
    "exponent": (
        model([helper.make_node("Pow", ["c", "x"], ["y"])], (1, 4), {"c": -np.ones(1, np.float32)}),
        "must be positive",
    ),
    "jump": (model([node("Sign")], (1, 4)), "Lipschitz"),
    "division by zero": (model([node("Div", "c")], (1, 3), {"c": np.zeros(3, np.float32)}), "zero"),
    "NaN": (
        model([node("Gemm", "w")], (1, 2), {"w": np.array([[np.nan], [1]], np.float32)}),
        "NaN",
    ),
    "missing tensor": (model([node("Add", "nowhere")], (1, 3)), "nowhere"),
    "shapes that do not fit": (
        model([node("MatMul", "w")], (1, 3), {"w": array(4, 2)}),
        "does not fit",
    ),
    "constant output": (
        model([helper.make_node("Neg", ["c"], ["y"])], (1, 3), {"c": array(3)}),
        "does not depend",
    ),
    "unknown size": (model([node("Relu")], (1, 0)), "unknown sizes"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused(name: str) -> None:
    proto, message = REFUSED[name]
    with pytest.raises(LipoptError, match=message):
        network_from_model(proto)


def test_truncated_and_empty_files(tmp_path: Path) -> None:
    data = model([node("Gemm", "w")], (1, 4), {"w": array(4, 3)}).SerializeToString()
    for content in (data[: len(data) // 2], b"", b"not a model at all"):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(LipoptError):
            lipopt.load(tmp_path / "bad.onnx")
