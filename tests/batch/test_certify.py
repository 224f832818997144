"""certify(): classes of many points, in Python and on the command line."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import gaussian_weights

import lipcheck.certificate
import lipcheck.network
import lipopt
from lipcheck.theorem import theorem
from lipopt import LipoptError, certified_radius, certify
from lipopt.batch.results_file import read_rows
from lipopt.batch.verdict_summary import summarize_verdicts
from lipopt.batch.verdicts import CERTIFIED_RADIUS, Verdict
from lipopt.examples import digits, example

RADII = (0.1, 0.5, 1.0)
POINTS = 6


@pytest.fixture(scope="module")
def network() -> lipopt.Network:
    rng = np.random.default_rng(0)
    sizes = [6, 20, 20, 3]
    biases = [rng.normal(size=size) for size in sizes[1:]]
    return lipopt.load(gaussian_weights(sizes, seed=0), biases=biases)


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(POINTS, 6))


@pytest.fixture(scope="module")
def labels(network, points) -> np.ndarray:
    """The classes, but for the first point."""
    found = network(points).argmax(axis=1)
    found[0] = (found[0] + 1) % 3
    return np.asarray(found)


@pytest.fixture(scope="module")
def verdicts(network, points, labels) -> list[Verdict]:
    return certify(network, points, RADII, labels=labels, cells=100)


def timeless(rows: list[Verdict]) -> list[Verdict]:
    return [replace(row, seconds=0.0) for row in rows]


def test_verdicts_are_right(network, points, labels, verdicts) -> None:
    rng = np.random.default_rng(2)
    balls = [row for row in verdicts if row.question == "class"]
    assert [(row.point, row.radius) for row in balls] == [
        (point, radius) for point in range(POINTS) for radius in RADII
    ]
    assert {row.status for row in balls} >= {"certified", "broken"}
    for row in balls:
        assert row.error is None
        assert row.label == labels[row.point]
        x = points[row.point]
        if row.status == "certified":
            inside = x + row.radius * rng.choice([-1.0, 0.0, 1.0], (2000, 6))
            assert (network(inside).argmax(axis=1) == row.label).all()
            assert row.margin is not None
            assert row.margin > 0
        if row.status == "broken":
            found = np.array(row.counterexample)
            assert (np.abs(found - x) <= row.radius).all()
            assert network(found).argmax() == row.against != row.label
    assert {row.proof for row in balls if row.point == 0} == {"center"}


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_certified_radii_of_small_networks_are_exact(activation: str, norm: Any) -> None:
    """Up to one percent: there is an input with another class just above."""
    rng = np.random.default_rng(4)
    weights = gaussian_weights([2, 8, 3], seed=4)
    biases = [rng.normal(size=8) / 2, rng.normal(size=3) / 4]
    points = rng.normal(size=(2, 2))
    network = lipopt.load(weights, biases=biases, activation=activation)
    for row in certify(network, points, certified_radius=True, norm=norm):
        assert row.radius > 0
        if row.radius < 1:
            assert row.broken_radius is not None
            assert row.broken_radius <= 1.01 * row.radius


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_units_are_those_of_a_network_that_counts_in_them(norm: Any, tmp_path: Path) -> None:
    units = np.array([1.0, 100.0, 0.01, 5.0])
    weights = gaussian_weights([4, 12, 3], seed=3)
    points = np.random.default_rng(4).normal(size=(4, 4))
    plain = lipopt.load(weights)
    scaled = lipopt.load([weights[0] / units, weights[1]])
    radii = (0.05, 0.3, 1.0)
    folder = tmp_path / norm
    expected = certify(plain, points, radii, norm=norm)
    found = certify(scaled, points * units, radii, norm=norm, scale=units, certificates=folder)
    assert [row.status for row in found] == [row.status for row in expected]
    assert {row.status for row in found} == {"certified", "broken"}
    stored = lipcheck.network.read_network((folder / "network.safetensors").read_bytes())
    order = {"linf": np.inf, "l2": 2, "l1": 1}[norm]
    for row in found:
        if row.status == "certified":
            assert row.certificate is not None
            lipcheck.certificate.check(stored, Path(row.certificate).read_bytes())
        else:
            assert row.counterexample is not None
            x = np.array(row.counterexample)
            assert scaled(x).argmax() != row.label
            distance = np.linalg.norm(x / units - points[row.point], order)
            assert distance <= row.radius * (1 + 1e-12)
    label = int(plain(points[0]).argmax())
    assert certified_radius(
        scaled, points[0] * units, label, norm=norm, scale=units
    ) == pytest.approx(certified_radius(plain, points[0], label, norm=norm), rel=1e-2)


def test_certified_and_broken_radii_meet(network, points, labels, verdicts) -> None:
    rows = certify(network, points[:4], labels=labels[:4], certified_radius=True, cells=8)
    assert [row.question for row in rows] == [CERTIFIED_RADIUS] * 4
    assert rows[0].radius == 0
    statuses = {(row.point, row.radius): row.status for row in verdicts}
    for row in rows[1:]:
        assert 0 < row.radius <= 1
        assert row.broken_radius is None or row.radius < row.broken_radius
        for radius in RADII:
            if radius <= row.radius:
                assert statuses[row.point, radius] == "certified"
    alone = certified_radius(network, points[1], int(labels[1]), cells=8)
    assert alone == pytest.approx(rows[1].radius, rel=1e-6)


def test_processes_and_files_give_the_same_rows(
    network, points, labels, verdicts, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    options: dict[str, Any] = {"labels": labels, "cells": 100}
    rows = certify(network, points, RADII, jobs=2, path=path, **options)
    assert [row.status for row in rows] == [row.status for row in verdicts]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]))
    again = certify(network, points, RADII, path=path, resume=True, **options)
    assert [row.status for row in again] == [row.status for row in verdicts]
    with pytest.raises(LipoptError, match="other labels"):
        certify(network, points, RADII, path=path, resume=True, cells=100)
    with pytest.raises(LipoptError, match="rows of another command"):
        lipopt.local_bounds(network, points, 0.1, path=path, resume=True)
    broken = lines[1].replace('"counterexample": null', '"counterexample": ["x"]')
    broken = broken.replace('"counterexample": [', '"counterexample": ["x", ')
    path.write_text(lines[0] + broken + "".join(lines[2:]))
    with pytest.raises(LipoptError, match="damaged at line 2: counterexample"):
        list(read_rows(path))


def test_certificates_prove_the_balls(network, points, tmp_path: Path) -> None:
    rows = certify(
        network,
        points,
        (0.1, 0.5),
        certified_radius=True,
        certificates=tmp_path / "proofs",
        cells=100,
    )
    assert {row.question for row in rows if row.certificate} == {"class", "certified radius"}
    stored = lipcheck.network.read_network((tmp_path / "proofs/network.safetensors").read_bytes())
    assert {row.proof for row in rows} >= {"linear", "branching"}
    for row in rows:
        assert (row.certificate is not None) == (row.status == "certified")
        if row.certificate is None:
            continue
        claim = lipcheck.certificate.check(stored, Path(row.certificate).read_bytes())
        assert claim.is_on_values
        words = theorem(claim, most=5)
        assert words.startswith("each of ")
        assert " is at least " in words
        assert row.label is not None
        assert claim.bound > 0
        assert row.margin is None or claim.bound <= row.margin
        assert len(claim.rows) == 2
        for other in claim.rows:
            assert other[row.label] == 1
            assert sum(other.values()) == 0
        assert claim.box is not None
        low, high = (np.array(ends, dtype=float) for ends in claim.box)
        assert (low <= points[row.point] - row.radius).all()
        assert (points[row.point] + row.radius <= high).all()


def test_digits() -> None:
    """Inputs that break a class lie in the clip range; the pruned MNIST network."""
    network, (images, labels) = example("pruned"), digits()
    rows = certify(network, images[:10], (0.01, 0.05), labels=labels[:10], clip=(0, 1), cells=20)
    assert {row.error for row in rows} == {None}
    for row in rows:
        if row.counterexample is not None:
            found = np.array(row.counterexample)
            assert found.min() >= 0
            assert found.max() <= 1
    summary = summarize_verdicts(rows)
    assert summary.radii[0].certified > summary.radii[1].certified
    assert summary.radii[0].broken < summary.radii[1].broken


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": ()}, "give a radius"),
        ({"radius": "x"}, "a radius is a number"),
        ({"radius": -1.0}, "the radius must be a finite number"),
        ({"radius": (0.1, 0.1)}, "0.1 is given twice"),
        ({"cells": -1}, "the number of cells"),
        ({"cells": 1.5}, "the number of cells"),
        ({"device": "meta"}, "device 'meta' is not available"),
        ({"scale": [1.0, 2.0]}, "the scale has 2 entries"),
        ({"scale": 0.0}, "the scale must be positive"),
        ({"clip": (1, 0)}, "clip needs low <= high"),
        ({"clip": (0, 1)}, "outside the clip range"),
        ({"labels": [0, 9]}, "label 9 of point 1 is out of range"),
        ({"time_limit": -1}, "the time limit"),
        ({"seed": 1.5}, "the seed"),
        ({"jobs": 0}, "the number of jobs"),
    ],
)
def test_bad_input(network, points, options: dict[str, Any], message: str) -> None:
    given = {"radius": 0.1, **options}
    with pytest.raises(LipoptError, match=message):
        certify(network, points[:2], **given)


def test_a_network_of_one_output_or_one_that_overflows(points) -> None:
    with pytest.raises(LipoptError, match="two outputs"):
        certify(gaussian_weights([6, 3, 1]), points, 0.1)
    large = lipopt.load([np.full((2, 6), 1e308), np.array([[1e10, 0.0], [0.0, 1.0]])])
    rows = certify(large, np.ones((2, 6)), 0.1, labels=[0, 1], certified_radius=True)
    assert {row.error for row in rows} == {"the network's outputs overflow at this point"}
    assert summarize_verdicts(rows).failed == 4


@pytest.fixture
def call(run, monkeypatch: pytest.MonkeyPatch, network, points, labels, tmp_path: Path):
    """The command line, in a folder with a model and data."""
    monkeypatch.chdir(tmp_path)
    network.save("model.safetensors")
    np.save("x.npy", points)
    np.save("y.npy", labels)
    return partial(run, "certify", "model.safetensors", "--data", "x.npy", "--labels", "y.npy")


def test_command_line(call, verdicts) -> None:
    question = ["--radius", "0.1,0.5,1.0", "--cells", "100", "-j", "1", "-o", "r.jsonl"]
    code, out, _ = call(*question, "--plot", "curve.png")
    assert code == 0
    assert "branching" in out
    assert Path("curve.png").stat().st_size > 1000
    code, out, _ = call(*question, "--resume", "--json")
    summary = json.loads(out)
    expected = summarize_verdicts(verdicts)
    assert [entry["certified"] for entry in summary["radii"]] == [
        entry.certified for entry in expected.radii
    ]
    for entry in summary["radii"]:
        assert entry["points"] == 6
        assert entry["right"] == 5
        assert entry["certified"] + entry["broken"] + entry["open"] == 6
        assert sum(entry["proofs"].values()) == entry["certified"]
    radii = [
        "--certified-radius",
        "--points",
        "0:3",
        "--cells",
        "0",
        "-j",
        "1",
        "-o",
        "radii.jsonl",
        "--plot",
        "r.png",
    ]
    code, out, _ = call(*radii)
    assert code == 0
    assert "2 of 3 points have one" in out
    assert Path("r.png").stat().st_size > 1000


def test_verdicts_without_a_file_are_shown(call, verdicts) -> None:
    code, out, _ = call("--radius", "0.5", "--cells", "100", "-j", "1", "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    asked = [v for v in verdicts if v.radius == 0.5 and v.question == "class"]
    assert [row["status"] for row in rows] == [verdict.status for verdict in asked]
    code, out, _ = call("--radius", "0.5", "--cells", "100", "-j", "1")
    assert code == 0
    for verdict in verdicts:
        if verdict.radius == 0.5 and verdict.question == "class":
            assert re.search(rf"{verdict.point}\s+\d\s+class\s+0\.5\s+{verdict.status}", out)


def test_command_line_certificates(call, run) -> None:
    code, _, _ = call(
        "--certified-radius",
        "--cells",
        "20",
        "--certificates",
        "proofs",
        "-o",
        "r.jsonl",
        "-q",
        "-j",
        "1",
    )
    assert code == 0
    row = next(row for row in read_rows("r.jsonl") if row.certificate is not None)
    assert row.radius > 0
    code, _, _ = run("check", "model.safetensors", row.certificate)
    assert code == 0


def test_failures_show_in_the_exit_code(
    run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    weights = [np.full((2, 2), 1e308), np.array([[1e10, 0.0], [0.0, 1.0]])]
    lipopt.load(weights).save("large.safetensors")
    np.save("x.npy", np.ones((1, 2)))
    question = [
        "large.safetensors",
        "--data",
        "x.npy",
        "--radius",
        "0.1",
        "-o",
        "r.jsonl",
        "-j",
        "1",
    ]
    code, out, _ = run("certify", *question)
    assert code == 1
    assert "1 problems failed" in out
