"""Batch runs: the same rows wherever they are solved, nothing lost when something dies, and errors before anything runs."""

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import lipcheck.certificate
import lipcheck.network
import lipopt
from lipopt import Ball, LipoptError, bound, local_bounds
from lipopt.batch.answers import answers
from lipopt.batch.results_file import Records, read_rows
from lipopt.batch.rows import Ask, Point, Row
from lipopt.batch.run import Run
from lipopt.batch.summary import summarize
from lipopt.lower.pop import free_neurons
from lipopt.methods.sdp.method import SDP
from lipopt.problem.question import Question, pose
from lipopt.problem.task import Task, UpperBound
from lipopt.readers.points import check_points, read_labels, read_points

POINTS = 16
OPTIONS: dict[str, Any] = {
    "output": None, "margins": "all", "norm": "linf", "clip": None,
    "method": SDP(gap=1e-3), "time_limit": None, "samples": 20, "seed": 0, "certificates": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def network() -> lipopt.Network:
    rng = np.random.default_rng(0)
    sizes = (6, 12, 10, 4)
    weights = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(sizes)]
    return lipopt.load(weights, biases=[rng.normal(size=b) / 3 for b in sizes[1:]])


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(POINTS, 6))


@pytest.fixture(scope="module")
def expected(network, points) -> list[Row]:
    return timeless(local_bounds(network, points, (0.05, 0.4), margins="all", samples=20))


def timeless(rows: list[Row]) -> list[Row]:
    """In order, without times, and without the last digits of lower bounds.

    Those depend on where NumPy puts its arrays in memory."""
    found = []
    for row in rows:
        lower = None if row.lower is None else float(f"{row.lower:.12g}")
        pop_lower = None if row.pop_lower is None else float(f"{row.pop_lower:.12g}")
        found.append(replace(row, seconds=0.0, lower=lower, pop_lower=pop_lower))
    return sorted(found, key=lambda r: (r.point, r.radius, r.question))


@dataclass(frozen=True)
class Faulty:
    """The SDP, but for the problems with certain seeds, where it fails, or takes its whole process down."""

    seeds: frozenset[int]
    deadly: bool = False
    name: ClassVar[str] = "faulty"

    def __call__(self, task: Task) -> UpperBound:
        if task.budget.seed in self.seeds:
            if self.deadly:
                os._exit(9)
            raise LipoptError("no\n luck")
        return SDP(gap=1e-3)(task)


def count_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches of SDPs that are solved from now on."""
    sizes: list[int] = []
    solve = SDP.together

    def together(self: SDP, tasks: list[Task]) -> list[UpperBound]:
        sizes.append(len(tasks))
        return solve(self, tasks)

    monkeypatch.setattr(SDP, "together", together)
    return sizes


def seeds_of(network, points, number: int) -> list[int]:
    """The seeds of the problems of one point."""
    found: list[int] = []

    @dataclass(frozen=True)
    class Listen:
        name: ClassVar[str] = "listen"

        def __call__(self, task: Task) -> UpperBound:
            found.append(task.budget.seed)
            return UpperBound(1e9)

    label = int(network(points[number]).argmax())
    ask = Ask((0.1,), Listen(), margins="all", samples=20)
    answers(network, ask, [Point(number, points[number], label)])
    return found


def test_rows_are_those_of_single_problems(network, points, expected) -> None:
    label = int(network(points[3]).argmax())
    for row in (row for row in expected if row.point == 3):
        i, j = (int(k) for k in row.question.removeprefix("margin ").split(" - "))
        assert i == row.label == label
        single = bound(
            network,
            margin=(i, j),
            domain=Ball(points[3], row.radius),
            method=SDP(gap=1e-3),
            samples=20,
        )
        assert row.upper == pytest.approx(single.upper, rel=2e-3)
        assert row.lower <= row.pop_lower <= row.upper
        assert single.lower <= row.upper * (1 + 1e-9)
        values = network(points[3])
        assert row.margin == pytest.approx(values[i] - values[j])
        assert row.certified == (row.margin > row.radius * row.upper)
    assert len(expected) == POINTS * 2 * 3
    assert {row.certified for row in expected} == {True, False}


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_units_are_those_of_single_problems(network, points, norm, tmp_path: Path) -> None:
    units = np.array([1.0, 100.0, 0.5, 3.0, 0.01, 20.0])
    rows = local_bounds(
        network,
        points[:2] * units,
        0.02,
        margins="runner-up",
        norm=norm,
        ball_norm=norm,
        scale=units,
        certificates=tmp_path,
    )
    stored = lipcheck.network.read_network((tmp_path / "network.safetensors").read_bytes())
    for row, x in zip(rows, points * units, strict=False):
        i, j = (int(k) for k in row.question.removeprefix("margin ").split(" - "))
        ball = Ball(x, 0.02, norm=norm, scale=units)
        single = bound(network, margin=(i, j), norm=norm, domain=ball, scale=units, method="sdp")
        assert row.lower is not None
        assert row.certificate is not None
        assert row.upper == pytest.approx(single.upper, rel=2e-3)
        assert row.lower <= single.upper
        assert row.lower == pytest.approx(single.lower, rel=0.2)
        claim = lipcheck.certificate.check(stored, Path(row.certificate).read_bytes())
        assert claim.bound == row.upper


def test_one_unit_for_all_inputs(network, points) -> None:
    (row,) = local_bounds(network, points[:1], 0.1, output=0, scale=0.5)
    (half,) = local_bounds(network, points[:1], 0.05, output=0)
    assert half.upper is not None
    assert row.upper == pytest.approx(half.upper / 2)


def test_questions(network, points) -> None:
    rows = local_bounds(network, points[:2], 0.05)
    assert [row.question for row in rows] == [f"output {k}" for k in range(4)] * 2
    assert all(row.certified is None and row.upper is not None and row.upper > 0 for row in rows)
    assert [row.question for row in local_bounds(network, points[:2], 0.05, output=2)] == [
        "output 2"
    ] * 2
    first, second = np.argsort(-network(points[0]))[:2]
    (row,) = local_bounds(network, points[:1], 0.05, margins="runner-up")
    assert row.question == f"margin {first} - {second}"
    rows = local_bounds(network, points[:2], 0.05, margins="all", labels=[1, 2], norm="l2")
    assert [row.label for row in rows] == [1] * 3 + [2] * 3
    assert all(row.certified is None for row in rows)


def test_certificates_prove_the_rows(network, points, tmp_path: Path) -> None:
    network.save(tmp_path / "network.safetensors")
    stored = lipcheck.network.read_network((tmp_path / "network.safetensors").read_bytes())
    rows = local_bounds(
        network,
        points[:1],
        (0.4, 0.40000001),
        margins="all",
        certificates=tmp_path / "certificates",
    )
    assert (tmp_path / "certificates" / "network.safetensors").read_bytes() == (
        tmp_path / "network.safetensors"
    ).read_bytes()
    assert len({row.certificate for row in rows}) == 6
    for row in rows:
        assert row.certificate is not None
        claim = lipcheck.certificate.check(stored, Path(row.certificate).read_bytes())
        assert claim.bound == row.upper
    with pytest.raises(LipoptError, match="certificates"):
        local_bounds(network, points[:2], 0.4, certificates=tmp_path / "network.safetensors")
    with pytest.raises(LipoptError, match="holds certificates already"):
        local_bounds(network, points[:2], 0.3, certificates=tmp_path / "certificates")


@pytest.mark.parametrize("method", ["auto", "branch", "lipopt", "path-sum", "product", "sdp"])
def test_every_method_answers_in_a_batch_as_alone(method: str, tmp_path: Path) -> None:
    """Neurons with parallel inputs are merged, and the intervals in the ball are refined."""
    rng = np.random.default_rng(0)
    first = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    weights = [np.concatenate([first, -2 * first]), rng.normal(size=(6, 12)), np.eye(2, 6)]
    network = lipopt.load(weights, biases=[rng.normal(size=n) / 9 for n in (12, 6, 2)])
    x = rng.normal(size=6)
    ball = Ball(x, 0.3)
    rows = local_bounds(network, [x], 0.3, norm="l1", method=method, certificates=tmp_path)
    stored = lipcheck.network.read_network((tmp_path / "network.safetensors").read_bytes())
    for k, row in enumerate(rows):
        asked: dict[str, Any] = {"output": k, "norm": "l1", "domain": ball, "method": method}
        single = bound(network, **asked, certify=True)
        assert row.certificate is not None
        assert row.upper == pytest.approx(single.upper, rel=1e-3)
        assert row.lower is not None
        assert row.lower <= single.upper
        claim = lipcheck.certificate.check(stored, Path(row.certificate).read_bytes())
        assert claim.bound == row.upper


def test_processes_give_the_same_rows(network, points, expected) -> None:
    assert (
        timeless(local_bounds(network, points, (0.05, 0.4), margins="all", samples=20, jobs=2))
        == expected
    )
    shuffled = np.random.default_rng(2).permutation(POINTS)
    rows = local_bounds(network, points[shuffled], 0.4, margins="all", samples=20, jobs=2)
    found = {(int(shuffled[row.point]), row.question): row.upper for row in rows}
    assert found == pytest.approx(
        {(r.point, r.question): r.upper for r in expected if r.radius == 0.4}, rel=2e-3
    )


def test_largest_first(network, points) -> None:
    asked = Run.about(network, points, Ask.of(0.1, **OPTIONS))
    chunks = asked.chunks(2, frozenset({5}))
    assert sorted(number for chunk in chunks for number, _, _ in chunk) == [
        k for k in range(POINTS) if k != 5
    ]
    free = {}
    for k in range(POINTS):
        posed = pose(network, Question.about(network, domain=Ball(points[k], 0.1)))
        free[k] = free_neurons(posed.raw)
    half = [free[number] for chunk in chunks for number, _, _ in chunk]
    assert np.mean(half[: POINTS // 2]) > np.mean(half[POINTS // 2 :])


def test_a_problem_that_fails_leaves_a_row(network, points) -> None:
    seeds = seeds_of(network, points, 1)
    assert len(set(seeds)) == 3
    rows = local_bounds(
        network, points[:3], 0.1, margins="all", samples=20, method=Faulty(frozenset(seeds[:1]))
    )
    assert [row.error for row in rows] == [None] * 3 + ["no luck"] + [None] * 5
    assert rows[3].upper is None
    assert rows[3].certified is None
    (radius,) = summarize(rows, 4).radii
    assert (radius.failed, radius.points) == (1, 3)
    wrong = Ask((0.1,), SDP(), samples="x")  # type: ignore[arg-type]
    for row in answers(network, wrong, [Point(0, points[0], None)]):
        assert row.error is not None
        assert row.error.startswith("TypeError")


@pytest.mark.parametrize("options", [{"margins": "all"}, {"norm": "l2"}])
def test_a_device_solves_points_together(
    network, points, options, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    batches = count_batches(monkeypatch)
    alone = local_bounds(network, points, (0.05, 0.4), samples=20, **options)
    assert set(batches) == {1}
    together = local_bounds(
        network, points, (0.05, 0.4), samples=20, method=SDP(gap=1e-3, device="cpu"), **options
    )
    assert max(batches) > 1
    for a, b in zip(alone, together, strict=True):
        assert (a.point, a.question, a.label, a.margin, a.lower) == (
            b.point,
            b.question,
            b.label,
            b.margin,
            b.lower,
        )
        assert b.error is None
        assert b.radius == pytest.approx(a.radius, rel=2e-3)
        assert a.certified == b.certified
        assert (a.upper is None) == (b.upper is None)
        if a.upper is not None:
            assert b.upper == pytest.approx(a.upper, rel=2e-3)


def test_a_batch_that_fails_is_solved_one_by_one(
    network, points, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    solve = SDP.together

    def no_memory(self: SDP, tasks: list[Task]) -> list[UpperBound]:
        if len(tasks) > 1:
            raise RuntimeError("out of memory")
        return solve(self, tasks)

    monkeypatch.setattr(SDP, "together", no_memory)
    rows = local_bounds(network, points[:4], 0.1, samples=20, method=SDP(gap=1e-3, device="cpu"))
    assert all(row.upper is not None and row.upper > 0 and row.error is None for row in rows)


def test_a_deadly_point_costs_no_other(network, points) -> None:
    method = Faulty(frozenset(seeds_of(network, points, 2)), deadly=True)
    rows = local_bounds(network, points[:6], 0.1, margins="all", samples=20, method=method, jobs=2)
    assert [row.point for row in rows if row.error] == [2] * 3
    assert all("worker died" in row.error for row in rows if row.error)
    assert all(row.upper is not None and row.upper > 0 for row in rows if not row.error)


def run(*arguments: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def wait_for(condition, process: subprocess.Popen) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


SLOWLY = """
import time
from lipopt.methods.sdp.method import SDP

solve = SDP.together

def solve_slowly(self, tasks):
    time.sleep(0.1)
    return solve(self, tasks)

SDP.together = solve_slowly
"""


def slowly(folder: Path) -> dict[str, str]:
    """An environment in which every process, workers too, sleeps before it solves an SDP.

    Python imports a module `sitecustomize` when it starts. Rows are the same; a run of hundreds of
    rows takes many seconds more, so that it is still under way when a signal comes."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SLOWLY)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}


def test_interrupted_and_killed_runs_go_on(network, points, tmp_path: Path) -> None:
    """Ctrl-C, then SIGKILL of the whole run, then to the end: all rows once, and none is solved twice."""
    points = np.tile(points, (5, 1))
    expected = timeless(local_bounds(network, points, (0.05, 0.4), margins="all", samples=20))
    slow = slowly(tmp_path / "slow")
    network.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "x.npy", points)
    results = tmp_path / "r.jsonl"
    command = [
        "lipopt",
        "local",
        str(tmp_path / "model.safetensors"),
        "--data",
        str(tmp_path / "x.npy"),
        "--radius",
        "0.05,0.4",
    ]
    command += [
        "--margins",
        "all",
        "--samples",
        "20",
        "-j",
        "2",
        "-o",
        str(results),
        "--resume",
        "-q",
    ]
    process = run(*command, start_new_session=True, env=slow)
    wait_for(lambda: lines(results) > 1, process)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    assert "--resume" in error
    first = results.read_bytes()
    assert first.endswith(b"\n")
    process = run(*command, start_new_session=True, env=slow)
    wait_for(lambda: lines(results) > first.count(b"\n"), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    second = results.read_bytes()
    assert second.startswith(first)
    process = run(*command)
    assert process.communicate() == ("", "")
    assert results.read_bytes().startswith(second[: second.rfind(b"\n") + 1])
    assert timeless(list(read_rows(results))) == expected
    done = results.read_bytes()
    assert run(*command).communicate() == ("", "")
    assert results.read_bytes() == done


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_worker(by, network, points, tmp_path: Path) -> None:
    network.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "x.npy", np.tile(points, (50, 1)))
    results = tmp_path / "r.jsonl"
    command = [
        "lipopt",
        "local",
        str(tmp_path / "model.safetensors"),
        "--data",
        str(tmp_path / "x.npy"),
        "--radius",
        "0.4",
    ]
    process = run(*command, "-j", "2", "-o", str(results), "-q")
    wait_for(lambda: lines(results) > 1, process)
    process.send_signal(by)
    _, error = process.communicate(timeout=60)  # which waits for all that hold the pipes
    assert (process.returncode, "--resume" in error) == (
        (130, True) if by == signal.SIGTERM else (-by, False)
    )


def test_a_torn_end_is_repaired(network, points, tmp_path: Path) -> None:
    question: dict[str, Any] = {"radius": (0.05, 0.4), "output": 1, "samples": 20}
    path = tmp_path / "r.jsonl"
    rows = timeless(local_bounds(network, points[:3], path=path, **question))
    whole = path.read_bytes()
    ends = [k + 1 for k, byte in enumerate(whole) if byte == 10]
    for cut in (
        0,
        5,
        ends[0],
        ends[0] + 7,
        ends[1],
        ends[2] - 1,
        ends[2],
        ends[4] + 30,
        len(whole),
    ):
        path.write_bytes(whole[:cut])
        assert (
            timeless(local_bounds(network, points[:3], path=path, resume=True, **question)) == rows
        ), cut
        assert lines(path) == len(rows) + 1, cut
    for damaged in (
        whole.replace(b'"point": ', b'"pint": ', 1),
        b"".join(whole.splitlines(True)[k] for k in (0, 1, 3, 4, 5, 6)),
    ):
        path.write_bytes(damaged)
        with pytest.raises(LipoptError, match="damaged at line"):
            local_bounds(network, points[:3], path=path, resume=True, **question)
        assert path.read_bytes() == damaged


def long_run(network, points, tmp_path: Path) -> tuple[list[str], Path]:
    """A command that takes a while, and its results file."""
    network.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "x.npy", np.tile(points, (10, 1)))
    results = tmp_path / "r.jsonl"
    command = [
        "lipopt",
        "local",
        str(tmp_path / "model.safetensors"),
        "--data",
        str(tmp_path / "x.npy"),
    ]
    command += ["--radius", "0.4", "--margins", "all", "--samples", "20", "-j", "2"]
    return [*command, "-o", str(results), "--resume", "-q"], results


def test_a_second_run_on_the_same_file_is_refused(network, points, tmp_path: Path) -> None:
    """While the first goes on; and it is refused no longer once the first is killed."""
    command, results = long_run(network, points, tmp_path)
    first = run(*command)
    wait_for(lambda: lines(results) > 1, first)
    os.kill(first.pid, signal.SIGSTOP)  # so that it does not end before the second starts
    before = results.read_bytes()
    second = run(*command)
    _, error = second.communicate(timeout=120)
    assert second.returncode == 2
    assert "another run is writing" in error
    assert error.count("\n") == 1
    assert results.read_bytes() == before
    with pytest.raises(LipoptError, match="another run is writing"):
        Records.resume(results, {}, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model.safetensors",
        "r.jsonl",
        "x.npy",
    ]
    first.kill()
    first.communicate(timeout=120)
    assert run(*command).communicate(timeout=300) == ("", "")
    found = [(row.point, row.question) for row in read_rows(results)]
    assert len(set(found)) == len(found) == 10 * POINTS * 3


def test_runs_that_race_for_a_file_lose_no_row(network, points, tmp_path: Path) -> None:
    command, results = long_run(network, points, tmp_path)
    processes = [run(*command) for _ in range(3)]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert 0 in codes
    assert all(
        code == 0 or "another run is writing" in error
        for code, error in zip(codes, errors, strict=True)
    )
    found = [(row.point, row.question) for row in read_rows(results)]
    assert len(set(found)) == len(found) == 10 * POINTS * 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"upper": ', b'"upper": NaN, "lower": ', "upper is nan"),
        (b'"upper": ', b'"upper": 1e999, "lower": ', "upper is inf"),
        (b'"upper": ', b'"upper": "1", "lower": ', "upper is '1'"),
        (b'"seconds": ', b'"seconds": -', "negative"),
        (b'"point": 1', b'"point": 7', "no point 7"),
        (b'"point": 1', b'"point": -1', "no point -1"),
        (b'"point": 1', b'"point": true', "point is True"),
        (b'"point": 1', b'"point": 1.0', "point is 1.0"),
        (b'"point": 1', b'"point": 2', "not complete"),
        (b'"radius": 0.4', b'"radius": 0.05', "there already"),
        (b'"radius": 0.4', b'"radius": null', "radius is None"),
        (b'"question": "output 1"', b'"question": 1', "question is 1"),
        (b'"error": null', b'"error": []', r"error is \[\]"),
        (b'"error": null', b'"error": null, "more": 1', "fields of a row"),
        (b'"error": null', b'"error": ' + b"[" * 100_000 + b"]" * 100_000, "not JSON"),
        (b'{"point"', b'["point"', "not JSON"),
    ],
)
def test_rows_are_checked_before_a_run_goes_on(
    network, points, tmp_path: Path, old, new, message: str
) -> None:
    path = tmp_path / "r.jsonl"
    question: dict[str, Any] = {
        "radius": (0.05, 0.4),
        "output": 1,
        "samples": 20,
        "method": "path-sum",
        "path": path,
    }
    local_bounds(network, points[:3], **question)
    content = path.read_bytes().splitlines(keepends=True)
    place = next(k for k, line in enumerate(content) if b'"point": 1, "radius": 0.4' in line)
    assert 1 < place < len(content) - 1
    assert old in content[place]
    content[place] = content[place].replace(old, new)
    damaged = b"".join(content)
    path.write_bytes(damaged)
    with pytest.raises(LipoptError, match=rf"damaged at line {place + 1}: .*{message}"):
        local_bounds(network, points[:3], resume=True, **question)
    assert path.read_bytes() == damaged


def test_a_point_that_is_there_twice_is_damage(network, points, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    question: dict[str, Any] = {
        "radius": (0.05, 0.4),
        "output": 1,
        "samples": 20,
        "method": "path-sum",
        "path": path,
    }
    local_bounds(network, points[:3], **question)
    content = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(content + content[1:3]))
    with pytest.raises(LipoptError, match=r"damaged at line 8: .*there already"):
        local_bounds(network, points[:3], resume=True, **question)


def test_a_file_in_a_folder_that_cannot_be_written_is_resumed(
    network, points, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "r.jsonl"
    question: dict[str, Any] = {"radius": 0.4, "output": 1, "samples": 20, "path": path}
    rows = local_bounds(network, points[:2], **question)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    folder.chmod(0o500)
    try:
        assert timeless(local_bounds(network, points[:2], resume=True, **question)) == timeless(
            rows
        )
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": lipopt.load([np.ones((4, 6))])}, "another network"),
        ({"first": 2}, "other data"),
        ({"radius": 0.2}, "radii"),
        ({"seed": 1}, "seed 0, now 1"),
        ({"method": "path-sum"}, "method"),
    ],
)
def test_rows_of_another_question_are_left_alone(
    network, points, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "r.jsonl"

    def ask(source=network, first=0, radius=0.1, **options: Any) -> None:
        local_bounds(source, points[first : first + 2], radius, output=0, path=path, **options)

    ask()
    before = path.read_bytes()
    with pytest.raises(LipoptError, match=message):
        ask(**changes, resume=True)
    with pytest.raises(LipoptError, match="--resume"):
        ask()
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["something else\n", "something else", "[1]\n"])
def test_a_file_of_something_else_is_left_alone(network, points, tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    with pytest.raises(LipoptError, match="no results file"):
        local_bounds(network, points[:2], 0.1, output=0, path=path, resume=True)
    assert path.read_text() == text


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(LipoptError, match="cannot write"):
        Records.create(tmp_path / "missing" / "r.jsonl", {})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen]]]:
    """A Dask scheduler and two worker processes on the loopback interface."""
    file = tmp_path / "scheduler.json"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)]),
    }
    options: dict[str, Any] = {"env": environment, "cwd": tmp_path}
    scheduler = run(
        "dask",
        "scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
        "--scheduler-file",
        str(file),
        **options,
    )
    processes = [scheduler]
    try:
        wait_for(file.exists, scheduler)
        worker = (
            "dask",
            "worker",
            "--scheduler-file",
            str(file),
            "--host",
            "127.0.0.1",
            "--nthreads",
            "1",
            "--no-nanny",
            "--no-dashboard",
        )
        processes += [run(*worker, **options) for _ in range(2)]
        address = json.loads(file.read_text())["address"]
        from distributed import Client

        with Client(address) as client:
            client.wait_for_workers(2)
        yield address, processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_cluster_gives_the_same_rows_and_loses_none_with_a_worker(
    network, points, expected, cluster, tmp_path: Path
) -> None:
    address, workers = cluster
    question: dict[str, Any] = {
        "radius": (0.05, 0.4),
        "margins": "all",
        "samples": 20,
        "cluster": address,
        "path": tmp_path / "r.jsonl",
    }

    def kill_one(done: int, failed: int, total: int) -> None:
        if done and workers[0].poll() is None:
            workers[0].kill()
            workers[0].wait()

    rows = local_bounds(network, points, progress=kill_one, **question)
    assert workers[0].poll() == -signal.SIGKILL
    assert timeless(rows) == expected


def test_a_run_on_a_cluster_is_killed_and_goes_on(
    network, points, expected, cluster, tmp_path: Path
) -> None:
    network.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "x.npy", points)
    results = tmp_path / "r.jsonl"
    command = [
        "lipopt",
        "local",
        str(tmp_path / "model.safetensors"),
        "--data",
        str(tmp_path / "x.npy"),
        "--radius",
        "0.05,0.4",
    ]
    command += [
        "--margins",
        "all",
        "--samples",
        "20",
        "--cluster",
        cluster[0],
        "-o",
        str(results),
        "--resume",
        "-q",
    ]
    process = run(*command)
    wait_for(lambda: lines(results) > 1, process)
    process.kill()
    process.communicate()
    before = results.read_bytes()
    assert run(*command).communicate() == ("", "")
    assert results.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert timeless(list(read_rows(results))) == expected


def test_a_cluster_that_is_not_there(
    network, points, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lipopt.batch.engines.CONNECT_SECONDS", 0.5)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(LipoptError, match="no Dask scheduler"):
            local_bounds(network, points, 0.1, cluster=address, path=tmp_path / "r.jsonl")
    assert not (tmp_path / "r.jsonl").exists()


def test_reading(tmp_path: Path, network) -> None:
    x = np.arange(12.0).reshape(2, 6)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "one.npz", whatever=x)
    np.savez(tmp_path / "two.npz", images=x, labels=[1, 2])
    np.savetxt(tmp_path / "x.csv", x, delimiter=",")
    idx = b"\0\0\x08\x03" + np.array([2, 2, 3], ">i4").tobytes() + bytes(range(12))
    (tmp_path / "x-idx3-ubyte").write_bytes(idx)
    (tmp_path / "x-idx3-ubyte.gz").write_bytes(gzip.compress(idx))
    for name in ("x.npy", "one.npz", "two.npz", "x.csv", "x-idx3-ubyte", "x-idx3-ubyte.gz"):
        found = check_points(network, read_points(tmp_path / name))
        np.testing.assert_array_equal(found, x, err_msg=name)
    assert read_labels(tmp_path / "two.npz").tolist() == [1, 2]
    np.savez(tmp_path / "bad.npz", a=x, b=x)
    (tmp_path / "torn-idx").write_bytes(idx[:-1])
    (tmp_path / "torn.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-9])
    for name in ("missing.npy", "r.jsonl"):
        with pytest.raises(LipoptError, match=f"no such file: .*{name}"):
            read_points(tmp_path / name)
    for name, message in {
        "bad.npz": "holds the arrays a, b",
        "torn-idx": "cannot reshape array of size 11",
        "torn.npy": "expected 96 bytes got 87",
    }.items():
        with pytest.raises(LipoptError, match=rf"cannot read numbers from .*{name}.*{message}"):
            read_points(tmp_path / name)


@pytest.fixture
def call(run, monkeypatch: pytest.MonkeyPatch, network, points, tmp_path: Path):
    """The command line, in a folder with a model and data."""
    monkeypatch.chdir(tmp_path)
    network.save("model.safetensors")
    np.save("x.npy", points[:4])
    np.save("y.npy", network(points[:4]).argmax(axis=1))
    return partial(run, "local", "model.safetensors")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip": (0, 1, 2)}, "clip is a pair of numbers"),
        ({"clip": 5}, "clip is a pair of numbers"),
        ({"clip": (1, 0)}, "clip needs low <= high"),
        ({"output": "all"}, "an output is a number"),
        ({"samples": 10.5}, "the number of samples"),
        ({"seed": 1.5}, "the seed"),
        ({"time_limit": "a"}, "the time limit"),
        ({"jobs": 1.5}, "the number of jobs"),
    ],
)
def test_bad_types_in_python(network, points, options: dict[str, Any], message: str) -> None:
    with pytest.raises(LipoptError, match=message):
        local_bounds(network, points[:2], 0.1, **options)


def test_command_line(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipopt.progress.EVERY", 0.0)
    question = (
        "--data",
        "x.npy",
        "--radius",
        "0.05,0.4",
        "--margins",
        "all",
        "--labels",
        "y.npy",
        "-j",
        "1",
    )
    code, out, err = call(*question, "-o", "r.jsonl", "--plot", "h.png")
    assert code == 0
    assert "certified" in out
    assert "24 of 24 done, 0 failed" in err
    assert Path("h.png").stat().st_size > 1000
    code, out, _ = call(*question, "-o", "r.jsonl", "--resume", "--json", "--quiet")
    summary = json.loads(out)
    assert [r["points"] for r in summary["radii"]] == [4, 4]
    assert summary["radii"][0]["certified"] >= summary["radii"][1]["certified"]
    assert summary["unfinished"] == 0
    code, out, _ = call(
        *question, "-o", "t.jsonl", "--time-limit", "1e-6", "-j", "1", "--radius", "0.4"
    )
    assert "problems ended at the time limit" in out
    assert call(
        "--data",
        "x.npy",
        "--radius",
        "0.1",
        "-k",
        "0",
        "--points",
        "1:3",
        "-o",
        "s.jsonl",
        "-q",
        "-j",
        "1",
    ) == (
        0,
        "",
        "",
    )
    assert [row.point for row in read_rows("s.jsonl")] == [1, 2]
    assert (
        call(
            "--data",
            "x.npy",
            "--radius",
            "0.1",
            "-k",
            "0",
            "--points",
            "2:",
            "-o",
            "e.jsonl",
            "-q",
            "-j",
            "1",
        )[0]
        == 0
    )
    assert sorted(row.point for row in read_rows("e.jsonl")) == [2, 3]


def test_problems_that_fail_show_in_the_exit_code(call) -> None:
    code, out, _ = call(
        "--data",
        "x.npy",
        "--radius",
        "0.1",
        "-m",
        "shor",
        "--norm",
        "l1",
        "-o",
        "f.jsonl",
        "-j",
        "1",
    )
    assert code == 1
    assert "16 problems failed" in out
    assert "'shor' takes one output" in out


@pytest.fixture
def call_with_wrong_points(call):
    """Half of the points, and their labels, are wrong."""
    wrong = np.load("x.npy")
    wrong[0], wrong[3] = np.nan, 9.0
    np.save("wrong.npy", wrong)
    np.save("labels.npy", [9, 1, 2, 9])
    options = "--labels labels.npy --margins all --radius 0.1 --clip -5,5 -q -j 1"
    return partial(call, "--data", "wrong.npy", *options.split())


def test_points_that_are_not_asked_for_are_not_checked(call_with_wrong_points) -> None:
    assert call_with_wrong_points("--points", "1:3", "-o", "w.jsonl") == (0, "", "")


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("0:2", "point 0 of the data"),
        ("2:4", "point 3"),
        ("4:", "no points 4:"),
        ("2:1", "no points 2:1"),
    ],
)
def test_points_that_are_asked_for_are_checked(
    call_with_wrong_points, chosen: str, message: str
) -> None:
    code, _, err = call_with_wrong_points("--points", chosen, "-o", "v.jsonl")
    assert (code, message in err) == (2, True), err


@pytest.fixture
def call_among_bad_files(call, points):
    """Beside the model and the data, data and labels that are not what they should be."""
    np.save("narrow.npy", points[:, :5])
    np.save("nan.npy", np.where(np.arange(6) == 2, np.nan, points))
    np.save("words.npy", np.array([["a"] * 6]))
    Path("empty.csv").touch()
    np.save("y9.npy", np.array([0, 1, 2, 9]))
    np.save("y3.npy", np.array([0, 1, 2]))
    np.save("units3.npy", np.array([1.0, 2.0, 3.0]))
    np.save("half.npy", np.array([0, 1, 2, 0.5]))
    return call


ASKED = "--data x.npy --radius 0.1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--data missing.npy --radius 0.1", "no such file: missing.npy"),
        ("--data narrow.npy --radius 0.1", "the data has shape (16, 5)"),
        ("--data nan.npy --radius 0.1", "point 0 of the data is NaN"),
        ("--data words.npy --radius 0.1", "type <U1"),
        ("--data empty.csv --radius 0.1", "it is empty"),
        ("--data x.npy --radius=", "give a radius"),
        ("--data x.npy --radius 0.1,0.1", "0.1 is given twice"),
        ("--data x.npy --radius -1", "the radius must be a finite number >= 0, got -1"),
        ("--data x.npy --radius nan", "the radius must be a finite number >= 0, got nan"),
        ("--data x.npy --radius 0.1;0.2", "--radius takes numbers with commas"),
        (f"{ASKED} --labels y.npy", "labels go with margins"),
        (f"{ASKED} --margins all --labels y9.npy", "label 9 of point 3 is out of range"),
        (f"{ASKED} --margins all --labels y3.npy", "the labels have shape (3,)"),
        (f"{ASKED} --margins all --labels half.npy", "the labels must be whole numbers"),
        (f"{ASKED} --margins all -k 1", "one output or for margins"),
        (f"{ASKED} -k 4", "output 4 is out of range"),
        (f"{ASKED} -m path-sum --gap 0.1", "no setting 'gap'"),
        (f"{ASKED} --clip 0,1", "outside the clip range"),
        (f"{ASKED} --scale units3.npy", "the scale has 3 entries"),
        (f"{ASKED} --scale x.npy", "the scale must be positive"),
        (f"{ASKED} --points 2:9", "there are no points 2:9"),
        (f"{ASKED} --points 2", "--points takes two numbers"),
        (f"{ASKED} --method nope", "unknown method 'nope'"),
        (f"{ASKED} --samples 0", "the number of samples must be"),
        (f"{ASKED} --time-limit 0", "the time limit must be"),
        (f"{ASKED} --jobs -1", "the number of jobs must be"),
        (f"{ASKED} --plot picture.nope", "cannot draw a picture 'picture.nope'"),
        (f"{ASKED} --plot no/folder.png", "there is no folder no"),
        (f"{ASKED} --divide 0", "divided by a positive number"),
        (f"{ASKED} --cluster nonsense://1", "no Dask scheduler answers"),
    ],
)
def test_bad_input_is_one_line_before_anything_runs(
    call_among_bad_files, arguments: str, message: str
) -> None:
    code, out, err = call_among_bad_files(*arguments.split(), "-o", "r.jsonl")
    assert (code, out) == (2, "")
    assert err.startswith("lipopt: ")
    assert err.count("\n") == 1
    assert message in err
    assert not Path("r.jsonl").exists()


def test_the_picture_and_the_rows_are_two_files(call) -> None:
    code, _, err = call(*ASKED.split(), "-o", "r.png", "--plot", "r.png")
    assert code == 2
    assert "cannot be both the picture and the file for the rows" in err


def test_rows_of_another_network_are_not_resumed(call, network) -> None:
    question = (*ASKED.split(), "-k", "0", "-o", "other.jsonl", "-j", "1")
    call(*question)
    rows = Path("other.jsonl").read_bytes()
    Path("other.jsonl").write_bytes(rows.replace(network.hash.encode(), b"0" * 64))
    code, _, err = call(*question, "--resume")
    assert code == 2
    assert "another network" in err


def test_rows_of_other_points_are_not_resumed(call) -> None:
    asked = [*ASKED.split(), "-k", "0", "-j", "1", "-o", "points.jsonl"]
    assert call(*asked, "--points", "0:2")[0] == 0
    code, _, err = call(*asked, "--points", "0:3", "--resume")
    assert code == 2
    assert "is about the points 0 to 1, now 0 to 2; write to another file" in err
