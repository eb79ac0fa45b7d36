"""Containers in processes of their own, which can be killed, and what each wrote down.

`python -m tests.processes.container_process FILE` hosts the containers of a `Plan`. Everything that
a container has or hears goes to its record at once, a line each, so that a kill loses nothing of
it: `Begun` when a life starts, with what its snapshot had, then every change as it is `Heard`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from random import Random

import msgspec
import uvloop

from swell.container.documents import Document, Update
from swell.container.session import ContainerSession
from swell.runtime.logs import configure_logging
from swell.runtime.ports import LOOPBACK
from swell.runtime.world import RuntimeWorld
from swell.settings import ConfigSettings
from swell.simulation.malice import Malice, MaliciousSession
from swell.world import Address
from tests.processes.commands import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
SITE = "s"


class Hosted(msgspec.Struct, frozen=True):
    """One container; `follows`: applications; `deed`: what it does in bad faith as a relay."""

    name: str
    owner: str
    follows: tuple[str, ...]
    keeps: bool = False
    """With a snapshot on disk."""
    deed: str = ""


class Plan(msgspec.Struct, frozen=True):
    cluster: str
    addresses: tuple[Address, ...]
    settings: ConfigSettings
    containers: tuple[Hosted, ...]
    directory: str


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """A version of a configuration."""

    application: str
    name: str
    version: int
    id: str
    step: int
    digest: str
    """Of its content."""


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """A life begins. `steps`: those it has, by application."""

    steps: dict[str, int]
    had: tuple[Heard, ...]


Line = Begun | Heard
_lines: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class ContainerProcess:
    """One process with its containers, from outside."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.containers = plan.containers
        self.directory = Path(plan.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._log = self.directory / f"{name}.log"
        self._plan = self.directory / f"{name}.json"
        self._plan.write_bytes(msgspec.json.encode(plan))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def names(self) -> list[str]:
        return [hosted.name for hosted in self.containers]

    def start(self) -> None:
        assert self._process is None
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.processes.container_process", str(self._plan)],
                stdout=log,
                stderr=log,
                env={**ENVIRONMENT, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            )

    def kill(self) -> None:
        """kill -9: all its containers are gone at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def record(self, container: str) -> list[Line]:
        return [_lines.decode(line) for line in _record(self.directory, container)]

    def complaints(self) -> str:
        return self._log.read_text(errors="replace")


def _record(directory: Path, container: str) -> Iterator[bytes]:
    try:
        data = (directory / f"{container}.record").read_bytes()
    except FileNotFoundError:
        return iter(())
    return iter(data[: data.rfind(b"\n") + 1].splitlines())


# Inside.


class Recorded:
    """One container that writes down what it hears."""

    def __init__(self, plan: Plan, hosted: Hosted) -> None:
        directory = Path(plan.directory)
        self._file = os.open(
            directory / f"{hosted.name}.record", os.O_WRONLY | os.O_CREAT | os.O_APPEND
        )
        snapshot = directory / f"{hosted.name}.snapshot" if hosted.keeps else None
        world = RuntimeWorld(hosted.name, snapshot, None, cluster=plan.cluster)
        self.world = world
        about = world, plan.cluster, plan.addresses, hosted.name, hosted.owner, SITE
        address = world.listen(LOOPBACK, 0)
        if hosted.deed:
            malice = Malice(hosted.deed, Random(hosted.name), plan.cluster)
            session: ContainerSession = MaliciousSession(
                *about, settings=plan.settings, address=address, hear=self._hear, malice=malice
            )
        else:
            session = ContainerSession(
                *about,
                settings=plan.settings,
                address=address,
                keep=hosted.keeps,
                hear=self._hear,
            )
        world.start(session)
        self._feeds = [session.subscribe(application) for application in hosted.follows]
        if session.ready:
            self._begin()
        else:
            session.when_ready(self._begin)

    def _begin(self) -> None:
        had = [
            _heard(feed.application, document)
            for feed in self._feeds
            for document in feed.documents.values()
        ]
        self._write(Begun({feed.application: feed.at for feed in self._feeds}, tuple(had)))

    def _hear(self, update: Update) -> None:
        self._write(_heard(update.application, update.document))

    def _write(self, line: Line) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")


def _heard(application: str, document: Document) -> Heard:
    digest = blake2b(document.bytes(), digest_size=8).hexdigest()
    return Heard(
        application, document.name, document.version, document.id.hex(), document.step, digest
    )


async def host(plan: Plan) -> None:
    """Until killed."""
    hosted = [Recorded(plan, one) for one in plan.containers]
    await asyncio.gather(*(one.world.halted for one in hosted))


def main(words: Sequence[str]) -> None:
    configure_logging(json=False)
    plan = msgspec.json.decode(Path(words[0]).read_bytes(), type=Plan)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(host(plan))


if __name__ == "__main__":
    main(sys.argv[1:])
