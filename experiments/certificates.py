"""Certificates of a sample of bounds on random networks: computed again, written by lipopt, checked by lipcheck."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import lipcheck.certificate
import lipcheck.network
import lipopt

from .estimators import FEW, method
from .networks import random_network
from .table import Row

SAMPLE = 6
INPUTS, SECONDS = 40, 2.0  # the largest network and the longest time of a bound in the sample
LOSS = 1e-3  # the most, relative, that a certificate may prove less than the table says


def violations(rows: list[Row]) -> tuple[int, list[str]]:
    """The number of certificates that were checked, and what is wrong with them, in words."""
    candidates = [row for row in rows if _is_small(row)]
    chosen = np.random.default_rng(0).permutation(len(candidates))[:SAMPLE]
    sample = [candidates[i] for i in sorted(chosen)]
    wrong = []
    for row in sample:
        proved = _proved(row)
        if not float(row["pop_lower"]) <= proved <= float(row["upper"]) * (1 + LOSS):
            wrong.append(f"{', '.join(row.values())}: the certificate proves {proved}")
    return len(sample), wrong


def _is_small(row: Row) -> bool:
    fast = row["status"] == "complete" and bool(row["upper"]) and float(row["seconds"]) <= SECONDS
    kind = row["estimator"] in ("UBP", "SDP") or row["estimator"].startswith("LiPopt")
    return fast and kind and int(row["architecture"].split("x")[0]) <= INPUTS


def _proved(row: Row) -> float:
    """The bound that lipcheck verifies; it raises an error if it rejects the certificate."""
    network = random_network(row["architecture"], row["sparsity"], int(row["seed"]))
    found = lipopt.bound(network, method=method(row["estimator"]), samples=FEW, certify=True)
    assert found.certificate is not None
    with TemporaryDirectory() as folder:
        network.save(Path(folder) / "network.safetensors")
        stored = lipcheck.network.read_network((Path(folder) / "network.safetensors").read_bytes())
    return float(lipcheck.certificate.check(stored, found.certificate.text.encode()).bound)
