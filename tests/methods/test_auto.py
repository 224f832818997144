"""Auto: never worse than what it tries, and it says what it could not try."""

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import SEEDS

import lipopt


@settings(max_examples=10)
@given(SEEDS)
def test_auto_is_the_smallest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random((6, 5)) < 0.5
    network = lipopt.load([rng.normal(size=(6, 5)) * mask, rng.normal(size=(1, 6))])
    auto = lipopt.bound(network, samples=50)
    for method in ("product", "path-sum", "sdp", "lipopt"):
        assert auto.upper <= lipopt.bound(network, method=method, samples=50).upper * (1 + 2e-3)
    assert auto.details["chosen"] in ("product", "path-sum", "sdp", "lipopt")


def dense() -> lipopt.Network:
    rng = np.random.default_rng(0)
    return lipopt.load([rng.normal(size=size) for size in ((16, 10), (16, 16), (1, 16))])


def test_an_lp_that_is_cut_off_shows_in_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipopt.methods.auto.LP_SECONDS", 0.05)
    assert lipopt.bound(dense(), samples=50).status == "time limit"
    assert lipopt.bound(dense(), samples=50, norm="l2").status == "complete"  # no LP


def test_an_lp_that_is_far_behind_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipopt.methods.lp.tightening.TRIAL_SECONDS", 0.0)
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
