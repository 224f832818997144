"""report(): one HTML file about the Lipschitz constant of one network. It refers to nothing outside itself.

Lower and upper bounds on one axis, and the table of methods; how the bounds of branch and bound came together; over a ball,
the bound against the radius; how much of the bound every input carries; and, if one is asked for, the certificate's hash and
how to check it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Literal

import numpy as np

from ..api import bound, compare
from ..cells.refine import refine
from ..certificates.write import certify
from ..errors import LipoptError
from ..methods.baselines import path_sum_rows
from ..model.domain import Ball, Domain, one_box_only
from ..model.network import Network
from ..model.norms import NormName
from ..names import printable
from ..numerics.arrays import Array
from ..numerics.blas import arithmetic
from ..problem.proofs import Multipliers
from ..problem.question import Posed, Question, pose
from ..problem.task import Budget, Task, UpperBound
from ..progress import Progress
from ..readers import load
from ..result import Result
from . import charts, tables
from .charts import Mark

RADII = 7  # in the chart of local bounds, from a hundredth of the radius that is asked for
FEW = 200  # samples in each of those balls
RADIUS_SECONDS = 2.0  # for each of them at most
FIRST_SECONDS = 0.01  # where the axis of time begins, which is logarithmic
BARS = 20  # inputs in the chart of sensitivities


@dataclass(frozen=True)
class Report:
    """The page, and the best result: with its certificate, if one was asked for."""

    html: str
    best: Result


def report(
    network: Any,
    *,
    input_shape: Sequence[int] | None = None,
    norm: NormName = "linf",
    output: int | Literal["all"] = 0,
    margin: tuple[int, int] | None = None,
    domain: Domain = None,
    time_limit: float | None = 20.0,
    seed: int = 0,
    samples: int | None = None,
    image: tuple[int, int] | None = None,
    names: Sequence[str] | None = None,
    certificate: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """The report of a network. The question is that of `bound`; the time limit is per method.

    `image` is the height and width of inputs that are pictures, if the network's input has another shape; `names` are
    those of its inputs. With the name of a `certificate`, the best bound gets one, which the page refers to by that name."""
    network = load(network, input_shape=input_shape)
    one_box_only("a report", domain)
    question = Question.about(network, norm=norm, output=output, margin=margin, domain=domain)
    options: dict[str, Any] = {"norm": norm, "output": output, "margin": margin}
    options |= {"time_limit": time_limit, "seed": seed, "progress": progress}
    picture = _picture_shape(network, image)
    if names is not None and len(names) != network.input_size:
        raise LipoptError(f"{len(names)} names for {network.input_size} inputs")
    results = compare(network, domain=domain, samples=samples, **options)
    posed = refine(pose(network, question), Budget())
    sections = [
        _bounds_section(results, list(results.refused.items())),
        *_history_sections(results),
    ]
    if isinstance(domain, Ball) and domain.radius > 0:
        sections.append(_radius_section(network, domain, options))
    shares = _sensitivity(posed, results)
    sections.append(_sensitivity_section(shares, domain, picture, names))
    best = results[0]
    if certificate is not None:
        best = _certified(posed, results)
        sections.append(_certificate_section(best, certificate))
    title = escape(tables.question(best))
    about = [tables.network_line(network), *tables.source_lines(network)]
    lines = "<br>\n".join(escape(line) for line in about)
    return Report(PAGE.substitute(title=title, network=lines, sections="\n".join(sections)), best)


def _bounds_section(results: Sequence[Result], refused: Sequence[tuple[str, str]]) -> str:
    best = results[0]
    lower = tables.number_down(best.lower)
    upper = tables.number(best.upper)
    factor = f", a factor of {best.upper / best.lower:.3f}" if best.lower else ""
    rows = [
        _row([r.method, tables.number(r.upper), *_ratios(r), f"{r.seconds:.2f}", r.status])
        for r in results
    ]
    rows += [_row([name, "-", "", "", "", f"not possible: {reason}"]) for name, reason in refused]
    head = "".join(
        f"<th>{name}</th>"
        for name in ("method", "upper bound", "/ lower", "/ POP lower", "seconds", "status")
    )
    below = [Mark("lower bound on L", best.lower, lower)]
    if best.pop_lower is not None:
        below.append(
            Mark("lower bound on the POP", best.pop_lower, tables.number_down(best.pop_lower))
        )
    chart = charts.sandwich(
        below, [Mark(r.method, r.upper, tables.number(r.upper)) for r in results]
    )
    return f"""<h2>Bounds</h2>
<p class="answer">The Lipschitz constant L is at least {lower} and at most {upper}{factor}.</p>
{chart}
<p>The lower bound on L is a gradient of the network. Upper bounds relax one polynomial optimization problem (POP). Its optimum
is at least the second lower bound, and only branch and bound, which divides the domain, can go below it. Upper bounds are proved,
rounding errors included.</p>
<table><tr>{head}</tr>
{"".join(rows)}</table>"""


def _history_sections(results: Sequence[Result]) -> list[str]:
    """How the bounds of branch and bound came together, if it took more than one step."""
    sections = []
    for result in results:
        history = result.details.get("history", [])
        if len(history) < 2:
            continue
        seconds = [max(entry[0], FIRST_SECONDS) for entry in history]
        lower = [entry[1] for entry in history]
        upper = [entry[2] for entry in history]
        chart = charts.curve(seconds, upper, lower, "seconds")
        sections.append(f"""<h2>How the bounds came together</h2>
{chart}
<p>Branch and bound divided the domain into {result.details["cells"]} cells. Both bounds hold at every moment.</p>""")
    return sections


def _ratios(r: Result) -> list[str]:
    return [f"{r.upper / low:.3f}" if low else "-" for low in (r.lower, r.pop_lower)]


def _row(entries: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(printable(entry))}</td>" for entry in entries) + "</tr>\n"


def _radius_section(network: Network, ball: Ball, question: dict[str, Any]) -> str:
    radii = [float(r) for r in ball.radius * np.logspace(-2, 0, RADII)]
    seconds = question["time_limit"]
    limit = RADIUS_SECONDS if seconds is None else min(seconds, RADIUS_SECONDS)
    options = {**question, "samples": FEW, "time_limit": limit}
    local = [bound(network, domain=replace(ball, radius=radius), **options) for radius in radii]
    whole = bound(network, **options)
    chart = charts.curve(
        radii,
        [r.upper for r in local],
        [r.lower for r in local],
        "radius of the ball",
        Mark("whole space", whole.upper, tables.number(whole.upper)),
    )
    return f"""<h2>In smaller balls</h2>
{chart}
<p>The best bound of method <code>auto</code> over balls around the same center.</p>"""


@dataclass(frozen=True, eq=False)
class _Sensitivity:
    """The share of every input in the bound, and where it comes from, in words."""

    shares: Array
    origin: str


def _sensitivity(posed: Posed, results: Sequence[Result]) -> _Sensitivity:
    """The SDP's multipliers delta_j, where there is one for each |t_j| <= 1; otherwise path sums."""
    for result in results:
        proof = result.proofs[0] if len(result.proofs) == 1 else None
        if not isinstance(proof, Multipliers) or not posed.question.norm.bounds_each_input:
            continue
        if proof.delta.size == posed.network.input_size:
            shares = proof.delta / proof.delta.sum()
            return _Sensitivity(
                shares, "the SDP's multiplier of each input's constraint |t_j| <= 1"
            )
    problem = posed.problem
    sums = (
        path_sum_rows(problem).max(axis=0)
        if problem.objective
        else np.zeros(posed.network.input_size)
    )
    shares = sums / max(float(sums.sum()), 1e-300)
    return _Sensitivity(shares, "the sum of |products of weights| over all paths from each input")


def _sensitivity_section(
    found: _Sensitivity,
    domain: Domain,
    picture: tuple[int, int] | None,
    names: Sequence[str] | None,
) -> str:
    if picture is not None:
        shown = _figure(_picture(found.shares, picture), "share in the bound")
        if isinstance(domain, Ball) and domain.center.size == found.shares.size:
            shown += _figure(_picture(np.reshape(domain.center, -1), picture), "center of the ball")
    else:
        largest = np.argsort(-found.shares, kind="stable")[:BARS]
        labels = [printable(names[j]) if names else f"input {j}" for j in largest]
        shown = charts.bars(labels, [float(found.shares[j]) for j in largest])
        if len(found.shares) > BARS:
            shown += f"<p>The {BARS} largest of {len(found.shares)} inputs.</p>"
    return f"""<h2>Which inputs matter</h2>
{shown}
<p>How much each input contributes to the bound: {escape(found.origin)}, scaled to a sum of 1.</p>"""


def _figure(values: Array, caption: str) -> str:
    return (
        f"<figure>{charts.image(values)}<figcaption>{caption}, dark is large</figcaption></figure>"
    )


def _picture_shape(network: Network, image: tuple[int, int] | None) -> tuple[int, int] | None:
    """The height and width of the input as a picture, or None; channels come first and are added up."""
    shape = tuple(network.input_shape)
    if image is None:
        return (shape[-2], shape[-1]) if len(shape) in (2, 3) and min(shape[-2:]) > 1 else None
    if min(image) < 1 or network.input_size % (image[0] * image[1]):
        raise LipoptError(
            f"an image of {image[0]} x {image[1]} does not fit {network.input_size} inputs"
        )
    return image


def _picture(values: Array, picture: tuple[int, int]) -> Array:
    return np.asarray(values.reshape(-1, *picture).sum(axis=0))


def _certified(posed: Posed, results: Sequence[Result]) -> Result:
    """The best bound that can be written as a certificate, from the proofs that were found."""
    tasks = [Task(raw, problem) for raw, problem in posed.parts]
    for result in results:
        bounds = [UpperBound(result.upper, proof=proof) for proof in result.proofs]
        try:
            with arithmetic(posed.network.widest):
                certificate = certify(posed, tasks, bounds)
        except LipoptError:
            continue
        details = {**result.details, "loss": certificate.loss}
        return replace(result, upper=certificate.bound, certificate=certificate, details=details)
    raise LipoptError("none of the bounds can be written as a certificate")


def _certificate_section(result: Result, name: str) -> str:
    assert result.certificate is not None
    digest = sha256(result.certificate.text.encode()).hexdigest()
    name = printable(name)
    command = f"lipcheck {Path(name).with_suffix('.safetensors')} {name}"
    return f"""<h2>Certificate</h2>
<p>The certificate {escape(name)} of method {escape(result.method)} proves that L is at most {tables.number(result.upper)}.
To check it from the weights alone, in exact arithmetic: <code>{escape(command)}</code></p>
<p>SHA-256 of the certificate: <code>{digest}</code><br>
SHA-256 of the network: <code>{result.network}</code></p>"""


PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>$title</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 800px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; line-height: 1.25; } h2 { font-size: 1.15em; margin-top: 2em; }
.answer { font-size: 1.1em; font-weight: 600; }
table { border-collapse: collapse; } th, td { padding: .25em .8em; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
th, td:first-child { white-space: nowrap; } td { font-variant-numeric: tabular-nums; } td:last-child { max-width: 18em; }
svg { font: 12px system-ui, sans-serif; max-width: 100%; height: auto; }
figure { display: inline-block; margin: 0 2em 0 0; } figcaption { font-size: .85em; color: #555; }
img { border: 1px solid #ccc; } code { font-size: .9em; overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>$title</h1>
<p><code>$network</code></p>
$sections
</body>
</html>
""")
