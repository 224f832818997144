"""Charts for the report: numbers in, SVG or PNG text out, with nothing but the standard library and numpy.

Why not by a library: a report comes with the core package, which has no plotting library, and its text has to be
readable on a phone. A picture that is scaled down has letters of five pixels there, so every chart is drawn twice, for
two widths, with letters of one size; the style sheet shows the one that fits.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

import numpy as np

from ..numerics.arrays import Array

WIDE = 720  # pixels: on a screen and on paper
NARROW = 340  # pixels: on a phone
LETTERS = 12  # pixels, the size of all text
MARGIN = 12  # pixels left and right of a chart
ROW = 42  # pixels from one row to the next: a line of text and what it is about
LINE = 18  # pixels from one line of text to the next
TICK_WIDTH = 62  # pixels that a number below an axis takes
NUMBERS_WIDTH = 64  # pixels left of a vertical axis, for its numbers
PLOT_HEIGHT = 240  # pixels
SMALLEST = 1e-300  # numbers below it are not drawn
INK = "#1a1a1a"
PALE = "#d9e4ee"
GRID = "#cccccc"
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
        share = log10(value / self.low) / log10(self.high / self.low)
        return self.start + (self.end - self.start) * share

    def clipped(self, value: float) -> float:
        """The place of a number that may be zero."""
        return self(max(value, self.low))

    def ticks(self, most: int = 9) -> list[float]:
        """At most so many round numbers, or its ends if there are no two."""
        decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        for steps in ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5), (1, 2, 5), (1,)):
            found = []
            for decade in decades:
                found += [step * 10.0**decade for step in steps]
            found = [tick for tick in found if self.low <= tick <= self.high]
            if len(found) <= most:
                break
        if len(found) < 2 or (len(found) == 2 and self.high < 10 * self.low):
            return self._even_ticks(most)
        return found[:: ceil(len(found) / most)]

    def _even_ticks(self, most: int) -> list[float]:
        """At most so many multiples of a round number, for an axis that spans less than a decade; at least two numbers."""
        span = self.high - self.low
        decade = 10.0 ** floor(log10(span / most))
        step = next(k * decade for k in (1, 2, 5, 10) if k * decade >= span / most)
        found = [step * k for k in range(ceil(self.low / step), floor(self.high / step) + 1)]
        return found if len(found) > 1 else [self.low, self.high]


def number(value: float) -> str:
    """A round number, for an axis."""
    if 1e-3 <= value < 1e4:
        return f"{value:,.4g}"
    return f"{value:,.0f}" if 1e4 <= value < 1e7 else f"{value:.3g}"


@dataclass(frozen=True)
class Mark:
    """A bound in a chart: its name, its value, and the value as it is written."""

    name: str
    value: float
    label: str


def both_widths(draw: Callable[[int], str]) -> str:
    """A chart for screens and paper, and the same for phones."""
    return f'<div class="wide">{draw(WIDE)}</div>\n<div class="narrow">{draw(NARROW)}</div>'


def sandwich(lower: Sequence[Mark], upper: Sequence[Mark], axis_name: str, width: int) -> str:
    """Lower bounds and upper bounds on one axis. The constant is between the first of each: the band."""
    positive = [mark.value for mark in (*lower, *upper) if mark.value > SMALLEST]
    if not positive:
        text = "There is nothing to draw: all bounds are zero."
        return _svg(width, LINE, [_text(0, LINE / 2, text)], text)
    axis = Axis.around(positive, MARGIN, width - MARGIN)
    bottom = ROW * (len(lower) + len(upper)) + 6.0
    left = axis.clipped(lower[0].value)
    right = axis.clipped(upper[0].value)
    band = max(1.0, right - left)
    parts = [f'<rect x="{left:.1f}" y="0" width="{band:.1f}" height="{bottom}" fill="{PALE}"/>']
    parts += _ticks_below(axis, bottom, width, axis_name)
    for k, mark in enumerate((*lower, *upper)):
        is_lower = k < len(lower)
        x = axis.clipped(mark.value)
        y = ROW * k + 30.0
        back = -9 if is_lower else 9
        color = INK if is_lower else ACCENT
        parts.append(_text(0, ROW * k + 12, f"{mark.name}: {mark.label}"))
        if not is_lower:
            parts.append(_line(left, y, x, y, 1.5, "" if k == len(lower) else "3 3"))
        triangle = f"M{x + back:.1f} {y - 6} L{x:.1f} {y} L{x + back:.1f} {y + 6} Z"
        parts.append(f'<path d="{triangle}" fill="{color}"/>')
    words = [f"{mark.name} {mark.label}" for mark in (*lower, *upper)]
    return _svg(width, bottom + 2 * LINE + 6, parts, f"Bounds on one axis: {', '.join(words)}")


@dataclass(frozen=True)
class Curve:
    """Bounds against something else, whose axis is named."""

    places: Sequence[float]
    upper: Sequence[float]
    lower: Sequence[float]
    axis_name: str
    whole: Mark | None = None  # a bound for the whole space: a line across


def curve(data: Curve, y_name: str, width: int) -> str:
    """Bounds against the radius of the ball, or against time, both axes logarithmic."""
    top = 2.0 * LINE + 8
    bottom = top + PLOT_HEIGHT
    x = Axis.around(data.places, NUMBERS_WIDTH, width - MARGIN)
    across = [] if data.whole is None else [data.whole.value]
    drawn = [v for v in (*data.upper, *data.lower, *across) if v > SMALLEST]
    y = Axis.around(drawn or [1.0], bottom, top)
    parts = [_text(0, 9, y_name), *_legend(data.whole)]
    parts += _ticks_below(x, bottom, width, data.axis_name)
    for tick in y.ticks():
        parts.append(_line(x.start, y(tick), x.end, y(tick), 0.5, "", GRID))
        parts.append(_text(x.start - 6, y(tick), number(tick), "end"))
    parts += _polyline(x, y, data.places, data.upper, ACCENT, "")
    parts += _polyline(x, y, data.places, data.lower, INK, "5 4")
    if data.whole is not None:
        height = y.clipped(data.whole.value)
        parts.append(_line(x.start, height, x.end, height, 1.2, "2 3", ACCENT))
    ends = f"from {number(data.places[0])} to {number(data.places[-1])}"
    values = f"the upper bound goes from {number(data.upper[0])} to {number(data.upper[-1])}"
    description = f"{y_name} against {data.axis_name}, {ends}: {values}"
    return _svg(width, bottom + 2 * LINE + 6, parts, description)


def _legend(whole: Mark | None) -> list[str]:
    """What the lines mean, in one line."""
    y = LINE + 9.0
    parts = [
        _line(0, y, 18, y, 2, "", ACCENT),
        _text(22, y, "upper bound"),
        _line(104, y, 122, y, 2, "5 4", INK),
        _text(126, y, "lower bound"),
    ]
    if whole is not None:
        parts += [_line(208, y, 226, y, 1.2, "2 3", ACCENT), _text(230, y, whole.name)]
    return parts


def _polyline(
    x: Axis, y: Axis, places: Sequence[float], values: Sequence[float], color: str, dash: str
) -> list[str]:
    """Points with a line through them; zeros are left out, the axis is logarithmic."""
    points = [(x(r), y(v)) for r, v in zip(places, values, strict=True) if v > SMALLEST]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
    style = f'fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"'
    dots = [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{color}"/>' for px, py in points]
    return [f'<polyline points="{path}" {style}/>', *dots]


def bars(names: Sequence[str], values: Sequence[float], axis_name: str, width: int) -> str:
    """A horizontal bar for each value, a share, from zero on."""
    longest = max([*values, SMALLEST])
    scale = (width - 2 * MARGIN) / longest
    parts = []
    for k, (name, value) in enumerate(zip(names, values, strict=True)):
        y = 34 * k
        parts.append(_text(MARGIN, y + 9, f"{_cut(name, width)}: {value:.1%}"))
        size = f'x="{MARGIN}" y="{y + 18}" width="{value * scale:.1f}" height="9"'
        parts.append(f'<rect {size} fill="{ACCENT}"/>')
    bottom = 34.0 * len(values) + 4
    parts.append(_line(MARGIN, bottom, width - MARGIN, bottom, 1))
    parts.append(_text(MARGIN, bottom + 13, "0"))
    parts.append(_text(width - MARGIN, bottom + 13, f"{longest:.1%}", "end"))
    parts.append(_text(width / 2, bottom + 13, axis_name, "middle"))
    words = [f"{name} {value:.1%}" for name, value in zip(names, values, strict=True)]
    return _svg(width, bottom + LINE + 8, parts, f"{axis_name}: {', '.join(words)}")


def image(values: Array, name: str, size: int = 280) -> str:
    """A picture of a matrix, from white (its smallest entry) to black (its largest), as an <img> element."""
    low = float(values.min())
    high = float(values.max())
    gray = (255 * (1 - (values - low) / max(high - low, SMALLEST))).round().astype(np.uint8)
    data = base64.b64encode(_png(gray)).decode()
    width = size * values.shape[1] // max(values.shape)
    text = escape(f"{name}: white is {number_or_zero(low)}, black is {number_or_zero(high)}")
    return f'<img src="data:image/png;base64,{data}" width="{width}" alt="{text}">'


def number_or_zero(value: float) -> str:
    """A number for the scale of a picture, which may be negative, or nothing."""
    if abs(value) < SMALLEST:
        return "0"
    return number(value) if value > 0 else f"{value:.3g}"


def _png(gray: Array) -> bytes:
    """An 8-bit grayscale PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    height, width = gray.shape
    rows = b"".join(b"\0" + row.tobytes() for row in gray)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def _svg(width: int, height: float, parts: Sequence[str], description: str) -> str:
    size = f'viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}"'
    words = f'role="img" aria-label="{escape(description)}"'
    head = f'<svg {size} font-size="{LETTERS}" {words}>'
    return "\n".join([head, *parts, "</svg>"])


def _ticks_below(axis: Axis, y: float, width: int, name: str) -> list[str]:
    """A line with its numbers below it, and below them its name."""
    parts = [_line(axis.start, y, axis.end, y, 1)]
    most = max(2, int((axis.end - axis.start) / TICK_WIDTH))
    free = 0.0  # from where on there is room for a number
    for tick in axis.ticks(most):
        place = axis(tick)
        parts.append(_line(place, y, place, y + 4, 1))
        middle = _inside(place, number(tick), width)
        half = _half_width(number(tick))
        if middle - half >= free:
            parts.append(_text(middle, y + 13, number(tick), "middle"))
            free = middle + half + LETTERS / 2
    parts.append(_text((axis.start + axis.end) / 2, y + 13 + LINE, name, "middle"))
    return parts


def _inside(place: float, text: str, width: int) -> float:
    """The place of the middle of a text, moved so that no letter leaves the picture."""
    half = _half_width(text)
    return min(max(place, half), width - half)


def _half_width(text: str) -> float:
    """Half of the pixels that a text takes, about."""
    return 0.3 * LETTERS * len(text)


def _cut(name: str, width: int) -> str:
    """A name, or as much of it as fits into a picture beside a number."""
    most = int(width / (0.6 * LETTERS)) - 10
    return name if len(name) <= most else name[: most - 1] + "…"


def _line(
    x1: float, y1: float, x2: float, y2: float, width: float, dash: str = "", color: str = INK
) -> str:
    places = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {places} stroke="{color}" stroke-width="{width}" stroke-dasharray="{dash}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" dominant-baseline="middle"'
    return f"<text {place}>{escape(text)}</text>"
