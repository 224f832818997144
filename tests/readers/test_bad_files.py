"""Files from anywhere: what is wrong with them is one line and exit code 2, in lipopt and in lipcheck."""

import gzip
import io
import os
from pathlib import Path

import numpy as np
import pytest
from network_files import graph, network_file

import lipcheck.__main__
import lipopt
from lipopt import LipoptError

DEEP = "[" * 100_000 + "]" * 100_000
SPARSE = {
    "1.0.dense": None,
    "1.0.data": np.ones(1),
    "1.0.indices": np.array([0]),
    "1.0.indptr": np.array([0, 1, 1, 1]),
}

BAD_NETWORKS = {
    "shape of a word": network_file(graph({0: {"shape": ["x"]}})),
    "negative shape": network_file(graph({0: {"shape": [-2, -1]}})),
    "negative shape of another size": network_file(graph({0: {"shape": [-2, -3]}})),
    "fractional shape": network_file(graph({0: {"shape": [2.0]}})),
    "true in a shape": network_file(graph({0: {"shape": [2, True]}})),
    "shape without a list": network_file(graph({0: {"shape": "2"}})),
    "shape with a long number": network_file(
        graph().replace('"shape": [2]', '"shape": [' + "9" * 5000 + "]")
    ),
    "huge shape": network_file(graph({0: {"shape": [10**12]}}), SPARSE),
    "huge shape in two dimensions": network_file(graph({0: {"shape": [10**6, 10**6]}}), SPARSE),
    "a shape beyond all arrays": network_file(graph({0: {"shape": [10**400]}}), SPARSE),
    "source of a word": network_file(graph({2: {"source": "zz"}})),
    "source in quotes": network_file(graph({2: {"source": "1"}})),
    "fractional source": network_file(graph({2: {"source": 1.0}})),
    "negative source": network_file(graph({2: {"source": -1}})),
    "sources of words": network_file(graph({3: {"sources": ["zz"]}})),
    "fractional sources": network_file(graph({3: {"sources": [2.0]}})),
    "false as a source": network_file(graph({1: {"sources": [False]}})),
    "sources without a list": network_file(graph({3: {"sources": 2}})),
    "activation that is a list": network_file(graph({2: {"kind": ["relu"]}})),
    "operation that is a list": network_file(graph({1: {"op": []}})),
    "bias with two dimensions": network_file(tensors={"1.bias": np.zeros((3, 1))}),
    "bias without dimensions": network_file(tensors={"3.bias": np.array(0.0)}),
    "complex bias": network_file(tensors={"1.bias": np.zeros(3, np.complex64)}),
    "bias of booleans": network_file(tensors={"1.bias": np.zeros(3, bool)}),
    "bias of NaN": network_file(tensors={"1.bias": np.full(3, np.nan)}),
    "no bias": network_file(tensors={"1.bias": None}),
    "complex matrix": network_file(tensors={"1.0.dense": np.ones((3, 2), np.complex64)}),
    "matrix with three dimensions": network_file(tensors={"1.0.dense": np.ones((3, 2, 1))}),
    "fractional index": network_file(tensors={"3.0.indices": np.array([0.5, 2.0])}),
    "float indices": network_file(tensors={"3.0.indices": np.array([0.0, 2.0])}),
    "float row starts": network_file(tensors={"3.0.indptr": np.array([0.0, 2.0])}),
    "no row starts": network_file(tensors={"3.0.indptr": np.zeros(0, np.int64)}),
    "row starts without dimensions": network_file(tensors={"3.0.indptr": np.array(0)}),
    "indices with two dimensions": network_file(
        tensors={"3.0.indices": np.array([[0, 2]], np.int32)}
    ),
    "entries with two dimensions": network_file(tensors={"3.0.data": np.ones((2, 1))}),
    "negative index": network_file(tensors={"3.0.indices": np.array([-1, 2])}),
    "parameter with two dimensions": network_file(tensors={"2.alpha": np.full((3, 1), 0.1)}),
    "parameter that is too short": network_file(tensors={"2.alpha": np.full(2, 0.1)}),
    "complex parameter": network_file(tensors={"2.alpha": np.array(0.1, np.complex64)}),
    "NaN parameter": network_file(tensors={"2.alpha": np.array(np.nan)}),
    "infinite parameter": network_file(tensors={"2.alpha": np.array(np.inf)}),
    "no parameter": network_file(tensors={"2.alpha": None}),
    "key twice in a node": network_file(
        graph().replace('"shape": [2]', '"shape": [2], "shape": [2]')
    ),
    "nodes twice": network_file(graph().replace('"nodes"', '"nodes": [], "nodes"')),
    "tensor twice": network_file(twice=["3.bias"]),
    "deep metadata": network_file(DEEP),
    "deep shape": network_file(graph().replace('"shape": [2]', f'"shape": {DEEP}')),
    "deep header": (len(DEEP) + 6).to_bytes(8, "little") + f'{{"a":{DEEP}}}'.encode(),
    "graph that is a list": network_file("[]"),
    "nodes that are a number": network_file('{"format": "lipopt-network-1", "nodes": 3}'),
    "node that is a list": network_file('{"format": "lipopt-network-1", "nodes": [[]]}'),
    "no nodes": network_file('{"format": "lipopt-network-1"}'),
}


@pytest.mark.parametrize("name", BAD_NETWORKS)
def test_malformed_networks(
    run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    path = tmp_path / "n.safetensors"
    path.write_bytes(BAD_NETWORKS[name])
    for command in ("info", "bound"):
        code, out, err = run(command, str(path))
        assert (code, out) == (2, "")
        assert err.startswith(f"lipopt: {path} is not a valid network file: ")
        assert err.count("\n") == 1
    monkeypatch.setattr(lipcheck.__main__, "set_limits", lambda seconds, gigabytes: None)
    assert lipcheck.__main__.main([str(path)]) == 2
    out = capsys.readouterr().out
    assert out.startswith("malformed: ")
    assert out.count("\n") == 1


def test_the_network_that_is_changed_is_good(tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    path.write_bytes(network_file())
    assert lipopt.load(path)([1.0, 0.5]) == [1.0]


def test_whole_numbers_are_weights_if_they_are_floats(tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    path.write_bytes(network_file(tensors={"1.bias": np.array([1, 2, 3]), "2.alpha": np.array(2)}))
    assert lipopt.load(path)([-3.0, 0.0]) == [2 * (-3 + 1) + 3]
    path.write_bytes(network_file(tensors={"2.alpha": np.array(2**53 + 1)}))
    with pytest.raises(LipoptError, match="too large to be floats"):
        lipopt.load(path)


def test_entries_in_one_place_are_refused(tmp_path: Path) -> None:
    """Their sum is exact in the checker; here it would have to be rounded."""
    path = tmp_path / "n.safetensors"
    path.write_bytes(network_file(tensors={"3.0.indices": np.array([2, 2])}))
    with pytest.raises(LipoptError, match="two entries in one place"):
        lipopt.load(path)


@pytest.mark.parametrize(
    "name",
    [
        "[/foo]",
        "[bold]",
        "a[link=x]b",
        ":smile:",
        "\\",
        "\x1b[31m red \x07",
        "two\nlines",
        "\ud800",
    ],
)
def test_names_are_shown_as_they_are(run, name: str, tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    path.write_bytes(network_file(graph({1: {"name": name}, 2: {"name": name}})))
    shown = name if name.isprintable() else name.encode("unicode_escape").decode()
    code, out, err = run("info", str(path))
    assert (code, err) == (0, "")
    assert out.count(shown) == 2
    assert all(c.isprintable() for c in out.replace("\n", ""))
    assert run("bound", str(path), "--samples", "20")[0] == 0
    path.write_bytes(network_file(graph({1: {"name": name}}), {"1.bias": np.full(3, np.nan)}))
    code, out, err = run("info", str(path))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert all(c.isprintable() for c in err[:-1])


@pytest.mark.parametrize(
    "name", ["[/foo]", "[bold]x[/bold]", "\x1b[31m", "two\nlines", os.fsdecode(b"\xff")]
)
def test_names_of_files_are_shown_as_they_are(run, name: str, tmp_path: Path) -> None:
    folder = tmp_path / name.partition("/")[0]
    folder.mkdir()
    path = folder / f"{name.rpartition('/')[2]}.safetensors"
    path.write_bytes(network_file())
    certificate = path.with_name("claim.cert")
    code, out, err = run("bound", str(path), "--samples", "20", "--certificate", str(certificate))
    assert (code, err) == (0, "")
    assert "lipcheck" in out
    assert all(c.isprintable() for c in out.replace("\n", ""))
    code, out, _ = run("report", str(path), "--samples", "20", "--out", str(folder / "r.html"))
    assert (code, out.count("\n")) == (0, 1)
    code, out, err = run("info", str(folder / f"{path.stem}.onnx"))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("center", "radius"),
    [(0.0, "1e308"), (1.7e308, "1e308"), (1.7e308, "0"), (-1.7e308, "1.7e308"), (1e300, "1e300")],
)
def test_balls_that_overflow(run, center: float, radius: str, tmp_path: Path) -> None:
    path = str(tmp_path / "n.safetensors")
    Path(path).write_bytes(network_file())
    points = str(tmp_path / "x.npy")
    np.save(points, np.array([[0.0, 0.0], [center, center]]))
    np.save(tmp_path / "c.npy", np.full(2, center))
    ball = ("--center", str(tmp_path / "c.npy"), "--radius", radius)
    for arguments in (
        ("bound", path, *ball),
        ("lower", path, *ball),
        ("info", path, *ball),
        (
            "local",
            path,
            "--data",
            points,
            "--radius",
            radius,
            "-o",
            str(tmp_path / "r.jsonl"),
            "-j",
            "1",
        ),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), arguments
        assert "reaches beyond 1e+300" in err, arguments
        assert err.count("\n") == 1
    assert not (tmp_path / "r.jsonl").exists()


def _torn(content: bytes) -> bytes:
    """A compressed file with some bytes of another value."""
    middle = len(content) // 2
    return content[:middle] + bytes(byte ^ 0x5A for byte in content[middle:-8]) + content[-8:]


def _npz() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, W0=np.random.default_rng(0).normal(size=(40, 3)), W1=np.ones((1, 40)))
    return file.getvalue()


def _npy(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


DAMAGED_NUMBERS = {
    "x.npy.gz": _torn(gzip.compress(np.random.default_rng(0).bytes(400))),
    "x.npz": _torn(_npz()),
    "huge.npy": _npy(
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (10" + b"0" * 30 + b", 3)}\n"
    ),
    "header.npy": _npy(b"{'descr': (((((\n"),
    "comment.csv": b"# nothing\n",
}


@pytest.mark.parametrize("name", DAMAGED_NUMBERS)
def test_damaged_numbers(run, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(DAMAGED_NUMBERS[name])
    lipopt.load([np.eye(3)]).save(tmp_path / "net.safetensors")
    network = str(tmp_path / "net.safetensors")
    questions = [
        ["certify", network, "--data", str(path), "--radius", "0.1"],
        ["bound", network, "--center", str(path), "--radius", "0.1"],
        ["bound", network, "--box", str(path)],
    ]
    if path.suffix == ".npz":
        questions.append(["bound", str(path)])
    for question in questions:
        code, _, err = run(*question)
        assert code == 2
        assert err.count("\n") == 1
        assert name.partition(".")[0] in err
