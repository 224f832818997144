"""A certificate, read from top to bottom and checked on the way (section 2 of spec/certificate.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from .exact import Mismatch, Rejected, decimal, power
from .network import Activation, Network
from .parse import Lines, sparse_rows
from .problem import Bounds, Ranges, Variables, build_problem, slope_ranges
from .rules import path_sum, product, products, sdp

SHOWN = 5  # leftovers in a rejection


@dataclass(frozen=True)
class Claim:
    """The Lipschitz constant of the rows of W over the box, or the whole space, is at most the bound."""

    network: Network
    norm: str
    rows: list[dict[int, Fraction]]
    box: Bounds | None
    bound: Fraction


def check(network: Network, data: bytes) -> Claim:
    """The claim that the certificate proves; raises a Failure if it does not."""
    lines = Lines(data)
    lines.word("lipopt-certificate", ["1"])
    digest = lines.rest("network")
    if not re.fullmatch(rb"[0-9a-f]{64}", digest):
        lines.fail("'network' is followed by 64 hexadecimal digits")
    if digest.decode() != network.sha256:
        raise Mismatch(f"the certificate is for network {digest.decode()}, the file is {network.sha256}")
    norm = lines.word("norm", ["linf", "l2", "l1"])
    rows = [lines.pairs("weights", network.nodes[-1].size) for _ in range(lines.count("outputs"))]
    if not rows:
        lines.fail("there are no outputs")
    box, n = None, network.nodes[0].size
    if lines.word("domain", ["space", "box"]) == "box":
        box = lines.numbers("lower", n), lines.numbers("upper", n)
    number, exponent = lines.integers("bound", 2)
    claim = Claim(network, norm, rows, box, number * power(lines.limited(exponent)))
    ranges = slope_ranges(network, box, _relaxations(lines, network, box is not None))
    covered: list[tuple[int | None, list[int]]] = []
    for part in range(lines.count("parts")):
        row, inputs, obtained, leftovers = _part(lines, claim, ranges)
        covered.append((row, inputs))
        if obtained > claim.bound:
            largest = sorted((pair for pair in leftovers if pair[1] > 0), key=lambda pair: -pair[1])[:SHOWN]
            shown = "; ".join(f"{name}: {decimal(value)}" for name, value in largest)
            reason = f"claimed {decimal(claim.bound)}, obtained {decimal(obtained)} in part {part}"
            raise Rejected(reason + (f"; largest leftovers: {shown}" if shown else ""))
    _check_cover(claim, covered)
    position = lines.position
    if lines.integers("end", 1) != [position] or lines.position != len(lines.lines):
        lines.fail(f"the file ends with 'end {position}'")
    return claim


def _relaxations(lines: Lines, network: Network, local: bool) -> dict[int, Bounds]:
    relaxations: dict[int, Bounds] = {}
    for _ in range(lines.count("relaxations")):
        (i,) = lines.integers("relaxation", 1)
        node = network.nodes[i] if 0 <= i < len(network.nodes) else None
        if not local or not isinstance(node, Activation) or i <= max(relaxations, default=0):
            lines.fail("relaxations belong to a box and to activations, in ascending order")
        relaxations[i] = lines.numbers("below", node.size), lines.numbers("above", node.size)
    return relaxations


def _part(lines: Lines, claim: Claim, ranges: Ranges) -> tuple[int | None, list[int], Fraction, list[tuple[str, Fraction]]]:
    """The part's row (None: all), its inputs, the bound it proves, and what is left over."""
    count = len(claim.rows)
    chosen = lines.indices("part", count)
    if len(chosen) not in (1, count):
        lines.fail("a part has one row or all")
    inputs = lines.indices("inputs", claim.network.nodes[0].size)
    kept = _variables(lines, claim.network)
    W = sparse_rows([claim.rows[k] for k in chosen], claim.network.nodes[-1].size)
    problem = build_problem(claim.network, ranges, W, inputs, kept)
    groups = [len(variables.places) for variables in kept.values()]
    terms = lines.count("terms")
    if terms < 1 or (terms > 1 and len(chosen) > 1):
        lines.fail("a part has at least one term, and one alone if it has several rows")
    obtained, leftovers = problem.slack, [("neurons that are not listed", problem.slack)]
    rest = problem.C
    for term in range(terms):
        objective = rest
        if term < terms - 1:
            objective = sparse_rows([lines.pairs("functional", rest.width)], rest.width)
            rest = rest + -objective
        here = replace(problem, C=objective)
        rule = lines.word("rule", ["path-sum", "products", "sdp", "product"][: 4 if terms == 1 else 3])
        if rule == "path-sum":
            obtained += path_sum(here, claim.norm)
        elif rule == "sdp":
            obtained += sdp(lines, here, groups, claim.norm)
        elif rule == "product":  # bounds the objective as a whole
            obtained += product(lines, claim.network, ranges, W, claim.norm)
        else:
            bound, left = products(lines, here)
            obtained += bound
            leftovers += left
    return None if len(chosen) == count else chosen[0], inputs, obtained, leftovers


def _variables(lines: Lines, network: Network) -> dict[int, Variables]:
    kept: dict[int, Variables] = {}
    for _ in range(lines.count("variables")):
        centered = lines.next_is("centered ")
        i, *indices = lines.integers("centered" if centered else "neurons")
        node = network.nodes[i] if 0 <= i < len(network.nodes) else None
        if not isinstance(node, Activation) or i <= max(kept, default=0) or len(indices) != sum(indices[:1]) + 1:
            lines.fail("variables are an activation node (ascending), a count and as many neurons")
        kept[i] = Variables(lines.ascending(indices[1:], node.size), centered)
    return kept


def _check_cover(claim: Claim, parts: list[tuple[int | None, list[int]]]) -> None:
    """Whether the parts are all cases of the claim."""
    every_row, every_input = len(claim.rows), claim.network.nodes[0].size
    whole_rows = all(row is None for row, _ in parts)
    whole_inputs = all(len(inputs) == every_input for _, inputs in parts)
    rows = every_row if any(row is None for row, _ in parts) else len({row for row, _ in parts})
    inputs = len({j for _, inputs in parts for j in inputs})
    linf, l1 = whole_inputs and rows == every_row, whole_rows and inputs == every_input
    if not parts or not {"linf": linf, "l1": l1, "l2": whole_rows and whole_inputs}[claim.norm]:
        raise Rejected("the parts do not cover the claim")
