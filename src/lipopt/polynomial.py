"""The norm-gradient polynomial of a derivative problem (the paper's section 2), on the unit cube.

One monomial per path from an input to the output, its coefficient the product of the weights on the path:

    p = sum over paths  w_1 w_2 ... w_d  t_j s_a s_b ...       max p = the problem's optimum

The variables are mapped to [0, 1]: t = 2x - 1, s = l + (u - l) x. A slope that is known (l = u) is a constant. Several rows
of C under the l1 norm bring a sign r = 2x - 1 each: |C x|_1 = max r.C x; then t = e_j needs no sign of its own.
Variables are numbered t first, then the neurons layer by layer, then the rows.

Paths are expanded from the output back to the inputs, a layer at a time. `error` bounds the sum of the errors of all
coefficients, and so that of p anywhere on the cube: n roundings are off by gamma(n) times the absolute values of the terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from .errors import LipoptError
from .problem import DerivativeProblem
from .rounding import TINY, Array, gamma

TERMS = 4_000_000  # the largest number of terms that is expanded


@dataclass(frozen=True, eq=False)
class Polynomial:
    """The sum of coefficients[i] times the variables in monomials[i]: ascending, -1 in the places left over, those first."""

    variables: int
    monomials: Array
    coefficients: Array
    error: float  # a bound on the sum of the errors of the coefficients

    @property
    def degree(self) -> int:
        return int((self.monomials >= 0).sum(axis=1).max(initial=0))

    def __call__(self, x: Array) -> float:
        """The value at a point of the cube."""
        padded = np.append(x, 1.0)  # place -1
        return float(self.coefficients @ padded[self.monomials].prod(axis=1))


class Terms(NamedTuple):
    """Terms of the expansion: the neuron whose slope comes next, the product so far, and its variables, a column per source."""

    neuron: Array
    value: Array
    monomial: Array


@dataclass(frozen=True, eq=False)
class Source:
    """Variables first, first + 1, ...: each stands for base + width x. `blocks` are what they read, by source."""

    first: int
    base: Array
    width: Array
    blocks: dict[int, sp.csr_array]

    @property
    def free(self) -> Array:
        """Where there is a variable at all."""
        return self.width != 0


def sources(problem: DerivativeProblem, only: int | None = None) -> list[Source]:
    """t, the layers and the rows as factors of monomials; with `only`, those that t = +-e_j reaches for that input."""
    if problem.outputs > 1 and only is None:
        raise LipoptError(
            "the polynomial of several outputs needs the l1 norm and one input; bound one output at a time, or use method 'sdp'"
        )
    signs = problem.outputs > 1
    ones = np.ones(problem.inputs)
    reached = [ones > 0 if only is None else np.arange(problem.inputs) == only]
    result = [Source(0, ones if signs else -ones, 0 * ones if signs else 2 * ones, {})]
    rows = np.ones(problem.outputs)
    ranges = [(layer.lower, layer.upper - layer.lower) for layer in problem.layers]
    for blocks, (base, width) in zip(
        problem.all_blocks(), [*ranges, (-rows, 2 * rows) if signs else (rows, 0 * rows)], strict=True
    ):
        cut = {source: _cut(matrix, reached[source]) for source, matrix in blocks.items()}
        reached.append(sum((matrix @ reached[source] for source, matrix in _patterns(cut).items()), np.zeros(len(base))) > 0)
        result.append(Source(result[-1].first + len(result[-1].base), base, width, cut))
    return result


def _cut(matrix: sp.csr_array | Array, columns: Array) -> sp.csr_array:
    kept = sp.csr_array(sp.csr_array(matrix).astype(np.float64) @ sp.diags_array(columns.astype(np.float64)))
    kept.eliminate_zeros()
    return kept


def _patterns(blocks: dict[int, sp.csr_array]) -> dict[int, sp.csr_array]:
    """The blocks with ones in place of their coefficients."""
    return {s: sp.csr_array((np.ones(m.nnz), m.indices, m.indptr), shape=m.shape) for s, m in blocks.items()}


def count_terms(chain: list[Source]) -> float:
    """The number of terms of the expansion, before equal monomials are merged."""
    counts: list[Array] = []
    for source in chain:
        paths = sum((m @ counts[s] for s, m in _patterns(source.blocks).items()), np.zeros(len(source.base)))
        branches = (source.base != 0).astype(np.float64) + source.free
        counts.append(branches * paths if counts else branches)
    return float(counts[-1].sum())


@np.errstate(over="ignore", invalid="ignore")  # what overflows is refused at the end
def norm_gradient(problem: DerivativeProblem, only: int | None = None, limit: float = TERMS) -> Polynomial:
    """The polynomial of a problem with one row, or of one input (see `sources`)."""
    chain = sources(problem, only)
    count = count_terms(chain)
    if count > limit:
        raise LipoptError(
            f"the polynomial has {count:.3g} terms, more than the {limit:.3g} the LP can take; "
            "use method 'sdp', or 'path-sum' if that is too slow"
        )
    last, variables = len(chain[-1].base), chain[-1].first + len(chain[-1].base)
    empty = Terms(np.empty(0, np.int64), np.empty(0), np.empty((0, len(chain)), np.int64))
    pending = [[empty] for _ in chain]
    pending[-1].append(Terms(np.arange(last), np.ones(last), np.full((last, len(chain)), -1)))
    roundings = 0
    for i in range(len(chain) - 1, -1, -1):
        terms, merged = _merge(Terms(*map(np.concatenate, zip(*pending[i], strict=True))), variables)
        terms = _branch(chain[i], i, terms)
        roundings += merged + 3
        for source, matrix in chain[i].blocks.items():
            pending[source].append(_extend(matrix, terms))
    (_, value, monomial), merged = _merge(terms._replace(neuron=np.zeros_like(terms.neuron)), variables)
    monomial = np.sort(monomial, axis=1)
    degree = max(1, int((monomial >= 0).sum(axis=1).max(initial=0)))
    error = gamma(roundings + merged + 3) * _magnitude(chain) * 1.01 + _underflow(chain, count)
    if not (np.isfinite(value).all() and np.isfinite(error)):
        raise LipoptError("the products of the network's weights overflow; rescale the network")
    return Polynomial(variables, monomial[:, -degree:], value, error)


def _branch(source: Source, place: int, terms: Terms) -> Terms:
    """Multiply by base + width x: a term without the variable where base is not zero, and one with it where it is free."""
    constant, linear = (Terms(*(part[mask[terms.neuron]] for part in terms)) for mask in (source.base != 0, source.free))
    linear.monomial[:, place] = source.first + linear.neuron
    factors = (source.base[constant.neuron], source.width[linear.neuron])
    return Terms(
        np.concatenate([constant.neuron, linear.neuron]),
        np.concatenate([constant.value, linear.value]) * np.concatenate(factors),
        np.concatenate([constant.monomial, linear.monomial]),
    )


def _extend(matrix: sp.csr_array, terms: Terms) -> Terms:
    """Every term times every coefficient of its neuron's row."""
    lengths = np.diff(matrix.indptr)[terms.neuron]
    term = np.repeat(np.arange(len(lengths)), lengths)
    entry = np.arange(len(term)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + matrix.indptr[terms.neuron][term]
    return Terms(matrix.indices[entry].astype(np.int64), terms.value[term] * matrix.data[entry], terms.monomial[term])


def _merge(terms: Terms, variables: int) -> tuple[Terms, int]:
    """Add up the terms with the same neuron and monomial; also the largest number of terms that became one."""
    first, inverse = _distinct([terms.neuron, *terms.monomial.T], variables + 1)
    total = np.bincount(inverse, terms.value, len(first))
    merged = int(np.bincount(inverse).max(initial=0))
    return Terms(terms.neuron[first], total, terms.monomial[first]), merged


def _distinct(columns: list[Array], base: int) -> tuple[Array, Array]:
    """Where each distinct row occurs first, and the number of every row's distinct row; entries are -1 to base - 2."""
    key, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        if size > 2**62 // base:
            key, size = np.unique(key, return_inverse=True)[1], len(key)
        key, size = key * base + (column + 1), size * base
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first, inverse


def _magnitude(chain: list[Source]) -> float:
    """The sum of the absolute values of all terms, before merging."""
    sums: list[Array] = []
    for source in chain:
        total = sum((abs(m) @ sums[s] for s, m in source.blocks.items()), np.zeros(len(source.base)))
        sums.append((np.abs(source.base) + np.abs(source.width)) * (total if sums else 1.0))
    return float(sums[-1].sum())


def _underflow(chain: list[Source], count: float) -> float:
    """A bound on what is lost where a product underflows: the factors that follow can enlarge it."""
    factors = [part for source in chain for part in (np.append(source.base, source.width), _weights(source))]
    largest = np.prod([max(1.0, float(np.abs(part).max(initial=0.0))) for part in factors])
    return float(2 * len(chain) * count * largest * TINY)


def _weights(source: Source) -> Array:
    """All coefficients of its blocks: a path uses one of them."""
    return np.concatenate([np.empty(0), *(m.data for m in source.blocks.values())])
