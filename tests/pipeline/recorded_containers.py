"""Containers of the client library in a process of their own, which write events.

`python -m tests.pipeline.recorded_containers FILE` hosts those of a `Plan` until it is told to stop
or killed.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

import swell
from swell.runtime.event_log import EventLog
from swell.settings import EventSettings
from tests.pipeline.planted_bugs import BUGS, planted
from tests.processes.commands import ENVIRONMENT, SOURCE

SITE = "a"


class Plan(msgspec.Struct, frozen=True):
    """`containers`: their names, each with its application. One whose application is called like a
    planted bug has it."""

    cluster: str
    nodes: list[str]
    containers: dict[str, str]
    events: EventSettings
    keeping: list[str] = []
    """Those with a snapshot, beside the file of the plan."""


class ContainerProcess:
    """One process with its containers, from outside."""

    def __init__(self, plan: Plan, file: Path) -> None:
        self._file = file
        self._process: subprocess.Popen[bytes] | None = None
        file.write_bytes(msgspec.json.encode(plan))

    def start(self) -> None:
        assert self._process is None
        with open(self._file.with_suffix(".log"), "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.recorded_containers", str(self._file)],
                stdout=log,
                stderr=log,
                env={**ENVIRONMENT, "PYTHONPATH": f"{SOURCE}:{SOURCE.parent}"},
            )

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """A clean end."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


async def host(plan: Plan, name: str, snapshots: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    log = EventLog(plan.events, name, time.time_ns() // 1000)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(log.stop)
        for container, application in plan.containers.items():
            await stack.enter_async_context(
                swell.connect(
                    plan.nodes,
                    cluster=plan.cluster,
                    app=application,
                    container=container,
                    site=SITE,
                    snapshot=snapshots / container if container in plan.keeping else None,
                    relay=application not in BUGS,
                    events=log,
                )
            )
        await stop.wait()


def main(file: Path) -> None:
    plan = msgspec.json.decode(file.read_bytes(), type=Plan)
    with planted({bug: bug for bug in BUGS}):
        asyncio.run(host(plan, file.stem, file.parent))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
