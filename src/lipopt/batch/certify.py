"""certify() and certified_radius(): whether classes stay, and up to which radius."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import LipoptError
from ..model.norms import NormName
from ..numerics.arrays import as_array, as_index
from ..numerics.blas import arithmetic
from ..progress import RowsProgress, rows_progress_as_asked
from ..readers import load_for
from ..readers.points import first_of
from .engines import engine
from .radius import PRECISION, search_radii
from .run import Run
from .verdicts import CELLS, Certify, Verdicts


def certify(
    network: Any,
    points: Any,
    radius: float | Sequence[float] = (),
    *,
    input_shape: Sequence[int] | None = None,
    labels: Any = None,
    certified_radius: bool = False,
    norm: NormName = "linf",
    scale: Any = None,
    clip: tuple[float, float] | None = None,
    cells: int = CELLS,
    time_limit: float | None = None,
    seed: int = 0,
    device: str | None = None,
    certificates: str | Path | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    path: str | Path | None = None,
    resume: bool = False,
    progress: RowsProgress | bool | None = None,
) -> Verdicts:
    """Say of many points whether their class stays in the balls around them.

    The cheapest proof is tried first: linear bounds on all margins, then better ones, then branch
    and bound. Beside it, inputs with another class are looked for. docs/certify.md says more.

    Args:
        network: a Network, or anything that `load` reads, with two outputs or more.
        points: the centers of the balls, an array (points, inputs) or (points, *input shape).
        radius: one radius of the balls, or several.
        input_shape: the shape of one input of a torch module, without the batch dimension.
        labels: the class of every point; the class that the network gives, if they are not given.
        certified_radius: also search, for every point, the largest radius that can be certified.
        norm: the norm of the balls, "linf", "l2" or "l1".
        scale: how much of each input counts as 1, in the radius; None for 1.
        clip: a range (low, high) that all inputs lie in, such as (0, 1) for pixels.
        cells: how far branch and bound may go in one ball; 0 for not at all.
        time_limit: in seconds, for each row: after it, there is no more branch and bound.
        seed: of everything random.
        device: a torch device, such as "cuda", for linear bounds and better lines; None for NumPy.
        certificates: a folder to write a certificate of every certified ball to, those of
            certified radii included. The network is written there too.
        jobs: the number of processes on this machine; 1 is this process.
        cluster: the address of a Dask scheduler, to use its workers instead.
        path: a results file to append rows to as they finish; see docs/scaling.md.
        resume: go on with the results file of a run that ended early.
        progress: True for a bar, on a terminal or in a notebook; or a function that is called with
            the numbers of rows that are done, that failed, and of all.

    Returns:
        Verdicts, a list: one for every point and radius, and one for every certified radius, sorted by point:
        "certified", "broken" (with the input that breaks it) or "open". What fails leaves a row
        whose `error` says why.

    Raises:
        LipoptError: an argument makes no sense, or a file cannot be written. All that can be
            checked is checked before anything runs.

    Examples:
        >>> import lipopt
        >>> network = lipopt.load([[[1.0, 2.0], [3.0, -1.0]], [[1.0, -1.0], [-1.0, 1.0]]])
        >>> for verdict in lipopt.certify(network, [[0.5, 0.5]], radius=[0.05, 0.2]):
        ...     print(verdict.radius, verdict.status, verdict.counterexample is not None)
        0.05 certified False
        0.2 broken True
    """
    ask = Certify.of(
        radius,
        norm=norm,
        scale=scale,
        clip=clip,
        certified_radius=certified_radius,
        certificates=certificates,
        cells=cells,
        time_limit=time_limit,
        seed=seed,
        device=device,
    )
    network = load_for(network, input_shape, first_of(points))
    run = Run.about(network, points, ask, labels=labels, resume=resume)
    with engine(jobs, cluster) as where, rows_progress_as_asked(progress) as show:
        return Verdicts(run.rows(where, path, resume, show))


def certified_radius(
    network: Any,
    point: Any,
    label: int,
    *,
    input_shape: Sequence[int] | None = None,
    largest: float | None = None,
    precision: float = PRECISION,
    norm: NormName = "linf",
    scale: Any = None,
    clip: tuple[float, float] | None = None,
    cells: int = CELLS,
    time_limit: float | None = None,
) -> float:
    """A radius of a ball around a point in which the network's class is proved to stay.

    Args:
        network: a Network, or anything that `load` reads, with two outputs or more.
        point: the center of the ball, in the network's input shape or flat.
        label: the output that has to be the largest in the whole ball.
        input_shape: the shape of one input of a torch module, without the batch dimension.
        largest: the largest radius to try; None for no limit but the width of `clip`.
        precision: how far the search goes, relative to the radius.
        norm: the norm of the ball, "linf", "l2" or "l1".
        scale: how much of each input counts as 1, in the radius; None for 1.
        clip: a range (low, high) that all inputs lie in, such as (0, 1) for pixels.
        cells: how far branch and bound may go.
        time_limit: in seconds; after it, there is no more branch and bound.

    Returns:
        A radius that was certified; 0 if none was, or if the point itself has another class. Unless
        it is `largest`, a radius that is larger by `precision` could not be certified.

    Raises:
        LipoptError: an argument makes no sense.

    Examples:
        >>> import lipopt
        >>> network = lipopt.load([[[1.0, 0.0], [0.0, 1.0]]])
        >>> radius = lipopt.certified_radius(network, [2.0, 1.0], label=0)  # x_0 > x_1 up to 1/2
        >>> 0.4999 < radius < 0.5
        True
    """
    network = load_for(network, input_shape, point)
    if largest is not None and not 0 < largest < np.inf:
        raise LipoptError(f"the largest radius must be a positive number, got {largest}")
    if not 0 < precision < 1:
        raise LipoptError(f"the precision must lie between 0 and 1, got {precision}")
    x = np.asarray(as_array(point))
    if x.size != network.input_size:
        raise LipoptError(
            f"a certified radius is about one input of shape {network.input_shape}, got shape"
            f" {x.shape}; for many points use certify(..., certified_radius=True)"
        )
    ask = Certify.of(
        (),
        norm=norm,
        scale=scale,
        clip=clip,
        certified_radius=True,
        largest=None if largest is None else float(largest),
        cells=cells,
        time_limit=time_limit,
    )
    label = as_index(label)
    run = Run.about(network, x.reshape(1, -1), ask, labels=[label])
    assert ask.largest is not None
    assert run.labels is not None
    with arithmetic(network.widest):
        effort = ask.effort(cells, 1)
        found = search_radii(
            network, run.points, run.labels, ask.balls, ask.largest, effort, precision
        )
    return float(found.certified[0])
