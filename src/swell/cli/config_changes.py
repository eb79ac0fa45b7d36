"""`swell config put`, `set`, `unset`, `delete`, `rollback`: what makes a new version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec.structs import replace

from swell.cli.config_arguments import (
    WAIT_DEADLINE,
    AuthorOption,
    DeadlineOption,
    IfOption,
    Place,
    PlaceArgument,
    find_author,
    is_folder,
    one_value,
    parse_assignments,
    parse_place,
    parse_time_s,
    several_values,
)
from swell.cli.config_errors import check_value
from swell.cli.config_publishing import (
    Display,
    Level,
    Make,
    WaitOption,
    Wish,
    condition_of,
    publish,
)
from swell.cli.target import (
    DEFAULT_DIR,
    ClusterOption,
    ConnectOption,
    DirOption,
    JsonOption,
    find_target,
)
from swell.client.configs import Configs
from swell.client.values import ABSENT, Publication
from swell.config.edits import Delete, Path, Rollback, Whole
from swell.config.formats.path import parse_path
from swell.errors import ConfigurationError


def put(
    place: Annotated[
        str,
        typer.Argument(
            metavar="APP/NAME", help="Which configuration; APP/ or APP/FOLDER/ for several."
        ),
    ],
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|-", help="For APP/: files, NAME=FILE, directories; all in one step."
        ),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="The value itself.")
    ] = None,
    version: IfOption = None,
    absent: Annotated[bool, typer.Option("--if-absent", help="Only if there is none.")] = False,
    author: AuthorOption = None,
    wait: WaitOption = Level.STORED,
    deadline: DeadlineOption = WAIT_DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Publish a whole value; only what changed travels.

    Exit code 3: stored, but some container has not got as far as --wait asks.

    Example: swell config put shop/limits.json limits.json --wait applied
    """
    if version is not None and (absent or is_folder(place)):
        raise ConfigurationError("--if is for one configuration that exists: leave it out")
    if is_folder(place):
        if text is not None:
            raise ConfigurationError("--text is for one configuration: write APP/NAME")
        application, values = several_values(place, sources or ())
    else:
        one = parse_place(place)
        application, values = one.application, {one.name: one_value(sources or (), text)}
    for name, value in values.items():
        check_value(Place(application, name), value)
    who = find_author(author)
    wish = Wish(wait, parse_time_s(deadline), json, version)

    async def make(configs: Configs, display: Display) -> Sequence[Publication]:
        condition = ABSENT if absent else await condition_of(configs, next(iter(values)), version)
        edits = [Whole(name, value.data, condition) for name, value in values.items()]
        return await configs.publish(edits, author=who, progress=display.show_upload)

    publish(find_target(dir, connect, cluster), application, make, wish)


def set_(
    place: PlaceArgument,
    assignments: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH=VALUE…",
            help="VALUE is a JSON literal, else a text. [-] appends to a list.",
        ),
    ],
    as_text: Annotated[
        bool, typer.Option("--text", help="VALUE is a text, whatever it looks like.")
    ] = False,
    version: IfOption = None,
    author: AuthorOption = None,
    wait: WaitOption = Level.STORED,
    deadline: DeadlineOption = WAIT_DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Set keys of a document, and nothing else in it.

    For JSON, YAML, TOML and key=value; comments and layout stay as they are.

    Example: swell config set shop/db.yaml database.pool.size=20 'servers[-]="db3"'
    """
    one, paths = parse_place(place), parse_assignments(assignments)
    edits = [Path(one.name, path, text, as_text) for path, text in paths]
    wish = Wish(wait, parse_time_s(deadline), json, version)
    make = _maker(edits, version, find_author(author))
    publish(find_target(dir, connect, cluster), one.application, make, wish)


def unset(
    place: PlaceArgument,
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Keys to remove.")],
    version: IfOption = None,
    author: AuthorOption = None,
    wait: WaitOption = Level.STORED,
    deadline: DeadlineOption = WAIT_DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Remove keys of a document.

    Example: swell config unset shop/db.yaml 'servers[0].note'
    """
    one = parse_place(place)
    wish = Wish(wait, parse_time_s(deadline), json, version)
    make = _maker([Path(one.name, path, None) for path in paths], version, find_author(author))
    publish(find_target(dir, connect, cluster), one.application, make, wish)


def _maker(edits: Sequence[Path], version: int | None, author: str) -> Make:
    """Publishes edits of one document as one version."""
    for edit in edits:
        parse_path(edit.path)

    async def make(configs: Configs, display: Display) -> Sequence[Publication]:
        condition = await condition_of(configs, edits[0].name, version)
        conditional = [replace(edit, condition=condition) for edit in edits]
        return await configs.publish(conditional, author=author)

    return make


def delete(
    place: PlaceArgument,
    version: IfOption = None,
    author: AuthorOption = None,
    wait: WaitOption = Level.STORED,
    deadline: DeadlineOption = WAIT_DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Delete a configuration; rollback brings it back.

    Example: swell config delete shop/old.json
    """
    one, who = parse_place(place), find_author(author)
    wish = Wish(wait, parse_time_s(deadline), json, version, deletion=True)

    async def make(configs: Configs, display: Display) -> Sequence[Publication]:
        condition = await condition_of(configs, one.name, version)
        return await configs.publish([Delete(one.name, condition)], author=who)

    publish(find_target(dir, connect, cluster), one.application, make, wish)


def rollback(
    place: PlaceArgument,
    to: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="As in the history.")],
    version: IfOption = None,
    author: AuthorOption = None,
    wait: WaitOption = Level.STORED,
    deadline: DeadlineOption = WAIT_DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Publish again what a version was, as a new one.

    Example: swell config rollback shop/limits.json 3 --wait applied
    """
    one, who = parse_place(place), find_author(author)
    wish = Wish(wait, parse_time_s(deadline), json, version)

    async def make(configs: Configs, display: Display) -> Sequence[Publication]:
        condition = await condition_of(configs, one.name, version)
        return await configs.publish([Rollback(one.name, to, condition)], author=who)

    publish(find_target(dir, connect, cluster), one.application, make, wish)
