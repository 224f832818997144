"""Sparsity patterns: which sets of variables the products of an LP may use (the paper's section 3).

A pattern is a list of cliques I_1, ..., I_m. The LP of degree k takes the products over all sets of
k variables inside a clique, or over the clique itself where it is smaller.

    paths     the monomials of p alone: no larger sets at all
    output    a variable that nothing follows, and all its ancestors (the paper's equation (9))
    input     a variable that nothing precedes, and all its descendants
    chordal   the maximal cliques of a chordal completion of the correlative sparsity graph
    full      all variables together

Two variables are neighbours in the correlative sparsity graph if a monomial has both: if a path
of the network goes through both. A pattern is valid (Definition 1) if every monomial lies in a
clique and the cliques can be ordered so that the part of each that occurred before lies in a
single earlier one (running intersection). Any pattern gives bounds; those of valid ones converge
to the optimum.

Cliques are the rows of a sparse 0-1 matrix. Sets of up to k variables are the rows of an integer
array with k columns: ascending, after -1 in the columns that are not used.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import comb, isqrt

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree

from ...errors import LipoptError
from ...numerics.arrays import Array
from ...problem.derivative import DerivativeProblem, Layer
from ...problem.presolve import split_rows
from .polynomial import Source, sources

PATTERNS = ("paths", "output", "input", "chordal", "full")


def ancestors(chain: list[Source]) -> sp.csr_array:
    """Row v has ones at the free variables on paths that end in v, v included.

    Variables on no path to the output are left out."""
    n = chain[-1].end
    free = np.concatenate([source.free for source in chain]).astype(np.float64)
    rows: list[sp.csr_array] = []
    for source in chain:
        identity = sp.eye_array(source.size, n, k=source.first)
        reached = sp.diags_array(source.free.astype(np.float64)) @ identity
        for s, matrix in source.blocks.items():
            reached = reached + _ones(matrix) @ rows[s]
        rows.append(_ones(reached))
    reaches_output = np.asarray(rows[-1].sum(axis=0)).ravel() > 0
    used = sp.diags_array(reaches_output * free)
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
        return sp.csr_array((0, chain[-1].end))
    before = ancestors(chain)
    graph = _ones(before + before.T)
    used = np.flatnonzero(np.diff(graph.indptr))
    if pattern == "input":
        ancestor_counts = np.diff(before.indptr)[used]
        return maximal_cliques(graph[used[ancestor_counts == 1]])
    if pattern == "output":
        descendant_counts = np.diff(before.tocsc().indptr)[used]
        return maximal_cliques(graph[used[descendant_counts == 1]])
    if pattern == "full":
        entries = (np.zeros(len(used), np.int64), used)
        return sp.csr_array((np.ones(len(used)), entries), (min(1, len(used)), graph.shape[1]))
    if pattern == "chordal":
        return _chordal(graph)
    raise LipoptError(f"unknown pattern '{pattern}'; use one of {', '.join(PATTERNS)}")


def _chordal(graph: sp.csr_array) -> sp.csr_array:
    """The maximal cliques of a chordal completion: that of eliminating the least degree first."""
    neighbours: dict[int, set[int]] = {}
    for v in np.flatnonzero(np.diff(graph.indptr)).tolist():
        row = graph.indices[graph.indptr[v] : graph.indptr[v + 1]]
        neighbours[v] = set(row.tolist()) - {v}
    found: list[list[int]] = []
    while neighbours:
        least = min(neighbours, key=lambda v: len(neighbours[v]))
        clique = neighbours.pop(least)
        found.append([least, *clique])
        if len(clique) == len(neighbours):  # all that are left are neighbours of each other
            break
        for v in clique:
            neighbours[v] |= clique
            neighbours[v] -= {v, least}
    sizes = [len(clique) for clique in found]
    row = np.repeat(np.arange(len(found)), sizes)
    column = np.fromiter(itertools.chain.from_iterable(found), np.int64, len(row))
    shape = (len(found), graph.shape[1])
    return maximal_cliques(sp.csr_array((np.ones(len(row)), (row, column)), shape))


def maximal_cliques(rows: sp.csr_array) -> sp.csr_array:
    """The cliques that do not lie in others; of equal ones, the first."""
    rows = sp.csr_array(rows)
    rows.sort_indices()
    sizes = np.diff(rows.indptr)
    common = sp.coo_array(rows @ rows.T)
    a, b = common.coords
    is_subset = (common.data == sizes[a]) & (a != b)
    is_dropped = is_subset & ((sizes[a] < sizes[b]) | (b < a))
    keep = np.setdiff1d(np.flatnonzero(sizes), a[is_dropped])
    return sp.csr_array(rows[keep])


def is_valid(rows: sp.csr_array, monomials: Array) -> bool:
    """Whether a pattern is valid (Definition 1): whether its bounds converge to the optimum.

    Every monomial must lie in a clique, and the cliques must have the running intersection
    property. They have it if and only if some tree on them does: the spanning tree with the
    largest intersections, whose total is then the sum of the sizes minus the number of variables.
    No method needs to know; it is here, and tested, as part of the theory."""
    entries = monomials >= 0
    sizes = entries.sum(axis=1)
    monomial, _ = np.nonzero(entries)
    table = sp.csr_array(
        (np.ones(sizes.sum()), (monomial, monomials[entries])), (len(monomials), rows.shape[1])
    )
    common = sp.coo_array(table @ rows.T)
    monomial, _ = common.coords
    covered = np.zeros(len(monomials), bool)
    covered[monomial[common.data == sizes[monomial]]] = True
    covered[sizes == 0] = True
    tree = minimum_spanning_tree(-sp.csr_array(rows @ rows.T))
    excess = rows.nnz - np.count_nonzero(np.asarray(rows.sum(axis=0)))
    return bool(covered.all() and round(-tree.sum()) == excess)


@dataclass(frozen=True)
class PatternSize:
    """The size of the LP of one degree if all sets of a pattern were built."""

    pattern: str
    cliques: int
    largest: int  # variables of the largest clique
    sets: int  # sets of k variables, counted once for each clique they lie in
    products: int  # square-free products over these sets
    paper: int  # the paper's bound (10): all products of degree k, sum of C(2|I| + k, k)


def pattern_sizes(problem: DerivativeProblem, degree: int) -> list[PatternSize]:
    """The sizes of all patterns at a degree, before anything is built.

    Where every output, or every input, has its own LP, those of the largest."""
    norm, output = problem.norms
    parts = split_rows(problem) if output.is_by_output else [problem]
    inputs = range(problem.inputs) if norm.is_by_input else [None]
    found = [_sizes(sources(part, j), degree) for part in parts for j in inputs]
    by_pattern = zip(*found, strict=True)
    return [max(sizes, key=lambda size: size.products) for sizes in by_pattern]


def _sizes(chain: list[Source], degree: int) -> list[PatternSize]:
    """The sizes of all patterns of one polynomial."""
    length, paths = _paths(chain)
    found = [_size("paths", [length] * paths, degree)]
    for pattern in PATTERNS[1:]:
        sizes = np.diff(cliques(chain, pattern).indptr)
        found.append(_size(pattern, sizes.tolist(), degree))
    return found


def _size(pattern: str, clique_sizes: list[int], degree: int) -> PatternSize:
    """The size of a pattern whose cliques have these sizes."""
    sets = 0
    products = 0
    paper = 0
    for n in clique_sizes:
        width = min(n, degree)
        number = comb(n, width)
        sets += number
        products += number * 2**width
        paper += comb(2 * n + degree, degree)
    largest = max(clique_sizes, default=0)
    return PatternSize(pattern, len(clique_sizes), largest, sets, products, paper)


def paper_counts(problem: DerivativeProblem, degree: int) -> dict[str, int]:
    """Bound (10) of the `output` pattern as the paper counts it, for three kinds of networks.

    It depends on the layers' sizes n and the largest number s of connections into a neuron. A
    neuron of the last layer has, l layers before it, as ancestors: dense: all n; unstructured: at
    most s s ... s (l factors); 2D convolution with one channel and filters of width r, r^2 >= s:
    at most (1 + (r - 1) + ... + (r - 1))^2 of those."""
    sizes = problem.sizes
    connections = [_most_connections(layer) for layer in problem.layers]
    ancestors = {"dense": 1, "unstructured": 1, "2D convolution": 1}
    reach = 1
    width = 1
    for n, s in zip(sizes[-2::-1], connections[::-1], strict=True):
        reach *= s
        width += isqrt(s - 1)
        ancestors["dense"] += n
        ancestors["unstructured"] += min(n, reach)
        ancestors["2D convolution"] += min(n, reach, width**2)
    return {kind: sizes[-1] * comb(2 * size + degree, degree) for kind, size in ancestors.items()}


def _most_connections(layer: Layer) -> int:
    """The largest number of connections into a neuron: the sum over sources; at least 1."""
    total = 0
    for matrix in layer.blocks.values():
        total += int(np.diff(_ones(matrix).indptr).max(initial=0))
    return max(1, total)


def _paths(chain: list[Source]) -> tuple[int, int]:
    """The length of the longest path in free variables, and the number of paths."""
    lengths: list[Array] = []
    counts: list[Array] = []
    for source in chain:
        length = np.zeros(source.size)
        count = np.zeros(source.size)
        if not counts:  # the inputs, where paths begin
            count = np.ones(source.size)
        for s, matrix in source.blocks.items():
            pattern = _ones(matrix)
            count = count + pattern @ counts[s]
            weighted = pattern @ sp.diags_array(lengths[s])
            length = np.maximum(length, weighted.max(axis=1).toarray().ravel())
        lengths.append((length + source.free) * (count > 0))
        counts.append(count)
    return int(lengths[-1].max(initial=0)), int(counts[-1].sum())


def count_sets(rows: sp.csr_array, k: int) -> int:
    """The number of sets of k variables in cliques, counted once for each clique they lie in.

    A clique of fewer variables counts as one set."""
    return sum(comb(n, min(n, k)) for n in np.diff(rows.indptr).tolist())


def all_sets(rows: sp.csr_array, k: int) -> Array:
    """All sets of k variables in cliques, and the cliques that are smaller.

    A set that lies in several cliques occurs several times."""
    sizes = np.diff(rows.indptr)
    parts = [np.empty((0, k), np.int64)]
    for n in np.unique(sizes):
        members = rows.indices[np.repeat(sizes == n, sizes)].reshape(-1, n).astype(np.int64)
        members = np.sort(members, axis=1)
        if n <= k:
            parts.append(pad(members, k))
        else:
            parts.append(members[:, _choices(n, k)].reshape(-1, k))
    return np.concatenate(parts)


def _choices(n: int, k: int) -> Array:
    """The sets of k of the numbers 0 to n - 1, one per row."""
    combinations = itertools.combinations(range(n), k)
    return np.fromiter(itertools.chain.from_iterable(combinations), np.int64).reshape(-1, k)


def random_sets(rows: sp.csr_array, k: int, number: int, rng: np.random.Generator) -> Array:
    """About that many sets of k variables in cliques, drawn at random, and all smaller cliques.

    A draw that has a variable twice is dropped."""
    is_small = np.diff(rows.indptr) < k
    small = all_sets(rows[np.flatnonzero(is_small)], k)
    rows = rows[np.flatnonzero(~is_small)]
    sizes = np.diff(rows.indptr)
    weight = np.array([float(comb(n, k)) for n in sizes.tolist()])
    clique = rng.choice(len(sizes), number, p=weight / weight.sum())
    place = np.sort(rng.integers(0, sizes[clique][:, None], (number, k)), axis=1)
    distinct = (np.diff(place, axis=1) > 0).all(axis=1)
    first = rows.indptr[clique[distinct]][:, None]
    drawn = rows.indices[first + place[distinct]].astype(np.int64)
    return np.concatenate([np.sort(drawn, axis=1), small])


def pad(sets: Array, k: int) -> Array:
    """The same sets with k columns."""
    return np.pad(sets, ((0, 0), (k - sets.shape[1], 0)), constant_values=-1)


def set_keys(sets: Array, variables: int) -> Array:
    """An integer for every set, the same for equal ones, larger for larger ones."""
    base = variables + 1
    k = sets.shape[1]
    if base**k >= 2**63:  # keys are int64
        raise LipoptError(
            f"degree {k} with {variables} variables is beyond the LP's monomial table; "
            "use method 'sdp'"
        )
    keys = np.zeros(len(sets), np.int64)
    for column in sets.T:
        keys = np.where(column < 0, keys, keys * base + (column + 1))
    return keys


def subset_keys(sets: Array, variables: int) -> Array:
    """The keys of all subsets of every set, (2^k, sets); -1 for those with an unused column.

    Bit b of the row says whether column b is in the subset; the empty one has key 0."""
    k = sets.shape[1]
    keys = np.zeros((2**k, len(sets)), np.int64)
    for b, column in enumerate(sets.T):
        # The subsets with column b are those of the columns before it, with one more variable.
        before = keys[: 2**b]
        longer = before * (variables + 1) + (column + 1)
        keys[2**b : 2 ** (b + 1)] = np.where((column < 0) | (before < 0), -1, longer)
    return keys


def maximal_sets(sets: Array, variables: int) -> Array:
    """The distinct sets that are not inside others."""
    whole, first = np.unique(set_keys(sets, variables), return_index=True)
    sets = sets[first]
    keys = subset_keys(sets, variables)
    proper_subsets = np.unique(keys[keys < whole])
    return sets[~np.isin(whole, proper_subsets, assume_unique=True)]
