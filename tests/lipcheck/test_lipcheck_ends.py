"""Rows of intervals on a grid: they have all products in them, and little else."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from lipcheck.ends import Ends, Weights, largest_products
from lipcheck.exact import GRID, Matrix

WIDTH = 3
PLACES = st.integers(-(2**230), 2**230) | st.integers(-(2**20), 2**20)
RANGES = st.tuples(PLACES, PLACES).map(lambda ends: (min(ends), max(ends)))
ROWS = st.lists(RANGES, min_size=WIDTH, max_size=WIDTH).map(Ends.of)
ENTRIES = st.integers(-(2**60), 2**60) | st.integers(-3, 3)
MATRICES = st.builds(
    lambda rows, exponent: Matrix([dict(enumerate(row)) for row in rows], 2, exponent),
    st.lists(st.lists(ENTRIES, min_size=2, max_size=2), min_size=WIDTH, max_size=WIDTH),
    st.integers(-300, 100),
)


def products(left, right):
    """The smallest and the largest, of numbers in two intervals."""
    corners = [a * b for a in left for b in right]
    return min(corners), max(corners)


@given(row=ROWS, other=ROWS)
def test_products_are_those_of_interval_arithmetic(row, other):
    found = row.times(other)
    for pair, others, low, high in zip(
        zip(*row, strict=True), zip(*other, strict=True), *found, strict=True
    ):
        least, most = (Fraction(value, GRID) for value in products(pair, others))
        assert low <= least < low + 1
        assert high - 1 < most <= high


@given(rows=st.lists(ROWS, min_size=1, max_size=2), matrix=MATRICES)
def test_products_with_a_matrix_are_enclosed(rows, matrix):
    """Also in columns that are small: what is rounded is small there."""
    unit = Fraction(2) ** matrix.exponent
    sizes = [max(1, *map(abs, entries.values())) for entries in matrix.rows]
    for row, found in zip(rows, Weights(matrix).after(rows), strict=True):
        pairs = list(zip(*row, strict=True))
        terms = [max(map(abs, pair)) * size for pair, size in zip(pairs, sizes, strict=True)]
        rounded = (40 * max(sizes) + Fraction(max(terms), 2**50)) * unit
        for j, (low, high) in enumerate(zip(*found, strict=True)):
            least = most = share = Fraction(0)
            for pair, entries, size in zip(pairs, matrix.rows, sizes, strict=True):
                first, last = products(pair, (entries[j] * unit,))
                least += first
                most += last
                share = max(share, Fraction(max(1, abs(entries[j])), size))
            room = 2 + share * rounded
            assert least - room <= low <= least
            assert most <= high <= most + room


@given(left=ROWS, right=ROWS)
def test_sums_of_products_are_not_larger(left, right):
    ((found,),) = largest_products([left], [right])
    least = most = 0
    for pair, others in zip(zip(*left, strict=True), zip(*right, strict=True), strict=True):
        first, last = products(pair, others)
        least += first
        most += last
    assert max(-least, most) <= found * GRID
