"""`swell config get`, `list`, `history`, `status`, `options`: the commands that look."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from swell.cli.config_arguments import (
    DEADLINE,
    DeadlineOption,
    Place,
    PlaceArgument,
    parse_application,
    parse_place,
    parse_prefix,
    parse_time_s,
)
from swell.cli.config_errors import NotThereError
from swell.cli.config_publishing import run
from swell.cli.config_tables import (
    applications_table,
    history_table,
    list_table,
    status_sentence,
    status_table,
)
from swell.cli.config_words import (
    applications_json,
    data_json,
    history_json,
    list_json,
    status_json,
    value_json,
)
from swell.cli.tables import print_json, write
from swell.cli.target import (
    DEFAULT_DIR,
    ClusterOption,
    ConnectOption,
    DirOption,
    JsonOption,
    find_target,
)
from swell.client.configs import Configs
from swell.client.connection import Connection
from swell.client.values import Value
from swell.config.formats.format import format_of, get_path
from swell.config.operations import VERSIONS_KEPT_MAX
from swell.errors import ConfigurationError


def get(
    place: PlaceArgument,
    version: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="This version; else the newest.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write it into a file.")
    ] = None,
    path: Annotated[
        str, typer.Option("--path", metavar="PATH", help="Only what is at this path, as written.")
    ] = "",
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Write a value to standard output, byte for byte.

    Example: swell config get shop/db.yaml --path database.pool.size
    """
    one = parse_place(place)

    async def what(client: Connection) -> tuple[Value, bytes]:
        return await read(client.configs(one.application), one, version or 0)

    target = find_target(dir, connect, cluster)
    value, data = run(target, parse_time_s(deadline), what)
    if path:
        data = get_path(format_of(one.name), data, path)
    if out is not None:
        try:
            out.write_bytes(data)
        except OSError as error:
            raise ConfigurationError(f"cannot write {out}: {error.strerror}") from None
    if json:
        facts = value_json(one.application, value)
        print_json({**facts, "path": path, **({} if out else data_json(data))})
    elif out is None:
        unfinished = sys.stdout.isatty() and not data.endswith(b"\n")
        write(data + b"\n" if unfinished else data)


async def read(configs: Configs, place: Place, version: int = 0) -> tuple[Value, bytes]:
    """A version that exists, with its bytes."""
    value = await configs.get(place.name, version)
    if value is None:
        raise NotThereError(
            f"there is no {place}: see what there is with `swell config list {place.application}`"
        )
    if value.deleted:
        raise NotThereError(
            f"{place} was deleted with version {value.version}: see `swell config history {place}`"
        )
    return value, await value.bytes()


def list_(
    prefix: Annotated[
        str, typer.Argument(metavar="[APP[/PREFIX]]", help="Without it: the applications.")
    ] = "",
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """List the applications, or the configurations of one.

    Example: swell config list shop
    """
    target, deadline_s = find_target(dir, connect, cluster), parse_time_s(deadline)
    if not prefix:
        applications = run(target, deadline_s, lambda client: client.applications())
        show(json, applications_json(applications), applications_table(applications))
        if not (applications or json):
            print("nothing is published yet: begin with swell config put APP/NAME FILE")
        return
    one = parse_prefix(prefix)
    rows = run(target, deadline_s, lambda client: client.configs(one.application).list(one.name))
    show(json, list_json(one.application, rows), list_table(one.application, rows))


def history(
    place: PlaceArgument,
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show the versions that are kept, the newest first.

    Example: swell config history shop/limits.json
    """
    one, target = parse_place(place), find_target(dir, connect, cluster)
    versions = run(
        target,
        parse_time_s(deadline),
        lambda client: client.configs(one.application).history(one.name),
    )
    facts = history_json(one.application, one.name, versions)
    show(json, facts, history_table(str(one), versions))


def status(
    place: PlaceArgument,
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show which container has which version, since when and by whom.

    Example: swell config status shop/limits.json
    """
    one, target = parse_place(place), find_target(dir, connect, cluster)
    report = run(
        target,
        parse_time_s(deadline),
        lambda client: client.configs(one.application).status(one.name),
    )
    if not report.version:
        raise NotThereError(f"there is no {one}")
    show(json, status_json(one.application, one.name, report), status_table(one, report))
    if not json:
        print(status_sentence(report))


def options(
    application: Annotated[str, typer.Argument(metavar="APP", help="Which application.")],
    relaying: Annotated[
        str, typer.Option(metavar="on|off", help="Whether its containers pass updates on.")
    ] = "",
    keep: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=VERSIONS_KEPT_MAX,
            help="Versions kept of each configuration; 0: as the nodes' settings say.",
        ),
    ] = None,
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Show or change the options of an application.

    Example: swell config options shop --relaying off --keep 128
    """
    name, target = parse_application(application), find_target(dir, connect, cluster)
    if relaying not in ("", "on", "off"):
        raise ConfigurationError(f"--relaying {relaying} is not valid: write on or off")
    wanted = relaying == "on" if relaying else None
    now = run(
        target,
        parse_time_s(deadline),
        lambda client: client.configs(name).options(relaying=wanted, versions_kept=keep),
    )
    if json:
        facts = {"relaying": now.relaying, "versions_kept": now.versions_kept}
        print_json({"application": name, **facts})
        return
    kept = now.versions_kept or "as many as the nodes' settings say"
    print(f"relaying {'on' if now.relaying else 'off'}, versions kept: {kept}")


def show(json: bool, facts: dict[str, Any], table: Any) -> None:
    if json:
        print_json(facts)
    else:
        Console().print(table)
