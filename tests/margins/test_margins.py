"""Margins: bounds hold at all points, balls are decided as an exact method decides them, and certificates are accepted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lipcheck_files import file_of
from networks import ARCHITECTURES, gaussian_weights, make_network
from strategies import SEEDS

import lipcheck.certificate
import lipcheck.network
from lipopt import Ball, load
from lipopt.certificates.margins import certify_margins
from lipopt.margins.ascent import Batch, ascend, evaluate
from lipopt.margins.attack import margin_gradients
from lipopt.margins.backward import Functions
from lipopt.margins.balls import Balls
from lipopt.margins.enclosures import Enclosures
from lipopt.margins.ladder import Effort, decide
from lipopt.margins.lines import Ranges, groups, sides
from lipopt.model.activations import KINDS
from lipopt.model.norms import Norm
from lipopt.problem.intervals import enclose

CASES = st.tuples(
    st.sampled_from(ARCHITECTURES), st.sampled_from(sorted(KINDS)) | st.just("relu"), SEEDS
)
NORMS = st.sampled_from(list(Norm))
CLIPS = st.none() | st.just((-1.0, 1.0))
ROUNDING = 1e-9  # of sampled values, relative


def balls_of(network, seed, norm, clip, count=3):
    rng = np.random.default_rng(seed)
    points = np.clip(rng.normal(size=(count, network.input_size)), -1, 1)
    return Balls.around(points, rng.uniform(0.0, 0.5, count), clip, norm)


def samples(balls, ball, seed, count=200):
    """Points of a ball, many of them at its boundary."""
    rng = np.random.default_rng(seed)
    low, high = balls.lower[ball], balls.upper[ball]
    share = np.clip(rng.uniform(-0.5, 1.5, (count, len(low))), 0, 1)
    return balls.moved_into(low + share * (high - low), np.full(count, ball))


@settings(max_examples=40)
@given(case=CASES, norm=NORMS, clip=CLIPS)
def test_intervals_are_those_of_single_balls(case, norm, clip):
    """In all nodes, up to rounding; and they hold the values at points."""
    architecture, kind, seed = case
    network = make_network(architecture, kind, seed)
    balls = balls_of(network, seed, norm, clip)
    found = Enclosures.of(network, balls)
    for ball in range(balls.count):
        domain = Ball(balls.centers[ball], balls.radii[ball], clip, norm=norm.value)
        inputs = network.input_size
        alone = enclose(network, *domain.bounds(inputs), domain.ball(inputs)).intervals
        values = network.node_values(samples(balls, ball, seed).T)
        for (low, high), own, value in zip(found.intervals, alone, values, strict=True):
            size = 1 + np.abs(own[0]) + np.abs(own[1])
            assert (np.abs(low[ball] - own[0]) <= ROUNDING * size).all()
            assert (np.abs(high[ball] - own[1]) <= ROUNDING * size).all()
            assert (low[ball][:, None] <= value + ROUNDING * np.abs(value)).all()
            assert (high[ball][:, None] >= value - ROUNDING * np.abs(value)).all()


@settings(max_examples=40)
@given(case=CASES, norm=NORMS, clip=CLIPS)
def test_any_mixes_and_forces_give_lower_bounds(case, norm, clip):
    """Of the outputs, in cells where some neurons are on one side of a value."""
    architecture, kind, seed = case
    network = make_network(architecture, kind, seed)
    rng = np.random.default_rng(seed)
    balls = balls_of(network, seed, norm, clip, count=1)
    enclosures = Enclosures.of(network, balls)
    count = 12
    owners = np.zeros(count, dtype=int)
    ranges = Ranges.of(enclosures).only(owners)
    is_low = rng.random(ranges.low.shape) < 0.15
    is_high = (rng.random(ranges.low.shape) < 0.15) & ~is_low
    values = ranges.low + rng.random(ranges.low.shape) * (ranges.high - ranges.low)
    cells = Ranges(np.where(is_low, values, ranges.low), np.where(is_high, values, ranges.high))
    force = rng.exponential(size=values.shape) * (is_high.astype(float) - is_low)
    rows = rng.normal(size=(count, network.output_size))
    batch = Batch(
        enclosures,
        Functions({len(network.nodes) - 1: rows}, np.zeros(count), owners),
        cells,
        sides(network, cells),
        is_low,
        is_high,
        np.array([rng.random(values.shape), force]),
    )
    best = ascend(batch, steps=4)
    bounds = np.maximum(evaluate(batch).bounds, best.bounds)
    x = samples(balls, 0, seed, count=400)
    nodes = network.node_values(x.T)
    inputs = np.concatenate(
        [np.zeros((0, len(x))), *(nodes[group.source] for group in groups(network))]
    )
    outputs = rows @ nodes[-1]
    for k in range(count):
        inside = (inputs >= cells.low[k][:, None]) & (inputs <= cells.high[k][:, None])
        reached = outputs[k, inside.all(axis=0)]
        size = 1 + (np.abs(rows[k]) @ np.abs(nodes[-1])).max()
        assert (bounds[k] <= reached + ROUNDING * size).all()


@pytest.mark.parametrize("kind", ["relu", "tanh", "leaky_relu"])
@pytest.mark.parametrize("seed", range(3))
def test_gradients(kind, seed):
    network = make_network("residual", kind, seed)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4, network.input_size))
    rows = rng.normal(size=(4, network.output_size))
    t = rng.normal(size=x.shape)
    ahead = (network(x + 1e-6 * t) * rows).sum(axis=1)
    behind = (network(x - 1e-6 * t) * rows).sum(axis=1)
    expected = (margin_gradients(network, x, rows) * t).sum(axis=1)
    assert (ahead - behind) / 2e-6 == pytest.approx(expected, rel=1e-4, abs=1e-4)


def least_margin(network, low, high, label):
    """The least margin over a box, by enumeration of its finest cells: a network of two inputs."""
    grid = np.linspace(0, 1, 200)
    share = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    outputs = network(low + share * (high - low))
    others = np.delete(outputs, label, axis=1).max(axis=1)
    return float((outputs[:, label] - others).min())


@pytest.mark.parametrize("kind", ["relu", "abs", "leaky_relu", "tanh", "gelu"])
@pytest.mark.parametrize("seed", range(3))
def test_balls_are_decided(kind, seed):
    """All of them if neurons are piecewise linear, and rightly, as a fine grid says."""
    rng = np.random.default_rng(seed)
    weights = gaussian_weights([2, 12, 10, 3], seed=seed)
    network = load(weights, biases=[rng.normal(size=len(w)) / 3 for w in weights], activation=kind)
    points = rng.normal(size=(6, 2))
    labels = network(points).argmax(axis=1)
    labels[0] = (labels[0] + 1) % 3
    radii = rng.choice([0.1, 0.3, 0.6], size=6)
    is_linear = KINDS[kind].piecewise_linear
    effort = Effort(4000 if is_linear else 100)
    found = decide(network, Balls.around(points, radii), labels, effort)
    assert found[0].status == "broken"
    assert found[0].rung == "center"
    for x, label, radius, decision in zip(points, labels, radii, found, strict=True):
        least = least_margin(network, x - radius, x + radius, label)
        is_clear = abs(least) > 1e-3 * np.abs(network(x)).max()
        if is_clear and (is_linear or decision.status != "open"):
            assert decision.status == ("certified" if least > 0 else "broken")
        if decision.status == "certified":
            assert 0 < decision.least <= least
        if decision.status == "broken":
            assert decision.counterexample is not None
            assert (np.abs(decision.counterexample - x) <= radius).all()
            assert network(decision.counterexample).argmax() != label


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("architecture", ["residual", "sparse"])
def test_a_device_decides_the_same(architecture, norm):
    """Torch on the CPU: bounds agree up to rounding, and so do all answers."""
    pytest.importorskip("torch")
    network = make_network(architecture, "relu", 3)
    balls = balls_of(network, 3, norm, (-1.0, 1.0), count=12)
    labels = network(balls.centers).argmax(axis=1)
    found = decide(network, balls, labels, Effort(40))
    others = decide(network, balls, labels, Effort(40, device="cpu"))
    for one, other in zip(found, others, strict=True):
        assert one.status == other.status
        assert one.rung == other.rung
        assert one.least == pytest.approx(other.least, rel=1e-6, abs=1e-9)


def test_a_deadline_and_no_cells():
    rng = np.random.default_rng(0)
    sizes = [6, 20, 20, 3]
    biases = [rng.normal(size=size) for size in sizes[1:]]
    network = load(gaussian_weights(sizes, seed=0), biases=biases)
    points = rng.normal(size=(20, 6))
    labels = network(points).argmax(axis=1)
    radii = np.full(20, 0.5)
    none = decide(network, Balls.around(points, radii), labels, Effort(0))
    late = decide(network, Balls.around(points, radii), labels, Effort(1000, deadline=0.0))
    all_of_them = decide(network, Balls.around(points, radii), labels, Effort(1000))
    assert [d.status for d in none] == [d.status for d in late]
    assert {d.rung for d in none} >= {"linear", None}
    assert "branching" in {d.rung for d in all_of_them}
    for before, after in zip(none, all_of_them, strict=True):
        assert before.status in ("open", after.status)
        assert before.least <= after.least or after.status == "broken"


@settings(max_examples=10)
@given(case=CASES, norm=NORMS, clip=CLIPS)
def test_certificates_are_accepted(case, norm, clip):
    """Of all margins of a ball, whatever proves them; and what they claim holds."""
    architecture, kind, seed = case
    network = make_network(architecture, kind, seed)
    if network.output_size < 2:
        return
    balls = balls_of(network, seed, norm, clip, count=4)
    labels = network(balls.centers).argmax(axis=1)
    stored = lipcheck.network.read_network(file_of(network))
    found = decide(network, balls, labels, Effort(60, keeps_proofs=True))
    for ball, (label, decision) in enumerate(zip(labels, found, strict=True)):
        if decision.status == "broken":
            assert network(decision.counterexample).argmax() != label
        if decision.proofs is None:
            continue
        domain = Ball(balls.centers[ball], balls.radii[ball], clip, norm=norm.value)
        certificate = certify_margins(network, domain, int(label), decision.proofs, decision.least)
        claim = lipcheck.certificate.check(stored, certificate.text.encode())
        assert 0 < float(claim.bound) <= decision.least
        outputs = network(samples(balls, ball, seed))
        others = np.delete(outputs, label, axis=1).max(axis=1)
        assert (outputs[:, label] - others >= float(claim.bound) * (1 - 1e-6)).all()
