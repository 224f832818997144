"""Methods of other packages: a small package is installed in a folder, with the metadata that pip writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lipopt
from lipopt.methods.registry import find_method, method_names

MODULE = '''
from dataclasses import dataclass
from typing import ClassVar

from lipopt.methods.baselines import path_sum_bound
from lipopt.problem.task import Task, UpperBound


@dataclass(frozen=True)
class Times:
    """Some multiple of the path sum."""

    factor: int = 2
    name: ClassVar[str] = "times"

    def __call__(self, task: Task) -> UpperBound:
        return UpperBound(self.factor * path_sum_bound(task.problem))
'''
WEIGHTS = [np.array([[1.0, -1.0], [2.0, 1.0]]), np.array([[1.0, -1.0]])]


def install(folder: Path, entry_points: str) -> None:
    """Write a package and its metadata."""
    (folder / "lipopt_times.py").write_text(MODULE)
    metadata = folder / "lipopt_times-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lipopt-times\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[lipopt.methods]\n{entry_points}\n")


def test_a_method_of_another_package_has_a_name(tmp_path: Path, monkeypatch) -> None:
    install(tmp_path, "times = lipopt_times:Times")
    assert "times" not in method_names()
    monkeypatch.syspath_prepend(tmp_path)
    assert "times" in method_names()
    path_sum = lipopt.bound(WEIGHTS, method="path-sum").upper
    assert lipopt.bound(WEIGHTS, method="times").upper == 2 * path_sum
    assert lipopt.bound(WEIGHTS, method="times-3").upper == 3 * path_sum
    results = lipopt.compare(WEIGHTS)
    assert [result.method for result in results][-1] == "times"
    with pytest.raises(lipopt.LipoptError, match=r"use one of .*times"):
        find_method("tines")


def test_a_method_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch) -> None:
    install(tmp_path, "times = lipopt_times:Gone")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(lipopt.LipoptError, match="'times' of the package lipopt-times cannot be"):
        find_method("times")


def test_it_appears_in_the_command_line(tmp_path: Path) -> None:
    """In `compare`, and in what a shell offers after --method."""
    install(tmp_path, "times = lipopt_times:Times")
    model = tmp_path / "model.safetensors"
    lipopt.load(WEIGHTS).save(model)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    out = lipopt_command(["compare", str(model), "--json"], environment)
    assert json.loads(out)[-1]["method"] == "times"
    completion = {
        "_LIPOPT_COMPLETE": "complete_bash",
        "COMP_WORDS": "lipopt bound --method t",
        "COMP_CWORD": "3",
    }
    assert lipopt_command([], {**environment, **completion}).split() == ["times"]


def lipopt_command(arguments: list[str], environment: dict[str, str]) -> str:
    """What the program prints, started as the script that pip installs starts it."""
    start = "import sys; sys.argv[0] = 'lipopt'; from lipopt.cli.app import main; main()"
    command = [sys.executable, "-c", start, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout
