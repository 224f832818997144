"""What `lipopt demo` shows: all methods on the networks that ship with lipopt, global and local."""

from __future__ import annotations

from typing import Any

from ..api import compare
from ..errors import LipoptError
from ..examples import LABEL, digits, example
from ..model.domain import Ball
from ..problem.task import Progress
from ..show import tables

METHODS = ("product", "path-sum", "lip-sdp", "sdp", "lipopt-3")


def run(console: Any, progress: Progress | None) -> None:
    """Global constants of both networks, then local ones around a digit."""
    images, labels = digits()
    for name in ("pruned", "dense"):
        network = example(name)
        right = (network.forward(images).argmax(axis=1) == labels).sum()
        console.rule(
            f"{name} MNIST network (784-300-100-10, ELU), {right} of {len(labels)} digits right",
            align="left",
        )
        for domain in (
            None,
            *(Ball(images[2 * LABEL], radius, clip=(0, 1)) for radius in (0.01, 0.1)),
        ):
            refused: list[tuple[str, str]] = []

            def note(
                method: str, error: LipoptError, refused: list[tuple[str, str]] = refused
            ) -> None:
                refused.append((method, str(error)))

            options: dict[str, Any] = {
                "output": LABEL,
                "domain": domain,
                "samples": 2000,
                "methods": METHODS,
                "time_limit": 5,
            }
            tables.show(
                console, compare(network, progress=progress, on_refusal=note, **options), refused
            )
            console.print()
