"""lipcheck NETWORK [CERTIFICATE]: check a certificate, or say what was understood of a network.

In a clean interpreter, which looks nowhere for packages:

    python -I -S src/lipcheck NETWORK CERTIFICATE
"""

import argparse
import json
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    # Started as a folder, Python looks for modules in the folder; the package is one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from lipcheck import verdicts
from lipcheck.certificate import check
from lipcheck.network import read_network
from lipcheck.theorem import as_data, describe, theorem
from lipcheck.verdicts import Failure, require

SHOWN = 8  # outputs, weights or inputs that are written out without --full
SECONDS = 3600  # unless --seconds is given
GIGABYTES = 16  # unless --gigabytes is given


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a verdict, and return its exit code."""
    options = _parse(arguments)
    verdict, message = judge(options)
    if verdict != verdicts.VERIFIED:
        message = _failure(verdict, message, options.json)
    try:
        sys.stdout.write(message + "\n")
        sys.stdout.flush()
    except (OSError, AttributeError):  # AttributeError: there is no standard output at all
        sys.stdout = None  # or Python would try to flush it at exit, and fail again
        verdict = verdicts.INTERNAL_ERROR
    return verdicts.EXIT_CODES[verdict]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    description = "Check a Lipschitz certificate in exact arithmetic."
    parser = argparse.ArgumentParser(prog="lipcheck", description=description)
    parser.add_argument("network", help="the network file (safetensors)")
    text = "the certificate; without it, the network is described"
    parser.add_argument("certificate", nargs="?", help=text)
    text = f"limit on time (default {SECONDS})"
    parser.add_argument("--seconds", type=int, default=SECONDS, help=text)
    text = f"limit on memory (default {GIGABYTES})"
    parser.add_argument("--gigabytes", type=float, default=GIGABYTES, help=text)
    text = f"write out all inputs and outputs, exactly, not {SHOWN} in twelve digits"
    parser.add_argument("--full", action="store_true", help=text)
    text = "write the verdict and the claim as JSON, all numbers exactly"
    parser.add_argument("--json", action="store_true", help=text)
    options = parser.parse_args(arguments)
    if options.json and options.certificate is None:
        parser.error("--json goes with a certificate")
    return options


def _failure(verdict: str, reason: str, as_json: bool) -> str:
    """A verdict other than "verified", as it is written."""
    if as_json:
        return json.dumps({"verdict": verdict, "reason": reason})
    return f"{verdict}: {reason}"


def judge(options: argparse.Namespace) -> tuple[str, str]:
    """Section 6: a verdict, and what there is to say. Whatever happens, there is one."""
    try:
        return verdicts.VERIFIED, _verified(options)
    except Failure as failure:
        # The reason may quote the files: control characters in them must not forge a verdict.
        return failure.verdict, failure.reason.encode("unicode_escape").decode()
    except OSError as error:
        return verdicts.MALFORMED, str(error)
    except (MemoryError, OverflowError):
        pass  # while it is handled, the error holds all that was computed, and no memory is left
    except KeyboardInterrupt:
        return verdicts.LIMITS_EXCEEDED, "interrupted"
    except Exception:
        return verdicts.INTERNAL_ERROR, traceback.format_exc().strip()
    return verdicts.LIMITS_EXCEEDED, f"more than {options.gigabytes:g} GB of memory"


def _verified(options: argparse.Namespace) -> str:
    """The theorem that the certificate proves; or, without one, what the network is."""
    set_limits(options.seconds, options.gigabytes)
    network = read_network(Path(options.network).read_bytes())
    if options.certificate is None:
        return describe(network)
    claim = check(network, Path(options.certificate).read_bytes())
    if options.json:
        return json.dumps({"verdict": verdicts.VERIFIED, **as_data(claim)})
    if options.full:
        return f"verified: {theorem(claim, None)}"
    return f"verified: {theorem(claim, SHOWN)}"


def set_limits(seconds: int, gigabytes: float) -> None:
    """Limit the time and memory of this process, where the system can."""
    valid = 0 < seconds < 2**31 and 0 < gigabytes < 2**20
    require(valid, "the limits must be positive, and not absurd")
    try:
        import resource
    except ImportError:  # Windows
        return
    size = int(gigabytes * 2**30)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        size = min(size, most)
    resource.setrlimit(resource.RLIMIT_AS, (size, most))
    reason = f"more than {seconds} seconds"
    signal.signal(signal.SIGALRM, lambda *_: require(False, reason, verdicts.LIMITS_EXCEEDED))
    signal.alarm(seconds)


if __name__ == "__main__":
    sys.exit(main())
