"""ONNX operators that move entries, and constants made from shapes."""

from __future__ import annotations

from math import prod

import numpy as np

from ...errors import LipoptError
from ...numerics.arrays import Array
from ..views import View, places_along
from .table import FLOATS, Step, handles


@handles("Identity")
def _identity(step: Step) -> View:
    return step.view()


@handles("Dropout")
def _dropout(step: Step) -> View:
    ratio = step.attributes.get("ratio", step.constant(1, 0.5))
    old_training = step.opset < 7 and not step.attribute("is_test", 0)
    training = old_training or bool(np.any(step.constant(2, False)))
    if training and np.any(np.asarray(ratio) != 0):
        raise LipoptError("it is random (training mode); export the model in evaluation mode")
    return step.view()


@handles("Cast", "CastLike")
def _cast(step: Step) -> View:
    if step.operator == "Cast" and step.attribute("to", 0) not in FLOATS:
        raise LipoptError("a cast to anything but float32 or float64 rounds its input; remove it")
    if step.operator == "CastLike":
        like = step.inputs[1]
        if not isinstance(like, View) and np.asarray(like).dtype not in (np.float32, np.float64):
            raise LipoptError("a cast to anything but float32 or float64 rounds its input")
    return step.view()


@handles("Shape")
def _shape(step: Step) -> Array:
    shape = np.array(step.view().shape, dtype=np.int64)
    return shape[slice(step.attribute("start", 0), step.attribute("end", None))]


@handles("Size")
def _size(step: Step) -> Array:
    return np.array(step.view().size, dtype=np.int64)


@handles("Flatten")
def _flatten(step: Step) -> View:
    x = step.view()
    axis = step.attribute("axis", 1)
    if axis < 0:
        axis += len(x.shape)
    rows = prod(x.shape[:axis])
    columns = prod(x.shape[axis:])
    return x.moved(lambda i: i.reshape(rows, columns))


@handles("Reshape")
def _reshape(step: Step) -> View:
    x = step.view()
    shape = step.integers("shape", 1) or []
    if not step.attribute("allowzero", 0):
        shape = [x.shape[k] if n == 0 else n for k, n in enumerate(shape)]
    return x.moved(lambda i: i.reshape(shape))


@handles("Squeeze")
def _squeeze(step: Step) -> View:
    axes = step.integers("axes", 1)
    return step.view().moved(lambda i: np.squeeze(i, None if axes is None else tuple(axes)))


@handles("Unsqueeze")
def _unsqueeze(step: Step) -> View:
    axes = tuple(step.integers("axes", 1) or ())
    return step.view().moved(lambda i: np.expand_dims(i, axes))


@handles("Transpose")
def _transpose(step: Step) -> View:
    return step.view().moved(lambda i: np.transpose(i, step.attribute("perm", None)))


@handles("Expand")
def _expand(step: Step) -> View:
    shape = tuple(step.integers("shape", 1) or ())
    return step.view().moved(lambda i: np.broadcast_to(i, np.broadcast_shapes(i.shape, shape)))


@handles("Tile")
def _tile(step: Step) -> View:
    repeats = step.integers("repeats", 1) or []
    return step.view().moved(lambda i: np.tile(i, repeats))


@handles("DepthToSpace")
def _depth_to_space(step: Step) -> View:
    x = step.view()
    batch, channels, height, width = x.shape
    block = step.attribute("blocksize", 1)
    depth = channels // block**2
    if step.attribute("mode", "DCR") == "DCR":
        split = (batch, block, block, depth, height, width)
        order = (0, 3, 4, 1, 5, 2)
    else:
        split = (batch, depth, block, block, height, width)
        order = (0, 1, 4, 2, 5, 3)
    out = (batch, depth, height * block, width * block)
    return x.moved(lambda i: i.reshape(split).transpose(order).reshape(out))


@handles("SpaceToDepth")
def _space_to_depth(step: Step) -> View:
    x = step.view()
    batch, channels, height, width = x.shape
    block = step.attribute("blocksize", 1)
    split = (batch, channels, height // block, block, width // block, block)
    out = (batch, channels * block**2, height // block, width // block)
    return x.moved(lambda i: i.reshape(split).transpose(0, 3, 5, 1, 2, 4).reshape(out))


@handles("Trilu")
def _trilu(step: Step) -> View:
    x = step.view()
    k = int(np.asarray(step.constant(1, 0)).reshape(()))
    keep = np.triu if step.attribute("upper", 1) else np.tril
    return x.moved(lambda i: np.where(keep(np.ones(i.shape, bool), k), i, -1))


@handles("Pad")
def _pad(step: Step) -> View:
    x = step.view()
    rank = len(x.shape)
    flat = step.integers("pads", 1)
    flat = step.integers("paddings", 1) if flat is None else flat
    value = float(np.asarray(step.attributes.get("value", step.constant(2, 0.0))).reshape(()))
    axes = step.integers("axes", 3)
    axes = list(range(rank)) if axes is None else [axis % rank for axis in axes]
    if flat is None or len(flat) != 2 * len(axes):
        raise LipoptError(f"pads {flat} are not two numbers for each of {len(axes)} axes")
    pads = [(0, 0)] * rank
    for k, axis in enumerate(axes):
        pads[axis] = (flat[k], flat[len(axes) + k])
    return step.builder.pad(step.name, x, pads, step.attribute("mode", "constant"), value)


@handles("Concat")
def _concat(step: Step) -> View:
    parts = [x if isinstance(x, View) else np.asarray(x) for x in step.inputs]
    return step.builder.concatenate(step.name, parts, step.attribute("axis", 1))


@handles("Where")
def _where(step: Step) -> View:
    condition = np.asarray(step.constant(0), dtype=bool)
    options = [x if isinstance(x, View) else np.asarray(x) for x in step.inputs[1:]]
    shape = np.broadcast_shapes(condition.shape, *(option.shape for option in options))
    which = np.where(np.broadcast_to(condition, shape), 0, 1)
    return step.builder.choose(step.name, which, options)


@handles("Slice")
def _slice(step: Step) -> View:
    x = step.view()
    starts = step.integers("starts", 1) or []
    ends = step.integers("ends", 2) or []
    axes = step.integers("axes", 3)
    axes = list(range(len(starts))) if axes is None else axes
    steps = step.integers("steps", 4) or [1] * len(starts)
    cut = [slice(None)] * len(x.shape)
    for start, end, axis, stride in zip(starts, ends, axes, steps, strict=True):
        past_the_front = stride < 0 and end < -x.shape[axis]
        cut[axis] = slice(start, None if past_the_front else end, stride)
    return x.moved(lambda i: i[tuple(cut)])


@handles("Split")
def _split(step: Step) -> list[View]:
    x = step.view()
    axis = step.attribute("axis", 0)
    sizes = step.integers("split", 1)
    if sizes is None:
        count = step.attribute("num_outputs", len(step.node.output))
        width = -(-x.shape[axis] // count)
        cuts = np.arange(1, count) * width
    else:
        cuts = np.cumsum(sizes)[:-1]
    return [View(x.node, part) for part in np.split(x.index, cuts, axis=axis)]


@handles("Gather")
def _gather(step: Step) -> View:
    places = np.asarray(step.constant(1))
    return step.view().moved(lambda i: np.take(i, places, axis=step.attribute("axis", 0)))


@handles("GatherElements")
def _gather_elements(step: Step) -> View:
    places = np.asarray(step.constant(1))
    move = places_along(step.attribute("axis", 0), places)
    return step.view().moved(lambda i: i[move])


@handles("GatherND")
def _gather_nd(step: Step) -> View:
    """The last axis of the indices holds places along as many axes, after `batch_dims` others."""
    batch = step.attribute("batch_dims", 0)
    places = np.asarray(step.constant(1))
    found = [places[..., k] for k in range(places.shape[-1])]
    rows = found[0].ndim
    grid = []
    for k in range(batch):
        shape = [-1 if axis == k else 1 for axis in range(rows)]
        grid.append(np.arange(places.shape[k]).reshape(shape))
    return step.view().moved(lambda i: i[(*grid, *found)])


@handles("ScatterElements", "Scatter")
def _scatter_elements(step: Step) -> View:
    places = np.asarray(step.constant(1))
    return _scatter(step, places_along(step.attribute("axis", 0), places))


@handles("ScatterND")
def _scatter_nd(step: Step) -> View:
    """The last axis of the indices holds places along as many of the first axes."""
    places = np.asarray(step.constant(1))
    return _scatter(step, tuple(places[..., k] for k in range(places.shape[-1])))


def _scatter(step: Step, move: tuple[Array, ...]) -> View:
    start, _, new = (x if isinstance(x, View) else np.asarray(x) for x in step.inputs)
    reduction = step.attribute("reduction", "none")
    if reduction not in ("none", "add"):
        raise LipoptError(f"reduction='{reduction}' is not supported; only 'none' and 'add' are")
    write = step.builder.overwrite if reduction == "none" else step.builder.add_at
    return write(step.name, start, new, move)


@handles("Compress")
def _compress(step: Step) -> View:
    kept = np.flatnonzero(np.asarray(step.constant(1)))
    return step.view().moved(lambda i: np.take(i, kept, axis=step.attribute("axis", None)))


@handles("ReverseSequence")
def _reverse_sequence(step: Step) -> View:
    """The first entries along one axis reversed, as many as are given for each of another axis."""
    time = step.attribute("time_axis", 0)
    batch = step.attribute("batch_axis", 1)
    lengths = np.asarray(step.constant(1))

    def reverse(index: Array) -> Array:
        result = np.moveaxis(index, (batch, time), (0, 1)).copy()
        for row, length in zip(result, lengths, strict=True):
            row[:length] = row[:length][::-1].copy()
        return np.moveaxis(result, (0, 1), (batch, time))

    return step.view().moved(reverse)
