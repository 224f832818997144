"""Foreign models -> Network. `load` picks the reader; each reader imports what it needs when it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import LipoptError
from ..network import Network
from .arrays import read_arrays, read_mat, read_npz


def load(
    source: Any,
    *,
    activation: str | None = None,
    biases: Sequence[Any] | None = None,
    input_shape: Sequence[int] | None = None,
) -> Network:
    """A Network from a file (.onnx, .onnx.gz, .safetensors, .npz, .mat), a torch `nn.Module`, or a list of weight matrices.

    `activation` (for weights alone) names what stands between the layers, "relu" if it is not given; `biases` goes with a
    list of matrices; `input_shape`, without the batch dimension, is needed for a torch module that does not start with a
    Linear layer."""
    source = Path(source) if isinstance(source, str) else source
    given = {"activation": activation, "biases": biases, "input_shape": input_shape}
    read, taken = _reader(source)
    for name, value in given.items():
        if value is not None and name not in taken:
            what = source if isinstance(source, Path) else f"a {type(source).__name__}"
            raise LipoptError(f"{name} does not go with {what}; leave it out")
    return read(source, *(given[name] for name in taken))


def _reader(source: Any) -> tuple[Callable[..., Network], Sequence[str]]:
    """The reader for a source, and the options that it takes."""
    if isinstance(source, Network):
        return lambda network: network, ()
    if isinstance(source, Path):
        return _file_reader(source)
    if isinstance(source, list | tuple):
        return read_arrays, ("biases", "activation")
    if any(base.__module__.startswith("torch.nn") for base in type(source).__mro__):
        from .torch import read_torch

        return read_torch, ("input_shape",)
    raise LipoptError(f"cannot read a network from {type(source).__name__}; pass a path, an nn.Module or a list of matrices")


def _file_reader(path: Path) -> tuple[Callable[..., Network], Sequence[str]]:
    if not path.is_file():
        raise LipoptError(f"{path} is a folder" if path.is_dir() else f"no such file: {path}")
    name = path.name.lower()
    if name.endswith((".onnx", ".onnx.gz")):
        from .onnx import read_onnx

        return read_onnx, ()
    if name.endswith(".safetensors"):
        return Network.load, ()
    if name.endswith(".npz"):
        return read_npz, ("activation",)
    if name.endswith(".mat"):
        return read_mat, ("activation",)
    if name.endswith((".pt", ".pth")):
        raise LipoptError(
            f"{path}: a pickled torch model runs code when loaded; load it in Python and pass the module, or export to ONNX"
        )
    raise LipoptError(f"{path}: unknown file type; use .onnx, .onnx.gz, .safetensors, .npz or .mat")
