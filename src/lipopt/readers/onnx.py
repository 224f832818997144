"""ONNX -> Network: the part of the graph between an input and an output is walked once.

Constants are folded, tensors become views, every operator has a handler. What was built is then
compared with the model, as ONNX's reference implementation evaluates it.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_model
from onnx.reference import ReferenceEvaluator

from ..errors import LipoptError
from ..model.network import Network, Source
from ..numerics.arrays import Array
from .builder import Builder
from .check import Original, check_against
from .onnx_operators import HANDLERS, REFUSED, Step, Value
from .onnx_original import evaluator
from .views import View

DOMAINS = ("", "ai.onnx")
RANDOM = (
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
)
LOOPS = ("Loop", "Scan")
TAILS = ("Softmax", "LogSoftmax", "Sigmoid")  # what `logits` cuts off
MOST_NODES = 1_000_000  # nodes after functions are inlined; a few of them can stand for 2^100
MOST_FOLDED = 2**28  # entries of a constant that is computed: 1 GB in single precision


@dataclass(frozen=True)
class Part:
    """Which part of a model is read: from some tensors to another, other inputs being fixed.

    Without `input`, from all inputs that are not fixed. With `logits`, without a softmax,
    log-softmax or sigmoid that is the last layer."""

    input: str | Sequence[str] | None = None
    output: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    logits: bool = False

    @property
    def inputs(self) -> list[str]:
        """The names of the tensors that are chosen as inputs; none: it is not said."""
        if self.input is None:
            return []
        return [self.input] if isinstance(self.input, str) else list(self.input)


def read_onnx(
    path: Path,
    *,
    input: str | Sequence[str] | None = None,
    output: str | None = None,
    fixed: Mapping[str, Any] | None = None,
    logits: bool = False,
    check: bool = True,
) -> Network:
    """The network in an .onnx or .onnx.gz file."""
    try:
        content = path.read_bytes()
        compressed = path.name.lower().endswith(".gz")
        model = onnx.load_from_string(gzip.decompress(content) if compressed else content)
        beside = _external_files(model)
        load_external_data_for_model(model, str(path.parent))
    except (DecodeError, OSError, EOFError, ValueError, onnx.checker.ValidationError) as error:
        text = f"{path} is not a readable ONNX file (truncated or corrupt?): {error}"
        raise LipoptError(text) from error
    if not model.graph.node:
        raise LipoptError(f"{path} is not a readable ONNX model: its graph is empty")
    part = Part(input, output, fixed or {}, logits)
    network = network_from_model(model, part, check)
    hashes = {path.name: sha256(content).hexdigest()}
    for name in beside:
        hashes[name] = sha256((path.parent / name).read_bytes()).hexdigest()
    assert network.source is not None
    return replace(network, source=replace(network.source, files=hashes))


def network_from_model(
    model: onnx.ModelProto, part: Part | None = None, check: bool = True
) -> Network:
    """The network of a model in memory, or of a part of it."""
    graph = _Graph(_without_functions(model), part or Part())
    builder = Builder()
    values: dict[str, Value] = {"": None, **graph.constants, **graph.make_inputs(builder)}
    walk = _Walk(builder, graph.opset)
    walk.run(graph.nodes, values)
    output = values.get(graph.output)
    if not isinstance(output, View):
        raise LipoptError(f"the output '{graph.output}' does not depend on the input")
    if check:
        tensors: dict[str, View] = {}
        for name in (name for node in graph.nodes for name in node.output):
            value = values.get(name)
            if isinstance(value, View):
                tensors[name] = value
        check_against(graph.original(list(tensors)), builder, tensors, graph.describe)
    source = Source({}, graph.words, graph.joined_sizes())
    return replace(builder.network(output), source=source)


class _Graph:
    """The part of a model's graph that computes the output from its starts, in order."""

    def __init__(self, model: onnx.ModelProto, part: Part) -> None:
        graph = model.graph
        if graph.sparse_initializer:
            raise LipoptError("the model has sparse initializers; export it with dense ones")
        self.model = model
        self.opset = _opset(model)
        self.producers = _producers(graph)
        self.constants: dict[str, Array] = {}
        for tensor in graph.initializer:
            self.constants[tensor.name] = numpy_helper.to_array(tensor)
        self.output, self.words = self._goal(part)
        declared = {value.name: value for value in graph.input}
        self.inputs = {name: v for name, v in declared.items() if name not in self.constants}
        for name, value in part.fixed.items():
            self.constants[name] = self._fixed(name, value)
        self.starts = self._starts(part)
        for name in self.starts:
            self.constants.pop(name, None)
        self.nodes = self._ordered()

    def _goal(self, part: Part) -> tuple[str, str]:
        """The name of the output, and in words what was cut off."""
        names = [value.name for value in self.model.graph.output]
        words = [] if part.output is None else [f"output '{part.output}'"]
        if part.inputs:
            chosen = ", ".join(f"'{name}'" for name in part.inputs)
            words.insert(0, f"input {chosen}" if len(part.inputs) == 1 else f"inputs {chosen}")
        words += [f"'{name}' fixed" for name in part.fixed]
        if part.output is None and len(names) != 1:
            raise LipoptError(
                f"the model has {len(names)} outputs: {', '.join(names)}; choose one with output=NAME (--to NAME)"
            )
        output = names[0] if part.output is None else part.output
        if output not in self.producers and output not in [v.name for v in self.model.graph.input]:
            raise LipoptError(
                f"the model has no tensor '{output}'; its outputs are {', '.join(names)}"
            )
        if part.logits:
            last = self.producers.get(output)
            if last is None or last.op_type not in TAILS:
                kind = "an input" if last is None else last.op_type
                raise LipoptError(
                    f"there is nothing to cut off: the output '{output}' comes from {kind}, not from"
                    " a softmax, log-softmax or sigmoid"
                )
            output = last.input[0]
            words.append(f"without the {last.op_type} at its end")
        return output, ", ".join(words)

    def _fixed(self, name: str, value: Any) -> Array:
        """The value of an input that is held fixed, in the shape and type that the model wants."""
        if name not in self.inputs:
            raise LipoptError(
                f"'{name}' cannot be fixed: the model's inputs are {', '.join(self.inputs)}"
            )
        wanted = self.inputs[name].type.tensor_type
        kind = helper.tensor_dtype_to_np_dtype(wanted.elem_type)
        shape = [d.dim_value or 1 for d in wanted.shape.dim]
        array = np.asarray(value, dtype=kind)
        if array.size not in (1, prod(shape)):
            raise LipoptError(
                f"the input '{name}' has shape {shape}, its value {list(array.shape)}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise LipoptError(f"the value of input '{name}' has entries that are NaN or infinite")
        return np.broadcast_to(array.reshape(shape if array.size > 1 else [1] * len(shape)), shape)

    def _starts(self, part: Part) -> list[str]:
        """The names of the inputs: those that are chosen, or all that matter and are not fixed."""
        if len(set(part.inputs)) < len(part.inputs):
            raise LipoptError(f"an input is chosen twice: {', '.join(part.inputs)}")
        for name in part.inputs:
            if name not in self.inputs and name not in self.producers:
                raise LipoptError(
                    f"the model has no tensor '{name}'; its inputs are {', '.join(self.inputs)}"
                )
        if part.inputs:
            return part.inputs
        needed = set(self._needed_names())
        free = [n for n in self.inputs if n in needed and n not in self.constants]
        if not free:
            raise LipoptError(f"the output '{self.output}' does not depend on the input")
        return free

    def _needed_names(self) -> Iterator[str]:
        """The names of the tensors that the output depends on."""
        seen = {self.output}
        waiting = [self.output]
        while waiting:
            name = waiting.pop()
            yield name
            if name in self.producers:
                found = [n for n in _reads(self.producers[name]) if n not in seen]
                seen.update(found)
                waiting.extend(found)

    def _ordered(self) -> list[onnx.NodeProto]:
        """The nodes that the output depends on, each after those it reads, whatever their order."""
        order: list[onnx.NodeProto] = []
        known = {"", *self.starts, *self.constants}
        entered: set[str] = set()
        waiting = [self.output]
        while waiting:
            name = waiting[-1]
            if name in known:
                waiting.pop()
                continue
            if name not in self.producers:
                raise self._missing(name)
            node = self.producers[name]
            unknown = [n for n in _reads(node) if n not in known]
            if unknown and name in entered:
                raise LipoptError(f"the graph is not acyclic: '{name}' depends on itself")
            entered.add(name)
            if unknown:
                waiting.extend(unknown)
            else:
                order.append(node)
                known.update(node.output)
                waiting.pop()
        return order

    def _missing(self, name: str) -> LipoptError:
        if name in self.inputs:
            return LipoptError(
                f"the output '{self.output}' also depends on the input '{name}'; give it a value"
                f" with fixed={{'{name}': value}} (--fix {name}=VALUE)"
            )
        return LipoptError(f"the tensor '{name}' is read, but no node, input or constant has it")

    def make_inputs(self, builder: Builder) -> dict[str, View]:
        """The views of the inputs, by name. Several are joined in one flat input."""
        shapes = [self._input_shape(name) for name in self.starts]
        if len(shapes) == 1:
            return {self.starts[0]: builder.input(*shapes[0])}
        views = builder.inputs([shape for shape, _ in shapes])
        return dict(zip(self.starts, views, strict=True))

    def joined_sizes(self) -> dict[str, int]:
        """The names and sizes of several inputs; of one, nothing."""
        if len(self.starts) == 1:
            return {}
        return {name: prod(self._input_shape(name)[0]) for name in self.starts}

    def _input_shape(self, start: str) -> tuple[list[int], bool]:
        """The shape of an input, and whether its first entry is a batch dimension.

        A first entry that is 1 or symbolic is; a larger one is a part of the input."""
        kind = self._input_info(start).type.tensor_type
        if not kind.HasField("shape"):
            raise LipoptError(f"input '{start}' has no shape; export the model with one")
        if kind.elem_type not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
            name = TensorProto.DataType.Name(kind.elem_type).lower()
            raise LipoptError(f"input '{start}' holds {name}, not floating-point numbers")
        shape = [d.dim_value if d.HasField("dim_value") else 0 for d in kind.shape.dim]
        batch = len(shape) > 1 and shape[0] <= 1
        if batch:
            shape[0] = 1
        if not shape or any(n <= 0 for n in shape):
            raise LipoptError(
                f"input '{start}' has shape {shape} with unknown sizes; export the model with fixed ones"
            )
        return shape, batch

    def _input_info(self, start: str) -> Any:
        """The declaration of an input: type and shape."""
        if start in self.inputs:
            return self.inputs[start]
        inferred = onnx.shape_inference.infer_shapes(self.model)
        for value in inferred.graph.value_info:
            if value.name == start:
                return value
        raise LipoptError(f"the shape of the tensor '{start}' is not known; choose another input")

    def describe(self, name: str) -> str:
        """What is wrong if a tensor has other values."""
        return f"{_label(self.producers[name])} was misread"

    def original(self, names: Sequence[str]) -> Original:
        """The model itself: a flat input -> the named tensors."""
        kinds = {}
        shapes = {}
        for name in self.starts:
            element = self._input_info(name).type.tensor_type.elem_type
            kinds[name] = helper.tensor_dtype_to_np_dtype(element)
            shapes[name] = self._input_shape(name)[0]
        read = {name for node in self.nodes for name in _reads(node)}
        constants = []
        for name, array in self.constants.items():
            if name in read:
                constants.append(numpy_helper.from_array(np.array(array, order="C"), name))
        starts = []
        for name in self.starts:
            element = helper.np_dtype_to_tensor_dtype(kinds[name])
            starts.append(helper.make_tensor_value_info(name, element, shapes[name]))
        ends = [onnx.ValueInfoProto(name=name) for name in names]
        graph = helper.make_graph(self.nodes, "part", starts, ends, constants)
        opsets = self.model.opset_import
        evaluate = evaluator(
            helper.make_model(graph, opset_imports=opsets, ir_version=self.model.ir_version)
        )
        cuts = np.cumsum([prod(shapes[name]) for name in self.starts])[:-1]

        def run(point: Array) -> Mapping[str, Array]:
            feeds = {}
            for name, part in zip(self.starts, np.split(point, cuts), strict=True):
                feeds[name] = part.reshape(shapes[name]).astype(kinds[name])
            return evaluate(feeds)

        return run


class _Walk:
    """Nodes of a graph turned into nodes of a network, one after the other."""

    def __init__(self, builder: Builder, opset: int) -> None:
        self.builder = builder
        self.opset = opset

    def run(self, nodes: Sequence[onnx.NodeProto], values: dict[str, Value]) -> None:
        """Compute what the nodes compute; `values` holds what is known, by name."""
        for node in nodes:
            for name in _reads(node):
                if name not in values:
                    raise LipoptError(
                        f"{_label(node)} reads '{name}', which lipopt does not compute"
                    )
            inputs = [values[name] for name in node.input]
            names = [name for name in node.output if name]
            results = self._compute(node, inputs, values)
            if len(results) < len(names):
                # Nothing reads the mask of a Dropout or the places of a MaxPool, as a rule.
                names = names[: len(results)]
            values.update(zip(names, results, strict=True))

    def _compute(
        self, node: onnx.NodeProto, inputs: list[Value], values: dict[str, Value]
    ) -> Sequence[Value]:
        label = _label(node)
        if node.op_type in RANDOM:
            raise LipoptError(f"{label} is random; export the model in evaluation mode")
        if node.op_type == "If" and not isinstance(inputs[0], View):
            return self._branch(node, bool(np.all(inputs[0])), values)
        depends = any(isinstance(values.get(name), View) for name in _reads(node))
        if not depends and node.op_type not in LOOPS:
            return self._folded(node, values, label)
        if node.op_type in REFUSED:
            raise LipoptError(f"{label} is not supported: {REFUSED[node.op_type]}")
        if node.domain not in DOMAINS:
            raise LipoptError(
                f"{label} is not supported: it is of the domain '{node.domain}', whose operators are"
                " not ONNX's own; export the model without fused operators, as it was before"
                " onnxruntime optimized it"
            )
        if node.op_type not in HANDLERS:
            raise LipoptError(
                f"{label} is not supported; rewrite the model without it (docs/networks.md), or cut the graph before it"
                f" (output=NAME). Supported: {', '.join(sorted(HANDLERS))}"
            )
        try:
            result = HANDLERS[node.op_type](Step(node, inputs, self.builder, self.opset))
        except LipoptError as error:
            raise LipoptError(f"{label}: {error}") from error
        except Exception as error:  # inputs or attributes in a form that the handler does not know
            raise LipoptError(f"{label} cannot be read: {error!r}") from error
        return result if isinstance(result, list) else [result]  # type: ignore[list-item]

    def _branch(
        self, node: onnx.NodeProto, condition: bool, values: dict[str, Value]
    ) -> Sequence[Value]:
        """The branch of an If whose condition is known."""
        wanted = "then_branch" if condition else "else_branch"
        branch = next(a.g for a in node.attribute if a.name == wanted)
        inner = dict(values)
        for tensor in branch.initializer:
            inner[tensor.name] = numpy_helper.to_array(tensor)
        self.run(branch.node, inner)
        return [inner[value.name] for value in branch.output]

    def _folded(
        self, node: onnx.NodeProto, values: dict[str, Value], label: str
    ) -> Sequence[Value]:
        """A node with constant inputs, computed by ONNX's own reference implementation."""
        feeds = {name: values[name] for name in _reads(node) if name}
        _check_size(node, feeds, label)
        names = [name for name in node.output if name]
        starts = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in feeds]
        ends = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in names]
        graph = helper.make_graph([node], "constant", starts, ends)
        opsets = [helper.make_opsetid("", self.opset)]
        try:
            model = helper.make_model(graph, opset_imports=opsets)
            outputs = ReferenceEvaluator(model).run(None, feeds)
        except Exception as error:  # the reference implementation raises all kinds
            raise LipoptError(
                f"{label} has constant inputs and cannot be computed: {error}"
            ) from error
        return [np.asarray(output) for output in outputs]


def _label(node: onnx.NodeProto) -> str:
    return f"node '{node.name or node.output[0]}' ({node.op_type})"


def _opset(model: onnx.ModelProto) -> int:
    return max((o.version for o in model.opset_import if o.domain in DOMAINS), default=1)


def _reads(node: onnx.NodeProto) -> list[str]:
    """The names that a node reads, also inside its branches."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        inside = {tensor.name for tensor in attribute.g.initializer}
        inside.update(value.name for value in attribute.g.input)
        for inner in attribute.g.node:
            names += [name for name in _reads(inner) if name not in inside]
            inside.update(inner.output)
    return names


def _producers(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """The node that computes each tensor."""
    taken = {tensor.name for tensor in graph.initializer}
    taken.update(value.name for value in graph.input)
    producers: dict[str, onnx.NodeProto] = {}
    for node in graph.node:
        if not node.output:
            raise LipoptError(f"a node of type {node.op_type} computes nothing")
        for name in node.output:
            if name and (name in producers or name in taken):
                raise LipoptError(f"the tensor '{name}' is defined twice")
            producers[name] = node
    producers.pop("", None)
    return producers


def _check_size(node: onnx.NodeProto, feeds: Mapping[str, Any], label: str) -> None:
    """Refuse to compute a constant that would fill the memory."""
    arrays = [np.asarray(feeds[name]) for name in node.input if name]
    size = 0.0
    if node.op_type in ("ConstantOfShape", "Expand") and arrays:
        size = float(np.prod(arrays[-1].astype(np.float64)))
    elif node.op_type == "Tile":
        size = float(arrays[0].size * np.prod(arrays[1].astype(np.float64)))
    elif node.op_type == "Range":
        start, limit, delta = (float(a.reshape(())) for a in arrays)
        size = (limit - start) / delta if delta else np.inf
    if not size <= MOST_FOLDED:
        raise LipoptError(f"{label} computes a constant with {size:g} entries, which is too large")


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its local functions put where they are called."""
    if not model.functions:
        return model
    bodies = {(f.domain, f.name): f.node for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}
    entered: set[tuple[str, str]] = set()
    waiting = list(bodies)
    while waiting:
        name = waiting[-1]
        calls = [(node.domain, node.op_type) for node in bodies[name]]
        called = [call for call in calls if call in bodies and call not in sizes]
        if called and name in entered:
            raise LipoptError(f"the model's function '{name[1]}' calls itself")
        entered.add(name)
        if called:
            waiting.extend(called)
            continue
        sizes[name] = sum(1 + sizes.get(call, 0) for call in calls)
        waiting.pop()
    total = sum(1 + sizes.get((node.domain, node.op_type), 0) for node in model.graph.node)
    if total > MOST_NODES:
        raise LipoptError(f"the model has {total:.3g} nodes, with its functions; that is too many")
    return onnx.inliner.inline_local_functions(model)


def _external_files(model: onnx.ModelProto) -> list[str]:
    """The names of the files beside the model that hold its tensors."""
    tensors = list(model.graph.initializer)
    tensors += [attribute.t for node in model.graph.node for attribute in node.attribute]
    outside = [t for t in tensors if t.data_location == TensorProto.EXTERNAL]
    return sorted({e.value for t in outside for e in t.external_data if e.key == "location"})
