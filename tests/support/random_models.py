"""Random models read and compared with what they are: onnxruntime's values, or eager PyTorch's.

    python tests/support/random_models.py --onnx 5000 --torch 2000 --seed 0

reads so many of each and prints how many have the right values, are refused, or are wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from random_onnx import random_graph
from random_torch import random_module

import lipopt
from lipopt.errors import LipoptError
from lipopt.model.network import Network
from lipopt.readers.builder import Builder
from lipopt.readers.onnx import Part, network_from_model
from lipopt.readers.views import View

SIZES = (0.1, 1.0, 1.0, 10.0)  # standard deviations of the points
FORGIVEN = 2000.0  # rounding errors, each relative to the largest number in the model
CHECKED = ("misread", "compare")  # words in the messages of the readers' own check
Outcome = tuple[str, str]  # what happened, and why


@dataclass
class Counts:
    """How many models were read, by outcome; why, and which seeds, where that is not "equal"."""

    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    seeds: dict[str, list[int]] = field(default_factory=dict)

    def add(self, seed: int, outcome: Outcome) -> None:
        what, why = outcome
        self.outcomes[what] += 1
        if what != "equal":
            self.reasons[f"{what}: {_general(why)}"] += 1
            self.seeds.setdefault(what, []).append(seed)

    def table(self) -> str:
        lines = [f"{count:7d}  {what}" for what, count in sorted(self.outcomes.items())]
        lines += [f"{count:7d}    {why}" for why, count in self.reasons.most_common(60)]
        for what, seeds in self.seeds.items():
            if what != "refused":
                lines.append(f"seeds of {what}: {seeds[:40]}")
        return "\n".join(lines)


def _general(reason: str) -> str:
    """A message without the names and numbers of one model."""
    text = re.sub(r"'[^']*' ", "", reason.splitlines()[0] if reason else "")
    return re.sub(r"-?\d+(\.\d+)?(e[-+]\d+)?", "#", text)[:110]


def onnx_outcome(seed: int) -> Outcome:
    """What becomes of a random ONNX graph."""
    graph = random_graph(seed)
    kind = np.finfo(graph.kind)

    def read(check: bool) -> Network:
        return network_from_model(graph.model, Part(output=graph.output), check)

    def values(x: np.ndarray) -> tuple[np.ndarray, float]:
        found = graph.values(x)
        return found[graph.output], max(float(np.abs(v).max()) for v in found.values())

    return _outcome(read, values, int(np.prod(graph.shape)), float(kind.eps))


def torch_outcome(seed: int) -> Outcome:
    """What becomes of a random PyTorch module."""
    sample = random_module(seed)

    def read(check: bool) -> Network:
        return lipopt.load(sample.module, input_shape=sample.shape, check=check)

    size = int(np.prod(sample.shape))
    return _outcome(read, sample.values, size, float(np.finfo(np.float32).eps))


def _outcome(
    read: Callable[[bool], Network],
    values: Callable[[np.ndarray], tuple[np.ndarray, float]],
    size: int,
    unit: float,
) -> Outcome:
    """equal, refused, wrong (the reader's own check missed it), caught (it did not), false alarm
    (it found a difference where there is none) or crash (another exception).

    What the check alone refuses is read again without it."""
    alarm = ""
    with _output_shapes() as shapes, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            network = read(True)
        except LipoptError as error:
            alarm = str(error)
            if not any(word in alarm for word in CHECKED):
                return "refused", alarm
        except Exception as error:
            return "crash", f"{type(error).__name__}: {error}"
        if alarm:
            network = read(False)
    found = _difference(network, shapes[-1], values, size, unit)
    if not alarm:
        return ("wrong", found) if found else ("equal", "")
    return ("caught", alarm) if found else ("false alarm", alarm)


@contextlib.contextmanager
def _output_shapes() -> Iterator[list[tuple[int, ...]]]:
    """The shapes of the outputs of all networks that are built: a Network itself has flat ones."""
    shapes: list[tuple[int, ...]] = []
    build = Builder.network

    def network(self: Builder, output: View) -> Network:
        shapes.append(output.shape)
        return build(self, output)

    Builder.network = network  # type: ignore[method-assign]
    try:
        yield shapes
    finally:
        Builder.network = build  # type: ignore[method-assign]


def _difference(
    network: Network,
    shape: tuple[int, ...],
    values: Callable[[np.ndarray], tuple[np.ndarray, float]],
    size: int,
    unit: float,
) -> str:
    """In words, how a network differs from its model, or nothing."""
    rng = np.random.default_rng(size)
    for scale in SIZES:
        x = (scale * rng.normal(size=size)).astype(np.float32)
        expected, largest = values(x)
        if expected.shape != shape:
            return f"shape {list(shape)}, not {list(expected.shape)}"
        ours = network.forward(x.astype(np.float64)).reshape(shape)
        far = np.abs(ours - expected) > FORGIVEN * unit * max(largest, scale)
        if not np.isfinite(ours).all() or far.any():
            place = np.unravel_index(np.argmax(far), far.shape)
            return f"{ours[place]:.7g}, not {expected[place]:.7g}"
    return ""


def tally(outcome: Callable[[int], Outcome], seeds: range) -> Counts:
    """The outcomes of a range of seeds."""
    counts = Counts()
    for seed in seeds:
        counts.add(seed, outcome(seed))
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--onnx", type=int, default=0, help="how many ONNX graphs")
    parser.add_argument("--torch", type=int, default=0, help="how many PyTorch modules")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    for name, outcome, count in (
        ("ONNX", onnx_outcome, options.onnx),
        ("PyTorch", torch_outcome, options.torch),
    ):
        if count:
            counts = tally(outcome, range(options.seed, options.seed + count))
            print(f"{name}: {count} models from seed {options.seed}")
            print(counts.table(), flush=True)


if __name__ == "__main__":
    main()
