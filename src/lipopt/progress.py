"""Progress, where somebody can see it.

One question shows a bar with a message on a terminal or in a notebook, and nothing elsewhere. A run
of many rows shows a bar there too, and elsewhere a line a minute on standard error.

What else is printed while a bar is shown must go to the console of that bar: two writers on the
same lines of a terminal overwrite each other.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn

Progress: TypeAlias = Callable[..., None]  # progress(message, fraction=None)
RowsProgress: TypeAlias = Callable[[int, int, int], None]  # of rows: done, failed, all

EVERY = 60.0  # seconds between lines
NOTEBOOK_EVERY = 0.2  # seconds between pictures of a bar in a notebook
SPEED_SECONDS = 600.0  # over which the speed of a run is averaged: rows differ much in their time


def progress_as_asked(progress: Progress | bool | None) -> AbstractContextManager[Progress | None]:
    """The function that a caller gave; True stands for a bar."""
    if isinstance(progress, bool):
        return message_progress(not progress)
    return nullcontext(progress)


def rows_progress_as_asked(
    progress: RowsProgress | bool | None,
) -> AbstractContextManager[RowsProgress | None]:
    """The same for a run of many rows."""
    if isinstance(progress, bool):
        return rows_progress(not progress)
    return nullcontext(progress)


@contextmanager
def message_progress(hidden: bool, console: Console | None = None) -> Iterator[Progress | None]:
    """A function progress(message, fraction=None) that shows a bar; None if nothing is shown."""
    place = None if hidden else _place_of_bars(console)
    if place is None:
        yield None
        return
    if place.is_jupyter:
        with _NotebookBar() as notebook:
            yield notebook.show
        return
    from rich.progress import BarColumn, TextColumn

    with _bar(place, TextColumn("{task.description}"), BarColumn(), _clock()) as bar:
        task = bar.add_task("reading", total=None)

        def show(message: str, fraction: float | None = None) -> None:
            total = None if fraction is None else 1.0
            bar.update(task, description=message, total=total, completed=fraction or 0.0)

        yield show


@contextmanager
def rows_progress(hidden: bool, console: Console | None = None) -> Iterator[RowsProgress | None]:
    """A function progress(done, failed, total) of numbers of rows; None if nothing is shown."""
    if hidden:
        yield None
        return
    place = _place_of_bars(console)
    if place is None:
        yield _Lines()
        return
    if place.is_jupyter:
        with _NotebookBar() as notebook:
            yield notebook.show_rows
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("solving"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with _bar(place, *columns) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, failed: int, total: int) -> None:
            speed = bar.tasks[0].speed
            rate = f", {speed:.3g} a second" if speed else ""
            bar.update(task, description=f"{failed} failed{rate}", total=total, completed=done)

        yield show


def _place_of_bars(console: Console | None) -> Console | None:
    """The console of the tables if it is a terminal or a notebook, else standard error if that is
    a terminal."""
    from rich.console import Console

    for place in (console or Console(), Console(stderr=True)):
        if place.is_terminal or place.is_jupyter:
            return place
    return None


def _bar(place: Console, *columns: ProgressColumn) -> Bar:
    """A bar that is gone when it is done."""
    from rich.progress import Progress as Bar

    return Bar(*columns, console=place, transient=True, speed_estimate_period=SPEED_SECONDS)


def _clock() -> ProgressColumn:
    """The time since the bar appeared.

    Rich's own clock stops when a task is done, and every step of a bound is a task that ends."""
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Clock(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(str(timedelta(seconds=int(task.elapsed or 0.0))))

    return Clock()


class _NotebookBar:
    """A bar in a notebook that is gone when it is done. No widgets are needed."""

    def __enter__(self) -> _NotebookBar:
        from IPython.display import HTML, display

        self._html = HTML
        self._place = display(HTML(""), display_id=True)
        self._start = time.monotonic()
        self._last = 0.0  # when it was drawn
        return self

    def __exit__(self, *error: object) -> None:
        self._place.update(self._html(""))

    def show(self, message: str, fraction: float | None = None) -> None:
        """Draw the bar, unless that has been done just now."""
        now = time.monotonic()
        if now - self._last < NOTEBOOK_EVERY:
            return
        self._last = now
        value = "" if fraction is None else f' value="{fraction:.3f}"'
        clock = timedelta(seconds=int(now - self._start))
        text = f"<progress{value}></progress> {escape(message)} {clock}"
        self._place.update(self._html(text))

    def show_rows(self, done: int, failed: int, total: int) -> None:
        """The same for rows."""
        self.show(f"{done} of {total} done, {failed} failed", done / max(total, 1))


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
