"""LipSDP-Neuron (Fazlyab et al., 2019), as the paper compares it.

It is the l2 bound, times sqrt(n_0) for linf, and times the square root of the number of outputs for
l1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import ClassVar

import numpy as np

from ...model.norms import Norm
from ...numerics.arrays import Array
from ...numerics.rounding import up_float
from ...problem.derivative import DerivativeProblem
from ...problem.proofs import Multipliers
from ...problem.task import Task, UpperBound
from ..registry import register
from .method import SDP


@register("lip-sdp")
@dataclass(frozen=True)
class LipSDP:
    """The l2 bound, times what it takes for the norm that is asked for.

    Settings: the relative `gap` to stop at and the torch `device`, both as in SDP."""

    gap: float = 1e-4
    device: str | None = None
    name: ClassVar[str] = "lip-sdp"

    def __call__(self, task: Task) -> UpperBound:
        problem = task.problem
        under_l2 = replace(task, problem=replace(problem, norm=Norm.L2, output_norm=Norm.L2))
        found = SDP(gap=self.gap, device=self.device)(under_l2)
        if problem.norm is Norm.L2:
            return found
        factor = sqrt(problem.norm.squared_ratio_to_l2(problem.inputs, problem.outputs))
        value = up_float(found.value * factor, 2)
        proof = found.proof
        if isinstance(proof, Multipliers):
            proof = _rescale_proof(proof, problem, factor)
        details = {**found.details, "l2": found.value}
        return UpperBound(value, found.status, proof=proof, details=details)


def _rescale_proof(proof: Multipliers, problem: DerivativeProblem, factor: float) -> Multipliers:
    """Multipliers of the l2 problem as multipliers under the problem's norm.

    Repeating delta for every input (linf), or mu for every row (l1), makes their sum larger than
    the other one. They are scaled so that both are the same again."""
    repeats_delta = problem.norm.bounds_each_input
    scale = factor if repeats_delta else 1 / factor
    mu: float | Array = proof.mu * scale
    if not repeats_delta:
        mu = np.full(problem.outputs, mu)
    delta = np.full(problem.inputs, float(proof.delta[0]) / scale)
    return Multipliers(mu, delta, [t / scale for t in proof.tau])
