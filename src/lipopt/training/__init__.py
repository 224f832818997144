"""Training with the constant: a differentiable penalty for PyTorch modules (docs/training.md)."""

from .penalty import Penalty

__all__ = ["Penalty"]
