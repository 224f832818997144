"""Domains, and pre-activation intervals that hold every value."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from strategies import Question, questions

from lipopt import Ball, Box, Boxes, load
from lipopt.errors import LipoptError
from lipopt.model.domain import read_array, read_box
from lipopt.model.round_ball import InputSet
from lipopt.problem.intervals import enclose


@given(questions())
def test_intervals_hold_every_value(question: Question) -> None:
    domain = question.domain or Ball(np.zeros(question.network.input_size), 1.0)
    low, high = domain.bounds(question.network.input_size)
    ball = domain.ball(question.network.input_size)
    intervals = enclose(question.network, low, high, ball).intervals
    x = np.random.default_rng(0).uniform(low[:, None], high[:, None], (len(low), 200))
    x[:, 0], x[:, 1] = low, high
    x = InputSet(low, high, ball).moved_into(x)
    for (lo, hi), values in zip(intervals, question.network.node_values(x), strict=True):
        slack = 1e-12 * (
            1 + np.abs(values)
        )  # of the sampled values, which are computed in plain floats
        assert (lo[:, None] <= values + slack).all()
        assert (values - slack <= hi[:, None]).all()


def test_intervals_are_rounded_outward() -> None:
    """An affine layer in exact arithmetic: no bound is on the wrong side, not by one unit in the last place."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        w, b = rng.normal(size=(3, 6)), rng.normal(size=3)
        center, radius = rng.normal(size=6), rng.random() * 10.0 ** rng.integers(-12, 2)
        low, high = Ball(center, radius).bounds(6)
        lo, hi = enclose(load([w, np.ones((1, 3))], biases=[b, None]), low, high).intervals[1]
        for i in range(3):
            terms = [(Fraction(w[i, j]), Fraction(center[j]), Fraction(radius)) for j in range(6)]
            top = sum(a * c + abs(a) * r for a, c, r in terms) + Fraction(b[i])
            bottom = sum(a * c - abs(a) * r for a, c, r in terms) + Fraction(b[i])
            assert Fraction(lo[i]) <= bottom
            assert top <= Fraction(hi[i])


def test_backward_bounds_are_tighter() -> None:
    """x - x through two ReLU layers: intervals alone give a width that grows, backward bounds know better."""
    w = [
        np.array([[1.0, 1.0], [1.0, -1.0]]),
        np.array([[1.0, -1.0], [1.0, 1.0]]),
        np.array([[1.0, -1.0]]),
    ]
    network = load(w, biases=[[3, 3], [0, 0], [0]])
    low, high = Ball(np.zeros(2), 0.5).bounds(2)
    lo, hi = enclose(network, low, high).intervals[3]
    np.testing.assert_allclose(
        [lo[0], hi[0]], [-1, 1], atol=1e-9
    )  # 2 x_2; intervals alone give [-2, 2]


def test_a_huge_ball_may_be_clipped() -> None:
    low, high = Ball(np.zeros(2), 1.7e308, clip=(-1, 1)).bounds(2)
    np.testing.assert_array_equal([low, high], [[-1, -1], [1, 1]])


def test_clip() -> None:
    low, high = Ball([0.0, 0.95], 0.1, clip=(0, 1)).bounds(2)
    np.testing.assert_allclose([low, high], [[0, 0.85], [0.1, 1]], atol=1e-12)
    assert low[0] == 0
    assert high[1] == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ball([0, 0], -1), "the radius must be a finite number >= 0, got -1"),
        (lambda: Ball([0, 0], np.nan), "the radius must be a finite number >= 0, got nan"),
        (lambda: Ball([0, 0], np.inf), "the radius must be a finite number >= 0, got inf"),
        (lambda: Ball([0, 0], "a"), "the radius must be a finite number >= 0, got 'a'"),  # type: ignore[arg-type]
        (lambda: Ball([np.nan, 0], 1), "NaN or infinite"),
        (lambda: Ball([], 1), "center is empty"),
        (lambda: Ball("x", 1), "not an array of numbers"),
        (lambda: Ball([2.0], 0.1, clip=(0, 1)), "outside the clip range"),
        (lambda: Ball([0.5], 0.1, clip=(1, 0)), "clip needs low <= high"),
        (lambda: Ball([0.5], 0.1, clip=(0, np.nan)), "clip needs low <= high"),
        (lambda: Ball([0.5], 0.1, clip=5), "clip is a pair of numbers"),  # type: ignore[arg-type]
        (lambda: Box([1, 0], [0, 1]), "the box is empty"),
        (lambda: Box([0, 0], [1, 1, 1]), "different shapes"),
        (lambda: Box([-np.inf], [0]), "NaN or infinite"),
        (lambda: Ball(np.zeros(3), 1).bounds(2), "the center has 3 entries"),
        (lambda: Ball(np.zeros(2), 1e308), r"reaches beyond 1e\+300"),
        (lambda: Ball(np.full(2, 1.7e308), 1.7e308), r"reaches beyond 1e\+300"),
        (lambda: Ball(np.full(2, -1.7e308), 0), r"reaches beyond 1e\+300"),
        (lambda: Ball(np.zeros(2), 1e308, clip=(0, np.inf)), r"reaches beyond 1e\+300"),
        (lambda: Box([0, 0], [1, 1e301]), r"reaches beyond 1e\+300"),
        (lambda: Boxes(()), "one Box or more"),
        (lambda: Boxes((Box(0, 1), Ball(0, 1))), "one Box or more"),  # type: ignore[arg-type]
        (lambda: Boxes((Box(0, 1), Box(2, 3))).bounds(1), "about one box"),
    ],
)
def test_bad_domains(make: Callable[[], object], message: str) -> None:
    with pytest.raises(LipoptError, match=message):
        make()


def test_files(tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.arange(4))
    (tmp_path / "c.csv").write_text("0,1,2,3\n")
    np.savez(tmp_path / "b.npz", lower=np.zeros(2), upper=np.ones(2))
    (tmp_path / "b.csv").write_text("0,0\n1,1\n")
    np.testing.assert_array_equal(read_array(tmp_path / "c.npy"), read_array(tmp_path / "c.csv"))
    for name in ("b.npz", "b.csv"):
        np.testing.assert_array_equal(read_box(tmp_path / name).bounds(2), [[0, 0], [1, 1]])
    (tmp_path / "bad.csv").write_text("a,b\n")
    (tmp_path / "empty.csv").write_text(" \n")
    for name, message in {
        "bad.csv": "could not convert string 'a'",
        "empty.csv": "it is empty",
    }.items():
        with pytest.raises(LipoptError, match=rf"{name}: .*{message}"):
            read_array(tmp_path / name)
    with pytest.raises(LipoptError, match=r"c\.csv must hold two rows"):
        read_box(tmp_path / "c.csv")
    with pytest.raises(LipoptError, match="no such file"):
        read_box(tmp_path / "none.npz")


@pytest.mark.parametrize("values", [np.array([1j]), np.array(["1.0"])])
def test_files_of_other_things_than_numbers(values: np.ndarray, tmp_path: Path) -> None:
    """NumPy would drop an imaginary part, and read text as numbers."""
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(LipoptError, match="it holds values of type"):
        read_array(tmp_path / "x.npy")
