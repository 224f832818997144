"""What is read is compared with its original: errors are found, rounding is forgiven."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from onnx_models import make_model
from torch import nn

import lipopt
from lipopt.errors import LipoptError
from lipopt.readers import onnx_operators, torch_operators
from lipopt.readers.builder import Builder
from lipopt.readers.onnx import network_from_model
from lipopt.readers.onnx_operators import Step
from lipopt.readers.views import View

RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


# ---- mutations of the ONNX reader


def image_model() -> onnx.ModelProto:
    """Convolution, pooling, activations, a square product, a reduction, and a clip that hides."""
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Conv", ["x", "kernel", "bias"], "conv", {"pads": [1, 1, 1, 1]}),
        ("LeakyRelu", ["conv"], "leaky", {"alpha": 0.1}),
        ("AveragePool", ["leaky"], "pool", {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}),
        ("MatMul", ["pool", "square"], "product", {}),
        ("ReduceMax", ["product"], "most", {"axes": [2], "keepdims": 0}),
        ("Concat", ["most", "most"], "joined", {"axis": 1}),
        ("Flatten", ["joined"], "flat", {}),
        ("Gemm", ["flat", "last", "shift"], "gemm", {"alpha": 0.5}),
        ("Clip", ["gemm"], "y", {"min": 1e6}),
    ]
    nodes = []
    for operator, inputs, output, options in steps:
        nodes.append(helper.make_node(operator, inputs, [output], name=output, **options))
    constants = {
        "kernel": weights(2, 2, 3, 3),
        "bias": weights(2),
        "square": weights(4, 4),
        "last": weights(16, 3),
        "shift": weights(3),
    }
    return make_model(nodes, (1, 2, 4, 4), constants, opset=10)


def with_attributes(step: Step, **attributes: Any) -> Step:
    """The step as if its node had other attributes."""
    node = helper.make_node(step.operator, step.node.input, step.node.output, name=step.name)
    kept = {**step.attributes, **attributes}
    node.attribute.extend(helper.make_attribute(key, value) for key, value in kept.items())
    return replace(step, node=node)


def with_input(step: Step, k: int, value: Any) -> Step:
    """The step as if one of its inputs were another."""
    inputs = list(step.inputs)
    inputs[k] = value
    return replace(step, inputs=inputs)


def with_input_transposed(step: Step, k: int) -> Step:
    """The step as if one of its inputs, a matrix of numbers, were transposed."""
    matrix = step.inputs[k]
    assert isinstance(matrix, np.ndarray)
    return with_input(step, k, matrix.T)


ONNX_MUTATIONS: dict[str, tuple[str, str, Callable[[Step], Step]]] = {
    "another slope": ("LeakyRelu", "leaky", lambda s: with_attributes(s, alpha=0.11)),
    "a slope of one hundredth more": (
        "LeakyRelu",
        "leaky",
        lambda s: with_attributes(s, alpha=0.101),
    ),
    "weights transposed": (
        "MatMul",
        "product",
        lambda s: with_input_transposed(s, 1),
    ),
    "no bias": ("Conv", "conv", lambda s: with_input(s, 2, None)),
    "padding off by one": ("Conv", "conv", lambda s: with_attributes(s, pads=[2, 1, 0, 1])),
    "padding that counts": (
        "AveragePool",
        "pool",
        lambda s: with_attributes(s, count_include_pad=1),
    ),
    "another axis": ("ReduceMax", "most", lambda s: with_attributes(s, axes=[3])),
    "joined along another axis": ("Concat", "joined", lambda s: with_attributes(s, axis=2)),
    "another factor": ("Gemm", "gemm", lambda s: with_attributes(s, alpha=0.25)),
    "a bias that is not scaled": ("Gemm", "gemm", lambda s: with_attributes(s, beta=2.0)),
}


@pytest.mark.parametrize("name", sorted(ONNX_MUTATIONS))
def test_errors_of_the_onnx_reader_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, layer, mutate = ONNX_MUTATIONS[name]
    model = image_model()
    network_from_model(model)
    right = onnx_operators.HANDLERS[operator]
    monkeypatch.setitem(onnx_operators.HANDLERS, operator, lambda step: right(mutate(step)))
    with pytest.raises(LipoptError, match=f"node '{layer}' .* was misread"):
        network_from_model(model)
    network_from_model(model, check=False)


# ---- mutations of the PyTorch reader


class ImageModule(nn.Module):
    """The same kinds of layers in PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.leaky = nn.LeakyReLU(0.1)
        self.pool = nn.AvgPool2d(3, 1, 1)
        self.square = nn.Linear(4, 4)
        self.hiding = nn.Hardtanh(1e6, 1e7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.square(self.pool(self.leaky(self.conv(x))))
        return self.hiding(y.amax(dim=2))


Mutation = Callable[..., Any]
TORCH_MUTATIONS: dict[str, tuple[str, str, Mutation]] = {
    "another slope": (
        "leaky_relu",
        "leaky",
        lambda right, b, name, x, slope: right(b, name, x, 1.01 * slope),
    ),
    "weights transposed": (
        "linear",
        "square",
        lambda right, b, name, x, weight, bias: right(b, name, x, weight.T, bias),
    ),
    "no bias": (
        "linear",
        "square",
        lambda right, b, name, x, weight, bias: right(b, name, x, weight, None),
    ),
    "padding that does not count": (
        "avg_pool2d",
        "pool",
        lambda right, b, name, x, *args: right(b, name, x, *args, count_include_pad=False),
    ),
    "padding off by one": (
        "conv2d",
        "conv",
        lambda right, b, name, x, weight, bias, *args: right(
            b, name, x.moved(lambda i: np.roll(i, 1, axis=2)), weight, bias, *args
        ),
    ),
    "another axis": (
        "amax",
        "amax",
        lambda right, b, name, x, dim: right(b, name, x, [3]),
    ),
}


@pytest.mark.parametrize("name", sorted(TORCH_MUTATIONS))
def test_errors_of_the_torch_reader_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, layer, mutate = TORCH_MUTATIONS[name]
    torch.manual_seed(0)
    module = ImageModule()
    lipopt.load(module, input_shape=(2, 4, 4))
    target = f"aten.{operator}.default"
    right = torch_operators.HANDLERS[target]

    def wrong(b: Builder, name: str, x: View, *args: Any) -> Any:
        return mutate(right, b, name, x, *args)

    monkeypatch.setitem(torch_operators.HANDLERS, target, wrong)
    with pytest.raises(LipoptError, match=f"layer '{layer}' .* was misread"):
        lipopt.load(module, input_shape=(2, 4, 4))
    lipopt.load(module, input_shape=(2, 4, 4), check=False)


def test_a_graph_that_differs_from_its_module_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operator is right, but the module itself computes something else when it runs."""
    layer = nn.Linear(3, 2)
    exported = torch.export.export

    def export_another(module: nn.Module, *args: Any, **options: Any) -> Any:
        return exported(nn.Sequential(module, nn.Tanh()), *args, **options)

    monkeypatch.setattr(torch.export, "export", export_another)
    with pytest.raises(LipoptError, match="computes another function than the graph"):
        lipopt.load(layer)


# ---- what rounding explains


@pytest.mark.parametrize("seed", range(3))
def test_rounding_is_forgiven_in_every_entry_of_a_large_tensor(seed: int) -> None:
    """Where products of a convolution cancel, the error in the batch norm behind it is all there is."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    network = lipopt.load(nn.Sequential(*layers), input_shape=(3, 32, 32))
    assert network.output_size == 16 * 32 * 32


def deep(activation: type[nn.Module], gain: float) -> nn.Module:
    """Twenty-five layers whose weights make rounding errors grow, or numbers overflow."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(25):
        layer = nn.Linear(8, 8)
        nn.init.normal_(layer.weight, std=gain / 8**0.5)
        layers += [layer, activation()]
    return nn.Sequential(*layers, nn.Linear(8, 3))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("activation", "gain"), [(nn.ReLU, 2.0), (nn.Tanh, 1.5), (nn.ELU, 2.0)])
def test_rounding_is_no_error(activation: type[nn.Module], gain: float, kind: torch.dtype) -> None:
    lipopt.load(deep(activation, gain).to(kind))


def test_a_softplus_that_becomes_linear_is_no_error() -> None:
    """PyTorch's differs from log(1 + e^x) by 2e-9 past its threshold, which float64 would show."""
    layer = nn.Linear(40, 40)
    lipopt.load(nn.Sequential(layer, nn.Softplus(), nn.Linear(40, 2)).double())


def test_what_overflows_at_every_point_is_not_compared_and_refused() -> None:
    with pytest.raises(LipoptError, match="cannot be compared"):
        lipopt.load(deep(nn.ReLU, 6.0).half())


def test_cancellation_is_no_error() -> None:
    """Large terms that cancel leave their rounding errors."""
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    opposite = nn.Linear(8, 8)
    with torch.no_grad():
        layer.weight.mul_(1e3)
        opposite.weight.copy_(-layer.weight)
        opposite.weight[0, 0] += 1e-3
        norm = nn.BatchNorm1d(8)
        norm.running_mean.fill_(1e3)
        norm.bias.fill_(1e3)

    class Cancelling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([layer, opposite, norm])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return norm(layer(x) + opposite(x)) + 1e4 - 1e4

    lipopt.load(Cancelling(), input_shape=(8,))


def test_constants_that_cancel_are_no_error() -> None:
    """A Gemm of constants, with the input as its bias, is computed in single precision."""
    product = helper.make_node("Gemm", ["a", "b", "x"], ["y"], name="product")
    a = weights(8, 400)
    constants = {"a": np.hstack([a, a]), "b": np.vstack([a.T, -a.T])}
    network_from_model(make_model([product], (8, 8), constants))


def test_activations_that_subtract_one_near_zero() -> None:
    """e^x - 1 of a tiny x has the rounding error of 1."""
    for operator in ("Elu", "Selu", "Celu", "Softplus"):
        small = helper.make_node("Mul", ["x", "c"], ["h"])
        act = helper.make_node(operator, ["h"], ["y"], name="act")
        model = make_model([small, act], (1, 50), {"c": np.float32(1e-4)})
        network_from_model(model)
