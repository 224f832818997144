"""The command line: its commands, and how it ends.

Exit codes:

    0    done
    1    `local`, `certify`: done, but some rows have no answer; they say why
    2    bad input, or a request that cannot be met; one line on standard error says why
    130  interrupted (Ctrl-C, and for `local` and `certify` also SIGTERM)

Those of `check` are lipcheck's: 0 verified, 1 rejected, 2 malformed, 3 another network, 4 limits
exceeded, 70 internal error.

Commands import what they need when they run: `lipopt --help` must not wait for NumPy.
"""

from __future__ import annotations

import os
import sys
from functools import wraps
from inspect import cleandoc
from typing import Annotated, Any

import typer

from ..errors import LipoptError
from ..names import printable
from .certify import certify
from .jacobian import jacobian
from .local import local
from .options import Run
from .single import bound, check, compare, demo, info, lower, report

app = typer.Typer(
    help="Certified Lipschitz constants of neural networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _help(text: str) -> str:
    """A docstring with each paragraph on one line: Typer would keep the line breaks."""
    paragraphs = cleandoc(text).split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def _until_nobody_reads(run: Run) -> Run:
    """The same command. That its reader goes away, such as `| head`, ends it, and is no error."""

    @wraps(run)
    def call(**given: Any) -> None:
        try:
            try:
                run(**given)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)  # for what is still in the buffer
            os.dup2(nowhere, sys.stdout.fileno())
            raise typer.Exit from None

    return call


COMMANDS = (info, bound, lower, compare, check, jacobian, report, local, certify, demo)
for run in COMMANDS:  # in the order of the help
    app.command(help=_help(run.__doc__ or ""))(_until_nobody_reads(run))


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"lipopt {version('lipopt')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="print the version"),
    ] = False,
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
