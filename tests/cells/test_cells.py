"""Cells: what is proved of neurons in them holds at points of the network."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import ARCHITECTURES, make_network
from strategies import SEEDS

import lipopt
from lipopt.cells.cell import Cell, Points, whole_domain
from lipopt.cells.examine import Effort, Examined, examine
from lipopt.cells.reduced import Reduced, reduce
from lipopt.cells.refine import refine
from lipopt.lower.gradients import JacobianNorm
from lipopt.model.activations import KINDS
from lipopt.numerics.blas import quiet
from lipopt.problem.proofs import InputSplit, NeuronSplit
from lipopt.problem.question import Posed, Question, pose
from lipopt.problem.task import Budget

SAMPLES = 400
ROUNDING = 1e-9  # of sampled values, relative


def posed_of(architecture: str, kind: str, seed: int, radius: float) -> Posed:
    """The first output of a small network, in a ball."""
    network = make_network(architecture, kind, seed)
    center = np.random.default_rng(seed).normal(size=network.input_size)
    question = Question.about(network, domain=lipopt.Ball(center, radius))
    return pose(network, question)


def points_in(reduced: Reduced, cell: Cell, seed: int) -> Points:
    """Random points of a cell."""
    rng = np.random.default_rng(seed)
    shape = (reduced.inputs, SAMPLES)
    x = rng.uniform(cell.lower[:, None], cell.upper[:, None], shape)
    points = Points(x, reduced.inputs_of_neurons(x))
    return points.only(cell.holds(points))


def check(posed: Posed, reduced: Reduced, cell: Cell, found: Examined, seed: int) -> None:
    """Intervals hold the inputs of neurons at points of the cell, the bound their slopes."""
    points = points_in(reduced, cell, seed)
    if points.count == 0:
        return
    assert found.cell is not None  # it has points, so it is not empty
    room = ROUNDING * (1 + np.abs(points.y).max(axis=1))
    assert (found.cell.low - room <= points.y.min(axis=1)).all()
    assert (found.cell.high + room >= points.y.max(axis=1)).all()
    norm = JacobianNorm(posed.network, posed.question.rows, posed.question.norm)
    assert norm.at(points.x).max() <= found.bound * (1 + ROUNDING)


@settings(max_examples=60)
@given(
    st.sampled_from(ARCHITECTURES),
    st.sampled_from(sorted(KINDS)),
    SEEDS,
    st.sampled_from([0.1, 0.5, 2.0]),
    st.sampled_from(list(Effort)),
)
def test_what_is_proved_in_cells_holds(
    architecture: str, kind: str, seed: int, radius: float, effort: Effort
) -> None:
    posed = posed_of(architecture, kind, seed, radius)
    reduced = reduce(posed)
    if reduced.neurons == 0:
        return
    cell = whole_domain(reduced, posed.intervals)
    rng = np.random.default_rng(seed)
    with quiet():
        for _ in range(4):
            found = examine(reduced, cell, effort)
            check(posed, reduced, cell, found, seed)
            if found.cell is None:
                return
            cell = found.cell
            neuron = int(rng.integers(reduced.neurons))
            if rng.random() < 0.3:
                place = int(rng.integers(reduced.inputs))
                middle = float(cell.lower[place] + cell.upper[place]) / 2
                cell = cell.child(InputSplit(place, middle), int(rng.choice([-1, 1])))
            else:
                value = float(cell.low[neuron] + cell.high[neuron]) / 2
                cell = cell.child(NeuronSplit(neuron, value), int(rng.choice([-1, 1])))


def test_more_effort_gives_no_worse_intervals() -> None:
    posed = posed_of("dense", "relu", 3, 1.0)
    reduced = reduce(posed)
    cell = whole_domain(reduced, posed.intervals)
    widths = {}
    for effort in Effort:
        found = examine(reduced, cell, effort)
        assert found.cell is not None
        widths[effort] = float((found.cell.high - found.cell.low).sum())
    assert widths[Effort.PROGRAMS] <= widths[Effort.ASCENT] * (1 + 1e-6)
    assert widths[Effort.ASCENT] <= widths[Effort.USUAL]
    assert widths[Effort.PROGRAMS] < 0.99 * widths[Effort.USUAL]


def test_a_contradiction_empties_a_cell() -> None:
    """Two neurons x and x + 1: no x has the first above 0 and the second below."""
    network = lipopt.load(
        [[[1.0], [1.0]], [[1.0, -1.0]]], biases=[[0.0, 1.0], [0.0]], activation="relu"
    )
    posed = pose(network, Question.about(network, domain=lipopt.Box([-3.0], [3.0])))
    reduced = reduce(posed)
    cell = whole_domain(reduced, posed.intervals)
    cell = cell.child(NeuronSplit(0, 0.0), 1).child(NeuronSplit(1, 0.0), -1)
    found = examine(reduced, cell, Effort.PROGRAMS)
    assert found.cell is None


def test_refined_intervals_lie_in_those_before() -> None:
    posed = posed_of("dense", "relu", 5, 1.0)
    refined = refine(posed, Budget())
    assert posed.intervals is not None
    assert refined.intervals is not None
    assert refined.refinement is not None
    for before, after in zip(posed.intervals, refined.intervals, strict=True):
        assert (after[0] >= before[0]).all()
        assert (after[1] <= before[1]).all()
    assert refined.problem.neurons <= posed.problem.neurons


def test_networks_too_large_for_cells_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipopt.cells.reduced.MAX_ENTRIES", 10)
    posed = posed_of("dense", "relu", 5, 1.0)
    with pytest.raises(lipopt.LipoptError, match="too large to be divided into cells"):
        reduce(posed)
    assert refine(posed, Budget()).refinement is None


def test_a_solver_that_gives_up_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear programs that go in circles are ended: what is found without them holds."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) for shape in ((8, 3), (8, 8), (1, 8))]
    ball = lipopt.Ball(np.zeros(3), 1.0)
    exact = lipopt.bound(weights, domain=ball, method="branch", gap=0.0)
    monkeypatch.setattr("lipopt.solvers.polytope.MOST_STEPS", 0)
    rough = lipopt.bound(weights, domain=ball, method="branch", gap=0.0)
    assert rough.lower <= exact.upper * (1 + ROUNDING)
    assert exact.lower <= rough.upper * (1 + ROUNDING)


def test_numbers_that_overflow_give_no_bound() -> None:
    weights = [np.full((2, 2), 1e200), np.full((2, 2), 1e200), np.full((1, 2), 1e200)]
    ball = lipopt.Ball(np.zeros(2), 1.0)
    with pytest.raises(lipopt.LipoptError, match="overflow"):
        lipopt.bound(weights, domain=ball, method="branch")
