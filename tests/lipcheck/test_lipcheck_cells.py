"""Cells: whatever the hints, what is known of a cell holds at all points of the network in it."""

from fractions import Fraction

import numpy as np
import pytest
from exact_matrices import dense_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from lipcheck_files import FOLDER, verdict
from networks import ARCHITECTURES, GLOBAL_KINDS, make_network
from strategies import SEEDS
from trees import TreeWriter, numbers

from lipcheck.cells import (
    Constraint,
    Cut,
    Hints,
    leaf,
    least_ends,
    split_input,
    split_neuron,
    whole_domain,
    without_fixed,
)
from lipcheck.claim import Claim
from lipcheck.curvature import BENDING, Neuron
from lipcheck.exact import GRID, Matrix
from lipcheck.inputs import Ball, Bounds, least_divided
from lipcheck.intervals import enclose
from lipcheck.lines import Lines
from lipcheck.network import read_network
from lipcheck.problem import Kept, build_problem, path_sums
from lipcheck.rules import Norms, Term, operator_norm, rule_curvature, rule_interval
from lipcheck.verdicts import Failure
from lipopt.model.activations import KINDS

CASES = st.tuples(
    st.sampled_from(ARCHITECTURES),
    st.sampled_from(sorted(KINDS)) | st.just("relu") | st.just("clip"),
    SEEDS,
)
ABS = (FOLDER / "networks" / "abs.safetensors").read_bytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("cells") / "network.safetensors"


NO_LINES = Lines(b"")


def fraction(value):
    return Fraction(round(float(value) * 2**20), 2**20)


class Sampled:
    """A random cell of a random network, and points of the box with what all neurons read at them."""

    def __init__(self, case, path, local=True):
        network = make_network(*case)
        local = local or case[1] not in GLOBAL_KINDS
        network.save(path)
        self.stored = read_network(path.read_bytes())
        self.rng = np.random.default_rng(case[2])
        n = network.input_size
        center, radius = self.rng.normal(size=n), 1.5 * self.rng.random()
        box = Bounds(list(map(fraction, center - radius)), list(map(fraction, center + radius)))
        self.claim = Claim(
            self.stored, "linf", [{0: Fraction(1)}], box if local else None, Fraction(0)
        )
        low, high = (np.array([float(v) for v in side]) for side in box)
        corners = np.where(self.rng.random((20, n)) < 0.5, low, high)
        self.points = np.concatenate([self.rng.uniform(low, high, (300, n)), corners]).T
        self.inside = np.ones(self.points.shape[1], bool)  # of the cell
        self.values = network.node_values(self.points)
        enclosure = enclose(self.stored, box, {}) if local else None
        self.cell = whole_domain(self.claim, enclosure)
        for _ in range(self.rng.integers(0, 5)):
            self.divide()

    def inputs(self, place):
        """What a neuron reads, at all points."""
        i, k = place
        return self.values[self.stored.nodes[i].source][k]

    def divide(self):
        """One of the two cells that the cell is split into, and perhaps some neurons fixed."""
        side = int(self.rng.integers(2))
        lines = {}
        for i, neurons in self.cell.forms.variables.items():
            lines[i] = [
                k for k in neurons if self.cell.ranges[i, k].is_line and self.rng.random() < 0.7
            ]
        self.cell = without_fixed(NO_LINES, self.cell, lines)
        places = [(i, k) for i, neurons in self.cell.forms.variables.items() for k in neurons]
        if self.cell.box is not None and (not places or self.rng.random() < 0.3):
            j = int(self.rng.integers(len(self.points)))
            low, high = self.cell.box.lower[j], self.cell.box.upper[j]
            value = (low + high) / 2
            text = f"input {j}\n{number(value)}\n"
            cell = split_input(Lines(text.encode()), self.stored, self.cell)[side]
            y = self.points[j]
        elif places:
            i, k = place = places[self.rng.integers(len(places))]
            y = self.inputs(place)
            value = fraction(self.rng.choice([0, np.median(y)]))
            text = f"neuron {i} {k}\n{number(value)}\n"
            cell = split_neuron(Lines(text.encode()), self.stored, self.cell)[side]
        else:
            return
        inside = self.inside & ((y >= float(value)) if side else (y <= float(value)))
        if any(known.is_empty for known in cell.ranges.values()):
            assert not inside.any()
            return
        self.cell = cell
        self.inside = inside

    def hints(self):
        """Any weights, and any slopes."""
        count = int(self.rng.integers(len(self.cell.constraints) + 1))
        weights = {j: int(v) for j, v in enumerate(self.rng.integers(0, 9, count)) if v}
        slopes = {j: int(v) for j, v in enumerate(self.rng.integers(-4, 9, self.cell.forms.count))}
        return (
            Matrix([weights], len(self.cell.constraints), int(self.rng.integers(-4, 2))),
            Matrix([slopes], self.cell.forms.count, int(self.rng.integers(-4, 1))),
        )


def number(value):
    numerator, denominator = value.as_integer_ratio()
    return f"value {1 - denominator.bit_length()} {numerator}"


@settings(max_examples=80)
@given(case=CASES)
def test_no_hints_prove_an_end_beyond_a_value(case, path):
    sampled = Sampled(case, path)
    known = [(i, k) for i, ks in sampled.cell.forms.variables.items() for k in ks]
    known += [constraint.place for constraint in sampled.cell.constraints]
    cuts = [
        Cut(Constraint(place, sign, Fraction(0)), Hints(*sampled.hints()))
        for place in known
        for sign in (-1, 1)
    ]
    for (constraint, _), least in zip(cuts, least_ends(sampled.cell, cuts), strict=True):
        y = sampled.inputs(constraint.place)[sampled.inside]
        assert (float(least) <= constraint.sign * y + 1e-7 * (1 + np.abs(y))).all()


@settings(max_examples=80)
@given(case=CASES, local=st.booleans())
def test_forms_are_what_neurons_read(case, local, path):
    """At all points of the cell, in terms of the inputs and the outputs of its variables."""
    sampled = Sampled(case, path, local)
    forms = sampled.cell.forms
    columns = np.zeros((forms.columns.width, sampled.points.shape[1]))
    columns[: forms.columns.inputs] = sampled.points
    columns[forms.columns.constant] = 1
    for i, neurons in forms.variables.items():
        columns[forms.columns.neurons(i, neurons)] = sampled.values[i][neurons]
    for i, neurons in forms.variables.items():
        y = sampled.values[sampled.stored.nodes[i].source][neurons]
        assert_close(dense(forms.inputs[i]) @ columns, y, sampled.inside)
    assert_close(dense(forms.outputs) @ columns, sampled.values[-1][:1], sampled.inside)
    for row, (place, sign, end) in zip(
        dense(forms.constraints), sampled.cell.constraints, strict=True
    ):
        expected = sign * (sampled.inputs(place) - float(end))
        assert_close(row @ columns, expected, sampled.inside)


def dense(matrix):
    return np.array(
        [
            [float(value * Fraction(2) ** matrix.exponent) for value in row]
            for row in dense_rows(matrix)
        ]
    ).reshape(len(matrix.rows), matrix.width)


def assert_close(found, expected, inside):
    assert np.allclose(found[..., inside], expected[..., inside], atol=1e-8, rtol=1e-8)


@settings(max_examples=60)
@given(case=CASES, local=st.booleans())
def test_gradients_in_a_cell_are_below_its_bound(case, local, path):
    """With any variables listed, in any form, in each of the rules that need no numbers."""
    sampled = Sampled(case, path, local)
    subject = leaf(sampled.stored, sampled.cell, 0)
    derivative = subject.derivative
    kept = {}
    for i, positions in subject.positions.items():
        listed = [p for p in positions.values() if sampled.rng.random() < 0.8]
        own = Kept(listed, centered=bool(sampled.rng.random() < 0.3))
        kept[derivative.nodes[i]] = own
    inputs = list(range(sampled.stored.input_size))
    network_and_ranges = (derivative.network, derivative.ranges)
    problem, slack = build_problem(*network_and_ranges, derivative.W, inputs, kept)
    norms = Norms("linf", "linf")
    by_paths = operator_norm(path_sums(problem), norms)
    term = Term(problem, norms, True, *network_and_ranges, derivative.W)
    ((_, by_intervals),) = rule_interval(NO_LINES, term)
    assert by_intervals <= by_paths
    network = make_network(*case)
    step = 1e-6
    x = sampled.points[:, sampled.inside]
    total = np.zeros(x.shape[1])
    for j in range(len(x)):
        ahead, behind = x.copy(), x.copy()
        ahead[j] += step
        behind[j] -= step
        change = network(ahead.T)[:, 0] - network(behind.T)[:, 0]
        total += np.abs(change) / (2 * step)
    # A step leads out of the cell from few points: some values of splits are medians.
    above = total > float(by_intervals + slack) * (1 + 1e-4) + 1e-4
    assert above.sum() <= 5


@settings(max_examples=60)
@given(
    case=st.tuples(st.sampled_from(ARCHITECTURES), st.sampled_from(sorted(BENDING)), SEEDS),
    has_scale=st.booleans(),
)
def test_gradients_in_a_box_are_below_its_curvature(case, has_scale, path):
    """Whatever the signs are: those that are not proved are refused."""
    network = make_network(*case)
    sampled = Sampled(case, path)
    kinds = {node.kind for node in sampled.stored.activations.values()}
    if sampled.cell.constraints or not kinds or not kinds <= set(BENDING):
        return
    n = network.input_size
    scale = [fraction(value) for value in sampled.rng.uniform(0.5, 2, n)]
    if not has_scale:
        scale = [Fraction(1)] * n
    patch = leaf(sampled.stored, sampled.cell, 0, scale).patch
    x = sampled.points[:, sampled.inside]
    total = np.zeros(x.shape[1])
    middle = np.zeros(n)
    for j in range(n):
        step = np.zeros((n, 1))
        step[j] = 1e-6
        change = (network((x + step).T)[:, 0] - network((x - step).T)[:, 0]) / 2e-6
        middle[j] = change.mean()
        total += np.abs(change) * float(scale[j])
    for signs in (np.sign(middle), np.zeros(n), sampled.rng.integers(-1, 2, n)):
        bound = by_curvature(signs, patch)
        if signs.any() and bound is None:
            continue
        assert (total <= float(bound) * (1 + 1e-6) + 1e-6).all()


def by_curvature(signs, patch):
    """The bound of the rule; None if it refuses the signs."""
    text = " ".join(str(int(sign)) for sign in signs)
    try:
        lines = Lines(f"signs {text}\n".encode())
        ((_, bound),) = rule_curvature(lines, patch, [0], Norms("linf", "linf"))
    except Failure:
        return None
    return bound


@given(
    kind=st.sampled_from(sorted(BENDING)),
    y=st.floats(-40, 40),
    length=st.floats(0, 1) | st.floats(0, 1e-12),
    beta=st.sampled_from([0.5, 1, 3]),
)
def test_short_intervals_are_enclosed_in_proportion_to_slopes(kind, y, length, beta):
    """However small these are: what they are multiplied with may be large."""
    neuron = Neuron((1, 0), BENDING[kind], Fraction(beta if kind == "softplus" else 1))
    lower = int(Fraction(y) * GRID)
    upper = lower + int(Fraction(length) * GRID)
    near = neuron.near(lower, upper)
    between = neuron.between(lower, upper)
    for (low, high), (least, most) in zip(near, between, strict=True):
        assert low <= least + (GRID >> 120)
        assert most - (GRID >> 120) <= high
    change = float(Fraction(near.slopes[1] - near.slopes[0], GRID))
    assert change <= 30 * length * float(Fraction(between.slopes[1], GRID)) + 2.0**-120


LEAF = ["cuts 0", "fixed 0", "cell leaf", "parts 1", "rows *", "inputs *", "neurons *"]
LEAF += ["form plain", "splits 0", "rule path-sum"]


@pytest.mark.parametrize("leaves_first", [True, False])
def test_a_deep_tree_is_no_recursion(leaves_first):
    """One of the two cells is split again, and again."""
    head = (FOLDER / "accept" / "abs-tree-input").read_text().split("\ncuts")[0]
    lines = head.replace("bound 0 1", "bound 0 2").split("\n")
    split = ["cuts 0", "fixed 0", "cell input", "input 0", "value 0 2"]
    if leaves_first:
        lines += [*split, *LEAF] * 2000 + LEAF
    else:
        lines += split * 2000 + LEAF * 2001
    code, _ = verdict(ABS, "\n".join([*lines, f"end {len(lines)}", ""]).encode())
    assert code == 0


@pytest.mark.parametrize(("value", "code"), [("4999 1", 1), ("5000 1", 4), ("5000 -1", 4)])
def test_what_is_beyond_infinity_is_refused(value, code):
    """In ranges over the whole space, 2^5000 stands for infinity: nothing is split there."""
    data = (FOLDER / "accept" / "abs-tree-space").read_bytes()
    assert verdict(ABS, data.replace(b"value 0 0", f"value {value}".encode(), 1))[0] == code


@settings(max_examples=25)
@given(seed=SEEDS, norm=st.sampled_from(["linf", "l2", "l1"]), local=st.booleans())
def test_trees_of_random_networks_are_verified(seed, norm, local, path):
    """The writer is there for other tests: here is what it writes, down to the last digit."""
    sampled = Sampled(("dense", "relu", seed), path)
    rows = [{k: Fraction(1)} for k in range(sampled.stored.output_size)]
    box = sampled.claim.box if local else None
    writer = TreeWriter(sampled.stored, norm, rows, box, most_depth=4)
    text = writer.write().decode()
    network = path.read_bytes()
    assert verdict(network, text.encode())[0] == 0
    smaller = numbers("bound", [writer.bound - Fraction(1, 2**300)])
    assert (
        verdict(network, text.replace(numbers("bound", [writer.bound]), smaller).encode())[0] == 1
    )


EIGHTHS = st.integers(-16, 16).map(lambda n: Fraction(n, 8))


@given(
    st.sampled_from(["l1", "l2"]),
    st.lists(st.tuples(*[EIGHTHS] * 6), min_size=1, max_size=4),
    st.integers(0, 40).map(lambda n: Fraction(n, 8)),
)
def test_any_multiplier_of_a_ball_gives_a_bound(norm, inputs, multiplier):
    """At points of the box that lie in the ball, in exact arithmetic."""
    row, center, radii, one, other, share = zip(*inputs, strict=True)
    box = Bounds([*map(min, one, other)], [*map(max, one, other)])
    ball = Ball(norm, list(center), [abs(radius) for radius in radii])
    matrix = Matrix.of([dict(enumerate(row))], len(row))
    (least,) = least_divided(matrix, box, ball, [multiplier])
    for weight in (0, abs(share[0]) / 2, 1):
        point = [low + weight * (high - low) for low, high in zip(*box, strict=True)]
        steps = [x - c for x, c in zip(point, center, strict=True)]
        if any(step != 0 and r == 0 for step, r in zip(steps, ball.radii, strict=True)):
            continue
        relative = [abs(s) / r if r else r for s, r in zip(steps, ball.radii, strict=True)]
        power = 1 if norm == "l1" else 2
        if sum(size**power for size in relative) <= 1:
            assert sum(g * x for g, x in zip(row, point, strict=True)) >= least
