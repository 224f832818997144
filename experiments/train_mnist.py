"""Train the paper's MNIST network (784-300-100-10, ELU) and prune it to 5 % of its weights.

    python -m experiments.train_mnist OUTPUT_FOLDER [--data MNIST_FOLDER]

MNIST_FOLDER holds the four original idx .gz files; without it they are downloaded, once. Either way their SHA-256 must be
the known one. Pruning is by magnitude, over all layers together, in rounds
from dense to 5 %, each followed by training of what is left. Writes dense.safetensors, pruned.safetensors and
digits.npz (twenty test images that both networks classify correctly, two per class, with their labels).
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np
import pooch
import torch
from torch import nn

import lipopt

MNIST = pooch.create(
    path=pooch.os_cache("lipopt-mnist"),
    base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    registry={
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
)
KEEP = (0.5, 0.3, 0.18, 0.11, 0.07, 0.05)  # the fraction of weights left after each round


def find(name: str, folder: Path | None) -> Path:
    """A file of MNIST, from the folder or from the cache, its checksum verified."""
    if folder is None:
        return Path(MNIST.fetch(name))
    if pooch.file_hash(str(folder / name)) != MNIST.registry[name]:
        raise SystemExit(
            f"{folder / name} is not MNIST's file: its SHA-256 is not {MNIST.registry[name]}"
        )
    return folder / name


def read_idx(path: Path) -> np.ndarray:
    """An array from MNIST's own format: a magic number with the rank, the sizes, the bytes."""
    data = gzip.decompress(path.read_bytes())
    rank = data[3]
    sizes = np.frombuffer(data, ">u4", rank, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(sizes)


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return (model(x).argmax(1) == y).double().mean().item()


def train(
    model: nn.Sequential, x: torch.Tensor, y: torch.Tensor, masks: dict, epochs: int, rate: float
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    steps = epochs * (len(x) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(128)[: len(x) // 128]:
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                for layer, mask in masks.items():
                    layer.weight *= mask


def prune(model: nn.Sequential, keep: float) -> dict:
    """Masks that keep the given fraction of all weights, the largest in size."""
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    sizes = torch.cat([layer.weight.detach().abs().flatten() for layer in layers])
    threshold = sizes.kthvalue(int((1 - keep) * len(sizes))).values
    return {layer: (layer.weight.detach().abs() > threshold).float() for layer in layers}


def save(model: nn.Sequential, path: Path) -> None:
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    weights = [layer.weight.detach().numpy() for layer in layers]
    biases = [layer.bias.detach().numpy() for layer in layers]
    lipopt.load(weights, biases=biases, activation="elu").save(path)


def main(source: Path | None, target: Path) -> None:
    torch.manual_seed(0)

    def data(name: str) -> tuple[torch.Tensor, torch.Tensor]:
        images = read_idx(find(f"{name}-images-idx3-ubyte.gz", source)).reshape(
            -1, 784
        ) / np.float32(255)
        labels = read_idx(find(f"{name}-labels-idx1-ubyte.gz", source)).astype(np.int64)
        return torch.from_numpy(images), torch.from_numpy(labels)

    x, y = data("train")
    x_test, y_test = data("t10k")
    model = nn.Sequential(
        nn.Linear(784, 300), nn.ELU(), nn.Linear(300, 100), nn.ELU(), nn.Linear(100, 10)
    )
    train(model, x, y, {}, 12, 2e-3)
    right = model(x_test).argmax(1) == y_test
    print(f"dense: {accuracy(model, x_test, y_test):.4f}", flush=True)
    save(model, target / "dense.safetensors")
    for keep in KEEP:
        train(model, x, y, prune(model, keep), 12 if keep == KEEP[-1] else 4, 2e-3)
        print(f"{keep:.0%} of the weights: {accuracy(model, x_test, y_test):.4f}", flush=True)
    save(model, target / "pruned.safetensors")
    right &= model(x_test).argmax(1) == y_test
    chosen = torch.cat([torch.nonzero(right & (y_test == digit))[:2, 0] for digit in range(10)])
    np.savez_compressed(
        target / "digits.npz",
        images=(x_test[chosen] * 255).round().to(torch.uint8).numpy(),
        labels=y_test[chosen].numpy(),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    main(options.data, options.output)
