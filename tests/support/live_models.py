"""Small PyTorch modules to train: one for every kind of layer that the reader takes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrizations

Shape = tuple[int, ...]


class Residual(nn.Module):
    """A dense network with two sums around layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 6)
        self.inner = nn.Linear(6, 6)
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = x + torch.relu(self.inner(x))
        return self.last(x) - x[:, :3]


class Maxima(nn.Module):
    """Maxima of tensors, of axes and with constants, and sums of absolute values."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 6)
        self.b = nn.Linear(4, 6)
        self.floor = nn.Parameter(torch.full((6,), -0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.maximum(self.a(x), self.b(x))
        z = torch.maximum(y, self.floor) - torch.minimum(self.a(x), y)
        sizes = torch.linalg.vector_norm(z, ord=1, dim=1, keepdim=True)
        return torch.cat([y.amax(1, keepdim=True), sizes, z[:, :2]], dim=1)


class Moves(nn.Module):
    """Entries that are moved, cut, padded, repeated and written over."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.register_buffer("shift", torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0, 3.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.leaky_relu(self.a(x), 0.2) * self.shift + 1
        left, right = y.chunk(2, dim=1)
        z = torch.stack([right, 2 - left / 3], dim=1).transpose(1, 2).reshape(-1, 6)
        z = F.pad(z, (1, 1), value=0.3).flip(1).cumsum(1)
        z[:, 0] = x.detach()[:, 1]
        return torch.tanh(z.roll(2, 1)).unfold(1, 4, 2).mean(2)


class Gates(nn.Module):
    """Activations that are written as products."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 5)
        self.b = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        y = y * torch.sigmoid(2 * y) + y / (1 + y.abs())
        z = self.b(y)
        return 0.5 * z * (1 + torch.erf(z / 2**0.5)) + F.logsigmoid(z)


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(3, 2, 2, groups=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8, 2),
    )


def normalized() -> nn.Module:
    """Batch normalization, trained slopes, pooling of both kinds."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding="same"),
        nn.BatchNorm2d(3),
        nn.PReLU(3),
        nn.MaxPool2d(2),
        nn.AvgPool2d(2, stride=1),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(12, 2),
    )


def resized() -> nn.Module:
    """A transposed convolution and interpolations."""
    return nn.Sequential(
        nn.ConvTranspose2d(1, 2, 2, stride=2),
        nn.Tanh(),
        nn.Upsample(scale_factor=0.5, mode="bilinear"),
        nn.Upsample(scale_factor=2, mode="bicubic"),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 2),
    )


def reparametrized() -> nn.Module:
    """Weights that are computed from other parameters."""
    return nn.Sequential(
        parametrizations.weight_norm(nn.Linear(4, 6)),
        nn.GELU(),
        parametrizations.spectral_norm(nn.Linear(6, 5)),
        nn.SiLU(),
        nn.Linear(5, 2),
    )


def smooth() -> nn.Module:
    """Activations in a row."""
    return nn.Sequential(
        nn.Linear(4, 6),
        nn.ELU(0.7),
        nn.Linear(6, 6),
        nn.Mish(),
        nn.Linear(6, 5),
        nn.Softplus(2.0),
        nn.Linear(5, 5),
        nn.Hardtanh(-0.4, 0.6),
        nn.Linear(5, 2),
        nn.Sigmoid(),
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], Shape]] = {
    "dense": (dense, (5,)),
    "convolutional": (convolutional, (1, 6, 6)),
    "residual": (Residual, (5,)),
    "normalized": (normalized, (1, 6, 6)),
    "resized": (resized, (1, 4, 4)),
    "reparametrized": (reparametrized, (4,)),
    "smooth": (smooth, (4,)),
    "maxima": (Maxima, (4,)),
    "moves": (Moves, (6,)),
    "gates": (Gates, (4,)),
}


def live_model(name: str, seed: int = 0) -> tuple[nn.Module, torch.Tensor]:
    """A module in double precision, and a batch of inputs for it."""
    make, shape = MODELS[name]
    torch.manual_seed(seed)
    model = make().double()
    inputs = torch.randn(3, *shape, dtype=torch.float64)
    model.train()
    with torch.no_grad():
        model(inputs)  # statistics of normalization that are not trivial
    return model, inputs
