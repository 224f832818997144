"""Every activation: its value, its break points, and its slope between them.

Break points b_1 < ... < b_r are kinks and turning points of the slope alike: on each of the r + 1
pieces between them the slope is *monotone*. An activation is one entry of KINDS: no other module
of this package knows one by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.special import erf as erf_function
from scipy.special import expit, ndtr

from ...numerics.arrays import Array

Parameters: TypeAlias = Mapping[str, Array | float]
Sign: TypeAlias = Callable[[Array], Array]  # the identity, or the absolute value
Slope: TypeAlias = Callable[..., Array] | str | float  # a function, a parameter's name, or a number
Argument: TypeAlias = Literal["any", "positive", "not zero"]

NO_LIMITS = (-np.inf, np.inf)

# Arguments beyond these are replaced by them. There slopes are at their limits in float64 and up to
# less than 1 / GRID, and intermediate results stay finite.
LOGISTIC_FAR = 800.0  # for e^-x and x e^-x
NORMAL_FAR = 40.0  # for e^(-x^2 / 2) and x times that
GELU_TANH_FAR = 30.0  # for the cube in the argument of the logistic function

# Where the second derivative of the function vanishes (to the last place; tested in high
# precision).
SILU_TURN = 2.3993572805154677
GELU_TANH_TURN = 1.4185040087908284
MISH_TURNS = (-2.256376396360793, 1.4905711794854285)
SQRT_2 = 1.4142135623730951
_GELU_TANH_SCALE = 0.7978845608028654  # sqrt(2 / pi)
_GELU_TANH_CUBE = 0.044715  # the coefficient of x^3 in GELU's approximation by tanh


@dataclass(frozen=True)
class Kind:
    """One activation. Its functions take x, where they depend on it, and parameters by name."""

    value: Callable[..., Array]
    breaks: Callable[..., tuple[Array | float, ...]]  # break points, ascending
    slopes: tuple[Slope, ...]  # on every piece between them
    defaults: Mapping[str, float] = field(default_factory=dict)  # the parameters and their defaults
    positive: tuple[str, ...] = ()  # parameters that must be positive
    # A pair of parameters that are the ends of an interval: ordered, and they may be infinite.
    interval: tuple[str, str] | None = None
    exact: bool = False  # whether a value is off by a few roundings of its own at most
    # Whether break points are computed from parameters, with rounding, rather than given.
    computed: bool = False
    # A parameter that is added before the sum is cut off: values have the rounding error of the
    # sum.
    offset: str | None = None
    # The sum of the absolute values of a slope's terms, where they may cancel.
    terms: Callable[..., Array] | None = None
    # Whether slopes have no bound over the whole space, or the function is not defined there.
    is_local: bool = False
    argument: Argument = "any"  # where the function is defined
    whole: str | None = None  # a parameter that is a whole number from 2 on
    # A slope that is periodic turns at this point, and again every pi. It has no break points.
    turn: float | None = None
    values: tuple[float, float] = NO_LIMITS  # between these are all values
    limits: tuple[float, float] = NO_LIMITS  # and between these all slopes

    @property
    def is_unrounded(self) -> bool:
        """Whether values are computed without rounding: x, -x or a given number."""
        return self.exact and all(slope in (-1.0, 0.0, 1.0) for slope in self.slopes)

    @property
    def piecewise_linear(self) -> bool:
        """Whether slopes are constant on every piece: numbers or parameters."""
        return not any(callable(slope) for slope in self.slopes)


def _no_breaks(**_: Any) -> tuple[float, ...]:
    return ()


def _at_zero(**_: Any) -> tuple[float, ...]:
    return (0.0,)


def _softplus(x: Array, beta: float = 1.0) -> Array:
    return np.logaddexp(0.0, beta * x) / beta


def _ramp_ends(alpha: Array | float, beta: Array | float) -> tuple[Array | float, ...]:
    """Where alpha x + beta is 0 and 1: two roundings at most."""
    return (-beta / alpha, (1 - beta) / alpha)


def _silu_slope(x: Array, beta: float, sign: Sign = np.asarray) -> Array:
    u = np.clip(beta * x, -LOGISTIC_FAR, LOGISTIC_FAR)
    s = expit(u)
    return s + sign(u) * s * expit(-u)


def _gelu_slope(x: Array, beta: float, sign: Sign = np.asarray) -> Array:
    u = np.clip(beta * x, -NORMAL_FAR, NORMAL_FAR)
    return ndtr(u) + sign(u) * np.exp(-u * u / 2) / np.sqrt(2 * np.pi)


def _gelu_tanh(x: Array) -> Array:
    return x * expit(2 * _GELU_TANH_SCALE * (x + _GELU_TANH_CUBE * x**3))


def _gelu_tanh_slope(x: Array, sign: Sign = np.asarray) -> Array:
    x = np.clip(x, -GELU_TANH_FAR, GELU_TANH_FAR)
    u = 2 * _GELU_TANH_SCALE * (x + _GELU_TANH_CUBE * x**3)
    inner = 1 + 3 * _GELU_TANH_CUBE * x**2
    return expit(u) + sign(x) * expit(u) * expit(-u) * 2 * _GELU_TANH_SCALE * inner


def _mish_slope(x: Array, sign: Sign = np.asarray) -> Array:
    x = np.clip(x, -LOGISTIC_FAR, LOGISTIC_FAR)
    t = np.tanh(_softplus(x))
    return t + sign(x) * (1 - t) * (1 + t) * expit(x)


def _turning_terms(x: Array) -> Array:
    """What errors of a periodic slope are relative to: those of its turning points grow with x."""
    return 1 + np.abs(x)


KINDS: dict[str, Kind] = {
    "relu": Kind(lambda x: np.maximum(x, 0), _at_zero, (0.0, 1.0), exact=True),
    "abs": Kind(np.abs, _at_zero, (-1.0, 1.0), exact=True),
    "leaky_relu": Kind(
        lambda x, alpha: np.where(x < 0, alpha * x, x),
        _at_zero,
        ("alpha", 1.0),
        {"alpha": 0.01},
        exact=True,
    ),
    "clip": Kind(
        lambda x, low, high: np.clip(x, low, high),
        lambda low, high: (low, high),
        (0.0, 1.0, 0.0),
        {"low": -np.inf, "high": np.inf},
        interval=("low", "high"),
        exact=True,
    ),
    "hard_sigmoid": Kind(
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
        _ramp_ends,
        (0.0, "alpha", 0.0),
        {"alpha": 0.2, "beta": 0.5},
        positive=("alpha",),
        computed=True,
        offset="beta",
    ),
    "hard_silu": Kind(
        lambda x, alpha, beta: x * np.clip(alpha * x + beta, 0, 1),
        _ramp_ends,
        (0.0, lambda x, alpha, beta: 2 * alpha * x + beta, 1.0),
        {"alpha": 0.2, "beta": 0.5},
        positive=("alpha",),
        computed=True,
        offset="beta",
        terms=lambda x, alpha, beta: 2 * alpha * np.abs(x) + np.abs(beta),
    ),
    "hard_swish": Kind(
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        lambda: (-3.0, 3.0),
        (0.0, lambda x: x / 3 + 0.5, 1.0),
        terms=lambda x: np.abs(x) / 3 + 0.5,
    ),
    "elu": Kind(
        lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
        _at_zero,
        (lambda x, alpha: alpha * np.exp(np.minimum(x, 0)), 1.0),
        {"alpha": 1.0},
    ),
    "selu": Kind(
        lambda x, alpha, gamma: gamma * np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
        _at_zero,
        (lambda x, alpha, gamma: alpha * gamma * np.exp(np.minimum(x, 0)), "gamma"),
        {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805},
    ),
    "celu": Kind(
        lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0) / alpha), x),
        _at_zero,
        (lambda x, alpha: np.exp(np.minimum(x, 0) / alpha), 1.0),
        {"alpha": 1.0},
        positive=("alpha",),
    ),
    "softplus": Kind(
        _softplus,
        _no_breaks,
        (lambda x, beta: expit(beta * x),),
        {"beta": 1.0},
        positive=("beta",),
    ),
    "softsign": Kind(
        lambda x: x / (1 + np.abs(x)),
        _at_zero,
        (lambda x: (1 / (1 + np.abs(x))) ** 2,) * 2,
    ),
    "sigmoid": Kind(expit, _at_zero, (lambda x: expit(x) * expit(-x),) * 2),
    "tanh": Kind(np.tanh, _at_zero, (lambda x: 4 * expit(2 * x) * expit(-2 * x),) * 2),
    "erf": Kind(erf_function, _at_zero, (lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x),) * 2),
    "silu": Kind(
        lambda x, beta: x * expit(beta * x),
        lambda beta: (-SILU_TURN / beta, SILU_TURN / beta),
        (_silu_slope,) * 3,
        {"beta": 1.0},
        positive=("beta",),
        computed=True,
        terms=partial(_silu_slope, sign=np.abs),
    ),
    "gelu": Kind(
        lambda x, beta: x * ndtr(beta * x),
        lambda beta: (-SQRT_2 / beta, SQRT_2 / beta),
        (_gelu_slope,) * 3,
        {"beta": 1.0},
        positive=("beta",),
        computed=True,
        terms=partial(_gelu_slope, sign=np.abs),
    ),
    "gelu_tanh": Kind(
        _gelu_tanh,
        lambda: (-GELU_TANH_TURN, GELU_TANH_TURN),
        (_gelu_tanh_slope,) * 3,
        terms=partial(_gelu_tanh_slope, sign=np.abs),
    ),
    "mish": Kind(
        lambda x: x * np.tanh(_softplus(x)),
        lambda: MISH_TURNS,
        (_mish_slope,) * 3,
        terms=partial(_mish_slope, sign=np.abs),
    ),
    "power": Kind(
        lambda x, exponent: np.power(x, exponent),
        _at_zero,
        (lambda x, exponent: exponent * np.power(x, exponent - 1),) * 2,
        {"exponent": 2.0},
        exact=True,
        is_local=True,
        whole="exponent",
    ),
    "reciprocal": Kind(
        lambda x: 1 / x,
        _at_zero,
        (lambda x: -((1 / x) ** 2),) * 2,
        exact=True,
        is_local=True,
        argument="not zero",
    ),
    "sqrt": Kind(
        np.sqrt,
        _no_breaks,
        (lambda x: 0.5 / np.sqrt(x),),
        exact=True,
        is_local=True,
        argument="positive",
    ),
    "exp": Kind(np.exp, _no_breaks, (np.exp,), exact=True, is_local=True, values=(0.0, np.inf)),
    "log": Kind(
        np.log,
        _no_breaks,
        (lambda x: 1 / x,),
        exact=True,
        is_local=True,
        argument="positive",
    ),
    "sin": Kind(
        np.sin,
        _no_breaks,
        (np.cos,),
        terms=_turning_terms,
        turn=0.0,
        values=(-1.0, 1.0),
        limits=(-1.0, 1.0),
    ),
    "cos": Kind(
        np.cos,
        _no_breaks,
        (lambda x: -np.sin(x),),
        terms=_turning_terms,
        turn=np.pi / 2,
        values=(-1.0, 1.0),
        limits=(-1.0, 1.0),
    ),
}
