"""A certificate, read from top to bottom and checked on the way (section 2 of spec/certificate.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from .exact import decimal, require
from .network import Activation, Network
from .parse import Lines, sparse_rows
from .problem import Bounds, Ranges, Variables, build_problem, slope_ranges
from .rules import Leftovers, path_sum, product, products, sdp

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
    digest = lines.rest("network").decode("latin-1")
    lines.require(re.fullmatch("[0-9a-f]{64}", digest) is not None, "'network' is followed by 64 hexadecimal digits")
    require(digest == network.sha256, f"the certificate is for {digest}, the file is {network.sha256}", "network mismatch")
    norm = lines.word("norm", ["linf", "l2", "l1"])
    rows = [lines.pairs("weights", network.nodes[-1].size) for _ in range(lines.count("outputs"))]
    lines.require(rows != [], "there are no outputs")
    box, n = None, network.nodes[0].size
    if lines.word("domain", ["space", "box"]) == "box":
        box = lines.numbers("lower", n), lines.numbers("upper", n)
    number, exponent = lines.integers("bound", 2)
    claim = Claim(network, norm, rows, box, number * lines.power(exponent))
    relaxations: dict[int, Bounds] = {}
    for _ in range(lines.count("relaxations")):
        (i,) = lines.integers("relaxation", 1)
        lines.require(box is not None, "relaxations belong to a box")
        size = _activation(lines, network, i, relaxations).size
        relaxations[i] = lines.numbers("below", size), lines.numbers("above", size)
    ranges = slope_ranges(network, box, relaxations)
    covered: list[tuple[list[int], list[int]]] = []
    for part in range(lines.count("parts")):
        chosen, inputs, obtained, leftovers = _part(lines, claim, ranges)
        covered.append((chosen, inputs))
        largest = sorted((pair for pair in leftovers if pair[1] > 0), key=lambda pair: -pair[1])[:SHOWN]
        shown = "; ".join(f"{name}: {decimal(value)}" for name, value in largest)
        reason = f"claimed {decimal(claim.bound)}, obtained {decimal(obtained)} in part {part}"
        require(obtained <= claim.bound, reason + (f"; largest leftovers: {shown}" if shown else ""), "rejected")
    whole_rows = all(len(chosen) == len(rows) for chosen, _ in covered) or norm == "linf"
    whole_inputs = all(len(inputs) == n for _, inputs in covered) or norm == "l1"
    every_row = len({k for chosen, _ in covered for k in chosen}) == len(rows)
    every_input = len({j for _, inputs in covered for j in inputs}) == n
    require(whole_rows and whole_inputs and every_row and every_input, "the parts do not cover the claim", "rejected")
    position = lines.position
    ends = lines.integers("end", 1) == [position] and lines.position == len(lines.lines)
    lines.require(ends, f"the file ends with 'end {position}'")
    return claim


def _activation(lines: Lines, network: Network, i: int, before: Iterable[int]) -> Activation:
    node = network.nodes[i] if 0 <= i < len(network.nodes) else None
    lines.require(isinstance(node, Activation) and i > max(before, default=0), "expected an activation node, in ascending order")
    assert isinstance(node, Activation)
    return node


def _part(lines: Lines, claim: Claim, ranges: Ranges) -> tuple[list[int], list[int], Fraction, Leftovers]:
    """The part's rows and inputs, the bound it proves, and what is left over."""
    chosen = lines.indices("part", len(claim.rows))
    lines.require(len(chosen) in (1, len(claim.rows)), "a part has one row or all")
    inputs = lines.indices("inputs", claim.network.nodes[0].size)
    kept: dict[int, Variables] = {}
    for _ in range(lines.count("variables")):
        centered = lines.next_is("centered ")
        i, *indices = lines.integers("centered" if centered else "neurons")
        size = _activation(lines, claim.network, i, kept).size
        kept[i] = lines.counted(indices, size), centered
    W = sparse_rows([claim.rows[k] for k in chosen], claim.network.nodes[-1].size)
    problem = build_problem(claim.network, ranges, W, inputs, kept)
    terms = lines.count("terms")
    lines.require(terms == 1 or (terms > 1 and len(chosen) == 1), "a part has a term, and one alone if it has several rows")
    obtained, leftovers, rest = problem.slack, [("neurons that are not listed", problem.slack)], problem.C
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
            obtained += sdp(lines, here, [len(places) for places, _ in kept.values()], claim.norm)
        elif rule == "product":  # bounds the objective as a whole
            obtained += product(lines, claim.network, ranges, W, claim.norm)
        else:
            bound, left = products(lines, here)
            obtained += bound
            leftovers += left
    return chosen, inputs, obtained, leftovers
