"""Networks from plain weights; files; what is refused."""

import hashlib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from safetensors import safe_open
from safetensors.numpy import save_file
from strategies import Question, questions

import lipcheck
import lipopt
from lipopt.errors import LipoptError

W = [np.array([[1.0, -2.0], [0.5, 3.0], [0.0, 1.0]]), np.array([[1.0, 1.0, -1.0]])]


def test_a_list_of_matrices() -> None:
    network = lipopt.load(W, biases=[[1, 2, 3], None])
    hidden = np.maximum(W[0] @ [0.3, -0.2] + [1, 2, 3], 0)
    np.testing.assert_allclose(network.forward([0.3, -0.2]), W[1] @ hidden)
    np.testing.assert_allclose(network(np.zeros((4, 2))), np.full((4, 1), 0.0))


@settings(max_examples=30)
@given(questions())
def test_save_and_load(tmp_path_factory: pytest.TempPathFactory, question: Question) -> None:
    path = tmp_path_factory.mktemp("networks") / "n.safetensors"
    network = question.network
    network.save(path)
    again = lipopt.load(path)
    x = np.random.default_rng(0).normal(size=(3, network.input_size))
    np.testing.assert_array_equal(again.forward(x), network.forward(x))
    assert again.hash == network.hash == hashlib.sha256(path.read_bytes()).hexdigest()
    assert again.input_shape == network.input_shape


def test_float32_and_sparse_weights_are_kept(tmp_path: Path) -> None:
    sparse = sp.random_array((30, 20), density=0.05, rng=0, dtype=np.float32)
    network = lipopt.load([sparse, np.ones((1, 30), np.float32)])
    network.save(tmp_path / "n.safetensors")
    matrices = [
        node.matrices[0]
        for node in lipopt.load(tmp_path / "n.safetensors").nodes
        if hasattr(node, "matrices")
    ]
    assert sp.issparse(matrices[0])
    assert matrices[0].dtype == matrices[1].dtype == np.float32
    np.testing.assert_array_equal(matrices[0].toarray(), sparse.toarray())


def test_npz_and_mat(tmp_path: Path) -> None:
    np.savez(tmp_path / "n.npz", W0=W[0], b0=np.arange(3.0), W1=W[1])
    cells = np.empty((1, 2), object)
    cells[0, :] = W
    biases = np.empty((1, 2), object)
    biases[0, :] = [np.arange(3.0)[:, None], np.zeros((1, 1))]
    scipy.io.savemat(tmp_path / "n.mat", {"weights": cells, "biases": biases})
    expected = lipopt.load(W, biases=[np.arange(3), [0]], activation="tanh").forward([1, 2])
    for name in ("n.npz", "n.mat"):
        np.testing.assert_array_equal(
            lipopt.load(tmp_path / name, activation="tanh").forward([1, 2]), expected
        )


def test_every_tensor_of_a_file_is_used(tmp_path: Path) -> None:
    lipopt.load(W).save(tmp_path / "n.safetensors")
    with safe_open(tmp_path / "n.safetensors", framework="np") as file:
        tensors, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    save_file({**tensors, "2.alpha": np.ones(3)}, tmp_path / "n.safetensors", metadata)
    with pytest.raises(LipoptError, match=r"no node: 2\.alpha"):
        lipopt.load(tmp_path / "n.safetensors")


BAD_FILES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a.npz": (lambda good: b"nonsense", "no zip archive"),
    "a.mat": (lambda good: b"nonsense", r"not a readable \.mat file"),
    "a.pt": (lambda good: b"", "runs code when loaded"),
    "a.txt": (lambda good: b"", "unknown file type"),
    "a.safetensors": (lambda good: good[:-5], "not a valid network file"),
    "b.safetensors": (lambda good: good[:20], "not a valid network file"),
    "c.safetensors": (lambda good: good.replace(b"affine", b"affixe"), "unknown kind, 'affixe'"),
    "d.safetensors": (
        lambda good: good.replace(b"network-1", b"network-9"),
        "the format of its graph is not lipopt-network-1",
    ),
    "e.safetensors": (
        lambda good: good.replace(b'"1.bias"', b'"8.bias"'),
        r"no tensor '1\.bias'",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(tmp_path: Path, name: str) -> None:
    lipopt.load(W).save(tmp_path / "good.safetensors")
    content, message = BAD_FILES[name]
    (tmp_path / name).write_bytes(content((tmp_path / "good.safetensors").read_bytes()))
    with pytest.raises(LipoptError, match=message):
        lipopt.load(tmp_path / name)


def test_files_of_other_things(tmp_path: Path) -> None:
    with pytest.raises(LipoptError, match="no such file"):
        lipopt.load(tmp_path / "missing.onnx")
    np.savez(tmp_path / "names.npz", A=W[0])
    with pytest.raises(LipoptError, match=r"it holds \['A'\]"):
        lipopt.load(tmp_path / "names.npz")
    np.savez(tmp_path / "gap.npz", W0=W[0], W2=W[1])
    with pytest.raises(LipoptError, match=r"it holds \['W0', 'W2'\]"):
        lipopt.load(tmp_path / "gap.npz")
    scipy.io.savemat(tmp_path / "other.mat", {"x": 1})
    with pytest.raises(LipoptError, match="no cell array 'weights'"):
        lipopt.load(tmp_path / "other.mat")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "the list of weight matrices is empty"),
        ([W[0], W[0]], "matrices 0 and 1 do not fit"),
        ([np.array([[np.nan, 1.0]])], "NaN or infinite"),
        ([np.array([[np.inf, 1.0]])], "NaN or infinite"),
        ([np.zeros((0, 2))], "node 1 of the network is empty"),
        ([np.array(["a"])], "matrix of real numbers, got .* type <U1"),
        ([np.ones(3)], r"matrix of real numbers, got shape \(3,\)"),
        ([np.ones((2, 2)) * 1j], "matrix of real numbers, got .* type complex128"),
        (42, "cannot read a network from int"),
    ],
)
def test_bad_matrices(source: object, message: str) -> None:
    with pytest.raises(LipoptError, match=message):
        lipopt.load(source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"biases": [None]}, "2 weight matrices but 1 biases"),
        ({"biases": [[1], [1]]}, "bias 0 has 1 entries"),
        ({"activation": "nope"}, "unknown activation 'nope'"),
        ({"input_shape": (2,)}, "input_shape does not go with a list"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LipoptError, match=message):
        lipopt.load(W, **options)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((4,), (3,)),
        ((2, 2), (3,)),
        ((1, 4), (1, 3)),
        ((5, 4), (5, 3)),
        ((5, 2, 2), (5, 3)),
        ((5, 1, 4), (5, 3)),
    ],
)
def test_shapes_of_inputs(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    network = lipopt.load([np.arange(12.0).reshape(3, 4)])
    assert network(np.ones(shape)).shape == expected


@pytest.mark.parametrize("shape", [(4, 2), (8,), (5,), (), (2, 3)])
def test_wrong_shapes_of_inputs(shape: tuple[int, ...]) -> None:
    network = lipopt.load([np.arange(12.0).reshape(3, 4)])
    with pytest.raises(LipoptError, match="do not fit"):
        network(np.ones(shape))


def test_shapes_of_one_input() -> None:
    one = lipopt.load([np.ones((2, 1))])
    assert [one(np.ones(shape)).shape for shape in ((), (1,), (5,), (5, 1))] == [
        (2,),
        (2,),
        (5, 2),
        (5, 2),
    ]


def test_public_names() -> None:
    names = (
        "Ball Box Boxes Comparison Jacobian LiPopt LipoptError LowerBound Network Report Result Row Rows SDP Verdict"
        " Verdicts bound certified_radius certify compare compose jacobian load local_bounds lower_bound read_vnnlib report"
    )
    assert sorted(lipopt.__all__) == sorted(names.split())
    assert all(getattr(lipopt, name) is not None for name in lipopt.__all__)
    assert lipopt.__version__ == version("lipopt")
    for package in (lipopt, lipcheck):
        assert package.__file__ is not None
        assert (Path(package.__file__).parent / "py.typed").exists()
