"""lipopt: certified Lipschitz constants of neural networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import bound, compare, lower_bound
    from .batch import local_bounds
    from .domain import Ball, Box, Boxes
    from .errors import LipoptError
    from .krivine import LiPopt
    from .local import Row, certified_radius
    from .network import Network
    from .readers import load
    from .readers.vnnlib import read_vnnlib
    from .result import LowerBound, Result
    from .sdp import SDP

__all__ = [
    "SDP",
    "Ball",
    "Box",
    "Boxes",
    "LiPopt",
    "LipoptError",
    "LowerBound",
    "Network",
    "Result",
    "Row",
    "bound",
    "certified_radius",
    "compare",
    "load",
    "local_bounds",
    "lower_bound",
    "read_vnnlib",
]

_HOME = {
    "api": ("bound", "compare", "lower_bound"),
    "batch": ("local_bounds",),
    "domain": ("Ball", "Box", "Boxes"),
    "errors": ("LipoptError",),
    "krivine": ("LiPopt",),
    "local": ("Row", "certified_radius"),
    "network": ("Network",),
    "readers": ("load",),
    "readers.vnnlib": ("read_vnnlib",),
    "result": ("LowerBound", "Result"),
    "sdp": ("SDP",),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `lipopt --help` needs none of them."""
    if name == "__version__":
        return import_module("importlib.metadata").version("lipopt")
    if name not in _MODULE:
        raise AttributeError(f"module 'lipopt' has no attribute '{name}'")
    value = getattr(import_module(f".{_MODULE[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
