"""Random PyTorch modules: layers, functionals, methods, operators, views and changes in place.

A module grows step by step; a step is a function of all tensors so far. Each is tried at once, and
what PyTorch does not take is dropped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrizations, prune

MOST = 200  # entries of a tensor

Step = Callable[[list[Tensor]], Tensor]


class Steps(nn.Module):
    """Steps, one after the other; `layers` are the modules that they call."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.layers = nn.ModuleList()

    def tensors(self, x: Tensor) -> list[Tensor]:
        """The input and the result of every step."""
        found = [x]
        for step in self.steps:
            found.append(step(found))
        return found

    def forward(self, x: Tensor) -> Tensor:
        return self.tensors(x)[-1]


class Constant(nn.Module):
    """A tensor that a module holds."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value)


@dataclass(frozen=True, eq=False)
class RandomModule:
    """A module, and the same one in evaluation mode and double precision."""

    module: Steps
    twin: Steps
    shape: tuple[int, ...]

    def values(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """What the module computes, and the largest number on the way."""
        point = torch.from_numpy(x.astype(np.float64)).reshape(1, *self.shape)
        with torch.no_grad():
            found = self.twin.tensors(point)
        return found[-1].numpy(), max(float(t.abs().max()) for t in found)


def random_module(seed: int) -> RandomModule:
    """A module of two to eight steps."""
    drafts = [Draft(seed) for _ in range(2)]
    module = drafts[0].module
    module.train(drafts[0].chance(0.5))
    if drafts[0].chance(0.2):
        module.double()
    twin = drafts[1].module.double().eval()
    return RandomModule(module, twin, drafts[0].shape)


class Draft:
    """A module that grows."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.module = Steps()
        self.shape = tuple(self.integer(1, 4) for _ in range(self.integer(1, 4)))
        self.sample = torch.randn(1, *self.shape)
        self.found = [self.sample]
        count = self.integer(2, 8)
        for _ in range(20 * count):
            if len(self.module.steps) >= count:
                break
            self.try_step()
        self.module.eval()

    # ---- chance

    def integer(self, low: int, high: int) -> int:
        """One of low, ..., high."""
        return int(self.rng.integers(low, high + 1))

    def integers(self, low: int, high: int, count: int) -> list[int]:
        return [self.integer(low, high) for _ in range(count)]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.integer(0, len(options) - 1)]

    def shuffled(self, count: int) -> list[int]:
        return [int(k) for k in self.rng.permutation(count)]

    def axis(self, x: Tensor) -> int:
        """An axis of a tensor, counted from the front or from the end."""
        return self.integer(-x.ndim, x.ndim - 1) if x.ndim else 0

    def factored(self, size: int, rank: int) -> list[int]:
        """A random shape of so many entries."""
        shape = [1] * rank
        prime = 2
        while size > 1:
            if size % prime:
                prime += 1
            else:
                shape[self.integer(0, rank - 1)] *= prime
                size //= prime
        return shape

    def broadcast(self, shape: Sequence[int]) -> list[int]:
        """A shape that broadcasts with the given one."""
        kept = list(shape)[self.integer(0, len(shape)) :]
        return [1 if self.chance(0.3) else n for n in kept]

    # ---- steps

    def layer(self, module: nn.Module) -> Any:
        self.module.layers.append(module)
        return module

    def constant(self, *shape: int) -> Constant:
        return self.layer(Constant(torch.from_numpy(self.rng.normal(size=shape)).float()))

    def try_step(self) -> None:
        """One more step, or nothing if PyTorch refuses it."""
        layers = len(self.module.layers)
        make = self.pick(STEPS)
        step = make(self, self.found[-1])
        if step is not None and self._valid(step):
            return
        while len(self.module.layers) > layers:
            del self.module.layers[-1]

    def _valid(self, step: Step) -> bool:
        """Whether PyTorch takes the module with one more step, in both precisions."""
        self.module.eval()
        self.module.steps.append(step)
        found = self._run(torch.float32)
        if found and self._run(torch.float64):
            self.found = found
            return True
        self.module.steps.pop()
        return False

    def _run(self, kind: torch.dtype) -> list[Tensor]:
        """All tensors of the module, or none if one of them cannot be used."""
        self.module.to(kind)
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = self.module.tensors(self.sample.to(kind, copy=True))
        except Exception:  # PyTorch raises all kinds
            return []
        finally:
            self.module.float()
        return found if all(_usable(t) for t in found) else []


def _usable(t: Any) -> bool:
    real = isinstance(t, Tensor) and t.dtype in (torch.float32, torch.float64)
    return real and 0 < t.numel() <= MOST and t.ndim <= 6 and bool(torch.isfinite(t).all())


Maker = Callable[[Draft, Tensor], Step | None]
STEPS: list[Maker] = []


def step(make: Maker) -> Maker:
    STEPS.append(make)
    return make


def reshaped(d: Draft, x: Tensor, rank: int) -> list[int]:
    """The shape of x, or another one, with so many axes."""
    return list(x.shape) if x.ndim == rank else d.factored(x.numel(), rank)


# ---- linear maps


@step
def linear(d: Draft, x: Tensor) -> Step | None:
    if x.ndim == 0:
        return None
    layer = wrapped(d, nn.Linear(x.shape[-1], d.integer(1, 4), bias=d.chance(0.7)))
    return lambda h: layer(h[-1])


def wrapped(d: Draft, layer: nn.Module) -> Any:
    """A layer with weights that are computed, pruned or hooked, or as it is."""
    how = d.rng.random()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how < 0.06:
            layer = parametrizations.weight_norm(layer)
        elif how < 0.12:
            layer = parametrizations.spectral_norm(layer)
        elif how < 0.16:
            layer = torch.nn.utils.weight_norm(layer)
        elif how < 0.20:
            layer = torch.nn.utils.spectral_norm(layer)
        elif how < 0.26:
            prune.l1_unstructured(layer, "weight", 0.5)
        elif how < 0.32:
            layer.register_forward_hook(lambda module, inputs, output: 3 * output)
        elif how < 0.36:
            layer.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    return d.layer(layer)


STEPS.append(linear)


@step
def products(d: Draft, x: Tensor) -> Step | None:
    """Products with constants, from both sides."""
    if x.ndim == 0:
        return None
    stacks = [n if d.chance(0.5) else 1 for n in x.shape[:-2]]
    stacks = stacks[d.integer(0, len(stacks)) :]
    if d.chance(0.5):
        right = d.constant(*stacks, x.shape[-1], d.integer(1, 3))
        return lambda h: h[-1] @ right.value
    left = d.constant(*stacks, d.integer(1, 3), x.shape[-2] if x.ndim > 1 else x.shape[0])
    return lambda h: torch.matmul(left.value, h[-1])


@step
def more_products(d: Draft, x: Tensor) -> Step | None:
    shape = reshaped(d, x, 2)
    rows, columns = shape
    width = d.integer(1, 3)
    weight = d.constant(columns, width)
    start = d.constant(*d.broadcast([rows, width]))
    vector = d.constant(columns)
    choices: list[Callable[[Tensor], Tensor]] = [
        lambda t: torch.addmm(start.value, t, weight.value, beta=0.5, alpha=2.0),
        lambda t: torch.mv(t, vector.value),
        lambda t: torch.mm(t, weight.value),
        lambda t: torch.bmm(t[None], weight.value[None]),
        lambda t: F.linear(t, weight.value.t()),
        lambda t: torch.addmv(start.value.reshape(-1)[0], t, vector.value),
        lambda t: torch.inner(t, vector.value),
        lambda t: torch.tensordot(t, weight.value, dims=1),
        lambda t: torch.kron(t, weight.value[:1]),
        lambda t: torch.outer(t.reshape(-1), vector.value),
        lambda t: torch.baddbmm(start.value, t[None], weight.value[None], beta=-1.0),
        lambda t: torch.chain_matmul(t, weight.value),
        lambda t: torch.linalg.multi_dot([t, weight.value]),
    ]
    choice = d.pick(choices)
    return lambda h: choice(h[-1].reshape(shape))


@step
def einsum(d: Draft, x: Tensor) -> Step | None:
    if not 1 <= x.ndim <= 4:
        return None
    letters = "abcd"[: x.ndim]
    sizes = dict(zip(letters, x.shape, strict=True))
    sizes["z"] = d.integer(1, 3)
    names = [*letters, "z"]
    other = [names[k] for k in d.shuffled(len(names))][: d.integer(1, len(names))]
    known = sorted({*letters, *other})
    result = [known[k] for k in d.shuffled(len(known))][: d.integer(0, len(known))]
    weight = d.constant(*(sizes[c] for c in other))
    equation = f"{letters},{''.join(other)}->{''.join(result)}"
    return lambda h: torch.einsum(equation, h[-1], weight.value)


@step
def conv(d: Draft, x: Tensor) -> Step | None:
    n = d.integer(1, 3)
    batched = d.chance(0.8)
    shape = reshaped(d, x, n + 2 if batched else n + 1)
    channels = shape[1] if batched else shape[0]
    groups = d.pick([k for k in range(1, channels + 1) if channels % k == 0])
    kernel = d.integers(1, 3, n)
    make = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[n - 1]
    padding: Any = [d.integer(0, k - 1) for k in kernel]
    options: dict[str, Any] = {"groups": groups, "bias": d.chance(0.5)}
    if d.chance(0.3):
        options["padding_mode"] = d.pick(["reflect", "replicate", "circular"])
    if d.chance(0.3):
        options["dilation"] = d.integers(1, 2, n)
    if d.chance(0.2):
        padding = d.pick(["same", "valid"])
    elif d.chance(0.5):
        options["stride"] = d.integers(1, 3, n)
    outputs = groups * d.integer(1, 2)
    layer = wrapped(d, make(channels, outputs, kernel, padding=padding, **options))
    return lambda h: layer(h[-1].reshape(shape))


STEPS.append(conv)


@step
def conv_transpose(d: Draft, x: Tensor) -> Step | None:
    n = d.integer(1, 3)
    batched = d.chance(0.8)
    shape = reshaped(d, x, n + 2 if batched else n + 1)
    channels = shape[1] if batched else shape[0]
    groups = d.pick([k for k in range(1, channels + 1) if channels % k == 0])
    kernel = d.integers(1, 3, n)
    stride = d.integers(1, 3, n)
    make = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[n - 1]
    layer = d.layer(
        make(
            channels,
            groups * d.integer(1, 2),
            kernel,
            stride,
            [d.integer(0, k - 1) for k in kernel],
            [d.integer(0, s - 1) for s in stride],
            groups,
            d.chance(0.5),
            d.integers(1, 2, n) if d.chance(0.3) else 1,
        )
    )
    return lambda h: layer(h[-1].reshape(shape))


@step
def normalized(d: Draft, x: Tensor) -> Step | None:
    """Batch or instance normalization by running statistics."""
    n = d.integer(1, 3)
    shape = reshaped(d, x, n + 2)
    name = f"{d.pick(['BatchNorm', 'BatchNorm', 'InstanceNorm'])}{n}d"
    options: dict[str, Any] = {"affine": d.chance(0.5), "eps": d.pick([1e-5, 1e-2])}
    if name.startswith("Instance"):
        options["track_running_stats"] = True
    layer = d.layer(getattr(nn, name)(shape[1], **options))
    with torch.no_grad():
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.1, 2.0)
        for weight in layer.parameters():
            weight.normal_()
    return lambda h: layer(h[-1].reshape(shape))


@step
def pool(d: Draft, x: Tensor) -> Step | None:
    n = d.integer(1, 3)
    shape = reshaped(d, x, n + d.integer(1, 2))
    kernel = d.integers(1, 3, n)
    padding = [k // 2 if d.chance(0.5) else 0 for k in kernel]
    stride = d.integers(1, 3, n) if d.chance(0.6) else None
    frame = d.integers(0, 1, 2 * n) if d.chance(0.4) else [0] * (2 * n)
    ceil = d.chance(0.4)
    options: dict[str, Any]
    if d.chance(0.3):
        maximum = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1]
        dilation = d.integers(1, 2, n) if d.chance(0.3) else 1
        options = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil}
        return lambda h: maximum(F.pad(h[-1].reshape(shape), frame), kernel, **options)
    average = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[n - 1]
    options = {"count_include_pad": d.chance(0.5)}
    if n > 1 and d.chance(0.2):
        options["divisor_override"] = d.integer(1, 4)
    layer = d.layer(average(kernel, stride, padding, ceil, **options))
    return lambda h: layer(F.pad(h[-1].reshape(shape), frame))


STEPS.append(pool)


@step
def adaptive_pool(d: Draft, x: Tensor) -> Step | None:
    n = d.integer(1, 3)
    shape = reshaped(d, x, n + d.integer(1, 2))
    name = f"adaptive_{d.pick(['avg', 'max'])}_pool{n}d"
    frame = d.integers(0, 1, 2 * n) if d.chance(0.4) else [0] * (2 * n)
    sizes = d.integers(1, 3, n)
    function = getattr(F, name)
    return lambda h: function(F.pad(h[-1].reshape(shape), frame), sizes)


@step
def resized(d: Draft, x: Tensor) -> Step | None:
    n = d.integer(1, 3)
    shape = reshaped(d, x, n + 2)
    modes = ["nearest", "nearest-exact", ("linear", "bilinear", "trilinear")[n - 1]]
    if n == 2:
        modes.append("bicubic")
    options: dict[str, Any] = {"mode": d.pick(modes)}
    if d.chance(0.5):
        options["size"] = d.integers(1, 5, n)
    else:
        options["scale_factor"] = [float(d.pick([2.0, 0.5, 1.5, 0.7])) for _ in range(n)]
        if d.chance(0.2):
            options["recompute_scale_factor"] = True
    if "nearest" not in options["mode"]:
        options["align_corners"] = d.chance(0.5)
        if n == 2 and d.chance(0.2):
            options["antialias"] = True
    return lambda h: F.interpolate(h[-1].reshape(shape), **options)


@step
def reduction(d: Draft, x: Tensor) -> Step | None:
    axes = d.shuffled(x.ndim)[: d.integer(1, max(1, x.ndim))]
    axes = [k - x.ndim if d.chance(0.4) else k for k in axes]
    keep = d.chance(0.5)
    axis = d.axis(x)
    choices: list[Callable[[Tensor], Tensor]] = [
        lambda t: t.sum(axes, keepdim=keep),
        lambda t: t.mean(axes, keepdim=keep),
        lambda t: t.amax(axes, keepdim=keep),
        lambda t: t.amin(axes, keepdim=keep),
        lambda t: t.max(axis, keepdim=keep).values,
        lambda t: t.min(axis, keepdim=keep)[0],
        lambda t: t.sum(),
        lambda t: t.mean(),
        lambda t: t.max(),
        lambda t: t.min(),
        lambda t: t.sum(dim=(), keepdim=keep),
        lambda t: t.norm(p=1, dim=axes),
        lambda t: torch.linalg.vector_norm(t, 1, axes, keep),
        lambda t: torch.linalg.vector_norm(t, float("inf"), axes, keep),
        lambda t: t.abs().sum(axis),
        lambda t: t.cumsum(axis),
        lambda t: torch.diff(t, dim=axis),
        lambda t: torch.trace(t.reshape(t.shape[0], -1)),
        lambda t: t.nansum(axis),
        lambda t: torch.aminmax(t, dim=axis).max,
    ]
    choice = d.pick(choices)
    return lambda h: choice(h[-1])


STEPS.append(reduction)


# ---- arithmetic


@step
def arithmetic(d: Draft, x: Tensor) -> Step | None:
    c = d.constant(*d.broadcast(x.shape))
    number = d.pick([2, -0.5, 0.3, 3])
    choices: list[Callable[[Tensor], Tensor]] = [
        lambda t: t + c.value,
        lambda t: c.value - t,
        lambda t: t * c.value,
        lambda t: t / (c.value.abs() + 0.5),
        lambda t: number - t,
        lambda t: t * number + 1,
        lambda t: t / number,
        lambda t: torch.add(t, c.value, alpha=number),
        lambda t: torch.sub(c.value, t, alpha=2),
        lambda t: torch.rsub(t, c.value),
        lambda t: torch.addcmul(t, c.value, c.value, value=0.5),
        lambda t: torch.addcmul(c.value, t, c.value, value=0.5),
        lambda t: torch.addcdiv(t, c.value, c.value.abs() + 1.0, value=2.0),
        lambda t: torch.lerp(t, c.value.expand_as(t), 0.3),
        lambda t: torch.where(c.value > 0, t, -t),
        lambda t: torch.where(c.value > 0, 0.5, t),
        lambda t: t.masked_fill(c.value > 0.5, 2.0),
        lambda t: torch.maximum(t, c.value),
        lambda t: torch.minimum(c.value, t),
        lambda t: torch.fmax(t, c.value),
        lambda t: t.clamp(min=c.value),
        lambda t: t.clamp(max=0.5),
        lambda t: torch.clip(t, -0.3, None),
        lambda t: F.relu(t) - F.relu(-t) * 0.5,
        lambda t: torch.cat([t, t * c.value]),
        lambda t: torch.true_divide(t, number),
        lambda t: torch.zeros_like(t) + t,
        lambda t: t.new_ones(t.shape) * t + torch.full_like(t, 0.5),
        lambda t: torch.nn.functional.softshrink(t, 0.3),
        lambda t: torch.nn.functional.tanhshrink(t),
        lambda t: torch.heaviside(c.value, torch.zeros(())) * t,
        lambda t: torch.positive(t),
        lambda t: torch.nan_to_num(t),
        lambda t: t.mul(c.value).add(1).sub(t),
    ]
    choice = d.pick(choices)
    return lambda h: choice(h[-1])


STEPS.append(arithmetic)


@step
def residual(d: Draft, x: Tensor) -> Step | None:
    k = d.integer(0, len(d.found) - 1)
    choices: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda a, b: a + b,
        lambda a, b: a - 2 * b,
        lambda a, b: torch.maximum(a, b),
        lambda a, b: torch.minimum(a, b),
        lambda a, b: torch.stack([a, b], dim=-1),
        lambda a, b: torch.stack([a, b, a]),
        lambda a, b: torch.cat([b, a], dim=-1),
        lambda a, b: torch.hstack([a, b]),
        lambda a, b: sum([a, b, a]),
        lambda a, b: torch.add(b, a, alpha=0.5),
    ]
    choice = d.pick(choices)
    return lambda h: choice(h[-1], h[k])


STEPS.append(residual)


# ---- changes in place


@step
def in_place(d: Draft, x: Tensor) -> Step | None:
    """A tensor or a view of it is changed; what goes on is the tensor, the view or another."""
    c = d.constant(*d.broadcast(x.shape))
    k = d.integer(0, len(d.found) - 1)
    axis = d.axis(x)
    changes: list[Callable[[Tensor], Any]] = [
        lambda t: t.mul_(3.0),
        lambda t: t.add_(c.value),
        lambda t: t.sub_(1),
        lambda t: t.div_(2),
        lambda t: t.neg_(),
        lambda t: t.relu_(),
        lambda t: t.clamp_(-0.5, 0.5),
        lambda t: t.tanh_(),
        lambda t: t.abs_(),
        lambda t: t.masked_fill_(c.value > 0, 0.0),
        lambda t: F.relu(t, inplace=True),
        lambda t: F.leaky_relu_(t, 0.3),
        lambda t: nn.ELU(2.0, inplace=True)(t),
        lambda t: t.select(axis, 0).mul_(2),
        lambda t: t.narrow(axis, 0, 1).fill_(1.0),
        lambda t: t.view(-1)[::2].add_(1),
        lambda t: t.transpose(0, -1).mul_(2),
        lambda t: t.squeeze().add_(0.5),
        lambda t: t[..., 0].zero_(),
        lambda t: t.__setitem__((..., 0), 2.0),
        lambda t: t.__setitem__((..., -1), t[..., 0]),
        lambda t: t.__setitem__(0, t[-1] * 2),
        lambda t: t.__setitem__((slice(None), [0, -1]), 0.5),
        lambda t: t.__setitem__(c.value.expand_as(t) > 0, -1.0),
        lambda t: t.copy_(t.flip(0)),
        lambda t: t.copy_(c.value),
        lambda t: t.index_fill_(axis, torch.tensor([0]), 0.7),
        lambda t: t.index_add_(axis, torch.tensor([0]), t.narrow(axis, -1, 1), alpha=0.5),
        lambda t: t.index_copy_(axis, torch.tensor([0]), t.narrow(axis, -1, 1)),
        lambda t: t.scatter_(axis, torch.zeros_like(t, dtype=torch.int64)[:1], 1.5),
        lambda t: t.addcmul_(c.value, c.value),
        lambda t: t.lerp_(c.value.expand_as(t), 0.25),
        lambda t: t.chunk(2, -1)[0].mul_(-1),
        lambda t: t.diagonal().add_(1.0),
        lambda t: t.unsqueeze(0).add_(t),
    ]
    change = d.pick(changes)
    copied = d.chance(0.4)

    def run(h: list[Tensor]) -> Tensor:
        t = h[k]
        if copied:
            t = t.clone()
        result = change(t)
        return result if isinstance(result, Tensor) and returned else t

    returned = d.chance(0.4)
    if d.chance(0.25):
        # The result is dropped: only what shares its memory sees the change.
        return lambda h: (run(h), h[-1])[1]
    return run


STEPS.append(in_place)
STEPS.append(in_place)


# ---- moving entries


@step
def moved(d: Draft, x: Tensor) -> Step | None:
    axis = d.axis(x)
    other = d.axis(x)
    order = d.shuffled(x.ndim)
    shape = d.factored(x.numel(), d.integer(1, 4))
    unknown = list(shape)
    unknown[d.integer(0, len(shape) - 1)] = -1
    repeats = d.integers(1, 2, x.ndim)
    length = x.shape[axis] if x.ndim else 1
    places = d.integers(-length, length - 1, d.integer(1, 3))
    front = [k % length for k in places]
    pads = d.integers(-1, 2, 2 * d.integer(1, max(1, x.ndim)))
    mode = d.pick(["constant", "constant", "reflect", "replicate", "circular"])
    value = d.pick([None, 0.0, 0.7]) if mode == "constant" else None
    shift = d.integer(-2, 3)
    choices: list[Callable[[Tensor], Tensor]] = [
        lambda t: t.reshape(unknown),
        lambda t: t.view(shape),
        lambda t: t.flatten(),
        lambda t: torch.flatten(t, start_dim=min(1, t.ndim - 1)),
        lambda t: t.unflatten(axis, (-1, 1)),
        lambda t: t.squeeze(),
        lambda t: t.squeeze(axis),
        lambda t: t.unsqueeze(axis),
        lambda t: t[..., None],
        lambda t: t.transpose(axis, other),
        lambda t: t.permute(order),
        lambda t: torch.movedim(t, axis, other),
        lambda t: t.swapaxes(axis, other),
        lambda t: t.mT,
        lambda t: t.T if t.ndim == 2 else t.mH,
        lambda t: t.expand(2, *t.shape),
        lambda t: t.expand(*t.shape[:-1], -1),
        lambda t: t.repeat(2, *repeats),
        lambda t: torch.tile(t, repeats),
        lambda t: t.repeat_interleave(2, dim=axis),
        lambda t: t.repeat_interleave(2),
        lambda t: torch.roll(t, shift, axis),
        lambda t: torch.roll(t, shift),
        lambda t: t.flip(axis),
        lambda t: torch.fliplr(t),
        lambda t: torch.rot90(t, shift, (axis, other)),
        lambda t: t.chunk(2, axis)[-1],
        lambda t: torch.tensor_split(t, 2, axis)[0],
        lambda t: t.split(2, axis)[0],
        lambda t: torch.split(t, [1, t.shape[axis] - 1], axis)[1],
        lambda t: t.unbind(axis)[-1],
        lambda t: t.narrow(axis, -1, 1),
        lambda t: t.select(axis, -1),
        lambda t: t[:, places] if axis == 1 else t[places],
        lambda t: t[..., torch.tensor(front)],
        lambda t: t[..., -1:],
        lambda t: t[::2],
        lambda t: t[-1],
        lambda t: t[None, ..., 0],
        lambda t: t[torch.arange(t.shape[0]) % 2 == 0],
        lambda t: t.index_select(axis, torch.tensor(front)),
        lambda t: t.gather(axis, torch.zeros(t.shape, dtype=torch.int64).narrow(axis, 0, 1)),
        lambda t: t.take(torch.tensor([0, -1])),
        lambda t: torch.take_along_dim(t, torch.zeros([1] * t.ndim, dtype=torch.int64), axis),
        lambda t: t.tril(shift),
        lambda t: t.triu(shift),
        lambda t: torch.diagonal(t, shift),
        lambda t: torch.diag_embed(t),
        lambda t: torch.diag(t.reshape(-1)[:4]),
        lambda t: t.unfold(axis, 2, 1),
        lambda t: F.pad(t, pads, mode=mode, value=value),
        lambda t: F.unfold(t, 2, padding=1),
        lambda t: F.fold(t, (2, 2), 1),
        lambda t: F.pixel_shuffle(t, 2),
        lambda t: F.pixel_unshuffle(t, 2),
        lambda t: F.channel_shuffle(t, 2),
        lambda t: t.as_strided((2, 2), (1, 1)),
        lambda t: torch.broadcast_to(t, (2, *t.shape)),
        lambda t: torch.atleast_3d(t),
        lambda t: t.contiguous().view(-1),
        lambda t: t.view_as(t),
        lambda t: t.double().float(),
        lambda t: torch.cat([t, torch.zeros_like(t)], axis),
        lambda t: torch.column_stack([t, t]),
        lambda t: torch.block_diag(t, t),
        lambda t: torch.cartesian_prod(t.reshape(-1)[:3], t.reshape(-1)[:2]),
        lambda t: torch.stack(torch.meshgrid(t.reshape(-1)[:3], t.reshape(-1)[:2], indexing="ij")),
        lambda t: t.real,
        lambda t: F.dropout(t, 0.5, training=False),
    ]
    choice = d.pick(choices)
    return lambda h: choice(h[-1])


STEPS.append(moved)
STEPS.append(moved)
STEPS.append(moved)


# ---- activations


@step
def activation(d: Draft, x: Tensor) -> Step | None:
    inplace = d.chance(0.3)
    layers = [
        nn.ReLU(inplace),
        nn.ReLU6(inplace),
        nn.LeakyReLU(d.pick([0.01, 0.3, -0.2]), inplace),
        nn.ELU(d.pick([1.0, 0.5, 2.0]), inplace),
        nn.SELU(inplace),
        nn.CELU(d.pick([1.0, 0.5, 2.0]), inplace),
        nn.Softplus(d.pick([1.0, 2.0, 0.5])),
        nn.Softsign(),
        nn.Sigmoid(),
        nn.Tanh(),
        nn.Hardsigmoid(inplace),
        nn.Hardswish(inplace),
        nn.Hardtanh(-0.4, 0.6, inplace),
        nn.GELU(d.pick(["none", "tanh"])),
        nn.SiLU(inplace),
        nn.Mish(inplace),
        nn.LogSigmoid(),
        nn.Softshrink(0.4),
        nn.Tanhshrink(),
        nn.Threshold(0.2, 0.2, inplace),
        nn.RReLU(0.1, 0.3, inplace),
        nn.PReLU(),
        nn.PReLU(x.shape[1] if x.ndim > 1 else 1),
        nn.Dropout(0.5, inplace),
        nn.AlphaDropout(0.5),
        nn.Identity(),
    ]
    layer = d.layer(d.pick(layers))
    return lambda h: layer(h[-1])


STEPS.append(activation)


@step
def functional(d: Draft, x: Tensor) -> Step | None:
    choices: list[Callable[[Tensor], Tensor]] = [
        torch.erf,
        torch.abs,
        torch.relu,
        torch.sigmoid,
        torch.tanh,
        lambda t: t * torch.sigmoid(t),
        lambda t: t * F.hardsigmoid(t),
        lambda t: 0.5 * t * (1 + torch.erf(t / 2**0.5)),
        lambda t: t / (1 + t.abs()),
        lambda t: t * torch.tanh(F.softplus(t)),
        lambda t: torch.sigmoid(1.702 * t) * t,
        lambda t: torch.log(torch.sigmoid(t)),
        lambda t: F.softplus(t, beta=2),
        lambda t: F.glu(torch.cat([t, torch.zeros_like(t)], -1)),
        lambda t: F.normalize(torch.ones_like(t), dim=-1) * t,
        lambda t: torch.atan(t),
        lambda t: torch.special.expit(t),
        lambda t: F.hardshrink(t, 0.0),
        lambda t: F.threshold(t, 0.1, 0.1),
        lambda t: torch.logaddexp(t, torch.zeros_like(t)),
        lambda t: F.softmin(t, -1),
        lambda t: F.relu6(t + 3) / 6 * t,
    ]
    choice = d.pick(choices)
    return lambda h: choice(h[-1])
