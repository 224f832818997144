"""A heat map of intervals, as an SVG file: numbers in, text out, with nothing but numpy."""

from __future__ import annotations

import numpy as np

from ..numerics.arrays import Array

WIDTH = 760  # of the picture, in pixels
LEFT = 90  # pixels left of the cells, for names
ROW = 26  # pixels that a line of text takes
LEGIBLE = 45  # pixels that a cell is wide at least, to have numbers in it
SMALLEST = 1e-300  # what is divided by is kept above this
HEAD = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12"'


def heat_map(lower: Array, upper: Array) -> str:
    """The intervals of all entries of a matrix: red above 0, blue below, as dark as the nearer end.

    What may have either sign is white. Small matrices have the two ends written in."""
    outputs, inputs = lower.shape
    width = (WIDTH - LEFT) / inputs
    height = 2.0 * ROW if width > LEGIBLE else max(width, 2.0)
    nearer = np.where(lower > 0, lower, np.where(upper < 0, upper, 0.0))
    largest = max(float(np.abs(lower).max()), float(np.abs(upper).max()), SMALLEST)
    parts = []
    for i in range(outputs):
        y = ROW + i * height
        if height >= ROW:
            parts.append(_text(0, y + height / 2, f"output {i}", "start"))
        for j in range(inputs):
            x = LEFT + j * width
            color = _diverging(float(nearer[i, j]) / largest)
            name = f"output {i}, input {j}: {lower[i, j]:.4g} to {upper[i, j]:.4g}"
            place = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
            parts.append(f'<rect {place} fill="{color}"><title>{name}</title></rect>')
            if width > LEGIBLE:
                middle = x + width / 2
                parts.append(_text(middle, y + height / 3, f"{upper[i, j]:.3g}"))
                parts.append(_text(middle, y + 2 * height / 3, f"{lower[i, j]:.3g}"))
    if width > LEGIBLE:
        for j in range(inputs):
            parts.append(_text(LEFT + (j + 0.5) * width, ROW / 2, f"input {j}"))
    bottom = f"{ROW + outputs * height:.0f}"
    size = f'viewBox="0 0 {WIDTH} {bottom}" width="{WIDTH}" height="{bottom}"'
    return "\n".join([f'<svg {HEAD} {size} role="img">', *parts, "</svg>"])


def _diverging(share: float) -> str:
    """White for 0, red towards 1, blue towards -1."""
    faded = round(255 * (1 - abs(share)))
    return f"rgb(255,{faded},{faded})" if share >= 0 else f"rgb({faded},{faded},255)"


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" dominant-baseline="middle"'
    return f"<text {place}>{text}</text>"
