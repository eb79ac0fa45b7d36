"""Commands that ask a running cluster: members, overlay, ping, broadcast, status."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from swell.cli.tables import (
    broadcast_tree,
    members_table,
    nodes_table,
    ping_table,
    print_json,
    status_table,
    zones_table,
)
from swell.cli.target import (
    DEFAULT_DIR,
    ClusterOption,
    ConnectOption,
    DirOption,
    FromOption,
    JsonOption,
    NodeOption,
    find_target,
)
from swell.operations.zones import problems

FILE_COLUMNS = 140
"""Width of what goes to a file or a pipe."""
SECONDS_PER_PING = 2.5
DEADLINE_S = 10.0


def console() -> Console:
    out = Console()
    if not out.is_terminal:
        out.width = FILE_COLUMNS
    return out


def members(
    node: NodeOption = "",
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show the members of a node's zone: who is alive, suspect, dead or has left."""
    result = find_target(dir, connect, cluster, node).ask("members", DEADLINE_S)
    if json:
        print_json(result)
    else:
        console().print(members_table(result))


def overlay(
    node: NodeOption = "",
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show the whole overlay: nodes, zones, links, and what is missing."""
    result = find_target(dir, connect, cluster, node).ask("overlay", DEADLINE_S)
    if json:
        print_json(result)
        return
    out = console()
    out.print(nodes_table(result), zones_table(result))
    wrong = problems(result)
    if not wrong:
        out.print(
            "[green]complete[/green]: full cliques, one link between every two zones, "
            "spread evenly",
            highlight=False,
        )
    for line in wrong:
        out.print(f"[yellow]·[/yellow] {line}", highlight=False)


def ping(
    name: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node to ping.")],
    source: FromOption = "",
    count: Annotated[int, typer.Option(min=1, max=100, help="How many pings.")] = 1,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Ping a node through the overlay: hops, path, round trip, and the coordinates' estimate."""
    target = find_target(dir, connect, cluster, source)
    deadline_s = DEADLINE_S + SECONDS_PER_PING * min(count, 40)
    result = target.ask("ping", deadline_s, node=name, count=count)
    if json:
        print_json(result)
    else:
        console().print(ping_table(result))


def broadcast(
    text: Annotated[str, typer.Argument(help="What to send to every node.")],
    source: FromOption = "",
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Send a text to every node and show the tree along which it travelled."""
    target = find_target(dir, connect, cluster, source)
    result = target.ask("broadcast", DEADLINE_S, text=text)
    if json:
        print_json(result)
        return
    out = console()
    out.print(broadcast_tree(result))
    out.print(
        f"reached {len(result['reached'])} nodes in at most {result['max_hops']} hops, "
        f"all answers back after {result['took_ms']:.1f} ms",
        highlight=False,
    )
    if result["unreached"]:
        out.print(f"[red]no answer from {', '.join(result['unreached'])}[/red]", highlight=False)


def status(
    node: NodeOption = "",
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show one node: who it is, its directory's statistics, its counters."""
    result = find_target(dir, connect, cluster, node).ask("status", DEADLINE_S)
    if json:
        print_json(result)
    else:
        console().print(status_table(result))
