"""A certificate and the network that it is about, as files side by side, and what lipcheck says of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import LipoptError
from ..model.network import Network
from ..names import printable
from ..result import Result

VERDICTS = {
    0: "verified",
    1: "rejected",
    2: "malformed",
    3: "another network",
    4: "limits exceeded",
}


def network_beside(certificate: Path) -> Path:
    """Where the network of a certificate is written."""
    return certificate.with_suffix(".safetensors")


def write_certificate(network: Network, result: Result, path: Path) -> None:
    """Write the certificate of a result, and the network beside it."""
    beside = network_beside(path)
    try:
        network.save(beside)
        result.save(path)
    except OSError as error:
        raise LipoptError(f"cannot write {path} or {beside}: {error}") from error


def check_command(certificate: Path) -> str:
    """The command that verifies a certificate."""
    return f"lipcheck {printable(str(network_beside(certificate)))} {printable(str(certificate))}"


@dataclass(frozen=True)
class Verdict:
    """What lipcheck says of a certificate."""

    code: int
    text: str  # the theorem in words, or why there is none

    @property
    def word(self) -> str:
        return VERDICTS.get(self.code, "internal error")


@contextmanager
def checking(certificate: Path, seconds: int) -> Iterator[Callable[[], Verdict]]:
    """Run lipcheck, in a process of its own that shares no code with this one, while other work is
    done; a function that waits for its verdict."""
    command = [sys.executable, "-m", "lipcheck", "--seconds", str(seconds)]
    command += [str(network_beside(certificate)), str(certificate)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:

        def verdict() -> Verdict:
            out, err = process.communicate()
            return Verdict(process.returncode, printable(out.strip() or err.strip()))

        try:
            yield verdict
        finally:
            process.kill()  # does nothing if it has ended
