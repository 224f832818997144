"""A certificate: its text (section 2 of spec/certificate.md), the rules (section 4), and the check, from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from .exact import ONE, ZERO, Failure, Matrix, Vector, align, decimal, diagonal, gram_rows, power, require, root_up, stack
from .network import Activation, Affine, Input, Network
from .problem import Bounds, Problem, Ranges, Variables, build_problem, largest_slopes, slope_ranges

INTEGERS = re.compile(rb"(0|-?[1-9][0-9]{0,999})( (0|-?[1-9][0-9]{0,999}))*")
LARGEST_EXPONENT = 5_000
LARGEST_SET = 20
MOST_MONOMIALS = 5_000_000
SHOWN = 5  # leftovers in a rejection

Polynomial = dict[tuple[int, ...], Fraction]
Leftovers = list[tuple[str, Fraction]]


class Lines:
    """The lines of a file, taken one by one."""

    def __init__(self, data: bytes) -> None:
        self.lines = data.split(b"\n")
        self.position = 0
        self.require(self.lines.pop() == b"", "the last line has no end")

    def require(self, condition: bool, reason: str, verdict: str = "malformed") -> None:
        if not condition:
            raise Failure(verdict, f"certificate, line {max(self.position, 1)}: {reason}")

    def next_is(self, start: str) -> bool:
        return self.position < len(self.lines) and self.lines[self.position].startswith(start.encode())

    def rest(self, keyword: str) -> bytes:
        """What follows the keyword on the next line."""
        found = self.next_is(keyword + " ")
        self.position += 1
        self.require(found, f"expected '{keyword}'")
        return self.lines[self.position - 1][len(keyword) + 1 :]

    def word(self, keyword: str, choices: Sequence[str]) -> str:
        rest = self.rest(keyword).decode("latin-1")
        self.require(rest in choices, f"'{keyword}' is followed by {' or '.join(choices)}")
        return rest

    def integers(self, keyword: str, length: int | None = None) -> list[int]:
        rest = self.rest(keyword)
        self.require(INTEGERS.fullmatch(rest) is not None, f"'{keyword}' is followed by integers")
        values = [int(token) for token in rest.split(b" ")]
        self.require(length in (None, len(values)), f"'{keyword}' is followed by {length} integers, here by {len(values)}")
        return values

    def count(self, keyword: str) -> int:
        (value,) = self.integers(keyword, 1)
        self.require(0 <= value <= len(self.lines) - self.position, f"the count {value} does not fit the rest of the file")
        return value

    def exponents(self, keyword: str, length: int) -> list[int]:
        return [self.limited(value) for value in self.integers(keyword, length)]

    def limited(self, exponent: int) -> int:
        self.require(abs(exponent) <= LARGEST_EXPONENT, f"an exponent is larger than {LARGEST_EXPONENT}", "limits exceeded")
        return exponent

    def power(self, exponent: int) -> Fraction:
        return power(self.limited(exponent))

    def numbers(self, keyword: str, length: int) -> Vector:
        """Integers after their common exponent."""
        exponent, *values = self.integers(keyword, length + 1)
        unit = self.power(exponent)
        return [n * unit for n in values]

    def multipliers(self, keyword: str, length: int) -> Vector:
        values = self.numbers(keyword, length)
        self.require(all(value >= 0 for value in values), "a multiplier is negative")
        return values

    def indices(self, keyword: str, below: int) -> list[int]:
        """A count and as many ascending indices; * stands for all."""
        if self.next_is(f"{keyword} *"):
            self.word(keyword, ["*"])
            return list(range(below))
        return self.counted(self.integers(keyword), below)

    def pairs(self, keyword: str, below: int) -> dict[int, Fraction]:
        """Ascending indices with their values, after an exponent and a count."""
        exponent, *values = self.integers(keyword)
        self.require(len(values) % 2 == 1, f"'{keyword}' is an exponent, a count and as many pairs")
        indices, unit = self.counted([values[0], *values[1::2]], below), self.power(exponent)
        return {i: n * unit for i, n in zip(indices, values[2::2], strict=True)}

    def counted(self, values: list[int], below: int) -> list[int]:
        """A count and as many ascending indices."""
        self.require(values[:1] == [len(values) - 1], "expected a count and as many indices")
        ascending = all(a < b for a, b in zip([-1, *values[1:]], [*values[1:], below], strict=True))
        self.require(ascending, f"indices are not ascending from 0 and below {below}")
        return values[1:]


def sparse_rows(rows: Sequence[dict[int, Fraction]], width: int) -> Matrix:
    """A matrix from rows as `pairs` reads them."""
    integers, exponent = align([value for row in rows for value in row.values()])
    values = iter(integers)
    return Matrix([{i: next(values) for i in row} for row in rows], width, exponent)


def operator_norm(matrix: Matrix, norm: str) -> Fraction:
    """The norm itself (linf, l1), or a bound on it (l2)."""
    if norm == "linf":
        return max((sum(map(abs, row.values())) for row in matrix.rows), default=0) * power(matrix.exponent)
    if norm == "l1":
        return operator_norm(matrix.transpose(), "linf")
    squares = sum(v * v for row in matrix.rows for v in row.values()) * power(2 * matrix.exponent)
    return root_up(min(squares, operator_norm(matrix, "linf") * operator_norm(matrix, "l1")))


def path_sum(problem: Problem, norm: str) -> Fraction:
    step, n = abs(problem.A).scaled(largest_slopes(problem.lower, problem.upper)), problem.inputs
    total = Matrix([{} for _ in problem.C.rows], n)
    paths = abs(problem.C)  # all paths of one length, then of the next
    while any(paths.rows):
        total += Matrix([{j: v for j, v in row.items() if j < n} for row in paths.rows], n, paths.exponent)
        inner = [{j - n: v for j, v in row.items() if j >= n} for row in paths.rows]
        paths = Matrix(inner, len(step.rows), paths.exponent) @ step
    return operator_norm(total, norm)


def product(lines: Lines, network: Network, ranges: Ranges, W: Matrix, norm: str) -> Fraction:
    given = {}
    for _ in range(lines.count("norms")):
        i, k, number, exponent = lines.integers("norm", 4)
        node = network.nodes[i] if 0 <= i < len(network.nodes) else None
        valid = norm == "l2" and isinstance(node, Affine) and 0 <= k < len(node.inputs) and number >= 0
        lines.require(valid, "a norm is given for a matrix that is not there or needs none, or it is negative")
        assert isinstance(node, Affine)
        given[i, k] = number * lines.power(exponent)
        matrix = node.inputs[k][1]
        side = matrix if len(matrix.rows) <= matrix.width else matrix.transpose()
        check_semidefinite(lines, diagonal([given[i, k] ** 2] * len(side.rows)) + -side @ side.transpose())
    numbers: list[Fraction] = []
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            numbers.append(ONE)
        elif isinstance(node, Affine):
            norms = [given[i, k] if (i, k) in given else operator_norm(m, norm) for k, (_, m) in enumerate(node.inputs)]
            numbers.append(sum((v * numbers[source] for v, (source, _) in zip(norms, node.inputs, strict=True)), ZERO))
        else:
            numbers.append(max(largest_slopes(*ranges[i])) * numbers[node.source])
    return operator_norm(W, norm) * numbers[-1]


def products(lines: Lines, problem: Problem) -> tuple[Fraction, Leftovers]:
    """The bound, and the monomials that are left over."""
    rows, width = len(problem.C.rows), problem.C.width
    require(rows == 1 or problem.inputs == 1, "products bound a single row, or a single input", "rejected")
    width += rows if rows > 1 else 0  # every row has a variable
    (exponent,) = lines.exponents("grid", 1)
    sums: dict[tuple[int, ...], int] = {}
    for _ in range(lines.count("sets")):
        size, *values = lines.integers("set")
        lines.require(0 <= size <= LARGEST_SET, f"a set of {size} variables; {LARGEST_SET} are allowed", "limits exceeded")
        variables, coefficients = values[:size], values[size:]
        lines.require(len(coefficients) == 2**size, "'set' is a size, as many variables, and a multiplier for each product")
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
        q[monomial] = q.get(monomial, ZERO) + value * power(exponent)
    constant = q.pop((), ZERO)
    left = [(f"monomial {monomial}", value) for monomial, value in q.items() if value > 0]
    return constant + sum((value for _, value in left), ZERO), left


def polynomial(problem: Problem) -> Polynomial:
    """C x in the variables of [0, 1]: t = 2 x - 1, s = l + (u - l) x; for several rows r.C x, with r = 2 x - 1 and t = 1."""
    n, width, rows = problem.inputs, problem.C.width, len(problem.C.rows)
    needed = {j for row in problem.C.rows for j in row}
    for a in range(width - 1, n - 1, -1):
        needed.update(problem.A.rows[a - n] if a in needed else ())
    one: Polynomial = {(): ONE}
    x = [_times(one, -ONE, 2 * ONE, j) for j in range(n)] if rows == 1 else [one]
    count = 0
    for a, low, high in zip(range(n, width), problem.lower, problem.upper, strict=True):
        x.append(_times(_combination(problem.A, a - n, x), low, high - low, a) if a in needed else {})
        count += len(x[-1])
        require(count <= MOST_MONOMIALS, f"the polynomial has more than {MOST_MONOMIALS} monomials", "limits exceeded")
    if rows == 1:
        return _combination(problem.C, 0, x)
    signed = [_times(_combination(problem.C, k, x), -ONE, 2 * ONE, width + k) for k in range(rows)]
    return _combination(Matrix([dict.fromkeys(range(rows), 1)], rows), 0, signed)


def _times(factor: Polynomial, base: Fraction, slope: Fraction, variable: int) -> Polynomial:
    """(base + slope x) times a polynomial in earlier variables."""
    result = {monomial: base * value for monomial, value in factor.items() if base}
    result.update({(*monomial, variable): slope * value for monomial, value in factor.items() if slope})
    return result


def _combination(matrix: Matrix, i: int, x: Sequence[Polynomial]) -> Polynomial:
    """Row i of the matrix times x."""
    total: Polynomial = {}
    for j, v in matrix.rows[i].items():
        weight = v * power(matrix.exponent)
        for monomial, value in x[j].items():
            total[monomial] = total.get(monomial, ZERO) + weight * value
    return total


def sdp(lines: Lines, problem: Problem, groups: Sequence[int], norm: str) -> Fraction:
    """`groups`: the number of variables of every node, one line of tau each."""
    n, rows, width = problem.inputs, len(problem.C.rows), problem.C.width
    mu, delta = lines.multipliers("mu", rows), lines.multipliers("delta", n)
    tau = [value for size in groups for value in lines.multipliers("tau", size)]
    neurons = Matrix([{n + a: 1} for a in range(width - n)], width)
    below, above = (neurons + -problem.A.scaled(ends) for ends in (problem.lower, problem.upper))
    half = below.transpose() @ above.scaled(tau)
    twice = stack(half + half.transpose(), -problem.C)
    S = Matrix(twice.rows, width + rows, twice.exponent - 1) + diagonal([*delta, *[ZERO] * (width - n), *mu])
    check_semidefinite(lines, S)
    cost = sum(delta, ZERO) if norm == "linf" else max(delta, default=ZERO)
    return cost + (sum(mu, ZERO) if norm == "l1" else max(mu))


def check_semidefinite(lines: Lines, S: Matrix) -> None:
    """Read D and L, and reject unless D S D - L L^T is diagonally dominant. Only the lower triangle of S is used."""
    order = len(S.rows)
    scale = lines.exponents("scale", order)
    (factor_exponent,) = lines.exponents("factor", 1)
    rows = []
    for i in range(order):
        start, *entries = lines.integers("row")
        valid = 0 <= start <= i and len(entries) == i + 1 - start
        lines.require(valid, f"row {i} of a factor is a column and the entries from there to {i}")
        rows.append([0] * start + entries)
    exponent = min(S.exponent + 2 * min(scale), 2 * factor_exponent)
    margin = [0] * order  # the diagonal entry less the absolute values of the others
    for i, squares in enumerate(gram_rows(rows)):
        for j, value in enumerate(squares):
            scaled = S.rows[i].get(j, 0) << (S.exponent + scale[i] + scale[j] - exponent)
            difference = scaled - (value << (2 * factor_exponent - exponent))
            if i == j:
                margin[i] += difference
            elif difference:
                margin[i] -= abs(difference)
                margin[j] -= abs(difference)
    worst = min(range(order), key=margin.__getitem__)
    lack = f"row {worst} of {order} lacks {decimal(-margin[worst] * power(exponent))} on its diagonal"
    require(margin[worst] >= 0, f"a matrix is not proved positive semidefinite: {lack}", "rejected")


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
