"""Upper bounds that carry gradients: the sum over paths, and the dual with fixed multipliers.

Both bound the optimum of the relaxation that the vector network estimates from below, in floating
point: what rounding does is not counted, as it is in `lipopt.bound`.

**The sum over paths** is one pass with the absolute values of all weights.

**The dual.** With the matrices A between activations, y = A x for x = (t, z), and any tau >= 0,

    |C x|^2 <= |C x|^2 - sum_a tau_a (z_a - l_a y_a)(z_a - u_a y_a) = t.K t - (a form in z, t) <= t.K t

where K is what is left for t after z was eliminated, layer by layer from the output to the input.
So linf: |C x|^2 <= s sum_j delta_j for diag(delta) s >= K; l2: the largest eigenvalue of K. (Under l1
every input would need multipliers of its own.) The multipliers come from the vectors in closed form
and are then constants; where a layer's are too small, they are scaled up until its block is
definite.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..model.norms import Norm
from .live import LiveNetwork, Tensor
from .operators import Values
from .rules import Given, PathSums, Range, Slopes
from .vectors import Evaluation

# The multipliers of vectors are enlarged by this, relatively: at the optimum itself the blocks are
# singular.
INFLATION = 1e-3
# How much more than definite a block is made that was not.
REPAIR = 1.05
# The smallest multiplier, relative to the mean of its layer.
MIN_RELATIVE_MULTIPLIER = 1e-6
# Lengths that are divided by are taken to be at least this.
MIN_SIZE = 1e-30
# The smallest half width of a range of slopes: that of a known slope would ask for an infinite
# multiplier.
MIN_HALF = 1e-4


def path_sum(
    live: LiveNetwork, norm: Norm, rows: Tensor, slopes: Slopes, constants: Values
) -> Tensor:
    """A bound for every set of slopes, from the sums P over paths: |C J| <= P, entry by entry.

    linf: the length of P 1, which bounds |C J t| for every row at once. l1: the largest sum of
    a column. l2: the square root of the product of the largest row and column sums."""
    like = rows
    count = max((range_.inputs for range_ in slopes), default=1)
    start = torch.ones(count, *live.input_shape, dtype=like.dtype, device=like.device)
    start.requires_grad_(True)
    rule = PathSums(slopes, live.goal, rows)
    row_sums = rule.finish(live.run(rule, start, constants))
    if norm is Norm.LINF:
        return torch.linalg.vector_norm(row_sums, dim=1)
    (columns,) = torch.autograd.grad(row_sums.sum(), start, create_graph=True)
    column_sums = columns.flatten(1).amax(1)
    if norm is Norm.L1:
        return column_sums
    return (column_sums * row_sums.amax(1)).sqrt()


class Multipliers:
    """Multipliers of one problem, from its vectors: constants."""

    def __init__(self, found: Evaluation, gradients: Sequence[Tensor], slopes: Slopes) -> None:
        """`gradients`: those of the value, in t and in every z."""
        g_t, *g_z = gradients
        value = found.values[0].detach()
        self.delta = _kept_up(value * _sizes(g_t))
        self.tau: list[Tensor] = []
        for g, y, range_ in zip(g_z, found.y, slopes, strict=True):
            half = torch.as_tensor(range_.half).detach().clamp_min(MIN_HALF)
            size = half.to(y) * _sizes(y.detach())
            tau = value * _sizes(g) / size.clamp_min(MIN_SIZE)
            self.tau.append(_kept_up((1 + INFLATION) * tau.flatten()))


def dual_value(
    live: LiveNetwork,
    norm: Norm,
    rows: Tensor,
    slopes: Slopes,
    constants: Values,
    multipliers: Multipliers,
) -> Tensor:
    """The bound by the dual with these multipliers."""
    sizes = [activation.size for activation in live.activations]
    before, outputs = _matrices(live, sizes, constants, rows)
    form = -outputs.T @ outputs
    for number in range(len(sizes) - 1, -1, -1):
        form = _eliminated(form, before[number], multipliers.tau[number], slopes[number])
    return _bound_by(-form, norm, multipliers.delta).sqrt()


def _matrices(
    live: LiveNetwork, sizes: Sequence[int], constants: Values, rows: Tensor
) -> tuple[list[Tensor], Tensor]:
    """A of every activation and C, as matrices on (t, z): unit vectors passed as columns."""
    inputs = live.network.input_size
    total = inputs + sum(sizes)
    units = torch.eye(total, dtype=rows.dtype, device=rows.device)
    given = list(units[:, inputs:].split(list(sizes), dim=1))
    rule = Given(given)
    start = units[:, :inputs].reshape(total, *live.input_shape)
    outputs = live.run(rule, start, constants) @ rows.T
    before = [rule.before[number].T for number in range(len(sizes))]
    return before, outputs.T


def _eliminated(form: Tensor, a: Tensor, tau: Tensor, slopes: Range) -> Tensor:
    """The form after the last layer in it was constrained and eliminated."""
    n = a.shape[0]
    kept = form.shape[0] - n
    a = a[:, :kept]
    tau = tau * _enough(-form[kept:, kept:], tau)
    middle = (tau * slopes.middle)[:, None] * a
    product = (tau * slopes.low * slopes.high)[:, None] * a
    block = form[kept:, kept:] + torch.diag(tau)
    side = form[kept:, :kept] - middle
    rest = form[:kept, :kept] + a.T @ product
    root = torch.linalg.cholesky(block)
    through = torch.linalg.solve_triangular(root, side, upper=False)
    return rest - through.T @ through


def _enough(needed: Tensor, tau: Tensor) -> Tensor:
    """The factor for tau with which diag(tau) - needed is definite."""
    scale = tau.rsqrt()
    largest = torch.linalg.eigvalsh(scale[:, None] * needed * scale)[-1]
    return (largest * REPAIR).clamp_min(1.0)


def _bound_by(k: Tensor, norm: Norm, delta: Tensor) -> Tensor:
    """The square of the bound that K gives."""
    if norm is Norm.L2:
        return torch.linalg.eigvalsh(k)[-1]
    scale = delta.rsqrt()
    return torch.linalg.eigvalsh(scale[:, None] * k * scale)[-1] * delta.sum()


def _sizes(vectors: Tensor) -> Tensor:
    """The lengths of vectors of the first problem, (problems, r, n) -> (n,)."""
    return torch.linalg.vector_norm(vectors[0], dim=0)


def _kept_up(multipliers: Tensor) -> Tensor:
    """Multipliers that are not too small beside the others."""
    return multipliers.clamp_min(MIN_RELATIVE_MULTIPLIER * multipliers.mean() + MIN_SIZE)
