"""One ball: the questions of all targets over it, and when a bound certifies a margin.

In a convex domain f_i - f_j changes by at most L |x' - x|, L its Lipschitz constant there. So the
class i at x is kept in the whole ball of radius R around x if  f_i(x) - f_j(x) > R L_j(R)  for
all j, where L_j(R) is a bound for f_i - f_j over that ball. As L_j grows with the ball, a bound for
one radius holds for every smaller one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..model.network import Network
from ..numerics.arrays import Array
from ..numerics.rounding import up_float
from ..problem.intervals import enclose
from .rows import Target


def target_matrix(network: Network, targets: Sequence[Target]) -> sp.csr_array:
    """The targets as rows of a matrix that multiplies the outputs."""
    matrix = sp.lil_array((len(targets), network.output_size))
    for row, target in enumerate(targets):
        matrix[row, target.output] = 1.0
        if target.minus is not None:
            matrix[row, target.minus] = -1.0
    return sp.csr_array(matrix)


def margins_at(network: Network, x: Array, margins: Sequence[Target]) -> list[float]:
    """Proved lower bounds on the margins at a point; LipoptError if outputs overflow there."""
    lower, upper = enclose(network, x, x).intervals[-1]
    found = []
    for target in margins:
        assert target.minus is not None
        difference = lower[target.output] - upper[target.minus]
        found.append(float(np.nextafter(difference, -np.inf)))
    if not np.isfinite(found).all():
        raise LipoptError("the network's outputs overflow at this point")
    return found


def is_kept(margin: float, radius: float, constant: float) -> bool:
    """Whether a margin is proved positive in a ball: margin > radius * constant, rounded safely."""
    most_change = up_float(float(np.nextafter(radius, np.inf)) * constant, 1)
    return bool(margin > 0 and most_change < margin)
