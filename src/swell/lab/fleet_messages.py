"""What whoever runs an experiment and a fleet process say to each other, as msgpack on a pipe.

Runs are rows of three signed 64-bit numbers, (before, after, instant in ns): at that instant of the
monotonic clock, which is the same in every process, one container went from having all steps of an
application up to one to having all up to another.
"""

from __future__ import annotations

from multiprocessing.connection import Connection

import msgspec

from swell.errors import SwellError
from swell.runtime.ports import LOOPBACK
from swell.settings import ConfigSettings
from swell.world import Address


class Hosted(msgspec.Struct, frozen=True, array_like=True):
    """One container. `follows`: applications; its own is `owner`."""

    name: str
    owner: str
    site: str
    follows: tuple[str, ...]
    listens: bool = True
    """Whether siblings can reach it; else it neither relays nor is relayed to."""
    host: str = LOOPBACK
    """Where. By the thousand on one address the system takes long to find each a free port: see
    `loopback`."""
    slow_s: float = 0.0
    """How long it is busy with every burst, as on a machine with other work; whoever else is in its
    process waits for it."""


def loopback(number: int) -> str:
    """An address of this machine for each of many containers."""
    return f"127.{1 + number // 62_500 % 250}.{number // 250 % 250}.{1 + number % 250}"


class Start(msgspec.Struct, frozen=True, tag=True):
    """Host these containers. Answered by `Started` when every feed has all that its node has."""

    cluster: str
    addresses: tuple[Address, ...]
    containers: tuple[Hosted, ...]
    settings: ConfigSettings = ConfigSettings()
    heard: bool = False
    """Every single change is heard and its version compared with the one before, as an application
    that watches would do; else containers take bursts as they come."""
    certificates: str = ""
    """Directory with the certificate that all of them use; empty: plain TCP."""
    events: str = ""
    """Directory where all of them write their API events; empty: nowhere."""
    traced: bool = False
    """It is noted who brought each container its last burst, and how long it had to do with it."""


class Collect(msgspec.Struct, frozen=True, tag=True):
    """Tell what happened since the last time; with the digests of all documents, if asked."""

    contents: bool = False


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End all containers cleanly. The pipe is then closed."""


class Started(msgspec.Struct, frozen=True, tag=True):
    seconds: float


class Following(msgspec.Struct, frozen=True, array_like=True):
    """Where one container is with one application."""

    container: str
    application: str
    step: int
    digest: bytes
    """Over the names, versions and bytes of its documents; empty unless asked for."""
    by: str = ""
    """Who brought it its last burst, if that is traced; empty: the node itself."""


class Collected(msgspec.Struct, frozen=True, tag=True):
    runs: dict[str, bytes]
    """By application."""
    following: tuple[Following, ...]
    disorder: int
    """Steps or versions that did not follow the ones before; since the beginning."""
    counters: dict[str, int]
    """Of all containers together, since the beginning."""
    cpu_s: float
    resident_mib: float
    taken_ns: bytes = b""
    """How long containers had to do with each burst that came, if that is traced: signed 64-bit
    numbers."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    sentence: str


Command = Start | Collect | Stop
Answer = Started | Collected | Failed

_encode = msgspec.msgpack.Encoder().encode
_command: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_answer: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def send(pipe: Connection, what: Command | Answer) -> None:
    pipe.send_bytes(_encode(what))


def receive_command(pipe: Connection) -> Command | None:
    """None: whoever orders is gone."""
    try:
        return _command.decode(pipe.recv_bytes())
    except (EOFError, OSError):
        return None


def receive_answer(pipe: Connection, within_s: float) -> Answer:
    """`SwellError` if the fleet has a complaint, or says nothing."""
    try:
        if not pipe.poll(within_s):
            raise SwellError(f"a fleet process has not answered within {within_s:.0f} s")
        answer = _answer.decode(pipe.recv_bytes())
    except (EOFError, OSError):
        raise SwellError("a fleet process ended early; its log is on stderr") from None
    if isinstance(answer, Failed):
        raise SwellError(answer.sentence)
    return answer
