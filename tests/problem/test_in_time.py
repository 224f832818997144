"""Work that cannot look at the clock is ended at a deadline."""

import os
import time

import numpy as np
import pytest

import lipopt
from lipopt.problem import in_time as module
from lipopt.problem.in_time import OutOfTimeError, in_time
from lipopt.problem.task import Budget


def test_a_result_in_time():
    assert in_time(Budget.of(60.0), lambda: np.arange(3)).tolist() == [0, 1, 2]
    assert in_time(Budget(), lambda: "without a limit") == "without a limit"


def test_no_result_in_time():
    start = time.monotonic()
    with pytest.raises(OutOfTimeError):
        in_time(Budget.of(0.2), lambda: time.sleep(60))
    assert time.monotonic() - start < 30


def test_ctrl_c_ends_it_too():
    budget = Budget.of(60.0)
    budget.interruption.has_come = True
    with pytest.raises(OutOfTimeError):
        in_time(budget, lambda: time.sleep(60))


def test_errors_come_through():
    def fail():
        raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        in_time(Budget.of(60.0), fail)


def test_a_process_that_dies_has_no_result():
    with pytest.raises(OutOfTimeError):
        in_time(Budget.of(60.0), lambda: os._exit(9))


def test_an_sdp_without_time_for_a_proof_says_so(monkeypatch):
    """The factorization takes longer than there is time for: what is left is the path sum."""

    def never(budget, work):
        raise OutOfTimeError

    monkeypatch.setattr("lipopt.methods.sdp.search.LARGE_ORDER", 0)
    monkeypatch.setattr("lipopt.methods.sdp.search.in_time", never)
    weights = [np.array([[1.0, -1.0], [2.0, 1.0]]), np.array([[1.0, -1.0]])]
    result = lipopt.bound(weights, method="sdp", time_limit=60)
    assert result.details["chosen"] == "path-sum"
    assert result.upper == pytest.approx(lipopt.bound(weights, method="path-sum").upper)
    monkeypatch.setattr("lipopt.methods.sdp.search.in_time", module.in_time)
    copied = lipopt.bound(weights, method="sdp", time_limit=60)
    assert copied.upper == lipopt.bound(weights, method="sdp").upper
