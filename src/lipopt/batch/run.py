"""local_bounds(): many points x outputs or margins x radii, on one machine or a cluster.

A point is solved as a whole, in one place (answers.py); chunks of points (chunks.py) are spread
over workers (engines.py); rows are appended to a file as they come (results_file.py). Every problem
has a seed of its own and every worker one BLAS thread, so neither the number of workers nor the
order changes a row, but for its seconds and what a time limit cuts off. (On a device, the rows of a
chunk are solved as one batch, and their last digits depend on what else is in it.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from ..api import check_work
from ..errors import LipoptError
from ..methods.registry import Method
from ..methods.sdp.backend import backend
from ..methods.sdp.method import SDP
from ..model.domain import flat_scale
from ..model.network import Network
from ..model.norms import NormName
from ..numerics.arrays import Array, as_index
from ..numerics.blas import quiet
from ..problem.question import output_matrix
from ..progress import RowsProgress, rows_progress_as_asked
from ..readers import load_for
from ..readers.points import check_labels, check_points, first_of
from .chunks import Chunk, in_parts, make_chunks
from .engines import Engine, engine
from .results_file import AnyRow, Records, read_rows
from .rows import Ask, Margins, Point, Rows
from .verdicts import Certify

METHOD = SDP(gap=1e-3)  # ten times looser than for one problem: most problems need half the time


def local_bounds(
    network: Any,
    points: Any,
    radius: float | Sequence[float],
    *,
    input_shape: Sequence[int] | None = None,
    labels: Any = None,
    output: int | None = None,
    margins: Margins | None = None,
    norm: NormName = "linf",
    ball_norm: NormName = "linf",
    scale: Any = None,
    clip: tuple[float, float] | None = None,
    method: str | Method = METHOD,
    time_limit: float | None = None,
    samples: int = 200,
    seed: int = 0,
    certificates: str | Path | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    path: str | Path | None = None,
    resume: bool = False,
    progress: RowsProgress | bool | None = None,
) -> Rows:
    """Bounds on Lipschitz constants over the balls around many points.

    Args:
        network: a Network, or anything that `load` reads.
        points: the centers of the balls, an array (points, inputs) or (points, *input shape).
        radius: one radius of the balls, or several.
        input_shape: the shape of one input of a torch module, without the batch dimension.
        labels: the class of every point, for margins; the class that the network gives, if they
            are not given.
        output: the one output to bound; every output on its own, if it is not given.
        margins: "all" to bound, instead of outputs, the differences between the label's output and
            each of the others; "runner-up" for the difference to the largest of the others alone.
        norm: "linf", "l2" or "l1", on the inputs.
        ball_norm: the norm of the balls. Only constants in the same norm certify them.
        scale: how much of each input counts as 1, in the norm and in the radius; None for 1.
        clip: a range (low, high) that all inputs lie in, such as (0, 1) for pixels.
        method: the name of a method or its settings; the SDP with a relative gap of 1e-3, if it is
            not given.
        time_limit: in seconds, for each row.
        samples: random points in each ball, for the lower bounds.
        seed: of everything random.
        certificates: a folder to write a certificate of every upper bound to, which then is the one
            that the certificate proves. The network is written there too.
        jobs: the number of processes on this machine; 1 is this process.
        cluster: the address of a Dask scheduler, to use its workers instead.
        path: a results file to append rows to as they finish; see docs/scaling.md.
        resume: go on with the results file of a run that ended early.
        progress: True for a bar, on a terminal or in a notebook; or a function that is called with
            the numbers of rows that are done, that failed, and of all.

    Returns:
        Rows, a list: one for every point, radius and output or margin, sorted by point. A problem
        that fails leaves a row whose `error` says why. To know whether classes stay, use `certify`.

    Raises:
        LipoptError: an argument makes no sense, or a file cannot be written. All that can be
            checked is checked before anything is solved.

    Examples:
        >>> import lipopt
        >>> network = lipopt.load([[[1.0, -2.0], [3.0, 1.0]]])
        >>> rows = lipopt.local_bounds(network, [[0.5, 0.5]], radius=[0.1, 2.0], margins="all")
        >>> for row in rows:
        ...     print(row.question, row.radius, f"{row.upper:.3f}", row.certified)
        margin 1 - 0 0.1 5.000 True
        margin 1 - 0 2.0 5.000 False
    """
    ask = Ask.of(
        radius,
        method=method,
        norm=norm,
        ball_norm=ball_norm,
        scale=scale,
        clip=clip,
        certificates=certificates,
        output=as_index(output),
        margins=margins,
        time_limit=time_limit,
        samples=samples,
        seed=seed,
    )
    network = load_for(network, input_shape, first_of(points))
    run = Run.about(network, points, ask, labels=labels, resume=resume)
    with engine(jobs, cluster) as where, rows_progress_as_asked(progress) as show:
        return Rows(run.rows(where, path, resume, show))


@dataclass(frozen=True, eq=False)
class Run:
    """Points, and what is asked about each of them: all checked."""

    network: Network
    points: Array  # one a row
    labels: Array | None  # None if the questions need none
    ask: Ask | Certify
    first: int = 0  # the number of the first point

    @staticmethod
    @quiet()
    def about(
        network: Network,
        points: Any,
        ask: Ask | Certify,
        *,
        labels: Any = None,
        only: slice = slice(None),
        resume: bool = False,
    ) -> Run:
        """Check everything before anything runs; make the folder for certificates.

        `only` says which of the points are meant; the others are not looked at."""
        rows = check_points(network, points, only)
        first = only.start or 0
        _check_radii(ask)
        if isinstance(ask, Ask):
            _check_ask(network, ask, labels is not None)
        else:
            ask.check(network)
        _check_balls(ask, rows, first)
        classes = None
        if labels is not None:
            classes = check_labels(network, labels, len(points), only)
        elif ask.needs_label:
            classes = _classes(network, rows)
        if ask.certificates is not None:
            _make_folder(Path(ask.certificates), network, resume)
        return Run(network, rows, classes, ask, first)

    @property
    def rows_per_point(self) -> int:
        return self.ask.rows_per_point(self.network.output_size)

    def header(self) -> dict[str, Any]:
        """What the rows answer: runs with the same header give the same rows."""
        labels = b"" if self.labels is None else self.labels.tobytes()
        return {
            "format": self.ask.format,
            "network": self.network.hash,
            "data": hashlib.sha256(np.ascontiguousarray(self.points).tobytes()).hexdigest(),
            "points": [self.first, self.first + len(self.points)],
            **self.ask.settings(),
            "labels": hashlib.sha256(labels).hexdigest(),
        }

    def rows(
        self, where: Engine, path: str | Path | None, resume: bool, progress: RowsProgress | None
    ) -> list[Any]:
        """All rows, sorted by point; if there is a path, they are in that file, too."""
        rows: list[AnyRow] = []
        if path is None:
            for chunk_rows in self.solve(where, progress=progress):
                rows += chunk_rows
        else:
            self.write(Path(path), where, resume, progress)
            rows += read_rows(path)
        return sorted(rows, key=lambda row: row.point)

    def write(
        self, path: Path, where: Engine, resume: bool = False, progress: RowsProgress | None = None
    ) -> None:
        """Append the rows to a file, whole points at a time."""
        records = self._open(path, resume)
        try:
            for rows in self.solve(where, records.done, progress):
                records.append(rows)
        finally:
            records.close()

    def _open(self, path: Path, resume: bool) -> Records:
        if resume:
            return Records.resume(path, self.header(), self.rows_per_point)
        return Records.create(path, self.header())

    def solve(
        self,
        where: Engine,
        done: frozenset[int] = frozenset(),
        progress: RowsProgress | None = None,
    ) -> Iterator[list[AnyRow]]:
        """The rows of the points that are not done, by chunks."""
        finished = len(done) * self.rows_per_point
        failed = 0
        total = len(self.points) * self.rows_per_point
        if progress:
            progress(finished, failed, total)
        for rows in where.solve(self.network, self.ask, self.chunks(where.workers, done)):
            yield rows
            finished += len(rows)
            failed += sum(row.error is not None for row in rows)
            if progress:
                progress(finished, failed, total)

    def chunks(self, workers: int, done: frozenset[int]) -> list[Chunk]:
        """The points that are not done, in chunks for so many workers."""
        left = []
        for k, x in enumerate(self.points):
            number = self.first + k
            label = None if self.labels is None else int(self.labels[k])
            if number not in done:
                left.append(Point(number, x, label))
        return make_chunks(self.network, self.ask, left, workers)


def _classes(network: Network, points: Array) -> Array:
    """The class that the network gives to every point."""
    found = []
    for part in in_parts(network, points):
        outputs = np.atleast_2d(network.forward(part))
        found.append(outputs.argmax(axis=1))
    return np.concatenate(found)


def _make_folder(path: Path, network: Network, resume: bool) -> None:
    """A folder for certificates, with the network that they are about, and none of another run."""
    stored = path / "network.safetensors"
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not resume and any(path.glob("*.cert")):
            raise LipoptError(
                f"{path} holds certificates already; use another folder, or go on with that run"
                " (--resume)"
            )
        if not (resume and stored.exists()):
            network.save(stored)
    except OSError as error:
        raise LipoptError(f"cannot write certificates to {path}: {error.strerror}") from error


def _check_ask(network: Network, ask: Ask, has_labels: bool) -> None:
    """Refuse questions that make no sense, or that this network has no answer to."""
    if ask.batched:
        backend(ask.batched.device)  # LipoptError if the device is not there
    if ask.scale is not None:
        flat_scale(ask.scale, network.input_size)  # LipoptError if it has another size
    if ask.margins not in (None, "all", "runner-up"):
        raise LipoptError(f"margins are 'all' or 'runner-up', got '{ask.margins}'")
    if ask.output is not None:
        _check_output(network, ask)
    refusals = [
        (
            ask.needs_label and network.output_size < 2,
            "margins need a network with two outputs or more",
        ),
        (
            has_labels and not ask.needs_label,
            "labels go with margins",
        ),
    ]
    for refused, message in refusals:
        if refused:
            raise LipoptError(message)
    check_work(ask.time_limit, ask.seed, ask.samples)


def _check_radii(ask: Ask | Certify) -> None:
    if not ask.radii and isinstance(ask, Ask):
        raise LipoptError("give a radius")
    for k, radius in enumerate(ask.radii):
        if radius in ask.radii[:k]:
            raise LipoptError(f"each radius may be given once; {radius} is given twice")


def _check_output(network: Network, ask: Ask) -> None:
    if not isinstance(ask.output, Integral):
        raise LipoptError(
            f"an output is a number, got {ask.output!r}; without it, every output is bounded on"
            " its own"
        )
    output_matrix(network, int(ask.output), None)  # LipoptError if there is no such output
    if ask.margins is not None:
        raise LipoptError("ask for one output or for margins, not for both")


def _check_balls(ask: Ask | Certify, points: Array, first: int) -> None:
    """Refuse balls that do not exist. If the one around the farthest point does, all of them do."""
    if ask.clip is not None:
        low, high = ask.clip
        outside = ((points < low) | (points > high)).any(axis=1)
        if outside.any():
            number = first + int(outside.argmax())
            raise LipoptError(f"point {number} lies outside the clip range [{low}, {high}]")
    farthest = np.abs(points).max(axis=1).argmax()
    for radius in ask.radii:
        ask.ball(points[farthest], radius)
