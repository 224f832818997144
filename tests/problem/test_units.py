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

PAIRS: list[tuple[NormName, NormName]] = [
    ("linf", "linf"),
    ("l2", "l2"),
    ("l1", "l1"),
    ("l2", "linf"),
    ("l1", "linf"),
    ("linf", "l2"),
]
METHODS: list[str | Method] = ["path-sum", "product", "sdp", "lip-sdp", "auto", Branch(cells=20)]
ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}


def some_network(seed: int = 0) -> tuple[list[Array], list[Array]]:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(6, 3)), rng.normal(size=(5, 6)), rng.normal(size=(3, 5))]
    return weights, [rng.normal(size=len(w)) for w in weights]


def corners(norm: str, inputs: int) -> Array:
    """Directions among which |J t| is largest; for l2 many."""
    if norm == "linf":
        return np.array(list(itertools.product([-1.0, 1.0], repeat=inputs)))
    if norm == "l1":
        return np.eye(inputs)
    directions = np.random.default_rng(0).normal(size=(2000, inputs))
    return directions / np.linalg.norm(directions, axis=1)[:, None]


def largest(jacobians: list[Array], norm: str, output_norm: str, scale: Array) -> float:
    """The largest |J (scale t)| over |t| <= 1: exactly, but for l2 from below."""
    directions = scale[:, None] * corners(norm, len(scale)).T
    return max(
        float(np.linalg.norm(jacobian @ directions, ORDERS[output_norm], axis=0).max())
        for jacobian in jacobians
    )


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
    if norms[0] != "l2" or norms[1] != "l2":
        tolerance = 1.01 if norms[0] == "l2" else 1 + 1e-9
        assert result.lower <= around * tolerance
    if ball_norm == "linf":
        assert around <= result.upper * (1 + 1e-9)
    at_center = jacobian_at(network, ball.middle(n))
    assert largest([at_center], *norms, scale) <= result.upper * (1 + 1e-9)


@pytest.mark.parametrize("norms", PAIRS)
@pytest.mark.parametrize("method", ["path-sum", "sdp", Branch(cells=10)])
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
        ({"output_norm": "l1", "output": "all"}, "does not go with l1"),
        ({"output_norm": "l2", "norm": "l1", "output": "all"}, "does not go with l2"),
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
