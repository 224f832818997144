"""The notebooks run from top to bottom, without an error and without a warning of lipopt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat, of the extra 'test', is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient, of the extra 'test', is not installed")
pytest.importorskip("ipykernel", reason="ipykernel, of the extra 'test', is not installed")

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
SECONDS = 120  # for a cell, on a busy machine


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["classifier", "controller", "methods"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_output_is_kept(path: Path) -> None:
    """What was computed elsewhere would grow old, and its differences say nothing."""
    for cell in nbformat.read(path, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.filterwarnings("ignore")  # of the programs that run notebooks
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch", "sklearn", "matplotlib", "pandas"):
        pytest.importorskip(module)
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("text/html" in output.get("data", {}) for output in shown)
    assert any("image/png" in output.get("data", {}) for output in shown)
