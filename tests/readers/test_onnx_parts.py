"""Which part of an ONNX graph is read, in which order, and graphs that are no networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import agrees, make_model, run_model

import lipopt
from lipopt.errors import LipoptError
from lipopt.readers.onnx import Part, network_from_model

RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def node(operator: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], **attributes)


def two_inputs() -> onnx.ModelProto:
    """y = relu(x w) + 2 u, and v = relu(x w) besides."""
    nodes = [
        node("MatMul", ["x", "w"], "h"),
        node("Relu", ["h"], "v"),
        node("Mul", ["u", "two"], "d"),
        node("Add", ["v", "d"], "y"),
    ]
    constants = {"w": weights(3, 4), "two": np.float32(2)}
    return make_model(nodes, (1, 3), constants, outputs=("y", "v"), more_inputs={"u": (1, 4)})


def test_one_input_is_chosen_and_the_other_fixed() -> None:
    model = two_inputs()
    fixed = np.array([1.0, -2.0, 0.5, 3.0])
    network = network_from_model(model, Part(input="x", output="y", fixed={"u": fixed}))
    x = weights(1, 3)
    expected = run_model(model, {"x": x, "u": fixed[None].astype(np.float32)})
    np.testing.assert_allclose(network(x[0]), expected[0], rtol=1e-5)
    other = network_from_model(model, Part(input="u", output="y", fixed={"x": x}))
    np.testing.assert_allclose(other(fixed), expected[0], rtol=1e-5)


@pytest.mark.parametrize("order", [None, ("x", "u"), ("u", "x")])
def test_several_inputs_are_joined_in_order(order: tuple[str, str] | None) -> None:
    model = two_inputs()
    network = network_from_model(model, Part(input=order, output="y"))
    feeds = {"x": weights(1, 3), "u": weights(1, 4)}
    joined = np.concatenate([feeds[name][0] for name in order or ("x", "u")])
    np.testing.assert_allclose(network(joined), run_model(model, feeds)[0], rtol=1e-5)
    assert network.source is not None
    assert list(network.source.inputs) == list(order or ("x", "u"))


def test_only_the_inputs_that_matter_are_asked_for() -> None:
    network = network_from_model(two_inputs(), Part(output="v"))
    assert network.input_shape == (3,)


def test_a_number_fixes_all_entries() -> None:
    model = two_inputs()
    network = network_from_model(model, Part(input="x", output="y", fixed={"u": 0.5}))
    x = weights(1, 3)
    expected = run_model(model, {"x": x, "u": np.full((1, 4), 0.5, np.float32)})
    np.testing.assert_allclose(network(x[0]), expected[0], rtol=1e-5)


def test_the_graph_can_be_cut_at_both_ends() -> None:
    network = network_from_model(two_inputs(), Part(input="h", output="v"))
    np.testing.assert_array_equal(network([1.0, -1.0, 2.0, -2.0]), [1.0, 0.0, 2.0, 0.0])


CHOICES = {
    "several outputs": (Part(), "2 outputs: y, v; choose one"),
    "an input twice": (Part(input=["x", "x"], output="y"), "chosen twice: x, x"),
    "an input without a value": (Part(input="x", output="y"), "also depends on the input 'u'"),
    "no such output": (Part(output="q"), "no tensor 'q'; its outputs are y, v"),
    "no such input": (Part(input="q", output="y"), "no tensor 'q'; its inputs are x, u"),
    "nothing to fix": (Part(input="x", output="y", fixed={"q": 0}), "'q' cannot be fixed"),
    "a value that does not fit": (
        Part(input="x", output="y", fixed={"u": [1.0, 2.0]}),
        "has shape \\[1, 4\\]",
    ),
    "a value that is NaN": (Part(input="x", output="y", fixed={"u": np.nan}), "NaN"),
    "no dependence": (Part(input="u", output="v", fixed={"x": 0.0}), "does not depend"),
    "nothing to cut off": (Part(output="v", logits=True), "comes from Relu"),
}


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_choices_that_cannot_be_met(name: str) -> None:
    part, message = CHOICES[name]
    with pytest.raises(LipoptError, match=message):
        network_from_model(two_inputs(), part)


@pytest.mark.parametrize("tail", ["Softmax", "LogSoftmax", "Sigmoid"])
def test_logits(tail: str, tmp_path: Path, run) -> None:
    nodes = [node("MatMul", ["x", "w"], "h"), node(tail, ["h"], "y")]
    constants = {"w": weights(3, 4)}
    model = make_model(nodes, (1, 3), constants)
    network = network_from_model(model, Part(logits=True))
    np.testing.assert_allclose(network([1.0, 0, 0]), constants["w"][0], rtol=1e-6)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    source = lipopt.load(path, logits=True).source
    assert source is not None
    assert source.part == f"without the {tail} at its end"
    code, _, err = run("bound", str(path), "--logits", "-q")
    assert code == 0
    assert f"without the {tail} at its end" in err


def test_the_command_line_chooses_too(tmp_path: Path, run) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(two_inputs(), path)
    np.save(tmp_path / "u.npy", np.ones(4))
    chosen = ("--from", "x", "--to", "y", "--fix", f"u={tmp_path / 'u.npy'}")
    code, out, err = run("info", str(path), *chosen)
    assert code == 0
    assert "input 'x', output 'y', 'u' fixed" in out.replace("\n", " ")
    code, out, _ = run("info", str(path), "--to", "y", "--from", "u", "--from", "x")
    assert code == 0
    assert "inputs: u is 0 to 3, x is 4 to 6" in out
    code, _, err = run("bound", str(path), "--to", "y", "--from", "x", "--fix", "u")
    assert code == 2
    assert "NAME=VALUE" in err
    code, _, err = run("bound", str(path))
    assert code == 2
    assert "--to NAME" in err


def test_nodes_in_any_order() -> None:
    model = two_inputs()
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    network = network_from_model(model, Part(output="v"))
    straight = network_from_model(two_inputs_like(model), Part(output="v"))
    np.testing.assert_array_equal(network([1.0, 2.0, 3.0]), straight([1.0, 2.0, 3.0]))


def two_inputs_like(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with its nodes in order again."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    nodes = list(copy.graph.node)
    del copy.graph.node[:]
    copy.graph.node.extend(reversed(nodes))
    return copy


def test_a_branch_that_is_known() -> None:
    """Exporters write an If whose condition is a constant."""
    branches = {}
    for name, factor in (("then_branch", 2.0), ("else_branch", 3.0)):
        result = f"{name}_y"
        value = helper.make_tensor("value", TensorProto.FLOAT, [], [factor])
        inside = [
            helper.make_node("Constant", [], [f"{name}_c"], value=value),
            node("Mul", ["x", f"{name}_c"], result),
        ]
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, [1, 3])]
        branches[name] = helper.make_graph(inside, name, [], outputs)
    for condition, factor in ((True, 2.0), (False, 3.0)):
        branch = helper.make_node("If", ["c"], ["y"], **branches)
        model = make_model([branch], (1, 3), {"c": np.array(condition)})
        network = network_from_model(model)
        agrees(model, network, (1, 3))
        np.testing.assert_array_equal(network([1.0, 1.0, 1.0]), [factor] * 3)


def function(name: str, *calls: str) -> onnx.FunctionProto:
    """A local function that applies others, one after the other."""
    nodes = []
    for k, call in enumerate(calls):
        nodes.append(helper.make_node(call, [f"t{k}"], [f"t{k + 1}"], domain="local"))
    opsets = [helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["t0"], [f"t{len(calls)}"], nodes, opsets)


def with_functions(*functions: onnx.FunctionProto) -> onnx.ModelProto:
    model = make_model([helper.make_node(functions[0].name, ["x"], ["y"], domain="local")], (1, 3))
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.extend(functions)
    return model


def endless_loop() -> onnx.ModelProto:
    """A Loop on constants that never ends."""
    inside = [
        node("Identity", ["c_in"], "c_out"),
        node("Identity", ["v_in"], "v_out"),
    ]
    starts = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("c_in", TensorProto.BOOL, []),
        helper.make_tensor_value_info("v_in", TensorProto.FLOAT, [1, 3]),
    ]
    ends = [
        helper.make_tensor_value_info("c_out", TensorProto.BOOL, []),
        helper.make_tensor_value_info("v_out", TensorProto.FLOAT, [1, 3]),
    ]
    body = helper.make_graph(inside, "body", starts, ends)
    nodes = [
        helper.make_node("Loop", ["count", "true", "ones"], ["l"], body=body),
        node("Add", ["x", "l"], "y"),
    ]
    constants = {
        "count": np.array(2**62),
        "true": np.array(True),
        "ones": np.ones((1, 3), np.float32),
    }
    return make_model(nodes, (1, 3), constants)


BOMB = [function(f"f{k}", f"f{k + 1}", f"f{k + 1}") for k in range(60)]
NO_NETWORKS = {
    "recursive functions": (with_functions(function("f", "g"), function("g", "f")), "calls itself"),
    "a function of itself": (with_functions(function("f", "f")), "calls itself"),
    "functions without end": (with_functions(*BOMB, function("f60")), "too many"),
    "a loop": (endless_loop(), "loops are not supported"),
    "a cycle": (
        make_model(
            [node("Add", ["x", "b"], "a"), node("Relu", ["a"], "b"), node("Neg", ["b"], "y")],
            (1, 3),
        ),
        "depends on itself",
    ),
    "a name defined twice": (
        make_model([node("Relu", ["x"], "y"), node("Neg", ["x"], "y")], (1, 3)),
        "'y' is defined twice",
    ),
    "a constant defined twice": (
        make_model([node("Relu", ["x"], "c"), node("Neg", ["c"], "y")], (1, 3), {"c": weights(3)}),
        "'c' is defined twice",
    ),
    "a huge constant": (
        make_model(
            [node("ConstantOfShape", ["s"], "c"), node("Add", ["x", "c"], "y")],
            (1, 3),
            {"s": np.array([10**6, 10**6])},
        ),
        "too large",
    ),
    "a missing tensor": (make_model([node("Add", ["x", "q"], "y")], (1, 3)), "'q' is read, but no"),
    "a tensor that is not computed": (
        make_model(
            [helper.make_node("Dropout", ["x"], ["d", "mask"]), node("Identity", ["mask"], "y")],
            (1, 3),
        ),
        "mask",
    ),
}


@pytest.mark.parametrize("name", sorted(NO_NETWORKS))
def test_graphs_that_are_no_networks(name: str, tmp_path: Path, run) -> None:
    model, message = NO_NETWORKS[name]
    with pytest.raises(LipoptError, match=message):
        network_from_model(model)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    code, out, err = run("bound", str(path))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


def test_check_reads_the_model_again(tmp_path: Path, run) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(make_model([node("MatMul", ["x", "w"], "y")], (1, 3), {"w": weights(3, 2)}), path)
    claim = tmp_path / "claim.cert"
    assert run("bound", str(path), "--certificate", str(claim))[0] == 0
    source = lipopt.load(path).source
    assert source is not None
    assert f"comment source model.onnx sha256 {source.files['model.onnx']}" in claim.read_text()
    assert run("check", str(path), str(claim))[0] == 0
    assert run("check", str(tmp_path / "claim.safetensors"), str(claim))[0] == 0
    onnx.save(make_model([node("MatMul", ["x", "w"], "y")], (1, 3), {"w": weights(3, 2)}), path)
    code, out, _ = run("check", str(path), str(claim))
    assert code == 3
    assert "another model" in out


def test_the_source_is_in_the_results(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(make_model([node("MatMul", ["x", "w"], "y")], (1, 3), {"w": weights(3, 2)}), path)
    result = lipopt.bound(path, samples=10)
    assert result.source == lipopt.load(path).source
    assert '"model.onnx"' in result.to_json()
