"""The command about the classes of many points: certify."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from .many import Data, Output, Where, show, solve
from .options import (
    ClipOption,
    NormName,
    Reading,
    RowTimeOption,
    ScaleOption,
    SeedOption,
    command,
    numbers,
    read_clip,
    read_scale,
)


@dataclass(frozen=True)
class Asked:
    """The options that say what is asked about every point."""

    radius: Annotated[
        str | None, typer.Option("--radius", metavar="R[,R...]", help="radii of the balls")
    ] = None
    certified_radius: Annotated[
        bool,
        typer.Option("--certified-radius", help="search the largest radius that can be certified"),
    ] = False
    norm: Annotated[NormName, typer.Option("--norm", help="norm of the balls")] = NormName.linf
    scale: ScaleOption = None
    clip: ClipOption = None

    def options(self) -> dict[str, Any]:
        """As arguments of `Certify.of`."""
        return {
            "radius": numbers(self.radius or "", "--radius"),
            "certified_radius": self.certified_radius,
            "norm": self.norm.value,
            "scale": read_scale(self.scale),
            "clip": read_clip(self.clip),
        }


@dataclass(frozen=True)
class Proving:
    """The options that say how far proofs go."""

    cells: Annotated[
        int, typer.Option("--cells", help="of branch and bound, for every ball; 0 for none")
    ] = 1000
    time_limit: RowTimeOption = None
    seed: SeedOption = 0
    device: Annotated[
        str | None, typer.Option("--device", help="torch device for linear bounds, such as cuda")
    ] = None
    certificates: Annotated[
        Path | None,
        typer.Option("--certificates", help="folder for a certificate of every certified ball"),
    ] = None

    def options(self) -> dict[str, Any]:
        """As arguments of `Certify.of`."""
        return {
            "cells": self.cells,
            "time_limit": self.time_limit,
            "seed": self.seed,
            "device": self.device,
            "certificates": self.certificates,
        }


@command(Reading, Data, Asked, Proving, Where, Output)
def certify(
    reading: Reading, data: Data, asked: Asked, proving: Proving, where: Where, output: Output
) -> None:
    """Say of many points whether their class stays in balls around them: certified, broken (with
    the input that breaks it) or open."""
    from ..batch.run import Run
    from ..batch.verdict_summary import summarize_verdicts
    from ..batch.verdicts import Certify
    from ..show.histograms import draw_verdicts
    from ..show.tables import show_verdicts

    output.check(reading.model)
    network = reading.network
    points = data.read_points()
    only = data.only(len(points))
    ask = Certify.of(**asked.options(), **proving.options())
    run = Run.about(
        network, points, ask, labels=data.read_labels(), only=only, resume=output.resume
    )
    rows = solve(run, where, proving.device, output)
    if rows is not None:
        show(output, rows, summarize_verdicts, draw_verdicts, show_verdicts)
