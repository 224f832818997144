"""Where the Lipschitz constant is asked for: whole space (None), a ball, a box, a union of boxes."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .errors import LipoptError
from .rounding import Array
from .tensors import as_array

LARGEST = 1e300  # of the inputs in a domain: from there on, activations count as being at infinity


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
        _check_reach(self.lower, self.upper, "box")

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
        _check_reach(*self._ends(self.center), "ball")

    def bounds(self, size: int) -> tuple[Array, Array]:
        """The bounds for a network with `size` inputs, flat, rounded outward."""
        return self._ends(_flat(self.center, size, "center"))

    def _ends(self, center: Array) -> tuple[Array, Array]:
        if self.radius == 0:
            lower = upper = center
        else:
            with np.errstate(over="ignore"):  # what becomes infinite is clipped, or refused
                lower = np.nextafter(center - self.radius, -np.inf)
                upper = np.nextafter(center + self.radius, np.inf)
        if self.clip is not None:
            lower = np.maximum(lower, self.clip[0])
            upper = np.minimum(upper, self.clip[1])
        return lower, upper


@dataclass(frozen=True, eq=False)
class Boxes:
    """A union of boxes. Its Lipschitz constant is the largest of the constants on each box.

    On a union that is not convex this does not bound what happens between points of two boxes."""

    boxes: tuple[Box, ...]

    def __post_init__(self) -> None:
        boxes = tuple(self.boxes)
        if not boxes or not all(isinstance(box, Box) for box in boxes):
            raise LipoptError("a union of boxes is made of one Box or more")
        object.__setattr__(self, "boxes", boxes)

    def bounds(self, size: int) -> tuple[Array, Array]:
        """There are none: what needs those of one box ends here."""
        raise one_box_only("this", self)


Domain: TypeAlias = Ball | Box | Boxes | None


def one_box_only(what: str, domain: Boxes) -> LipoptError:
    """The error of what does not take unions."""
    return LipoptError(f"{what} is about one box; ask for each box of the {describe(domain)}")


def pieces(domain: Domain) -> tuple[Domain, ...]:
    """The convex domains whose union this is."""
    return domain.boxes if isinstance(domain, Boxes) else (domain,)


def describe(domain: Domain) -> str:
    """A domain in words."""
    if domain is None:
        return "whole space"
    if isinstance(domain, Ball):
        cut = "" if domain.clip is None else f", clipped to [{domain.clip[0]:g}, {domain.clip[1]:g}]"
        return f"l_inf ball of radius {domain.radius:g}{cut}"
    if isinstance(domain, Boxes):
        return f"union of {len(domain.boxes)} boxes"
    return "box"


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


def _check_reach(lower: Array, upper: Array, what: str) -> None:
    if max(-lower.min(), upper.max()) > LARGEST:
        raise LipoptError(
            f"the {what} reaches beyond {LARGEST:g}, where sums overflow; "
            "take a smaller one, or leave the domain out for a bound over the whole space"
        )


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
