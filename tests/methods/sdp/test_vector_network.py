import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from conic import shor_value
from exact import is_exactly_semidefinite
from networks import SLOPES, gaussian_weights, make_network, random_problem

from lipopt import Ball, Box, LipoptError, bound, load
from lipopt.lower.pop import enumerate_pop, free_neurons
from lipopt.methods.baselines import path_sum_bound, path_sum_rows
from lipopt.methods.registry import find_method
from lipopt.methods.sdp.backend import Operator, backend, enough_memory
from lipopt.methods.sdp.batches import split_into_batches
from lipopt.methods.sdp.dual import Dual
from lipopt.methods.sdp.lip_sdp import LipSDP
from lipopt.methods.sdp.method import SDP
from lipopt.methods.sdp.vector_network import VectorLayer, VectorNetwork
from lipopt.model.norms import Norm, NormName
from lipopt.problem.derivative import DerivativeProblem, Layer
from lipopt.problem.presolve import drop_unused, one_input, presolve, slopes_from_zero
from lipopt.problem.proofs import Multipliers
from lipopt.problem.question import Question, pose
from lipopt.problem.task import Budget, Memory, Task


def solve(problem, **settings):
    return SDP(**settings)(Task(problem, problem))


def check(problem, **settings):
    """The conic solver's value, with all inequalities around it."""
    found = solve(problem, **settings)
    reference = shor_value(presolve(problem))
    assert found.value == pytest.approx(reference, rel=1e-4)
    assert found.details["primal"] <= reference * (1 + 1e-4)
    assert found.pop_lower <= found.value
    if free_neurons(problem) <= 14:
        exact = enumerate_pop(problem)
        assert found.pop_lower <= exact * (1 + 1e-9)
        assert exact <= found.value
    return found


@pytest.mark.parametrize("slopes", SLOPES)
@pytest.mark.parametrize("depth", [2, 3, 4, 5])
@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize(
    ("norm", "outputs"), [("linf", 1), ("l2", 1), ("l2", 3), ("l1", 1), ("l1", 3)]
)
def test_equals_a_conic_solver(norm, outputs, skips, depth, slopes):
    problem = random_problem(
        depth, norm=norm, depth=depth, slopes=slopes, skips=skips, outputs=outputs
    )
    check(problem)


@pytest.mark.parametrize("slopes", SLOPES)
@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize(("norm", "outputs"), [("linf", 1), ("l2", 1), ("l2", 2)])
def test_more_inputs_than_neurons(norm, outputs, depth, slopes):
    """They are eliminated first then; slopes are made to begin at 0 for that."""
    problem = random_problem(
        depth,
        norm=norm,
        depth=depth,
        slopes=slopes,
        skips=depth > 2,
        outputs=outputs,
        widest=4,
        inputs=16,
    )
    shifted = slopes_from_zero(problem)
    assert Dual.of([shifted], backend(None)).wide
    found = check(problem)
    assert is_exactly_semidefinite(shifted, found.proof)
    assert check(problem, device="cpu").value == pytest.approx(found.value, rel=2e-4)


@pytest.mark.parametrize("slopes", SLOPES)
def test_slopes_from_zero(slopes):
    problem = random_problem(6, depth=4, slopes=slopes, skips=True)
    shifted = slopes_from_zero(problem)
    assert all((layer.lower == 0).all() for layer in shifted.layers)
    assert enumerate_pop(shifted) == pytest.approx(enumerate_pop(problem), rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_sandwich(seed):
    norm = ("linf", "l2", "l1")[seed % 3]
    problem = random_problem(
        seed,
        norm=norm,
        depth=2 + seed % 4,
        slopes=list(SLOPES)[seed % 4],
        skips=seed % 2 == 0,
        widest=4,
    )
    found = solve(problem)
    assert found.pop_lower <= enumerate_pop(problem) * (1 + 1e-9) <= found.value * (1 + 2e-9)
    assert found.value <= found.details["primal"] * (1 + 2e-4)


PUBLISHED = [2.8332, 2.3675, 2.5377, 2.7098, 2.7730]


@pytest.mark.parametrize(("seed", "value"), list(enumerate(PUBLISHED)))
def test_published_figures_of_one_hidden_layer(seed, value):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    first, second = torch.nn.Linear(80, 80), torch.nn.Linear(80, 1)
    i = np.arange(80)
    w = first.weight.detach().double().numpy() * (np.abs(i[:, None] - i) <= 39)
    result = bound([w, second.weight.detach().double().numpy()], method="sdp", samples=10)
    assert round(result.upper, 4) == value


@pytest.mark.parametrize(
    ("sizes", "radius", "value"), [((80, 80, 80, 1), 0.1, 1.8887), ((80, 80, 80, 1), 1.0, 2.5758)]
)
def test_local_figures(sizes, radius, value):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
    weights = [layer.weight.detach().double().numpy() for layer in layers]
    network = load(weights, biases=[layer.bias.detach().double().numpy() for layer in layers])
    torch.manual_seed(1000)
    center = torch.randn(sizes[0]).double().numpy()
    result = bound(network, domain=Ball(center, radius), method="sdp", samples=10)
    assert result.upper == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("depth", [5, 10, 20])
def test_depth(depth):
    result = bound(gaussian_weights([50] * (depth + 1) + [1]), method="sdp", samples=10)
    assert result.upper <= result.details["primal"] * (1 + 1.1e-4)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_bound_of_an_unconverged_search_holds(norm):
    problem = random_problem(3, norm=norm, depth=4, slopes="leaky", widest=5)
    found = SDP(gap=1e-12)(Task(problem, problem, Budget(deadline=time.monotonic() - 1)))
    assert found.status == "time limit"
    assert enumerate_pop(problem) <= found.value <= path_sum_bound(problem)


def test_rigor_costs_little():
    problem = random_problem(5, depth=3, widest=30)
    found = solve(problem, gap=1e-9)
    assert found.value <= found.details["primal"] * (1 + 1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_certificate_is_what_it_says(norm):
    problem = random_problem(7, norm=norm, depth=4, slopes="signed", skips=True)
    found = solve(problem)
    certificate = found.proof
    assert isinstance(certificate, Multipliers)
    assert certificate.delta.shape == ((problem.inputs,) if norm == "linf" else (1,))
    assert [t.shape for t in certificate.tau] == [(n,) for n in problem.sizes[1:]]
    assert found.value == pytest.approx(certificate.mu + certificate.delta.sum(), rel=1e-12)
    dual = Dual.of([problem], backend(None))
    assert dual.are_proved([certificate])[0]
    for factor in (0.999, np.nan, -1.0):
        assert not dual.are_proved(
            [Multipliers(certificate.mu, factor * certificate.delta, certificate.tau)]
        )[0]


@pytest.mark.parametrize(
    ("norm", "outputs", "slopes"), [("linf", 1, "relu"), ("linf", 1, "signed"), ("l2", 2, "leaky")]
)
def test_what_is_proved_is_exactly_so(norm, outputs, slopes):
    problem = random_problem(
        13, norm=norm, depth=3, slopes=slopes, skips=True, outputs=outputs, widest=4
    )
    dual, certificate = Dual.of([problem], backend(None)), solve(problem, gap=1e-9).proof
    assert is_exactly_semidefinite(problem, certificate)
    decisions = set()
    for factor in (1 - 1e-3, 1 - 1e-8, 1 - 1e-10, 1 - 1e-12, 1 - 1e-14, 1 + 1e-6):
        changed = Multipliers(certificate.mu, factor * certificate.delta, certificate.tau)
        exact, proved = is_exactly_semidefinite(problem, changed), dual.are_proved([changed])[0]
        assert exact or not proved
        decisions.add((exact, proved))
    assert {(True, True), (False, False)} <= decisions


def test_what_is_proved_for_l1_holds_for_every_input():
    problem = random_problem(
        13, norm="l1", depth=3, slopes="signed", skips=True, outputs=2, widest=4
    )
    proofs = solve(problem).proof.proofs
    assert sorted(proofs) == list(range(problem.inputs))
    for j, proof in proofs.items():
        assert is_exactly_semidefinite(one_input(problem, j), proof)


def test_proof_is_needed_for_every_entry():
    problem = random_problem(8, depth=3)
    certificate = solve(problem, gap=1e-9).proof
    dual = Dual.of([problem], backend(None))
    for layer in range(2):
        tau = [t.copy() for t in certificate.tau]
        tau[layer] *= 0.9
        assert not dual.are_proved([Multipliers(certificate.mu, certificate.delta, tau)])[0]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_gradient(norm):
    problem = random_problem(
        9, norm=norm, depth=4, slopes="signed", skips=True, outputs=2, widest=9
    )
    network = VectorNetwork.of([problem], backend(None))
    x = network.start(3, seed=0)
    _, gradient = network._loss(x)
    direction = np.random.default_rng(1).standard_normal(x.shape)
    step = 1e-6
    numeric = (network._loss(x + step * direction)[0] - network._loss(x - step * direction)[0]) / (
        2 * step
    )
    assert abs(numeric) > 0.01
    assert gradient @ direction == pytest.approx(numeric, rel=1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_gradients_reach_the_weights(norm):
    """The constructor takes tensors, and a value can be differentiated in them."""
    torch = pytest.importorskip("torch")
    arrays = backend("cpu")
    weights = gaussian_weights([4, 5, 1])
    columns = np.array([1]) if norm == "l1" else None

    def value(first):
        blocks = [{0: Operator.of_dense(first)}, {1: Operator.of_dense(torch.tensor(weights[1]))}]
        half = arrays.array(np.full((5, 1), 0.5))
        layer = VectorLayer(blocks[0], half[..., None], half)
        network = VectorNetwork(Norm(norm), 4, [layer], blocks[1], arrays, columns=columns)
        return network.evaluate(network.start(3, 0)).values.sum(), network

    first = torch.tensor(weights[0], requires_grad=True)
    reached, network = value(first)
    reached.backward()
    problem = DerivativeProblem(
        norm,
        4,
        (Layer({0: weights[0]}, np.zeros(5), np.ones(5), 1, np.arange(5)),),
        {1: weights[1]},
    )
    same = VectorNetwork.of([problem], arrays, columns)
    assert same.evaluate(network.start(3, 0)).values.sum().item() == reached.item()
    direction = torch.from_numpy(np.random.default_rng(1).standard_normal((5, 4)))
    step = 1e-6
    with torch.no_grad():
        numeric = (value(first + step * direction)[0] - value(first - step * direction)[0]) / (
            2 * step
        )
    assert (first.grad * direction).sum().item() == pytest.approx(numeric.item(), rel=1e-6)


def test_scaling_a_network_scales_its_bound():
    weights = gaussian_weights([6, 5, 4, 1])
    small = bound([weights[0] * 2.0**-40, weights[1], weights[2]], method="sdp", samples=10)
    large = bound([weights[0], weights[1] * 2.0**40, weights[2]], method="sdp", samples=10)
    assert large.upper == pytest.approx(small.upper * 2.0**80, rel=1e-4)


def test_no_hidden_neuron_left_is_exact():
    matrix = np.array([[3.0, -4.0]])
    exact: dict[NormName, float] = {"linf": 7.0, "l2": 5.0, "l1": 4.0}
    for norm, value in exact.items():
        result = bound([matrix], norm=norm, method="sdp", samples=10)
        assert value <= result.upper <= value * (1 + 1e-12)
    spectral = bound([np.diag([3.0, 1.0])], norm="l2", output="all", method="sdp", samples=10)
    assert 3.0 <= spectral.upper <= 3.0 * (1 + 1e-8)


def test_zero_output_weights():
    assert bound([np.ones((3, 2)), np.zeros((1, 3))], method="sdp", samples=10).upper == 0
    for norm in ("l2", "l1"):
        assert (
            bound(
                [np.ones((3, 2)), np.zeros((2, 3))],
                norm=norm,
                output="all",
                method="sdp",
                samples=10,
            ).upper
            == 0
        )


def test_known_slopes_that_stayed():
    layers = (
        Layer({0: np.array([[1.0, 2.0], [3.0, -1.0]])}, np.ones(2), np.ones(2), 1, np.arange(2)),
        Layer({1: np.array([[1.0, -1.0]])}, np.zeros(1), np.ones(1), 2, np.arange(1)),
    )
    problem = DerivativeProblem(Norm.LINF, 2, layers, {2: np.array([[2.0]])})
    found = solve(problem)
    assert 10.0 <= found.value <= 10.0 * (1 + 2e-4)  # |(1 - 3), (2 + 1)| = 5, times 2


def test_sparse_and_dense_blocks_agree():
    weights = gaussian_weights([8, 7, 6, 1], seed=4)
    dense = bound(weights, method="sdp", samples=10).upper
    layers = tuple(
        Layer({i: sp.csr_array(w)}, np.zeros(len(w)), np.ones(len(w)), i + 1, np.arange(len(w)))
        for i, w in enumerate(weights[:2])
    )
    problem = DerivativeProblem(Norm.LINF, 8, layers, {2: sp.csr_array(weights[2])})
    assert solve(problem).value == pytest.approx(dense, rel=1e-4)


def test_vectors_that_stand_still():
    """The last steps of this ascent are so short that squares of changes underflow."""
    rng = np.random.default_rng(674233)
    center = rng.normal(size=3)
    found = bound(
        make_network("dense", "relu", 674232),
        norm="l1",
        domain=Box(center - 0.1, center + rng.random()),
        method="sdp",
    )
    assert found.pop_lower is not None
    assert found.pop_lower <= found.upper <= found.pop_lower * (1 + 1e-4)


def test_slack_is_added():
    problem = random_problem(1)
    assert solve(replace(problem, slack=1.0)).value >= 1 + enumerate_pop(problem)


def test_rank_one_is_a_valid_bound_too():
    problem = random_problem(11, depth=3)
    assert enumerate_pop(problem) <= solve(problem, rank=1).value


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_the_rank_is_raised_where_the_value_grows(norm):
    """From rank 1, every raise leads up from where the ascent had ended, until there is no way up: at the optimum."""
    problem = random_problem(
        3, norm=norm, depth=4, slopes="leaky", outputs=1 if norm == "linf" else 3, widest=20
    )
    network = VectorNetwork.of([problem], backend(None), np.arange(2) if norm == "l1" else None)

    def ascended(x):
        x, _ = network.ascend(x, 300, lambda: False)
        return x, float(network.evaluate(x).values.sum())

    x, value = ascended(network.power(network.start(1, 0), 30))
    raises, rank = 0, 1
    while True:
        x, added = network.widen(x, rank, 0)
        if not added:
            break
        before, raises, rank = value, raises + 1, rank + added
        x, value = ascended(x)
        assert value > before * (1 + 1e-7)
    assert raises > 0
    assert value == pytest.approx(ascended(network.power(network.start(30, 0), 30))[1], rel=1e-6)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_starting_from_rank_one_closes_the_gap(norm, device, monkeypatch):
    monkeypatch.setattr("lipopt.methods.sdp.search.MIN_FIRST_RANK", 1)
    monkeypatch.setattr("lipopt.methods.sdp.search.FIRST_RANK_DIVISOR", 1000)
    problem = random_problem(
        3, norm=norm, depth=4, slopes="leaky", outputs=1 if norm == "linf" else 3, widest=20
    )
    assert check(problem, device=device).details["rank"] > 1


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_torch_gives_the_same(norm):
    pytest.importorskip("torch")
    problem = random_problem(12, norm=norm, depth=4, slopes="leaky", skips=True)
    assert solve(problem, device="cpu").value == pytest.approx(solve(problem).value, rel=2e-4)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_many_problems_together_give_what_each_gives_alone(norm, device):
    """Balls of all sizes: in some a whole layer is linear, in the smallest all are."""
    rng = np.random.default_rng(5)
    sizes = (3, 5, 4, 3, 2)
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(sizes)]
    network = load(weights, biases=[rng.normal(size=b) for b in sizes[1:]])
    points = rng.normal(size=(4, 3))
    problems = []
    for point, radius in [(point, radius) for point in points for radius in (1e-9, 0.05, 0.3, 2.0)]:
        asked = Question.about(network, norm=norm, output="all", domain=Ball(point, radius))
        problems += [problem for _, problem in pose(network, asked).rows]
    assert len({tuple(layer.node for layer in problem.layers) for problem in problems}) > 3
    together = SDP(device=device).together([Task(problem, problem) for problem in problems])
    for problem, found in zip(problems, together, strict=True):
        assert found.value == pytest.approx(solve(problem).value, rel=2e-4)
        assert found.pop_lower is None or found.pop_lower <= enumerate_pop(problem) * (
            1 + 1e-9
        ) <= found.value * (1 + 2e-9)
        if norm != "l1" and isinstance(found.proof, Multipliers):
            assert [tau.shape for tau in found.proof.tau] == [
                (layer.size,) for layer in problem.layers
            ]
            assert is_exactly_semidefinite(problem, found.proof)


def ball_problem(radius, norm="linf"):
    """One output of a network, in a ball around 0."""
    rng = np.random.default_rng(3)
    sizes = (4, 7, 6, 1)
    network = load(
        [rng.normal(size=(b, a)) for a, b in pairwise(sizes)],
        activation="tanh",
        biases=[rng.normal(size=b) for b in sizes[1:]],
    )
    asked = Question.about(network, norm=norm, domain=Ball(np.zeros(4), radius))
    return pose(network, asked).problem


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_starting_from_the_vectors_of_another_radius(norm):
    memory = Memory()
    for radius in (0.5, 0.1, 0.12, 0.01, 2.0):
        problem = ball_problem(radius, norm)
        found = SDP()(Task(problem, problem, memory=memory))
        assert found.value == pytest.approx(solve(problem).value, rel=2e-4)
        assert found.value >= enumerate_pop(problem)
        if norm == "l1":
            assert memory.vectors is None
        else:
            assert isinstance(found.proof, Multipliers)
            assert is_exactly_semidefinite(problem, found.proof)


def test_known_vectors_belong_to_neurons():
    """Those of the same neuron are there, up to noise, in the first coordinates; the others are random."""
    large = ball_problem(0.5)
    layer = large.layers[0]
    few = replace(layer, neurons=layer.neurons + 1)  # as if the first neuron were another one
    small = replace(large, layers=(few, *large.layers[1:]))
    before, after = (
        VectorNetwork.of([large], backend(None)),
        VectorNetwork.of([small], backend(None)),
    )
    state = before.evaluate(before.power(before.start(3, 0), 20))
    known = before.found(state)
    units = after.evaluate(after.start(5, 1, known)).units
    same = units[0][:, 0, :3] * known[0][1]
    assert (same.sum(axis=1) > 0.9).all()
    shifted = (units[1][:-1, 0, :3] * known[layer.node][1][1:]).sum(
        axis=1
    )  # neuron k is at place k - 1 now
    assert (shifted > 0.9).all()
    assert abs(units[1][-1, 0, 3:]).max() > 0.1  # it was not known


def test_power_iterations_stop_where_the_value_does(monkeypatch):
    network = VectorNetwork.of([ball_problem(0.5)], backend(None))
    x = network.power(network.start(8, 0), 300)
    assert network.evaluate(network.power(x, 1000, 1e-6)).values == pytest.approx(
        network.evaluate(x).values, rel=1e-5
    )
    counted, evaluate = [], network.evaluate

    def count(x):
        counted.append(x)
        return evaluate(x)

    monkeypatch.setattr(network, "evaluate", count)
    network.power(x, 1000, 1e-6)
    assert 2 <= len(counted) < 10


def test_batches_fit_the_memory(monkeypatch):
    problems = [random_problem(seed, depth=3, widest=9) for seed in range(6)]
    monkeypatch.setattr(
        "lipopt.methods.sdp.batches.MAX_BATCH_ENTRIES",
        2 * max(sum(problem.sizes) ** 2 for problem in problems),
    )
    batches = list(split_into_batches(problems))
    assert sorted(k for batch in batches for k in batch) == list(range(6))
    assert 1 < len(batches) < 6


def test_bad_settings():
    with pytest.raises(LipoptError, match="device 'cuda:99'"):
        solve(random_problem(0), device="cuda:99")
    with pytest.raises(LipoptError, match="rank must be positive"):
        SDP(rank=0)
    with pytest.raises(LipoptError, match="gap must be positive"):
        SDP(gap=0)
    assert find_method("sdp-8") == SDP(rank=8)


def test_a_device_without_enough_memory():
    with pytest.raises(LipoptError, match="'cuda' has not enough memory"), enough_memory("cuda"):
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
    with pytest.raises(RuntimeError, match="else"), enough_memory("cuda"):
        raise RuntimeError("something else")


def test_a_layer_that_is_too_wide_is_refused():
    wide = Layer(
        {0: sp.csr_array(np.ones((20_000, 1)))},
        np.zeros(20_000),
        np.ones(20_000),
        1,
        np.arange(20_000),
    )
    with pytest.raises(LipoptError, match="too wide"):
        solve(DerivativeProblem(Norm.LINF, 1, (wide,), {1: sp.csr_array(np.ones((1, 20_000)))}))


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_many_inputs_are_not(norm):
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(3, 20_000)) / 100, rng.normal(size=(1, 3))]
    found = bound(weights, norm=norm, method="sdp", samples=10)
    assert found.pop_lower is not None
    assert found.pop_lower <= found.upper <= found.pop_lower * 1.1


def test_inputs_that_cannot_matter_are_left_out_for_l1():
    problem = random_problem(2, norm="l1", depth=3, widest=4)
    first = problem.layers[0]
    padded = replace(
        first,
        blocks={0: np.pad(np.asarray(first.blocks[0]), ((0, 0), (0, 200)), constant_values=1e-9)},
    )
    wide = replace(problem, inputs=problem.inputs + 200, layers=(padded, *problem.layers[1:]))
    found = solve(wide)
    assert found.value == pytest.approx(solve(problem).value, rel=1e-4)
    proofs = found.proof.proofs
    covered = [proofs[j].bounds[0] if j in proofs else np.inf for j in range(wide.inputs)]
    assert np.minimum(covered, path_sum_rows(wide).sum(axis=0)).max() <= found.value
    assert all(is_exactly_semidefinite(one_input(wide, j), proofs[j]) for j in (0, wide.inputs - 1))


@pytest.mark.parametrize("outputs", [1, 2])
def test_inputs_that_do_not_reach_all_neurons_under_l1(outputs):
    """Two layers of local connections, as in a convolution: every input has a problem of its own."""
    rng = np.random.default_rng(4)
    near = np.abs(np.subtract.outer(np.arange(12), np.arange(12))) <= 1
    weights = [
        rng.normal(size=(12, 12)) * near,
        rng.normal(size=(12, 12)) * near,
        rng.normal(size=(outputs, 12)),
    ]
    weights[0][:, 3] = 0.0  # reaches nothing
    layers = tuple(
        Layer({i: w}, np.zeros(12), np.ones(12), i + 1, np.arange(12))
        for i, w in enumerate(weights[:2])
    )
    problem = DerivativeProblem(Norm.L1, 12, layers, {2: weights[2]})
    found = solve(problem)
    assert found.value <= found.details["primal"] * (1 + 2e-4) < path_sum_bound(problem)
    alone = [solve(drop_unused(one_input(problem, j))).value for j in range(12) if j != 3]
    assert found.value == pytest.approx(max(alone), rel=2e-4)
    for j, proof in found.proof.proofs.items():
        assert proof.bounds[0] <= found.value
        assert [len(t) for t in proof.tau] == [12, 12]
        assert found.value >= found.pop_lower > 0, j


def test_lip_sdp():
    weights = gaussian_weights([5, 6, 4, 1])
    l2 = bound(weights, norm="l2", method="sdp", samples=10).upper
    assert bound(weights, norm="l2", method="lip-sdp", samples=10).upper == l2
    linf = bound(weights, method="lip-sdp", samples=10).upper
    assert linf == pytest.approx(np.sqrt(5) * l2, rel=1e-12)
    assert linf >= bound(weights, method="sdp", samples=10).upper
    l1 = bound(weights, norm="l1", method=LipSDP(), samples=10).upper
    assert l1 >= bound(weights, norm="l1", method="sdp", samples=10).upper * (1 - 1e-4)
    problem = random_problem(
        1, norm="l1", depth=3, widest=4
    )  # the lower bound of the l2 problem is none of the l1 problem
    assert (LipSDP()(Task(problem, problem)).pop_lower or 0.0) <= enumerate_pop(problem)
    assert (
        LipSDP()(Task(problem, replace(problem, norm=Norm.L2))).pop_lower or 0.0
    ) > enumerate_pop(problem)


@pytest.mark.parametrize("time_limit", [None, 10.0])
@pytest.mark.parametrize("inputs", [2, 10])
@pytest.mark.parametrize("output", [0, "all"])
def test_inputs_that_no_neuron_reads_under_l1(inputs, output, time_limit):
    """Their neurons are always on, and the derivative in them is a constant."""
    last = np.concatenate([np.full((2, inputs - 1), 5.0), [[1.0], [-1.0]]], axis=1)
    center = np.append(np.ones(inputs - 1), 0.0)
    found = bound(
        [np.eye(inputs), last],
        method="sdp",
        norm="l1",
        output=output,
        domain=Ball(center, 0.1),
        time_limit=time_limit,
        samples=50,
        certify=True,
    )
    rows = 2 if output == "all" else 1
    assert found.upper == pytest.approx(5.0 * rows)
    assert found.lower <= found.upper
