"""Penalty: the constant of a module as a term of its loss.

One call is one pass forward and one backward through the vector network (vectors.py). The backward
pass gives the gradient in the weights and, with it, the next vectors: a power step costs nothing
more. The gradient is attached to the value that is returned, and reaches the weights when the loss
is differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from ..errors import LipoptError
from ..methods.sdp.method import SDP
from ..model.domain import Ball, Domain
from ..model.norms import Norm, NormName, find_norm
from ..numerics.arrays import Array
from ..numerics.blas import arithmetic
from ..problem.question import Question, pose
from ..problem.task import Budget, Task
from ..readers.torch import Reading, read_module
from .attached import Attached, AttachedAtOnce, gradients_in
from .live import LiveNetwork, Tensor
from .operators import Values
from .replay import Replay
from .rules import Intervals, Range, Slopes
from .settings import Form, Kind, Settings
from .upper import Multipliers, dual_value, path_sum
from .vectors import VectorNetwork, Vectors, one_hot, start_vectors

# Power steps when a penalty is made.
FIRST_STEPS = 20
# Power steps for the inputs of a batch, each of which has a problem of its own.
LOCAL_STEPS = 3
# Under l1 every input has a problem of its own: so many are looked at together.
MAX_SLOTS = 8
# A constant that is not larger counts as zero.
DEAD = 1e-15
# On an accelerator, reading a number stops the queue of work: values are checked once in so many calls.
CHECK_EVERY = 100


class Penalty(nn.Module):  # type: ignore[misc]
    """The Lipschitz constant of a live PyTorch module, as a term of its loss.

    `loss + strength * penalty()` is differentiable in all parameters of the model. What a call
    returns is an estimate *from below* of the SDP's optimum, which one power step a call keeps
    close; `certified` proves a bound. docs/training.md has the details and the costs.

    With several rows under linf, the constant is that of the vector of all rows in its Euclidean
    norm: no row has a larger one. Under l2 and l1, the rows are measured as the inputs are.

    The vectors are buffers: `state_dict` of the penalty has them, and not the model's weights. They
    follow the model to its device and precision. `eval()` keeps them from moving.

    Args:
        model: the module that is trained, also inside DataParallel or torch.compile. It is read in
            evaluation form: normalization uses running statistics, dropout does nothing.
        example_input: a batch of inputs, of which the shape counts. It may be left out if the model
            starts with a Linear layer.
        norm: the norm on the inputs, "linf", "l2" or "l1".
        outputs: the functions of the outputs whose constant it is: "all" for each output,
            "margins" for the differences to their mean, a number for one output, or a matrix with
            a row for each function.
        rank: the number of coordinates of the vectors: one call costs as much as a batch of that
            many inputs.
        kind: "estimate"; "path-sum" for an upper bound that is looser, and costs as much as two
            inputs; "dual" for one that is closer, for small networks under linf or l2.
        form: what is returned of the constant L: "value" for L, "square" for its square, "log" for
            its logarithm, "hinge" for max(L - target, 0).
        target: of the hinge.
        radius: for the constant around inputs: `penalty(x)` is the mean over the inputs x of the
            constants in l_inf balls of this radius. None for the whole space.
        clip: the range (low, high) that inputs stay in, where a radius is given.
        logits: leave out the softmax or sigmoid at the end of the model.
        cuda_graph: on a GPU, launch the kernels of a call at once, which makes it several times as
            fast. Leave it out if the model itself is recorded as a CUDA graph.
        seed: of the first vectors.

    Raises:
        LipoptError: the model cannot be read, an option makes no sense, the outputs do not depend
            on the input, or weights are not finite.

    Examples:
        >>> import torch
        >>> from lipopt.training import Penalty
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> penalty = Penalty(model, outputs="margins")
        >>> loss = model(torch.randn(16, 4)).square().mean() + 0.01 * penalty()
        >>> loss.backward()
        >>> bool(penalty.certified() > 0)
        True
    """

    def __init__(
        self,
        model: Any,
        *,
        example_input: Any = None,
        norm: NormName = "linf",
        outputs: Any = "all",
        rank: int = 16,
        kind: Kind = "estimate",
        form: Form = "value",
        target: float | None = None,
        radius: float | None = None,
        clip: tuple[float, float] | None = None,
        logits: bool = False,
        cuda_graph: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.settings = Settings(
            find_norm(norm), rank, kind, form, target, radius, clip, logits, cuda_graph
        )
        self._model = (model,)  # in a tuple, so that its weights are not those of the penalty
        self._shape = None if example_input is None else tuple(example_input.shape[1:])
        self._calls = 0
        self._replay: Replay | None = None
        self._reached: list[bool] = []  # which parameters have a gradient in the recording
        self._live = self._read()
        like = self._like()
        wanted = _rows(outputs, self._live.network.output_size)
        self.register_buffer("rows", torch.tensor(wanted).to(like))
        inputs = self._live.network.input_size
        slots = min(MAX_SLOTS, inputs) if self.settings.norm.is_by_input else 1
        self.register_buffer("inputs", torch.arange(slots, device=like.device))
        self.register_buffer("turn", torch.zeros((), dtype=torch.int64, device=like.device))
        first = start_vectors(
            self._live, self.settings.norm, rank, self.inputs.cpu(), seed, like.detach()
        )
        for name, vectors in zip(self._names(), first.all, strict=True):
            self.register_buffer(name, vectors)
        self._check_alive()
        if radius is None and kind != "path-sum":
            self.refine(FIRST_STEPS)

    # ---- what users call

    def forward(self, inputs: Any = None) -> Tensor:
        """The penalty: a scalar that carries gradients to the model's parameters.

        In training mode, it also makes one power step.

        Args:
            inputs: a batch of inputs, if the penalty has a radius.

        Raises:
            LipoptError: inputs are missing or not wanted, the value is not finite or zero."""
        self._follow_model()
        self._check_inputs(inputs)
        with torch.autocast(self.rows.device.type, enabled=False):
            if self.settings.kind == "path-sum":
                value = self._path_sum(inputs)
            elif self.settings.kind == "dual":
                value = self._dual()
            else:
                value = self._estimate(inputs)
        self._check_value(value)
        return self.settings.formed(value)

    def refine(self, steps: int = 100) -> float:
        """Make power steps alone, with the weights as they are.

        Args:
            steps: how many.

        Returns:
            The value of the last vectors but one, which is nearly the SDP's optimum after enough
            steps.

        Raises:
            LipoptError: the penalty has a radius, or its value is not finite or zero."""
        if self.settings.radius is not None:
            raise LipoptError("vectors in balls belong to their inputs; there is nothing to refine")
        self._follow_model()
        value = torch.zeros(())
        with torch.autocast(self.rows.device.type, enabled=False):
            for _ in range(steps):
                value = self._step(None, [], turn=True).value
        self._check_value(value, always=True)
        return float(value)

    def certified(self, inputs: Any = None, *, time_limit: float | None = None) -> float:
        """A proved upper bound on what the penalty estimates, for the weights as they are.

        It is a number without a gradient: the SDP of `lipopt.bound` for the same rows.

        Args:
            inputs: a batch of inputs, if the penalty has a radius: the mean of their bounds.
            time_limit: seconds for each bound.

        Raises:
            LipoptError: the model cannot be read, or inputs are missing or not wanted."""
        self._check_inputs(inputs)
        settings = self.settings
        network = self._reading().network
        rows = sp.csr_array(self.rows.detach().cpu().double().numpy())
        domains: list[Domain] = [None]
        if settings.radius is not None:
            points = inputs.detach().cpu().double().numpy()
            domains = [Ball(x.reshape(-1), settings.radius, settings.clip) for x in points]
        bounds = []
        with arithmetic(network.widest):
            for domain in domains:
                posed = pose(network, Question(settings.norm, rows, domain))
                task = Task(posed.raw, posed.problem, Budget.of(time_limit))
                bounds.append(SDP()(task).value)
        return float(np.mean(bounds))

    # ---- the three kinds

    def _estimate(self, inputs: Any) -> Tensor:
        parameters = self._trained() if torch.is_grad_enabled() else []
        if parameters and inputs is None and self._can_replay():
            return self._replayed(parameters)
        step = self._step(inputs, parameters, turn=self.training)
        return Attached.apply(step.value, step.gradients, *parameters)

    def _can_replay(self) -> bool:
        return self.training and self.settings.cuda_graph and bool(self.rows.is_cuda)

    def _replayed(self, parameters: Sequence[Tensor]) -> Tensor:
        """The value by a CUDA graph, which is recorded again if the weights have moved."""

        def run() -> Tensor:
            step = self._step(None, parameters, turn=True)
            self._reached = [g is not None for g in step.gradients]
            known = [g.reshape(-1) for g in step.gradients if g is not None]
            return torch.cat([step.value.reshape(1), *known])

        tensors = [*self._live.weights().values(), *self.buffers()]
        if self._replay is None or not self._replay.fits(tensors):
            self._replay = Replay(run, tensors)
        joined = self._replay()
        reached = [p for p, yes in zip(parameters, self._reached, strict=True) if yes]
        return AttachedAtOnce.apply(joined, *reached)

    def _path_sum(self, inputs: Any) -> Tensor:
        with torch.enable_grad():
            constants = self._live.constants()
            slopes = self._slopes(inputs, constants)
            sums = path_sum(self._live, self.settings.norm, self.rows, slopes, constants)
        return sums.mean() if torch.is_grad_enabled() else sums.detach().mean()

    def _dual(self) -> Tensor:
        """The dual with the multipliers of the vectors, which have made a step."""
        if self.training:
            self._step(None, [], turn=True)
        return self._dual_with(self._multipliers())

    def _multipliers(self) -> Multipliers:
        constants = self._live.constants()
        slopes = self._slopes(None, constants)
        with torch.enable_grad():
            found = self._network().evaluate(self._vectors(), slopes, constants)
            moved = [found.t, *found.z]
            gradients = gradients_in(found.values.sum(), moved)
        known = []
        for g, x in zip(gradients, moved, strict=True):
            known.append(torch.zeros_like(x) if g is None else g)
        return Multipliers(found, known, slopes)

    def _dual_with(self, multipliers: Multipliers) -> Tensor:
        """The dual with multipliers that are held fixed."""
        constants = self._live.constants()
        slopes = self._slopes(None, constants)
        norm = self.settings.norm
        return dual_value(self._live, norm, self.rows, slopes, constants, multipliers)

    def _step(self, inputs: Any, parameters: Sequence[Tensor], turn: bool) -> _Step:
        """The value and its gradients in the parameters; with `turn`, a power step."""
        with torch.enable_grad():
            leaves = [parameter.detach().requires_grad_() for parameter in parameters]
            constants = self._live.constants(self._with_leaves(parameters, leaves))
            slopes = self._slopes(inputs, constants)
            vectors = self._vectors()
            if inputs is not None:
                vectors = self._local_vectors(vectors, slopes, constants, len(inputs))
            own = [range_.for_problems(len(vectors.t)) for range_ in slopes]
            found = self._network().evaluate(vectors, own, constants)
            slots = len(self.inputs)
            value = _mean_of_largest(found.values, slots)
            moved = [found.t, *found.z] if turn and inputs is None else []
            if slots == 1:
                # The gradients in the parameters and in the vectors come from one pass.
                gradients = gradients_in(value, [*leaves, *moved])
                turns = gradients[len(parameters) :]
            else:
                # Of the largest value in the parameters, of all values in the vectors.
                gradients = gradients_in(value, leaves, retain=True)
                turns = gradients_in(found.values.sum(), moved)
        if moved:
            self._turn(vectors, turns, found.values)
        return _Step(value.detach(), gradients[: len(parameters)])

    def _with_leaves(
        self, parameters: Sequence[Tensor], leaves: Sequence[Tensor]
    ) -> dict[str, Tensor]:
        """The weights of the model, with leaves in place of parameters.

        Leaves share the numbers of the parameters, but have no part in the loss's own graph: it
        could not be recorded by a CUDA graph."""
        place = {id(p): leaf for p, leaf in zip(parameters, leaves, strict=True)}
        found = {}
        for name, weight in self._live.weights().items():
            found[name] = place.get(id(weight), weight.detach())
        return found

    def _turn(self, vectors: Vectors, gradients: Sequence[Tensor | None], values: Tensor) -> None:
        """A power step: the vectors that the next call starts from."""
        with torch.no_grad():
            self._keep(self._network().turned(vectors, gradients))
            if self.settings.norm.is_by_input:
                self._next_input(values)

    def _next_input(self, values: Tensor) -> None:
        """Under l1: one problem passes on to the next input, unless it is the largest."""
        size = self._live.network.input_size
        slots = len(self.inputs)
        if slots == size:
            return
        place = torch.arange(slots, device=values.device)
        is_next = (place == self.turn % slots) & (place != values.argmax())
        self.inputs.copy_(torch.where(is_next, self.turn % size, self.inputs))
        self.turn.add_(1)
        self.t.copy_(one_hot(self.inputs, self.settings.rank, size, self.t))

    def _local_vectors(
        self, start: Vectors, slopes: Slopes, constants: Values, count: int
    ) -> Vectors:
        """Vectors for every input of a batch, after a few power steps from the common ones."""
        vectors = Vectors(*_repeated(start, count))
        fixed = {node: _detached(value) for node, value in constants.items()}
        own = [range_.detached().for_problems(len(vectors.t)) for range_ in slopes]
        for step in range(LOCAL_STEPS):
            found = self._network().evaluate(vectors, own, fixed)
            gradients = gradients_in(found.values.sum(), [found.t, *found.z])
            vectors = self._network().turned(vectors, gradients)
            if step == 0 and self.training:
                self._keep_common(gradients, count)
        return vectors

    def _keep_common(self, gradients: Sequence[Tensor | None], count: int) -> None:
        """A power step of the common vectors, along the mean of the inputs' gradients."""
        means: list[Tensor | None] = []
        for g in gradients:
            means.append(None if g is None else g.reshape(count, -1, *g.shape[1:]).mean(0))
        with torch.no_grad():
            self._keep(self._network().turned(self._vectors(), means))

    # ---- its parts

    def _network(self) -> VectorNetwork:
        return VectorNetwork(self._live, self.settings.norm, self.rows)

    def _names(self) -> list[str]:
        """The names of the buffers with vectors."""
        return ["t", *(f"v{k}" for k in range(len(self._live.activations)))]

    def _vectors(self) -> Vectors:
        t, *v = [getattr(self, name) for name in self._names()]
        return Vectors(t, v)

    def _keep(self, vectors: Vectors) -> None:
        for name, new in zip(self._names(), vectors.all, strict=True):
            getattr(self, name).copy_(new)

    def _slopes(self, inputs: Any, constants: Values) -> Slopes:
        """The range of slopes of every activation."""
        if inputs is None:
            return [self._global_slopes(k, constants) for k in range(len(self._live.activations))]
        radius = self.settings.radius
        middle = inputs.detach().to(self.rows).reshape(-1, *self._live.input_shape)
        low = middle - radius
        high = middle + radius
        if self.settings.clip is not None:
            low = low.clamp_min(self.settings.clip[0])
            high = high.clamp_max(self.settings.clip[1])
        rule = Intervals(self._live.activations, constants)
        self._live.run(rule, torch.cat([(low + high) / 2, (high - low) / 2]), constants)
        return [rule.slopes[k] for k in range(len(self._live.activations))]

    def _global_slopes(self, number: int, constants: Values) -> Range:
        activation = self._live.activations[number]
        if activation.kind == "leaky_relu" and "alpha" in activation.live:
            alpha = activation.broadcast("alpha", constants[activation.live["alpha"]])
            return Range.between(alpha.clamp_max(1.0), alpha.clamp_min(1.0))
        return self._fixed_slopes[number]

    def _trained(self) -> list[Tensor]:
        """The parameters of the model that the value depends on and that are trained."""
        found: list[Tensor] = []
        for weight in self._live.weights().values():
            if weight.requires_grad and not any(weight is other for other in found):
                found.append(weight)
        return found

    def _like(self) -> Tensor:
        """A tensor on the device and in the precision of the computation."""
        for weight in self._live.weights().values():
            if weight.is_floating_point():
                half = weight.dtype in (torch.float16, torch.bfloat16)
                kind = torch.float32 if half else weight.dtype
                return torch.zeros((), dtype=kind, device=weight.device)
        return torch.zeros(())

    def _reading(self) -> Reading:
        """The model, read with the weights that it has now."""
        return read_module(self._model[0], input_shape=self._shape, logits=self.settings.logits)

    def _read(self) -> LiveNetwork:
        live = LiveNetwork(self._reading())
        self._live = live
        like = self._like()
        self._fixed_slopes = [_fixed(activation.slopes(), like) for activation in live.activations]
        return live

    def _follow_model(self) -> None:
        """Go where the model has gone: to another device, or to another precision."""
        like = self._like()
        if (like.device, like.dtype) == (self.rows.device, self.rows.dtype):
            return
        self._live = self._read()
        self.to(device=like.device, dtype=like.dtype)

    # ---- errors

    def _check_inputs(self, inputs: Any) -> None:
        if self.settings.radius is None and inputs is not None:
            raise LipoptError("the penalty is about the whole space; give it a radius for inputs")
        if self.settings.radius is not None and inputs is None:
            raise LipoptError("a penalty with a radius needs a batch of inputs: penalty(x)")
        if inputs is not None and tuple(inputs.shape[1:]) != self._live.network.input_shape:
            raise LipoptError(
                f"inputs of shape {tuple(inputs.shape)} are no batch for a model that takes"
                f" {self._live.network.input_shape}"
            )

    def _check_alive(self) -> None:
        """Refuse outputs that do not depend on the input."""
        with torch.no_grad():
            constants = self._live.constants()
        slopes = self._slopes(None, constants)
        sums = path_sum(self._live, Norm.LINF, self.rows, slopes, constants)
        if not bool(sums > 0):
            raise LipoptError(
                "the outputs are dead: no path from the input to them has weights other than 0;"
                " give the last layer other weights to start from"
            )

    def _check_value(self, value: Tensor, always: bool = False) -> None:
        self._calls += 1
        on_cpu = value.device.type == "cpu"
        if not (always or on_cpu or self._calls % CHECK_EVERY == 0):
            return
        if DEAD < float(value.detach()) < np.inf:
            return
        for name, weight in self._live.weights().items():
            if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
                raise LipoptError(f"'{name}' has weights that are NaN or infinite")
        raise LipoptError(
            f"the constant is {float(value.detach())}: all its paths have died out, or it overflows"
        )


@dataclass(frozen=True, eq=False)
class _Step:
    """A value and its gradients in the parameters."""

    value: Tensor
    gradients: tuple[Tensor | None, ...]


def _mean_of_largest(values: Tensor, slots: int) -> Tensor:
    """The mean over inputs of the largest value among their problems."""
    if len(values) == 1:
        return values[0]
    return values.reshape(-1, slots).amax(1).mean()


def _rows(outputs: Any, count: int) -> Array:
    """The functions of the outputs, one in each row."""
    if isinstance(outputs, str):
        if outputs == "all":
            return np.eye(count)
        if outputs == "margins":
            if count < 2:
                raise LipoptError("margins need two outputs; use outputs='all'")
            return np.eye(count) - 1 / count
        raise LipoptError(f"unknown outputs '{outputs}'; use 'all', 'margins', a number or rows")
    if isinstance(outputs, int):
        if not 0 <= outputs < count:
            raise LipoptError(
                f"output {outputs} is out of range: the model has outputs 0 to {count - 1}"
            )
        return np.eye(count)[[outputs]]
    rows = np.atleast_2d(np.asarray(outputs, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != count:
        raise LipoptError(f"rows of shape {rows.shape} do not fit a model with {count} outputs")
    if not np.isfinite(rows).all():
        raise LipoptError("the rows have entries that are NaN or infinite")
    return rows


def _fixed(ends: tuple[Array, Array], like: Tensor) -> Range:
    """A range of slopes that does not depend on weights: numbers, if it is the same for all."""
    low, high = ends
    if (low == low[0]).all() and (high == high[0]).all():
        return Range.between(float(low[0]), float(high[0]))
    return Range.between(torch.tensor(low).to(like), torch.tensor(high).to(like))


def _repeated(vectors: Vectors, count: int) -> tuple[Tensor, list[Tensor]]:
    """The same vectors for every input of a batch."""
    t, *v = [x.repeat(count, 1, 1) for x in vectors.all]
    return t, v


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
