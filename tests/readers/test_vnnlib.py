"""VNN-LIB files of both versions: no input that they allow is left out, and what is not read is said."""

import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lipopt
from lipopt import Box, Boxes, LipoptError, read_vnnlib
from lipopt.readers.vnnlib import DEEPEST

FIRST = """
; a comment (assert (<= X_0 -7))
(declare-const X_0 Real)
(declare-fun X_1 () Real)
(declare-const Y_0 Real)
"""
PLAIN = """(assert (<= X_0 0.5)) (assert (>= X_0 -0.25)) (assert (>= 2.0 X_1)) (assert (<= 1e-1 X_1)) (assert (>= Y_0 3))"""
SECOND = """(vnnlib-version <2.0>)
(declare-network f (declare-input X float32 [1,2]) (declare-hidden H Real [3] "a;b(") (declare-output Y Real []))
"""
UNIT = "(>= X[0,0] 0) (<= X[0,0] 1) (>= X[0,1] 0) (<= X[0,1] 1)"


@pytest.fixture
def read(tmp_path: Path):
    def of(text: str) -> Box | Boxes:
        path = tmp_path / "p.vnnlib"
        path.write_text(text)
        return read_vnnlib(path)

    return of


def ends(domain: Box | Boxes) -> list[list[list[float]]]:
    boxes = domain.boxes if isinstance(domain, Boxes) else (domain,)
    return [[box.lower.tolist(), box.upper.tolist()] for box in boxes]


def test_a_box_of_version_1(read, tmp_path: Path) -> None:
    expected = [[[-0.25, 0.09999999999999999], [0.5, 2.0]]]
    assert ends(read(FIRST + PLAIN)) == expected
    joined = PLAIN.replace(
        "(<= X_0 0.5)) (assert (>= X_0 -0.25))", "(and (<= X_0 0.5) (and (>= X_0 -0.25))))"
    )
    assert ends(read(FIRST + joined)) == expected
    assert ends(read("(set-logic QF_LRA)" + FIRST + PLAIN + "(check-sat)")) == expected
    (tmp_path / "p.vnnlib.gz").write_bytes(gzip.compress((FIRST + PLAIN).encode()))
    assert ends(read_vnnlib(tmp_path / "p.vnnlib.gz")) == expected


def test_a_box_of_version_2(read) -> None:
    conditions = "(assert (and (>= X[0,0] 20.0) (<= X [ 0 , 0 ] 40.0)))\n(assert (and (>= X[0,1] -40) (<= X[0,1] 0)))"
    assert ends(read(SECOND + conditions)) == [[[20.0, -40.0], [40.0, 0.0]]]
    scalar = "(vnnlib-version <2.1>)(declare-network f (declare-input x real []) (declare-output Y real [1]))"
    assert ends(read(scalar + "(assert (== x 3.0))")) == [[[3.0], [3.0]]]
    square = SECOND.replace("[1,2]", "[2,2]")
    flat = "".join(f"(assert (== X[{i},{j}] {10 * i + j}))" for i in (0, 1) for j in (0, 1))
    assert ends(read(square + flat)) == [[[0.0, 1.0, 10.0, 11.0]] * 2]


@given(st.integers(-(10**25), 10**25), st.integers(-340, 270))
def test_decimals_are_rounded_outward(
    tmp_path_factory: pytest.TempPathFactory, digits: int, exponent: int
) -> None:
    """The floats on both sides of the decimal, or the one that it is."""
    path = tmp_path_factory.mktemp("vnnlib") / "p.vnnlib"
    word = f"{digits}e{exponent}"
    number = Fraction(word)
    path.write_text(f"(declare-const X_0 Real)(assert (= X_0 {word}))")
    box = read_vnnlib(path)
    assert isinstance(box, Box)
    low = float(box.lower[0])
    high = float(box.upper[0])
    assert Fraction(low) <= number <= Fraction(high)
    assert low == high or np.nextafter(low, np.inf) == high
    assert (low == high) == (Fraction(float(number)) == number)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("(<= (* -2.0 X[0,0]) -0.5)", [[0.25, 0], [1, 1]]),
        ("(>= (- X[0,0]) -0.5)", [[0, 0], [0.5, 1]]),
        ("(<= (+ X[0,0] 5 X[0,0]) (- 6 0.5))", [[0, 0], [0.25, 1]]),
        ("(< (- (* 3 X[0,1]) X[0,1] 1) 0)", [[0, 0], [1, 0.5]]),
        ("(<= X[0,0] X[0,1])", [[0, 0], [1, 1]]),
        ("(<= (+ X[0,0] X[0,1]) 0.1)", [[0, 0], [1, 1]]),
        ("(<= (* X[0,0] X[0,0]) 0.01)", [[0, 0], [1, 1]]),
        ("(<= (+ X[0,0] Y) 0.1)", [[0, 0], [1, 1]]),
        ("(or (<= X[0,0] 0.1) (<= Y 0.1))", [[0, 0], [1, 1]]),
        ("(!= X[0,0] 0.1)", [[0, 0], [1, 1]]),
        ("(<= (- X[0,0] X[0,0]) 0)", [[0, 0], [1, 1]]),
        ("(and (> X[0,0] 0.5) (> (* H[2] X[0,1]) 7))", [[0.5, 0], [1, 1]]),
    ],
)
def test_conditions_that_bound_one_input_are_used_and_others_are_not(
    read, condition: str, expected: list
) -> None:
    assert ends(read(f"{SECOND}(assert (and {UNIT}))(assert {condition})")) == [expected]


def test_unions(read) -> None:
    halves = "(or (and (<= X_0 1) (>= X_0 0) (>= Y_0 1)) (and (<= X_0 1) (>= X_0 0) (<= Y_0 0)) (and (<= X_0 5) (>= X_0 4)))"
    second = "(assert (>= X_1 0)) (assert (<= X_1 1))"
    found = read(f"{FIRST}(assert {halves}){second}")
    assert isinstance(found, Boxes)
    assert ends(found) == [[[0, 0], [1, 1]], [[4, 0], [5, 1]]]
    crossed = read(f"{FIRST}(assert {halves})(assert {halves.replace('X_0', 'X_1')})")
    assert len(crossed.boxes) == 4
    empty = halves.replace("(<= X_0 5)", "(<= X_0 3)")
    assert ends(read(f"{FIRST}(assert {empty}){second}")) == [[[0, 0], [1, 1]]]
    assert ends(read(f"{FIRST}(assert {halves}){second}(assert (<= X_0 2))")) == [[[0, 0], [1, 1]]]


def test_ten_thousand_disjuncts(read) -> None:
    boxes = "".join(
        f"(and (>= X_0 {k}) (<= X_0 {k}.5) (>= X_1 -{k}.1) (<= X_1 0.3))" for k in range(10_000)
    )
    found = read(f"{FIRST}(assert (or {boxes}))")
    assert [box.lower[0] for box in found.boxes] == list(range(10_000))


TWO_INPUTS = "(declare-input X Real [1]) (declare-input Z Real [1])"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "declares no input"),
        ("(" * 100_000 + ")" * 100_000, f"nested deeper than {DEEPEST}"),
        ("(" * 100_000, f"nested deeper than {DEEPEST}"),
        (")" * 100_000, "belongs to nothing"),
        (FIRST + PLAIN + ")", "belongs to nothing"),
        ("(" + FIRST + PLAIN, "not closed"),
        ("hello", "commands in parentheses"),
        (FIRST + '"', "belongs to nothing"),
        (FIRST + PLAIN + "(assert)", "one condition"),
        (FIRST + PLAIN + "(push 1)", "'push' is not known"),
        (FIRST + PLAIN.replace("(assert (<= X_0 0.5))", ""), "X_0 is not bounded"),
        (
            FIRST + PLAIN.replace("(<= X_0 0.5)", "(or (<= X_0 0.5) (<= X_1 0.5))"),
            "X_0 is not bounded",
        ),
        (FIRST + PLAIN.replace("0.5", "abc"), "'abc' is neither"),
        (FIRST + PLAIN.replace("0.5", "nan"), "'nan' is neither"),
        (FIRST + PLAIN.replace("0.5", "1e9999999999"), "exponent too large"),
        (FIRST + PLAIN.replace("0.5", "9" * 100_000), "too long"),
        (FIRST + PLAIN.replace("0.5", "1e400"), "X_0 is not bounded"),
        (FIRST + PLAIN.replace("0.5", "-1"), "exclude all inputs"),
        (FIRST + PLAIN + "(assert (<= 1 0))", "exclude all inputs"),
        (FIRST + PLAIN + "(assert (not (<= X_0 0)))", "'not'"),
        (FIRST + PLAIN + "(assert (<= X_0))", "'<=' of 1 parts"),
        (FIRST + PLAIN + "(assert (<= (/ X_0 2) 1))", "operation '/'"),
        (FIRST + PLAIN + "(assert (<= () 1))", "operation ''"),
        (FIRST + PLAIN + "(assert X_0)", "a condition is missing"),
        (FIRST + PLAIN + "(assert (<= X_7 0))", "'X_7' is neither"),
        (FIRST.replace("X_1", "X_2"), "not X_0 to X_1"),
        (FIRST + FIRST, "a variable twice"),
        (FIRST + SECOND, "both as in version"),
        ("(vnnlib-version <3.0>)", "version is <3.0>"),
        (SECOND + SECOND.split("\n")[1], "declares 2 networks"),
        (SECOND.replace("(declare-input X float32 [1,2])", TWO_INPUTS), "has 2 inputs"),
        (SECOND.replace("(declare-input X float32 [1,2])", ""), "has 0 inputs"),
        (SECOND.replace("[1,2]", "[1,2] initialized"), "has its value from the network"),
        (SECOND.replace("[1,2]", "[1,0]"), "is empty"),
        (SECOND.replace("[1,2]", "[1,-2]"), "not whole numbers"),
        (SECOND.replace("declare-hidden H", "declare-hidden X"), "'X' twice"),
        (
            SECOND.replace("[1,2]", "[100000,1000000000]") + f"(assert (and {UNIT}))",
            r"X\[0,2\] is not bounded",
        ),
        (SECOND + "(assert (<= X[0,2] 1))", "not an entry"),
        (SECOND + "(assert (<= X[0] 1))", "not an entry"),
        (SECOND + "(assert (<= Z[0] 1))", "declared tensor"),
        (
            SECOND
            + f"(assert (and {UNIT}))"
            + 7 * "(assert (or (<= X[0,0] 0.1) (<= X[0,1] 0.2) (== X[0,0] 0.7)))",
            None,
        ),
    ],
)
def test_what_is_refused(read, text: str, message: str | None) -> None:
    if message is None:
        assert len(read(text).boxes) < 30  # boxes that are the same count once
        return
    with pytest.raises(LipoptError, match=message) as caught:
        read(text)
    assert "p.vnnlib: " in str(caught.value)


def test_disjunctions_that_multiply_to_too_much(read) -> None:
    names = "".join(f"(declare-const X_{i} Real)" for i in range(25))
    either = "".join(f"(assert (or (= X_{i} 0) (= X_{i} 1)))" for i in range(25))
    with pytest.raises(LipoptError, match="one disjunction of boxes"):
        read(names + either)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.vnnlib", b"\xff\xfe"),
        ("b.vnnlib.gz", b"nonsense"),
        ("c.vnnlib.gz", gzip.compress(b"text" * 100)[:-20] + bytes(20)),
    ],
    ids=["no text", "no archive", "a damaged archive"],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LipoptError, match=f"{name}: cannot be read"):
        read_vnnlib(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LipoptError, match="no such file"):
        read_vnnlib(tmp_path / "missing.vnnlib")


@pytest.fixture
def network() -> lipopt.Network:
    rng = np.random.default_rng(0)
    return lipopt.load(
        [rng.normal(size=(6, 2)), rng.normal(size=(2, 6))], biases=[rng.normal(size=6), None]
    )


UNION = Boxes((Box([-0.1, -0.1], [0.1, 0.1]), Box([0.5, 0.5], [0.9, 0.8]), Box([-2, -2], [-1, -1])))


@pytest.mark.parametrize(
    "options",
    [{}, {"norm": "l2", "output": "all"}, {"method": "path-sum", "time_limit": 30}],
    ids=str,
)
def test_a_bound_over_a_union_is_the_largest_over_its_boxes(
    network, options: dict[str, Any]
) -> None:
    each = [lipopt.bound(network, domain=box, samples=50, **options) for box in UNION.boxes]
    whole = lipopt.bound(network, domain=UNION, samples=50, **options)
    decided = int(np.argmax([r.upper for r in each]))
    assert whole.upper == each[decided].upper
    assert whole.lower == max(r.lower for r in each)
    assert whole.pop_lower is not None
    assert all(r.pop_lower is not None for r in each)
    assert whole.pop_lower == max(r.pop_lower for r in each if r.pop_lower is not None)
    assert whole.lower <= whole.pop_lower <= whole.upper
    assert (whole.details["box"], whole.details["boxes"]) == (decided, 3)
    assert whole.domain == "union of 3 boxes"
    json.loads(whole.to_json())


def test_methods_and_lower_bounds_over_a_union(network) -> None:
    results = lipopt.compare(
        network, domain=UNION, methods=["product", "path-sum", "sdp"], samples=50
    )
    for result in results:
        alone = lipopt.bound(network, domain=UNION, method=result.method, samples=50)
        assert result.upper == pytest.approx(alone.upper, rel=1e-3)
        assert result.pop_lower is not None
        assert result.lower <= result.pop_lower <= result.upper
    assert [r.upper for r in results] == sorted(r.upper for r in results)
    options: dict[str, Any] = {
        "methods": ["shor", "path-sum"],
        "norm": "l1",
        "domain": UNION,
        "samples": 50,
    }
    left = lipopt.compare(network, **options)
    assert list(left.refused) == ["shor"]
    assert [r.method for r in left] == ["path-sum"]
    low = lipopt.lower_bound(network, domain=UNION, samples=50)
    assert low.lower == max(
        lipopt.lower_bound(network, domain=box, samples=50).lower for box in UNION.boxes
    )
    assert low.domain == "union of 3 boxes"


def test_unions_on_the_command_line(run, network, tmp_path: Path) -> None:
    network.save(tmp_path / "n.safetensors")
    boxes = "(and (<= X_0 1) (>= X_0 0)) (and (<= X_0 5) (>= X_0 4))"
    (tmp_path / "p.vnnlib").write_text(
        f"{FIRST}(assert (or {boxes}))(assert (>= X_1 0))(assert (<= X_1 1))"
    )
    question = (str(tmp_path / "n.safetensors"), "--vnnlib", str(tmp_path / "p.vnnlib"))
    for command in ("bound", "compare", "lower"):
        code, out, err = run(command, *question)
        assert (code, err) == (0, ""), command
        assert "union of 2 boxes" in out, command
    assert json.loads(run("bound", *question, "--json")[1])["details"]["box"] in (0, 1)
    certificate = ("--certificate", str(tmp_path / "c.cert"))
    page = ("--out", str(tmp_path / "r.html"))
    for arguments in (
        ("bound", *question, *certificate),
        ("info", *question),
        ("report", *question, *page),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), arguments
        assert "one box" in err, arguments
        assert err.count("\n") == 1
