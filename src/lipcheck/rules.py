"""The rules: section 4 of spec/certificate.md, in its order.

A rule reads its numbers from the certificate and returns a bound on one term of the objective of a
part. Whatever the numbers are, what it returns is a bound; it ends the check where they prove none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from .alternatives import read_alternatives
from .curvature import Patch
from .ends import Ends
from .exact import (
    GRID_BITS,
    ONE,
    TWO,
    ZERO,
    Matrix,
    Vector,
    align,
    root_rounded_up,
    shortened_down,
    sum_of_squares,
)
from .factors import check_semidefinite
from .intervals import Slopes
from .lines import Lines
from .network import Network
from .polynomials import Monomial, expand_products, monomial_of, objective_polynomial
from .problem import Problem, path_sums
from .products import gram
from .signs import Equations, SignTriangle, only_inner_are_read, sign_matrix
from .spreads import coefficients
from .verdicts import REJECTED, require

WEIGHT_BITS = 64  # of a weight of a square in S, which is rounded down

Amounts = list[tuple[str, Fraction]]  # names of numbers that add up to a bound, and the numbers


class Norms(NamedTuple):
    """The norm on the inputs, and the one on the outputs."""

    inputs: str
    outputs: str


@dataclass(frozen=True)
class Term:
    """A term of the objective of a part: what a rule has to bound, and what it may use."""

    problem: Problem  # of the part, with the term as its C
    norms: Norms
    is_whole: bool  # there are no splits: the term is the objective itself
    network: Network
    ranges: Slopes
    W: Matrix  # the rows of the part
    largest_unit: Fraction = ONE  # the largest number of the scale

    def of(self, objective: Matrix) -> Term:
        """The same, with another objective."""
        return replace(self, problem=replace(self.problem, C=objective))


Rule = Callable[[Lines, Term], Amounts]

EUCLIDEAN = Norms("l2", "l2")


# Rule path-sum.


def rule_path_sum(lines: Lines, term: Term) -> Amounts:
    """Section 4, rule path-sum: the operator norm of the matrix of sums over all paths.

    Every Jacobian is at most that matrix entry by entry, and the norms are monotone.
    """
    return [("path-sum", operator_norm(path_sums(term.problem), term.norms))]


def operator_norm(matrix: Matrix, norms: Norms) -> Fraction:
    """Section 4, rule path-sum: the norm of all matrices that are at most this one, entry by entry,
    in absolute values; or a bound on it."""
    if norms.outputs == "linf":
        return max((dual_norm(row, norms.inputs) for row in rows_of(matrix)), default=ZERO)
    if norms.inputs == "l1":
        columns = rows_of(matrix.transpose())
        return max((norm_of(column, norms.outputs) for column in columns), default=ZERO)
    if norms.inputs == "linf":
        return norm_of(abs(matrix).row_sums(), norms.outputs)
    if norms.outputs == "l1":
        return norm_of(abs(matrix.transpose()).row_sums(), "l2")
    by_sums = largest_row_sum(matrix) * largest_row_sum(matrix.transpose())
    return root_rounded_up(min(sum_of_squares(matrix), by_sums))


def rows_of(matrix: Matrix) -> Iterator[Vector]:
    """The entries of every row that are stored."""
    unit = TWO**matrix.exponent
    for row in matrix.rows:
        yield [value * unit for value in row.values()]


def dual_norm(values: Vector, norm: str) -> Fraction:
    """How large a linear function with these coefficients is on the unit ball of a norm."""
    return norm_of(values, {"linf": "l1", "l2": "l2", "l1": "linf"}[norm])


def norm_of(values: Vector, norm: str) -> Fraction:
    """The norm of a vector; for l2 its square root is rounded up."""
    sizes = [abs(value) for value in values]
    if norm == "linf":
        return max(sizes, default=ZERO)
    if norm == "l1":
        return sum(sizes, ZERO)
    return root_rounded_up(sum((size * size for size in sizes), ZERO))


def largest_row_sum(matrix: Matrix) -> Fraction:
    """Of absolute values; 0 if there are no rows."""
    return max(abs(matrix).row_sums(), default=ZERO)


# Rule interval.


def rule_interval(lines: Lines, term: Term) -> Amounts:
    """Section 4, rule interval: intervals for coefficients, from the last neurons to the first.

    What remains bounds every Jacobian.
    """
    inputs = coefficients(term.problem)
    return [("interval", operator_norm(inputs.largest(), term.norms))]


# Rule curvature.


def rule_curvature(lines: Lines, patch: Patch, rows: Sequence[int], norms: Norms) -> Amounts:
    """Section 4, rule curvature: the Jacobian at the middle of a box, and how far it is from others.

    Entry j of a row changes by at most the sum of |H_jk| r_k, with second derivatives H in the box.
    If that leaves its sign as it is, it may be added to others before absolute values are taken.
    """
    totals = []
    entries = []
    for row in rows:
        gradient = patch.at_middle[row]
        changes = patch.changes(row)
        signs = read_signs(lines, gradient, changes)
        sizes = gradient.largest()
        alone = [change for change, sign in zip(changes, signs, strict=True) if sign == 0]
        totals.append([sum(sizes) + sum(alone) + patch.change_along(row, signs)])
        entries.append([size + change for size, change in zip(sizes, changes, strict=True)])
    bounds = totals if norms.inputs == "linf" else entries
    by_curvature = norm_on_grid(bounds, norms)
    by_slopes = norm_on_grid([patch.in_box[row].largest() for row in rows], norms)
    return [("curvature", min(by_curvature, by_slopes))]


def norm_on_grid(rows: Sequence[Sequence[int]], norms: Norms) -> Fraction:
    """The operator norm of a matrix of numbers that count 1 / GRID."""
    entries = [dict(enumerate(row)) for row in rows]
    return operator_norm(Matrix(entries, len(rows[0]), -GRID_BITS), norms)


def read_signs(lines: Lines, gradient: Ends, changes: Sequence[int]) -> list[int]:
    """Section 4, rule curvature: the signs that are given; they hold in the whole box."""
    signs = lines.integers("signs")
    fits = len(signs) == len(changes) and set(signs) <= {-1, 0, 1}
    lines.require(fits, "'signs' is followed by -1, 0 or 1 for every input")
    for j, (sign, change, low, high) in enumerate(zip(signs, changes, *gradient, strict=True)):
        least = low if sign > 0 else -high
        is_proved = sign == 0 or least >= change
        lines.require(is_proved, f"the sign of input {j} is not proved", REJECTED)
    return signs


# Rule product.


def rule_product_of_norms(lines: Lines, term: Term) -> Amounts:
    """Section 4, rule product: a number for every node, from spectral norms and steepest slopes.

    Norms are submultiplicative, so that it bounds the derivative of the node.
    """
    allowed = term.is_whole and term.norms.inputs == "l2"
    reason = "the rule 'product' is for l2 on the inputs, and bounds the objective as a whole"
    lines.require(allowed, reason)
    numbers = [term.largest_unit]
    for i, node in enumerate(term.network.nodes[1:], start=1):
        if node.is_activation:
            steepest = max(max(-low, high) for low, high in term.ranges[i])
            numbers.append(steepest * numbers[node.source])
        else:
            number = ZERO
            for source, matrix in node.inputs:
                number += spectral_norm(lines, matrix) * numbers[source]
            numbers.append(number)
    return [("product", operator_norm(term.W, term.norms) * numbers[-1])]


def spectral_norm(lines: Lines, matrix: Matrix) -> Fraction:
    """Section 4, rule product: a bound on |M|, given as v and proved by v^2 I - M M^T >= 0.

    Where v = 0 is given, it is the simple bound of the rule path-sum.
    """
    norm = lines.number("norm", least=0)
    if norm == 0:
        return operator_norm(matrix, EUCLIDEAN)
    if len(matrix.rows) > matrix.width:
        matrix = matrix.transpose()  # M^T has the same norm, and M^T M fewer rows
    identity = Matrix.diagonal([norm**2] * len(matrix.rows))
    check_semidefinite(lines, identity - matrix @ matrix.transpose())
    return norm


# Rule products.


def rule_krivine_products(lines: Lines, term: Term) -> Amounts:
    """Section 4, rule products: the constant of q, and its other coefficients that are positive.

    q = p + sum of multipliers times products. On [0, 1]^n products are not negative, so p <= q,
    and monomials lie between 0 and 1.
    """
    problem = term.problem
    rows = len(problem.C.rows)
    allowed = rows == 1 or problem.inputs == 1 or term.norms.inputs == "linf"
    require(allowed, "products bound a single row, a single input, or a cube of inputs", REJECTED)
    variables = problem.C.width
    if rows > 1:
        variables += rows  # every row has a variable
    unit = lines.number("unit", least=0)
    sums = read_products(lines, variables)
    q = objective_polynomial(problem)
    for monomial, coefficient in sums.items():
        q[monomial] = q.get(monomial, ZERO) + coefficient * unit
    amounts = [("constant", q.pop((), ZERO))]
    for monomial, value in q.items():
        if value > 0:
            amounts.append((f"monomial {monomial}", value))
    return amounts


def read_products(lines: Lines, variables: int) -> dict[Monomial, int]:
    """Section 4, rule products: multipliers times products, expanded and added up, in units."""
    sums: dict[Monomial, int] = {}
    for _ in range(lines.count("sets")):
        size, *values = lines.integers("set")
        fits = 0 <= size <= len(values) == size + 2**size
        lines.require(fits, "'set' is a size, as many variables, and a multiplier for each product")
        chosen = values[:size]
        multipliers = values[size:]
        lines.require(min(multipliers) >= 0, "a multiplier is negative")
        distinct = len(set(chosen)) == size and all(0 <= v < variables for v in chosen)
        lines.require(distinct, "a variable occurs twice in a set, or is not there")
        for number, coefficient in enumerate(expand_products(multipliers)):
            if coefficient:
                monomial = monomial_of(chosen, number)
                sums[monomial] = sums.get(monomial, 0) + coefficient
    return sums


# Rule sdp.


def rule_sdp(lines: Lines, term: Term) -> Amounts:
    """Section 4, rule sdp: the cost of delta plus the cost of mu, if S is semidefinite.

    0 <= v.S v at v = (t, z, w), where the terms of tau are not positive: so -w.C x is at most what
    delta and mu cost over |t| <= 1 and w in the dual unit ball.
    """
    problem = term.problem
    mu = lines.numbers("mu", len(problem.C.rows), least=0)
    delta = lines.numbers("delta", problem.inputs, least=0)
    tau = lines.numbers("tau", problem.C.width - problem.inputs, least=0)
    check_semidefinite(lines, sdp_matrix(problem, mu, delta, tau))
    cost_of_delta = max(delta)
    if term.norms.inputs == "linf":
        cost_of_delta = sum(delta, ZERO)
    cost_of_mu = max(mu)
    if term.norms.outputs == "l1":
        cost_of_mu = sum(mu, ZERO)
    return [("sdp", cost_of_delta + cost_of_mu)]


def sdp_matrix(problem: Problem, mu: Vector, delta: Vector, tau: Vector) -> Matrix:
    """Section 4, rule sdp: S in the variables (t, z, w), up to its diagonal.

    With m = (l + u) / 2, sym[(e_a - l_a A_a)(e_a - u_a A_a)^T] is e_a e_a^T, less m_a e_a A_a^T
    and its transpose, plus l_a u_a A_a A_a^T. The weights of the last are rounded down: what that
    takes from S is positive semidefinite.
    """
    rows = len(problem.C.rows)
    order = problem.C.width + rows
    weights = [ZERO] * problem.inputs + tau
    crossed = []
    squared = []
    for weight, (low, high) in zip(weights, problem.slopes, strict=True):
        crossed.append(-weight * (low + high) / 2)
        squared.append(shortened_down(weight * low * high, WEIGHT_BITS))
    integers, exponent = align(squared)
    A = problem.A.reduced()
    squares = gram(A.rows, integers, A.width)
    S = Matrix(squares, order, exponent + 2 * A.exponent) + A.scaled_rows(crossed)
    objective = Matrix(problem.C.rows, order, problem.C.exponent - 1)  # rows w
    diagonal = Matrix.diagonal(delta + tau + mu)
    return Matrix.stack([S, objective], order) + diagonal


# Rule signs.


def rule_signs(lines: Lines, term: Term) -> Amounts:
    """Section 4, rule signs: mu, the costs of delta, eta and all triangles, if S is semidefinite.

    0 <= v.S v where slopes are ends of their ranges, and all that S has besides w C x and squares
    is 0 there, or at most its multiplier.
    """
    problem = term.problem
    neurons = problem.C.width - problem.inputs
    t_are_signs = term.norms.inputs != "l2" or problem.inputs == 1
    allowed = len(problem.C.rows) == 1 and (term.norms.inputs != "l1" or problem.inputs == 1)
    lines.require(allowed, "the rule 'signs' is for one row, and under l1 for one input")
    mu = lines.number("mu")
    delta = lines.numbers("delta", problem.inputs)
    eta = lines.numbers("eta", neurons)
    inner = lines.indices("inner", neurons)
    tau = lines.numbers("tau", len(inner))
    alpha = lines.numbers("alpha", len(inner))
    beta = lines.numbers("beta", len(inner))
    signs = 1 + neurons + (problem.inputs if t_are_signs else 0)
    triangles = read_triangles(lines, signs)
    alternatives = read_alternatives(lines, problem, inner)
    equations = Equations(inner, tau, alpha, beta)
    lines.require(only_inner_are_read(problem, inner), "a neuron that is read is not inner")
    squares = [mu, *eta, *delta]
    check_semidefinite(lines, sign_matrix(problem, squares, equations, triangles, alternatives))
    cost_of_delta = sum(delta, ZERO) if t_are_signs else max(delta)
    cost_of_signs = mu + sum(eta, ZERO) + cost_of_delta
    return [
        ("squares", cost_of_signs),
        ("triangles", sum((triangle.weight for triangle in triangles), ZERO)),
    ]


def read_triangles(lines: Lines, signs: int) -> list[SignTriangle]:
    """Section 4, rule signs: inequalities among three signs, and their multipliers."""
    unit = lines.number("unit", least=0)
    triangles = []
    for _ in range(lines.count("triangles")):
        values = lines.integers("triangle")
        lines.require(len(values) == 5, "a triangle is three signs, a pattern, and a multiplier")
        i, j, k, pattern, weight = values
        valid = 0 <= i < j < k < signs and 0 <= pattern < 4 and weight >= 0
        lines.require(valid, "signs ascend, a pattern is below 4, and a multiplier not negative")
        triangles.append(SignTriangle((i, j, k), pattern, weight * unit))
    return triangles


RULES: dict[str, Rule] = {
    "path-sum": rule_path_sum,
    "interval": rule_interval,
    "product": rule_product_of_norms,
    "products": rule_krivine_products,
    "sdp": rule_sdp,
    "signs": rule_signs,
}
