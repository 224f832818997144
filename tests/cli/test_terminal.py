"""The command line in a real terminal, in a narrow one, and in a pipe that nobody reads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lipopt
from lipopt.numerics.rounding import written_up
from lipopt.show import tables

pytest.importorskip("pty", reason="no pseudo-terminals on this system")
pytest.importorskip("pyte", reason="pyte, of the extra 'test', is not installed")

from terminal import in_terminal

CLOCK = re.compile(r"\b\d:\d\d:\d\d\b")
QUICK_DEMO = """
import sys
from lipopt.cli import demo
from lipopt.cli.app import main
demo.METHODS = ("product", "path-sum")
demo.RADII = (0.01,)
sys.argv = ["lipopt", "demo"]
main()
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    path = tmp_path / "model.safetensors"
    lipopt.load([100 * rng.normal(size=s) for s in ((20, 10), (20, 20), (3, 20))]).save(path)
    return str(path)


def without_numbers(line: str) -> str:
    """A line with all numbers alike: what a time limit cuts off differs from run to run."""
    return " ".join(re.sub(r"[\d,.]+", "0", line).split())


def test_demo_in_a_terminal_is_what_it_is_in_a_file() -> None:
    seen = in_terminal(["-c", QUICK_DEMO], tables.FILE_WIDTH)
    plain = subprocess.run(
        [sys.executable, "-c", QUICK_DEMO], capture_output=True, text=True, check=True
    )
    expected = [without_numbers(line) for line in plain.stdout.splitlines()]
    shown = [without_numbers(line) for line in seen.lines]
    assert seen.code == 0
    assert expected.count("") >= 12
    assert shown[: len(expected)] == expected
    assert not any(shown[len(expected) :])


def test_the_clock_goes_on_when_a_step_is_done() -> None:
    program = """
import time
from lipopt.progress import message_progress
with message_progress(False) as progress:
    progress("a step", 1.0)
    time.sleep(1.3)
    progress("another", 0.5)
    time.sleep(1.0)
"""
    seen = in_terminal(["-c", program])
    assert len(set(CLOCK.findall(seen.sent))) >= 3
    assert seen.text.strip() == ""


def test_messages_of_other_writers_do_not_break_the_bar() -> None:
    program = """
import sys
from lipopt.progress import message_progress
from lipopt.show import tables
console = tables.console()
with message_progress(False, console) as progress:
    for k in range(3):
        progress(f"step {k}", k / 3)
        print(f"aside {k}", file=sys.stderr)
        console.print(f"line {k}")
"""
    seen = in_terminal(["-c", program])
    assert [line for line in seen.lines if line] == [
        "aside 0",
        "line 0",
        "aside 1",
        "line 1",
        "aside 2",
        "line 2",
    ]


@pytest.mark.parametrize("method", ["auto", "sdp"])
def test_ctrl_c_in_bound_prints_what_is_proved(tmp_path: Path, method: str) -> None:
    rng = np.random.default_rng(1)
    shapes = ((800, 400), (800, 800), (3, 800))  # large enough for Ctrl-C to come in time
    network = lipopt.load([rng.normal(size=shape) for shape in shapes])
    network.save(tmp_path / "n.safetensors")
    arguments = ["bound", str(tmp_path / "n.safetensors"), "--method", method, "--samples", "100"]
    seen = in_terminal(["-m", "lipopt", *arguments], ctrl_c_after="sdp: value")
    assert seen.code == 130
    assert "interrupted" in seen.text
    row = next(line for line in seen.lines if line.startswith(f"  {method}"))
    upper = float(re.findall(r"[\d,]+\.?\d*", row)[0].replace(",", ""))
    complete = lipopt.bound(network, method="sdp", samples=100)
    path_sum = lipopt.bound(network, method="path-sum", samples=100)
    assert complete.lower <= upper <= tables_up(path_sum.upper)


def tables_up(value: float) -> float:
    """A number as tables print it."""
    return float(written_up(value).replace(",", ""))


@pytest.mark.parametrize("columns", [100, 60, 24])
def test_numbers_are_never_cut(model: str, columns: int) -> None:
    arguments = ["compare", model, "--methods", "product,path-sum", "--samples", "20"]
    seen = in_terminal(["-m", "lipopt", *arguments], columns)
    results = lipopt.compare(model, methods=["product", "path-sum"], samples=20)
    assert seen.code == 0
    for result in results:
        assert f" {written_up(result.upper)}" in seen.text
    assert ("/ POP lower" in seen.text) == (columns == 100)
    assert max(map(len, seen.lines)) <= columns


def test_certified_points_are_shown_in_narrow_terminals(model: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(3, 10)))
    arguments = ["local", model, "--data", str(tmp_path / "x.npy"), "--radius", "0.0001"]
    arguments += ["--margins", "all", "-j", "1", "-o", str(tmp_path / "rows")]
    seen = in_terminal(["-m", "lipopt", *arguments], 60)
    assert seen.code == 0
    assert "certified" in seen.text
    assert "0.0001" in seen.text


@pytest.mark.parametrize(
    "options", [["lower", "--samples", "20"], ["info", "--json"], ["info"]], ids=str
)
def test_a_reader_that_goes_away_is_no_error(model: str, options: list[str]) -> None:
    name, *others = options
    command = [sys.executable, "-m", "lipopt", name, model, *others]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_rows_go_to_standard_output(run, model: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(2, 10)))
    command = ["local", model, "--data", str(tmp_path / "x.npy"), "--radius", "0.1", "-j", "1"]
    code, out, _ = run(*command, "-o", "-", "-q")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert sorted((row["point"], row["question"]) for row in rows) == [
        (point, f"output {k}") for point in range(2) for k in range(3)
    ]
    code, _, err = run(*command, "-o", "-", "--resume")
    assert code == 2
    assert "not with -" in err


def test_a_few_rows_without_a_file_are_shown(run, model: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(2, 10)))
    command = ["local", model, "--data", str(tmp_path / "x.npy"), "--radius", "0.1", "-j", "1"]
    code, out, _ = run(*command)
    assert code == 0
    for point in range(2):
        for k in range(3):
            assert re.search(rf"{point}\s+output {k}\s+0\.1\s", out)
    code, _, err = run(*command, "--resume")
    assert code == 2
    assert "-o" in err
