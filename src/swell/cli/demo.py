"""`swell demo`: a local cluster forms, routes, loses a node, heals, and gets it back."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.status import Status
from rich.text import Text

from swell.cli.inspect import console
from swell.cli.local import await_whole, exit_on_sigterm
from swell.cli.localcluster import LocalCluster
from swell.cli.tables import arrows, broadcast_tree, nodes_table, ping_table, zones_table
from swell.errors import SwellError, UnavailableError
from swell.operations.zones import problems

SITES = 2
NODES = 8
VOTER = "a1"
STEP_S = 30.0
SETTLE_S = 20.0
"""Coordinates settle in about 5 s on an idle machine and in up to 20 s on a busy one."""
POLL_S = 0.05


def demo(
    stay: Annotated[
        bool, typer.Option("--stay", help="Leave the cluster up at the end, and say where.")
    ] = False,
) -> None:
    """Start 8 nodes in 2 sites, trace messages, kill a node and watch the overlay heal."""
    exit_on_sigterm()
    out = console()
    path = Path(tempfile.mkdtemp(prefix="swell-demo-"))
    cluster = LocalCluster.create(path, SITES, NODES)
    try:
        _show(cluster, out)
    except BaseException:
        cluster.stop()
        cluster.purge()
        raise
    if stay:
        out.print(
            f"\nThe cluster stays up. Look at it with [bold]swell overlay --dir {path}[/bold],\n"
            f"stop it and remove it with [bold]swell down --purge --dir {path}[/bold].",
            highlight=False,
        )
        return
    with out.status("stopping the cluster"):
        cluster.stop()
    cluster.purge()
    out.print("\n[green]done[/green]: stopped and cleaned up", highlight=False)


def _show(cluster: LocalCluster, out: Console) -> None:
    _headline(out, 1, f"{NODES} nodes in {SITES} sites start as processes of their own and link up")
    begun = time.monotonic()
    cluster.start()
    graph = await_whole(cluster)
    out.print(nodes_table(graph))
    _fact(out, f"complete after {time.monotonic() - begun:.1f} s")
    _fact(out, "everybody is linked to everybody in a zone, and every two zones have one link:")
    out.print("  no two nodes are further apart than three hops")

    source, victim, far = _cast(graph)
    _headline(out, 2, f"A broadcast from {source} takes at most 3 hops")
    _broadcast(cluster, out, source)

    _headline(out, 3, f"A ping across zones, from {source} to {far}")
    _ping(cluster, out, source, far)

    _headline(out, 4, f"{victim} holds the link between the zones. kill -9 {victim}")
    _kill(cluster, out, victim, source)

    _headline(out, 5, f"{victim} starts again")
    begun = time.monotonic()
    cluster.start([[victim]])
    graph = await_whole(cluster)
    epochs = {node["name"]: node["epoch"] for node in graph["nodes"]}
    out.print(zones_table(graph))
    _fact(
        out,
        f"{victim} is back after {time.monotonic() - begun:.1f} s, same id and zone, "
        f"start number {epochs[victim]}; the overlay is complete",
    )


def _cast(graph: dict[str, Any]) -> tuple[str, str, str]:
    """Who plays what: a source, the victim that holds the link between its zone and the source's,
    and a node far from the source. Never the directory's only voter."""
    link = next(link for link in graph["links"] if link["kind"] == "inter-zone")
    zone_of = {node["name"]: node["zone"] for node in graph["nodes"]}
    ends = (link["a"], link["b"])
    victim = next(name for name in ends if zone_of[name] != zone_of[VOTER])
    source = next(name for name in zone_of if name not in ends and zone_of[name] != zone_of[victim])
    far = next(name for name in zone_of if name not in ends and zone_of[name] == zone_of[victim])
    return source, victim, far


def _broadcast(cluster: LocalCluster, out: Console, source: str) -> None:
    result = cluster.target(source).ask("broadcast", text="hello, everybody")
    out.print(broadcast_tree(result))
    _fact(
        out,
        f"{len(result['reached'])} nodes reached in at most {result['max_hops']} hops, "
        f"{result['duplicates']} duplicates; "
        f"all answers are back after {result['took_ms']:.1f} ms",
    )
    if result["unreached"]:
        raise UnavailableError(f"the broadcast did not reach {', '.join(result['unreached'])}")


def _ping(cluster: LocalCluster, out: Console, source: str, far: str) -> None:
    """Coordinates need some round trips before they are worth something: ping until then."""
    latest: dict[str, Any] = {}

    def sure() -> bool:
        latest.update(cluster.target(source).ask("ping", node=far, count=3))
        return all("estimate_ms" in ping for ping in latest["pings"])

    with out.status("network coordinates settle as nodes probe each other"):
        until = time.monotonic() + SETTLE_S
        while not (settled := sure()) and time.monotonic() < until:
            time.sleep(POLL_S)
    out.print(ping_table(latest))
    if settled:
        _fact(out, "the estimate is the direct round trip as the two nodes' coordinates have it")
    else:
        _fact(out, "the coordinates are not sure enough for an estimate yet: the machine is busy")


def _kill(cluster: LocalCluster, out: Console, victim: str, source: str) -> None:
    begun = time.monotonic()
    cluster.kill(victim)
    zone = next(s.site for s in cluster.plan.nodes if s.name == victim)
    witness = next(s.name for s in cluster.plan.nodes if s.site == zone and s.name != victim)

    def dead() -> bool:
        states = {m["name"]: m["state"] for m in cluster.target(witness).ask("members")["members"]}
        return states.get(victim) == "dead"

    def whole() -> bool:
        graph = cluster.look()
        return graph is not None and len(graph["nodes"]) == NODES - 1 and not problems(graph)

    with out.status(f"the zone of {victim} makes sure that it is dead") as status:
        _await(dead, status, f"{victim} was not found dead")
        _fact(out, f"its zone declared {victim} dead after {time.monotonic() - begun:.1f} s")
        status.update("the zones look for a new link between them")
        _await(whole, status, "the overlay did not heal")
        _fact(out, f"the zones are linked anew, {time.monotonic() - begun:.1f} s after the crash")
    result = cluster.target(source).ask("broadcast", text="still here")
    out.print(broadcast_tree(result))
    longest = max((one["path"] for one in result["reached"]), key=len)
    _fact(
        out,
        f"a broadcast reaches all {len(result['reached'])} again, in at most "
        f"{result['max_hops']} hops: {arrows(longest)}",
    )


def _await(condition: Callable[[], bool], status: Status, failure: str) -> None:
    """Poll until it holds; questions that fail meanwhile are part of what is shown."""
    until = time.monotonic() + STEP_S
    while time.monotonic() < until:
        try:
            if condition():
                return
        except SwellError as error:
            status.update(str(error))
        time.sleep(POLL_S)
    raise UnavailableError(f"{failure} within {STEP_S:.0f} s")


def _headline(out: Console, number: int, text: str) -> None:
    out.print()
    out.rule(Text(f"{number}. {text}", style="bold"), align="left", style="blue")


def _fact(out: Console, text: str) -> None:
    out.print(f"[green]·[/green] {text}", highlight=False)
