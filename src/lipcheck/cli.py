"""lipcheck NETWORK [CERTIFICATE]: check a certificate, or say what was understood of a network."""

from __future__ import annotations

import argparse
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

from .certificate import Claim, check
from .exact import VERDICTS, Failure, decimal, require
from .network import Activation, Affine, Network, read_network
from .problem import Bounds

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

SHOWN = 8  # outputs or inputs that are written out
NETWORK_BYTES, CERTIFICATE_BYTES = 2**31, 2**30  # at most


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lipcheck", description="Check a Lipschitz certificate in exact arithmetic.")
    parser.add_argument("network", help="the network file (safetensors)")
    parser.add_argument("certificate", nargs="?", help="the certificate; without it, the network is described")
    parser.add_argument("--seconds", type=int, default=3600, help="limit on time (default 3600)")
    parser.add_argument("--gigabytes", type=int, default=16, help="limit on memory (default 16)")
    options = parser.parse_args(arguments)
    try:
        with limits(options.seconds, options.gigabytes):
            network = read_network(read_bytes(options.network, NETWORK_BYTES))
            if options.certificate is None:
                print(describe(network))
                return 0
            claim = check(network, read_bytes(options.certificate, CERTIFICATE_BYTES))
            verdict, message = "verified", theorem(claim)
    except Failure as failure:
        verdict, message = failure.verdict, str(failure)
    except MemoryError:
        verdict, message = "limits exceeded", f"more than {options.gigabytes} GB of memory"
    except Exception:
        verdict, message = "internal error", traceback.format_exc().strip()
    print(f"{verdict}: {message}")
    return VERDICTS[verdict]


def read_bytes(path: str, most: int) -> bytes:
    try:
        require(Path(path).stat().st_size <= most, f"{path} is larger than {most} bytes", "limits exceeded")
        return Path(path).read_bytes()
    except OSError as error:
        raise Failure("malformed", f"cannot read {path}: {error.strerror}") from None


def theorem(claim: Claim) -> str:
    norm = {"linf": "l_inf", "l2": "l_2", "l1": "l_1"}[claim.norm]
    return (
        f"the {norm} Lipschitz constant of {listed([functional(row) for row in claim.rows], ', ')} on {domain(claim.box)} "
        f"is at most {decimal(claim.bound)} (exactly {claim.bound}), network sha256 {claim.network.sha256}"
    )


def domain(box: Bounds | None) -> str:
    if box is None:
        return "the whole space"
    if len(box[0]) <= SHOWN:
        return "the box " + " x ".join(f"[{low}, {high}]" for low, high in zip(*box, strict=True))
    widest = decimal(max(high - low for low, high in zip(*box, strict=True)))
    return f"the certificate's box of {len(box[0])} inputs (within [{min(box[0])}, {max(box[1])}], widest side {widest})"


def functional(row: dict[int, Fraction]) -> str:
    terms = [f"{value} f[{i}]" if abs(value) != 1 else f"{'-' if value < 0 else ''}f[{i}]" for i, value in row.items()]
    return listed(terms, " + ").replace("+ -", "- ")


def listed(items: list[str], separator: str) -> str:
    return separator.join(items[:SHOWN] + ([f"... ({len(items)} in all)"] if len(items) > SHOWN else []))


def describe(network: Network) -> str:
    lines = [f"network sha256 {network.sha256}"]
    for i, node in enumerate(network.nodes):
        lines.append(f"node {i}: {node.kind}, {node.size}")
        if isinstance(node, Activation):
            lines[-1] += f", from {node.source}"
        elif isinstance(node, Affine):
            weights = sum(len(row) for _, matrix in node.inputs for row in matrix.rows)
            lines[-1] += f", from {', '.join(str(source) for source, _ in node.inputs)}, {weights} weights"
    return "\n".join(lines)


@contextmanager
def limits(seconds: int, gigabytes: int) -> Iterator[None]:
    """Limits on time and memory, where the system has them."""

    def stop(*_: object) -> None:
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
