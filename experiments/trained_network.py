"""The table of section 6.2: the MNIST network 784-300-100-10, pruned by 95 % and dense, label 8."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import partial

from lipopt.examples import LABEL, example

from .estimators import LBS, answer
from .table import LIMITED, Cell, Row, Setup, fill

ESTIMATORS = (LBS, "LiPopt-3", "LiPopt-4", "SDP", "auto", "Lip-SDP", "UBP")
SAMPLES = {"full": 50_000, "quick": 1_000, "tiny": 10}
SECONDS = {"full": 300.0, "quick": 20.0, "tiny": 2.0}


def run(setup: Setup) -> None:
    names = ("pruned",) if setup.scale == "tiny" else ("pruned", "dense")
    cells: list[Cell] = [
        {"network": name, "estimator": estimator} for name in names for estimator in ESTIMATORS
    ]
    rows = fill(
        setup, "trained", cells, partial(_measure, SAMPLES[setup.scale], SECONDS[setup.scale])
    )
    (setup.folder / "trained.md").write_text(_table(setup, rows, names))


def _measure(samples: int, seconds: float, cell: Cell) -> Cell:
    return answer(example(cell["network"]), cell["estimator"], samples, seconds, output=LABEL)


def _table(setup: Setup, rows: Sequence[Row], names: Sequence[str]) -> str:
    """Bounds and seconds of every estimator; the lower bounds first."""
    found = {(row["network"], row["estimator"]): row for row in rows}
    lines = ["| | " + " | ".join(f"{name}: bound | / POP lower | seconds" for name in names) + " |"]
    lines.append("|---" * (1 + 3 * len(names)) + "|")
    best = {
        name: max(
            float(row["pop_lower"]) for row in rows if row["network"] == name and row["pop_lower"]
        )
        for name in names
    }
    lines.append(
        "| LBS | "
        + " | ".join(
            f"{float(found[name, LBS]['lower']):.1f} | | " + _seconds(found[name, LBS])
            for name in names
        )
        + " |"
    )
    lines.append(
        "| lower bound on the POP | "
        + " | ".join(f"{best[name]:.1f} | | " for name in names)
        + " |"
    )
    for estimator in ESTIMATORS[1:]:
        lines.append(
            f"| {estimator} | "
            + " | ".join(_entry(found[name, estimator], best[name]) for name in names)
            + " |"
        )
    return "\n".join([*lines, "", f"`{setup.command}`, {date.today()}", ""])


def _entry(row: Row, lower: float) -> str:
    if not row["upper"]:
        return "too large | | "
    return f"{float(row['upper']):.1f} | {float(row['upper']) / lower:.2f} | {_seconds(row)}"


def _seconds(row: Row) -> str:
    seconds = float(row["seconds"])
    text = "< 0.01" if seconds < 0.01 else f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"
    return text + (" (limit)" if row["status"] == LIMITED else "")
