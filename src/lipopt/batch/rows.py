"""Rows: what a batch run is asked at every point, and the answers it gives.

An `Ask` says what is wanted at every `Point`: the Lipschitz constants of some `Target`s (outputs,
or differences of two outputs) over the balls of some radii. Every answer is a `Row`, one line of
the results file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from .. import notebook
from ..errors import LipoptError
from ..methods.registry import Method, find_method
from ..methods.sdp.method import SDP
from ..model.domain import Ball, check_clip, check_scale
from ..model.norms import Norm, find_norm
from ..numerics.arrays import Array
from ..numerics.rounding import written_down, written_up

Margins: TypeAlias = Literal["all", "runner-up"]
Scale: TypeAlias = float | tuple[float, ...] | None  # how much of each input counts as 1
LARGEST_CHUNK = 64  # rows: seconds of work or more, where a task costs milliseconds to schedule
LARGEST_BATCH = 256  # rows of a chunk on a device, where they are solved together


@dataclass(frozen=True)
class Row:
    """The answer to one question at one point, or in `error` the reason why there is none.

    Attributes:
        point: the number of the point in the data, from 0.
        radius: the radius of the ball around the point.
        question: "output 3" or "margin 3 - 5" (output 3 minus output 5).
        label: the class of the point, if margins were asked for.
        margin: a lower bound on the margin at the point itself.
        lower: a lower bound on the Lipschitz constant: the norm of a gradient in the ball.
        pop_lower: a lower bound on the optimum that upper bounds relax.
        upper: the proved upper bound on the Lipschitz constant over the ball.
        certified: whether margin > radius * upper, so that the margin is positive in the whole
            ball; None where that was not asked, or does not follow from constants in this norm.
            `certify` proves more, with less work.
        method: the name of the method that gave `upper`.
        status: "complete", or "time limit" if more time might have given a tighter bound.
        seconds: the time that was spent on this row, with its share of what rows have in common.
        certificate: the file that proves `upper`, if certificates were asked for.
        error: why there is no answer, in one line; None if there is one.

    Examples:
        >>> import lipopt
        >>> network = lipopt.load([[[1.0, -2.0], [3.0, 1.0]]])
        >>> rows = lipopt.local_bounds(network, [[0.5, 0.5]], radius=0.1)
        >>> for row in rows:
        ...     print(f"{row.question}: {row.lower:.3f} <= L <= {row.upper:.3f}")
        output 0: 3.000 <= L <= 3.000
        output 1: 4.000 <= L <= 4.000
    """

    point: int
    radius: float
    question: str
    label: int | None = None
    margin: float | None = None
    lower: float | None = None
    pop_lower: float | None = None
    upper: float | None = None
    certified: bool | None = None
    method: str | None = None
    status: str | None = None
    seconds: float = 0.0
    certificate: str | None = None
    error: str | None = None

    def as_text(self) -> dict[str, str]:
        """What a table for people shows of it; rounded to the safe side."""
        return {
            "point": str(self.point),
            "question": self.question,
            "radius": f"{self.radius:g}",
            "lower": "" if self.lower is None else written_down(self.lower),
            "upper": "" if self.upper is None else written_up(self.upper),
            "certified": {None: "", True: "yes", False: "no"}[self.certified],
            "status": self.error or self.status or "",
        }


class Rows(list[Row]):
    """What `local_bounds` returns: a list of rows, which notebooks show as a table.

    Args:
        rows: the rows, sorted by point.

    Example:
        >>> import lipopt
        >>> rows = lipopt.local_bounds([[[1.0, -2.0]]], [[0.5, 0.5]], radius=0.1)
        >>> rows
        <1 row about 1 point>
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        super().__init__(rows)

    def table(self) -> Any:
        """The rows as a pandas frame, a column for every field."""
        return notebook.frame([asdict(row) for row in self])

    def __repr__(self) -> str:
        points = len({row.point for row in self})
        return f"<{_counted(len(self), 'row')} about {_counted(points, 'point')}>"

    def _repr_html_(self) -> str:
        return notebook.html_table([row.as_text() for row in self])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Point(NamedTuple):
    """A point to ask about."""

    number: int  # in the data
    x: Array  # its coordinates, flat
    label: int | None  # its class, if the questions need one


@dataclass(frozen=True)
class Target:
    """The function of the inputs that is bounded: an output, or one output minus another."""

    output: int
    minus: int | None = None  # None: the output alone. Otherwise this is a margin

    @property
    def outputs(self) -> tuple[int, ...]:
        """The outputs that occur in it."""
        if self.minus is None:
            return (self.output,)
        return (self.output, self.minus)

    @property
    def words(self) -> str:
        """How rows name it."""
        if self.minus is None:
            return f"output {self.output}"
        return f"margin {self.output} - {self.minus}"


@dataclass(frozen=True)
class Ask:
    """What is asked at every point: the constants of some targets for all radii.

    The targets are all outputs, or one `output`, or the `margins` of the point's label. The header
    of a results file holds these fields by name, in this order."""

    radii: tuple[float, ...]
    method: Method
    norm: Norm = Norm.LINF
    ball_norm: Norm = Norm.LINF
    scale: Scale = None
    output: int | None = None
    margins: Margins | None = None
    clip: tuple[float, float] | None = None
    time_limit: float | None = None  # seconds for one row
    samples: int = 200
    seed: int = 0
    certificates: str | None = None  # the folder to write certificates to

    format: ClassVar[str] = "lipopt-local-2"  # of results files, changed if old ones cannot go on

    @staticmethod
    def of(
        radius: Any,
        *,
        method: str | Method,
        norm: str = "linf",
        ball_norm: str = "linf",
        scale: Any = None,
        clip: Any = None,
        certificates: Any = None,
        **others: Any,
    ) -> Ask:
        """What `local_bounds` was called with; LipoptError if an argument has the wrong form."""
        radii = read_radii(radius)
        clip_range = None if clip is None else check_clip(clip)
        return Ask(
            radii,
            find_method(method),
            norm=find_norm(norm),
            ball_norm=find_norm(ball_norm),
            scale=read_scale(scale),
            clip=clip_range,
            certificates=None if certificates is None else str(certificates),
            **others,
        )

    @property
    def batched(self) -> SDP | None:
        """The SDP, if it runs on a device, where many problems are solved as one batch."""
        if isinstance(self.method, SDP) and self.method.device is not None:
            return self.method
        return None

    @property
    def wants_certificates(self) -> bool:
        return self.certificates is not None

    @property
    def certifies_balls(self) -> bool:
        """Whether constants bound what changes within a ball: both are about the same norm."""
        return self.norm is self.ball_norm

    def ball(self, x: Array, radius: float) -> Ball:
        """The ball around a point that is asked about."""
        return Ball(x, radius, self.clip, norm=self.ball_norm.value, scale=self.scale)

    @property
    def needs_label(self) -> bool:
        """Whether the questions are about the class of a point."""
        return self.margins is not None

    def targets(self, values: Array, label: int | None) -> list[Target]:
        """What to bound at a point where the network's outputs have these values."""
        if self.margins is None or label is None:
            if self.output is not None:
                return [Target(self.output)]
            return [Target(k) for k in range(len(values))]
        if self.margins == "all":
            return [Target(label, other) for other in range(len(values)) if other != label]
        others = [k for k in range(len(values)) if k != label]
        runner_up = max(others, key=lambda k: float(values[k]))
        return [Target(label, runner_up)]

    def rows_per_point(self, outputs: int) -> int:
        """How many rows one point of a network with that many outputs has."""
        if self.margins == "all":
            targets = outputs - 1
        elif self.margins is None and self.output is None:
            targets = outputs
        else:
            targets = 1
        return len(self.radii) * targets

    def points_per_chunk(self, outputs: int) -> int:
        """How many points are solved together at most."""
        largest = LARGEST_BATCH if self.batched else LARGEST_CHUNK
        return max(1, largest // self.rows_per_point(outputs))

    def settings(self) -> dict[str, Any]:
        """As the header of a results file has it."""
        return {"method": repr(self.method), **_without_method(asdict(self))}


def blank_row(ask: Ask, point: Point, radius: float, target: Target) -> Row:
    """The row of a target, before anything is known."""
    return Row(point.number, radius, target.words, point.label, method=ask.method.name)


def _without_method(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "method"}


def read_scale(scale: Any) -> Scale:
    """Units of the inputs, one number or several."""
    if scale is None:
        return None
    units = check_scale(scale)
    return float(units) if units.ndim == 0 else tuple(units.reshape(-1).tolist())


def read_radii(radius: Any) -> tuple[float, ...]:
    """One radius or several, as numbers."""
    try:
        values = np.atleast_1d(np.asarray(radius, dtype=np.float64))
        return tuple(float(value) for value in values)
    except (TypeError, ValueError) as error:
        raise LipoptError(f"a radius is a number, or several, got {radius!r}") from error
