"""The rules: each turns numbers of a certificate into a proved bound on a problem (section 4 of spec/certificate.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from .exact import Matrix, align, decimal, diagonal, gram_rows, multiply, power, root_up
from .failures import LimitExceeded, Malformed, Rejected
from .network import Affine, Input, Network
from .parse import Certificate, Factor, Functional, Part, PathSum, Product, Products, Rule, Sdp
from .problem import ZERO, Bounds, Problem, build_problem, output_rows, slope_ranges

MOST_MONOMIALS = 5_000_000
SHOWN = 5  # leftovers in a rejection

Polynomial = dict[tuple[int, ...], Fraction]


def check(network: Network, certificate: Certificate) -> None:
    """Return if the certificate proves its claim, raise Rejected otherwise."""
    W = output_rows(network, certificate.outputs)
    _check_cover(certificate, network.nodes[0].size)
    ranges = slope_ranges(network, certificate)
    for number, part in enumerate(certificate.parts):
        rows = W if part.row is None else Matrix([W.rows[part.row]], W.width, W.exponent)
        problem = build_problem(network, ranges, rows, part)
        obtained, leftovers = problem.slack, [("substituted neurons", problem.slack)]
        for objective, rule in _split(problem, part):
            bound, left = _apply(rule, replace(problem, C=objective), network, ranges, rows, certificate.norm)
            obtained += bound
            leftovers += left
        if obtained > certificate.bound:
            leftovers = sorted((pair for pair in leftovers if pair[1] > 0), key=lambda pair: -pair[1])[:SHOWN]
            shown = "; ".join(f"{name}: {decimal(value)}" for name, value in leftovers)
            raise Rejected(
                f"claimed {decimal(certificate.bound)}, obtained {decimal(obtained)} (part {number})"
                + (f"; largest leftovers: {shown}" if shown else "")
            )


def _check_cover(certificate: Certificate, inputs: int) -> None:
    """Whether the parts are all cases of the claim."""
    rows = {part.row for part in certificate.parts}
    partial = [part.inputs for part in certificate.parts if part.inputs is not None]
    count = len(certificate.outputs)
    if any(row is not None and row >= count for row in rows):
        raise Malformed("a part names a row that is not there")
    every_row = None in rows or len(rows) == count
    every_input = len(partial) < len(certificate.parts) or set().union(*partial) == set(range(inputs))
    whole_rows = rows == {None} or count == 1
    covered = {
        "linf": not partial and every_row,
        "l1": whole_rows and every_input,
        "l2": whole_rows and not partial,
    }
    if not certificate.parts or not covered[certificate.norm]:
        raise Rejected("the parts do not cover the claim")


def _split(problem: Problem, part: Part) -> list[tuple[Matrix, Rule]]:
    """The objective of every term; the last one is what the others leave."""
    if len(part.terms) > 1 and len(problem.C.rows) != 1:
        raise Rejected("a part with several terms has one row")
    rest, split = problem.C, []
    for functional, rule in part.terms:
        if functional is None:
            split.append((rest, rule))
        else:
            term = _row(functional, rest.width)
            split.append((term, rule))
            rest = rest + _row({i: -value for i, value in functional.items()}, rest.width)
    return split


def _row(functional: Functional, width: int) -> Matrix:
    if any(i >= width for i in functional):
        raise Malformed("a functional has a variable that is not there")
    integers, exponent = align(list(functional.values()))
    return Matrix([dict(zip(functional, integers, strict=True))], width, exponent)


def _apply(
    rule: Rule, problem: Problem, network: Network, ranges: dict[int, Bounds], W: Matrix, norm: str
) -> tuple[Fraction, list[tuple[str, Fraction]]]:
    """The bound that a rule proves, and what it could not do away with."""
    if isinstance(rule, PathSum):
        return path_sum(problem, norm), []
    if isinstance(rule, Product):
        return product(rule, network, ranges, W, norm), []
    if isinstance(rule, Products):
        return products(rule, problem)
    return sdp(rule, problem, norm), []


def path_sum(problem: Problem, norm: str) -> Fraction:
    step, n = abs(problem.A).scaled(problem.steepest), problem.inputs
    total = Matrix([{} for _ in problem.C.rows], n, 0)
    paths = abs(problem.C)  # all paths of one length, then of the next
    while any(paths.rows):
        total = total + Matrix([{j: v for j, v in row.items() if j < n} for row in paths.rows], n, paths.exponent)
        inner = [{j - n: v for j, v in row.items() if j >= n} for row in paths.rows]
        paths = multiply(Matrix(inner, len(step.rows), paths.exponent), step)
    return operator_norm(total, norm)


def operator_norm(matrix: Matrix, norm: str) -> Fraction:
    """The norm itself (linf, l1), or a bound on it (l2)."""
    unit = power(matrix.exponent)
    if norm == "linf":
        return max(sum(map(abs, row.values())) for row in matrix.rows) * unit
    if norm == "l1":
        return operator_norm(matrix.transpose(), "linf")
    squares = sum(v * v for row in matrix.rows for v in row.values()) * unit**2
    return root_up(min(squares, operator_norm(matrix, "linf") * operator_norm(matrix, "l1")))


def product(rule: Product, network: Network, ranges: dict[int, Bounds], W: Matrix, norm: str) -> Fraction:
    numbers: list[Fraction] = []
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            numbers.append(Fraction(1))
        elif isinstance(node, Affine):
            norms = [
                _proved_norm(matrix, *rule.norms[i, k]) if norm == "l2" and (i, k) in rule.norms else operator_norm(matrix, norm)
                for k, (_, matrix) in enumerate(node.inputs)
            ]
            numbers.append(sum((v * numbers[source] for v, (source, _) in zip(norms, node.inputs, strict=True)), ZERO))
        else:
            numbers.append(max(max(abs(a), abs(b)) for a, b in zip(*ranges[i], strict=True)) * numbers[node.source])
    return operator_norm(W, norm) * numbers[-1]


def _proved_norm(matrix: Matrix, value: Fraction, factor: Factor) -> Fraction:
    if value < 0:
        raise Malformed("a norm is negative")
    side = matrix if len(matrix.rows) <= matrix.width else matrix.transpose()
    negative = Matrix([{j: -v for j, v in row.items()} for row in side.rows], side.width, side.exponent)
    check_semidefinite(diagonal([value**2] * len(side.rows)) + multiply(negative, side.transpose()), factor)
    return value


def products(rule: Products, problem: Problem) -> tuple[Fraction, list[tuple[str, Fraction]]]:
    signs = len(problem.C.rows) if len(problem.C.rows) > 1 else 0
    if signs and problem.inputs != 1:
        raise Rejected("products bound a single row, or a single input")
    q = _polynomial(problem)
    unit, width = power(rule.exponent), problem.C.width + signs
    for variables, multipliers in rule.sets:
        if any(not 0 <= v < width for v in variables):
            raise Malformed("a set has a variable that is not there")
        coefficients = list(multipliers)  # of the sum of multipliers times products: x_v and 1 - x_v are expanded one by one
        for bit in range(len(variables)):
            for mask in range(len(coefficients)):
                if mask >> bit & 1:
                    coefficients[mask] -= coefficients[mask ^ (1 << bit)]
        for mask, coefficient in enumerate(coefficients):
            if coefficient:
                monomial = tuple(sorted(v for bit, v in enumerate(variables) if mask >> bit & 1))
                q[monomial] = q.get(monomial, ZERO) + coefficient * unit
    constant = q.pop((), ZERO)
    left = [(f"monomial {monomial}", value) for monomial, value in q.items() if value > 0]
    return constant + sum((value for _, value in left), ZERO), left


def _polynomial(problem: Problem) -> Polynomial:
    """C x in the variables of [0, 1]: t = 2 x - 1, s = l + (u - l) x; for several rows r.C x, with r = 2 x - 1 and t = 1."""
    n, width, rows = problem.inputs, problem.C.width, len(problem.C.rows)
    needed = {j for row in problem.C.rows for j in row}
    for a in range(width - 1, n - 1, -1):
        needed.update(problem.A.rows[a - n] if a in needed else ())
    x: list[Polynomial] = [{(j,): Fraction(2), (): Fraction(-1)} for j in range(n)] if rows == 1 else [{(): Fraction(1)}]
    count = 0
    for a, low, high in zip(range(n, width), problem.lower, problem.upper, strict=True):
        y = _combination(problem.A, a - n, x) if a in needed else {}
        x.append(_times(y, low, high - low, a))
        count += len(x[-1])
        if count > MOST_MONOMIALS:
            raise LimitExceeded(f"the polynomial has more than {MOST_MONOMIALS} monomials")
    if rows == 1:
        return _combination(problem.C, 0, x)
    total: Polynomial = {}
    for k in range(rows):
        for monomial, value in _times(_combination(problem.C, k, x), Fraction(-1), Fraction(2), width + k).items():
            total[monomial] = total.get(monomial, ZERO) + value
    return total


def _times(polynomial: Polynomial, base: Fraction, slope: Fraction, variable: int) -> Polynomial:
    """(base + slope x) times a polynomial in earlier variables."""
    result = {monomial: base * value for monomial, value in polynomial.items() if base}
    result.update({(*monomial, variable): slope * value for monomial, value in polynomial.items() if slope})
    return result


def _combination(matrix: Matrix, i: int, x: Sequence[Polynomial]) -> Polynomial:
    """Row i of the matrix times x."""
    unit = power(matrix.exponent)
    total: Polynomial = {}
    for j, v in matrix.rows[i].items():
        weight = v * unit
        for monomial, value in x[j].items():
            total[monomial] = total.get(monomial, ZERO) + weight * value
    return total


def sdp(rule: Sdp, problem: Problem, norm: str) -> Fraction:
    n, rows, variables = problem.inputs, len(problem.C.rows), problem.C.width
    if len(rule.mu) != rows or len(rule.delta) != n:
        raise Malformed("mu or delta do not fit the rows or the inputs")
    neurons = Matrix([{n + a: 1} for a in range(variables - n)], variables, 0)
    below = neurons + problem.A.scaled([-low for low in problem.lower])
    above = neurons + problem.A.scaled([-high for high in problem.upper])
    half = multiply(below.transpose(), above.scaled(rule.tau))
    order = variables + rows
    inner = half + half.transpose()
    C = Matrix([{}] * variables + [{j: -v for j, v in row.items()} for row in problem.C.rows], order, problem.C.exponent)
    twice = Matrix(inner.rows + [{}] * rows, order, inner.exponent) + C
    S = Matrix(twice.rows, order, twice.exponent - 1) + diagonal([*rule.delta, *[ZERO] * (variables - n), *rule.mu])
    check_semidefinite(S, rule.factor)
    delta = sum(rule.delta, ZERO) if norm == "linf" else max(rule.delta, default=ZERO)
    return delta + (sum(rule.mu, ZERO) if norm == "l1" else max(rule.mu))


def check_semidefinite(S: Matrix, factor: Factor) -> None:
    """Raise Rejected unless D S D - L L^T is diagonally dominant. Only the lower triangle of S is read."""
    order, scale = len(S.rows), factor.scale
    if len(scale) != order:
        raise Malformed(f"a factor of order {len(scale)} for a matrix of order {order}")
    exponent = min(S.exponent + 2 * min(scale), 2 * factor.exponent)
    shift = 2 * factor.exponent - exponent
    margin = [0] * order  # the diagonal entry less the absolute values of the others
    for i, products_ in enumerate(gram_rows(factor.first, factor.rows)):
        row, base = S.rows[i], S.exponent + scale[i] - exponent
        for j, value in enumerate(products_):
            difference = (row.get(j, 0) << (base + scale[j])) - (value << shift)
            if i == j:
                margin[i] += difference
            elif difference:
                margin[i] -= abs(difference)
                margin[j] -= abs(difference)
    worst = min(range(order), key=margin.__getitem__)
    if margin[worst] < 0:
        lack = decimal(-margin[worst] * power(exponent))
        raise Rejected(f"a matrix is not proved positive semidefinite: row {worst} of {order} lacks {lack} on its diagonal")
