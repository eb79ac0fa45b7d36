"""Which cluster a command talks to: the local one of a directory, or one given by address."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from swell.client.addresses import parse_address as parse_address
from swell.client.addresses import parse_addresses as parse_addresses
from swell.client.facade import request
from swell.errors import ConfigurationError
from swell.runtime.identity import LOCAL_CLUSTER
from swell.runtime.security import TlsMaterial
from swell.world import Address

DEFAULT_DIR = Path(".swell")

DirOption = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="Directory of the local cluster.")
]
ConnectOption = Annotated[
    str,
    typer.Option("--connect", metavar="HOST:PORT,…", help="Nodes to ask, instead of --dir."),
]
ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="DIR|ID",
        help="With --connect: directory of certificates, or the id of a cluster without TLS.",
    ),
]
NodeOption = Annotated[str, typer.Option("--node", help="Ask this node.")]
FromOption = Annotated[str, typer.Option("--from", help="Ask this node to do it.")]
EventsOption = Annotated[
    str,
    typer.Option(
        "--events",
        metavar="DIR",
        envvar="SWELL_EVENTS",
        help="Write API events there, as files for `swell pipeline`.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Target:
    """Where requests go."""

    def __init__(
        self, addresses: Sequence[Address], cluster: str, tls: TlsMaterial | None = None
    ) -> None:
        self.addresses = addresses
        self.cluster = cluster
        self.tls = tls

    def ask(self, operation: str, deadline_s: float = 10.0, **arguments: Any) -> dict[str, Any]:
        """One request to the first node that answers."""
        return request(
            self.addresses, self.cluster, operation, arguments, tls=self.tls, deadline_s=deadline_s
        )


def find_target(dir: Path, connect: str, cluster: str, node: str = "") -> Target:
    """The target that the options of a command describe; `node` first among a local cluster's."""
    if connect:
        certificates = certificates_in(cluster)
        if certificates:
            tls = TlsMaterial(Path(certificates))
            return Target(parse_addresses(connect), tls.cluster, tls)
        return Target(parse_addresses(connect), cluster or LOCAL_CLUSTER)
    from swell.cli.localcluster import LocalCluster

    return LocalCluster.load(dir).target(node)


def certificates_in(cluster: str) -> str:
    """The value of --cluster if it names a directory of certificates; empty if it is an id."""
    if (Path(cluster) / "node.pem").exists():
        return cluster
    if "/" in cluster:
        raise ConfigurationError(
            f"--cluster {cluster} is not a directory with a node's certificates: "
            "make it with `swell cluster issue`"
        )
    return ""
