"""Random models have the values of their originals once read, or are refused with a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from random_models import Outcome, onnx_outcome, tally, torch_outcome

FINE = {"equal", "refused"}
BLOCK = 250  # models in one test of a long run


def all_fine(outcome: Callable[[int], Outcome], seeds: range) -> None:
    """Assert that no model is wrong, crashes or is taken for wrong, and that most are read."""
    counts = tally(outcome, seeds)
    assert set(counts.outcomes) <= FINE, counts.table()
    assert counts.outcomes["equal"] > len(seeds) / 2, counts.table()


@pytest.mark.parametrize("start", range(0, 120, 30))
def test_random_onnx_graphs(start: int) -> None:
    all_fine(onnx_outcome, range(start, start + 30))


@pytest.mark.parametrize("start", range(0, 30, 10))
def test_random_modules(start: int) -> None:
    all_fine(torch_outcome, range(start, start + 10))


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(1000, 7000, BLOCK))
def test_thousands_of_random_onnx_graphs(start: int) -> None:
    all_fine(onnx_outcome, range(start, start + BLOCK))


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(1000, 3000, BLOCK))
def test_thousands_of_random_modules(start: int) -> None:
    all_fine(torch_outcome, range(start, start + BLOCK))
