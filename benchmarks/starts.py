"""What one SDP can tell the next one: its vectors, to start from, and its multipliers, which prove bounds of other margins too.

    python benchmarks/starts.py

The pruned MNIST network: nine margins of five digits in balls of three radii.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

import lipopt.batch.answers
from lipopt.batch.answers import answers
from lipopt.batch.balls import Memories, new_memories
from lipopt.batch.rows import Ask, Point, Target
from lipopt.batch.run import METHOD
from lipopt.examples import digits, example
from lipopt.methods.sdp.backend import backend
from lipopt.methods.sdp.dual import Dual
from lipopt.methods.sdp.method import SDP
from lipopt.methods.sdp.vector_network import VectorNetwork
from lipopt.model.domain import Ball
from lipopt.model.norms import Norm
from lipopt.numerics.blas import one_blas_thread
from lipopt.problem.derivative import DerivativeProblem
from lipopt.problem.presolve import slopes_from_zero, split_rows
from lipopt.problem.question import Question, output_matrix, pose
from lipopt.problem.task import Memory, Task

RANK, GAP = 16, 1e-3


def no_memory(targets: Sequence[Target]) -> dict[Target, None]:
    return {target: None for target in targets}


def one_memory(targets: Sequence[Target]) -> Memories:
    memory = Memory()
    return {target: memory for target in targets}


def counted(counts: Counter[str], name: str) -> Callable[..., Any]:
    method = getattr(VectorNetwork, name)

    def count(*arguments: Any) -> Any:
        counts[name] += 1
        return method(*arguments)

    return count


def vectors() -> None:
    network, (images, labels) = example("pruned"), digits()
    points = [Point(k, images[k], int(labels[k])) for k in range(5)]
    ask = Ask((0.01, 0.015, 0.02), METHOD, margins="all", clip=(0.0, 1.0))
    jobs: dict[str, Callable[[], object]] = {
        "three radii": lambda: answers(network, ask, points),
    }
    starts = {
        "random": no_memory,
        "the last radius": new_memories,
        "the last problem, mostly of another margin": one_memory,
    }
    counts: Counter[str] = Counter()
    for name in ("evaluate", "ascend"):
        setattr(VectorNetwork, name, counted(counts, name))
    for job, run in jobs.items():
        for name, memories in starts.items():
            setattr(lipopt.batch.answers, "new_memories", memories)  # noqa: B010
            counts.clear()
            start = time.process_time()
            run()
            seconds = time.process_time() - start
            found = f"{counts['evaluate']} evaluations, {counts['ascend']} ascents, {seconds:.1f} s"
            print(f"{job}, vectors from {name}: {found}", flush=True)


def problems() -> Iterator[DerivativeProblem]:
    """For three digits the presolved problem of their nine margins in balls of radius 0.01."""
    network, (images, labels) = example("pruned"), digits()
    for x, label in zip(images[:3], labels[:3], strict=True):
        rows = [output_matrix(network, 0, (int(label), k)) for k in range(10) if k != label]
        ball = Ball(x, 0.01, (0.0, 1.0))
        question = Question(Norm.LINF, sp.csr_array(sp.vstack(rows)), ball)
        yield slopes_from_zero(pose(network, question).problem)


def multipliers() -> None:
    ratios: dict[str, list[float]] = {"of another margin": [], "for all margins": []}
    for whole in problems():
        margins, rows = split_rows(whole), Dual.of([whole], backend(None), every_row=True)
        own = np.array([SDP(gap=GAP)(Task(problem, problem)).value for problem in margins])
        shared = SDP().every_row(Task(whole, whole), 1 / own) or []
        ratios["for all margins"] += [
            bound.value / best for bound, best in zip(shared, own, strict=True)
        ]
        first = replace(whole, objective={s: m[[0], :] for s, m in whole.objective.items()})
        search = VectorNetwork.of([first], backend(None))
        state = search.evaluate(search.power(search.start(RANK, 0), 30))
        (hint,) = Dual.of([first], backend(None)).fit(
            search.rows(state), search.vectors(state), np.array([GAP])
        )
        if hint is not None:
            ratios["of another margin"] += list((np.sqrt(rows.squares_of_rows(hint)) / own)[1:])
    for name, found in ratios.items():
        low, high, usual = np.min(found), np.max(found), np.median(found)
        print(
            f"bounds by multipliers {name}: {low:.2f} to {high:.2f} times a margin's own, median {usual:.2f}"
        )


if __name__ == "__main__":
    with one_blas_thread():
        vectors()
        multipliers()
