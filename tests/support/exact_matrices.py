"""Matrices of the checker, for comparison with others."""

from lipcheck.exact import Matrix


def dense_rows(matrix: Matrix) -> list[list[int]]:
    """The integers rows[i][j], with zeros where none is stored."""
    return [[row.get(j, 0) for j in range(matrix.width)] for row in matrix.rows]
