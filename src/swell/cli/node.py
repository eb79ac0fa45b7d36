"""`swell node`: run one node until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from swell.cli.hosting import Hosting, NodeSpec
from swell.cli.target import EventsOption, certificates_in, parse_address
from swell.directory.messages import Voter
from swell.errors import ConfigurationError
from swell.ids import check_name
from swell.runtime.identity import LOCAL_CLUSTER
from swell.runtime.logs import configure_logging
from swell.settings import Settings

REPLICAS_MAX = 16
PRESETS = {
    "data-centre": Settings,
    "wide-area": Settings.wide_area,
    "local": Settings.local,
}


def node(
    name: Annotated[str, typer.Option(help="Name of the node, unique in its cluster.")],
    site: Annotated[str, typer.Option(help="Where it is: a data centre, an edge site.")],
    data: Annotated[Path, typer.Option(metavar="DIR", help="Its data directory.")],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where it listens; port 0 takes a free one.")
    ] = "127.0.0.1:0",
    directory: Annotated[
        str,
        typer.Option(
            metavar="[NAME=]HOST:PORT,…",
            help="Voters of the directory, one or three or five, the same for every node; a node "
            "that is named among them serves it. Without it: this node alone.",
        ),
    ] = "",
    cluster: Annotated[
        str,
        typer.Option(
            metavar="DIR|ID",
            help="Directory with this node's certificates (`swell cluster issue`), or the id of a "
            "local cluster without TLS.",
        ),
    ] = LOCAL_CLUSTER,
    rack: Annotated[str, typer.Option(help="Its failure domain inside the site.")] = "",
    region: Annotated[str, typer.Option(help="Small sites of one region may share a zone.")] = "",
    settings: Annotated[
        str, typer.Option(metavar="PRESET|FILE", help=f"{', '.join(PRESETS)}, or a TOML file.")
    ] = "data-centre",
    replicas: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=REPLICAS_MAX,
            help="Copies of every key (3), the same for every node and fixed at the cluster's "
            "first start. A node that is to stay alone needs 1, a cluster of two nodes 2.",
        ),
    ] = None,
    events: EventsOption = "",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    json: Annotated[bool, typer.Option("--json", help="Ready lines and log as JSON.")] = False,
) -> None:
    """Run one node until SIGTERM or Ctrl-C.

    Prints one line when it listens and one when it has joined; its log goes to standard error.
    """
    if log_level not in ("debug", "info", "warning", "error"):
        raise ConfigurationError("--log-level must be debug, info, warning or error")
    configure_logging(log_level, json)
    host, port = parse_address(listen, port_min=0)
    spec = NodeSpec(
        name=check_name(name, "node name"),
        site=check_name(site, "site"),
        rack=check_name(rack, "rack") if rack else "",
        region=check_name(region, "region") if region else "",
        data=str(data),
        host=host,
        port=port,
        voters=parse_voters(directory, name) if directory else (),
        cluster=cluster,
        certificates=certificates_in(cluster),
        settings=load_settings(settings, replicas).recorded_in(events),
    )
    raise typer.Exit(Hosting([spec], json).run())


def parse_voters(text: str, me: str) -> tuple[Voter, ...]:
    """Voters by name and address; who only asks them needs no names."""
    voters = []
    for part in text.split(","):
        name, equals, address = part.strip().rpartition("=")
        voters.append(Voter(check_name(name, "voter") if equals else "", *parse_address(address)))
    names = [voter.name for voter in voters]
    if me in names and "" in names:
        raise ConfigurationError(
            f"{me} is a voter: --directory must give the name of every voter, as NAME=HOST:PORT"
        )
    if len({voter.address for voter in voters}) < len(voters) or any(
        names.count(name) > 1 for name in names if name
    ):
        raise ConfigurationError("--directory names a voter twice")
    return tuple(voters)


def load_settings(text: str, replicas: int | None = None) -> Settings:
    """A preset by name, or a TOML file that changes some of the defaults."""
    loaded = PRESETS[text]() if text in PRESETS else _read_settings(text)
    if replicas is not None:
        loaded = loaded.with_replicas(replicas)
    store = loaded.store
    if not 1 <= store.min_replicas <= store.replicas <= REPLICAS_MAX:
        raise ConfigurationError(
            f"replicas must be 1 to {REPLICAS_MAX} and min_replicas at most as many: "
            f"{text} says {store.replicas} and {store.min_replicas}"
        )
    return loaded


def _read_settings(text: str) -> Settings:
    try:
        return msgspec.toml.decode(Path(text).read_bytes(), type=Settings)
    except FileNotFoundError:
        raise ConfigurationError(
            f"--settings {text} is neither a file nor one of {', '.join(PRESETS)}"
        ) from None
    except (msgspec.DecodeError, OSError) as error:
        raise ConfigurationError(f"cannot read settings from {text}: {error}") from None
