"""Searches leave time for writing what they prove. The clock of these tests is a number."""

from __future__ import annotations

import numpy as np
import pytest

import lipopt
from lipopt.errors import LipoptError
from lipopt.methods.branch import writing
from lipopt.methods.branch.writing import FIRST_CELLS, GROWTH, Writing


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(writing, "time", made)
    return made


def test_larger_trees_take_longer(clock: Clock) -> None:
    written = []

    def write() -> None:
        written.append(clock.now)
        clock.now += 2.0
        raise LipoptError("multipliers could not be rounded")

    known = Writing(write)
    assert known.seconds_for(1000) == 0
    for cells in range(1, GROWTH * FIRST_CELLS):
        known.try_out(cells)
    assert len(written) == 1
    assert known.seconds_for(10 * FIRST_CELLS) == 20.0
    known.try_out(GROWTH * FIRST_CELLS)
    assert len(written) == 2
    assert known.seconds_for(GROWTH * FIRST_CELLS) == 2.0


def test_nothing_is_tried_where_nothing_is_written() -> None:
    known = Writing(None)
    known.try_out(1000)
    assert known.seconds_for(1000) == 0


def test_a_search_ends_when_writing_takes_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    network = lipopt.load([rng.normal(size=(20, 4)), rng.normal(size=(1, 20))], activation="tanh")
    monkeypatch.setattr(Writing, "seconds_for", lambda self, cells: 1e9 * (self.cells > 0))
    result = lipopt.bound(
        network,
        domain=lipopt.Ball(np.zeros(4), 1.0),
        method="branch",
        gap=1e-9,
        certify=True,
        time_limit=1e6,
    )
    assert result.status == "time limit"
    assert result.certificate is not None
    assert result.upper == result.certificate.bound
