"""Where the points of a batch are solved: here, in processes, or on the workers of a Dask cluster.

An engine takes chunks of points, most expensive first, and yields the rows of each chunk as it
finishes, in any order. The network goes to every worker once. A worker that dies costs its chunks
another try; a point whose worker dies again and again, when it is tried alone at last, gets rows
that say so.

To add an engine, write a class with the members of `Engine`, and choose it in `engine`. What a
worker has to call is `solve_chunk`.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager, suppress
from numbers import Integral
from threading import Thread
from typing import Any, Protocol
from warnings import catch_warnings

from ..errors import LipoptError
from ..model.network import Network
from ..numerics.blas import one_blas_thread
from .answers import answers, unanswered
from .chunks import Chunk
from .results_file import AnyRow
from .rows import Ask, Point
from .verdicts import Certify, no_verdicts, verdicts

# The error of rows that cannot be solved, since every process that tries dies.
WORKER_DIED = (
    "the worker died while solving this point, more than once; it may need more memory than there"
    " is"
)
CONNECT_SECONDS = 10.0  # until a cluster has to answer
CHUNKS_AHEAD = 3  # that wait on every thread of a cluster, so that none is idle
CHUNKS_UNDER_WAY = 2  # for each process: the one that it solves, and the next one
WATCH_SECONDS = 1.0  # between two looks of a worker process at whether its run is still there


class Engine(Protocol):
    """Something that solves chunks of points."""

    @property
    def workers(self) -> int:
        """How many chunks are solved at the same time."""

    def solve(
        self, network: Network, ask: Ask | Certify, chunks: Sequence[Chunk]
    ) -> Iterator[list[AnyRow]]:
        """The rows of every chunk as it finishes, or of a part of a chunk, but of whole points.

        The chunks with the most work come first, and should be started first. A point that cannot
        be solved is answered by `without_answers`: no engine leaves one out."""

    def close(self) -> None:
        """Give back what the engine holds."""


@contextmanager
def engine(jobs: int, cluster: str | None) -> Iterator[Engine]:
    """So many processes on this machine, or the cluster at an address, if one is given."""
    with closing(_choose(jobs, cluster)) as chosen:
        yield chosen


def _choose(jobs: int, cluster: str | None) -> Engine:
    if cluster is not None:
        return DaskCluster(cluster)
    if not isinstance(jobs, Integral) or jobs < 1:
        raise LipoptError(f"the number of jobs must be a whole number > 0, got {jobs!r}")
    if jobs == 1:
        return ThisProcess()
    return Processes(jobs)


def solve_chunk(network: Network, ask: Ask | Certify, chunk: Chunk) -> list[AnyRow]:
    """What a worker does. Always on one BLAS thread: the digits of a result depend on that."""
    with one_blas_thread():
        if isinstance(ask, Certify):
            return [*verdicts(network, ask, chunk)]
        return [*answers(network, ask, chunk)]


def without_answers(network: Network, ask: Ask | Certify, point: Point) -> list[AnyRow]:
    """The rows of a point whose workers die."""
    if isinstance(ask, Certify):
        return [*no_verdicts(ask, point, WORKER_DIED)]
    return [*unanswered(network, ask, point, WORKER_DIED)]


class ThisProcess:
    """No workers: chunks are solved one after the other, where the run itself is."""

    workers = 1

    def solve(
        self, network: Network, ask: Ask | Certify, chunks: Sequence[Chunk]
    ) -> Iterator[list[AnyRow]]:
        """The rows of every chunk, in order."""
        for chunk in chunks:
            yield solve_chunk(network, ask, chunk)

    def close(self) -> None:
        """Nothing is held."""


class Processes:
    """Several processes on this machine, by joblib."""

    def __init__(self, jobs: int) -> None:
        self.workers = jobs

    def solve(
        self, network: Network, ask: Ask | Certify, chunks: Sequence[Chunk]
    ) -> Iterator[list[AnyRow]]:
        """The rows of every chunk.

        When a worker dies, joblib gives up all that was under way: the first of what is left. Such
        chunks are tried again, and after a second death their points one by one."""
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        left = dict(enumerate(chunks))
        deaths: Counter[int] = Counter()
        while left:
            try:
                for number, rows in self._parallel(network, ask, left):
                    del left[number]
                    yield rows
            except TerminatedWorkerError:
                under_way = list(left)[: CHUNKS_UNDER_WAY * self.workers]
                deaths.update(under_way)
                suspects = [number for number in under_way if deaths[number] > 1]
                for number in suspects:
                    for point in left.pop(number):
                        yield self._alone(network, ask, point)

    def close(self) -> None:
        """Nothing is held: joblib ends processes that are idle."""

    def _alone(self, network: Network, ask: Ask | Certify, point: Point) -> list[AnyRow]:
        """The rows of one point, in a process where nothing else is under way."""
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        try:
            ((_, rows),) = self._parallel(network, ask, {0: [point]})
        except TerminatedWorkerError:
            return without_answers(network, ask, point)
        return rows

    def _parallel(
        self, network: Network, ask: Ask | Certify, chunks: dict[int, Chunk]
    ) -> Iterator[tuple[int, list[AnyRow]]]:
        """The number and the rows of every chunk, as they finish."""
        from joblib import Parallel, delayed, parallel_config

        calls = [delayed(_solve_numbered)(number, ask, chunk) for number, chunk in chunks.items()]
        with parallel_config(backend="loky", initializer=_begin_worker, initargs=(network,)):
            parallel = Parallel(
                n_jobs=self.workers,
                batch_size=1,
                return_as="generator_unordered",
                pre_dispatch=CHUNKS_UNDER_WAY * self.workers,
            )
            yield from parallel(calls)


_network: Network | None = None  # in a worker process of `Processes`, the network of the run


def _begin_worker(network: Network) -> None:
    """How a worker process begins. It ends when the run does, even if the run is killed.

    A SIGTERM to the whole group is for the run, which then ends its workers."""
    global _network
    _network = network
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


def _solve_numbered(number: int, ask: Ask | Certify, chunk: Chunk) -> tuple[int, list[AnyRow]]:
    """A chunk's rows with its number, in a worker process."""
    assert _network is not None
    return number, solve_chunk(_network, ask, chunk)


class DaskCluster:
    """The workers of the Dask scheduler at an address.

    Dask is used through its own futures: joblib's Dask backend (1.6) waits forever for a task that
    was given up because its workers died."""

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise LipoptError("a cluster needs Dask: pip install 'lipopt[dask]'") from error
        self.address = address
        try:
            self._client = Client(address, timeout=CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            raise LipoptError(
                f"no Dask scheduler answers at {address}: start one with 'dask scheduler'"
            ) from error
        self._check_versions()

    def _check_versions(self) -> None:
        """Refuse a cluster without workers, or with another version of lipopt."""
        try:
            versions = self._client.run(_version)
        except Exception as error:
            raise LipoptError(
                f"the workers of {self.address} cannot run lipopt: {error}"
            ) from error
        if not versions:
            raise LipoptError(
                f"the cluster {self.address} has no workers: start some with"
                f" 'dask worker {self.address} --nthreads 1'"
            )
        for worker, version in versions.items():
            if version != _version():
                raise LipoptError(f"worker {worker} has lipopt {version}, this is {_version()}")

    @property
    def workers(self) -> int:
        """The threads of all workers, which may come and go."""
        return sum(self._client.ncores().values())

    def solve(
        self, network: Network, ask: Ask | Certify, chunks: Sequence[Chunk]
    ) -> Iterator[list[AnyRow]]:
        """The rows of every chunk. No more than a few chunks for each thread are sent ahead."""
        under_way: dict[Any, Chunk] = {}  # by future
        try:
            yield from self._solve(network, ask, chunks, under_way)
        except (OSError, CancelledError) as error:
            raise LipoptError(
                f"the cluster {self.address} is gone; start it again and go on with --resume"
            ) from error
        finally:
            with suppress(Exception):
                self._client.cancel(list(under_way))

    def close(self) -> None:
        """Leave the cluster; it goes on."""
        self._client.close()

    def _solve(
        self,
        network: Network,
        ask: Ask | Certify,
        chunks: Sequence[Chunk],
        under_way: dict[Any, Chunk],
    ) -> Iterator[list[AnyRow]]:
        """The rows of every chunk; `under_way` holds what has to be cancelled if this ends early.

        A chunk whose workers died is tried again point by point."""
        from distributed import as_completed

        sent_network = self._send(network)
        queue = list(reversed(chunks))
        finished = as_completed(with_results=True, raise_errors=False)
        while queue or under_way:
            while queue and len(under_way) < max(1, CHUNKS_AHEAD * self.workers):
                chunk = queue.pop()
                future = self._client.submit(solve_chunk, sent_network, ask, chunk, pure=False)
                under_way[future] = chunk
                finished.add(future)
            future, result = next(finished)
            chunk = under_way.pop(future)
            if _is_solved(result):
                yield result
            elif len(chunk) > 1:
                queue += [[point] for point in chunk]
            else:
                yield without_answers(network, ask, chunk[0])

    def _send(self, network: Network) -> Any:
        """The network as the result of a task: unlike scattered data, it outlives its worker."""
        with catch_warnings(action="ignore", category=UserWarning):  # "scatter what is large"
            return self._client.submit(_same, network, pure=False)


def _is_solved(result: Any) -> bool:
    """Whether a future ended with rows; False if its workers died; other errors are raised.

    The future's own status may have changed again: its worker may be dead by now."""
    from distributed.scheduler import KilledWorker

    if isinstance(result, list):
        return True
    if not isinstance(result, tuple):
        raise CancelledError
    _, error, _ = result  # type, error and traceback of a task that failed
    if not isinstance(error, KilledWorker):
        raise error
    return False


def _same(network: Network) -> Network:
    return network


def _version() -> str:
    from importlib.metadata import version

    return version("lipopt")
