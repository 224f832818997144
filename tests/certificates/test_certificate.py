"""Every bound of every method can be exported, and the checker verifies it."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from lipcheck_files import file_of, verdict
from networks import ARCHITECTURES, GLOBAL_KINDS, make_network, side_by_side
from strategies import Question, questions

import lipcheck.certificate
import lipcheck.network
from lipcheck.claim import Claim
from lipcheck.exact import Matrix
from lipcheck.factors import check_semidefinite
from lipcheck.lines import Lines
from lipopt import Ball, Box, LipoptError, bound, load
from lipopt.cells.cell import whole_domain
from lipopt.cells.examine import Effort, examine
from lipopt.cells.reduced import reduce
from lipopt.certificates.certificate import Certificate
from lipopt.certificates.factor import LEAST_SPARSE_ORDER, factor_lines
from lipopt.certificates.multipliers import SDP_LOSS
from lipopt.certificates.write import WRITERS, certify
from lipopt.methods.branch import Branch
from lipopt.methods.registry import find_method
from lipopt.model.activations import KINDS
from lipopt.model.network import Network
from lipopt.model.nodes import Affine
from lipopt.problem.proofs import Branching, NeuronSplit, OtherNorm, Proof, Tree
from lipopt.problem.question import Question as Asked
from lipopt.problem.question import pose
from lipopt.problem.task import Task, UpperBound
from lipopt.readers.builder import Builder

METHODS = ("path-sum", "product", "sdp", "lipopt")
BALL = Ball(np.full(4, 0.1), 0.3)


def export(network, method, *, norm="linf", output=None, margin=None, domain=None, directory):
    """The certificate of a bound, and the claim that the checker verified."""
    asked = Asked.about(network, norm=norm, output=output, margin=margin, domain=domain)
    posed = pose(network, asked)
    tasks = [Task(raw, problem) for raw, problem in posed.parts]
    bounds = [find_method(method)(task) for task in tasks]
    certificate = certify(posed, tasks, bounds)
    network.save(directory / "network.safetensors")
    certificate.save(directory / "certificate")
    stored = lipcheck.network.read_network((directory / "network.safetensors").read_bytes())
    return certificate, lipcheck.certificate.check(stored, (directory / "certificate").read_bytes())


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("certificates")


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=20)
@given(question=questions())
def test_every_method_on_every_network(method, question, directory):
    kwargs = {"norm": question.norm, "output": question.output, "domain": question.domain}
    if method == "lipopt" and question.norm == "l2":
        return  # it refuses
    certificate, claim = export(question.network, method, **kwargs, directory=directory)
    assert claim.bound == certificate.bound
    assert certificate.loss <= {"lipopt": 1e-6, "sdp": SDP_LOSS}.get(method, 1e-6)
    pairs_respect(question, claim)


def pairs_respect(question: Question, claim) -> None:
    """The theorem itself, at random pairs of points."""
    rng = np.random.default_rng(0)
    size = question.network.input_size
    low, high = (
        (-np.ones(size), np.ones(size))
        if claim.box is None
        else (np.array([float(v) for v in side]) for side in claim.box)
    )
    x = rng.uniform(low, high, (200, size))
    y = np.clip(x + 1e-3 * rng.standard_normal(x.shape) * (high - low), low, high)
    if claim.ball is not None:
        inside = is_inside(claim.ball, x) & is_inside(claim.ball, y)
        x = x[inside]
        y = y[inside]
    W = np.array(
        [[float(row.get(i, 0)) for i in range(question.network.output_size)] for row in claim.rows]
    )
    order = {"linf": np.inf, "l2": 2, "l1": 1}[claim.norm]
    change = np.linalg.norm((question.network(x) - question.network(y)) @ W.T, order, axis=1)
    assert (
        change <= float(claim.bound) * np.linalg.norm(x - y, order, axis=1) * (1 + 1e-6) + 1e-12
    ).all()


def is_inside(ball, x):
    """Which rows of x are in a ball of the checker."""
    center = np.array([float(value) for value in ball.center])
    radii = np.array([float(value) for value in ball.radii])
    lengths = np.linalg.norm((x - center) / radii, {"l2": 2, "l1": 1}[ball.norm], axis=1)
    return lengths <= 1


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("radius", [1e-4, 1.0])
def test_every_activation_in_a_ball(kind, radius, directory):
    network = make_network("dense", kind, 3)
    domain = Ball(np.array([0.2, -0.1, 0.4]), radius)
    certificate, claim = export(network, "sdp", domain=domain, directory=directory)
    assert claim.box is not None
    assert certificate.loss <= SDP_LOSS


@pytest.mark.parametrize("kind", ["tanh", "sigmoid", "gelu", "softplus", "elu", "mish"])
def test_saturated_networks(kind, directory):
    """Large weights: slopes of all sizes down to nothing, known to their last digits only, beside ordinary ones."""
    rng = np.random.default_rng(sum(kind.encode()))
    for size in (3.0, 10.0, 30.0):
        weights = [size * rng.standard_normal(shape) for shape in ((5, 3), (4, 5), (1, 4))]
        network = load(
            weights, activation=kind, biases=[size * rng.standard_normal(len(w)) for w in weights]
        )
        for method, radius in (("sdp", 0.01), ("sdp", 0.3), ("lipopt", 0.01), ("path-sum", 0.1)):
            certificate, _ = export(
                network, method, domain=Ball(rng.standard_normal(3), radius), directory=directory
            )
            before = certificate.bound / (1 + certificate.loss)
            assert certificate.bound - before <= SDP_LOSS * before + 1e-25


def narrow(seed):
    """A network with large weights, and a ball in which slopes vary little, from 1 to 1e-40."""
    rng, b = np.random.default_rng(seed), Builder()
    x = b.input((1, int(rng.integers(1, 5))))
    size, scale = x.shape[-1], 10 ** rng.uniform(-0.5, 1.7)
    for _ in range(int(rng.integers(1, 4))):
        width = int(rng.integers(1, 6))
        weights, bias = (
            scale * rng.normal(size=(width, x.shape[-1])),
            scale * rng.normal(size=width),
        )
        x = b.activation("tanh", b.linear("dense", x, weights, bias), "tanh", {})
    network = b.network(b.linear("dense", x, rng.normal(size=(2, x.shape[-1])), rng.normal(size=2)))
    return network, Ball(rng.normal(size=size), 10 ** rng.uniform(-3, 0))


@pytest.mark.parametrize("seed", [1413, 3555, *range(20)])
def test_narrow_slopes(seed, directory):
    """The two programs enclose narrow slope ranges differently."""
    network, domain = narrow(seed)
    for norm in ("linf", "l2", "l1"):
        certificate, claim = export(
            network, "sdp", norm=norm, output="all", domain=domain, directory=directory
        )
        assert certificate.loss <= SDP_LOSS or claim.bound < 1e-25


def magnified(network, factor):
    """The network with all weights and biases times a factor: saturated activations, or nearly linear ones."""
    nodes = [
        replace(node, matrices=tuple(factor * m for m in node.matrices), bias=factor * node.bias)
        if isinstance(node, Affine)
        else node
        for node in network.nodes
    ]
    return Network(tuple(nodes))


def written(seed, architecture, directory):
    """What the checker says of a certificate that `bound` writes for a random question; None if the method refuses."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(GLOBAL_KINDS))
    network = make_network(architecture, kind, seed)
    if seed % 2:
        network = magnified(network, 10 ** np.random.default_rng(seed + 7).uniform(-1.5, 1.5))
    center = rng.normal(size=network.input_size)
    width = 10 ** rng.uniform(-4, 1)
    domains = [
        None,
        Ball(center, 0.0),
        Ball(center, width),
        Ball(center, width),
        Box(center - width, center + width / 3),
    ]
    options: dict[str, Any] = {
        "norm": str(rng.choice(["linf", "l2", "l1"])),
        "output": [0, 1, "all"][rng.integers(3)],
        "domain": domains[rng.integers(len(domains))],
        "method": str(rng.choice(["auto", "sdp", "path-sum", "product", "lipopt"])),
    }
    try:
        result = bound(network, **options, samples=10, certify=True)
    except LipoptError:
        return None
    network.save(directory / "network.safetensors")
    assert result.certificate is not None
    result.certificate.save(directory / "certificate")
    return verdict(
        (directory / "network.safetensors").read_bytes(), (directory / "certificate").read_bytes()
    )[0]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_written_verifies(architecture, directory):
    verdicts = [written(seed, architecture, directory) for seed in range(6)]
    assert set(verdicts) <= {0, None}
    assert 0 in verdicts


def test_a_constant_that_is_next_to_nothing(directory):
    """1e-31, by the curvature of boxes: what rounds in lipcheck is not relative to that."""
    assert written(151, "residual", directory) == 0


@pytest.mark.nightly
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_written_verifies_in_many_cases(architecture, directory):
    wrong = [seed for seed in range(400) if written(seed, architecture, directory) not in (0, None)]
    assert wrong == []


@pytest.mark.parametrize("kind", ["tanh", "gelu", "softplus", "relu"])
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_two_affine_nodes_before_the_first_activation(kind, norm, directory):
    """Their intervals are cut by backward bounds on both sides, as the specification says."""
    for seed in range(4):
        network = make_network("affine first", kind, seed)
        domain = Ball(np.random.default_rng(seed).normal(size=3), 0.1)
        for method in ("sdp", "path-sum"):
            certificate, _ = export(
                network, method, norm=norm, output="all", domain=domain, directory=directory
            )
            assert certificate.loss <= SDP_LOSS


def test_slopes_that_are_known_to_a_few_digits_only(directory):
    """Mish so far out that its slopes are a few steps of the grid on which the two programs round them."""
    assert written(1109, "input skip", directory) == 0


def test_a_neuron_that_is_always_zero_before_two_activations():
    """Its interval is a point to the checker, and as wide as what underflows to lipopt."""
    b = Builder()
    x = b.linear("dense", b.input((1, 2)), np.array([[0.0, 0.0], [1.0, 2.0]]), np.zeros(2))
    x = b.activation("second", b.activation("first", x, "relu", {}), "relu", {})
    network = b.network(b.linear("last", x, np.ones((1, 2)), np.zeros(1)))
    verified_branch(network, cells=20, domain=Ball(np.zeros(2), 1.0))


def test_products_of_norms_where_intervals_were_refined(directory):
    """The leaf of a tree has no rule `product`."""
    assert written(175, "wide", directory) == 0


def test_products_of_norms_that_are_path_sums_up_to_rounding(directory):
    """The rule `product` is for l2 alone."""
    assert written(209, "sparse", directory) == 0


def test_a_point(directory):
    """A ball of radius 0: slopes of a smooth activation are known exactly to the checker, to lipopt up to rounding."""
    network = make_network("wide", "hard_swish", 584)
    center = np.random.default_rng(584).normal(size=12)
    for method in METHODS:
        for norm in ("linf", "l1"):
            export(
                network,
                method,
                norm=norm,
                output="all",
                domain=Ball(center, 0.0),
                directory=directory,
            )


def test_margin_is_exact(directory):
    _, claim = export(make_network("dense", "relu", 5), "sdp", margin=(1, 0), directory=directory)
    assert claim.rows == [{0: -1, 1: 1}]


def test_the_paper_s_sdp_is_proved_by_the_multipliers_of_the_other(directory):
    network = load([np.arange(6.0).reshape(3, 2) - 2.5, np.array([[1.0, -2.0, 1.5]])])
    certificate, _ = export(network, "shor", directory=directory)
    assert certificate.loss <= 2 * SDP_LOSS


@pytest.mark.parametrize("seed", [2, 4, 6])
def test_the_paper_s_sdp_where_the_path_sum_is_as_good(seed, directory):
    rng = np.random.default_rng(seed)
    network = load([7 * rng.normal(size=(2, 3)), 7 * rng.normal(size=(1, 2))], activation="elu")
    certificate, _ = export(
        network, "shor", norm="l2", domain=Ball(rng.normal(size=3), 0.005), directory=directory
    )
    assert certificate.loss <= SDP_LOSS


@pytest.mark.parametrize("seed", range(10, 30))
def test_spectral_norms(seed, directory):
    rng = np.random.default_rng(seed)
    network = load([rng.normal(size=(5, 4)), rng.normal(size=(4, 5))])
    certificate, _ = export(network, "product", norm="l2", output="all", directory=directory)
    assert certificate.loss <= 1e-6


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_lip_sdp_is_proved_too(norm, directory):
    _, claim = export(
        make_network("dense", "relu", 1), "lip-sdp", norm=norm, output="all", directory=directory
    )
    assert claim.norm == norm


@pytest.mark.parametrize("norm", ["linf", "l1"])
@pytest.mark.parametrize("method", ["sdp", "lip-sdp"])
def test_convolutions(method, norm, directory):
    """Under l1, an input does not reach all neurons."""
    for seed in range(3):
        certificate, _ = export(
            make_network("convolution", "relu", seed), method, norm=norm, directory=directory
        )
        assert certificate.loss <= SDP_LOSS


def test_neurons_that_drop_out_of_the_checker_s_problem(directory):
    """A pre-activation that is bounded by a tiny positive number: the rounding of the two programs may disagree on its sign."""
    weights = [np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([[1.0, 1.0]])]
    for bias in (2.0, np.nextafter(2.0, 3.0), np.nextafter(2.0, 1.0)):
        network = load(weights, biases=[np.array([bias, 0.0]), np.zeros(1)])
        for method in METHODS:
            export(network, method, domain=Ball(np.zeros(2), 1.0), directory=directory)


def test_huge_and_tiny_weights(directory):
    rng = np.random.default_rng(0)
    for scale in (1e-30, 1e30):
        network = load([scale * rng.standard_normal((4, 3)), rng.standard_normal((1, 4)) / scale])
        for method in METHODS:
            export(network, method, directory=directory)


def test_a_constant_network(directory):
    network = load([np.zeros((2, 3)), np.ones((1, 2))])
    for method in METHODS:
        assert export(network, method, directory=directory)[1].bound < 1e-300


def test_one_input_at_a_time_under_l1(directory):
    network = make_network("residual", "relu", 2)
    for method in ("sdp", "lipopt"):
        for output in (0, "all"):
            export(network, method, norm="l1", output=output, directory=directory)


def test_neurons_that_cancel(directory):
    """max(a, b) = (a + b) / 2 + |a - b| / 2, and where a > b is known, what b depends on drops out of the problem."""
    center = np.array(
        [
            1.72816287,
            1.02697613,
            1.10840589,
            -0.97119155,
            -0.60389629,
            -0.75932602,
            -1.70686525,
            -0.41456198,
        ]
    )
    for method in METHODS:
        certificate, _ = export(
            make_network("max-pool", "abs", 81),
            method,
            domain=Ball(center, 0.5),
            directory=directory,
        )
        assert certificate.loss <= 1e-6


def test_an_output_that_does_not_depend_on_the_input(directory):
    network = load(
        [np.array([[0.3, 0.7], [0.1, 0.2]]), np.array([[1.1, 0.0], [0.0, 0.0]])],
        biases=[np.array([-9.0, 9.0]), np.zeros(2)],
    )
    for method in METHODS:
        export(network, method, output="all", domain=Ball(np.zeros(2), 0.1), directory=directory)


def test_every_kind_of_proof_has_a_writer():
    # A tree is not a part, but a whole certificate. A proof in another norm is written as one there.
    assert {*WRITERS, Tree, OtherNorm} == set(get_args(Proof))


def verified_branch(network: Network, cells: int, **question: Any) -> None:
    """Run branch and bound for some cells, and let the checker verify what it says."""
    method = Branch(cells=cells)
    result = bound(network, method=method, samples=100, certify=True, **question)
    assert result.lower <= result.upper
    assert result.certificate is not None
    assert float(verify(network, result.certificate).bound) == result.upper


def verify(network: Network, certificate: Certificate) -> Claim:
    """The claim that the checker verifies."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.safetensors"
        network.save(path)
        stored = lipcheck.network.read_network(path.read_bytes())
    return lipcheck.certificate.check(stored, certificate.text.encode())


@settings(max_examples=25)
@given(questions())
def test_trees_verify(question: Question) -> None:
    """Certificates of branch and bound, for all activations, norms and domains."""
    verified_branch(
        question.network,
        cells=10,
        norm=question.norm,
        output=question.output,
        domain=question.domain,
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["relu", "tanh", "elu", "hard_swish"])
def test_neurons_that_the_output_does_not_read_do_not_count(kind: str, seed: int) -> None:
    """Of two networks beside each other, an output of one: as if the other were not there."""
    one = make_network("dense", kind, seed)
    both = side_by_side(one, make_network("dense", kind, seed + 1))
    center = 0.1 * np.arange(both.input_size)
    method = Branch(cells=40)
    alone = bound(one, domain=Ball(center[::2], 0.5), method=method, samples=100)
    beside = bound(both, domain=Ball(center, 0.5), method=method, samples=100, certify=True)
    assert beside.details["neurons"] == alone.details["neurons"]
    assert beside.lower <= alone.upper * (1 + 1e-9)
    assert alone.lower <= beside.upper * (1 + 1e-9)
    assert beside.certificate is not None
    verify(both, beside.certificate)


@pytest.mark.parametrize("seed", range(10))
def test_slopes_are_rounded_relative_to_those_of_linear_neurons(seed: int) -> None:
    """relu(x) has a line of slope .0005 at most above it; next to relu(z), which is linear in one of
    the cells, that slope is written with few digits."""
    rng = np.random.default_rng(seed)
    first = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    sums = rng.uniform([-2.0, -1.0, 0.5], [-1.0, -0.5, 1.0], (40, 3))
    offsets = 0.1 * rng.standard_normal(40) - 3 * sums[:, 2]
    weights = [first, sums, rng.standard_normal((1, 40))]
    network = load(weights, biases=[[0.0, 0.0, 3.0], offsets, [0.0]])
    domain = Box([-1.0, -0.5], [rng.uniform(1e-5, 5e-4), 0.5])
    posed = pose(network, Asked.about(network, domain=domain))
    reduced = reduce(posed)
    whole = whole_domain(reduced, posed.intervals)
    split = NeuronSplit(1, 0.0)
    parts = [examine(reduced, whole.child(split, sign), Effort.USUAL) for sign in (-1, 1)]
    root = Branching((), np.empty(0, int))
    root.divide(split, [Branching(part.cuts, part.fixed) for part in parts])
    tasks = [Task(raw, problem) for raw, problem in posed.parts]
    tree = Tree(reduced.nodes, reduced.places, reduced.left_out, root)
    found = UpperBound(max(part.bound for part in parts), proof=tree)
    verify(network, certify(posed, tasks, [found]))


@pytest.mark.parametrize("seed", [1474, 1652, 1804])
def test_saturated_neurons_are_bounded_by_their_curvature(seed: int) -> None:
    """Constants of 1e-300 in floats, where lipcheck has 1e-20."""
    _tree_verifies(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2000))
def test_two_thousand_trees_verify(seed: int) -> None:
    """Random small networks: no bound below an attained slope, no certificate rejected."""
    _tree_verifies(seed)


def _tree_verifies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(GLOBAL_KINDS))
    network = make_network(str(rng.choice(ARCHITECTURES)), kind, seed)
    center = rng.normal(size=network.input_size)
    domains = [None, Ball(center, 0.01), Ball(center, 0.5), Ball(center, 3.0)]
    domains += [Ball(center, 0.5, norm="l2"), Ball(center, 0.5, norm="l1")]
    verified_branch(
        network,
        cells=60,
        norm=str(rng.choice(["linf", "l2", "l1"])),
        output=[0, 1, "all"][rng.integers(3)],
        domain=domains[rng.integers(6)],
    )


class _Cancelling(torch.nn.Module):
    """A product with a factor that is 0, and a term that is next to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(2, 3)
        self.factor = torch.nn.Linear(2, 3)
        self.last = torch.nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = torch.tanh(self.first(x))
        product = values * torch.relu(self.factor(x) - 3)
        return self.last(product) + 1e-9 * values[..., :1]


def test_coefficients_of_an_lp_that_cancel(directory):
    """The constant is far below the coefficients of its polynomial, whose rounding counts then."""
    torch.manual_seed(0)
    network = load(_Cancelling().double(), input_shape=(2,))
    ball = Ball(np.array([0.1, 0.2]), 0.0)
    certificate, _ = export(network, "lipopt", domain=ball, directory=directory)
    assert certificate.bound < 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_sparse_factors(seed):
    """Of a sparse matrix: written in an order of elimination, and none if it is not definite."""
    rng = np.random.default_rng(seed)
    order = LEAST_SPARSE_ORDER
    integers = sp.random_array((order, order), density=2 / order, rng=rng)
    integers.data = rng.integers(-9, 10, len(integers.data)).astype(float)
    S = integers @ integers.T + sp.diags_array(rng.integers(1, 9, order).astype(float))
    written = factor_lines(sp.csr_array(S), np.zeros(order))
    assert written is not None
    head, elimination, *rows = written
    assert elimination.startswith("order ")
    assert sum(len(row.split()) - 1 for row in rows) < 0.1 * order**2
    exact: list[dict[int, int]] = [{} for _ in range(order)]
    for i, j, value in zip(*sp.find(S), strict=True):
        exact[i][j] = int(value)
    lines = Lines("\n".join([head, elimination, *rows, ""]).encode())
    check_semidefinite(lines, Matrix(exact, order))
    assert factor_lines(sp.csr_array(S - 30 * sp.eye_array(order)), np.zeros(order)) is None


@pytest.mark.parametrize("method", ["auto", "path-sum", "sdp", "branch"])
@pytest.mark.parametrize("kind", ["relu", "tanh"])
def test_without_time_for_all_intervals_plain_ones_are_certified(method: str, kind: str) -> None:
    """A checker would find better intervals than those of a pass that was cut off in the middle."""
    network = _four_layers(kind)
    result = bound(network, domain=BALL, method=method, time_limit=1e-6, certify=True, samples=20)
    assert result.certificate is not None
    assert "\nrelaxations none\n" in result.certificate.text
    code, claim = verdict(file_of(network), result.certificate.text.encode())
    assert (code, claim is not None and claim.bound == result.upper) == (0, True)


def test_layers_with_too_much_work_for_backward_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit on time, too, a certificate starts from intervals that a checker finds."""
    network = _four_layers("tanh")
    monkeypatch.setattr(
        "lipopt.problem.intervals.MAX_WORK", 2 * 8 * 100
    )  # the third layer has more
    result = bound(network, domain=BALL, method="sdp", certify=True, samples=20)
    assert result.certificate is not None
    code, _ = verdict(file_of(network), result.certificate.text.encode())
    assert code == 0


def _four_layers(kind: str) -> Network:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape) for shape in ((8, 4), (8, 8), (8, 8), (1, 8))]
    return load(weights, activation=kind)
