"""PyTorch modules: the same values as torch, and the same problem as their ONNX export."""

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import lipopt
from lipopt.errors import LipoptError
from lipopt.model.nodes import Affine
from lipopt.readers.onnx import network_from_model


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.short = nn.Conv2d(before, after, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        y += self.short(x)
        return F.relu(y)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.layers = nn.Sequential(Block(4, 4, 1), Block(4, 6, 2))
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.relu(self.stem(x)), 3, 2, 1)
        x = F.adaptive_avg_pool2d(self.layers(x), 1)
        return self.head(x.view(x.size(0), -1))


class Functions(nn.Module):
    """Functionals, methods and operators."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 4), nn.Linear(6, 4)
        self.register_buffer("shift", torch.tensor([0.5, -1.0, 2.0, 0.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        p, q = F.leaky_relu(self.a(x), 0.2), torch.tanh(self.b(x))
        y = 2 * p - q / 3 + self.shift
        left, right = y.chunk(2, dim=1)
        z = torch.cat([F.gelu(left), right.sigmoid() - 1, -q[:, 1:3]], dim=1)
        z = z.unsqueeze(1).transpose(1, 2).squeeze(2)
        z = F.pad(torch.clamp(z, -0.5, max=0.9), (1, 0)).reshape(-1, 7)
        gated = z * torch.sigmoid(z)
        return gated.mean(1, keepdim=True) + torch.maximum(z, gated).sum(dim=1, keepdim=True)


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, dilation=1, padding="valid"),
        nn.BatchNorm2d(3),
        nn.PReLU(3),
        nn.AvgPool2d(2, padding=1),
        nn.ZeroPad2d(1),
        nn.Conv2d(3, 3, 2, groups=3),
        nn.Hardswish(),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.LazyLinear(4),
    )


def settled(module: nn.Module, shape: tuple) -> nn.Module:
    """With batch norm statistics that are not trivial, in evaluation mode."""
    module.train()
    with torch.no_grad():
        for _ in range(3):
            module(torch.randn(8, *shape))
    return module.eval()


def agrees(module: nn.Module, shape: tuple, network: lipopt.Network) -> None:
    x = torch.randn(5, *shape, dtype=torch.float64)
    expected = module.double()(x).detach().numpy()
    module.float()
    np.testing.assert_allclose(
        network.forward(x.numpy()), expected.reshape(5, -1), rtol=1e-6, atol=1e-6
    )


def exported(module: nn.Module, shape: tuple) -> lipopt.Network:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.randn(1, *shape),), buffer, dynamo=False, opset_version=13)
    return network_from_model(onnx.load_from_string(buffer.getvalue()))


@pytest.mark.parametrize(
    ("make", "shape"),
    [(ResNet, (3, 8, 8)), (conv_net, (1, 9, 9)), (Functions, (6,))],
    ids=["resnet", "conv", "functions"],
)
def test_modules(make: type, shape: tuple) -> None:
    torch.manual_seed(0)
    module = settled(make(), shape)
    network = lipopt.load(module, input_shape=shape)
    agrees(module, shape, network)
    onnx_network = exported(module, shape)
    agrees(module, shape, onnx_network)
    for method in ("path-sum", "product"):
        mine, theirs = (
            lipopt.bound(n, method=method, samples=50).upper for n in (network, onnx_network)
        )
        if method == "path-sum":
            assert mine == pytest.approx(theirs, rel=1e-5)
        assert min(mine, theirs) > 0


ACTIVATIONS = [
    nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.3), nn.PReLU(), nn.ELU(0.7), nn.SELU(), nn.CELU(1.3), nn.Softplus(2.0), nn.Softsign(),
    nn.Sigmoid(), nn.Tanh(), nn.Hardsigmoid(), nn.Hardswish(), nn.Hardtanh(-0.4, 0.6), nn.GELU(), nn.GELU("tanh"), nn.SiLU(),
    nn.Mish(),
]  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_activations(activation: nn.Module) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 5), activation, nn.Linear(5, 2)).eval()
    agrees(module, (3,), lipopt.load(module))


def test_the_module_is_left_alone() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).train()
    lipopt.load(module)
    assert module.training


def test_tensors_stand_for_arrays() -> None:
    module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    weights, biases = [[getattr(module[k], name) for k in (0, 2)] for name in ("weight", "bias")]
    point = torch.rand(3, requires_grad=True)
    network = lipopt.load(weights, biases=biases)
    assert network.hash == lipopt.load(weights, biases=[b.detach().numpy() for b in biases]).hash
    np.testing.assert_allclose(network(point), module(point).detach().numpy(), rtol=1e-5)
    ball = lipopt.Ball(point, 0.1)
    np.testing.assert_array_equal(ball.center, point.detach().numpy().astype(np.float64))
    half = lipopt.load([w.bfloat16() for w in weights])
    affine = half.nodes[1]
    assert isinstance(affine, Affine)
    np.testing.assert_array_equal(
        affine.matrices[0], weights[0].bfloat16().float().detach().numpy()
    )
    label = int(module(point).argmax())
    assert lipopt.certified_radius(network, point, label) >= 0
    assert all(
        row.error is None for row in lipopt.local_bounds(network, point[None], 0.1, samples=5)
    )


@pytest.mark.parametrize("options", [{"activation": "tanh"}, {"biases": [None]}])
def test_options_of_other_sources_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(LipoptError, match="does not go with a Linear"):
        lipopt.load(nn.Linear(2, 2), **options)
    with pytest.raises(LipoptError, match="does not go with a Network"):
        lipopt.load(lipopt.load(nn.Linear(2, 2)), **options)


class TwoInputs(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Returning(nn.Module):
    """What a function of the input returns."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor):
        return self.function(x)


REFUSED = {
    "recurrent": (Returning(nn.LSTM(2, 2)), (3, 2), "recurrent layers are not supported"),
    "no input shape": (nn.Conv2d(1, 1, 3), None, "input_shape"),
    "a shape that does not fit": (nn.Linear(3, 2), (4,), "cannot trace .* \\(1, 4\\)"),
    "no shape at all": (nn.Linear(3, 2), (0,), "not positive"),
    "two inputs": (TwoInputs(), (2,), "missing a required argument"),
    "two outputs": (Returning(lambda x: (x, x)), (2,), "returns 2 results"),
    "no dependence": (Returning(lambda x: torch.ones(3)), (2,), "does not depend on its input"),
    "branching": (Branching(), (2,), "branches on the values"),
    "threshold": (nn.Softplus(threshold=1), (3,), "threshold"),
    "training batch norm": (
        Returning(lambda x: F.batch_norm(x, None, None, training=True)),
        (3, 4),
        "statistics",
    ),
    "exponents": (Returning(lambda x: torch.relu(x) ** x), (3,), "exponent depend"),
    "jumps": (Returning(torch.sign), (3,), "not Lipschitz"),
    "half precision cast": (Returning(lambda x: x.half()), (3,), "rounds its input"),
    "meta": (nn.Linear(3, 4, device="meta"), (3,), "meta device"),
    "lazy": (nn.LazyLinear(3), (3,), "lazy layers"),
    "NaN": (
        nn.Sequential(nn.Linear(2, 2)).apply(
            lambda m: nn.init.constant_(getattr(m, "bias", torch.ones(1)), np.nan)
        ),
        (2,),
        "NaN",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused(name: str) -> None:
    module, shape, message = REFUSED[name]
    with pytest.raises(LipoptError, match=message):
        lipopt.load(module, input_shape=shape)


def test_a_point_tells_the_shape_of_an_input() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 3)).eval()
    x = torch.rand(2, 8, 8)
    label = module(x[None]).argmax()
    radius = lipopt.certified_radius(module, x, label, input_shape=(2, 8, 8))
    assert lipopt.certified_radius(module, x, label) == radius
    assert lipopt.certified_radius(module, x[None], label) == radius
    assert len(lipopt.certify(module, torch.stack([x, x]), 0.001)) == 2
    assert lipopt.bound(module, domain=lipopt.Ball(x, 0.01), samples=10).upper > 0


def test_a_guess_is_called_one() -> None:
    """A Linear layer that reads the last of several dimensions."""
    tokens = Returning(lambda x: x.reshape(-1, 2, 3))
    module = nn.Sequential(nn.Linear(3, 3), tokens)
    with pytest.raises(LipoptError, match=r"the shape \(3,\) is a guess.*pass input_shape"):
        lipopt.load(module)
    with pytest.raises(LipoptError, match=r"give one point, or input_shape=\(5, 3\)"):
        lipopt.bound(nn.Linear(3, 2), domain=lipopt.Ball(np.zeros((5, 3)), 0.1))


def test_sizes_are_whole_numbers() -> None:
    half: Any = (2.5,)
    with pytest.raises(LipoptError, match="input_shape is a list of sizes"):
        lipopt.load(nn.Linear(2, 1), input_shape=half)


def test_a_scripted_module_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Linear(3, 4))
    with pytest.raises(LipoptError, match="scripted"):
        lipopt.load(scripted)


class Bottleneck(nn.Module):
    """The inverted bottleneck of MobileNet, with activations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, 8, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(True),
            nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(True),
            nn.Conv2d(8, 4, 1, bias=False),
            nn.BatchNorm2d(4),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


class DenseBlock(nn.Module):
    """Two layers of DenseNet: each reads all that came before."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 2, 3, padding=1)
        self.second = nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([x, F.relu(self.first(x))], 1)
        return torch.cat([y, F.relu(self.second(y))], 1)


class Decoder(nn.Module):
    """Transposed convolutions, upsampling and pixel shuffling."""

    def __init__(self) -> None:
        super().__init__()
        self.grow = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear")
        self.near = nn.Upsample(size=(9, 7))
        self.conv = nn.Conv2d(6, 4, 3, padding=1, padding_mode="circular")
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.near(self.up(F.elu(self.grow(x))))
        x = self.shuffle(F.silu(self.conv(x)))
        return F.adaptive_max_pool2d(x, (3, 4)).flatten(1) - F.adaptive_avg_pool2d(
            x, (3, 4)
        ).flatten(1)


BLOCKS = {
    "inverted bottleneck": (Bottleneck, (4, 5, 5)),
    "dense block": (DenseBlock, (2, 5, 5)),
    "decoder": (Decoder, (4, 3, 2)),
}


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_blocks(name: str) -> None:
    make, shape = BLOCKS[name]
    torch.manual_seed(0)
    module = settled(make(), shape)
    agrees(module, shape, lipopt.load(module, input_shape=shape))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).to(kind)
    network = lipopt.load(module)
    x = torch.randn(4, 3, dtype=kind)
    agreed = {torch.float16: 1e-2, torch.bfloat16: 1e-1, torch.float64: 1e-12}[kind]
    expected = module(x).detach().double().numpy()
    np.testing.assert_allclose(network(x.double()), expected, rtol=agreed, atol=agreed)


def test_exported_programs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2), nn.Softmax(1)).eval()
    program = torch.export.export(module, (torch.randn(1, 3),))
    batch = torch.export.Dim("batch")
    dynamic = torch.export.export(module, (torch.randn(4, 3),), dynamic_shapes=({0: batch},))
    expected = lipopt.load(module[:3]).hash
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    for source in (program, dynamic, path):
        network = lipopt.load(source, logits=True)
        assert network.hash == expected
        assert network.source is not None
        assert "without the softmax" in network.source.part
    again = lipopt.load(path, logits=True).source
    assert again is not None
    assert list(again.files) == ["model.pt2"]
    large = torch.export.export(module, (torch.randn(4, 3),))
    with pytest.raises(LipoptError, match="batches of 4"):
        lipopt.load(large, logits=True)


class Harmful:
    """What runs code when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def test_no_code_of_a_file_is_run(tmp_path: Path) -> None:
    program = torch.export.export(nn.Linear(3, 2), (torch.randn(1, 3),))
    torch.export.save(program, tmp_path / "good.pt2")
    harmful = io.BytesIO()
    torch.save(Harmful(tmp_path / "trace"), harmful)
    with (
        zipfile.ZipFile(tmp_path / "good.pt2") as good,
        zipfile.ZipFile(tmp_path / "bad.pt2", "w") as bad,
    ):
        for name in good.namelist():
            bad.writestr(name, harmful.getvalue() if "sample_inputs" in name else good.read(name))
    assert lipopt.load(tmp_path / "good.pt2").input_shape == (3,)
    with pytest.raises(LipoptError, match="not a readable exported program"):
        lipopt.load(tmp_path / "bad.pt2")
    assert not (tmp_path / "trace").exists()


def test_a_shape_wherever_a_module_may_be_given() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    given: dict[str, Any] = {"input_shape": (1, 4, 4)}
    point = np.zeros((1, 4, 4))
    result = lipopt.bound(module, **given, method="path-sum", samples=10)
    assert (
        lipopt.compare(module, **given, methods=["path-sum"], samples=10)[0].upper == result.upper
    )
    assert lipopt.lower_bound(module, **given, samples=10).lower <= result.upper
    local = lipopt.local_bounds(module, point[None], 0.1, **given, samples=5)[0].upper
    assert local is not None
    assert local <= result.upper
    assert (
        lipopt.certified_radius(
            module, point, int(module(torch.zeros(1, 1, 4, 4)).argmax()), **given
        )
        >= 0
    )


class Sum(nn.Module):
    """A function of a matrix and a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x.flatten(1))) - 2 * u


def test_several_inputs_are_joined_in_order(tmp_path: Path) -> None:
    module = Sum().eval()
    x = torch.randn(1, 2, 3)
    u = torch.randn(1, 4)
    program = torch.export.export(module, (x, u))
    path = tmp_path / "two.pt2"
    torch.export.save(program, path)
    joined = torch.cat([x.flatten(), u.flatten()])
    read = [lipopt.load(source) for source in (program, path)]
    for network in [lipopt.load(module, input_shape=[(2, 3), (4,)]), *read]:
        np.testing.assert_allclose(network(joined), module(x, u)[0].detach(), rtol=1e-5, atol=1e-6)
        assert network.source is not None
        assert network.source.inputs == {"x": 6, "u": 4}
    with pytest.raises(LipoptError, match="cannot trace"):
        lipopt.load(module)
