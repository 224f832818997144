"""lipcheck NETWORK [CERTIFICATE]: check a certificate, or say what was understood of a network."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType

from .exact import decimal
from .failures import Failure, LimitExceeded, Mismatch
from .network import Activation, Affine, Input, Network, read_network
from .parse import Certificate, Functional, read_certificate
from .rules import check

NAMES = {0: "verified", 1: "rejected", 2: "malformed", 3: "network mismatch", 4: "limits exceeded", 70: "internal error"}
SHOWN = 8  # outputs or inputs that are written out


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lipcheck", description="Check a Lipschitz certificate in exact arithmetic.")
    parser.add_argument("network", help="the network file (safetensors)")
    parser.add_argument("certificate", nargs="?", help="the certificate; without it, the network is described")
    parser.add_argument("--seconds", type=int, default=3600, help="limit on time (default 3600)")
    parser.add_argument("--gigabytes", type=int, default=16, help="limit on memory (default 16)")
    options = parser.parse_args(arguments)
    try:
        _limit(options.seconds, options.gigabytes)
        code, message = 0, run(options.network, options.certificate)
    except Failure as failure:
        code, message = failure.code, str(failure)
    except MemoryError:
        code, message = LimitExceeded.code, f"more than {options.gigabytes} GB of memory"
    except Exception:
        code, message = 70, traceback.format_exc().strip()
    print(f"{NAMES[code]}: {message}" if code or options.certificate else message)
    return code


def run(network_path: str, certificate_path: str | None) -> str:
    """The theorem that was verified, or a description of the network."""
    network = read_network(network_path)
    if certificate_path is None:
        return describe(network)
    certificate = read_certificate(certificate_path)
    if certificate.network != network.sha256:
        raise Mismatch(f"the certificate is for network {certificate.network}, the file is {network.sha256}")
    check(network, certificate)
    return theorem(certificate)


def theorem(certificate: Certificate) -> str:
    norm = {"linf": "l_inf", "l2": "l_2", "l1": "l_1"}[certificate.norm]
    outputs = ", ".join(_functional(row) for row in certificate.outputs[:SHOWN])
    if len(certificate.outputs) > SHOWN:
        outputs += f", ... ({len(certificate.outputs)} in all)"
    return (
        f"the {norm} Lipschitz constant of {outputs} {_domain(certificate)} is at most {decimal(certificate.bound)} "
        f"(exactly {certificate.bound.numerator}/{certificate.bound.denominator}), network sha256 {certificate.network}"
    )


def _functional(row: Functional) -> str:
    terms = [
        f"{'-' if value < 0 else '+'} {'' if abs(value) == 1 else f'{abs(value)} '}f[{i}]"
        for i, value in list(row.items())[:SHOWN]
    ]
    return " ".join(terms).removeprefix("+ ") + (f" ... ({len(row)} terms)" if len(row) > SHOWN else "")


def _domain(certificate: Certificate) -> str:
    if certificate.box is None:
        return "on the whole space"
    sides = list(zip(*certificate.box, strict=True))
    if len(sides) <= SHOWN:
        return "on the box " + " x ".join(f"[{low}, {high}]" for low, high in sides)
    width = max(high - low for low, high in sides)
    return (
        f"on the certificate's box of {len(sides)} inputs (within [{min(certificate.box[0])}, {max(certificate.box[1])}], "
        f"widest side {decimal(width)})"
    )


def describe(network: Network) -> str:
    lines = [f"network sha256 {network.sha256}"]
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            lines.append(f"node {i}: input, {node.size} ({' x '.join(map(str, node.shape))})")
        elif isinstance(node, Affine):
            stored = sum(len(row) for _, matrix in node.inputs for row in matrix.rows)
            lines.append(f"node {i}: affine, {node.size}, from {', '.join(str(s) for s, _ in node.inputs)}, {stored} weights")
        elif isinstance(node, Activation):
            lines.append(f"node {i}: {node.kind}, {node.size}, from {node.source}")
    return "\n".join(lines)


def _limit(seconds: int, gigabytes: int) -> None:
    """Limits on time and memory, where the system has them."""

    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise LimitExceeded(f"more than {seconds} seconds")

    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, stop)
        signal.alarm(seconds)
    try:
        import resource
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    size = gigabytes * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (size if most == resource.RLIM_INFINITY else min(size, most), most))


if __name__ == "__main__":
    sys.exit(main())
