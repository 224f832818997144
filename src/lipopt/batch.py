"""local_bounds(): many points x outputs or margins x radii, on one machine or a cluster.

A point is solved as a whole, in one place (local.py); chunks of points are spread over workers (engines.py); rows are appended
to a file as they come (records.py). Every problem has a seed of its own and every worker one BLAS thread, so neither the
number of workers nor the order changes a row, but for its seconds and what a time limit cuts off. (On a device, the rows of a
chunk are solved as one batch, and their last digits depend on what else is in it.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .api import QUIET, check_work
from .backend import backend
from .data import check_labels, check_points
from .domain import Ball, check_clip
from .engines import Chunk, Engine, engine
from .errors import LipoptError
from .local import Ask, Margins, Row, unknown_slopes
from .methods import Method, find_method
from .network import Network
from .problem import NORMS, Norm, output_matrix
from .readers import load
from .records import Records, read_rows
from .rounding import Array
from .sdp import SDP

METHOD = SDP(gap=1e-3)  # ten times looser than for one problem: most problems need half the time
LARGEST_CHUNK = 64  # rows: seconds of work or more, where a task costs milliseconds to schedule
LARGEST_BATCH = 256  # rows, where those of a chunk are solved together
CHUNKS_PER_WORKER = 8
SORTED = 10_000  # points up to which the work is estimated: with more, the last chunks are a small part of the run anyway
LARGEST_ARRAY = 2**23  # numbers, when all points are evaluated

Progress: TypeAlias = Callable[[int, int, int], None]  # rows done, failed, all


def local_bounds(
    network: Any,
    points: Any,
    radius: float | Sequence[float] = (),
    *,
    input_shape: Sequence[int] | None = None,
    labels: Any = None,
    output: int | None = None,
    margins: Margins | None = None,
    certify: bool = False,
    certified_radius: bool = False,
    norm: Norm = "linf",
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
    progress: Progress | None = None,
) -> list[Row]:
    """Bounds over the linf balls around all points, one row for every point, radius and output, sorted by point.

    Instead of the outputs (or one `output`), `margins` asks for the differences between the label's output and all others,
    or the runner-up's alone; without `labels`, the label is the class that the network gives. The row of a margin is
    `certified` if the margin is proved positive on the whole ball; a point is, if all its margins are. With `certify`,
    margins are solved no further than that takes, and constants may be loose. `certified_radius` asks for the largest
    radius that can be certified. With a folder for `certificates`, every upper bound is the one its certificate proves.

    Runs in `jobs` processes, or on the Dask cluster with that scheduler address. Rows are also appended to the file `path`
    as they finish; `resume` goes on with such a file. The time limit is per row."""
    questions = Questions.about(
        load(network, input_shape=input_shape), points, radius, labels=labels, output=output, margins=margins, certify=certify,
        certified_radius=certified_radius, norm=norm, clip=clip, method=method, time_limit=time_limit, samples=samples, seed=seed,
        certificates=certificates, resume=resume,
    )  # fmt: skip
    with engine(jobs, cluster) as where:
        if path is None:
            rows = [row for part in questions.solve(where, progress=progress) for row in part]
        else:
            questions.write(Path(path), where, resume, progress)
            rows = list(read_rows(path))
    return sorted(rows, key=lambda row: row.point)


@dataclass(frozen=True, eq=False)
class Questions:
    """Points, and what is asked about each of them: all checked."""

    network: Network
    points: Array
    labels: Array | None
    ask: Ask
    first: int = 0  # the number of the first point

    @staticmethod
    @QUIET
    def about(
        network: Network,
        points: Any,
        radius: float | Sequence[float],
        *,
        labels: Any,
        certified_radius: bool,
        method: str | Method,
        certificates: str | Path | None,
        resume: bool = False,
        only: slice = slice(None),
        **options: Any,
    ) -> Questions:
        """Check everything before anything runs."""
        try:
            radii = tuple(float(r) for r in np.atleast_1d(np.asarray(radius, dtype=np.float64)))
        except (TypeError, ValueError) as error:
            raise LipoptError(f"a radius is a number, or several, got {radius!r}") from error
        clip = options["clip"] = None if options["clip"] is None else check_clip(options["clip"])
        largest = (1.0 if clip is None else clip[1] - clip[0]) if certified_radius else None
        ask = Ask(
            radii,
            find_method(method),
            largest=largest,
            certificates=None if certificates is None else str(certificates),
            **options,
        )
        rows, first = check_points(network, points, only), only.start or 0
        _check(network, ask, rows, first, labels is not None)
        labelled = ask.margins is not None or ask.largest is not None
        if labels is not None:
            classes = check_labels(network, labels, len(points), only)
        else:
            classes = np.concatenate([np.atleast_2d(network.forward(part)).argmax(axis=1) for part in _parts(network, rows)])
        if certificates is not None:
            _make_folder(Path(certificates), network, resume)
        return Questions(network, rows, classes if labelled else None, ask, first)

    @property
    def rows_per_point(self) -> int:
        return self.ask.rows_per_point(self.network.output_size)

    def header(self) -> dict[str, Any]:
        """What the rows answer."""
        settings = {name: value for name, value in asdict(self.ask).items() if name != "method"}
        labels = b"" if self.labels is None else self.labels.tobytes()
        return {
            "network": self.network.hash,
            "data": hashlib.sha256(np.ascontiguousarray(self.points).tobytes()).hexdigest(),
            "points": [self.first, self.first + len(self.points)],
            "method": repr(self.ask.method),
            **settings,
            "labels": hashlib.sha256(labels).hexdigest(),
        }

    def write(self, path: Path, where: Engine, resume: bool = False, progress: Progress | None = None) -> None:
        """Append the rows to a file, a whole point at a time."""
        header = self.header()
        records = Records.resume(path, header, self.rows_per_point) if resume else Records.create(path, header)
        try:
            for rows in self.solve(where, records.done, progress):
                records.append(rows)
        finally:
            records.close()

    def solve(self, where: Engine, done: frozenset[int] = frozenset(), progress: Progress | None = None) -> Iterator[list[Row]]:
        """The rows of the points that are not done, by chunks."""
        finished, failed, total = len(done) * self.rows_per_point, 0, len(self.points) * self.rows_per_point
        if progress:
            progress(finished, failed, total)
        for rows in where.solve(self.network, self.ask, self.chunks(where.workers, done)):
            yield rows
            finished += len(rows)
            failed += sum(row.error is not None for row in rows)
            if progress:
                progress(finished, failed, total)

    def chunks(self, workers: int, done: frozenset[int]) -> list[Chunk]:
        """The points that are not done, those with the most work first: a few chunks for every worker, none too large."""
        left = np.array([k for k in range(len(self.points)) if k + self.first not in done], dtype=np.int64)
        if len(left) == 0:
            return []
        if len(left) <= SORTED:
            largest = max(self.ask.radii, default=0.0)
            parts = _parts(self.network, self.points[left])
            work = np.concatenate([unknown_slopes(self.network, part, largest) for part in parts])
            left = left[np.argsort(-work, kind="stable")]
        if self.ask.batched:
            size = LARGEST_BATCH // self.rows_per_point
        else:
            size = min(len(left) // (CHUNKS_PER_WORKER * max(1, workers)), LARGEST_CHUNK // self.rows_per_point)
        size = max(1, size)
        label = [None] * len(self.points) if self.labels is None else [int(y) for y in self.labels]
        return [
            [(self.first + int(k), self.points[k], label[k]) for k in left[start : start + size]]
            for start in range(0, len(left), size)
        ]


def _make_folder(path: Path, network: Network, resume: bool) -> None:
    """A folder for certificates, with the network that they are about; without any of another run."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not resume and any(path.glob("*.cert")):
            raise LipoptError(f"{path} holds certificates already; use another folder, or go on with that run (--resume)")
        if not (resume and (path / "network.safetensors").exists()):
            network.save(path / "network.safetensors")
    except OSError as error:
        raise LipoptError(f"cannot write certificates to {path}: {error.strerror}") from error


def _parts(network: Network, points: Array) -> list[Array]:
    """The points in parts that the whole network can be evaluated on at once."""
    widest = max(node.size for node in network.nodes)
    return np.array_split(points, -(-len(points) * widest // LARGEST_ARRAY))


def _check(network: Network, ask: Ask, points: Array, first: int, labelled: bool) -> None:
    asked = ask.margins is not None or ask.largest is not None
    if ask.batched:
        backend(ask.batched.device)  # an error if it is not there
    if not ask.radii and ask.largest is None:
        raise LipoptError("give a radius, or ask for the certified radius")
    if len(set(ask.radii)) < len(ask.radii):
        raise LipoptError("every radius once, please")
    if ask.norm not in NORMS:
        raise LipoptError(f"unknown norm '{ask.norm}'; use one of {', '.join(NORMS)}")
    if ask.margins not in (None, "all", "runner-up"):
        raise LipoptError(f"margins are 'all' or 'runner-up', got '{ask.margins}'")
    if ask.output is not None:
        if not isinstance(ask.output, Integral):
            raise LipoptError(f"an output is a number, got {ask.output!r}; every output is bounded on its own without it")
        output_matrix(network, ask.output, None)
        if ask.margins is not None:
            raise LipoptError("ask for one output or for margins, not for both")
    if asked and network.output_size < 2:
        raise LipoptError("margins need a network with two outputs or more")
    if labelled and not asked:
        raise LipoptError("labels go with margins or the certified radius")
    if ask.certify and ask.margins is None:
        raise LipoptError("to certify, ask for margins")
    if (ask.certify or ask.largest is not None) and ask.norm != "linf":
        raise LipoptError("only constants in the norm linf certify linf balls")
    check_work(ask.time_limit, ask.seed, ask.samples)
    if ask.clip is not None:
        low, high = ask.clip
        outside = ((points < low) | (points > high)).any(axis=1)
        if outside.any():
            raise LipoptError(f"point {int(outside.argmax()) + first} lies outside the clip range [{low}, {high}]")
    farthest = points[np.abs(points).max(axis=1).argmax()]
    for radius in ask.radii:
        Ball(farthest, radius, ask.clip)
