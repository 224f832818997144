"""lipopt report: what the page holds, that it needs nothing else, and that it opens in a browser where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcheck.__main__
import lipopt
from lipopt.show.charts import Axis, Mark, bars, curve, image, sandwich
from lipopt.show.report import report


@pytest.fixture
def network() -> lipopt.Network:
    rng = np.random.default_rng(0)
    return lipopt.load([rng.normal(size=s) for s in ((6, 4), (5, 6), (2, 5))])


def svg_texts(page: str) -> list[str]:
    """The texts of all charts; they must be well-formed."""
    charts = [ET.fromstring(part) for part in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    return [text.text or "" for chart in charts for text in chart.iter("text")]


def test_global_report(network: lipopt.Network) -> None:
    page = report(network, samples=200).html
    best = lipopt.compare(network, samples=200)[0]
    texts = svg_texts(page)
    assert {"lower bound on L", "lower bound on the POP", "sdp", "product", "path-sum"} <= set(
        texts
    )
    assert {f"input {j}" for j in range(4)} <= set(texts)
    assert best.method in page
    assert network.hash[:16] in page
    assert "In smaller balls" not in page
    assert "Certificate" not in page


def test_it_refers_to_nothing_outside(network: lipopt.Network) -> None:
    page = report(network, samples=50, domain=lipopt.Ball(np.zeros(4), 0.5), image=(2, 2)).html
    assert all(
        target.startswith("data:") for target in re.findall(r"(?:src|href)=[\"'](.*?)[\"']", page)
    )
    assert "url(" not in page
    assert "<script" not in page


def test_local_report_shows_radii_and_pictures(network: lipopt.Network) -> None:
    page = report(
        network, samples=50, domain=lipopt.Ball(np.ones(4), 0.5, clip=(0, 1)), image=(2, 2)
    ).html
    assert "radius of the ball" in svg_texts(page)
    assert page.count("data:image/png;base64,") == 2


def test_names_and_their_escapes(network: lipopt.Network) -> None:
    page = report(network, samples=50, names=["<height>", "a & b", "c", "d"]).html
    assert {"<height>", "a & b", "c", "d"} <= set(svg_texts(page))


@pytest.mark.parametrize(
    "question",
    [{"norm": "l2"}, {"norm": "l1"}, {"output": "all"}, {"margin": (0, 1), "norm": "l2"}],
    ids=str,
)
def test_other_norms_and_all_outputs_fall_back_to_path_sums(
    network: lipopt.Network, question: dict[str, Any]
) -> None:
    assert "products of weights" in report(network, samples=50, **question).html


def test_certificate_is_named_by_its_hash(network: lipopt.Network) -> None:
    done = report(network, samples=50, certificate="bound.cert")
    assert done.best.certificate is not None
    text = done.best.certificate.text
    assert sha256(text.encode()).hexdigest() in done.html
    assert network.hash in done.html
    assert "lipcheck bound.safetensors bound.cert" in done.html


def test_bad_options(network: lipopt.Network) -> None:
    with pytest.raises(lipopt.LipoptError, match="2 names for 4 inputs"):
        report(network, names=["a", "b"])
    with pytest.raises(lipopt.LipoptError, match="does not fit 4 inputs"):
        report(network, image=(3, 3))


def test_a_constant_network_has_a_report() -> None:
    page = report(lipopt.load([np.zeros((3, 2)), np.ones((1, 3))]), samples=10).html
    assert any("all bounds are zero" in text for text in svg_texts(page))


def test_charts_keep_their_numbers_in_order() -> None:
    axis = Axis.around([0.1, 1000.0], 0, 100)
    places = [axis(v) for v in (0.1, 1.0, 1000.0)]
    assert 0 < places[0] < places[1] < places[2] < 100
    assert 2 <= len(axis.ticks()) <= 9
    assert len(Axis.around([5.0], 0, 100).ticks()) >= 2
    for lowest, highest in ((1e-12, 1e12), (2.0, 2.0001), (17.0, 19.0)):
        assert 2 <= len(Axis.around([lowest, highest], 0, 1).ticks()) <= 9
    marks = [Mark("a", 2.0, "2"), Mark("b", 3.0, "3")]
    for chart in (
        sandwich(marks[:1], marks[1:]),
        curve([0.1, 1.0], [2, 3], [0, 1], "radius", marks[1]),
        bars(["x"], [0.5]),
    ):
        ET.fromstring(chart)
    assert image(np.eye(3)).startswith('<img src="data:image/png;base64,')


def test_command(
    run, network: lipopt.Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.save(tmp_path / "net.safetensors")
    np.save(tmp_path / "x.npy", np.zeros(4))
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\n")
    out = tmp_path / "out.html"
    options = [
        "--center",
        str(tmp_path / "x.npy"),
        "--radius",
        "0.1",
        "--names",
        str(tmp_path / "names.txt"),
    ]
    options += ["--certificate", str(tmp_path / "bound.cert")]
    command = [
        "report",
        str(tmp_path / "net.safetensors"),
        "-o",
        str(out),
        "--samples",
        "50",
        *options,
    ]
    code, printed, _ = run(*command)
    assert (code, printed.strip()) == (0, str(out))
    assert "a" in svg_texts(out.read_text())
    monkeypatch.setattr("lipcheck.__main__.set_limits", lambda seconds, gigabytes: None)
    assert (
        lipcheck.__main__.main([str(tmp_path / "bound.safetensors"), str(tmp_path / "bound.cert")])
        == 0
    )
    assert run(*command, "--out", str(tmp_path / "no" / "folder.html"))[0] == 2


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_it_opens_in_a_browser(network: lipopt.Network, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(
        report(network, samples=50, domain=lipopt.Ball(np.zeros(4), 0.5), image=(2, 2)).html
    )
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ]
    flags += [
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    run = subprocess.run(
        ["chromium", *flags, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert run.stdout.count("<svg") == 2
    assert run.stdout.count("<img") == 2
