"""Names and messages with characters from files, as they may be shown on a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with all escaped that is not printable: control characters, lone surrogates."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
