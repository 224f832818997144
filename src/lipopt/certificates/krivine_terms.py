"""The rule `products`: multipliers of products of variables, on a grid."""

from __future__ import annotations

import numpy as np

from ..problem.proofs import KrivineTerms
from .dyadic import exponent_for, join
from .flat import Flat

LP_BITS = 50  # binary digits of the bound on the grid of the multipliers


def krivine_lines(flat: Flat, proof: KrivineTerms, bound: float) -> list[str]:
    """Multipliers on a grid that is fine for the bound; sets without any are left out."""
    exponent = exponent_for(bound, LP_BITS)
    multipliers = np.rint(np.ldexp(proof.multipliers, -exponent)).astype(np.int64)
    lines = []
    for variables, row in zip(proof.sets, multipliers, strict=True):
        columns = np.flatnonzero(variables >= 0)
        masks = np.zeros(1, np.int64)
        for column in columns:
            masks = np.concatenate([masks, masks | 1 << column])
        if row.any():
            numbers = flat.numbers[variables[columns]]
            lines.append(f"set {len(columns)} {join([*numbers, *row[masks]])}")
    return ["rule products", f"unit {exponent} 1", f"sets {len(lines)}", *lines]
