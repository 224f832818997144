"""Certificates: what a method found, rounded to integers times powers of two, as a file that lipcheck verifies.

The format, and why each rule proves its bound, is spec/certificate.md. Multipliers are rounded first; the claim is what the
rounded ones prove, with a little room. It may exceed the method's bound by 1e-6 relative for LPs and 1e-4 for SDPs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cholesky

from . import activations
from .baselines import path_sum_bound, path_sum_rows, product_bound
from .definite import spectral_norm_up
from .domain import Domain
from .dual import Multipliers, best_by_input
from .errors import LipoptError
from .intervals import Interval, preactivation_intervals, reads_more_than_the_input
from .krivine import Products
from .methods import Task, UpperBound
from .network import Activation, Affine, Network, Source
from .presolve import one_input, path_sums
from .problem import Blocks, DerivativeProblem, Layer
from .rounding import Array, Matrix, gamma, terms
from .sdp import SDP

ROOM = 2.0**-40  # relative, on every claim: for the enclosures of slopes, which differ in their last digits
LP_ROOM = 2.0**-21  # for the rounding of multipliers
LP_BITS = 50  # of the largest multiplier
SDP_BITS = 52
SDP_LOSS = 1e-4  # the largest, relative
NORM_ROOM = 1.2e-7  # on every spectral norm of the product bound; more than MARGIN, so that a factor exists
SETTLED = 1e-6  # what neurons that hardly matter may add to the claim of an SDP, relative, where they are not variables
CANCELLED = 2.0**-48  # a coefficient that floats find to be zero, relative to its terms
ENCLOSED = 2.0**-126  # what the two programs' slopes may differ by: some steps of their grid
NARROW = 0.2  # half width of a slope range, relative, below which neurons are centered in an SDP
FACTOR_BITS = 46  # after the point
MARGIN = 1e-7  # of D S D with a unit diagonal over L L^T
DOUBLY = 2.0  # as much for what slopes may differ by
INFLATIONS = (0.0, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 3e-5)  # of the multipliers, for every layer
RELAXATION_BITS = 60  # of the slopes of lines around activations
LARGEST_ORDER = 6000  # of a matrix that is factorized

Doubts: TypeAlias = Mapping[int, Array]  # by node, one a neuron


@dataclass(frozen=True)
class Certificate:
    """The text of a certificate; `bound` is what it proves, `loss` how much larger that is than the bound before rounding."""

    text: str
    bound: float
    loss: float

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.text, encoding="ascii", newline="\n")


@dataclass(frozen=True, eq=False)
class _Flat:
    """A derivative problem as one system: maximize |C x|, x = (t, z), z = s (A x). Neurons with a known slope are substituted."""

    inputs: int
    A: Matrix
    lower: Array
    upper: Array
    C: Array
    groups: list[_Group]  # one a layer of the problem
    numbers: Array  # of every variable of the derivative problem (t, neurons, rows); -1 for those that are none here


@dataclass(frozen=True, eq=False)
class _Group:
    """The neurons of a layer that are variables: x = z or, if they are centered, x = middle y + half z, slopes in [-1, 1]."""

    layer: Layer
    mask: Array
    centered: bool

    @staticmethod
    def of(layer: Layer, settled: Array | None) -> _Group:
        """The neurons whose slope is not known; for an SDP (the rest is `settled`) centered if that is better."""
        half, size = (layer.upper - layer.lower) / 2, np.maximum(np.abs(layer.lower), np.abs(layer.upper))
        if settled is None:
            return _Group(layer, half > 0, False)
        return _Group(layer, ~settled, bool((half < NARROW * size)[~settled].any()))

    @property
    def middle(self) -> Array:
        return np.where(self.mask & (not self.centered), 0.0, (self.layer.lower + self.layer.upper) / 2)

    @property
    def weight(self) -> Array:
        return np.where(self.mask, (self.layer.upper - self.layer.lower) / 2 if self.centered else 1.0, 0.0)

    @property
    def ends(self) -> tuple[Array, Array]:
        """The slopes' ranges."""
        ones = np.ones(int(self.mask.sum()))
        return (-ones, ones) if self.centered else (self.layer.lower[self.mask], self.layer.upper[self.mask])

    @property
    def variables(self) -> Array:
        """The neurons of the network's node that are variables."""
        return self.layer.neurons[self.mask]


def _comments(source: Source | None) -> list[str]:
    """Where the network was read from, for people; the checker does not use it."""
    if source is None:
        return []
    lines = [f"comment source {_ascii(name)} sha256 {digest}" for name, digest in source.files.items()]
    if source.part:
        lines.append(f"comment part {_ascii(source.part)}")
    return lines


def _ascii(text: str) -> str:
    """Text in printable ASCII, what is not escaped."""
    return text.encode("unicode_escape").decode("ascii")


def certify(
    network: Network, outputs: sp.csr_array, domain: Domain, tasks: Sequence[Task], bounds: Sequence[UpperBound]
) -> Certificate:
    """The certificate of an upper bound: one task and what a method said of it for each row, or one for all rows."""
    norm = tasks[0].problem.norm
    intervals = None if domain is None else preactivation_intervals(network, *domain.bounds(network.input_size))
    doubts = {} if intervals is None else _doubts(network, intervals)
    parts, proved = [], 0.0
    for row, (task, bound) in enumerate(zip(tasks, bounds, strict=True)):
        head = ["rows *"] if len(tasks) == 1 else [f"rows 1 {row}"]
        for lines, value in _parts(network, task, bound, doubts):
            parts.append([*head, *lines])
            proved = max(proved, value)
    before = max(bound.value for bound in bounds)
    claim = _up(max(Fraction(before), Fraction(proved) * (1 + Fraction(ROOM))))
    lines = [
        "lipopt-certificate 1",
        *_comments(network.source),
        f"network {network.hash}",
        f"norm {norm}",
        f"outputs {outputs.shape[0]}",
        *(line for k in range(outputs.shape[0]) for line in _row_lines(outputs[[k], :])),
        *_domain_lines(network, domain, intervals),
        f"bound {_exact([claim])}",
        f"parts {len(parts)}",
        *(line for part in parts for line in part),
    ]
    text = "\n".join([*lines, f"end {len(lines)}", ""])
    loss = claim / before - 1 if before > np.finfo(np.float64).tiny else 0.0  # below, floats have no relative precision
    return Certificate(text, claim, max(0.0, loss))


def _parts(network: Network, task: Task, bound: UpperBound, doubts: Doubts) -> Iterator[tuple[list[str], float]]:
    """The lines of every part after its row, and the number that it proves."""
    problem, proof = task.problem, bound.certificate
    flat = _flatten(problem)
    head = ["inputs *", *_variable_lines(network, flat)]
    slack = _slack(network, task, flat)
    if isinstance(proof, Mapping | list):
        proofs = proof if isinstance(proof, Mapping) else best_by_input(proof)
        yield from _parts_by_input(network, task, proofs, bound.value, doubts)
    elif isinstance(proof, Products):
        yield [*head, *_products(flat, proof, bound.value)], bound.value * (1 + LP_ROOM) + slack
    elif path_sum_bound(problem) <= bound.value * (1 + LP_ROOM) + max(problem.slack, slack):
        # always so for the product bound, but in l2
        yield [*head, "rule path-sum"], max(path_sum_bound(problem), bound.value) + slack
    elif isinstance(proof, Multipliers):
        yield _sdp(network, task, None, proof, doubts)
    elif problem.norm == "l2" and product_bound(task.raw) <= bound.value * (1 + ROOM):
        lines, room = _product(network)
        yield [*head, *lines], bound.value * room + slack
    elif not problem.layers:  # the norm of a matrix
        yield _sdp(network, task, None, Multipliers(bound.value / 2, np.array([bound.value / 2]), []), doubts)
    else:  # a method without multipliers: those of the SDP, if they are as good
        found = SDP()(task)
        if found.value > bound.value * (1 + SDP_LOSS):
            raise LipoptError("this method has no certificate, and the SDP does not reach its bound; use 'sdp' or 'path-sum'")
        yield from _parts(network, task, found, doubts)


def _parts_by_input(
    network: Network, task: Task, proofs: Mapping[int, Any], bound: float, doubts: Doubts
) -> Iterator[tuple[list[str], float]]:
    """The l1 norm: a part for every input that has a proof of its own, and one with the path sums of all others."""
    problem = task.problem
    whole = _flatten(problem)
    slack = _slack(network, task, whole)
    sums = path_sum_rows(problem).sum(axis=0) + problem.slack
    rest = [j for j in range(problem.inputs) if j not in proofs or sums[j] <= bound * (1 + ROOM) + slack]
    for j in sorted(set(range(problem.inputs)) - set(rest)):
        if isinstance(proofs[j], Products):
            flat = _flatten(problem, j)
            head = [f"inputs 1 {j}", *_variable_lines(network, flat)]
            yield [*head, *_products(flat, proofs[j], bound)], bound * (1 + LP_ROOM) + slack
        else:
            yield _sdp(network, task, j, proofs[j], doubts)
    if rest:
        head = [f"inputs {len(rest)} {_join(rest)}", *_variable_lines(network, whole)]
        yield [*head, "rule path-sum"], bound + 2 * slack


def _doubts(network: Network, intervals: list[Interval]) -> Doubts:
    """By how much slopes of the checker may differ from these, for every neuron relative to the half width of their range.

    It computes intervals without rounding, so its slope ranges lie inside, as far as the roundings of all layers add up to."""
    sizes = [np.maximum(np.abs(low), np.abs(high)) for low, high in intervals]
    errors: list[Array] = []
    doubts: dict[int, Array] = {}
    for i, node in enumerate(network.nodes):
        if isinstance(node, Activation):
            low, high = intervals[node.source]
            error = errors[node.source]
            ranges = activations.slope_range(node.kind, low, high, node.parameters)
            wider = activations.slope_range(node.kind, low - error, high + error, node.parameters)
            steepest, width = np.maximum(np.abs(wider[0]), np.abs(wider[1])), ranges[1] - ranges[0]
            change = np.maximum(ranges[0] - wider[0], wider[1] - ranges[1]) + 100 * activations.PAD * steepest + ENCLOSED
            doubts[i] = np.where(width > 0, np.fmin(2 * change / np.where(width > 0, width, 1.0), 1.0), 0.0)  # NaN counts as 1
            rounding = activations.VALUE_PAD * activations.rounding_size(node.kind, node.parameters)
            terms_of_lines = (1 + steepest) * (1 + sizes[i] + sizes[node.source])
            errors.append(steepest * error + rounding * terms_of_lines)
        elif isinstance(node, Affine):
            error = gamma(8) * sizes[i]
            for s, m in zip(node.sources, node.matrices, strict=True):
                error = error + abs(m) @ (errors[s] + gamma(terms(m) + 8) * sizes[s])
            errors.append(error)
        else:
            errors.append(np.zeros(node.size))
    return doubts


def _settled(problem: DerivativeProblem, amount: float) -> list[Array]:
    """The neurons of every layer that can be substituted: those through which paths vary least, in all by that amount at most."""
    x, gradient = path_sums(problem)
    spreads = []
    for layer, g in zip(problem.layers, gradient[1:], strict=True):
        y = sum((abs(m) @ x[source] for source, m in layer.blocks.items()), np.zeros(layer.size))
        spreads.append((layer.upper - layer.lower) / 2 * y * g)
    every = np.concatenate([np.zeros(0), *spreads])
    order = np.argsort(every, kind="stable")
    settled = np.zeros(len(every), bool)
    settled[order] = np.cumsum(every[order]) <= amount
    return np.split(settled, np.cumsum(problem.sizes[1:])[:-1])


def _flatten(problem: DerivativeProblem, only: int | None = None, settled: Sequence[Array] | None = None) -> _Flat:
    """The problem for all inputs, or for one; for an SDP, without the neurons that are settled."""
    inputs = np.arange(problem.inputs) == only if only is not None else np.ones(problem.inputs, bool)
    groups = [_Group.of(layer, None if settled is None else settled[i]) for i, layer in enumerate(problem.layers)]
    variables = np.concatenate([inputs, *(group.mask for group in groups), np.ones(problem.outputs, bool)])
    numbers = np.where(variables, np.cumsum(variables) - 1, -1)
    width = int(variables.sum()) - problem.outputs
    values = [_units(inputs, numbers[: problem.inputs], width)]
    equations = [sp.csr_array((0, width))]
    first = problem.inputs
    for group in groups:
        y = _combine(group.layer.blocks, values, (group.layer.size, width))
        own = sp.diags_array(group.weight) @ _units(group.mask, numbers[first : first + group.layer.size], width)
        values.append(sp.csr_array(sp.diags_array(group.middle) @ y + own))
        equations.append(y[np.flatnonzero(group.mask), :])
        first += group.layer.size
    lower, upper = (np.concatenate([np.zeros(0), *(group.ends[side] for group in groups)]) for side in (0, 1))
    C = _combine(problem.objective, values, (problem.outputs, width)).toarray()
    return _Flat(int(inputs.sum()), sp.vstack(equations, format="csr"), lower, upper, C, groups, numbers)


def _units(mask: Array, numbers: Array, width: int) -> sp.csr_array:
    """Rows of the identity where there is a variable."""
    rows = np.flatnonzero(mask)
    return sp.csr_array((np.ones(len(rows)), (rows, numbers[rows])), shape=(len(mask), width))


def _combine(blocks: Blocks, values: list[sp.csr_array], shape: tuple[int, int]) -> sp.csr_array:
    return sp.csr_array(sum((sp.csr_array(m) @ values[source] for source, m in blocks.items()), sp.csr_array(shape)))


def _variable_lines(network: Network, flat: _Flat) -> list[str]:
    """The neurons of every activation node that are variables, and that there is one term."""
    groups = {group.layer.node: group for group in flat.groups}
    lines = []
    for i in _activations(network):
        places = groups[i].variables.tolist() if i in groups else []
        lines += [f"neurons {_join([len(places), *places])}"]
        lines += ["form centered" if i in groups and groups[i].centered else "form plain"]
    return [*lines, "splits 0"]


def _activations(network: Network) -> list[int]:
    return [i for i, node in enumerate(network.nodes) if isinstance(node, Activation)]


def _slack(network: Network, task: Task, flat: _Flat) -> float:
    """What the checker adds for neurons that are not listed (substituted in `flat`, or dropped as they cancel in the presolve),
    and what it may find besides because it rounds slopes differently."""
    listed = {group.layer.node: group.variables for group in flat.groups}
    near = [np.where(group.mask, 0.0, (group.layer.upper - group.layer.lower) / 2) for group in flat.groups]
    others = []
    for layer in task.raw.layers:
        unlisted = ~np.isin(layer.neurons, listed.get(layer.node, []))
        spread = ENCLOSED + np.where(unlisted, CANCELLED * (layer.upper - layer.lower), 0.0)
        others.append(spread if isinstance(network.nodes[layer.node], Activation) else np.zeros(layer.size))
    return (_paths_through(task.problem, near) + _paths_through(task.raw, others)) * (1 + 1e-6)


def _paths_through(problem: DerivativeProblem, spreads: list[Array]) -> float:
    """By how much the sum over all paths grows if the slopes do, the last layer first."""
    pairs = list(zip(problem.layers, spreads, strict=True))
    grown = [replace(layer, upper=np.maximum(np.abs(layer.lower), np.abs(layer.upper)) + spread) for layer, spread in pairs]
    x, _ = path_sums(problem)
    _, gradient = path_sums(replace(problem, layers=tuple(grown)))
    total = 0.0
    for (layer, spread), g in zip(pairs, gradient[1:], strict=True):
        total += float(spread * sum((abs(m) @ x[source] for source, m in layer.blocks.items()), np.zeros(layer.size)) @ g)
    return total


def _products(flat: _Flat, proof: Products, bound: float) -> list[str]:
    """The rule `products`: multipliers on a grid that is fine for the bound; sets without any are left out."""
    exponent = _exponent(bound, LP_BITS)
    multipliers = np.rint(np.ldexp(proof.multipliers, -exponent)).astype(np.int64)
    lines = []
    for variables, row in zip(proof.sets, multipliers, strict=True):
        columns = np.flatnonzero(variables >= 0)
        masks = np.zeros(1, np.int64)
        for column in columns:
            masks = np.concatenate([masks, masks | 1 << column])
        if row.any():
            lines.append(f"set {len(columns)} {_join([*flat.numbers[variables[columns]], *row[masks]])}")
    return ["rule products", f"unit {exponent} 1", f"sets {len(lines)}", *lines]


def _sdp(network: Network, task: Task, only: int | None, proof: Multipliers, doubts: Doubts) -> tuple[list[str], float]:
    """A part with the rule `sdp`. Multipliers are inflated by as little as a factor needs, more towards the input.

    Where slopes are so small that the two programs' enclosures of them differ by more than the room of an SDP, its multipliers
    prove nothing to the checker. The path sum does, and such a bound is next to zero either way."""
    bound, norm = float(proof.bounds.max()), task.problem.norm
    inputs = "inputs *" if only is None else f"inputs 1 {only}"
    if only is not None:
        task = replace(task, raw=one_input(task.raw, only), problem=one_input(task.problem, only))
    whole = _flatten(task.problem)
    enclosed = _slack(network, task, whole)
    if enclosed > SDP_LOSS * bound:
        return [inputs, *_variable_lines(network, whole), "rule path-sum"], path_sum_bound(task.problem) + enclosed
    flat = _flatten(task.problem, settled=_settled(task.problem, SETTLED * bound))
    head = [inputs, *_variable_lines(network, flat), "rule sdp"]
    pairs = zip(proof.tau, flat.groups, strict=True)
    tau = [values[group.mask] * (group.weight[group.mask] ** 2) for values, group in pairs if group.mask.any()]
    mu = np.broadcast_to(proof.mu, len(flat.C)).astype(np.float64)
    delta = np.broadcast_to(proof.delta, flat.inputs).astype(np.float64)
    neurons = [doubts[g.layer.node][g.variables] if g.layer.node in doubts else np.zeros(len(g.variables)) for g in flat.groups]
    doubt = np.concatenate([np.zeros(flat.inputs), *neurons, np.zeros(len(mu))])
    for room, inflation in itertools.product((doubt, 0 * doubt), INFLATIONS):
        rounded = [_Rounded.of(mu * (1 + inflation), SDP_BITS)]
        for step, values in enumerate([*reversed(tau), delta], start=2):
            rounded.append(_Rounded.of(values * (1 + step * inflation), SDP_BITS))
        heights = [r.values for r in rounded]
        factor = _factor(_dual_matrix(flat, heights[0], heights[-1], np.concatenate([*heights[-2:0:-1], np.zeros(0)])), room)
        if factor is not None:
            cost = _cost(rounded[-1], norm == "linf") + _cost(rounded[0], norm == "l1")
            lines = [f"mu {rounded[0]}", f"delta {rounded[-1]}", f"tau {_together(rounded[-2:0:-1])}"]
            if cost <= Fraction(bound) * (1 + Fraction(SDP_LOSS)):
                return [*head, *lines, *factor], _up(cost) + _slack(network, task, flat)
    raise LipoptError(f"the SDP's multipliers could not be rounded with a loss of at most {SDP_LOSS:g}")


def _cost(multipliers: _Rounded, every: bool) -> Fraction:
    """The sum, or the largest."""
    values = [int(n) * Fraction(2) ** multipliers.exponent for n in multipliers.integers]
    return sum(values, Fraction(0)) if every else max(values)


def _dual_matrix(flat: _Flat, mu: Array, delta: Array, tau: Array) -> Array:
    """S of the rule `sdp`, in floating point."""
    n, variables, order = flat.inputs, flat.A.shape[1], flat.A.shape[1] + len(mu)
    neurons = sp.eye_array(variables - n, variables, k=n, format="csr")
    below = neurons - sp.diags_array(flat.lower) @ flat.A
    above = neurons - sp.diags_array(flat.upper) @ flat.A
    half = (below.T @ (sp.diags_array(tau) @ above)).toarray()
    S = np.zeros((order, order))
    S[:variables, :variables] = (half + half.T) / 2
    S[variables:, :variables] = flat.C / 2
    S[:variables, variables:] = flat.C.T / 2
    S[np.arange(order), np.arange(order)] += np.concatenate([delta, np.zeros(variables - n), mu])
    return S


def _factor(S: Array, doubt: Array) -> list[str] | None:
    """The lines of a factor that proves S positive semidefinite, even if its rows and columns change by `doubt`; or None."""
    order, diagonal = len(S), np.diagonal(S)
    if order > LARGEST_ORDER:
        raise LipoptError(f"a certificate for a matrix of order {order} would be too large; the limit is {LARGEST_ORDER}")
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        return None
    scale = -np.rint(np.log2(diagonal) / 2).astype(np.int64)
    S = np.ldexp(np.ldexp(S, scale), scale[:, None])
    margin = MARGIN + DOUBLY * (np.abs(S) @ doubt + doubt * np.abs(S).sum(axis=1))
    try:
        L = cholesky(S - np.diag(margin), lower=True)
    except LinAlgError:
        return None
    L = np.rint(np.ldexp(L, FACTOR_BITS))
    rest = S - np.ldexp(L @ L.T, -2 * FACTOR_BITS)
    others = np.abs(rest).sum(axis=1) - np.abs(np.diagonal(rest))
    if not (np.diagonal(rest) - others > margin / 4).all():
        return None
    smallest = int(scale.min())
    lines = [f"scale {smallest + FACTOR_BITS} {_join(1 << (int(k) - smallest) for k in scale)}"]
    for i, row in enumerate(L.astype(np.int64)):
        first = min(i, int(np.argmax(row != 0)))
        lines.append(f"row {_join(row[first : i + 1])}")
    return lines


def _product(network: Network) -> tuple[list[str], float]:
    """The rule `product`, and the factor by which its number may exceed the product bound."""
    layers = [node.matrices for node in network.nodes if isinstance(node, Affine)]
    lines = [line for matrices in layers for matrix in matrices for line in _norm_lines(matrix.astype(np.float64))]
    return ["rule product", *lines], (1 + 1.1 * NORM_ROOM) ** len(layers)


def _norm_lines(matrix: Matrix) -> list[str]:
    """A proof of a matrix's spectral norm; 0 if what the checker finds by itself is as good."""
    value = spectral_norm_up(matrix) * (1 + NORM_ROOM)
    size = abs(matrix)
    simple = np.sqrt(min(float((size * size).sum()), float(size.sum(axis=0).max() * size.sum(axis=1).max())))
    if simple <= value:
        return ["norm 0 0"]
    side = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    gram = side @ side.T
    gram = gram.toarray() if sp.issparse(gram) else gram
    factor = _factor(value**2 * np.eye(len(gram)) - gram, np.zeros(len(gram)))
    if factor is None:
        raise LipoptError(f"the spectral norm of a {matrix.shape[0]} x {matrix.shape[1]} matrix could not be proved by a factor")
    return [f"norm {_exact([value])}", *factor]


def _domain_lines(network: Network, domain: Domain, intervals: list[Interval] | None) -> list[str]:
    """The domain and, for a box, the slopes of the lines around activations that backward bounds use."""
    if domain is None or intervals is None:
        return ["domain space"]
    lower, upper = domain.bounds(network.input_size)
    lines = ["domain box", f"lower {_exact(lower)}", f"upper {_exact(upper)}"]
    nodes = _activations(network)
    read = [i for i, readers in enumerate(network.consumers) if set(readers) & set(nodes)]
    if not any(reads_more_than_the_input(network, i) for i in read):  # then interval propagation is all there is
        return [*lines, "relaxations none"]
    lines.append("relaxations all")
    for i in nodes:
        node = network.nodes[i]
        assert isinstance(node, Activation)
        below, _, above, _ = activations.linear_bounds(node.kind, *intervals[node.source], node.parameters)
        lines += [f"below {_Rounded.of(below, RELAXATION_BITS)}", f"above {_Rounded.of(above, RELAXATION_BITS)}"]
    return lines


@dataclass(frozen=True, eq=False)
class _Rounded:
    """Numbers as integers times 2^exponent."""

    integers: Array
    exponent: int

    @staticmethod
    def of(values: Array, bits: int) -> _Rounded:
        """Rounded to the nearest, the largest to this number of bits."""
        exponent = _exponent(float(np.abs(values).max(initial=0.0)), bits)
        return _Rounded(np.rint(np.ldexp(values, -exponent)).astype(np.int64), exponent)

    @property
    def values(self) -> Array:
        return np.ldexp(self.integers.astype(np.float64), self.exponent)

    def __str__(self) -> str:
        return f"{self.exponent} {_join(self.integers)}".rstrip()


def _together(parts: list[_Rounded]) -> str:
    """All their integers after their smallest exponent."""
    exponent = min((part.exponent for part in parts), default=0)
    return _join([exponent, *(int(n) << (part.exponent - exponent) for part in parts for n in part.integers)])


def _exponent(largest: float, bits: int) -> int:
    """The exponent of a grid on which a number has so many bits."""
    return int(np.frexp(largest)[1]) - bits if largest > 0 else 0


def _up(value: Fraction) -> float:
    """The smallest float that is not below."""
    number = float(value)
    return number if Fraction(number) >= value else float(np.nextafter(number, np.inf))


def _exact(values: Iterable[float]) -> str:
    """Floats as integers after their common exponent, without rounding."""
    ratios = [float(v).as_integer_ratio() for v in values]
    bits = max((denominator.bit_length() - 1 for _, denominator in ratios), default=0)
    return _join([-bits, *(n * (2**bits // d) for n, d in ratios)])


def _row_lines(row: sp.csr_array) -> list[str]:
    """The columns and entries of a sparse row."""
    order = np.argsort(row.indices)
    return [f"columns {_join([len(order), *row.indices[order]])}", f"entries {_exact(row.data[order])}"]


def _join(tokens: Iterable[Any]) -> str:
    return " ".join(map(str, tokens))
