"""Polynomials of several variables, as the rule `products` needs them.

A monomial is a tuple of distinct variables in ascending order; every variable occurs at most once
in it (polynomials are multilinear). The empty tuple is the constant.
"""

from collections.abc import Sequence
from fractions import Fraction

from .exact import ONE, TWO, ZERO, Matrix
from .problem import Problem

Monomial = tuple[int, ...]
Polynomial = dict[Monomial, Fraction]  # coefficients


def objective_polynomial(problem: Problem) -> Polynomial:
    """Section 4, rule products: the polynomial p in variables of [0, 1].

    For one row it is C x, with t = 2 x - 1 and s = l + (u - l) x. For several rows it is r.C x,
    with a variable r = 2 x - 1 for every row, and t = 1 for an only input.
    """
    one_row = len(problem.C.rows) == 1
    values: list[Polynomial] = []
    for j in range(problem.inputs):
        if one_row or problem.inputs > 1:
            values.append({(): -ONE, (j,): TWO})
        else:
            values.append({(): ONE})
    variables = problem.C.width
    for a in range(problem.inputs, variables):
        low, high = problem.slopes[a]
        values.append(times_range(combination(problem.A, a, values), low, high, a))
    if one_row:
        return combination(problem.C, 0, values)
    total: Polynomial = {}
    for row in range(len(problem.C.rows)):
        signed = times_range(combination(problem.C, row, values), -ONE, ONE, variables + row)
        for monomial, value in signed.items():
            total[monomial] = total.get(monomial, ZERO) + value
    return total


def combination(matrix: Matrix, i: int, values: Sequence[Polynomial]) -> Polynomial:
    """Row i of the matrix times a vector of polynomials."""
    total: Polynomial = {}
    unit = TWO**matrix.exponent
    for j, entry in matrix.rows[i].items():
        weight = entry * unit
        for monomial, value in values[j].items():
            total[monomial] = total.get(monomial, ZERO) + weight * value
    return total


def times_range(factor: Polynomial, low: Fraction, high: Fraction, variable: int) -> Polynomial:
    """The factor times low + (high - low) x, with a variable x that is later than all of its."""
    result: Polynomial = {}
    if low:
        for monomial, value in factor.items():
            result[monomial] = low * value
    if low < high:
        for monomial, value in factor.items():
            result[(*monomial, variable)] = (high - low) * value
    return result


def expand_products(multipliers: Sequence[int]) -> list[int]:
    """Coefficients of monomials, from multipliers of products of x_v and 1 - x_v.

    Number i belongs to the product of x_v over the variables whose bit is set in i, and of 1 - x_v
    over the others; in the result, to the monomial of the variables whose bit is set. One variable
    after the other, 1 - x_v is expanded: a product with 1 - x_v is one without less one with x_v.
    """
    coefficients = list(multipliers)
    bit = 1
    while bit < len(coefficients):
        for number in range(len(coefficients)):
            if number & bit:
                coefficients[number] -= coefficients[number ^ bit]
        bit <<= 1
    return coefficients


def monomial_of(variables: Sequence[int], number: int) -> Monomial:
    """The variables whose bit is set in the number, in ascending order."""
    chosen = [variable for bit, variable in enumerate(variables) if number >> bit & 1]
    return tuple(sorted(chosen))
