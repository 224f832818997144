"""What the command line prints: tables for people, on a console that reads no markup."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from ..batch.rows import Row
from ..batch.summary import Summary
from ..batch.verdict_summary import VerdictSummary
from ..batch.verdicts import Verdict
from ..methods.lp.sparsity import PatternSize
from ..model.network import Network
from ..model.nodes import Activation, Input
from ..names import printable
from ..numerics.arrays import count_nonzeros
from ..numerics.rounding import written_down, written_up
from ..problem.derivative import DerivativeProblem
from ..result import LowerBound, Result

FILE_WIDTH = 120  # characters of a line, if the output is not a terminal
ENDLESS = 10_000  # characters of a line that holds any table
# Of the columns of rows, those that a narrow terminal does not cut, and those that are no numbers.
NEVER_CUT = ("point", "upper", "status")
WORDS = ("question", "certified", "status", "proof")


class _Output(Console):
    """Standard output; that its reader goes away is left to the command line, see cli/app.py."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Standard output for tables. Names from files are not taken for markup."""
    width = None if sys.stdout.isatty() else FILE_WIDTH
    return _Output(width=width, markup=False, emoji=False)


@dataclass(frozen=True)
class _Column:
    """A column of a table. Where the table is too wide, the column that goes first has the largest
    number; the two that go last stay, and those with 0 are never cut."""

    title: str
    cells: Sequence[str]
    goes: int = 0
    is_text: bool = False


def _fitting(console: Console, columns: Sequence[_Column]) -> Table:
    """A table that is no wider than the console, if two columns of it are not."""
    endless = console.options.update(width=ENDLESS)
    kept = sorted(columns, key=lambda column: column.goes)
    while True:
        table = _table([column for column in columns if column in kept])
        width = Measurement.get(console, endless, table).maximum
        if width <= console.width or len(kept) == 2:
            return table
        kept.pop()


def _table(columns: Sequence[_Column]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        justify: Any = "left" if column.is_text else "right"
        is_kept_whole = column.goes == 0
        table.add_column(column.title, justify=justify, overflow="fold", no_wrap=is_kept_whole)
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*row)
    return table


def results_table(console: Console, results: Sequence[Result]) -> Table:
    """A row per method: the upper bound, its ratio to the lower bounds, the time."""
    columns = [
        _Column("method", [r.by for r in results], 1, is_text=True),
        _Column("upper bound", [written_up(r.upper) for r in results]),
        _Column("/ lower", [_ratio(r.upper, r.lower) for r in results], 3),
        _Column("/ POP lower", [_ratio(r.upper, r.pop_lower) for r in results], 5),
        _Column("seconds", [f"{r.seconds:.2f}" for r in results], 4),
        _Column("status", [r.status for r in results], 2, is_text=True),
    ]
    return _fitting(console, columns)


def _ratio(upper: float, lower: float | None) -> str:
    return f"{upper / lower:.3f}" if lower else "-"


def show(
    console: Console, results: Sequence[Result], refused: Mapping[str, str] | None = None
) -> None:
    """Print the question, what every method answered, and the lower bounds."""
    console.print(results[0].question, style="bold", highlight=False)
    console.print(results_table(console, results))
    reasons = dict(refused or {})
    for r in results:
        reasons |= r.details.get("refused", {})
    for name, reason in reasons.items():
        console.print(f"{name} was not used: {printable(reason)}", highlight=False)
    for r in results:
        if "left_out" in r.details:
            kept = f"the whole is too large, path sums stand for {r.details['left_out']}"
            console.print(f"{r.by}: {kept}", highlight=False)
    console.print(lower_lines(results[0]), highlight=False)


def lower_lines(r: Result | LowerBound) -> str:
    """The lower bounds that go with an answer."""
    lines = [
        f"lower bound on the Lipschitz constant: {written_down(r.lower)}   (a gradient of the network)"
    ]
    if r.pop_lower is not None:
        lines.append(
            f"lower bound on the POP optimum:        {written_down(r.pop_lower)}   (only branch and bound can go below)"
        )
    return "\n".join(lines)


def rows_table(console: Console, rows: Sequence[Row | Verdict]) -> Table:
    """The rows of a batch run one by one; there is one at least."""
    records = [row.as_text() for row in rows]
    columns = []
    for place, title in enumerate(records[0]):
        cells = [printable(record[title]) for record in records]
        goes = 0 if title in NEVER_CUT else place
        columns.append(_Column(title, cells, goes, is_text=title in WORDS))
    return _fitting(console, columns)


def _summary_table(console: Console, summary: Summary) -> Table:
    """A row per radius: how many points are certified, the constants, the gaps to the lower bounds on the POP."""
    radii = summary.radii
    numbers = [radius.numbers() for radius in radii]
    columns = [
        _Column("radius", [f"{radius.radius:g}" for radius in radii]),
        _Column("points", [str(radius.points) for radius in radii], 1),
        _Column("certified", [_or_dash(radius.certified, str) for radius in radii]),
        _Column("failed", [str(radius.failed) for radius in radii], 2),
        _Column("median constant", [_or_dash(n["median_upper"], written_up) for n in numbers], 3),
        _Column("worst", [_or_dash(n["worst_upper"], written_up) for n in numbers], 4),
        _Column("median gap", [_or_dash(n["median_gap"], _percent) for n in numbers], 5),
        _Column("worst gap", [_or_dash(n["worst_gap"], _percent) for n in numbers], 6),
    ]
    return _fitting(console, columns)


def _or_dash(value: Any, written: Callable[[Any], str]) -> str:
    return "-" if value is None else written(value)


def _percent(value: float) -> str:
    return f"{value:.2%}"


def show_summary(console: Console, summary: Summary) -> None:
    """Print what a batch run found."""
    if summary.radii:
        console.print(_summary_table(console, summary))
    if summary.unfinished:
        console.print(
            f"{summary.unfinished} problems ended at the time limit; with more time their bounds may be tighter"
        )
    _show_failures(console, summary)


def show_verdicts(console: Any, summary: VerdictSummary) -> None:
    """Print what a run of `certify` found."""
    if summary.radii:
        console.print(_verdicts_table(summary))
    if summary.certified_radii:
        console.print(
            _certified_radii_line(list(summary.certified_radii.values())), highlight=False
        )
    _show_failures(console, summary)


def _verdicts_table(summary: VerdictSummary) -> Table:
    """A row per radius: points whose own class is wrong, certified ones, also by the proof, and others."""
    table = Table(box=box.SIMPLE_HEAD)
    proofs = ["linear", "slopes", "branching"]
    for column in ["radius", "points", "wrong", "certified", *proofs, "broken", "open"]:
        table.add_column(column, justify="right")
    for entry in summary.radii:
        wrong = entry.points - entry.failed - entry.right
        counts = [entry.points, wrong, entry.certified]
        counts += [entry.proofs[proof] for proof in proofs]
        counts += [entry.broken - wrong, entry.open]
        table.add_row(f"{entry.radius:g}", *(str(count) for count in counts))
    return table


def _show_failures(console: Any, summary: Summary | VerdictSummary) -> None:
    """Say how many rows have no answer, and why the first has none."""
    if summary.failed:
        reason = printable(summary.reason or "")
        console.print(
            f"{summary.failed} problems failed; their rows say why, the first: {reason}",
            highlight=False,
        )


def _certified_radii_line(radii: Sequence[float]) -> str:
    """The certified radii of all points in one line."""
    ordered = sorted(radii)
    return (
        f"certified radius: smallest {written_down(ordered[0])}, median {written_down(median(ordered))}, "
        f"largest {written_down(ordered[-1])}; {sum(r > 0 for r in ordered)} of {len(ordered)} points have one"
    )


def network_table(network: Network) -> Table:
    """A row per node: what it is, its size, its weights."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("node", justify="right")
    table.add_column("name", overflow="fold")
    table.add_column("kind")
    for column in ("size", "weights", "density"):
        table.add_column(column, justify="right")
    for row in node_rows(network):
        density = "" if row["weights"] is None else f"{row['density']:.1%}"
        weights = "" if row["weights"] is None else f"{row['weights']:,}"
        table.add_row(
            str(row["node"]),
            printable(row["name"]),
            row["kind"],
            f"{row['size']:,}",
            weights,
            density,
        )
    return table


def node_rows(network: Network) -> list[dict[str, Any]]:
    """The nodes of a network as plain data."""
    rows: list[dict[str, Any]] = []
    for i, node in enumerate(network.nodes):
        row: dict[str, Any] = {
            "node": i,
            "name": "input",
            "kind": "input",
            "size": node.size,
            "weights": None,
            "density": None,
        }
        if isinstance(node, Activation):
            row |= {"name": node.name, "kind": node.kind}
        elif not isinstance(node, Input):
            count = sum(count_nonzeros(m) for m in node.matrices)
            full = sum(m.shape[0] * m.shape[1] for m in node.matrices)
            row |= {"name": node.name, "kind": "affine", "weights": count, "density": count / full}
        rows.append(row)
    return rows


def patterns_table(sizes: Sequence[PatternSize], degree: int) -> Table:
    """A row per sparsity pattern: its cliques, and the products of the LP of that degree, here and in the paper."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("pattern")
    for column in ("cliques", "largest", f"products, k={degree}", "paper's bound (10)"):
        table.add_column(column, justify="right")
    for s in sizes:
        table.add_row(
            s.pattern, f"{s.cliques:,}", f"{s.largest:,}", f"{s.products:,}", f"{s.paper:,}"
        )
    return table


def network_line(network: Network) -> str:
    """A network in one line."""
    shape = tuple(network.input_shape)
    return f"network {network.hash[:16]}: input {shape}, {network.neurons} neurons, {network.output_size} outputs"


def source_lines(network: Network) -> list[str]:
    """The files that a network was read from, and which part of the model it is."""
    if network.source is None:
        return []
    lines = [
        f"read from {printable(name)}, SHA-256 {digest}"
        for name, digest in network.source.files.items()
    ]
    if network.source.part:
        lines.append(f"a part of it: {printable(network.source.part)}")
    return lines + input_lines(network)


def input_lines(network: Network) -> list[str]:
    """If several inputs of the model are joined, which entries are which."""
    if network.source is None or not network.source.inputs:
        return []
    words = []
    start = 0
    for name, size in network.source.inputs.items():
        last = start + size - 1
        words.append(f"{printable(name)} is " + (f"{start} to {last}" if size > 1 else f"{start}"))
        start += size
    return [f"inputs: {', '.join(words)}"]


def presolve_line(raw: DerivativeProblem, solved: DerivativeProblem) -> str:
    """What presolve left of a problem."""
    return (
        f"derivative problem: {raw.inputs} inputs, {raw.neurons} neurons and outputs, {raw.nonzeros:,} coefficients;\n"
        f"after presolve {solved.neurons} neurons in {len(solved.layers)} layers, {solved.nonzeros:,} coefficients"
    )
