"""The SDP bound against conic solvers on the same problem, and how its time grows with width and depth.

    python benchmarks/sdp.py solvers [--limit SECONDS]     Clarabel and SCS; a solver that ran past the limit is not tried on more
    python benchmarks/sdp.py width | depth
    python benchmarks/sdp.py rank                          raising it along negative eigenvectors of S, or with noise
    python benchmarks/sdp.py cuts [--seeds 3]              the gap to the POP without and with cuts
    python benchmarks/sdp.py cuts 80-80-1 --sparsity 20    one row of that table; --sparsity 0 for dense weights
    python benchmarks/sdp.py cuts pruned [--limit 30]      the same of a network that ships with lipopt, "pruned" or "dense"
    python benchmarks/sdp.py network 3072-4096-4096-4096-1 [--device cuda] [--repeat 2]

Random networks with normal weights of variance 1/fan-in and slopes in [0, 1], linf. Every table is printed as markdown.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lipopt.examples import LABEL, example
from lipopt.methods.sdp.backend import backend
from lipopt.methods.sdp.method import SDP
from lipopt.methods.sdp.search import MAX_POWER_ITERATIONS
from lipopt.methods.sdp.vector_network import VectorNetwork
from lipopt.model.norms import Norm
from lipopt.numerics.arrays import Array, Matrix
from lipopt.problem.derivative import DerivativeProblem, Layer
from lipopt.problem.presolve import presolve
from lipopt.problem.question import Question, pose
from lipopt.problem.task import Budget, Task

Value = TypeVar("Value")
SOLVED = [
    (10, 20, 20, 1),
    (40, 40, 1),
    (50, 50, 50, 1),
    (80, 80, 1),
    (160, 160, 1),
]  # by size of the matrix

CUT: list[tuple[Sequence[int], int | None]] = [
    ((40, 40, 1), 5),
    ((40, 40, 1), 10),
    ((40, 40, 1), 20),
    ((40, 40, 1), None),
    ((80, 80, 1), 5),
    ((80, 80, 1), 10),
    ((80, 80, 1), 20),
    ((80, 80, 1), None),
    ((20, 20, 20, 1), 5),
    ((20, 20, 20, 1), None),
    ((40, 40, 40, 1), 5),
    ((40, 40, 40, 1), None),
]  # sizes, and how many neurons of the next layer a neuron feeds
EXAMPLES = ("pruned", "dense")


def random_problem(sizes: Sequence[int], seed: int = 0) -> DerivativeProblem:
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((b, a)) / np.sqrt(a) for a, b in pairwise(sizes)]
    layers = tuple(
        Layer({i: w}, np.zeros(len(w)), np.ones(len(w)), i + 1, np.arange(len(w)))
        for i, w in enumerate(weights[:-1])
    )
    return DerivativeProblem(Norm.LINF, sizes[0], layers, {len(layers): weights[-1]})


def timed(function: Callable[..., Value], *arguments: Any) -> tuple[Value, float]:
    start = time.perf_counter()
    return function(*arguments), time.perf_counter() - start


def show(*cells: object) -> None:
    print(
        "| " + " | ".join(f"{c:.6g}" if isinstance(c, float) else str(c) for c in cells) + " |",
        flush=True,
    )


def solve(sizes: Sequence[int], device: str | None = None, progress: bool = False) -> None:
    """One row: bound, gap, best lower bound on the POP, seconds."""
    problem = random_problem(sizes)
    start = time.perf_counter()

    def report(message: str, fraction: float | None = None) -> None:
        if progress:
            print(f"{time.perf_counter() - start:7.2f} s  {message}", file=sys.stderr, flush=True)

    found, seconds = timed(
        lambda: SDP(device=device)(Task(problem, problem, Budget(progress=report)))
    )
    gap = found.value / found.details["primal"] - 1
    name = (
        "-".join(map(str, sizes))
        if len(sizes) < 8
        else f"{sizes[0]}, {len(sizes) - 2} hidden layers of {sizes[1]}"
    )
    show(name, found.value, f"{gap:.0e}", found.pop_lower, f"{seconds:.2f}")


def compare_solvers(limit: float) -> None:
    show("network", "SDP()", "s", "Clarabel", "s", "SCS", "s")
    show(*["---"] * 7)
    late: set[str] = set()
    SDP()(
        Task(random_problem((5, 5, 1)), random_problem((5, 5, 1)))
    )  # imports are not what is measured
    for sizes in SOLVED:
        problem = random_problem(sizes)
        found, seconds = timed(SDP(), Task(problem, problem))
        row: list[object] = ["-".join(map(str, sizes)), found.value, f"{seconds:.2f}"]
        for name, solver in (("clarabel", clarabel_value), ("scs", scs_value)):
            if name in late:
                row += ["-", f"> {limit:g}"]
                continue
            value, seconds = timed(solver, problem, limit)
            row += [value, f"{seconds:.2f}"]
            late |= {name} if seconds > limit else set()
        show(*row)


def clarabel_value(problem: DerivativeProblem, limit: float) -> float:
    from lipopt.solvers.clarabel import minimize_lmi

    cost, constant, matrices = _lmi(problem)
    found = minimize_lmi(cost, constant, matrices, np.ones(len(cost), bool), limit, tolerance=1e-8)
    return float("nan") if found is None else float(cost @ found)


def scs_value(problem: DerivativeProblem, limit: float) -> float:
    import scipy.sparse as sp
    import scs

    cost, constant, matrices = _lmi(problem)
    n = constant.shape[0]
    column, row = np.triu_indices(n)  # the lower triangle, column by column
    scale = np.where(row == column, 1.0, np.sqrt(2.0))
    columns = [sp.csc_array((scale * m.toarray()[row, column])[:, None]) for m in matrices]
    left = sp.vstack([-sp.eye_array(len(cost)), -sp.hstack(columns)], format="csc")
    right = np.concatenate([np.zeros(len(cost)), scale * constant.toarray()[row, column]])
    data = {"A": sp.csc_matrix(left), "b": right, "c": cost}
    solver = scs.SCS(
        data,
        {"l": len(cost), "s": [n]},
        eps_abs=1e-5,
        eps_rel=1e-5,
        verbose=False,
        time_limit_secs=limit,
    )
    return float(cost @ solver.solve()["x"])


def _lmi(problem: DerivativeProblem) -> tuple[Array, Matrix, list[Matrix]]:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
    from conic import shor_lmi

    return shor_lmi(problem, list(range(problem.inputs)))


def raise_rank() -> None:
    """From where the ascent ends at a low rank, with twice the rank: L-BFGS iterations to the optimum, up to 1e-6."""
    show("network", "rank", "value there", "value of the SDP", "along eigenvectors", "with noise")
    show(*["---"] * 6)
    for sizes, rank in (
        ((50, 50, 1), 3),
        ((50, 50, 50, 1), 4),
        ((200, 200, 200, 1), 6),
        ((100, 100, 100, 100, 1), 4),
    ):
        network = VectorNetwork.of([random_problem(sizes)], backend(None))

        def ascended(rank: int, network: VectorNetwork = network) -> tuple[np.ndarray, float]:
            x = network.power(network.start(rank, 0), MAX_POWER_ITERATIONS)
            x, _ = network.ascend(x, 500, lambda: False)
            return x, float(network.evaluate(x).values[0])

        (x, value), (_, best) = ascended(rank), ascended(60)
        noise = np.random.default_rng(0).standard_normal((sum(network.free), rank))
        old = x.reshape(-1, rank)
        wide = np.hstack(
            [old, 0.1 * np.linalg.norm(old, axis=1, keepdims=True) / np.sqrt(2 * rank) * noise]
        ).reshape(-1)
        starts = network.widen(x, rank, 0)[0], wide
        show(
            "-".join(map(str, sizes)),
            rank,
            value,
            best,
            *(_iterations(network, start, best * (1 - 1e-6)) for start in starts),
        )


def _iterations(network: VectorNetwork, x: np.ndarray, value: float, most: int = 300) -> str:
    """The fewest L-BFGS iterations that reach the value."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        reached = network.evaluate(network.ascend(x, middle, lambda: False)[0]).values[0] >= value
        low, high = (low, middle) if reached else (middle, high)
    return str(high) if high <= most else f"> {most}"


def cut_networks(
    points: Sequence[tuple[Sequence[int], int | None]], seeds: int, limit: float
) -> None:
    """The mean gap to the best lower bound on the POP, without and with cuts; the mean and the largest time."""
    _show_cut_heads()
    for sizes, sparsity in points:
        problems = [sparse_problem(sizes, sparsity, seed) for seed in range(seeds)]
        _show_cuts("-".join(map(str, sizes)), sparsity or "dense", problems, limit)


def cut_example(name: str, limit: float) -> None:
    """The same for a network that ships with lipopt, the class of the paper's table."""
    _show_cut_heads()
    network = example(name)
    problem = pose(network, Question.about(network, output=LABEL)).problem
    _show_cuts(name, "-", [problem], limit)


def _show_cut_heads() -> None:
    show("network", "sparsity", "gap", "with cuts", "largest", "s", "largest s", "s without")
    show(*["---"] * 8)


def _show_cuts(
    name: str, sparsity: object, problems: Sequence[DerivativeProblem], limit: float
) -> None:
    """One row of the table."""
    rows = [_cut_network(problem, limit) for problem in problems]
    plain, cut, seconds, before = np.array(rows).T
    show(
        name,
        sparsity,
        f"{plain.mean():.1%}",
        f"{cut.mean():.1%}",
        f"{cut.max():.1%}",
        f"{seconds.mean():.0f}",
        f"{seconds.max():.0f}",
        f"{before.mean():.1f}",
    )


def _cut_network(problem: DerivativeProblem, limit: float) -> list[float]:
    """Both gaps, and the processor seconds with cuts and without."""
    start = time.process_time()
    plain = SDP()(Task(problem, problem))
    middle = time.process_time()
    cut = SDP(cuts=True)(Task(problem, problem, Budget.of(limit)))
    seconds = time.process_time() - middle
    before = middle - start
    lower = max(plain.pop_lower or 0.0, cut.pop_lower or 0.0)
    return [plain.value / lower - 1, cut.value / lower - 1, seconds, before]


def sparse_problem(sizes: Sequence[int], sparsity: int | None, seed: int) -> DerivativeProblem:
    """Uniform weights; every neuron feeds so many of the next hidden layer (the paper's section 6.1)."""
    rng = np.random.default_rng(seed)
    layers = []
    for i, (before, after) in enumerate(pairwise(sizes[:-1])):
        weights = rng.uniform(-1, 1, (after, before)) / np.sqrt(before)
        if sparsity is not None:
            order = np.argsort(rng.random((after, before)), axis=0)
            weights = np.where(order < sparsity, weights, 0.0)
        layers.append(Layer({i: weights}, np.zeros(after), np.ones(after), i + 1, np.arange(after)))
    last = rng.uniform(-1, 1, (1, sizes[-2])) / np.sqrt(sizes[-2])
    problem = DerivativeProblem(Norm.LINF, sizes[0], tuple(layers), {len(layers): last})
    return presolve(problem)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=["solvers", "width", "depth", "rank", "cuts", "network"])
    parser.add_argument("sizes", nargs="?", help="of the network, or the name of one, for 'cuts'")
    parser.add_argument("--sparsity", type=int, default=0, help="of that network, for 'cuts'")
    parser.add_argument("--device", help="a torch device, such as cuda")
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds for a solver, or for cuts"
    )
    parser.add_argument("--seeds", type=int, default=3, help="networks of each kind, for 'cuts'")
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        help="of 'network': the first run includes starting the device",
    )
    arguments = parser.parse_args()
    if arguments.table == "solvers":
        compare_solvers(arguments.limit)
        return
    if arguments.table == "cuts" and arguments.sizes in EXAMPLES:
        cut_example(arguments.sizes, arguments.limit)
        return
    given = [int(n) for n in (arguments.sizes or "784-300-100-1").split("-")]
    if arguments.table == "cuts":
        points = [(given, arguments.sparsity or None)] if arguments.sizes else CUT
        cut_networks(points, arguments.seeds, arguments.limit)
        return
    if arguments.table == "rank":
        raise_rank()
        return
    networks: dict[str, list[Sequence[int]]] = {
        "width": [(n, n, n, 1) for n in (50, 100, 200, 400, 800)],
        "depth": [(*[50] * (d + 1), 1) for d in (2, 5, 10, 20, 50)],
        "network": [given] * arguments.repeat,
    }
    show("network", "bound", "gap", "lower bound on the POP", "s")
    show(*["---"] * 5)
    for sizes in networks[arguments.table]:
        solve(sizes, arguments.device, progress=arguments.table == "network")


if __name__ == "__main__":
    main()
