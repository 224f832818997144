"""Enclosures of the activations, against high precision and against lipopt's own."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import GLOBAL_KINDS, PARAMETERS, defined

from lipcheck.elementary import (
    UNIT,
    exp,
    growth,
    log,
    log1p,
    normal,
    root,
    sine_and_cosine,
    units,
)
from lipcheck.exact import GRID
from lipcheck.functions import KINDS, hull, offset_above, offset_below, slope_range
from lipcheck.verdicts import Failure
from lipopt.model import activations

mpmath.mp.dps = 60
POINTS = st.floats(-150, 150) | st.floats(-8, 8) | st.floats(-1e-3, 1e-3)


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


REFERENCES = {
    "sigmoid": sigmoid,
    "tanh": mpmath.tanh,
    "erf": mpmath.erf,
    "softplus": lambda x: mpmath.log1p(mpmath.exp(2 * x)) / 2,
    "silu": lambda x: x * sigmoid(mpmath.mpf(1.3) * x),
    "gelu": lambda x: x * mpmath.ncdf(x),
    "gelu_tanh": lambda x: (
        x * sigmoid(2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))
    ),
    "mish": lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))),
    "elu": lambda x: x if x >= 0 else mpmath.mpf(1.7) * mpmath.expm1(x),
    "celu": lambda x: x if x >= 0 else mpmath.mpf(0.6) * mpmath.expm1(x / mpmath.mpf(0.6)),
    "softsign": lambda x: x / (1 + abs(x)),
    "hard_swish": lambda x: x * min(max(x / 6 + 0.5, 0), 1),
    "hard_silu": lambda x: x * min(max(x / 4 + 0.25, 0), 1),
    "power": lambda x: x**3,
    "reciprocal": lambda x: 1 / x,
    "sqrt": mpmath.sqrt,
    "exp": mpmath.exp,
    "log": mpmath.log,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
}


def build(kind):
    """lipcheck's function and the parameters of it in lipopt."""
    parameters = activations.check(kind, PARAMETERS.get(kind, {}))
    names, build_function = KINDS[kind]
    values = (
        value if np.isinf(value) else Fraction(value)
        for value in (float(parameters[name]) for name in names)
    )
    return build_function(*values), parameters


def high_precision(x):
    return mpmath.mpf(x.numerator) / x.denominator


def test_the_kinds_are_those_of_lipopt():
    assert set(KINDS) == set(activations.KINDS)


def in_units(function):
    """A function of integers that count 1 / UNIT, as one of fractions."""
    return lambda x: Fraction(function(units(x)), UNIT)


def normal_at(x):
    value, density = normal(units(x))
    return Fraction(value, UNIT), Fraction(density, UNIT)


SERIES = {  # functions, their references, and arguments
    "exp": (in_units(exp), mpmath.exp, POINTS.map(lambda x: -abs(x))),
    "log1p": (in_units(log1p), mpmath.log1p, st.floats(0, 1)),
    "root": (root, mpmath.sqrt, POINTS.map(abs)),
    "normal distribution": (lambda x: normal_at(x)[0], mpmath.ncdf, st.floats(-15, 15)),
    "log": (log, mpmath.log, st.floats(1e-300, 1e300)),
    "sine": (in_units(lambda x: sine_and_cosine(x)[0]), mpmath.sin, POINTS),
    "cosine": (in_units(lambda x: sine_and_cosine(x)[1]), mpmath.cos, POINTS),
    "normal density": (lambda x: normal_at(x)[1], mpmath.npdf, st.floats(-15, 15)),
}


@pytest.mark.parametrize("name", SERIES)
@given(data=st.data())
def test_series_are_off_by_less_than_they_say(name, data):
    function, reference, arguments = SERIES[name]
    x = Fraction(data.draw(arguments))
    with mpmath.workdps(300):
        assert (
            abs(high_precision(function(x)) - reference(high_precision(x))) < mpmath.mpf(2) ** -180
        )


@given(x=st.floats(0, 900))
def test_growth_is_off_by_less_than_it_says(x):
    with mpmath.workdps(600):
        exact = mpmath.exp(mpmath.mpf(x))
        assert abs(high_precision(growth(Fraction(x))) - exact) < mpmath.mpf(2) ** -180 * exact


@given(x=st.floats(15, 1e6), sign=st.sampled_from([-1, 1]))
def test_the_normal_distribution_is_constant_far_out(x, sign):
    value, density = normal_at(sign * Fraction(x))
    with mpmath.workdps(300):
        assert (
            abs(high_precision(value) - mpmath.ncdf(sign * mpmath.mpf(x))) < mpmath.mpf(2) ** -160
        )
        assert abs(high_precision(density) - mpmath.npdf(mpmath.mpf(x))) < mpmath.mpf(2) ** -160


@pytest.mark.parametrize("kind", sorted(REFERENCES))
@settings(max_examples=15)
@given(x=POINTS)
def test_values_and_slopes_are_enclosed(kind, x):
    f, _ = build(kind)
    x = Fraction(defined(kind, x))
    low, high = (high_precision(Fraction(end, GRID)) for end in f.at(x).value)
    exact = REFERENCES[kind](high_precision(x))
    size = 1 + abs(float(x)) + (0 if kind in GLOBAL_KINDS else abs(exact))
    assert abs((low + high) / 2 - exact) <= mpmath.mpf(10) ** -41 * size  # far within
    assert high - low <= mpmath.mpf(10) ** -35 * size
    if all(
        abs(x * f.scale - b) > 1e-20 for b in f.breaks
    ):  # the reference is a difference quotient
        low, high = slope_range(f, x, x)
        slope = mpmath.diff(REFERENCES[kind], high_precision(x), h=mpmath.mpf(10) ** -25)
        off = 1e-15 * (1 + abs(slope))  # of the difference quotient
        assert high_precision(low) - off <= slope <= high_precision(high) + off
        assert high_precision(high - low) <= off


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=15)
@given(ends=st.tuples(POINTS, POINTS))
def test_ranges_lie_in_those_of_lipopt(kind, ends):
    """Both enclose the truth, lipcheck more tightly; and lines around the function have what lies between them."""
    f, parameters = build(kind)
    lo, hi = (Fraction(end) for end in sorted(defined(kind, end) for end in ends))
    arrays = np.array([float(lo)]), np.array([float(hi)])
    low, high = slope_range(f, lo, hi)
    wide_low, wide_high = activations.slope_range(kind, *arrays, parameters)
    assert wide_low[0] <= low + Fraction(1, 2**60)
    assert high <= wide_high[0] + Fraction(1, 2**60)
    points = hull(f, lo, hi)
    below, from_below, above, from_above = (
        float(v[0]) for v in activations.linear_bounds(kind, *arrays, parameters)
    )
    values = activations.value(kind, np.concatenate(arrays), parameters)
    slack = Fraction(1e-9 * (1 + abs(float(lo)) + abs(float(hi)) + np.abs(values).max()))
    assert offset_below(points, Fraction(below)) >= Fraction(from_below) - slack
    assert offset_above(points, Fraction(above)) <= Fraction(from_above) + slack
    for x in np.random.default_rng(0).uniform(*arrays, 20):
        y = activations.value(kind, np.array([x]), parameters)[0]
        rounding = 1e-12 * (1 + abs(x) + abs(y) + max(abs(below), abs(above)) * abs(x))
        assert float(offset_below(points, Fraction(below))) + below * x - rounding <= y
        assert y <= float(offset_above(points, Fraction(above))) + above * x + rounding
        steepness = activations.slope(kind, np.array([x]), parameters)[0]
        rounding = 1e-12 * (1 + abs(steepness))
        assert float(low) - rounding <= steepness <= float(high) + rounding


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(GLOBAL_KINDS)))
def test_slopes_without_a_bound_are_rejected(kind):
    f, _ = build(kind)
    with pytest.raises(Failure, match="no bounded slopes"):
        slope_range(f)
    if kind in ("sqrt", "log", "reciprocal"):
        with pytest.raises(Failure, match="no bounded slopes"):
            slope_range(f, Fraction(0), Fraction(1))
    if kind == "exp":
        with pytest.raises(Failure, match="no bounded slopes"):
            slope_range(f, Fraction(0), Fraction(2000))


@pytest.mark.parametrize("kind", GLOBAL_KINDS)
def test_slopes_over_the_whole_space(kind):
    f, parameters = build(kind)
    low, high = slope_range(f)
    x = np.concatenate([np.linspace(-10, 10, 20_001), [-1e6, 1e6]])
    slopes = activations.slope(kind, x, parameters)
    assert float(low) - 1e-12 <= slopes.min()
    assert slopes.max() <= float(high) + 1e-12
    wide_low, wide_high = activations.slope_range(
        kind, np.array([-np.inf]), np.array([np.inf]), parameters
    )
    assert wide_low[0] <= low + Fraction(1, 2**60)
    assert high <= wide_high[0] + Fraction(1, 2**60)


SMALLEST = Fraction(np.finfo(np.float64).smallest_subnormal)
LARGEST = Fraction(np.finfo(np.float64).max)
EXTREME = pytest.mark.parametrize(
    "beta", [SMALLEST, Fraction(1e-302), LARGEST], ids=["smallest", "1e-302", "largest"]
)
SHIFTS = pytest.mark.parametrize(
    "shift", [-LARGEST, Fraction(0), LARGEST], ids=["lowest", "0", "largest"]
)
SLOPES_OF_RAMPS = (Fraction(0), Fraction(1))


def test_infinity_is_beyond_a_clip():
    """Whatever a float64 parameter is, over the whole space every slope counts: here and below."""
    assert slope_range(KINDS["clip"].build(-LARGEST, float("inf"))) == SLOPES_OF_RAMPS


@EXTREME
@pytest.mark.parametrize(("kind", "steepest"), [("silu", 1.0998), ("gelu", 1.1289)])
def test_infinity_is_beyond_the_turning_points(kind, steepest, beta):
    low, high = slope_range(KINDS[kind].build(beta))
    assert high > steepest
    assert low < 1 - steepest


@EXTREME
@pytest.mark.parametrize("kind", ["softplus", "celu"])
def test_infinity_is_where_slopes_are_at_their_limits(kind, beta):
    assert slope_range(KINDS[kind].build(beta)) == SLOPES_OF_RAMPS


@EXTREME
@SHIFTS
def test_infinity_is_beyond_a_hard_sigmoid(beta, shift):
    low, high = slope_range(KINDS["hard_sigmoid"].build(beta, shift))
    assert low == 0
    assert high == max(beta, Fraction(1, 2**128))  # rounded up to the grid


@EXTREME
@SHIFTS
def test_infinity_is_beyond_a_hard_silu(beta, shift):
    low, high = slope_range(KINDS["hard_silu"].build(beta, shift))
    assert low == min(0, -shift)
    assert high == max(1, 2 - shift)


def test_hard_swish_is_a_hard_silu():
    """With alpha = 1/6, which no float is: the product of a file has an alpha near to that, and slopes that differ."""
    swish = slope_range(KINDS["hard_swish"].build())
    assert (
        slope_range(KINDS["hard_silu"].build(Fraction(1, 6), Fraction(1, 2)))
        == swish
        == (Fraction(-1, 2), Fraction(3, 2))
    )
    near = KINDS["hard_silu"].build(Fraction(float(np.float32(1 / 6))), Fraction(1, 2))
    x = Fraction(299, 100)
    assert slope_range(near, x, x)[0] > slope_range(KINDS["hard_swish"].build(), x, x)[1]


@pytest.mark.parametrize("turn", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize("kind", ["silu", "gelu", "gelu_tanh", "mish"])
def test_slopes_turn_where_the_break_points_are(kind, turn):
    f, _ = build(kind)
    assert len(f.breaks) == 2
    near = high_precision(f.breaks[turn] / f.scale)
    exact = mpmath.findroot(lambda x: mpmath.diff(REFERENCES[kind], x, 2), near)
    assert abs(exact - near) * f.scale <= mpmath.mpf(10) ** -25


@pytest.mark.parametrize(
    ("kind", "kink", "left", "right"),
    [
        ("relu", 0, 0, 1),
        ("abs", 0, -1, 1),
        ("clip", Fraction(-0.5), 0, 1),
        ("clip", Fraction(0.7), 1, 0),
        ("hard_swish", 3, Fraction(3, 2), 1),
        ("hard_swish", -3, 0, Fraction(-1, 2)),
    ],
)
def test_a_kink_at_an_end_counts_with_the_slope_inside(kind, kink, left, right):
    f, _ = build(kind)
    kink, width = Fraction(kink), Fraction(1, 2**140)  # for hard_swish, slopes change in between
    assert_near(slope_range(f, kink, kink + width), (right, right))
    assert_near(slope_range(f, kink - width, kink), (left, left))
    assert_near(slope_range(f, kink - width, kink + width), sorted((left, right)))
    assert_near(slope_range(f, kink, kink), sorted((left, right)))


def assert_near(found, expected):
    """Slopes are rounded outward to multiples of 2^-128."""
    for value, other in zip(found, expected, strict=True):
        assert abs(value - other) <= Fraction(1, 2**127)


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=15)
@given(ends=st.tuples(POINTS, POINTS), at_break=st.booleans())
def test_slopes_inside_an_interval_are_in_its_range(kind, ends, at_break):
    """Also if one of its ends is a break."""
    f, parameters = build(kind)
    lo, hi = (Fraction(defined(kind, end)) for end in ends)
    if at_break and f.breaks and activations.KINDS[kind].argument == "any":
        lo = f.breaks[0] / f.scale
    lo, hi = sorted((lo, hi))
    low, high = slope_range(f, lo, hi)
    assert low <= high
    inside = np.linspace(float(lo), float(hi), 30)[1:-1]
    for x in inside[(float(lo) < inside) & (inside < float(hi))]:
        steepness = activations.slope(kind, np.array([x]), parameters)[0]
        rounding = 1e-9 * (1 + abs(steepness))
        assert float(low) - rounding <= steepness <= float(high) + rounding


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=15)
@given(ends=st.tuples(POINTS, POINTS), slope=st.floats(-3, 3))
def test_lines_of_any_slope_are_on_their_side(kind, ends, slope):
    f, parameters = build(kind)
    lo, hi = (Fraction(end) for end in sorted(defined(kind, end) for end in ends))
    around = hull(f, lo, hi)
    below = float(offset_below(around, Fraction(slope)))
    above = float(offset_above(around, Fraction(slope)))
    x = np.concatenate([np.linspace(float(lo), float(hi), 30), [0.0]])
    x = x[(float(lo) <= x) & (x <= float(hi))]
    values = activations.value(kind, x, parameters)
    rounding = 1e-12 * (1 + np.abs(x) + np.abs(values))
    assert (slope * x + below <= values + rounding).all()
    assert (values <= slope * x + above + rounding).all()
