"""What notebooks show: tables in HTML, pandas frames, matplotlib pictures.

pandas and matplotlib are imported when they are first used: lipopt works without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .errors import LipoptError
from .names import printable

MOST_ROWS = 20  # of a table in HTML; the rest is counted
FIGURE_SIZE = (7.0, 3.2)  # inches
ROW_INCHES = 0.35  # the height of a row of a picture with a row per name
UPPER_COLOR = "#0060a8"
LOWER_COLOR = "#1a1a1a"


def html_table(records: Sequence[Mapping[str, str]]) -> str:
    """A table in HTML; every record is a row, with the same titles."""
    if not records:
        return "<p>no rows</p>"
    head = "".join(f"<th>{escape(title)}</th>" for title in records[0])
    rows = []
    for record in records[:MOST_ROWS]:
        cells = "".join(f"<td>{escape(printable(text))}</td>" for text in record.values())
        rows.append(f"<tr>{cells}</tr>")
    left = len(records) - MOST_ROWS
    more = f"<p>and {left} more rows</p>" if left > 0 else ""
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>{more}"


def html_fields(fields: Mapping[str, str]) -> str:
    """A table in HTML with a row for every field."""
    rows = []
    for title, text in fields.items():
        cells = (
            f"<th style='text-align: left'>{escape(title)}</th><td>{escape(printable(text))}</td>"
        )
        rows.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(rows)}</table>"


def frame(records: Sequence[Mapping[str, Any]]) -> Any:
    """Records as a pandas frame."""
    try:
        import pandas
    except ImportError as error:
        raise LipoptError("a table needs pandas: pip install pandas") from error
    return pandas.DataFrame(list(records))


def axes(given: Any, rows: int | None = None) -> Any:
    """The axes to draw on: those that were given, or those of a new figure, with room for rows."""
    if given is not None:
        return given
    width, height = FIGURE_SIZE
    if rows is not None:
        height = 1.2 + ROW_INCHES * rows
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise LipoptError("a picture needs matplotlib: pip install 'lipopt[plot]'") from error
    _, made = pyplot.subplots(figsize=(width, height), layout="constrained")
    return made


def draw_bounds(panel: Any, names: Sequence[str], uppers: Sequence[float], lower: float) -> None:
    """Upper bounds, a row for each, and how far they are above the lower bound."""
    places = range(len(names))
    panel.hlines(places, lower, uppers, color=UPPER_COLOR, linewidth=1)
    panel.plot(uppers, places, "<", color=UPPER_COLOR, label="upper bound, proved")
    panel.axvline(lower, color=LOWER_COLOR, linestyle="--", label="lower bound, attained")
    panel.set_yticks(places, names)
    panel.invert_yaxis()
    panel.margins(y=0.3)
    panel.set_xlabel("Lipschitz constant")
    if lower > 0:
        panel.set_xscale("log")
    panel.legend(fontsize="small")


def draw_history(panel: Any, history: Sequence[Sequence[float]]) -> None:
    """How the bounds of branch and bound came together: entries of seconds, lower, upper."""
    seconds = [entry[0] for entry in history]
    panel.step(
        seconds,
        [entry[2] for entry in history],
        color=UPPER_COLOR,
        where="post",
        label="upper bound",
    )
    panel.step(
        seconds,
        [entry[1] for entry in history],
        color=LOWER_COLOR,
        linestyle="--",
        where="post",
        label="lower bound",
    )
    panel.set(xlabel="seconds", ylabel="Lipschitz constant")
    panel.legend(fontsize="small")
