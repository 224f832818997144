"""A certificate: the text of a file, and the bound that it proves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """The text of a certificate; `bound` is what it proves, `loss` how much larger that is than the bound before rounding."""

    text: str
    bound: float
    loss: float

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.text, encoding="ascii", newline="\n")
