"""How long the checker takes: python benchmarks/lipcheck.py

Certificates are made first, which takes the processor seconds named "finding"; then they are checked in a process of
their own: its wall-clock and processor seconds, its peak memory."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import lipopt
from lipopt.certificates.certificate import Certificate
from lipopt.certificates.write import certify
from lipopt.methods.lp.method import LiPopt
from lipopt.methods.registry import Method
from lipopt.methods.sdp.method import SDP
from lipopt.model.network import Network
from lipopt.problem.question import Question, pose
from lipopt.problem.task import Budget, Task

SOURCE = Path(lipopt.__file__).parents[1]


def deep_network() -> Network:
    """5-50x6-5, as the networks of ACAS Xu."""
    rng = np.random.default_rng(0)
    sizes = [5, *[50] * 6, 5]
    weights = [rng.standard_normal((b, a)) / np.sqrt(a) for a, b in itertools.pairwise(sizes)]
    return lipopt.load(weights, biases=[0.1 * rng.standard_normal(b) for b in sizes[1:]])


def sigmoid_network() -> Network:
    """10-200x6-5."""
    rng = np.random.default_rng(0)
    sizes = [10, *[200] * 6, 5]
    weights = [4 * rng.standard_normal((b, a)) / np.sqrt(a) for a, b in itertools.pairwise(sizes)]
    biases = [0.1 * rng.standard_normal(b) for b in sizes[1:]]
    return lipopt.load(weights, biases=biases, activation="sigmoid")


def make(network: Network, method: Method, output: int, domain: lipopt.Ball | None) -> Certificate:
    posed = pose(network, Question.about(network, output=output, domain=domain))
    task = Task(posed.raw, posed.problem, Budget.of(20))
    return certify(posed, [task], [method(task)])


def measure(network: Path, certificate: Path, plain: bool) -> tuple[str, dict[str, float]]:
    """The verdict and what it took; `plain`: in a clean interpreter, without python-flint."""
    command = [
        sys.executable,
        *(["-I", "-S"] if plain else []),
        str(SOURCE / "lipcheck"),
        str(network),
        str(certificate),
    ]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    verdict = process.stdout.read().split(":")[0]
    _, _, usage = os.wait4(process.pid, 0)
    seconds, processor = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
    return verdict, {
        "seconds": round(seconds, 1),
        "processor": round(processor, 1),
        "megabytes": usage.ru_maxrss // 1024,
    }


def main() -> None:
    dense, pruned = (
        lipopt.load(SOURCE / "lipopt" / "examples" / f"{name}.safetensors")
        for name in ("dense", "pruned")
    )
    image = np.load(SOURCE / "lipopt" / "examples" / "digits.npz")["images"][0].astype(float)
    sigmoid = sigmoid_network()
    wide = lipopt.Ball(np.zeros(sigmoid.input_size), 1.0)
    narrow = lipopt.Ball(np.zeros(sigmoid.input_size), 0.01)
    cases: dict[str, tuple[Network, Method, int, lipopt.Ball | None]] = {
        "LP, 784-300-100-10 pruned, degree 3": (pruned, LiPopt(3), 8, None),
        "SDP, 784-300-100-10": (dense, SDP(), 8, None),
        "SDP, 784-300-100-10, ball of radius 0.01": (dense, SDP(), 8, lipopt.Ball(image, 0.01)),
        "SDP, 5-50x6-5": (deep_network(), SDP(), 0, None),
        "SDP, 10-200x6-5 sigmoid, ball of radius 1": (sigmoid, SDP(), 0, wide),
        "SDP, 10-200x6-5 sigmoid, ball of radius 0.01": (sigmoid, SDP(), 0, narrow),
    }
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "network", Path(folder) / "certificate"
        for name, (network, method, output, domain) in cases.items():
            start = time.process_time()
            certificate = make(network, method, output, domain)
            finding = time.process_time() - start
            network.save(paths[0])
            certificate.save(paths[1])
            sets = [
                line.split() for line in certificate.text.splitlines() if line.startswith("set ")
            ]
            about = {
                "case": name,
                "finding": round(finding, 1),
                "bound": certificate.bound,
                "loss": certificate.loss,
                "bytes": len(certificate.text),
            }
            about["products"] = sum(len(tokens) - 2 - int(tokens[1]) for tokens in sets)
            for plain in (False, True):
                verdict, took = measure(*paths, plain)
                about["standard library" if plain else "as installed"] = {
                    "verdict": verdict,
                    **took,
                }
            print(json.dumps(about), flush=True)


if __name__ == "__main__":
    main()
