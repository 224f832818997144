"""The paper's estimators by name, and lipopt's method for each. An answer is what goes into the columns of a table."""

from __future__ import annotations

import re
from typing import Any

import lipopt

from .table import Cell

LBS = "LBS"
METHODS = {
    "UBP": "product",
    "Lip-SDP": "lip-sdp",
    "SDP": "sdp",
    "SDP (paper's)": "shor",
    "auto": "auto",
}
ANSWER = ("lower", "pop_lower", "upper", "seconds", "status")
FEW = 100  # samples beside an upper bound; LBS has a row of its own


def method(estimator: str) -> str:
    """lipopt's name of an estimator of upper bounds."""
    return METHODS.get(estimator) or re.sub("^LiPopt-", "lipopt-", estimator)


def answer(
    network: lipopt.Network, estimator: str, samples: int, time_limit: float, **question: Any
) -> Cell:
    """What an estimator says. LBS has no upper bound, and what a method refuses has neither."""
    if estimator == LBS:
        low = lipopt.lower_bound(network, samples=samples, **question)
        return dict(
            zip(ANSWER, (low.lower, low.pop_lower, "", low.seconds, "complete"), strict=True)
        )
    try:
        found = lipopt.bound(
            network, method=method(estimator), samples=FEW, time_limit=time_limit, **question
        )
    except lipopt.LipoptError as error:
        return dict(zip(ANSWER, ("", "", "", "", f"refused: {error}"), strict=True))
    return dict(
        zip(
            ANSWER,
            (found.lower, found.pop_lower, found.upper, found.seconds, found.status),
            strict=True,
        )
    )
