"""lipopt: certified Lipschitz constants of neural networks."""

from .bound import bound, compare, lower_bound
from .domain import Ball, Box, read_vnnlib
from .errors import LipoptError
from .network import Network
from .readers import load
from .result import LowerBound, Result

__all__ = [
    "Ball",
    "Box",
    "LipoptError",
    "LowerBound",
    "Network",
    "Result",
    "bound",
    "compare",
    "load",
    "lower_bound",
    "read_vnnlib",
]
