"""lipopt: certified Lipschitz constants of neural networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import bound as bound
    from .api import compare as compare
    from .api import lower_bound as lower_bound
    from .batch.certify import certified_radius as certified_radius
    from .batch.certify import certify as certify
    from .batch.rows import Row as Row
    from .batch.rows import Rows as Rows
    from .batch.run import local_bounds as local_bounds
    from .batch.verdicts import Verdict as Verdict
    from .batch.verdicts import Verdicts as Verdicts
    from .errors import LipoptError as LipoptError
    from .jacobians import Jacobian as Jacobian
    from .jacobians import jacobian as jacobian
    from .methods.lp.method import LiPopt as LiPopt
    from .methods.sdp.method import SDP as SDP
    from .model.compose import compose as compose
    from .model.domain import Ball as Ball
    from .model.domain import Box as Box
    from .model.domain import Boxes as Boxes
    from .model.network import Network as Network
    from .readers import load as load
    from .readers.vnnlib import read_vnnlib as read_vnnlib
    from .result import Comparison as Comparison
    from .result import LowerBound as LowerBound
    from .result import Result as Result
    from .show.report import Report as Report
    from .show.report import report as report

# The public names, and the modules they come from.
_HOME = {
    "bound": "api",
    "compare": "api",
    "lower_bound": "api",
    "Row": "batch.rows",
    "Rows": "batch.rows",
    "Verdict": "batch.verdicts",
    "Verdicts": "batch.verdicts",
    "certified_radius": "batch.certify",
    "certify": "batch.certify",
    "local_bounds": "batch.run",
    "LipoptError": "errors",
    "Jacobian": "jacobians",
    "jacobian": "jacobians",
    "LiPopt": "methods.lp.method",
    "SDP": "methods.sdp.method",
    "compose": "model.compose",
    "Ball": "model.domain",
    "Box": "model.domain",
    "Boxes": "model.domain",
    "Network": "model.network",
    "load": "readers",
    "read_vnnlib": "readers.vnnlib",
    "Comparison": "result",
    "LowerBound": "result",
    "Result": "result",
    "Report": "show.report",
    "report": "show.report",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `lipopt --help` needs none of them."""
    if name == "__version__":
        return import_module("importlib.metadata").version("lipopt")
    if name == "training":  # a package of its own, which needs PyTorch
        return import_module(".training", __name__)
    if name not in _HOME:
        raise AttributeError(f"module 'lipopt' has no attribute '{name}'")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
