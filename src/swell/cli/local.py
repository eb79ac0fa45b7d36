"""`swell up` and `swell down`: a local cluster of real processes."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sized
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from swell.cli.localcluster import LocalCluster
from swell.cli.tables import print_json, zones_table
from swell.cli.target import DEFAULT_DIR, DirOption, EventsOption, JsonOption
from swell.errors import ConfigurationError

START_S = 60.0
START_S_PER_NODE = 1.0
DEFAULT_SITES = 2
DEFAULT_NODES = 8


def up(
    sites: Annotated[int | None, typer.Option(help="Number of sites (2).")] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes in all (8).")] = None,
    per_process: Annotated[int | None, typer.Option(help="Nodes that share a process (1).")] = None,
    connections: Annotated[
        int | None,
        typer.Option(help="c: links per node in a full overlay; sets the zone size (4)."),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Mutual TLS with an authority of its own.")
    ] = False,
    events: EventsOption = "",
    dir: DirOption = DEFAULT_DIR,
    json: JsonOption = False,
) -> None:
    """Start a local cluster of real processes and wait until its overlay is complete.

    A cluster that was stopped with `swell down` is started again, with its data.
    """
    exit_on_sigterm()
    begun = time.monotonic()
    shape = {"sites": sites, "nodes": nodes, "per_process": per_process, "connections": connections}
    cluster = _find_or_create(dir, shape, tls).recorded_in(events)
    try:
        cluster.start()
        graph = await_whole(cluster, quiet=json)
    except BaseException:
        cluster.stop()
        raise
    took_s = time.monotonic() - begun
    if json:
        addresses = {spec.name: f"{spec.host}:{spec.port}" for spec in cluster.plan.nodes}
        pids = {name: process.pid for process in cluster.running() for name in process.nodes}
        print_json(
            {
                "dir": str(cluster.path),
                "cluster": cluster.plan.cluster,
                "nodes": [{**node, "pid": pids[node["name"]]} for node in graph["nodes"]],
                "addresses": addresses,
                "took_s": round(took_s, 3),
            }
        )
        return
    out = Console()
    out.print(zones_table(graph))
    hint = "" if dir == DEFAULT_DIR else f" --dir {dir}"
    out.print(
        f"[green]up[/green] in {took_s:.1f} s: {_count(graph['nodes'], 'node')} in "
        f"{_count(graph['zones'], 'zone')}, {_count(cluster.running(), 'process', 'es')}. "
        f"Look at it with [bold]swell overlay{hint}[/bold], use it with [bold]swell "
        f"config{hint}[/bold], stop it with [bold]swell down{hint}[/bold].",
        highlight=False,
    )


def down(
    dir: DirOption = DEFAULT_DIR,
    purge: Annotated[bool, typer.Option("--purge", help="Remove its data as well.")] = False,
    json: JsonOption = False,
) -> None:
    """Stop the local cluster. Its data stays for the next `swell up`, unless purged."""
    stopped = 0
    if (dir / "cluster.json").exists():
        cluster = LocalCluster.load(dir)
        stopped = cluster.stop()
        if purge:
            cluster.purge()
    if json:
        print_json({"dir": str(dir.absolute()), "stopped": stopped, "purged": purge})
    elif stopped:
        print(f"down: {stopped} process{'' if stopped == 1 else 'es'} stopped")
    else:
        print(f"nothing runs in {dir}")


def _count(things: Sized, name: str, plural: str = "s") -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else plural}"


def _find_or_create(dir: Path, shape: dict[str, int | None], tls: bool) -> LocalCluster:
    """The stopped cluster of the directory, or a new one."""
    if not (dir / "cluster.json").exists():
        return LocalCluster.create(
            dir,
            DEFAULT_SITES if shape["sites"] is None else shape["sites"],
            DEFAULT_NODES if shape["nodes"] is None else shape["nodes"],
            per_process=1 if shape["per_process"] is None else shape["per_process"],
            connections=4 if shape["connections"] is None else shape["connections"],
            tls=tls,
        )
    cluster = LocalCluster.load(dir)
    if cluster.running():
        raise ConfigurationError(
            f"the cluster in {dir} is up already: stop it with `swell down`, or use another --dir"
        )
    plan = cluster.plan
    has = {
        "sites": plan.sites,
        "nodes": len(plan.nodes),
        "connections": plan.nodes[0].settings.overlay.connections,
    }
    wanted = {key: value for key, value in shape.items() if key in has and value is not None}
    if any(has[key] != value for key, value in wanted.items()) or (tls and not plan.tls):
        raise ConfigurationError(
            f"{dir} holds a cluster of {has['nodes']} nodes in {has['sites']} sites "
            f"(connections {has['connections']}, {'TLS' if plan.tls else 'no TLS'}): start it "
            "without these options, use another --dir, or remove it with `swell down --purge`"
        )
    if shape["per_process"] is not None:
        cluster.plan = msgspec.structs.replace(plan, per_process=shape["per_process"])
    return cluster


def exit_on_sigterm() -> None:
    """Let SIGTERM end this command like Ctrl-C does, so that it stops what it has started."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def await_whole(cluster: LocalCluster, quiet: bool = False) -> dict[str, Any]:
    """Show progress until the overlay is complete; its graph."""
    total = sum(len(process.nodes) for process in cluster.running())
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} nodes · {task.fields[links]} links"),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task("starting", total=total, links=0)

        def show(graph: dict[str, Any] | None) -> None:
            if graph is not None:
                count = len(graph["nodes"])
                progress.update(task, completed=count, links=len(graph["links"]))
                if count == total:
                    progress.update(task, description="linking")

        return cluster.await_whole(START_S + START_S_PER_NODE * total, show)
