"""Presolve: remove from a derivative problem the neurons that need not be variables.

A neuron whose slope is known (l = u) is linear and is substituted: A_b += A_ba l_a A_a. So affine
nodes disappear, and in small balls most of the network does. Neurons that no input reaches or that
reach no output are dropped.

Substitution rounds the coefficients. A path from the input to the output uses at most one of the
coefficients that one layer's substitution changes, so the optimum moves by at most g.E f, where E
bounds the errors, f the absolute values of x and g those of the gradient, both by the path sum.
That is added to the problem's `slack`. Layers are substituted from the first to the last. What is
substituted into a layer comes from sources that are done, and what leads from there to the output is
not touched yet: so x is summed up on the way, and the gradient once.

With B = A_ba, D = l_a A_a as computed, and n terms in a row of B, an entry of E is at most
gamma(n + 2) |B| |D|, and for what underflows TINY (|B| 1 + n + 2): entries of D are off by less
than TINY, which B then multiplies, and so are n products. Path sums are rounded upward, and so is
the slack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..numerics.arrays import (
    Array,
    Matrix,
    dense,
    entries_by_row,
    has_nonzeros,
    stored,
    tidy,
)
from ..numerics.convolution import Convolution
from ..numerics.rounding import TINY, gamma, terms, times_up, up, up_float
from .derivative import Blocks, DerivativeProblem, Layer, count_stored

# A layer is substituted if that leaves at most MAX_COEFFICIENTS in the blocks that read it, or at
# most MAX_GROWTH times as many as it and they had.
MAX_COEFFICIENTS = 4_000_000
MAX_GROWTH = 1.5


def presolve(problem: DerivativeProblem) -> DerivativeProblem:
    """The same optimum (up to the slack) with fewer variables."""
    problem = drop_unused(problem)
    x = [np.ones(problem.inputs)]
    gradient = _gradient_sums(problem)
    for i in range(1, len(problem.layers) + 1):
        problem = _substitute_linear(problem, i, x, gradient)
        x.append(_sums_of(problem.layers[i - 1], x))
    problem = drop_unused(problem)
    for blocks in problem.all_blocks():
        for matrix in blocks.values():
            if not np.isfinite(stored(matrix)).all():
                raise LipoptError(
                    "the network's weights are so large that their products overflow; "
                    "rescale the network"
                )
    return problem


def drop_unused(problem: DerivativeProblem) -> DerivativeProblem:
    """The problem without neurons of slope zero, that no input reaches, or that reach no output."""
    used = _used(problem, _reached(problem))
    keep = [np.arange(problem.inputs)]
    number = [0]  # of every source after the empty layers are gone
    for mask in used[1:]:
        keep.append(np.flatnonzero(mask))
        number.append(number[-1] + int(mask.any()))
    layers = []
    for layer, rows in zip(problem.layers, keep[1:], strict=True):
        if len(rows):
            blocks = _restrict(layer.blocks, keep, number, rows)
            lower = layer.lower[rows]
            upper = layer.upper[rows]
            layers.append(Layer(blocks, lower, upper, layer.node, layer.neurons[rows]))
    objective = _restrict(problem.objective, keep, number, np.arange(problem.outputs))
    if not objective:
        objective = {0: sp.csr_array((problem.outputs, problem.inputs))}
    return replace(problem, layers=tuple(layers), objective=objective)


def _reached(problem: DerivativeProblem) -> list[Array]:
    """By source, the variables that can be different from zero: those that an input reaches."""
    reached = [np.ones(problem.inputs, bool)]
    for layer in problem.layers:
        alive = (layer.lower != 0) | (layer.upper != 0)
        has_source = np.zeros(layer.size, bool)
        for source, matrix in layer.blocks.items():
            has_source |= _any(matrix, reached[source])
        reached.append(alive & has_source)
    return reached


def _used(problem: DerivativeProblem, reached: list[Array]) -> list[Array]:
    """By source, the variables that reach an output, and that (inputs aside) are reached."""
    used = [np.zeros(n, bool) for n in problem.sizes]
    for source, matrix in problem.objective.items():
        used[source] |= _any(matrix.T, np.ones(matrix.shape[0], bool))
    for i in range(len(problem.layers), 0, -1):
        used[i] &= reached[i]
        for source, matrix in problem.layers[i - 1].blocks.items():
            used[source] |= _any(matrix.T, used[i])
    return used


def split_rows(problem: DerivativeProblem) -> list[DerivativeProblem]:
    """One problem per row of C."""
    return [only_rows(problem, [k]) for k in range(problem.outputs)]


def only_rows(problem: DerivativeProblem, rows: Sequence[int]) -> DerivativeProblem:
    """The problem of some rows of C."""
    chosen = {source: matrix[list(rows), :] for source, matrix in problem.objective.items()}
    return drop_unused(replace(problem, objective=chosen))


def one_input(problem: DerivativeProblem, j: int) -> DerivativeProblem:
    """The problem of input j alone."""
    layers = tuple(replace(layer, blocks=_only_input(layer.blocks, j)) for layer in problem.layers)
    return replace(problem, inputs=1, layers=layers, objective=_only_input(problem.objective, j))


def _only_input(blocks: Blocks, j: int) -> Blocks:
    """The blocks with input j as their only input."""
    chosen = dict(blocks)
    if 0 in chosen:
        chosen[0] = chosen[0][:, [j]]
    return chosen


def slopes_from_zero(problem: DerivativeProblem) -> DerivativeProblem:
    """The same optimum (up to the slack) with slopes from 0.

    z = l y + z', where the slope of z' is in [0, u - l], and l y is substituted."""
    x = [np.ones(problem.inputs)]
    gradient = _gradient_sums(problem)
    for i, layer in enumerate(problem.layers, start=1):
        shifted = np.flatnonzero(layer.lower)
        if len(shifted):
            width = layer.upper - layer.lower
            is_exact = (layer.lower == 0) | (width == 0)
            upper = np.where(is_exact, width, np.nextafter(width, np.inf))
            rest = _Rest(np.arange(layer.size), np.zeros(layer.size), upper)
            problem = _substitute(problem, i, shifted, rest, x, gradient)
        x.append(_sums_of(problem.layers[i - 1], x))
    return problem


def path_sums(problem: DerivativeProblem) -> tuple[list[Array], list[Array]]:
    """Bounds on |x| by source and on |gradient in x| by source, rounded upward.

    The gradient is summed over the rows of C."""
    x = [np.ones(problem.inputs)]
    for layer in problem.layers:
        x.append(_sums_of(layer, x))
    return x, _gradient_sums(problem)


def _sums_of(layer: Layer, x: Sequence[Array]) -> Array:
    """Bounds on |x| of a layer, given those of the sources that it reads."""
    y = np.zeros(layer.size)
    for source, matrix in layer.blocks.items():
        y = y + times_up(matrix, x[source])
    s = layer.steepest
    return _up_where(s > 0, s * y, len(layer.blocks) + 1)


def _gradient_sums(problem: DerivativeProblem) -> list[Array]:
    """Bounds on |gradient in x| by source, summed over the rows of C."""
    gradient = [np.zeros(n) for n in problem.sizes]
    for source, matrix in problem.objective.items():
        gradient[source] += times_up(matrix.T, np.ones(matrix.shape[0]))
    for i in range(len(problem.layers), 0, -1):
        s = problem.layers[i - 1].steepest
        through = _up_where(s > 0, s * gradient[i], 1)
        for source, matrix in problem.layers[i - 1].blocks.items():
            gradient[source] = up(gradient[source] + times_up(matrix.T, through), 1)
    return gradient


def _up_where(mask: Array, x: Array, n: int) -> Array:
    """`up` inside the mask; outside, where x is exactly zero, x itself."""
    return np.where(mask, up(x, n), x)


def _any(matrix: Matrix, mask: Array) -> Array:
    """The rows with an entry that is not zero in one of the columns of the mask."""
    return np.asarray(abs(matrix) @ mask.astype(np.float64) > 0)


def _restrict(
    blocks: Blocks, keep: list[Array], number: list[int], rows: Array
) -> dict[int, Matrix]:
    """The blocks with the kept rows and columns, sources renumbered, without blocks of zeros."""
    result: dict[int, Matrix] = {}
    for source, matrix in blocks.items():
        columns = keep[source]
        if len(columns) == 0:
            continue
        part = matrix
        if len(rows) < matrix.shape[0]:
            part = part[rows, :]
        if len(columns) < matrix.shape[1]:
            part = part[:, columns]
        if has_nonzeros(part):
            result[number[source]] = part
    return result


def _substitute_linear(
    problem: DerivativeProblem, i: int, x: Sequence[Array], gradient: Sequence[Array]
) -> DerivativeProblem:
    """Substitute the linear neurons of source i, unless that would take too much memory."""
    layer = problem.layers[i - 1]
    linear = np.flatnonzero(layer.lower == layer.upper)
    if len(linear) == 0 or not _fits(problem, i, linear):
        return problem
    others = np.flatnonzero(layer.lower != layer.upper)
    rest = _Rest(others, layer.lower[others], layer.upper[others])
    return _substitute(problem, i, linear, rest, x, gradient)


@dataclass(frozen=True, eq=False)
class _Rest:
    """The neurons of a source that stay, and their slopes."""

    neurons: Array  # their places in the layer
    lower: Array
    upper: Array


@dataclass(frozen=True, eq=False)
class _Linear:
    """The linear part l y of neurons of source i, which readers of that source take over."""

    i: int
    neurons: Array  # their places in the layer
    slope: Array  # l
    blocks: Blocks  # what they read: A_a
    products: Blocks  # l_a A_a
    x: Sequence[Array]  # bounds on |x|, by source


def _substitute(
    problem: DerivativeProblem,
    i: int,
    linear: Array,
    rest: _Rest,
    x: Sequence[Array],
    gradient: Sequence[Array],
) -> DerivativeProblem:
    """Substitute l y of the neurons `linear` of source i into everything that reads them.

    `x` bounds what the sources before i are, `gradient` the gradients in those behind it."""
    layer = problem.layers[i - 1]
    slope = layer.lower[linear]
    products = {source: _scaled(slope, m[linear, :]) for source, m in layer.blocks.items()}
    part = _Linear(i, linear, slope, layer.blocks, products, x)
    layers = list(problem.layers)
    objective = problem.objective
    slack = problem.slack
    for k, reader in enumerate(problem.layers):
        if i in reader.blocks:
            weight = up(reader.steepest * gradient[k + 1], 1)
            blocks, slack = _substitute_into(reader.blocks, part, rest.neurons, weight, slack)
            layers[k] = replace(reader, blocks=blocks)
    if i in objective:
        weight = np.ones(problem.outputs)
        objective, slack = _substitute_into(objective, part, rest.neurons, weight, slack)
    remaining = {source: matrix[rest.neurons, :] for source, matrix in layer.blocks.items()}
    neurons = layer.neurons[rest.neurons]
    layers[i - 1] = Layer(remaining, rest.lower, rest.upper, layer.node, neurons)
    return replace(problem, layers=tuple(layers), objective=objective, slack=slack)


def _substitute_into(
    blocks: Blocks, part: _Linear, rest: Array, weight: Array, slack: float
) -> tuple[Blocks, float]:
    """The blocks of one reader after substitution, and the slack with its errors added.

    `weight` bounds the absolute values of the gradient in the rows of the blocks."""
    outer = blocks[part.i][:, part.neurons]
    new = {source: matrix for source, matrix in blocks.items() if source != part.i}
    if len(rest):
        new[part.i] = blocks[part.i][:, rest]
    for source, matrix in part.products.items():
        x = part.x[source]
        size = times_up(outer, times_up(matrix, x))
        roundings = 0
        vanished = np.zeros(len(size))
        if not _is_exact(outer, part.slope, part.blocks[source]):
            roundings = terms(outer) + 2
            vanished = up(abs(outer).sum(axis=1), terms(outer))
        product = outer @ matrix
        if source in new:
            size = size + times_up(new[source], x)
            roundings += 1
            product = _sum(product, new[source])
        new[source] = tidy(product)
        if roundings:
            rounded = gamma(roundings) * (weight @ size)
            underflow = TINY * (weight @ (vanished + roundings)) * x.sum()
            slack = up_float(slack + 1.01 * (rounded + underflow), 4)
    return new, slack


def _sum(a: Matrix, b: Matrix) -> Matrix:
    """a + b, sparse if a is."""
    return dense(b) + a if isinstance(a, np.ndarray) else a + b


def _scaled(factor: Array, matrix: Matrix) -> Matrix:
    """The matrix with its rows multiplied by factors."""
    if isinstance(matrix, Convolution):
        return matrix.scaled(factor)
    if sp.issparse(matrix):
        return sp.csr_array(sp.diags_array(factor) @ matrix)
    return factor[:, None] * matrix


def _is_exact(outer: Matrix, slope: Array, matrix: Matrix) -> bool:
    """Whether outer @ diag(slope) @ matrix is computed without rounding.

    It is if outer has one term per row, outer and slope are powers of two, and nothing
    underflows. A number that frexp gives the exponent e is at least 2^(e - 1), and one of at
    least 2^-1022 keeps all of its bits."""
    if not sp.issparse(outer) or terms(outer) > 1:
        return False
    if not (_are_powers_of_two(outer.data) and _are_powers_of_two(slope)):
        return False
    inner = _least_exponent(slope) + _least_exponent(stored(matrix))
    product = inner + _least_exponent(outer.data)
    return min(inner - 2, product - 3) >= -1022


def _are_powers_of_two(values: Array) -> bool:
    """Whether all numbers are powers of two, or zero; of either sign."""
    mantissas, _ = np.frexp(values)
    return bool(((np.abs(mantissas) == 0.5) | (values == 0)).all())


def _least_exponent(values: Array) -> int:
    """The exponent, as frexp has it, of the smallest number that is not zero."""
    sizes = np.abs(values[values != 0])
    if len(sizes) == 0:
        return 0
    return int(np.frexp(sizes.min())[1])


def _fits(problem: DerivativeProblem, i: int, linear: Array) -> bool:
    """Whether substituting linear neurons of source i leaves few enough coefficients."""
    layer = problem.layers[i - 1]
    before = count_stored(layer.blocks)
    after = 0.0
    for blocks in problem.all_blocks():
        if i in blocks:
            before += count_stored(blocks)
            after += _count_after(layer, linear, blocks, i)
    return after <= max(MAX_COEFFICIENTS, MAX_GROWTH * before)


def _count_after(layer: Layer, linear: Array, blocks: Blocks, i: int) -> float:
    """An upper bound on the coefficients that substitution leaves in one reader's blocks."""
    outer = blocks[i][:, linear]
    columns = entries_by_row(outer.T)
    count = float(count_stored(blocks))
    for matrix in layer.blocks.values():
        products = float(columns @ entries_by_row(matrix[linear, :]))
        count += min(products, float(outer.shape[0]) * matrix.shape[1])
    return count
