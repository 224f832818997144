"""Ctrl-C: what was found until then is kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interruption:
    """Whether the user has pressed Ctrl-C."""

    has_come: bool = False


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Ctrl-C is noted, so that what was found is kept; the second one raises KeyboardInterrupt.

    Only the main thread can listen to it; elsewhere nothing changes."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        interruption.has_come = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, note)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)
