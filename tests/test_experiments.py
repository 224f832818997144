"""The experiments in their smallest form: they run, their tables satisfy lower <= POP lower <= upper, and they can be resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import lipopt

pytest.importorskip("experiments", reason="runs from the repository alone")

from experiments.__main__ import main
from experiments.networks import DENSE, random_network
from experiments.pattern_pictures import convolution, sets_of
from experiments.table import Setup, fill, read
from experiments.verify import run as verify
from experiments.verify import violations


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    main(["all", "--tiny", "--results", str(folder), "--jobs", "1"])
    return folder


def test_all_run_and_verify(results: Path) -> None:
    tables = {path.stem for path in results.glob("*.csv")}
    training = {"training", "training_policy"}
    others = {"certified_digits", "sizes", *training}
    assert tables == {"random", "trained", "local_random", "local_digits", *others}
    figures = {path.stem for path in results.glob("*.png")}
    depths = {
        f"random_{hidden}hidden_{what}" for hidden in (1, 2) for what in ("error", "time", "values")
    }
    trained = {"training_constant", "training_certified"}
    pictures = {"pattern_depth3", "pattern_pyramid", "sizes", "local", "certified_digits"}
    assert figures == {*pictures, *depths, *trained}
    for name in tables - others:
        assert violations(read(results / f"{name}.csv")) == []
    assert "| LiPopt-3 |" in (results / "trained.md").read_text()
    assert "| dense | SDP |" in (results / "training.md").read_text()


def test_a_finished_table_is_not_computed_again(results: Path) -> None:
    before = (results / "random.csv").read_bytes()
    main(["random", "--tiny", "--results", str(results), "--jobs", "1"])
    assert (results / "random.csv").read_bytes() == before


def test_a_table_is_taken_up_where_it_was_left(tmp_path: Path) -> None:
    setup = Setup("tiny", tmp_path, "")
    cells = [{"x": x, "estimator": "square"} for x in range(5)]
    fill(setup, "squares", cells[:2], lambda cell: {"value": cell["x"] ** 2})
    rows = fill(setup, "squares", cells, lambda cell: {"value": -1})
    assert [row["value"] for row in rows] == ["0", "1", "-1", "-1", "-1"]
    assert fill(setup, "squares", cells[1:2], lambda cell: {"value": -1}) == [rows[1]]


def test_rows_at_the_time_limit_can_be_tried_again(tmp_path: Path) -> None:
    cells = [{"x": x} for x in range(3)]
    fill(
        Setup("tiny", tmp_path, ""),
        "limits",
        cells,
        lambda cell: {"status": "time limit" if cell["x"] == 1 else "complete"},
    )
    rows = fill(
        Setup("tiny", tmp_path, "", retry=True), "limits", cells, lambda cell: {"status": "better"}
    )
    assert {row["x"]: row["status"] for row in rows} == {
        "0": "complete",
        "1": "better",
        "2": "complete",
    }


def test_verify_finds_a_bound_that_is_too_small(tmp_path: Path) -> None:
    lines = [
        "seed,estimator,lower,pop_lower,upper,seconds,status",
        "0,LBS,1.0,2.0,,0,complete",
        "0,SDP,0.5,1.0,1.9,0,complete",
    ]
    (tmp_path / "bad.csv").write_text("\n".join(lines))
    assert len(violations(read(tmp_path / "bad.csv"))) == 1
    with pytest.raises(SystemExit, match=r"1\.0 <= 2\.0 <= 1\.9 does not hold"):
        verify(Setup("tiny", tmp_path, ""))


def test_committed_results_hold() -> None:
    folder = Path(__file__).parent.parent / "experiments" / "results"
    assert (folder / "random.csv").exists()
    verify(Setup("full", folder, ""))


def test_random_networks_have_the_paper_s_sparsity() -> None:
    network = random_network("40x30x20", 5, 0)
    matrices = [
        sp.csr_array(node.matrices[0]).toarray()
        for node in network.nodes
        if hasattr(node, "matrices")
    ]
    assert [(m != 0).sum(axis=0).max() for m in matrices] == [5, 5, 1]
    assert [(m != 0).sum(axis=0).min() for m in matrices] == [5, 5, 1]
    assert all(np.abs(m).max() <= 1 / np.sqrt(m.shape[1]) for m in matrices)
    assert random_network("40x30", DENSE, 1).hash != random_network("40x30", DENSE, 2).hash


def test_the_pyramid_is_a_clique_of_the_convolution() -> None:
    network = lipopt.load([convolution(5), convolution(3), np.ones((1, 1))])
    assert sets_of(network, "output") == [list(range(25 + 9 + 1))]
