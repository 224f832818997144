"""Where the Lipschitz constant is asked for: whole space (None), a ball, a box, a union of boxes."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from ..errors import DAMAGED, LipoptError, require_file
from ..numerics.arrays import Array, array_of_text, as_array
from .norms import Norm, NormName, find_norm
from .round_ball import RoundBall

LARGEST = 1e300  # of the inputs in a domain: from there on, activations count as being at infinity


@dataclass(frozen=True, eq=False)
class Box:
    """All inputs between two bounds, entry by entry.

    Args:
        lower: the smallest value of every input, in the network's input shape or flat; a number
            stands for the same bound on every input.
        upper: the largest value of every input.

    Raises:
        LipoptError: the bounds are not finite numbers, do not fit each other, leave no point, or
            reach beyond 1e300.

    Examples:
        >>> import lipopt
        >>> lipopt.Box(0, [1, 2]).bounds(2)
        (array([0., 0.]), array([1., 2.]))
    """

    lower: Any
    upper: Any

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            object.__setattr__(self, name, _finite(getattr(self, name), f"the box's {name} bound"))
        if self.lower.shape != self.upper.shape and self.lower.size > 1 and self.upper.size > 1:
            raise LipoptError(
                f"the box's bounds have different shapes, {self.lower.shape} and {self.upper.shape}"
            )
        if not (self.lower <= self.upper).all():
            raise LipoptError("the box is empty: a lower bound exceeds its upper bound")
        _check_reach(self.lower, self.upper, "box")

    def bounds(self, size: int) -> tuple[Array, Array]:
        """The bounds for a network with `size` inputs, flat."""
        return _flat(self.lower, size, "box"), _flat(self.upper, size, "box")

    def ball(self, size: int) -> RoundBall | None:
        return None

    def middle(self, size: int) -> Array:
        """The point in its middle, flat."""
        lower, upper = self.bounds(size)
        return lower / 2 + upper / 2

    @property
    def parts(self) -> tuple[Region, ...]:
        return (self,)

    def describe(self) -> str:
        return "box"


@dataclass(frozen=True, eq=False)
class Ball:
    """The ball around a point: all inputs that differ from it by at most the radius, in a norm.

    The norm of the ball need not be that of the constant. Ends and radii are rounded outward.

    Args:
        center: the point, in the network's input shape or flat.
        radius: the largest norm of a difference, >= 0. In "linf" that is the largest difference in
            any input.
        clip: the range (low, high) that every input stays in, such as (0, 1) for pixels.
        norm: "linf", "l2" or "l1".
        scale: how much of each input counts as 1, in the network's input shape or flat: the ball is
            one in the norm of differences / scale. None for 1 in every input.

    Raises:
        LipoptError: the radius is not a finite number >= 0, the center is not finite or lies
            outside the clip range, the norm is unknown, the scale is not made of positive numbers,
            or the ball reaches beyond 1e300.

    Examples:
        >>> import lipopt
        >>> lower, upper = lipopt.Ball([0.0, 0.5], radius=0.25, clip=(0, 1)).bounds(2)
        >>> float(lower[0]), bool(lower[1] <= 0.25 and 0.75 <= upper[1])
        (0.0, True)
        >>> sum_of_inputs = lipopt.load([[[1.0, 1.0]], [[1.0]]])  # an activation at y = x_0 + x_1
        >>> box = lipopt.Ball([-0.6, 0.0], radius=0.5)  # y can be 0.4 there
        >>> disc = lipopt.Ball([-0.6, 0.0], radius=0.5, norm="l2")  # and 0.11 here
        >>> diamond = lipopt.Ball([-0.6, 0.0], radius=0.5, norm="l1")  # and here -0.1: it is off
        >>> [round(lipopt.bound(sum_of_inputs, domain=b).upper, 3) for b in (box, disc, diamond)]
        [2.0, 2.0, 0.0]
    """

    center: Any
    radius: float
    clip: tuple[float, float] | None = None
    norm: NormName = "linf"
    scale: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "center", _finite(self.center, "the ball's center"))
        radius = np.asarray(as_array(self.radius))
        if radius.shape != () or radius.dtype.kind not in "fiu" or not 0 <= radius < np.inf:
            raise LipoptError(f"the radius must be a finite number >= 0, got {self.radius!r}")
        object.__setattr__(self, "radius", float(radius))
        find_norm(self.norm)
        if self.scale is not None:
            object.__setattr__(self, "scale", check_scale(self.scale))
            if self.center.size > 1 and self.scale.size > 1 and self.center.size != self.scale.size:
                raise LipoptError(
                    f"the center has {self.center.size} entries, the scale {self.scale.size}"
                )
        if self.clip is not None:
            low, high = check_clip(self.clip)
            object.__setattr__(self, "clip", (low, high))
            if ((self.center < low) | (self.center > high)).any():
                raise LipoptError(f"the ball's center lies outside the clip range [{low}, {high}]")
        _check_reach(*self.bounds(self._size), "ball")

    @property
    def _size(self) -> int:
        """The number of inputs, as far as center and scale say."""
        return max(self.center.size, 1 if self.scale is None else self.scale.size)

    def bounds(self, size: int) -> tuple[Array, Array]:
        """The bounds for a network with `size` inputs, flat, rounded outward."""
        center = _flat(self.center, size, "center")
        if self.radius == 0:
            lower = upper = center
        else:
            radii = self._radii(size)
            with np.errstate(over="ignore"):  # what becomes infinite is clipped, or refused
                lower = np.nextafter(center - radii, -np.inf)
                upper = np.nextafter(center + radii, np.inf)
        if self.clip is not None:
            lower = np.maximum(lower, self.clip[0])
            upper = np.minimum(upper, self.clip[1])
        return lower, upper

    def ball(self, size: int) -> RoundBall | None:
        """What is round in it; None for an l_inf ball, which is a box, and for a point."""
        norm = Norm(self.norm)
        if norm is Norm.LINF or self.radius == 0:
            return None
        return RoundBall(norm, _flat(self.center, size, "center"), self._radii(size))

    def _radii(self, size: int) -> Array:
        """How far the ball reaches in each input, rounded up."""
        if self.scale is None:
            return np.full(size, self.radius)
        with np.errstate(over="ignore"):
            return np.nextafter(self.radius * _flat(self.scale, size, "scale"), np.inf)

    def middle(self, size: int) -> Array:
        """The center, flat."""
        return _flat(self.center, size, "center")

    @property
    def parts(self) -> tuple[Region, ...]:
        return (self,)

    def describe(self) -> str:
        words = f"{Norm(self.norm).words} ball of radius {self.radius:g}"
        if self.scale is not None:
            words += " in the given units"
        if self.clip is None:
            return words
        return f"{words}, clipped to [{self.clip[0]:g}, {self.clip[1]:g}]"


@dataclass(frozen=True, eq=False)
class Boxes:
    """A union of boxes. Its Lipschitz constant is the largest of the constants on each box.

    On a union that is not convex this does not bound what happens between points of two boxes.

    Args:
        boxes: one Box or more.

    Raises:
        LipoptError: there is no box, or an entry is not a Box.

    Examples:
        >>> import lipopt
        >>> union = lipopt.Boxes((lipopt.Box([0, 0], [1, 1]), lipopt.Box([-3, -1], [-2, 0])))
        >>> network = lipopt.load([[[1.0, -1.0], [2.0, 1.0]], [[1.0, -1.0]]])
        >>> lipopt.bound(network, domain=union).details["boxes"]
        2
    """

    boxes: tuple[Box, ...]

    def __post_init__(self) -> None:
        boxes = tuple(self.boxes)
        if not boxes or not all(isinstance(box, Box) for box in boxes):
            raise LipoptError("a union of boxes is made of one Box or more")
        object.__setattr__(self, "boxes", boxes)

    def bounds(self, size: int) -> tuple[Array, Array]:
        raise _only_one_box("this", self)

    def ball(self, size: int) -> RoundBall | None:
        raise _only_one_box("this", self)

    def middle(self, size: int) -> Array:
        raise _only_one_box("this", self)

    @property
    def parts(self) -> tuple[Region, ...]:
        return self.boxes

    def describe(self) -> str:
        return f"union of {len(self.boxes)} boxes"


@runtime_checkable
class Region(Protocol):
    """What a domain is: a set of inputs, made of convex parts."""

    def bounds(self, size: int) -> tuple[Array, Array]:
        """The smallest box around it, for a network with `size` inputs, rounded outward."""

    def ball(self, size: int) -> RoundBall | None:
        """The ball that the box has to be cut with, if it is round."""

    def middle(self, size: int) -> Array:
        """A point to look around in search of steep slopes."""

    @property
    def parts(self) -> tuple[Region, ...]:
        """The convex parts, each of which gets a bound of its own."""

    def describe(self) -> str:
        """It in words."""


Domain: TypeAlias = Region | None  # None is the whole space


def check_domain(domain: Any) -> None:
    """Refuse what is no domain."""
    if not (domain is None or isinstance(domain, Region)):
        kind = type(domain).__name__
        raise LipoptError(f"the domain is a Ball, a Box, Boxes or None, got {kind}")


def example_in(domain: Domain) -> Any:
    """The center of a ball, or the end of a box, as the user gave it; None over the whole space."""
    if isinstance(domain, Ball):
        return domain.center
    return domain.lower if isinstance(domain, Box) else None


def one_box_only(what: str, domain: Domain) -> None:
    """Refuse a union for what is about one box."""
    if domain is not None and len(domain.parts) > 1:
        raise _only_one_box(what, domain)


def _only_one_box(what: str, domain: Region) -> LipoptError:
    return LipoptError(f"{what} is about one box; ask for each box of the {domain.describe()}")


def pieces(domain: Domain) -> tuple[Domain, ...]:
    """The convex domains whose union this is."""
    return (None,) if domain is None else domain.parts


def describe(domain: Domain) -> str:
    """A domain in words."""
    return "whole space" if domain is None else domain.describe()


def check_clip(clip: Any) -> tuple[float, float]:
    """The two ends of a range."""
    try:
        low, high = (float(end) for end in clip)
    except (TypeError, ValueError) as error:
        raise LipoptError(f"clip is a pair of numbers, low and high, got {clip!r}") from error
    if not low <= high:
        raise LipoptError(f"clip needs low <= high, got {clip}")
    return low, high


def check_scale(scale: Any) -> Array:
    """Units of the inputs: positive numbers."""
    array = _finite(scale, "the scale")
    if not (array > 0).all():
        raise LipoptError("the scale must be positive: how much of each input counts as 1")
    return array


def flat_scale(scale: Any, size: int) -> Array:
    """Units of the inputs of a network with `size` of them, flat."""
    return _flat(check_scale(scale), size, "scale")


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
    message = f"the {what} has {values.size} entries, the network has {size} inputs"
    if values.ndim > 1 and values.size % size == 0:
        message += f"; give one point, or input_shape={values.shape} if this is one"
    raise LipoptError(message)


def read_array(path: str | Path) -> Array:
    """An array of numbers from a .npy, .csv or .txt file."""
    path = Path(path)
    require_file(path)
    try:
        if path.suffix == ".npy":
            values = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
            if values.dtype.kind not in "biuf":
                raise ValueError(f"it holds values of type {values.dtype}")
            return np.asarray(values, dtype=np.float64)
        return array_of_text(path.read_text(), path.suffix, 1)
    except DAMAGED as error:
        raise LipoptError(f"cannot read numbers from {path}: {error}") from error


def read_box(path: str | Path) -> Box:
    """A box from a .npz file with `lower` and `upper`, or an array with two rows."""
    if Path(path).suffix != ".npz":
        rows = read_array(path)
        if rows.ndim < 2 or len(rows) != 2:
            raise LipoptError(
                f"{path} must hold two rows, the lower and the upper bounds; it has shape {rows.shape}"
            )
        return Box(rows[0], rows[1])
    require_file(Path(path))
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            lower = file["lower"]
            upper = file["upper"]
    except DAMAGED as error:
        raise LipoptError(
            f"{path} must be a .npz file with arrays 'lower' and 'upper': {error}"
        ) from error
    return Box(lower, upper)
