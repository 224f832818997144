"""The rule `product`: the norm of every layer's matrix, each with a proof."""

from __future__ import annotations

import numpy as np

from ..errors import LipoptError
from ..model.network import Network
from ..model.nodes import Affine
from ..numerics.arrays import Matrix, dense
from ..numerics.semidefinite import spectral_norm_up
from .dyadic import exact
from .factor import factor_lines

NORM_ROOM = 1.2e-7  # on every spectral norm; more than the factor's MARGIN, so that a factor exists


def layer_norm_lines(network: Network) -> tuple[list[str], float]:
    """The rule `product`, and the factor by which its number may exceed the product bound."""
    lines = ["rule product"]
    layers = [node for node in network.nodes if isinstance(node, Affine)]
    for node in layers:
        for matrix in node.matrices:
            lines += _norm_lines(matrix.astype(np.float64))
    return lines, (1 + 1.1 * NORM_ROOM) ** len(layers)


def _norm_lines(matrix: Matrix) -> list[str]:
    """A proof of a matrix's spectral norm; 0 if what the checker finds by itself is as good."""
    value = spectral_norm_up(matrix) * (1 + NORM_ROOM)
    size = abs(matrix)
    squares = float((size * size).sum())
    sums = float(size.sum(axis=0).max() * size.sum(axis=1).max())
    simple = np.sqrt(min(squares, sums))
    if simple <= value:
        return ["norm 0 0"]
    side = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    gram = dense(side @ side.T)
    factor = factor_lines(value**2 * np.eye(len(gram)) - gram, np.zeros(len(gram)))
    if factor is None:
        raise LipoptError(
            f"the spectral norm of a {matrix.shape[0]} x {matrix.shape[1]} matrix could not be proved"
            " by a factor"
        )
    return [f"norm {exact([value])}", *factor]
