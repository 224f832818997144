"""The rules, against the exact optimum by enumeration: whatever the numbers in a certificate, the bound is one."""

import random
from fractions import Fraction
from itertools import product as every

import pytest
from exact_matrices import dense_rows
from hypothesis import assume, given
from hypothesis import strategies as st

from lipcheck import exact, products
from lipcheck.exact import Matrix
from lipcheck.factors import check_semidefinite
from lipcheck.lines import Lines
from lipcheck.network import Network
from lipcheck.problem import Problem
from lipcheck.rules import RULES, Norms, Term, operator_norm
from lipcheck.verdicts import Failure

SMALL = st.integers(-8, 8)


@st.composite
def problems(draw, rows=1, inputs=2):
    """A derivative problem with up to three neurons, each reading all variables before it; numbers are eighths."""
    neurons = draw(st.integers(0, 3))
    width = inputs + neurons
    A = Matrix([{j: draw(SMALL) for j in range(a) if a >= inputs} for a in range(width)], width, -3)
    C = Matrix([{j: draw(SMALL) for j in range(width)} for _ in range(rows)], width, -3)
    ends = [sorted((Fraction(draw(SMALL), 8), Fraction(draw(SMALL), 8))) for _ in range(neurons)]
    return Problem(
        inputs, A, [(Fraction(0), Fraction(0))] * inputs + [(low, high) for low, high in ends], C
    )


def values(problem, t, slopes):
    """C x for a direction and slopes."""
    x = list(t)
    for row, s in zip(problem.A.rows[problem.inputs :], slopes, strict=True):
        x.append(s * sum(v * x[j] for j, v in row.items()) * exact.TWO**problem.A.exponent)
    return [
        sum(v * x[j] for j, v in row.items()) * exact.TWO**problem.C.exponent
        for row in problem.C.rows
    ]


def optimum(problem):
    """The largest l1 norm of C x over the vertices of the cube: the maximum, since it is convex in each variable."""
    directions = every([-1, 1], repeat=problem.inputs)
    ranges = every(*problem.slopes[problem.inputs :])
    return max(sum(map(abs, values(problem, t, s))) for t, s in every(directions, list(ranges)))


def lines(*texts):
    return Lines("\n".join([*texts, ""]).encode())


def amounts(rule, problem, *texts, norm="linf"):
    """What a rule says of the objective of the problem, from these lines."""
    norms = Norms(norm, norm)
    term = Term(problem, norms, True, Network([], {}, ""), {}, Matrix.zero(0, 0))
    return RULES[rule](lines(*texts), term)


def bound(rule, problem, *texts, norm="linf"):
    return sum(amount for _, amount in amounts(rule, problem, *texts, norm=norm))


@st.composite
def sets(draw, variables):
    """Lines with any variables and any multipliers."""
    chosen = draw(st.lists(st.integers(0, variables - 1), unique=True, max_size=4))
    multipliers = draw(
        st.lists(st.integers(0, 12), min_size=2 ** len(chosen), max_size=2 ** len(chosen))
    )
    return " ".join(map(str, ["set", len(chosen), *chosen, *multipliers]))


@given(data=st.data(), problem=problems())
def test_any_products_with_any_multipliers_are_a_bound(data, problem):
    chosen = data.draw(st.lists(sets(problem.C.width), max_size=4))
    unit = f"unit {data.draw(st.integers(-5, 1))} 1"
    assert bound("products", problem, unit, f"sets {len(chosen)}", *chosen) >= optimum(problem)


@given(data=st.data(), problem=problems(rows=2, inputs=1) | problems(rows=2, inputs=2))
def test_any_products_bound_the_sum_of_several_rows(data, problem):
    chosen = data.draw(st.lists(sets(problem.C.width + 2), max_size=4))
    unit = f"unit {data.draw(st.integers(-5, 1))} 1"
    assert bound("products", problem, unit, f"sets {len(chosen)}", *chosen) >= optimum(problem)


@given(problem=problems())
def test_all_products_of_all_variables_reach_the_optimum(problem):
    """The multipliers optimum - p at the vertices leave nothing over."""
    best, width = optimum(problem), problem.C.width
    multipliers = []
    for mask in range(2**width):
        bits = [mask >> k & 1 for k in range(width)]
        slopes = [ends[b] for ends, b in zip(problem.slopes, bits, strict=True)][problem.inputs :]
        multipliers.append(
            best - values(problem, [2 * b - 1 for b in bits[: problem.inputs]], slopes)[0]
        )
    integers, exponent = exact.align(multipliers)
    text = " ".join(map(str, ["set", width, *range(width), *integers]))
    assert amounts("products", problem, f"unit {exponent} 1", "sets 1", text) == [
        ("constant", best)
    ]


@given(problem=problems())
def test_path_sum_is_a_bound(problem):
    assert bound("path-sum", problem) >= optimum(problem)


@given(problem=problems())
def test_intervals_are_a_bound_and_not_above_the_path_sum(problem):
    assert optimum(problem) <= bound("interval", problem) <= bound("path-sum", problem)


@given(problem=problems(rows=2), norm=st.sampled_from(["linf", "l2", "l1"]))
def test_intervals_are_above_every_entry_of_every_jacobian(problem, norm):
    """Entries by vertices of the slope box: the Jacobian is linear in each slope."""
    directions = [(1, 0), (0, 1)]
    largest = [[Fraction(0)] * problem.inputs for _ in problem.C.rows]
    for slopes in every(*problem.slopes[problem.inputs :]):
        for j, t in enumerate(directions):
            for i, value in enumerate(values(problem, t, slopes)):
                largest[i][j] = max(largest[i][j], abs(value))
    entries = Matrix.of([dict(enumerate(row)) for row in largest], problem.inputs)
    assert operator_norm(entries, Norms(norm, norm)) <= bound("interval", problem, norm=norm)


@given(problem=problems(rows=2))
def test_intervals_are_those_of_interval_arithmetic(problem):
    """Computed here variable by variable, in fractions."""
    total = Fraction(0)
    for row in problem.C.rows:
        unit = exact.TWO**problem.C.exponent
        ends = {j: (value * unit, value * unit) for j, value in row.items()}
        for a in reversed(range(problem.inputs, problem.C.width)):
            products = [g * s for g in ends.pop(a) for s in problem.slopes[a]]
            for j, entry in problem.A.rows[a].items():
                weight = entry * exact.TWO**problem.A.exponent
                more = sorted((weight * min(products), weight * max(products)))
                ends[j] = (ends[j][0] + more[0], ends[j][1] + more[1])
        total = max(total, sum(max(-low, high) for low, high in ends.values()))
    assert bound("interval", problem) == total


@given(data=st.data(), problem=problems())
def test_any_multipliers_of_the_sdp_that_pass_are_a_bound(data, problem):
    """With L = 0: S itself must be diagonally dominant after scaling, as with large multipliers on the earlier variables."""
    neurons = problem.C.width - problem.inputs
    tau = [data.draw(st.integers(0, 3)) * 64 ** (neurons - a) for a in range(neurons)]
    delta = [data.draw(st.integers(0, 3)) * 64 ** (neurons + 1) for _ in range(problem.inputs)]
    scale = [*[-neurons] * problem.inputs, *(a - neurons for a in range(neurons)), 0]
    factor = [
        "scale " + " ".join(map(str, [-neurons, *(2 ** (k + neurons) for k in scale)])),
        *["row 0"] * len(scale),
    ]
    texts = [
        " ".join(map(str, line))
        for line in (
            ["mu -3", data.draw(st.integers(0, 64))],
            ["delta -3", *delta],
            ["tau -3", *tau],
        )
    ]
    try:
        proved = bound("sdp", problem, *texts, *factor)
    except Failure:
        assume(False)
    assert proved >= optimum(problem)


matrices = st.lists(st.lists(st.integers(-50, 50), min_size=4, max_size=4), min_size=4, max_size=4)


@given(
    factor=matrices,
    excess=st.lists(st.integers(0, 5), min_size=4, max_size=4),
    shift=st.integers(-3, 3),
)
def test_factors_of_semidefinite_matrices_pass_and_nothing_else(factor, excess, shift):
    """S = L L^T + diag(excess) passes with its factor L; with one diagonal entry too small by 1 it does not."""
    L = [[v if j <= i else 0 for j, v in enumerate(row)] for i, row in enumerate(factor)]
    S = [
        [
            sum(a * b for a, b in zip(p, q, strict=True)) + (excess[i] if i == j else 0)
            for j, q in enumerate(L)
        ]
        for i, p in enumerate(L)
    ]
    text = [
        f"scale {shift} 1 1 1 1",
        *(f"row {' '.join(map(str, row[: i + 1]))}" for i, row in enumerate(L)),
    ]
    check_semidefinite(lines(*text), Matrix([dict(enumerate(row)) for row in S], 4, -2 * shift))
    S[3][3] -= excess[3] + 1
    with pytest.raises(Failure, match="rejected"):
        check_semidefinite(lines(*text), Matrix([dict(enumerate(row)) for row in S], 4, -2 * shift))


@given(factor=matrices, places=st.permutations(range(4)))
def test_factors_in_another_order(factor, places):
    """Any square matrix L, with its rows in any order: S = L L^T passes, and nothing less."""
    S = []
    for i, row in enumerate(factor):
        S.append({j: sum(map(int.__mul__, row, factor[j])) for j in range(i + 1)})
    text = ["scale 0 1 1 1 1", f"order {' '.join(map(str, places))}"]
    for place in places:
        pairs = [f"{j} {value}" for j, value in enumerate(factor[place])]
        text.append(f"row {' '.join(pairs)}")
    check_semidefinite(lines(*text), Matrix(S, 4))
    S[2][2] -= 1
    with pytest.raises(Failure, match="rejected"):
        check_semidefinite(lines(*text), Matrix(S, 4))


@given(
    rows=st.lists(st.lists(SMALL, min_size=3, max_size=3), min_size=1, max_size=3),
    t=st.lists(SMALL, min_size=3, max_size=3),
    inputs=st.sampled_from(["linf", "l2", "l1"]),
    outputs=st.sampled_from(["linf", "l2", "l1"]),
)
def test_operator_norms(rows, t, inputs, outputs):
    matrix = Matrix([dict(enumerate(row)) for row in rows], 3, -3)
    y = [sum(a * b for a, b in zip(row, t, strict=True)) * Fraction(1, 8) for row in rows]
    norm = operator_norm(matrix, Norms(inputs, outputs))
    squares = {
        "linf": lambda v: max(map(abs, v)) ** 2,
        "l2": lambda v: sum(a * a for a in v),
        "l1": lambda v: sum(map(abs, v)) ** 2,
    }
    assert squares[outputs](y) <= norm**2 * squares[inputs](t)
    one_entry = Matrix([{0: rows[0][0]}], 3, -3)
    size = abs(rows[0][0]) * Fraction(1, 8)
    assert operator_norm(one_entry, Norms(inputs, outputs)) == size  # exact roots stay so


def random_rows(rng, height, width, bits):
    return [
        {j: rng.getrandbits(bits) - (1 << bits - 1) for j in range(width)} for _ in range(height)
    ]


def weighted_squares(rows, weights, width):
    """What `gram` computes, by its definition."""
    total = []
    for i in range(width):
        entries = []
        for j in range(i + 1):
            terms = zip(rows, weights, strict=True)
            entries.append(sum(row.get(i, 0) * row.get(j, 0) * weight for row, weight in terms))
        total.append(entries)
    return total


@pytest.mark.parametrize("with_flint", [True, False])
@pytest.mark.parametrize("bits", [8, 40, 200])
def test_products_of_matrices_do_not_depend_on_flint(bits, with_flint, monkeypatch):
    """Large enough for blocks; the plain sums are computed here."""
    if not with_flint:
        monkeypatch.setattr(products, "flint", None)
    n = 60
    rng = random.Random(bits)
    a = random_rows(rng, n, n, bits)
    b = random_rows(rng, n, n, bits)
    product = Matrix(a, n) @ Matrix(b, n)
    expected = []
    for row in a:
        expected.append([sum(row[k] * b[k][j] for k in range(n)) for j in range(n)])
    assert dense_rows(product) == expected
    weights = [rng.randrange(-5, 5) for _ in range(n)]
    squares = products.gram(a, weights, n)
    found = [[row.get(j, 0) for j in range(i + 1)] for i, row in enumerate(squares)]
    assert found == weighted_squares(a, weights, n)


def test_products_of_matrices_in_blocks(monkeypatch):
    """Rows that share their columns are multiplied as blocks, the others entry by entry."""
    rng = random.Random(0)
    size = 80
    left = []
    for i in range(3 * size):
        begin = size * (i // size)
        row = {j: rng.getrandbits(40) - 2**39 for j in range(begin, begin + size)}
        row[(7 * i) % (3 * size)] = rng.getrandbits(40)
        left.append(row)
    right = [{(5 * i) % 400: rng.getrandbits(40), i: 3} for i in range(3 * size)]
    for others, width in ((right, 400), (left, 3 * size)):
        product = Matrix(left, 3 * size) @ Matrix(others, width)
        entry_by_entry = [products.product_of_row(row, others) for row in left]
        assert dense_rows(product) == dense_rows(Matrix(entry_by_entry, width))
    assert len(list(products.groups_of_rows(left))) == 3
    monkeypatch.setattr(products, "TILE", 7)  # several of them
    weights = [rng.randrange(-3, 3) for _ in left]
    one_by_one: list[dict[int, int]] = [{} for _ in range(3 * size)]
    for row, weight in zip(left, weights, strict=True):
        products.add_square(one_by_one, row, weight)
    found = Matrix(products.gram(left, weights, 3 * size), 3 * size)
    assert dense_rows(found) == dense_rows(Matrix(one_by_one, 3 * size))
