"""Result: what `bound` returns. An upper bound that is proved, a lower bound beside it, and how they were found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from .certificates.certificate import Certificate
from .errors import LipoptError
from .model.network import Source
from .problem.proofs import Proof
from .problem.task import Status


@dataclass(frozen=True)
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
        status: "complete"; or "time limit", "cell limit" or "interrupted" (by Ctrl-C) if the method
            had to stop before it was done.
        norm: the name of the norm on the inputs.
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
            primal: (sdp, lip-sdp) the value of the relaxation; the bound is at most a little more,
                unless the search ended early.
            rank: (sdp, lip-sdp) the number of coordinates of the vectors at the end.
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

    def to_json(self) -> str:
        """All fields but the certificate and the proofs, as one line of JSON."""
        values = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in ("certificate", "proofs")
        }
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


@dataclass(frozen=True)
class LowerBound:
    """What `lower_bound` returns.

    Args:
        lower: a lower bound on the Lipschitz constant: the norm of the gradient at `point`, 0 if no
            point was found where the network is differentiable.
        pop_lower: a lower bound on the optimum of the problem that all methods relax (the POP).
        point: the input with the largest gradient that was found, flat; empty if there is none.
        seconds: the time that it took.
        norm: the name of the norm on the inputs.
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

    def to_json(self) -> str:
        """All fields, as one line of JSON."""
        return json.dumps(asdict(self))
