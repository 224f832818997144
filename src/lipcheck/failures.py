"""The ways a check can end other than "verified", each with its exit code."""


class Failure(Exception):
    code = 70


class Rejected(Failure):
    """The certificate does not prove its claim."""

    code = 1


class Malformed(Failure):
    """A file is not what the specification says."""

    code = 2


class Mismatch(Failure):
    """The certificate belongs to another network."""

    code = 3


class LimitExceeded(Failure):
    """The check would take more than its limits allow."""

    code = 4
