"""Work that takes long between two looks at the clock, and has to end at a deadline.

A factorization in BLAS or SuperLU cannot be stopped. So it runs in a copy of this process, which is
killed at the deadline. Where processes cannot be copied safely, it takes the time that it takes.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from .task import Budget

T = TypeVar("T")
LOOKS = 0.1  # seconds between two looks whether Ctrl-C was pressed


class OutOfTimeError(Exception):
    """There was no time to finish."""


def in_time(budget: Budget, work: Callable[[], T]) -> T:
    """The result of some work; OutOfTimeError if it is not there when the time is over.

    The result goes through a pipe: it has to be picklable, and what work changes is not changed here."""
    if budget.deadline is None or sys.platform != "linux":
        return work()
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(sender, work), daemon=True)
    process.start()
    sender.close()
    try:
        while not receiver.poll(max(0.0, min(LOOKS, budget.seconds_left))):
            if budget.seconds_left <= 0:
                raise OutOfTimeError
        found, error = receiver.recv()
    except EOFError as end:  # the process is gone, for want of memory say
        raise OutOfTimeError from end
    finally:
        process.kill()
        process.join()
    if error is not None:
        raise error
    return found


def _send_result(sender: Any, work: Callable[[], Any]) -> None:
    try:
        sender.send((work(), None))
    except Exception as error:
        sender.send((None, error))
