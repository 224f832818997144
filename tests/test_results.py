"""What results show of themselves: one line of text, a table in HTML, a picture, a pandas frame."""

from __future__ import annotations

import builtins
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import lipopt
from lipopt.batch.rows import Row, Rows


@pytest.fixture
def network() -> lipopt.Network:
    rng = np.random.default_rng(0)
    return lipopt.load([rng.normal(size=(6, 4)), rng.normal(size=(3, 6))])


class Cells(HTMLParser):
    """The texts of a table."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_result_is_one_line_with_both_bounds(network: lipopt.Network) -> None:
    result = lipopt.bound(network, method="sdp", samples=50, certify=True)
    lower, upper = re.fullmatch(
        r"<Result: ([\d.]+) <= Lipschitz constant of output 0 in the l_inf norm, whole space <= ([\d.]+), by sdp>",
        repr(result),
    ).groups()  # type: ignore[union-attr]
    assert float(lower) <= result.lower <= result.upper <= float(upper)
    assert upper in Cells(result._repr_html_()).texts
    assert "yes: result.save(path)" in result._repr_html_()


def test_a_result_that_stopped_early_says_so(network: lipopt.Network) -> None:
    result = lipopt.bound(network, domain=lipopt.Box(-np.ones(4), np.ones(4)), time_limit=1e-6)
    assert repr(result).endswith(", time limit>")


def test_a_lower_bound_is_one_line(network: lipopt.Network) -> None:
    low = lipopt.lower_bound(network, samples=50)
    assert repr(low).startswith("<LowerBound: ")
    assert repr(low).endswith(" <= Lipschitz constant of output 0 in the l_inf norm, whole space>")


def test_a_comparison_shows_all_methods(network: lipopt.Network) -> None:
    found = lipopt.compare(network, methods=["product", "path-sum", "shor"], norm="l1", samples=50)
    texts = Cells(found._repr_html_()).texts
    assert {"path-sum", "product"} <= set(texts)
    assert any(text.startswith("shor was not used: ") for text in texts)
    frame = pytest.importorskip("pandas").DataFrame(found.table())
    assert list(frame["upper"]) == [result.upper for result in found]


def test_rows_are_a_table(network: lipopt.Network) -> None:
    rows = lipopt.local_bounds(network, np.zeros((30, 4)), 0.1, output=1)
    assert repr(rows) == "<30 rows about 30 points>"
    page = rows._repr_html_()
    assert page.count("<tr>") == 21
    assert "and 10 more rows" in page
    frame = pytest.importorskip("pandas").DataFrame(rows.table())
    assert list(frame["upper"]) == [row.upper for row in rows]


def test_names_are_escaped_in_html() -> None:
    rows = Rows([Row(0, 0.1, "output 0", error="<b>bad</b>")])
    assert "<b>" not in rows._repr_html_()
    assert "<b>bad</b>" in Cells(rows._repr_html_()).texts


def test_pictures_have_labels_and_the_bounds(network: lipopt.Network) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    found = lipopt.compare(network, methods=["product", "path-sum"], samples=50)
    panel = found.plot()
    assert panel.get_xlabel() == "Lipschitz constant"
    assert [text.get_text() for text in panel.get_yticklabels()] == [r.method for r in found]
    ball = lipopt.Ball(np.full(4, 0.1), 2.0)
    exact = lipopt.bound(network, domain=ball, method="branch", gap=0.0)
    _, given = pyplot.subplots()
    assert exact.plot(given) is given
    assert (given.get_xlabel(), given.get_ylabel()) == ("seconds", "Lipschitz constant")
    pyplot.close("all")


@pytest.mark.parametrize(
    ("package", "call", "message"),
    [
        ("pandas", lambda found: found.table(), "pip install pandas"),
        ("matplotlib", lambda found: found[0].plot(), r"lipopt\[plot\]"),
    ],
)
def test_what_is_missing_is_said(
    network: lipopt.Network, monkeypatch: pytest.MonkeyPatch, package: str, call: Any, message: str
) -> None:
    found = lipopt.compare(network, methods=["path-sum"], samples=50)
    original = builtins.__import__

    def without(name: str, *others: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return original(name, *others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(lipopt.LipoptError, match=message):
        call(found)
