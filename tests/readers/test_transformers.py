"""Small transformers: the same from PyTorch and from ONNX, with constants that certificates prove."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import lipcheck.certificate
import lipcheck.network
import lipopt


class VisionTransformer(nn.Module):
    """Patches by a convolution, a class token, places, one block, a head on the class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 4, 2, 2)
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.places = nn.Parameter(torch.randn(1, 3, 4))
        self.before = nn.LayerNorm(4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.block = nn.TransformerEncoderLayer(
            4, 2, 6, activation="gelu", batch_first=True, norm_first=True
        )
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1) + self.places
        normal = self.before(tokens)
        tokens = tokens + self.attention(normal, normal, normal, need_weights=False)[0]
        return self.head(self.block(tokens)[:, 0])


class Characters(nn.Module):
    """A causal attention layer of a model of characters, from embedded characters on."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(2, eps=1e-3)
        self.inputs = nn.Linear(2, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inputs(self.norm(x))[:, None].chunk(3, -1)
        y = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + y[:, 0]


# The shape of an input, and the opset to export to: 23 has an operator for attention.
MODELS: dict[str, tuple[type[nn.Module], tuple[int, ...], int]] = {
    "vision transformer": (VisionTransformer, (1, 2, 4), 18),
    "characters": (Characters, (3, 2), 23),
}


@pytest.mark.parametrize("name", MODELS)
def test_transformers_are_read_from_modules_and_files(name: str, tmp_path: Path) -> None:
    """Both readers compare all tensors with the original; here their networks are compared."""
    make, shape, opset = MODELS[name]
    torch.manual_seed(0)
    module = make().eval()
    x = torch.randn(1, *shape)
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), path, dynamo=True, opset_version=opset, verbose=False)
    expected = module(x).detach().reshape(1, -1)
    for network in (lipopt.load(module, input_shape=shape), lipopt.load(path)):
        np.testing.assert_allclose(network(x), expected, rtol=1e-4, atol=1e-5)


def test_the_constant_of_attention_is_proved(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = Characters().eval().double()
    network = lipopt.load(module, input_shape=(3, 2))
    x = torch.randn(3, 2, dtype=torch.float64)
    domain = lipopt.Ball(x.numpy().reshape(-1), 0.01)
    result = lipopt.bound(
        network, method="sdp", norm="l2", output="all", domain=domain, certify=True
    )
    jacobian = torch.autograd.functional.jacobian(module, x[None]).reshape(6, 6)
    assert float(torch.linalg.matrix_norm(jacobian, 2)) <= result.upper <= 1.1 * result.lower
    assert result.certificate is not None
    path = tmp_path / "network.safetensors"
    network.save(path)
    stored = lipcheck.network.read_network(path.read_bytes())
    claim = lipcheck.certificate.check(stored, result.certificate.text.encode())
    assert float(claim.bound) == result.upper
