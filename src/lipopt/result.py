"""Result: what `bound` returns. An upper bound that is proved, a lower bound beside it, and how they were found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from html import escape
from pathlib import Path
from typing import Any

from . import notebook
from .certificates.certificate import Certificate
from .errors import LipoptError
from .model.network import Source
from .model.norms import Norm
from .names import printable
from .numerics.rounding import written_down, written_up
from .problem.proofs import Proof
from .problem.task import Status

MOST_UNITS = 8  # of inputs that are written out


@dataclass(frozen=True, repr=False)
class Result:
    """What `bound` returns: lower <= Lipschitz constant <= upper, and how both were found.

    Args:
        upper: the upper bound. It is proved.
        lower: a lower bound on the constant: the norm of a gradient at some point of the domain.
        pop_lower: a lower bound on the optimum of the problem that methods relax (the POP). None of
            them gets below it, so `upper / pop_lower` says what a better one could gain. It is None
            where branch and bound, which divides the domain, got below it.
        method: the name of the method.
        seconds: the time from the question to the answer, lower bounds and certificate included.
        status: "complete"; "gap not reached" if the method has done all that it can, and the bounds
            are farther apart than was asked for; or "time limit", "cell limit" or "interrupted" (by
            Ctrl-C) if it had to stop before it was done.
        norm: the name of the norm on the inputs.
        output_norm: the name of the norm on the outputs, which matters if there are several.
        scale: how much of each input counts as 1 in the norm, flat; empty for 1.
        output: the output in words: "0", "all", or "3 - 8" for a margin.
        domain: the domain in words.
        network: the SHA-256 of the network's own file, as `Network.save` writes it.
        source: the files that the network was read from, with their SHA-256.
        point: the input where `lower` is the norm of the gradient, flat; empty if there is none.
        certificate: the certificate, if one was asked for.
        proofs: what proves `upper`, before it is written as a certificate: one proof for each
            problem that the question was divided into. None where there is no such proof.
        details: more about how the bound was found. Which keys there are depends on the method:

            chosen: the method whose bound it is, where that was decided on the way: the one that
                `auto` took, or "path-sum" where an SDP proved nothing smaller.
            norm: (auto) the norm in which the bound was proved, if that is another one: for one
                output, the constant in l2 is at most that in linf, and that in l1 at most both.
            refused: (auto) the methods that did not take the problem or had to fall back on another
                one, by name, and their reasons.
            primal: (sdp, lip-sdp) the value of the relaxation without cuts; the bound is a little more,
                unless the search ended early.
            rank: (sdp, lip-sdp) the number of coordinates of the vectors at the end.
            left_out: of a network that is too large for the SDP, the layers that path sums stand for.
            triangles: (sdp with cuts, auto) the number of triangle inequalities in the proof.
            rows: (sdp) the number of margins that share the multipliers, in a batch run with
                `certify`.
            l2: (lip-sdp) the bound in the l2 norm, before it was multiplied for another norm.
            degree: (lipopt) the degree of the LP.
            pattern: (lipopt) the sparsity pattern.
            sets: (lipopt) the number of sets of variables in the LP.
            monomials: (lipopt) the number of monomials of these sets.
            iterations: (lipopt) iterations of the LP solver, all rounds together.
            seconds: (lipopt) the time for "assembly", "solve", "tighten" and "certify".
            inputs: (lipopt, l1) the number of inputs that got a proof of their own by an LP.
            order: (shor) the order of the lifted matrix.
            cells: (branch) the number of cells that were looked at.
            empty: (branch) the number of cells that turned out to be empty.
            neurons: (branch) the number of neurons whose slope is not known over the whole domain.
            history: (branch) how both bounds developed: seconds, lower, upper, number of cells.
            loss: (certify) how much larger the certified bound is than the method's, relative.
            box: (Boxes) the number of the box that decided, from 0.
            boxes: (Boxes) the number of boxes.

    Examples:
        >>> import lipopt
        >>> result = lipopt.bound([[[1.0, -1.0]], [[2.0]]], method="sdp", certify=True)
        >>> result.method, result.status, result.output, result.domain
        ('sdp', 'complete', '0', 'whole space')
        >>> result
        <Result: 3.99999 <= Lipschitz constant of output 0 in the l_inf norm, whole space <= 4.00001, by sdp (path-sum)>
        >>> result.certificate.text.splitlines()[0]
        'lipopt-certificate 1'
        >>> result.details["loss"] < 1e-4
        True
    """

    upper: float
    lower: float
    pop_lower: float | None
    method: str
    seconds: float
    status: Status
    norm: str
    output: str
    domain: str
    network: str
    source: Source | None = None
    output_norm: str = ""
    scale: tuple[float, ...] = ()
    point: tuple[float, ...] = ()
    certificate: Certificate | None = field(default=None, compare=False)
    proofs: Sequence[Proof | None] = field(default=(), compare=False)
    details: dict[str, Any] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write the certificate, for `lipcheck NETWORK CERTIFICATE`.

        The network is written by `Network.save`.

        Args:
            path: where to write it; a file that is there is overwritten.

        Raises:
            LipoptError: the bound was computed without `certify=True`."""
        if self.certificate is None:
            raise LipoptError(
                "this result has no certificate to save; ask for one with bound(..., certify=True)"
            )
        self.certificate.save(path)

    @property
    def question(self) -> str:
        """What was asked, in words."""
        return _question(self)

    @property
    def by(self) -> str:
        """The method in words, with the one that it chose, and the norm in which that proved it."""
        if "chosen" not in self.details:
            return self.method
        norm = f", {self.details['norm']}" if "norm" in self.details else ""
        return f"{self.method} ({self.details['chosen']}{norm})"

    @property
    def how(self) -> str:
        """The method in words, and why it stopped early if it did."""
        return self.by if self.status == "complete" else f"{self.by}, {self.status}"

    def plot(self, ax: Any = None) -> Any:
        """Draw both bounds; after branch and bound, how they came together. Needs matplotlib.

        Args:
            ax: the matplotlib axes to draw on; new ones if not given.

        Returns:
            The axes."""
        history = self.details.get("history", [])
        panel = notebook.axes(ax, rows=None if len(history) > 1 else 1)
        if len(history) > 1:
            notebook.draw_history(panel, history)
        else:
            notebook.draw_bounds(panel, [self.how], [self.upper], self.lower)
        return panel

    def __repr__(self) -> str:
        bounds = f"{written_down(self.lower)} <= {self.question} <= {written_up(self.upper)}"
        return f"<Result: {bounds}, by {self.how}>"

    def _repr_html_(self) -> str:
        return notebook.html_fields(
            {
                "Lipschitz constant": self.question.removeprefix("Lipschitz constant "),
                "upper bound, proved": written_up(self.upper),
                "lower bound, attained": written_down(self.lower),
                "upper / lower": _ratio(self.upper, self.lower),
                "method": self.how,
                "seconds": f"{self.seconds:.2f}",
                "certificate": "none" if self.certificate is None else "yes: result.save(path)",
            }
        )

    def to_json(self) -> str:
        """All fields but the certificate and the proofs, and `by`, as one line of JSON."""
        values = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in ("certificate", "proofs")
        }
        values["by"] = self.by
        if self.source is not None:
            values["source"] = asdict(self.source)
        return json.dumps(values)


class Comparison(list[Result]):
    """What `compare` returns: a list of results, the smallest upper bound first.

    Args:
        results: a Result for every method that took the problem.
        refused: for every method that did not, by its name, the reason.

    Example:
        >>> import lipopt
        >>> weights = [[[1.0, -1.0]], [[2.0]]]
        >>> found = lipopt.compare(weights, methods=["path-sum", "shor"], norm="l1")
        >>> [result.method for result in found], list(found.refused)
        (['path-sum'], ['shor'])
    """

    def __init__(self, results: Iterable[Result], refused: Mapping[str, str]) -> None:
        super().__init__(results)
        self.refused = dict(refused)

    def table(self) -> Any:
        """The results as a pandas frame, one row a method."""
        return notebook.frame([_numbers(result) for result in self])

    def plot(self, ax: Any = None) -> Any:
        """Draw all upper bounds and the lower bound. Needs matplotlib.

        Args:
            ax: the matplotlib axes to draw on; new ones if not given.

        Returns:
            The axes."""
        panel = notebook.axes(ax, rows=len(self))
        names = [result.how for result in self]
        notebook.draw_bounds(panel, names, [result.upper for result in self], self[0].lower)
        return panel

    def _repr_html_(self) -> str:
        records = []
        for result in self:
            records.append(
                {
                    "method": result.how,
                    "upper bound": written_up(result.upper),
                    "upper / lower": _ratio(result.upper, result.lower),
                    "seconds": f"{result.seconds:.2f}",
                }
            )
        lines = [self[0].question, f"lower bound {written_down(self[0].lower)}"] if self else []
        for name, reason in self.refused.items():
            lines.append(f"{name} was not used: {reason}")
        below = "".join(f"<p>{escape(printable(line))}</p>" for line in lines)
        return notebook.html_table(records) + below


def _numbers(result: Result) -> dict[str, Any]:
    """The fields of a result that a table holds."""
    names = ("method", "upper", "lower", "pop_lower", "seconds", "status")
    return {name: getattr(result, name) for name in names}


def _ratio(upper: float, lower: float) -> str:
    return f"{upper / lower:.3f}" if lower else "-"


def _question(result: Result | LowerBound) -> str:
    """What was asked, in words."""
    output = result.output
    if output == "all":
        what = "all outputs"
    elif " - " in output:
        what = f"margin {output}"
    else:
        what = f"output {output}"
    return f"Lipschitz constant of {what} in {_norms_in_words(result)}, {result.domain}"


def _norms_in_words(result: Result | LowerBound) -> str:
    """The norm on the inputs, that on the outputs if it is another, and the units of the inputs."""
    norm = Norm(result.norm).words
    words = f"the {norm} norm"
    if result.output == "all" and result.output_norm not in ("", result.norm):
        words = f"the norms {norm} of inputs and {Norm(result.output_norm).words} of outputs"
    return words + in_units(result.scale)


def in_units(scale: Sequence[float]) -> str:
    """The units of the inputs in words; nothing if they are 1."""
    if not scale:
        return ""
    units = [f"{unit:g}" for unit in scale[:MOST_UNITS]]
    if len(scale) > MOST_UNITS:
        units.append(f"... ({len(scale)} in all)")
    return f", inputs in units of {', '.join(units)}"


@dataclass(frozen=True, repr=False)
class LowerBound:
    """What `lower_bound` returns.

    Args:
        lower: a lower bound on the Lipschitz constant: the norm of the gradient at `point`, 0 if no
            point was found where the network is differentiable.
        pop_lower: a lower bound on the optimum of the problem that all methods relax (the POP).
        point: the input with the largest gradient that was found, flat; empty if there is none.
        seconds: the time that it took.
        norm: the name of the norm on the inputs.
        output_norm: the name of the norm on the outputs, which matters if there are several.
        scale: how much of each input counts as 1 in the norm, flat; empty for 1.
        output: the output in words: "0", "all", or "3 - 8" for a margin.
        domain: the domain in words.
        network: the SHA-256 of the network's own file, as `Network.save` writes it.
        source: the files that the network was read from, with their SHA-256.

    Examples:
        >>> import json, lipopt
        >>> low = lipopt.lower_bound([[[1.0, -1.0]], [[2.0]]], samples=100)
        >>> round(low.lower, 6), low.norm
        (4.0, 'linf')
        >>> json.loads(low.to_json())["output"]
        '0'
    """

    lower: float
    pop_lower: float
    point: tuple[float, ...]
    seconds: float
    norm: str
    output: str
    domain: str
    network: str
    source: Source | None = None
    output_norm: str = ""
    scale: tuple[float, ...] = ()

    @property
    def question(self) -> str:
        """What was asked, in words."""
        return _question(self)

    def __repr__(self) -> str:
        return f"<LowerBound: {written_down(self.lower)} <= {self.question}>"

    def to_json(self) -> str:
        """All fields, as one line of JSON."""
        return json.dumps(asdict(self))
