"""Foreign models -> Network. `load` picks the reader; each imports what it needs when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import LipoptError, require_file
from ..model.network import Network, Source
from ..numerics.arrays import as_array
from .arrays import read_arrays, read_mat, read_npz

Reader = Callable[..., Network]


def load(
    source: Any,
    *,
    activation: str | None = None,
    biases: Sequence[Any] | None = None,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None,
    input: str | Sequence[str] | None = None,
    output: str | None = None,
    fixed: Mapping[str, Any] | None = None,
    logits: bool = False,
    check: bool = True,
) -> Network:
    """A Network from a file, a PyTorch module or a list of weight matrices.

    The network that was built is compared with the original at random points, layer by layer, if
    the original can be run (ONNX, PyTorch): a difference that rounding does not explain is an error.

    Args:
        source: a path (.onnx, .onnx.gz, .pt2, .safetensors, .npz, .mat), a torch `nn.Module` or
            `ExportedProgram`, or a list of matrices, each (outputs, inputs). A Network is returned
            as it is.
        activation: what stands between the layers of plain weights; "relu" if it is not given.
        biases: one bias (or None) for each matrix of a list.
        input_shape: the shape of one input of a torch module, without the batch dimension. It may
            be left out if the module starts with a Linear layer, and where a point or the center of
            a ball has it. For a module that takes several
            tensors, a list of their shapes; they are joined in this order.
        input: the name of the ONNX tensor to read the network from, or a list of them. Without it,
            all inputs that are not fixed; several are joined in this order.
        output: the name of the ONNX tensor to read the network up to.
        fixed: values for the other inputs of an ONNX model, by name.
        logits: cut off the softmax, log-softmax or sigmoid that is the model's last layer.
        check: whether to compare with the original.

    Returns:
        A Network, with the weights exactly as they are stored.

    Raises:
        LipoptError: the source cannot be read, has a layer that is not supported, or was given an
            option that does not go with it; or the network differs from its original.

    Examples:
        >>> import lipopt, numpy as np
        >>> network = lipopt.load([np.eye(3), np.ones((1, 3))], activation="tanh")
        >>> network.input_shape, network.neurons
        ((3,), 3)
    """
    source = Path(source) if isinstance(source, str) else source
    given = {
        "activation": activation,
        "biases": biases,
        "input_shape": input_shape,
        "input": input,
        "output": output,
        "fixed": fixed,
        "logits": True if logits else None,
    }
    read, taken = _reader(source)
    for name, value in given.items():
        if value is not None and name not in taken:
            what = source if isinstance(source, Path) else f"a {type(source).__name__}"
            raise LipoptError(f"{name} does not go with {what}; leave it out")
    options = {name: value for name, value in given.items() if value is not None}
    if "check" in taken:
        options["check"] = check
    network = read(source, **options)
    if not isinstance(source, Path) or (network.source is not None and network.source.files):
        return network
    files = {source.name: file_hash(source)}
    return replace(network, source=replace(network.source or Source({}), files=files))


def load_for(
    source: Any, input_shape: Sequence[int] | Sequence[Sequence[int]] | None, example: Any
) -> Network:
    """`load`; the shape of an input that the user has is taken, where a torch module does not tell."""
    if input_shape is not None or example is None or not _is_of_torch(source):
        return load(source, input_shape=input_shape)
    try:
        return load(source)
    except LipoptError as error:
        reason = error
    shape = np.shape(as_array(example))
    without_batch = [shape[1:]] if shape[:1] == (1,) else []
    for guess in [shape, *without_batch]:
        try:
            return load(source, input_shape=guess)
        except LipoptError:
            continue
    raise reason


def file_hash(path: Path) -> str:
    """The SHA-256 of a file."""
    return sha256(path.read_bytes()).hexdigest()


def _reader(source: Any) -> tuple[Reader, Sequence[str]]:
    """The reader for a source, and the options that it takes."""
    if isinstance(source, Network):
        return lambda network: network, ()
    if isinstance(source, Path):
        return _file_reader(source)
    if isinstance(source, list | tuple):
        return read_arrays, ("biases", "activation")
    if _is_of_torch(source):
        from .torch import read_torch

        return read_torch, ("input_shape", "logits", "check")
    raise LipoptError(
        f"cannot read a network from {type(source).__name__}; pass a path, an nn.Module or a list of matrices"
    )


def _is_of_torch(source: Any) -> bool:
    """Whether this is a module of PyTorch, or something else of it."""
    return any(base.__module__.startswith("torch.") for base in type(source).__mro__)


def _file_reader(path: Path) -> tuple[Reader, Sequence[str]]:
    require_file(path)
    name = path.name.lower()
    if name.endswith((".onnx", ".onnx.gz")):
        from .onnx import read_onnx

        return read_onnx, ("input", "output", "fixed", "logits", "check")
    if name.endswith(".safetensors"):
        return Network.load, ()
    if name.endswith(".npz"):
        return read_npz, ("activation",)
    if name.endswith(".mat"):
        return read_mat, ("activation",)
    if name.endswith(".pt2"):
        from .torch import read_exported_file

        return read_exported_file, ("input_shape", "logits", "check")
    if name.endswith((".pt", ".pth")):
        raise LipoptError(
            f"{path}: a pickled torch model runs code when loaded; load it in Python and pass the"
            " module, or save it with torch.export.save (.pt2)"
        )
    raise LipoptError(
        f"{path}: unknown file type; use .onnx, .onnx.gz, .pt2, .safetensors, .npz or .mat"
    )
