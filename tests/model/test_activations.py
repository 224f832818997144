"""Slope ranges, values and lines of every activation, against sampling and high precision."""

import itertools
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import GLOBAL_KINDS, PARAMETERS, defined

from lipopt.errors import LipoptError
from lipopt.model import activations
from lipopt.model.activations import KINDS

GRID = np.concatenate([np.linspace(-12, 12, 4801), [-1e3, 1e3, -1e-9, 3 - 1e-9]])
PRECISE = {
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "gelu": lambda x: x * mpmath.ncdf(x),
    "gelu_tanh": lambda x: (
        x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)))
    ),
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
    if KINDS[kind].argument != "any":
        x = x[x > 0.1]
    difference = (activations.value(kind, x + h, p) - activations.value(kind, x - h, p)) / (2 * h)
    np.testing.assert_allclose(activations.slope(kind, x, p), difference, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("kind", GLOBAL_KINDS)
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
    x = np.concatenate(
        [
            rng.uniform(-8, 8, 150),
            rng.uniform(-750, 40, 60),
            -0.75 + 1e-3 * rng.standard_normal(40),
            [0.0, 1e-9],
        ]
    )
    low, high = activations.slope_range(kind, x, x, activations.check(kind, {}))
    with mpmath.workdps(400):
        slopes = [mpmath.diff(PRECISE[kind], mpmath.mpf(v)) for v in x]
        assert all(a <= slope <= b for a, slope, b in zip(low, slopes, high, strict=True))
    np.testing.assert_allclose(high - low, 0, atol=1e-13)


@pytest.mark.parametrize("kind", sorted(PRECISE))
def test_extreme_slopes_in_high_precision(kind: str) -> None:
    """The proven global range contains the extreme slopes, to 30 digits, and exceeds them by no more than 1e-12."""
    with mpmath.workdps(30):
        low, high = activations.slope_range(
            kind, np.array([-np.inf]), np.array([np.inf]), activations.check(kind, {})
        )
        candidates = [mpmath.mpf(x) for x in (-60, 60)]
        for guess in activations.KINDS[kind].breaks(**activations.check(kind, {})):
            if kind in ("softsign",):
                candidates.append(mpmath.mpf(guess) + mpmath.mpf(10) ** -25)
                continue
            candidates.append(mpmath.findroot(lambda x: mpmath.diff(PRECISE[kind], x, 2), guess))
        slopes = [mpmath.diff(PRECISE[kind], x) for x in candidates]
        assert (
            mpmath.mpf(float(low[0]))
            <= min(slopes)
            <= mpmath.mpf(float(low[0])) + mpmath.mpf("1e-3")
        )
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


LOCAL_PRECISE = {
    "power": lambda x: x**3,
    "reciprocal": lambda x: 1 / x,
    "sqrt": mpmath.sqrt,
    "exp": mpmath.exp,
    "log": mpmath.log,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
}


@pytest.mark.parametrize("kind", sorted(LOCAL_PRECISE))
def test_values_and_slopes_of_all_sizes_in_high_precision(kind: str) -> None:
    """Both lie in the ranges that are proved at a point, which are narrow relative to them."""
    p = settings_of(kind)
    rng = np.random.default_rng(0)
    x = np.array([defined(kind, v) for v in rng.normal(size=200) * 10 ** rng.uniform(-6, 2, 200)])
    low, high = activations.slope_range(kind, x, x, p)
    bottom, top = activations.value_range(kind, x, x, p)
    with mpmath.workdps(60):
        exact = [mpmath.mpf(float(v)) for v in x]
        values = [LOCAL_PRECISE[kind](v) for v in exact]
        slopes = [mpmath.diff(LOCAL_PRECISE[kind], v) for v in exact]
        assert all(a <= s <= b for a, s, b in zip(low, slopes, high, strict=True))
        assert all(a <= v <= b for a, v, b in zip(bottom, values, top, strict=True))
    np.testing.assert_allclose(low, high, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(bottom, top, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("kind", ["sin", "cos"])
def test_waves_on_intervals_of_every_length(kind: str) -> None:
    """Also on those that are shorter or longer than a period, far from 0, and infinite ones."""
    rng = np.random.default_rng(0)
    lo = rng.normal(size=400) * 10 ** rng.uniform(-2, 5, 400)
    hi = lo + 10 ** rng.uniform(-3, 2.5, 400)
    low, high = activations.slope_range(kind, lo, hi, {})
    bottom, top = activations.value_range(kind, lo, hi, {})
    x = np.linspace(lo, hi, 501)
    slopes = activations.slope(kind, x, {})
    values = activations.value(kind, x, {})
    assert (low <= slopes.min(axis=0)).all()
    assert (slopes.max(axis=0) <= high).all()
    assert (bottom <= values.min(axis=0)).all()
    assert (values.max(axis=0) <= top).all()
    short = hi - lo < 6
    assert ((high - low)[short] <= np.ptp(slopes, axis=0)[short] + 1e-3).all()
    for ends in ((-np.inf, 1.0), (1.0, np.inf), (-np.inf, np.inf)):
        whole = activations.slope_range(kind, np.array(ends[:1]), np.array(ends[1:]), {})
        assert (whole[0][0], whole[1][0]) == (-1, 1)


@pytest.mark.parametrize(
    ("kind", "lo", "hi", "words"),
    [
        ("exp", -np.inf, np.inf, "ask in a ball or a box"),
        ("log", -np.inf, np.inf, "ask in a ball or a box"),
        ("power", -np.inf, np.inf, "ask in a ball or a box"),
        ("log", -0.5, 1.0, r"positive, and entry 0 is only known to lie in \[-0.5, 1\]"),
        ("sqrt", 0.0, 1.0, "positive"),
        ("reciprocal", -1.0, 1.0, "other than zero"),
        ("exp", 0.0, 800.0, "overflow"),
        ("reciprocal", 1e-200, 1.0, "overflow"),
    ],
)
def test_slopes_without_a_bound_are_refused(kind: str, lo: float, hi: float, words: str) -> None:
    ends = np.array([lo, 1.0]), np.array([hi, 2.0])
    with pytest.raises(LipoptError, match=rf"layer 'name' \({kind}\) .*{words}"):
        activations.require_slopes("name", kind, *ends, settings_of(kind))


@given(st.sampled_from(sorted(KINDS)), st.floats(-20, 20), st.floats(0, 30))
def test_ranges_and_lines_on_an_interval(kind: str, start: float, width: float) -> None:
    p = settings_of(kind)
    start = defined(kind, start)
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


def ramp(x: Fraction, alpha: float, beta: float) -> Fraction:
    return min(max(Fraction(alpha) * x + Fraction(beta), Fraction(0)), Fraction(1))


EXACT = {"hard_sigmoid": ramp, "hard_silu": lambda x, alpha, beta: x * ramp(x, alpha, beta)}
EXACT_SLOPES = {
    "hard_sigmoid": lambda x, alpha, beta: Fraction(alpha),
    "hard_silu": lambda x, alpha, beta: 2 * Fraction(alpha) * x + Fraction(beta),
}


@pytest.mark.parametrize("kind", sorted(EXACT))
def test_ramps_of_every_steepness_in_exact_arithmetic(kind: str) -> None:
    """Slopes, values and lines around the break points, where alpha x + beta cancels to nothing but its rounding error."""
    rng = np.random.default_rng(0)
    for _ in range(2000):
        alpha = float(2.0 ** rng.integers(-99, 99) * rng.uniform(1, 2))
        place = float(rng.choice([0.0, 1.0, 1 / 3, 100 * rng.normal()]))
        beta = float(
            np.clip(
                rng.choice([-alpha * place, rng.uniform() - alpha * place, 0.5]),
                -(2.0**100),
                2.0**100,
            )
        )
        p = activations.check(kind, {"alpha": alpha, "beta": beta})
        breaks = [-Fraction(beta) / Fraction(alpha), (1 - Fraction(beta)) / Fraction(alpha)]
        lo = np.nextafter(float(breaks[rng.integers(2)]), rng.choice([-np.inf, np.inf]))
        hi = lo + rng.choice([0.0, 1.0, 2.0**-53, 1 / alpha]) * abs(rng.normal())
        ends = np.array([lo]), np.array([hi])
        low, high = activations.slope_range(kind, *ends, p)
        bottom, top = activations.value_range(kind, *ends, p)
        k1, c1, k2, c2 = (Fraction(float(v[0])) for v in activations.linear_bounds(kind, *ends, p))
        inside = [Fraction(float(lo)), Fraction(float(hi)), *(b for b in breaks if lo <= b <= hi)]
        for x in inside:
            value = EXACT[kind](x, alpha, beta)
            assert bottom[0] <= value <= top[0]
            assert k1 * x + c1 <= value <= k2 * x + c2
            if breaks[0] <= x <= breaks[1]:
                assert low[0] <= EXACT_SLOPES[kind](x, alpha, beta) <= high[0]
            if x <= breaks[0]:
                assert low[0] <= 0 <= high[0]
            if x >= breaks[1]:
                assert low[0] <= (kind == "hard_silu") <= high[0]


@pytest.mark.parametrize("kind", sorted(set(GLOBAL_KINDS) - {"clip", "sin", "cos"}))
def test_slopes_beyond_all_numbers_are_their_limits(kind: str) -> None:
    """At infinity, and at the largest floats."""
    p = settings_of(kind)
    largest = np.finfo(np.float64).max
    for end in (1e5, 1e305, largest, np.inf):
        for sign in (-1, 1):
            low, high = activations.slope_range(
                kind, np.array([sign * end]), np.array([sign * end]), p
            )
            near = activations.slope(kind, np.array([sign * 1e4]), p)[0]
            assert low[0] <= high[0]
            np.testing.assert_allclose([low[0], high[0]], near, atol=2e-8)


@pytest.mark.parametrize("low", [-1e299, -1e300, -1e305, -1e308])
def test_clip_far_out(low: float) -> None:
    p = activations.check("clip", {"low": low})
    whole = activations.slope_range("clip", np.array([-np.inf]), np.array([np.inf]), p)
    assert (whole[0][0], whole[1][0]) == (0, 1)
    beyond = activations.slope_range(
        "clip", np.array([-np.inf]), np.array([np.nextafter(low, -np.inf)]), p
    )
    assert (beyond[0][0], beyond[1][0]) == (0, 0)


@pytest.mark.parametrize("kind", ["silu", "gelu"])
@pytest.mark.parametrize("beta", [2.0**-100, 1e-20, 1e20, 2.0**100])
def test_a_factor_does_not_change_the_slopes(kind: str, beta: float) -> None:
    everything = np.array([-np.inf]), np.array([np.inf])
    scaled = activations.slope_range(kind, *everything, activations.check(kind, {"beta": beta}))
    plain = activations.slope_range(kind, *everything, activations.check(kind, {}))
    np.testing.assert_allclose(scaled, plain, rtol=1e-12)


def test_what_is_not_known_has_every_slope() -> None:
    low, high = activations.slope_range(
        "relu", np.array([np.nan, 1.0]), np.array([1.0, np.nan]), {}
    )
    np.testing.assert_array_equal([low, high], [[0, 1], [1, 1]])


def test_parameters_are_widened_to_float64() -> None:
    given: dict[str, Any] = {"alpha": np.float32(0.2), "beta": np.array([0.1, 0.7], np.float32)}
    p = activations.check("hard_sigmoid", given)
    assert p["alpha"] == float(np.float32(0.2))
    assert all(np.asarray(v).dtype == np.float64 for v in p.values())


def test_relu_lines_are_those_of_crown() -> None:
    lines = activations.linear_bounds("relu", np.array([-1.0, -3.0]), np.array([3.0, 1.0]), {})
    expected: list[list[float]] = [[1, 0], [0, 0], [0.75, 0.25], [0.75, 0.75]]
    np.testing.assert_allclose(list(lines), expected, atol=1e-13)


def test_kinks_count_with_the_slopes_inside_of_the_interval() -> None:
    lo = np.array([0.0, -1.0, -2.0, 1e-9, 0.0])
    hi = np.array([0.0, 0.0, -1e-9, 2.0, 1.0])
    low, high = activations.slope_range("relu", lo, hi, {})
    np.testing.assert_array_equal(low, [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(high, [1, 0, 0, 1, 1])


def test_kinks_of_others_count_with_both_sides_unless_the_interval_is_open() -> None:
    lo = np.array([0.0])
    hi = np.array([1.0])
    parameters = activations.check("selu", {})
    closed = activations.slope_range("selu", lo, hi, parameters)
    inside = activations.slope_range("selu", lo, hi, parameters, is_open=True)
    assert closed[0] == inside[0]
    assert closed[1] > 1.7
    assert inside[1] < 1.1


def test_piecewise_linear_kinds_are_those_of_the_certificate_format() -> None:
    listed = {"relu", "abs", "leaky_relu", "clip", "hard_sigmoid"}  # spec/certificate.md
    assert {kind for kind, spec in KINDS.items() if spec.piecewise_linear} == listed


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
        ("clip", {"low": np.inf, "high": np.inf}),
        ("clip", {"low": -np.inf, "high": -np.inf}),
        ("hard_silu", {"alpha": 0.0}),
        ("silu", {"beta": 1e-302}),
        ("celu", {"alpha": 2.0**-101}),
        ("softplus", {"beta": 2.0**101}),
        ("hard_sigmoid", {"beta": -(2.0**101)}),
        ("selu", {"gamma": 1e300}),
    ],
)
def test_bad_parameters(kind: str, parameters: dict) -> None:
    with pytest.raises(LipoptError):
        activations.check(kind, parameters)
