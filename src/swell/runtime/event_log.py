"""The event log of a process: takes events on the loop's thread, writes them on one of its own.

On the loop an event costs two readings of clocks and an append. Full batches, and all there is
every `FLUSH_S`, go to the writer's thread, which makes rows of them (`swell.runtime.event_files`).
A batch costs half a millisecond however short it is, so there are as few as possible.
The queue is bounded: a disk that is slow or full costs events, counted by reason, and nothing else.
A clean end loses none; a kill what is not in a complete file.

    log = EventLog(settings, "n1", world.wall_us())  # inside the running loop
    world.record(log.recorder(Life(run, "n1", world.life, site)))
    await log.stop()                                 # when the world has stopped

One log may serve many worlds, each with a recorder of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import CLOCK_BOOTTIME, clock_gettime_ns, time_ns
from typing import Protocol

import structlog

from swell.errors import ConfigurationError
from swell.events import Event
from swell.events.rows import (
    Collection,
    Life,
    Piles,
    Recorder,
    event_count,
    row_count,
)
from swell.settings import EventSettings

FRESH_MAX = 256
"""Events that wait to be sorted; what they take then stays in the processor's cache."""
BATCH_EVENTS = 16_384
FLUSH_S = 5.0
"""Or the age at which a file is complete, if that is less ..."""
FLUSH_S_MIN = 0.5
"""... but not less than that."""
COMPLAIN_S = 60.0
"""A line in the log about lost events is followed by the next one not before."""
QUEUE_FULL = "queue-full"
BUG = "handler-error"
LOST = "events-lost"
"""Counters of what was dropped are called `events-lost-REASON`."""


class RuntimeRecorder(Recorder):
    """Takes the events of one life when they occur."""

    __slots__ = ("_fresh",)

    def __init__(self, collection: Collection, life: Life) -> None:
        super().__init__(collection, life)
        self._fresh = collection.fresh

    def emit(self, event: Event) -> None:
        fresh = self._fresh
        fresh.append((self, time_ns(), clock_gettime_ns(CLOCK_BOOTTIME), event))
        if len(fresh) >= FRESH_MAX:
            self._collection.sort()


class Files(Protocol):
    """What the writer's thread uses (`swell.runtime.event_files.EventFiles`)."""

    lost: Counter[str]
    start: int

    def write(self, piles: Piles) -> None: ...

    def rotate(self) -> None: ...

    def close(self) -> None: ...


class EventLog:
    """`name` and `start`, the wall clock in microseconds, name its files. If there are files of
    that name which seem to be later, its `start` is above theirs."""

    def __init__(
        self, settings: EventSettings, name: str, start: int, files: Files | None = None
    ) -> None:
        self._collection = Collection(BATCH_EVENTS, self._hand_over)
        self._flush_s = min(FLUSH_S, max(FLUSH_S_MIN, settings.file_age_s))
        self.counters: Counter[str] = Counter()
        """Rows that were lost, by reason; may be replaced by a node's own."""
        self._files = files or open_files(settings, name, start)
        self.start = self._files.start
        self._queue_max = settings.queue_events_max
        self._queue: SimpleQueue[Piles | None] = SimpleQueue()
        self._handed = 0
        """Events that the writer was given; of these it is through with `_through`."""
        self._through = 0
        self._told: Counter[str] = Counter()
        self._complained_s = -COMPLAIN_S
        self._log = structlog.get_logger().bind(events=name)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._flush_s, self._flush)
        self._thread = threading.Thread(target=self._work, name=f"{name}-events", daemon=True)
        self._thread.start()

    def recorder(self, life: Life) -> RuntimeRecorder:
        """For one world."""
        return RuntimeRecorder(self._collection, life)

    # On the loop's thread.

    def _hand_over(self, piles: Piles) -> None:
        """Give these to the writer, unless too much waits there already."""
        if not piles:
            return
        events = event_count(piles)
        if self._handed - self._through + events > self._queue_max:
            self._count(QUEUE_FULL, row_count(piles))
            return
        self._handed += events
        self._queue.put(piles)

    def _flush(self) -> None:
        self._timer = self._loop.call_later(self._flush_s, self._flush)
        self._hand_over(self._collection.taken())
        self._count_lost()

    def _count_lost(self) -> None:
        for reason, rows in self._files.lost.copy().items():
            new = rows - self._told[reason]
            if new:
                self._told[reason] = rows
                self._count(reason, new)

    def _count(self, reason: str, rows: int) -> None:
        self.counters[f"{LOST}-{reason}"] += rows
        now_s = time.monotonic()
        if now_s - self._complained_s >= COMPLAIN_S:
            self._complained_s = now_s
            self._log.warning("events lost", reason=reason, rows=rows)

    async def stop(self) -> None:
        """Write all that was taken, and end."""
        self._end()
        await asyncio.to_thread(self._thread.join)
        self._count_lost()

    def close(self) -> None:
        """The same for who has no running loop any more."""
        self._end()
        self._thread.join()
        self._count_lost()

    def _end(self) -> None:
        self._timer.cancel()
        self._hand_over(self._collection.taken())
        self._queue.put(None)

    # On the writer's thread.

    def _work(self) -> None:
        files, queue = self._files, self._queue
        while True:
            try:
                piles = queue.get(timeout=self._flush_s)
            except Empty:
                self._guard(files.rotate)
                continue
            if piles is None:
                self._guard(files.close)
                return
            try:
                files.write(piles)
            except Exception:
                files.lost[BUG] += row_count(piles)
                self._log.exception("events could not be written")
            self._through += event_count(piles)

    def _guard(self, action: Callable[[], None]) -> None:
        """A mistake of our own does not end the thread."""
        try:
            action()
        except Exception:
            self._log.exception("events could not be written")


def open_files(settings: EventSettings, name: str, start: int) -> Files:
    """The files in the settings' directory; `ConfigurationError` if there cannot be any."""
    assert settings.directory, "the settings name no directory for events"
    try:
        from swell.runtime.event_files import EventFiles
    except ImportError:
        raise ConfigurationError(
            "writing events needs pyarrow: install it with `pip install 'swell[pipeline]'`"
        ) from None
    return EventFiles(settings, name, start)
