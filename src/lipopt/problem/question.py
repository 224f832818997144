"""The question, and what it becomes: which constant is asked for, posed as a derivative problem.

network + Question -> pose() -> merged neurons, intervals, the problem as the network stands, the problem after presolve
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp

from ..errors import LipoptError
from ..model.domain import Domain, flat_scale
from ..model.merging import Merged, merged
from ..model.network import Network
from ..model.norms import Norm, find_norm, find_output_norm
from ..model.products import Product, find_products
from ..model.round_ball import RoundBall
from ..numerics.arrays import Array
from .derivative import DerivativeProblem, derivative_problem
from .intervals import Factors, Interval, enclose
from .presolve import only_rows, presolve, split_rows
from .products import factored, slopes_of_factors
from .proofs import Tree


@dataclass(frozen=True, eq=False)
class Question:
    """Which Lipschitz constant is asked for."""

    norm: Norm
    rows: sp.csr_array  # the functions of the outputs whose constant it is, one per row
    domain: Domain = None  # None for the whole space
    scale: Array | None = None  # how much of each input counts as 1; None for 1
    output_norm: Norm | None = None  # on several rows; None for the same norm

    @staticmethod
    def about(
        network: Network,
        *,
        norm: str = "linf",
        output: int | Literal["all"] | None = None,
        margin: tuple[int, int] | None = None,
        domain: Domain = None,
        scale: Any = None,
        output_norm: str | None = None,
    ) -> Question:
        """The constant of one output (0 if none is named), of all, or of the difference of two."""
        found = find_norm(norm)
        rows = output_matrix(network, output, margin)
        if output_norm is not None and output != "all":
            raise LipoptError(
                "a norm on the outputs goes with all outputs, not with one or a margin"
            )
        units = None if scale is None else flat_scale(scale, network.input_size)
        on_outputs = find_output_norm(found, output_norm, rows.shape[0])
        return Question(found, rows, domain, units, on_outputs)

    @property
    def is_by_output(self) -> bool:
        """Whether the constant of several rows is the largest of their constants."""
        return (self.output_norm or self.norm).is_by_output


@dataclass(frozen=True, eq=False)
class Refinement:
    """What makes intervals better than those of one pass, and the latter."""

    before: list[Interval]
    proof: Tree  # of one cell, the whole domain


# How many of the intervals that backward bounds can cut down were cut.
Cuts: TypeAlias = Literal["all", "some", "none"]


@dataclass(frozen=True, eq=False)
class Posed:
    """A question about a network, made ready for the methods."""

    merged: Merged  # the network that was asked about, and the one that takes its place
    question: Question
    intervals: list[Interval] | None  # the values of every node over the domain; None: all numbers
    raw: DerivativeProblem  # as the network stands, affine nodes included
    problem: DerivativeProblem  # after presolve
    refinement: Refinement | None = None  # how the intervals became what they are
    products: tuple[Product, ...] = ()  # in a ball or a box
    factors: Factors = field(default_factory=dict)  # the ranges of their factors
    cuts: Cuts = "all"

    @property
    def can_be_found_again(self) -> bool:
        """Whether a checker finds the same intervals."""
        return self.cuts != "some"

    @property
    def network(self) -> Network:
        """The network with its neurons merged: all that follows is about it."""
        return self.merged.network

    @property
    def ball(self) -> RoundBall | None:
        """The ball that the domain's box is cut with, if it is."""
        domain = self.question.domain
        return None if domain is None else domain.ball(self.network.input_size)

    @property
    def parts(self) -> list[tuple[DerivativeProblem, DerivativeProblem]]:
        """The raw and the presolved problems whose bounds make the answer: the largest counts.

        There is one for each output where the norm is a maximum over outputs, otherwise one."""
        if self.question.is_by_output and self.raw.outputs > 1:
            return self.rows
        return [(self.raw, self.problem)]

    @property
    def rows(self) -> list[tuple[DerivativeProblem, DerivativeProblem]]:
        """The raw and the presolved problem of every row."""
        return list(zip(split_rows(self.raw), split_rows(self.problem), strict=True))

    def as_given(self) -> Posed:
        """The same question about the network as it was given: no merged neurons, plain intervals."""
        if not self.merged.merges and self.refinement is None:
            return self
        plain = self.cuts == "none"
        return pose(self.merged.original, self.question, merging=False, plain=plain)

    def only(self, row: int) -> Posed:
        """The same for one row."""
        question = replace(self.question, rows=self.question.rows[[row], :])
        raw = only_rows(self.raw, [row])
        return replace(self, question=question, raw=raw, problem=only_rows(self.problem, [row]))

    def slopes_in_problem(self, slopes: Mapping[int, Array]) -> dict[int, Array]:
        """The slopes of all activation nodes at a point, as the problem has them."""
        return slopes_of_factors(self.products, slopes)

    def refined(self, intervals: list[Interval], refinement: Refinement) -> Posed:
        """The same question with better intervals."""
        raw = raw_problem(self.network, self.question, intervals)
        whole = factored(self.network, raw, self.products, self.factors, intervals)
        return replace(
            self,
            intervals=intervals,
            raw=raw,
            problem=presolve(whole),
            refinement=refinement,
        )


def pose(
    network: Network,
    question: Question,
    progress: Callable[[float], None] = lambda fraction: None,
    is_late: Callable[[], bool] = lambda: False,
    *,
    merging: bool = True,
    plain: bool = False,
) -> Posed:
    """The derivative problem of a question, with the intervals that its slopes come from.

    Once it `is_late`, the intervals get no better; `plain` ones are those of interval propagation
    alone. Without `merging`, all neurons stay."""
    smaller = merged(network) if merging else Merged(network, network)
    network = smaller.network
    if question.domain is None:
        raw = raw_problem(network, question, None)
        return Posed(smaller, question, None, raw, presolve(raw))
    size = network.input_size
    ends = question.domain.bounds(size)
    ball = question.domain.ball(size)
    products = find_products(network)
    if plain:
        enclosure = enclose(network, *ends, ball, products, progress, lambda: True)
    else:
        enclosure = enclose(network, *ends, ball, products, progress, is_late)
    intervals = enclosure.intervals
    factors = enclosure.factors
    raw = raw_problem(network, question, intervals)
    problem = presolve(factored(network, raw, products, factors, intervals))
    cuts: Cuts = "all" if enclosure.has_all_cuts else "some"
    return Posed(
        smaller,
        question,
        intervals,
        raw,
        problem,
        products=products,
        factors=factors,
        cuts="none" if plain else cuts,
    )


def raw_problem(
    network: Network, question: Question, intervals: list[Interval] | None
) -> DerivativeProblem:
    """The derivative problem as the network stands, with the slopes that these intervals allow."""
    return derivative_problem(
        network,
        slope_ranges(network, intervals),
        question.norm,
        question.rows,
        question.scale,
        question.output_norm,
    )


def slope_ranges(
    network: Network, intervals: list[Interval] | None
) -> dict[int, tuple[Array, Array]]:
    """What is known of the slopes of every activation node, given the intervals of all nodes."""
    ranges = {}
    for i, node in network.activations.items():
        everything = (np.full(node.size, -np.inf), np.full(node.size, np.inf))
        ends = everything if intervals is None else intervals[node.source]
        node.function.require_slopes(node.name, *ends)
        ranges[i] = node.function.slope_range(*ends)
    return ranges


def unbounded_slopes(network: Network) -> str | None:
    """Why a network has no constant over the whole space; None if it has one."""
    try:
        slope_ranges(network, None)
    except LipoptError as error:
        return str(error)
    return None


def output_matrix(
    network: Network, output: int | Literal["all"] | None, margin: tuple[int, int] | None
) -> sp.csr_array:
    """The rows of the outputs that are asked for: one, all, or a difference of two."""
    count = network.output_size
    if margin is not None:
        if not isinstance(margin, tuple | list) or len(margin) != 2:
            raise LipoptError(f"a margin is a pair of outputs, got {margin!r}")
        if output is not None:
            raise LipoptError("ask for an output or for a margin, not for both")
        i, j = margin
        _check_output(i, count)
        _check_output(j, count)
        if i == j:
            raise LipoptError(f"a margin needs two different outputs, got {i},{j}")
        return sp.csr_array(([1.0, -1.0], ([0, 0], [i, j])), shape=(1, count))
    if output == "all":
        return sp.csr_array(sp.eye_array(count))
    output = 0 if output is None else output
    _check_output(output, count)
    return sp.csr_array(([1.0], ([0], [output])), shape=(1, count))


def _check_output(k: int, count: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise LipoptError(f"an output is a whole number or 'all', got {k!r}")
    if not 0 <= k < count:
        raise LipoptError(f"output {k} is out of range: the network has outputs 0 to {count - 1}")
