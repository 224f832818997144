"""What was proved or understood, in words."""

from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from .claim import Claim
from .exact import PRINTED_DIGITS, decimal, decimal_down
from .inputs import Ball, Bounds
from .network import Network

NORMS = {"linf": "l_inf", "l2": "l_2", "l1": "l_1"}


def theorem(claim: Claim, most: int | None) -> str:
    """Section 1: the claim. Of outputs, weights and inputs at most so many are written out, and the
    domain is rounded; None stands for all of them, exactly."""
    functions = [_combination(row, most) for row in claim.rows]
    subject = _join(functions, ", ", most)
    domain = _domain(claim.box, claim.ball, most)
    if claim.is_on_values:
        values = subject if len(claim.rows) == 1 else f"each of {subject}"
        statement = f"{values} on {domain} is at least {decimal_down(claim.bound)}"
    else:
        constant = f"the {_norms(claim, most)} Lipschitz constant of {subject}"
        statement = f"{constant} on {domain} is at most {decimal(claim.bound)}"
    return f"{statement} (exactly {claim.bound}), network sha256 {claim.network.sha256}"


def as_data(claim: Claim) -> dict[str, Any]:
    """Section 1: the claim, as JSON can hold it. Numbers are fractions, as text."""
    domain: Any = "space"
    if claim.box is not None:
        lower = [str(low) for low in claim.box.lower]
        upper = [str(high) for high in claim.box.upper]
        domain = {"lower": lower, "upper": upper}
    if claim.ball is not None:
        center = [str(value) for value in claim.ball.center]
        radii = [str(value) for value in claim.ball.radii]
        domain["ball"] = {"norm": claim.ball.norm, "center": center, "radii": radii}
    outputs = []
    for row in claim.rows:
        outputs.append({index: str(weight) for index, weight in row.items()})
    scale = None if claim.scale is None else [str(unit) for unit in claim.scale]
    rounded = {"bound_rounded_up": decimal(claim.bound)}
    if claim.is_on_values:
        rounded = {"bound_rounded_down": decimal_down(claim.bound)}
    return {
        "network": claim.network.sha256,
        "norm": claim.norm,
        "output_norm": claim.output_norm or claim.norm,
        "scale": scale,
        "outputs": outputs,
        "domain": domain,
        "bound": str(claim.bound),
        **rounded,
    }


def _norms(claim: Claim, most: int | None) -> str:
    """The norm on the inputs, with their units, and the one on the outputs if it is another."""
    words = NORMS[claim.norm]
    if claim.output_norm not in (None, claim.norm):
        words += f" to {NORMS[claim.norm_of_outputs]}"
    if claim.scale is not None:
        units = _join([str(value) for value in claim.scale], ", ", most)
        words += f" (inputs in units of {units})"
    return words


def _combination(row: dict[int, Fraction], most: int | None) -> str:
    """A row of W times f, such as `f[0] - 2 f[1]`."""
    text = ""
    for index, weight in list(row.items())[:most]:
        text += _sign(weight, text == "")
        if abs(weight) != 1:
            text += f"{abs(weight)} "
        text += f"f[{index}]"
    if most is not None and len(row) > most:
        text += f" + {_all(len(row))}"
    return text or "0"


def _sign(weight: Fraction, is_first: bool) -> str:
    if weight < 0 and is_first:
        return "-"
    if weight < 0:
        return " - "
    if is_first:
        return ""
    return " + "


def _domain(box: Bounds | None, ball: Ball | None, most: int | None) -> str:
    if box is None:
        return "the whole space"
    if ball is None:
        return _box(box, most)
    if ball.is_within(box):
        return _ball(ball, most)
    return f"{_ball(ball, most)} cut with {_box(box, most)}"


def _box(box: Bounds, most: int | None) -> str:
    sides = list(zip(box.lower, box.upper, strict=True))
    if most is None:
        return "the box " + " x ".join(f"[{low}, {high}]" for low, high in sides)
    radii = {_rounded((high - low) / 2) for low, high in sides}
    if len(radii) == 1:
        center = [_rounded((low + high) / 2) for low, high in sides]
        return f"the l_inf ball of radius {radii.pop()} around ({_join(center, ', ', most)})"
    rounded = [f"[{_rounded(low)}, {_rounded(high)}]" for low, high in sides]
    return f"the box {_join(rounded, ' x ', most)}"


def _ball(ball: Ball, most: int | None) -> str:
    written = str if most is None else _rounded
    center = _join([written(value) for value in ball.center], ", ", most)
    radii = [written(value) for value in ball.radii]
    size = f"radii {_join(radii, ', ', most)}"
    if len(set(radii)) == 1:
        size = f"radius {radii[0]}"
    return f"the {NORMS[ball.norm]} ball of {size} around ({center})"


def _rounded(x: Fraction) -> str:
    """A decimal number to the nearest of its last digit, without zeros at its end."""
    numerator, denominator = x.as_integer_ratio()
    number = Context(prec=PRINTED_DIGITS).divide(Decimal(numerator), Decimal(denominator))
    digits, e, exponent = str(number).partition("E")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return digits + e + exponent


def _join(items: Sequence[str], separator: str, most: int | None) -> str:
    shown = list(items[:most])
    if most is not None and len(items) > most:
        shown.append(_all(len(items)))
    return separator.join(shown)


def _all(count: int) -> str:
    return f"... ({count} in all)"


def describe(network: Network) -> str:
    """Section 5: what was understood of a network file, to be compared with the model."""
    lines = [f"network sha256 {network.sha256}"]
    for i, node in enumerate(network.nodes):
        line = f"node {i}: {node.kind}, {node.size}"
        if node.is_activation:
            line += f", from {node.source}"
        for source, matrix in node.inputs:
            weights = sum(len(row) for row in matrix.rows)
            line += f", from {source} by {weights} weights"
        lines.append(line)
    return "\n".join(lines)
