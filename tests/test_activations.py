"""Slope ranges, values and lines of every activation, against sampling and high precision."""

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import PARAMETERS

from lipopt import activations
from lipopt.activations import KINDS
from lipopt.errors import LipoptError

GRID = np.concatenate([np.linspace(-12, 12, 4801), [-1e3, 1e3, -1e-9, 3 - 1e-9]])
PRECISE = {
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "gelu": lambda x: x * mpmath.ncdf(x),
    "gelu_tanh": lambda x: x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))),
    "mish": lambda x: x * mpmath.tanh(mpmath.log(1 + mpmath.exp(x))),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "tanh": mpmath.tanh,
    "erf": mpmath.erf,
    "softplus": lambda x: mpmath.log(1 + mpmath.exp(x)),
    "softsign": lambda x: x / (1 + abs(x)),
}


def settings_of(kind: str) -> dict:
    return activations.check(kind, PARAMETERS.get(kind, {}))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_slope_is_the_derivative(kind: str) -> None:
    p = settings_of(kind)
    h = 1e-6
    x = GRID[np.abs(GRID) < 100] + 1e-4  # away from kinks
    difference = (activations.value(kind, x + h, p) - activations.value(kind, x - h, p)) / (2 * h)
    np.testing.assert_allclose(activations.slope(kind, x, p), difference, atol=1e-7)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_global_slope_range_holds_every_slope_and_is_attained(kind: str) -> None:
    p = settings_of(kind)
    low, high = activations.slope_range(kind, np.array([-np.inf]), np.array([np.inf]), p)
    slopes = activations.slope(kind, GRID, p)
    assert low[0] <= slopes.min() <= low[0] + 1e-5
    assert high[0] - 1e-5 <= slopes.max() <= high[0]


@pytest.mark.parametrize("kind", sorted(PRECISE))
def test_slopes_in_high_precision(kind: str) -> None:
    """The slope at a point lies in the range that is proved for it, a narrow one: also where it is tiny, or its terms cancel."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-8, 8, 150), rng.uniform(-750, 40, 60), -0.75 + 1e-3 * rng.standard_normal(40), [0.0, 1e-9]])
    low, high = activations.slope_range(kind, x, x, activations.check(kind, {}))
    with mpmath.workdps(400):
        slopes = [mpmath.diff(PRECISE[kind], mpmath.mpf(v)) for v in x]
        assert all(a <= slope <= b for a, slope, b in zip(low, slopes, high, strict=True))
    np.testing.assert_allclose(high - low, 0, atol=1e-13)


@pytest.mark.parametrize("kind", sorted(PRECISE))
def test_extreme_slopes_in_high_precision(kind: str) -> None:
    """The proven global range contains the extreme slopes, to 30 digits, and exceeds them by no more than 1e-12."""
    with mpmath.workdps(30):
        low, high = activations.slope_range(kind, np.array([-np.inf]), np.array([np.inf]), activations.check(kind, {}))
        candidates = [mpmath.mpf(x) for x in (-60, 60)]
        for guess in activations.KINDS[kind].breaks(**activations.check(kind, {})):
            if kind in ("softsign",):
                candidates.append(mpmath.mpf(guess) + mpmath.mpf(10) ** -25)
                continue
            candidates.append(mpmath.findroot(lambda x: mpmath.diff(PRECISE[kind], x, 2), guess))
        slopes = [mpmath.diff(PRECISE[kind], x) for x in candidates]
        assert mpmath.mpf(float(low[0])) <= min(slopes) <= mpmath.mpf(float(low[0])) + mpmath.mpf("1e-3")
        assert max(slopes) <= mpmath.mpf(float(high[0])) <= max(slopes) + mpmath.mpf("1e-12")


@pytest.mark.parametrize("kind", sorted(PRECISE))
def test_slope_is_monotone_between_breaks(kind: str) -> None:
    """What the slope range rests on: no turning point of the slope but the break points, in high precision."""
    breaks = [float(b) for b in KINDS[kind].breaks(**activations.check(kind, {}))]
    edges = [-40.0, *breaks, 40.0]
    with mpmath.workdps(40):
        for left, right in itertools.pairwise(edges):
            inside = np.linspace(left, right, 202)[1:-1]
            second = [mpmath.diff(PRECISE[kind], mpmath.mpf(float(x)), 2) for x in inside]
            signs = {mpmath.sign(s) for s in second if abs(s) > mpmath.mpf("1e-30")}
            assert len(signs) == 1, (kind, left, right)


@given(st.sampled_from(sorted(KINDS)), st.floats(-20, 20), st.floats(0, 30))
def test_ranges_and_lines_on_an_interval(kind: str, start: float, width: float) -> None:
    p = settings_of(kind)
    lo, hi = np.array([start]), np.array([start + width])
    x = np.linspace(lo[0], hi[0], 301)
    values, slopes = activations.value(kind, x, p), activations.slope(kind, x, p)
    low, high = activations.slope_range(kind, lo, hi, p)
    assert low[0] <= slopes.min()
    assert slopes.max() <= high[0]
    bottom, top = activations.value_range(kind, lo, hi, p)
    assert bottom[0] <= values.min()
    assert values.max() <= top[0]
    k1, c1, k2, c2 = activations.linear_bounds(kind, lo, hi, p)
    assert (k1 * x + c1 <= values).all()
    assert (values <= k2 * x + c2).all()


def test_relu_lines_are_those_of_crown() -> None:
    k1, c1, k2, c2 = activations.linear_bounds("relu", np.array([-1.0, -3.0]), np.array([3.0, 1.0]), {})
    np.testing.assert_allclose([k1, c1, k2, c2], [[1, 0], [0, 0], [0.75, 0.25], [0.75, 0.75]], atol=1e-13)


def test_kinks_give_the_closed_interval_of_one_sided_slopes() -> None:
    lo, hi = np.array([0.0, -1.0, -2.0, 1e-9]), np.array([0.0, 0.0, -1e-9, 2.0])
    low, high = activations.slope_range("relu", lo, hi, {})
    np.testing.assert_array_equal(low, [0, 0, 0, 1])
    np.testing.assert_array_equal(high, [1, 1, 0, 1])


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("nope", {}),
        ("relu", {"alpha": 1.0}),
        ("celu", {"alpha": 0.0}),
        ("celu", {"alpha": -1.0}),
        ("elu", {"alpha": np.nan}),
        ("silu", {"beta": np.inf}),
        ("clip", {"low": 1.0, "high": 0.0}),
    ],
)
def test_bad_parameters(kind: str, parameters: dict) -> None:
    with pytest.raises(LipoptError):
        activations.check(kind, parameters)
