"""How long a proof takes to be written down: where time is limited, a search leaves that much.

A tree is written now and then while it grows, and what comes of it is thrown away; but for each cell
of a larger tree, the time is about the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ...errors import LipoptError

FIRST_CELLS = 8  # of the smallest tree that is written
GROWTH = 4  # by how much a tree is larger than the one before: all of them take little of the time


@dataclass(eq=False)
class Writing:
    """What is known of it."""

    write: (
        Callable[[], object] | None
    )  # the tree as it stands; None if it need not be written in time
    cells: int = 0  # of the last tree that was written
    seconds: float = 0.0  # that it took

    def seconds_for(self, cells: int) -> float:
        """For a tree of so many cells."""
        return self.seconds * cells / max(1, self.cells)

    def try_out(self, cells: int) -> None:
        """Write the tree of so many cells, if it is much larger than the last one."""
        if self.write is None or cells < max(FIRST_CELLS, GROWTH * self.cells):
            return
        start = time.monotonic()
        with suppress(LipoptError):  # it says so when it is written in earnest
            self.write()
        self.seconds = time.monotonic() - start
        self.cells = cells
