"""LipSDP-Neuron (Fazlyab et al., 2019), as the paper compares it.

It is the l2 bound, times the square root of the number of inputs for linf on these, and times the
square root of the number of outputs for l1 on those.
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
from ...problem.proofs import MatrixNorm, Multipliers, PathSums
from ...problem.task import Task, UpperBound
from ..baselines import path_sum_bound
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
        norm, output = problem.norms
        most_inputs = problem.inputs if norm is Norm.LINF else 1
        most_outputs = problem.outputs if output is Norm.L1 else 1
        factor = sqrt(most_inputs * most_outputs)
        if factor == 1 and not norm.is_by_input:
            return found
        value = up_float(found.value * factor, 2)
        proof = found.proof
        if isinstance(proof, PathSums):  # those of the norm that is asked for are smaller
            value = min(value, path_sum_bound(problem))
        if isinstance(proof, MatrixNorm):
            proof = proof.multipliers
        if isinstance(proof, Multipliers):
            proof = _rescale_proof(proof, problem, sqrt(most_inputs / most_outputs))
        details = {**found.details, "l2": found.value}
        return UpperBound(value, found.status, proof=proof, details=details)


def _rescale_proof(proof: Multipliers, problem: DerivativeProblem, scale: float) -> Multipliers:
    """Multipliers of the l2 problem as multipliers under the problem's norms.

    Repeating delta for every input, or mu for every row, may make their sum larger than the other
    one. They are scaled so that both are the same again."""
    mu: float | Array = proof.mu * scale
    if problem.adds_outputs:
        mu = np.full(problem.outputs, mu)
    count = 1 if problem.norm is Norm.L2 else problem.inputs
    delta = np.full(count, float(proof.delta[0]) / scale)
    tau = [t / scale for t in proof.tau]
    return Multipliers(mu, delta, tau, by_input=problem.norm.is_by_input)
