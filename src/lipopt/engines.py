"""Where the points of a batch are solved: processes on this machine (joblib), or the workers of a Dask cluster.

An engine takes chunks of points, most expensive first, and yields the rows of each chunk as it finishes, in any order. The
network goes to every worker once. A worker that dies costs its chunks another try; a point whose worker dies again and
again, when it is tried alone at last, gets rows that say so.

Dask is used through its own futures: joblib's Dask backend (1.6) waits forever for a task that was given up because its
workers died."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from numbers import Integral
from threading import Thread
from typing import Any, TypeAlias
from warnings import catch_warnings

from .errors import LipoptError
from .local import Ask, Point, Row, answers, unanswered
from .network import Network
from .threads import one_blas_thread

Chunk: TypeAlias = Sequence[Point]
DIED = "the worker died while solving this point, more than once; it may need more memory than there is"
CONNECT = 10.0  # seconds until a cluster has to answer
AHEAD = 3  # chunks that wait on every thread of a cluster

_network: Network | None = None  # of this worker process


def _receive(network: Network) -> None:
    """How a worker process begins. It ends when the run does, even if that is killed; a SIGTERM to all is for the run."""
    global _network
    _network = network
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _solve(network: Network | None, ask: Ask, chunk: Chunk) -> list[Row]:
    """What a worker does. Always on one BLAS thread: the digits of a result depend on their number."""
    network = network or _network
    assert network is not None
    with one_blas_thread():
        return answers(network, ask, chunk)


@dataclass(frozen=True)
class Processes:
    """`jobs` processes on this machine; 1 is this process itself."""

    jobs: int

    def __post_init__(self) -> None:
        if not isinstance(self.jobs, Integral) or self.jobs < 1:
            raise LipoptError(f"the number of jobs must be a whole number > 0, got {self.jobs!r}")

    @property
    def workers(self) -> int:
        return self.jobs

    def solve(self, network: Network, ask: Ask, chunks: Sequence[Chunk]) -> Iterator[list[Row]]:
        """The rows of all chunks. When a worker dies, joblib gives up all that was under way: the first of what is left."""
        if self.jobs == 1:
            yield from (_solve(network, ask, chunk) for chunk in chunks)
            return
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        left = dict(enumerate(chunks))
        deaths: Counter[int] = Counter()
        while left:
            try:
                for done, rows in self._parallel(network, ask, left):
                    del left[done]
                    yield rows
            except TerminatedWorkerError:
                suspects = list(left)[: 2 * self.jobs]
                deaths.update(suspects)
                for k in [k for k in suspects if deaths[k] > 1]:
                    for point in left.pop(k):
                        yield self._alone(network, ask, point)

    def _alone(self, network: Network, ask: Ask, point: Point) -> list[Row]:
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        try:
            return next(iter(self._parallel(network, ask, {0: [point]})))[1]
        except TerminatedWorkerError:
            return unanswered(network, ask, point, DIED)

    def _parallel(self, network: Network, ask: Ask, chunks: dict[int, Chunk]) -> Iterator[tuple[int, list[Row]]]:
        from joblib import Parallel, delayed, parallel_config

        with parallel_config(backend="loky", initializer=_receive, initargs=(network,)):
            parallel = Parallel(n_jobs=self.jobs, batch_size=1, return_as="generator_unordered", pre_dispatch=2 * self.jobs)
            yield from parallel(delayed(_numbered)(k, ask, chunk) for k, chunk in list(chunks.items()))


def _numbered(k: int, ask: Ask, chunk: Chunk) -> tuple[int, list[Row]]:
    return k, _solve(None, ask, chunk)


def _keep(network: Network) -> Network:
    """The network as the result of a task, which workers pass on: unlike scattered data, it is not lost with a worker."""
    return network


class Cluster:
    """The workers of the Dask scheduler at an address."""

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise LipoptError("a cluster needs Dask: pip install 'lipopt[dask]'") from error
        self.address = address
        try:
            self._client = Client(address, timeout=CONNECT)
        except (OSError, TimeoutError, ValueError) as error:
            raise LipoptError(f"no Dask scheduler answers at {address}: start one with 'dask scheduler'") from error
        try:
            versions = self._client.run(_version)
        except Exception as error:
            raise LipoptError(f"the workers of {address} cannot run lipopt: {error}") from error
        if not versions:
            raise LipoptError(f"the cluster {address} has no workers: start some with 'dask worker {address} --nthreads 1'")
        for worker, version in versions.items():
            if version != _version():
                raise LipoptError(f"worker {worker} has lipopt {version}, this is {_version()}")

    @property
    def workers(self) -> int:
        return sum(self._client.ncores().values())

    def solve(self, network: Network, ask: Ask, chunks: Sequence[Chunk]) -> Iterator[list[Row]]:
        """The rows of all chunks. No more than AHEAD chunks a worker are sent at a time."""
        under_way: dict[Any, Chunk] = {}
        try:
            yield from self._solve(network, ask, chunks, under_way)
        except (OSError, CancelledError) as error:
            raise LipoptError(f"the cluster {self.address} is gone; start it again and go on with --resume") from error
        finally:
            with suppress(Exception):
                self._client.cancel(list(under_way))

    def _solve(self, network: Network, ask: Ask, chunks: Sequence[Chunk], under_way: dict[Any, Chunk]) -> Iterator[list[Row]]:
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        with catch_warnings(action="ignore", category=UserWarning):  # Dask advises to scatter what is large
            there = self._client.submit(_keep, network, pure=False)
        queue = list(reversed(chunks))
        finished = as_completed(with_results=True, raise_errors=False)
        while queue or under_way:
            while queue and len(under_way) < max(1, AHEAD * self.workers):
                chunk = queue.pop()
                future = self._client.submit(_solve, there, ask, chunk, pure=False)
                under_way[future] = chunk
                finished.add(future)
            future, result = next(finished)
            chunk = under_way.pop(future)
            if isinstance(result, list):  # future.status may have changed again: the worker may be dead by now
                yield result
            elif not isinstance(result, tuple):  # (type, error, traceback) of one that failed
                raise CancelledError
            elif not isinstance(result[1], KilledWorker):
                raise result[1]
            elif len(chunk) > 1:
                queue += [[point] for point in chunk]
            else:
                yield unanswered(network, ask, chunk[0], DIED)

    def close(self) -> None:
        """Leave the cluster; it goes on."""
        self._client.close()


Engine: TypeAlias = Processes | Cluster


@contextmanager
def engine(jobs: int, cluster: str | None) -> Iterator[Engine]:
    """`jobs` processes here, or the cluster at an address."""
    if cluster is None:
        yield Processes(jobs)
    else:
        with closing(Cluster(cluster)) as where:
            yield where


def _version() -> str:
    from importlib.metadata import version

    return version("lipopt")
