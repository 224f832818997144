"""How the SDP's time and memory grow with the number of neurons, dense and convolutional.

    python benchmarks/growth.py [--neurons 1000 2000 5000 10000 20000] [--only dense]

Dense: 100 inputs, two hidden layers of equal width, one output. Convolutional: images with 3 channels,
two convolutions (16 and 32 channels, 4x4 windows, stride 2) and a dense layer of 100. Random weights,
linf, slopes in [0, 1], one output, as `lipopt bound -m sdp` answers it, lower bounds included. Every
size has a process of its own: processor seconds, and the peak of its memory less what a network of ten
neurons takes. The exponents are slopes of least-squares lines through the logarithms of the largest three.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
from convolutions import convolutional_network  # type: ignore[import-not-found]  # beside this file

import lipopt
from lipopt.model.network import Network

INPUTS = 100
POINTS_OF_A_LINE = 3
CHANNELS_PER_PIXEL = 16 / 4 + 32 / 16  # neurons of both convolutions, for every pixel of the image
SMALLEST = 10  # neurons: what a process needs at any rate


def dense_network(neurons: int) -> Network:
    """Two hidden layers of the same width."""
    rng = np.random.default_rng(0)
    width = max(1, neurons // 2)
    sizes = (INPUTS, width, width, 1)
    weights = []
    for inputs, outputs in pairwise(sizes):
        weights.append(rng.standard_normal((outputs, inputs)) / math.sqrt(inputs))
    return lipopt.load(weights)


def image_network(neurons: int) -> Network:
    """Convolutions over images that are as large as it takes for about so many neurons."""
    side = 4 * max(1, round(math.sqrt(neurons / CHANNELS_PER_PIXEL) / 4))
    return convolutional_network(side)


NETWORKS = {"dense": dense_network, "convolutional": image_network}


def measure(kind: str, neurons: int) -> None:
    """Print what one bound costs: what this script does in its own processes."""
    network = NETWORKS[kind](neurons)
    start = time.process_time()
    result = lipopt.bound(network, method="sdp")
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    assert result.pop_lower is not None
    print(network.neurons, seconds, peak, result.pop_lower, result.upper, result.by)


def ask(kind: str, neurons: int) -> tuple[list[float], str]:
    """What `measure` prints in a process of its own: five numbers, and the method in words."""
    command = [sys.executable, __file__, "--measure", kind, str(neurons)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *numbers, method = done.stdout.split(maxsplit=5)
    return [float(number) for number in numbers], method.strip()


def exponent(sizes: list[float], costs: list[float]) -> float:
    """The power of the size that the last costs grow with."""
    own = slice(-POINTS_OF_A_LINE, None)
    return float(np.polyfit(np.log(sizes[own]), np.log(costs[own]), 1)[0])


def show(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def grow(kind: str, all_neurons: list[int]) -> None:
    (_, _, needed, _, _), _ = ask(kind, SMALLEST)
    show("network", "neurons", "POP is at least", "bound", "by", "s", "memory, GB")
    show(*["---"] * 7)
    sizes, times, peaks = [], [], []
    for neurons in all_neurons:
        (count, seconds, peak, pop_lower, upper), method = ask(kind, neurons)
        sizes.append(count)
        times.append(seconds)
        peaks.append(peak - needed)
        bounds = (f"{pop_lower:.5g}", f"{upper:.5g}", method)
        show(kind, f"{count:,.0f}", *bounds, f"{seconds:.2g}", f"{peaks[-1]:.2g}")
    powers = f"time {exponent(sizes, times):.1f}, memory {exponent(sizes, peaks):.1f}"
    print(f"\nGrowth with the number of neurons, {kind}: {powers}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = [1000, 2000, 5000, 10000, 20000]
    parser.add_argument("--neurons", type=int, nargs="+", default=sizes)
    parser.add_argument("--only", choices=list(NETWORKS))
    parser.add_argument("--measure", nargs=2, metavar=("KIND", "NEURONS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], int(arguments.measure[1]))
        return
    for kind in NETWORKS:
        if arguments.only in (None, kind):
            grow(kind, arguments.neurons)


if __name__ == "__main__":
    main()
