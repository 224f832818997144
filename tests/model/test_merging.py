"""Neurons whose inputs are multiples of each other are merged; the function, and every bound, are of the same network."""

from pathlib import Path

import numpy as np
import pytest
from lipcheck_files import verdict

import lipopt
from lipopt.lower.pop import enumerate_pop
from lipopt.model.merging import merged
from lipopt.model.network import Network
from lipopt.model.norms import NormName
from lipopt.numerics.arrays import Array
from lipopt.problem.question import Question, pose
from lipopt.readers.builder import Builder

FACTORS = (1.0, -1.0, 2.0, -0.5, 3.0, -5.0)


def planted(seed: int, kind: str = "relu", factors: tuple[float, ...] = FACTORS) -> Network:
    """Two hidden layers, in each of which neurons are multiples of others; in the second, some are so only
    because those of the first are."""
    rng = np.random.default_rng(seed)
    parameters = {"alpha": np.float64(np.float32(0.3))} if kind == "leaky_relu" else {}
    first, bias = _with_multiples(rng, rng.normal(size=(3, 2)), rng.normal(size=3), factors)
    b = Builder()
    x = b.input((1, 2))
    x = b.linear("first", x, first, bias)
    x = b.activation("hidden", x, kind, parameters)
    reads = rng.integers(-3, 4, size=(2, 3)).astype(float)
    second = np.zeros((3, len(first)))
    second[:2, :3] = reads
    # The third neuron reads a duplicate in place of the first neuron of the first layer.
    second[2, 1:3] = reads[0, 1:]
    second[2, 3] = reads[0, 0]
    x = b.linear("second", x, second, np.zeros(3))
    x = b.activation("more", x, kind, parameters)
    return b.network(b.linear("last", x, rng.normal(size=(1, 3)), np.zeros(1)))


def _with_multiples(
    rng: np.random.Generator, rows: Array, bias: Array, factors: tuple[float, ...]
) -> tuple[Array, Array]:
    """Rows, and multiples of some of them; the first is a multiple of row 0 by factors[0]."""
    chosen = np.concatenate([[0], rng.integers(0, len(rows), len(factors) - 1)])
    scale = np.array(factors)
    rows = np.round(rows, 6).astype(np.float32).astype(np.float64)
    bias = np.round(bias, 6).astype(np.float32).astype(np.float64)
    return (
        np.vstack([rows, scale[:, None] * rows[chosen]]),
        np.concatenate([bias, scale * bias[chosen]]),
    )


@pytest.mark.parametrize("kind", ["relu", "leaky_relu", "abs"])
@pytest.mark.parametrize("seed", range(4))
def test_the_merged_network_is_the_same_function(kind: str, seed: int) -> None:
    network = planted(seed, kind)
    smaller = merged(network).network
    assert smaller.neurons == 3 + 2
    x = np.random.default_rng(seed).normal(size=(200, 2)) * 10
    np.testing.assert_allclose(smaller(x), network(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["tanh", "softplus", "clip"])
def test_other_activations_have_duplicates_merged_and_nothing_else(kind: str) -> None:
    network = planted(0, kind, (1.0, -1.0, 2.0, 1.0))
    smaller = merged(network).network
    assert smaller.neurons == 3 + 2 + 2
    x = np.random.default_rng(0).normal(size=(200, 2))
    np.testing.assert_allclose(smaller(x), network(x), rtol=1e-12, atol=1e-12)


def test_what_is_not_exactly_a_multiple_is_not_merged() -> None:
    rows = np.array([[1.0, 2.0], [3.0, 6.0], [1.0, np.nextafter(2.0, 3.0)], [0.0, 0.0]])
    biases = [np.array([1.0, 3.1, 1.0, 1.0]), None]
    network = lipopt.load([rows, np.ones((1, 4))], biases=biases)
    assert merged(network).network is network


def test_neurons_with_other_parameters_are_not_merged() -> None:
    b = Builder()
    x = b.linear("first", b.input((1, 1)), np.array([[1.0], [1.0], [1.0]]), np.zeros(3))
    x = b.activation("prelu", x, "leaky_relu", {"alpha": np.array([0.25, 0.5, 0.25])})
    network = b.network(b.linear("last", x, np.ones((1, 3)), np.zeros(1)))
    (merge,) = merged(network).merges
    assert merge.neurons.tolist() == [2]
    assert merge.others.tolist() == [0]


def test_slopes_that_decide_each_other_do_not_vary_alone() -> None:
    """relu(x) - relu(-x) = x, and a sum of halves is a whole."""
    network = lipopt.load([[[1.0], [-1.0]], [[7.0, -7.0]]])
    assert lipopt.bound(network, method="sdp").upper == pytest.approx(7.0)
    halves = lipopt.load([[[1.0], [1.0]], [[100.0, -99.0]]])
    assert lipopt.bound(halves, method="sdp").upper == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("domain", [None, lipopt.Ball([0.3, -0.2], 0.5)])
def test_bounds_and_certificates(
    tmp_path: Path, norm: NormName, domain: lipopt.Ball | None
) -> None:
    """Sampled gradients <= the merged POP <= its bounds, which the checker verifies for the network itself."""
    for seed, kind in ((0, "relu"), (1, "leaky_relu")):
        network = planted(seed, kind)
        network.save(tmp_path / "n.safetensors")
        posed = pose(network, Question.about(network, norm=norm, domain=domain))
        optimum = enumerate_pop(posed.problem)
        assert optimum <= enumerate_pop(posed.as_given().problem) * (1 + 1e-9)
        for method in ("sdp", "path-sum", "product", "auto"):
            result = lipopt.bound(
                network, norm=norm, domain=domain, method=method, certify=True, samples=200
            )
            assert result.lower <= optimum * (1 + 1e-9)
            if "branch" not in (result.method, result.details.get("chosen")):
                assert optimum <= result.upper
            assert result.certificate is not None
            text = result.certificate.text
            assert ("merge " in text) == (method != "product")
            code, claim = verdict((tmp_path / "n.safetensors").read_bytes(), text.encode())
            assert code == 0, (method, text[:300])
            assert claim is not None
            assert claim.network.sha256 == network.hash


def test_what_the_checker_is_told_to_merge_must_be_a_multiple(tmp_path: Path) -> None:
    network = planted(0)
    network.save(tmp_path / "n.safetensors")
    data = (tmp_path / "n.safetensors").read_bytes()
    result = lipopt.bound(network, method="path-sum", certify=True)
    assert result.certificate is not None
    lines = result.certificate.text.split("\n")
    place = next(k for k, line in enumerate(lines) if line.startswith("into "))
    others = lines[place].split(" ")[1:]
    for wrong in range(3):
        changed = [str(wrong), *others[1:]]
        if changed != others:
            text = "\n".join([*lines[:place], f"into {' '.join(changed)}", *lines[place + 1 :]])
            assert verdict(data, text.encode())[0] == 1


def test_functions_that_are_not_defined_everywhere_are_left_alone() -> None:
    """The points at which inputs are compared may lie outside the domain of a square root."""
    network = lipopt.load([np.eye(2), np.ones((1, 2))], activation="sqrt")
    assert merged(network).network is network
