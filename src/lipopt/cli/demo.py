"""What `lipopt demo` shows: all methods on the networks that ship with lipopt, global and local."""

from __future__ import annotations

from rich.console import Console

from ..api import compare
from ..examples import LABEL, digits, example
from ..model.domain import Ball, Domain
from ..progress import Progress
from ..show import tables

LEGEND = """\
How fast can an output of a network change? By at most its Lipschitz constant times the change of the
inputs. Upper bounds are proved; "/ lower" is how many times a slope that was found they are, and
"/ POP lower" how many times a limit that methods of this kind cannot go below.
"""
METHODS = ("product", "path-sum", "lip-sdp", "sdp", "lipopt-3")
RADII = (0.01, 0.1)  # of the balls around a digit
SECONDS = 5.0  # for each method


def run(console: Console, progress: Progress | None) -> None:
    """Global constants of both networks, then local ones around a digit."""
    console.print(LEGEND, highlight=False)
    images, labels = digits()
    domains: list[Domain] = [None]
    for radius in RADII:
        domains.append(Ball(images[2 * LABEL], radius, clip=(0, 1)))
    for name in ("pruned", "dense"):
        network = example(name)
        right = (network.forward(images).argmax(axis=1) == labels).sum()
        console.rule(
            f"{name} MNIST network (784-300-100-10, ELU), {right} of {len(labels)} digits right",
            align="left",
        )
        for domain in domains:
            results = compare(
                network,
                output=LABEL,
                domain=domain,
                samples=2000,
                methods=METHODS,
                time_limit=SECONDS,
                progress=progress,
            )
            tables.show(console, results, results.refused)
            console.print()
