"""lipcheck NETWORK [CERTIFICATE]: check a certificate, or say what was understood of a network."""

from __future__ import annotations

import argparse
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from types import FrameType

from . import network as network_file
from . import parse
from .certificate import Claim, check
from .exact import VERDICTS, Failure, decimal
from .network import Affine, Input, Network, read_bytes, read_network

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

SHOWN = 8  # outputs or inputs that are written out


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lipcheck", description="Check a Lipschitz certificate in exact arithmetic.")
    parser.add_argument("network", help="the network file (safetensors)")
    parser.add_argument("certificate", nargs="?", help="the certificate; without it, the network is described")
    parser.add_argument("--seconds", type=int, default=3600, help="limit on time (default 3600)")
    parser.add_argument("--gigabytes", type=int, default=16, help="limit on memory (default 16)")
    options = parser.parse_args(arguments)
    try:
        with limits(options.seconds, options.gigabytes):
            network = read_network(read_bytes(options.network, network_file.MOST_BYTES))
            if options.certificate is None:
                print(describe(network))
                return 0
            claim = check(network, read_bytes(options.certificate, parse.MOST_BYTES))
            verdict, message = "verified", theorem(claim)
    except Failure as failure:
        verdict, message = failure.verdict, str(failure)
    except MemoryError:
        verdict, message = "limits exceeded", f"more than {options.gigabytes} GB of memory"
    except Exception:
        verdict, message = "internal error", traceback.format_exc().strip()
    print(f"{verdict}: {message}")
    return VERDICTS[verdict]


def theorem(claim: Claim) -> str:
    norm = {"linf": "l_inf", "l2": "l_2", "l1": "l_1"}[claim.norm]
    outputs = ", ".join(_functional(row) for row in claim.rows[:SHOWN])
    more = f", ... ({len(claim.rows)} in all)" if len(claim.rows) > SHOWN else ""
    return (
        f"the {norm} Lipschitz constant of {outputs}{more} {_domain(claim)} is at most {decimal(claim.bound)} "
        f"(exactly {claim.bound}), network sha256 {claim.network.sha256}"
    )


def _functional(row: dict[int, Fraction]) -> str:
    terms = [f"{value} f[{i}]" if abs(value) != 1 else f"{'-' if value < 0 else ''}f[{i}]" for i, value in row.items()]
    return " + ".join(terms[:SHOWN]).replace("+ -", "- ") + (f" + ... ({len(terms)} terms)" if len(terms) > SHOWN else "")


def _domain(claim: Claim) -> str:
    if claim.box is None:
        return "on the whole space"
    sides = list(zip(*claim.box, strict=True))
    if len(sides) <= SHOWN:
        return "on the box " + " x ".join(f"[{low}, {high}]" for low, high in sides)
    within = f"within [{min(claim.box[0])}, {max(claim.box[1])}], widest side {decimal(max(high - low for low, high in sides))}"
    return f"on the certificate's box of {len(sides)} inputs ({within})"


def describe(network: Network) -> str:
    lines = [f"network sha256 {network.sha256}"]
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            lines.append(f"node {i}: input, {node.size} ({' x '.join(map(str, node.shape))})")
        elif isinstance(node, Affine):
            weights = sum(len(row) for _, matrix in node.inputs for row in matrix.rows)
            lines.append(f"node {i}: affine, {node.size}, from {', '.join(str(s) for s, _ in node.inputs)}, {weights} weights")
        else:
            lines.append(f"node {i}: {node.kind}, {node.size}, from {node.source}")
    return "\n".join(lines)


@contextmanager
def limits(seconds: int, gigabytes: int) -> Iterator[None]:
    """Limits on time and memory, where the system has them."""

    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise Failure("limits exceeded", f"more than {seconds} seconds")

    if resource is None:
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    size = gigabytes * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (size if most == resource.RLIM_INFINITY else min(size, most), most))
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (before, most))
