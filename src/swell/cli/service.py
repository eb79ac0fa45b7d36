"""`swell service`: register instances of services, look at them, follow their changes.

Exit codes: 0 done; 1 an error; 130 after Ctrl-C. `register` and `watch` end with 0 by Ctrl-C.
"""

from __future__ import annotations

import asyncio
import json as jsonlib
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer
import uvloop
from rich.console import Console

from swell.cli.config_arguments import DEADLINE, DeadlineOption, parse_time_s
from swell.cli.service_tables import instances_table, services_table, words_of
from swell.cli.tables import print_json, write
from swell.cli.target import (
    DEFAULT_DIR,
    ClusterOption,
    ConnectOption,
    DirOption,
    JsonOption,
    Target,
    find_target,
    parse_address,
)
from swell.client.connection import Connection
from swell.client.openings import Opening, default_name
from swell.client.services import Listed
from swell.config.names import check_application
from swell.errors import ConfigurationError, RefusedError
from swell.ids import NAME_LENGTH_MAX
from swell.services.instances import SESSION, TTL_S, Instance, Instances

T = TypeVar("T")

NOTHING = ("@watch",)
"""What a watch is interested in besides the list: a name that nothing has."""

READS_MAX = 16
"""Lists that are read at a time."""

app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Which service.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Which instance: HOST:PORT.")]


@app.command()
def register(
    name: NameArgument,
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where it listens.")],
    id: Annotated[str, typer.Option("--id", help="Its id, if not HOST:PORT.")] = "",
    weight: Annotated[float, typer.Option("--weight", help="Its share of the traffic.")] = 1.0,
    meta: Annotated[
        list[str] | None, typer.Option("--meta", metavar="KEY=VALUE", help="A fact about it.")
    ] = None,
    check: Annotated[
        str, typer.Option("--check", help="session, tcp, http:/path or none.")
    ] = SESSION,
    ttl: Annotated[
        str, typer.Option("--ttl", metavar="TIME", help="Unhealthy after this silence.")
    ] = f"{TTL_S:g}s",
    hold: Annotated[
        bool, typer.Option("--hold", help="Stay, and remove it at the end. A session always does.")
    ] = False,
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Add an instance, or replace the one with the same id.

    With the check `session` the command stays and says that the instance lives; Ctrl-C ends it and
    removes the instance. With the others the nodes check it themselves, and the command returns.

    Example: swell service register pay 10.0.0.7:8080 --check tcp --meta zone=a
    """
    host, port = parse_address(address)
    facts, ttl_s = _facts(meta or ()), parse_time_s(ttl)
    lost: list[RefusedError] = []

    async def work(client: Connection) -> None:
        service, ended = client.service(name), _ending()

        def on_lost(error: RefusedError) -> None:
            lost.append(error)
            ended.set()

        instance = await service.register(
            host,
            port,
            id=id or None,
            weight=weight,
            metadata=facts,
            check=check,
            ttl_s=ttl_s,
            on_lost=on_lost,
        )
        _say(json, {"service": name, **facts_of(instance)}, f"registered {instance.id} of {name}")
        if not hold and check != SESSION:
            return
        await ended.wait()
        if lost:
            raise lost[0]
        await service.deregister()
        print(f"removed {instance.id} of {name}", file=sys.stderr)

    _run(find_target(dir, connect, cluster), deadline, work)


@app.command()
def deregister(
    name: NameArgument,
    id: IdArgument,
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Remove an instance, whoever registered it."""
    target = find_target(dir, connect, cluster)
    done = _run(target, deadline, lambda client: client.service(name).deregister(id))
    text = f"removed {id} of {name}" if done else f"{name} has no instance {id}"
    _say(json, {"service": name, "id": id, "removed": done}, text)


@app.command(name="list")
def list_(
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show all services and how many of their instances are healthy."""

    async def work(client: Connection) -> dict[str, Instances]:
        names = iter([row.name for row in await client.services()])
        found: dict[str, Instances] = {}

        async def read() -> None:
            for name in names:
                found[name] = await client.service(name).discover()

        await asyncio.gather(*(read() for _ in range(READS_MAX)))
        return {name: found[name] for name in sorted(found) if len(found[name])}

    lists = _run(find_target(dir, connect, cluster), deadline, work)
    if json:
        print_json([{"service": name, **summary(one)} for name, one in lists.items()])
    else:
        Console().print(services_table(lists))


@app.command()
def discover(
    name: NameArgument,
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show the instances of a service."""
    target = find_target(dir, connect, cluster)
    found = _run(target, deadline, lambda client: client.service(name).discover())
    if json:
        print_json({"service": name, **summary(found), "list": [*map(facts_of, found)]})
    else:
        Console().print(instances_table(name, found, time.time()))


@app.command()
def watch(
    name: NameArgument,
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Print the instances, then every change as it comes.

    Ctrl-C ends it. With --json there is one line for each change.
    """
    check_application(name)

    async def work(client: Connection) -> None:
        async for listed in client.service(name).watch():
            if json:
                line = jsonlib.dumps(_as_json(name, listed), ensure_ascii=False)
                write(f"{line}\n".encode())
            else:
                for words in words_of(listed):
                    print(f"{time.strftime('%H:%M:%S')} {words}", flush=True)

    opening = Opening(
        application=name,
        name=f"watch-{default_name()}"[:NAME_LENGTH_MAX],
        site="",
        interest=NOTHING,
        snapshot=None,
        listen=None,
    )
    try:
        _run(find_target(dir, connect, cluster), deadline, work, opening)
    except KeyboardInterrupt:
        print("stopped watching", file=sys.stderr)


@app.command()
def options(
    name: NameArgument,
    protect: Annotated[
        float | None,
        typer.Option(
            "--protect", min=0.0, max=1.0, help="Protect a list with a smaller healthy share."
        ),
    ] = None,
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show or change what holds for a service.

    A protected list keeps all its instances, and clients use them all: with --protect 0.5 while
    less than half of them are healthy. 0, the default, never protects.
    """
    target = find_target(dir, connect, cluster)
    now = _run(target, deadline, lambda client: client.service(name).options(protect=protect))
    _say(json, {"service": name, "protect": now.protect}, f"protect {now.protect:g}")


def _run(
    target: Target,
    deadline: str,
    work: Callable[[Connection], Awaitable[T]],
    opening: Opening | None = None,
) -> T:
    """Something on a connection of its own."""
    deadline_s = parse_time_s(deadline)

    async def once() -> T:
        connection = Connection(
            target.addresses, target.cluster, target.tls, deadline_s, opening=opening
        )
        async with connection as client:
            return await work(client)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(once())


def _ending() -> asyncio.Event:
    """Set by Ctrl-C, or when somebody stops the process."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return ended


def _facts(words: Sequence[str]) -> dict[str, str]:
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise ConfigurationError(f"--meta {word} says nothing: write KEY=VALUE, as in zone=a")
        found[key] = value
    return found


def facts_of(instance: Instance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "host": instance.host,
        "port": instance.port,
        "weight": instance.weight,
        "healthy": instance.healthy,
        "since": instance.since,
        "check": instance.check,
        "ttl_s": instance.ttl_s,
        "metadata": instance.metadata,
    }


def summary(found: Instances) -> dict[str, Any]:
    return {"instances": len(found), "healthy": found.healthy, "protected": found.protected}


def _as_json(name: str, listed: Listed) -> dict[str, Any]:
    return {
        "service": name,
        **summary(listed.instances),
        "added": [*map(facts_of, listed.added)],
        "removed": [one.id for one in listed.removed],
        "changed": [*map(facts_of, listed.changed)],
    }


def _say(json: bool, result: dict[str, Any], sentence: str) -> None:
    if json:
        print_json(result)
    else:
        print(sentence, flush=True)
