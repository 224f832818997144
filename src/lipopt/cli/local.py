"""The command about many points: local."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import LipoptError
from ..progress import rows_progress
from .options import (
    STANDARD_OUTPUT,
    BallNormOption,
    ClipOption,
    JsonOption,
    MethodOption,
    NormName,
    NormOption,
    Reading,
    SeedOption,
    TimeOption,
    check_writable,
    command,
    numbers,
    pair,
    read_clip,
)

if TYPE_CHECKING:
    from ..batch.rows import Ask, Row
    from ..methods.registry import Method
    from ..numerics.arrays import Array


class MarginsName(StrEnum):
    """Which margins, for the help text."""

    all = "all"
    runner_up = "runner-up"


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
class Asked:
    """The options that say what is asked about every point."""

    radius: Annotated[
        str | None, typer.Option("--radius", metavar="R[,R...]", help="radii of the balls")
    ] = None
    entry: Annotated[
        int | None,
        typer.Option("--entry", "-k", help="this entry of the output only", show_default="each"),
    ] = None
    margins: Annotated[
        MarginsName | None, typer.Option("--margins", help="bound the label's margins instead")
    ] = None
    certify: Annotated[
        bool, typer.Option("--certify", help="no tighter than it takes to certify the margins")
    ] = False
    certified_radius: Annotated[
        bool,
        typer.Option(
            "--certified-radius", help="search the certified radius, up to 1 or the width of --clip"
        ),
    ] = False
    norm: NormOption = NormName.linf
    ball_norm: BallNormOption = NormName.linf
    clip: ClipOption = None

    def options(self) -> dict[str, Any]:
        """As arguments of `Ask.of`."""
        return {
            "radius": numbers(self.radius or "", "--radius"),
            "output": self.entry,
            "margins": None if self.margins is None else self.margins.value,
            "certify": self.certify,
            "certified_radius": self.certified_radius,
            "norm": self.norm.value,
            "ball_norm": self.ball_norm.value,
            "clip": read_clip(self.clip),
        }


@dataclass(frozen=True)
class Solving:
    """The options that say how every row is solved."""

    method: MethodOption = "sdp"
    gap: Annotated[
        float | None, typer.Option("--gap", help="relative gap of the SDP", show_default="0.001")
    ] = None
    device: Annotated[
        str | None, typer.Option("--device", help="torch device for the SDP, such as cuda")
    ] = None
    time_limit: TimeOption = None
    seed: SeedOption = 0
    samples: Annotated[int, typer.Option("--samples", help="random points for the lower bound")] = (
        200
    )
    certificates: Annotated[
        Path | None, typer.Option("--certificates", help="folder for a certificate of every row")
    ] = None

    def options(self) -> dict[str, Any]:
        """As arguments of `Ask.of`."""
        return {
            "method": self._find_method(),
            "time_limit": self.time_limit,
            "seed": self.seed,
            "samples": self.samples,
            "certificates": self.certificates,
        }

    def _find_method(self) -> Method:
        """The method with its settings; by its name alone, the SDP is that of `local_bounds`."""
        from ..batch.run import METHOD
        from ..methods.registry import find_method

        settings: dict[str, Any] = {}
        if self.gap is not None:
            settings["gap"] = self.gap
        if self.device is not None:
            settings["device"] = self.device
        return find_method(METHOD if self.method == METHOD.name else self.method, **settings)


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
        Path,
        typer.Option(
            "--results", "-o", help="file for the rows, JSON Lines; - for standard output"
        ),
    ]
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with the file of a run that ended early")
    ] = False
    plot: Annotated[
        Path | None, typer.Option("--plot", help="picture of the histograms, such as .png")
    ] = None
    as_json: JsonOption = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress, no table")] = False

    def check(self, model: Path) -> None:
        """Refuse a picture that could not be drawn in the end, or what goes with a file alone."""
        from ..show.histograms import check_picture

        if self.results == STANDARD_OUTPUT and (self.resume or self.plot or self.as_json):
            raise LipoptError("--resume, --plot and --json go with a file for the rows, not with -")
        if self.plot is None:
            return
        check_picture(self.plot)
        check_writable(self.plot, model)
        if self.plot.resolve() == self.results.resolve():
            raise LipoptError(f"{self.plot} cannot be both the picture and the file for the rows")


@command(Reading, Data, Asked, Solving, Where, Output)
def local(
    reading: Reading, data: Data, asked: Asked, solving: Solving, where: Where, output: Output
) -> None:
    """Bound local constants at many points, on this machine or a cluster, and say how many points
    are certified."""
    from ..batch.engines import engine
    from ..batch.run import Run

    output.check(reading.model)
    network = reading.network
    points = data.read_points()
    only = data.only(len(points))
    ask = _ask(asked, solving)
    run = Run.about(
        network, points, ask, labels=data.read_labels(), only=only, resume=output.resume
    )
    with (
        _ended_like_ctrl_c(),
        engine(where.number_of_jobs(solving.device), where.cluster) as chosen,
        rows_progress(output.quiet) as progress,
    ):
        if output.results == STANDARD_OUTPUT:
            _print_rows(run.solve(chosen, progress=progress))
            return
        run.write(output.results, chosen, output.resume, progress)
    _show(output, network.output_size)


def _print_rows(chunks: Iterable[Sequence[Row]]) -> None:
    """Print rows as they come; exit code 1 if some have no answer."""
    from ..batch.results_file import row_line

    failed = 0
    for rows in chunks:
        for row in rows:
            print(row_line(row), end="", flush=True)
            failed += row.error is not None
    if failed:
        raise typer.Exit(1)


def _ask(asked: Asked, solving: Solving) -> Ask:
    from ..batch.rows import Ask

    return Ask.of(**asked.options(), **solving.options())


@contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Exit code 130 on Ctrl-C. SIGTERM does the same as Ctrl-C, so that no worker is left."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        print("lipopt: interrupted; the same command with --resume goes on", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(output: Output, outputs: int) -> None:
    """Show what is in the results file; exit code 1 if some rows have no answer."""
    from ..batch.results_file import read_rows
    from ..batch.summary import summarize
    from ..show import tables
    from ..show.histograms import draw

    summary = summarize(read_rows(output.results), outputs)
    if output.plot is not None:
        draw(summary, output.plot)
    if output.as_json:
        print(summary.to_json())
    elif not output.quiet:
        tables.show_summary(tables.console(), summary)
    if summary.failed:
        raise typer.Exit(1)


def _number_or_none(text: str) -> int | None:
    """An end of --points FROM:TO, which may be left out."""
    return int(text) if text else None
