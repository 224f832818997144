"""Merging: neurons whose inputs are multiples of each other become one. The function is the same.

An activation with one kink at 0 (ReLU, leaky ReLU, the absolute value), with slopes l and u on its two
sides, has

    sigma(c y) = c sigma(y)                   for c > 0
    sigma(c y) = |c| (sigma(y) - (l + u) y)   for c < 0

and every activation has sigma(y) = sigma(y). So if the inputs of two neurons of a node are y and c y
for all inputs of the network, biases included, one of the two is enough. It matters: a relaxation
takes the slopes of two neurons to be independent, and here one decides the other.

Multiples are looked for at random points, and then proved, in integers. An input is written as a
linear function of the network's inputs and of the outputs of neurons that were not merged; two
inputs are multiples of each other if these functions are. Rows that are parallel up to rounding are
not: between their kinks, however close, the slopes do differ.

An activation node with merged neurons becomes three nodes: one that chooses the inputs of the
neurons that are left, the activation on these, and an affine one with all outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from ..numerics.arrays import Array, Matrix, dense
from .network import Network
from .nodes import Activation, Affine, Node

# Activations that are linear on each side of 0.
HOMOGENEOUS = ("relu", "leaky_relu", "abs")
# Points at which inputs of neurons are compared before anything is computed exactly, and their size.
POINT_SCALES = 10.0 ** np.tile(np.arange(-1, 3), 4)
# Digits to which they are compared: more than rounding errors leave, few enough to be quick.
COMPARED_DIGITS = 6
# Multiplications of integers for one activation node, at most; a few seconds.
MAX_EXACT_WORK = 20_000_000


class Merge(NamedTuple):
    """Neurons of an activation node whose inputs are multiples of those of others."""

    node: int  # in the network before merging
    neurons: Array  # ascending
    others: Array  # for each of them, the neuron that it is merged into
    factors: Array  # and by what the input of that one is multiplied


@dataclass(frozen=True, eq=False)
class Merged:
    """A network with the same values as another, and with fewer neurons."""

    original: Network
    network: Network
    merges: tuple[Merge, ...] = ()


class _Exact(NamedTuple):
    """Integers times a power of two."""

    integers: Array  # of Python's integers
    exponent: int


_Form: TypeAlias = dict[int, _Exact]  # coefficients by node, (neurons, size of the node)
CONSTANT = -1  # the place of the constant in a form, with one column


@lru_cache(maxsize=2)
def merged(network: Network) -> Merged:
    """The network with neurons merged, wherever that can be proved."""
    candidates = _candidates(network)
    if not candidates:
        return Merged(network, network)
    nodes: list[Node] = []
    place: dict[int, int] = {}  # of a node of the original in the new network
    merges = []
    for i, node in enumerate(network.nodes):
        nodes.append(_renumbered(node, place))
        merge = None
        if i in candidates:
            merge = _find_multiples(i, nodes, candidates[i])
        if merge is not None:
            merges.append(merge)
            nodes += _merge_nodes(nodes.pop(), merge, len(nodes))
        place[i] = len(nodes) - 1
    if not merges:
        return Merged(network, network)
    return Merged(network, Network(tuple(nodes), network.source), tuple(merges))


def _candidates(network: Network) -> dict[int, list[Array]]:
    """By activation node, sets of neurons whose inputs look like multiples of each other."""
    random = np.random.default_rng(0)
    points = random.standard_normal((network.input_size, len(POINT_SCALES))) * POINT_SCALES
    found = {}
    with np.errstate(all="ignore"):  # where a function is not defined, values are not finite
        values = network.node_values(points)
        for i, node in enumerate(network.nodes):
            if isinstance(node, Activation) and isinstance(network.nodes[node.source], Affine):
                groups = _parallel_rows(values[node.source])
                if groups:
                    found[i] = groups
    return found


def _parallel_rows(values: Array) -> list[Array]:
    """Sets of rows that are multiples of each other, up to rounding, and not constant."""
    varying = np.flatnonzero(np.isfinite(values).all(axis=1) & (np.ptp(values, axis=1) > 0))
    if len(varying) < 2:
        return []
    rows = values[varying]
    largest = np.argmax(np.abs(rows), axis=1)
    scaled = np.round(rows / rows[np.arange(len(rows)), largest][:, None], COMPARED_DIGITS)
    _, group, count = np.unique(scaled, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(group, kind="stable")
    sets = np.split(varying[order], np.cumsum(count)[:-1])
    return [members for members in sets if len(members) > 1]


def _find_multiples(i: int, nodes: Sequence[Node], groups: Sequence[Array]) -> Merge | None:
    """The candidates that are multiples of each other. The last of the nodes is the activation;
    `i` is its number in the original network."""
    node = nodes[-1]
    assert isinstance(node, Activation)
    neurons = np.sort(np.concatenate(groups))
    form = _input_forms(nodes, node.source, neurons)
    if form is None:
        return None
    found: dict[int, tuple[int, float]] = {}
    for members in _multiples(form, _parameter_rows(node)[neurons]).values():
        found.update(_merge_class(neurons, members, node))
    if not found:
        return None
    left = np.array(sorted(found))
    others = np.array([found[a][0] for a in left])
    factors = np.array([found[a][1] for a in left])
    return Merge(i, left, others, factors)


def _parameter_rows(node: Activation) -> Array:
    """The parameters of every neuron."""
    columns = [np.broadcast_to(p, (node.size,)) for p in node.parameters.values()]
    return np.stack([np.zeros(node.size), *columns], axis=1)


def _multiples(form: _Form, parameters: Array) -> dict[tuple[object, ...], list[tuple[int, int]]]:
    """Classes of rows of a form that are multiples of each other, of neurons with the same
    parameters: each row, and by which integer its class is multiplied."""
    exponent = min(part.exponent for part in form.values())
    columns = [part.integers << (part.exponent - exponent) for part in form.values()]
    rows = np.concatenate(columns, axis=1)
    classes: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for k, row in enumerate(rows):
        used = np.flatnonzero(row)
        if len(used) == 0:
            continue
        divisor = int(np.gcd.reduce(row)) * (1 if row[used[0]] > 0 else -1)
        key = (*parameters[k], *(row // divisor))
        classes.setdefault(key, []).append((k, divisor))
    return classes


def _merge_class(
    neurons: Array, members: list[tuple[int, int]], node: Activation
) -> dict[int, tuple[int, float]]:
    """Which neurons of a class are merged, into which one, and the factor of its input.

    That one has the fewest digits, so that most factors are floats without rounding."""
    first, divisor = min(members, key=lambda member: _odd_part(member[1]))
    found = {}
    for k, multiple in members:
        factor = Fraction(multiple, divisor)
        if k != first and _can_merge(factor, node, int(neurons[k])):
            found[int(neurons[k])] = (int(neurons[first]), float(factor))
    return found


def _odd_part(integer: int) -> int:
    """The absolute value without its factors of two."""
    size = abs(integer)
    return size // (size & -size)


def _can_merge(factor: Fraction, node: Activation, neuron: int) -> bool:
    """Whether the activation has a formula for such a multiple, and floats have its coefficients."""
    if node.kind not in HOMOGENEOUS:
        return factor == 1
    try:
        is_float = Fraction(float(factor)) == factor
    except OverflowError:
        return False
    low, high = _two_slopes(node, np.array([neuron]))
    exact = factor * (Fraction(float(low[0])) + Fraction(float(high[0])))
    computed = float(factor) * (low[0] + high[0])
    return is_float and Fraction(float(computed)) == exact


def _two_slopes(node: Activation, neurons: Array) -> tuple[Array, Array]:
    """The slopes of some neurons on both sides of 0."""
    infinite = np.full(len(neurons), np.inf)
    return node.function.only(neurons).slope_range(-infinite, infinite)


def _merge_nodes(node: Node, merge: Merge, first: int) -> list[Node]:
    """What takes the place of an activation node: inputs that are left, their activation, and all
    outputs. `first` is the number of the first one."""
    assert isinstance(node, Activation)
    kept = np.setdiff1d(np.arange(node.size), merge.neurons)
    column = np.zeros(node.size, np.int64)  # of every neuron that is left, its new place
    column[kept] = np.arange(len(kept))
    choose = _sparse(np.ones(len(kept)), np.arange(len(kept)), kept, (len(kept), node.size))
    inputs = Affine(f"{node.name}.chosen", (node.source,), (choose,), np.zeros(len(kept)))
    activation = replace(
        node, source=first, size=len(kept), parameters=node.function.only(kept).parameters
    )
    rows = np.concatenate([kept, merge.neurons])
    columns = column[np.concatenate([kept, merge.others])]
    sizes = np.concatenate([np.ones(len(kept)), np.abs(merge.factors)])
    sources = [first + 1]
    matrices = [_sparse(sizes, rows, columns, (node.size, len(kept)))]
    negative = merge.factors < 0
    low, high = _two_slopes(node, merge.neurons) if negative.any() else (np.zeros(1), np.zeros(1))
    linear = np.where(negative, merge.factors * (low + high), 0.0)
    if linear.any():
        sources.append(first)
        places = column[merge.others]
        matrices.append(_sparse(linear, merge.neurons, places, (node.size, len(kept))))
    outputs = Affine(f"{node.name}.all", tuple(sources), tuple(matrices), np.zeros(node.size))
    return [inputs, activation, outputs]


def _sparse(values: Array, rows: Array, columns: Array, shape: tuple[int, int]) -> sp.csr_array:
    """A matrix of these entries, without those that are 0."""
    used = values != 0
    return sp.csr_array((values[used], (rows[used], columns[used])), shape=shape)


def _renumbered(node: Node, place: Mapping[int, int]) -> Node:
    """The node with its sources where they are now."""
    if isinstance(node, Activation):
        return replace(node, source=place[node.source])
    if isinstance(node, Affine):
        return replace(node, sources=tuple(place[source] for source in node.sources))
    return node


# Exact forms.


def _input_forms(nodes: Sequence[Node], source: int, neurons: Array) -> _Form | None:
    """Entries of an affine node as functions of inputs and of outputs of activations, exactly.

    None if that takes too long."""
    chosen = nodes[source]
    assert isinstance(chosen, Affine)
    form: _Form = {CONSTANT: _exact(chosen.bias[neurons][:, None])}
    work = 0
    for k, matrix in chosen.terms:
        work += len(neurons) * matrix.shape[1]
        if work > MAX_EXACT_WORK:
            return None
        form[k] = _exact(dense(matrix[neurons, :]))
    for i in range(source - 1, 0, -1):
        node = nodes[i]
        if i not in form or not isinstance(node, Affine):
            continue
        outer = form.pop(i)
        work += len(neurons) * sum(node.size * matrix.shape[1] for matrix in node.matrices)
        if work > MAX_EXACT_WORK:
            return None
        _add(form, CONSTANT, _product(outer, node.bias[:, None]))
        for k, matrix in node.terms:
            _add(form, k, _product(outer, dense(matrix)))
    return form


def _exact(values: Matrix) -> _Exact:
    """Floats as integers times a power of two."""
    mantissas, exponents = np.frexp(np.asarray(values, np.float64))
    integers = np.ldexp(mantissas, 53).astype(np.int64).astype(object)
    used = exponents[mantissas != 0]
    least = int(used.min()) if used.size else 0
    shifts = np.where(mantissas == 0, 0, exponents - least)
    return _Exact(integers << shifts.astype(object), least - 53)


def _product(outer: _Exact, matrix: Array) -> _Exact:
    inner = _exact(matrix)
    return _Exact(outer.integers @ inner.integers, outer.exponent + inner.exponent)


def _add(form: _Form, place: int, part: _Exact) -> None:
    """Add coefficients to those that the form has in this place."""
    if place in form:
        old = form[place]
        exponent = min(old.exponent, part.exponent)
        total = old.integers << (old.exponent - exponent)
        part = _Exact(total + (part.integers << (part.exponent - exponent)), exponent)
    form[place] = part
