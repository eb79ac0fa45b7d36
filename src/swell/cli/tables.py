"""How results look on a terminal: tables in colour, trees, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

STATE_COLOURS = {"alive": "green", "suspect": "yellow", "dead": "red", "left": "magenta"}
ZONE_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_red")


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    write(f"{json.dumps(value, indent=2, ensure_ascii=False)}\n".encode(errors="surrogateescape"))


def write(data: bytes) -> None:
    """All of these bytes to standard output. Where it is not buffered (PYTHONUNBUFFERED, usual in
    containers) a pipe may take a part only, and Python tells by the number alone."""
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def coloured(state: str) -> str:
    return f"[{STATE_COLOURS.get(state, 'white')}]{state}[/]"


def zone_colour(zone: int) -> str:
    """The same colour for a zone in every table."""
    return ZONE_COLOURS[(zone - 1) % len(ZONE_COLOURS)]


def by_name(name: str) -> tuple[int, str]:
    """Sorts a2 before a10."""
    return len(name), name


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.pad_edge = False
    for column in columns:
        name, _, side = column.partition(">")
        table.add_column(name, justify="right" if side else "left", no_wrap=True)
    return table


def voters_table(result: Mapping[str, Any]) -> Table:
    title = f"Directory in term {result['term']}"
    table = _table(title, "name", "role", "log>>", "reachable", "address")
    for member in sorted(result["members"], key=lambda member: by_name(member["name"])):
        role = "[bold]leader[/bold]" if member["leads"] else member["role"]
        reachable = "[green]yes[/green]" if member["reachable"] else "[red]no[/red]"
        name, address = escape(member["name"]), escape(member["address"])
        table.add_row(name, role, str(member["log"]), reachable, address)
    return table


def members_table(result: Mapping[str, Any]) -> Table:
    title = f"Members of zone {result['zone']} as {result['from']} sees them"
    table = _table(
        title, "name", "id>>", "site", "rack", "state", "linked", "zone links>>", "starts>>",
        "address",
    )  # fmt: skip
    for member in sorted(result["members"], key=lambda member: by_name(member["name"])):
        name = escape(member["name"])
        if member["delegate"]:
            name = f"[bold]{name}[/bold] [dim]delegate[/dim]"
        table.add_row(
            name,
            str(member["id"]),
            escape(member["site"]),
            escape(member["rack"]),
            coloured(member["state"]),
            "yes" if member["linked"] else "[red]no[/red]",
            str(member["zone_links"]),
            str(member["epoch"]),
            member["address"],
        )
    return table


def nodes_table(graph: Mapping[str, Any]) -> Table:
    """One row per node: its zone, its links inside and between zones."""
    cliques: dict[str, int] = {}
    between: dict[str, list[str]] = {}
    for link in graph["links"]:
        for end, other in ((link["a"], link["b"]), (link["b"], link["a"])):
            if link["kind"] == "clique":
                cliques[end] = cliques.get(end, 0) + 1
            else:
                mark = " [yellow](one-sided)[/yellow]" if link.get("state") else ""
                between.setdefault(end, []).append(f"{escape(other)}{mark}")
    table = _table("Overlay", "zone>>", "node", "id>>", "site", "rack", "state", "clique links>>",
                   "links to other zones", "address")  # fmt: skip
    last = None
    for node in sorted(graph["nodes"], key=lambda node: (node["zone"], *by_name(node["name"]))):
        if last not in (None, node["zone"]):
            table.add_section()
        last = node["zone"]
        colour = zone_colour(node["zone"])
        table.add_row(
            f"[{colour}]{node['zone']}[/]",
            f"[bold {colour}]{escape(node['name'])}[/]",
            str(node["id"]),
            escape(node["site"]),
            escape(node["rack"]),
            coloured(node["state"]),
            str(cliques.get(node["name"], 0)),
            ", ".join(between.get(node["name"], ())) or "[dim]none[/dim]",
            node["address"],
        )
    return table


def zones_table(graph: Mapping[str, Any]) -> Table:
    table = _table("Zones", "zone>>", "site", "nodes>>", "delegate", "members", "linked to zones")
    for zone in graph["zones"]:
        number = zone["id"]
        names = [node["name"] for node in graph["nodes"] if node["zone"] == number]
        members = sorted(names, key=by_name)
        others = [
            other
            for link in graph["links"]
            if link["kind"] == "inter-zone" and number in link["zones"]
            for other in link["zones"]
            if other != number
        ]
        table.add_row(
            f"[{zone_colour(number)}]{number}[/]",
            escape(zone["site"]),
            str(zone["size"]),
            escape(zone["delegate"]),
            f"[{zone_colour(number)}]{escape(', '.join(members))}[/]",
            ", ".join(map(str, sorted(others))) or "[dim]none[/dim]",
        )
    for number in graph["unreachable"]:
        table.add_row(str(number), "", "", "", "[red]does not answer[/red]", "")
    return table


def arrows(path: Sequence[str]) -> str:
    return " → ".join(escape(name) for name in path)


def ping_table(result: Mapping[str, Any]) -> Table:
    title = f"Ping from {result['from']} to {result['node']} (zone {result['zone']})"
    table = _table(title, "#>>", "hops>>", "path", "path back", "round trip>>", "estimate>>")
    for number, ping in enumerate(result["pings"], 1):
        if "error" in ping:
            table.add_row(str(number), "", f"[red]{escape(ping['error'])}[/red]", "", "", "")
            continue
        estimate = ping.get("estimate_ms")
        unsure = f"[dim]unsure (error {ping['coordinate_error']:.2f})[/dim]"
        table.add_row(
            str(number),
            str(ping["hops"]),
            arrows(ping["path"]),
            arrows(ping["path_back"]),
            f"{ping['rtt_ms']:.2f} ms",
            unsure if estimate is None else f"{estimate:.2f} ms",
        )
    return table


def broadcast_tree(result: Mapping[str, Any]) -> Tree:
    """The tree along which a broadcast travelled."""
    zones = {one["name"]: one["zone"] for one in result["reached"]}

    def label(name: str) -> str:
        zone = zones.get(name)
        if zone is None:
            return escape(name)
        return f"[bold {zone_colour(zone)}]{escape(name)}[/] [dim]zone {zone}[/dim]"

    tree = Tree(f"{label(result['from'])} [dim]says[/dim] “{escape(result['text'])}”")
    branches = {result["from"]: tree}
    for parent, child in result["tree"]:
        if parent not in branches:
            branches[parent] = tree.add(label(parent))
        branches[child] = branches[parent].add(label(child))
    return tree


def status_table(result: Mapping[str, Any]) -> Table:
    table = _table(f"Node {result['name']}", "what", "value")
    for key, value in result.items():
        if isinstance(value, Mapping):
            for name, number in value.items():
                table.add_row(f"[dim]{key}[/dim] {escape(name)}", escape(str(number)))
        elif key != "name":
            table.add_row(key.replace("_", " "), escape(str(value)))
    return table
