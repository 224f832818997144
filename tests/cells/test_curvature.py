"""Boxes that are bounded by their curvature: what is proved of them holds at points of the network."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lipcheck_files import verdict
from networks import ARCHITECTURES, PARAMETERS, gaussian_weights, make_network
from strategies import SEEDS

import lipopt
from lipopt.cells.boxes import can_bend
from lipopt.cells.cell import Cell, whole_domain
from lipopt.cells.curvature import examine_boxes
from lipopt.cells.reduced import Reduced, reduce
from lipopt.lower.gradients import JacobianNorm
from lipopt.lower.uphill import gradients
from lipopt.model.activations import BENDING, bend_range, rising_range, slope, value
from lipopt.model.network import Network
from lipopt.model.nodes import Activation
from lipopt.model.norms import NormName
from lipopt.numerics.arrays import Array
from lipopt.problem.proofs import InputSplit
from lipopt.problem.question import Posed, Question, pose

SAMPLES = 300
ROUNDING = 1e-9  # of sampled values, relative
BOXES = 6


def boxes_in(root: Cell, rng: np.random.Generator) -> list[Cell]:
    """The domain, and random parts of it."""
    cells = [root]
    while len(cells) < BOXES:
        cell = cells[rng.integers(len(cells))]
        place = int(rng.integers(len(cell.lower)))
        value = float(rng.uniform(cell.lower[place], cell.upper[place]))
        cells.append(cell.child(InputSplit(place, value), int(rng.choice([-1, 1]))))
    return cells


def points_in(cell: Cell, rng: np.random.Generator) -> Array:
    """Random points and corners of a box, (inputs, points)."""
    lower = cell.lower[:, None]
    upper = cell.upper[:, None]
    inside = rng.uniform(lower, upper, (len(lower), SAMPLES))
    corners = np.where(rng.random(inside.shape) < 0.5, lower, upper)
    return np.concatenate([inside, corners], axis=1)


@settings(max_examples=60)
@given(
    architecture=st.sampled_from(ARCHITECTURES),
    kind=st.sampled_from(BENDING),
    norm=st.sampled_from(["linf", "l2", "l1"]),
    output=st.sampled_from([0, "all"]),
    has_scale=st.booleans(),
    radius=st.sampled_from([0.01, 0.3, 2.0]),
    seed=SEEDS,
)
def test_slopes_in_boxes_are_below_their_bounds(
    architecture: str,
    kind: str,
    norm: NormName,
    output: int | Literal["all"],
    has_scale: bool,
    radius: float,
    seed: int,
) -> None:
    network = make_network(architecture, kind, seed)
    if not can_bend(network):
        return
    rng = np.random.default_rng(seed)
    center = rng.normal(size=network.input_size)
    scale = rng.uniform(0.2, 3.0, network.input_size) if has_scale else None
    domain = lipopt.Ball(center, radius)
    posed = pose(
        network, Question.about(network, norm=norm, output=output, domain=domain, scale=scale)
    )
    reduced = reduce(posed)
    cells = boxes_in(whole_domain(reduced, posed.intervals), rng)
    goal = JacobianNorm.of(posed)
    for cell, found in zip(cells, examine_boxes(reduced, cells), strict=True):
        points = points_in(cell, rng)
        assert goal.at(points).max() <= found.bound * (1 + ROUNDING)
        assert found.signs is not None
        check_signs(posed, found.signs, points)
        assert cell.inputs.holds(found.candidates).all()


def check_signs(posed: Posed, signs: Array, points: Array) -> None:
    """Entries of the Jacobian have the signs that are said to be theirs."""
    network = posed.network
    values = network.node_values(points)
    slopes = {}
    for i, node in enumerate(network.nodes):
        if isinstance(node, Activation):
            slopes[i] = slope(node.kind, values[node.source].T, node.parameters).T
    for row, known in zip(posed.question.rows.toarray(), signs, strict=True):
        start = np.repeat(row[:, None], points.shape[1], axis=1)
        gradient = gradients(network, start, slopes)[0]
        assert (known[:, None] * gradient >= -ROUNDING * np.abs(gradient).max()).all()


def posed_small(network: Network, radius: float) -> tuple[Posed, Reduced, Cell]:
    domain = lipopt.Ball(np.full(network.input_size, 0.2), radius)
    posed = pose(network, Question.about(network, domain=domain))
    reduced = reduce(posed)
    return posed, reduced, whole_domain(reduced, posed.intervals)


def test_the_bound_is_exact_up_to_the_square_of_the_width() -> None:
    """Half the width: a quarter of what the bound is too large by, or nearly."""
    network = lipopt.load(gaussian_weights((2, 8, 8, 1), 3), activation="tanh")
    excess = []
    for radius in (0.04, 0.02, 0.01):
        posed, reduced, cell = posed_small(network, radius)
        (found,) = examine_boxes(reduced, [cell])
        points = points_in(cell, np.random.default_rng(0))
        excess.append(found.bound - JacobianNorm.of(posed).at(points).max())
    assert 0 < excess[1] < excess[0] / 3
    assert 0 < excess[2] < excess[1] / 3


@pytest.mark.parametrize("kind", BENDING)
def test_second_derivatives_and_values_are_enclosed(kind: str) -> None:
    rng = np.random.default_rng(0)
    parameters = dict(PARAMETERS.get(kind, {}))
    lo = 4 * rng.standard_normal(200)
    hi = lo + rng.choice([0.0, 1e-6, 0.1, 3.0], 200)
    least, most = bend_range(kind, lo, hi, parameters)
    step = 1e-5
    for share in np.linspace(0, 1, 11):
        x = lo + share * (hi - lo)
        bend = (slope(kind, x + step, parameters) - slope(kind, x - step, parameters)) / (2 * step)
        assert (least - 1e-8 <= bend).all()
        assert (bend <= most + 1e-8).all()
        low, high = rising_range(kind, lo, hi, parameters)
        assert (low <= value(kind, x, parameters)).all()
        assert (value(kind, x, parameters) <= high).all()


@pytest.mark.parametrize("kind", BENDING)
@pytest.mark.parametrize("norm", ["linf", "l1"])
def test_branch_meets_the_slopes_of_a_grid(kind: str, norm: NormName, tmp_path: Path) -> None:
    """The largest slope of a fine grid lies between both bounds, and lipcheck accepts the tree."""
    network = lipopt.load(gaussian_weights((2, 4, 4, 1), 1), activation=kind)
    domain = lipopt.Ball([0.1, -0.3], 1.0)
    result = lipopt.bound(
        network, norm=norm, domain=domain, method="branch", gap=0.02, certify=True
    )
    axes = [np.linspace(c - 1, c + 1, 101) for c in (0.1, -0.3)]
    points = np.array(np.meshgrid(*axes)).reshape(2, -1)
    goal = JacobianNorm.of(pose(network, Question.about(network, norm=norm, domain=domain)))
    largest = goal.at(points).max()
    assert result.lower <= result.upper <= result.lower * 1.02 * (1 + ROUNDING)
    assert largest <= result.upper * (1 + ROUNDING)
    assert result.certificate is not None
    assert "rule curvature" in result.certificate.text
    network.save(tmp_path / "network.safetensors")
    stored = (tmp_path / "network.safetensors").read_bytes()
    code, _ = verdict(stored, result.certificate.text.encode())
    assert code == 0


def test_boxes_do_not_depend_on_the_number_of_processes() -> None:
    network = lipopt.load(gaussian_weights((2, 6, 6, 1), 2), activation="sigmoid")
    domain = lipopt.Ball([0.0, 0.0], 2.0)
    found = [lipopt.bound(network, domain=domain, method="branch", jobs=k) for k in (1, 2)]
    assert found[0].upper == found[1].upper
    assert found[0].lower == found[1].lower
