"""The matrix of the rule `signs`: section 4 of spec/certificate.md."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from .alternatives import Alternatives, alternatives_form
from .exact import TWO, ZERO, Matrix, Vector
from .problem import Problem

PATTERNS = ((1, 1), (1, -1), (-1, 1), (-1, -1))  # a and b of a triangle


class Equations(NamedTuple):
    """The inner neurons, and multipliers of what is 0 for each of them."""

    inner: list[int]
    tau: Vector
    alpha: Vector
    beta: Vector


class SignTriangle(NamedTuple):
    """a p_I p_J + b p_I p_K + a b p_J p_K >= -1, and its multiplier."""

    signs: tuple[int, int, int]
    pattern: int
    weight: Fraction


def only_inner_are_read(problem: Problem, inner: list[int]) -> bool:
    """Whether no row of A has a coefficient of a neuron that is not inner."""
    allowed = set(range(problem.inputs)) | {problem.inputs + a for a in inner}
    return all(value == 0 or v in allowed for row in problem.A.rows for v, value in row.items())


def sign_matrix(
    problem: Problem,
    squares: Vector,
    equations: Equations,
    triangles: list[SignTriangle],
    alternatives: Sequence[Alternatives],
) -> Matrix:
    """S in the variables (w, e, t, z of inner neurons). Squares are those of w, e and t.

    It is a sum of products of linear forms in (w, e, t, z of all neurons), made symmetric. At last
    the z of neurons that are not inner are left out, which no form has.
    """
    neurons = problem.C.width - problem.inputs
    units = 1 + neurons  # w and e come before x
    first_z = units + problem.inputs
    order = first_z + neurons
    low = [low for low, _ in problem.slopes]
    high = [high for _, high in problem.slopes]
    tau = [ZERO] * problem.C.width
    for a, value in zip(equations.inner, equations.tau, strict=True):
        tau[problem.inputs + a] = value
    x = Matrix([{units + v: 1} for v in range(problem.C.width)], order)
    y = problem.A @ x
    by_x, by_y = bilinear_forms(problem, equations, order)
    form = by_x.transpose() @ x + by_y.transpose() @ y + triangle_form(triangles, order)
    form += (x - y.scaled_rows(low)).transpose() @ (x - y.scaled_rows(high)).scaled_rows(tau)
    form -= alternatives_form(alternatives, x)
    S = (form + form.transpose()).half() + Matrix.diagonal(squares + [ZERO] * neurons)
    kept = [*range(first_z), *(first_z + a for a in equations.inner)]
    chosen, _ = S.chosen_rows(kept).take(kept)
    return chosen


def bilinear_forms(problem: Problem, equations: Equations, order: int) -> tuple[Matrix, Matrix]:
    """Forms in w and e by which every variable x, and every y, is multiplied in S.

    That is -C w for x, and what alpha and beta add; for a neuron that is not inner, -C_a w z_a is
    written as if -C_a were alpha, and its z is gone.
    """
    numbers = {problem.inputs + a: k for k, a in enumerate(equations.inner)}
    by_x: list[dict[int, Fraction]] = []
    by_y: list[dict[int, Fraction]] = []
    for v, (low, high) in enumerate(problem.slopes):
        coefficient = problem.C.rows[0].get(v, 0) * TWO**problem.C.exponent
        is_inner = v in numbers
        if v < problem.inputs:
            by_x.append({0: -coefficient})
            by_y.append({})
            continue
        sign = 1 + v - problem.inputs
        alpha = equations.alpha[numbers[v]] if is_inner else coefficient
        beta = equations.beta[numbers[v]] if is_inner else ZERO
        by_x.append({0: alpha - coefficient, sign: beta})
        middle = (low + high) / 2
        half = (high - low) / 2
        by_y.append({0: -alpha * middle - beta * half, sign: -alpha * half - beta * middle})
    return Matrix.of(by_x, order), Matrix.of(by_y, order)


def triangle_form(triangles: list[SignTriangle], order: int) -> Matrix:
    """The sum of all triangles times their multipliers, negated."""
    rows: list[dict[int, Fraction]] = [{} for _ in range(order)]
    for (i, j, k), pattern, weight in triangles:
        a, b = PATTERNS[pattern]
        for row, column, sign in ((i, j, a), (i, k, b), (j, k, a * b)):
            rows[row][column] = rows[row].get(column, ZERO) - sign * weight
    return Matrix.of(rows, order)
