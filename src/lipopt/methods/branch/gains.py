"""Which neuron to split, from what splits have gained so far.

A split gains by how much it lowers the logarithm of a bound, in either part. What a neuron has gained
where it was split is a better guess of what it will gain elsewhere than any formula: an integer
program knows the same as pseudo-costs (Achterberg, Koch, Martin, "Branching rules revisited", 2005).
Before it was split, its score says what to expect, times what scores have been worth until now.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log

import numpy as np

from ...numerics.arrays import Array
from ...problem.proofs import NeuronSplit
from .choose import NeuronSplits

# The score of a neuron counts like so many splits of it.
WEIGHT_OF_SCORE = 4.0
# A part whose bound is below this share of the target gains no more by being lower still.
ENOUGH = 0.9
# The same, relative to the cell itself, for when nothing is known of the target.
LARGEST_GAIN = 2.0**10

# As if scores had kept their promise to gain so much.
FIRST_GAIN = 0.1


@dataclass(eq=False)
class Gains:
    """What splits of all neurons have gained, and what their scores promised."""

    sums: Array  # (neurons,): of the gains in both parts
    counts: Array  # (neurons,): of parts
    promised: float = FIRST_GAIN  # the sum of scores, relative to the bounds of the cells
    gained: float = FIRST_GAIN

    @staticmethod
    def none(neurons: int) -> Gains:
        return Gains(np.zeros(neurons), np.zeros(neurons))

    def choose(self, splits: NeuronSplits, bound: float) -> NeuronSplit:
        """The split of a cell with this bound that is expected to gain most."""
        by_score = self.gained / self.promised * splits.scores / bound
        own = self.sums[splits.neurons] + WEIGHT_OF_SCORE * by_score
        expected = own / (self.counts[splits.neurons] + WEIGHT_OF_SCORE)
        best = int(np.argmax(expected))
        return NeuronSplit(int(splits.neurons[best]), float(splits.values[best]))

    def note(
        self,
        split: NeuronSplit,
        splits: NeuronSplits,
        bound: float,
        parts: list[float],
        target: float,
    ) -> None:
        """Learn from a split: the bounds of a cell and of its parts, 0 for those that are empty.

        Bounds of at most `target` were good enough."""
        if not isfinite(bound):
            return
        score = float(splits.scores[splits.neurons == split.neuron][0])
        enough = max(ENOUGH * target, bound / LARGEST_GAIN)
        for part in parts:
            gain = log(bound / min(max(part, enough), bound))
            self.sums[split.neuron] += gain
            self.counts[split.neuron] += 1
            self.promised += score / bound
            self.gained += gain
