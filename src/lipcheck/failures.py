"""The ways a check can end other than "verified", each with its exit code."""


class Failure(Exception):  # noqa: N818
    code = 70


class Rejected(Failure):  # the certificate does not prove its claim
    code = 1


class Malformed(Failure):  # a file is not what the specification says
    code = 2


class Mismatch(Failure):  # the certificate belongs to another network
    code = 3


class LimitExceeded(Failure):  # the check would take more than is allowed
    code = 4
