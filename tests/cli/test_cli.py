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


def test_info_of_a_network_that_has_a_constant_in_a_box_only(run, tmp_path: Path) -> None:
    path = tmp_path / "exp.safetensors"
    lipopt.load([np.eye(3), np.ones((1, 3))], activation="exp").save(path)
    code, out, _ = run("info", str(path))
    assert code == 0
    assert "exp" in out
    assert "a constant in a ball or a box only" in out
    data = json.loads(run("info", str(path), "--json")[1])
    assert data["presolved"] is None
    assert [n["kind"] for n in data["nodes"]] == ["input", "affine", "exp", "affine"]
    center = tmp_path / "center.txt"
    center.write_text("0 0 0")
    code, out, _ = run("info", str(path), "--center", str(center), "--radius", "1")
    assert code == 0
    assert "after presolve 3 neurons" in out
    assert run("info", str(path), "--pattern")[0] == 2


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
        "details", "point", "output_norm", "scale", "by",
    }  # fmt: skip
    assert float(run("bound", model, "-m", "path-sum", "-k", "2", "-q")[1]) == result.upper


def test_printed_numbers_are_rounded_to_the_safe_side() -> None:
    from lipopt.numerics.rounding import written_down, written_up

    assert written_up(1.00000000001) == "1.00001"
    assert written_down(1.99999999999) == "1.99999"
    assert written_up(12345678.9) == "1.23457e+7"
    assert written_up(0.0) == "0"


def test_domains(run, model: str, tmp_path: Path) -> None:
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
        assert code == 0, options
        uppers.append(json.loads(out)["upper"])
    np.testing.assert_allclose(uppers, uppers[0], rtol=1e-9)
    assert uppers[0] <= json.loads(run("bound", model, "--json")[1])["upper"]


@pytest.mark.parametrize("options", ["--norm l2 --all-outputs", "--norm l1", "--margin 0,2"])
def test_norms_and_outputs(run, model: str, options: str) -> None:
    code, out, _ = run("compare", model, *options.split())
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


@pytest.fixture
def folder(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the model, with files that are not what they should be, as the current one."""
    monkeypatch.chdir(tmp_path)
    Path("bad.onnx").write_bytes(b"\x08\x07 nothing")
    np.savez("nan.npz", W0=np.array([[np.nan]]))
    Path("text.npz").write_text("no archive")
    Path("nowhere.cert").symlink_to(tmp_path / "no" / "folder")
    Path("weights.safetensors").write_bytes(b"of something else")
    np.save("c.npy", np.zeros(4))
    np.save("short.npy", np.zeros(3))


LONG = 300 * "x"
BAD_INPUT = [
    ("bound missing.onnx", "no such file: missing.onnx"),
    ("bound bad.onnx", "not a readable ONNX file"),
    ("bound nan.npz", "NaN or infinite"),
    ("bound text.npz", "no zip archive"),
    ("bound .", "is a folder"),
    ("bound MODEL -k 3", "output 3 is out of range"),
    ("bound MODEL --margin 1", "--margin takes two numbers"),
    ("bound MODEL --margin 1,1", "two different outputs"),
    ("bound MODEL --margin 0,1 -k 1", "not for two of them"),
    ("bound MODEL --all-outputs -k 1", "not for two of them"),
    ("bound MODEL --seed -1", "the seed must be"),
    ("bound MODEL --certificate nowhere/c", "there is no folder nowhere"),
    ("bound MODEL --certificate .", "cannot write .: it is a folder"),
    ("bound MODEL --certificate MODEL", "model.safetensors is the name of a network"),
    ("bound MODEL --certificate other.safetensors", "other.safetensors is the name of a network"),
    ("bound MODEL --certificate weights.cert", "weights.safetensors exists"),
    ("bound MODEL --method path-sum --certificate nowhere.cert", "cannot write nowhere.cert"),
    (f"bound MODEL --certificate {LONG}", "File name too long"),
    ("bound MODEL --activation tanh", "activation does not go with"),
    ("report MODEL --out MODEL", "model.safetensors is the name of a network"),
    ("compare MODEL --methods shor --norm l1", "no method takes this"),
    ("bound MODEL --method nope", "unknown method 'nope'"),
    ("bound MODEL --method path-sum --pattern input", "no setting 'pattern'"),
    ("info MODEL --pattern --degree 0", "--degree is a number from 1"),
    ("info MODEL --degree 3", "goes with --pattern"),
    ("bound MODEL --method lipopt-3 --pattern nope", "unknown pattern 'nope'"),
    ("bound MODEL --method lipopt-1", "degree 1 is below"),
    ("bound MODEL --device nowhere", "device 'nowhere' is not available"),
    ("bound MODEL --center c.npy", "both --center and --radius"),
    ("bound MODEL --center c.npy --radius -1", "the radius must be a finite number >= 0, got -1"),
    ("bound MODEL --center c.npy --radius nan", "the radius must be a finite number >= 0, got nan"),
    ("bound MODEL --center short.npy --radius 1", "the center has 3 entries"),
    ("bound MODEL --center missing.npy --radius 1", "no such file: missing.npy"),
    ("bound MODEL --center c.npy --radius 1 --box c.npy", "--center and --box, not both"),
    ("bound MODEL --clip 0,1", "--clip goes with --center"),
    ("bound MODEL --time-limit 0", "the time limit must be"),
    ("bound MODEL --vnnlib missing.vnnlib", "no such file: missing.vnnlib"),
    ("info MODEL -k -1", "output -1 is out of range"),
    ("lower MODEL --samples 0", "the number of samples must be"),
    ("compare MODEL --methods nope", "unknown method 'nope'"),
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("command", "message"), BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_2(run, command: str, message: str) -> None:
    before = Path("model.safetensors").read_bytes()
    code, out, err = run(*command.replace("MODEL", "model.safetensors").split())
    assert (code, out) == (2, "")
    assert err.startswith("lipopt: ")
    assert err.count("\n") == 1
    assert message in err
    assert Path("model.safetensors").read_bytes() == before


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bound", "Missing argument 'model'"),
        ("bound model.safetensors --norm l7", "'l7' is not one of"),
        ("nonsense", "No such command 'nonsense'"),
        ("bound model.safetensors --radius abc", "Invalid value for '--radius'"),
    ],
)
def test_usage_errors(run, command: str, message: str) -> None:
    code, out, err = run(*command.split())
    assert code == 2
    assert "Traceback" not in out + err
    assert message in err


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


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_large_convolution_fits_in_memory() -> None:
    """3x32x32 input, 16k and 8k neurons: loaded, bounded by its path sum, in under 2 GB."""
    program = """
import numpy as np
from lipopt.readers.builder import Builder
from lipopt.readers.windowed import convolution
import lipopt
rng = np.random.default_rng(0)
b = Builder()
x = b.input((1, 3, 32, 32))
same = dict(strides=[1, 1], pads=[(1, 1), (1, 1)], dilations=[1, 1], groups=1)
x = b.activation("r1", convolution(b, "c1", x, rng.normal(size=(16, 3, 3, 3)), None, **same), "relu")
half = {**same, "strides": [2, 2]}
x = b.activation("r2", convolution(b, "c2", x, rng.normal(size=(32, 16, 3, 3)), None, **half), "relu")
x = b.linear("fc", x.moved(lambda i: i.reshape(1, -1)), rng.normal(size=(10, 8192)), None)
r = lipopt.bound(b.network(x), method="path-sum", samples=20)
assert 0 < r.lower <= r.pop_lower <= r.upper
# Not ru_maxrss: after a fork that starts at the memory of the parent, a test run.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 2000
