"""A small writer of certificates with trees: it splits neurons until all are linear, and cuts on the way.

It writes down what lipcheck's own functions compute, so that it cannot test them. It is there to make files that
are accepted, of which others are made that should not be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor

from lipcheck.cells import (
    Cell,
    Constraint,
    Cut,
    Hints,
    cut,
    leaf,
    least_ends,
    split_neuron,
    whole_domain,
)
from lipcheck.claim import Claim
from lipcheck.exact import GRID, Matrix, align
from lipcheck.forms import fix
from lipcheck.inputs import Bounds
from lipcheck.intervals import enclose
from lipcheck.lines import Lines
from lipcheck.network import Network
from lipcheck.parts import bound_part

ENDS = 40  # binary digits of ends after the point
SLOPES = 20  # and of slopes


class TreeWriter:
    """Writes a tree for W f in a norm on a box, or the whole space (None). Every cell has at most so many cuts,
    cells of depth `most_depth` are leaves, and a leaf is bounded by the rule `rule`, which needs no numbers."""

    def __init__(
        self,
        network: Network,
        norm: str,
        rows: Sequence[Mapping[int, Fraction]],
        box: tuple[list[Fraction], list[Fraction]] | None,
        most_cuts: int = 4,
        most_depth: int = 100,
        rule: str = "interval",
    ) -> None:
        bounds = None if box is None else Bounds(*box)
        self.claim = Claim(network, norm, [dict(row) for row in rows], bounds, Fraction(0))
        self.most_cuts = most_cuts
        self.most_depth = most_depth
        self.rule = rule
        self.lines: list[str] = []
        self.bound = Fraction(0)
        self.cells = 0

    def write(self) -> bytes:
        claim = self.claim
        enclosure = None if claim.box is None else enclose(claim.network, claim.box, {})
        self.visit(whole_domain(claim, enclosure), 0)
        head = ["lipopt-certificate 2", f"network {claim.network.sha256}", f"norm {claim.norm}"]
        head.append(f"outputs {len(claim.rows)}")
        for row in claim.rows:
            head.append(f"columns {len(row)} " + " ".join(map(str, row)))
            head.append(numbers("entries", list(row.values())))
        if claim.box is None:
            head.append("domain space")
        else:
            head += ["domain box", numbers("lower", claim.box.lower)]
            head += [numbers("upper", claim.box.upper), "relaxations none"]
        head.append(numbers("bound", [self.bound]))
        lines = head + self.lines
        return "\n".join([*lines, f"end {len(lines)}", ""]).encode()

    def visit(self, cell: Cell, depth: int) -> None:
        """A cell, and all that it is split into."""
        self.cells += 1
        groups: list[list[str]] = []
        if cell.box is not None:
            cell, groups = self.cut(cell, self.most_cuts if depth else 10**6)
        self.lines.append(f"cuts {len(groups)}")
        for group in groups:
            self.lines += group
        if any(known.is_empty for known in cell.ranges.values()):
            self.lines += ["fixed 0"] * len(cell.forms.variables)
            self.lines.append("cell empty")
            return
        fixed = {}
        for i, neurons in cell.forms.variables.items():
            fixed[i] = [k for k in neurons if cell.ranges[i, k].is_line]
            self.lines.append(indices("fixed", fixed[i]))
        cell = replace(cell, forms=fix(cell.forms, cell.ranges, fixed))
        place = self.choose(cell)
        if place is None or depth == self.most_depth:
            self.leaf(cell)
            return
        self.lines += ["cell neuron", f"neuron {place[0]} {place[1]}", "value 0 0"]
        self.split(cell, place, depth)

    def split(self, cell: Cell, place: tuple[int, int], depth: int) -> None:
        text = f"neuron {place[0]} {place[1]}\nvalue 0 0\n".encode()
        for child in split_neuron(Lines(text), self.claim.network, cell):
            self.visit(child, depth + 1)

    def choose(self, cell: Cell) -> tuple[int, int] | None:
        """The variable to split: one that bends at 0, farthest from both ends of its range."""
        sizes = {}
        for i, neurons in cell.forms.variables.items():
            for k in neurons:
                known = cell.ranges[i, k]
                if known.function.is_piecewise_linear and known.lower < 0 < known.upper:
                    sizes[i, k] = min(-known.lower, known.upper)
        return max(sizes, key=sizes.__getitem__, default=None)

    def cut(self, cell: Cell, left: int) -> tuple[Cell, list[list[str]]]:
        """Better ends for the open variables, node by node."""
        groups: list[list[str]] = []
        for i, neurons in cell.forms.variables.items():
            open_neurons = [k for k in neurons if not cell.ranges[i, k].is_line][:left]
            split = [entry.place[1] for entry in cell.constraints if entry.place[0] == i]
            chosen = sorted(set(open_neurons) | set(split[-1:]))
            if not chosen or left <= 0:
                continue
            hints = self.hints(cell)
            cuts = []
            for sign in (1, -1):
                for k in chosen:
                    cuts.append(Cut(Constraint((i, k), sign, Fraction(0)), hints))
            found = least_ends(cell, cuts)
            better = []
            for entry, least in zip(cuts, found, strict=True):
                sign = entry.constraint.sign
                end = sign * Fraction(floor(least * 2**ENDS), 2**ENDS)
                known = cell.ranges[entry.constraint.place]
                if known.cut(sign, end) != known:
                    better.append(entry._replace(constraint=entry.constraint._replace(end=end)))
            if not better:
                continue
            left -= len(better)
            group = self.group(i, better)
            groups.append(group)
            text = "\n".join([*group, ""]).encode()
            cell = cut(Lines(text), self.claim.network, cell)
        return cell, groups

    def hints(self, cell: Cell) -> Hints:
        """Weights and slopes for all cuts of a cell: the last constraint, and chords."""
        slopes: dict[int, int] = {}
        for i, neurons in cell.forms.variables.items():
            for k in neurons:
                known = cell.ranges[i, k]
                low, high = known.slopes
                slope = low
                if low < high and known.lower < known.upper:
                    ends = [known.function.at(x).value[0] for x in (known.lower, known.upper)]
                    slope = Fraction(ends[1] - ends[0], GRID) / (known.upper - known.lower)
                slopes[len(slopes)] = floor(slope * 2**SLOPES)
        count = len(cell.constraints)
        weights = {n: int(n == count - 1) for n in range(count)}
        return Hints(
            Matrix([weights], count, -2),
            Matrix([slopes], cell.forms.count, -SLOPES),
        )

    def group(self, i: int, cuts: Sequence[Cut]) -> list[str]:
        lines = [f"node {i}"]
        for keyword, sign in (("lower", 1), ("upper", -1)):
            chosen = [entry for entry in cuts if entry.constraint.sign == sign]
            lines.append(indices(keyword, [entry.constraint.place[1] for entry in chosen]))
            lines.append(numbers("ends", [entry.constraint.end for entry in chosen]))
            for entry in chosen:
                for name, row in (("weights", entry.hints.weights), ("slopes", entry.hints.slopes)):
                    values = [str(value) for value in row.rows[0].values()]
                    lines.append(" ".join([name, str(row.exponent), *values]))
        return lines

    def leaf(self, cell: Cell) -> None:
        self.lines.append("cell leaf")
        part = []
        for neurons in cell.forms.variables.values():
            part += [indices("neurons", neurons), "form plain"]
        part += ["splits 0", f"rule {self.rule}"]
        self.lines += ["parts 1", "rows *", "inputs *", *part]
        lines = Lines("\n".join([*part, ""]).encode())
        rows = list(range(len(self.claim.rows)))
        inputs = list(range(self.claim.network.input_size))
        subject = leaf(self.claim.network, cell, 0)
        amounts = bound_part(lines, self.claim, subject, rows, inputs)
        self.bound = max(self.bound, sum((amount for _, amount in amounts), Fraction(0)))


def numbers(keyword: str, values: Sequence[Fraction]) -> str:
    integers, exponent = align(values)
    return " ".join(map(str, [keyword, exponent, *integers]))


def indices(keyword: str, values: Sequence[int]) -> str:
    return " ".join(map(str, [keyword, len(values), *values]))
