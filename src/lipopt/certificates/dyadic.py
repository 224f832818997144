"""Numbers as integers times powers of two, as certificates hold them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Rounded:
    """Numbers as integers times 2^exponent."""

    integers: Array
    exponent: int

    @staticmethod
    def of(values: Array, bits: int) -> Rounded:
        """Rounded to the nearest, the largest to this number of bits."""
        exponent = exponent_for(float(np.abs(values).max(initial=0.0)), bits)
        return Rounded(np.rint(np.ldexp(values, -exponent)).astype(np.int64), exponent)

    @property
    def values(self) -> Array:
        return np.ldexp(self.integers.astype(np.float64), self.exponent)

    def __str__(self) -> str:
        return f"{self.exponent} {join(self.integers)}".rstrip()


def together(parts: list[Rounded]) -> str:
    """All their integers after their smallest exponent."""
    exponent = min((part.exponent for part in parts), default=0)
    integers = []
    for part in parts:
        shift = part.exponent - exponent
        integers += [int(n) << shift for n in part.integers]
    return join([exponent, *integers])


def exponent_for(largest: float, bits: int) -> int:
    """The exponent of a grid on which a number has so many bits."""
    return int(np.frexp(largest)[1]) - bits if largest > 0 else 0


def round_up(value: Fraction) -> float:
    """The smallest float that is not below."""
    number = float(value)
    return number if Fraction(number) >= value else float(np.nextafter(number, np.inf))


def exact(values: Iterable[float]) -> str:
    """Floats as integers after their common exponent, without rounding."""
    ratios = [float(value).as_integer_ratio() for value in values]
    bits = max((denominator.bit_length() - 1 for _, denominator in ratios), default=0)
    integers = [numerator * (2**bits // denominator) for numerator, denominator in ratios]
    return join([-bits, *integers])


def row_lines(row: sp.csr_array) -> list[str]:
    """The columns and entries of a sparse row."""
    order = np.argsort(row.indices)
    columns = join([len(order), *row.indices[order]])
    return [f"columns {columns}", f"entries {exact(row.data[order])}"]


def join(tokens: Iterable[Any]) -> str:
    """Tokens with one space between them."""
    return " ".join(map(str, tokens))
