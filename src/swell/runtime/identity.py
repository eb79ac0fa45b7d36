"""A node's data directory: locked by one process, bound to one node of one cluster.

Layout: `lock` (held with flock while a process runs on the directory), `identity.json` (cluster,
node, number of starts, when it was made, and a random name of the directory itself, by which the
directory service tells a restarted node from another one of the same name) and `files/` (the node's
disk). The number of starts is the node's epoch: it is raised durably before the node says anything
to anybody, so no two lives share one. A directory that was found to be an old copy is condemned:
every start raises its number, so without that it would only have to be started often enough to
pass.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import msgspec

from swell.errors import ConfigurationError
from swell.ids import life_of

LOCAL_CLUSTER = "local"
"""Cluster id of nodes without TLS, which only ever meet on one machine."""


class Identity(msgspec.Struct, frozen=True):
    cluster: str
    node: str
    starts: int
    uid: str = ""
    condemned: str = ""
    """Why it must not be started again; empty: it may be."""
    made_s: int = 0
    """When the directory was made, by the wall clock; 0: it was not noted."""


class DataDirectory:
    """An open data directory. `epoch` counts its starts, this one included; `uid` is its name;
    `life` is the number of this start in events."""

    def __init__(self, path: Path, cluster: str, node: str) -> None:
        self.path = path
        self.files = path / "files"
        try:
            self.files.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot use {path} as a data directory: {error.strerror}"
            ) from None
        self._lock = _lock(path)
        try:
            identity = _count_start(path / "identity.json", cluster, node)
        except BaseException:
            self.close()
            raise
        self._identity = identity
        self.epoch = identity.starts
        self.uid = identity.uid
        self.life = life_of(identity.made_s, identity.starts)

    def condemn(self, reason: str) -> None:
        """No start of this directory succeeds from now on."""
        condemned = msgspec.structs.replace(self._identity, condemned=reason)
        write_durably(self.path / "identity.json", msgspec.json.encode(condemned))

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _lock(path: Path) -> int:
    descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise ConfigurationError(
            f"data directory {path} is in use by another process: stop that node first, "
            "or give this one a directory of its own"
        ) from None
    return descriptor


def _count_start(file: Path, cluster: str, node: str) -> Identity:
    """Check who the directory belongs to and raise its number of starts, durably."""
    starts, uid, made_s = 0, "", int(time.time())
    if file.exists():
        try:
            known = msgspec.json.decode(file.read_bytes(), type=Identity)
        except msgspec.DecodeError as error:
            raise ConfigurationError(
                f"{file} is damaged ({error}): restore it, or start with an empty data directory"
            ) from None
        if (known.cluster, known.node) != (cluster, node):
            raise ConfigurationError(
                f"data directory {file.parent} belongs to node {known.node!r} of cluster "
                f"{known.cluster!r}, not to node {node!r} of cluster {cluster!r}: "
                "give every node a directory of its own"
            )
        if known.condemned:
            raise ConfigurationError(
                f"data directory {file.parent} was refused before: {known.condemned}"
            )
        starts, uid, made_s = known.starts, known.uid, known.made_s
    identity = Identity(cluster, node, starts + 1, uid or os.urandom(8).hex(), made_s=made_s)
    write_durably(file, msgspec.json.encode(identity))
    return identity


def write_durably(file: Path, data: bytes) -> None:
    """Replace a small file so that after a crash it holds either the old or the new bytes."""
    beside = file.with_suffix(".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(beside, file)
    sync_directory(file.parent)


def sync_directory(path: Path) -> None:
    """Make creations and renames in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
