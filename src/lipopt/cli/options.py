"""The options that commands share, and how they become arguments.

Options that belong together are the fields of a dataclass: `Reading` says which network is meant,
`Where` which domain, `Question` which constant. A command takes such groups as arguments (`command`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from ..errors import LipoptError
from ..names import printable

if TYPE_CHECKING:
    from ..model.domain import Domain
    from ..model.network import Network
    from ..numerics.arrays import Array

Run: TypeAlias = Callable[..., None]  # what a command does
STANDARD_OUTPUT = Path("-")  # where a file is asked for


class NormName(StrEnum):
    """The norms, for the help text."""

    linf = "linf"
    l2 = "l2"
    l1 = "l1"


# The headings of options in the help.
CONSTANT = "Which constant"
DOMAIN = "Over which domain: the whole space if none of these is given"
READING = "How to read the model"

NUMBERS = "FILE|N,N,..."  # numbers in a .npy, .csv or .txt file, or as they are
Model = Annotated[
    Path,
    typer.Argument(
        help=".onnx, .onnx.gz, .pt2 (torch.export), .safetensors (lipopt's own), .npz or .mat file",
        show_default=False,
    ),
]
ActivationOption = Annotated[
    str | None,
    typer.Option(
        "--activation",
        help="between the layers of a .npz or .mat file",
        show_default="relu",
        rich_help_panel=READING,
    ),
]
FromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="NAME",
        help="tensor of an ONNX graph to read from; several are joined in this order",
        rich_help_panel=READING,
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="NAME",
        help="tensor of an ONNX graph to read up to",
        rich_help_panel=READING,
    ),
]
FixOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fix",
        metavar="NAME=VALUE",
        help="value of another input: a number or a .npy, .csv or .txt file",
        rich_help_panel=READING,
    ),
]
LogitsOption = Annotated[
    bool,
    typer.Option(
        "--logits",
        help="without the softmax, log-softmax or sigmoid that is the last layer",
        rich_help_panel=READING,
    ),
]
ShapeOption = Annotated[
    str | None,
    typer.Option(
        "--input-shape",
        metavar="N,N,...",
        help="of one input of a .pt2 file with dynamic shapes",
        rich_help_panel=READING,
    ),
]
NoCheckOption = Annotated[
    bool,
    typer.Option(
        "--no-check", help="do not compare what was read with the model", rich_help_panel=READING
    ),
]
NormOption = Annotated[
    NormName, typer.Option("--norm", help="norm on the inputs", rich_help_panel=CONSTANT)
]
OutputNormOption = Annotated[
    NormName | None,
    typer.Option(
        "--output-norm",
        help="norm on the outputs, with --all-outputs",
        show_default="as --norm",
        rich_help_panel=CONSTANT,
    ),
]
ScaleOption = Annotated[
    str | None,
    typer.Option(
        "--scale",
        metavar=NUMBERS,
        help="units: how much of each input counts as 1, in --norm and --radius",
        rich_help_panel=CONSTANT,
    ),
]
OutputOption = Annotated[
    int | None,
    typer.Option(
        "--output",
        "-k",
        metavar="K",
        help="output to bound",
        show_default="0",
        rich_help_panel=CONSTANT,
    ),
]
MarginOption = Annotated[
    str | None,
    typer.Option(
        "--margin",
        metavar="I,J",
        help="bound output I minus output J instead",
        rich_help_panel=CONSTANT,
    ),
]
AllOption = Annotated[
    bool,
    typer.Option("--all-outputs", help="bound all outputs together", rich_help_panel=CONSTANT),
]
CenterOption = Annotated[
    str | None,
    typer.Option("--center", metavar=NUMBERS, help="center of a ball", rich_help_panel=DOMAIN),
]
RadiusOption = Annotated[
    float | None, typer.Option("--radius", help="radius of the ball", rich_help_panel=DOMAIN)
]
BallNormOption = Annotated[
    NormName, typer.Option("--ball-norm", help="norm of the ball", rich_help_panel=DOMAIN)
]
ClipOption = Annotated[
    str | None,
    typer.Option(
        "--clip",
        metavar="LOW,HIGH",
        help="cut the ball to this range, 0,1 for pixels",
        rich_help_panel=DOMAIN,
    ),
]
BoxOption = Annotated[
    Path | None,
    typer.Option(
        "--box",
        help="box: .npz with lower, upper; or .npy/.csv with two rows",
        rich_help_panel=DOMAIN,
    ),
]
VnnlibOption = Annotated[
    Path | None,
    typer.Option(
        "--vnnlib",
        help="box, or union of boxes, of a VNN-LIB file's inputs",
        rich_help_panel=DOMAIN,
    ),
]
TimeOption = Annotated[float | None, typer.Option("--time-limit", help="seconds")]
RowTimeOption = Annotated[float | None, typer.Option("--time-limit", help="seconds for each row")]
GapOption = Annotated[
    float | None,
    typer.Option(
        "--gap",
        help="in a ball or box: branch and bound until the bounds are this close, such as 0.01",
    ),
]
JobsOption = Annotated[
    int, typer.Option("--jobs", help="processes that share the work of branch and bound")
]
SeedOption = Annotated[int, typer.Option("--seed", help="seed of everything random")]
SamplesOption = Annotated[
    int | None,
    typer.Option("--samples", help="random points for the lower bound", show_default="by size"),
]
CertificateOption = Annotated[
    Path | None,
    typer.Option(
        "--certificate", help="write a certificate of the (best) bound, for `lipopt check`"
    ),
]


def _method_names(typed: str) -> list[str]:
    """What a shell offers after --method."""
    from .. import methods  # noqa: F401  (registers them)
    from ..methods.registry import method_names

    return [name for name in method_names() if name.startswith(typed)]


METHODS = (
    "auto, branch, sdp, lipopt, lipopt-K (degree K), path-sum, product, lip-sdp, shor, or one that"
    " another package adds"
)
MethodOption = Annotated[
    str, typer.Option("--method", "-m", help=METHODS, autocompletion=_method_names)
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON for machines")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="no progress, no table: only the number")
]


@dataclass(frozen=True)
class Reading:
    """The options that say which network is meant."""

    model: Model
    activation: ActivationOption = None
    read_from: FromOption = None
    read_to: ToOption = None
    fix: FixOption = None
    logits: LogitsOption = False
    input_shape: ShapeOption = None
    no_check: NoCheckOption = False

    @cached_property
    def network(self) -> Network:
        """The network, read when it is first needed. If it is a part of the model, that is said."""
        from ..readers import load

        shape = None
        if self.input_shape is not None:
            shape = whole_numbers(self.input_shape, "--input-shape")
        network = load(
            self.model,
            activation=self.activation,
            input=self.read_from or None,
            output=self.read_to,
            fixed=_fixed(self.fix or []) or None,
            logits=self.logits,
            input_shape=shape,
            check=not self.no_check,
        )
        if network.source is not None and network.source.part:
            part = f"lipopt: a part of {self.model.name} was read: {network.source.part}"
            print(printable(part), file=sys.stderr)
        return network


@dataclass(frozen=True)
class Where:
    """The options that say over which domain, and in which units."""

    scale: ScaleOption = None
    center: CenterOption = None
    radius: RadiusOption = None
    ball_norm: BallNormOption = NormName.linf
    clip: ClipOption = None
    box: BoxOption = None
    vnnlib: VnnlibOption = None

    def units(self) -> Array | None:
        """How much of each input counts as 1; None for 1."""
        return read_scale(self.scale)

    def domain(self) -> Domain:
        """The ball, box or union of boxes; None for the whole space."""
        from ..model.domain import Ball, read_box
        from ..readers.vnnlib import read_vnnlib

        given = [name for name in ("center", "box", "vnnlib") if getattr(self, name) is not None]
        if len(given) > 1:
            raise LipoptError(f"use one of --{' and --'.join(given)}, not both")
        if (self.center is None) != (self.radius is None):
            raise LipoptError("a ball needs both --center and --radius")
        if self.center is None:
            self._refuse_options_of_balls()
        if self.center is not None and self.radius is not None:
            clip = read_clip(self.clip)
            norm: Any = self.ball_norm.value
            center = read_numbers(self.center)
            return Ball(center, self.radius, clip, norm=norm, scale=self.units())
        if self.box is not None:
            return read_box(self.box)
        if self.vnnlib is not None:
            return read_vnnlib(self.vnnlib)
        return None

    def _refuse_options_of_balls(self) -> None:
        """There is no ball."""
        if self.clip is not None:
            raise LipoptError("--clip goes with --center and --radius")
        if self.ball_norm is not NormName.linf:
            raise LipoptError("--ball-norm goes with --center and --radius")


@dataclass(frozen=True)
class Question(Where):
    """The options that say which constant is asked for."""

    norm: NormOption = NormName.linf
    output_norm: OutputNormOption = None
    output: OutputOption = None
    margin: MarginOption = None
    all_outputs: AllOption = False

    def options(self) -> dict[str, Any]:
        """As keyword arguments of the functions of `lipopt`."""
        if (self.margin is not None) + (self.output is not None) + self.all_outputs > 1:
            raise LipoptError(
                "ask for one output, for a margin or for all outputs, not for two of them"
            )
        margin = None if self.margin is None else pair(self.margin, "--margin", int)
        output: Any = "all" if self.all_outputs else self.output
        return {
            "norm": self.norm.value,
            "output_norm": None if self.output_norm is None else self.output_norm.value,
            "scale": self.units(),
            "output": output,
            "margin": margin,
            "domain": self.domain(),
        }


def command(*groups: type) -> Callable[[Run], Run]:
    """Make a command of a function whose first arguments are groups of options, `Reading` first.

    Typer finds the options of a command in the signature of its function, one parameter for each,
    and knows nothing of groups. So the function that Typer gets has another signature: the model,
    the command's own options, those of the groups, and last how the model is read. When it is
    called, it makes the groups, and calls the function that was written."""

    def decorate(run: Run) -> Run:
        own = list(signature(run, eval_str=True).parameters.values())[len(groups) :]
        members = [list(signature(group, eval_str=True).parameters.values()) for group in groups]
        model, *reading = members[0]
        flat = [model, *own]
        for options in members[1:]:
            flat += options
        flat += reading

        @wraps(run)
        def call(**given: Any) -> None:
            made = []
            for group, options in zip(groups, members, strict=True):
                arguments = {option.name: given.pop(option.name) for option in options}
                made.append(group(**arguments))
            run(*made, **given)

        keywords = [option.replace(kind=Parameter.KEYWORD_ONLY) for option in flat]
        call.__signature__ = Signature(keywords)  # type: ignore[attr-defined]
        call.__annotations__ = {option.name: option.annotation for option in flat}
        return call

    return decorate


def check_writable(path: Path | None, model: Path) -> None:
    """Refuse a file that could not be written in the end, or that is a network."""
    if path is None:
        return
    if path.is_dir():
        raise LipoptError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise LipoptError(f"cannot write {path}: there is no folder {path.parent}")
    if path.suffix == ".safetensors" or path.resolve() == model.resolve():
        raise LipoptError(f"{path} is the name of a network; choose another for what is written")


def pair(
    text: str, option: str, kind: Callable[[str], Any], separator: str = ","
) -> tuple[Any, Any]:
    """The two values of an option such as --margin I,J."""
    try:
        first, second = (kind(part) for part in text.split(separator))
    except ValueError as error:
        raise LipoptError(
            f"{option} takes two numbers with a '{separator}' between them, got '{text}'"
        ) from error
    return first, second


def read_clip(text: str | None) -> tuple[float, float] | None:
    """The range of --clip LOW,HIGH."""
    return None if text is None else pair(text, "--clip", float)


def read_scale(text: str | None) -> Array | None:
    """The units of --scale."""
    return None if text is None else read_numbers(text)


def read_numbers(text: str) -> Array:
    """The numbers of an option such as --center: those in a file, or N,N,... as they are."""
    import numpy as np

    from ..model.domain import read_array

    if Path(text).exists():
        return read_array(text)
    try:
        return np.array([float(part) for part in text.split(",")])
    except ValueError:
        return read_array(text)  # which says that there is no such file


def whole_numbers(text: str, option: str) -> list[int]:
    """The values of an option such as --input-shape N,N,..."""
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError as error:
        raise LipoptError(
            f"{option} takes whole numbers with commas between them, got '{text}'"
        ) from error


def numbers(text: str, option: str) -> list[float]:
    """The values of an option such as --radius R,R,..."""
    try:
        return [float(part) for part in text.split(",") if part]
    except ValueError as error:
        raise LipoptError(
            f"{option} takes numbers with commas between them, got '{text}'"
        ) from error


def _fixed(values: list[str]) -> dict[str, Any]:
    """The values of --fix by name: numbers, or arrays from files."""
    from ..model.domain import read_array

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
