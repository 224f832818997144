"""Steps of random ONNX graphs that only move entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper
from onnx_draft import (
    KINDS,
    Draft,
    broadcast_shape,
    factored,
    needs,
    of_rank,
    partner,
    step,
    wider_shape,
)


@step
def reshape(g: Draft, x: str) -> str | None:
    shape = factored(g, g.values[x].size, g.integer(1, 4))
    if g.chance(0.4):
        shape[g.integer(0, len(shape) - 1)] = -1
    old = g.shape_of(x)
    for k, n in enumerate(shape):
        if k < len(old) and n == old[k] and g.chance(0.5):
            shape[k] = 0
    options = {}
    if g.opset >= 14 and 0 not in shape and g.chance(0.3):
        options["allowzero"] = 1
    return g.node("Reshape", [x, g.whole(shape)], **options)


@step
def reshape_by_shape(g: Draft, x: str) -> str | None:
    """Shape -> Gather -> Unsqueeze -> Concat -> Reshape, as exporters write it."""
    if g.rank(x) == 0:
        return None
    shape = g.node("Shape", [x])
    g.known[shape] = g.values.pop(shape)
    first = g.node("Gather", [shape, g.whole([g.integer(0, g.rank(x) - 1)])])
    g.known[first] = np.asarray(g.known[first])
    target = g.node("Concat", [first, g.whole([-1])], axis=0)
    return g.node("Reshape", [x, target])


@step
def flatten(g: Draft, x: str) -> str | None:
    rank = g.rank(x)
    low = -rank if g.opset >= 11 else 0
    return g.node("Flatten", [x], axis=g.integer(low, rank))


@step
def squeeze(g: Draft, x: str) -> str | None:
    ones = [k for k, n in enumerate(g.shape_of(x)) if n == 1]
    if not ones:
        return None
    axes = g.some(ones)
    if g.opset >= 11:
        axes = [axis - g.rank(x) if g.chance(0.4) else axis for axis in axes]
    if g.chance(0.2):
        return g.node("Squeeze", [x])
    if g.opset < 13:
        return g.node("Squeeze", [x], axes=axes)
    return g.node("Squeeze", [x, g.whole(axes)])


@step
def unsqueeze(g: Draft, x: str) -> str | None:
    count = g.integer(1, 2)
    rank = g.rank(x) + count
    axes = g.some(range(rank))[:count]
    if len(axes) < count:
        return None
    if g.opset >= 11:
        axes = [axis - rank if g.chance(0.4) else axis for axis in axes]
    if g.opset < 13:
        return g.node("Unsqueeze", [x], axes=axes)
    return g.node("Unsqueeze", [x, g.whole(axes)])


@step
def transpose(g: Draft, x: str) -> str | None:
    if g.chance(0.2):
        return g.node("Transpose", [x])
    return g.node("Transpose", [x], perm=[int(k) for k in g.rng.permutation(g.rank(x))])


@step
def expand(g: Draft, x: str) -> str | None:
    return g.node("Expand", [x, g.whole(wider_shape(g, g.shape_of(x)))])


@step
def tile(g: Draft, x: str) -> str | None:
    return g.node("Tile", [x, g.whole(g.integers(1, 2, g.rank(x)))])


@step
def slices(g: Draft, x: str) -> str | None:
    if g.rank(x) == 0:
        return None
    axes = g.axes(g.rank(x)) if g.opset >= 10 else g.some(range(g.rank(x)))
    starts = []
    ends = []
    steps = []
    for axis in axes:
        n = g.shape_of(x)[axis]
        stride = g.pick([1, 1, 2, -1, -2]) if g.opset >= 10 else 1
        ends_at = g.pick([n, n + 3, -1, 2**31 - 1, 2**63 - 1])
        start = g.integer(-n, n - 1)
        if stride < 0:
            ends_at = g.pick([-n - 1, -n - 5, 0, -(2**31), -(2**63)])
            start = g.pick([n - 1, -1, n + 2, 2**31 - 1])
        starts.append(start)
        ends.append(ends_at)
        steps.append(stride)
    if g.opset < 10:
        return g.node("Slice", [x], axes=axes, starts=starts, ends=ends)
    inputs = [x, g.whole(starts), g.whole(ends)]
    if g.chance(0.8) or axes != list(range(len(axes))):
        inputs += [g.whole(axes), g.whole(steps)]
    return g.node("Slice", inputs)


@step
def split(g: Draft, x: str) -> str | None:
    if g.rank(x) == 0:
        return None
    axis = g.axis(g.rank(x))
    n = g.shape_of(x)[axis]
    count = g.integer(1, min(3, n))
    if g.opset >= 18 and g.chance(0.4):
        parts = g.split("Split", [x], count, axis=axis, num_outputs=count)
    elif n % count == 0 and g.chance(0.4) and g.opset < 18:
        parts = g.split("Split", [x], count, axis=axis)
    else:
        cuts = sorted(g.some(range(1, n), 0))[: count - 1]
        sizes = np.diff([0, *cuts, n]).tolist()
        if g.opset >= 13:
            parts = g.split("Split", [x, g.whole(sizes)], len(sizes), axis=axis)
        else:
            parts = g.split("Split", [x], len(sizes), axis=axis, split=sizes)
    return g.pick(parts)


@step
def concat(g: Draft, x: str) -> str | None:
    if g.rank(x) == 0:
        return None
    axis = g.integer(0, g.rank(x) - 1)
    rest = _without(g.shape_of(x), axis)
    fitting = []
    for name, array in g.values.items():
        same_rank = array.ndim == g.rank(x) and array.dtype == g.kind
        if same_rank and _without(array.shape, axis) == rest:
            fitting.append(name)
    parts = [x, g.pick(fitting)]
    if g.chance(0.3):
        shape = list(g.shape_of(x))
        shape[axis] = g.integer(1, 2)
        parts.append(g.real(g.floats(*shape)))
    if g.chance(0.5):
        parts.reverse()
    if g.opset >= 11 and g.chance(0.3):
        axis -= g.rank(x)
    return g.node("Concat", parts, axis=axis)


def _without(shape: Sequence[int], axis: int) -> list[int]:
    return [n for k, n in enumerate(shape) if k != axis]


@step
def gather(g: Draft, x: str) -> str | None:
    if g.rank(x) == 0:
        return None
    axis = g.integer(-g.rank(x), g.rank(x) - 1)
    n = g.shape_of(x)[axis]
    low = -n if g.opset >= 11 else 0
    places = g.rng.integers(low, n, size=g.integers(1, 3, g.integer(0, 2)))
    return g.node("Gather", [x, g.whole(places)], axis=axis)


@step
@needs(11)
def gather_elements(g: Draft, x: str) -> str | None:
    if g.rank(x) == 0:
        return None
    axis = g.integer(-g.rank(x), g.rank(x) - 1)
    shape = [g.integer(1, n) for n in g.shape_of(x)]
    n = g.shape_of(x)[axis]
    places = g.rng.integers(-n, n, size=shape)
    return g.node("GatherElements", [x, g.whole(places)], axis=axis)


@step
@needs(11)
def gather_nd(g: Draft, x: str) -> str | None:
    rank = g.rank(x)
    if rank == 0:
        return None
    batch = g.integer(0, rank - 1) if g.opset >= 12 and g.chance(0.3) else 0
    depth = g.integer(1, rank - batch)
    before = g.shape_of(x)[:batch]
    rows = [*before, *g.integers(1, 3, g.integer(0, 1))]
    lengths = g.shape_of(x)[batch : batch + depth]
    places = np.stack([g.rng.integers(-n, n, size=rows) for n in lengths], axis=-1)
    options = {"batch_dims": batch} if g.opset >= 12 else {}
    return g.node("GatherND", [x, g.whole(places)], **options)


@step
@needs(11)
def scatter_elements(g: Draft, x: str) -> str | None:
    """Entries written into a tensor, or added to it where several may go to one place."""
    if g.rank(x) == 0:
        return None
    axis = g.integer(-g.rank(x), g.rank(x) - 1)
    shape = [g.integer(1, n) for n in g.shape_of(x)]
    n = g.shape_of(x)[axis]
    options: dict[str, Any] = {"axis": axis}
    places = np.argsort(g.rng.random(shape), axis=axis)
    if g.opset >= 16 and g.chance(0.4):
        options["reduction"] = "add"
        places = g.rng.integers(-n, n, size=shape)
    return g.node("ScatterElements", _scattered(g, x, places, shape), **options)


@step
@needs(11)
def scatter_nd(g: Draft, x: str) -> str | None:
    if g.rank(x) == 0:
        return None
    depth = g.integer(1, g.rank(x))
    before = g.shape_of(x)[:depth]
    count = g.integer(1, 2)
    options: dict[str, Any] = {}
    if g.opset >= 16 and g.chance(0.4):
        options["reduction"] = "add"
        places = np.stack([g.rng.integers(-n, n, size=count) for n in before], axis=-1)
    else:
        every = np.argwhere(np.ones(before))
        places = every[g.rng.permutation(len(every))[:count]]
    shape = [len(places), *g.shape_of(x)[depth:]]
    return g.node("ScatterND", _scattered(g, x, places, shape), **options)


def _scattered(g: Draft, x: str, places: np.ndarray, shape: Sequence[int]) -> list[str]:
    """The inputs of a scatter into x, of constants or of a part of x, or of x's into a constant."""
    size = int(np.prod(shape))
    if g.chance(0.4):
        return [x, g.whole(places), g.real(g.floats(*shape))]
    flat = g.node("Reshape", [x, g.whole([-1])])
    part = g.node("Gather", [flat, g.whole(g.rng.integers(0, g.values[x].size, size=size))])
    new = g.node("Reshape", [part, g.whole(shape)])
    start = g.real(g.floats(*g.shape_of(x))) if g.chance(0.3) else x
    return [start, g.whole(places), new]


@step
@needs(10)
def reversed_sequence(g: Draft, x: str) -> str | None:
    if g.rank(x) < 2:
        return None
    axes = [0, 1] if g.chance(0.5) else [1, 0]
    lengths = g.integers(1, g.shape_of(x)[axes[1]], g.shape_of(x)[axes[0]])
    inputs = [x, g.whole(lengths)]
    return g.node("ReverseSequence", inputs, batch_axis=axes[0], time_axis=axes[1])


@step
@needs(9)
def compressed(g: Draft, x: str) -> str | None:
    if g.rank(x) == 0:
        return None
    axis = g.integer(0, g.rank(x) - 1)
    count = g.integer(1, g.shape_of(x)[axis])
    mask = g.constant(g.rng.random(count) < 0.6)
    options = {"axis": axis} if g.chance(0.8) else {}
    return g.node("Compress", [x, mask], **options)


@step
def depth_to_space(g: Draft, x: str) -> str | None:
    x = of_rank(g, x, 4)
    options: dict[str, Any] = {"blocksize": g.integer(1, 3)}
    if g.chance(0.5):
        return g.node("SpaceToDepth", [x], **options)
    if g.opset >= 11 and g.chance(0.6):
        options["mode"] = g.pick(["DCR", "CRD"])
    return g.node("DepthToSpace", [x], **options)


@step
@needs(14)
def triangle(g: Draft, x: str) -> str | None:
    options = {"upper": g.integer(0, 1)} if g.chance(0.8) else {}
    inputs = [x]
    if g.chance(0.6):
        inputs.append(g.whole(g.integer(-2, 2)))
    return g.node("Trilu", inputs, **options)


@step
@needs(9)
def where(g: Draft, x: str) -> str | None:
    mask = g.constant(g.rng.random(broadcast_shape(g, g.shape_of(x))) < 0.5)
    other = partner(g, x)
    if g.chance(0.5):
        other = g.real(g.floats(*wider_shape(g, g.shape_of(x))))
    options = [x, other]
    if g.chance(0.5):
        options.reverse()
    return g.node("Where", [mask, *options])


@step
def padded(g: Draft, x: str) -> str | None:
    rank = g.rank(x)
    modes = ["constant", "constant", "constant", "reflect", "edge"]
    if g.opset >= 19:
        modes.append("wrap")
    mode = g.pick(modes)
    pads = [g.pick([0, 0, 1, 2, -1]) for _ in range(2 * rank)]
    value = float(g.pick([0.0, 0.0, 0.7]))
    if g.opset < 11:
        return g.node("Pad", [x], mode=mode, pads=pads, value=value)
    if g.opset >= 18 and g.chance(0.4):
        axes = g.axes(rank, 0)
        pads = pads[: 2 * len(axes)]
        return g.node("Pad", [x, g.whole(pads), g.real(value), g.whole(axes)], mode=mode)
    inputs = [x, g.whole(pads)]
    if value or g.chance(0.3):
        inputs.append(g.real(value))
    return g.node("Pad", inputs, mode=mode)


@step
def nothing(g: Draft, x: str) -> str | None:
    """Operators that leave their input as it is."""
    operator = g.pick(["Identity", "Dropout", "Cast"])
    if operator == "Cast":
        return g.node("Cast", [x], to=KINDS[g.kind])
    return g.node(operator, [x])


@step
def condition(g: Draft, x: str) -> str | None:
    """An If whose condition is a constant."""
    flag = g.constant(np.array(g.chance(0.5)))
    branches = []
    for operator in g.some(["Relu", "Neg", "Tanh", "Identity"], 2)[:2]:
        name = g.name("b")
        inner = helper.make_node(operator, [x], [name])
        kind = helper.make_tensor_value_info(name, KINDS[g.kind], g.shape_of(x))
        branches.append(helper.make_graph([inner], operator, [], [kind]))
    return g.node("If", [flag], then_branch=branches[0], else_branch=branches[1])


@step
def zeros_around(g: Draft, x: str) -> str | None:
    """Zeros as a padding, or joined to the tensor."""
    if g.rank(x) == 0:
        return None
    if g.chance(0.5):
        axis = g.integer(0, g.rank(x) - 1)
        shape = list(g.shape_of(x))
        shape[axis] = 1
        parts = [x, g.real(np.zeros(shape))]
        if g.chance(0.5):
            parts.reverse()
        return g.node("Concat", parts, axis=axis)
    return padded(g, x)
