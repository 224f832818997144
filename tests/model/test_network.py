"""Networks from plain weights; files; what is refused."""

import hashlib
from importlib.metadata import version
from pathlib import Path

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


def corrupt(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_every_tensor_of_a_file_is_used(tmp_path: Path) -> None:
    lipopt.load(W).save(tmp_path / "n.safetensors")
    with safe_open(tmp_path / "n.safetensors", framework="np") as file:
        tensors, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    save_file({**tensors, "2.alpha": np.ones(3)}, tmp_path / "n.safetensors", metadata)
    with pytest.raises(LipoptError, match=r"no node: 2\.alpha"):
        lipopt.load(tmp_path / "n.safetensors")


def test_bad_sources(tmp_path: Path) -> None:
    np.savez(tmp_path / "names.npz", A=W[0])
    np.savez(tmp_path / "gap.npz", W0=W[0], W2=W[1])
    scipy.io.savemat(tmp_path / "other.mat", {"x": 1})
    good = tmp_path / "good.safetensors"
    lipopt.load(W).save(good)
    data = good.read_bytes()
    bad = [
        tmp_path / "missing.onnx",
        tmp_path / "names.npz",
        tmp_path / "gap.npz",
        tmp_path / "other.mat",
        corrupt(tmp_path / "a.npz", b"nonsense"),
        corrupt(tmp_path / "a.mat", b"nonsense"),
        corrupt(tmp_path / "a.pt", b""),
        corrupt(tmp_path / "a.txt", b""),
        corrupt(tmp_path / "a.safetensors", data[:-5]),
        corrupt(tmp_path / "b.safetensors", data[:20]),
        corrupt(tmp_path / "c.safetensors", data.replace(b"affine", b"affixe")),
        corrupt(tmp_path / "d.safetensors", data.replace(b"network-1", b"network-9")),
        corrupt(tmp_path / "e.safetensors", data.replace(b'"1.bias"', b'"8.bias"')),
        [],
        [W[0], W[0]],
        [np.array([[np.nan, 1.0]])],
        [np.array([[np.inf, 1.0]])],
        [np.zeros((0, 2))],
        [np.array(["a"])],
        [np.ones(3)],
        [np.ones((2, 2)) * 1j],
        42,
    ]
    for source in bad:
        with pytest.raises(LipoptError):
            lipopt.load(source)
    for options in (
        {"biases": [None]},
        {"biases": [[1], [1]]},
        {"activation": "nope"},
        {"input_shape": (2,)},
    ):
        with pytest.raises(LipoptError):
            lipopt.load(W, **options)


def test_shapes_of_inputs() -> None:
    network = lipopt.load([np.arange(12.0).reshape(3, 4)])
    for shape, expected in (
        ((4,), (3,)),
        ((2, 2), (3,)),
        ((1, 4), (1, 3)),
        ((5, 4), (5, 3)),
        ((5, 2, 2), (5, 3)),
        ((5, 1, 4), (5, 3)),
    ):
        assert network(np.ones(shape)).shape == expected
    for wrong in ((4, 2), (8,), (5,), (), (2, 3)):
        with pytest.raises(LipoptError, match="do not fit"):
            network(np.ones(wrong))
    one = lipopt.load([np.ones((2, 1))])
    assert [one(np.ones(shape)).shape for shape in ((), (1,), (5,), (5, 1))] == [
        (2,),
        (2,),
        (5, 2),
        (5, 2),
    ]


def test_public_names() -> None:
    names = (
        "Ball Box Boxes LiPopt LipoptError LowerBound Network Result Row SDP bound certified_radius compare load "
        "local_bounds lower_bound read_vnnlib"
    )
    assert sorted(lipopt.__all__) == sorted(names.split())
    assert all(getattr(lipopt, name) is not None for name in lipopt.__all__)
    assert lipopt.__version__ == version("lipopt")
    for package in (lipopt, lipcheck):
        assert package.__file__ is not None
        assert (Path(package.__file__).parent / "py.typed").exists()
