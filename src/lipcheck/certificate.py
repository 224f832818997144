"""A certificate, from its first line to its last: section 2 of spec/certificate.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .exact import ZERO, Matrix, decimal
from .intervals import Bounds, LineSlopes, Relaxations, Slopes, slope_ranges
from .lines import Lines
from .network import Network
from .problem import Kept, build_problem
from .rules import RULES, Amounts, Term
from .verdicts import NETWORK_MISMATCH, REJECTED, Failure, require

AMOUNTS_SHOWN = 5  # in the reason of a rejection: the largest


@dataclass(frozen=True)
class Claim:
    """Section 1: the Lipschitz constant of W f over the box, or the whole space, is at most B."""

    network: Network
    norm: str
    rows: list[dict[int, Fraction]]  # of W
    box: Bounds | None  # None is the whole space
    bound: Fraction  # B


def check(network: Network, data: bytes) -> Claim:
    """The claim that the certificate proves; the check ends in a Failure if it proves none."""
    lines = Lines(data)
    claim, relaxations = read_claim(lines, network)
    ranges = slope_ranges(network, claim.box, relaxations)
    check_parts(lines, claim, ranges)
    check_end(lines)
    return claim


def read_claim(lines: Lines, network: Network) -> tuple[Claim, Relaxations]:
    """Section 2, from the first line to the bound: the claim, and hints for its intervals."""
    lines.word("lipopt-certificate", ["1"])
    lines.skip_comments()
    digest = lines.text("network")
    reason = f"the certificate is for {digest}, the file is {network.sha256}"
    require(digest == network.sha256, reason, NETWORK_MISMATCH)
    norm = lines.word("norm", ["linf", "l2", "l1"])
    rows = []
    for _ in range(lines.count("outputs")):
        rows.append(lines.sparse_row(network.output_size))
    lines.require(len(rows) > 0, "there are no outputs")
    box = None
    relaxations: Relaxations = {}
    if lines.word("domain", ["space", "box"]) == "box":
        lower = lines.numbers("lower", network.input_size)
        upper = lines.numbers("upper", network.input_size)
        box = Bounds(lower, upper)
        relaxations = read_relaxations(lines, network)
    bound = lines.number("bound")
    return Claim(network, norm, rows, box, bound), relaxations


def read_relaxations(lines: Lines, network: Network) -> Relaxations:
    """Section 2: none, or slopes of lines around all activations. Section 3 says what they do."""
    relaxations: dict[int, LineSlopes] = {}
    if lines.word("relaxations", ["none", "all"]) == "all":
        for i, node in network.activations.items():
            below = lines.numbers("below", node.size)
            above = lines.numbers("above", node.size)
            relaxations[i] = LineSlopes(below, above)
    return relaxations


def check_parts(lines: Lines, claim: Claim, ranges: Slopes) -> None:
    """Section 2, parts: every one is bounded by B, and together they cover the claim.

    The operator norm of the Jacobian is the largest over its rows for linf, over its columns for
    l1: every row, or every input, needs a part. For l2 every part is the whole.
    """
    all_rows = range(len(claim.rows))
    all_inputs = range(claim.network.input_size)
    uncovered = cases(claim, all_rows, all_inputs)
    for part in range(lines.count("parts")):
        rows = lines.indices("rows", len(claim.rows))
        inputs = lines.indices("inputs", claim.network.input_size)
        enough = proves_something(claim, rows, inputs)
        reason = "has no rows or inputs, or some only, which proves nothing in this norm"
        require(enough, f"part {part} {reason}", REJECTED)
        amounts = bound_part(lines, claim, ranges, rows, inputs)
        check_bound(claim, part, amounts)
        uncovered -= cases(claim, rows, inputs)
    require(not uncovered, "the parts do not cover the claim", REJECTED)


def cases(claim: Claim, rows: Sequence[int], inputs: Sequence[int]) -> set[int]:
    """Section 2, parts: what the norm is a maximum over, inputs for l1 and rows otherwise."""
    if claim.norm == "l1":
        return set(inputs)
    return set(rows)


def proves_something(claim: Claim, rows: list[int], inputs: list[int]) -> bool:
    """Section 2, parts: some rows are enough for linf alone, some inputs for l1 alone."""
    if not rows or not inputs:
        return False
    has_all_rows = len(rows) == len(claim.rows)
    has_all_inputs = len(inputs) == claim.network.input_size
    enough_rows = has_all_rows or claim.norm == "linf"
    enough_inputs = has_all_inputs or claim.norm == "l1"
    return enough_rows and enough_inputs


def bound_part(
    lines: Lines,
    claim: Claim,
    ranges: Slopes,
    rows: list[int],
    inputs: list[int],
) -> Amounts:
    """Section 2, splits: the slack, and what the rules say of the terms of the objective.

    The maximum of a sum is at most the sum of the maxima. The last term is what the others leave.
    """
    network = claim.network
    kept = read_kept(lines, network)
    W = Matrix.of([claim.rows[k] for k in rows], network.output_size)
    problem, slack = build_problem(network, ranges, W, inputs, kept)
    amounts = [("neurons that are not listed", slack)]
    splits = lines.count("splits")
    term = Term(problem, claim.norm, splits == 0, network, ranges, W)
    rest = problem.C
    for _ in range(splits):
        functionals = [lines.sparse_row(rest.width) for _ in rows]
        objective = Matrix.of(functionals, rest.width)
        rest = rest - objective
        amounts += apply_rule(lines, term.of(objective))
    return amounts + apply_rule(lines, term.of(rest))


def read_kept(lines: Lines, network: Network) -> dict[int, Kept]:
    """Section 2, `neurons` and `form`, for every activation node."""
    kept = {}
    for i, node in network.activations.items():
        neurons = lines.indices("neurons", node.size)
        form = lines.word("form", ["plain", "centered"])
        kept[i] = Kept(neurons, form == "centered")
    return kept


def apply_rule(lines: Lines, term: Term) -> Amounts:
    """Section 2, `rule`: what the rule of that name says of the term."""
    name = lines.word("rule", list(RULES))
    rule = RULES[name]
    return rule(lines, term)


def check_bound(claim: Claim, part: int, amounts: Amounts) -> None:
    """Section 2: reject unless the amounts of a part add up to at most B."""
    obtained = sum((amount for _, amount in amounts), ZERO)
    if obtained <= claim.bound:
        return
    largest = sorted(((amount, name) for name, amount in amounts if amount), reverse=True)
    shown = [f"{name}: {decimal(amount)}" for amount, name in largest[:AMOUNTS_SHOWN]]
    reason = f"claimed {decimal(claim.bound)}, obtained {decimal(obtained)} in part {part}: "
    raise Failure(REJECTED, reason + "; ".join(shown))


def check_end(lines: Lines) -> None:
    """Section 2, last line: the number of lines before it, and nothing after it."""
    before = lines.taken
    said = lines.integer("end")
    is_end = said == before and lines.left == 1
    lines.require(is_end, f"the file ends with 'end {before}'")
