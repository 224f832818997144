"""How tight bounds of smooth layers are in balls: a bound divided by the largest gradient found.

python benchmarks/smooth.py [--only NAME] [--branch SECONDS] [radius ...]

Branch and bound is left out unless it gets some seconds; `auto` is not asked. "-" is a question that
ends in an error: an interval that reaches a pole, for example.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import lipopt

RADII = (0.001, 0.01, 0.1)


class Attention(nn.Module):
    """Causal self-attention, as in a model of characters."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        shape = (batch, tokens, self.heads, width // self.heads)
        query, key, value = (y.reshape(shape).transpose(1, 2) for y in self.inputs(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(y.transpose(1, 2).reshape(x.shape))


class VisionTransformer(nn.Module):
    """Patches by a convolution, a class token, places, one block, a head on the class token."""

    def __init__(self, size: int, patch: int, width: int, heads: int, classes: int) -> None:
        super().__init__()
        tokens = (size // patch) ** 2
        self.patches = nn.Conv2d(1, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, tokens + 1, width))
        self.block = nn.TransformerEncoderLayer(
            width, heads, 2 * width, activation="gelu", batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1) + self.places
        return self.head(self.norm(self.block(tokens))[:, 0])


def layers() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Modules with random weights, and the shapes of their inputs."""
    torch.manual_seed(0)
    return {
        "gated linear unit": (nn.Sequential(nn.Linear(4, 8), nn.GLU()), (4,)),
        "softmax of 10": (nn.Sequential(nn.Linear(6, 10), nn.Softmax(1)), (6,)),
        "layer norm of 4": (nn.LayerNorm(4), (4,)),
        "causal attention": (Attention(4, 2), (4, 4)),
        "transformer block": (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (3, 4)),
        "vision transformer": (VisionTransformer(8, 4, 4, 2, 3), (1, 8, 8)),
    }


def ratio(network: lipopt.Network, method: str, domain: lipopt.Ball, limit: float | None) -> str:
    """The bound of a method over the largest gradient found, and its processor time."""
    start = time.process_time()
    try:
        result = lipopt.bound(
            network, method=method, norm="l2", output="all", domain=domain, time_limit=limit
        )
    except lipopt.LipoptError:
        return f"{method} -"
    seconds = time.process_time() - start
    return f"{method} {result.upper / result.lower:.4g} ({seconds:.0f} s)"


def main() -> None:
    """Print a line for every layer and radius."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("radii", nargs="*", type=float, default=RADII)
    parser.add_argument("--only", help="the layers whose names contain this", default="")
    parser.add_argument("--branch", type=float, help="seconds for branch and bound")
    asked = parser.parse_args()
    for name, (module, shape) in layers().items():
        if asked.only not in name:
            continue
        network = lipopt.load(module.eval().double(), input_shape=shape)
        center = np.random.default_rng(1).normal(size=network.input_size)
        for radius in asked.radii:
            domain = lipopt.Ball(center, radius)
            words = [f"{name:18s} radius {radius:<6g}"]
            words += [ratio(network, method, domain, None) for method in ("path-sum", "sdp")]
            if asked.branch:
                words.append(ratio(network, "branch", domain, asked.branch))
            print("  ".join(words), flush=True)


if __name__ == "__main__":
    main()
