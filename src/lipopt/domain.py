"""Where the Lipschitz constant is asked for: the whole space (None), a ball, a box, or the box of a VNN-LIB file."""

from __future__ import annotations

import gzip
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .errors import LipoptError
from .rounding import Array
from .tensors import as_array


@dataclass(frozen=True, eq=False)
class Box:
    """All inputs between `lower` and `upper`, entry by entry; numbers stand for the same bound on every input."""

    lower: Any
    upper: Any

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            object.__setattr__(self, name, _finite(getattr(self, name), f"the box's {name} bound"))
        if self.lower.shape != self.upper.shape and self.lower.size > 1 and self.upper.size > 1:
            raise LipoptError(f"the box's bounds have different shapes, {self.lower.shape} and {self.upper.shape}")
        if not (self.lower <= self.upper).all():
            raise LipoptError("the box is empty: a lower bound exceeds its upper bound")

    def bounds(self, size: int) -> tuple[Array, Array]:
        """The bounds for a network with `size` inputs, flat."""
        return _flat(self.lower, size, "box"), _flat(self.upper, size, "box")


@dataclass(frozen=True, eq=False)
class Ball:
    """The l_inf ball around `center`, optionally cut to `clip` = (low, high), such as (0, 1) for pixels."""

    center: Any
    radius: float
    clip: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "center", _finite(self.center, "the ball's center"))
        radius = np.asarray(as_array(self.radius))
        if radius.shape != () or radius.dtype.kind not in "fiu" or not 0 <= radius < np.inf:
            raise LipoptError(f"the radius must be a finite number >= 0, got {self.radius}")
        object.__setattr__(self, "radius", float(radius))
        if self.clip is not None:
            low, high = check_clip(self.clip)
            object.__setattr__(self, "clip", (low, high))
            if ((self.center < low) | (self.center > high)).any():
                raise LipoptError(f"the ball's center lies outside the clip range [{low}, {high}]")

    def bounds(self, size: int) -> tuple[Array, Array]:
        """The bounds for a network with `size` inputs, flat, rounded outward."""
        center = _flat(self.center, size, "center")
        lower, upper = np.nextafter(center - self.radius, -np.inf), np.nextafter(center + self.radius, np.inf)
        if self.radius == 0:
            lower = upper = center
        if self.clip is not None:
            lower, upper = np.maximum(lower, self.clip[0]), np.minimum(upper, self.clip[1])
        return lower, upper


Domain: TypeAlias = Ball | Box | None


def check_clip(clip: Any) -> tuple[float, float]:
    """The two ends of a range."""
    try:
        low, high = (float(end) for end in clip)
    except (TypeError, ValueError) as error:
        raise LipoptError(f"clip is a pair of numbers, low and high, got {clip!r}") from error
    if not low <= high:
        raise LipoptError(f"clip needs low <= high, got {clip}")
    return low, high


def _finite(values: Any, what: str) -> Array:
    try:
        array = np.asarray(as_array(values), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise LipoptError(f"{what} is not an array of numbers") from error
    if array.size == 0 or not np.isfinite(array).all():
        raise LipoptError(f"{what} is empty, or has entries that are NaN or infinite")
    return array


def _flat(values: Array, size: int, what: str) -> Array:
    if values.size == size:
        return values.reshape(-1)
    if values.ndim == 0:
        return np.full(size, float(values))
    raise LipoptError(f"the {what} has {values.size} entries, the network has {size} inputs")


def read_array(path: str | Path) -> Array:
    """An array of numbers from a .npy, .csv or .txt file."""
    path = Path(path)
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
        lines = path.read_text().splitlines()
        if not any(line.strip() for line in lines):
            raise ValueError("it is empty")
        return np.loadtxt(lines, delimiter="," if path.suffix == ".csv" else None, dtype=np.float64, ndmin=1)
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise LipoptError(f"cannot read numbers from {path}: {error}") from error


def read_box(path: str | Path) -> Box:
    """A box from a .npz file with `lower` and `upper`, or an array with two rows."""
    if Path(path).suffix != ".npz":
        rows = read_array(path)
        if rows.ndim < 2 or len(rows) != 2:
            raise LipoptError(f"{path} must hold two rows, the lower and the upper bounds; it has shape {rows.shape}")
        return Box(rows[0], rows[1])
    try:
        with np.load(path, allow_pickle=False) as file:
            return Box(file["lower"], file["upper"])
    except (OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise LipoptError(f"{path} must be a .npz file with arrays 'lower' and 'upper': {error}") from error


_INPUT = re.compile(r"X_(\d+)$")


def read_vnnlib(path: str | Path) -> Box:
    """The input box of a VNN-LIB file: its assertions (<= X_i number) and (>= X_i number), alone or joined by `and`.

    Output conditions are not used."""
    path = Path(path)
    try:
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise LipoptError(f"cannot read {path}: {error}") from error
    commands = _commands(re.sub(r";.*", "", text), path)
    count = sum(c[0] in ("declare-const", "declare-fun") and bool(_INPUT.match(str(c[1]))) for c in commands if len(c) > 1)
    if count == 0:
        raise LipoptError(f"{path} declares no input X_0, X_1, ...")
    lower, upper = np.full(count, -np.inf), np.full(count, np.inf)
    for relation, left, right in (found for c in commands if c[:1] == ["assert"] for found in _comparisons(c[1:])):
        if _INPUT.match(right):
            relation, left, right = (">=" if relation == "<=" else "<="), right, left
        index = _INPUT.match(left)
        if index is None:
            continue
        try:
            i, number = int(index[1]), float(right)
            if relation == "<=":
                upper[i] = min(upper[i], number)
            else:
                lower[i] = max(lower[i], number)
        except (ValueError, IndexError) as error:
            raise LipoptError(f"{path}: cannot use the assertion ({relation} {left} {right})") from error
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        missing = int(np.flatnonzero(~np.isfinite(lower) | ~np.isfinite(upper))[0])
        raise LipoptError(
            f"{path} does not bound input X_{missing} on both sides by assertions; what stands in a disjunction does not count"
        )
    return Box(lower, upper)


def _commands(text: str, path: Path) -> list[list[Any]]:
    """The expressions in parentheses of a file, as nested lists of words."""
    open_: list[list[Any]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", text):
        if token == "(":
            open_.append([])
        elif token == ")" and len(open_) > 1:
            done = open_.pop()
            open_[-1].append(done)
        else:
            open_[-1].append(token)
    if len(open_) > 1 or not all(isinstance(command, list) for command in open_[0]):
        raise LipoptError(f"{path} is not a VNN-LIB file: its parentheses do not match")
    return open_[0]


def _comparisons(conditions: list[Any]) -> Iterator[tuple[str, str, str]]:
    """Those between two words that hold if all conditions do."""
    for condition in conditions:
        if condition[:1] == ["and"]:
            yield from _comparisons(condition[1:])
        elif condition[:1] in (["<="], [">="]) and len(condition) == 3 and all(isinstance(word, str) for word in condition):
            yield condition[0], condition[1], condition[2]
