"""Auto: never worse than what it tries, and it says what it could not try."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from lipcheck_files import verdict
from networks import random_network
from strategies import SEEDS, Question, questions

import lipopt
from lipopt.methods.auto import MAX_GAP, ROUNDING_GAP
from lipopt.methods.branch import Branch
from lipopt.methods.lp.method import LiPopt
from lipopt.methods.sdp.dual import Dual
from lipopt.methods.sdp.method import SDP
from lipopt.model.norms import NormName
from lipopt.numerics.arrays import Array
from lipopt.problem.proofs import Multipliers, PathSums
from lipopt.problem.task import Task, UpperBound
from lipopt.readers.builder import Builder


@settings(max_examples=12)
@given(questions())
def test_auto_is_never_looser_than_the_sdp_or_a_baseline(question: Question) -> None:
    asked: dict[str, Any] = {
        "norm": question.norm,
        "output": question.output,
        "domain": question.domain,
    }
    auto = lipopt.bound(question.network, samples=50, **asked)
    for method in ("product", "path-sum", "sdp"):
        alone = lipopt.bound(question.network, method=method, samples=50, **asked)
        assert auto.upper <= alone.upper * (1 + ROUNDING_GAP)


@settings(max_examples=10)
@given(SEEDS)
def test_auto_is_hardly_looser_than_the_lp_on_sparse_networks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random((6, 5)) < 0.5
    network = lipopt.load([rng.normal(size=(6, 5)) * mask, rng.normal(size=(1, 6))])
    auto = lipopt.bound(network, samples=50)
    lp = lipopt.bound(network, method="lipopt", samples=50)
    assert auto.upper <= lp.upper * (1 + 2 * MAX_GAP)
    assert auto.details["chosen"] in ("product", "path-sum", "sdp", "lipopt")


def test_a_path_sum_near_the_lower_bound_does_not_keep_the_sdp_from_a_better_one() -> None:
    weights = np.array([[1.0, 1.0], [1.0, -1e-3]])
    network = lipopt.load([weights, np.array([[1.0, 1.0]])])
    paths = lipopt.bound(network, method="path-sum", samples=50)
    assert paths.pop_lower is not None
    assert paths.pop_lower < paths.upper < paths.pop_lower * (1 + MAX_GAP)
    auto = lipopt.bound(network, samples=50)
    assert auto.upper <= lipopt.bound(network, method="sdp", samples=50).upper
    assert auto.upper < paths.upper


def dense() -> lipopt.Network:
    rng = np.random.default_rng(0)
    return lipopt.load([rng.normal(size=size) for size in ((16, 10), (16, 16), (1, 16))])


def sparse() -> lipopt.Network:
    return lipopt.load(random_network([20, 20, 20, 1], sparsity=3, seed=1))


def test_a_sparse_network_gets_the_lp_and_a_dense_one_does_not() -> None:
    assert lipopt.bound(sparse(), samples=50).details["chosen"] == "lipopt"
    large = lipopt.load(random_network([60, 60, 60, 1], seed=1))
    with mock.patch.object(LiPopt, "__call__", side_effect=AssertionError):
        assert lipopt.bound(large, samples=50).details["chosen"] == "sdp"


def test_the_lp_comes_before_cells_that_take_long() -> None:
    network = lipopt.load(random_network([60, 60, 1], sparsity=6, seed=1))
    ball = lipopt.Ball(np.zeros(60), 0.3)
    with mock.patch.object(Branch, "__call__", side_effect=AssertionError):
        found = lipopt.bound(network, domain=ball, gap=0.01, samples=50)
    assert found.details["chosen"] == "lipopt"
    assert found.upper <= 1.01 * found.lower


def test_work_is_limited_and_not_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lipopt.bound(sparse(), samples=50)
    monkeypatch.setattr("lipopt.methods.auto.LP_WORK", 3e6)
    less = lipopt.bound(sparse(), samples=50)
    assert less.upper > whole.upper
    assert less.status == "complete"


def test_no_clock_decides_without_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine where every look at the clock takes an hour, the answers are the same."""
    network = lipopt.load(random_network([5, 6, 6, 1], sparsity=3, seed=2))
    ball = lipopt.Ball(np.full(5, 0.1), 1.0)
    usual = [lipopt.bound(network, domain=domain, samples=50) for domain in (None, ball)]
    lower = lipopt.lower_bound(network, samples=50)
    hours = itertools.count(0.0, 3600.0)
    for clock in ("monotonic", "perf_counter", "time", "process_time"):
        monkeypatch.setattr(time, clock, lambda: next(hours))
    slow = [lipopt.bound(network, domain=domain, samples=50) for domain in (None, ball)]
    slow_lower = lipopt.lower_bound(network, samples=50)
    monkeypatch.undo()
    assert [each.upper for each in slow] == [each.upper for each in usual]
    assert [each.lower for each in slow] == [each.lower for each in usual]
    assert [each.status for each in slow] == [each.status for each in usual]
    assert (slow_lower.lower, slow_lower.pop_lower) == (lower.lower, lower.pop_lower)


def test_an_lp_that_is_far_behind_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipopt.methods.lp.tightening.TRIAL_WORK", 0.0)
    network = dense()
    alone = lipopt.bound(network, method="lipopt-3", samples=50)
    assert alone.details["iterations"] > 0
    auto = lipopt.bound(network, samples=50)
    assert (auto.status, auto.details["chosen"]) == ("complete", "sdp")
    assert auto.upper < alone.upper


def test_what_is_refused_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipopt.methods.sdp.batches.MAX_BLOCK_ON_CPU", 100)
    rng = np.random.default_rng(0)
    wide = lipopt.load([rng.normal(size=(130, 2)), rng.normal(size=(1, 130))])
    result = lipopt.bound(wide, samples=10)
    assert "sdp" in result.details["refused"]
    assert result.pop_lower is not None
    assert result.lower <= result.pop_lower <= result.upper


def test_a_device_that_is_not_there_is_an_error() -> None:
    from lipopt.methods.auto import Auto

    with pytest.raises(lipopt.LipoptError, match="nowhere"):
        lipopt.bound(
            [np.eye(3), np.array([[1.0, -1.0, 2.0]])], method=Auto(device="nowhere"), samples=10
        )


def lattice() -> lipopt.Network:
    """max(x, y) - min(x, -y), as lattice networks write it."""
    b = Builder()
    x = b.input((1, 2))
    first = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]])
    x = b.activation("first", b.linear("pairs", x, first, np.array([0.5, -0.5, 0, 0])), "relu")
    last = np.array([[0.75, 0.25, 0.75, 0.25]])
    return b.network(b.linear("sum", x, last, np.zeros(1)))


@pytest.mark.parametrize(("norm", "larger"), [("l2", "linf"), ("l1", "linf"), ("l1", "l2")])
def test_a_larger_norm_may_prove_less(
    norm: NormName, larger: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For one output, |g|_inf <= |g|_2 <= |g|_1: what holds in the larger norm is claimed, and verified."""

    class Weak(lipopt.SDP):
        """An SDP that finds nothing useful in the other norms."""

        def __call__(self, task: Task) -> UpperBound:
            found = super().__call__(task)
            if task.problem.norm == larger:
                return found
            return replace(found, value=100.0, proof=PathSums())

    monkeypatch.setattr("lipopt.methods.auto.SDP", Weak)
    monkeypatch.setattr("lipopt.methods.auto.PathSum", Weak)
    monkeypatch.setattr("lipopt.methods.auto.Product", Weak)
    monkeypatch.setattr("lipopt.methods.auto.FIRST_WORK", -1.0)
    network = lattice()
    network.save(tmp_path / "n.safetensors")
    result = lipopt.bound(network, norm=norm, certify=True)
    assert result.details["norm"] == larger
    alone = lipopt.bound(network, norm=cast(NormName, larger), method="sdp", certify=True)
    assert result.upper == alone.upper
    assert result.certificate is not None
    text = result.certificate.text
    assert f"norm {norm}\nthrough {larger}\n" in text
    code, claim = verdict((tmp_path / "n.safetensors").read_bytes(), text.encode())
    assert code == 0
    assert claim is not None
    assert claim.norm == norm


def test_larger_norms_are_not_used_for_several_outputs() -> None:
    rng = np.random.default_rng(0)
    network = lipopt.load([rng.normal(size=(4, 3)), rng.normal(size=(2, 4))])
    assert "norm" not in lipopt.bound(network, norm="l2", output="all").details


def test_an_sdp_that_falls_back_on_the_path_sum_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipopt.methods.sdp.dual.Dual.are_proved", _nothing_is_proved)
    result = lipopt.bound(dense(), norm="l2")
    assert result.details["chosen"] == "product"
    assert "path-sum" in result.details["refused"]["sdp"]
    alone = lipopt.bound(dense(), norm="l2", method="sdp")
    assert alone.details["chosen"] == "path-sum"


def _nothing_is_proved(dual: Dual, hints: Sequence[Multipliers]) -> Array:
    return np.zeros(len(hints), bool)


@settings(max_examples=10)
@given(questions())
def test_when_time_is_up_at_once_there_is_a_bound_still(question: Question) -> None:
    """Every look at the clock takes an hour: intervals, norms, samples and the SDP end early."""
    hours = itertools.count(0.0, 3600.0)
    with mock.patch.object(time, "monotonic", side_effect=hours):
        hurried = lipopt.bound(
            question.network,
            samples=50,
            norm=question.norm,
            output=question.output,
            domain=question.domain,
            time_limit=60.0,
        )
    usual = lipopt.lower_bound(
        question.network,
        samples=50,
        norm=question.norm,
        output=question.output,
        domain=question.domain,
    )
    assert hurried.status == "time limit"
    assert hurried.upper >= usual.lower
    assert np.isfinite(hurried.upper)


def test_every_output_has_its_share_of_the_time() -> None:
    """A third of it for the first of three; what it leaves is for the others."""
    rng = np.random.default_rng(0)
    network = lipopt.load([rng.normal(size=(20, 8)), rng.normal(size=(3, 20))])
    seconds: list[float] = []
    solve = SDP.__call__

    def recorded(self: SDP, task: Task) -> UpperBound:
        seconds.append(task.seconds_left)
        return solve(self, task)

    with mock.patch.object(SDP, "__call__", recorded):
        lipopt.bound(network, output="all", samples=10, time_limit=1000.0, method="sdp")
    assert len(seconds) == 3
    assert seconds[0] < 340
    assert seconds[2] > 900
