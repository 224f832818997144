"""Result tables: CSV files that are filled row by row, by several processes, and taken up again where they were left.

A cell is what identifies a row (which network, which estimator); `measure` finds the rest of it. Rows that are in the
file already are not computed again, so an interrupted experiment continues, and a larger one starts from a smaller one.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track

Scale = Literal["full", "quick", "tiny"]
Cell = dict[str, Any]
Row = dict[str, str]
LIMITED = "time limit"  # the status of a bound that could have become better with more time


@dataclass(frozen=True)
class Setup:
    """How an experiment is run: its scale, the folder of its files, the command (for captions), the number of processes.

    With `draw_only` nothing is computed: figures show the rows there are. With `retry`, rows that ended at the time limit
    are computed again."""

    scale: Scale
    folder: Path
    command: str
    jobs: int = 1
    draw_only: bool = False
    retry: bool = False
    data: Path | None = None  # the folder of MNIST's files, where an experiment can use them


def read(path: Path) -> list[Row]:
    """The rows of a table; none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def fill(
    setup: Setup, name: str, cells: Sequence[Cell], measure: Callable[[Cell], Cell]
) -> list[Row]:
    """Measure the cells that the table `name` does not have yet, in the order given; the rows of all cells."""
    path = setup.folder / f"{name}.csv"
    if setup.retry:
        _rewrite(path, [row for row in read(path) if row.get("status") != LIMITED])
    wanted = {_key(cell, cell): cell for cell in cells}
    known = {_key(row, cells[0]) for row in read(path)}
    todo = [] if setup.draw_only else [cell for key, cell in wanted.items() if key not in known]
    found = Parallel(n_jobs=setup.jobs, return_as="generator_unordered")(
        delayed(_row)(measure, cell) for cell in todo
    )
    with path.open("a", newline="", buffering=1) as file:
        for row in track(found, description=name, total=len(todo), console=Console(stderr=True)):
            writer = csv.DictWriter(file, list(row))
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
    return [row for row in read(path) if _key(row, cells[0]) in wanted]


def _rewrite(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        if rows:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def _row(measure: Callable[[Cell], Cell], cell: Cell) -> Cell:
    return {**cell, **measure(cell)}


def _key(row: Cell | Row, columns: Cell) -> tuple[str, ...]:
    return tuple(str(row[column]) for column in columns)
