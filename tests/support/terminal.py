"""A program in a terminal of its own: what stands on the screen when it has ended."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass

import pyte

LINES = 25  # of the screen
HISTORY = 1000  # lines that have left the screen and are kept
CHUNK = 65536  # bytes to read at once, at most


@dataclass(frozen=True)
class Seen:
    """All lines that were on the screen in the end or had left it, and everything that was sent."""

    lines: list[str]
    sent: str
    code: int

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def in_terminal(
    arguments: Sequence[str], columns: int = 100, ctrl_c_after: str | None = None
) -> Seen:
    """Run Python with these arguments; press Ctrl-C once when a text has been sent."""
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    screen = pyte.HistoryScreen(columns, LINES, history=HISTORY, ratio=1 / LINES)
    stream = pyte.ByteStream(screen)
    sent = b""
    waits = ctrl_c_after is not None
    while True:
        try:
            part = os.read(terminal, CHUNK)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        sent += part
        stream.feed(part)
        if waits and str(ctrl_c_after).encode() in sent:
            os.kill(child, signal.SIGINT)
            waits = False
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    gone = ["".join(line[x].data for x in range(columns)) for line in screen.history.top]
    lines = [line.rstrip() for line in (*gone, *screen.display)]
    return Seen(lines, sent.decode(), os.waitstatus_to_exitcode(status))
