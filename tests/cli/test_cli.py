"""The command line as a user sees it: tables, JSON, one-line errors, exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lipopt


@pytest.fixture
def model(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    path = tmp_path / "model.safetensors"
    lipopt.load([rng.normal(size=(6, 4)), rng.normal(size=(3, 6))]).save(path)
    return str(path)


def test_info(run, model: str) -> None:
    code, out, _ = run("info", model)
    assert code == 0
    assert "relu" in out
    assert "after presolve 6 neurons" in out
    data = json.loads(run("info", model, "--json")[1])
    assert data["hash"] == lipopt.load(model).hash
    assert [n["kind"] for n in data["nodes"]] == ["input", "affine", "relu", "affine"]
    code, out, _ = run("info", model, "--pattern", "--degree", "3")
    assert code == 0
    assert "chordal" in out
    data = json.loads(run("info", model, "--pattern", "--json")[1])
    assert [row["pattern"] for row in data["patterns"]] == [
        "paths",
        "output",
        "input",
        "chordal",
        "full",
    ]


def test_bound_prints_upper_and_lower(run, model: str) -> None:
    code, out, err = run("bound", model, "--method", "path-sum", "-k", "2")
    assert (code, err) == (0, "")
    assert "path-sum" in out
    assert "lower bound on the Lipschitz constant" in out
    data = json.loads(run("bound", model, "--method", "path-sum", "-k", "2", "--json")[1])
    result = lipopt.bound(model, method="path-sum", output=2)
    assert data["upper"] == result.upper
    assert data["lower"] == result.lower <= data["pop_lower"] <= data["upper"]
    assert set(data) == {
        "upper", "lower", "pop_lower", "method", "seconds", "status", "norm", "output", "domain", "network", "source",
        "details",
    }  # fmt: skip
    assert float(run("bound", model, "-m", "path-sum", "-k", "2", "-q")[1]) == result.upper


def test_printed_numbers_are_rounded_to_the_safe_side() -> None:
    from lipopt.show.tables import number, number_down

    assert number(1.00000000001) == "1.00001"
    assert number_down(1.99999999999) == "1.99999"
    assert number(12345678.9) == "1.23457e+7"
    assert number(0.0) == "0"


def test_domains_and_norms(run, model: str, tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.full(4, 0.5))
    np.savez(tmp_path / "b.npz", lower=np.zeros(4), upper=np.ones(4))
    names = "".join(
        f"(declare-const X_{i} Real)(assert (<= X_{i} 1))(assert (>= X_{i} 0))" for i in range(4)
    )
    (tmp_path / "p.vnnlib").write_text(names)
    ball = ("--center", str(tmp_path / "c.npy"), "--radius", "0.5")
    uppers = []
    domains: list[tuple[str, ...]] = [
        ball,
        (*ball, "--clip", "0,1"),
        ("--box", str(tmp_path / "b.npz")),
        ("--vnnlib", str(tmp_path / "p.vnnlib")),
    ]
    for options in domains:
        code, out, _ = run("bound", model, "--json", *options)
        assert code == 0
        uppers.append(json.loads(out)["upper"])
    np.testing.assert_allclose(uppers, uppers[0], rtol=1e-9)
    assert uppers[0] <= json.loads(run("bound", model, "--json")[1])["upper"]
    for options in (("--norm", "l2", "--all-outputs"), ("--norm", "l1"), ("--margin", "0,2")):
        code, out, _ = run("compare", model, *options)
        assert code == 0
        assert "product" in out
        assert "path-sum" in out


def test_lower(run, model: str) -> None:
    data = json.loads(run("lower", model, "--json", "--samples", "100", "--seed", "3")[1])
    expected = lipopt.lower_bound(model, samples=100, seed=3)
    assert data["lower"] == expected.lower
    assert data["point"] == list(expected.point)
    assert float(run("lower", model, "-q", "--samples", "100", "--seed", "3")[1]) == expected.lower


def test_compare(run, model: str) -> None:
    rows = json.loads(run("compare", model, "--json", "--methods", "product,path-sum")[1])
    assert [r["method"] for r in rows] == ["path-sum", "product"]
    assert rows[0]["upper"] <= rows[1]["upper"]


@pytest.mark.parametrize("command", ["bound", "compare"])
def test_certificates_are_written_and_verified(
    run, model: str, tmp_path: Path, command: str
) -> None:
    path, network = tmp_path / "claim.cert", tmp_path / "claim.safetensors"
    code, out, _ = run(command, model, "--certificate", str(path), "--json")
    assert code == 0
    upper = json.loads(out)["upper"] if command == "bound" else json.loads(out)[0]["upper"]
    checked = subprocess.run(
        [sys.executable, "-m", "lipopt", "check", network, path],
        capture_output=True,
        text=True,
        check=True,
    )
    proved = float(checked.stdout.split("is at most ")[1].split()[0])
    assert proved == pytest.approx(upper, rel=1e-9)
    lines = path.read_text().splitlines()
    claim = next(i for i, line in enumerate(lines) if line.startswith("bound "))
    exponent, mantissa = lines[claim].split()[1:]
    lines[claim] = f"bound {exponent} {int(mantissa) // 2}"
    path.write_text("\n".join(lines) + "\n")
    assert run("check", str(network), str(path))[0] == 1


def test_bad_input_is_one_line_and_exit_code_2(run, model: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"\x08\x07 nothing")
    np.savez(tmp_path / "nan.npz", W0=np.array([[np.nan]]))
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "nowhere.cert").symlink_to(tmp_path / "no" / "folder")
    (tmp_path / "weights.safetensors").write_bytes(b"of something else")
    np.save(tmp_path / "c.npy", np.zeros(4))
    np.save(tmp_path / "short.npy", np.zeros(3))
    center, short = str(tmp_path / "c.npy"), str(tmp_path / "short.npy")
    for args in (
        ("bound", "missing.onnx"),
        ("bound", str(bad)),
        ("bound", str(tmp_path / "nan.npz")),
        ("bound", str(tmp_path / "text.npz")),
        ("bound", str(tmp_path)),
        ("bound", model, "-k", "3"),
        ("bound", model, "--margin", "1"),
        ("bound", model, "--margin", "1,1"),
        ("bound", model, "--margin", "0,1", "-k", "1"),
        ("bound", model, "--all-outputs", "-k", "1"),
        ("bound", model, "--seed", "-1"),
        ("bound", model, "--certificate", str(tmp_path / "nowhere" / "c")),
        ("bound", model, "--certificate", str(tmp_path)),
        ("bound", model, "--certificate", model),
        ("bound", model, "--certificate", str(tmp_path / "other.safetensors")),
        ("bound", model, "--certificate", str(tmp_path / "weights.cert")),
        ("bound", model, "--method", "path-sum", "--certificate", str(tmp_path / "nowhere.cert")),
        ("bound", model, "--certificate", str(tmp_path / (300 * "x"))),
        ("bound", model, "--activation", "tanh"),
        ("report", model, "--out", model),
        ("compare", model, "--methods", "shor", "--norm", "l1"),
        ("bound", model, "--method", "nope"),
        ("bound", model, "--method", "path-sum", "--pattern", "input"),
        ("info", model, "--pattern", "--degree", "0"),
        ("info", model, "--degree", "3"),
        ("bound", model, "--method", "lipopt-3", "--pattern", "nope"),
        ("bound", model, "--method", "lipopt-1"),
        ("bound", model, "--device", "nowhere"),
        ("bound", model, "--center", center),
        ("bound", model, "--center", center, "--radius", "-1"),
        ("bound", model, "--center", center, "--radius", "nan"),
        ("bound", model, "--center", short, "--radius", "1"),
        ("bound", model, "--center", "missing.npy", "--radius", "1"),
        ("bound", model, "--center", center, "--radius", "1", "--box", center),
        ("bound", model, "--clip", "0,1"),
        ("bound", model, "--time-limit", "0"),
        ("bound", model, "--vnnlib", "missing.vnnlib"),
        ("info", model, "-k", "-1"),
        ("lower", model, "--samples", "0"),
        ("compare", model, "--methods", "nope"),
    ):
        code, out, err = run(*args)
        assert code == 2, args
        assert out == "", args
        assert err.startswith("lipopt: "), args
        assert err.count("\n") == 1, args
    assert run("info", model)[0] == 0  # it was not overwritten


def test_usage_errors(run, model: str) -> None:
    for args in (
        ("bound",),
        ("bound", model, "--norm", "l7"),
        ("nonsense",),
        ("bound", model, "--radius", "abc"),
    ):
        code, out, err = run(*args)
        assert code == 2
        assert "Traceback" not in out + err


def test_demo(run) -> None:
    code, out, _ = run("demo")
    assert code == 0
    assert out.count("20 of 20 digits right") == 2
    assert out.count("whole space") == 2
    assert out.count("radius 0.01") == 2


def test_starting_imports_nothing_heavy() -> None:
    program = "import sys; import lipopt.cli.app; print([m for m in ('numpy', 'scipy', 'onnx', 'torch') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_large_convolution_fits_in_memory() -> None:
    """3x32x32 input, 16k and 8k neurons: loaded, bounded by its path sum, in under 2 GB."""
    program = """
import resource, numpy as np
from lipopt.readers.builder import Builder
import lipopt
rng = np.random.default_rng(0)
b = Builder()
x = b.input((1, 3, 32, 32))
same = dict(strides=[1, 1], pads=[(1, 1), (1, 1)], dilations=[1, 1], groups=1)
x = b.activation("r1", b.convolution("c1", x, rng.normal(size=(16, 3, 3, 3)), None, **same), "relu")
half = {**same, "strides": [2, 2]}
x = b.activation("r2", b.convolution("c2", x, rng.normal(size=(32, 16, 3, 3)), None, **half), "relu")
x = b.linear("fc", x.moved(lambda i: i.reshape(1, -1)), rng.normal(size=(10, 8192)), None)
r = lipopt.bound(b.network(x), method="path-sum", samples=20)
assert 0 < r.lower <= r.pop_lower <= r.upper
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 2000
