"""A random ONNX graph that grows.

It does so node by node. Each node is computed at once, by onnxruntime, so that its shape is
known to the next one; what onnxruntime does not take is not a model, and is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.random import Generator
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 8  # old enough for every onnxruntime
OPSETS = range(8, 22)
MOST = 200  # entries of a tensor
KINDS = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE}


class InvalidNodeError(Exception):
    """A node that no model has: onnxruntime refuses it, or it is too large."""


@dataclass(frozen=True, eq=False)
class RandomGraph:
    """A model, its nodes in any order, and which of its outputs is meant."""

    model: onnx.ModelProto
    ordered: onnx.ModelProto  # the same with nodes in order and all tensors as outputs
    output: str
    shape: tuple[int, ...]
    kind: type

    def values(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """All tensors of the model that depend on its input, by onnxruntime."""
        session = _session(self.ordered)
        names = [value.name for value in self.ordered.graph.output]
        results = session.run(None, {"x": x.reshape(self.shape).astype(self.kind)})
        return dict(zip(names, map(np.asarray, results), strict=True))


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)


class Draft:
    """A graph that grows."""

    def __init__(self, rng: Generator) -> None:
        self.rng = rng
        self.opset = int(rng.choice(OPSETS))
        self.kind = np.float64 if self.chance(0.1) else np.float32
        self.context = onnx.checker.C.CheckerContext()
        self.context.ir_version = IR_VERSION
        self.context.opset_imports = {"": self.opset}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}  # initializers
        self.known: dict[str, np.ndarray] = {}  # what does not depend on the input
        self.values: dict[str, np.ndarray] = {}  # what does
        self.steps = 0
        self.names = 0
        rank = self.integer(1, 5)
        shape = [self.integer(1, 5 if rank < 4 else 4) for _ in range(rank)]
        if rank > 1 and self.chance(0.7):
            shape[0] = 1
        self.shape = tuple(shape)
        self.symbolic = rank > 1 and shape[0] == 1 and self.chance(0.3)
        self.values["x"] = self.floats(*shape)
        self.last = "x"

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

    def some(self, options: Sequence[Any], least: int = 1) -> list[Any]:
        """Some of the options, in any order."""
        count = self.integer(least, len(options))
        return [options[k] for k in self.rng.permutation(len(options))[:count]]

    def floats(self, *shape: int) -> np.ndarray:
        """Numbers of which a few are zero."""
        array = self.rng.normal(size=shape)
        return np.where(self.rng.random(shape) < 0.1, 0.0, array).astype(self.kind)

    def axis(self, rank: int) -> int:
        """An axis, counted from the front or from the end."""
        return self.integer(-rank, rank - 1) if self.opset >= 11 else self.integer(0, rank - 1)

    def axes(self, rank: int, least: int = 1) -> list[int]:
        """Some axes, each counted from the front or from the end."""
        found = self.some(range(rank), least)
        if self.opset >= 11:
            return [axis - rank if self.chance(0.4) else axis for axis in found]
        return found

    # ---- tensors

    def source(self) -> str:
        """A tensor to go on from, most often the last one."""
        return self.last if self.chance(0.75) else self.pick(list(self.values))

    def shape_of(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def rank(self, name: str) -> int:
        return len(self.shape_of(name))

    def name(self, word: str) -> str:
        self.names += 1
        return f"{word}{self.names}"

    def real(self, values: Any) -> str:
        """A constant of the model's type, stored or computed by several nodes."""
        return self.constant(np.asarray(values, dtype=self.kind))

    def whole(self, values: Any) -> str:
        """A constant of integers."""
        return self.constant(np.asarray(values, dtype=np.int64))

    def constant(self, array: np.ndarray) -> str:
        how = self.rng.random()
        if how < 0.7:
            return self._stored(array)
        if how < 0.85:
            value = numpy_helper.from_array(array)
            return self.node("Constant", [], value=value)
        if array.ndim > 1:
            turned = self._stored(np.ascontiguousarray(array.T))
            return self.node("Transpose", [turned])
        if array.dtype.kind == "f":
            negative = self._stored(-array)
            return self.node("Neg", [negative])
        return self.node("Identity", [self._stored(array)])

    def _stored(self, array: np.ndarray) -> str:
        name = self.name("c")
        self.constants[name] = array
        self.known[name] = array
        return name

    # ---- nodes

    def node(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """A node with one result; its name."""
        return self.split(operator, inputs, 1, **attributes)[0]

    def split(
        self,
        operator: str,
        inputs: Sequence[str],
        count: int,
        **attributes: Any,
    ) -> list[str]:
        """A node with several results; their names."""
        outputs = [self.name("t") for _ in range(count)]
        if any(value == [] for value in attributes.values()):
            raise InvalidNodeError("an attribute without a type")
        node = helper.make_node(operator, inputs, outputs, name=self.name("n"), **attributes)
        depends = any(name in self.values for name in _reads(node))
        arrays = self._computed(node)
        self.nodes.append(node)
        for name, array in zip(outputs, arrays, strict=True):
            (self.values if depends else self.known)[name] = array
        return outputs

    def _computed(self, node: onnx.NodeProto) -> list[np.ndarray]:
        """What a node computes from what is known."""
        names = sorted({name for name in _reads(node) if name})
        feeds = {name: self.values[name] for name in names if name in self.values}
        fixed = {name: self.known[name] for name in names if name in self.known}
        try:
            model = self._model([node], feeds, fixed, list(node.output))
            onnx.checker.check_node(node, self.context)
            results = _session(model).run(None, feeds)
        except Exception as error:  # both raise all kinds
            raise InvalidNodeError(str(error)) from error
        arrays = [np.asarray(result) for result in results]
        if any(a.size == 0 or a.size > MOST or a.ndim > 6 for a in arrays):
            raise InvalidNodeError("too large, or empty")
        if any(a.dtype.kind == "f" and not np.isfinite(a).all() for a in arrays):
            raise InvalidNodeError("not finite")
        return arrays

    def _model(
        self,
        nodes: Sequence[onnx.NodeProto],
        inputs: dict[str, np.ndarray],
        constants: dict[str, np.ndarray],
        outputs: Sequence[str],
    ) -> onnx.ModelProto:
        starts = []
        for name, array in inputs.items():
            shape: list[Any] = list(array.shape)
            if name == "x" and self.symbolic and len(nodes) > 1:
                shape[0] = "N"
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            starts.append(helper.make_tensor_value_info(name, kind, shape))
        ends = [onnx.ValueInfoProto(name=name) for name in outputs]
        tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        graph = helper.make_graph(nodes, "random", starts, ends, tensors)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)

    def try_step(self) -> None:
        """One more operator, or nothing if it is not valid."""
        before = (len(self.nodes), dict(self.constants), dict(self.known), dict(self.values))
        step = self.pick(STEPS)
        try:
            result = step(self, self.source())
            if result is None or self.values[result].dtype != self.kind:
                raise InvalidNodeError("nothing that the graph can go on with")
            self._check_all()
        except InvalidNodeError:
            del self.nodes[before[0] :]
            self.constants = before[1]
            self.known = before[2]
            self.values = before[3]
            return
        self.last = result
        self.steps += 1

    def _check_all(self) -> None:
        """Whether onnxruntime takes the nodes together, with the shapes that it infers."""
        start = {"x": self.values["x"]}
        try:
            _session(self._model(self.nodes, start, self.constants, [self.nodes[-1].output[0]]))
        except Exception as error:
            raise InvalidNodeError(str(error)) from error

    def finished(self) -> RandomGraph:
        nodes = list(self.nodes)
        if not nodes:
            self.last = self.node("Relu", ["x"])
            nodes = list(self.nodes)
        others = [name for name in self.values if name not in ("x", self.last)]
        outputs = [self.last]
        if others and self.chance(0.2):
            outputs.insert(self.integer(0, 1), self.pick(others))
        every = [name for name in self.values if name != "x"]
        start = {"x": self.values["x"]}
        ordered = self._model(nodes, start, self.constants, every)
        if self.chance(0.2):
            nodes = [nodes[k] for k in self.rng.permutation(len(nodes))]
        model = self._model(nodes, start, self.constants, outputs)
        return RandomGraph(model, ordered, self.last, self.shape, self.kind)


def _reads(node: onnx.NodeProto) -> list[str]:
    """What a node reads, also inside the branches of an If."""
    names = list(node.input)
    for attribute in node.attribute:
        inside = {name for inner in attribute.g.node for name in inner.output}
        inside.update(tensor.name for tensor in attribute.g.initializer)
        for inner in attribute.g.node:
            names += [name for name in inner.input if name not in inside]
    return names


Step = Callable[[Draft, str], str | None]
STEPS: list[Step] = []


def step(make: Step) -> Step:
    STEPS.append(make)
    return make


def needs(opset: int) -> Callable[[Step], Step]:
    """A step that older opsets do not have."""

    def wrap(make: Step) -> Step:
        def checked(g: Draft, x: str) -> str | None:
            return make(g, x) if g.opset >= opset else None

        return checked

    return wrap


# ---- shapes for operators that want them


def factored(g: Draft, size: int, rank: int) -> list[int]:
    """A random shape of so many entries."""
    shape = [1] * rank
    prime = 2
    while size > 1:
        if size % prime:
            prime += 1
        else:
            shape[g.integer(0, rank - 1)] *= prime
            size //= prime
    return shape


def of_rank(g: Draft, x: str, rank: int) -> str:
    """x with so many axes, reshaped if need be."""
    if g.rank(x) == rank:
        return x
    fitting = [name for name in g.values if g.rank(name) == rank and g.values[name].dtype == g.kind]
    if fitting and g.chance(0.5):
        return g.pick(fitting)
    return g.node("Reshape", [x, g.whole(factored(g, g.values[x].size, rank))])


def broadcast_shape(g: Draft, shape: Sequence[int]) -> list[int]:
    """A shape that broadcasts with the given one."""
    kept = list(shape)[g.integer(0, len(shape)) :]
    return [1 if g.chance(0.3) else n for n in kept]


def wider_shape(g: Draft, shape: Sequence[int]) -> list[int]:
    """The same, perhaps with more entries."""
    found = broadcast_shape(g, shape)
    if g.chance(0.2):
        found = [g.integer(1, 3) if n == 1 else n for n in found]
    if g.chance(0.1):
        found = [g.integer(1, 2)] * (len(shape) - len(found) + 1) + found
    return found


def partner(g: Draft, x: str) -> str:
    """Another tensor that broadcasts with x."""
    fitting = []
    for name, array in g.values.items():
        if array.dtype == g.kind and _broadcasts(array.shape, g.shape_of(x)):
            fitting.append(name)
    return g.pick(fitting)


def _broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(m == n or 1 in (m, n) for m, n in pairs)
