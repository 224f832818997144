"""The progress of a long run on standard error: a bar on a terminal, elsewhere a line a minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 60.0  # seconds between lines


@contextmanager
def rows_progress(hidden: bool) -> Iterator[Callable[[int, int, int], None] | None]:
    """A function progress(done, failed, total)."""
    if hidden:
        yield None
    elif not sys.stderr.isatty():
        yield _Lines()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = "solving", BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), "left", TimeRemainingColumn()
        with Progress(*columns, console=Console(stderr=True), speed_estimate_period=600) as bar:
            task = bar.add_task("", total=None)

            def show(done: int, failed: int, total: int) -> None:
                speed = bar.tasks[0].speed
                rate = f", {speed:.3g} a second" if speed else ""
                bar.update(task, description=f"{failed} failed{rate}", total=total, completed=done)

            yield show


class _Lines:
    def __init__(self) -> None:
        self._start = self._last = time.monotonic()
        self._first: int | None = None

    def __call__(self, done: int, failed: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = done
        if now - self._last < EVERY:
            return
        self._last = now
        rate = (done - self._first) / (now - self._start)
        left = f"{(total - done) / rate / 60:.0f} min left" if rate else "time left unknown"
        print(f"lipopt: {done} of {total} done, {failed} failed, {rate:.3g} a second, {left}", file=sys.stderr, flush=True)
