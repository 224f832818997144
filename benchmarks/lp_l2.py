"""What products with the ball's own constraint 1 - |t|^2 >= 0 are worth for the l2 norm: tiny networks, all products of degree k.

    python benchmarks/lp_l2.py

The LP: lambda - p = sum c h with c >= 0, h all products of degree <= k of 1 - t, 1 + t, x, 1 - x (squares too), times 1 or, where
the degree allows it, times 1 - |t|^2. Prints the optimum, the bound of the same LP without the ball, and lambda.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from networks import problem_of, random_network

from lipopt.lower.pop import enumerate_pop

Polynomial: TypeAlias = dict[tuple[int, ...], float]  # coefficients of monomials


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    result: Polynomial = defaultdict(float)
    for (m, x), (n, y) in itertools.product(a.items(), b.items()):
        result[tuple(sorted(m + n))] += x * y
    return result


def krivine(p, inputs, neurons, degree, ball):
    """lambda, for a polynomial as a dictionary from tuples of variables (inputs first) to coefficients."""
    factors: list[Polynomial] = [
        {(): 1.0, (j,): sign} for j in range(inputs) for sign in (1.0, -1.0)
    ]
    for a in range(inputs, inputs + neurons):
        factors += [{(a,): 1.0}, {(): 1.0, (a,): -1.0}]
    one: Polynomial = {(): 1.0}
    outside: Polynomial = {(): 1.0} | {(j, j): -1.0 for j in range(inputs)}
    starts = [(one, degree)] + [(outside, degree - 2)] * ball
    products = []
    for start, left in starts:
        for chosen in itertools.chain.from_iterable(
            itertools.combinations_with_replacement(factors, r) for r in range(left + 1)
        ):
            product = start
            for factor in chosen:
                product = multiply(product, factor)
            products.append(product)
    monomials = sorted({m for h in products for m in h} | set(p))
    place = {m: i for i, m in enumerate(monomials)}
    entries = [
        (place[m], column, value) for column, h in enumerate(products) for m, value in h.items()
    ]
    rows, columns, values = (np.array(part) for part in zip(*entries, strict=True))
    matrix = sp.csr_array((values, (rows, columns)), (len(monomials), len(products)))
    right = np.array([-p.get(m, 0.0) for m in monomials])
    found = linprog(matrix[[0]].toarray()[0], A_eq=matrix[1:], b_eq=right[1:], method="highs")
    return found.fun - right[0]


def polynomial(weights):
    """sum over inputs j and neurons a of c_a W_aj t_j x_a, or w_j t_j without neurons."""
    if len(weights) == 1:
        return {(j,): w for j, w in enumerate(weights[0][0])}
    n = weights[0].shape[1]
    return {
        (j, n + a): weights[1][0, a] * weights[0][a, j] for a, j in np.ndindex(weights[0].shape)
    }


if __name__ == "__main__":
    print(
        "| network | k | l2 optimum | LP with the ball | LP without (l_inf) |\n| --- | --- | --- | --- | --- |"
    )
    cases = [([np.ones((1, n))], 0, f"linear, {n} equal weights") for n in (4, 9, 16)]
    cases += [(random_network([n, 3, 1]), 3, f"{n}x3, dense") for n in (2, 4, 6)]
    for weights, neurons, name in cases:
        n, degree = weights[0].shape[1], len(weights) + 1
        bounds = [krivine(polynomial(weights), n, neurons, degree, ball) for ball in (True, False)]
        optimum = enumerate_pop(problem_of(weights, "l2"))
        print(
            f"| {name} | {degree} | {optimum:.4f} | {bounds[0]:.4f} | {bounds[1]:.4f} |", flush=True
        )
