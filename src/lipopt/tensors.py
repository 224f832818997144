"""Torch tensors as NumPy arrays, without importing torch."""

from typing import Any


def as_array(values: Any) -> Any:
    """A tensor as an array in its own precision (half precision in float32, exactly), whatever its device; all else as it is."""
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor).numpy()
