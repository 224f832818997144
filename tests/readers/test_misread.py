"""Models that a reader once took for another function, each against onnxruntime or eager torch."""

from __future__ import annotations

import gzip
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx_models import agrees, make_model, run_model
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import prune

import lipopt
from lipopt.errors import LipoptError
from lipopt.model.nodes import Activation
from lipopt.readers.onnx import network_from_model

RNG = np.random.default_rng(0)


class Module(nn.Module):
    """A function of the input and of some layers, as a module."""

    def __init__(self, function: Callable, *layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *self.layers)


def same_values(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Assert that the network of a module has its values in evaluation mode."""
    network = lipopt.load(module, input_shape=shape)
    was_training = module.training
    module.eval()
    torch.manual_seed(0)
    for size in (0.1, 1.0, 10.0):
        x = size * torch.randn(1, *shape)
        expected = module(x.clone()).detach().numpy().reshape(-1)
        ours = network.forward(x.numpy().reshape(-1)).reshape(-1)
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5 * size)
    module.train(was_training)


# ---- PyTorch


def scaled_in_place(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    y = layer(x)
    y.mul_(3.0)
    return y


def alias_of_an_activation(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    y = layer(x)
    return y + nn.ELU(3.0, inplace=True)(y)


def result_dropped(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    h = layer(x)
    F.relu(h, inplace=True)
    return h


def part_scaled(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    h = layer(x)
    v = h[:, :1]
    v.mul_(3)
    return h


def part_overwritten(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    h = layer(x)
    h[:, 0] = x[:, 1]
    h[:, 1:3] += 1
    return h


@pytest.mark.parametrize(
    "function",
    [scaled_in_place, alias_of_an_activation, result_dropped, part_scaled, part_overwritten],
)
def test_operations_in_place(function: Callable) -> None:
    torch.manual_seed(0)
    same_values(Module(function, nn.Linear(3, 4)), (3,))


PADDED = {
    "average": Module(lambda x: F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 2, count_include_pad=False)),
    "adaptive": nn.Sequential(nn.ZeroPad2d(1), nn.AdaptiveAvgPool2d(1)),
    "divisor": nn.AvgPool2d(2, divisor_override=1),
}


@pytest.mark.parametrize("name", sorted(PADDED))
def test_average_pooling(name: str) -> None:
    same_values(PADDED[name], (2, 4, 4))


BATCHES = {
    "convolution": Module(lambda x, c: c(x.view(2, 1, 4, 4)), nn.Conv2d(1, 3, 3)),
    "maximum": Module(lambda x: F.max_pool2d(x.view(2, 1, 4, 4), 2)),
    "average": Module(lambda x: F.avg_pool2d(x.view(2, 1, 4, 4), 2)),
}


@pytest.mark.parametrize("name", sorted(BATCHES))
def test_a_batch_made_inside(name: str) -> None:
    same_values(BATCHES[name], (2, 4, 4))


REDUCTIONS = {
    "all axes": Module(lambda x: x.sum().unsqueeze(0)),
    "axis 0": Module(lambda x: x.view(2, 3).amax(dim=0)),
    "no axes": Module(lambda x: x.sum(dim=())),
    "all axes kept": Module(lambda x: x.mean(dim=(0, 1), keepdim=True)),
}


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_reductions_in_torch(name: str) -> None:
    same_values(REDUCTIONS[name], (6,))


def diagonal_shifted(x: torch.Tensor) -> torch.Tensor:
    y = x.view(2, 3).clone()
    y.diagonal().add_(1.0)
    return y


def written_by_index(x: torch.Tensor) -> torch.Tensor:
    return x.clone().scatter_(1, torch.tensor([[1, 2]]), x[:, :3])


def added_by_index(x: torch.Tensor) -> torch.Tensor:
    y = x.clone().scatter_add_(1, torch.tensor([[1, 1, 0]]), x[:, 1:])
    return y.index_add_(1, torch.tensor([0, 5, 0]), x[:, 2:5], alpha=0.5)


def filtered(x: torch.Tensor) -> torch.Tensor:
    image = x.view(1, 1, 2, 3)
    return F.interpolate(image, size=(1, 2), mode="bilinear", antialias=True)


ENTRIES = {
    "a diagonal changed": Module(diagonal_shifted),
    "entries written": Module(written_by_index),
    "entries added": Module(added_by_index),
    "a number filled in": Module(lambda x: x.scatter(1, torch.tensor([[1, 1]]), 1.5)),
    "windows": Module(lambda x: x.unfold(1, 3, 2)),
    "columns folded": Module(lambda x: F.fold(x.view(1, 2, 3), (1, 4), (1, 2))),
    "a sum of sizes": Module(lambda x: x.view(2, 3).norm(p=1, dim=1)),
    "the largest size": Module(lambda x: torch.linalg.vector_norm(x, float("inf"))),
    "no axes at all": Module(lambda x: x.sum().squeeze(0).cumsum(0).amax(0).transpose(0, -1)),
    "a random slope in evaluation": nn.RReLU(0.1, 0.3),
    "a soft threshold": nn.Softshrink(0.3),
    "a scaled ELU": Module(lambda x: torch.ops.aten.elu(x, 1.5, 2.0)),
    "an index of zeros": Module(
        lambda x: x.scatter(1, torch.zeros_like(x, dtype=torch.int64), 2.0)
    ),
    "no NaN": Module(lambda x: torch.nan_to_num(x).nansum(1)),
    "resized with a filter": Module(filtered),
}


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_entries_in_torch(name: str) -> None:
    same_values(ENTRIES[name], (6,))


def test_resizing_in_double_precision_has_weights_in_double_precision() -> None:
    upsample = nn.Upsample(size=7, mode="linear")
    module = nn.Sequential(nn.Conv1d(1, 1, 1), upsample).double()
    network = lipopt.load(module, input_shape=(1, 3))
    x = torch.tensor([[[0.1, 1.7, -2.3]]], dtype=torch.float64)
    expected = module(x).detach().numpy().reshape(-1)
    np.testing.assert_allclose(network.forward(x[0]), expected, rtol=1e-13)


def test_constants_have_the_precision_of_their_tensor() -> None:
    layer = nn.Linear(3, 3).double()
    module = Module(lambda x, layer: layer(x) + torch.full_like(x, 0.3), layer)
    network = lipopt.load(module, input_shape=(3,))
    x = torch.tensor([[0.1, 1.7, -2.3]], dtype=torch.float64)
    np.testing.assert_allclose(network.forward(x[0]), module(x).detach().numpy()[0], rtol=1e-14)


def test_what_torch_export_traces_as_another_function_is_refused() -> None:
    """A dropout in evaluation mode returns its input itself, which is changed afterwards."""

    def changed(x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(x, 0.5, training=False)
        x.relu_()
        return y

    with pytest.raises(LipoptError, match="another function than the graph"):
        lipopt.load(Module(changed), input_shape=(3,))


def hooked() -> nn.Module:
    layer = nn.Linear(3, 4)
    layer.register_forward_hook(lambda module, inputs, output: 10 * output)
    return layer


def old_weight_norm() -> nn.Module:
    """Its `weight` is stale after new weights are loaded, until it runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = torch.nn.utils.weight_norm(nn.Linear(3, 4))
    state = layer.state_dict()
    state["weight_g"] = 10 * state["weight_g"]
    layer.load_state_dict(state)
    return layer


def old_spectral_norm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nn.utils.spectral_norm(nn.Linear(3, 4))


def pruned() -> nn.Module:
    layer = nn.Linear(3, 4)
    prune.l1_unstructured(layer, "weight", 0.5)
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(4, 2))


WRAPPED = {
    "hook": hooked,
    "old weight norm": old_weight_norm,
    "old spectral norm": old_spectral_norm,
    "weight norm": lambda: torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)),
    "spectral norm": lambda: torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)),
    "pruned": pruned,
    "data parallel": lambda: nn.DataParallel(nn.Linear(3, 4)),
    "compiled": lambda: torch.compile(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), backend="eager"),
}


@pytest.mark.parametrize("name", sorted(WRAPPED))
def test_modules_with_more_than_layers(name: str) -> None:
    torch.manual_seed(0)
    module = WRAPPED[name]()
    attributes = {key: dict(m.__dict__) for key, m in module.named_modules()}
    lipopt.load(module, input_shape=(3,))
    for key, m in module.named_modules():
        assert m.__dict__.keys() == attributes[key].keys()
        assert all(m.__dict__[a] is value for a, value in attributes[key].items())
    same_values(module, (3,))


RANDOM = {
    "dropout": Module(lambda x, layer: F.dropout(layer(x), 0.5, training=True), nn.Linear(3, 3)),
    "noise": Module(lambda x: x + torch.rand(3)),
    "noise like": Module(lambda x: x + torch.randn_like(x)),
}


@pytest.mark.parametrize("name", sorted(RANDOM))
def test_random_layers_are_refused(name: str) -> None:
    with pytest.raises(LipoptError, match="random"):
        lipopt.load(RANDOM[name], input_shape=(3,))


# ---- ONNX


def weights(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def node(operator: str, *inputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, ["x", *inputs], ["y"], **attributes)


def chain(*steps: tuple) -> list[onnx.NodeProto]:
    return [helper.make_node(op, ins, outs, **options) for op, ins, outs, options in steps]


PAD: tuple[str, list[str], list[str], dict[str, Any]] = ("Pad", ["x", "p"], ["h"], {})
FRAME = {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
ZEROS = {"z": np.zeros((1, 2, 4, 4), np.float32)}
POOL = {"kernel_shape": [2, 2], "count_include_pad": 0}
MISREAD: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...], dict[str, Any], int]] = {
    "padding, then average": (
        chain(PAD, ("AveragePool", ["h"], ["y"], POOL)),
        (1, 2, 4, 4),
        FRAME,
        17,
    ),
    "padding, then global": (
        chain(PAD, ("GlobalAveragePool", ["h"], ["y"], {})),
        (1, 2, 4, 4),
        FRAME,
        17,
    ),
    "zeros joined, then global": (
        chain(
            ("Concat", ["x", "z"], ["h"], {"axis": 2}),
            ("GlobalAveragePool", ["h"], ["y"], {}),
        ),
        (1, 2, 4, 4),
        ZEROS,
        17,
    ),
    "a fixed batch": ([node("Conv", "w")], (2, 1, 4, 4), {"w": weights(3, 1, 3, 3)}, 17),
    "a batch by reshape": (
        chain(
            ("Reshape", ["x", "s"], ["h"], {}),
            ("MaxPool", ["h"], ["y"], {"kernel_shape": [2, 2]}),
        ),
        (1, 2, 4, 4),
        {"s": np.array([2, 1, 4, 4])},
        17,
    ),
    "all axes": ([node("ReduceSum")], (1, 5), {}, 17),
    "no axes": ([node("ReduceSum", "a")], (1, 4), {"a": np.array([], np.int64)}, 17),
    "no axes, nothing to do": (
        [node("ReduceSum", "a", noop_with_empty_axes=1)],
        (1, 4),
        {"a": np.array([], np.int64)},
        17,
    ),
    "flatten from the end": ([node("Flatten", axis=-1)], (2, 3, 4), {}, 17),
    "a stack of one matrix": ([node("MatMul", "w")], (3, 4), {"w": weights(1, 4, 2)}, 17),
    "a stack of matrices": ([node("MatMul", "w")], (3, 4), {"w": weights(5, 4, 2)}, 17),
    "nearly hard swish": (
        chain(
            ("HardSigmoid", ["x"], ["h"], {"alpha": 1 / 6 + 1e-7, "beta": 0.5}),
            ("Mul", ["x", "h"], ["y"], {}),
        ),
        (1, 4),
        {},
        17,
    ),
    "indices that end before the tensor": (
        [node("GatherElements", "i", axis=2)],
        (2, 3, 4),
        {"i": np.array([[[3, -1], [0, 1]]])},
        17,
    ),
    "indices of one row": (
        [node("GatherElements", "i", axis=1)],
        (1, 3, 4),
        {"i": np.array([[[2], [0]]])},
        17,
    ),
    "places in several axes": (
        [node("GatherND", "i", batch_dims=1)],
        (2, 3, 4),
        {"i": np.array([[[-1, 0]], [[1, 3]]])},
        17,
    ),
    "entries written": (
        chain(
            ("Neg", ["x"], ["n"], {}),
            ("Slice", ["n", "zero", "one", "one"], ["s"], {}),
            ("ScatterElements", ["x", "i", "s"], ["y"], {"axis": 1}),
        ),
        (1, 4),
        {"zero": np.array([0]), "one": np.array([1]), "i": np.array([[-2]])},
        17,
    ),
    "rows added": (
        [helper.make_node("ScatterND", ["c", "i", "x"], ["y"], reduction="add")],
        (2, 3),
        {"c": weights(4, 3), "i": np.array([[1], [1]])},
        17,
    ),
    "entries left out": (
        [node("Compress", "m", axis=1)],
        (1, 3),
        {"m": np.array([0, 1], bool)},
        17,
    ),
    "rows reversed": (
        [node("ReverseSequence", "n", batch_axis=0, time_axis=1)],
        (2, 3),
        {"n": np.array([2, 3])},
        17,
    ),
    "running sums": (
        [node("CumSum", "a", reverse=1, exclusive=1)],
        (2, 4),
        {"a": np.array(-1)},
        17,
    ),
    "weights on the left": (
        [helper.make_node("Gemm", ["w", "x", "b"], ["y"], alpha=0.5, transB=1)],
        (3, 4),
        {"w": weights(2, 4), "b": weights(3)},
        17,
    ),
    "a bias that depends on the input": (
        [helper.make_node("Gemm", ["w", "v", "x"], ["y"], alpha=2.0, beta=0.5)],
        (2, 3),
        {"w": weights(2, 4), "v": weights(4, 3)},
        17,
    ),
    "a bias of the product's rows": (
        [node("Gemm", "w", "b", transA=1)],
        (3, 4),
        {"w": weights(3, 2), "b": weights(4, 1)},
        17,
    ),
    "resized to one entry": (
        [
            helper.make_node(
                "Resize",
                ["x", "", "", "s"],
                ["y"],
                mode="cubic",
                coordinate_transformation_mode="pytorch_half_pixel",
            )
        ],
        (1, 1, 4, 3),
        {"s": np.array([1, 1, 6, 1])},
        17,
    ),
    "corners aligned at a size that is rounded": (
        [
            helper.make_node(
                "Resize",
                ["x", "", "s"],
                ["y"],
                mode="linear",
                coordinate_transformation_mode="align_corners",
            )
        ],
        (1, 1, 2, 3),
        {"s": np.array([1, 1, 0.5, 1.5], np.float32)},
        17,
    ),
    "a gate after a shift": (
        chain(
            ("Add", ["x", "c"], ["h"], {}),
            ("Sigmoid", ["h"], ["g"], {}),
            ("Mul", ["h", "g"], ["y"], {}),
        ),
        (1, 4),
        {"c": np.float32(0.7)},
        17,
    ),
    "a steeper hard gate": (
        chain(
            ("Mul", ["x", "c"], ["h"], {}),
            ("HardSigmoid", ["h"], ["g"], {}),
            ("Mul", ["x", "g"], ["y"], {}),
        ),
        (1, 4),
        {"c": np.float32(1.5)},
        17,
    ),
}


@pytest.mark.parametrize("name", sorted(MISREAD))
def test_onnx_graphs(name: str) -> None:
    nodes, shape, constants, opset = MISREAD[name]
    model = make_model(nodes, shape, constants, opset)
    network = network_from_model(model)
    agrees(model, network, shape)
    # The shapes of all tensors are right too: another layer can follow.
    longer = make_model(
        [*nodes, helper.make_node("ReduceMax", ["y"], ["last"])], shape, constants, opset, ["last"]
    )
    agrees(longer, network_from_model(longer), shape)


def test_nearly_hard_swish_keeps_its_slope() -> None:
    """The slope of x * HardSigmoid(x) goes to 1 + beta; that of alpha above 1/6 does so sooner."""
    nodes, shape, constants, opset = MISREAD["nearly hard swish"]
    network = network_from_model(make_model(nodes, shape, constants, opset))
    alpha = float(np.float32(1 / 6 + 1e-7))
    kind = network.nodes[1]
    assert isinstance(kind, Activation)
    assert (kind.kind, kind.parameters["alpha"]) == ("hard_silu", alpha)


DEFAULTS = ("LeakyRelu", "BatchNormalization")


@pytest.mark.parametrize("operator", DEFAULTS)
def test_default_attributes_are_single_precision_in_double_precision_models(operator: str) -> None:
    """The default 0.01 of a slope is the float32 next to it, also where tensors are float64."""
    names = ["s", "b", "m", "v"] if operator == "BatchNormalization" else []
    constants = {name: np.full(3, 1e-3) for name in names}
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", *names], ["y"])],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [1, 3])],
        [onnx.ValueInfoProto(name="y")],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    network = network_from_model(model)
    x = np.array([[-1.7, 0.3, -0.9]])
    np.testing.assert_allclose(network.forward(x[0]), run_model(model, {"x": x})[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.AvgPool2d(3, 1, 1), (1, 4, 4)),
        (nn.Sequential(nn.ZeroPad2d(1), nn.AdaptiveAvgPool2d(1)), (1, 4, 4)),
    ],
)
def test_what_torch_exports_for_pooling(module: nn.Module, shape: tuple) -> None:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.randn(1, *shape),), buffer, dynamo=False, opset_version=9)
    network = network_from_model(onnx.load_from_string(buffer.getvalue()))
    x = torch.randn(1, *shape)
    np.testing.assert_allclose(network.forward(x[0]), module(x).numpy().reshape(-1), rtol=1e-5)


def test_external_data_lies_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model([node("MatMul", "w")], (1, 300), {"w": weights(300, 2)})
    (tmp_path / "model").mkdir()
    (tmp_path / "elsewhere").mkdir()
    saved = onnx.ModelProto.FromString(model.SerializeToString())
    onnx.save(
        saved,
        tmp_path / "model" / "m.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    plain = (tmp_path / "model" / "m.onnx").read_bytes()
    (tmp_path / "model" / "m.onnx.gz").write_bytes(gzip.compress(plain))
    decoy = bytes(len((tmp_path / "model" / "w.bin").read_bytes()))
    (tmp_path / "elsewhere" / "w.bin").write_bytes(decoy)
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in ("m.onnx", "m.onnx.gz"):
        network = lipopt.load(tmp_path / "model" / name)
        agrees(model, network, (1, 300))
        assert network.source is not None
        assert sorted(network.source.files) == sorted([name, "w.bin"])


STATISTICS = {name: np.ones((2, 3), np.float32) for name in ("s", "b", "m", "v")}
TRAINING = {"r": np.float32(0.5), "t": np.array(True)}
REFUSED = {
    "dropout in training": (make_model([node("Dropout", "r", "t")], (1, 4), TRAINING), "random"),
    "noise": (
        make_model(
            chain(("RandomNormalLike", ["x"], ["n"], {}), ("Add", ["x", "n"], ["y"], {})), (1, 4)
        ),
        "random",
    ),
    "noise of its own": (
        make_model(
            chain(("RandomUniform", [], ["n"], {"shape": [1, 4]}), ("Add", ["x", "n"], ["y"], {})),
            (1, 4),
        ),
        "random",
    ),
    "statistics by entry": (
        make_model(
            [node("BatchNormalization", "s", "b", "m", "v", spatial=0)], (1, 2, 3), STATISTICS, 8
        ),
        "spatial=0",
    ),
    "batch norm in training": (
        make_model(
            [
                helper.make_node(
                    "BatchNormalization",
                    ["x", "s", "b", "m", "v"],
                    ["y", "m1", "v1"],
                    training_mode=1,
                )
            ],
            (1, 2, 3),
            {name: np.ones(2, np.float32) for name in ("s", "b", "m", "v")},
        ),
        "training mode",
    ),
    "padding that implementations compute in two ways": (
        make_model(
            [node("MaxPool", kernel_shape=[2], dilations=[2], auto_pad="SAME_UPPER")],
            (1, 1, 6),
        ),
        "auto_pad=SAME with dilations",
    ),
    "padding that some take to be negative": (
        make_model(
            [node("MaxPool", kernel_shape=[1], strides=[3], auto_pad="SAME_UPPER")],
            (1, 1, 6),
        ),
        "end before the input does",
    ),
    "an output that implementations pad in two ways": (
        make_model(
            [node("ConvTranspose", "w", strides=[2], auto_pad="SAME_UPPER")],
            (1, 1, 2),
            {"w": np.ones((1, 1, 1), np.float32)},
        ),
        "more than the kernel reaches",
    ),
    "a nearest entry that no one says": (
        make_model(
            [node("Resize", "s", mode="nearest")],
            (1, 1, 14),
            {"s": np.array([1, 1, 0.7], np.float32)},
            10,
        ),
        "which entry is the nearest",
    ),
    "a size that depends on rounding": (
        make_model(
            [helper.make_node("Resize", ["x", "", "s"], ["y"])],
            (1, 1, 10),
            {"s": np.array([1, 1, 0.7], np.float32)},
        ),
        "depends on rounding",
    ),
    "averages that implementations take in two ways": (
        make_model(
            [
                helper.make_node(
                    "Resize",
                    ["x", "", "s"],
                    ["y"],
                    mode="linear",
                    antialias=1,
                    coordinate_transformation_mode="align_corners",
                )
            ],
            (1, 1, 18),
            {"s": np.array([1, 1, 0.7], np.float32)},
            19,
        ),
        "antialias",
    ),
    "integers": (
        helper.make_model(
            helper.make_graph(
                [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)],
                "test",
                [helper.make_tensor_value_info("x", TensorProto.INT64, [1, 3])],
                [onnx.ValueInfoProto(name="y")],
            )
        ),
        "int64",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused(name: str) -> None:
    model, message = REFUSED[name]
    with pytest.raises(LipoptError, match=message):
        network_from_model(model)
