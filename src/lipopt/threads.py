"""How many threads BLAS gets: one for small problems, where several cost more than they bring, far more on a busy machine."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

SMALL = 3000  # variables up to which one thread is faster than several


@cache
def _controller(torch: bool) -> Any:
    """Of the libraries that are loaded, torch's or not: finding them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def blas_threads(variables: int) -> AbstractContextManager[Any]:
    """One BLAS thread for a problem of this size, or as many as there are."""
    return one_blas_thread() if variables <= SMALL else nullcontext()


def one_blas_thread() -> AbstractContextManager[Any]:
    """One BLAS thread, whatever the size: for workers that share a machine."""
    return _controller("torch" in sys.modules).limit(limits=1)
