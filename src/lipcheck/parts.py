"""Parts and splits: section 2 of spec/certificate.md, for the domain and for cells of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product

from .claim import Claim
from .curvature import Patch
from .exact import ONE, ZERO, Matrix, decimal
from .intervals import Enclosure, Slopes, factor_ranges, slope_ranges
from .lines import Lines
from .network import Network
from .problem import Kept, build_problem, factor_places
from .rules import RULES, Amounts, Norms, Term, rule_curvature
from .squares import Factors, Product, narrowed
from .verdicts import REJECTED, Failure, require

BOX_RULE = "curvature"  # bounds a part as a whole, from the forms of its leaf
AMOUNTS_SHOWN = 5  # in the reason of a rejection: the largest


@dataclass(frozen=True)
class Derivative:
    """What parts bound the derivative of: W f, on the domain or on a cell of it."""

    network: Network  # f; on a cell, a network with the same derivatives there
    nodes: Mapping[int, int]  # its activation nodes, by those of the file
    ranges: Slopes  # of its activation nodes
    W: Matrix  # over its outputs
    products: Sequence[Product] = ()  # among its activation nodes, and the ranges of their factors
    factors: Factors = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """What parts are about. What takes long is found when a rule needs it, and then once."""

    find_derivative: Callable[[], Derivative]
    positions: Mapping[int, Mapping[int, int]]  # of the neurons that are variables, by node
    rules: Sequence[str]  # those that are allowed
    where: str  # in the reason of a rejection: which cell
    find_patch: Callable[[], Patch] | None = None  # of a leaf that is a box

    @cached_property
    def derivative(self) -> Derivative:
        return self.find_derivative()

    @cached_property
    def patch(self) -> Patch | None:
        return None if self.find_patch is None else self.find_patch()


def whole_domain(claim: Claim, enclosure: Enclosure | None) -> Subject:
    """The subject of version 1."""
    network = claim.network
    positions = {}
    for i, node in network.activations.items():
        positions[i] = {k: k for k in range(node.size)}
    return Subject(partial(derivative_in_domain, claim, enclosure), positions, list(RULES), "")


def derivative_in_domain(claim: Claim, enclosure: Enclosure | None) -> Derivative:
    """The derivative of version 1."""
    network = claim.network
    ranges = slope_ranges(network, enclosure)
    nodes = {i: i for i in network.activations}
    W = Matrix.of(claim.rows, network.output_size)
    if enclosure is None or not claim.products:
        return Derivative(network, nodes, ranges, W)
    inputs = {}
    for i, node in network.activations.items():
        inputs[i] = list(zip(*enclosure.bounds[node.source], strict=True))
    factors = factor_ranges(network, claim.products, enclosure)
    here = narrowed(factors, claim.products, inputs)
    return Derivative(network, nodes, ranges, W, claim.products, here)


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
    splits = lines.count("splits")
    norms = Norms(claim.proved_norm, claim.norm_of_outputs)
    if lines.next_is(f"rule {BOX_RULE}"):
        lines.word("rule", [BOX_RULE])
        is_whole = splits == 0 and len(inputs) == claim.network.input_size
        return rule_curvature(lines, patch_of_part(subject, kept, is_whole), rows, norms)
    derivative = subject.derivative
    network = derivative.network
    W = derivative.W.chosen_rows(rows)
    ranges = {**derivative.ranges, **derivative.factors}
    listed = {derivative.nodes[i]: own for i, own in kept.items()}
    places = factor_places(network, derivative.products)
    problem, slack = build_problem(network, ranges, W, inputs, listed, claim.scale, places)
    amounts = [("neurons that are not listed", slack)]
    largest_unit = max(claim.scale or [ONE])
    term = Term(problem, norms, splits == 0, network, derivative.ranges, W, largest_unit)
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
    for i, node in network.activations.items():
        positions = subject.positions[i]
        neurons = lines.indices("neurons", node.size)
        are_variables = all(k in positions for k in neurons)
        lines.require(are_variables, "a neuron that is listed is no variable here", REJECTED)
        form = lines.word("form", ["plain", "centered"])
        kept[i] = Kept([positions[k] for k in neurons], form == "centered")
    return kept


def patch_of_part(subject: Subject, kept: Mapping[int, Kept], is_whole: bool) -> Patch:
    """Section 4, rule curvature: reject unless the part is all of a leaf that is a box."""
    has_variables = any(neurons for neurons, _ in kept.values())
    all_are_plain = not any(neurons and centered for neurons, centered in kept.values())
    all_are_listed = all(len(kept[i].neurons) == len(own) for i, own in subject.positions.items())
    patch = None
    if is_whole and has_variables and all_are_plain and all_are_listed:
        patch = subject.patch
    if patch is None:
        reason = f"the rule '{BOX_RULE}' is for a box, all inputs, and all variables in form plain"
        raise Failure(REJECTED, reason)
    return patch


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
