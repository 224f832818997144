"""Plain weights -> Network: a list of matrices, a .npz file (W0, b0, W1, b1, ...), a .mat file (a `weights` cell array)."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import DAMAGED, LipoptError
from ..model.network import Network
from ..model.nodes import Activation, Affine, Input, Node
from ..numerics.arrays import as_array, tidy


def read_arrays(
    weights: Sequence[Any], *, biases: Sequence[Any] | None = None, activation: str | None = None
) -> Network:
    """Layers y = W x + b with the activation between them; W has one row per output."""
    kind = "relu" if activation is None else activation
    matrices = [_matrix(w, k) for k, w in enumerate(weights)]
    if not matrices:
        raise LipoptError("the list of weight matrices is empty")
    if biases is None:
        biases = [None] * len(matrices)
    if len(biases) != len(matrices):
        raise LipoptError(
            f"{len(matrices)} weight matrices but {len(biases)} biases; pass one (or None) for each"
        )
    for k in range(1, len(matrices)):
        if matrices[k].shape[1] != matrices[k - 1].shape[0]:
            shapes = " and ".join(str(matrices[i].shape) for i in (k - 1, k))
            raise LipoptError(
                f"weight matrices {k - 1} and {k} do not fit: {shapes}; each must be (outputs, inputs)"
            )
    nodes: list[Node] = [Input((matrices[0].shape[1],))]
    for k, (w, b) in enumerate(zip(matrices, biases, strict=True)):
        size = w.shape[0]
        bias = np.zeros(size) if b is None else np.asarray(as_array(b)).reshape(-1)
        if bias.shape != (size,):
            raise LipoptError(f"bias {k} has {bias.size} entries, its layer has {size} neurons")
        bias = bias if bias.dtype in (np.float32, np.float64) else bias.astype(np.float64)
        nodes.append(Affine(f"linear{k}", (len(nodes) - 1,), (tidy(w),), bias))
        if k < len(matrices) - 1:
            nodes.append(Activation(f"{kind}{k}", len(nodes) - 1, size, kind))
    return Network(tuple(nodes))


def _matrix(w: Any, k: int) -> Any:
    matrix = w if sp.issparse(w) else np.asarray(as_array(w))
    if matrix.dtype.kind not in "fiu" or matrix.ndim != 2:
        raise LipoptError(
            f"weight {k} must be a matrix of real numbers, got shape {matrix.shape}, type {matrix.dtype}"
        )
    if matrix.dtype.kind == "f" and matrix.dtype.itemsize > 8:
        raise LipoptError(f"weight {k} has type {matrix.dtype}; convert it to float64 first")
    return matrix


def read_npz(path: Path, *, activation: str | None = None) -> Network:
    """W0, W1, ... and optionally b0, b1, ..."""
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no zip archive")
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except DAMAGED as error:
        raise LipoptError(f"{path} is not a readable .npz file: {error}") from error
    count = sum(bool(re.fullmatch(r"W\d+", name)) for name in arrays)
    expected = {f"W{k}" for k in range(count)} | {f"b{k}" for k in range(count)}
    if not count or not set(arrays) <= expected or any(f"W{k}" not in arrays for k in range(count)):
        raise LipoptError(
            f"{path} must hold W0, W1, ... and optionally b0, b1, ...; it holds {sorted(arrays)}"
        )
    weights = [arrays[f"W{k}"] for k in range(count)]
    biases = [arrays.get(f"b{k}") for k in range(count)]
    return read_arrays(weights, biases=biases, activation=activation)


def read_mat(path: Path, *, activation: str | None = None) -> Network:
    """A cell array `weights` as LipSDP uses, optionally a cell array `biases`."""
    from scipy.io import loadmat

    try:
        content = loadmat(str(path))
    except Exception as error:  # scipy raises all kinds on a broken file
        raise LipoptError(
            f"{path} is not a readable .mat file (version 7 or earlier): {error}"
        ) from error
    if "weights" not in content:
        names = sorted(name for name in content if not name.startswith("__"))
        raise LipoptError(f"{path} has no cell array 'weights'; it holds {names}")
    biases = list(content["biases"].ravel()) if "biases" in content else None
    return read_arrays(list(content["weights"].ravel()), biases=biases, activation=activation)
