"""Who does the work of a round: this process, or several."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from typing import TypeAlias

from ...numerics.blas import arithmetic
from ...problem.interruption import Interruption
from .expand import Expander, Outcome

# Cells and the target of their bounds in, the parts of each cell out; None: not divided.
Work: TypeAlias = Callable[[Sequence[Outcome], float, Interruption], list[list[Outcome] | None]]

# Cells of a round are divided in bundles: the SDPs of their parts are solved as one batch, in less
# than half of the time. What is found depends on the size of a bundle, but not on who does the work.
BUNDLES = 4  # of a round, so that several processes have something to do,
LARGEST_BUNDLE = 16  # unless bundles get larger than this
LARGEST_BUNDLE_OF_BOXES = 64  # the same for boxes, which are examined together
LOOK_FOR_CTRL_C = 0.1  # seconds between two looks, while processes work

_expander: Expander | None = None  # of a worker process


@contextmanager
def workers(expander: Expander, jobs: int) -> Iterator[Work]:
    """A function that divides the cells of a round, each by itself."""
    largest = LARGEST_BUNDLE_OF_BOXES if expander.has_boxes else LARGEST_BUNDLE
    if jobs == 1:

        def one_by_one(
            cells: Sequence[Outcome], target: float, interruption: Interruption
        ) -> list[list[Outcome] | None]:
            found: list[list[Outcome] | None] = []
            for together in _bundles(cells, largest):
                left: list[list[Outcome] | None] = [None] * len(together)
                found += left if interruption.has_come else expander(together, target)
            return found

        yield one_by_one
        return
    from joblib.externals.loky import ProcessPoolExecutor

    pool = ProcessPoolExecutor(jobs, initializer=_begin, initargs=(expander,))

    def together(
        cells: Sequence[Outcome], target: float, interruption: Interruption
    ) -> list[list[Outcome] | None]:
        bundles = _bundles(cells, largest)
        futures = [pool.submit(_expand, bundle, target) for bundle in bundles]
        found: list[list[Outcome] | None] = []
        for bundle, future in zip(bundles, futures, strict=True):
            while not (future.done() or interruption.has_come):
                wait([future], timeout=LOOK_FOR_CTRL_C)
            found += future.result() if future.done() else [None] * len(bundle)
        return found

    try:
        yield together
    finally:
        pool.shutdown(kill_workers=True)


def _begin(expander: Expander) -> None:
    """Get ready in a worker: Ctrl-C is for the process that the user started."""
    global _expander
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _expander = expander


def _expand(outcomes: Sequence[Outcome], target: float) -> list[list[Outcome] | None]:
    assert _expander is not None
    with arithmetic(1):
        return _expander(outcomes, target)


def _bundles(cells: Sequence[Outcome], largest: int) -> list[Sequence[Outcome]]:
    """Cells that are divided together, whoever does it."""
    size = min(largest, -(-len(cells) // BUNDLES))
    return [cells[k : k + size] for k in range(0, len(cells), size)]
