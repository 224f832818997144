"""Enclosures of the activations, against high precision and against lipopt's own."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import PARAMETERS

from lipcheck.functions import KINDS, exp, log1p, normal, offset, root, slope_range
from lipopt import activations

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
    "gelu_tanh": lambda x: x * sigmoid(2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)),
    "mish": lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))),
    "elu": lambda x: x if x >= 0 else mpmath.mpf(1.7) * mpmath.expm1(x),
    "celu": lambda x: x if x >= 0 else mpmath.mpf(0.6) * mpmath.expm1(x / mpmath.mpf(0.6)),
    "softsign": lambda x: x / (1 + abs(x)),
    "hard_swish": lambda x: x * min(max(x / 6 + 0.5, 0), 1),
    "hard_silu": lambda x: x * min(max(x / 4 + 0.25, 0), 1),
}


def build(kind):
    """lipcheck's function and the parameters of it in lipopt."""
    parameters = activations.check(kind, PARAMETERS.get(kind, {}))
    names, function = KINDS[kind]
    values = (float(parameters[name]) if np.isinf(parameters[name]) else Fraction(parameters[name]) for name in names)
    return function(*values), parameters


def high_precision(x):
    return mpmath.mpf(x.numerator) / x.denominator


def test_the_kinds_are_those_of_lipopt():
    assert set(KINDS) == set(activations.KINDS)


@given(x=POINTS, share=st.floats(0, 1))
def test_series_are_off_by_less_than_they_say(x, share):
    x, share = Fraction(x), Fraction(share)
    with mpmath.workdps(300):
        pairs = [
            (exp(-abs(x)), mpmath.exp(-high_precision(abs(x)))),
            (log1p(share), mpmath.log1p(high_precision(share))),
            (root(abs(x)), mpmath.sqrt(high_precision(abs(x)))),
            (normal(x * share / 10)[0], mpmath.ncdf(high_precision(x * share / 10))),
            (normal(x * share / 10)[1], mpmath.npdf(high_precision(x * share / 10))),
        ]
        assert all(abs(high_precision(found) - exact) < mpmath.mpf(2) ** -300 for found, exact in pairs)


@pytest.mark.parametrize("kind", sorted(REFERENCES))
@settings(max_examples=15)
@given(x=POINTS)
def test_values_and_slopes_are_enclosed(kind, x):
    f, _ = build(kind)
    x = Fraction(x)
    low, high = (high_precision(end) for end in f.at(x)[1])
    exact, tiny = REFERENCES[kind](high_precision(x)), mpmath.mpf(10) ** -41 * (1 + abs(float(x)))
    assert abs((low + high) / 2 - exact) <= tiny  # far within
    assert high - low <= mpmath.mpf(10) ** -35 * (1 + abs(float(x)))
    if all(abs(x * f.scale - b) > 1e-20 for b in f.breaks):  # the reference is a difference quotient
        low, high = slope_range(f, x, x)
        slope = mpmath.diff(REFERENCES[kind], high_precision(x), h=mpmath.mpf(10) ** -25)
        assert high_precision(low) - 1e-15 <= slope <= high_precision(high) + 1e-15
        assert high - low <= Fraction(1, 10**15)


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=15)
@given(ends=st.tuples(POINTS, POINTS))
def test_ranges_lie_in_those_of_lipopt(kind, ends):
    """Both enclose the truth, lipcheck more tightly; and lines around the function have what lies between them."""
    f, parameters = build(kind)
    lo, hi = (Fraction(end) for end in sorted(ends))
    arrays = np.array([float(lo)]), np.array([float(hi)])
    low, high = slope_range(f, lo, hi)
    wide_low, wide_high = activations.slope_range(kind, *arrays, parameters)
    assert wide_low[0] <= low + Fraction(1, 2**60)
    assert high <= wide_high[0] + Fraction(1, 2**60)
    points = f.points(lo, hi, f.cells)
    below, from_below, above, from_above = (float(v[0]) for v in activations.linear_bounds(kind, *arrays, parameters))
    slack = Fraction(1e-9 * (1 + abs(float(lo)) + abs(float(hi))))
    assert -offset(points, Fraction(below), -1) >= Fraction(from_below) - slack
    assert offset(points, Fraction(above), 1) <= Fraction(from_above) + slack
    for x in np.random.default_rng(0).uniform(*arrays, 20):
        y = activations.value(kind, np.array([x]), parameters)[0]
        rounding = 1e-12 * (1 + abs(x))
        assert float(-offset(points, Fraction(below), -1)) + below * x - rounding <= y
        assert y <= float(offset(points, Fraction(above), 1)) + above * x + rounding
        steepness = activations.slope(kind, np.array([x]), parameters)[0]
        assert float(low) - 1e-12 <= steepness <= float(high) + 1e-12


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_slopes_over_the_whole_space(kind):
    f, parameters = build(kind)
    low, high = slope_range(f)
    x = np.concatenate([np.linspace(-10, 10, 20_001), [-1e6, 1e6]])
    slopes = activations.slope(kind, x, parameters)
    assert float(low) - 1e-12 <= slopes.min()
    assert slopes.max() <= float(high) + 1e-12
    wide_low, wide_high = activations.slope_range(kind, np.array([-np.inf]), np.array([np.inf]), parameters)
    assert wide_low[0] <= low + Fraction(1, 2**60)
    assert high <= wide_high[0] + Fraction(1, 2**60)


def test_infinity_is_beyond_every_parameter():
    """Whatever a float64 parameter is, over the whole space every slope counts."""
    smallest, largest = Fraction(np.finfo(np.float64).smallest_subnormal), Fraction(np.finfo(np.float64).max)
    assert slope_range(KINDS["clip"][1](-largest, float("inf"))) == (0, 1)
    for beta in (smallest, Fraction(1e-302), largest):
        for kind, steepest in (("silu", 1.0998), ("gelu", 1.1289)):
            low, high = slope_range(KINDS[kind][1](beta))
            assert high > steepest
            assert low < 1 - steepest
        assert slope_range(KINDS["softplus"][1](beta)) == (0, 1)
        assert slope_range(KINDS["celu"][1](beta)) == (0, 1)
        for shift in (-largest, Fraction(0), largest):
            low, high = slope_range(KINDS["hard_sigmoid"][1](beta, shift))
            assert low == 0
            assert high == max(beta, Fraction(1, 2**128))  # rounded up to the grid
            low, high = slope_range(KINDS["hard_silu"][1](beta, shift))
            assert low == min(0, -shift)
            assert high == max(1, 2 - shift)


def test_hard_swish_is_a_hard_silu():
    """With alpha = 1/6, which no float is: the product of a file has an alpha near to that, and slopes that differ."""
    swish = slope_range(KINDS["hard_swish"][1]())
    assert slope_range(KINDS["hard_silu"][1](Fraction(1, 6), Fraction(1, 2))) == swish == (Fraction(-1, 2), Fraction(3, 2))
    near = KINDS["hard_silu"][1](Fraction(float(np.float32(1 / 6))), Fraction(1, 2))
    x = Fraction(299, 100)
    assert slope_range(near, x, x)[0] > slope_range(KINDS["hard_swish"][1](), x, x)[1]


@pytest.mark.parametrize("kind", ["silu", "gelu", "gelu_tanh", "mish"])
def test_slopes_turn_where_the_break_points_are(kind):
    f, _ = build(kind)
    for point in f.breaks:
        near = high_precision(point / f.scale)
        turn = mpmath.findroot(lambda x: mpmath.diff(REFERENCES[kind], x, 2), near)
        assert abs(turn - near) * f.scale <= mpmath.mpf(10) ** -25
