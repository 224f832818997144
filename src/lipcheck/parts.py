"""Parts and splits: section 2 of spec/certificate.md, for the domain and for cells of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from .claim import Claim
from .curvature import Patch
from .exact import ONE, ZERO, Matrix, decimal
from .intervals import Enclosure, Slopes, factor_ranges, slope_ranges
from .lines import Lines
from .network import Network
from .problem import Kept, build_problem, factor_places
from .rules import RULES, Amounts, Norms, Term
from .squares import Factors, Product, narrowed
from .verdicts import REJECTED, Failure, require

AMOUNTS_SHOWN = 5  # in the reason of a rejection: the largest


@dataclass(frozen=True)
class Subject:
    """What parts bound the derivative of: W f, on the domain or on a cell of it."""

    network: Network  # f; on a cell, a network with the same derivatives there
    ranges: Slopes  # of its activation nodes
    W: Matrix  # over its outputs
    positions: Mapping[int, Mapping[int, int]]  # in its activation nodes, of neurons of the file's
    rules: Sequence[str]  # those that are allowed
    where: str  # in the reason of a rejection: which cell
    patch: Callable[[], Patch] | None = None  # of a leaf that is a box
    products: Sequence[Product] = ()  # among its activation nodes, and the ranges of their factors
    factors: Factors = field(default_factory=dict)


def whole_domain(claim: Claim, enclosure: Enclosure | None) -> Subject:
    """The subject of version 1."""
    network = claim.network
    ranges = slope_ranges(network, enclosure)
    W = Matrix.of(claim.rows, network.output_size)
    positions = {}
    for i, node in network.activations.items():
        positions[i] = {k: k for k in range(node.size)}
    subject = Subject(network, ranges, W, positions, list(RULES), "")
    if enclosure is None or not claim.products:
        return subject
    inputs = {}
    for i, node in network.activations.items():
        inputs[i] = list(zip(*enclosure.bounds[node.source], strict=True))
    factors = factor_ranges(network, claim.products, enclosure)
    here = narrowed(factors, claim.products, inputs)
    return replace(subject, products=claim.products, factors=here)


def check_parts(lines: Lines, claim: Claim, subject: Subject) -> None:
    """Section 2, parts: every one is bounded by B, and together they cover the claim.

    The operator norm of the Jacobian is the largest over its rows with linf on the outputs, over
    its columns with l1 on the inputs: every row, or every input, needs a part. Otherwise every part
    is the whole.
    """
    all_rows = range(len(claim.rows))
    all_inputs = range(claim.network.input_size)
    uncovered = cases(claim, all_rows, all_inputs)
    for part in range(lines.count("parts")):
        rows = lines.indices("rows", len(claim.rows))
        inputs = lines.indices("inputs", claim.network.input_size)
        enough = proves_something(claim, rows, inputs)
        reason = "has no rows or inputs, or some only, which proves nothing in this norm"
        require(enough, f"part {part}{subject.where} {reason}", REJECTED)
        amounts = bound_part(lines, claim, subject, rows, inputs)
        check_bound(claim, f"part {part}{subject.where}", amounts)
        uncovered -= cases(claim, rows, inputs)
    require(not uncovered, f"the parts{subject.where} do not cover the claim", REJECTED)


def cases(claim: Claim, rows: Sequence[int], inputs: Sequence[int]) -> set[tuple[int, int]]:
    """Section 2, parts: what the norm is a maximum over, rows and inputs. 0 stands for all of them
    where it is no maximum over these."""
    by_rows = rows if is_by_row(claim) else [0]
    by_inputs = inputs if is_by_input(claim) else [0]
    return set(product(by_rows, by_inputs))


def proves_something(claim: Claim, rows: list[int], inputs: list[int]) -> bool:
    """Section 2, parts: some rows, or some inputs, are enough where the norm is a maximum."""
    if not rows or not inputs:
        return False
    enough_rows = len(rows) == len(claim.rows) or is_by_row(claim)
    enough_inputs = len(inputs) == claim.network.input_size or is_by_input(claim)
    return enough_rows and enough_inputs


def is_by_row(claim: Claim) -> bool:
    return claim.norm_of_outputs == "linf"


def is_by_input(claim: Claim) -> bool:
    return claim.proved_norm == "l1"


def bound_part(
    lines: Lines,
    claim: Claim,
    subject: Subject,
    rows: list[int],
    inputs: list[int],
) -> Amounts:
    """Section 2, splits: the slack, and what the rules say of the terms of the objective.

    The maximum of a sum is at most the sum of the maxima. The last term is what the others leave.
    """
    kept = read_kept(lines, claim.network, subject)
    W = subject.W.chosen_rows(rows)
    ranges = {**subject.ranges, **subject.factors}
    places = factor_places(subject.network, subject.products)
    problem, slack = build_problem(subject.network, ranges, W, inputs, kept, claim.scale, places)
    amounts = [("neurons that are not listed", slack)]
    splits = lines.count("splits")
    norms = Norms(claim.proved_norm, claim.norm_of_outputs)
    largest_unit = max(claim.scale or [ONE])
    is_whole = splits == 0
    term = Term(
        problem, norms, is_whole, subject.network, subject.ranges, W, largest_unit, subject.patch
    )
    rest = problem.C
    for _ in range(splits):
        functionals = [lines.sparse_row(rest.width) for _ in rows]
        objective = Matrix.of(functionals, rest.width)
        rest = rest - objective
        amounts += apply_rule(lines, subject, term.of(objective))
    return amounts + apply_rule(lines, subject, term.of(rest))


def read_kept(lines: Lines, network: Network, subject: Subject) -> dict[int, Kept]:
    """Section 2, `neurons` and `form`, for every activation node."""
    kept = {}
    for node, i in zip(network.activations.values(), subject.positions, strict=True):
        positions = subject.positions[i]
        neurons = lines.indices("neurons", node.size)
        are_variables = all(k in positions for k in neurons)
        lines.require(are_variables, "a neuron that is listed is no variable here", REJECTED)
        form = lines.word("form", ["plain", "centered"])
        kept[i] = Kept([positions[k] for k in neurons], form == "centered")
    return kept


def apply_rule(lines: Lines, subject: Subject, term: Term) -> Amounts:
    """Section 2, `rule`: what the rule of that name says of the term."""
    name = lines.word("rule", subject.rules)
    rule = RULES[name]
    return rule(lines, term)


def check_bound(claim: Claim, name: str, amounts: Amounts) -> None:
    """Section 2: reject unless the amounts of a part add up to at most B."""
    obtained = sum((amount for _, amount in amounts), ZERO)
    if obtained <= claim.bound:
        return
    largest = sorted(((amount, name) for name, amount in amounts if amount), reverse=True)
    shown = [f"{name}: {decimal(amount)}" for amount, name in largest[:AMOUNTS_SHOWN]]
    reason = f"claimed {decimal(claim.bound)}, obtained {decimal(obtained)} in {name}: "
    raise Failure(REJECTED, reason + "; ".join(shown))
