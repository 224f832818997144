"""Convolutions of which the weights alone are kept: the same as their matrices, in every use."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save
from torch import nn

import lipopt
from lipopt.methods.baselines import path_sum_bound, product_bound
from lipopt.model.network import Network
from lipopt.model.nodes import Affine
from lipopt.model.norms import NormName
from lipopt.numerics.arrays import Array, dense, squares, tidy
from lipopt.numerics.convolution import Convolution
from lipopt.numerics.rounding import terms
from lipopt.problem.question import Question, pose
from lipopt.readers.builder import Builder
from lipopt.readers.windowed import convolution


@pytest.fixture(autouse=True)
def _write_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_all(monkeypatch)


def keep_all(monkeypatch: pytest.MonkeyPatch, entries: int = 0) -> None:
    """Keep the convolutions with more entries as convolutions."""
    monkeypatch.setattr("lipopt.readers.windowed.LARGEST_WRITTEN", entries)
    monkeypatch.setattr("lipopt.numerics.convolution.LARGEST_WRITTEN", max(1, entries))
    monkeypatch.setattr("lipopt.readers.windowed.SPARSE_BELOW", 1.0)


class Residual(nn.Module):
    """A strided convolution with a shortcut, and normalization."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False)
        self.normalized = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, 2)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.normalized(self.first(x)))
        return torch.relu(self.second(y) + self.shortcut(x))


def residual(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        Residual(4, 6),
        nn.AvgPool2d(3),
        nn.Flatten(),
        nn.Linear(6, 3),
    ).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
            nn.init.normal_(module.weight)
    return model


def both_networks(monkeypatch: pytest.MonkeyPatch, model: nn.Module) -> list[Network]:
    """The network with its convolutions written out, and with them kept."""
    found = []
    for entries in (10**9, 0):
        keep_all(monkeypatch, entries)
        found.append(lipopt.load(model, input_shape=(2, 6, 6)))
    return found


def kept(network: Network) -> list[Convolution]:
    matrices = [m for node in network.nodes if isinstance(node, Affine) for m in node.matrices]
    return [matrix for matrix in matrices if isinstance(matrix, Convolution)]


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Convolution, Array]:
    """A convolution as it is kept, and its dense matrix by PyTorch."""
    groups = draw(st.integers(1, 2))
    inputs = groups * draw(st.integers(1, 2))
    outputs = groups * draw(st.integers(1, 3))
    size, stride, dilation = (draw(st.integers(1, n)) for n in (3, 3, 2))
    pad = draw(st.integers(0, 2))
    high, wide = (draw(st.integers(5, 7)) for _ in range(2))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    weight = rng.normal(size=(outputs, inputs // groups, size, size)).astype(np.float32)
    weight[rng.random(weight.shape) < 0.1] = 0.0
    b = Builder()
    x = b.input((1, inputs, high, wide))
    with pytest.MonkeyPatch.context() as patched:
        keep_all(patched)
        view = convolution(
            b,
            "conv",
            x,
            weight,
            None,
            strides=(stride,) * 2,
            pads=((pad, pad),) * 2,
            dilations=(dilation,) * 2,
            groups=groups,
        )
    node = b.nodes[view.node]
    assert isinstance(node, Affine)
    images = torch.eye(x.size, dtype=torch.float64).reshape(-1, inputs, high, wide)
    found = torch.conv2d(
        images,
        torch.from_numpy(weight).double(),
        stride=stride,
        padding=pad,
        dilation=dilation,
        groups=groups,
    )
    return node.matrices[0], found.flatten(1).T.numpy()


@settings(max_examples=40)
@given(convolutions(), st.integers(0, 1000), st.booleans())
def test_it_is_its_matrix(case: tuple[Convolution, Array], seed: int, is_part: bool) -> None:
    matrix, expected = case
    rng = np.random.default_rng(seed)
    if is_part:
        rows = np.flatnonzero(rng.random(len(expected)) < 0.7)
        columns = np.flatnonzero(rng.random(expected.shape[1]) < 0.7)
        matrix = matrix[rows, :][:, columns]
        expected = expected[rows][:, columns]
    assert matrix.shape == expected.shape
    assert matrix.size == np.count_nonzero(expected)
    assert np.array_equal(dense(matrix), expected)
    assert np.array_equal(dense(matrix.T), expected.T)
    assert np.array_equal(dense(abs(-matrix * 2.0)), 2.0 * abs(expected))
    assert np.allclose(dense(squares(matrix)), expected**2, rtol=1e-15)
    x = rng.normal(size=(expected.shape[1], 3))
    y = rng.normal(size=(len(expected), 3))
    assert np.allclose(matrix @ x, expected @ x)
    assert np.allclose(matrix @ x[:, 0], expected @ x[:, 0])
    assert np.allclose(matrix.T @ y, expected.T @ y)
    assert np.allclose(y.T @ matrix, y.T @ expected)
    for axis in (0, 1):
        assert np.allclose(abs(matrix).sum(axis=axis), abs(expected).sum(axis=axis))
    counts = (expected != 0).sum(axis=1)
    if isinstance(matrix, Convolution):
        assert np.array_equal(matrix.entries_by_row(), counts)
    assert terms(tidy(matrix)) >= counts.max(initial=0)
    assert terms(matrix.T) >= (expected != 0).sum(axis=0).max(initial=0)


@settings(max_examples=20)
@given(convolutions())
def test_parts_of_a_product_are_the_product(case: tuple[Convolution, Array]) -> None:
    """Columns are multiplied a few at a time."""
    matrix, expected = case
    x = np.random.default_rng(0).normal(size=(expected.shape[1], 5))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lipopt.numerics.convolution.LARGEST_SEEN", 2 * matrix.places.size)
        assert np.allclose(matrix @ x, expected @ x)
        assert (matrix @ x[:, :0]).shape == (len(expected), 0)


@given(convolutions())
def test_scaled_rows(case: tuple[Convolution, Array]) -> None:
    """As a convolution if channels are scaled as a whole, otherwise written out; rounded once."""
    matrix, expected = case
    rng = np.random.default_rng(0)
    groups, outputs, _, _ = matrix.weight.shape
    positions = len(expected) // (groups * outputs)
    by_channel = np.repeat(rng.normal(size=groups * outputs), positions)
    for factors in (by_channel, rng.normal(size=len(expected))):
        found = sp.csr_array(sp.diags_array(factors)) @ matrix
        assert np.array_equal(dense(found), factors[:, None] * expected)
    assert isinstance(sp.csr_array(sp.diags_array(by_channel)) @ matrix, Convolution)


@given(convolutions())
def test_with_other_matrices(case: tuple[Convolution, Array]) -> None:
    matrix, expected = case
    other = sp.csr_array(np.random.default_rng(0).normal(size=(2, len(expected))))
    assert np.allclose(dense(other @ matrix), other.toarray() @ expected)
    assert np.allclose(dense(matrix @ matrix.T), expected @ expected.T)
    assert np.array_equal(dense(matrix + sp.csr_array(expected)), 2 * expected)
    assert np.array_equal(dense(sp.csr_array(expected) + matrix), 2 * expected)
    factors = np.random.default_rng(1).normal(size=expected.shape[1])
    assert np.array_equal(dense(matrix * factors), expected * factors)
    with pytest.raises(ValueError, match="shapes"):
        matrix @ np.zeros(expected.shape[1] + 1)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("radius", [None, 0.05])
def test_bounds_are_the_same(
    monkeypatch: pytest.MonkeyPatch, norm: NormName, radius: float | None
) -> None:
    """Path sum, product of norms, SDP and lower bounds, over the whole space and in a ball."""
    ball = None if radius is None else lipopt.Ball(np.full(72, 0.1), radius)
    written, network = both_networks(monkeypatch, residual())
    assert len(kept(network)) == 4
    assert not kept(written)
    question = Question.about(network, norm=norm, output="all", domain=ball)
    with np.errstate(all="ignore"):
        found = pose(network, question)
        expected = pose(written, question)
    assert path_sum_bound(found.problem) == pytest.approx(path_sum_bound(expected.problem))
    assert product_bound(found.raw) == pytest.approx(product_bound(expected.raw))
    results = []
    for each in (written, network):
        results.append(lipopt.bound(each, norm=norm, domain=ball, method="sdp", samples=20))
    assert results[1].upper == pytest.approx(results[0].upper, rel=1e-3)
    assert results[1].lower == pytest.approx(results[0].lower, rel=1e-6)
    assert results[1].pop_lower == pytest.approx(results[0].pop_lower, rel=1e-2)


def test_slopes_over_the_whole_space_leave_convolutions_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Normalization is multiplied into the weights, and nothing is written out."""
    _, network = both_networks(monkeypatch, residual())
    blocks = pose(network, Question.about(network)).problem.layers
    assert [type(matrix) for layer in blocks for matrix in layer.blocks.values()] == (
        [Convolution] * 4
    )


def test_the_file_and_the_hash_are_those_of_the_matrix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, network = both_networks(monkeypatch, residual())
    network.save(tmp_path / "network.safetensors")
    read = lipopt.load(tmp_path / "network.safetensors")
    assert read.hash == network.hash
    assert not kept(read)
    x = np.random.default_rng(0).normal(size=(5, 72))
    assert np.allclose(read(x), network(x))


def test_files_are_those_of_the_safetensors_package(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.PReLU(3), nn.Flatten(), nn.Linear(48, 2).double())
    network = lipopt.load(model.float(), input_shape=(2, 6, 6))
    path = tmp_path / "network.safetensors"
    network.save(path)
    with safe_open(str(path), framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        assert save(tensors, metadata=file.metadata()) == path.read_bytes()


def test_a_dense_convolution_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its matrix is dense: files and hashes are those of a dense matrix."""
    monkeypatch.setattr("lipopt.readers.windowed.SPARSE_BELOW", 0.25)
    network = lipopt.load(nn.Conv2d(2, 3, 4), input_shape=(2, 5, 5))
    assert not isinstance(_matrix_of(network), Convolution)
    sparse = lipopt.load(nn.Conv2d(2, 3, 2), input_shape=(2, 5, 5))
    assert isinstance(_matrix_of(sparse), Convolution)


def _matrix_of(network: lipopt.Network) -> Any:
    node = network.nodes[-1]
    assert isinstance(node, Affine)
    return node.matrices[0]


def test_entries_of_the_jacobian_with_a_convolution() -> None:
    """The whole space: exact entries of a linear network."""
    network = lipopt.load(nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten()), input_shape=(2, 5, 5))
    assert isinstance(network.nodes[1], Affine)
    assert any(isinstance(m, Convolution) for m in network.nodes[1].matrices)
    found = lipopt.jacobian(network, samples=1)
    exact = network.forward(np.eye(50)) - network.forward(np.zeros((50, 50)))
    np.testing.assert_allclose(found.lower, exact.T, atol=1e-6)
    np.testing.assert_allclose(found.upper, exact.T, atol=1e-6)
