"""Who watches the registry at the leader, and what each was not told yet.

News is sent once per turn of the loop, encoded once for all watchers of a prefix. A watcher whose
link is full gets no copy of what it missed, only the keys are kept: it is told what they hold
when there is room again. So a slow watcher costs bounded memory and skips values in between, but
never the last one, and never hears an older version after a newer one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from swell.directory.registry import Registry
from swell.directory.registry_messages import ANSWER_BYTES_MAX, RegistryNews, held
from swell.errors import WireError
from swell.overlay.sessions import Session
from swell.wire import codec
from swell.world import Timer, World

WATCHES_MAX = 16_384
WATCHES_PER_SESSION_MAX = 64
ROOM_LOOK_S = 0.05
"""How often room is looked for on the links of watchers that are behind."""


class _Watcher:
    """One session's watch of one prefix. `behind`: keys it was not told of yet; None: it is up to
    date. `began`: it was told everything once."""

    __slots__ = ("began", "behind", "session")

    def __init__(self, session: Session, keys: Iterable[str]) -> None:
        self.session = session
        self.behind: dict[str, None] | None = dict.fromkeys(keys)
        self.began = False


class Watching:
    """All watches of one leadership. `registry` gives the state as it is now."""

    def __init__(
        self, world: World, registry: Callable[[], Registry], counters: Counter[str]
    ) -> None:
        self._world = world
        self._registry = registry
        self._counters = counters
        self._watchers: dict[str, dict[Session, _Watcher]] = {}
        self._count: Counter[Session] = Counter()
        self._dirty: dict[str, dict[str, None]] = {}
        """Prefix → keys that changed in this turn."""
        self._timer: Timer | None = None
        self._room_timer: Timer | None = None

    def __len__(self) -> int:
        return self._count.total()

    def check(self, session: Session, waiting: int) -> None:
        """May this session watch one more prefix, besides all the watches that wait?"""
        count, total = self._count[session], len(self) + waiting
        if count >= WATCHES_PER_SESSION_MAX or total >= WATCHES_MAX:
            raise WireError("too-many-watches", f"{count} on this link, {total} on all")

    def add(self, session: Session, prefix: str) -> None:
        """Tell it everything under the prefix, then what changes."""
        watchers = self._watchers.setdefault(prefix, {})
        self._count[session] += session not in watchers
        watchers[session] = _Watcher(session, self._registry().keys(prefix))
        self._tell_later()

    def forget(self, session: Session) -> None:
        """A session has ended."""
        if not self._count.pop(session, 0):
            return
        for prefix in [p for p, watchers in self._watchers.items() if session in watchers]:
            del self._watchers[prefix][session]
            if not self._watchers[prefix]:
                del self._watchers[prefix]

    def clear(self) -> None:
        for timer in (self._timer, self._room_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._room_timer = None
        self._watchers.clear()
        self._count.clear()
        self._dirty.clear()

    def changed(self, key: str) -> None:
        """The key was set or deleted."""
        for prefix in self._watchers:
            if key.startswith(prefix):
                self._dirty.setdefault(prefix, {})[key] = None
                self._tell_later()

    def _tell_later(self) -> None:
        if self._timer is None:
            self._timer = self._world.call_later(0.0, self._tell)

    def _tell(self) -> None:
        self._timer = None
        dirty, self._dirty = self._dirty, {}
        for prefix, keys in dirty.items():
            self._tell_current(prefix, keys)
        self._tell_behind()

    def _tell_current(self, prefix: str, keys: dict[str, None]) -> None:
        """What changed, the same frames to all who are up to date."""
        frames = [(codec.encode(part), part) for part in self._news(prefix, keys, False)]
        for watcher in self._watchers.get(prefix, {}).values():
            if watcher.behind is not None:
                watcher.behind |= keys
                continue
            for frame, part in frames:
                if watcher.behind is None and watcher.session.link.send(frame):
                    continue
                self._counters["registry-watcher-behind"] += watcher.behind is None
                missed = dict.fromkeys(key for key, _ in part.held)
                watcher.behind = (watcher.behind or {}) | missed

    def _tell_behind(self) -> None:
        """To those who are not, as much as their links take."""
        if self._room_timer is not None:
            self._room_timer.cancel()
            self._room_timer = None
        waiting = False
        for prefix, watchers in self._watchers.items():
            for watcher in watchers.values():
                if watcher.behind is not None:
                    waiting |= not self._catch_up(prefix, watcher)
        if waiting:
            self._room_timer = self._world.call_later(ROOM_LOOK_S, self._tell_behind)

    def _catch_up(self, prefix: str, watcher: _Watcher) -> bool:
        behind = watcher.behind
        assert behind is not None
        for part in self._news(prefix, list(behind), not watcher.began):
            if not watcher.session.send(part):
                return False
            for key, _ in part.held:
                del behind[key]
        watcher.behind = None
        watcher.began = True
        return True

    def _news(self, prefix: str, keys: Iterable[str], complete: bool) -> Iterator[RegistryNews]:
        """What these keys hold, in parts; the last one is marked `complete`, if it shall be."""
        registry = self._registry()
        part: dict[str, None] = {}
        used = 0
        for key in keys:
            entry = registry.get(key)
            size = 0 if entry is None else len(entry.value)
            if part and used + size > ANSWER_BYTES_MAX:
                yield RegistryNews(prefix, tuple((k, held(registry.get(k))) for k in part), False)
                part, used = {}, 0
            part[key] = None
            used += size + len(key)
        if part or complete:
            told = tuple((k, held(registry.get(k))) for k in part)
            yield RegistryNews(prefix, told, complete)
