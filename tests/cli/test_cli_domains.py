"""The command line on balls of other norms, units, norms on the outputs and the Jacobian."""

import json
from pathlib import Path

import numpy as np
import pytest

import lipopt


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    rng = np.random.default_rng(0)
    biases = [rng.normal(size=6), None]
    network = lipopt.load([rng.normal(size=(6, 4)), rng.normal(size=(3, 6))], biases=biases)
    network.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "center.npy", rng.normal(size=4))
    (tmp_path / "units.csv").write_text("1\n10\n0.5\n2\n")
    return {name.split(".")[0]: str(tmp_path / name) for name in
            ("model.safetensors", "center.npy", "units.csv", "map.svg", "claim.cert")}  # fmt: skip


def test_a_ball_in_units(run, files: dict[str, str]) -> None:
    options = ["--norm", "l2", "--ball-norm", "l2", "--scale", files["units"]]
    options += ["--center", files["center"], "--radius", "0.3", "-m", "path-sum"]
    code, out, err = run("bound", files["model"], *options)
    assert (code, err) == (0, "")
    out = " ".join(out.split())
    assert "in the l2 norm, inputs in units of 1, 10, 0.5, 2" in out
    assert "l2 ball of radius 0.3 in the given units" in out
    data = json.loads(run("bound", files["model"], *options, "--json")[1])
    units = [1, 10, 0.5, 2]
    ball = lipopt.Ball(np.load(files["center"]), 0.3, norm="l2", scale=units)
    same = lipopt.bound(files["model"], norm="l2", scale=units, domain=ball, method="path-sum")
    assert data["upper"] == same.upper
    assert data["scale"] == units


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_a_certificate_in_units(run, files: dict[str, str], norm: str) -> None:
    options = ["--scale", files["units"], "--all-outputs", "--output-norm", norm]
    certificate = ["--certificate", files["claim"]]
    code, out, err = run("bound", files["model"], *options, "-m", "sdp", *certificate)
    assert (code, err) == (0, "")
    assert f"the norms l_inf of inputs and {norm} of outputs" in " ".join(out.split())
    code, _, _ = run("check", files["model"], files["claim"])
    assert code == 0


def test_every_entry_of_the_jacobian(run, files: dict[str, str]) -> None:
    where = ["--center", files["center"], "--radius", "0.1", "--ball-norm", "l1"]
    code, out, err = run("jacobian", files["model"], *where, "--plot", files["map"])
    assert (code, err) == (0, "")
    assert "Entries of the Jacobian, l1 ball of radius 0.1" in out
    assert Path(files["map"]).read_text().startswith("<svg ")
    data = json.loads(run("jacobian", files["model"], *where, "--json")[1])
    ball = lipopt.Ball(np.load(files["center"]), 0.1, norm="l1")
    assert data["lower"] == lipopt.jacobian(files["model"], domain=ball).lower.tolist()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--ball-norm", "l2"], "--ball-norm goes with --center"),
        (["--output-norm", "l2"], "goes with all outputs"),
        (["--scale", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_requests_that_cannot_be_met(
    run, files: dict[str, str], options: list[str], reason: str
) -> None:
    code, out, err = run("bound", files["model"], *options)
    assert code == 2
    assert out == ""
    assert reason in err


def test_center_and_units_may_be_given_as_numbers(files: dict[str, str], run) -> None:
    center = ",".join(map(str, np.load(files["center"])))
    command = ["bound", files["model"], "--radius", "0.3", "-m", "path-sum", "-q"]
    from_files = run(*command, "--center", files["center"], "--scale", files["units"])
    as_numbers = run(*command, "--center", center, "--scale", "1,10,0.5,2")
    assert from_files == as_numbers
    assert from_files[0] == 0
    code, _, err = run(*command, "--center", "0,x")
    assert code == 2
    assert "no such file: 0,x" in err
