"""Shor's relaxation of a derivative problem by a conic solver: what the vector network must agree with."""

import numpy as np
import scipy.sparse as sp

from lipopt.numerics.arrays import Array
from lipopt.problem.derivative import Blocks, DerivativeProblem
from lipopt.solvers.clarabel import minimize_lmi


def shor_value(problem: DerivativeProblem) -> float:
    """min mu + sum of delta over the dual of dual.py, as an LMI; for l1, the maximum over inputs."""
    if problem.norm == "l1":
        return max(_value(problem, [j]) for j in range(problem.inputs))
    return _value(problem, list(range(problem.inputs)))


def _value(problem: DerivativeProblem, inputs: list[int]) -> float:
    cost, constant, matrices = shor_lmi(problem, inputs)
    found = minimize_lmi(cost, constant, matrices, np.ones(len(cost), bool), tolerance=1e-11)
    assert found is not None
    return float(cost @ found)


def shor_lmi(
    problem: DerivativeProblem, inputs: list[int]
) -> tuple[Array, sp.csr_array, list[sp.csr_array]]:
    """minimize cost.y such that constant + sum of y_i matrices[i] is positive semidefinite, y >= 0."""
    sizes = [len(inputs), *problem.sizes[1:]]
    start = np.cumsum([0, *sizes])
    total, rows = int(start[-1]), problem.outputs
    n = total + rows

    def wide(blocks: Blocks, count: int) -> Array:
        matrix = np.zeros((count, n))
        for s, m in blocks.items():
            dense = m.toarray() if sp.issparse(m) else m
            matrix[:, start[s] : start[s + 1]] = dense[:, inputs] if s == 0 else dense
        return matrix

    constant = np.zeros((n, n))
    constant[total:] = -wide(problem.objective, rows) / 2
    constant[:, total:] += constant[total:].T
    matrices, cost = [], []

    def diagonal(indices: list[int]) -> None:
        matrices.append(sp.csr_array((np.ones(len(indices)), (indices, indices)), shape=(n, n)))
        cost.append(1.0)

    outputs = list(range(total, n))
    for group in [[k] for k in outputs] if problem.norm == "l1" else [outputs]:
        diagonal(group)
    for group in (
        [[j] for j in range(len(inputs))] if problem.norm == "linf" else [list(range(len(inputs)))]
    ):
        diagonal(group)
    for i, layer in enumerate(problem.layers, start=1):
        y = wide(layer.blocks, layer.size)
        for a in range(layer.size):
            left, right = -layer.lower[a] * y[a], -layer.upper[a] * y[a]
            left[start[i] + a] += 1
            right[start[i] + a] += 1
            product = np.outer(left, right)
            matrices.append(sp.csr_array((product + product.T) / 2))
            cost.append(0.0)
    return np.array(cost), sp.csr_array(constant), matrices
