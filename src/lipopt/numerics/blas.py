"""How numbers are computed: NumPy's error state, and how many threads BLAS gets.

One thread for small problems, where several cost more than they bring, far more on a busy machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np

SMALL = 3000  # variables up to which one thread is faster than several


@cache
def _controller(torch: bool) -> Any:
    """The controller of the BLAS libraries loaded so far; finding them takes milliseconds.

    `torch` only keys the cache: importing it loads another library."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def blas_threads(variables: int) -> AbstractContextManager[Any]:
    """One BLAS thread for a problem of this size, or as many as there are."""
    return one_blas_thread() if variables <= SMALL else nullcontext()


def one_blas_thread() -> AbstractContextManager[Any]:
    """One BLAS thread, whatever the size: for workers that share a machine."""
    return _controller("torch" in sys.modules).limit(limits=1)


def quiet() -> np.errstate:
    """No warnings of what overflows: it is found and refused at the end."""
    return np.errstate(over="ignore", under="ignore", invalid="ignore")


@contextmanager
def arithmetic(variables: int) -> Iterator[None]:
    """How everything is computed, from a question to its certificate."""
    with quiet(), blas_threads(variables):
        yield
