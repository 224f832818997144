"""Check the result files: on every question, LBS <= lower bound on the POP <= every upper bound; and certificates of a sample."""

from __future__ import annotations

from collections import defaultdict

from rich.console import Console

from . import certificates
from .estimators import ANSWER
from .table import Row, Setup, read


def run(setup: Setup) -> None:
    """Print what was checked; end with exit code 1 if anything is wrong."""
    console = Console()
    wrong = []
    for path in sorted(setup.folder.glob("*.csv")):
        rows = read(path)
        if rows and set(ANSWER) <= set(rows[0]):
            found = violations(rows)
            console.print(
                f"{path.name}: {len(questions(rows))} questions, {len(rows)} rows, {len(found)} wrong",
                highlight=False,
            )
            wrong += [f"{path.name}: {text}" for text in found]
    count, found = certificates.violations(read(setup.folder / "random.csv"))
    console.print(
        f"{count} certificates of random networks checked by lipcheck, {len(found)} wrong",
        highlight=False,
    )
    wrong += found
    if wrong:
        raise SystemExit("\n".join(wrong))


def questions(rows: list[Row]) -> dict[tuple[str, ...], list[Row]]:
    """Rows by what they are an answer to: by all columns but the estimator and the answer."""
    columns = [column for column in rows[0] if column not in (*ANSWER, "estimator")]
    result: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        result[tuple(row[column] for column in columns)].append(row)
    return result


def violations(rows: list[Row]) -> list[str]:
    """The questions whose answers contradict each other, in words."""
    result = []
    for question, answers in questions(rows).items():
        lower, pop, upper = (
            [float(row[column]) for row in answers if row[column]] for column in ANSWER[:3]
        )
        # Branch and bound, which auto goes on to in balls, may be below the optimum of the POP.
        relaxed = [
            float(row["upper"]) for row in answers if row["upper"] and row["estimator"] != "auto"
        ]
        least = min(relaxed, default=float("inf"))
        holds = max(lower, default=0.0) <= min(upper, default=float("inf"))
        holds &= max(lower, default=0.0) <= max(pop, default=0.0) <= least
        if not holds:
            result.append(
                f"{', '.join(question)}: {max(lower)} <= {max(pop)} <= {least} does not hold,"
                f" or {min(upper)} is too small"
            )
    return result
