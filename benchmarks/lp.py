"""The LP hierarchy on the paper's networks: whole time (build, tighten, solve, certify), share of the assembly, memory.

    python benchmarks/lp.py one          the networks of the paper's section 6.1 with one hidden layer
    python benchmarks/lp.py two          those with two
    python benchmarks/lp.py public       the published degree-3 figures, n = 80
    python benchmarks/lp.py mnist        the pruned MNIST network that ships with the package
    python benchmarks/lp.py solvers      HiGHS's solvers and the consensus solver, on LPs that are built whole

Prints rows of Markdown tables. CPU seconds are those of this process: what counts on a machine that does other things as well.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from networks import problem_of, random_network

from lipopt.examples import example
from lipopt.methods.lp.krivine import Family, certified_bound
from lipopt.methods.lp.method import LiPopt
from lipopt.methods.lp.polynomial import norm_gradient, sources
from lipopt.methods.lp.sparsity import all_sets, cliques, maximal_sets, pad
from lipopt.problem.question import Question, pose
from lipopt.problem.task import Budget, Task
from lipopt.solvers import consensus, highs

LIMIT = 60.0  # seconds a case may take
PUBLISHED = (4.6849, 3.6735, 3.8764, 4.3272, 4.4662)
COLUMNS = ("sets", "seconds", "CPU seconds", "assembly", "peak GB")


def row(*cells):
    print(
        "| " + " | ".join(f"{c:.4f}" if isinstance(c, float) else str(c) for c in cells) + " |",
        flush=True,
    )


def header(*names):
    row(*names)
    row(*["---"] * len(names))


def measure(label, problem, degree, pattern, *more, tolerance=1e-5):
    """One row: the bound of a problem and what it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = LiPopt(degree, pattern, tolerance=tolerance)(Task(problem, problem, Budget.of(LIMIT)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    share = f"{100 * found.details['seconds']['assembly'] / wall:.0f} %"
    memory = f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f}"
    status = "" if found.status == "complete" else " (time limit)"
    cells = (degree, pattern, f"{found.value:.4f}{status}", *more, found.details["sets"])
    row(label, *cells, f"{wall:.2f}", f"{cpu:.2f}", share, memory)


def one():
    header("network", "k", "pattern", "bound", *COLUMNS)
    measure("20x20, dense", problem_of(random_network([20, 20, 1])), 3, "input")
    measure("40x40, dense", problem_of(random_network([40, 40, 1])), 3, "input")
    for n in (40, 80, 160, 320):
        for s in (5, 10, 20):
            for degree in (2, 3):
                measure(f"{n}x{n}, {s}", problem_of(random_network([n, n, 1], s)), degree, "input")


def two():
    header("network", "k", "pattern", "bound", *COLUMNS)
    for n in (5, 10, 20, 40, 80):
        for s in (5, 10, 20):
            if s <= n:
                for degree in (3, 4):
                    measure(
                        f"{n}x{n}x10, {s}",
                        problem_of(random_network([n, n, 10, 1], s)),
                        degree,
                        "input",
                    )


def public_network(n, s, seed):
    import torch
    from torch import nn

    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 1))
    first, last = (model[i].weight.detach().numpy() for i in (0, 2))
    i, j = np.indices((n, n))
    return [first * (abs(i - j) <= s / 2 - 1), last]


def public():
    header("n = s = 80", "k", "pattern", "bound", "published", *COLUMNS)
    for seed, published in enumerate(PUBLISHED):
        measure(
            f"seed {seed}",
            problem_of(public_network(80, 80, seed)),
            3,
            "input",
            published,
            tolerance=1e-6,
        )


def mnist():
    header("pruned MNIST network", "k", "pattern", "bound", *COLUMNS)
    network = example("pruned")
    for output in (8, 0):
        problem = pose(network, Question.about(network, output=output)).problem
        for pattern in ("paths", "input"):
            measure(f"class {output}", problem, 3, pattern)


def solvers():
    header("network, k, pattern", "products", "solver", "form", "bound", "seconds", "CPU seconds")
    cases = (
        ("40x40, 10", [40, 40, 1], 10, 2, "paths"),
        ("80x80, 10", [80, 80, 1], 10, 2, "paths"),
        ("20x20x10, 5", [20, 20, 10, 1], 5, 3, "paths"),
        ("40x40, 10", [40, 40, 1], 10, 3, "input"),
        ("20x20x10, 5", [20, 20, 10, 1], 5, 3, "input"),
        ("80x80, 10", [80, 80, 1], 10, 3, "input"),
    )
    for name, sizes, s, degree, pattern in cases:
        problem = problem_of(random_network(sizes, s))
        polynomial = norm_gradient(problem)
        sets = np.concatenate(
            [
                all_sets(cliques(sources(problem), pattern), degree),
                pad(polynomial.monomials, degree),
            ]
        )
        family = Family.of(maximal_sets(sets, polynomial.variables), polynomial.variables)
        for solver in ("simplex", "ipx", "hipo", "pdlp", "hipdlp", "consensus"):
            for form in ("both",) if solver == "consensus" else ("moments", "multipliers"):
                if solver == "simplex" and family.index.size > 30_000:
                    continue
                wall, cpu = time.perf_counter(), time.process_time()
                bound = (
                    by_consensus(family, polynomial)
                    if form == "both"
                    else by_highs(family, polynomial, solver, form)
                )
                seconds = f"{time.perf_counter() - wall:.2f}", f"{time.process_time() - cpu:.2f}"
                row(
                    f"{name}, {degree}, {pattern}", family.index.size, solver, form, bound, *seconds
                )


def by_highs(family, polynomial, solver, form):
    matrix, p = family.matrix(), family.coefficients(polynomial)
    constant = matrix[:, [0]].toarray().ravel()
    _, c, _ = highs.solve(
        matrix[:, 1:], -constant, p[1:], solver=solver, form=form, tolerance=1e-5, seconds=LIMIT
    )
    return certified_bound(family, polynomial, c.reshape(family.index.shape))


def by_consensus(family, polynomial):
    moments = consensus.Moments(family.index, len(family.keys))
    objective = moments.gather(family.at_vertices(family.coefficients(polynomial))) / len(
        family.index
    )
    found = consensus.solve(moments, objective, tolerance=1e-5, iterations=20_000)
    multipliers = np.where(family.index < 0, 0.0, found.potentials.max(axis=0) - found.potentials)
    return certified_bound(family, polynomial, multipliers)


if __name__ == "__main__":
    parts = {"one": one, "two": two, "public": public, "mnist": mnist, "solvers": solvers}
    if len(sys.argv) != 2 or sys.argv[1] not in parts:
        sys.exit(__doc__)
    parts[sys.argv[1]]()
