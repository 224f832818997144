"""Presolve: remove from a derivative problem the neurons that are no variables.

A neuron whose slope is known (l = u) is linear and is substituted: A_b += A_ba l_a A_a. So affine nodes disappear, and in
small balls most of the network does. Neurons that no input reaches or that reach no output are dropped.

Substitution rounds the coefficients. A path from the input to the output uses at most one of the coefficients that one
layer's substitution changes, so the optimum moves by at most g.E f, where E bounds the errors, f the absolute values of x
and g those of the gradient, both by the path sum. That is added to the problem's `slack`.

With B = A_ba, D = l_a A_a as computed, and n terms in a row of B, an entry of E is at most gamma(n + 2) |B| |D|, and for what
underflows TINY (|B| 1 + n + 2): entries of D are off by less than TINY, which B then multiplies, and so are n products.
Path sums are rounded upward, and so is the slack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from .errors import LipoptError
from .network import tidy
from .problem import Blocks, DerivativeProblem, Layer
from .rounding import TINY, Array, Matrix, gamma, terms, times_up, up, up_float

FILL = 4_000_000  # a layer stays if substituting it would leave more coefficients than this, and than GROWTH times as many
GROWTH = 1.5


def presolve(problem: DerivativeProblem) -> DerivativeProblem:
    """The same optimum (up to the slack) with fewer variables."""
    problem = drop_unused(problem)
    for i in range(1, len(problem.layers) + 1):
        problem = _substitute_linear(problem, i)
    problem = drop_unused(problem)
    if not all(np.isfinite(m.data if sp.issparse(m) else m).all() for blocks in problem.all_blocks() for m in blocks.values()):
        raise LipoptError("the network's weights are so large that their products overflow; rescale the network")
    return problem


def drop_unused(problem: DerivativeProblem) -> DerivativeProblem:
    """Without the neurons that no input reaches, that reach no output, or whose slope is zero."""
    reached = [np.ones(problem.inputs, bool)]
    for layer in problem.layers:
        alive = (layer.lower != 0) | (layer.upper != 0)
        reached.append(alive & _touches(layer.blocks, reached, layer.size))
    used = [np.zeros(n, bool) for n in problem.sizes]
    for source, matrix in problem.objective.items():
        used[source] |= _any(matrix.T, np.ones(matrix.shape[0], bool))
    for i in range(len(problem.layers), 0, -1):
        used[i] &= reached[i]
        for source, matrix in problem.layers[i - 1].blocks.items():
            used[source] |= _any(matrix.T, used[i])
    keep = [np.arange(problem.inputs), *(np.flatnonzero(mask) for mask in used[1:])]
    number = np.cumsum([0] + [len(k) > 0 for k in keep[1:]])
    layers = tuple(
        Layer(
            _restrict(layer.blocks, keep, number, rows),
            layer.lower[rows],
            layer.upper[rows],
            layer.node,
            layer.neurons[rows],
        )
        for layer, rows in zip(problem.layers, keep[1:], strict=True)
        if len(rows)
    )
    objective = _restrict(problem.objective, keep, number, np.arange(problem.outputs))
    return replace(problem, layers=layers, objective=objective or {0: sp.csr_array((problem.outputs, problem.inputs))})


def split_rows(problem: DerivativeProblem) -> list[DerivativeProblem]:
    """One problem per row of C."""
    return [only_rows(problem, [k]) for k in range(problem.outputs)]


def only_rows(problem: DerivativeProblem, rows: Sequence[int]) -> DerivativeProblem:
    """The problem of some rows of C."""
    chosen = {source: matrix[list(rows), :] for source, matrix in problem.objective.items()}
    return drop_unused(replace(problem, objective=chosen))


def one_input(problem: DerivativeProblem, j: int) -> DerivativeProblem:
    """The problem of input j alone."""
    alone = [{s: m[:, [j]] if s == 0 else m for s, m in blocks.items()} for blocks in problem.all_blocks()]
    layers = tuple(replace(layer, blocks=blocks) for layer, blocks in zip(problem.layers, alone, strict=False))
    return replace(problem, inputs=1, layers=layers, objective=alone[-1])


def slopes_from_zero(problem: DerivativeProblem) -> DerivativeProblem:
    """The same optimum (up to the slack) with slopes from 0: z = l y + z', the slope of z' in [0, u - l], l y substituted."""
    for i, layer in enumerate(problem.layers, start=1):
        shifted = np.flatnonzero(layer.lower)
        if len(shifted):
            width = layer.upper - layer.lower
            upper = np.where((layer.lower == 0) | (width == 0), width, np.nextafter(width, np.inf))
            problem = _substitute(problem, i, shifted, np.arange(layer.size), np.zeros(layer.size), upper)
    return problem


def path_sums(problem: DerivativeProblem) -> tuple[list[Array], list[Array]]:
    """Bounds on |x| by source and on |gradient in x| by source (summed over the rows of C), rounded upward."""
    steepest = [np.maximum(np.abs(layer.lower), np.abs(layer.upper)) for layer in problem.layers]
    x = [np.ones(problem.inputs)]
    for layer, s in zip(problem.layers, steepest, strict=True):
        y = sum((times_up(m, x[source]) for source, m in layer.blocks.items()), np.zeros(layer.size))
        x.append(_up_where(s > 0, s * y, len(layer.blocks) + 1))
    gradient = [np.zeros(n) for n in problem.sizes]
    for source, matrix in problem.objective.items():
        gradient[source] += times_up(_transposed(matrix), np.ones(matrix.shape[0]))
    for i in range(len(problem.layers), 0, -1):
        through = _up_where(steepest[i - 1] > 0, steepest[i - 1] * gradient[i], 1)
        for source, matrix in problem.layers[i - 1].blocks.items():
            gradient[source] = up(gradient[source] + times_up(_transposed(matrix), through), 1)
    return x, gradient


def _up_where(mask: Array, x: Array, n: int) -> Array:
    """`up`, but what is exactly zero outside the mask stays so."""
    return np.where(mask, up(x, n), x)


def _transposed(matrix: Matrix) -> Matrix:
    return matrix.T.tocsr() if sp.issparse(matrix) else matrix.T


def _any(matrix: Matrix, mask: Array) -> Array:
    return np.asarray(abs(matrix) @ mask.astype(np.float64) > 0)


def _touches(blocks: Blocks, masks: list[Array], size: int) -> Array:
    return np.logical_or.reduce([_any(m, masks[source]) for source, m in blocks.items()] + [np.zeros(size, bool)])


def _restrict(blocks: Blocks, keep: list[Array], number: Array, rows: Array) -> dict[int, Matrix]:
    """The blocks with the kept rows and columns, sources renumbered; blocks with nothing left are gone."""
    result: dict[int, Matrix] = {}
    for source, matrix in blocks.items():
        columns = keep[source]
        if len(columns) == 0:
            continue
        part = matrix if len(rows) == matrix.shape[0] else matrix[rows, :]
        part = part if len(columns) == matrix.shape[1] else part[:, columns]
        if part.count_nonzero() if sp.issparse(part) else np.any(part):
            result[int(number[source])] = part
    return result


def _substitute_linear(problem: DerivativeProblem, i: int) -> DerivativeProblem:
    """Substitute the linear neurons of source i, unless that would take too much memory."""
    layer = problem.layers[i - 1]
    linear, rest = np.flatnonzero(layer.lower == layer.upper), np.flatnonzero(layer.lower != layer.upper)
    if len(linear) == 0 or not _worthwhile(layer, linear, [blocks for blocks in problem.all_blocks() if i in blocks], i):
        return problem
    return _substitute(problem, i, linear, rest, layer.lower[rest], layer.upper[rest])


def _substitute(problem: DerivativeProblem, i: int, linear: Array, rest: Array, lower: Array, upper: Array) -> DerivativeProblem:
    """Substitute l y of the neurons `linear` of source i into everything that reads them; `rest` stay, with these slopes."""
    layer = problem.layers[i - 1]
    readers = [(k, blocks) for k, blocks in enumerate(problem.all_blocks()) if i in blocks]
    slope = layer.lower[linear]
    inner = {source: _times(slope, matrix[linear, :]) for source, matrix in layer.blocks.items()}
    x, gradient = path_sums(problem)
    layers, objective, slack = list(problem.layers), problem.objective, problem.slack
    for k, blocks in readers:
        outer = blocks[i][:, linear]
        new = {source: matrix for source, matrix in blocks.items() if source != i}
        if len(rest):
            new[i] = blocks[i][:, rest]
        if k < len(layers):
            weight = up(np.maximum(np.abs(layers[k].lower), np.abs(layers[k].upper)) * gradient[k + 1], 1)
        else:
            weight = np.ones(outer.shape[0])
        for source, matrix in inner.items():
            size = times_up(outer, times_up(matrix, x[source]))
            exact = _exact(outer, slope, layer.blocks[source])
            roundings = 0 if exact else terms(outer) + 2
            vanished = np.zeros(len(size)) if exact else up(abs(outer).sum(axis=1), terms(outer))
            product = outer @ matrix
            if source in new:
                size = size + times_up(new[source], x[source])
                roundings += 1
                product = _dense(new[source]) + product if not sp.issparse(product) else product + new[source]
            new[source] = tidy(product)
            if roundings:
                rounded = gamma(roundings) * (weight @ size)
                underflow = TINY * (weight @ (vanished + roundings)) * x[source].sum()
                slack = up_float(slack + 1.01 * (rounded + underflow), 4)
        if k < len(layers):
            layers[k] = replace(layers[k], blocks=new)
        else:
            objective = new
    remaining = {source: matrix[rest, :] for source, matrix in layer.blocks.items()}
    layers[i - 1] = Layer(remaining, lower, upper, layer.node, layer.neurons[rest])
    return replace(problem, layers=tuple(layers), objective=objective, slack=slack)


def _times(factor: Array, matrix: Matrix) -> Matrix:
    return sp.csr_array(sp.diags_array(factor) @ matrix) if sp.issparse(matrix) else factor[:, None] * matrix


def _dense(matrix: Matrix) -> Array:
    return matrix.toarray() if sp.issparse(matrix) else matrix


def _exact(outer: Matrix, slope: Array, matrix: Matrix) -> bool:
    """Whether outer @ diag(slope) @ matrix is computed without rounding: one term a row, powers of two, and no underflow.

    A number that frexp gives the exponent e is at least 2^(e - 1), and one of at least 2^-1022 keeps all of its bits."""
    if not sp.issparse(outer) or terms(outer) > 1:
        return False
    powers = [np.abs(np.frexp(v)[0]) == 0.5 for v in (outer.data, slope)]
    if not all(bool((p | (v == 0)).all()) for p, v in zip(powers, (outer.data, slope), strict=True)):
        return False
    inner = _least_exponent(slope) + _least_exponent(matrix.data if sp.issparse(matrix) else matrix)
    product = inner + _least_exponent(outer.data)
    return min(inner - 2, product - 3) >= -1022


def _least_exponent(values: Array) -> int:
    """The exponent, as frexp has it, of the smallest number that is not zero."""
    sizes = np.abs(values[values != 0])
    return int(np.frexp(sizes.min())[1]) if len(sizes) else 0


def _worthwhile(layer: Layer, linear: Array, readers: list[Blocks], i: int) -> bool:
    before = sum(int(m.size) for m in layer.blocks.values()) + sum(int(m.size) for b in readers for m in b.values())
    after = sum(_products(layer, linear, blocks, i) for blocks in readers)
    return after <= max(FILL, GROWTH * before)


def _products(layer: Layer, linear: Array, blocks: Blocks, i: int) -> float:
    """An upper bound on the coefficients that substitution leaves in one reader's blocks."""
    outer = blocks[i][:, linear]
    columns = _count(outer.T)
    return sum(int(m.size) for m in blocks.values()) + sum(
        min(float(columns @ _count(m[linear, :])), float(outer.shape[0]) * m.shape[1]) for m in layer.blocks.values()
    )


def _count(matrix: Matrix) -> Array:
    """Coefficients per row."""
    if sp.issparse(matrix):
        return np.diff(matrix.tocsr().indptr).astype(np.float64)
    return np.full(matrix.shape[0], float(matrix.shape[1]))
