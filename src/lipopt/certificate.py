"""Certificates: what a method found, rounded to integers times powers of two, as a file that lipcheck verifies.

The format, and why each rule proves its bound, is spec/certificate.md. Multipliers are rounded first; the claim is then what the
rounded ones prove, computed here in floating point with room to spare, so `bound` of a certificate may exceed the method's bound by a
little: by up to 1e-6 relative for LPs and 1e-4 for SDPs, or there is no certificate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cholesky

from . import activations
from .baselines import path_sum_rows, product_bound
from .definite import spectral_norm_up
from .domain import Domain
from .dual import Multipliers
from .errors import LipoptError
from .intervals import preactivation_intervals
from .methods import Task, UpperBound
from .network import Activation, Affine, Network
from .problem import DerivativeProblem
from .rounding import Array, Matrix

ROOM = 2.0**-40  # relative, on every claim: for the enclosures of slopes, which differ in their last digits
LP_ROOM = 2.0**-21
LP_BITS = 50  # of the largest multiplier
SDP_BITS = 52
SDP_LOSS = 1e-4
NORM_ROOM = 4e-8  # on every spectral norm of the product bound
FACTOR_BITS = 46
MARGIN = 1e-8  # of D S D with a unit diagonal over L L^T
INFLATIONS = (0.0, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 3e-5)
RELAXATION_BITS = 60
LARGEST_ORDER = 6000  # of a matrix that is factorized


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
    """A derivative problem as one system: maximize |C x|, x = (t, z), z = s (A x); linear neurons are substituted."""

    A: Matrix
    C: Array
    lower: Array
    upper: Array
    kept: tuple[tuple[int, Array], ...]  # node, and the places of its neurons that are variables
    nonlinear: tuple[Array, ...]  # by layer: which neurons are variables
    inputs: int


def certify(
    network: Network, outputs: sp.csr_array, domain: Domain, tasks: Sequence[Task], bounds: Sequence[UpperBound]
) -> Certificate:
    """The certificate of an upper bound: one task and what a method said of it for each row, or one for all rows."""
    norm = tasks[0].problem.norm
    parts, proved = [], 0.0
    for row, (task, bound) in enumerate(zip(tasks, bounds, strict=True)):
        head = ["part *"] if len(tasks) == 1 else [f"part 1 {row}"]
        for lines, value in _parts(network, task, bound):
            parts.append([*head, *lines])
            proved = max(proved, value)
    before = max(bound.value for bound in bounds)
    claim = _up(Fraction(proved) * (1 + Fraction(ROOM)))
    lines = [
        "lipopt-certificate 1",
        f"network {network.hash}",
        f"norm {norm}",
        f"outputs {outputs.shape[0]}",
        *(_pairs("weights", outputs[[k], :]) for k in range(outputs.shape[0])),
        *_domain_lines(network, domain),
        f"bound {_integer_and_exponent(claim)}",
        *_relaxation_lines(network, domain),
        f"parts {len(parts)}",
        *(line for part in parts for line in part),
    ]
    text = "\n".join([*lines, f"end {len(lines)}", ""])
    return Certificate(text, claim, max(0.0, claim / before - 1) if before > 0 else 0.0)


def _parts(network: Network, task: Task, bound: UpperBound) -> Iterator[tuple[list[str], float]]:
    """The lines of every part after its row, and the number that it proves."""
    problem, proof = task.problem, bound.certificate
    if isinstance(proof, Mapping):
        yield from _parts_by_input(problem, proof, bound.value)
        return
    flat = _flatten(problem)
    head = ["inputs *", *_variable_lines(flat), "terms 1"]
    if isinstance(proof, Products):
        yield [*head, *_products(flat, proof, bound.value)], bound.value * (1 + LP_ROOM)
    elif path_sum_bound(problem) <= bound.value * (1 + ROOM):
        yield [*head, "rule path-sum"], bound.value
    elif isinstance(proof, Multipliers):
        lines, value = _sdp(flat, proof, problem.norm)
        yield [*head, *lines], value
    elif product_bound(task.raw) <= bound.value * (1 + ROOM):
        lines, room = _product(network, problem.norm)
        yield [*head, *lines], bound.value * room
    elif not problem.layers:  # the norm of a matrix
        half = bound.value / 2
        lines, value = _sdp(flat, Multipliers(half, np.array([half]), []), problem.norm)
        yield [*head, *lines], value
    else:
        raise LipoptError(f"there is no certificate for a proof of type {type(proof).__name__}")


def _parts_by_input(problem: DerivativeProblem, proofs: Mapping[int, Any], bound: float) -> Iterator[tuple[list[str], float]]:
    """The l1 norm: a part for every input that has a proof of its own, and one with the path sums of all others."""
    sums = path_sum_rows(problem).sum(axis=0) + problem.slack
    rest = [j for j in range(problem.inputs) if j not in proofs or sums[j] <= bound * (1 + ROOM)]
    for j in sorted(set(range(problem.inputs)) - set(rest)):
        flat = _flatten(problem, j)
        head = [f"inputs 1 {j}", *_variable_lines(flat), "terms 1"]
        if isinstance(proofs[j], Products):
            yield [*head, *_products(flat, proofs[j], bound)], bound * (1 + LP_ROOM)
        else:
            lines, value = _sdp(flat, proofs[j], problem.norm)
            yield [*head, *lines], value
    if rest:
        head = [f"inputs {len(rest)} {_join(rest)}", *_variable_lines(_flatten(problem)), "terms 1"]
        yield [*head, "rule path-sum"], bound


def _flatten(problem: DerivativeProblem, only: int | None = None) -> _Flat:
    """The problem for all inputs, or for one."""
    inputs = range(problem.inputs) if only is None else [only]
    nonlinear = [layer.lower < layer.upper for layer in problem.layers]
    count = sum(int(mask.sum()) for mask in nonlinear)
    width = len(inputs) + count
    values = [sp.csr_array((np.ones(len(inputs)), (inputs, range(len(inputs)))), shape=(problem.inputs, width))]
    equations, kept, place = [], [], len(inputs)
    for layer, mask in zip(problem.layers, nonlinear, strict=True):
        y = sum((sp.csr_array(m) @ values[s] for s, m in layer.blocks.items()), sp.csr_array((layer.size, width)))
        rows = np.flatnonzero(mask)
        own = sp.csr_array((np.ones(len(rows)), (rows, place + np.arange(len(rows)))), shape=(layer.size, width))
        values.append(sp.csr_array(sp.diags_array(np.where(mask, 0.0, layer.lower)) @ y + own))
        equations.append(y[rows, :])
        kept.append((layer.node, layer.neurons[rows]))
        place += len(rows)
    C = sum((sp.csr_array(m) @ values[s] for s, m in problem.objective.items()), sp.csr_array((problem.outputs, width)))
    chosen = [np.concatenate([v[m] for v, m in zip(ends, nonlinear, strict=True)] or [np.zeros(0)]) for ends in _slopes(problem)]
    A = sp.vstack(equations, format="csr") if equations else sp.csr_array((0, width))
    return _Flat(A, C.toarray(), *chosen, tuple(kept), tuple(nonlinear), len(inputs), only)


def _slopes(problem: DerivativeProblem) -> tuple[list[Array], list[Array]]:
    return [layer.lower for layer in problem.layers], [layer.upper for layer in problem.layers]


def _variable_lines(flat: _Flat) -> list[str]:
    kept = [(node, neurons) for node, neurons in flat.kept if len(neurons)]
    return [f"variables {len(kept)}", *(f"neurons {node} {len(neurons)} {_join(neurons)}" for node, neurons in kept)]


def _products(flat: _Flat, proof: Products, bound: float) -> list[str]:
    """The rule `products`: multipliers on a grid that is fine for the bound, products that vanish left out."""
    exponent = _exponent(bound, LP_BITS)
    multipliers = np.rint(np.ldexp(proof.multipliers, -exponent)).astype(np.int64)
    numbers = _variable_numbers(flat)
    lines = []
    for variables, row in zip(proof.sets, multipliers, strict=True):
        if not row.any():
            continue
        columns = np.flatnonzero(variables >= 0)
        masks = np.zeros(1, np.int64)
        for column in columns:
            masks = np.concatenate([masks, masks | 1 << column])
        lines.append(f"set {len(columns)} {_join([*numbers[variables[columns]], *row[masks]])}")
    return ["rule products", f"grid {exponent}", f"sets {len(lines)}", *lines]


def _variable_numbers(flat: _Flat) -> Array:
    """The number of every variable of the presolved problem among those of the certificate."""
    inputs = np.arange(flat.inputs) if flat.only is None else np.zeros(flat.only + 1, np.int64)
    ...
