"""How tight bounds of smooth layers are in balls: a bound divided by the largest gradient found.

python benchmarks/smooth.py [radius ...]
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import lipopt

RADII = (0.001, 0.01, 0.1)
SECONDS = 60  # for branch and bound


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


def layers() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Modules with random weights, and the shapes of their inputs."""
    torch.manual_seed(0)
    return {
        "gated linear unit": (nn.Sequential(nn.Linear(4, 8), nn.GLU()), (4,)),
        "softmax of 10": (nn.Sequential(nn.Linear(6, 10), nn.Softmax(1)), (6,)),
        "layer norm of 4": (nn.LayerNorm(4), (4,)),
        "causal attention": (Attention(4, 2), (4, 4)),
        "transformer block": (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (3, 4)),
    }


def main(radii: list[float]) -> None:
    """Print a line for every layer and radius."""
    for name, (module, shape) in layers().items():
        network = lipopt.load(module.eval().double(), input_shape=shape)
        center = np.random.default_rng(1).normal(size=network.input_size)
        for radius in radii:
            words = [f"{name:18s} radius {radius:<6g}"]
            for method in ("path-sum", "sdp", "branch"):
                limit = SECONDS if method == "branch" else None
                result = lipopt.bound(
                    network,
                    method=method,
                    norm="l2",
                    output="all",
                    domain=lipopt.Ball(center, radius),
                    time_limit=limit,
                )
                words.append(f"{method} {result.upper / result.lower:.3f}")
            print("  ".join(words), flush=True)


if __name__ == "__main__":
    main([float(word) for word in sys.argv[1:]] or list(RADII))
