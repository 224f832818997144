"""lipopt report: what the page holds, that it needs nothing else, and that it opens in a browser where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from hashlib import sha256
from html import escape, unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcheck.__main__
import lipopt
import lipopt.inquiry
from lipopt.numerics.rounding import written_down, written_up
from lipopt.show.charts import NARROW, WIDE, Axis, Curve, Mark, bars, curve, image, sandwich
from lipopt.show.report import report

PHONE = 390  # pixels


@pytest.fixture
def network() -> lipopt.Network:
    rng = np.random.default_rng(0)
    return lipopt.load([rng.normal(size=s) for s in ((6, 4), (5, 6), (2, 5))])


def svg_texts(page: str) -> list[str]:
    """The texts of all charts; they must be well-formed."""
    charts = [ET.fromstring(part) for part in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    return [text.text or "" for chart in charts for text in chart.iter("text")]


def page_text(page: str) -> str:
    """The text of a page, without its style and its charts."""
    without = re.sub(r"<(style|svg).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", without)).split())


def test_global_report(network: lipopt.Network) -> None:
    page = report(network, samples=200).html
    texts = svg_texts(page)
    best = lipopt.bound(network, samples=200)
    for name in (
        "slope at some point",
        "maximum of the polynomial (POP)",
        "auto",
        "product",
        "path-sum",
    ):
        assert any(text.startswith(name) for text in texts), name
    for j in range(4):
        assert any(text.startswith(f"input {j}: ") for text in texts)
    assert written_up(best.upper) in page
    assert network.hash in page
    assert "the whole space: every input may have any value" in page
    assert "In smaller balls" not in page
    assert "lipcheck" not in page


def test_the_page_says_who_asked_what(network: lipopt.Network, tmp_path: Path) -> None:
    """The model, its hash, the region in numbers, the date, the version and the command."""
    path = tmp_path / "controller.safetensors"
    network.save(path)
    box = lipopt.Box([0.0, -1.0, 0.0, 0.0], [1.0, 1.0, 2.0, 0.5])
    options: dict[str, Any] = {"domain": box, "samples": 50, "change": 0.25}
    page = report(path, command="lipopt report x", input_unit="m", **options).html
    plain = page_text(page)
    assert "controller.safetensors" in plain
    assert sha256(path.read_bytes()).hexdigest() in plain
    assert "input 0 from 0 to 1; input 1 from -1 to 1; input 2 from 0 to 2" in plain
    assert f"lipopt {lipopt.__version__}" in plain
    assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", plain)
    assert "lipopt report x" in plain
    assert "if no input changes by more than 0.25 m, then output 0 changes by at most" in plain


@pytest.mark.parametrize(
    ("norm", "words"),
    [
        ("linf", "no input changes by more than 0.5"),
        ("l2", "no more than 0.5 in the l2 norm (the root of the sum of all squared changes)"),
        ("l1", "no more than 0.5 in the l1 norm (the sum of all changes)"),
    ],
)
def test_the_sentence_is_true(network: lipopt.Network, norm: Any, words: str) -> None:
    """No pair of points in the ball that are so close differs by more than the sentence says."""
    ball = lipopt.Ball(np.full(4, 0.3), 0.5)
    done = report(network, domain=ball, norm=norm, samples=50)
    plain = page_text(done.html)
    assert words in plain
    most = float(re.findall(r"changes by at most ([\d.,]+)\.", plain)[0].replace(",", ""))
    assert most >= done.result.upper * 0.5
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.2, 0.8, size=(200, 4))
    y = x + rng.normal(size=x.shape)
    size = np.linalg.norm(y - x, ord={"linf": np.inf, "l2": 2, "l1": 1}[norm], axis=1)
    y = np.clip(x + (y - x) * (0.5 / size)[:, None], -0.2, 0.8)
    differences = network.forward(x)[:, 0] - network.forward(y)[:, 0]
    assert np.abs(differences).max() <= most


def test_a_label_gets_its_certified_radius(network: lipopt.Network) -> None:
    center = np.full(4, 0.3)
    label = int(network(center).argmax())
    done = report(network, domain=lipopt.Ball(center, 0.1), label=label, samples=50)
    radius = lipopt.certified_radius(network, center, label)
    expected = (
        f"class stays {label} as long as no input changes by more than {written_down(radius)}"
    )
    assert expected in page_text(done.html)
    assert done.result.output == f"{label} - {1 - label}"
    clipped = lipopt.Ball(center, 0.1, clip=(0, 1))
    sentence = page_text(report(network, domain=clipped, label=label, samples=50).html)
    assert re.search(
        r"no input changes by more than [\d.]+ and all inputs stay between 0 and 1\.", sentence
    )
    other = report(network, domain=lipopt.Ball(center, 0.1), label=1 - label, samples=50)
    sentence = f"At the center the network's class is {label}, not {1 - label}."
    assert sentence in page_text(other.html)
    for options, message in (
        ({"change": float("nan")}, "the change must be a positive number"),
        ({"label": 0}, "a label goes with a ball"),
        ({"label": 2, "domain": lipopt.Ball(center, 0.1)}, "the label is a number from 0 to 1"),
    ):
        with pytest.raises(lipopt.LipoptError, match=message):
            report(network, **options)


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_balls_in_other_norms_and_units(network: lipopt.Network, norm: Any) -> None:
    center = np.full(4, 0.3)
    label = int(network(center).argmax())
    ball = lipopt.Ball(center, 0.1, norm=norm, scale=[1.0, 2.0, 3.0, 4.0])
    done = report(network, domain=ball, norm=norm, label=label, samples=50)
    plain = page_text(done.html)
    assert f"a ball of radius 0.1 in the {norm} norm" in plain
    assert "a change counts as 1 when it is: input 0 = 1, input 1 = 2" in plain
    radius = lipopt.certified_radius(network, center, label, norm=norm, scale=ball.scale)
    (sentence,) = re.findall(f"class stays {label} as long as (.*?)\\. This is proved", plain)
    assert sentence.startswith(f"the inputs change by no more than {written_down(radius)} in the")
    assert sentence.endswith(", counted in the units of the ball")


def test_a_class_in_units_is_not_kept_farther_than_it_is() -> None:
    network = lipopt.load([[[1.0, 0.0], [0.0, 0.01]]])
    ball = lipopt.Ball([2.0, 100.0], 0.1, scale=[1.0, 100.0])
    plain = page_text(report(network, domain=ball, scale=[1.0, 100.0], label=0, samples=50).html)
    (radius,) = re.findall(
        r"class stays 0 as long as no input changes by more than ([\d.]+)", plain
    )
    assert 0.49 < float(radius) <= 0.5


def test_output_0_is_an_output() -> None:
    network = lipopt.load([[[1.0, 0.0], [0.0, 1.0]]])
    ball = lipopt.Ball([2.0, 1.0], 0.1)
    done = report(network, domain=ball, label=0, output=0, samples=50)
    assert done.result.output == "0"
    with pytest.raises(lipopt.LipoptError, match="not for both"):
        lipopt.bound(network, output=0, margin=(0, 1))


def test_the_ball_that_is_asked_about_is_solved_once(
    network: lipopt.Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a certificate; and no method runs that is there for comparison alone, but baselines."""
    solved: list[Any] = []

    def note(self: Any, method: Any, budget: Any, certify: bool) -> Any:
        solved.append((method.name, self.labels["domain"]))
        return result(self, method, budget, certify)

    result = lipopt.inquiry.Inquiry.result
    monkeypatch.setattr("lipopt.inquiry.Inquiry.result", note)
    ball = lipopt.Ball(np.zeros(4), 0.5)
    report(network, samples=50, domain=ball, certificate=tmp_path / "c")
    asked = [name for name, domain in solved if domain == ball.describe()]
    assert asked == ["auto", "path-sum", "product"]


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
    assert "radius of the ball, logarithmic scale" in svg_texts(page)
    assert page.count("data:image/png;base64,") == 2
    assert len(re.findall(r"white is [\d.e-]+, black is [\d.e-]+</figcaption>", page)) == 2


def test_names_and_their_escapes(network: lipopt.Network) -> None:
    page = report(network, samples=50, names=["<height>", "a & b", "c", "d"]).html
    names = {text.partition(": ")[0] for text in svg_texts(page)}
    assert {"<height>", "a & b", "c", "d"} <= names
    assert "<height>" not in page


@pytest.mark.parametrize(
    "question",
    [{"norm": "l2"}, {"norm": "l1"}, {"output": "all"}, {"margin": (0, 1), "norm": "l2"}],
    ids=str,
)
def test_other_norms_and_all_outputs_fall_back_to_path_sums(
    network: lipopt.Network, question: dict[str, Any]
) -> None:
    assert "products of weights" in report(network, samples=50, **question).html


def test_the_certificate_is_checked(network: lipopt.Network, tmp_path: Path) -> None:
    path = tmp_path / "bound.cert"
    done = report(network, samples=50, certificate=path)
    plain = page_text(done.html)
    assert sha256(path.read_bytes()).hexdigest() in plain
    assert f"lipcheck {tmp_path / 'bound.safetensors'} {path}" in plain
    assert "verified: the l_inf Lipschitz constant" in plain
    assert done.result.certificate is not None
    assert done.result.certificate.text == path.read_text()


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
    data = Curve([0.1, 1.0], [2, 3], [0, 1], "radius", marks[1])
    for width in (WIDE, NARROW):
        for chart in (
            sandwich(marks[:1], marks[1:], "L", width),
            curve(data, "L", width),
            bars(["a long name " * 20], [0.5], "share", width),
        ):
            check_chart(chart, width)
    assert image(np.eye(3), "a < b").startswith('<img src="data:image/png;base64,')


def check_chart(chart: str, width: int) -> None:
    """It has words for those who do not see it, letters of at least 11 pixels, and nothing outside."""
    svg = ET.fromstring(chart)
    assert svg.get("role") == "img"
    assert svg.get("aria-label")
    assert int(svg.get("font-size", 0)) >= 11
    assert svg.get("viewBox", "").startswith(f"0 0 {width} ")
    for text in svg.iter("text"):
        size = 0.6 * 12 * len(text.text or "")
        share = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.get("text-anchor", "start")]
        left = float(text.get("x", "nan")) - share * size
        assert left >= -2, text.text
        assert left + size <= width + 20, text.text


def test_the_page_fits_a_phone(network: lipopt.Network) -> None:
    """No element has a width that a phone has not; charts have a version for it."""
    page = report(network, samples=50, domain=lipopt.Ball(np.zeros(4), 0.5), image=(2, 2)).html
    wide = re.findall(r'<div class="wide"><svg viewBox="0 0 (\d+) ', page)
    narrow = re.findall(r'<div class="narrow"><svg viewBox="0 0 (\d+) ', page)
    assert len(wide) == len(narrow) >= 2
    assert max(map(int, narrow)) <= PHONE - 2 * 16
    assert all(
        int(width) <= PHONE - 2 * 16 for width in re.findall(r'<img [^>]*width="(\d+)"', page)
    )
    assert 'name="viewport" content="width=device-width' in page
    assert "@media print" in page


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
    assert any(text.startswith("a: ") for text in svg_texts(out.read_text()))
    assert "lipopt report" in page_text(out.read_text())
    monkeypatch.setattr("lipcheck.__main__.set_limits", lambda seconds, gigabytes: None)
    assert (
        lipcheck.__main__.main([str(tmp_path / "bound.safetensors"), str(tmp_path / "bound.cert")])
        == 0
    )
    assert run(*command, "--out", str(tmp_path / "no" / "folder.html"))[0] == 2
    quick = ["report", str(tmp_path / "net.safetensors"), "--samples", "50"]
    code, printed, _ = run(*quick, "-o", "-")
    assert code == 0
    assert printed.startswith("<!doctype html>")


FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
# A frame is as wide as a phone; a window of a headless browser cannot be. The script writes down how
# wide its content is, and the size of the smallest letters of the charts that are shown.
FRAME = """<!doctype html><iframe id="phone" width="{width}" height="800" srcdoc="{page}"></iframe>
<pre id="found"></pre><script>
onload = () => {{
  const page = document.getElementById("phone").contentDocument;
  const shown = [...page.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().width);
  const sizes = shown.map(svg => 12 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width);
  const found = [page.documentElement.scrollWidth, Math.min(...sizes), shown.length];
  document.getElementById("found").textContent = found.join(" ");
}};
</script>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("width", [PHONE, 1280])
def test_in_a_browser_nothing_has_to_be_scrolled_sideways(
    network: lipopt.Network, tmp_path: Path, width: int
) -> None:
    done = report(
        network, samples=50, domain=lipopt.Ball(np.zeros(4), 0.5), certificate=tmp_path / "c"
    )
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(width=width, page=escape(done.html)))
    command = ["chromium", *FLAGS, f"--user-data-dir={tmp_path / 'profile'}"]
    seen = subprocess.run(
        [*command, "--dump-dom", frame.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (found,) = re.findall(r'<pre id="found">(.*?)</pre>', seen.stdout)
    scroll_width, letters, charts = map(float, found.split())
    assert scroll_width <= width
    assert letters >= 11
    assert charts == done.html.count('class="narrow"') >= 3


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_units_and_another_norm_of_the_outputs(network: lipopt.Network, norm: str) -> None:
    ball = lipopt.Ball(np.full(4, 0.3), 0.1, scale=[1.0, 2.0, 3.0, 4.0])
    options: Any = {"scale": [1.0, 2.0, 3.0, 4.0], "output_norm": norm, "output": "all"}
    done = report(network, domain=ball, samples=50, **options)
    plain = page_text(done.html)
    upper = lipopt.bound(network, domain=ball, samples=50, **options).upper
    assert done.result.upper == pytest.approx(upper)
    assert "if no input changes by more than 0.1 unit, then the outputs change by at most" in plain
    assert f"measured in the {norm} norm" in plain
    assert f"changes of the outputs are measured in the {norm} norm" in plain
    assert "changes of the outputs" not in page_text(report(network, samples=50).html)
    assert "each counted in its unit: input 0 = 1, input 1 = 2, input 2 = 3, input 3 = 4" in plain


def test_a_network_without_a_constant_over_the_whole_space() -> None:
    network = lipopt.load([[[1.0, 2.0]], [[1.0]]], activation="exp")
    done = report(network, domain=lipopt.Ball([0.1, 0.2], 0.1), samples=50)
    assert "In smaller balls" in done.html
    assert "Over the whole space" not in done.html
