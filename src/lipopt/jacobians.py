"""jacobian(): an interval for every entry of a network's Jacobian."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from .api import check_work
from .cells.refine import refine
from .errors import LipoptError
from .lower.gradients import sample_jacobians
from .model.domain import Domain, check_domain, describe, example_in, one_box_only
from .numerics.arrays import Array
from .numerics.blas import arithmetic
from .numerics.rounding import written_down, written_up
from .problem.entries import entry_intervals
from .problem.question import Question, pose
from .problem.task import Budget
from .readers import load_for
from .result import in_units
from .show.heat_map import heat_map

SAMPLES = 200  # points at which entries are looked at
MOST_ENTRIES = 40  # that a table has


@dataclass(frozen=True, eq=False)
class Jacobian:
    """What `jacobian` returns: lower <= every entry of the Jacobian <= upper, over a domain.

    Args:
        lower: the lower ends, an array (outputs, inputs). They are proved.
        upper: the upper ends.
        seen_lower: the smallest entries at points that were looked at, in plain floating point; None
            if neurons were at their kinks at all of them.
        seen_upper: the largest ones there.
        scale: how much of each input counts as 1, flat; empty for 1. Entries are changes of outputs
            for one unit.
        domain: the domain in words.
        network: the SHA-256 of the network's own file, as `Network.save` writes it.
        seconds: the time that it took.

    Example:
        >>> import lipopt
        >>> weights = [[[1.0, -1.0], [2.0, 1.0]], [[1.0, -1.0]]]
        >>> found = lipopt.jacobian(weights, domain=lipopt.Ball([1.0, 0.0], radius=0.1))
        >>> found.lower.shape, found.lower.round(3).tolist(), found.upper.round(3).tolist()
        ((1, 2), [[-1.0, -2.0]], [[-1.0, -2.0]])
        >>> found.to_dict()["domain"]
        'l_inf ball of radius 0.1'
    """

    lower: Array
    upper: Array
    seen_lower: Array | None
    seen_upper: Array | None
    scale: tuple[float, ...]
    domain: str
    network: str
    seconds: float

    def __repr__(self) -> str:
        outputs, inputs = self.lower.shape
        return f"<Jacobian: {outputs} x {inputs} entries{in_units(self.scale)}, {self.domain}>"

    def to_dict(self) -> dict[str, Any]:
        """All fields, with arrays as lists of rows."""
        values: dict[str, Any] = {}
        for name, value in vars(self).items():
            values[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return values

    def to_json(self) -> str:
        """All fields, as one line of JSON."""
        return json.dumps(self.to_dict())

    @property
    def title(self) -> str:
        """What the entries are, in words."""
        return f"Entries of the Jacobian{in_units(self.scale)}, {self.domain}"

    def table(self) -> Table:
        """A table for people: the largest entries first, their ends, and what was seen between."""
        table = Table(box=box.SIMPLE_HEAD)
        for column in ("output", "input", "at least", "at most", "seen from", "to"):
            table.add_column(column, justify="right")
        sizes = np.maximum(np.abs(self.lower), np.abs(self.upper)).reshape(-1)
        order = np.argsort(-sizes, kind="stable")
        for place in order[:MOST_ENTRIES]:
            i, j = np.unravel_index(place, self.lower.shape)
            seen = ["-", "-"]
            if self.seen_lower is not None and self.seen_upper is not None:
                seen = [f"{self.seen_lower[i, j]:.5g}", f"{self.seen_upper[i, j]:.5g}"]
            ends = [written_down(float(self.lower[i, j])), written_up(float(self.upper[i, j]))]
            table.add_row(str(i), str(j), *ends, *seen)
        if len(order) > MOST_ENTRIES:
            table.caption = f"the {MOST_ENTRIES} largest of {len(order)}; JSON has all"
        return table

    def plot(self, path: str | Path) -> None:
        """Write a heat map of the entries as an SVG file.

        Args:
            path: where to write it; a file that is there is overwritten.

        Raises:
            LipoptError: the file cannot be written."""
        try:
            Path(path).write_text(heat_map(self.lower, self.upper), encoding="utf-8")
        except OSError as error:
            raise LipoptError(f"cannot write {path}: {error}") from error


def jacobian(
    network: Any,
    *,
    input_shape: Sequence[int] | None = None,
    domain: Domain = None,
    scale: Any = None,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Jacobian:
    """Proved intervals for all entries of the Jacobian, over a domain.

    They hold wherever the network is differentiable. So if an interval has no negative numbers, the
    output does not fall when that input rises, with all others as they are.

    Args:
        network: a Network, or anything that `load` reads.
        input_shape: the shape of one input of a torch module, without the batch dimension.
        domain: a Ball, a Box, or None for the whole space.
        scale: how much of each input counts as 1: entries are multiplied by it. None for 1.
        samples: points of the domain at which entries are looked at, for the numbers inside.
        seed: of these points.

    Returns:
        A Jacobian: `lower` and `upper`, arrays (outputs, inputs), and what was seen between them.

    Raises:
        LipoptError: the network cannot be read, the domain is a union, or something overflows.

    Example:
        >>> import lipopt
        >>> found = lipopt.jacobian([[[1.0, -1.0], [2.0, 1.0]], [[1.0, -1.0]]], scale=[1.0, 10.0])
        >>> found.lower.round(3).tolist(), found.upper.round(3).tolist()
        ([[-2.0, -20.0]], [[1.0, 0.0]])
    """
    start = time.perf_counter()
    check_domain(domain)
    one_box_only("a Jacobian", domain)
    check_work(None, seed, samples)
    network = load_for(network, input_shape, example_in(domain))
    question = Question.about(network, output="all", domain=domain, scale=scale)
    with arithmetic(network.widest):
        posed = refine(pose(network, question), Budget(seed=seed))
        found = entry_intervals(posed.problem, posed.raw)
        if not (np.isfinite(found.lower).all() and np.isfinite(found.upper).all()):
            raise LipoptError("the entries of the Jacobian overflow; rescale the network")
        seen = sample_jacobians(posed, samples, seed)
    return Jacobian(
        found.lower,
        found.upper,
        seen.min(axis=2) if seen.size else None,
        seen.max(axis=2) if seen.size else None,
        () if question.scale is None else tuple(float(unit) for unit in question.scale),
        describe(domain),
        network.hash,
        time.perf_counter() - start,
    )
