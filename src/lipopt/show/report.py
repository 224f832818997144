"""report(): one HTML file about the Lipschitz constant of one network. It refers to nothing outside itself.

It is for readers who were not there: the answer in one sentence, what was asked, lower and upper bounds on one axis; how
the bounds of branch and bound came together; over a ball, the bound against the radius; how much of the bound every input
carries; and, if one is asked for, the certificate and lipcheck's verdict. report.html.jinja is the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..api import bound, compare
from ..batch.certify import certified_radius
from ..errors import LipoptError
from ..methods.baselines import path_sum_rows
from ..model.domain import Ball, Domain, check_domain, example_in, one_box_only
from ..model.network import Network
from ..model.norms import NormName
from ..names import printable
from ..numerics.arrays import Array, as_index
from ..numerics.rounding import written_down, written_up
from ..problem.proofs import Multipliers
from ..problem.question import Posed, Question, pose
from ..progress import Progress, progress_as_asked
from ..readers import load_for
from ..result import Comparison, Result
from . import charts, tables, words
from .certificate_files import Verdict, check_command, checking, write_certificate
from .charts import Curve, Mark
from .words import Units

FRAME_HEIGHT = 600  # of a page in a notebook, in pixels
METHODS = ("auto", "path-sum", "product")  # that stand in the table
RADII = 5  # in the chart of local bounds, from a hundredth of the radius that is asked for
FEW = 200  # samples in each of those balls
FIRST_SECONDS = 0.01  # where the axis of time begins, which is logarithmic
BARS = 20  # inputs in the chart of sensitivities
CHECK_SECONDS = 120  # for lipcheck
CONSTANT = "Lipschitz constant, logarithmic scale"


@dataclass(frozen=True)
class Report:
    """A page about the Lipschitz constant of a network.

    Args:
        html: the page, one file that refers to nothing outside itself.
        result: the best result, with its certificate if one was asked for.

    Example:
        >>> import lipopt
        >>> done = lipopt.report([[[1.0, -1.0]], [[2.0]]], samples=100)
        >>> done.result.upper < 4.001
        True
        >>> "if no input changes by more than 0.01, then output 0 changes by at most" in done.html
        True
    """

    html: str
    result: Result

    def __repr__(self) -> str:
        return f"<Report about {self.result!r}>"

    def _repr_html_(self) -> str:
        """The page, in a frame of its own."""
        page = escape(self.html, quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="{FRAME_HEIGHT}"></iframe>'

    def save(self, path: str | Path) -> None:
        """Write the page.

        Args:
            path: where to write it; a file that is there is overwritten.

        Raises:
            LipoptError: it cannot be written."""
        try:
            Path(path).write_text(self.html, encoding="utf-8")
        except OSError as error:
            raise LipoptError(f"cannot write {path}: {error}") from error


def report(
    network: Any,
    *,
    input_shape: Sequence[int] | None = None,
    norm: NormName = "linf",
    output_norm: NormName | None = None,
    scale: Any = None,
    output: int | Literal["all"] | None = None,
    margin: tuple[int, int] | None = None,
    label: int | None = None,
    domain: Domain = None,
    time_limit: float | None = None,
    seed: int = 0,
    samples: int | None = None,
    image: tuple[int, int] | None = None,
    names: Sequence[str] | None = None,
    change: float | None = None,
    input_unit: str = "",
    output_unit: str = "",
    certificate: str | Path | None = None,
    command: str | None = None,
    progress: Progress | bool | None = None,
) -> Report:
    """A page about a Lipschitz constant, for readers who were not there. `bound` answers the question.

    Args:
        network: a Network, or anything that `load` reads.
        input_shape: the shape of one input of a torch module, without the batch dimension.
        norm: the norm on the inputs, "linf", "l2" or "l1".
        output_norm: the norm on several outputs, if it is another one.
        scale: how much of each input counts as one unit, as in `bound`.
        output: the number of an output, from 0, or "all". None for output 0, or the margin.
        margin: two outputs (i, j), to bound output i minus output j.
        label: the class at the center of a ball: the page then says up to which radius it is proved. Unless an output or a
            margin is given, the constant is that of the margin to the next class.
        domain: a Ball, a Box, or None for the whole space.
        time_limit: seconds for the best bound; in a ball or a box, branch and bound uses all of it. None for a few seconds.
        seed: the seed of everything random.
        samples: random points for the lower bound.
        image: the height and width of inputs that are pictures, if the network's input has another shape.
        names: of the inputs.
        change: the change of the inputs that the sentence is about; the radius of a ball, otherwise 0.01, if it is not given.
        input_unit: the unit of the inputs, such as "m", if they have one in common.
        output_unit: the unit of the outputs.
        certificate: where to write a certificate of the bound; the network is written beside it, and lipcheck is run.
        command: how to repeat the report, for the page.
        progress: True for a bar, or a function that is called with a message and a fraction.

    Returns:
        A Report: `html`, `result` and `save`.

    Raises:
        LipoptError: as `bound` does; or names, image or label do not fit the network or the domain.

    Example:
        >>> import lipopt
        >>> network = lipopt.load([[[1.0, 0.0], [0.0, 1.0]]])
        >>> ball = lipopt.Ball([2.0, 1.0], radius=0.1)
        >>> page = lipopt.report(network, domain=ball, label=0, samples=100).html
        >>> "class stays 0 as long as no input changes by more than 0.499" in page
        True
    """
    with progress_as_asked(progress) as show:
        network = load_for(network, input_shape, example_in(domain))
        check_domain(domain)
        one_box_only("a report", domain)
        label = as_index(label)
        if label is not None:
            others = _other_classes(network, domain, label)
            if margin is None and output is None:
                margin = (label, others[0])
        if change is None:
            change = words.usual_change(domain)
        if not 0 < change < np.inf:
            raise LipoptError(f"the change must be a positive number, got {change}")
        _check_names(network, names)
        picture = _picture_shape(network, image)
        options: dict[str, Any] = {"norm": norm, "output": output, "margin": margin}
        options |= {"output_norm": output_norm, "scale": scale}
        asked = Question.about(network, domain=domain, **options)
        options |= {"seed": seed, "progress": show}
        certify = certificate is not None
        results = compare(
            network,
            methods=METHODS,
            domain=domain,
            samples=samples,
            time_limit=time_limit,
            certify=certify,
            **options,
        )
        with _check(network, results[0], certificate) as verdict:
            posed = pose(network, asked)
            sections = _history_sections(results)
            if isinstance(domain, Ball) and domain.radius > 0:
                sections.append(_radius_section(network, domain, results[0], options))
            sections.append(_sensitivity_section(posed, results, picture, names))
            units = _units(input_unit, output_unit, scale)
            values = _answer(results[0], asked, units, label, network)
            values["sentence"] = words.plain_sentence(results[0], asked, float(change), units)
            values["norm"] = words.norm(asked, names)
            values |= _bounds(results, units)
            if show is not None and certify:
                show("checking the certificate")
            values["certificate"] = _certificate(results[0], certificate, verdict)
    html = _page(
        **values,
        region=words.region(domain, network.input_size, names),
        command=None if command is None else printable(command),
        sections=sections,
    )
    return Report(html, results[0])


def _page(**values: Any) -> str:
    """The template with its values; text is escaped, charts are not."""
    loader = PackageLoader("lipopt.show", package_path=".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html.jinja").render(**values)


def _answer(
    best: Result, asked: Question, units: Units, label: int | None, network: Network
) -> dict[str, Any]:
    """The head of the page: the answer in words, and what was asked."""
    about_class = ""
    if label is not None and isinstance(asked.domain, Ball):
        ball = asked.domain
        center = ball.middle(network.input_size)
        own = int(network(center).argmax())
        radius = certified_radius(
            network, center, label, norm=ball.norm, clip=ball.clip, scale=ball.scale
        )
        about_class = words.class_sentence(label, own, radius, ball, units)
    source = network.source
    return {
        "title": f"Lipschitz constant of {words.asked_for(best.output)}",
        "class_sentence": about_class,
        "gap_sentence": words.gap_sentence(best),
        "function": words.asked_for(best.output),
        "unit": units.of_constant.strip(),
        "files": [] if source is None else [(printable(n), d) for n, d in source.files.items()],
        "part": "" if source is None else printable(source.part),
        "network": tables.network_line(network).partition(": ")[2],
        "network_digest": network.hash,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": version("lipopt"),
    }


def _units(input_unit: str, output_unit: str, scale: Any) -> Units:
    """The units of inputs and outputs. With a scale, every input has a unit of its own."""
    if scale is not None and not input_unit:
        input_unit = "unit"
    return Units(printable(input_unit), printable(output_unit))


def _other_classes(network: Network, domain: Domain, label: int) -> list[int]:
    """The classes but this one, by their outputs at the center of the ball, the largest first."""
    if not isinstance(domain, Ball):
        raise LipoptError("a label goes with a ball: it is the class at its center")
    count = network.output_size
    if count < 2:
        raise LipoptError("a label needs a network with two outputs or more")
    if not isinstance(label, int | np.integer) or not 0 <= label < count:
        raise LipoptError(f"the label is a number from 0 to {count - 1}, got {label!r}")
    outputs = network(domain.middle(network.input_size))
    return [int(k) for k in np.argsort(-outputs, kind="stable") if k != label]


def _bounds(results: Comparison, units: Units) -> dict[str, Any]:
    """The section on bounds: a chart, and a row for every method."""
    best = results[0]
    lower = written_down(best.lower)
    below = [Mark("slope at some point", best.lower, f"L is at least {lower}")]
    if best.pop_lower is not None:
        text = f"at least {written_down(best.pop_lower)}"
        below.append(Mark("maximum of the polynomial (POP)", best.pop_lower, text))
    above = [Mark(r.how, r.upper, f"L is at most {written_up(r.upper)}") for r in results]
    methods = []
    for r in results:
        methods.append(
            {
                "name": r.how,
                "words": words.METHODS.get(r.details.get("chosen", r.method), ""),
                "upper": written_up(r.upper),
                "ratio": f"{r.upper / r.lower:.3f}" if r.lower else "-",
                "seconds": f"{r.seconds:.2f}",
            }
        )
    chart = charts.both_widths(lambda width: charts.sandwich(below, above, CONSTANT, width))
    return {
        "lower": lower,
        "upper": written_up(best.upper),
        "unit_after": units.of_constant,
        "bounds_chart": Markup(chart),
        "has_pop": best.pop_lower is not None,
        "methods": methods,
        "refused": [(name, printable(reason)) for name, reason in results.refused.items()],
    }


@dataclass(frozen=True)
class _Section:
    """A picture with its title, and what it shows."""

    title: str
    picture: Markup
    text: str


def _curve_section(title: str, data: Curve, text: str) -> _Section:
    chart = charts.both_widths(lambda width: charts.curve(data, CONSTANT, width))
    return _Section(title, Markup(chart), text)


def _history_sections(results: Sequence[Result]) -> list[_Section]:
    """How the bounds of branch and bound came together, if it took more than one step."""
    sections = []
    for result in results:
        history = result.details.get("history", [])
        if len(history) < 2:
            continue
        seconds = [max(entry[0], FIRST_SECONDS) for entry in history]
        lower = [entry[1] for entry in history]
        upper = [entry[2] for entry in history]
        data = Curve(seconds, upper, lower, "seconds, logarithmic scale")
        cells = result.details["cells"]
        text = f"Branch and bound divided the region into {cells} cells. Both bounds hold at every moment."
        sections.append(_curve_section("How the bounds came together", data, text))
    return sections


def _radius_section(
    network: Network, ball: Ball, asked: Result, options: dict[str, Any]
) -> _Section:
    """Bounds in smaller balls; the largest is the one that was asked for, and is not solved again."""
    radii = [float(r) for r in ball.radius * np.logspace(-2, 0, RADII)]
    quick = {**options, "samples": FEW, "method": "sdp"}
    local = []
    for radius in radii[:-1]:
        local.append(bound(network, domain=replace(ball, radius=radius), **quick))
    local.append(asked)
    text = "Bounds over balls around the same center, by the semidefinite relaxation; the largest ball is the region above."
    try:
        everywhere = bound(network, **quick).upper
        whole = Mark("whole space", everywhere, written_up(everywhere))
        text += f" Over the whole space L is at most {written_up(everywhere)}."
    except LipoptError:  # products, exponentials and others have no constant there
        whole = None
    data = Curve(
        radii,
        [r.upper for r in local],
        [r.lower for r in local],
        "radius of the ball, logarithmic scale",
        whole,
    )
    return _curve_section("In smaller balls", data, text)


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
                shares, "the multiplier that the semidefinite relaxation gives to each input"
            )
    problem = posed.problem
    sums = np.zeros(posed.network.input_size)
    if problem.objective:
        sums = path_sum_rows(problem).max(axis=0)
    shares = sums / max(float(sums.sum()), charts.SMALLEST)
    return _Sensitivity(shares, "the sum of the products of weights over all paths from each input")


def _sensitivity_section(
    posed: Posed,
    results: Sequence[Result],
    picture: tuple[int, int] | None,
    names: Sequence[str] | None,
) -> _Section:
    found = _sensitivity(posed, results)
    text = f"How much each input contributes to the bound: {found.origin}, as a share of the sum."
    if picture is not None:
        shown = _figure(_picture(found.shares, picture), "share in the bound")
        domain = posed.question.domain
        if isinstance(domain, Ball) and domain.center.size == found.shares.size:
            shown += _figure(_picture(np.reshape(domain.center, -1), picture), "center of the ball")
        return _Section("Which inputs matter", Markup(shown), text)
    largest = np.argsort(-found.shares, kind="stable")[:BARS]
    labels = [words.input_name(j, names) for j in largest]
    values = [float(found.shares[j]) for j in largest]
    if len(found.shares) > BARS:
        text += f" These are the {BARS} largest of {len(found.shares)} inputs."
    chart = charts.both_widths(lambda width: charts.bars(labels, values, "share", width))
    return _Section("Which inputs matter", Markup(chart), text)


def _figure(values: Array, caption: str) -> str:
    low = charts.number_or_zero(float(values.min()))
    high = charts.number_or_zero(float(values.max()))
    scale = f"{caption}: white is {low}, black is {high}"
    return f"<figure>{charts.image(values, caption)}<figcaption>{scale}</figcaption></figure>"


def _check_names(network: Network, names: Sequence[str] | None) -> None:
    if names is not None and len(names) != network.input_size:
        raise LipoptError(f"{len(names)} names for {network.input_size} inputs")


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


@contextmanager
def _check(
    network: Network, result: Result, path: str | Path | None
) -> Iterator[Callable[[], Verdict] | None]:
    """Write a certificate, if it is asked for, and have it checked meanwhile."""
    if path is None:
        yield None
        return
    write_certificate(network, result, Path(path))
    with checking(Path(path), CHECK_SECONDS) as verdict:
        yield verdict


def _certificate(
    result: Result, path: str | Path | None, verdict: Callable[[], Verdict] | None
) -> dict[str, str] | None:
    """What the page says of the certificate, lipcheck's verdict included."""
    if path is None or verdict is None or result.certificate is None:
        return None
    found = verdict()
    return {
        "name": printable(Path(path).name),
        "method": result.how,
        "word": found.word,
        "text": found.text,
        "command": check_command(Path(path)),
        "digest": sha256(result.certificate.text.encode()).hexdigest(),
    }
