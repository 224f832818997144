"""Units of the inputs, and norms on the outputs that are not those on the inputs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lipcheck_files import verdict
from networks import make_network
from regions import jacobian_at, jacobians_in

import lipopt
from lipopt.errors import LipoptError
from lipopt.methods.branch import Branch
from lipopt.methods.registry import Method
from lipopt.model.norms import Norm, NormName
from lipopt.numerics.arrays import Array

NORMS: list[NormName] = ["linf", "l2", "l1"]
PAIRS = list(itertools.product(NORMS, NORMS))
METHODS: list[str | Method] = ["path-sum", "product", "sdp", "lip-sdp", "auto", Branch(cells=20)]
ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}


def some_network(seed: int = 0) -> tuple[list[Array], list[Array]]:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(6, 3)), rng.normal(size=(5, 6)), rng.normal(size=(3, 5))]
    return weights, [rng.normal(size=len(w)) for w in weights]


def signs(count: int) -> Array:
    """The corners of a cube, one in each column."""
    return np.array(list(itertools.product([-1.0, 1.0], repeat=count))).T


def operator_norm(jacobian: Array, norm: str, output_norm: str) -> float:
    """The largest |J t| over |t| <= 1, by all corners of a ball that has some."""
    outputs, inputs = jacobian.shape
    if norm == "linf":
        return float(np.linalg.norm(jacobian @ signs(inputs), ORDERS[output_norm], axis=0).max())
    if norm == "l1":
        return float(np.linalg.norm(jacobian, ORDERS[output_norm], axis=0).max())
    if output_norm == "linf":
        return float(np.linalg.norm(jacobian, axis=1).max())
    if output_norm == "l1":
        return float(np.linalg.norm(jacobian.T @ signs(outputs), axis=0).max())
    return float(np.linalg.norm(jacobian, 2))


def largest(jacobians: list[Array], norm: str, output_norm: str, scale: Array) -> float:
    """The largest |J (scale t)| over |t| <= 1."""
    return max(operator_norm(jacobian * scale, norm, output_norm) for jacobian in jacobians)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("method", ["path-sum", "sdp", Branch(cells=10)])
def test_units_are_factors_of_the_first_weights(norm: NormName, method: str | Method) -> None:
    """With powers of two nothing is rounded."""
    weights, biases = some_network()
    scale = np.array([0.25, 1.0, 8.0])
    center = np.array([0.5, -0.25, 2.0])
    in_units = lipopt.bound(
        lipopt.load(weights, biases=biases),
        norm=norm,
        scale=scale,
        output="all",
        domain=lipopt.Ball(center, 0.5, scale=scale),
        method=method,
    )
    plain = lipopt.bound(
        lipopt.load([weights[0] * scale, *weights[1:]], biases=biases),
        norm=norm,
        output="all",
        domain=lipopt.Ball(center / scale, 0.5),
        method=method,
    )
    assert in_units.upper == pytest.approx(plain.upper, rel=1e-3)
    assert in_units.scale == (0.25, 1.0, 8.0)


@settings(max_examples=40)
@given(
    st.sampled_from(["dense", "residual"]),
    st.integers(0, 1000),
    st.sampled_from(PAIRS),
    st.sampled_from(METHODS),
    st.sampled_from(["linf", "l2"]),
)
def test_sandwich(
    architecture: str,
    seed: int,
    norms: tuple[NormName, NormName],
    method: str | Method,
    ball_norm: NormName,
) -> None:
    """lower <= exact <= upper, by all linear regions and all corners, in the box around the ball."""
    network = make_network(architecture, "relu", seed)
    rng = np.random.default_rng(seed)
    n = network.input_size
    scale = rng.uniform(0.1, 5, n)
    ball = lipopt.Ball(rng.normal(size=n), 0.1, norm=ball_norm, scale=scale)
    result = lipopt.bound(
        network,
        norm=norms[0],
        output_norm=norms[1],
        scale=scale,
        output="all",
        domain=ball,
        method=method,
        samples=100,
    )
    around = largest(jacobians_in(network, *ball.bounds(n)), *norms, scale)
    assert 0 <= result.lower <= result.upper
    assert result.lower <= around * (1 + 1e-9)
    if ball_norm == "linf":
        assert around <= result.upper * (1 + 1e-9)
    at_center = jacobian_at(network, ball.middle(n))
    assert largest([at_center], *norms, scale) <= result.upper * (1 + 1e-9)


@pytest.mark.parametrize("norms", PAIRS)
@pytest.mark.parametrize("method", ["path-sum", "product", "sdp", "lip-sdp", Branch(cells=10)])
def test_certificates_in_units(
    norms: tuple[NormName, NormName], method: str | Method, tmp_path: Path
) -> None:
    weights, biases = some_network(1)
    network = lipopt.load(weights, biases=biases)
    result = lipopt.bound(
        network,
        norm=norms[0],
        output_norm=norms[1],
        scale=[0.3, 1.0, 20.0],
        output="all",
        domain=lipopt.Ball([0.1, 0.2, 0.3], 0.2, norm="l2", scale=[0.3, 1.0, 20.0]),
        method=method,
        certify=True,
    )
    assert result.certificate is not None
    network.save(tmp_path / "network")
    code, claim = verdict((tmp_path / "network").read_bytes(), result.certificate.text.encode())
    assert code == 0
    assert claim is not None
    assert [float(unit) for unit in claim.scale or []] == [0.3, 1.0, 20.0]
    assert claim.norm_of_outputs == norms[1]
    assert float(claim.bound) == result.upper


@pytest.mark.parametrize("norms", PAIRS)
def test_branch_and_bound_finds_the_constant(norms: tuple[NormName, NormName]) -> None:
    weights, biases = some_network(3)
    network = lipopt.load(weights, biases=biases)
    ball = lipopt.Ball([0.1, 0.2, 0.3], 0.5)
    result = lipopt.bound(
        network, norm=norms[0], output_norm=norms[1], output="all", domain=ball, gap=1e-3
    )
    exact = largest(jacobians_in(network, *ball.bounds(3)), *norms, np.ones(3))
    assert result.lower <= exact * (1 + 1e-9)
    assert exact <= result.upper <= 1.002 * exact


@pytest.mark.parametrize("norms", PAIRS)
def test_networks_without_neurons(norms: tuple[NormName, NormName], tmp_path: Path) -> None:
    """The norm of a matrix: a relaxation has it up to two percent, at most."""
    weights = np.random.default_rng(0).normal(size=(3, 4))
    network = lipopt.load([weights])
    network.save(tmp_path / "network")
    exact = operator_norm(weights, *norms)
    for method in ("sdp", "lip-sdp"):
        result = lipopt.bound(
            network,
            norm=norms[0],
            output_norm=norms[1],
            output="all",
            method=method,
            certify=True,
        )
        assert exact <= result.upper
        assert method != "sdp" or result.upper <= 1.02 * exact
        assert result.certificate is not None
        certificate = result.certificate.text.encode()
        assert verdict((tmp_path / "network").read_bytes(), certificate)[0] == 0


def test_the_lp_takes_sums_of_outputs(tmp_path: Path) -> None:
    weights, biases = some_network(3)
    network = lipopt.load(weights, biases=biases)
    network.save(tmp_path / "network")
    ball = lipopt.Ball([0.1, 0.2, 0.3], 0.5)
    found = lipopt.compare(
        network,
        methods=["lipopt", "sdp"],
        output_norm="l1",
        output="all",
        domain=ball,
        certify=True,
    )
    assert [result.method for result in found] == ["lipopt", "sdp"]  # the LP is better here
    exact = largest(jacobians_in(network, *ball.bounds(3)), "linf", "l1", np.ones(3))
    for result in found:
        assert exact <= result.upper
        assert result.certificate is not None
        certificate = result.certificate.text.encode()
        assert verdict((tmp_path / "network").read_bytes(), certificate)[0] == 0


@given(st.integers(0, 1000), st.sampled_from(PAIRS))
def test_directions_attain_what_norms_say(seed: int, norms: tuple[NormName, NormName]) -> None:
    jacobian = np.random.default_rng(seed).normal(size=(3, 4))
    norm = Norm(norms[0])
    output = Norm(norms[1])
    r, t = norm.attained_by(jacobian, output)
    assert norm.of_vectors(t[:, None])[0] <= 1 + 1e-12
    assert output.dual.of_vectors(r[:, None])[0] <= 1 + 1e-12
    attained = float(r @ jacobian @ t)
    assert attained == pytest.approx(norm.of_jacobians(jacobian[:, :, None], output)[0])
    assert 0.7 * operator_norm(jacobian, *norms) <= attained


@given(st.integers(0, 1000), st.sampled_from(PAIRS))
def test_norms_of_bounds_are_above_norms_of_matrices(
    seed: int, norms: tuple[NormName, NormName]
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(3, 4))
    exact = largest([matrix], *norms, np.ones(4))
    norm = Norm(norms[0])
    output = Norm(norms[1])
    assert norm.of_jacobians(matrix[:, :, None], output)[0] <= norm.of_matrix_up(matrix, output)
    assert exact <= norm.of_matrix_up(matrix, output) * (1 + 1e-12)
    assert exact <= norm.of_bounds_up(np.abs(matrix), output) * (1 + 1e-12)
    assert norm.of_bounds_up(np.zeros((3, 4)), output) == 0


@pytest.mark.parametrize("norms", [("linf", "l1"), ("l2", "l1"), ("l1", "l2")])
def test_on_one_output_all_norms_are_the_same(norms: tuple[NormName, NormName]) -> None:
    weights, _ = some_network()
    one = [*weights[:-1], weights[-1][:1]]
    usual = lipopt.bound(one, norm=norms[0])
    named = lipopt.bound(one, norm=norms[0], output_norm=norms[1], output="all")
    assert named.upper == usual.upper


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"output_norm": "l2"}, "goes with all outputs"),
        ({"output_norm": "l7", "output": "all"}, "l7"),
        ({"scale": [1.0, 2.0]}, "2 entries"),
        ({"scale": [1.0, 2.0, -1.0]}, "positive"),
        ({"scale": [1.0, 2.0, np.inf]}, "infinite"),
    ],
)
def test_questions_that_make_no_sense(options: dict, reason: str) -> None:
    weights, _ = some_network()
    with pytest.raises(LipoptError, match=reason):
        lipopt.bound(weights, **options)
