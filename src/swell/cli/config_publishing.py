"""A change of configurations from a command: stored, then waited for, then told.

Exit codes: 0 when everything asked for was reached; 1 for an error; 3 when it is stored, but some
container has not reached the level or has rejected it; 130 after Ctrl-C. What waits is shown on
standard error, if that is a terminal; standard output has results alone.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, TypeVar

import typer
import uvloop
from rich.console import Console
from rich.live import Live
from rich.text import Text

from swell.cli.config_arguments import Place
from swell.cli.config_errors import conflict_error
from swell.cli.config_tables import fleet_line, report_sentence, unreached_table
from swell.cli.config_words import (
    all_reached,
    id_words,
    publications_json,
    reached,
    readable,
    report_json,
    size_words,
)
from swell.cli.tables import print_json
from swell.cli.target import Target
from swell.client.configs import Configs
from swell.client.connection import Connection
from swell.client.values import Publication
from swell.config.reports import Awaited
from swell.config.versions import NO_VERSION
from swell.errors import StaleVersionError, SwellError

EXIT_UNREACHED = 3
EXIT_INTERRUPTED = 130

T = TypeVar("T")
Make = Callable[[Configs, "Display"], Awaitable[Sequence[Publication]]]


class Level(StrEnum):
    """How far a change is waited for."""

    STORED = "stored"
    DELIVERED = "delivered"
    APPLIED = "applied"


WaitOption = Annotated[
    Level,
    typer.Option(
        "--wait", help="Wait until it is stored, or every container has it, or has applied it."
    ),
]


class WaitFailedError(SwellError):
    """A change is stored, and nobody can tell who has it."""


class Wish(NamedTuple):
    """What a command asks for besides the change itself. `expected`: the version that was to be
    the present one, None for none at all."""

    level: Level
    deadline_s: float
    json: bool
    expected: int | None = None
    deletion: bool = False


def run(target: Target, deadline_s: float, what: Callable[[Connection], Awaitable[T]]) -> T:
    """Something on a client of its own."""

    async def once() -> T:
        connection = Connection(target.addresses, target.cluster, target.tls, deadline_s)
        async with connection as client:
            return await what(client)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(once())


def publish(target: Target, application: str, make: Make, wish: Wish) -> None:
    """Make a change, wait as far as is wished, print what came of it."""
    change = _Change(application, make, wish)
    try:
        run(target, wish.deadline_s, change.happen)
    except StaleVersionError as error:
        raise conflict_error(application, error, wish.expected) from None
    except KeyboardInterrupt:
        change.on_interrupt()
        raise typer.Exit(EXIT_INTERRUPTED) from None
    change.tell_end()


class _Change:
    """One change on its way."""

    def __init__(self, application: str, make: Make, wish: Wish) -> None:
        self._application = application
        self._make = make
        self._wish = wish
        self._made: Sequence[Publication] = ()
        self._report: Awaited | None = None
        self._elapsed_s = 0.0

    async def happen(self, client: Connection) -> None:
        configs, wish = client.configs(self._application), self._wish
        with Display(wish.json) as display:
            self._made = await self._make(configs, display)
        if not wish.json:
            for made in self._made:
                print(stored_sentence(self._application, made, wish.deletion))
            sys.stdout.flush()
        if wish.level is not Level.STORED:
            with Display(wish.json) as display:
                self._report = await self._wait(configs, display)

    async def _wait(self, configs: Configs, display: Display) -> Awaited:
        began, level = time.monotonic(), self._wish.level.value

        def progress(report: Awaited) -> None:
            self._elapsed_s = time.monotonic() - began
            display.show(fleet_line(level, report, self._elapsed_s))

        try:
            return await configs.wait(
                self._made[0].step,
                level=level,
                deadline_s=self._wish.deadline_s,
                progress=progress,
            )
        except SwellError as error:
            if self._wish.json:
                print_json(self._json())
            raise WaitFailedError(
                f"it is stored, but who has it could not be learned: {error}"
            ) from None

    def tell_end(self) -> None:
        """Raises `typer.Exit` if somebody has not reached the level."""
        report, level = self._report, self._wish.level.value
        if self._wish.json:
            print_json(self._json())
        elif report is not None:
            print(report_sentence(level, report, self._elapsed_s))
        if report is None or all_reached(level, report):
            return
        if not self._wish.json and reached(level, report) < report.interested:
            Console().print(unreached_table(level, report))
        raise typer.Exit(EXIT_UNREACHED)

    def on_interrupt(self) -> None:
        if self._made:
            if self._wish.json:
                print_json(self._json())
            names = ", ".join(
                f"{readable(str(Place(self._application, made.name)))} as version {made.version}"
                for made in self._made
            )
            sentence = f"stopped waiting; stored and on its way: {names}"
        else:
            sentence = "stopped: whether it was stored is not known; look with swell config history"
        print(sentence, file=sys.stderr)

    def _json(self) -> dict[str, Any]:
        report, level = self._report, self._wish.level.value
        waited = None if report is None else report_json(level, report)
        return {**publications_json(self._application, self._made), "wait": waited}


class Display:
    """A line on a terminal that tells how far something is, gone at the end."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._quiet = quiet or not self._console.is_terminal
        self._live: Live | None = None

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, line: Text) -> None:
        if self._quiet:
            return
        if self._live is None:
            # Standard output is for results: it must not end up here.
            self._live = Live(
                console=self._console, transient=True, auto_refresh=False, redirect_stdout=False
            )
            self._live.start()
        self._live.update(line, refresh=True)

    def show_upload(self, done: int, total: int) -> None:
        self.show(Text(f"{size_words(done)} of {size_words(total)} sent"))


async def condition_of(configs: Configs, name: str, version: int | None) -> bytes | None:
    """The id that must be the present one, if a version is given."""
    if version is None:
        return None
    value = await configs.get(name)
    if value is None:
        raise StaleVersionError(name, 0, NO_VERSION, True, "it does not exist")
    if value.version != version:
        sentence = f"it is at version {value.version}"
        raise StaleVersionError(name, value.version, value.id, value.deleted, sentence)
    return value.id


def stored_sentence(application: str, made: Publication, deletion: bool = False) -> str:
    """What a configuration is after a step."""
    place = readable(str(Place(application, made.name)))
    if not made.version:
        return f"{place} does not exist: nothing was changed"
    version = f"version {made.version} ({id_words(made.id)})"
    if not made.changed:
        return f"{place} is {'deleted' if deletion else 'that'} already: {version}"
    if deletion:
        return f"{place} is deleted: {version}, step {made.step}"
    return f"{place} is at {version}, {size_words(made.length)}, step {made.step}"
