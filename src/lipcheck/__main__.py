"""lipcheck NETWORK [CERTIFICATE]: check a certificate, or say what was understood of a network.

In a clean interpreter, which looks nowhere for packages: python -I -S src/lipcheck NETWORK CERTIFICATE
"""

import argparse
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from lipcheck.certificate import Claim, check
from lipcheck.exact import VERDICTS, Failure, decimal, require
from lipcheck.network import Network, read_network

SHOWN = 8  # outputs or inputs that are written out without --full


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lipcheck", description="Check a Lipschitz certificate in exact arithmetic.")
    parser.add_argument("network", help="the network file (safetensors)")
    parser.add_argument("certificate", nargs="?", help="the certificate; without it, the network is described")
    parser.add_argument("--seconds", type=int, default=3600, help="limit on time (default 3600)")
    parser.add_argument("--gigabytes", type=float, default=16, help="limit on memory (default 16)")
    parser.add_argument("--full", action="store_true", help=f"write out all inputs and outputs, not {SHOWN}")
    options = parser.parse_args(arguments)
    try:
        set_limits(options.seconds, options.gigabytes)
        network = read_network(Path(options.network).read_bytes())
        if options.certificate is None:
            verdict, message = "verified", describe(network)
        else:
            claim = check(network, Path(options.certificate).read_bytes())
            verdict, message = "verified", "verified: " + theorem(claim, None if options.full else SHOWN)
    except Failure as failure:
        verdict, message = failure.args[0], failure.args[1].encode("unicode_escape").decode()  # it may quote the files
    except OSError as error:
        verdict, message = "malformed", str(error)
    except (MemoryError, OverflowError):
        verdict, message = "limits exceeded", f"more than {options.gigabytes:g} GB of memory"
    except KeyboardInterrupt:
        verdict, message = "limits exceeded", "interrupted"
    except Exception:
        verdict, message = "internal error", traceback.format_exc().strip()
    try:
        sys.stdout.write(message + "\n" if verdict == "verified" else f"{verdict}: {message}\n")
        sys.stdout.flush()
    except (OSError, AttributeError):
        verdict, sys.stdout = "internal error", None  # nothing can be written
    return VERDICTS[verdict]


def set_limits(seconds: int, gigabytes: float) -> None:
    """On the time and memory of this process, where the system has limits."""
    require(0 < seconds < 2**31 and 0 < gigabytes < 2**20, "the limits must be positive, and not absurd")
    try:
        import resource
    except ImportError:  # Windows
        return
    size, most = int(gigabytes * 2**30), resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (size if most == resource.RLIM_INFINITY else min(size, most), most))
    signal.signal(signal.SIGALRM, lambda *_: require(False, f"more than {seconds} seconds", "limits exceeded"))
    signal.alarm(seconds)


def describe(network: Network) -> str:
    lines = [f"network sha256 {network.sha256}"]
    for i, node in enumerate(network.nodes):
        sources = [f", from {source} by {sum(map(len, matrix.rows))} weights" for source, matrix in node.inputs]
        lines.append(f"node {i}: {node.kind}, {node.size}" + (f", from {node.source}" if node.functions else "".join(sources)))
    return "\n".join(lines)


def theorem(claim: Claim, shown: int | None) -> str:
    domain, norm = "the whole space", {"linf": "l_inf", "l2": "l_2", "l1": "l_1"}[claim.norm]
    if claim.box is not None:
        domain = f"the box {listed([f'[{low}, {high}]' for low, high in zip(*claim.box, strict=True)], ' x ', shown)}"
    rows = [[f"{value} f[{i}]".removeprefix("1 ").replace("-1 ", "-") for i, value in row.items()] for row in claim.rows]
    functions = listed([listed(terms or ["0"], " + ", shown).replace("+ -", "- ") for terms in rows], ", ", shown)
    bound = f"{decimal(claim.bound)} (exactly {claim.bound})"
    return f"the {norm} Lipschitz constant of {functions} on {domain} is at most {bound}, network sha256 {claim.network.sha256}"


def listed(items: list[str], separator: str, shown: int | None) -> str:
    return separator.join(items[:shown] + ([f"... ({len(items)} in all)"] if shown and len(items) > shown else []))


if __name__ == "__main__":
    sys.exit(main())
