"""The rules: each takes numbers of a certificate and returns a proved bound on a problem (section 4 of spec/certificate.md)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from .exact import ONE, ZERO, Matrix, decimal, diagonal, gram_rows, power, require, root_up, stack
from .network import Affine, Input, Network
from .parse import Lines
from .problem import Problem, Ranges, largest_slopes

MOST_MONOMIALS = 5_000_000
LARGEST_SET = 20

Polynomial = dict[tuple[int, ...], Fraction]
Leftovers = list[tuple[str, Fraction]]


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
        for bit in range(len(variables)):  # multipliers of products become coefficients of monomials: 1 - x is expanded
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
    """Read D and L, and raise Rejected unless D S D - L L^T is diagonally dominant. Only the lower triangle of S is used."""
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
