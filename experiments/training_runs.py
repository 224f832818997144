"""What `experiments.training` trains and measures: the data, the terms that are added to a loss, attacks, certified accuracy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import lipopt
from lipopt.examples import digits
from lipopt.readers.points import read_labels, read_points
from lipopt.training import Penalty

BATCH = 128
RATE = 2e-3  # the largest learning rate of the cycle
ATTACK_STEPS = 20
ADVERSARIAL_STEPS = 5  # of the attack in adversarial training
MARGIN = (3, 8)  # whose constant is shown

Term = Callable[[], Any]  # what is added to a loss


@dataclass(frozen=True)
class Data:
    """Images in [0, 1] as (images, channels, height, width), and their labels."""

    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])


def load_data(folder: Path | None, tiny: bool) -> Data:
    """MNIST from a folder with its four files; without one, scikit-learn's digits; if tiny, twenty digits that lipopt ships."""
    if folder is not None:
        x, y = _mnist(folder, "train")
        x_test, y_test = _mnist(folder, "t10k")
        return _data(x, y, x_test, y_test, side=28)
    if tiny:
        images, labels = digits()
        return _data(images, labels, images, labels, side=28)
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise SystemExit("without MNIST (--data), this needs scikit-learn") from error
    found = load_digits()
    images = found.data / 16.0
    last = len(images) // 4
    return _data(images[:-last], found.target[:-last], images[-last:], found.target[-last:], side=8)


def _mnist(folder: Path, name: str) -> tuple[Any, Any]:
    """Images in [0, 1] and labels of one part of MNIST."""
    images = read_points(folder / f"{name}-images-idx3-ubyte.gz", divide=255.0)
    return images, read_labels(folder / f"{name}-labels-idx1-ubyte.gz")


def _data(x: Any, y: Any, x_test: Any, y_test: Any, side: int) -> Data:
    def images(values: Any) -> torch.Tensor:
        return torch.tensor(np.asarray(values, dtype=np.float32)).reshape(-1, 1, side, side)

    def labels(values: Any) -> torch.Tensor:
        return torch.tensor(np.asarray(values, dtype=np.int64))

    return Data(images(x), labels(y), images(x_test), labels(y_test))


def dense_model(shape: tuple[int, ...]) -> nn.Module:
    """The paper's network, with ReLU."""
    size = int(np.prod(shape))
    return nn.Sequential(
        nn.Flatten(), nn.Linear(size, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)
    )  # fmt: skip


def convolutional_model(shape: tuple[int, ...]) -> nn.Module:
    side = shape[1] // 2 // 2  # after two strides of 2
    return nn.Sequential(
        nn.Conv2d(1, 8, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * side * side, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


MODELS = {"dense": dense_model, "cnn": convolutional_model}


def penalty_term(name: str, model: nn.Module, example: torch.Tensor) -> Term:
    """The term of a loss that has this name."""
    if name in ("none", "adversarial"):
        return lambda: 0.0
    if name == "weight decay":
        return lambda: sum(w.square().sum() for w in _matrices(model))
    if name == "spectral":
        return _SpectralProduct(model)
    if name == "path sum":
        return Penalty(model, example_input=example, outputs="margins", kind="path-sum")
    if name == "SDP":
        return Penalty(model, example_input=example, outputs="margins")
    raise ValueError(f"unknown term {name}")


def _matrices(model: nn.Module) -> list[torch.Tensor]:
    """The weights of all layers, without biases, as matrices."""
    return [w.flatten(1) for w in model.parameters() if w.dim() > 1]


class _SpectralProduct:
    """The product of the largest singular values of all layers, by one power step a call."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        generator = torch.Generator().manual_seed(0)
        self.v = [torch.randn(w.shape[1], generator=generator) for w in _matrices(model)]

    def __call__(self) -> torch.Tensor:
        product = torch.ones(())
        for k, w in enumerate(_matrices(self.model)):
            with torch.no_grad():
                u = F.normalize(w @ self.v[k], dim=0)
                self.v[k] = F.normalize(w.T @ u, dim=0)
            product = product * (u @ w @ self.v[k])
        return product


def train(
    model: nn.Module, data: Data, name: str, strength: float, epochs: int, seed: int
) -> float:
    """Train, with a term of this name added to the loss, and return the seconds that it took.

    The strength rises from 0 in the first fifth of the steps. For adversarial training it is the radius of the attacks."""
    start = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    term = penalty_term(name, model, data.x[:1])
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    steps = epochs * -(-len(data.x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    done = 0
    for _ in range(epochs):
        for batch in torch.randperm(len(data.x), generator=generator).split(BATCH):
            x = data.x[batch]
            y = data.y[batch]
            done += 1
            rise = min(1.0, 5 * done / steps)
            if name == "adversarial":
                x = attacked(model, x, y, rise * strength, ADVERSARIAL_STEPS)
            loss = F.cross_entropy(model(x), y) + rise * strength * term()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return time.perf_counter() - start


def attacked(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, steps: int
) -> torch.Tensor:
    """Projected gradient ascent on the loss in the ball, from the images themselves."""
    moved = x.clone()
    for _ in range(steps):
        moved.requires_grad_(True)
        (gradient,) = torch.autograd.grad(F.cross_entropy(model(moved), y), moved)
        with torch.no_grad():
            moved = moved + 2.5 * radius / steps * gradient.sign()
            moved = torch.minimum(torch.maximum(moved, x - radius), x + radius).clamp(0.0, 1.0)
    return moved.detach()


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float((model(x).argmax(1) == y).double().mean())


def attacked_accuracy(model: nn.Module, data: Data, radius: float, count: int) -> float:
    x = data.x_test[:count]
    y = data.y_test[:count]
    return accuracy(model, attacked(model, x, y, radius, ATTACK_STEPS), y)


def margin_constant(model: nn.Module, data: Data) -> float:
    """The proved l_inf constant of one margin."""
    result = lipopt.bound(
        model, input_shape=data.shape, margin=MARGIN, method=lipopt.SDP(gap=1e-3), samples=10
    )
    return result.upper


def certified_accuracy(
    model: nn.Module, data: Data, radii: tuple[float, ...], count: int
) -> dict[float, float]:
    """The share of test images that are classified rightly, proved in the whole ball."""
    network = lipopt.load(model, input_shape=data.shape)
    verdicts = lipopt.certify(
        network,
        data.x_test[:count].reshape(count, -1).double().numpy(),
        radii,
        labels=data.y_test[:count].numpy(),
        clip=(0.0, 1.0),
    )
    found = dict.fromkeys(sorted(radii), 0.0)
    for verdict in verdicts:
        if verdict.status == "certified":
            found[verdict.radius] += 1 / count
    return found


# ---- the pendulum


def pendulum_policy(name: str, strength: float, epochs: int, seed: int) -> tuple[nn.Module, float]:
    """A tanh network that imitates a linear controller of a pendulum, and its root mean square error.

    The controller is u = -10 angle - 3 velocity, cut to [-5, 5], for states in [-1, 1] x [-2, 2]."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    states = (2 * torch.rand(4096, 2, generator=generator) - 1) * torch.tensor([1.0, 2.0])
    torques = (states @ torch.tensor([[-10.0], [-3.0]])).clamp(-5.0, 5.0)
    model = nn.Sequential(
        nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    train_on = 3072
    term: Term = lambda: 0.0  # noqa: E731
    if name != "none":
        kind: Any = "path-sum" if name == "path sum" else "estimate"
        term = Penalty(model, kind=kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    steps = epochs * (train_on // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    for _ in range(epochs):
        for batch in torch.randperm(train_on, generator=generator).split(BATCH):
            loss = F.mse_loss(model(states[batch]), torques[batch]) + strength * term()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        error = F.mse_loss(model(states[train_on:]), torques[train_on:]).sqrt()
    return model, float(error)
