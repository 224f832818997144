"""Which problems are solved together, and which are too large to be solved at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, prod, sqrt

from ...errors import LipoptError
from ...problem.derivative import DerivativeProblem
from .sparse_dual import is_sparse

# The largest number of entries, over all problems of a batch, of the dense matrices of their duals:
# 2 GiB in float64, of which the dual keeps several.
MAX_BATCH_ENTRIES = 2**28
# The largest order of a dense block of the dual that is tried on a CPU. Five or more matrices of
# that order are kept, 1.2 GB each.
MAX_BLOCK_ON_CPU = 12_000
# The same on a GPU, 8 GB each.
MAX_BLOCK_ON_DEVICE = 32_000
# How many of the largest blocks may be needed at once, instead of one: all blocks are kept.
MAX_BLOCKS = 4
# How many entries of dense blocks are written in a second, on a slow machine.
ENTRIES_IN_A_SECOND = 2e8


def runs_on_cpu(device: str | None) -> bool:
    """Whether a backend for this device computes on the CPU."""
    return device in (None, "cpu")


def split_into_batches(problems: Sequence[DerivativeProblem]) -> Iterator[list[int]]:
    """The numbers of the problems of each batch.

    Problems of a batch are of similar size, as many as fit. Those without layers are alone, and so
    are sparse ones, whose matrices a batch would fill up."""

    def size(k: int) -> tuple[int, int]:
        return (len(problems[k].layers), problems[k].neurons)

    def is_alone(k: int) -> bool:
        return not problems[k].layers or is_sparse(problems[k])

    batch: list[int] = []
    for k in sorted(range(len(problems)), key=size):
        entries = sum(problems[k].sizes) ** 2 * (len(batch) + 1)
        is_full = entries > MAX_BATCH_ENTRIES
        if batch and (is_full or is_alone(batch[0])):
            yield batch
            batch = []
        batch.append(k)
    if batch:
        yield batch


def is_too_large(problem: DerivativeProblem, device: str | None) -> bool:
    """Whether the dual of a problem needs a block that is too large."""
    return _largest_dense_block(problem) > _largest_possible(device)


def check_blocks(problems: Sequence[DerivativeProblem], device: str | None) -> None:
    """Raise LipoptError if the dual of one of the problems needs a block that is too large."""
    largest = max(_largest_dense_block(problem) for problem in problems)
    limit = _largest_possible(device)
    if largest <= limit:
        return
    widest = max(max(problem.sizes) for problem in problems)
    what = f"a layer of {largest} is"
    if largest > widest:
        what = f"layers that take as much memory as one of {largest} are"
    advice = "use 'path-sum'"
    if runs_on_cpu(device):
        advice += f", or a GPU (--device cuda), which takes {MAX_BLOCK_ON_DEVICE}"
    raise LipoptError(f"{what} too wide for the SDP, which takes up to {limit}; {advice}")


def _largest_possible(device: str | None) -> int:
    """The largest order of a dense block."""
    return MAX_BLOCK_ON_CPU if runs_on_cpu(device) else MAX_BLOCK_ON_DEVICE


def _largest_dense_block(problem: DerivativeProblem) -> int:
    """The order of the largest dense block that is factorized: 0 where S is sparse."""
    return 0 if is_sparse(problem) else largest_block(problem)


def seconds_to_begin(problems: Sequence[DerivativeProblem]) -> float:
    """About how long it takes to write the dense blocks of their duals."""
    entries = 0
    for problem in problems:
        if not is_sparse(problem):
            for blocks in problem.all_blocks():
                entries += sum(prod(matrix.shape) for matrix in blocks.values())
    return entries / ENTRIES_IN_A_SECOND


def largest_block(problem: DerivativeProblem) -> int:
    """The order of the largest dense block of the dual, or of one that takes as much memory as all.

    Under l1, or where inputs outnumber neurons, the inputs' own block is diagonal. Then what counts
    is the order of a square block with as many entries as those of inputs with neurons."""
    entries = sum(size**2 for size in problem.sizes[1:])
    for layer in problem.layers:
        entries += sum(prod(matrix.shape) for matrix in layer.blocks.values())
    together = ceil(sqrt(entries / MAX_BLOCKS))
    if problem.norm.is_by_input or problem.inputs > problem.neurons:
        with_inputs = ceil(sqrt(problem.inputs * problem.neurons))
        return max(*problem.sizes[1:], with_inputs, together)
    return max(*problem.sizes, together)
