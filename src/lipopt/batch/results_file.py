"""The file of a batch run: a header, then a row of JSON a line, appended as points finish.

The header says what the rows answer: the network's hash, the data's, and every setting that matters
to the result. The rows of one point stand together. A run that was killed left whole points, and at
most one torn one at the end, which is cut off when the file is opened again. One run at a time may
write a file, and every row of it is checked before a run goes on with it."""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, get_args, get_origin, get_type_hints

from filelock import lock_descriptor

from ..errors import LipoptError
from .rows import Ask, Row
from .verdicts import Certify, Verdict

AnyRow: TypeAlias = Row | Verdict

# The formats of files, and what their rows are.
FORMATS: dict[str, type[AnyRow]] = {Ask.format: Row, Certify.format: Verdict}

# Header entries that are hashes, which tell nobody anything, in words: "was made with other data".
HASHED = {
    "network": "another network",
    "data": "other data",
    "labels": "other labels",
}


def _types(row: type[AnyRow]) -> dict[str, list[Any]]:
    """For every field of a row the types that it may have: [int], or [float, NoneType]."""
    found = {}
    for name, hint in get_type_hints(row).items():
        found[name] = [get_origin(part) or part for part in get_args(hint) or (hint,)]
    return found


TYPES = {row: _types(row) for row in FORMATS.values()}

Key: TypeAlias = tuple[int, float, str]  # the point, radius and question of a row


class Records:
    """An open results file, locked. `done` are the points whose rows are in it."""

    def __init__(self, file: BinaryIO, done: frozenset[int]) -> None:
        self._file = file
        self.done = done

    @staticmethod
    def create(path: Path, header: Mapping[str, Any]) -> Records:
        """A new file; one that is there already is left alone."""
        try:
            file = path.open("x+b")
        except FileExistsError as error:
            raise _exists(path) from error
        except OSError as error:
            raise LipoptError(f"cannot write {path}: {error.strerror}") from error
        with _closed_on_failure(file):
            _lock(file, path)
            if file.read(1):  # another run resumed the file before this one had locked it
                raise _exists(path)
            records = Records(file, frozenset())
            records._write(_header_line(header))
        return records

    @staticmethod
    def resume(path: Path, header: Mapping[str, Any], rows_per_point: int) -> Records:
        """The file of a run that ended early, without what is torn; a new one if there is none."""
        try:
            file = path.open("a+b")
        except OSError as error:
            raise LipoptError(f"cannot go on with {path}: {error.strerror}") from error
        with _closed_on_failure(file):
            _lock(file, path)
            file.seek(0)
            first = file.readline()
            expected = _header_line(header)
            is_new_or_torn = first != expected and expected.startswith(first)
            if is_new_or_torn:
                file.truncate(0)
                records = Records(file, frozenset())
                records._write(expected)
                return records
            _check_header(first, path, header)
            kind = FORMATS[header["format"]]
            done, end = _whole_points(file, path, range(*header["points"]), rows_per_point, kind)
            file.truncate(end)
        return Records(file, frozenset(done))

    def append(self, rows: Iterable[AnyRow]) -> None:
        """Write the rows of whole points, and see them on the disk."""
        lines = [row_line(row) for row in rows]
        self._write("".join(lines).encode())

    def close(self) -> None:
        """The lock goes with the file."""
        self._file.close()

    def _write(self, content: bytes) -> None:
        self._file.write(content)
        self._file.flush()
        os.fsync(self._file.fileno())


def row_line(row: AnyRow) -> str:
    """A row as a line of the file."""
    return json.dumps(asdict(row), allow_nan=False) + "\n"


def read_rows(path: str | Path) -> Iterator[Any]:
    """The rows of a results file, one at a time; LipoptError if one is damaged."""
    with Path(path).open("rb") as file:
        kind = _row_type(file.readline())
        if kind is None:
            raise _unknown(path)
        for number, line in enumerate(file, start=2):
            try:
                yield _parse_row(line, kind)
            except ValueError as error:
                raise LipoptError(f"{path} is damaged at line {number}: {error}") from error


def _lock(file: BinaryIO, path: Path) -> None:
    """Keep other runs out for as long as the file is open.

    The lock is on the results file itself, so that no other file is left behind, or needed in a
    folder that cannot be written. The system drops it when the process ends, however it ends."""
    try:
        locked = lock_descriptor(file.fileno(), blocking=False)
    except OSError as error:
        raise LipoptError(f"cannot lock {path} ({error.strerror}); use another disk") from error
    if not locked:
        raise LipoptError(f"another run is writing {path}; wait for its end, or use another file")


@contextmanager
def _closed_on_failure(file: BinaryIO) -> Iterator[None]:
    """Close the file, and so unlock it, if what is done with it fails."""
    try:
        yield
    except BaseException:
        file.close()
        raise


def _exists(path: Path) -> LipoptError:
    return LipoptError(f"{path} exists; use --resume to go on with it, or write to another file")


def _header_line(header: Mapping[str, Any]) -> bytes:
    return (json.dumps(header) + "\n").encode()


def _row_type(header: bytes) -> type[AnyRow] | None:
    """What the rows of a file with this header are; None if it is not known."""
    try:
        return FORMATS.get(json.loads(header)["format"])
    except (ValueError, KeyError, TypeError):
        return None


def _unknown(path: str | Path) -> LipoptError:
    return LipoptError(f"{path} is no results file of this version; write to another file")


def _check_header(line: bytes, path: Path, header: Mapping[str, Any]) -> None:
    """Refuse to go on with a file whose rows answer something else."""
    if _row_type(line) is None:
        raise _unknown(path)
    found = json.loads(line)
    if found["format"] != header["format"]:
        raise LipoptError(f"{path} holds the rows of another command; write to another file")
    plain = json.loads(json.dumps(header))  # as it would be read: tuples become lists
    if found["points"] != plain["points"]:
        kept, asked = (f"{first} to {end - 1}" for first, end in (found["points"], plain["points"]))
        raise LipoptError(f"{path} is about the points {kept}, now {asked}; write to another file")
    for name, value in plain.items():
        if found.get(name) != value:
            what = HASHED.get(name, f"{name} {found.get(name)}, now {value}")
            raise LipoptError(f"{path} was made with {what}; write to another file")


def _whole_points(
    file: BinaryIO, path: Path, points: range, rows: int, kind: type[AnyRow]
) -> tuple[set[int], int]:
    """The points that have all their rows, and where in the file the last of them ends.

    The file has been read up to the end of its header. What is torn comes last: a line that is
    damaged and has others after it is an error."""
    done: set[int] = set()
    current: set[Key] = set()  # the rows of the point that is not complete yet
    position = file.tell()
    end = position
    for number, line in enumerate(file, start=2):
        try:
            row = _parse_row(line, kind)
            _check_place(row, points, done, current)
        except ValueError as error:
            is_last = not file.read(1)
            if is_last:
                break
            raise LipoptError(
                f"{path} is damaged at line {number}: {error}; use another file"
            ) from error
        position += len(line)
        current.add((row.point, row.radius, row.question))
        if len(current) == rows:
            done.add(row.point)
            current.clear()
            end = position
    return done, end


def _check_place(row: AnyRow, points: range, done: set[int], current: set[Key]) -> None:
    """Raise ValueError unless a row may stand after those that are there."""
    if row.point not in points:
        raise ValueError(f"the data has no point {row.point}")
    if row.point in done or (row.point, row.radius, row.question) in current:
        raise ValueError("a row that is there already")
    if any(point != row.point for point, _, _ in current):
        raise ValueError("the rows of the point before it are not complete")


def _parse_row(line: bytes, kind: type[AnyRow]) -> AnyRow:
    """The row that a line holds; ValueError if it is not a valid one."""
    if not line.endswith(b"\n"):
        raise ValueError("the line is torn")
    try:
        entries = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError("the line is not JSON") from error
    types = TYPES[kind]
    if not isinstance(entries, dict) or entries.keys() != types.keys():
        raise ValueError("the line has not the fields of a row")
    for name, allowed in types.items():
        value = entries[name]
        if type(value) not in allowed or not _is_finite(value):
            raise ValueError(f"{name} is {reprlib.repr(value)}")
    if entries["radius"] < 0 or entries["seconds"] < 0:
        raise ValueError("the radius or the time is negative")
    return kind(**entries)


def _is_finite(value: Any) -> bool:
    """Whether a number is finite, and whether a list holds finite numbers alone."""
    if isinstance(value, list):
        return all(isinstance(entry, float) and isfinite(entry) for entry in value)
    return not isinstance(value, float) or isfinite(value)
