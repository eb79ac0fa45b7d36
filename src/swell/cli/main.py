"""The command `swell`: a table of commands, each loaded only when it is the one asked for.

`swell --help` must answer at once, so nothing heavy (numpy, cryptography, the runtime) is imported
before a command needs it: all others are listed by the name and the line they have in `COMMANDS`.

A user sees one red line for every `SwellError`, never a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, NamedTuple

import typer

from swell import __version__
from swell.errors import SwellError

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130


class Command(NamedTuple):
    """Where a command is defined, and the line that `swell --help` shows for it."""

    module: str
    attribute: str
    """A function with typer's annotations, or a `typer.Typer` with commands of its own."""
    summary: str


COMMANDS: dict[str, Command] = {
    "up": Command("swell.cli.local", "up", "Start a local cluster of real processes."),
    "down": Command("swell.cli.local", "down", "Stop the local cluster."),
    "overlay": Command("swell.cli.inspect", "overlay", "Show nodes, zones and links."),
    "members": Command("swell.cli.inspect", "members", "Show the members of a node's zone."),
    "ping": Command("swell.cli.inspect", "ping", "Ping a node through the overlay."),
    "broadcast": Command("swell.cli.inspect", "broadcast", "Trace a message to every node."),
    "status": Command("swell.cli.inspect", "status", "Show one node and its counters."),
    "directory": Command("swell.cli.directory", "app", "Show or change the directory's voters."),
    "dht": Command("swell.cli.dht", "app", "Read and write the distributed hash table."),
    "config": Command(
        "swell.cli.config", "app", "Publish configurations and see who has applied them."
    ),
    "service": Command("swell.cli.service", "app", "Register, find and watch instances."),
    "demo": Command("swell.cli.demo", "demo", "Watch a local cluster form, route and heal."),
    "node": Command("swell.cli.node", "node", "Run one node."),
    "cluster": Command("swell.cli.cluster", "app", "Make a cluster's authority and certificates."),
    "token": Command("swell.cli.token", "app", "Make, list and revoke access tokens."),
    "simulate": Command(
        "swell.cli.simulate", "simulate", "Run workloads in the deterministic simulation."
    ),
    "pipeline": Command("swell.cli.pipeline", "app", "Audit, measure, plan and replay with Spark."),
    "doctor": Command("swell.cli.doctor", "doctor", "Show what this machine has for Swell."),
    "lab": Command("swell.cli.lab", "lab", "Run an experiment, or list them all."),
}


def build(chosen: str | None) -> typer.Typer:
    """The application with the chosen command in full and the others in name only."""
    app = typer.Typer(
        name="swell",
        help="Configuration, service state and messages to a whole fleet in at most three hops.",
        no_args_is_help=True,
        # Pretty tracebacks print local variables, and those may hold keys.
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for name, command in COMMANDS.items():
        if name != chosen:
            app.command(name, help=command.summary)(_not_loaded)
            continue
        target = getattr(import_module(command.module), command.attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=name, help=command.summary)
        else:
            app.command(name)(target)  # its docstring says more than the line in the list
    return app


def main() -> None:
    """Entry point of the console script and of `python -m swell`."""
    # The root has no options that take a value: the first bare word is the command.
    words = [word for word in _typed() if not word.startswith("-")]
    try:
        build(words[0] if words else None)(prog_name="swell")
    except SwellError as error:
        _complain(str(error), getattr(error, "__notes__", ()))
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _typed() -> list[str]:
    """What was typed behind `swell`, also while a shell asks how it could go on."""
    for variable in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS"):
        if "_SWELL_COMPLETE" in os.environ and variable in os.environ:
            return os.environ[variable].split()[1:]
    return sys.argv[1:]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"swell {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        # Eager: it answers before a missing command is complained about.
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Takes the options that come before any command."""


def _not_loaded() -> None:
    raise AssertionError("only the command that was asked for is ever called")


def _complain(sentence: str, notes: Sequence[str] = ()) -> None:
    """One red line on stderr, whatever the sentence contains; below it what helps on, if any."""
    line = " ".join(sentence.split())
    typer.secho(f"error: {line}", fg=typer.colors.RED, err=True)
    for note in notes:
        typer.echo(note, err=True)
