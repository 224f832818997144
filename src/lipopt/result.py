"""Result: what `bound` returns. An upper bound that is proved, a lower bound beside it, and how they were found."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from .methods import Status


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
    network: str
    certificate: Any = None
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """All fields but the certificate, as one line of JSON."""
        fields = asdict(self)
        fields.pop("certificate")
        return json.dumps(fields)


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

    def to_json(self) -> str:
        """All fields, as one line of JSON."""
        return json.dumps(asdict(self))
