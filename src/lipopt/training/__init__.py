"""Training with the constant: a differentiable penalty for PyTorch modules (docs/training.md)."""

from ..errors import LipoptError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise LipoptError(
        "training needs PyTorch; install it with: pip install 'lipopt[torch]'"
    ) from error

from .penalty import Penalty

__all__ = ["Penalty"]
