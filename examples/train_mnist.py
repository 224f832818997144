"""Train a classifier of digits with the SDP's value in the loss, and see what it proves.

    python examples/train_mnist.py [--data MNIST_FOLDER] [--strength 1e-3] [--epochs 15]

MNIST_FOLDER holds the four original idx .gz files. Without it, the 1,797 small digits that scikit-learn ships are used
(`pip install 'lipopt[torch,train]'`). The same network is trained twice, without and with the penalty. Printed are, for both,
the test accuracy, the estimate of the penalty, the proved constant of all margins, and the share of twenty test digits that no
change of their pixels by 0.05 can turn into another class: a theorem about the network.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

import lipopt
from lipopt.readers.points import read_labels, read_points
from lipopt.training import Penalty

BATCH = 256
RADIUS = 0.05
CERTIFIED = 20  # test digits


def load(folder: Path | None) -> tuple[torch.Tensor, ...]:
    """Images in [0, 1] and labels, for training and for testing."""
    if folder is None:
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise SystemExit("without MNIST (--data), this needs scikit-learn") from error
        digits = load_digits()
        x = digits.data / 16.0
        y = digits.target
        parts = [x[:1348], y[:1348], x[1348:], y[1348:]]
    else:
        parts = []
        for name in ("train", "t10k"):
            parts.append(read_points(folder / f"{name}-images-idx3-ubyte.gz", divide=255.0))
            parts.append(read_labels(folder / f"{name}-labels-idx1-ubyte.gz"))
    x, y, x_test, y_test = parts
    return images(x), labels(y), images(x_test), labels(y_test)


def images(values: np.ndarray) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).reshape(len(values), -1)


def labels(values: np.ndarray) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def train(x: torch.Tensor, y: torch.Tensor, strength: float, epochs: int) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(x.shape[1], 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)
    )
    penalty = Penalty(model, outputs="margins")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(BATCH):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            if strength:
                loss = loss + strength * penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def report(model: nn.Sequential, x: torch.Tensor, y: torch.Tensor) -> None:
    with torch.no_grad():
        right = model(x).argmax(1) == y
    penalty = Penalty(model, outputs="margins")
    print(f"  test accuracy        {100 * float(right.double().mean()):.1f} %")
    print(f"  estimate from below  {penalty.refine(100):.2f}")
    print(f"  proved constant      {penalty.certified():.2f}")
    verdicts = lipopt.certify(
        model,
        x[:CERTIFIED].numpy(),
        RADIUS,
        labels=y[:CERTIFIED].numpy(),
        clip=(0.0, 1.0),
    )
    certified = [verdict for verdict in verdicts if verdict.status == "certified"]
    share = len(certified) / CERTIFIED
    print(f"  certified at {RADIUS:g}    {100 * share:.0f} % of {CERTIFIED} digits")


def main(folder: Path | None, strength: float, epochs: int) -> None:
    x, y, x_test, y_test = load(folder)
    for name, own in {"plain": 0.0, f"with {strength:g} times the constant": strength}.items():
        print(name)
        report(train(x, y, own, epochs), x_test, y_test)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--strength", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args()
    main(options.data, options.strength, options.epochs)
