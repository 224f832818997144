"""The file of a batch run: a header, then a row of JSON a line, the rows of one point together, appended as they finish.

The header says what the rows answer: the network's hash, the data's, and every setting that matters to the result. A run
that was killed left whole points, and at most one torn one at the end, which is cut off when the file is opened again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from .errors import LipoptError
from .local import Row

FORMAT = "lipopt-local-1"
OTHER = {"network": "another network", "data": "other data", "labels": "other labels"}  # what a difference in the header means


class Records:
    """An open results file. `done` are the points whose rows are in it."""

    def __init__(self, file: BinaryIO, done: frozenset[int]) -> None:
        self._file, self.done = file, done

    @staticmethod
    def create(path: Path, header: Mapping[str, Any]) -> Records:
        """A new file; one that is there already is left alone."""
        try:
            file = path.open("xb")
        except FileExistsError as error:
            raise LipoptError(f"{path} exists; use --resume to go on with it, or write to another file") from error
        except OSError as error:
            raise LipoptError(f"cannot write {path}: {error.strerror}") from error
        records = Records(file, frozenset())
        records._write(_header_line(header))
        return records

    @staticmethod
    def resume(path: Path, header: Mapping[str, Any], rows_per_point: int) -> Records:
        """The file of a run that ended early, without what was torn at its end; a new file if there is none."""
        try:
            first = _first_line(path)
            if _header_line(header).startswith(first) and not first.endswith(b"\n"):
                path.unlink(missing_ok=True)
                return Records.create(path, header)
            _check_header(first, path, header)
            done, end = _whole_points(path, rows_per_point)
            file = path.open("r+b")
            file.truncate(end)
            file.seek(end)
        except OSError as error:
            raise LipoptError(f"cannot go on with {path}: {error.strerror}") from error
        return Records(file, frozenset(done))

    def append(self, rows: Iterable[Row]) -> None:
        """Write the rows of whole points, and see them on the disk."""
        self._write("".join(json.dumps(asdict(row), allow_nan=False) + "\n" for row in rows).encode())

    def close(self) -> None:
        self._file.close()

    def _write(self, content: bytes) -> None:
        self._file.write(content)
        self._file.flush()
        os.fsync(self._file.fileno())


def read_rows(path: str | Path) -> Iterator[Row]:
    """The rows of a results file, one at a time."""
    with Path(path).open("rb") as file:
        file.readline()
        for line in file:
            yield Row(**json.loads(line))


def _header_line(header: Mapping[str, Any]) -> bytes:
    return (json.dumps({"format": FORMAT, **header}) + "\n").encode()


def _first_line(path: Path) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.readline()


def _check_header(line: bytes, path: Path, header: Mapping[str, Any]) -> None:
    """Refuse to go on with a file whose rows answer something else."""
    try:
        found = json.loads(line)
        known = found["format"] == FORMAT
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise LipoptError(f"{path} is no results file of this version; write to another file")
    for name, value in json.loads(json.dumps(header)).items():
        if found.get(name) != value:
            what = OTHER.get(name, f"{name} {found.get(name)}, now {value}")
            raise LipoptError(f"{path} was made with {what}; write to another file")


def _whole_points(path: Path, rows_per_point: int) -> tuple[set[int], int]:
    """The points that have all their rows, and where the last of them ends."""
    done: set[int] = set()
    with path.open("rb") as file:
        end = position = len(file.readline())
        current, count = None, 0
        for number, line in enumerate(file, start=2):
            point = _point(line)
            if (point is None and file.read(1)) or (count and point not in (current, None)):
                raise LipoptError(f"{path} is damaged at line {number}; write to another file")
            if point is None:
                break
            current, count, position = point, count + 1, position + len(line)
            if count == rows_per_point:
                done.add(point)
                end, count = position, 0
    return done, end


def _point(line: bytes) -> int | None:
    """The point of a row; None if the line is torn."""
    try:
        return int(json.loads(line)["point"]) if line.endswith(b"\n") else None
    except (ValueError, KeyError, TypeError):
        return None
