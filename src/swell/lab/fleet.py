"""Fleets: containers by the hundred, in processes that each host many, ordered from here.

    containers = [Hosted(f"c{n}", "shop", "s1", ("shop",)) for n in range(500)]
    with Fleets(cluster.cluster, cluster.addresses(), containers, processes=2) as fleets:
        ...                                # all are subscribed
        happened = fleets.collect()        # one `Collected` per process

Processes end with the context, or when the one that started them is gone.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType

from swell.lab.fleet_messages import (
    Answer,
    Collect,
    Collected,
    Command,
    Hosted,
    Start,
    Started,
    Stop,
    receive_answer,
    send,
)
from swell.lab.fleet_worker import main
from swell.settings import ConfigSettings
from swell.world import Address

CONTAINERS_MAX = 1000
"""Of one process, by default."""

START_S_MAX = 120.0
ANSWER_S_MAX = 60.0
STOP_S_MAX = 10.0

Main = Callable[[Connection], None]
"""What a fleet process runs."""


class FleetProcess:
    """One process with its containers."""

    def __init__(self, main: Main = main) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe: Connection
        self._pipe, far = context.Pipe()
        self._process: BaseProcess = context.Process(target=main, args=(far,), daemon=True)
        self._process.start()
        far.close()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def order(self, command: Command) -> None:
        send(self._pipe, command)

    def answer(self, within_s: float) -> Answer:
        return receive_answer(self._pipe, within_s)

    def stop(self) -> None:
        """Cleanly, if it lets us."""
        if self._process.is_alive():
            self.order(Stop())
            self._process.join(STOP_S_MAX)
        self.kill()

    def kill(self) -> None:
        """kill -9: all its containers are gone at once."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


class Fleets:
    """Containers dealt out to processes, as a context; the slow ones are in one more. `heard`,
    `traced`: see `Start`."""

    def __init__(
        self,
        cluster: str,
        addresses: Sequence[Address],
        containers: Sequence[Hosted],
        processes: int = 0,
        settings: ConfigSettings | None = None,
        heard: bool = False,
        certificates: Path | None = None,
        traced: bool = False,
        main: Main = main,
        events: str = "",
    ) -> None:
        self._orders = [
            Start(
                cluster,
                tuple(addresses),
                hosted,
                settings or ConfigSettings(),
                heard,
                str(certificates or ""),
                events,
                traced,
            )
            for hosted in dealt(containers, processes)
        ]
        self._main = main
        self._events = events
        self.processes: list[FleetProcess] = []
        self.start_s = 0.0
        """Until all were subscribed, by the slowest process."""

    def __enter__(self) -> Fleets:
        try:
            for order in self._orders:
                process = FleetProcess(self._main)
                self.processes.append(process)
                process.order(order)
            for process in self.processes:
                started = process.answer(START_S_MAX)
                assert isinstance(started, Started)
                self.start_s = max(self.start_s, started.seconds)
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._events and error is None:
            for process in self.processes:  # killed, it would take rows with it
                process.stop()
        else:
            self.kill()

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self.processes)

    def collect(self, contents: bool = False) -> list[Collected]:
        """What happened since the last time, per process."""
        for process in self.processes:
            process.order(Collect(contents))
        found = []
        for process in self.processes:
            collected = process.answer(ANSWER_S_MAX)
            assert isinstance(collected, Collected)
            found.append(collected)
        return found

    def kill(self) -> None:
        for process in self.processes:
            process.kill()


def dealt(containers: Sequence[Hosted], processes: int = 0) -> list[tuple[Hosted, ...]]:
    """Those of each process. 0: as few as can host them; one more if some are slow."""
    slow = tuple(hosted for hosted in containers if hosted.slow_s)
    others = [hosted for hosted in containers if not hosted.slow_s] if slow else containers
    processes = processes or -(-len(others) // CONTAINERS_MAX) or 1
    parts = [tuple(others[number::processes]) for number in range(processes)]
    return [*parts, slow] if slow else parts
