"""Symmetric matrices in blocks, one block for each pair of sources, and their elimination.

A block of a source with itself is `Diagonal` where only its diagonal is not zero, or where only its
diagonal matters. Every other block is `Dense`. Eliminating a source k is one step of a block
Cholesky factorization: with S = [[P, B], [B^T, R]], P the block of k with itself,

    P = L L^T,      columns = (L^-1 B)^T,      R becomes R - columns columns^T

All arrays have a first axis for the problems of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...numerics.arrays import Array
from .backend import Backend

# Added to what is divided by, so that nothing is divided by 0.
MIN_DIVISOR = 1e-150


@dataclass(eq=False)
class Dense:
    """A dense block of every problem. `add_to_diagonal` and `scale` change it in place."""

    values: Any  # (problems, n, m)

    @property
    def transposed(self) -> Dense:
        return Dense(self.values.mT)

    @property
    def diagonal(self) -> Any:
        return self.values.diagonal(0, 1, 2)

    def add_to_diagonal(self, added: Any) -> None:
        index = np.arange(self.values.shape[1])
        self.values[:, index, index] += added

    def scale(self, rows: Any, columns: Any) -> None:
        """Multiply row i by rows[i] and column j by columns[j]."""
        self.values *= rows[..., None]
        self.values *= columns[:, None, :]

    def minus(self, other: Block) -> Dense:
        return Dense(self.values - other.values)

    def times_diagonal(self, right: Diagonal) -> Dense:
        return Dense(self.values * right.values[:, None])

    def factorize(self, backend: Backend) -> tuple[Dense, Array]:
        """The lower Cholesky factor L; and for every problem whether there is one."""
        root, definite = backend.cholesky(self.values)
        return Dense(root), definite

    def solve_lower(self, right: Dense, backend: Backend) -> Dense:
        """L^-1 right, where this block is a lower factor L."""
        return Dense(backend.solve_lower(self.values, right.values))


@dataclass(eq=False)
class Diagonal:
    """A diagonal block of every problem. `add_to_diagonal` and `scale` change it in place."""

    values: Any  # (problems, n): the diagonal

    @property
    def diagonal(self) -> Any:
        return self.values

    def add_to_diagonal(self, added: Any) -> None:
        self.values += added

    def scale(self, rows: Any, columns: Any) -> None:
        """Multiply row i by rows[i] and column j by columns[j]."""
        self.values *= rows
        self.values *= columns

    def minus(self, other: Block) -> Diagonal:
        return Diagonal(self.values - other.values)

    def times_diagonal(self, right: Diagonal) -> Diagonal:
        return Diagonal(self.values * right.values)

    def factorize(self, backend: Backend) -> tuple[Diagonal, Array]:
        """The lower Cholesky factor L; and for every problem whether there is one."""
        root = abs(self.values) ** 0.5
        return Diagonal(root), backend.numpy((self.values > 0).all(-1))

    def solve_lower(self, right: Dense, backend: Backend) -> Dense:
        """L^-1 right, where this block is a factor L."""
        return Dense(right.values / (self.values + MIN_DIVISOR)[..., None])


Block: TypeAlias = Dense | Diagonal
Factor: TypeAlias = dict[tuple[int, int], Block]  # blocks (i, k) of L: column k, row i


def squared_norm(values: Any) -> Any:
    """The sum of squares of all entries, for every problem."""
    return (values * values).reshape(len(values), -1).sum(-1)


@dataclass(frozen=True)
class Layout:
    """Which sources a matrix has, which blocks are diagonal, and the order of elimination."""

    # The number of variables of each source: t, the z of every layer, and the rows of C last.
    sizes: tuple[int, ...]
    # Whether inputs are bounded one at a time, without the others (l1). Then only the diagonal of
    # their block matters.
    by_input: bool
    # Whether the inputs outnumber all else and no two of them interact. Then their block is
    # diagonal, and they are eliminated first.
    wide: bool

    @property
    def last(self) -> int:
        """The number of the last source: the rows of C."""
        return len(self.sizes) - 1

    @property
    def order(self) -> list[int]:
        """The order of elimination: from the output to the input.

        Inputs come first where they are many."""

        def key(k: int) -> tuple[bool, int]:
            return (k > 0 or not self.wide, -k)

        return sorted(range(len(self.sizes)), key=key)

    def is_diagonal(self, i: int, j: int) -> bool:
        """Whether block (i, j) is kept as a diagonal."""
        if i != j:
            return False
        return i == 0 and (self.by_input or self.wide)

    def product(self, i: int, j: int, left: Block, right: Block) -> Block:
        """left @ right^T as a part of block (i, j): its diagonal alone where only that matters."""
        if isinstance(right, Diagonal):
            return left.times_diagonal(right)
        if i == j == 0 and self.by_input:
            return Diagonal((left.values * right.values).sum(-1))
        return Dense(left.values @ right.values.mT)


@dataclass(frozen=True, eq=False)
class Elimination:
    """What eliminating a source gives."""

    columns: dict[int, Block]  # its column of L: the root of its own block first, then by source
    definite: Array  # for every problem, whether its own block was positive definite

    @property
    def columns_of_inputs(self) -> list[Any]:
        """The rows of the column that belong to the inputs, or nothing if they are zero."""
        return [self.columns[0].values] if 0 in self.columns else []


@dataclass(eq=False)
class BlockMatrix:
    """A symmetric matrix for each problem: blocks (i, j), i >= j, unless they are zero."""

    layout: Layout
    count: int  # of problems
    backend: Backend
    blocks: dict[tuple[int, int], Block]

    @staticmethod
    def zero(layout: Layout, count: int, backend: Backend) -> BlockMatrix:
        return BlockMatrix(layout, count, backend, {})

    def block(self, i: int, j: int) -> Block:
        """Block (i, j), to add to."""
        if (i, j) not in self.blocks:
            n = self.layout.sizes[i]
            m = self.layout.sizes[j]
            if self.layout.is_diagonal(i, j):
                self.blocks[i, j] = Diagonal(self.backend.zeros((self.count, n)))
            else:
                self.blocks[i, j] = Dense(self.backend.zeros((self.count, n, m)))
        return self.blocks[i, j]

    def values(self, i: int, j: int) -> Any:
        """The entries of a block that is not absent."""
        return self.blocks[i, j].values

    def diagonal(self, i: int) -> Any:
        return self.blocks[i, i].diagonal

    @property
    def trace(self) -> Any:
        total: Any = 0.0
        for i in range(len(self.layout.sizes)):
            total = total + self.diagonal(i).sum(-1)
        return total

    @property
    def squared_norm(self) -> Any:
        """The square of the Frobenius norm."""
        total: Any = 0.0
        for (i, j), block in self.blocks.items():
            total = total + squared_norm(block.values) * _occurrences(i, j)
        return total

    def scale(self, factors: list[Any]) -> None:
        """Multiply rows and columns by these factors (by source), in place."""
        for (i, j), block in self.blocks.items():
            block.scale(factors[i], factors[j])

    def add_to_diagonal(self, added: Any) -> None:
        """Add the same to every entry of the diagonal, in place."""
        for i in range(len(self.layout.sizes)):
            self.blocks[i, i].add_to_diagonal(added)

    def eliminate(self, k: int) -> Elimination:
        """Eliminate source k. The matrix becomes the Schur complement, in new blocks."""
        root, definite = self.blocks.pop((k, k)).factorize(self.backend)
        columns: dict[int, Block] = {}
        for j, block in self._take_column(k).items():
            columns[j] = root.solve_lower(block, self.backend).transposed
        for i, left in columns.items():
            if i == 0 and self.layout.wide:
                continue  # the inputs' own block stays diagonal: see `Dual.fit`
            for j, right in columns.items():
                if j <= i:
                    product = self.layout.product(i, j, left, right)
                    self.blocks[i, j] = self.block(i, j).minus(product)
        return Elimination({k: root, **columns}, definite)

    def factorize(self) -> tuple[Factor, Array]:
        """The block Cholesky factor L; and for every problem whether there is one."""
        rest = BlockMatrix(self.layout, self.count, self.backend, dict(self.blocks))
        factor: Factor = {}
        good = np.ones(self.count, bool)
        for k in self.layout.order:
            eliminated = rest.eliminate(k)
            for i, column in eliminated.columns.items():
                factor[i, k] = column
            good &= eliminated.definite
        return factor, good

    def residual(self, factor: Factor) -> Array:
        """The Frobenius norm of this matrix minus L L^T, as computed."""
        square: Any = 0.0
        sources = range(len(self.layout.sizes))
        for i in sources:
            for j in range(i + 1):
                shared = [k for k in sources if (i, k) in factor and (j, k) in factor]
                if not shared and (i, j) not in self.blocks:
                    continue
                rest = self._block_residual(i, j, shared, factor)
                square = square + squared_norm(rest) * _occurrences(i, j)
        return self.backend.numpy(square) ** 0.5

    def _block_residual(self, i: int, j: int, shared: list[int], factor: Factor) -> Any:
        """Block (i, j) of this matrix minus L L^T; `shared`: the columns in which L has both."""
        total: Any = 0.0
        for k in shared:
            total = total + self.layout.product(i, j, factor[i, k], factor[j, k]).values
        if (i, j) in self.blocks:
            return self.values(i, j) - total
        return total

    def _take_column(self, k: int) -> dict[int, Dense]:
        """Take out the blocks of k with other sources: B, by source."""
        column = {}
        for j in range(len(self.layout.sizes)):
            if (k, j) in self.blocks:
                column[j] = _dense(self.blocks.pop((k, j)))
            elif (j, k) in self.blocks:
                column[j] = _dense(self.blocks.pop((j, k))).transposed
        return column


def _dense(block: Block) -> Dense:
    """The block, which lies off the diagonal and so is dense."""
    assert isinstance(block, Dense)
    return block


def _occurrences(i: int, j: int) -> int:
    """How often a stored block occurs in the symmetric matrix."""
    return 1 if i == j else 2
