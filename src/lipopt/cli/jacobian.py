"""The command about all entries of the Jacobian: jacobian."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption, Reading, SeedOption, Where, check_writable, command


@command(Reading, Where)
def jacobian(
    reading: Reading,
    where: Where,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="write a heat map of the entries, .svg")
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Enclose every entry of the Jacobian: what each input can change in each output."""
    from ..jacobians import jacobian as run
    from ..show import tables

    check_writable(plot, reading.model)
    found = run(reading.network, domain=where.domain(), scale=where.units(), seed=seed)
    if plot is not None:
        found.plot(plot)
    if as_json:
        print(found.to_json())
        return
    console = tables.console()
    console.print(found.title, style="bold", highlight=False)
    console.print(found.table())
    if plot is not None:
        console.print(f"wrote {plot}", highlight=False)
