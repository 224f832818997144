"""Sparsity patterns: which sets of variables the products of an LP may use (the paper's section 3).

A pattern is a list of cliques I_1, ..., I_m. The LP of degree k takes the products over all sets of k variables inside a clique,
or over the clique itself where it is smaller.

    paths     the monomials of p alone: no larger sets at all
    output    a variable that nothing follows, and all its ancestors (the paper's equation (9))
    input     a variable that nothing precedes, and all its descendants
    chordal   the maximal cliques of a chordal completion of the correlative sparsity graph
    full      all variables together

Two variables are neighbours in the correlative sparsity graph if a monomial has both: if a path of the network goes through both.
A pattern is valid (Definition 1) if every monomial lies in a clique and the cliques can be ordered so that the part of each
that occurred before lies in a single earlier one (running intersection). Any pattern gives bounds; those of valid ones converge
to the optimum.

Cliques are the rows of a sparse 0-1 matrix. Sets of up to k variables are the rows of an integer array with k columns: ascending,
-1 first in the places left over.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import comb, isqrt

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree

from .errors import LipoptError
from .polynomial import Source, sources
from .problem import DerivativeProblem
from .rounding import Array

PATTERNS = ("paths", "output", "input", "chordal", "full")


def ancestors(chain: list[Source]) -> sp.csr_array:
    """Row v: ones at the free variables on paths that end in v, v included. Variables on no path to the output are left out."""
    n = chain[-1].first + len(chain[-1].base)
    free = np.concatenate([source.free for source in chain]).astype(np.float64)
    rows: list[sp.csr_array] = []
    for source in chain:
        own = sp.diags_array(source.free.astype(np.float64)) @ sp.eye_array(len(source.base), n, k=source.first)
        rows.append(_ones(sum((_ones(m) @ rows[s] for s, m in source.blocks.items()), own)))
    used = sp.diags_array((np.asarray(rows[-1].sum(axis=0)).ravel() > 0) * free)
    return _ones(used @ sp.vstack(rows) @ used)


def _ones(matrix: sp.csr_array | Array) -> sp.csr_array:
    """Ones in place of all non-zeros."""
    result = sp.csr_array(matrix, copy=True)
    result.eliminate_zeros()
    result.data = np.ones(result.nnz)
    return result


def cliques(chain: list[Source], pattern: str) -> sp.csr_array:
    """The cliques of a pattern. `paths` has none: its sets are the monomials."""
    if pattern == "paths":
        return sp.csr_array((0, chain[-1].first + len(chain[-1].base)))
    up = ancestors(chain)
    graph = _ones(up + up.T)
    used = np.flatnonzero(np.diff(graph.indptr))
    if pattern == "input":
        return maximal_cliques(graph[used[np.diff(up.indptr)[used] == 1]])
    if pattern == "output":
        return maximal_cliques(graph[used[np.diff(up.tocsc().indptr)[used] == 1]])
    if pattern == "full":
        return sp.csr_array((np.ones(len(used)), (np.zeros(len(used), np.int64), used)), (min(1, len(used)), graph.shape[1]))
    if pattern == "chordal":
        return _chordal(graph)
    raise LipoptError(f"unknown pattern '{pattern}'; use one of {', '.join(PATTERNS)}")


def _chordal(graph: sp.csr_array) -> sp.csr_array:
    """The maximal cliques of the chordal completion that eliminating variables of least degree gives."""
    import networkx as nx  # slow to import

    network = nx.from_scipy_sparse_array(graph)
    network.remove_nodes_from([v for v, degree in list(network.degree()) if degree == 0])
    network.remove_edges_from(list(nx.selfloop_edges(network)))
    if len(network) == 0:
        return sp.csr_array((0, graph.shape[1]))
    _, tree = nx.algorithms.approximation.treewidth_min_degree(network)
    bags = [sorted(bag) for bag in tree]
    row = np.repeat(np.arange(len(bags)), [len(bag) for bag in bags])
    column = np.fromiter(itertools.chain.from_iterable(bags), np.int64, len(row))
    return maximal_cliques(sp.csr_array((np.ones(len(row)), (row, column)), (len(bags), graph.shape[1])))


def maximal_cliques(rows: sp.csr_array) -> sp.csr_array:
    """Without the cliques that lie in others; of equal ones the first stays."""
    rows = sp.csr_array(rows)
    rows.sort_indices()
    sizes = np.diff(rows.indptr)
    common = sp.coo_array(rows @ rows.T)
    a, b = common.coords
    inside = (common.data == sizes[a]) & (a != b) & ((sizes[a] < sizes[b]) | (b < a))
    keep = np.setdiff1d(np.flatnonzero(sizes), a[inside])
    return sp.csr_array(rows[keep])


def is_valid(rows: sp.csr_array, monomials: Array) -> bool:
    """Whether every monomial lies in a clique and the cliques have the running intersection property.

    They have it if and only if some tree on them does: the spanning tree with the largest intersections, whose
    total is then the sum of the sizes minus the number of variables."""
    entries = monomials >= 0
    sizes = entries.sum(axis=1)
    table = sp.csr_array((np.ones(sizes.sum()), (np.nonzero(entries)[0], monomials[entries])), (len(monomials), rows.shape[1]))
    inside = sp.coo_array(table @ rows.T)
    covered = np.zeros(len(monomials), bool)
    covered[inside.coords[0][inside.data == sizes[inside.coords[0]]]] = True
    covered[sizes == 0] = True
    tree = minimum_spanning_tree(-sp.csr_array(rows @ rows.T))
    excess = rows.nnz - np.count_nonzero(np.asarray(rows.sum(axis=0)))
    return bool(covered.all() and round(-tree.sum()) == excess)


@dataclass(frozen=True)
class PatternSize:
    """The size of a pattern at one degree: what the LP would hold if all of it were built, and the paper's count of products."""

    pattern: str
    cliques: int
    largest: int
    sets: int  # of k variables, those in several cliques counted in each
    products: int  # square-free products over them
    paper: int  # the paper's bound (10): all products of degree k, sum of C(2|I| + k, k)


def pattern_sizes(problem: DerivativeProblem, degree: int) -> list[PatternSize]:
    """The sizes of all patterns at a degree, before anything is built. Where every input has its own LP: those of the largest."""
    if problem.norm == "l1" or problem.outputs > 1:
        each = [_sizes(sources(problem, j), degree) for j in range(problem.inputs)]
        return [max(sizes, key=lambda size: size.products) for sizes in zip(*each, strict=True)]
    return _sizes(sources(problem), degree)


def _sizes(chain: list[Source], degree: int) -> list[PatternSize]:
    length, paths = _paths(chain)
    found = {pattern: [int(n) for n in np.diff(cliques(chain, pattern).indptr)] for pattern in PATTERNS[1:]}
    return [_size(pattern, sizes, degree) for pattern, sizes in ({"paths": [length] * paths} | found).items()]


def _size(pattern: str, sizes: list[int], degree: int) -> PatternSize:
    sets = [(comb(n, min(n, degree)), min(n, degree)) for n in sizes]
    products = sum(number * 2**width for number, width in sets)
    paper = sum(comb(2 * n + degree, degree) for n in sizes)
    return PatternSize(pattern, len(sizes), max(sizes, default=0), sum(number for number, _ in sets), products, paper)


def paper_counts(problem: DerivativeProblem, degree: int) -> dict[str, int]:
    """Bound (10) of the `output` pattern as the paper counts it, from layer sizes n and the most connections s into a neuron.

    A neuron of the last layer has, l layers before it, as ancestors: dense: all n; unstructured: at most s s ... s (l factors);
    2D convolution with one channel and filters of width r, r^2 >= s: at most (1 + (r - 1) + ... + (r - 1))^2 of those."""
    sizes = problem.sizes
    connections = [max(1, sum(_most(m) for m in layer.blocks.values())) for layer in problem.layers]
    ancestors = {"dense": 1, "unstructured": 1, "2D convolution": 1}
    reach, width = 1, 1
    for n, s in zip(sizes[-2::-1], connections[::-1], strict=True):
        reach, width = reach * s, width + isqrt(s - 1)
        ancestors["dense"] += n
        ancestors["unstructured"] += min(n, reach)
        ancestors["2D convolution"] += min(n, reach, width**2)
    return {kind: sizes[-1] * comb(2 * size + degree, degree) for kind, size in ancestors.items()}


def _most(matrix: sp.csr_array | Array) -> int:
    """The largest number of non-zeros in a row."""
    return int(np.diff(_ones(matrix).indptr).max(initial=0))


def _paths(chain: list[Source]) -> tuple[int, int]:
    """The length of the longest path in free variables, and the number of paths."""
    lengths: list[Array] = []
    counts: list[Array] = []
    for source in chain:
        length, count = np.zeros(len(source.base)), np.zeros(len(source.base)) if counts else np.ones(len(source.base))
        for s, m in source.blocks.items():
            count = count + _ones(m) @ counts[s]
            weighted = _ones(m) @ sp.diags_array(lengths[s])
            length = np.maximum(length, weighted.max(axis=1).toarray().ravel())
        lengths.append((length + source.free) * (count > 0))
        counts.append(count)
    return int(lengths[-1].max(initial=0)), int(counts[-1].sum())


def count_sets(rows: sp.csr_array, k: int) -> int:
    """The number of sets of k variables in cliques, those in several counted in each."""
    return sum(comb(int(n), k) if n > k else 1 for n in np.diff(rows.indptr))


def all_sets(rows: sp.csr_array, k: int) -> Array:
    """All sets of k variables in cliques, and the cliques that are smaller; those in several cliques occur several times."""
    sizes = np.diff(rows.indptr)
    parts = [np.empty((0, k), np.int64)]
    for n in np.unique(sizes):
        members = rows.indices[np.repeat(sizes == n, sizes)].reshape(-1, n).astype(np.int64)
        if n <= k:
            parts.append(pad(np.sort(members, axis=1), k))
        else:
            choice = np.fromiter(itertools.chain.from_iterable(itertools.combinations(range(n), k)), np.int64).reshape(-1, k)
            parts.append(np.sort(members, axis=1)[:, choice].reshape(-1, k))
    return np.concatenate(parts)


def random_sets(rows: sp.csr_array, k: int, number: int, rng: np.random.Generator) -> Array:
    """About that many sets of k variables in cliques, drawn at random, and all cliques that are smaller."""
    small = np.diff(rows.indptr) < k
    rest = all_sets(rows[np.flatnonzero(small)], k)
    rows = rows[np.flatnonzero(~small)]
    sizes = np.diff(rows.indptr)
    weight = np.array([float(comb(int(n), k)) for n in sizes])
    clique = rng.choice(len(sizes), number, p=weight / weight.sum())
    place = np.sort(rng.integers(0, sizes[clique][:, None], (number, k)), axis=1)
    distinct = (np.diff(place, axis=1) > 0).all(axis=1)
    drawn = rows.indices[rows.indptr[clique[distinct]][:, None] + place[distinct]].astype(np.int64)
    return np.concatenate([np.sort(drawn, axis=1), rest])


def pad(sets: Array, k: int) -> Array:
    """The same sets with k columns."""
    return np.pad(sets, ((0, 0), (k - sets.shape[1], 0)), constant_values=-1)


def set_keys(sets: Array, variables: int) -> Array:
    """An integer for every set, the same for equal ones, larger for larger ones."""
    base, k = variables + 1, sets.shape[1]
    if base**k >= 2**63:
        raise LipoptError(f"degree {k} with {variables} variables is beyond the LP's monomial table; use method 'sdp'")
    keys = np.zeros(len(sets), np.int64)
    for column in sets.T:
        keys = np.where(column < 0, keys, keys * base + (column + 1))
    return keys


def subset_keys(sets: Array, variables: int) -> Array:
    """The keys of all subsets of every set, (2^k, sets); -1 for those that have a place left over.

    Bit b of the row says whether column b is in the subset; the empty one has key 0."""
    k = sets.shape[1]
    keys = np.zeros((2**k, len(sets)), np.int64)
    for b, column in enumerate(sets.T):  # with column b: the subsets of the columns before it, one variable longer
        before = keys[: 2**b]
        keys[2**b : 2 ** (b + 1)] = np.where((column < 0) | (before < 0), -1, before * (variables + 1) + (column + 1))
    return keys


def maximal_sets(sets: Array, variables: int) -> Array:
    """The distinct sets that are not inside others."""
    whole, first = np.unique(set_keys(sets, variables), return_index=True)
    sets = sets[first]
    keys = subset_keys(sets, variables)
    return sets[~np.isin(whole, np.unique(keys[keys < whole]), assume_unique=True)]
