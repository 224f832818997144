"""bound() and compare() as a whole: methods that refuse, Ctrl-C, numbers that are tensors."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from lipcheck_files import file_of, verdict

import lipopt
from lipopt.problem.task import Task, UpperBound


@pytest.fixture
def network() -> lipopt.Network:
    rng = np.random.default_rng(0)
    return lipopt.load([rng.normal(size=s) for s in ((20, 10), (20, 20), (3, 20))])


def test_compare_lists_the_methods_that_refuse(network: lipopt.Network) -> None:
    """With its defaults: the paper's SDP does not take 40 neurons."""
    found = lipopt.compare(network, samples=100, time_limit=1.0)
    names = {result.method for result in found}
    assert {"path-sum", "product", "sdp"} <= names
    assert "branch" not in names  # it needs a domain to divide
    assert list(found.refused) == ["shor"]
    assert "use" in found.refused["shor"]
    assert [r.upper for r in found] == sorted(r.upper for r in found)


def test_compare_raises_if_all_refuse(network: lipopt.Network) -> None:
    with pytest.raises(lipopt.LipoptError, match="no method takes this: shor: "):
        lipopt.compare(network, methods=["shor"], samples=10)


def test_arguments_that_make_no_sense(network: lipopt.Network) -> None:
    anything: Any = 5
    wrong: list[Any] = [[], "sdp"]
    for methods in wrong:
        with pytest.raises(lipopt.LipoptError, match="methods are a list"):
            lipopt.compare(network, methods=methods)
    with pytest.raises(lipopt.LipoptError, match="the domain is a Ball, a Box"):
        lipopt.bound(network, domain=anything, certify=True)
    with pytest.raises(lipopt.LipoptError, match="the domain is a Ball, a Box"):
        lipopt.report(network, domain=anything)


def presses_ctrl_c(times: int, at: str) -> Callable[..., None]:
    """Progress that presses Ctrl-C, up to so many times, at messages that contain a text."""
    left = times

    def progress(message: str, fraction: float | None = None) -> None:
        nonlocal left
        if left and at in message:
            left -= 1
            signal.raise_signal(signal.SIGINT)

    return progress


@pytest.mark.parametrize("method", ["sdp", "auto", "lip-sdp", "lipopt", "path-sum"])
@pytest.mark.parametrize("certify", [False, True])
def test_ctrl_c_returns_what_is_proved(network: lipopt.Network, method: str, certify: bool) -> None:
    before = signal.getsignal(signal.SIGINT)
    result = lipopt.bound(
        network, method=method, samples=50, certify=certify, progress=presses_ctrl_c(1, "")
    )
    assert signal.getsignal(signal.SIGINT) is before
    path_sum = lipopt.bound(network, method="path-sum", samples=50, certify=certify)
    assert result.status == "interrupted"
    assert result.lower <= path_sum.lower
    assert path_sum.lower <= result.upper <= path_sum.upper
    assert (result.certificate is not None) == certify


def test_ctrl_c_twice_leaves_the_method(network: lipopt.Network) -> None:
    twice = presses_ctrl_c(2, "")
    result = lipopt.bound(network, method="sdp", samples=50, progress=twice)
    assert result.status == "interrupted"
    assert result.upper == lipopt.bound(network, method="path-sum", samples=50).upper


@pytest.mark.parametrize("at", ["sdp", "<= L <="])
def test_ctrl_c_twice_in_auto_keeps_what_is_proved(network: lipopt.Network, at: str) -> None:
    """In the SDP that is a baseline; in branch and bound it is the SDP."""
    ball = lipopt.Ball(np.ones(10), 0.3)
    options: dict[str, Any] = {"domain": ball, "samples": 50, "gap": 0.0}
    result = lipopt.bound(network, progress=presses_ctrl_c(2, at), **options)
    before = {"sdp": "path-sum", "<= L <=": "sdp"}[at]
    assert result.status == "interrupted"
    assert result.upper <= lipopt.bound(network, method=before, **options).upper


def test_ctrl_c_in_a_union_bounds_every_box(network: lipopt.Network) -> None:
    corners = [k * np.ones(10) for k in range(3)]
    boxes = lipopt.Boxes(tuple(lipopt.Box(corner, corner + 0.5) for corner in corners))
    result = lipopt.bound(network, domain=boxes, samples=50, progress=presses_ctrl_c(1, ""))
    assert result.status == "interrupted"
    assert result.upper >= lipopt.lower_bound(network, domain=boxes, samples=50).lower


def test_ctrl_c_in_compare_keeps_the_methods_that_are_done(network: lipopt.Network) -> None:
    stop = presses_ctrl_c(1, "sdp")
    found = lipopt.compare(
        network, methods=["path-sum", "sdp", "product"], samples=50, progress=stop
    )
    assert {result.method for result in found} == {"path-sum", "sdp"}
    assert found.refused == {"product": "interrupted before its turn came"}


@dataclass(frozen=True)
class NeverEnds:
    """A method that looks at no clock."""

    name: ClassVar[str] = "never-ends"

    def __call__(self, task: Task) -> UpperBound:
        while True:
            task.budget.progress("on and on")


def test_a_method_that_looks_at_no_clock_ends_at_the_second_ctrl_c(
    network: lipopt.Network,
) -> None:
    twice = presses_ctrl_c(2, "on and on")
    result = lipopt.bound(network, method=NeverEnds(), samples=50, progress=twice)
    assert (result.status, result.details["chosen"]) == ("interrupted", "path-sum")
    assert result.upper == lipopt.bound(network, method="path-sum", samples=50).upper


def test_outputs_and_labels_may_be_tensors(network: lipopt.Network) -> None:
    torch = pytest.importorskip("torch")
    point = torch.ones(10)
    label = torch.tensor(network(np.ones(10)).argmax())
    other = (label + 1) % 3
    radius = lipopt.certified_radius(network, point, label)
    assert radius == lipopt.certified_radius(network, np.ones(10), int(label)) > 0
    assert lipopt.bound(network, output=label, samples=10).output == str(int(label))
    margin = lipopt.bound(network, margin=(label, other), samples=10)
    assert margin.output == f"{int(label)} - {int(other)}"
    (row,) = lipopt.local_bounds(network, point[None], 0.1, output=label)
    assert row.question == f"output {int(label)}"
    with pytest.raises(lipopt.LipoptError, match="labels must be whole numbers"):
        lipopt.certified_radius(network, point, torch.tensor(1.5))


def test_branch_and_bound_may_be_below_the_pop_without_a_point() -> None:
    """Every gradient is at a kink, so that there is no lower bound on the constant."""
    weights = [[[2, 1]], [[-2], [-1]], [[2, -1], [2, 0], [-2, 0], [-1, 2]], [[-1, 1, -2, -2]]]
    biases = [[-1], [1, -1], [-2, -2, -3, -3], [1]]
    network = lipopt.load(
        [np.array(matrix, float) for matrix in weights],
        biases=[np.array(bias, float) for bias in biases],
        activation="abs",
    )
    found = lipopt.bound(network, domain=lipopt.Box([-2, -1], [-1, 2]), norm="l2")
    assert found.by == "auto (branch)"
    assert 20.1246 < found.upper < 20.125


def test_a_gap_that_is_not_reached_is_said() -> None:
    """Over the whole space there is no branch and bound; at a kink that never ends, no gradient."""
    rng = np.random.default_rng(0)
    network = lipopt.load([rng.normal(size=size) for size in ((30, 10), (30, 30), (1, 30))])
    assert lipopt.bound(network, gap=1e-6, method="sdp", samples=50).status == "gap not reached"
    assert lipopt.bound(network, gap=100.0, method="sdp", samples=50).status == "complete"
    identity = np.eye(1)
    at_its_kink = lipopt.load([identity] * 3)  # relu(relu(x))
    box = lipopt.Box([-2], [0])
    found = lipopt.bound(at_its_kink, domain=box, method="branch", certify=True)
    assert found.status == "gap not reached"
    assert found.certificate is not None
    code, _ = verdict(file_of(at_its_kink), found.certificate.text.encode())
    assert code == 0
