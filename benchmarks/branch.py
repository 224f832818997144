"""Branch and bound against what one could use instead, on the same questions.

    python benchmarks/branch.py                     all tables, about 15 minutes
    python benchmarks/branch.py --quick             less of each, within a minute
    python benchmarks/branch.py --table sizes       one of: rivals, sizes, others, hard, few, smooth
    python benchmarks/branch.py --model MODEL.onnx [--center FILE] [--output 0] [--radius .01] [--jobs 2]

The question is the local Lipschitz constant in the l_inf norm of a random ReLU network in an l_inf
ball, up to a gap of 1 %. It is put to

    branch    lipopt.bound(..., method="branch"), with the time for its sampled lower bound
    program   a mixed-integer program with big constants from interval arithmetic, through HiGHS
    boxes     input boxes alone, with interval arithmetic for values and gradients, best first

each in one thread (set OMP_NUM_THREADS=1) and within a limit of wall-clock time; the times in the
tables are processor seconds, which other programs disturb less. Bounds that contradict each other
end the run with an error. A time with ">" ended at the limit, with the gap that was left. With --model,
branch and bound alone is asked about a network from a file, and lipcheck about its certificate.
Every table is printed as markdown.

The table `few` has ReLU networks with two and three inputs in large balls, where input boxes might be
enough. The table `smooth` has smooth networks with few inputs, which branch and bound divides into
boxes that are bounded by their curvature; it is asked again with that taken away.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

import lipopt
from lipopt.model.domain import read_array
from lipopt.model.network import Network
from lipopt.model.norms import NormName
from lipopt.numerics.arrays import Array
from lipopt.result import Result

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from mixed_integer import local_constant
from networks import gaussian_weights, make_network

GAP = 0.01
AGREEMENT = 1e-5  # relative: HiGHS works up to a tolerance, and boxes are not rounded outward
NETWORKS = [(5, 10, 1), (5, 10, 10, 1), (10, 20, 20, 1), (5, 10, 10, 10, 10, 1)]
SMOOTH = ("tanh", "sigmoid")
HARD = [
    ((10, 20, 20, 1), "relu", 1.0),
    ((10, 20, 20, 1), "relu", 3.0),
    ((5, 10, 10, 10, 10, 1), "relu", 3.0),
    ((10, 20, 20, 1), "tanh", 0.1),
]
FEW_INPUTS = [(2, 20, 20, 1), (3, 20, 20, 1)]
SMOOTH_FEW_INPUTS = [
    ((2, 10, 10, 1), "tanh", 3.0),
    ((2, 64, 64, 1), "tanh", 1.0),
    ((2, 32, 32, 32, 1), "tanh", 1.0),
    ((3, 32, 32, 1), "sigmoid", 1.0),
    ((4, 64, 64, 1), "tanh", 0.1),
    ((5, 20, 20, 1), "tanh", 0.3),
    ((7, 20, 20, 1), "tanh", 0.03),
    ((10, 20, 20, 1), "tanh", 0.1),
]
COLUMNS = ("network", "norm", "radius", "lower", "upper", "cells", "branch, s")
RADII = (0.1, 0.3, 1.0, 3.0)
SEEDS = (0, 1, 2)
WIDTHS = (5, 10, 20, 40, 80)
BATCH = 4096  # boxes that are divided at once
MOST_BOXES = 4_000_000  # in the queue: some hundred megabytes


@dataclass(frozen=True, eq=False)
class Question:
    """A random network with one output, and a ball."""

    weights: list[Array]
    biases: list[Array]
    center: Array
    radius: float

    @staticmethod
    def about(sizes: Sequence[int], radius: float, seed: int) -> Question:
        rng = np.random.default_rng(seed + 1000)
        biases = [0.5 * rng.standard_normal(n) for n in sizes[1:]]
        return Question(
            gaussian_weights(sizes, seed), biases, rng.standard_normal(sizes[0]), radius
        )

    @property
    def ball(self) -> lipopt.Ball:
        return lipopt.Ball(self.center, self.radius)

    @property
    def box(self) -> tuple[Array, Array]:
        return self.ball.bounds(len(self.center))

    def network(self, activation: str = "relu") -> Network:
        return lipopt.load(self.weights, biases=self.biases, activation=activation)


@dataclass(frozen=True)
class Answer:
    """Two bounds and the processor time that they took."""

    lower: float
    upper: float
    seconds: float

    @property
    def gap(self) -> float:
        return self.upper / self.lower - 1 if self.lower > 0 else float("inf")

    @property
    def is_done(self) -> bool:
        return self.gap <= GAP * 1.001

    def __str__(self) -> str:
        if self.is_done:
            return f"{self.seconds:.2f}"
        left = f"{self.gap:.0%}" if self.lower > 0 else "no lower bound"
        return f"> {self.seconds:.2g} ({left})"


# ---- who is asked


def branch(question: Question, limit: float) -> Answer:
    start = time.process_time()
    found = bound(question.network(), question.ball, limit)
    return Answer(found.lower, found.upper, time.process_time() - start)


def bound(
    network: Network,
    ball: lipopt.Ball,
    limit: float | None,
    norm: NormName = "linf",
    *,
    certify: bool = False,
) -> Result:
    return lipopt.bound(
        network,
        domain=ball,
        norm=norm,
        method="branch",
        gap=GAP,
        time_limit=limit,
        certify=certify,
    )


def program(question: Question, limit: float) -> Answer:
    start = time.process_time()
    found = local_constant(question.weights, question.biases, *question.box, GAP, limit)
    return Answer(found.lower, found.upper, time.process_time() - start)


def boxes(question: Question, limit: float) -> Answer:
    """The boxes with the largest bounds are halved, many at once, until all bounds are small."""
    start = time.process_time()
    end = time.perf_counter() + limit
    lower, upper = question.box
    low = lower[None, :]
    high = upper[None, :]
    best = gradient_norms(question, (low + high) / 2).max()
    bounds, widest = gradient_bounds(question, low, high)
    closed = 0.0  # the largest bound of boxes that need not be divided
    while True:
        is_small = bounds <= best * (1 + GAP)
        closed = max(closed, bounds[is_small].max(initial=0.0))
        low = low[~is_small]
        high = high[~is_small]
        bounds = bounds[~is_small]
        widest = widest[~is_small]
        is_late = time.perf_counter() > end or len(bounds) > MOST_BOXES
        if len(bounds) == 0 or is_late:
            highest = bounds.max(initial=closed)
            return Answer(float(best), float(highest), time.process_time() - start)
        count = min(BATCH, len(bounds))
        order = np.argpartition(-bounds, count - 1)
        chosen = order[:count]
        rest = order[count:]
        halves = divided(low[chosen], high[chosen], widest[chosen])
        best = max(best, gradient_norms(question, (halves[0] + halves[1]) / 2).max())
        found = gradient_bounds(question, *halves)
        low = np.concatenate([low[rest], halves[0]])
        high = np.concatenate([high[rest], halves[1]])
        bounds = np.concatenate([bounds[rest], found[0]])
        widest = np.concatenate([widest[rest], found[1]])


def divided(low: Array, high: Array, inputs: Array) -> tuple[Array, Array]:
    """Both halves of every box, cut across one of its inputs."""
    rows = np.arange(len(low))
    middle = (low[rows, inputs] + high[rows, inputs]) / 2
    left_high = high.copy()
    left_high[rows, inputs] = middle
    right_low = low.copy()
    right_low[rows, inputs] = middle
    return np.concatenate([low, right_low]), np.concatenate([left_high, high])


def gradient_bounds(question: Question, low: Array, high: Array) -> tuple[Array, Array]:
    """For every box, a bound on the gradient's 1-norm, and the input to cut."""
    width = high - low
    slopes = []
    for matrix, bias in zip(question.weights[:-1], question.biases[:-1], strict=True):
        low, high = interval_product(low, high, matrix.T)
        low = low + bias
        high = high + bias
        slopes.append(((low > 0).astype(float), (high > 0).astype(float)))
        low = np.maximum(low, 0)
        high = np.maximum(high, 0)
    least = np.repeat(question.weights[-1], len(low), axis=0)
    most = least
    for matrix, (off, on) in zip(reversed(question.weights[:-1]), reversed(slopes), strict=True):
        # A slope is between 0 and 1, and 1 where it cannot be 0.
        least = np.where(off > 0, least, np.minimum(least, 0) * on)
        most = np.where(off > 0, most, np.maximum(most, 0) * on)
        least, most = interval_product(least, most, matrix)
    sizes = np.maximum(-least, most)
    return sizes.sum(axis=1), (width * sizes).argmax(axis=1)


def interval_product(low: Array, high: Array, matrix: Array) -> tuple[Array, Array]:
    """The smallest and the largest values of x @ matrix."""
    rising = np.maximum(matrix, 0)
    falling = np.minimum(matrix, 0)
    return low @ rising + high @ falling, high @ rising + low @ falling


def gradient_norms(question: Question, points: Array) -> Array:
    """The 1-norm of the gradient at every row."""
    slopes = []
    x = points
    for matrix, bias in zip(question.weights[:-1], question.biases[:-1], strict=True):
        y = x @ matrix.T + bias
        slopes.append(y > 0)
        x = np.maximum(y, 0)
    gradient = np.repeat(question.weights[-1], len(points), axis=0)
    for matrix, is_on in zip(reversed(question.weights[:-1]), reversed(slopes), strict=True):
        gradient = (gradient * is_on) @ matrix
    return np.abs(gradient).sum(axis=1)


RIVALS: dict[str, Callable[[Question, float], Answer]] = {"program": program, "boxes": boxes}


def require_agreement(answers: Mapping[str, Answer]) -> None:
    """Raise RuntimeError unless one number can lie between all pairs of bounds."""
    highest = min(answer.upper for answer in answers.values())
    lowest = max(answer.lower for answer in answers.values())
    if lowest > highest * (1 + AGREEMENT):
        raise RuntimeError(f"bounds contradict each other: {dict(answers)!r}")


# ---- tables


def show(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def head(*cells: object) -> None:
    print(flush=True)
    show(*cells)
    show(*["---"] * len(cells))


def name_of(sizes: Sequence[int]) -> str:
    return "-".join(map(str, sizes))


def ratio(other: Answer, ours: Answer) -> str:
    """How many times as long another one took: more than that, or less, where one did not end."""
    value = f"{other.seconds / ours.seconds:.3g}"
    if other.is_done and ours.is_done:
        return value
    if ours.is_done:
        return f"> {value}"
    return f"< {value}" if other.is_done else "-"


def compare_rivals(radii: Sequence[float], seeds: Sequence[int], limit: float) -> None:
    """Every question to all three."""
    columns = ["network", "radius", "seed", "lower", "upper", "branch, s"]
    for name in RIVALS:
        columns += [f"{name}, s", "ratio"]
    head(*columns)
    totals = dict.fromkeys(["branch", *RIVALS], 0)
    for sizes in NETWORKS:
        for radius in radii:
            for seed in seeds:
                question = Question.about(sizes, radius, seed)
                ours = branch(question, limit)
                answers = {"branch": ours}
                row = [f"{ours.lower:.5g}", f"{ours.upper:.5g}", str(ours)]
                for name, ask in RIVALS.items():
                    other = ask(question, limit)
                    answers[name] = other
                    row += [str(other), ratio(other, ours)]
                require_agreement(answers)
                for name, answer in answers.items():
                    totals[name] += answer.is_done
                show(name_of(sizes), radius, seed, *row)
    count = len(NETWORKS) * len(radii) * len(seeds)
    print(f"\nSolved of {count}: " + ", ".join(f"{name} {k}" for name, k in totals.items()))


def compare_sizes(widths: Sequence[int], limit: float) -> None:
    """5-n-n-1 in a ball of radius .3: who did not finish is not asked about wider ones."""
    asked: dict[str, Callable[[Question, float], Answer]] = {"branch": branch, **RIVALS}
    head("network", *(f"{name}, s" for name in asked))
    late: set[str] = set()
    for n in widths:
        question = Question.about((5, n, n, 1), 0.3, 0)
        answers: dict[str, Answer] = {}
        for name, ask in asked.items():
            if name not in late:
                answers[name] = ask(question, limit)
        if not answers:
            return
        require_agreement(answers)
        show(name_of((5, n, n, 1)), *(answers.get(name, "") for name in asked))
        late |= {name for name, answer in answers.items() if not answer.is_done}


def ask_others(radii: Sequence[float], limit: float) -> None:
    """Smooth activations, a convolution, other norms: branch and bound alone."""
    head(*COLUMNS)
    for sizes in NETWORKS[-2:]:
        for radius in radii:
            question = Question.about(sizes, radius, 0)
            for kind in SMOOTH:
                show_other(
                    f"{name_of(sizes)}, {kind}", question.network(kind), question.ball, limit
                )
            for norm in ("l2", "l1"):
                show_other(name_of(sizes), question.network(), question.ball, limit, norm)
    convolution = make_network("convolution", "relu", 0)
    for radius in radii:
        center = np.random.default_rng(0).standard_normal(convolution.input_size)
        show_other("convolution, 12 inputs", convolution, lipopt.Ball(center, radius), limit)


def ask_hard(limit: float) -> None:
    """Questions whose gap does not close in seconds: branch and bound alone."""
    head(*COLUMNS)
    for sizes, kind, radius in HARD:
        question = Question.about(sizes, radius, 0)
        show_other(f"{name_of(sizes)}, {kind}", question.network(kind), question.ball, limit)


def compare_few_inputs(limit: float) -> None:
    """Networks with few inputs and kinks in large balls, to branch and bound and to input boxes."""
    head("network", "radius", "branch, s", "boxes, s", "ratio")
    for sizes in FEW_INPUTS:
        for radius in (1.0, 10.0):
            question = Question.about(sizes, radius, 0)
            answers = {"branch": branch(question, limit), "boxes": boxes(question, limit)}
            require_agreement(answers)
            show(
                name_of(sizes),
                radius,
                *answers.values(),
                ratio(answers["boxes"], answers["branch"]),
            )


def compare_smooth(limit: float) -> None:
    """Smooth networks with few inputs, with the curvature of boxes and without; and what lipcheck
    takes for the certificate of the first, with python-flint and with the standard library alone."""
    columns = ["network", "radius", "lower", "upper", "boxes", "with, s", "lipcheck, s", "alone, s"]
    head(*columns, "upper", "cells", "without, s")
    for sizes, kind, radius in SMOOTH_FEW_INPUTS:
        question = Question.about(sizes, radius, 0)
        network = question.network(kind)
        row: list[object] = []
        answers = {}
        for is_known in (True, False):
            with patch("lipopt.methods.branch.choose.can_bend", lambda network, k=is_known: k):
                start = time.process_time()
                found = bound(network, question.ball, limit, certify=is_known)
            answer = Answer(found.lower, found.upper, time.process_time() - start)
            answers[str(is_known)] = answer
            row += [f"{found.upper:.5g}", found.details["cells"], answer]
            if is_known:
                for flags in ((), ("-I", "-S")):  # with what is installed, and without
                    _, seconds = check(network, found, *flags)
                    row.append(f"{seconds:.2f}")
        require_agreement(answers)
        lower = max(answer.lower for answer in answers.values())
        show(f"{name_of(sizes)}, {kind}", radius, f"{lower:.5g}", *row)


def show_other(
    name: str, network: Network, ball: lipopt.Ball, limit: float, norm: NormName = "linf"
) -> None:
    start = time.process_time()
    found = bound(network, ball, limit, norm)
    answer = Answer(found.lower, found.upper, time.process_time() - start)
    cells = found.details["cells"]
    show(name, norm, ball.radius, f"{found.lower:.5g}", f"{found.upper:.5g}", cells, answer)


# ---- a network from a file


def ask_about(options: argparse.Namespace) -> None:
    """Branch and bound on a network from a file, with a certificate that lipcheck checks."""
    network = lipopt.load(options.model)
    center = np.zeros(network.input_size)
    if options.center is not None:
        center = read_array(options.center).reshape(-1)
    start = time.perf_counter()
    found = lipopt.bound(
        network,
        domain=lipopt.Ball(center, options.radius),
        output=options.output,
        method="branch",
        gap=options.gap,
        time_limit=options.limit,
        jobs=options.jobs,
        certify=True,
    )
    seconds = time.perf_counter() - start
    assert found.certificate is not None
    size = f"{len(found.certificate.text) / 1e6:.2f} MB"
    verdict, checking = check(network, found)
    head("lower", "upper", "gap", "cells", "s", "status", "certificate", "lipcheck, s", "verdict")
    gap = Answer(found.lower, found.upper, seconds).gap
    cells = found.details["cells"]
    bounds = [f"{found.lower:.6g}", f"{found.upper:.6g}", f"{gap:.2%}"]
    show(*bounds, cells, f"{seconds:.1f}", found.status, size, f"{checking:.1f}", verdict)


def check(network: Network, found: Result, *flags: str) -> tuple[str, float]:
    """What lipcheck says, in an interpreter with these flags, and its processor seconds."""
    source = Path(lipopt.__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / "network"), str(Path(folder) / "certificate")]
        network.save(paths[0])
        found.save(paths[1])
        command = [sys.executable, *flags, str(source / "lipcheck"), *paths]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        verdict = process.stdout.read().split(":")[0]
        _, _, usage = os.wait4(process.pid, 0)
    return verdict, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer questions, a limit of 1 s")
    parser.add_argument(
        "--table",
        choices=["rivals", "sizes", "others", "hard", "few", "smooth"],
        help="one of them only",
    )
    parser.add_argument("--limit", type=float, help="seconds for each answer; 5 if not given")
    parser.add_argument("--model", help="a network from a file, instead of the tables")
    parser.add_argument("--center", help="of the ball: .npy, .csv or .txt; 0 if not given")
    parser.add_argument("--output", type=int, default=0)
    parser.add_argument("--radius", type=float, default=0.01)
    parser.add_argument("--gap", type=float, default=GAP, help="with --model")
    parser.add_argument("--jobs", type=int, default=1, help="with --model")
    options = parser.parse_args()
    if options.model is not None:
        ask_about(options)
        return
    limit = options.limit or (1.0 if options.quick else 5.0)
    bound(Question.about((2, 3, 1), 1.0, 0).network(), lipopt.Ball([0.0, 0.0], 1.0), limit)
    print(f"A limit of {limit:g} s for each answer. Imports were done before.")
    if options.table in (None, "rivals"):
        radii = (0.1, 1.0) if options.quick else RADII
        compare_rivals(radii, SEEDS[:1] if options.quick else SEEDS, limit)
    if options.table in (None, "sizes"):
        compare_sizes(WIDTHS[:3] if options.quick else WIDTHS, limit)
    if options.table in (None, "others"):
        ask_others((0.1,) if options.quick else (0.1, 1.0), limit)
    if options.table in (None, "hard"):
        ask_hard(limit)
    if options.table in (None, "few"):
        compare_few_inputs(limit)
    if options.table in (None, "smooth"):
        compare_smooth(limit)


if __name__ == "__main__":
    main()
