"""The norm-gradient polynomial of a derivative problem (the paper's section 2), on the unit cube.

One monomial per path from an input to the output; its coefficient is the product of the weights on
the path:

    p = sum over paths  w_1 w_2 ... w_d  t_j s_a s_b ...       max p = the problem's optimum

The variables are mapped to [0, 1]: t = 2x - 1, s = l + (u - l) x. A slope that is known (l = u)
is a constant. Several rows of C with l1 on the outputs bring a sign r = 2x - 1 each: |C x|_1 = max r.C
x; then t = e_j needs no sign of its own. Variables are numbered t first, then the neurons layer
by layer, then the rows.

Paths are expanded from the output back to the inputs, a layer at a time. `error` bounds the sum
of the errors of all coefficients, and so that of p anywhere on the cube: n roundings are off by
gamma(n) times the absolute values of the terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ...errors import LipoptError
from ...numerics.arrays import Array, as_csr
from ...numerics.rounding import TINY, gamma
from ...problem.derivative import DerivativeProblem

# Terms of the longest polynomial that is expanded. A term takes 16 bytes, and 8 per source, in each
# of the arrays that are made while terms are merged.
MAX_TERMS = 4_000_000
MAX_KEY = 2**62  # keys of rows of integers must stay below this, to fit in int64


@dataclass(frozen=True, eq=False)
class Polynomial:
    """The sum of coefficients[i] times the variables in monomials[i].

    The variables of a monomial are ascending. Monomials of lower degree have -1 in the columns that
    they do not need, which come first."""

    variables: int
    monomials: Array
    coefficients: Array
    error: float  # a bound on the sum of the errors of the coefficients

    @property
    def degree(self) -> int:
        return _largest_degree(self.monomials)

    def __call__(self, x: Array) -> float:
        """The value at a point of the cube."""
        padded = np.append(x, 1.0)  # the factor of columns that are not needed: place -1
        return float(self.coefficients @ padded[self.monomials].prod(axis=1))


def _largest_degree(monomials: Array) -> int:
    return int((monomials >= 0).sum(axis=1).max(initial=0))


class Terms(NamedTuple):
    """Terms of the expansion, one per row."""

    neuron: Array  # the neuron whose slope is the next factor
    value: Array  # the product of the weights so far
    monomial: Array  # the variables so far: a column per source, -1 for none


@dataclass(frozen=True, eq=False)
class Source:
    """The factors of one source: t, the slopes of a layer, or the signs of the rows of C.

    Factor a is base[a] + width[a] x_a, where x_a is the variable number first + a."""

    first: int
    base: Array
    width: Array
    blocks: dict[int, sp.csr_array]  # what its neurons read, by source

    @property
    def free(self) -> Array:
        """The factors that have a variable at all."""
        return self.width != 0

    @property
    def size(self) -> int:
        return len(self.base)

    @property
    def end(self) -> int:
        """The number of the first variable after its own."""
        return self.first + self.size


def sources(problem: DerivativeProblem, only: int | None = None) -> list[Source]:
    """t, the layers and the rows, as factors of monomials.

    With `only`, t is +-e_j for that input j, and weights that it does not reach are left out."""
    has_signs = problem.outputs > 1
    is_cube = problem.norm.bounds_each_input
    if has_signs and not (problem.adds_outputs and (is_cube or only is not None)):
        raise LipoptError(
            "the polynomial of several outputs needs the l1 norm on them, and on the inputs l_inf or"
            " one input; bound one output at a time, or use method 'sdp'"
        )
    inputs = np.ones(problem.inputs)
    rows = np.ones(problem.outputs)
    direction = Source(0, -inputs, 2 * inputs, {})
    if has_signs and only is not None:
        direction = Source(0, inputs, 0 * inputs, {})
    output_range = (-rows, 2 * rows) if has_signs else (rows, 0 * rows)
    reached = [np.ones(problem.inputs, bool)]
    if only is not None:
        reached = [np.arange(problem.inputs) == only]
    ranges = [(layer.lower, layer.upper - layer.lower) for layer in problem.layers]
    ranges.append(output_range)
    chain = [direction]
    for blocks, (base, width) in zip(problem.all_blocks(), ranges, strict=True):
        kept = {source: _only_columns(m, reached[source]) for source, m in blocks.items()}
        chain.append(Source(chain[-1].end, base, width, kept))
        paths = np.zeros(len(base))
        for source, pattern in _patterns(kept).items():
            paths = paths + pattern @ reached[source]
        reached.append(paths > 0)
    return chain


def _only_columns(matrix: sp.csr_array | Array, columns: Array) -> sp.csr_array:
    """A matrix without its other columns, which become zero."""
    selection = sp.diags_array(columns.astype(np.float64))
    kept = sp.csr_array(as_csr(matrix) @ selection)
    kept.eliminate_zeros()
    return kept


def _patterns(blocks: dict[int, sp.csr_array]) -> dict[int, sp.csr_array]:
    """The blocks with ones in place of their coefficients."""
    patterns = {}
    for source, matrix in blocks.items():
        ones = np.ones(matrix.nnz)
        patterns[source] = sp.csr_array((ones, matrix.indices, matrix.indptr), shape=matrix.shape)
    return patterns


def count_terms(chain: list[Source]) -> float:
    """The number of terms of the expansion, before equal monomials are merged."""
    counts: list[Array] = []
    for source in chain:
        branches = (source.base != 0).astype(np.float64) + source.free
        if not counts:  # the inputs, where paths begin
            counts.append(branches)
            continue
        paths = np.zeros(source.size)
        for s, pattern in _patterns(source.blocks).items():
            paths = paths + pattern @ counts[s]
        counts.append(branches * paths)
    return float(counts[-1].sum())


@np.errstate(over="ignore", invalid="ignore")  # what overflows is refused at the end
def norm_gradient(
    problem: DerivativeProblem, only: int | None = None, limit: float = MAX_TERMS
) -> Polynomial:
    """The polynomial of a problem, or of one of its inputs (see `sources`)."""
    chain = sources(problem, only)
    count = count_terms(chain)
    if count > limit:
        raise LipoptError(
            f"the polynomial has {count:.3g} terms, more than the {limit:.3g} the LP can take; "
            "use method 'sdp', or 'path-sum' if that is too slow"
        )
    terms, roundings = _expand(chain)
    monomials = np.sort(terms.monomial, axis=1)
    degree = max(1, _largest_degree(monomials))
    error = gamma(roundings) * _magnitude(chain) * 1.01 + _underflow(chain, count)
    if not (np.isfinite(terms.value).all() and np.isfinite(error)):
        raise LipoptError("the products of the network's weights overflow; rescale the network")
    return Polynomial(chain[-1].end, monomials[:, -degree:], terms.value, error)


def _expand(chain: list[Source]) -> tuple[Terms, int]:
    """The terms of the polynomial, merged, and a bound on the roundings in each coefficient."""
    variables = chain[-1].end
    pending = [[_no_terms(len(chain))] for _ in chain]
    pending[-1].append(_first_terms(chain))
    roundings = 0
    for i in range(len(chain) - 1, -1, -1):
        terms, merged = _merge(_concatenated(pending[i]), variables)
        terms = _branch(chain[i], i, terms)
        roundings += merged + 3
        for source, matrix in chain[i].blocks.items():
            pending[source].append(_extend(matrix, terms))
    all_terms = terms._replace(neuron=np.zeros_like(terms.neuron))
    result, merged = _merge(all_terms, variables)
    return result, roundings + merged + 3


def _no_terms(columns: int) -> Terms:
    return Terms(np.empty(0, np.int64), np.empty(0), np.empty((0, columns), np.int64))


def _first_terms(chain: list[Source]) -> Terms:
    """The terms that the expansion starts from: one per row of C, without any factor."""
    rows = chain[-1].size
    return Terms(np.arange(rows), np.ones(rows), np.full((rows, len(chain)), -1))


def _concatenated(parts: list[Terms]) -> Terms:
    neurons, values, monomials = zip(*parts, strict=True)
    return Terms(np.concatenate(neurons), np.concatenate(values), np.concatenate(monomials))


def _branch(source: Source, place: int, terms: Terms) -> Terms:
    """Multiply every term by its factor base + width x.

    That gives a term without the variable where base is not zero, and a term with it where the
    factor has a variable."""
    constant = _selected(terms, (source.base != 0)[terms.neuron])
    linear = _selected(terms, source.free[terms.neuron])
    linear.monomial[:, place] = source.first + linear.neuron
    return _concatenated(
        [
            constant._replace(value=constant.value * source.base[constant.neuron]),
            linear._replace(value=linear.value * source.width[linear.neuron]),
        ]
    )


def _selected(terms: Terms, mask: Array) -> Terms:
    return Terms(terms.neuron[mask], terms.value[mask], terms.monomial[mask])


def _extend(matrix: sp.csr_array, terms: Terms) -> Terms:
    """Every term times every coefficient of its neuron's row."""
    lengths = np.diff(matrix.indptr)[terms.neuron]
    term = np.repeat(np.arange(len(lengths)), lengths)
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    within_row = np.arange(len(term)) - first
    entry = within_row + matrix.indptr[terms.neuron][term]
    return Terms(
        matrix.indices[entry].astype(np.int64),
        terms.value[term] * matrix.data[entry],
        terms.monomial[term],
    )


def _merge(terms: Terms, variables: int) -> tuple[Terms, int]:
    """Add up the terms with the same neuron and monomial.

    Also the largest number of terms that became one."""
    first, number = _distinct([terms.neuron, *terms.monomial.T], variables + 1)
    total = np.bincount(number, terms.value, len(first))
    merged = int(np.bincount(number).max(initial=0))
    return Terms(terms.neuron[first], total, terms.monomial[first]), merged


def _distinct(columns: list[Array], base: int) -> tuple[Array, Array]:
    """Where each distinct row occurs first, and for every row the number of the one it equals.

    Entries are -1 to base - 2."""
    key = np.zeros(len(columns[0]), np.int64)
    size = 1  # keys are below this
    for column in columns:
        if size > MAX_KEY // base:
            _, key = np.unique(key, return_inverse=True)
            size = len(key)
        key = key * base + (column + 1)
        size = size * base
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return first, number


def _magnitude(chain: list[Source]) -> float:
    """The sum of the absolute values of all terms, before merging."""
    sums: list[Array] = []
    for source in chain:
        largest = np.abs(source.base) + np.abs(source.width)
        if not sums:  # the inputs, where paths begin
            sums.append(largest)
            continue
        total = np.zeros(source.size)
        for s, matrix in source.blocks.items():
            total = total + abs(matrix) @ sums[s]
        sums.append(largest * total)
    return float(sums[-1].sum())


def _underflow(chain: list[Source], count: float) -> float:
    """A bound on what is lost where a product underflows: later factors can enlarge the loss."""
    largest: list[float] = []  # of each kind of factor on a path; factors below 1 do not enlarge
    for source in chain:
        factors = np.append(source.base, source.width)
        largest.append(max(1.0, _largest(factors)))
        largest.append(max(1.0, _largest(_weights(source))))
    return float(2 * len(chain) * count * np.prod(largest) * TINY)


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))


def _weights(source: Source) -> Array:
    """All coefficients of its blocks: a path uses one of them."""
    parts = [np.empty(0)]
    for matrix in source.blocks.values():
        parts.append(matrix.data)
    return np.concatenate(parts)
