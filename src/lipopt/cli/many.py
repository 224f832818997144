"""Commands about many points: the options that they share, and how their rows are solved and shown."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from ..errors import LipoptError
from ..progress import rows_progress
from .options import STANDARD_OUTPUT, JsonOption, check_writable, pair

if TYPE_CHECKING:
    from rich.console import Console

    from ..batch.results_file import AnyRow
    from ..batch.run import Run
    from ..numerics.arrays import Array

MOST_ROWS = 40  # that are shown one by one

RadiusOption: TypeAlias = Annotated[
    str, typer.Option("--radius", metavar="R[,R...]", help="radii of the balls")
]


@dataclass(frozen=True)
class Data:
    """The options that say which points are meant."""

    data: Annotated[
        Path, typer.Option("--data", help="points: .npy, .npz, .csv, .txt or idx file, also .gz")
    ]
    labels: Annotated[
        Path | None, typer.Option("--labels", help="labels", show_default="the network's classes")
    ] = None
    divide: Annotated[
        float, typer.Option("--divide", help="divide the data by this, 255 for bytes")
    ] = 1.0
    points: Annotated[
        str | None, typer.Option("--points", metavar="FROM:TO", help="these points only, from 0")
    ] = None

    def read_points(self) -> Array:
        """All points of the file."""
        from ..readers.points import read_points

        return read_points(self.data, self.divide)

    def read_labels(self) -> Array | None:
        """All labels of their file, if one is given."""
        from ..readers.points import read_labels

        return None if self.labels is None else read_labels(self.labels)

    def only(self, count: int) -> slice:
        """Which of so many points are asked for."""
        if self.points is None:
            return slice(None)
        start, stop = pair(self.points, "--points", _number_or_none, ":")
        first = start or 0
        end = count if stop is None else stop
        if not 0 <= first < end <= count:
            raise LipoptError(f"there are no points {self.points}: the data has {count}")
        return slice(start, stop)


@dataclass(frozen=True)
class Where:
    """The options that say who solves the rows."""

    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", help="processes", show_default="one per core, one with --device"
        ),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="ADDRESS", help="Dask scheduler, tcp://host:8786"),
    ] = None

    def number_of_jobs(self, device: str | None) -> int:
        """The processes that were asked for; by default one a core, but only one for a device."""
        from joblib import cpu_count

        if self.jobs is not None:
            return self.jobs
        return 1 if device else int(cpu_count())


@dataclass(frozen=True)
class Output:
    """The options that say where the rows go, and what is shown."""

    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            "-o",
            help="file for the rows, JSON Lines; - for standard output",
            show_default="no file",
        ),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with the file of a run that ended early")
    ] = False
    plot: Annotated[Path | None, typer.Option("--plot", help="picture, such as .png")] = None
    as_json: JsonOption = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress, no table")] = False

    def check(self, model: Path) -> None:
        """Refuse a picture that could not be drawn in the end, or what goes with a file alone."""
        from ..show.histograms import check_picture

        if self.results is None and self.resume:
            raise LipoptError("--resume goes on with a file of rows: name it with -o")
        if self.results == STANDARD_OUTPUT and (self.resume or self.plot or self.as_json):
            raise LipoptError("--resume, --plot and --json go with a file for the rows, not with -")
        if self.plot is None:
            return
        check_picture(self.plot)
        check_writable(self.plot, model)
        if self.results is not None and self.plot.resolve() == self.results.resolve():
            raise LipoptError(f"{self.plot} cannot be both the picture and the file for the rows")


def solve(run: Run, where: Where, device: str | None, output: Output) -> Iterable[AnyRow] | None:
    """The rows of a run, from its file if it has one; None if they were printed as they came."""
    from ..batch.engines import engine
    from ..batch.results_file import read_rows

    with (
        _ended_like_ctrl_c(output),
        engine(where.number_of_jobs(device), where.cluster) as chosen,
        rows_progress(output.quiet) as progress,
    ):
        if output.results is None:
            return run.rows(chosen, None, resume=False, progress=progress)
        if output.results == STANDARD_OUTPUT:
            _print_rows(run.solve(chosen, progress=progress))
            return None
        run.write(output.results, chosen, output.resume, progress)
    return read_rows(output.results)


def show(
    output: Output,
    rows: Iterable[AnyRow],
    summarize: Callable[[Iterable[Any]], Any],
    draw: Callable[[Any, Path], None],
    show_summary: Callable[[Console, Any], None],
) -> None:
    """Show what a run found; exit code 1 if some rows have no answer.

    Rows that are in no file are in the JSON, and a few are shown one by one."""
    from ..show import tables

    summary = summarize(rows)
    if output.plot is not None:
        draw(summary, output.plot)
    if output.as_json:
        numbers = json.loads(summary.to_json())
        if isinstance(rows, list):  # they are in no file
            numbers["rows"] = [asdict(row) for row in rows]
        print(json.dumps(numbers))
    elif not output.quiet:
        console = tables.console()
        if isinstance(rows, list) and len(rows) <= MOST_ROWS:
            console.print(tables.rows_table(console, rows))
        show_summary(console, summary)
    if summary.failed:
        raise typer.Exit(1)


def _print_rows(chunks: Iterable[Sequence[AnyRow]]) -> None:
    """Print rows as they come; exit code 1 if some have no answer."""
    from ..batch.results_file import row_line

    failed = 0
    for rows in chunks:
        for row in rows:
            print(row_line(row), end="", flush=True)
            failed += row.error is not None
    if failed:
        raise typer.Exit(1)


@contextmanager
def _ended_like_ctrl_c(output: Output) -> Iterator[None]:
    """Exit code 130 on Ctrl-C. SIGTERM does the same as Ctrl-C, so that no worker is left."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        advice = "with -o FILE, a run can be resumed"
        if output.results not in (None, STANDARD_OUTPUT):
            advice = "the same command with --resume goes on"
        print(f"lipopt: interrupted; {advice}", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _number_or_none(text: str) -> int | None:
    """An end of --points FROM:TO, which may be left out."""
    return int(text) if text else None
