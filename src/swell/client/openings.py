"""What a program says about itself when it connects as a container of an application."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from swell.client.addresses import parse_address
from swell.client.interests import check_names
from swell.config.delivery.interest import Interest
from swell.config.names import check_application
from swell.errors import ConfigurationError
from swell.ids import NAME_LENGTH_MAX, check_name
from swell.world import Address

LISTEN = "127.0.0.1:0"
"""Where siblings reach a container of a cluster without TLS, which is all on one machine."""

WILDCARDS = ("0.0.0.0", "::", "")


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """`listen`: where siblings reach it; None: nowhere, then its updates come from nodes."""

    application: str
    name: str
    site: str
    interest: Interest
    snapshot: Path | None
    listen: Address | None


def opening_of(
    app: str,
    container: str | None,
    site: str,
    interest: str | Sequence[str],
    snapshot: str | Path | None,
    listen: Address | None,
) -> Opening:
    """What was said, checked."""
    return Opening(
        application=check_application(app),
        name=default_name() if container is None else check_name(container, "container"),
        site=site,
        interest=check_names(interest),
        snapshot=Path(snapshot) if snapshot is not None else None,
        listen=listen,
    )


def listen_address(relay: bool, listen: str | None, tls: bool) -> Address | None:
    """Where to listen for siblings; None: nowhere."""
    if not relay:
        if listen is not None:
            raise ConfigurationError("listen= is for siblings that relay: leave out relay=False")
        return None
    if listen is None:
        return None if tls else parse_address(LISTEN, port_min=0)
    address = parse_address(listen, port_min=0)
    if address.host in WILDCARDS:
        raise ConfigurationError(
            f"siblings cannot reach {address.host}: listen on an address of this machine"
        )
    return address


def default_name() -> str:
    """Of a container that is given none: of its machine and process."""
    host = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().lower()).strip("-") or "container"
    suffix = f"-{os.getpid()}"
    return host[: NAME_LENGTH_MAX - len(suffix)] + suffix
