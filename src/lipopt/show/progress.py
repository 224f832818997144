"""Progress on standard error.

One question shows a bar with a message, if that is a terminal. A run of many rows shows a bar on a
terminal, and elsewhere a line every minute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EVERY = 60.0  # seconds between lines
SPEED_SECONDS = 600.0  # over which the speed of a run is averaged: rows differ much in their time


@contextmanager
def message_progress(hidden: bool) -> Iterator[Any]:
    """A function progress(message, fraction=None) that shows a bar; None if nothing is shown."""
    if hidden or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def show(message: str, fraction: float | None = None) -> None:
            total = None if fraction is None else 1.0
            bar.update(task, description=message, total=total, completed=fraction or 0.0)

        yield show


@contextmanager
def rows_progress(hidden: bool) -> Iterator[Callable[[int, int, int], None] | None]:
    """A function progress(done, failed, total) of numbers of rows; None if nothing is shown."""
    if hidden:
        yield None
    elif not sys.stderr.isatty():
        yield _Lines()
    else:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (
            "solving",
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            "left",
            TimeRemainingColumn(),
        )
        console = Console(stderr=True)
        with Progress(*columns, console=console, speed_estimate_period=SPEED_SECONDS) as bar:
            task = bar.add_task("", total=None)

            def show(done: int, failed: int, total: int) -> None:
                speed = bar.tasks[0].speed
                rate = f", {speed:.3g} a second" if speed else ""
                bar.update(task, description=f"{failed} failed{rate}", total=total, completed=done)

            yield show


class _Lines:
    """Progress as lines of text, no more than one every minute."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last = self._start  # when the last line was printed
        self._first: int | None = None  # rows that were done before this run

    def __call__(self, done: int, failed: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = done
        if now - self._last < EVERY:
            return
        self._last = now
        rate = (done - self._first) / (now - self._start)
        left = f"{(total - done) / rate / 60:.0f} min left" if rate else "time left unknown"
        print(
            f"lipopt: {done} of {total} done, {failed} failed, {rate:.3g} a second, {left}",
            file=sys.stderr,
            flush=True,
        )
