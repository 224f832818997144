"""Alternatives of the rule `signs`: section 4 of spec/certificate.md."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from .exact import Matrix
from .lines import Lines
from .problem import Problem
from .verdicts import REJECTED

LONGEST_PATH = 50

Path = tuple[tuple[int, int], ...]  # neurons, and 1 or -1 for the end of their slopes


class Alternatives(NamedTuple):
    """Linear forms in x, one of which is 0 where slopes are ends of their ranges; and N."""

    forms: Matrix
    N: Matrix


def read_alternatives(lines: Lines, problem: Problem, inner: Sequence[int]) -> list[Alternatives]:
    """Section 4, rule signs: all alternatives, if there are any, with their multipliers."""
    if not lines.starts_with("alternatives"):
        return []
    found = []
    for _ in range(lines.count("alternatives")):
        forms = read_forms(lines, problem, inner)
        N = read_multipliers(lines, len(forms.rows))
        found.append(Alternatives(forms, N))
    return found


def read_forms(lines: Lines, problem: Problem, inner: Sequence[int]) -> Matrix:
    """Section 4, rule signs: the forms of a tree, in their order. Leaves of one number are equal."""
    forms: dict[int, Matrix] = {}
    paths = []
    for _ in range(lines.count("leaves")):
        number, path = read_leaf(lines, inner)
        form = form_of(problem, path)
        equal = form_is_zero(forms.setdefault(number, form) - form)
        lines.require(equal, "leaves with the same number have different forms", REJECTED)
        paths.append(path)
    lines.require(is_tree(paths), "leaves are not the ends of all paths of a tree", REJECTED)
    numbered = sorted(forms) == list(range(len(forms)))
    lines.require(numbered, "forms are numbered from 0 on")
    return Matrix.stack([forms[k] for k in range(len(forms))], problem.C.width)


def read_leaf(lines: Lines, inner: Sequence[int]) -> tuple[int, Path]:
    """Section 4, rule signs: the number of a form, and a path."""
    number, *values = lines.integers("leaf")
    neurons = values[::2]
    ends = values[1::2]
    fits = 0 < len(neurons) == len(ends) <= LONGEST_PATH
    lines.require(fits, f"'leaf' is a form and at most {LONGEST_PATH} pairs of a neuron and an end")
    valid = set(ends) <= {1, -1} and set(neurons) <= set(inner)
    lines.require(valid, "a path leads through inner neurons, to ends that are 1 or -1")
    return number, tuple(zip(neurons, ends, strict=True))


def is_tree(paths: Sequence[Path]) -> bool:
    """Whether exactly one path follows the slopes, whatever their ends are.

    Either there is one path, and it has ended; or all go on with one neuron, to both of its ends,
    and those to each end are a tree again."""
    if any(not path for path in paths):
        return len(paths) == 1
    upper = [path[1:] for path in paths if path[0][1] == 1]
    lower = [path[1:] for path in paths if path[0][1] == -1]
    firsts = {path[0][0] for path in paths}
    return len(firsts) == 1 and is_tree(upper) and is_tree(lower)


def form_of(problem: Problem, path: Path) -> Matrix:
    """The sum over a path of z_a - s_a y_a, with the ends that it leads to: a row in x."""
    form = Matrix.zero(1, problem.C.width)
    for a, end in path:
        v = problem.inputs + a
        low, high = problem.slopes[v]
        y = problem.A.chosen_rows([v])
        z = Matrix([{v: 1}], problem.C.width)
        form += z - y.scaled_rows([high if end == 1 else low])
    return form


def form_is_zero(form: Matrix) -> bool:
    return not any(form.rows[0].values())


def read_multipliers(lines: Lines, order: int) -> Matrix:
    """Section 4, rule signs: N, whose principal submatrices of the next lower order are
    semidefinite."""
    values = lines.numbers("multipliers", order * (order + 1) // 2)
    lower = [values[i * (i + 1) // 2 : (i + 1) * (i + 2) // 2] for i in range(order)]
    N = [[lower[max(i, j)][min(i, j)] for j in range(order)] for i in range(order)]
    for left_out in range(order):
        rest = [i for i in range(order) if i != left_out]
        part = [[N[i][j] for j in rest] for i in rest]
        reason = f"the multipliers without form {left_out} are not semidefinite"
        lines.require(is_semidefinite(part), reason, REJECTED)
    return Matrix.of([dict(enumerate(row)) for row in N], order)


def is_semidefinite(matrix: list[list[Fraction]]) -> bool:
    """Elimination: no pivot is negative, and beside one that is 0 there are zeros alone."""
    rows = [list(row) for row in matrix]
    for k, row in enumerate(rows):
        pivot = row[k]
        if pivot < 0 or (pivot == 0 and any(row[k + 1 :])):
            return False
        for i in range(k + 1, len(rows)):
            if rows[i][k] != 0:
                factor = rows[i][k] / pivot
                for j in range(k, len(rows)):
                    rows[i][j] -= factor * row[j]
    return True


def alternatives_form(alternatives: Sequence[Alternatives], x: Matrix) -> Matrix:
    """The sum of all d.N d, for x as forms in the variables of S."""
    total = Matrix.zero(x.width, x.width)
    for forms, N in alternatives:
        d = forms @ x
        total += d.transpose() @ (N @ d)
    return total
