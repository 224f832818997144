"""Attack what a batch run certified: projected gradient ascent in the ball must not change the class of a certified point.

    python benchmarks/attack.py MODEL RESULTS --data IMAGES --labels LABELS [--divide 255] [--clip 0,1] [--points FROM:TO]

Prints, for every radius, how many points are certified, how many survive the attack, and how many are certified and fall: 0.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
import scipy.sparse as sp

import lipopt
from lipopt.batch.results_file import read_rows
from lipopt.lower.gradients import jacobians, slopes_at
from lipopt.readers.points import check_labels, check_points, read_labels, read_points

STEPS = 20


def surviving(
    network: lipopt.Network,
    x: np.ndarray,
    labels: np.ndarray,
    radius: float,
    clip: tuple[float, float],
) -> np.ndarray:
    """Whether each point keeps its class under ascent on every margin in turn, with steps of falling size."""
    everything, columns = sp.csr_array(sp.eye_array(network.output_size)), np.arange(len(x))
    low, high = np.maximum(x - radius, clip[0]), np.minimum(x + radius, clip[1])
    kept = network(x).argmax(axis=1) == labels
    for shift in range(1, network.output_size):
        targets, moved = (labels + shift) % network.output_size, x
        for step in radius * 0.8 ** np.arange(STEPS):
            jacobian = jacobians(network, everything, slopes_at(network, moved.T), len(x))
            ascent = jacobian[targets, :, columns] - jacobian[labels, :, columns]
            moved = np.clip(moved + step * np.sign(ascent), low, high)
            kept &= network(moved).argmax(axis=1) == labels
    return kept


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("results")
    parser.add_argument("--data", required=True)
    parser.add_argument("--labels", required=True)
    parser.add_argument("--divide", type=float, default=1.0)
    parser.add_argument("--clip", default="-inf,inf")
    parser.add_argument("--points", default="0:")
    options = parser.parse_args()
    network = lipopt.load(options.model)
    points = check_points(network, read_points(options.data, options.divide))
    labels = check_labels(network, read_labels(options.labels), len(points))
    start, stop = (int(k) if k else len(points) for k in options.points.split(":"))
    low, high = (float(c) for c in options.clip.split(","))
    certified: dict[float, dict[int, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for row in read_rows(options.results):
        certified[row.radius][row.point].append(row.certified is True)
    for radius, margins in sorted(certified.items()):
        proved = np.array(
            [
                len(margins[k]) == network.output_size - 1 and all(margins[k])
                for k in range(start, stop)
            ]
        )
        kept = surviving(network, points[start:stop], labels[start:stop], radius, (low, high))
        print(
            f"radius {radius}: {proved.sum()} certified, {kept.sum()} survive, {(proved & ~kept).sum()} certified but fall"
        )


if __name__ == "__main__":
    main()
