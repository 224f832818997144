"""Matrices that are positive semidefinite: section 4 of spec/certificate.md, factors."""

from .exact import TWO, Matrix, align, decimal
from .lines import Lines
from .products import Row, gram
from .verdicts import REJECTED, require


def check_semidefinite(lines: Lines, S: Matrix) -> None:
    """Section 4, factors: reject unless D S D - L L^T is diagonally dominant.

    Then it is semidefinite, so is L L^T, so is their sum D S D, and so is S. Only the lower
    triangle of S is used; the upper one is taken to be the same.
    """
    order = len(S.rows)
    D, D_exponent = align(lines.numbers("scale", order, least=1))
    columns = read_columns(lines, order)
    margins, exponent = dominance(S, D, D_exponent, columns)
    worst = min(range(order), key=margins.__getitem__)
    lack = -margins[worst] * TWO ** (exponent - 2 * D_exponent) / D[worst] ** 2
    reason = "a matrix is not proved positive semidefinite: "
    reason += f"row {worst} of {order} lacks {decimal(lack)} on its diagonal"
    require(margins[worst] >= 0, reason, REJECTED)


def read_columns(lines: Lines, order: int) -> list[Row]:
    """Section 4, factors: the columns of L. A row of it belongs to the same row of S, or to the one
    that `order` names."""
    columns: list[Row] = [{} for _ in range(order)]
    if not lines.starts_with("order"):
        for i in range(order):
            entries = lines.integers("row")
            fits = len(entries) <= i + 1
            lines.require(fits, f"row {i} of a factor has at most {i + 1} entries")
            for j, value in enumerate(entries, i + 1 - len(entries)):
                columns[j][i] = value
        return columns
    places = lines.integers("order")
    lines.require(sorted(places) == list(range(order)), "'order' names every row once")
    for place in places:
        values = lines.integers("row")
        numbers = values[::2]
        entries = values[1::2]
        are_pairs = len(numbers) == len(entries) and 0 <= min(numbers) <= max(numbers) < order
        lines.require(are_pairs, "a row of a factor is pairs of a column and an entry")
        lines.require(len(set(numbers)) == len(numbers), "a column occurs twice in a row")
        for j, value in zip(numbers, entries, strict=True):
            columns[j][place] = value
    return columns


def dominance(
    S: Matrix, D: list[int], D_exponent: int, columns: list[Row]
) -> tuple[list[int], int]:
    """For every row of D S D - L L^T, its diagonal entry less the absolute values of the others:
    integers, and the exponent of the power of two that they count."""
    order = len(S.rows)
    product_exponent = S.exponent + 2 * D_exponent  # of D S D; that of L L^T is 0
    exponent = min(product_exponent, 0)
    product_shift = product_exponent - exponent
    margins = [0] * order
    for i, squares in enumerate(gram(columns, [1] * order, order)):
        difference = {j: -square << -exponent for j, square in squares.items()}
        for j, value in S.rows[i].items():
            if j <= i:
                scaled = (D[i] * value * D[j]) << product_shift
                difference[j] = difference.get(j, 0) + scaled
        margins[i] += difference.pop(i, 0)
        for j, value in difference.items():
            margins[i] -= abs(value)
            margins[j] -= abs(value)
    return margins, exponent
