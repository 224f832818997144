"""From a bound and its proof to a certificate: the format, and why each rule proves its bound, is spec/certificate.md.

What a method found is rounded first; the claim is what the rounded numbers prove, with a little room.
It may exceed the method's bound by 1e-6 relative for LPs and 1e-4 for SDPs. No solver runs here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from ..errors import LipoptError
from ..methods.baselines import path_sum_bound, path_sum_columns
from ..model.domain import Domain
from ..model.merging import Merged
from ..model.network import Network, Source
from ..model.norms import Norm
from ..model.products import Product
from ..model.round_ball import RoundBall
from ..problem.intervals import Interval, reads_more_than_the_input
from ..problem.proofs import (
    ByInput,
    KrivineTerms,
    LayerNorms,
    MatrixNorm,
    Multipliers,
    OtherNorm,
    PathSums,
    Proof,
    Relaxed,
    SignMultipliers,
    Tree,
)
from ..problem.question import Posed, Question
from ..problem.task import Task, UpperBound
from .certificate import Certificate
from .differences import Doubts, doubted_paths, enclosure_doubts, find_doubts, slack_of
from .dyadic import Rounded, exact, join, round_up, row_lines
from .flat import flatten, variable_lines
from .krivine_terms import krivine_lines
from .layer_norms import layer_norm_lines
from .multipliers import multipliers_part
from .signs import signs_part
from .tree import first_lines, has_curvature, refinement_lines, tree_lines

ROOM = 2.0**-40  # on every claim, relative: slopes of the two programs differ in their last digits
CELL_ROOM = (
    2.0**-22
)  # on what is proved of cells by intervals: lipcheck's are rounded in another way
# No less is claimed by curvature: lipcheck's numbers have a fixed number of places there, where
# constants of saturated neurons, or of outputs that read nothing, are as small as floats can be.
LEAST_BY_CURVATURE = 2.0**-50
LP_ROOM = 2.0**-21  # for the rounding of an LP's multipliers, relative
# For what the two programs round differently in the coefficients of an LP's polynomial, relative to
# their sum: where they cancel, the bound itself says nothing about that.
COEFFICIENT_ROOM = 2.0**-40
RELAXATION_BITS = 60  # binary digits of the slopes of lines around activations

Part: TypeAlias = tuple[list[str], float]  # lines after the part's rows, and what they prove


@dataclass(frozen=True, eq=False)
class Case:
    """One task, what a method said of it, and what the checker may find differently."""

    network: Network
    task: Task
    bound: float
    doubts: Doubts


def certify(posed: Posed, tasks: Sequence[Task], bounds: Sequence[UpperBound]) -> Certificate:
    """The certificate of an upper bound: a task and its bound for each row, or one for all rows."""
    through = []
    proof = bounds[0].proof
    if isinstance(proof, OtherNorm):  # of one output
        through = [f"through {proof.norm}"]
        tasks = [tasks[0].in_norm(proof.norm)]
        bounds = [replace(bounds[0], proof=proof.proof)]
    network = posed.network
    question = posed.question
    before = max(bound.value for bound in bounds)
    least = Fraction(before)  # what is claimed at least
    tree = bounds[0].proof
    version = 1 if posed.refinement is None and not isinstance(tree, Tree) else 2
    body: list[str] = []
    if posed.refinement is not None:
        body += first_lines(network, posed.refinement.proof)
        body += refinement_lines(network, posed.refinement.proof)
    if isinstance(tree, Tree):
        body += first_lines(network, tree) if posed.refinement is None else ["cell same"]
        proved, cells = tree_lines(network, tree, _relaxed_lines)
        least *= 1 + Fraction(CELL_ROOM)
        if has_curvature(tree):
            least = max(least, Fraction(LEAST_BY_CURVATURE))
        body += cells
    else:
        proved, lines = _part_lines(posed, tasks, bounds)
        body += lines if version == 1 else ["cell leaf", *lines]
    claim = round_up(max(least, Fraction(proved) * (1 + Fraction(ROOM))))
    lines = [
        f"lipopt-certificate {version}",
        *comments(network.source),
        f"network {posed.merged.original.hash}",
        *_merge_lines(posed.merged),
        *([] if isinstance(tree, Tree) else _product_lines(posed.products)),
        f"norm {question.norm}",
        *through,
        *_norm_lines(question),
        f"outputs {question.rows.shape[0]}",
    ]
    for k in range(question.rows.shape[0]):
        lines += row_lines(question.rows[[k], :])
    first = posed.intervals if posed.refinement is None else posed.refinement.before
    lines += domain_lines(network, question.domain, first, plain=posed.cuts == "none")
    lines += [f"bound {exact([claim])}", *body]
    text = "\n".join([*lines, f"end {len(lines)}", ""])
    return Certificate(text, claim, _loss(claim, before))


def _relaxed_lines(network: Network, relaxed: Relaxed) -> tuple[float, list[str]]:
    """What the parts of a cell prove, and their lines."""
    task = Task(relaxed.problem, relaxed.problem)
    case = Case(network, task, relaxed.value, enclosure_doubts(network, relaxed.problem))
    parts = []
    proved = 0.0
    for lines, value in write_parts(case, relaxed.proof):
        parts.append(["rows *", *lines])
        proved = max(proved, value)
    return proved, [f"parts {len(parts)}", *chain.from_iterable(parts)]


def _part_lines(
    posed: Posed, tasks: Sequence[Task], bounds: Sequence[UpperBound]
) -> tuple[float, list[str]]:
    """What the parts of all tasks prove, and their lines."""
    network = posed.network
    doubts: Doubts = {}
    if posed.intervals is not None:
        doubts = find_doubts(network, posed.intervals, posed.products, posed.factors)
    parts: list[list[str]] = []
    proved = 0.0
    for row, (task, bound) in enumerate(zip(tasks, bounds, strict=True)):
        head = "rows *" if len(tasks) == 1 else f"rows 1 {row}"
        for lines, value in write_parts(Case(network, task, bound.value, doubts), bound.proof):
            parts.append([head, *lines])
            proved = max(proved, value)
    body = [f"parts {len(parts)}"]
    for part in parts:
        body += part
    return proved, body


def _loss(claim: float, before: float) -> float:
    """How much larger the claim is than the bound, relative."""
    if before <= np.finfo(np.float64).tiny:  # below, floats have no relative precision
        return 0.0
    return max(0.0, claim / before - 1)


def write_parts(case: Case, proof: Proof | None) -> Iterator[Part]:
    """The parts that a proof becomes."""
    if proof is None:
        raise LipoptError(
            "this method has no certificate, and the SDP does not reach its bound; use 'sdp' or"
            " 'path-sum'"
        )
    yield from WRITERS[type(proof)](case, proof)


def _all_inputs(case: Case) -> tuple[list[str], float]:
    """The first lines of a part for all inputs, and the slack that the checker adds to it."""
    flat = flatten(case.task.problem)
    lines = ["inputs *", *variable_lines(case.network, flat)]
    return lines, slack_of(case.network, case.task, flat)


def _path_sum_part(case: Case) -> Part:
    """The rule `path-sum`."""
    head, slack = _all_inputs(case)
    value = path_sum_bound(case.task.problem)
    return [*head, "rule path-sum"], max(value, case.bound) + slack


def _path_sum_suffices(case: Case) -> bool:
    """Whether the path sum is as good as the bound: its rule is the shortest."""
    problem = case.task.problem
    _, slack = _all_inputs(case)
    return path_sum_bound(problem) <= case.bound * (1 + LP_ROOM) + max(problem.slack, slack)


def _write_path_sums(case: Case, proof: PathSums) -> Iterator[Part]:
    yield _path_sum_part(case)


def _write_krivine_terms(case: Case, proof: KrivineTerms) -> Iterator[Part]:
    head, slack = _all_inputs(case)
    lines = krivine_lines(flatten(case.task.problem), proof, case.bound)
    coefficients = path_sum_bound(case.task.problem)
    yield [*head, *lines], _lp_claim(case, coefficients) + slack


def _lp_claim(case: Case, coefficients: float) -> float:
    """What an LP's multipliers prove to the checker; `coefficients`: their sum, without signs."""
    differ = COEFFICIENT_ROOM * coefficients + doubted_paths(case.task.problem, case.doubts)
    return case.bound * (1 + LP_ROOM) + differ


def _write_multipliers(case: Case, proof: Multipliers) -> Iterator[Part]:
    if _path_sum_suffices(case):
        yield _path_sum_part(case)
    else:
        yield multipliers_part(case.network, case.task, None, proof, case.doubts)


def _write_sign_multipliers(case: Case, proof: SignMultipliers) -> Iterator[Part]:
    yield signs_part(case.network, case.task, proof, case.doubts)


def _write_layer_norms(case: Case, proof: LayerNorms) -> Iterator[Part]:
    """With l2 on the inputs alone the product of norms may be below the path sum, up to rounding.

    For one row of several, the rule has the norm of the whole last layer: it is not used."""
    norm, output = case.task.problem.norms
    if norm is not Norm.L2 or output.is_by_output or _path_sum_suffices(case):
        yield _path_sum_part(case)
        return
    head, slack = _all_inputs(case)
    lines, room = layer_norm_lines(case.network)
    yield [*head, *lines], case.bound * room + slack


def _write_matrix_norm(case: Case, proof: MatrixNorm) -> Iterator[Part]:
    yield from _write_multipliers(case, proof.multipliers)


def _write_by_input(case: Case, proof: ByInput) -> Iterator[Part]:
    """A part for every input that needs its own proof, and one with the path sums of all others."""
    network = case.network
    problem = case.task.problem
    whole = flatten(problem)
    slack = slack_of(network, case.task, whole)
    sums = path_sum_columns(problem) + problem.slack
    rest = []
    for j in range(problem.inputs):
        if j not in proof.proofs or sums[j] <= case.bound * (1 + ROOM) + slack:
            rest.append(j)
    for j in sorted(set(range(problem.inputs)) - set(rest)):
        own = proof.proofs[j]
        if isinstance(own, KrivineTerms):
            flat = flatten(problem, j)
            head = [f"inputs 1 {j}", *variable_lines(network, flat)]
            lines = krivine_lines(flat, own, case.bound)
            yield [*head, *lines], _lp_claim(case, float(sums[j])) + slack
        else:
            yield multipliers_part(network, case.task, j, own, case.doubts)
    if rest:
        head = [f"inputs {len(rest)} {join(rest)}", *variable_lines(network, whole)]
        yield [*head, "rule path-sum"], case.bound + 2 * slack


Writer: TypeAlias = Callable[[Case, Any], Iterator[Part]]
WRITERS: Mapping[type, Writer] = {
    PathSums: _write_path_sums,
    LayerNorms: _write_layer_norms,
    MatrixNorm: _write_matrix_norm,
    KrivineTerms: _write_krivine_terms,
    Multipliers: _write_multipliers,
    SignMultipliers: _write_sign_multipliers,
    ByInput: _write_by_input,
}


def _merge_lines(merged: Merged) -> list[str]:
    """Which neurons the checker has to merge, as lipopt did."""
    lines = []
    for merge in merged.merges:
        lines.append(f"merge {merge.node}")
        lines.append(f"neurons {join([len(merge.neurons), *merge.neurons])}")
        lines.append(f"into {join(merge.others)}")
    return lines


def _product_lines(products: Sequence[Product]) -> list[str]:
    """Which squares the checker has to take as products. Cells that are divided have squares."""
    return [f"product {product.first} {product.second}" for product in products]


def comments(source: Source | None) -> list[str]:
    """Where the network was read from, for people; the checker does not use it."""
    if source is None:
        return []
    lines = [
        f"comment source {_ascii(name)} sha256 {digest}" for name, digest in source.files.items()
    ]
    if source.part:
        lines.append(f"comment part {_ascii(source.part)}")
    return lines


def _ascii(text: str) -> str:
    """Text in printable ASCII, what is not escaped."""
    return text.encode("unicode_escape").decode("ascii")


def _norm_lines(question: Question) -> list[str]:
    """The norm on the outputs, if it is another than that on the inputs, and the inputs' units."""
    lines = []
    if question.output_norm not in (None, question.norm):
        lines.append(f"output-norm {question.output_norm}")
    if question.scale is not None:
        lines.append(f"scale {exact(question.scale)}")
    return lines


def _ball_lines(ball: RoundBall) -> list[str]:
    """A ball, without the box that it is cut with."""
    center = f"center {exact(ball.center)}"
    return ["domain ball", f"norm {ball.norm}", center, f"radii {exact(ball.radii)}"]


def domain_lines(
    network: Network, domain: Domain, intervals: list[Interval] | None, *, plain: bool = False
) -> list[str]:
    """The domain and, for a box, the slopes of the lines around activations that backward bounds use.

    There are no such lines if the intervals are `plain`, those of interval propagation alone."""
    if domain is None or intervals is None:
        return ["domain space"]
    lower, upper = domain.bounds(network.input_size)
    ball = domain.ball(network.input_size)
    lines = ["domain box"] if ball is None else _ball_lines(ball)
    lines += [f"lower {exact(lower)}", f"upper {exact(upper)}"]
    read = {node.source for node in network.activations.values()}
    intervals_are_enough = not any(reads_more_than_the_input(network, i) for i in read)
    if plain or intervals_are_enough:
        return [*lines, "relaxations none"]
    lines.append("relaxations all")
    for node in network.activations.values():
        below, _, above, _ = node.function.linear_bounds(*intervals[node.source])
        lines += [
            f"below {Rounded.of(below, RELAXATION_BITS)}",
            f"above {Rounded.of(above, RELAXATION_BITS)}",
        ]
    return lines
