"""Reading what should be durable again, before it is needed.

Every `scrub_interval_s` the journal and then the slots' files, one after the other with pauses, are
read and verified. What is not as it was written makes the node halt, marked unclean: started again
it has a new lineage and gets everything from the other members.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping

from swell.journal import Journal
from swell.store import slotfiles
from swell.store.slotfiles import SlotFiles
from swell.store.snapshots import decode
from swell.world import DiskError, World

PAUSE_S = 0.05
AGAIN_S = 1.0
"""A file that seems damaged may have been replaced while it was read: it is read once more."""


class Scrubbing:
    """One pass after the other, for as long as the node lives."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        files: SlotFiles,
        taken: Callable[[], Mapping[int, int]],
        interval_s: float,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._journal = journal
        self._files = files
        self._taken = taken
        """Slot → the journal's index at which its file was taken."""
        self._interval_s = interval_s
        self._counters = counters
        self._slots: deque[int] = deque()

    def start(self) -> None:
        self._world.call_later(self._interval_s, lambda: self._journal.scrub(self._on_journal))

    def _on_journal(self, problems: list[str]) -> None:
        if problems:
            self._report(problems[0])
            return
        self._slots = deque(self._taken())
        self._next()

    def _next(self) -> None:
        if self._slots:
            self._read(self._slots.popleft(), first=True)
        else:
            self._counters["store-scrubbed"] += 1
            self.start()

    def _read(self, slot: int, first: bool) -> None:
        file, taken = slotfiles.name(slot), self._taken().get(slot)
        size = self._files.present().get(file)
        if taken is None or size is None:
            self._next()
            return

        def on_data(data: bytes | DiskError) -> None:
            whole = not isinstance(data, DiskError) and decode(data) is not None
            if whole or self._taken().get(slot) != taken:
                self._world.call_later(PAUSE_S, self._next)
            elif first:
                self._world.call_later(AGAIN_S, lambda: self._read(slot, first=False))
            else:
                self._report(str(data) if isinstance(data, DiskError) else f"{file} is damaged")

        self._files.read(file, size, on_data)

    def _report(self, problem: str) -> None:
        self._counters["store-rot"] += 1
        self._journal.fail("the store's data", DiskError(problem), "trusted")
