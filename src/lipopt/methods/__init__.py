"""The methods. Importing this package registers all of them by name."""

from . import auto, baselines, shor
from .lp import krivine
from .sdp import lip_sdp, method

__all__ = ["auto", "baselines", "krivine", "lip_sdp", "method", "shor"]
