"""Which neuron is split, by what splits have gained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lipopt.methods.branch.choose import NeuronSplits
from lipopt.methods.branch.gains import Gains
from lipopt.problem.proofs import NeuronSplit

BOUND = 8.0
TARGET = 1.0
SPLITS = NeuronSplits(np.array([4, 2, 0]), np.array([0.5, 0.0, -1.0]), np.array([3.0, 2.0, 1.0]))
FIRST, SECOND, THIRD = (NeuronSplit(4, 0.5), NeuronSplit(2, 0.0), NeuronSplit(0, -1.0))


def after(split: NeuronSplit, parts: list[float], times: int = 1) -> Gains:
    """What is known after a split into parts with these bounds."""
    gains = Gains.none(5)
    for _ in range(times):
        gains.note(split, SPLITS, BOUND, parts, TARGET)
    return gains


def test_the_largest_score_comes_first() -> None:
    assert Gains.none(5).choose(SPLITS, BOUND) == FIRST


def test_a_neuron_that_gained_more_than_another_is_split_again() -> None:
    gains = after(SECOND, [2.0, 2.0], times=3)
    gains.note(FIRST, SPLITS, BOUND, [7.0, BOUND], TARGET)
    gains.note(FIRST, SPLITS, BOUND, [BOUND, 7.0], TARGET)
    gains.note(FIRST, SPLITS, BOUND, [BOUND, BOUND], TARGET)
    assert gains.choose(SPLITS, BOUND) == SECOND


def test_a_neuron_that_gained_nothing_is_left() -> None:
    assert after(FIRST, [BOUND, BOUND], times=2).choose(SPLITS, BOUND) == SECOND


def test_scores_are_worth_what_they_have_gained() -> None:
    """A neuron that gains less than its score promised is still better than scores that promise
    as much too much."""
    gains = after(FIRST, [7.0, 7.0], times=10)
    assert gains.gained < gains.promised
    assert gains.choose(SPLITS, BOUND) == FIRST


@pytest.mark.parametrize(
    ("bound", "parts", "target"),
    [
        (BOUND, [0.0, 0.0], TARGET),  # both parts are empty
        (BOUND, [0.0, 0.0], 0.0),  # and nothing is known of the target
        (BOUND, [20.0, float("inf")], TARGET),  # nothing was gained
        (float("inf"), [float("inf"), 1.0], TARGET),
    ],
)
def test_gains_are_finite_and_not_negative(bound: float, parts: list[float], target: float) -> None:
    gains = Gains.none(5)
    gains.note(FIRST, SPLITS, bound, parts, target)
    assert np.isfinite(gains.sums).all()
    assert (gains.sums >= 0).all()
    assert gains.choose(SPLITS, bound) in (FIRST, SECOND, THIRD)


def test_scores_that_are_all_alike_give_the_first() -> None:
    same = replace(SPLITS, scores=np.ones(3))
    assert Gains.none(5).choose(same, float("inf")) == FIRST
