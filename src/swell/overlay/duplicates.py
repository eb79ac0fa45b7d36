"""Suppression of duplicates by (source, epoch, sequence), in bounded memory.

Per source a window below the highest sequence seen is kept, as one integer whose bits mark what is
missing: while nothing is, it is zero and costs nothing. A sequence below the window counts as
seen: a message that late is a duplicate or as good as one. A higher epoch starts afresh; a lower
one is stale. Beyond a bound, the source that was met first is forgotten.
"""

from __future__ import annotations

from collections import Counter


class _Window:
    __slots__ = ("epoch", "highest", "missing")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.highest = 0
        self.missing = 0
        """Bit k: highest − k was not seen."""


class Ledger:
    """What one process has sent, handled and subscribed to; it outlives a move to another zone."""

    def __init__(self, window: int) -> None:
        self.sequence = 0
        self.duplicates = Duplicates(window)
        self.topics: Counter[bytes] = Counter()
        """Topic → how many clients of this process want it."""

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence


class Duplicates:
    """Remembers which multicasts this node has handled."""

    def __init__(self, window: int, sources_max: int = 1 << 16) -> None:
        self._mask = (1 << window) - 1
        self._width = window
        self._sources_max = sources_max
        self._windows: dict[int, _Window] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def is_new(self, source: int, epoch: int, sequence: int) -> bool:
        """True the first time; also remembers it."""
        window = self._windows.get(source)
        if window is None or epoch > window.epoch:
            if window is None and len(self._windows) >= self._sources_max:
                del self._windows[next(iter(self._windows))]
            window = self._windows[source] = _Window(epoch)
        elif epoch < window.epoch:
            return False
        ahead = sequence - window.highest
        if ahead > 0:
            if ahead >= self._width:
                window.missing = self._mask - 1
            elif ahead > 1 or window.missing:
                skipped = (1 << ahead) - 2
                window.missing = (window.missing << ahead | skipped) & self._mask
            window.highest = sequence
            return True
        if -ahead >= self._width:
            return False
        bit = 1 << -ahead
        if not window.missing & bit:
            return False
        window.missing ^= bit
        return True
