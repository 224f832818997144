"""The commands about one question or one file: info, bound, lower, compare, check, report, demo."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import LipoptError
from ..names import printable
from ..progress import message_progress
from .options import (
    METHODS,
    STANDARD_OUTPUT,
    CertificateOption,
    GapOption,
    JobsOption,
    JsonOption,
    MethodOption,
    Question,
    QuietOption,
    Reading,
    SamplesOption,
    SeedOption,
    TimeOption,
    check_writable,
    command,
    pair,
)

if TYPE_CHECKING:
    from ..methods.lp.sparsity import PatternSize
    from ..model.network import Network
    from ..problem.derivative import DerivativeProblem
    from ..problem.question import Posed
    from ..result import Result


@command(Reading, Question)
def info(
    reading: Reading,
    ask: Question,
    pattern: Annotated[
        bool, typer.Option("--pattern", help="also the sizes of the LP's sparsity patterns")
    ] = False,
    degree: Annotated[
        int | None, typer.Option("--degree", help="degree for --pattern", show_default="the depth")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a network: its layers, and what presolve leaves of the derivative problem."""
    from ..methods.lp.sparsity import pattern_sizes
    from ..problem import question

    network = reading.network
    about = question.Question.about(network, **ask.options())
    if degree is not None and not (pattern and degree > 0):
        raise LipoptError("--degree is a number from 1, and goes with --pattern")
    reason = question.unbounded_slopes(network) if about.domain is None else None
    if reason is not None and not pattern:
        _show_local_network(network, reason, as_json)
        return
    posed = question.pose(network, about)
    degree = degree or len(posed.problem.layers) + 1
    sizes = pattern_sizes(posed.problem, degree) if pattern else []
    if as_json:
        print(json.dumps(_info_as_data(network, posed.problem, sizes)))
    else:
        _print_info(posed, sizes, degree)


def _show_local_network(network: Network, reason: str, as_json: bool) -> None:
    """What `info` prints of a network that has a constant in a ball or a box alone."""
    from ..show import tables

    if as_json:
        print(json.dumps({**_network_as_data(network), "presolved": None, "patterns": []}))
        return
    console = tables.console()
    _print_network(network)
    console.print(
        f"a constant in a ball or a box only: {printable(reason)}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _info_as_data(
    network: Network, presolved: DerivativeProblem, sizes: list[PatternSize]
) -> dict[str, Any]:
    """What `info --json` prints."""
    return {
        **_network_as_data(network),
        "presolved": {
            "neurons": presolved.neurons,
            "layers": len(presolved.layers),
            "coefficients": presolved.nonzeros,
        },
        "patterns": [asdict(size) for size in sizes],
    }


def _network_as_data(network: Network) -> dict[str, Any]:
    """What `info --json` prints of a network alone."""
    from ..show import tables

    return {
        "hash": network.hash,
        "source": None if network.source is None else asdict(network.source),
        "input_shape": network.input_shape,
        "outputs": network.output_size,
        "nodes": tables.node_rows(network),
    }


def _print_network(network: Network) -> None:
    """What `info` prints of a network alone."""
    from ..show import tables

    console = tables.console()
    console.print(tables.network_line(network), style="bold", highlight=False)
    for line in tables.source_lines(network):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(tables.network_table(network))


def _print_info(posed: Posed, sizes: list[PatternSize], degree: int) -> None:
    """What `info` prints; the sizes are those of LPs of that degree."""
    from ..methods.lp.sparsity import paper_counts
    from ..show import tables

    console = tables.console()
    _print_network(posed.merged.original)
    console.print(tables.presolve_line(posed.raw, posed.problem), highlight=False)
    if sizes:
        console.print(tables.patterns_table(sizes, degree))
        counts = paper_counts(posed.problem, degree).items()
        paper = ", ".join(f"{kind} {number:,}" for kind, number in counts)
        console.print(f"the paper's counts for the output pattern: {paper}", highlight=False)


@command(Reading, Question)
def bound(
    reading: Reading,
    ask: Question,
    method: MethodOption = "auto",
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="sparsity pattern of the LP methods")
    ] = None,
    cuts: Annotated[
        bool, typer.Option("--cuts", help="tighten --method sdp by signs and triangle inequalities")
    ] = False,
    device: Annotated[
        str | None, typer.Option("--device", help="torch device of the SDP methods, such as cuda")
    ] = None,
    gap: GapOption = None,
    time_limit: TimeOption = None,
    jobs: JobsOption = 1,
    seed: SeedOption = 0,
    samples: SamplesOption = None,
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bound the Lipschitz constant from above, with a lower bound beside it.

    Ctrl-C shows what was found until then; the exit code is 130."""
    from ..api import bound as run
    from ..methods.registry import find_method
    from ..problem.interruption import interruptible
    from ..show import tables

    _check_certificate(certificate, reading)
    settings: dict[str, Any] = {}
    if pattern is not None:
        settings["pattern"] = pattern
    if device is not None:
        settings["device"] = device
    if cuts:
        settings["cuts"] = True
    with interruptible():  # a Ctrl-C that comes late does not lose what is proved
        console = tables.console()
        with message_progress(quiet or as_json, console) as progress:
            result = run(
                reading.network,
                method=find_method(method, **settings),
                gap=gap,
                time_limit=time_limit,
                jobs=jobs,
                seed=seed,
                samples=samples,
                certify=certificate is not None,
                progress=progress,
                **ask.options(),
            )
        written = _save(reading.network, result, certificate)
        if as_json:
            print(result.to_json())
        elif quiet:
            print(repr(result.upper))
        else:
            tables.show(console, [result])
            print(written)
    if result.status == "interrupted":
        raise typer.Exit(130)


@command(Reading, Question)
def lower(
    reading: Reading,
    ask: Question,
    time_limit: TimeOption = None,
    seed: SeedOption = 0,
    samples: SamplesOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bound the Lipschitz constant from below: gradients of the network, and the optimum that upper
    bounds relax."""
    from ..api import lower_bound as run
    from ..show import tables

    console = tables.console()
    with message_progress(quiet or as_json, console) as progress:
        result = run(
            reading.network,
            time_limit=time_limit,
            seed=seed,
            samples=samples,
            progress=progress,
            **ask.options(),
        )
    if as_json:
        print(result.to_json())
    elif quiet:
        print(repr(result.lower))
    else:
        console.print(result.question, style="bold", highlight=False)
        console.print(tables.lower_lines(result), highlight=False)


@command(Reading, Question)
def compare(
    reading: Reading,
    ask: Question,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", metavar="A,B,...", help=f"some of {METHODS}", show_default="all but auto"
        ),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="seconds for each method")
    ] = 60.0,
    seed: SeedOption = 0,
    samples: SamplesOption = None,
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare methods on the same question, best first."""
    from ..api import compare as run
    from ..problem.interruption import interruptible
    from ..show import tables

    _check_certificate(certificate, reading)
    names = None
    if methods is not None:
        names = [name.strip() for name in methods.split(",")]
    with interruptible():  # a Ctrl-C that comes late does not lose what is proved
        console = tables.console()
        with message_progress(quiet or as_json, console) as progress:
            results = run(
                reading.network,
                methods=names,
                time_limit=time_limit,
                seed=seed,
                samples=samples,
                certify=certificate is not None,
                progress=progress,
                **ask.options(),
            )
        written = _save(reading.network, results[0], certificate)
        if as_json:
            rows = [json.loads(result.to_json()) for result in results]
            for name, reason in results.refused.items():
                rows.append({"method": name, "refused": reason})
            print(json.dumps(rows))
        elif quiet:
            for result in results:
                print(result.method, repr(result.upper))
        else:
            tables.show(console, results, results.refused)
            print(written)
    if any(result.status == "interrupted" for result in results):
        raise typer.Exit(130)


@command(Reading)
def check(
    reading: Reading,
    certificate: Annotated[Path, typer.Argument(help="certificate", show_default=False)],
) -> None:
    """Verify a certificate with lipcheck, in exact arithmetic.

    A model in another format than lipopt's own is read again: the certificate must be about the
    network that results.

    Exit codes are lipcheck's: 0 verified, 1 rejected, 2 malformed, 3 another network, 4 limits
    exceeded, 70 internal error."""
    from tempfile import TemporaryDirectory

    if reading.model.suffix.lower() == ".safetensors":
        raise typer.Exit(_lipcheck(reading.model, certificate))
    network = reading.network
    claimed = _claimed_network(certificate)
    if claimed.network != network.hash:
        print(f"another network: {_difference(network, claimed)}")
        raise typer.Exit(3)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.safetensors"
        network.save(path)
        code = _lipcheck(path, certificate)
    if code == 0:
        print(f"and that is the network of {printable(str(reading.model))}, read again")
    raise typer.Exit(code)


@dataclass(frozen=True)
class _Claimed:
    """What the head of a certificate says of its network."""

    network: str
    files: frozenset[str]  # SHA-256 of the files it was read from


def _claimed_network(certificate: Path) -> _Claimed:
    """The network that a certificate is about; lipcheck judges the rest of the file."""
    try:
        lines = certificate.read_text(encoding="latin-1").splitlines()
    except OSError as error:
        raise LipoptError(f"cannot read {certificate}: {error}") from error
    hashes = [line.removeprefix("network ") for line in lines if line.startswith("network ")]
    comments = [line for line in lines if line.startswith("comment source ")]
    files = frozenset(line.rpartition(" ")[2] for line in comments)
    return _Claimed(hashes[0] if hashes else "", files)


def _difference(network: Network, claimed: _Claimed) -> str:
    """Why a model's network is not the one that a certificate is about."""
    if network.source is not None and claimed.files == set(network.source.files.values()):
        return (
            "the certificate was made from this file, but of another part of it, or by another"
            " version of lipopt"
        )
    return "the certificate is about another model than this one"


def _lipcheck(network: Path, certificate: Path) -> int:
    """Run lipcheck in a process of its own, which shares no code with this one; its exit code."""
    import subprocess

    command = [sys.executable, "-m", "lipcheck", str(network), str(certificate)]
    return subprocess.run(command, check=False).returncode


@command(Reading, Question)
def report(
    reading: Reading,
    ask: Question,
    file: Annotated[
        Path, typer.Option("--out", "-o", help="HTML file to write; - for standard output")
    ] = Path("report.html"),
    label: Annotated[
        int | None,
        typer.Option("--label", help="class at the center: up to which radius is it proved?"),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="HEIGHT,WIDTH", help="show a flat input as a picture"),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option("--names", help="text file with a name for every input, one a line"),
    ] = None,
    change: Annotated[
        float | None,
        typer.Option(
            "--change",
            help="change of the inputs that the sentence is about",
            show_default="the radius, or 0.01",
        ),
    ] = None,
    input_unit: Annotated[
        str, typer.Option("--input-unit", help="unit of the inputs, such as m")
    ] = "",
    output_unit: Annotated[str, typer.Option("--output-unit", help="unit of the outputs")] = "",
    time_limit: TimeOption = None,
    seed: SeedOption = 0,
    samples: SamplesOption = None,
    certificate: CertificateOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write a report for readers who were not there, as one HTML file: the answer in a sentence, what
    was asked, bounds, local bounds by radius, which inputs matter, the certificate and its check."""
    from ..show import tables
    from ..show.report import report as run

    if file != STANDARD_OUTPUT:
        check_writable(file, reading.model)
    _check_certificate(certificate, reading)
    console = tables.console()
    with message_progress(quiet, console) as progress:
        done = run(
            reading.network,
            label=label,
            time_limit=time_limit,
            seed=seed,
            samples=samples,
            image=None if image is None else pair(image, "--image", int),
            names=None if names is None else _lines(names),
            change=change,
            input_unit=input_unit,
            output_unit=output_unit,
            certificate=certificate,
            command=shlex.join(["lipopt", *sys.argv[1:]]),
            progress=progress,
            **ask.options(),
        )
    if file == STANDARD_OUTPUT:
        print(done.html)
    else:
        done.save(file)
        print(printable(str(file)))


def demo() -> None:
    """Bound the networks that ship with lipopt: the paper's MNIST network, dense and pruned, global
    and local."""
    from ..show import tables
    from .demo import run

    console = tables.console()
    with message_progress(False, console) as progress:
        run(console, progress)


def _check_certificate(path: Path | None, reading: Reading) -> None:
    """Refuse a certificate that could not be written, or whose network could not be.

    The network is written beside it, where nothing else may be: that would be overwritten."""
    from ..show.certificate_files import network_beside

    check_writable(path, reading.model)
    if path is None:
        return
    beside = network_beside(path)
    if not beside.exists():
        return
    if sha256(beside.read_bytes()).hexdigest() != reading.network.hash:
        raise LipoptError(
            f"{beside} exists, and is not this network's file, which would be written there;"
            " choose another name"
        )


def _save(network: Network, result: Result, path: Path | None) -> str:
    """Write a result's certificate, and the network beside it; what to do with them, in words."""
    from ..show.certificate_files import check_command, write_certificate

    if path is None:
        return ""
    write_certificate(network, result, path)
    return f"\ncertificate written; verify it with: {check_command(path)}"


def _lines(path: Path) -> list[str]:
    """The lines of a text file."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LipoptError(f"cannot read {path}: {error}") from error
