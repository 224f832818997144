"""Foreign models -> Network. `load` picks the reader; each reader imports what it needs when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import LipoptError
from ..network import Network
from .arrays import read_arrays, read_mat, read_npz


def load(
    source: Any,
    *,
    activation: str = "relu",
    biases: Sequence[Any] | None = None,
    input_shape: Sequence[int] | None = None,
) -> Network:
    """A Network from a file (.onnx, .onnx.gz, .safetensors, .npz, .mat), a torch `nn.Module`, or a list of weight matrices.

    `activation` (for weights alone) names what stands between the layers; `biases` goes with a list of matrices;
    `input_shape`, without the batch dimension, is needed for a torch module that does not start with a Linear layer."""
    if isinstance(source, Network):
        return source
    if isinstance(source, str | Path):
        return _load_file(Path(source), activation)
    if isinstance(source, list | tuple):
        return read_arrays(source, biases, activation)
    if any(base.__module__.startswith("torch.nn") for base in type(source).__mro__):
        from .torch import read_torch

        return read_torch(source, input_shape)
    raise LipoptError(f"cannot read a network from {type(source).__name__}; pass a path, an nn.Module or a list of matrices")


def _load_file(path: Path, activation: str) -> Network:
    if not path.is_file():
        raise LipoptError(f"{path} is a folder" if path.is_dir() else f"no such file: {path}")
    name = path.name.lower()
    if name.endswith((".onnx", ".onnx.gz")):
        from .onnx import read_onnx

        return read_onnx(path)
    if name.endswith(".safetensors"):
        return Network.load(path)
    if name.endswith(".npz"):
        return read_npz(path, activation)
    if name.endswith(".mat"):
        return read_mat(path, activation)
    if name.endswith((".pt", ".pth")):
        raise LipoptError(
            f"{path}: a pickled torch model runs code when loaded; load it in Python and pass the module, or export to ONNX"
        )
    raise LipoptError(f"{path}: unknown file type; use .onnx, .onnx.gz, .safetensors, .npz or .mat")
