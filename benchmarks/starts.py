"""What one SDP can tell the next one: its vectors, to start from, and its multipliers, which prove bounds of other margins too.

    python benchmarks/starts.py

Three digits x nine margins of the pruned MNIST network, in balls of radius 0.01.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from lipopt.backend import backend
from lipopt.demo import digits, example
from lipopt.domain import Ball
from lipopt.dual import Dual
from lipopt.methods import Task
from lipopt.presolve import presolve, slopes_from_zero, split_rows
from lipopt.problem import DerivativeProblem, derivative_problem, output_matrix, slope_ranges
from lipopt.sdp import SDP, _Case, _look
from lipopt.threads import one_blas_thread
from lipopt.vector_network import VectorNetwork

RANK, GAP, CONVERGED = 16, 1e-3, 200  # power iterations for vectors that are as good as optimal
ITERATIONS = (5, 10, 30)

Vectors = dict[int, np.ndarray]  # by node, a vector for each of its neurons; 0 for those that are no variables


def problems(radius: float) -> Iterator[DerivativeProblem]:
    """For every digit the presolved problem of its nine margins."""
    network, (images, labels) = example("pruned"), digits()
    for x, label in zip(images[:3], labels[:3], strict=True):
        rows = [output_matrix(network, 0, (int(label), k)) for k in range(10) if k != label]
        ranges = slope_ranges(network, Ball(x, radius, (0.0, 1.0)))
        yield slopes_from_zero(presolve(derivative_problem(network, ranges, "linf", sp.csr_array(sp.vstack(rows)))))


def places(problem: DerivativeProblem) -> list[tuple[int, np.ndarray]]:
    return [(0, np.arange(problem.inputs)), *((layer.node, layer.neurons) for layer in problem.layers)]


def optimum(problem: DerivativeProblem) -> Vectors:
    search = VectorNetwork([problem], backend(None))
    state = search.evaluate(search.power(search.start(RANK, 0), CONVERGED))
    found = {node: np.zeros((1000, RANK)) for node, _ in places(problem)}
    for (node, neurons), vectors in zip(places(problem), state.units, strict=True):
        found[node][neurons] = vectors[:, 0]
    return found


def closes(problem: DerivativeProblem, known: Vectors, iterations: int) -> bool:
    """Whether the first look at the dual is within the gap, after power iterations from the known vectors and as much noise."""
    rng, search = np.random.default_rng(1), VectorNetwork([problem], backend(None))
    noise = [(node, neurons, rng.standard_normal((len(neurons), RANK)) / np.sqrt(RANK)) for node, neurons in places(problem)]
    start = np.concatenate(
        [(part + known[node][neurons] if node in known else part).reshape(-1) for node, neurons, part in noise]
    )
    state = search.evaluate(search.power(start, iterations))
    case = _Case(np.inf, value=float(state.values[0]))
    _look(Dual([problem], backend(None)), [case], search.rows(state), search.vectors(state), GAP)
    return not case.is_open(GAP)


def vectors() -> None:
    closed: dict[str, list[list[bool]]] = {"random vectors": [], "those of another margin": [], "those of twice the radius": []}
    for whole, larger in zip(problems(0.01), problems(0.02), strict=True):
        margins, far = split_rows(whole), [optimum(problem) for problem in split_rows(larger)]
        near = [optimum(problem) for problem in margins]
        for k, problem in enumerate(margins):
            for name, known in zip(closed, ({}, near[k - 1], far[k]), strict=True):
                closed[name].append([closes(problem, known, n) for n in ITERATIONS])
    for name, found in closed.items():
        shares = ", ".join(f"{share:.0%} after {n}" for n, share in zip(ITERATIONS, np.mean(found, axis=0), strict=True))
        print(f"{name}: {shares} power iterations, of {len(found)} problems")


def multipliers() -> None:
    ratios: dict[str, list[float]] = {"of another margin": [], "for all margins": []}
    for whole in problems(0.01):
        margins, rows = split_rows(whole), Dual([whole], backend(None), every_row=True)
        own = np.array([SDP(gap=GAP)(Task(problem, problem)).value for problem in margins])
        shared = SDP().every_row(Task(whole, whole), 1 / own) or []
        ratios["for all margins"] += [bound.value / best for bound, best in zip(shared, own, strict=True)]
        first = replace(whole, objective={s: m[[0], :] for s, m in whole.objective.items()})
        search = VectorNetwork([first], backend(None))
        state = search.evaluate(search.power(search.start(RANK, 0), 30))
        (hint,) = Dual([first], backend(None)).fit(search.rows(state), search.vectors(state), np.array([GAP]))
        if hint is not None:
            ratios["of another margin"] += list((np.sqrt(rows.squares_of_rows(hint)) / own)[1:])
    for name, found in ratios.items():
        low, high, usual = np.min(found), np.max(found), np.median(found)
        print(f"bounds by multipliers {name}: {low:.2f} to {high:.2f} times a margin's own, median {usual:.2f}")


if __name__ == "__main__":
    with one_blas_thread():
        vectors()
        multipliers()
