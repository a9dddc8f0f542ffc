"""The command line: parse, call, exit code."""

import io
import os
import sys
from typing import Annotated

import typer

from sostenuto.cli import data
from sostenuto.cli.audit import audit
from sostenuto.cli.bench import bench
from sostenuto.cli.errors import FAILURE, OUT_OF_MEMORY, is_out_of_memory
from sostenuto.cli.fit import fit
from sostenuto.cli.gram import gram
from sostenuto.cli.predict import predict
from sostenuto.cli.reproduce import reproduce
from sostenuto.cli.tune import tune
from sostenuto.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Recurrent sequence models that remember, with proof of how long.",
)
app.command()(fit)
app.command()(predict)
app.command()(audit)
app.command()(tune)
app.command()(gram)
app.command()(bench)
app.command()(reproduce)
app.add_typer(data.app, name="data")


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(__version__)
        raise typer.Exit
    return wanted


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Recurrent sequence models that remember, with proof of how long."""


def main() -> None:
    """Run the command line.

    Threads of torch's OpenMP that wait for work spin for long by default: small steps on a busy machine then take many
    times as long. They are set to sleep soon, before torch is loaded, unless the environment says otherwise.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    for stream in (sys.stdout, sys.stderr):
        # A terminal that knows ASCII alone gets an escape for what it cannot show.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except (MemoryError, ImportError) as error:  # before a command has begun
        if not is_out_of_memory(error):
            raise
        print(f"sostenuto: {OUT_OF_MEMORY}", file=sys.stderr)
        sys.exit(FAILURE)
