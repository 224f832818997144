"""Problems that are too large for the SDP: their first layers are left out.

For every direction t of the unit ball of l_inf, path sums bound the entries of the first layers,
|x_j| <= f_j. What later layers read of them becomes inputs f_j t_j, |t_j| <= 1, each free of the
others. So the optimum of the rest, a smaller problem, is an upper bound on that of the whole: far
above it, but far below the path sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from ...numerics.arrays import Array, Matrix, as_csr
from ...numerics.rounding import TINY, gamma, up_float
from ...problem.derivative import Blocks, DerivativeProblem
from ...problem.presolve import path_sums
from ..baselines import path_sum_bound
from .batches import is_too_large


def smallest_cut(problem: DerivativeProblem, device: str | None) -> int | None:
    """How many first layers have to be left out; None if what is left is too large at any rate."""
    if not problem.norm.bounds_each_input:
        return None
    bounds, _ = path_sums(problem)
    if not all(np.isfinite(values).all() for values in bounds):
        return None
    for count in range(1, len(problem.layers)):
        if not is_too_large(_rest(problem, count, bounds), device):
            return count
    return None


def without_first_layers(problem: DerivativeProblem, count: int) -> DerivativeProblem:
    """The problem with so many layers left out; its optimum is as large, or larger."""
    bounds, _ = path_sums(problem)
    rest = _rest(problem, count, bounds)
    # Coefficients w f were rounded, and a few may have underflowed.
    _, gradient = path_sums(rest)
    weights = [np.ones(rest.outputs)]
    for layer, g in zip(rest.layers, gradient[1:], strict=True):
        weights.append(layer.steepest * g)
    vanished = TINY * rest.inputs * float(sum(weight.sum() for weight in weights))
    slack = rest.slack + gamma(2) * path_sum_bound(rest) + vanished
    return replace(rest, slack=up_float(slack, 4))


def _rest(problem: DerivativeProblem, count: int, bounds: Sequence[Array]) -> DerivativeProblem:
    """The later layers, with coefficients rounded to nearest."""
    columns = _Columns.of(problem, count, bounds)
    layers = []
    for layer in problem.layers[count:]:
        layers.append(replace(layer, blocks=columns.renumbered(layer.blocks)))
    objective = columns.renumbered(problem.objective)
    return replace(problem, inputs=columns.size, layers=tuple(layers), objective=objective)


@dataclass(frozen=True, eq=False)
class _Columns:
    """Where the variables of the first sources are among the new inputs."""

    count: int  # of the layers that are left out
    bounds: Sequence[Array]  # on |x|, by source
    read: list[int]  # those sources of them that are read later: side by side, in this order

    @staticmethod
    def of(problem: DerivativeProblem, count: int, bounds: Sequence[Array]) -> _Columns:
        read: set[int] = set()
        for blocks in problem.all_blocks()[count:]:
            read.update(source for source in blocks if source <= count)
        return _Columns(count, bounds, sorted(read))

    @property
    def size(self) -> int:
        """The number of new inputs."""
        return sum(len(self.bounds[source]) for source in self.read)

    def renumbered(self, blocks: Blocks) -> dict[int, Matrix]:
        """Blocks that read the new inputs, as source 0, and the layers that are left."""
        found: dict[int, Matrix] = {}
        parts = {}
        for source, matrix in blocks.items():
            if source <= self.count:
                parts[source] = as_csr(matrix) @ sp.diags_array(self.bounds[source])
            else:
                found[source - self.count] = matrix
        if parts:
            found[0] = self._side_by_side(parts)
        return found

    def _side_by_side(self, parts: dict[int, Matrix]) -> sp.csr_array:
        """One matrix over all new inputs."""
        rows = next(iter(parts.values())).shape[0]
        row_wise = []
        for source in self.read:
            width = len(self.bounds[source])
            row_wise.append(parts.get(source, sp.csr_array((rows, width))))
        return sp.csr_array(sp.hstack(row_wise, format="csr"))
