"""A certificate: its text (section 2 of spec/certificate.md), the rules (section 4), and the check, from top to bottom."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, isqrt

from .exact import ONE, TWO, ZERO, Matrix, Vector, align, decimal, inner_products, require
from .network import Network
from .problem import Bounds, Problem, Slopes, build_problem, path_sums, slope_ranges

INTEGERS = re.compile("(0|-?[1-9][0-9]{0,999})( (0|-?[1-9][0-9]{0,999}))*")
LARGEST_EXPONENT = 5_000
BLOCK = 64  # rows of L L^T that are held at a time
SHOWN = 5  # amounts in a rejection

Polynomial = dict[tuple[int, ...], Fraction]
Amounts = list[tuple[str, Fraction]]  # that add up to a bound


class Lines:
    """The lines of a file, taken one by one."""

    def __init__(self, data: bytes) -> None:
        self.lines = data.decode("latin-1").split("\n")
        self.position = 0
        require(self.lines[-1] == "", "certificate: the last line has no end")

    def require(self, condition: bool, reason: str, verdict: str = "malformed") -> None:
        require(condition, f"certificate, line {max(self.position, 1)}: {reason}", verdict)

    def rest(self, keyword: str) -> str:
        """What follows the keyword on the next line."""
        first, _, rest = self.lines[self.position].partition(" ")  # after the last line there is an empty one
        self.position += 1
        self.require(first == keyword, f"expected '{keyword}'")
        return rest

    def skip_comments(self) -> None:
        """Lines that are for people: printable, and without a meaning here."""
        while self.lines[self.position].startswith("comment "):
            text = self.lines[self.position]
            self.position += 1
            self.require(text.isascii() and text.isprintable(), "a comment is printable ASCII")

    def word(self, keyword: str, choices: Sequence[str]) -> str:
        rest = self.rest(keyword)
        self.require(rest in choices, f"'{keyword}' is followed by {' or '.join(choices)}")
        return rest

    def integers(self, keyword: str, length: int | None = None) -> list[int]:
        rest = self.rest(keyword)
        self.require(INTEGERS.fullmatch(rest) is not None, f"'{keyword}' is followed by integers")
        values = [int(token) for token in rest.split(" ")]
        self.require(length in (None, len(values)), f"'{keyword}' is followed by {length} integers, here by {len(values)}")
        return values

    def count(self, keyword: str) -> int:
        (value,) = self.integers(keyword, 1)
        self.require(0 <= value <= len(self.lines) - self.position, f"the count {value} does not fit the rest of the file")
        return value

    def indices(self, keyword: str, below: int) -> list[int]:
        """A count and as many ascending indices; * stands for all."""
        if self.lines[self.position] == f"{keyword} *":
            self.position += 1
            return list(range(below))
        count, *values = self.integers(keyword)
        self.require(count == len(values), "expected a count and as many indices")
        ascending = values == sorted(set(values)) and all(0 <= v < below for v in values)
        self.require(ascending, f"indices are not ascending from 0 and below {below}")
        return values

    def numbers(self, keyword: str, length: int, least: float = -inf) -> Vector:
        """Integers after their common exponent."""
        exponent, *values = self.integers(keyword, length + 1)
        self.require(all(n >= least for n in values), f"an integer after '{keyword}' is below {least}")
        self.require(abs(exponent) <= LARGEST_EXPONENT, f"an exponent is above {LARGEST_EXPONENT}", "limits exceeded")
        unit = TWO**exponent
        return [n * unit for n in values]

    def row(self, width: int) -> dict[int, Fraction]:
        """A sparse row of a matrix: columns, and their entries."""
        columns = self.indices("columns", width)
        return dict(zip(columns, self.numbers("entries", len(columns)), strict=True))


def operator_norm(matrix: Matrix, norm: str) -> Fraction:
    """The norm itself (linf, l1), or a bound on it (l2)."""
    if norm == "linf":
        return max((sum(map(abs, row.values())) for row in matrix.rows), default=0) * TWO**matrix.exponent
    if norm == "l1":
        return operator_norm(matrix.transpose(), "linf")
    squares = sum(v * v for row in matrix.rows for v in row.values()) * TWO ** (2 * matrix.exponent)
    n, d = min(squares, operator_norm(matrix, "linf") * operator_norm(matrix, "l1")).as_integer_ratio()
    return Fraction(isqrt((n * d << 256) - 1) + 1, d << 128) if n else ZERO  # the root, rounded up


def product(lines: Lines, network: Network, ranges: Slopes, W: Matrix) -> Fraction:
    """For l2. A norm of a matrix is given and proved; 0 stands for the simple bound."""
    numbers = [ONE]
    for i, node in enumerate(network.nodes[1:], start=1):
        steepest = max((max(-low, high) for low, high in ranges.get(i, ())), default=ZERO)
        numbers.append(steepest * numbers[node.source])
        for source, matrix in node.inputs:
            (norm,) = lines.numbers("norm", 1, least=0)
            if norm:
                side = matrix if len(matrix.rows) <= matrix.width else matrix.transpose()
                check_semidefinite(lines, Matrix.diagonal([norm**2] * len(side.rows)) - side @ side.transpose())
            numbers[i] += (norm or operator_norm(matrix, "l2")) * numbers[source]
    return operator_norm(W, "l2") * numbers[-1]


def products(lines: Lines, problem: Problem) -> Amounts:
    """The constant of the bound, and the monomials that are left over."""
    rows, width = len(problem.C.rows), problem.C.width
    require(rows == 1 or problem.inputs == 1, "products bound a single row, or a single input", "rejected")
    width += rows if rows > 1 else 0  # every row has a variable
    (unit,) = lines.numbers("unit", 1, least=0)
    sums: dict[tuple[int, ...], int] = {}
    for _ in range(lines.count("sets")):
        size, *values = lines.integers("set")
        fits = 0 <= size <= len(values) == size + 2**size
        lines.require(fits, "'set' is a size, as many variables, and a multiplier for each product")
        variables, coefficients = values[:size], values[size:]
        lines.require(min(coefficients) >= 0, "a multiplier is negative")
        distinct = len(set(variables)) == size and all(0 <= v < width for v in variables)
        lines.require(distinct, "a variable occurs twice in a set, or is not there")
        for bit in range(size):  # multipliers of products become coefficients of monomials: 1 - x is expanded
            for mask in range(len(coefficients)):
                if mask >> bit & 1:
                    coefficients[mask] -= coefficients[mask ^ (1 << bit)]
        for mask, coefficient in enumerate(coefficients):
            if coefficient:
                monomial = tuple(sorted(v for bit, v in enumerate(variables) if mask >> bit & 1))
                sums[monomial] = sums.get(monomial, 0) + coefficient
    q = polynomial(problem)
    for monomial, value in sums.items():
        q[monomial] = q.get(monomial, ZERO) + value * unit
    constant = q.pop((), ZERO)
    return [("constant", constant), *((f"monomial {monomial}", value) for monomial, value in q.items() if value > 0)]


def polynomial(problem: Problem) -> Polynomial:
    """C x in the variables of [0, 1]: t = 2 x - 1, s = l + (u - l) x; for several rows r.C x, with r = 2 x - 1 and t = 1."""
    n, width, rows = problem.inputs, problem.C.width, len(problem.C.rows)
    x: list[Polynomial] = [{(): -ONE, (j,): TWO} for j in range(n)] if rows == 1 else [{(): ONE}]
    for a in range(n, width):
        x.append(_product(problem.A, a, x, *problem.slopes[a], a))
    signed = [_product(problem.C, k, x, ONE if rows == 1 else -ONE, ONE, width + k) for k in range(rows)]
    return _product(Matrix([dict.fromkeys(range(rows), 1)], rows), 0, signed, ONE, ONE, width + rows)


def _product(matrix: Matrix, i: int, x: Sequence[Polynomial], low: Fraction, high: Fraction, variable: int) -> Polynomial:
    """Row i of the matrix times x, times low + (high - low) times a variable that comes after all of theirs."""
    total: Polynomial = {}
    unit = TWO**matrix.exponent
    for j, v in matrix.rows[i].items():
        weight = v * unit
        for monomial, value in x[j].items():
            total[monomial] = total.get(monomial, ZERO) + weight * value
    result = {monomial: low * value for monomial, value in total.items() if low}
    result.update({(*monomial, variable): (high - low) * value for monomial, value in total.items() if low < high})
    return result


def sdp(lines: Lines, problem: Problem, norm: str) -> Fraction:
    n, rows, width = problem.inputs, len(problem.C.rows), problem.C.width
    mu, delta, tau = (lines.numbers(*line, least=0) for line in (("mu", rows), ("delta", n), ("tau", width - n)))
    order, diagonal = width + rows, [*delta, *[ZERO] * (width - n), *mu]
    one = Matrix([{a: 1} for a in range(width)], order)
    below, above = (one - Matrix.diagonal(ends) @ problem.A for ends in zip(*problem.slopes, strict=True))
    half = below.transpose() @ Matrix.diagonal([ZERO] * n + tau) @ above
    twice = half + half.transpose() + Matrix([{}] * width + problem.C.rows, order, problem.C.exponent)
    check_semidefinite(lines, Matrix(twice.rows, order, twice.exponent - 1) + Matrix.diagonal(diagonal))
    cost = sum(delta, ZERO) if norm == "linf" else max(delta, default=ZERO)
    return cost + (sum(mu, ZERO) if norm == "l1" else max(mu, default=ZERO))


def check_semidefinite(lines: Lines, S: Matrix) -> None:
    """Read D and L, and reject unless D S D - L L^T is diagonally dominant. Only the lower triangle of S is used."""
    order, L = len(S.rows), list[list[int]]()
    D, exponent = align(lines.numbers("scale", order, least=1))
    for i in range(order):
        entries = lines.integers("row")
        lines.require(len(entries) <= i + 1, f"row {i} of a factor has at most {i + 1} entries")
        L.append([0] * (i + 1 - len(entries)) + entries)
    shift = S.exponent + 2 * exponent
    common = min(shift, 0)
    margin = [0] * order  # the diagonal entry less the absolute values of the others
    for begin in range(0, order, BLOCK):
        for i, squares in enumerate(inner_products(L[begin : begin + BLOCK], L[: begin + BLOCK]), begin):
            for j, value in enumerate(squares[: i + 1]):
                difference = (D[i] * S.rows[i].get(j, 0) * D[j] << shift - common) - (value << -common)
                margin[i] += difference if i == j else -abs(difference)
                margin[j] -= abs(difference) if i != j else 0
    worst = min(range(order), key=margin.__getitem__)
    lack = -margin[worst] * TWO ** (common - 2 * exponent) / D[worst] ** 2
    reason = f"a matrix is not proved positive semidefinite: row {worst} of {order} lacks {decimal(lack)} on its diagonal"
    require(margin[worst] >= 0, reason, "rejected")


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
    lines.skip_comments()
    digest = lines.rest("network")
    require(digest == network.sha256, f"the certificate is for {digest}, the file is {network.sha256}", "network mismatch")
    norm = lines.word("norm", ["linf", "l2", "l1"])
    rows, n = [lines.row(network.nodes[-1].size) for _ in range(lines.count("outputs"))], network.nodes[0].size
    lines.require(rows != [], "there are no outputs")
    box, relaxations = None, dict[int, Bounds]()
    if lines.word("domain", ["space", "box"]) == "box":
        box = lines.numbers("lower", n), lines.numbers("upper", n)
        if lines.word("relaxations", ["none", "all"]) == "all":
            for i, node in network.activations.items():
                relaxations[i] = lines.numbers("below", node.size), lines.numbers("above", node.size)
    (bound,) = lines.numbers("bound", 1)
    claim = Claim(network, norm, rows, box, bound)
    ranges = slope_ranges(network, box, relaxations)
    left = set(range(n if norm == "l1" else len(rows)))  # inputs or rows that no part has covered
    for part in range(lines.count("parts")):
        chosen, inputs = lines.indices("rows", len(rows)), lines.indices("inputs", n)
        whole = chosen and inputs and (norm == "linf" or len(chosen) == len(rows)) and (norm == "l1" or len(inputs) == n)
        require(bool(whole), f"part {part} has no rows or inputs, or some only, which proves nothing in this norm", "rejected")
        amounts = _part(lines, claim, ranges, chosen, inputs)
        obtained = sum((amount for _, amount in amounts), ZERO)
        shown = sorted(((amount, name) for name, amount in amounts if amount), reverse=True)[:SHOWN]
        reason = f"claimed {decimal(bound)}, obtained {decimal(obtained)} in part {part}: "
        reason += "; ".join(f"{name}: {decimal(amount)}" for amount, name in shown)
        require(obtained <= bound, reason, "rejected")
        left -= set(inputs if norm == "l1" else chosen)
    require(not left, "the parts do not cover the claim", "rejected")
    before = lines.position
    ends = lines.integers("end", 1) == [before] and lines.position == len(lines.lines) - 1
    lines.require(ends, f"the file ends with 'end {before}'")
    return claim


def _part(lines: Lines, claim: Claim, ranges: Slopes, chosen: list[int], inputs: list[int]) -> Amounts:
    """What adds up to the bound that the part proves."""
    network, norm = claim.network, claim.norm
    kept = {}
    for i, node in network.activations.items():
        kept[i] = lines.indices("neurons", node.size), lines.word("form", ["plain", "centered"]) == "centered"
    W = Matrix.of([claim.rows[k] for k in chosen], network.nodes[-1].size)
    problem, slack = build_problem(network, ranges, W, inputs, kept)
    amounts, rest, splits = [("neurons that are not listed", slack)], problem.C, lines.count("splits")
    for split in range(splits + 1):
        objective = rest if split == splits else Matrix.of([lines.row(rest.width) for _ in chosen], rest.width)
        rest = rest - objective
        here = replace(problem, C=objective)
        rule = lines.word("rule", ["path-sum", "product", "products", "sdp"])
        if rule == "path-sum":
            amounts.append((rule, operator_norm(path_sums(here), norm)))
        elif rule == "sdp":
            amounts.append((rule, sdp(lines, here, norm)))
        elif rule == "products":
            amounts += products(lines, here)
        else:
            lines.require(splits == 0 and norm == "l2", "the rule 'product' is for l2, and bounds the objective as a whole")
            amounts.append((rule, product(lines, network, ranges, W)))
    return amounts
