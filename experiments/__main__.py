"""python -m experiments NAME [--quick | --tiny]: compute what is missing from the result files, then draw the figures."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import (
    certified_digits,
    local_constants,
    pattern_pictures,
    random_networks,
    sizes,
    trained_network,
    training,
    verify,
)
from .table import Scale, Setup

EXPERIMENTS = {
    "patterns": pattern_pictures.run,
    "sizes": sizes.run,
    "trained": trained_network.run,
    "local": local_constants.run,
    "random": random_networks.run,
    "training": training.run,
    "digits": certified_digits.run,
    "verify": verify.run,
}
FOLDER = Path(__file__).parent


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("name", choices=[*EXPERIMENTS, "all"])
    scale = parser.add_mutually_exclusive_group()
    scale.add_argument(
        "--quick",
        action="store_true",
        help="everything in a few minutes: fewer networks, shorter time limits",
    )
    scale.add_argument("--tiny", action="store_true", help="smaller still, for tests")
    parser.add_argument(
        "--results",
        type=Path,
        help="folder of the result files  [default: experiments/results, -quick, -tiny]",
    )
    parser.add_argument(
        "--jobs", type=int, default=-1, help="networks at the same time  [default: one per core]"
    )
    parser.add_argument(
        "--draw-only", action="store_true", help="compute nothing: draw the results there are"
    )
    parser.add_argument(
        "--retry", action="store_true", help="compute rows that ended at the time limit again"
    )
    parser.add_argument(
        "--data", type=Path, help="folder of MNIST's four files, for the experiment training"
    )
    options = parser.parse_args(arguments)
    size: Scale = "quick" if options.quick else "tiny" if options.tiny else "full"
    folder = options.results or FOLDER / ("results" if size == "full" else f"results-{size}")
    folder.mkdir(parents=True, exist_ok=True)
    flag = "" if size == "full" else f" --{size}"
    for name in EXPERIMENTS if options.name == "all" else [options.name]:
        command = f"python -m experiments {name}{flag}"
        EXPERIMENTS[name](
            Setup(
                size,
                folder,
                command,
                options.jobs,
                options.draw_only,
                options.retry,
                options.data,
            )
        )


if __name__ == "__main__":
    main()
