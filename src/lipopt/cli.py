"""The command line. Exit codes: 0 done; 2 bad input or a request that cannot be met, said in one line; 130 interrupted."""

from __future__ import annotations

import itertools
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property, wraps
from hashlib import sha256
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import LipoptError
from .names import printable

if TYPE_CHECKING:
    from rich.console import Console

    from .domain import Domain
    from .network import Network
    from .result import Result

app = typer.Typer(
    help="Certified Lipschitz constants of neural networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class NormName(StrEnum):
    """The norms, for the help text."""

    linf = "linf"
    l2 = "l2"
    l1 = "l1"


class MarginsName(StrEnum):
    """Which margins, for the help text."""

    all = "all"
    runner_up = "runner-up"


READING = "How to read the model"  # the heading of these options in the help
Model = Annotated[
    Path,
    typer.Argument(
        help=".onnx, .onnx.gz, .pt2 (torch.export), .safetensors (lipopt's own), .npz or .mat file", show_default=False
    ),
]
ActivationOption = Annotated[
    str | None,
    typer.Option("--activation", help="between the layers of a .npz or .mat file", show_default="relu", rich_help_panel=READING),
]
InputOption = Annotated[
    str | None,
    typer.Option("--input", metavar="NAME", help="tensor of an ONNX graph to read from", rich_help_panel=READING),
]
OutputOption = Annotated[
    str | None,
    typer.Option("--output", metavar="NAME", help="tensor of an ONNX graph to read up to", rich_help_panel=READING),
]
FixOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fix", metavar="NAME=VALUE", help="value of another input: a number or a .npy, .csv or .txt file",
        rich_help_panel=READING,
    ),
]  # fmt: skip
LogitsOption = Annotated[
    bool,
    typer.Option("--logits", help="without the softmax, log-softmax or sigmoid that is the last layer", rich_help_panel=READING),
]
ShapeOption = Annotated[
    str | None,
    typer.Option(
        "--input-shape", metavar="N,N,...", help="of one input of a .pt2 file with dynamic shapes", rich_help_panel=READING
    ),
]
NoCheckOption = Annotated[
    bool,
    typer.Option("--no-check", help="do not compare what was read with the model", rich_help_panel=READING),
]
NormOption = Annotated[NormName, typer.Option("--norm", help="norm on the inputs")]
EntryOption = Annotated[int | None, typer.Option("--entry", "-k", help="entry of the output to bound", show_default="0")]
MarginOption = Annotated[str | None, typer.Option("--margin", metavar="I,J", help="bound output I minus output J instead")]
AllOption = Annotated[bool, typer.Option("--all-outputs", help="bound all outputs together")]
CenterOption = Annotated[Path | None, typer.Option("--center", help="center of a ball: .npy, .csv or .txt file")]
RadiusOption = Annotated[float | None, typer.Option("--radius", help="radius of the ball, in the l_inf norm")]
ClipOption = Annotated[str | None, typer.Option("--clip", metavar="LOW,HIGH", help="cut the ball to this range, 0,1 for pixels")]
BoxOption = Annotated[Path | None, typer.Option("--box", help="box: .npz with lower, upper; or .npy/.csv with two rows")]
VnnlibOption = Annotated[Path | None, typer.Option("--vnnlib", help="box, or union of boxes, of a VNN-LIB file's inputs")]
TimeOption = Annotated[float | None, typer.Option("--time-limit", help="seconds (per method)")]
SeedOption = Annotated[int, typer.Option("--seed", help="seed of everything random")]
SamplesOption = Annotated[int | None, typer.Option("--samples", help="random points for the lower bound", show_default="by size")]
CertificateOption = Annotated[
    Path | None, typer.Option("--certificate", help="write a certificate of the (best) bound, for `lipopt check`")
]
METHODS = "auto, sdp, lipopt, lipopt-K (degree K), path-sum, product, lip-sdp or shor"
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON for machines")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="no progress, no table: only the number")]


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"lipopt {version('lipopt')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="print the version")] = False,
) -> None:
    """Certified Lipschitz constants of neural networks."""


def main() -> None:
    """Run the command line; errors that a user can mend are one line on standard error."""
    try:
        app()
    except (LipoptError, MemoryError, OSError) as error:
        text = "not enough memory" if isinstance(error, MemoryError) else str(error)
        print(f"lipopt: {printable(' '.join(text.split()))}", file=sys.stderr)
        sys.exit(2)


@dataclass(frozen=True)
class Reading:
    """The options that say which network is meant."""

    model: Model
    activation: ActivationOption = None
    input: InputOption = None
    output: OutputOption = None
    fix: FixOption = None
    logits: LogitsOption = False
    input_shape: ShapeOption = None
    no_check: NoCheckOption = False

    @cached_property
    def network(self) -> Network:
        from .readers import load

        network = load(
            self.model,
            activation=self.activation,
            input=self.input,
            output=self.output,
            fixed=_fixed(self.fix or []) or None,
            logits=self.logits,
            input_shape=None if self.input_shape is None else _whole_numbers(self.input_shape, "--input-shape"),
            check=not self.no_check,
        )
        if network.source is not None and network.source.part:
            part = f"lipopt: a part of {self.model.name} was read: {network.source.part}"
            print(printable(part), file=sys.stderr)
        return network


@dataclass(frozen=True)
class Question:
    """The options that say which constant is asked for."""

    norm: NormOption = NormName.linf
    entry: EntryOption = None
    margin: MarginOption = None
    all_outputs: AllOption = False
    center: CenterOption = None
    radius: RadiusOption = None
    clip: ClipOption = None
    box: BoxOption = None
    vnnlib: VnnlibOption = None

    def options(self) -> dict[str, Any]:
        """As keyword arguments of the functions of `lipopt`."""

        if (self.margin is not None) + (self.entry is not None) + self.all_outputs > 1:
            raise LipoptError("ask for one output (-k), for a margin or for all outputs, not for two of them")
        pair = None if self.margin is None else _pair(self.margin, "--margin", int)
        output: Any = "all" if self.all_outputs else self.entry or 0
        return {"norm": self.norm.value, "output": output, "margin": pair, "domain": self.domain()}

    def domain(self) -> Domain:
        from .domain import Ball, read_array, read_box
        from .readers.vnnlib import read_vnnlib

        given = [name for name in ("center", "box", "vnnlib") if getattr(self, name) is not None]
        if len(given) > 1:
            raise LipoptError(f"use one of --{' and --'.join(given)}, not both")
        if (self.center is None) != (self.radius is None):
            raise LipoptError("a ball needs both --center FILE and --radius R")
        if self.clip is not None and self.center is None:
            raise LipoptError("--clip goes with --center and --radius")
        if self.center is not None and self.radius is not None:
            return Ball(read_array(self.center), self.radius, None if self.clip is None else _pair(self.clip, "--clip", float))
        if self.box is not None:
            return read_box(self.box)
        return None if self.vnnlib is None else read_vnnlib(self.vnnlib)


def command(*groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose first arguments are groups of options; on the command line they are flat."""

    def decorate(run: Callable[..., None]) -> Callable[..., None]:
        own = list(signature(run, eval_str=True).parameters.values())[len(groups) :]
        members = [list(signature(group, eval_str=True).parameters.values()) for group in groups]
        (model, *reading), *others = members
        flat = [model, *own, *itertools.chain(*others), *reading]

        @wraps(run)
        def call(**given: Any) -> None:
            made = []
            for group, options in zip(groups, members, strict=True):
                made.append(group(**{option.name: given.pop(option.name) for option in options}))
            run(*made, **given)

        keywords = [option.replace(kind=Parameter.KEYWORD_ONLY) for option in flat]
        call.__signature__ = Signature(keywords)  # type: ignore[attr-defined]
        call.__annotations__ = {option.name: option.annotation for option in flat}
        return app.command()(call)

    return decorate


@command(Reading, Question)
def info(
    reading: Reading,
    ask: Question,
    pattern: Annotated[bool, typer.Option("--pattern", help="also the sizes of the LP's sparsity patterns")] = False,
    degree: Annotated[int | None, typer.Option("--degree", help="degree for --pattern", show_default="the depth")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a network: its layers, and what presolve leaves of the derivative problem."""
    from . import tables
    from .presolve import presolve
    from .problem import derivative_problem, output_matrix, slope_ranges
    from .sparsity import paper_counts, pattern_sizes

    network, options = reading.network, ask.options()
    outputs = output_matrix(network, options["output"], options["margin"])
    raw = derivative_problem(network, slope_ranges(network, options["domain"]), options["norm"], outputs)
    solved = presolve(raw)
    if degree is not None and not (pattern and degree > 0):
        raise LipoptError("--degree is a number from 1, and goes with --pattern")
    degree = degree or len(solved.layers) + 1
    sizes = pattern_sizes(solved, degree) if pattern else []
    if as_json:
        counts = {"neurons": solved.neurons, "layers": len(solved.layers), "coefficients": solved.nonzeros}
        source = None if network.source is None else asdict(network.source)
        shape = {
            "hash": network.hash,
            "source": source,
            "input_shape": network.input_shape,
            "outputs": network.output_size,
        }
        print(
            json.dumps({**shape, "nodes": tables.node_rows(network), "presolved": counts, "patterns": [asdict(s) for s in sizes]})
        )
        return
    console = _console()
    console.print(tables.network_line(network), style="bold", highlight=False)
    for line in tables.source_lines(network):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(tables.network_table(network))
    console.print(tables.presolve_line(raw, solved), highlight=False)
    if sizes:
        console.print(tables.patterns_table(sizes, degree))
        paper = ", ".join(f"{kind} {number:,}" for kind, number in paper_counts(solved, degree).items())
        console.print(f"the paper's counts for the output pattern: {paper}", highlight=False)


@command(Reading, Question)
def bound(
    reading: Reading,
    ask: Question,
    method: Annotated[str, typer.Option("--method", "-m", help=METHODS)] = "auto",
    pattern: Annotated[str | None, typer.Option("--pattern", help="sparsity pattern of the LP methods")] = None,
    device: Annotated[str | None, typer.Option("--device", help="torch device of the SDP methods, such as cuda")] = None,
    time_limit: TimeOption = None,
    seed: SeedOption = 0,
    samples: SamplesOption = None,
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bound the Lipschitz constant from above, with a lower bound beside it."""
    from . import tables
    from .api import bound as run
    from .methods import find_method

    _check_certificate(certificate, reading)
    given = {name: value for name, value in (("pattern", pattern), ("device", device)) if value is not None}
    with _progress(quiet or as_json) as progress:
        result = run(
            reading.network,
            method=find_method(method, **given),
            time_limit=time_limit,
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
        tables.show(_console(), [result])
        print(written)


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
    """Bound the Lipschitz constant from below: gradients of the network, and the optimum that upper bounds relax."""
    from . import tables
    from .api import lower_bound as run

    with _progress(quiet or as_json) as progress:
        result = run(reading.network, time_limit=time_limit, seed=seed, samples=samples, progress=progress, **ask.options())
    if as_json:
        print(result.to_json())
    elif quiet:
        print(repr(result.lower))
    else:
        console = _console()
        console.print(tables.question(result), style="bold", highlight=False)
        console.print(tables.lower_lines(result), highlight=False)


@command(Reading, Question)
def compare(
    reading: Reading,
    ask: Question,
    methods: Annotated[
        str | None, typer.Option("--methods", metavar="A,B,...", help=f"some of {METHODS}", show_default="all but auto")
    ] = None,
    time_limit: TimeOption = 60.0,
    seed: SeedOption = 0,
    samples: SamplesOption = None,
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare methods on the same question, best first."""
    from . import tables
    from .api import compare as run

    _check_certificate(certificate, reading)
    refused: list[tuple[str, str]] = []
    with _progress(quiet or as_json) as progress:
        results = run(
            reading.network,
            methods=None if methods is None else [name.strip() for name in methods.split(",")],
            time_limit=time_limit,
            seed=seed,
            samples=samples,
            certify=certificate is not None,
            progress=progress,
            on_refusal=lambda name, error: refused.append((name, str(error))),
            **ask.options(),
        )
    if not results:
        raise LipoptError("no method takes this: " + "; ".join(f"{name}: {reason}" for name, reason in refused))
    written = _save(reading.network, results[0], certificate)
    if as_json:
        rows = [json.loads(r.to_json()) for r in results]
        print(json.dumps(rows + [{"method": name, "refused": reason} for name, reason in refused]))
    elif quiet:
        for r in results:
            print(r.method, repr(r.upper))
    else:
        tables.show(_console(), results, refused)
        print(written)


@command(Reading)
def check(
    reading: Reading,
    certificate: Annotated[Path, typer.Argument(help="certificate", show_default=False)],
) -> None:
    """Verify a certificate with lipcheck, in exact arithmetic.

    A model in another format than lipopt's own is read again: the certificate must be about the network that results.
    Exit codes are lipcheck's: 0 verified, 1 rejected, 2 malformed, 3 another network, 4 limits exceeded, 70 internal error."""
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
        return "the certificate was made from this file, but of another part of it, or by another version of lipopt"
    return "the certificate is about another model than this one"


def _lipcheck(network: Path, certificate: Path) -> int:
    import subprocess

    command = [sys.executable, "-m", "lipcheck", str(network), str(certificate)]
    return subprocess.run(command, check=False).returncode


@command(Reading, Question)
def report(
    reading: Reading,
    ask: Question,
    file: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write")] = Path("report.html"),
    image: Annotated[str | None, typer.Option("--image", metavar="HEIGHT,WIDTH", help="show a flat input as a picture")] = None,
    names: Annotated[Path | None, typer.Option("--names", help="text file with a name for every input, one a line")] = None,
    time_limit: TimeOption = 20.0,
    seed: SeedOption = 0,
    samples: SamplesOption = None,
    certificate: CertificateOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write an HTML report: all methods, bounds against the radius of the ball, and which inputs matter."""
    from .report import report as run

    _check_certificate(certificate, reading)
    _check_writable(file, reading.model)
    with _progress(quiet) as progress:
        done = run(
            reading.network,
            time_limit=time_limit,
            seed=seed,
            samples=samples,
            image=None if image is None else _pair(image, "--image", int),
            names=None if names is None else _lines(names),
            certificate=None if certificate is None else certificate.name,
            progress=progress,
            **ask.options(),
        )
    _save(reading.network, done.best, certificate)
    _write(file, done.html)
    print(printable(str(file)))


@command(Reading)
def local(
    reading: Reading,
    data: Annotated[Path, typer.Option("--data", help="points: .npy, .npz, .csv, .txt or idx file, also .gz")],
    results: Annotated[Path, typer.Option("--results", "-o", help="file for the rows, JSON Lines")],
    radius: Annotated[str | None, typer.Option("--radius", metavar="R[,R...]", help="radii of the l_inf balls")] = None,
    labels: Annotated[Path | None, typer.Option("--labels", help="labels", show_default="the network's classes")] = None,
    divide: Annotated[float, typer.Option("--divide", help="divide the data by this, 255 for bytes")] = 1.0,
    points: Annotated[str | None, typer.Option("--points", metavar="FROM:TO", help="these points only, from 0")] = None,
    entry: Annotated[int | None, typer.Option("--entry", "-k", help="this entry of the output only", show_default="each")] = None,
    margins: Annotated[MarginsName | None, typer.Option("--margins", help="bound the label's margins instead")] = None,
    certify: Annotated[bool, typer.Option("--certify", help="no tighter than it takes to certify the margins")] = False,
    certified_radius: Annotated[
        bool, typer.Option("--certified-radius", help="search the certified radius, up to 1 or the width of --clip")
    ] = False,
    norm: NormOption = NormName.linf,
    clip: ClipOption = None,
    method: Annotated[str, typer.Option("--method", "-m", help="name of a method")] = "sdp",
    gap: Annotated[float | None, typer.Option("--gap", help="relative gap of the SDP", show_default="0.001")] = None,
    device: Annotated[str | None, typer.Option("--device", help="torch device for the SDP, such as cuda")] = None,
    time_limit: TimeOption = None,
    seed: SeedOption = 0,
    samples: Annotated[int, typer.Option("--samples", help="random points for the lower bound")] = 200,
    certificates: Annotated[Path | None, typer.Option("--certificates", help="folder for a certificate of every row")] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="processes", show_default="one per core, one with --device")
    ] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", metavar="ADDRESS", help="Dask scheduler, tcp://host:8786")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the file of a run that ended early")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", help="picture of the histograms, such as .png")] = None,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress, no table")] = False,
) -> None:
    """Bound local constants at many points, on this machine or a cluster, and say how many points are certified."""
    from joblib import cpu_count

    from . import tables
    from .batch import METHOD, Questions
    from .data import read_labels, read_points
    from .engines import engine
    from .methods import find_method
    from .progress import rows_progress
    from .records import read_rows
    from .summary import check_picture, draw, summarize

    if plot is not None:
        check_picture(plot)
        _check_writable(plot, reading.model)
        if plot.resolve() == results.resolve():
            raise LipoptError(f"{plot} cannot be both the picture and the file for the rows")
    network = reading.network
    settings = {name: value for name, value in {"gap": gap, "device": device}.items() if value is not None}
    start, stop = (None, None) if points is None else _pair(points, "--points", lambda part: int(part) if part else None, ":")
    stored = read_points(data, divide)
    if points is not None and not 0 <= (start or 0) < (len(stored) if stop is None else stop) <= len(stored):
        raise LipoptError(f"there are no points {points}: the data has {len(stored)}")
    questions = Questions.about(
        network,
        stored,
        _numbers(radius or "", "--radius"),
        labels=None if labels is None else read_labels(labels),
        output=entry,
        margins=None if margins is None else margins.value,
        certify=certify,
        certified_radius=certified_radius,
        norm=norm.value,
        clip=None if clip is None else _pair(clip, "--clip", float),
        method=find_method(METHOD if method == METHOD.name else method, **settings),
        time_limit=time_limit,
        seed=seed,
        samples=samples,
        certificates=certificates,
        resume=resume,
        only=slice(start, stop),
    )
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that no worker is left behind
    try:
        with engine((1 if device else cpu_count()) if jobs is None else jobs, cluster) as where, rows_progress(quiet) as progress:
            questions.write(results, where, resume, progress)
    except KeyboardInterrupt:
        print("lipopt: interrupted; the same command with --resume goes on", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    summary = summarize(read_rows(results), network.output_size)
    if plot is not None:
        draw(summary, plot)
    if as_json:
        print(summary.to_json())
    elif not quiet:
        tables.show_summary(_console(), summary)
    if summary.failed:
        raise typer.Exit(1)


@app.command()
def demo() -> None:
    """Bound the networks that ship with lipopt: the paper's MNIST network, dense and pruned, global and local."""
    from .demo import run

    with _progress(False) as progress:
        run(_console(), progress)


def _check_writable(path: Path | None, model: Path) -> None:
    """Refuse a file that could not be written in the end, or that is a network."""
    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir():
        raise LipoptError(f"cannot write {path}: " + ("it is a folder" if path.is_dir() else f"there is no folder {path.parent}"))
    if path.suffix == ".safetensors" or path.resolve() == model.resolve():
        raise LipoptError(f"{path} is the name of a network; choose another for what is written")


def _check_certificate(path: Path | None, reading: Reading) -> None:
    """The same for a certificate; and the file of the network beside it must not hold anything else."""
    _check_writable(path, reading.model)
    beside = None if path is None else path.with_suffix(".safetensors")
    if beside is not None and beside.exists() and sha256(beside.read_bytes()).hexdigest() != reading.network.hash:
        raise LipoptError(f"{beside} exists, and is not this network's file, which would be written there; choose another name")


def _save(network: Network, result: Result, path: Path | None) -> str:
    """Write a result's certificate, and the network beside it; what to do with them, in words."""
    if path is None:
        return ""
    beside = path.with_suffix(".safetensors")
    try:
        network.save(beside)
        result.save(path)
    except OSError as error:
        raise LipoptError(f"cannot write {path} or {beside}: {error}") from error
    return f"\ncertificate written; verify it with: lipcheck {printable(str(beside))} {printable(str(path))}"


def _pair(text: str, option: str, kind: Callable[[str], Any], separator: str = ",") -> tuple[Any, Any]:
    try:
        first, second = (kind(part) for part in text.split(separator))
    except ValueError as error:
        raise LipoptError(f"{option} takes two numbers with a '{separator}' between them, got '{text}'") from error
    return first, second


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LipoptError(f"cannot read {path}: {error}") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LipoptError(f"cannot write {path}: {error}") from error


def _fixed(values: list[str]) -> dict[str, Any]:
    """The values of --fix by name: numbers, or arrays from files."""
    from .domain import read_array

    fixed: dict[str, Any] = {}
    for text in values:
        name, equals, value = text.rpartition("=")
        if not equals:
            raise LipoptError(f"--fix takes NAME=VALUE, got '{text}'")
        try:
            fixed[name] = float(value)
        except ValueError:
            fixed[name] = read_array(Path(value))
    return fixed


def _whole_numbers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError as error:
        raise LipoptError(f"{option} takes whole numbers with commas between them, got '{text}'") from error


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part]
    except ValueError as error:
        raise LipoptError(f"{option} takes numbers with commas between them, got '{text}'") from error


def _console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else 120
    return Console(width=width, markup=False, emoji=False)  # names from files are no markup


@contextmanager
def _progress(hidden: bool) -> Iterator[Any]:
    """A function progress(message, fraction=None) that shows a bar on standard error, if that is a terminal."""
    if hidden or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def show(message: str, fraction: float | None = None) -> None:
            bar.update(task, description=message, total=None if fraction is None else 1.0, completed=fraction or 0.0)

        yield show
