"""How a check can end: section 6 of spec/certificate.md."""

VERIFIED = "verified"
REJECTED = "rejected"
MALFORMED = "malformed"
NETWORK_MISMATCH = "network mismatch"
LIMITS_EXCEEDED = "limits exceeded"
INTERNAL_ERROR = "internal error"

EXIT_CODES = {
    VERIFIED: 0,
    REJECTED: 1,
    MALFORMED: 2,
    NETWORK_MISMATCH: 3,
    LIMITS_EXCEEDED: 4,
    INTERNAL_ERROR: 70,
}


class Failure(Exception):  # noqa: N818
    """The check ends here, with a verdict other than "verified"."""

    def __init__(self, verdict: str, reason: str) -> None:
        super().__init__(verdict, reason)
        self.verdict = verdict
        self.reason = reason


def require(condition: bool, reason: str, verdict: str = MALFORMED) -> None:
    """End the check unless the condition holds; unlike assert, `python -O` keeps it."""
    if not condition:
        raise Failure(verdict, reason)
