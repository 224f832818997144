"""A step of the penalty as a CUDA graph: a hundred small kernels, launched at once.

On a GPU the kernels of a penalty take less time than launching them one by one. A CUDA graph
records them and launches all. It reads the weights where they lie, so it must be recorded again
when they have moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = Any  # PyTorch is not seen by the type checker
# Runs before recording: libraries allocate and choose algorithms in the first ones.
WARM_UP = 3


class Replay:
    """A function without arguments, recorded; it works on tensors that stay where they are."""

    def __init__(self, run: Callable[[], Tensor], tensors: Sequence[Tensor]) -> None:
        """`tensors`: all those whose places the recording depends on."""
        self._places = _places(tensors)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._result = run()

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Whether all tensors are where they were."""
        return self._places == _places(tensors)

    def __call__(self) -> Tensor:
        """Run it again. The result is a copy: the next run overwrites its own."""
        self._graph.replay()
        return self._result.clone()


def _places(tensors: Sequence[Tensor]) -> list[tuple[int, bool]]:
    return [(tensor.data_ptr(), tensor.requires_grad) for tensor in tensors]
