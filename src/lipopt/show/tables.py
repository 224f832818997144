"""What the command line prints: tables for people, on a console that reads no markup."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from ..batch.summary import Summary
from ..methods.lp.sparsity import PatternSize
from ..model.network import Activation, Input, Network
from ..names import printable
from ..problem.derivative import DerivativeProblem
from ..result import LowerBound, Result

FILE_WIDTH = 120  # characters of a line, if the output is not a terminal


def console() -> Console:
    """Standard output for tables. Names from files are not taken for markup."""
    width = None if sys.stdout.isatty() else FILE_WIDTH
    return Console(width=width, markup=False, emoji=False)


def number(value: float) -> str:
    """Six digits, rounded up: a printed upper bound is an upper bound too."""
    return _rounded(value, up=True)


def number_down(value: float | None) -> str:
    """Six digits, rounded down, for lower bounds."""
    return "-" if value is None else _rounded(value, up=False)


def _rounded(value: float, up: bool) -> str:
    from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

    rounded = Context(prec=6, rounding=ROUND_CEILING if up else ROUND_FLOOR).create_decimal(
        Decimal(value)
    )
    return f"{rounded:,f}" if value == 0 or 1e-4 <= abs(value) < 1e7 else f"{rounded:e}"


def results_table(results: Sequence[Result], refused: Sequence[tuple[str, str]] = ()) -> Table:
    """A row per method: the upper bound, its ratio to the lower bounds, the time."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("method")
    for column in ("upper bound", "/ lower", "/ POP lower", "seconds"):
        table.add_column(column, justify="right")
    table.add_column("status")
    for r in results:
        chosen = f" ({_origin(r)})" if "chosen" in r.details else ""
        ratios = [_ratio(r.upper, r.lower), _ratio(r.upper, r.pop_lower)]
        table.add_row(r.method + chosen, number(r.upper), *ratios, f"{r.seconds:.2f}", r.status)
    for name, reason in refused:
        table.add_row(name, "-", "", "", "", printable(reason))
    return table


def _origin(r: Result) -> str:
    """The method, and the norm if it is another one, in which the bound was proved."""
    method = str(r.details["chosen"])
    return f"{method}, {r.details['norm']}" if "norm" in r.details else method


def _ratio(upper: float, lower: float | None) -> str:
    return f"{upper / lower:.3f}" if lower else "-"


def question(r: Result | LowerBound) -> str:
    """What was asked, in words."""
    what = (
        "all outputs"
        if r.output == "all"
        else f"margin {r.output}"
        if " - " in r.output
        else f"output {r.output}"
    )
    return f"Lipschitz constant of {what} in the {r.norm} norm, {r.domain}"


def show(console: Any, results: Sequence[Result], refused: Sequence[tuple[str, str]] = ()) -> None:
    """Print the question, what every method answered, and the lower bounds."""
    if results:
        console.print(question(results[0]), style="bold", highlight=False)
    console.print(results_table(results, refused))
    for name, reason in [item for r in results for item in r.details.get("refused", {}).items()]:
        console.print(f"{name} was not used: {printable(reason)}", highlight=False)
    if results:
        console.print(lower_lines(results[0]), highlight=False)


def lower_lines(r: Result | LowerBound) -> str:
    """The lower bounds that go with an answer."""
    lines = [
        f"lower bound on the Lipschitz constant: {number_down(r.lower)}   (a gradient of the network)"
    ]
    if r.pop_lower is not None:
        lines.append(
            f"lower bound on the POP optimum:        {number_down(r.pop_lower)}   (only branch and bound can go below)"
        )
    return "\n".join(lines)


def _summary_table(summary: Summary) -> Table:
    """A row per radius: how many points are certified, the constants, the gaps to the lower bounds on the POP."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in (
        "radius",
        "points",
        "certified",
        "failed",
        "median constant",
        "worst",
        "median gap",
        "worst",
    ):
        table.add_column(column, justify="right")
    for radius in summary.radii:
        numbers = radius.numbers()
        upper = [
            "-" if u is None else number(u)
            for u in (numbers["median_upper"], numbers["worst_upper"])
        ]
        gap = [
            "-" if g is None else f"{g:.2%}" for g in (numbers["median_gap"], numbers["worst_gap"])
        ]
        certified = "-" if radius.certified is None else str(radius.certified)
        table.add_row(
            f"{radius.radius:g}", str(radius.points), certified, str(radius.failed), *upper, *gap
        )
    return table


def show_summary(console: Any, summary: Summary) -> None:
    """Print what a batch run found."""
    if summary.radii:
        console.print(_summary_table(summary))
    if summary.certified_radii:
        console.print(
            _certified_radii_line(list(summary.certified_radii.values())), highlight=False
        )
    if summary.unfinished:
        console.print(
            f"{summary.unfinished} problems ended at the time limit; with more time their bounds may be tighter"
        )
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
        f"certified radius: smallest {number_down(ordered[0])}, median {number_down(median(ordered))}, "
        f"largest {number_down(ordered[-1])}; {sum(r > 0 for r in ordered)} of {len(ordered)} points have one"
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
            count = sum(int((m != 0).sum()) for m in node.matrices)
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
    return lines


def presolve_line(raw: DerivativeProblem, solved: DerivativeProblem) -> str:
    """What presolve left of a problem."""
    return (
        f"derivative problem: {raw.inputs} inputs, {raw.neurons} neurons and outputs, {raw.nonzeros:,} coefficients;\n"
        f"after presolve {solved.neurons} neurons in {len(solved.layers)} layers, {solved.nonzeros:,} coefficients"
    )
