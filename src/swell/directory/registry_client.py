"""A node's side of the registry: `RegistryAccess` over its link to the directory's leader.

Changes of one turn of the loop travel together. A change is sent once: if the link ends before
its answer, its outcome is unknown, and the caller decides what to do. Reads are asked again.

Of every watched prefix there is a copy here. A new link means a new leader, or a gap: everything
under the prefix comes again and is compared with the copy, so that watchers hear of differences
only, deleted keys included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from swell.directory.client import DirectoryClient
from swell.directory.registry import (
    CHANGES_MAX,
    Change,
    Entry,
    Outcome,
    Wish,
    check,
    deal,
    groups,
    split,
)
from swell.directory.registry_messages import (
    Held,
    RegistryNews,
    RegistryReply,
    RegistryRequest,
    RegistryWatch,
)
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.world import World

ANSWER_S = 2.0
"""How long an answer is waited for."""
SEND_AGAIN_S = 0.1

OnChange = Callable[[dict[str, Entry | None]], None]


class _Copy:
    """What is known under one prefix; `coming` gathers it anew after a new link."""

    def __init__(self) -> None:
        self.known: dict[str, Entry] = {}
        self.coming: dict[str, Entry | None] | None = None
        self.complete = False
        self.watchers: list[OnChange] = []

    def take(self, key: str, entry: Entry | None) -> bool:
        """Is this new?"""
        known = self.known.get(key)
        if entry is None:
            self.known.pop(key, None)
            return known is not None
        if known is not None and entry.version <= known.version:
            return False
        self.known[key] = entry
        return True


class RegistryClient:
    """Implements `RegistryAccess`."""

    def __init__(
        self,
        world: World,
        sessions: Sessions,
        directory: DirectoryClient,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._directory = directory
        self._counters = counters
        self._session: Session | None = None
        self._wishes: list[Wish] = []
        self._copies: dict[str, _Copy] = {}
        directory.answered_by(RegistryReply)
        sessions.handle(RegistryNews, self._on_news, (LinkKind.DIRECTORY,))

    # -- reading -------------------------------------------------------------------------------

    def read(self, keys: Sequence[str], done: Callable[[dict[str, Entry] | None], None]) -> None:
        self._read(list(dict.fromkeys(keys)), {}, self._world.now() + ANSWER_S, done)

    def _read(
        self,
        keys: list[str],
        found: dict[str, Entry],
        deadline: float,
        done: Callable[[dict[str, Entry] | None], None],
    ) -> None:
        """Ask for some of the keys, then for the rest, which had no room in the answer."""
        timeout_s = deadline - self._world.now()
        if timeout_s <= 0:
            done(None)
            return
        asked = tuple(keys[:CHANGES_MAX])

        def answered(reply: RegistryReply | None) -> None:
            if reply is None or len(reply.held) != len(asked):
                done(None)
                return
            left = []
            for key, held in zip(asked, reply.held, strict=True):
                if held.value is not None:
                    found[key] = Entry(held.version, held.value)
                elif held.version:
                    left.append(key)
            rest = left + keys[CHANGES_MAX:]
            if rest:
                self._read(rest, found, deadline, done)
            else:
                done(found)

        request = RegistryRequest(self._directory.number(), (), asked)
        self._directory.ask(request, answered, None, timeout_s=timeout_s)

    # -- changing ------------------------------------------------------------------------------

    def change(
        self, changes: Sequence[Change], done: Callable[[list[Outcome] | None], None]
    ) -> None:
        wish = Wish(check(changes), done)
        if not self._wishes:
            self._world.call_later(0.0, self._pump)
        self._wishes += split(wish)

    def _pump(self) -> None:
        """Send what was wished for in this turn, in as few requests as possible."""
        wishes, self._wishes = self._wishes, []
        for group in groups(wishes):
            self._send(group)

    def _send(self, group: list[Wish]) -> None:
        changes = tuple(change for wish in group for change in wish.changes)
        deadline = self._world.now() + ANSWER_S

        def answered(reply: RegistryReply | None) -> None:
            if reply is None or not len(reply.accepted) == len(reply.held) == len(changes):
                deal(group, None)
                return
            untold = [
                change.key
                for change, accepted, held in zip(changes, reply.accepted, reply.held, strict=True)
                if not accepted and held.version and held.value is None
            ]
            if untold:
                self._read(untold, {}, deadline, lambda found: resolved(reply, found))
            else:
                resolved(reply, {})

        def resolved(reply: RegistryReply, found: dict[str, Entry] | None) -> None:
            if found is None:
                deal(group, None)
            else:
                told = zip(changes, reply.accepted, reply.held, strict=True)
                deal(group, [_outcome(*item, found) for item in told])

        request = RegistryRequest(self._directory.number(), changes)
        self._directory.ask(request, answered, None, again=False, timeout_s=ANSWER_S)

    # -- watching ------------------------------------------------------------------------------

    def watch(self, prefix: str, on_change: OnChange) -> None:
        if not self._copies:
            self._directory.stay(self._on_up, self._on_down)
        copy = self._copies.get(prefix)
        if copy is None:
            copy = self._copies[prefix] = _Copy()
            self._ask_for(prefix)
        elif copy.complete:
            self._world.call_later(0.0, lambda: self._add(copy, on_change))
            return
        copy.watchers.append(on_change)

    def _add(self, copy: _Copy, on_change: OnChange) -> None:
        """Somebody else watches a prefix that is known already."""
        copy.watchers.append(on_change)
        on_change(dict(copy.known))

    def _on_up(self, session: Session) -> None:
        self._session = session
        for prefix in self._copies:
            self._ask_for(prefix)

    def _on_down(self) -> None:
        self._session = None

    def _ask_for(self, prefix: str) -> None:
        """Begin to watch on the link of now, if there is one."""
        session = self._session
        self._copies[prefix].coming = {}
        if session is not None and session.open and not session.send(RegistryWatch(prefix)):
            self._world.call_later(SEND_AGAIN_S, lambda: self._ask_again(session, prefix))

    def _ask_again(self, session: Session, prefix: str) -> None:
        if session is self._session:
            self._ask_for(prefix)

    def _on_news(self, session: Session, news: RegistryNews) -> None:
        copy = self._copies.get(news.prefix)
        if session is not self._session or copy is None:
            return
        entries = {key: _entry(held) for key, held in news.held}
        if copy.coming is not None:
            copy.coming |= entries
            if not news.complete:
                return
            entries, copy.coming = copy.coming, None
            entries |= dict.fromkeys(key for key in copy.known if key not in entries)
        first, copy.complete = not copy.complete, True
        fresh = {key: entry for key, entry in entries.items() if copy.take(key, entry)}
        if fresh or first:
            for on_change in list(copy.watchers):
                on_change(dict(fresh))


def _entry(held: Held) -> Entry | None:
    return Entry(held.version, held.value) if held.value is not None else None


def _outcome(change: Change, accepted: bool, held: Held, found: dict[str, Entry]) -> Outcome:
    """What the leader told of one change; accepted values it did not send back."""
    if accepted:
        value = change.value
        return Outcome(True, None if value is None else Entry(held.version, value))
    return Outcome(False, found.get(change.key) if held.value is None else _entry(held))
