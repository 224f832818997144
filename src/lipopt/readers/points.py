"""Points and labels from files: .npy, .npz, .csv, .txt, and idx (MNIST's format), each also as .gz."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DAMAGED, LipoptError, require_file
from ..model.network import Network
from ..numerics.arrays import Array, array_of_text, as_array

IDX = {
    8: ">u1",
    9: ">i1",
    11: ">i2",
    12: ">i4",
    13: ">f4",
    14: ">f8",
}  # types by their byte in the file
POINT_NAMES = (
    "images",
    "data",
    "points",
    "x",
    "X",
)  # of the array to take from a .npz file with several
LABEL_NAMES = ("labels", "y", "Y")


def read_points(path: str | Path, divide: float = 1.0) -> Array:
    """The array of points in a file, divided by a number: 255 for bytes."""
    if not 0 < divide < np.inf:
        raise LipoptError(f"the data can be divided by a positive number, got {divide}")
    stored = _read(Path(path), POINT_NAMES)
    with np.errstate(over="ignore"):  # infinite points are refused later
        return stored / divide if stored.dtype.kind in "biuf" else stored


def read_labels(path: str | Path) -> Array:
    """The array of labels in a file."""
    return _read(Path(path), LABEL_NAMES)


def first_of(points: Any) -> Any:
    """The first of some points; None if there is none."""
    return points[0] if len(points) else None


def check_points(network: Network, points: Array, only: slice = slice(None)) -> Array:
    """Points, or only some of them, as rows of float64, from an array (points, inputs) or (points, *input shape)."""
    values = np.asarray(as_array(points))
    if values.dtype.kind not in "biuf" or values.ndim < 2 or not network.takes(values.shape[1:]):
        raise LipoptError(
            f"the data has shape {values.shape} and type {values.dtype}; the network takes numbers of shape "
            f"(points, {', '.join(map(str, network.input_shape))})"
            + (", or flat" if len(network.input_shape) > 1 else "")
        )
    if len(values) == 0:
        raise LipoptError("the data holds no points")
    rows = values[only].reshape(len(values[only]), -1).astype(np.float64)
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise LipoptError(
            f"point {int(bad.argmax()) + (only.start or 0)} of the data is NaN or infinite"
        )
    return rows


def check_labels(network: Network, labels: Array, points: int, only: slice = slice(None)) -> Array:
    """Labels as whole numbers, one for every point, or those of some points only."""
    values = np.asarray(as_array(labels))
    if values.shape not in {(points,), (points, 1)}:
        raise LipoptError(f"the labels have shape {values.shape}; there are {points} points")
    values = values.reshape(-1)[only]
    if values.dtype.kind not in "biuf" or not (values == np.round(values)).all():
        raise LipoptError("the labels must be whole numbers")
    bad = (values < 0) | (values >= network.output_size)
    if bad.any():
        k = int(bad.argmax())
        last = network.output_size - 1
        number = k + (only.start or 0)
        raise LipoptError(
            f"label {values[k]:g} of point {number} is out of range: the network has outputs 0 to {last}"
        )
    return values.astype(np.int64)


def _read(path: Path, names: tuple[str, ...]) -> Array:
    require_file(path)
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
            path = path.with_suffix("")
        if path.suffix == ".npy":
            return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))
        if path.suffix == ".npz":
            return _from_npz(path, content, names)
        if path.suffix in (".csv", ".txt"):
            return array_of_text(content.decode(), path.suffix, 2)
        if content[:2] == b"\0\0" and len(content) > 4:
            return _from_idx(content)
    except DAMAGED as error:
        raise LipoptError(f"cannot read numbers from {path}: {error}") from error
    raise LipoptError(f"cannot read {path}: it is neither .npy, .npz, .csv, .txt nor an idx file")


def _from_npz(path: Path, content: bytes, names: tuple[str, ...]) -> Array:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        found = (
            file.files if len(file.files) == 1 else [name for name in names if name in file.files]
        )
        if not found:
            raise LipoptError(
                f"{path} holds the arrays {', '.join(file.files)}; name the one to use {' or '.join(names)}"
            )
        return np.asarray(file[found[0]])


def _from_idx(content: bytes) -> Array:
    """Two zero bytes, the type, the number of dimensions, the dimensions as big-endian int32, the numbers."""
    kind = content[2]
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, 4)
    values = np.frombuffer(content, IDX[kind], offset=4 + 4 * dimensions)
    return values.reshape(shape)
