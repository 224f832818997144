"""Result: what `bound` returns. An upper bound that is proved, a lower bound beside it, and how they were found."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from .certificate import Certificate
from .errors import LipoptError
from .methods import Status
from .network import Source


@dataclass(frozen=True)
class Result:
    """lower <= Lipschitz constant <= upper; `pop_lower` bounds the optimum that `upper` relaxes: what is left to gain."""

    upper: float
    lower: float
    pop_lower: float | None
    method: str
    seconds: float
    status: Status
    norm: str
    output: str
    domain: str
    network: str  # the SHA-256 of the network's own file
    source: Source | None = None  # the files it was read from
    certificate: Any = field(default=None, compare=False)  # the multipliers that prove `upper`; with certify=True, a Certificate
    details: dict[str, Any] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write the certificate, for `lipcheck NETWORK CERTIFICATE`; the network is written by `Network.save`."""
        if not isinstance(self.certificate, Certificate):
            raise LipoptError("this result has no certificate to save; ask for one with bound(..., certify=True)")
        self.certificate.save(path)

    def to_json(self) -> str:
        """All fields but the certificate, as one line of JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "certificate"}
        if self.source is not None:
            values["source"] = asdict(self.source)
        return json.dumps(values)


@dataclass(frozen=True)
class LowerBound:
    """`lower` <= the Lipschitz constant (the gradient's norm at `point`); `pop_lower` <= the POP's optimum."""

    lower: float
    pop_lower: float
    point: tuple[float, ...]
    seconds: float
    norm: str
    output: str
    domain: str
    network: str
    source: Source | None = None

    def to_json(self) -> str:
        """All fields, as one line of JSON."""
        return json.dumps(asdict(self))
