"""The dual matrix S of dual.py in rational numbers, and whether it is positive semidefinite: what a proof must imply."""

from fractions import Fraction

import numpy as np
import scipy.sparse as sp

from lipopt.problem.derivative import Blocks, DerivativeProblem
from lipopt.problem.proofs import Multipliers


def is_exactly_semidefinite(
    problem: DerivativeProblem, multipliers: Multipliers, inputs: list[int] | None = None
) -> bool:
    """By exact elimination; `inputs` restricts t to some inputs."""
    inputs = list(range(problem.inputs)) if inputs is None else inputs
    matrix = _matrix(problem, multipliers, inputs)
    n = len(matrix)
    for k in range(n - 1, -1, -1):  # in the order of the proof, though any would do
        if matrix[k][k] < 0 or (matrix[k][k] == 0 and any(matrix[k][j] for j in range(k))):
            return False
        for i in range(k):
            if matrix[k][k] and matrix[i][k]:
                factor = matrix[i][k] / matrix[k][k]
                for j in range(k):
                    matrix[i][j] -= factor * matrix[k][j]
    return True


def _matrix(
    problem: DerivativeProblem, multipliers: Multipliers, inputs: list[int]
) -> list[list[Fraction]]:
    start = np.cumsum([0, len(inputs), *problem.sizes[1:]])
    rows = problem.outputs
    n = int(start[-1]) + rows
    matrix = [[Fraction(0)] * n for _ in range(n)]

    def row(blocks: Blocks, a: int) -> dict[int, Fraction]:
        found = {}
        for s, m in blocks.items():
            values = m.toarray()[a] if sp.issparse(m) else m[a]
            for place, value in enumerate(values[inputs] if s == 0 else values):
                found[int(start[s]) + place] = Fraction(float(value))
        return found

    for k, mu in enumerate(np.broadcast_to(multipliers.mu, rows)):
        place = int(start[-1]) + k
        matrix[place][place] += Fraction(float(mu))
        for j, c in row(problem.objective, k).items():
            matrix[place][j] -= c / 2
            matrix[j][place] -= c / 2
    for place, delta in enumerate(np.broadcast_to(multipliers.delta, problem.inputs)[inputs]):
        matrix[place][place] += Fraction(float(delta))
    for i, (layer, taus) in enumerate(zip(problem.layers, multipliers.tau, strict=True), start=1):
        for a, tau in enumerate(taus):
            y = row(layer.blocks, a)
            own = int(start[i]) + a
            left, right = (
                {j: -Fraction(float(s)) * c for j, c in y.items()}
                for s in (layer.lower[a], layer.upper[a])
            )
            left[own] = right[own] = Fraction(1)
            for p, x in left.items():
                for q, z in right.items():
                    matrix[p][q] += Fraction(float(tau)) * x * z / 2
                    matrix[q][p] += Fraction(float(tau)) * x * z / 2
    return matrix
