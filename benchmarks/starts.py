"""What one SDP can tell the next one: its vectors, to start from.

    python benchmarks/starts.py

The pruned MNIST network: nine margins of five digits in balls of three radii.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import lipopt.batch.answers
from lipopt.batch.answers import Memories, answers, new_memories
from lipopt.batch.rows import Ask, Point, Target
from lipopt.batch.run import METHOD
from lipopt.examples import digits, example
from lipopt.methods.sdp.vector_network import VectorNetwork
from lipopt.numerics.blas import one_blas_thread
from lipopt.problem.task import Memory

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


if __name__ == "__main__":
    with one_blas_thread():
        vectors()
