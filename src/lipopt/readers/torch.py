"""PyTorch -> Network: `torch.export` gives a functional graph, which is walked with views.

PyTorch itself resolves in-place operations, aliases, hooks, parametrizations and shared modules.
Operators that are not in our table are decomposed by PyTorch into simpler ones. What was built is
then compared with the module, run as it is, and with every operator of the graph.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from operator import index
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..errors import LipoptError
from ..model.network import Network, Source
from ..numerics.arrays import Array, as_array
from .builder import Builder
from .check import Original, check_against
from .views import View

try:
    import torch
    from torch import nn
    from torch.export import ExportedProgram
    from torch.utils._pytree import tree_leaves
except ImportError as error:
    raise LipoptError(
        "reading a torch module needs PyTorch; install it with: pip install 'lipopt[torch]'"
    ) from error

from .torch_operators import HANDLERS, IGNORED, REFUSED, TAILS

OUTPUT = "output"  # the name under which the module's own result is compared

Shapes: TypeAlias = Sequence[int] | Sequence[Sequence[int]]  # of one input, or of several


def read_torch(
    module: Any,
    *,
    input_shape: Shapes | None = None,
    logits: bool = False,
    check: bool = True,
) -> Network:
    """The network of a module in evaluation mode, or of an exported program."""
    if isinstance(module, ExportedProgram):
        input_shape = _program_shapes(module) if input_shape is None else input_shape
        module = module.module()
    return read_module(module, input_shape=input_shape, logits=logits, check=check).network


def read_module(
    module: Any,
    *,
    input_shape: Shapes | None = None,
    logits: bool = False,
    check: bool = True,
) -> Reading:
    """The network of a module in evaluation mode, and the graph that it was read from."""
    if not isinstance(module, nn.Module):
        raise LipoptError(f"cannot read a network from {type(module).__name__}; pass an nn.Module")
    module = _unwrapped(module)
    if isinstance(module, torch.jit.ScriptModule):
        raise LipoptError("a scripted module cannot be read; pass the module it was made from")
    _refuse_meta_tensors(module)
    _refuse_recurrent_layers(module)
    shapes = [_first_linear(module)] if input_shape is None else _checked_shapes(input_shape)
    kind, device = _input_kind(module)
    examples = [torch.zeros((1, *shape), dtype=kind, device=device) for shape in shapes]
    with _in_evaluation(module), torch.no_grad():
        try:
            program = _exported(module, examples)
        except LipoptError as error:
            if input_shape is not None:
                raise
            guess = f"the shape {shapes[0]} is a guess, by the first Linear layer"
            raise LipoptError(f"{error}; {guess}: pass input_shape=(...)") from error
        walk = Walk(program)
        output = walk.run(shapes, logits)
        if check:
            original = _original(module, program, examples, walk, logits)
            tensors = {**walk.tensors, OUTPUT: output}
            check_against(original, walk.builder, tensors, walk.describe, _precision(module, kind))
    network = walk.builder.network(output)
    words = "without the softmax or sigmoid at its end" if logits else ""
    if words or len(shapes) > 1:
        network = replace(network, source=Source({}, words, walk.joined_sizes()))
    return Reading(module, program, walk, network, device)


def read_exported_file(
    path: Path,
    *,
    input_shape: Shapes | None = None,
    logits: bool = False,
    check: bool = True,
) -> Network:
    """The network of a program that `torch.export.save` wrote."""
    try:
        with _quiet(), _no_pickled_code():
            program = torch.export.load(path)
    except Exception as error:  # torch raises all kinds on a broken file
        raise LipoptError(f"{path} is not a readable exported program: {error}") from error
    return read_torch(program, input_shape=input_shape, logits=logits, check=check)


@contextmanager
def _no_pickled_code() -> Iterator[None]:
    """PyTorch made to load tensors alone: otherwise it falls back to running what a file holds."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def _unwrapped(module: Any) -> Any:
    """The module inside torch.compile, DataParallel and DistributedDataParallel."""
    while True:
        if hasattr(module, "_orig_mod"):
            module = module._orig_mod
        elif isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            module = module.module
        else:
            return module


def _tensors(module: nn.Module) -> Iterator[Any]:
    yield from module.parameters()
    yield from module.buffers()


def _refuse_recurrent_layers(module: nn.Module) -> None:
    """Before the shape of an input is guessed, which would be wrong for them."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.RNNBase | nn.RNNCellBase):
            kind = type(layer).__name__
            raise LipoptError(
                f"layer '{name or kind}' ({kind}): recurrent layers are not supported"
            )


def _refuse_meta_tensors(module: nn.Module) -> None:
    for tensor in _tensors(module):
        if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
            raise LipoptError("the module has lazy layers; run it once before reading it")
        if tensor.is_meta:
            raise LipoptError("the module is on the meta device: it has shapes, but no weights")


def _input_kind(module: nn.Module) -> tuple[Any, Any]:
    """The type and the device of the module's input: those of its first floating-point tensor."""
    for tensor in _tensors(module):
        if tensor.is_floating_point():
            return tensor.dtype, tensor.device
    return torch.float32, torch.device("cpu")


def _precision(module: nn.Module, kind: Any) -> float:
    """The coarsest relative rounding error among the types of the input and of all tensors."""
    kinds = {tensor.dtype for tensor in _tensors(module) if tensor.is_floating_point()}
    return max(float(torch.finfo(k).eps) / 2 for k in {kind, *kinds})


def _checked_shapes(shapes: Shapes) -> list[tuple[int, ...]]:
    """The shapes of all inputs."""
    if isinstance(shapes, Sequence) and shapes and isinstance(shapes[0], Sequence):
        return [_checked_shape(shape) for shape in shapes]
    return [_checked_shape(shapes)]


def _checked_shape(shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(index(n) for n in shape)
    except TypeError as error:
        raise LipoptError(
            f"input_shape is a list of sizes such as (3, 32, 32), got {shape!r}"
        ) from error
    if not all(n > 0 for n in sizes):
        raise LipoptError(f"input_shape {sizes} has sizes that are not positive")
    return sizes


def _first_linear(module: nn.Module) -> tuple[int, ...]:
    """The input shape of a module whose first layer is Linear."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            return (layer.in_features,)
        if type(layer).__name__.startswith("Conv"):
            break
    raise LipoptError(
        "pass input_shape=(...), the shape of one input without the batch dimension: the module's layers do not tell"
    )


def _program_shapes(program: Any) -> list[tuple[int, ...]]:
    """The shapes of the inputs of an exported program, without the batch dimension."""
    names = program.graph_signature.user_inputs
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in names]
    if not all(isinstance(node.meta["val"], torch.Tensor) for node in nodes):
        raise LipoptError("the program takes other things than tensors; export one that does not")
    return [_program_shape(node) for node in nodes]


def _program_shape(node: Any) -> tuple[int, ...]:
    batch, *shape = node.meta["val"].shape
    if not isinstance(batch, torch.SymInt) and batch != 1:
        raise LipoptError(
            f"the program was exported for batches of {batch}; export it with a batch of 1, or with a dynamic one"
        )
    if any(isinstance(n, torch.SymInt) for n in shape):
        raise LipoptError("the program has dynamic shapes; pass input_shape=(...)")
    return tuple(shape)


@contextmanager
def _in_evaluation(module: nn.Module) -> Iterator[None]:
    """The module in evaluation mode, and afterwards as it was.

    Hooks of pruning and of weight and spectral normalization set attributes when they run."""
    before = [(m, dict(m.__dict__), dict(m._buffers)) for m in module.modules()]
    for m in module.modules():
        m.training = False
    try:
        yield
    finally:
        for m, attributes, buffers in before:
            m._buffers.clear()
            m._buffers.update(buffers)
            m.__dict__.clear()
            m.__dict__.update(attributes)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what PyTorch says about its own insides: warnings, logs, graphs on standard error."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _exported(module: nn.Module, examples: Sequence[Any]) -> Any:
    """The functional graph of a module; what our table knows is not decomposed further."""
    try:
        with _quiet():
            program = torch.export.export(module, tuple(examples), strict=False)
            _rewrite_soft_shrink(program.graph)
            decompositions = torch.export.default_decompositions()
            for operator in _operators():
                decompositions.pop(operator, None)
            return program.run_decompositions(decompositions)
    except Exception as error:  # exporting runs the user's own code
        shapes = " and ".join(str(tuple(example.shape)) for example in examples)
        raise LipoptError(
            f"torch.export cannot trace this module for an input of shape {shapes}: {_reason(error)}"
        ) from error


def _rewrite_soft_shrink(graph: Any) -> None:
    """Write soft shrinking as x - clip(x): PyTorch decomposes it, asked or not, into jumps."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.softshrink.default:
            x = node.args[0]
            width = node.args[1] if len(node.args) > 1 else node.kwargs.get("lambd", 0.5)
            with graph.inserting_before(node):
                clip = graph.call_function(torch.ops.aten.clamp.default, (x, -width, width))
            clip.meta = dict(node.meta)
            node.target = torch.ops.aten.sub.Tensor
            node.args = (x, clip)
            node.kwargs = {}


def _reason(error: Exception) -> str:
    """The first line of a message; PyTorch's go on with advice about its own options."""
    if "data-dependent" in str(error):
        return "it branches on the values of its input; write it with operators on tensors instead"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _operators() -> Iterator[Any]:
    """The operators of our table that this version of PyTorch has."""
    for name in (*HANDLERS, *REFUSED):
        packet, _, overload = name.removeprefix("aten.").partition(".")
        found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        if found is not None:
            yield found


class Walk:
    """The operators of an exported program turned into nodes of a network, one after the other."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.builder = Builder()
        self.values: dict[Any, Any] = {}
        self.tensors: dict[str, View] = {}
        self.layers = {node.name: label(node) for node in program.graph.nodes}
        # For every operator: which nodes of the builder were made for it.
        self.made: dict[Any, range] = {}
        self.goal: Any = None  # the operator that computes the output
        self.inputs: dict[str, View] = {}  # by name

    def run(self, shapes: Sequence[Sequence[int]], logits: bool) -> View:
        """The view of the output."""
        signature = self.program.graph_signature
        if signature.buffers_to_mutate:
            names = ", ".join(signature.buffers_to_mutate.values())
            raise LipoptError(f"the module changes its buffers when it runs: {names}")
        constants = constants_of(self.program)
        goal = self._goal(logits)
        self.goal = goal
        names = signature.user_inputs
        if len(names) != len(shapes):
            raise LipoptError(
                f"the module takes {len(names)} tensors, and {len(shapes)} shapes are given"
            )
        self.inputs = dict(zip(names, self._make_inputs(shapes), strict=True))
        for node in self.program.graph.nodes:
            if node.op == "placeholder" and node.name in constants:
                self.values[node] = constants[node.name]
            elif node.op == "placeholder":
                self.values[node] = self.inputs[node.name]
            elif node.op == "call_function":
                before = len(self.builder.nodes)
                self.values[node] = self._call(node)
                self.made[node] = range(before, len(self.builder.nodes))
            elif node.op != "output":
                raise LipoptError(f"{label(node)} is not supported: control flow")
            if isinstance(self.values.get(node), View):
                self.tensors[node.name] = self.values[node]
            if node is goal:
                break
        output = self.values[goal]
        if not isinstance(output, View):
            raise LipoptError("the module's output does not depend on its input")
        return output

    def _make_inputs(self, shapes: Sequence[Sequence[int]]) -> list[View]:
        """The views of the inputs. Several are joined in one flat input."""
        if len(shapes) == 1:
            return [self.builder.input((1, *shapes[0]))]
        return self.builder.inputs([(1, *shape) for shape in shapes])

    def joined_sizes(self) -> dict[str, int]:
        """The names and sizes of several inputs; of one, nothing."""
        if len(self.inputs) == 1:
            return {}
        return {name: view.size for name, view in self.inputs.items()}

    def _goal(self, logits: bool) -> Any:
        """The operator that computes the output, before a softmax if the logits are asked for."""
        names = self.program.graph_signature.user_outputs
        results = [node for node in self.program.graph.nodes if node.name in names]
        if len(names) != 1 or len(results) != 1:
            raise LipoptError(
                f"the module returns {len(names)} results; wrap it in a module that returns one tensor"
            )
        goal = results[0]
        if not logits:
            return goal
        if str(goal.target) not in TAILS:
            raise LipoptError(
                "there is nothing to cut off: the module does not end in a softmax, log-softmax or sigmoid"
            )
        return goal.args[0]

    def _call(self, node: Any) -> Any:
        target = str(node.target)
        args = torch.fx.map_arg(node.args, lambda n: self.values[n])
        kwargs = torch.fx.map_arg(node.kwargs, lambda n: self.values[n])
        if target in IGNORED:
            return None
        if target == "<built-in function getitem>":
            return args[0][args[1]]
        depends = holds_view((args, kwargs))
        if depends and target in REFUSED:
            raise LipoptError(f"{label(node)} is not supported: {REFUSED[target]}")
        if _is_random(node.target):
            raise LipoptError(f"{label(node)} is random; remove it, or use it in training alone")
        if not depends:
            return _computed(node, args, kwargs)
        if target not in HANDLERS:
            raise LipoptError(
                f"{label(node)} is not supported; rewrite the model with supported layers (docs/networks.md)"
            )
        try:
            result = HANDLERS[target](self.builder, node.name, *_plain(args), **_plain(kwargs))
            # A constant in the shape of a tensor; its type is that of the tensor, or given.
            constant = isinstance(result, torch.Tensor)
            return result.to(node.meta["val"].dtype) if constant else result
        except LipoptError as error:
            raise LipoptError(f"{label(node)}: {error}") from error
        except Exception as error:  # arguments in a form that the handler does not know
            raise LipoptError(f"{label(node)} cannot be read: {error!r}") from error

    def describe(self, name: str) -> str:
        """What is wrong if a tensor has other values."""
        if name in self.tensors:
            return f"{self.layers[name]} was misread"
        return (
            "the module computes another function than the graph that torch.export traced;"
            " write it without changing tensors in place"
        )


@dataclass(frozen=True, eq=False)
class Reading:
    """A module, the graph that was traced of it, what became of every operator, and the network."""

    module: Any  # without the wrappers around it
    program: Any
    walk: Walk
    network: Network
    device: Any  # of the module's input


def label(node: Any) -> str:
    """An operator, and where in the module it stands."""
    target = str(node.target).removeprefix("aten.").partition(".")[0]
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    place = stack[-1][0] if stack else ""
    if place:
        return f"layer '{place}' ({target})"
    return f"layer '{node.name}' ({target})"


def constants_of(program: Any) -> Mapping[str, Any]:
    """The program's parameters, buffers and other tensors, by the names of their placeholders."""
    signature = program.graph_signature
    stored = {**program.constants, **program.state_dict}
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    return {placeholder: stored[name] for placeholder, name in names.items()}


def _is_random(target: Any) -> bool:
    tags = getattr(target, "tags", ())
    # A dropout, an rrelu and attention say themselves whether they are in training.
    fixed = any(word in str(target) for word in ("dropout", "rrelu", "attention"))
    return torch.Tag.nondeterministic_seeded in tags and not fixed


def holds_view(values: Any) -> bool:
    if isinstance(values, list | tuple):
        return any(holds_view(value) for value in values)
    if isinstance(values, dict):
        return holds_view(list(values.values()))
    return isinstance(values, View)


def _computed(node: Any, args: Any, kwargs: Any) -> Any:
    """An operator on constants, by PyTorch."""
    try:
        return node.target(*args, **kwargs)
    except Exception as error:
        raise LipoptError(f"{label(node)} has constant inputs and fails: {error}") from error


def _plain(values: Any) -> Any:
    """Tensors as arrays, also inside of lists."""
    if isinstance(values, list | tuple):
        return [_plain(value) for value in values]
    if isinstance(values, dict):
        return {key: _plain(value) for key, value in values.items()}
    return as_array(values)


def _original(
    module: nn.Module, program: Any, examples: Sequence[Any], walk: Walk, logits: bool
) -> Original:
    """The module itself: a flat input -> every tensor of its graph, and its own result."""
    recorder = _Recorder(program.graph_module, walk.tensors)
    constants = constants_of(program)
    placeholders = [n.name for n in program.graph.nodes if n.op == "placeholder"]
    cuts = np.cumsum([example.numel() for example in examples])[:-1]

    def run(point: Array) -> dict[str, Array]:
        inputs = []
        for part, example in zip(np.split(point, cuts), examples, strict=True):
            inputs.append(torch.from_numpy(part.copy()).to(example).reshape(example.shape))
        given = {**constants, **dict(zip(walk.inputs, inputs, strict=True))}
        found = recorder.record([given[name] for name in placeholders])
        if not logits:
            (result,) = tree_leaves(module(*(x.clone() for x in inputs)))
            found[OUTPUT] = np.asarray(as_array(result))
        return found

    return run


class _Recorder(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a graph and keeps the tensors that depend on its input."""

    def __init__(self, graph: Any, wanted: Mapping[str, View]) -> None:
        super().__init__(graph)
        self.wanted = wanted
        self.found: dict[str, Array] = {}

    def record(self, inputs: Sequence[Any]) -> dict[str, Array]:
        self.found = {}
        self.run(*inputs)
        return self.found

    def run_node(self, node: Any) -> Any:
        result = super().run_node(node)
        if node.name in self.wanted:
            self.found[node.name] = np.asarray(as_array(result))
        return result
