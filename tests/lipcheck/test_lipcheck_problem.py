"""The checker's own derivative problem: bounds on nodes with any relaxations, and problems with any choice of variables."""

from fractions import Fraction

import numpy as np
import pytest
from exact_matrices import dense_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import ARCHITECTURES, GLOBAL_KINDS, make_network
from strategies import SEEDS

from lipcheck.exact import Matrix
from lipcheck.inputs import Bounds
from lipcheck.intervals import LineSlopes, enclose, slope_ranges
from lipcheck.network import read_network
from lipcheck.problem import Kept, build_problem, path_sums
from lipcheck.rules import Norms, operator_norm
from lipopt.model.activations import KINDS

CASES = st.tuples(st.sampled_from(ARCHITECTURES), st.sampled_from(sorted(KINDS)), SEEDS)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("problem") / "network.safetensors"


def both(case, path):
    """The same network in both programs, a box, and a source of random numbers."""
    network = make_network(*case)
    network.save(path)
    rng = np.random.default_rng(case[2])
    center, radius = rng.normal(size=network.input_size), rng.random()
    return network, read_network(path.read_bytes()), center - radius, center + radius, rng


def fractions(values):
    return [Fraction(float(v)) for v in values]


def random_relaxations(network, rng):
    sizes = {i: node.size for i, node in network.activations.items()}
    return {
        i: LineSlopes(fractions(rng.uniform(-1, 2, size)), fractions(rng.uniform(-1, 2, size)))
        for i, size in sizes.items()
    }


@settings(max_examples=40)
@given(case=CASES, relaxed=st.booleans())
def test_values_of_nodes_lie_in_their_bounds(case, relaxed, path):
    """Whatever the slopes of the lines around the activations."""
    network, stored, lower, upper, rng = both(case, path)
    relaxations = random_relaxations(stored, rng) if relaxed else {}
    box = Bounds(fractions(lower), fractions(upper))
    bounds = enclose(stored, box, relaxations).bounds
    points = np.concatenate(
        [rng.uniform(lower, upper, (50, len(lower))), rng.choice([lower, upper], 10)]
    )
    for value, (low, high) in zip(network.node_values(points.T), bounds, strict=True):
        rounding = 1e-9 * (1 + np.abs(value))
        assert (np.array([float(v) for v in low])[:, None] - rounding <= value).all()
        assert (value <= np.array([float(v) for v in high])[:, None] + rounding).all()


@settings(max_examples=60)
@given(case=CASES, local=st.booleans())
def test_any_choice_of_variables_gives_a_bound(case, local, path):
    """Listed, centered or substituted at random: the bound holds for the Jacobians of all slopes in range."""
    _, stored, lower, upper, rng = both(case, path)
    local = local or case[1] not in GLOBAL_KINDS
    box = Bounds(fractions(lower), fractions(upper))
    ranges = slope_ranges(stored, enclose(stored, box, {}) if local else None)
    kept = {}
    for i, node in stored.activations.items():
        neurons = np.flatnonzero(rng.random(node.size) < rng.choice([0.0, 0.7])).tolist()
        kept[i] = Kept(neurons, centered=bool(rng.random() < 0.5))
    W = Matrix([{0: 1}], stored.nodes[-1].size)
    problem, slack = build_problem(stored, ranges, W, list(range(stored.nodes[0].size)), kept)
    bound = float(operator_norm(path_sums(problem), Norms("linf", "linf")) + slack)
    for _ in range(50):
        x = [rng.choice([-1.0, 1.0], stored.nodes[0].size)]
        for i, node in enumerate(stored.nodes[1:], start=1):
            if node.functions:
                low, high = np.array([[float(v) for v in ends] for ends in ranges[i]]).T
                x.append(np.where(rng.random(node.size) < 0.5, low, high) * x[node.source])
            else:
                x.append(
                    sum(
                        (dense(matrix) @ x[source] for source, matrix in node.inputs),
                        np.zeros(node.size),
                    )
                )
        assert abs(x[-1][0]) <= bound * (1 + 1e-9) + 1e-12


def dense(matrix):
    return np.array(dense_rows(matrix), dtype=object).astype(float) * 2.0**matrix.exponent
