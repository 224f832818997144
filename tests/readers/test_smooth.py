"""Products, powers, softmax, normalization and attention: the same values and gradients as the original."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional as F  # noqa: N812

import lipopt
from lipopt.lower.gradients import JacobianNorm
from lipopt.model.nodes import Activation
from lipopt.readers.onnx import network_from_model


class Function(nn.Module):
    """A function of the input."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def heads(x: torch.Tensor) -> torch.Tensor:
    """Four entries for each of two heads."""
    return x.reshape(1, -1, 2, 4).transpose(1, 2)


MODULES: dict[str, tuple[nn.Module | Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "square": (lambda x: x * x, (3,)),
    "product": (lambda x: x[:, :2] * x[:, 1:], (3,)),
    "product of different sizes": (lambda x: (1000 * x[:, :2]) * (0.001 * x[:, 1:]), (3,)),
    "broadcast product": (lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)), (3, 2, 2)),
    "quotient": (lambda x: x[:, :1] / (2 + torch.relu(x)), (3,)),
    "constant quotient": (lambda x: 2 / (2 + x * x), (3,)),
    "cube": (lambda x: x**3, (3,)),
    "negative power": (lambda x: (1 + x * x) ** -2, (3,)),
    "root": (lambda x: torch.sqrt(1 + x * x), (3,)),
    "rsqrt": (lambda x: torch.rsqrt(1 + x * x), (3,)),
    "other power": (lambda x: (1 + x * x) ** 0.7, (3,)),
    "exponential": (lambda x: torch.exp(-torch.relu(x)), (3,)),
    "power of two": (lambda x: 2**x, (3,)),
    "logarithm": (lambda x: torch.log(1 + x.square()), (3,)),
    "waves": (lambda x: torch.sin(x[:, :2]) + torch.cos(x[:, 1:]), (3,)),
    "norm": (lambda x: torch.linalg.vector_norm(1 + x, dim=1), (3,)),
    "softmax of two": (nn.Softmax(1), (2,)),
    "softmax": (nn.Sequential(nn.Linear(3, 7), nn.Softmax(1)), (3,)),
    "log-softmax": (nn.LogSoftmax(-1), (2, 5)),
    "softmax along another axis": (nn.Softmax(1), (5, 2)),
    "logsumexp": (lambda x: torch.logsumexp(x, (1, 2)), (3, 2)),
    "layer norm": (nn.LayerNorm(6), (6,)),
    "layer norm without weights": (nn.LayerNorm((2, 3), elementwise_affine=False), (2, 3)),
    "group norm": (nn.GroupNorm(2, 4), (4, 3)),
    "instance norm": (nn.InstanceNorm2d(2, affine=True), (2, 2, 3)),
    "rms norm": (nn.RMSNorm(4, eps=1e-6), (4,)),
    "matrices": (lambda x: x @ x.transpose(1, 2), (2, 3)),
    "attention": (
        lambda x: F.scaled_dot_product_attention(heads(x), heads(2 * x), heads(x)),
        (3, 8),
    ),
    "causal attention": (
        lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), is_causal=True),
        (3, 8),
    ),
    "attention with shared keys": (
        lambda x: F.scaled_dot_product_attention(
            heads(x), heads(x)[:, :1], heads(x)[:, 1:], enable_gqa=True
        ),
        (3, 8),
    ),
    "attention with one key": (
        lambda x: F.scaled_dot_product_attention(heads(x), heads(x)[:, :, :1], heads(x)[:, :, :1]),
        (2, 8),
    ),
    "masked softmax": (
        lambda x: torch.softmax(
            x.masked_fill(torch.ones(3, 3, dtype=torch.bool).triu(1), -torch.inf), -1
        ),
        (3, 3),
    ),
    "softmax of one entry": (lambda x: torch.softmax(x, 1) + torch.sin(x), (1, 3)),
    "gated unit": (nn.GLU(), (6,)),
    "transformer": (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (3, 4)),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_have_the_same_values_and_gradients(name: str) -> None:
    made, shape = MODULES[name]
    torch.manual_seed(0)
    module = (made if isinstance(made, nn.Module) else Function(made)).eval().double()
    network = lipopt.load(module, input_shape=shape)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(1, *shape, dtype=torch.float64, requires_grad=True)
        y = module(x).reshape(-1)
        np.testing.assert_allclose(
            network.forward(x.detach().numpy().reshape(-1)), y.detach(), rtol=1e-9, atol=1e-9
        )
        (gradient,) = torch.autograd.grad(y[0], x)
        rows = sp.csr_array(np.eye(1, network.output_size))
        norm = JacobianNorm(network, rows, lipopt.model.norms.Norm.LINF)
        ours = norm.at(x.detach().numpy().reshape(-1, 1))[0]
        assert ours == pytest.approx(float(gradient.abs().sum()), rel=1e-8, abs=1e-9)


def node(op: str, *inputs: str, **attributes: object) -> NodeProto:
    return helper.make_node(op, ["x", *inputs], ["y"], **attributes)


def model(nodes: list, shape: tuple, constants: dict, opset: int) -> ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    tensors = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


OPERATORS: dict[str, tuple[list[NodeProto], tuple[int, ...], dict[str, Any], int]] = {
    "Exp": ([node("Exp")], (1, 3), {}, 13),
    "Sin": ([node("Sin")], (1, 3), {}, 13),
    "Cos": ([node("Cos")], (1, 3), {}, 13),
    "Reciprocal": ([node("Reciprocal")], (1, 3), {}, 13),
    "Pow": ([node("Pow", "c")], (1, 3), {"c": np.float32(4)}, 13),
    "Sqrt": ([node("Sqrt")], (1, 3), {}, 13),
    "Log": ([node("Log")], (1, 3), {}, 13),
    "Softmax": ([node("Softmax", axis=1)], (1, 3, 2), {}, 13),
    "old Softmax": ([node("Softmax", axis=1)], (1, 3, 2), {}, 11),
    "LogSoftmax": ([node("LogSoftmax")], (1, 5), {}, 13),
    "Mul": ([helper.make_node("Mul", ["x", "x"], ["y"])], (1, 3), {}, 13),
    "MatMul": ([helper.make_node("MatMul", ["x", "x"], ["y"])], (3, 3), {}, 13),
    "Gemm": ([helper.make_node("Gemm", ["x", "x"], ["y"], alpha=0.5, transB=1)], (3, 2), {}, 13),
    "ReduceSumSquare": ([node("ReduceSumSquare", axes=[1])], (1, 3, 2), {}, 13),
    "ReduceL2": ([node("ReduceL2", axes=[1], keepdims=0)], (1, 3, 2), {}, 13),
    "ReduceLogSumExp": ([node("ReduceLogSumExp", axes=[1])], (1, 3, 2), {}, 13),
    "LayerNormalization": (
        [node("LayerNormalization", "s", "b", axis=-1)],
        (1, 2, 3),
        {"s": np.array([1, 2, 3], np.float32), "b": np.array([0, 1, -1], np.float32)},
        17,
    ),
    "InstanceNormalization": (
        [node("InstanceNormalization", "s", "b")],
        (1, 2, 3),
        {"s": np.array([1, 2], np.float32), "b": np.array([0, 1], np.float32)},
        17,
    ),
    "GroupNormalization": (
        [node("GroupNormalization", "s", "b", num_groups=2)],
        (1, 4, 3),
        {"s": np.arange(4, dtype=np.float32), "b": np.arange(4, dtype=np.float32)},
        21,
    ),
    "RMSNormalization": (
        [node("RMSNormalization", "s", epsilon=1e-3)],
        (1, 2, 3),
        {"s": np.array([1, 2, 3], np.float32)},
        23,
    ),
    "Attention": (
        [node("Attention", "x", "x", "m", scale=0.3)],
        (1, 2, 3, 4),
        {"m": np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]], bool)},
        23,
    ),
    "Attention of joined heads that share keys": (
        [
            helper.make_node("Split", ["x", "n"], ["q", "k", "v"], axis=2),
            helper.make_node(
                "Attention", ["q", "k", "v"], ["y"], q_num_heads=2, kv_num_heads=1, is_causal=1
            ),
        ],
        (1, 3, 16),
        {"n": np.array([8, 4, 4])},
        23,
    ),
    "Softmax under the mask that torch.onnx writes": (
        [
            helper.make_node("Add", ["x", "m"], ["z"]),
            helper.make_node("Softmax", ["z"], ["y"]),
        ],
        (1, 3, 3),
        {"m": np.where(np.tri(3, dtype=bool), 0, np.finfo(np.float32).min).astype(np.float32)},
        18,
    ),
    "Softmax under an infinite mask": (
        [
            helper.make_node("Where", ["m", "x", "c"], ["z"]),
            helper.make_node("Softmax", ["z"], ["y"], axis=1),
        ],
        (1, 3, 3),
        {"m": np.tri(3, dtype=bool), "c": np.float32(-np.inf)},
        18,
    ),
    "Softmax of a single entry": (
        [
            helper.make_node("Softmax", ["x"], ["z"], axis=1),
            helper.make_node("Sin", ["x"], ["s"]),
            helper.make_node("Add", ["s", "z"], ["y"]),
        ],
        (1, 1, 3),
        {},
        18,
    ),
}

REFUSED: dict[str, tuple[list[NodeProto], dict[str, Any], str]] = {
    "a mask that depends on the input": (
        [node("Attention", "x", "x", "x")],
        {},
        "mask depends on the input.*make it constant",
    ),
    "a cap on the scores": ([node("Attention", "x", "x", softcap=2.0)], {}, "softcap"),
    "a cache": (
        [node("Attention", "x", "x", "", "k", "k")],
        {"k": np.zeros((1, 2, 1, 3), np.float32)},
        "past_key is not supported; export the model without a cache",
    ),
    "a mask that hides all": (
        [node("Attention", "x", "x", "m")],
        {"m": np.zeros((3, 3), bool)},
        "a row of its mask hides all entries",
    ),
    "a fused operator": (
        [node("MultiHeadAttention", domain="com.microsoft", num_heads=1)],
        {},
        "of the domain 'com.microsoft'.*without fused operators",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_attention_that_is_refused(name: str) -> None:
    nodes, constants, message = REFUSED[name]
    with pytest.raises(lipopt.LipoptError, match=message):
        network_from_model(model(nodes, (1, 2, 3, 3), constants, 23))


def test_erf_in_double_precision() -> None:
    """onnxruntime has it in single precision alone."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.DOUBLE, (1, 3))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)]
    graph = helper.make_graph([node("Erf")], "test", inputs, outputs)
    opsets = [helper.make_opsetid("", 17)]
    network = network_from_model(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    assert network([0.5, 0.0, 0.0])[0] == pytest.approx(0.5204998778130465, rel=1e-14)


@pytest.mark.parametrize("name", OPERATORS)
def test_onnx_operators_are_read(name: str) -> None:
    """Reading compares all values with onnxruntime, and raises an error if they differ."""
    nodes, shape, constants, opset = OPERATORS[name]
    network = network_from_model(model(nodes, shape, constants, opset))
    assert any(isinstance(n, Activation) for n in network.nodes)


def test_a_product_is_balanced() -> None:
    """Factors that vary by 1000 and by 0.001 are brought to the same size before they are added."""
    module = Function(lambda x: (1024 * x[:, :1]) * (x[:, 1:] / 1024))
    network = lipopt.load(module, input_shape=(2,))
    result = lipopt.bound(
        network, domain=lipopt.Ball([1.0, 1.0], 0.1), method="path-sum", norm="linf"
    )
    assert result.upper <= 2.2 * 1.2


def test_softmax_is_bounded_over_the_whole_space() -> None:
    network = lipopt.load(nn.Softmax(1), input_shape=(4,))
    result = lipopt.bound(network, method="sdp")
    assert 0.5 - 1e-6 <= result.upper <= 0.7  # exactly 1/2: 2 p (1 - p)


def test_products_are_refused_over_the_whole_space() -> None:
    network = lipopt.load(Function(lambda x: x * x), input_shape=(2,))
    with pytest.raises(lipopt.LipoptError, match=r"slopes without a bound.*ask in a ball or a box"):
        lipopt.bound(network)
    assert lipopt.bound(network, domain=lipopt.Ball([1.0, 1.0], 0.5)).upper == pytest.approx(3.0)


def test_a_denominator_that_may_vanish_is_named() -> None:
    network = lipopt.load(Function(lambda x: 1 / x), input_shape=(1,))
    with pytest.raises(lipopt.LipoptError, match=r"other than zero.*\[-0.5, 1.5\].*smaller box"):
        lipopt.bound(network, domain=lipopt.Ball([0.5], 1.0))
    assert lipopt.bound(network, domain=lipopt.Ball([0.5], 0.25)).upper == pytest.approx(16.0)


def test_a_factor_that_is_constant_makes_no_squares() -> None:
    def half_constant(x: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(1, 1, dtype=x.dtype)
        return torch.cat([3 * ones, x[:, :1]], 1) * x[:, 1:]

    network = lipopt.load(Function(half_constant), input_shape=(3,))
    assert network.neurons == 2  # the two squares of x_0 x_2
    np.testing.assert_allclose(network([1.0, 2.0, 5.0]), [6.0, 5.0])
