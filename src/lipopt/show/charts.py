"""Charts for the report: numbers in, SVG or PNG text out, with nothing but the standard library and numpy."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

import numpy as np

from ..numerics.arrays import Array

WIDTH = 760  # of a picture, in pixels
LEFT = 170  # pixels left of the axis, for names
RIGHT = 110  # pixels right of the axis, for numbers
ROW = 26  # pixels from one row to the next
SMALLEST = 1e-300  # numbers below it are not drawn
INK = "#1a1a1a"
PALE = "#d9e4ee"
ACCENT = "#0060a8"


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis: numbers from `low` to `high` at places from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    @staticmethod
    def around(values: Sequence[float], start: float, end: float) -> Axis:
        """With a little room around positive values."""
        room = max(1.05, (max(values) / min(values)) ** 0.05)
        return Axis(min(values) / room, max(values) * room, start, end)

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * log10(value / self.low) / log10(
            self.high / self.low
        )

    def clipped(self, value: float) -> float:
        """The place of a number that may be zero."""
        return self(max(value, self.low))

    def ticks(self) -> list[float]:
        """At most nine of 1, 2, 5 times powers of ten; at least two numbers."""
        decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        for steps in ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5), (1, 2, 5), (1,)):
            found = [
                m * 10.0**k for k in decades for m in steps if self.low <= m * 10.0**k <= self.high
            ]
            if len(found) <= 9:
                break
        every = ceil(len(found) / 9)
        return found[::every] if len(found) > 1 else [self.low, self.high]


def number(value: float) -> str:
    """A round number, for an axis."""
    return (
        f"{value:,.4g}"
        if 1e-3 <= value < 1e4
        else f"{value:,.0f}"
        if 1e4 <= value < 1e7
        else f"{value:.3g}"
    )


@dataclass(frozen=True)
class Mark:
    """A bound in a chart: its name, its value, and the value as it is written."""

    name: str
    value: float
    label: str


def sandwich(lower: Sequence[Mark], upper: Sequence[Mark]) -> str:
    """Lower bounds and upper bounds on one axis. The constant is between the first of each: the band."""
    positive = [mark.value for mark in (*lower, *upper) if mark.value > SMALLEST]
    if not positive:
        return _svg(
            ROW, [_text(0, ROW / 2, "There is nothing to draw: all bounds are zero, or nearly so.")]
        )
    axis = Axis.around(positive, LEFT, WIDTH - RIGHT)
    bottom = ROW * (len(lower) + len(upper) + 0.3)
    left = axis.clipped(lower[0].value)
    right = axis.clipped(upper[0].value)
    parts = [
        f'<rect x="{left:.1f}" y="0" width="{max(1.0, right - left):.1f}" height="{bottom}" fill="{PALE}"/>',
        *_ticks_below(axis, bottom),
    ]
    for k, mark in enumerate((*lower, *upper)):
        x = axis.clipped(mark.value)
        y = ROW * (k + 0.7)
        parts.append(_text(LEFT - 10, y, mark.name, "end"))
        if k < len(lower):
            back = -8
            color = INK
        else:
            back = 8
            color = ACCENT
            parts.append(_line(left, y, x, y, 1.5, "" if k == len(lower) else "3 3"))
        parts.append(
            f'<path d="M{x + back:.1f} {y - 6} L{x:.1f} {y} L{x + back:.1f} {y + 6} Z" fill="{color}"/>'
        )
        parts.append(_text(x + 12, y, mark.label))
    return _svg(bottom + 22, parts)


def curve(
    places: Sequence[float],
    upper: Sequence[float],
    lower: Sequence[float],
    axis: str,
    whole: Mark | None = None,
) -> str:
    """Bounds against the radius of the ball, or against time, both axes logarithmic.

    The axis is named below it. A bound for the whole space is a line across."""
    height = 300.0
    x = Axis.around(places, LEFT - 90, WIDTH - RIGHT)
    across = [] if whole is None else [whole.value]
    y = Axis.around([v for v in (*upper, *lower, *across) if v > SMALLEST] or [1.0], height, 20)
    parts = _ticks_below(x, height)
    for tick in y.ticks():
        parts += [
            _line(x.start, y(tick), x.end, y(tick), 0.5, "", "#cccccc"),
            _text(x.start - 8, y(tick), number(tick), "end"),
        ]
    for values, color, dash, label, shift in (
        (upper, ACCENT, "", "upper bound", -8),
        (lower, INK, "5 4", "lower bound", 8),
    ):
        points = [(x(r), y(v)) for r, v in zip(places, values, strict=True) if v > SMALLEST]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>'
        )
        parts += [
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{color}"/>' for px, py in points
        ]
        if points:
            parts.append(_text(points[-1][0] + 10, points[-1][1] + shift, label))
    if whole is not None:
        top = y.clipped(whole.value)
        parts += [
            _line(x.start, top, x.end, top, 1.2, "2 3", ACCENT),
            _text(x.start + 6, top - 9, f"{whole.name}: {whole.label}"),
        ]
    parts.append(_text((x.start + x.end) / 2, height + 34, axis, "middle"))
    return _svg(height + 44, parts)


def bars(names: Sequence[str], values: Sequence[float]) -> str:
    """A horizontal bar for each value."""
    scale = (WIDTH - LEFT - RIGHT) / max([*values, 1e-300])
    parts = []
    for k, (name, value) in enumerate(zip(names, values, strict=True)):
        y = 20 * k + 4
        parts.append(_text(LEFT - 10, y + 8, name, "end"))
        parts.append(
            f'<rect x="{LEFT}" y="{y}" width="{value * scale:.1f}" height="15" fill="{ACCENT}"/>'
        )
        parts.append(_text(LEFT + value * scale + 6, y + 8, f"{value:.1%}"))
    return _svg(20 * len(values) + 8, parts)


def image(values: Array, size: int = 280) -> str:
    """A picture of a matrix, from white (its smallest entry) to black (its largest), as an <img> element."""
    low = float(values.min())
    high = float(values.max())
    gray = (255 * (1 - (values - low) / max(high - low, 1e-300))).round().astype(np.uint8)
    data = base64.b64encode(_png(gray)).decode()
    width = size * values.shape[1] // max(values.shape)
    return f'<img src="data:image/png;base64,{data}" width="{width}" alt="" style="image-rendering: pixelated">'


def _png(gray: Array) -> bytes:
    """An 8-bit grayscale PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    height, width = gray.shape
    rows = b"".join(b"\0" + row.tobytes() for row in gray)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )


def _svg(height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" role="img">'
    )
    return "\n".join([head, *parts, "</svg>"])


def _ticks_below(axis: Axis, y: float) -> list[str]:
    """A line with its numbers below it."""
    parts = [_line(axis.start, y, axis.end, y, 1)]
    for tick in axis.ticks():
        parts += [
            _line(axis(tick), y, axis(tick), y + 4, 1),
            _text(axis(tick), y + 13, number(tick), "middle"),
        ]
    return parts


def _line(
    x1: float, y1: float, x2: float, y2: float, width: float, dash: str = "", color: str = INK
) -> str:
    places = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {places} stroke="{color}" stroke-width="{width}" stroke-dasharray="{dash}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" dominant-baseline="middle">{escape(text)}</text>'
