"""The live network: a module's graph, run on columns with the weights that the module has now.

The reader says what every operator of the exported graph is. Constants are computed by PyTorch from
the live parameters and buffers, so weight normalization and its like carry gradients. An affine
operator is applied by PyTorch too (operators.py). What the reader made activations of, such as
a ReLU, a maximum or a gate, is run as the reader wrote it: fixed matrices around activations.

How tensors pass through is a rule: derivatives, sums over paths, or intervals (rules.py).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

from ..errors import LipoptError
from ..model.activations import require_slopes, slope_range
from ..model.nodes import Activation, Affine, Input
from ..numerics.arrays import Array, stored
from ..readers.torch import Reading, constants_of, holds_view, label
from ..readers.torch_operators import IGNORED
from ..readers.views import View
from .matrices import Gather
from .operators import GraphNode, Operator, Values

Tensor = Any  # PyTorch is not seen by the type checker
# Precisions in which squares overflow: weights in them are converted.
HALVES = (torch.float16, torch.bfloat16)
# Arguments of operators that are parameters of the activation, by place.
PARAMETERS: dict[str, dict[str, int]] = {
    "aten.prelu.default": {"alpha": 1},
    "aten._prelu_kernel.default": {"alpha": 1},
    "aten.clamp.Tensor": {"low": 1, "high": 2},
    "aten.clamp_min.Tensor": {"low": 1},
    "aten.clamp_max.Tensor": {"high": 1},
}
LARGER = ("aten.maximum.default", "aten.max.other", "aten.fmax.default")
SMALLER = ("aten.minimum.default", "aten.min.other", "aten.fmin.default")


class Rule(Protocol):
    """How tensors pass through the network; their first axis is for columns."""

    def affine(self, operator: Operator, values: Values, constants: Values) -> Any:
        """The result of an operator of the graph."""

    def weighted(self, terms: Sequence[tuple[Gather, Tensor]], bias: Tensor) -> Tensor:
        """The sum of fixed matrices times tensors, and a bias."""

    def activation(self, number: int, y: Tensor) -> Tensor:
        """The result of an activation, given as (columns, neurons)."""


@dataclass(frozen=True, eq=False)
class LiveActivation:
    """One activation of the network: neurons of the same kind."""

    label: str
    kind: str
    size: int
    parameters: Mapping[str, Array | float]  # as they were when the module was read
    live: Mapping[str, GraphNode]  # those that are tensors of the graph
    shape: tuple[int, ...]  # of the tensor; its live parameters broadcast with it

    def slopes(self) -> tuple[Array, Array]:
        """The range of slopes over the whole space, as the parameters were."""
        everything = np.full(self.size, np.inf)
        require_slopes(self.label, self.kind, -everything, everything, self.parameters)
        return slope_range(self.kind, -everything, everything, self.parameters)

    def values_of_parameters(self, constants: Values, like: Tensor) -> dict[str, Any]:
        """The parameters now: numbers, or tensors with an entry for each neuron."""
        found: dict[str, Any] = {}
        for name, fixed in self.parameters.items():
            if name in self.live:
                found[name] = self.broadcast(name, constants[self.live[name]])
            elif np.ndim(fixed):
                found[name] = torch.as_tensor(fixed, dtype=like.dtype, device=like.device)
            else:
                found[name] = float(fixed)
        return found

    def broadcast(self, name: str, parameter: Tensor) -> Tensor:
        """A parameter with one entry for each neuron."""
        if name == "alpha" and parameter.dim() == 1 and parameter.numel() > 1:
            # One for each channel, which is the second axis.
            parameter = parameter.reshape(-1, *(1 for _ in self.shape[2:]))
        if parameter.numel() == 1:
            parameter = parameter.reshape(())
        return parameter.expand(self.shape).reshape(-1)


@dataclass(frozen=True, eq=False)
class _Whole:
    """A tensor of the graph that holds all entries of one of the reader's nodes."""

    node: GraphNode
    places: Tensor | None  # where they stand in the flat tensor; None: in order

    def entries(self, values: Values) -> Tensor:
        """The values of the reader's node, (columns, entries)."""
        tensor = values[self.node]
        flat = tensor.reshape(tensor.shape[0], -1)
        return flat if self.places is None else flat[:, self.places]


@dataclass(frozen=True, eq=False)
class _Shown:
    """A tensor of the graph, made from entries of one of the reader's nodes."""

    node: int
    shape: tuple[int, ...]
    places: Tensor | None  # of its entries in the node, -1 for a zero; None: all of them, in order

    @staticmethod
    def of(view: View, size: int, device: Any) -> _Shown:
        flat = view.index.reshape(-1)
        if np.array_equal(flat, np.arange(size)):
            return _Shown(view.node, view.shape, None)
        return _Shown(view.node, view.shape, torch.from_numpy(flat.copy()).to(device))

    def tensor(self, found: Mapping[int, Tensor]) -> Tensor:
        """The tensor, given the values of the reader's nodes as (columns, entries)."""
        flat = found[self.node]
        if self.places is not None:
            zeros = torch.zeros_like(flat[:, :1])
            flat = torch.cat([flat, zeros], dim=1)[:, self.places]
        return flat.reshape(flat.shape[0], *self.shape)


@dataclass(frozen=True, eq=False)
class _Neurons:
    """What the reader made of one operator: affine nodes with fixed matrices, and activations."""

    results: list[_Shown | None]  # the operator's results, or its only one
    is_single: bool
    order: list[int]  # the reader's nodes to run, one after the other
    tensors: dict[int, _Whole]  # the reader's nodes that are tensors of the graph


@dataclass(eq=False)
class _Plan:
    """What to do for every node of the graph, in turn."""

    constants: list[GraphNode] = field(default_factory=list)  # to be computed from other constants
    steps: list[tuple[GraphNode, Any]] = field(default_factory=list)  # those that read the input


Node: TypeAlias = Input | Affine | Activation


class LiveNetwork:
    """A module that was read, and can be run again with other weights."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.network = reading.network
        self.activations: list[LiveActivation] = []
        self._nodes: list[Node] = list(reading.walk.builder.nodes)
        self._numbers: dict[int, int] = {}  # of activations, by the reader's node
        self._gathers: dict[int, list[Gather]] = {}  # the matrices of the reader's affine nodes
        self._biases: dict[int, Tensor] = {}
        self._whole: dict[int, _Whole] = {}  # by the reader's node
        self._stored = _stored_constants(reading)
        self._names = _names_of_weights(reading)
        self._input: GraphNode = None
        self._plan = _Plan()
        for node in reading.program.graph.nodes:
            self._read(node)
            if node is reading.walk.goal:
                break

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one column: of an input with a batch dimension of 1."""
        return (1, *self.network.input_shape)

    @property
    def goal(self) -> GraphNode:
        """The node of the graph that computes the output."""
        return self.reading.walk.goal

    def weights(self) -> dict[str, Tensor]:
        """The parameters and buffers that the graph reads, as the module has them now."""
        found = {}
        for name in self._names.values():
            found[name] = operator.attrgetter(name)(self.reading.module)
        return found

    def constants(self, weights: Mapping[str, Tensor] | None = None) -> dict[GraphNode, Any]:
        """All tensors of the graph that do not depend on the input, from the live weights."""
        weights = self.weights() if weights is None else weights
        values: dict[GraphNode, Any] = dict(self._stored)
        for node, name in self._names.items():
            values[node] = _widened(weights[name])
        for node in self._plan.constants:
            args = torch.fx.map_arg(node.args, values.__getitem__)
            kwargs = torch.fx.map_arg(node.kwargs, values.__getitem__)
            values[node] = node.target(*args, **kwargs)
        return values

    def run(self, rule: Rule, start: Tensor, constants: Values) -> Tensor:
        """Columns from the input, (columns, *input_shape), to the outputs, (columns, outputs)."""
        values: dict[GraphNode, Any] = {self._input: start}
        for node, step in self._plan.steps:
            if isinstance(step, Operator):
                values[node] = rule.affine(step, values, constants)
            elif isinstance(step, _Neurons):
                values[node] = self._run_neurons(step, rule, values)
            else:
                source, place = step
                found = values[source]
                values[node] = found if place is None else found[place]
        return values[self.goal].reshape(len(start), -1)

    # ---- reading the graph

    def _read(self, node: GraphNode) -> None:
        """Plan what to do for one node of the graph."""
        walk = self.reading.walk
        value = walk.values.get(node)
        if node.op == "placeholder":
            if holds_view(value):
                self._input = node
                self._note_whole(node)
            return
        if node.op != "call_function" or str(node.target) in IGNORED:
            return
        if not holds_view(value):
            self._read_constant(node, value)
            return
        if node.target is operator.getitem:
            self._plan.steps.append((node, tuple(node.args)))
        elif self._is_identity(node):
            self._plan.steps.append((node, (self._columns(node)[0], None)))
        elif any(isinstance(self._nodes[k], Activation) for k in walk.made[node]):
            self._plan.steps.append((node, self._read_neurons(node)))
        else:
            self._plan.steps.append((node, Operator.of(node, self.reading, self._depends)))
        self._note_whole(node)

    def _depends(self, node: GraphNode) -> bool:
        """Whether a tensor of the graph depends on the input."""
        return holds_view(self.reading.walk.values.get(node))

    def _columns(self, node: GraphNode) -> list[GraphNode]:
        """The arguments of an operator that depend on the input."""
        return [n for n in node.all_input_nodes if self._depends(n)]

    def _read_constant(self, node: GraphNode, value: Any) -> None:
        if self._columns(node):  # made from the shape of a tensor: it does not change
            self._stored[node] = value.to(self.reading.device)
        else:
            self._plan.constants.append(node)

    def _is_identity(self, node: GraphNode) -> bool:
        """Whether the reader takes the result of an operator for its only argument."""
        result = self.reading.walk.values[node]
        sources = self._columns(node)
        if not isinstance(result, View) or len(sources) != 1:
            return False
        source = self.reading.walk.values[sources[0]]
        if not isinstance(source, View) or source.node != result.node:
            return False
        return np.array_equal(source.index, result.index)

    def _note_whole(self, node: GraphNode) -> None:
        """Remember a tensor of the graph if it holds all entries of a node of the reader."""
        value = self.reading.walk.values[node]
        if not isinstance(value, View) or value.node in self._whole:
            return
        size = self._nodes[value.node].size
        flat = value.index.reshape(-1)
        if np.array_equal(flat, np.arange(size)):
            self._whole[value.node] = _Whole(node, None)
            return
        found, first = np.unique(flat, return_index=True)
        places = first[found >= 0]
        if len(places) == size:
            on_device = torch.from_numpy(places).to(self.reading.device)
            self._whole[value.node] = _Whole(node, on_device)

    def _read_neurons(self, node: GraphNode) -> _Neurons:
        result = self.reading.walk.values[node]
        is_single = isinstance(result, View)
        neurons = _Neurons([], is_single, [], {})
        for view in [result] if is_single else result:
            if view is None:
                neurons.results.append(None)
                continue
            self._require(view.node, node, neurons)
            size = self._nodes[view.node].size
            neurons.results.append(_Shown.of(view, size, self.reading.device))
        return neurons

    def _require(self, k: int, node: GraphNode, neurons: _Neurons) -> None:
        """Plan to compute node k of the reader, after everything that it reads."""
        if k in neurons.order or k in neurons.tensors:
            return
        if k in self._whole:
            neurons.tensors[k] = self._whole[k]
            return
        made = self._nodes[k]
        for source in made.sources:
            self._require(source, node, neurons)
        if isinstance(made, Affine):
            self._add_fixed(k, made, node)
        elif isinstance(made, Activation):
            self._add_activation(k, made, node)
        neurons.order.append(k)

    def _add_fixed(self, k: int, made: Affine, node: GraphNode) -> None:
        own = k in self.reading.walk.made[node]
        if not own and not _is_selection(made):
            raise LipoptError(f"{label(node)} cannot be followed in training")
        if k not in self._gathers:
            device = self.reading.device
            self._gathers[k] = [Gather.of(matrix, device) for matrix in made.matrices]
            self._biases[k] = torch.tensor(made.bias, dtype=torch.float64, device=device)

    def _add_activation(self, k: int, made: Activation, node: GraphNode) -> None:
        self._refuse_trained_gate(made, node)
        live = self._live_parameters(node)
        shape = tuple(node.meta["val"].shape) if live else (made.size,)
        self._numbers[k] = len(self.activations)
        self.activations.append(
            LiveActivation(label(node), made.kind, made.size, made.parameters, live, shape)
        )

    def _live_parameters(self, node: GraphNode) -> dict[str, GraphNode]:
        """The parameters of an activation that are tensors of the graph."""
        target = str(node.target)
        places = dict(PARAMETERS.get(target, {}))
        if target in LARGER + SMALLER and len(self._columns(node)) == 1:
            name = "low" if target in LARGER else "high"
            places[name] = 0 if self._depends(node.args[1]) else 1
        found = {}
        for name, place in places.items():
            if place < len(node.args) and isinstance(node.args[place], torch.fx.Node):
                found[name] = node.args[place]
        return found

    def _refuse_trained_gate(self, made: Activation, node: GraphNode) -> None:
        """Refuse x * gate(x) whose numbers are trained: the reader has them as they were."""
        if str(node.target).split(".")[1] not in ("mul", "div", "log"):
            return
        passed = {node}
        left = [node]
        while left:
            for source in left.pop().all_input_nodes:
                if source in passed or self._is_read_by(made, source):
                    continue
                if source in self._names and self._is_trained(source):
                    raise LipoptError(
                        f"{label(node)} is an activation with trained numbers in it"
                        f" ({self._names[source]}); train with it written as one layer, such as"
                        " nn.SiLU, and a scale before or after it"
                    )
                passed.add(source)
                left.append(source)

    def _is_read_by(self, made: Activation, node: GraphNode) -> bool:
        """Whether a tensor of the graph is what an activation of the reader is applied to."""
        value = self.reading.walk.values.get(node)
        return isinstance(value, View) and self.reading.walk.builder.holds(made.source, value)

    def _is_trained(self, node: GraphNode) -> bool:
        weight = operator.attrgetter(self._names[node])(self.reading.module)
        return bool(weight.requires_grad)

    # ---- running it

    def _run_neurons(self, neurons: _Neurons, rule: Rule, values: Values) -> Any:
        found = {k: whole.entries(values) for k, whole in neurons.tensors.items()}
        for k in neurons.order:
            made = self._nodes[k]
            if isinstance(made, Affine):
                tensors = [found[source] for source in made.sources]
                terms = list(zip(self._gathers[k], tensors, strict=True))
                found[k] = rule.weighted(terms, self._biases[k])
            elif isinstance(made, Activation):
                found[k] = rule.activation(self._numbers[k], found[made.source])
        shown = [None if part is None else part.tensor(found) for part in neurons.results]
        return shown[0] if neurons.is_single else shown


def _stored_constants(reading: Reading) -> dict[GraphNode, Any]:
    """Tensors that the module holds, but that are neither parameters nor buffers."""
    lifted = reading.program.graph_signature.inputs_to_lifted_tensor_constants
    values = constants_of(reading.program)
    stored = {}
    for node in reading.program.graph.nodes:
        if node.op == "placeholder" and node.name in lifted:
            stored[node] = values[node.name].to(reading.device)
    return stored


def _names_of_weights(reading: Reading) -> dict[GraphNode, str]:
    """The parameters and buffers of the module that the graph reads, by their nodes."""
    signature = reading.program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    found = {}
    for node in reading.program.graph.nodes:
        if node.op == "placeholder" and node.name in names and node.users:
            found[node] = names[node.name]
    return found


def _widened(weight: Tensor) -> Tensor:
    """A weight in a precision whose squares do not overflow."""
    return weight.float() if weight.dtype in HALVES else weight


def _is_selection(node: Affine) -> bool:
    """Whether a node only moves entries."""
    matrix = node.matrices[0]
    return len(node.matrices) == 1 and not node.bias.any() and bool((stored(matrix) == 1).all())
