"""What the parameters of an activation may be."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import LipoptError
from ...numerics.arrays import Array
from .kinds import KINDS, Parameters

# Limits on parameters, so that their products and quotients neither overflow nor vanish.
MAX_PARAMETER = 2.0**100
MIN_POSITIVE_PARAMETER = 2.0**-100
MAX_EXPONENT = 64  # of a power, as in certificates


def check(kind: str, parameters: Parameters) -> dict[str, Array | float]:
    """The parameters of an activation as float64, with its defaults filled in.

    Raises LipoptError with what is wrong with them."""
    if kind not in KINDS:
        raise LipoptError(f"unknown activation '{kind}'; use one of {', '.join(sorted(KINDS))}")
    spec = KINDS[kind]
    unknown = set(parameters) - set(spec.defaults)
    if unknown:
        known = sorted(spec.defaults)
        raise LipoptError(
            f"activation '{kind}' has no parameter '{unknown.pop()}'; it takes {known}"
        )
    full: dict[str, Array | float] = {}
    for name, default in spec.defaults.items():
        full[name] = np.asarray(parameters.get(name, default), dtype=np.float64)[()]
    if any(np.isnan(p).any() for p in full.values()):
        raise LipoptError(f"activation '{kind}' has a parameter that is not a number")
    limited = set(full)
    if spec.interval is not None:
        _check_interval(kind, spec.interval, full)
        limited -= set(spec.interval)
    for name, p in full.items():
        if name in limited:
            _check_size(kind, name, p)
    if spec.whole is not None:
        _check_whole(kind, spec.whole, full[spec.whole])
    return full


def _check_interval(
    kind: str, names: tuple[str, str], parameters: Mapping[str, Array | float]
) -> None:
    """Refuse two parameters that are not the ends of an interval of numbers."""
    low, high = names
    if not np.all(np.less_equal(parameters[low], parameters[high])):
        raise LipoptError(f"activation '{kind}' needs {low} <= {high}")
    low_is_infinity = np.any(np.equal(parameters[low], np.inf))
    high_is_minus_infinity = np.any(np.equal(parameters[high], -np.inf))
    if low_is_infinity or high_is_minus_infinity:
        raise LipoptError(
            f"activation '{kind}' needs {low} < infinity and {high} > -infinity: "
            "it would have no value"
        )


def _check_size(kind: str, name: str, parameter: Array | float) -> None:
    """Refuse what the error bounds of this module do not cover."""
    spec = KINDS[kind]
    if not np.isfinite(parameter).all():
        raise LipoptError(f"activation '{kind}' has a parameter that is not a finite number")
    if name in spec.positive:
        if not np.all(np.greater(parameter, 0)):
            raise LipoptError(f"activation '{kind}' needs {name} > 0, got {parameter}")
        if np.any(np.less(parameter, MIN_POSITIVE_PARAMETER)):
            raise LipoptError(
                f"activation '{kind}' needs {name} >= 2^-100, got {parameter}; "
                "rescale the layers around it"
            )
    if not spec.exact and np.any(np.abs(parameter) > MAX_PARAMETER):
        raise LipoptError(
            f"activation '{kind}' needs |{name}| <= 2^100, got {parameter}; "
            "rescale the layers around it"
        )


def _check_whole(kind: str, name: str, parameter: Array | float) -> None:
    """Refuse what is not a whole number from 2 to MAX_EXPONENT."""
    is_whole = np.equal(parameter, np.round(parameter))
    in_range = np.greater_equal(parameter, 2) & np.less_equal(parameter, MAX_EXPONENT)
    if not np.all(is_whole & in_range):
        raise LipoptError(
            f"activation '{kind}' needs a whole number from 2 to {MAX_EXPONENT} as {name},"
            f" got {parameter}"
        )
