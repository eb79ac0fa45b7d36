"""An overlay of real nodes in worker processes, and one measurement on it."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from swell.errors import SwellError
from swell.lab.broadcast_worker import (
    Begin,
    Look,
    Place,
    Request,
    Stop,
    Tally,
    Tell,
    Trial,
    main,
    open_counts,
)
from swell.settings import Settings

ANSWER_S_MAX = 20.0
SETTLE_S_MAX = 60.0
DRAIN_S_MAX = 1.0
"""Nothing has arrived for that long: what is missing is lost."""
LOOK_INTERVAL_S = 0.1
SAMPLE_S = 0.05
LEAD_S = 0.02
"""From the request to the first broadcast, so that all processes begin together."""


class ClusterError(SwellError):
    """The overlay could not be brought up, or one of its processes went away."""


class Load(NamedTuple):
    """What is offered to the overlay."""

    sources: tuple[int, ...]
    payload_bytes: int
    window: int
    rate_per_s: float = math.inf
    """Of one source."""


class Measurement(NamedTuple):
    """What one load did to the overlay."""

    load: Load
    times_s: NDArray[np.float64]
    """Of each sample, since the schedule began; warm-up excluded."""
    received: NDArray[np.float64]
    """Sample × sink: messages received so far."""
    sent: int
    lost: int
    """Sum over sinks of broadcasts that never arrived."""
    mixed_up: int
    """(sink, source) pairs where the number of messages is right but not their identity."""
    losses: Counter[str]
    duplicates: int
    cpu_s_per_delivery: float

    @property
    def clean(self) -> bool:
        """Everything arrived everywhere, exactly once."""
        return not self.lost and not self.mixed_up and not self.losses

    @property
    def sink_rates_per_s(self) -> NDArray[np.float64]:
        seconds = float(self.times_s[-1] - self.times_s[0])
        rates: NDArray[np.float64] = (self.received[-1] - self.received[0]) / seconds
        return rates

    @property
    def backlog(self) -> NDArray[np.float64]:
        """Per sample: broadcasts offered that the slowest sink has not received yet."""
        offered = self.times_s * self.load.rate_per_s * len(self.load.sources)
        waiting: NDArray[np.float64] = offered - self.received.min(axis=1)
        return waiting


class Cluster:
    """An overlay of `nodes` nodes, evenly divided among `workers` processes, as a context."""

    def __init__(self, nodes: int, connections: int, workers: int) -> None:
        self.nodes = nodes
        self.zones = 0
        self._settings = Settings.local(connections)
        self._directory = TemporaryDirectory(prefix="swell-broadcast-")
        self._counts = open_counts(Path(self._directory.name) / "counts", nodes, create=True)
        self._ids: tuple[int, ...] = ()
        self._numbers = [tuple(range(k, nodes, workers)) for k in range(workers)]
        context = multiprocessing.get_context("spawn")
        pairs = [context.Pipe() for _ in range(workers)]
        self._pipes = [near for near, _ in pairs]
        self._far = [far for _, far in pairs]
        self._processes = [
            context.Process(target=main, args=(far, Path(self._directory.name), nodes), daemon=True)
            for far in self._far
        ]

    def __enter__(self) -> Cluster:
        try:
            for process, far in zip(self._processes, self._far, strict=True):
                process.start()
                far.close()  # the worker's copy is then the only one: its end is seen here
            for pipe in self._pipes:
                self._receive(pipe)
            voter = None
            for pipe, numbers in zip(self._pipes, self._numbers, strict=True):
                pipe.send(Begin(numbers, self._settings, voter))
                voter = self._receive(pipe)
            self._await_settled()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            if process.pid is not None:
                process.kill()
                process.join()
        for pipe in (*self._pipes, *self._far):
            pipe.close()
        self._directory.cleanup()

    def _ask(self, request: Request) -> list[Any]:
        for pipe in self._pipes:
            pipe.send(request)
        return [self._receive(pipe) for pipe in self._pipes]

    def _receive(self, pipe: Connection) -> Any:
        try:
            if pipe.poll(ANSWER_S_MAX):
                return pipe.recv()
        except (EOFError, OSError):
            raise ClusterError("a worker process ended early; its log is on stderr") from None
        raise ClusterError(f"a worker process has not answered for {ANSWER_S_MAX:.0f} s")

    def _await_settled(self) -> None:
        deadline_s = time.monotonic() + SETTLE_S_MAX
        while True:
            places = [place for places in self._ask(Look()) for place in places]
            problem = unsettled(places)
            if not problem:
                break
            if time.monotonic() > deadline_s:
                raise ClusterError(f"the overlay did not settle: {problem}")
            time.sleep(LOOK_INTERVAL_S)
        places.sort(key=lambda place: place.number)
        self._ids = tuple(place.id for place in places)
        self.zones = len({place.zone for place in places})

    # Measuring.

    def measure(self, load: Load, warm_up_s: float, seconds: float) -> Measurement:
        """Put the load on, watch the sinks for some time, and wait until all has arrived."""
        self._counts[:] = 0
        begins_s = time.monotonic() + LEAD_S
        self._ask(Trial(self._ids, *load, begins_s))
        times, samples = [], []
        for step in range(round(seconds / SAMPLE_S) + 1):
            due_s = begins_s + warm_up_s + step * SAMPLE_S
            time.sleep(max(0.0, due_s - time.monotonic()))
            times.append(time.monotonic() - begins_s)
            samples.append(self._counts.sum(axis=1).astype(np.float64))
        sent: dict[int, int] = {}
        for part in self._ask(Stop()):
            sent.update(part)
        expected = np.zeros(self.nodes, np.uint64)
        for source, count in sent.items():
            expected[source] = count
        self._await_drained(expected)
        return self._judge(load, np.array(times), np.array(samples), expected)

    def _await_drained(self, expected: NDArray[np.uint64]) -> None:
        """Until everything has arrived, or nothing has for a while."""
        last, changed_s = -1, time.monotonic()
        while not (self._counts == expected).all():
            now_s, total = time.monotonic(), int(self._counts.sum())
            if total != last:
                last, changed_s = total, now_s
            elif now_s - changed_s > DRAIN_S_MAX:
                return
            time.sleep(LEAD_S / 4)

    def _judge(
        self,
        load: Load,
        times_s: NDArray[np.float64],
        received: NDArray[np.float64],
        expected: NDArray[np.uint64],
    ) -> Measurement:
        tallies: list[Tally] = self._ask(Tell())
        sums = {source: total for tally in tallies for source, total in tally.sent_sums.items()}
        mixed_up = sum(
            int(self._counts[sink, source] == expected[source] and row[source] != sums[source])
            for tally in tallies
            for sink, row in tally.received_sums.items()
            for source in load.sources
        )
        return Measurement(
            load,
            times_s,
            received,
            int(expected.sum()),
            int(expected.sum()) * self.nodes - int(self._counts.sum()),
            mixed_up,
            sum((tally.losses for tally in tallies), Counter()),
            sum(tally.duplicates for tally in tallies),
            sum(tally.cpu_s for tally in tallies) / max(1, int(self._counts.sum())),
        )


def unsettled(places: Sequence[Place]) -> str:
    """What keeps the overlay from being complete and even, or nothing."""
    zones: dict[int, list[Place]] = {}
    for place in sorted(places, key=lambda place: place.id):
        zones.setdefault(place.zone, []).append(place)
    if 0 in zones:
        return f"{len(zones[0])} nodes have not joined"
    for zone, members in zones.items():
        others = tuple(sorted(other for other in zones if other != zone))
        ids = [place.id for place in members]
        loads = [len(place.links) for place in members]
        held: dict[int, list[int]] = {}
        for place in members:
            for other, _ in place.links:
                held.setdefault(other, []).append(place.id)
        holders = tuple(sorted((other, tuple(by)) for other, by in held.items()))
        if [other for other, _ in holders] != list(others) or sum(loads) != len(others):
            return f"zone {zone} has links to {sorted(held)}, not one to each of {others}"
        if max(loads) - min(loads) > 1:
            return f"zone {zone} has links per node {sorted(loads)}"
        for place in members:
            if sorted((*place.clique, place.id)) != ids:
                return f"zone {zone}: node {place.id} is linked to {place.clique} of {ids}"
            if place.zones != others or place.holders != holders or place.draining:
                return f"zone {zone}: node {place.id} does not know the zone's links yet"
    return ""
