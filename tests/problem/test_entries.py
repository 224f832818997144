"""Intervals for all entries of the Jacobian."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from regions import jacobians_in
from strategies import Question, piecewise_linear_questions, questions

import lipopt
from lipopt.errors import LipoptError


@settings(max_examples=40)
@given(questions())
def test_entries_that_are_seen_lie_in_their_intervals(question: Question) -> None:
    found = lipopt.jacobian(question.network, domain=question.domain, samples=50)
    shape = (question.network.output_size, question.network.input_size)
    assert found.lower.shape == found.upper.shape == shape
    assert (found.lower <= found.upper).all()
    if found.seen_lower is not None and found.seen_upper is not None:
        tolerance = 1e-9 * (1 + np.abs(found.upper) + np.abs(found.lower))
        assert (found.lower <= found.seen_lower + tolerance).all()
        assert (found.seen_upper <= found.upper + tolerance).all()


@settings(max_examples=15)
@given(piecewise_linear_questions().filter(lambda question: question.is_box))
def test_all_linear_regions_lie_in_the_intervals(question: Question) -> None:
    assert question.domain is not None
    n = question.network.input_size
    scale = np.random.default_rng(0).uniform(0.1, 10, n)
    found = lipopt.jacobian(question.network, domain=question.domain, scale=scale, samples=10)
    exact = np.array(jacobians_in(question.network, *question.domain.bounds(n))) * scale
    tolerance = 1e-9 * (1 + np.abs(exact).max())
    assert (found.lower <= exact.min(axis=0) + tolerance).all()
    assert (exact.max(axis=0) <= found.upper + tolerance).all()


def test_intervals_are_exact_with_one_hidden_layer() -> None:
    """Each slope occurs once in an entry, so that interval arithmetic loses nothing."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=(6, 3))
    last = rng.normal(size=(2, 6))
    found = lipopt.jacobian([first, last])
    paths = last[:, :, None] * first[None]
    assert np.allclose(found.lower, np.minimum(paths, 0).sum(axis=1))
    assert np.allclose(found.upper, np.maximum(paths, 0).sum(axis=1))


def test_a_linear_network_has_its_matrix() -> None:
    matrix = np.random.default_rng(1).normal(size=(3, 5))
    found = lipopt.jacobian([matrix], scale=[1, 2, 3, 4, 5])
    exact = matrix * np.arange(1, 6)
    assert (found.lower <= exact).all()
    assert (exact <= found.upper).all()
    assert np.allclose(found.lower, found.upper, rtol=1e-12)


def test_a_union_is_refused() -> None:
    union = lipopt.Boxes((lipopt.Box(0, [1, 1]), lipopt.Box(2, [3, 3])))
    with pytest.raises(LipoptError, match="one box"):
        lipopt.jacobian([np.eye(2)], domain=union)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 2.5}, "number of samples"),
        ({"samples": 0}, "number of samples"),
        ({"seed": -1}, "the seed"),
        ({"domain": 5}, "the domain is a Ball, a Box"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LipoptError, match=message):
        lipopt.jacobian([np.eye(2)], **options)


def test_json_and_heat_map(tmp_path: Path) -> None:
    found = lipopt.jacobian([np.eye(2), [[1.0, -2.0]]], domain=lipopt.Ball([1.0, -1.0], 0.1))
    assert found.table().row_count == 2
    assert found.title == "Entries of the Jacobian, l_inf ball of radius 0.1"
    values = json.loads(found.to_json())
    assert values["lower"] == found.lower.tolist()
    assert values["scale"] == []
    found.plot(tmp_path / "map.svg")
    drawing = ElementTree.parse(tmp_path / "map.svg").getroot()
    cells = drawing.findall("{http://www.w3.org/2000/svg}rect")
    assert len(cells) == found.lower.size
    with pytest.raises(LipoptError, match="cannot write"):
        found.plot(tmp_path / "nowhere" / "map.svg")
