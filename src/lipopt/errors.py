"""The one exception users see: what is wrong, why, and what to do about it."""


class LipoptError(ValueError):
    """Bad input or a request that cannot be met; the command line prints it as one line and exits with code 2."""
