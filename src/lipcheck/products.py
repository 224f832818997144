"""Products of matrices of integers, whose rows are dictionaries from columns to entries.

Rows that have many columns in common are multiplied as dense blocks, the others entry by entry.
That is for speed alone, and so is the one optional dependency: python-flint multiplies blocks of
integers faster, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import mul
from typing import Any, NamedTuple

try:
    import flint
except ImportError:
    flint = None

# How much faster a multiplication is in a dense block than entry by entry, and how many of the latter
# it takes to move an entry into a block or out of it, about.
BLOCK_SPEED = 4 if flint is None else 50
BLOCK_ENTRY = 3
TILE = 256  # columns of a block whose products with each other are computed at a time

Row = dict[int, int]


class PlainBlock:
    """A dense matrix of integers, with what flint.fmpz_mat has and is used here."""

    def __init__(self, rows: list[list[int]]) -> None:
        self.rows = rows

    def transpose(self) -> PlainBlock:
        return PlainBlock([list(column) for column in zip(*self.rows, strict=True)])

    def __mul__(self, other: PlainBlock) -> PlainBlock:
        columns = other.transpose().rows
        products = []
        for row in self.rows:
            products.append([sum(map(mul, row, column)) for column in columns])
        return PlainBlock(products)

    def table(self) -> list[list[int]]:
        return self.rows


def block(rows: list[list[int]]) -> Any:
    """A dense matrix with these rows, which are not empty."""
    if flint is None:
        return PlainBlock(rows)
    return flint.fmpz_mat(rows)


class Group(NamedTuple):
    """Consecutive rows of a matrix: the number of the first, and the rows."""

    first: int
    rows: list[Row]


def groups_of_rows(rows: Sequence[Row]) -> Iterator[Group]:
    """Runs of consecutive rows of which each has half of its columns in common with those before,
    and more than half of the columns of these."""
    group = Group(0, [])
    columns: set[int] = set()
    for number, row in enumerate(rows):
        common = len(columns & row.keys())
        if group.rows and (2 * common < len(row) or 2 * common < len(columns)):
            yield group
            group = Group(number, [])
            columns = set()
        group.rows.append(row)
        columns |= row.keys()
    if group.rows:
        yield group


def is_dense(work: int, height: int, middle: int, width: int) -> bool:
    """Whether a product of blocks of these sizes is faster than `work` multiplications of entries
    that are stored."""
    entries = height * middle + middle * width + height * width
    return work > height * middle * width // BLOCK_SPEED + BLOCK_ENTRY * entries


# The product of two matrices.


def product(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """The product of two matrices."""
    result: list[Row] = []
    for group in groups_of_rows(rows):
        result.extend(product_of_rows(group.rows, others))
    return result


def product_of_rows(rows: list[Row], others: Sequence[Row]) -> list[Row]:
    """Rows times the matrix of other rows, by the way that is faster."""
    sources = sorted(set().union(*rows))
    targets = sorted(set().union(*(others[k] for k in sources)))
    work = 0
    for row in rows:
        work += sum(len(others[k]) for k in row)
    if not is_dense(work, len(rows), len(sources), len(targets)):
        return [product_of_row(row, others) for row in rows]
    left = block([[row.get(k, 0) for k in sources] for row in rows])
    right = block([[others[k].get(j, 0) for j in targets] for k in sources])
    products = []
    for values in (left * right).table():
        integers = map(int, values)
        products.append({j: value for j, value in zip(targets, integers, strict=True) if value})
    return products


def product_of_row(row: Row, others: Sequence[Row]) -> Row:
    """A row times the matrix of other rows, entry by entry."""
    total: Row = {}
    for k, factor in row.items():
        for j, value in others[k].items():
            total[j] = total.get(j, 0) + factor * value
    return total


# The product of a matrix with its transpose.


def gram(rows: Sequence[Row], weights: Sequence[int], width: int) -> list[Row]:
    """The sum over all rows a of a^T a times its weight, up to the diagonal."""
    total: list[Row] = [{} for _ in range(width)]
    for first, group in groups_of_rows(rows):
        own = weights[first : first + len(group)]
        if not any(own):
            continue
        columns = sorted(set().union(*group))
        work = sum(len(row) ** 2 for row in group)
        if is_dense(work, len(columns), len(group), len(columns)):
            add_dense_gram(total, group, own, columns)
        else:
            for row, weight in zip(group, own, strict=True):
                add_square(total, row, weight)
    return total


def add_square(total: list[Row], row: Row, weight: int) -> None:
    """Add one row to a sum as above, entry by entry."""
    for i, left in row.items():
        target = total[i]
        factor = left * weight
        for j, right in row.items():
            if j <= i:
                target[j] = target.get(j, 0) + factor * right


def add_dense_gram(
    total: list[Row], rows: list[Row], weights: Sequence[int], columns: list[int]
) -> None:
    """Add rows to a sum as above, in tiles of the columns that they have."""
    tiles = [columns[begin : begin + TILE] for begin in range(0, len(columns), TILE)]
    right = []
    for number, tile in enumerate(tiles):
        right.append(block([[row.get(j, 0) for j in tile] for row in rows]))
        weighted = []
        for row, weight in zip(rows, weights, strict=True):
            weighted.append([row.get(i, 0) * weight for i in tile])
        left = block(weighted).transpose()
        for other, other_tile in zip(right, tiles[: number + 1], strict=True):
            add_table(total, tile, other_tile, (left * other).table())


def add_table(total: list[Row], rows: list[int], columns: list[int], table: Any) -> None:
    """Add a table of these rows and columns to a sum, what is above the diagonal left out."""
    for i, values in zip(rows, table, strict=True):
        target = total[i]
        for j, value in zip(columns, map(int, values), strict=True):
            if j <= i and value:
                target[j] = target.get(j, 0) + value
