"""The checker as a program: fixture files, exit codes, limits, a clean interpreter."""

import ast
import hashlib
import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from lipcheck_files import FOLDER, network_of, pairs

from lipcheck.__main__ import main
from lipcheck.claim import Claim
from lipcheck.exact import decimal
from lipcheck.inputs import Bounds
from lipcheck.network import read_network
from lipcheck.theorem import theorem
from lipopt import Ball, bound, load

SOURCE = Path(__file__).parents[2] / "src" / "lipcheck"
ABS = FOLDER / "networks" / "abs.safetensors"
EXIT_CODES = {"accept": 0, "reject": 1, "malformed": 2}
VERDICTS = {"accept": "verified: ", "reject": "rejected: ", "malformed": "malformed: "}


def run(*arguments, options=()):
    """The program in a clean interpreter: no environment, no installed packages."""
    command = [sys.executable, "-I", "-S", *options, str(SOURCE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(autouse=True)
def no_limits_on_the_tests(monkeypatch):
    """For calls of main in this process."""
    monkeypatch.setattr("lipcheck.__main__.set_limits", lambda seconds, gigabytes: None)


def ids(pair):
    return pair[1].name


FIXTURES = [
    pytest.param(folder, network, certificate, id=f"{folder}/{certificate.name}")
    for folder in EXIT_CODES
    for network, certificate in pairs(folder)
]


@pytest.mark.parametrize(("folder", "network", "certificate"), FIXTURES)
def test_fixtures(folder, network, certificate, capsys):
    assert main([str(network), str(certificate)]) == EXIT_CODES[folder]
    output = capsys.readouterr().out
    assert output.startswith(VERDICTS[folder])
    assert output.count("\n") == 1


@pytest.mark.parametrize(
    "certificate",
    [[], [str(FOLDER / "accept" / "abs-path-sum")]],
    ids=["alone", "with a certificate"],
)
@pytest.mark.parametrize(
    "network", sorted((FOLDER / "malformed").glob("*.safetensors")), ids=lambda path: path.stem
)
def test_malformed_networks(network, certificate, capsys):
    assert main([str(network), *certificate]) == 2
    assert capsys.readouterr().out.startswith("malformed: ")


@pytest.mark.parametrize("pair", pairs("accept"), ids=ids)
def test_clean_interpreter_gives_the_same_verdict(pair, capsys):
    result = run(*pair)
    main([str(path) for path in pair])
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == capsys.readouterr().out


def test_the_theorem_is_restated():
    line = run(ABS, FOLDER / "accept" / "abs-products").stdout
    assert line.startswith(
        "verified: the l_inf Lipschitz constant of f[0] on the whole space is at most 1 (exactly 1), network sha256 f5dd0f3"
    )
    line = run(
        network_of(FOLDER / "accept" / "smooth-box-sdp-margin"),
        FOLDER / "accept" / "smooth-box-sdp-margin",
    ).stdout
    assert (
        "of f[0] - f[1] on the box [-0.5, 0.25] x [0, 0.5] is at most 1.79444786079 (exactly"
        in line
    )


def test_a_long_theorem_is_cut_unless_all_is_asked_for(tmp_path):
    network = load([np.ones((2, 12))])
    network.save(tmp_path / "n.safetensors")
    bound(network, domain=Ball(np.zeros(12), 0.5), certify=True, samples=5).save(tmp_path / "c")
    files = tmp_path / "n.safetensors", tmp_path / "c"
    zeros = ", ".join(["0"] * 8)
    ball = f"on the l_inf ball of radius 0.5 around ({zeros}, ... (12 in all)) is"
    assert ball in run(*files).stdout
    assert run(*files, "--full").stdout.count("[") == 1 + 12


@pytest.mark.parametrize(
    ("lower", "upper", "printed"),
    [
        ([0.4, -0.1], [0.6, 0.1], "l_inf ball of radius 0.1 around (0.5, 0)"),
        ([-100, 1e-30], [100, 200], "l_inf ball of radius 100 around (0, 100)"),
        ([0, 2**-1074], [0.1, 1], "box [0, 0.1] x [4.94065645841E-324, 1]"),
        ([-1e300, 0], [1e300, 1], "box [-1E+300, 1E+300] x [0, 1]"),
    ],
)
def test_domains_are_rounded_for_people(lower, upper, printed):
    box = Bounds([Fraction(value) for value in lower], [Fraction(value) for value in upper])
    claim = Claim(read_network(ABS.read_bytes()), "l2", [{0: Fraction(1)}], box, Fraction(1))
    assert f" on the {printed} is at most 1 " in theorem(claim, 8)


def test_the_verdict_as_json():
    """All numbers exactly, as fractions; other verdicts have a reason."""
    path = FOLDER / "accept" / "smooth-box-sdp-margin"
    data = json.loads(run(network_of(path), path, "--json").stdout)
    assert data["verdict"] == "verified"
    assert data["norm"] == "linf"
    assert data["outputs"] == [{"0": "1", "1": "-1"}]
    assert data["domain"] == {"lower": ["-1/2", "0"], "upper": ["1/4", "1/2"]}
    assert data["network"] == hashlib.sha256(network_of(path).read_bytes()).hexdigest()
    assert data["bound_rounded_up"] == "1.79444786079"
    assert 0 <= Fraction(data["bound_rounded_up"]) - Fraction(data["bound"]) < 1e-11
    ended = run(ABS, path, "--json")
    assert ended.returncode == 3
    data = json.loads(ended.stdout)
    assert data["verdict"] == "network mismatch"
    assert data["reason"].startswith("the certificate is for ")
    assert run(ABS, "--json").returncode == 2


def test_rejection_says_what_was_obtained():
    line = run(ABS, FOLDER / "reject" / "abs-products-without-multipliers").stdout
    assert line == (
        "rejected: claimed 1, obtained 3 in part 0: monomial (0, 1): 2; monomial (2,): 1\n"
    )


def test_a_network_alone_is_described():
    result = run(FOLDER / "networks" / "residual.safetensors")
    assert result.returncode == 0
    assert "node 2: leaky_relu, 4, from 1" in result.stdout
    assert "node 5: affine, 4, from 2 by 4 weights, from 4 by 4 weights" in result.stdout


def test_another_network_is_a_mismatch():
    result = run(FOLDER / "networks" / "smooth.safetensors", FOLDER / "accept" / "abs-products")
    assert result.returncode == 3
    assert result.stdout.startswith("network mismatch: ")


def test_missing_files_are_malformed(tmp_path):
    assert run(tmp_path / "none").returncode == 2
    assert run(ABS, tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("unit 0 1", "unit 5001 1"),
        ("bound 0 1", "bound -5001 1"),
    ],
)
def test_sizes_beyond_the_limits(old, new, tmp_path):
    text = (FOLDER / "accept" / "abs-products").read_text()
    (tmp_path / "certificate").write_text(text.replace(old, new))
    assert run(ABS, tmp_path / "certificate").returncode == 4


def test_a_network_whose_input_does_not_fit(tmp_path):
    data = ABS.read_bytes().replace(b'\\"shape\\":[1]', b'\\"shape\\":[10000000000]')
    length = int.from_bytes(data[:8], "little") + len(data) - len(ABS.read_bytes())
    (tmp_path / "network").write_bytes(length.to_bytes(8, "little") + data[8:])
    assert run(tmp_path / "network").returncode == 2


@pytest.fixture
def two_million_monomials(tmp_path):
    """A network, and a certificate for which the checker builds a polynomial of that size."""
    rng = np.random.default_rng(0)
    network = load(
        [rng.standard_normal((40, 40)) for _ in range(3)] + [rng.standard_normal((1, 40))]
    )
    network.save(tmp_path / "network")
    text = (FOLDER / "accept" / "abs-products").read_text().split("\nneurons")[0].split("\n")
    text[1] = f"network {network.hash}"
    lines = [
        *text,
        *["neurons *", "form plain"] * 3,
        "splits 0",
        "rule products",
        "unit 0 1",
        "sets 0",
    ]
    (tmp_path / "certificate").write_text("\n".join([*lines, f"end {len(lines)}", ""]))
    return tmp_path / "network", tmp_path / "certificate"


@pytest.mark.parametrize(
    "limit", [("--seconds", "0"), ("--seconds", "-1"), ("--gigabytes", "0"), ("--gigabytes", "nan")]
)
def test_limits_are_positive(two_million_monomials, limit):
    result = run(*two_million_monomials, *limit)
    assert (result.returncode, result.stdout) == (
        2,
        "malformed: the limits must be positive, and not absurd\n",
    )


def test_limit_on_time(two_million_monomials):
    result = run(*two_million_monomials, "--seconds", "1")
    assert (result.returncode, result.stdout) == (4, "limits exceeded: more than 1 seconds\n")


def test_limit_on_memory(two_million_monomials):
    result = run(*two_million_monomials, "--gigabytes", "0.1")
    assert (result.returncode, result.stdout) == (
        4,
        "limits exceeded: more than 0.1 GB of memory\n",
    )


def test_errors_of_the_checker_have_an_exit_code_of_their_own(monkeypatch, capsys):
    monkeypatch.setattr("lipcheck.__main__.check", lambda network, data: 1 // 0)
    assert main([str(ABS), str(FOLDER / "accept" / "abs-path-sum")]) == 70
    assert capsys.readouterr().out.startswith("internal error: Traceback")


def test_what_is_quoted_from_the_files_cannot_pass_for_a_verdict(tmp_path):
    forged = b"lipopt-certificate 1\nnetwork \r\x1b[2Kverified: \xff\n"
    (tmp_path / "forged").write_bytes(forged)
    result = run(ABS, tmp_path / "forged")
    assert result.returncode == 3
    assert result.stdout.startswith(
        r"network mismatch: the certificate is for \r\x1b[2Kverified: \xff, the file is f5dd0f3"
    )


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (Fraction(1, 3), "0.333333333334"),
        (Fraction(-1, 3), "-0.333333333333"),
        (Fraction(0), "0"),
        (Fraction(5, 2), "2.5"),
        (Fraction(10**400 + 1, 10**400), "1.00000000001"),
        (Fraction(2**4_000_000), "2^4000001"),
        (Fraction(1, 2**4_000_000), "2^-3999999"),
    ],
    ids=["1/3", "-1/3", "0", "5/2", "1 + 1e-400", "huge", "tiny"],
)
def test_numbers_are_printed_rounded_up_and_at_once(number, printed):
    assert decimal(number) == printed


@pytest.mark.parametrize(
    ("row", "most", "printed"),
    [
        ({}, 2, "0"),
        ({0: 1}, 2, "f[0]"),
        ({0: -1, 3: 1}, 2, "-f[0] + f[3]"),
        ({0: 2, 1: -1}, 2, "2 f[0] - f[1]"),
        ({0: Fraction(-1, 2), 1: Fraction(-11, 4)}, 2, "-1/2 f[0] - 11/4 f[1]"),
        ({0: 0, 1: -11, 2: 1}, 2, "0 f[0] - 11 f[1] + ... (3 in all)"),
        ({0: 0, 1: -11, 2: 1}, None, "0 f[0] - 11 f[1] + f[2]"),
    ],
)
def test_functions_are_written_as_people_write_them(row, most, printed):
    claim = Claim(read_network(ABS.read_bytes()), "l1", [row], None, Fraction(1))
    assert theorem(claim, most).startswith(
        f"the l_1 Lipschitz constant of {printed} on the whole space is at most 1 "
    )


def test_an_interrupt_is_no_verdict(monkeypatch, capsys):
    def interrupt(network, data):
        raise KeyboardInterrupt

    monkeypatch.setattr("lipcheck.__main__.check", interrupt)
    assert main([str(ABS), str(FOLDER / "accept" / "abs-path-sum")]) == 4
    assert capsys.readouterr().out == "limits exceeded: interrupted\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("nowhere", [">/dev/full", ">&-"])
@pytest.mark.parametrize("certificate", [[], [str(FOLDER / "accept" / "abs-path-sum")]])
def test_a_verdict_that_cannot_be_written_is_an_error(certificate, nowhere):
    command = " ".join([sys.executable, "-I", "-S", str(SOURCE), str(ABS), *certificate, nowhere])
    assert subprocess.run(command, shell=True, stderr=subprocess.PIPE, timeout=60).returncode == 70


def test_the_page_on_trust_says_how_long_the_checker_is():
    total = code = 0
    for path in SOURCE.glob("*.py"):
        text = path.read_text()
        total += text.count("\n")
        docstrings: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
                node
            ):
                first = node.body[0]
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip() and not line.strip().startswith("#") and number not in docstrings:
                code += 1
    said = re.search(
        r"([\d,]+) plain lines of Python \(([\d,]+) with",
        (SOURCE.parents[1] / "docs" / "trust.md").read_text(),
    )
    assert said is not None
    assert [int(number.replace(",", "")) for number in said.groups()] == [
        round(code, -1),
        round(total, -1),
    ]


def test_the_checker_imports_the_standard_library_alone():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import lipcheck.__main__; print(*sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(SOURCE.parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.split(".")[0] for name in result.stdout.split()} - {"lipcheck", "__main__"}
    assert loaded <= set(sys.stdlib_module_names)
