"""PyTorch operators that move entries, and constants made from shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...errors import LipoptError
from ...numerics.arrays import Array
from ..builder import Builder
from ..views import ZERO, View, places_along
from .table import Tensor, as_tensor, each, handles


@handles(
    "clone.default",
    "detach.default",
    "alias.default",
    "contiguous.default",
    "lift_fresh_copy.default",
    "_conj.default",
    "nan_to_num.default",
)
def _identity(b: Builder, name: str, x: View, *args: Any, **options: Any) -> View:
    return x


@handles("isnan.default", "isinf.default")
def _never(b: Builder, name: str, x: View) -> Any:
    return torch.zeros(x.shape, dtype=torch.bool)


@handles("_to_copy.default", "to.dtype", "to.device", "to.dtype_layout", "to.other")
def _cast(b: Builder, name: str, x: View, *args: Any, **options: Any) -> View:
    kinds = [a for a in (*args, *options.values()) if isinstance(a, torch.dtype)]
    if any(kind not in (torch.float32, torch.float64) for kind in kinds):
        raise LipoptError("a cast to anything but float32 or float64 rounds its input; remove it")
    return x


@handles(
    "dropout.default", "native_dropout.default", "alpha_dropout.default", "feature_dropout.default"
)
def _dropout(b: Builder, name: str, x: View, p: float, train: bool) -> View:
    if train and p != 0:
        raise LipoptError("it is random; use it in training alone (training=self.training)")
    return x


@handles("view.default", "reshape.default", "_unsafe_view.default", "view_copy.default")
def _reshape(b: Builder, name: str, x: View, shape: Sequence[int]) -> View:
    return x.moved(lambda i: i.reshape(tuple(shape)))


@handles("flatten.using_ints")
def _flatten(b: Builder, name: str, x: View, start: int = 0, end: int = -1) -> View:
    rank = len(x.shape)
    if rank == 0:
        return x.moved(lambda i: i.reshape(1))
    first = start % rank
    last = end % rank
    return x.moved(lambda i: i.reshape(*i.shape[:first], -1, *i.shape[last + 1 :]))


@handles("squeeze.default", "squeeze.dim", "squeeze.dims")
def _squeeze(b: Builder, name: str, x: View, dim: Any = None) -> View:
    rank = len(x.shape)
    axes = range(rank) if dim is None or not rank else [axis % rank for axis in each(dim, 1)]
    gone = tuple(axis for axis in axes if x.shape[axis] == 1)
    return x.moved(lambda i: np.squeeze(i, gone))


@handles("unsqueeze.default")
def _unsqueeze(b: Builder, name: str, x: View, dim: int) -> View:
    return x.moved(lambda i: np.expand_dims(i, dim))


@handles("transpose.int")
def _transpose(b: Builder, name: str, x: View, first: int, second: int) -> View:
    return x.moved(lambda i: np.swapaxes(i, first, second)) if x.shape else x


@handles("t.default", "numpy_T.default", "mT.default")
def _turned(b: Builder, name: str, x: View) -> View:
    return x.moved(lambda i: np.swapaxes(i, -1, -2) if i.ndim > 1 else i)


@handles("permute.default")
def _permute(b: Builder, name: str, x: View, order: Sequence[int]) -> View:
    return x.moved(lambda i: np.transpose(i, order))


@handles("slice.Tensor")
def _slice(
    b: Builder, name: str, x: View, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> View:
    return x.moved(lambda i: i[_cut(len(x.shape), dim, start, end, step)])


def _cut(rank: int, dim: int, start: Any, end: Any, step: int) -> tuple[slice, ...]:
    """A slice of one axis."""
    cut = [slice(None)] * rank
    cut[dim] = slice(start, end, step)
    return tuple(cut)


@handles("select.int")
def _select(b: Builder, name: str, x: View, dim: int, index: int) -> View:
    return x.moved(lambda i: np.take(i, index, axis=dim))


@handles("index_select.default")
def _index_select(b: Builder, name: str, x: View, dim: int, index: Array) -> View:
    return x.moved(lambda i: np.take(i, index, axis=dim))


@handles("index.Tensor")
def _index(b: Builder, name: str, x: View, indices: Sequence[Array | None]) -> View:
    places = _places(indices)
    # PyTorch and NumPy put the new axes in the same place: where the indices stand together, or
    # in front if an axis between them has none.
    return x.moved(lambda i: i[places])


def _places(indices: Sequence[Any]) -> tuple[Any, ...]:
    if any(isinstance(index, View) for index in indices):
        raise LipoptError("its indices depend on the input")
    return tuple(slice(None) if index is None else index for index in indices)


@handles("diagonal.default", "diagonal_copy.default")
def _diagonal(
    b: Builder,
    name: str,
    x: View,
    offset: int = 0,
    first: int = 0,
    second: int = 1,
) -> View:
    return x.moved(lambda i: np.diagonal(i, offset, first, second))


@handles("unfold.default", "unfold_copy.default")
def _unfold(b: Builder, name: str, x: View, dim: int, size: int, step: int) -> View:
    """Windows along an axis; their entries become the last one."""

    def cut(index: Array) -> Array:
        seen = np.lib.stride_tricks.sliding_window_view(index, size, axis=dim)
        return np.moveaxis(np.moveaxis(seen, dim, 0)[::step], 0, dim)

    if not x.shape:
        return x.moved(lambda i: i.reshape(1)[:size])
    return x.moved(cut)


@handles("gather.default")
def _gather(b: Builder, name: str, x: View, dim: int, index: Array, sparse: bool = False) -> View:
    return x.moved(lambda i: i[places_along(dim, index)]) if x.shape else x


@handles("cat.default")
def _cat(b: Builder, name: str, tensors: Sequence[Any], dim: int = 0) -> View:
    parts = [as_tensor(t) for t in tensors]
    # An empty vector is left out, as torch does.
    return b.concatenate(name, [part for part in parts if part.shape != (0,)], dim)


@handles("stack.default")
def _stack(b: Builder, name: str, tensors: Sequence[Any], dim: int = 0) -> View:
    parts: list[Tensor] = []
    for part in map(as_tensor, tensors):
        if isinstance(part, View):
            parts.append(part.moved(lambda i: np.expand_dims(i, dim)))
        else:
            parts.append(np.expand_dims(part, dim))
    return b.concatenate(name, parts, dim)


@handles("split.Tensor")
def _split(b: Builder, name: str, x: View, size: int, dim: int = 0) -> list[View]:
    cuts = range(size, x.shape[dim], size)
    return [View(x.node, part) for part in np.split(x.index, list(cuts), axis=dim)]


@handles("split_with_sizes.default")
def _split_with_sizes(
    b: Builder, name: str, x: View, sizes: Sequence[int], dim: int = 0
) -> list[View]:
    return [View(x.node, part) for part in np.split(x.index, np.cumsum(sizes)[:-1], axis=dim)]


@handles("unbind.int")
def _unbind(b: Builder, name: str, x: View, dim: int = 0) -> list[View]:
    return [_select(b, name, x, dim, k) for k in range(x.shape[dim])]


@handles("expand.default")
def _expand(b: Builder, name: str, x: View, shape: Sequence[int], implicit: bool = False) -> View:
    new = len(shape) - len(x.shape)
    full = [x.shape[k - new] if n == -1 else n for k, n in enumerate(shape)]
    return x.moved(lambda i: np.broadcast_to(i, full))


@handles("repeat.default")
def _repeat(b: Builder, name: str, x: View, repeats: Sequence[int]) -> View:
    return x.moved(lambda i: np.tile(i, tuple(repeats)))


@handles("flip.default")
def _flip(b: Builder, name: str, x: View, dims: Sequence[int]) -> View:
    return x.moved(lambda i: np.flip(i, tuple(dims))) if x.shape else x


@handles("roll.default")
def _roll(b: Builder, name: str, x: View, shifts: Any, dims: Any = ()) -> View:
    axes = tuple(dims) or None
    return x.moved(lambda i: np.roll(i, tuple(shifts) if axes else shifts[0], axes))


@handles("tril.default")
def _tril(b: Builder, name: str, x: View, diagonal: int = 0) -> View:
    return x.moved(lambda i: np.where(np.tril(np.ones(i.shape, bool), diagonal), i, ZERO))


@handles("triu.default")
def _triu(b: Builder, name: str, x: View, diagonal: int = 0) -> View:
    return x.moved(lambda i: np.where(np.triu(np.ones(i.shape, bool), diagonal), i, ZERO))


MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@handles("pad.default", "constant_pad_nd.default")
def _pad(
    b: Builder, name: str, x: View, pad: Sequence[int], mode: Any = "constant", value: Any = None
) -> View:
    if not isinstance(mode, str):  # constant_pad_nd(x, pad, value)
        value = mode
        mode = "constant"
    pairs = [(int(pad[k]), int(pad[k + 1])) for k in range(0, len(pad), 2)]
    pads = [(0, 0)] * (len(x.shape) - len(pairs)) + pairs[::-1]
    return b.pad(name, x, pads, MODES[mode], 0.0 if value is None else float(value))


@handles("where.self", "where.ScalarSelf", "where.ScalarOther")
def _where(b: Builder, name: str, condition: Any, x: Any, y: Any) -> View:
    if isinstance(condition, View):
        raise LipoptError("it chooses by a condition on the input, which is not supported")
    options = [as_tensor(x), as_tensor(y)]
    shape = np.broadcast_shapes(np.shape(condition), *(option.shape for option in options))
    return b.choose(name, np.where(np.broadcast_to(condition, shape), 0, 1), options)


@handles("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(b: Builder, name: str, x: Any, mask: Any, value: Any) -> View:
    return _where(b, name, mask, value, x)


@handles("slice_scatter.default")
def _slice_scatter(
    b: Builder,
    name: str,
    x: Any,
    new: Any,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> View:
    cut = _cut(len(x.shape), dim, start, end, step)
    return b.overwrite(name, as_tensor(x), as_tensor(new), cut)


@handles("select_scatter.default")
def _select_scatter(b: Builder, name: str, x: Any, new: Any, dim: int, index: int) -> View:
    cut: list[Any] = [slice(None)] * len(x.shape)
    cut[dim] = index
    return b.overwrite(name, as_tensor(x), as_tensor(new), tuple(cut))


@handles("index_put.default")
def _index_put(
    b: Builder, name: str, x: Any, indices: Sequence[Any], new: Any, accumulate: bool = False
) -> View:
    if accumulate:
        return b.add_at(name, as_tensor(x), as_tensor(new), _places(indices))
    return b.overwrite(name, as_tensor(x), as_tensor(new), _places(indices))


@handles("scatter.value", "scatter.src")
def _scatter(b: Builder, name: str, x: Any, dim: int, index: Array, new: Any) -> View:
    new = as_tensor(new)
    x = as_tensor(x)
    if new.shape:
        new = _corner(new, index.shape)
    return b.overwrite(name, x, new, places_along(dim, index))


@handles("scatter_add.default")
def _scatter_add(b: Builder, name: str, x: Any, dim: int, index: Array, new: Any) -> View:
    return b.add_at(
        name, as_tensor(x), _corner(as_tensor(new), index.shape), places_along(dim, index)
    )


def _corner(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The first entries along every axis."""
    cut = tuple(slice(n) for n in shape)
    return x.moved(lambda i: i[cut]) if isinstance(x, View) else x[cut]


@handles("diagonal_scatter.default")
def _diagonal_scatter(
    b: Builder,
    name: str,
    x: Any,
    new: Any,
    offset: int = 0,
    first: int = 0,
    second: int = 1,
) -> View:
    places = np.indices(as_tensor(x).shape)
    move = tuple(np.diagonal(axis, offset, first, second) for axis in places)
    return b.overwrite(name, as_tensor(x), as_tensor(new), move)


@handles("copy.default")
def _copy(b: Builder, name: str, x: Any, new: Any, non_blocking: bool = False) -> Any:
    shape = as_tensor(x).shape
    new = as_tensor(new)
    if isinstance(new, View):
        return new.moved(lambda i: np.broadcast_to(i, shape))
    return torch.from_numpy(np.broadcast_to(new, shape).copy())


def _filled(shape: Sequence[int], value: float) -> Any:
    """A constant; the reader gives it the type that the graph says."""
    return torch.full(tuple(shape), value, dtype=torch.float64)


@handles("zeros_like.default", "new_zeros.default")
def _zeros_like(b: Builder, name: str, x: View, shape: Any = None, **options: Any) -> Any:
    return _filled(x.shape if shape is None else shape, 0.0)


@handles("ones_like.default", "new_ones.default")
def _ones_like(b: Builder, name: str, x: View, shape: Any = None, **options: Any) -> Any:
    return _filled(x.shape if shape is None else shape, 1.0)


@handles("full_like.default")
def _full_like(b: Builder, name: str, x: View, value: float, **options: Any) -> Any:
    return _filled(x.shape, value)


@handles("new_full.default")
def _new_full(b: Builder, name: str, x: View, shape: Any, value: float, **options: Any) -> Any:
    return _filled(shape, value)
