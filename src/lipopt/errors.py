"""The one exception users see: what is wrong, why, and what to do about it."""

import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError

# What NumPy, gzip and zipfile raise on files that are damaged, or of another kind.
DAMAGED = (
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TokenError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


class LipoptError(ValueError):
    """Bad input, or a request that cannot be met.

    The command line prints it as one line and exits with code 2."""


def require_file(path: Path) -> None:
    """Raise an error unless there is such a file."""
    if path.is_dir():
        raise LipoptError(f"{path} is a folder")
    if not path.exists():
        raise LipoptError(f"no such file: {path}")


def reason_of(error: Exception) -> str:
    """An error as one line; with its type, if it is not one that lipopt foresees."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, LipoptError):
        return text
    return f"{type(error).__name__}: {text}"
