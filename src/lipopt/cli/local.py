"""The command about constants at many points: local."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .many import Data, Output, RadiusOption, Where, show, solve
from .options import (
    METHODS,
    BallNormOption,
    ClipOption,
    NormName,
    NormOption,
    Reading,
    RowTimeOption,
    ScaleOption,
    SeedOption,
    command,
    numbers,
    read_clip,
    read_scale,
)

if TYPE_CHECKING:
    from ..batch.rows import Ask
    from ..methods.registry import Method


class MarginsName(StrEnum):
    """Which margins, for the help text."""

    all = "all"
    runner_up = "runner-up"


@dataclass(frozen=True)
class Asked:
    """The options that say what is asked about every point."""

    radius: RadiusOption
    output: Annotated[
        int | None,
        typer.Option("--output", "-k", metavar="K", help="this output only", show_default="each"),
    ] = None
    margins: Annotated[
        MarginsName | None, typer.Option("--margins", help="bound the label's margins instead")
    ] = None
    norm: NormOption = NormName.linf
    ball_norm: BallNormOption = NormName.linf
    scale: ScaleOption = None
    clip: ClipOption = None

    def options(self) -> dict[str, Any]:
        """As arguments of `Ask.of`."""
        return {
            "radius": numbers(self.radius, "--radius"),
            "output": self.output,
            "margins": None if self.margins is None else self.margins.value,
            "norm": self.norm.value,
            "ball_norm": self.ball_norm.value,
            "scale": read_scale(self.scale),
            "clip": read_clip(self.clip),
        }


@dataclass(frozen=True)
class Solving:
    """The options that say how every row is solved."""

    method: Annotated[
        str | None,
        typer.Option("--method", "-m", help=METHODS, show_default="sdp with a gap of 0.001"),
    ] = None
    gap: Annotated[float | None, typer.Option("--gap", help="relative gap of the SDP")] = None
    device: Annotated[
        str | None, typer.Option("--device", help="torch device for the SDP, such as cuda")
    ] = None
    time_limit: RowTimeOption = None
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
        """The method with its settings; if none is named, the one of `local_bounds`."""
        from ..batch.run import METHOD
        from ..methods.registry import find_method

        settings: dict[str, Any] = {}
        if self.gap is not None:
            settings["gap"] = self.gap
        if self.device is not None:
            settings["device"] = self.device
        return find_method(self.method or METHOD, **settings)


@command(Reading, Data, Asked, Solving, Where, Output)
def local(
    reading: Reading, data: Data, asked: Asked, solving: Solving, where: Where, output: Output
) -> None:
    """Bound local constants at many points, on this machine or a cluster."""
    from ..batch.run import Run
    from ..batch.summary import summarize
    from ..show.histograms import draw
    from ..show.tables import show_summary

    output.check(reading.model)
    network = reading.network
    points = data.read_points()
    only = data.only(len(points))
    ask = _ask(asked, solving)
    run = Run.about(
        network, points, ask, labels=data.read_labels(), only=only, resume=output.resume
    )
    rows = solve(run, where, solving.device, output)
    if rows is not None:
        about = partial(summarize, outputs=network.output_size)
        show(output, rows, about, draw, show_summary)


def _ask(asked: Asked, solving: Solving) -> Ask:
    from ..batch.rows import Ask

    return Ask.of(**asked.options(), **solving.options())
