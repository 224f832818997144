"""Linear functions over balls that are no boxes, and balls cut with boxes."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from lipopt import Ball, bound, load
from lipopt.errors import LipoptError
from lipopt.model.norms import Norm
from lipopt.model.round_ball import InputSet, RoundBall
from lipopt.numerics.arrays import Array

SEEDS = st.integers(0, 2**32 - 1)
ROUND = st.sampled_from([Norm.L2, Norm.L1])


def some_ball(seed: int, norm: Norm) -> tuple[np.random.Generator, RoundBall]:
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.integers(-8, 8)
    return rng, RoundBall(norm, rng.normal(size=5), size * rng.random(5))


def exact_fall(ball: RoundBall, row: Array) -> tuple[Fraction, bool]:
    """The dual norm of radii * row, or its square."""
    sizes = [abs(Fraction(r) * Fraction(g)) for r, g in zip(ball.radii, row, strict=True)]
    if ball.norm is Norm.L1:
        return max(sizes), False
    return sum((s * s for s in sizes), Fraction(0)), True


@given(SEEDS, ROUND)
def test_least_values_are_rounded_down(seed: int, norm: Norm) -> None:
    """In exact arithmetic: no bound is too large, not by one unit in the last place; none by far too small."""
    rng, ball = some_ball(seed, norm)
    rows = rng.normal(size=(4, 5)) * 10.0 ** rng.integers(-5, 5, (4, 1))
    around = InputSet(ball.center - 2 * ball.radii, ball.center + 2 * ball.radii, ball)
    for row, least in zip(rows, around.least_values(rows), strict=True):
        middle = sum(Fraction(g) * Fraction(c) for g, c in zip(row, ball.center, strict=True))
        fall = middle - Fraction(least)
        exact, is_squared = exact_fall(ball, row)
        assert (fall * fall if is_squared else fall) >= exact
        size = float(np.abs(row) @ (np.abs(ball.center) + ball.radii))
        assert float(fall) <= float(exact) ** (0.5 if is_squared else 1.0) + 1e-12 * size


@given(SEEDS, ROUND)
def test_points_of_a_cut_ball_are_not_below_least_values(seed: int, norm: Norm) -> None:
    rng, ball = some_ball(seed, norm)
    lower = ball.center - ball.radii * rng.choice([0.0, 0.3, 1.0], 5)
    upper = ball.center + ball.radii * rng.choice([0.0, 0.3, 1.0], 5)
    inputs = InputSet(lower, upper, ball)
    points = inputs.moved_into(rng.uniform(lower[:, None], upper[:, None], (5, 300)))
    assert inputs.holds(points).all()
    rows = rng.normal(size=(20, 5))
    least = inputs.least_values(rows)
    assert (rows @ points >= least[:, None]).all()
    attained = (rows * inputs.least_points(rows)).sum(axis=1)
    assert np.allclose(attained, least, rtol=1e-9)


@given(SEEDS, ROUND)
def test_divided_values_are_below_all_points_and_attained(seed: int, norm: Norm) -> None:
    """In l1 a linear program knows the least value; in l2 the point that the multiplier says has it."""
    rng, ball = some_ball(seed, norm)
    lower = ball.center - ball.radii * rng.choice([0.0, 0.3, 1.0], 5)
    upper = ball.center + ball.radii * rng.choice([0.0, 0.3, 1.0], 5)
    inputs = InputSet(lower, upper, ball)
    points = inputs.moved_into(rng.uniform(lower[:, None], upper[:, None], (5, 300)))
    rows = rng.normal(size=(20, 5))
    least, multipliers = inputs.least_divided(rows)
    assert (least >= inputs.least_values(rows)).all()
    assert (rows @ points >= least[:, None]).all()
    assert multipliers is not None
    for row, value, multiplier in zip(rows, least, multipliers, strict=True):
        if norm is Norm.L1:
            attained = least_by_linear_program(ball, row, lower, upper)
        else:
            steps = ball.radii**2 * row / multiplier
            attained = float(row @ np.clip(ball.center - steps, lower, upper))
        size = float(np.abs(row) @ (np.abs(ball.center) + ball.radii))
        assert abs(attained - value) <= 1e-7 * size


def least_by_linear_program(ball: RoundBall, row: Array, lower: Array, upper: Array) -> float:
    """In steps from the center, in radii: s = a - b, with a and b >= 0."""
    cost = np.concatenate([row * ball.radii, -row * ball.radii])
    ends = [*zip(0 * row, (upper - ball.center) / ball.radii, strict=True)]
    ends += zip(0 * row, (ball.center - lower) / ball.radii, strict=True)
    found = linprog(cost, A_ub=np.ones((1, 2 * len(row))), b_ub=[1.0], bounds=ends)
    return float(row @ ball.center + found.fun)


@given(SEEDS, ROUND)
def test_divided_values_in_boxes_off_the_center(seed: int, norm: Norm) -> None:
    """Cells of a ball may lie beside its center, or hold no point of it."""
    rng, ball = some_ball(seed, norm)
    lower = ball.center + ball.radii * rng.uniform(-1, 0.6, 5)
    upper = lower + ball.radii * rng.uniform(0, 1, 5)
    inputs = InputSet(lower, upper, ball)
    points = rng.uniform(lower[:, None], upper[:, None], (5, 2000))
    points = points[:, inputs.holds(points)]
    rows = rng.normal(size=(20, 5))
    least, _ = inputs.least_divided(rows)
    assert (least >= inputs.least_values(rows)).all()
    assert (rows @ points >= least[:, None]).all()


def test_many_inputs_are_divided_in_the_simple_way() -> None:
    size = 101
    ball = RoundBall(Norm.L2, np.zeros(size), np.ones(size))
    inputs = InputSet(np.full(size, -0.01), np.ones(size), ball)
    rows = np.ones((1, size))
    least, multipliers = inputs.least_divided(rows)
    assert multipliers is None
    assert (least == inputs.least_values(rows)).all()


def test_inputs_at_the_end_of_the_box_are_left_to_it() -> None:
    """A digit's background: pixels at 0 cannot fall, so that they do not count in the ball's norm."""
    disc = RoundBall(Norm.L2, np.zeros(2), np.ones(2))
    rows = np.array([[3.0, 4.0], [-3.0, 4.0], [-3.0, -4.0]])
    clipped = InputSet(np.zeros(2), np.ones(2), disc)
    assert np.allclose(clipped.least_values(rows), [0.0, -3.0, -5.0])


def test_a_box_that_misses_the_ball() -> None:
    disc = RoundBall(Norm.L2, np.zeros(2), np.array([1.0, 2.0]))
    assert not InputSet(np.array([0.7, 1.4]), np.array([2.0, 2.0]), disc).is_empty
    assert InputSet(np.array([0.8, 1.4]), np.array([2.0, 2.0]), disc).is_empty
    diamond = RoundBall(Norm.L1, np.zeros(2), np.array([1.0, 2.0]))
    assert not InputSet(np.array([0.4, 1.1]), np.array([2.0, 2.0]), diamond).is_empty
    assert InputSet(np.array([0.5, 1.1]), np.array([2.0, 2.0]), diamond).is_empty


def test_a_ball_reaches_as_far_as_its_units() -> None:
    ball = Ball([1.0, 2.0], 0.5, norm="l2", scale=[1.0, 100.0])
    lower, upper = ball.bounds(2)
    assert np.allclose(lower, [0.5, -48.0])
    assert np.allclose(upper, [1.5, 52.0])
    assert ball.describe() == "l2 ball of radius 0.5 in the given units"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"norm": "l3"}, "l3"),
        ({"scale": [1.0, 0.0]}, "positive"),
        ({"scale": [1.0, -1.0]}, "positive"),
        ({"scale": [1.0, np.nan]}, "NaN"),
        ({"scale": [1.0, 2.0, 3.0]}, "the scale 3"),
        ({"scale": "metres"}, "array of numbers"),
    ],
)
def test_balls_that_make_no_sense(options: dict, reason: str) -> None:
    network = load([np.eye(2), np.ones((1, 2))])
    with pytest.raises(LipoptError, match=reason):
        bound(network, domain=Ball([0.0, 0.0], 1.0, **options))


def test_smaller_balls_have_smaller_bounds() -> None:
    """The l1 ball lies in the l2 ball, and that in the box."""
    rng = np.random.default_rng(3)
    network = load(
        [rng.normal(size=(20, 10)), rng.normal(size=(1, 20))], biases=[rng.normal(size=20), None]
    )
    center = rng.normal(size=10)
    balls = [Ball(center, 0.5, norm=norm) for norm in ("l1", "l2", "linf")]
    uppers = [bound(network, domain=ball, method="sdp").upper for ball in balls]
    assert uppers[0] <= uppers[1] <= uppers[2]
    assert uppers[0] < uppers[2]
