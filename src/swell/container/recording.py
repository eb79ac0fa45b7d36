"""Writes down what a feed applies: per burst and configuration one range of versions (PIP-1).

What a burst makes of somebody who is where it begins is the same for everybody: these ranges are
made once per process and shared. Whoever had part of it already, or came to another version, gets
ranges of his own: what is written is what has changed here, as it is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from swell.config.bursts import Burst
from swell.container.changes import DELTA, Ready, ReadyBurst, Spanned, has
from swell.container.documents import Document
from swell.events.records import Applied, Span
from swell.world import World

if TYPE_CHECKING:
    from swell.container.feed import Feed

SENDERS_MAX = 256
"""Held bursts whose senders are remembered."""


class FeedRecording:
    """Of one feed. `peer`: who brings what is taken now. `siblings`: all feeds of its application
    here: what several of them get is applied once, by the first. Whoever changes them calls `look`.

    A container is but one of thousands in its process, so the usual case looks at little: most of
    what it costs is memory that nobody has touched since the last burst."""

    __slots__ = ("_before", "_recorder", "_senders", "_siblings", "peer", "plain")

    def __init__(self, world: World, siblings: Sequence[Feed]) -> None:
        self.peer = ""
        self._recorder = world.recorder
        self._siblings = siblings
        self._before: Sequence[tuple[Spanned, Document | None]] = ()
        """What a burst is about to change, and what is there."""
        self._senders: dict[bytes, str] = {}
        self.look()

    def look(self) -> None:
        """See whether it is plain: there is nobody beside it, and nothing that somebody else has
        brought."""
        self.plain = len(self._siblings) == 1 and not self._senders

    def held(self, burst: Burst) -> None:
        """It is applied later, when others may bring something."""
        self._senders.setdefault(burst.id, self.peer)
        if len(self._senders) > SENDERS_MAX:
            del self._senders[next(iter(self._senders))]
        self.look()

    def begin(self, feed: Feed, burst: Burst, made_ready: ReadyBurst) -> None:
        """A burst is about to be applied. Not to be called if all it changes is one configuration
        and the feed is plain, as nearly always: `end` is then told all there is to know."""
        spanned = made_ready.spans
        if spanned is None:
            spanned = _spanned(burst, made_ready)
        documents = feed.documents
        self._before = [(one, documents.get(one.name)) for one in spanned]

    def end(
        self, feed: Feed, burst: Burst, at: int, one: Spanned | None, old: Document | None
    ) -> None:
        """As much of it as fits has been applied, to somebody who was at step `at`. `one`: what it
        does to the only configuration that it changes, which was `old`."""
        if one is not None and not self._before:
            if old is not None and old.id == one.base and feed.documents[one.name].id == one.id:
                recorder, peer = self._recorder, self.peer
                for event in one.written.get(peer) or one.applied(peer):
                    recorder.emit(event)
                return
            self._before = ((one, old),)
        self._end(feed, burst, at)

    def _end(self, feed: Feed, burst: Burst, at: int) -> None:
        """Whatever it has done, to however many configurations."""
        documents, emit = feed.documents, self._recorder.emit
        peer = self.peer
        if self._senders:
            peer = self._senders.pop(burst.id, peer)
            self.look()
        joins, alone = at <= burst.after, len(self._siblings) == 1
        before, self._before = self._before, ()
        for one, old in before:
            new = documents.get(one.name)
            if new is None or (old is not None and new.id == old.id):
                continue
            if joins and new.id == one.id and (old is None or one.is_new_to(old)):
                if alone:
                    for event in one.applied(peer):
                        emit(event)
                    continue
                found: Sequence[Span] = one.spans
            else:
                found = own_spans(burst, one, old, new, at)
            for span in found if alone else self._first_here(feed, found):
                emit(Applied(span, peer))

    def _first_here(self, feed: Feed, found: Sequence[Span]) -> list[Span]:
        """What no other feed has had before."""
        kept = []
        for span in found:
            others = [one.documents.get(span.name) for one in self._siblings if one is not feed]
            known = max((one for one in others if one is not None), key=_version, default=None)
            if known is None or known.version < span.first:
                kept.append(span)
            elif known.version < span.version:
                kept.append(replace(span, first=known.version + 1, base=known.id))
        return kept


def look_again(siblings: Iterable[Feed]) -> None:
    """There is one more of them, or one less."""
    for feed in siblings:
        if feed.recording is not None:
            feed.recording.look()


def _spanned(burst: Burst, made_ready: ReadyBurst) -> tuple[Spanned, ...]:
    """What a burst does to each configuration; made once per process, and kept with it."""
    changes: dict[str, list[tuple[int, Ready]]] = {}
    for number, several in made_ready.steps:
        for change in several:
            changes.setdefault(change.name, []).append((number, change))
    spanned = tuple(_spanned_one(burst, name, changed) for name, changed in changes.items())
    made_ready.spans = spanned
    made_ready.only = spanned[0] if len(spanned) == 1 else None
    return spanned


def _spanned_one(burst: Burst, name: str, changes: list[tuple[int, Ready]]) -> Spanned:
    spans = _ranges(burst, changes)
    base = spans[0].base if len(spans) == 1 else b""
    return Spanned(name, changes, base, changes[-1][1].id, spans)


def _ranges(burst: Burst, changes: Iterable[tuple[int, Ready]]) -> tuple[Span, ...]:
    """Changes of one configuration; a range ends where a version is left out."""
    found: list[Span] = []
    first: Ready | None = None
    last: tuple[int, Ready] | None = None
    for number, change in changes:
        if first is None or last is None or change.version != last[1].version + 1:
            if first is not None and last is not None:
                found.append(_span(burst, first, *last))
            first = change
        last = number, change
    if first is not None and last is not None:
        found.append(_span(burst, first, *last))
    return tuple(found)


def _span(burst: Burst, first: Ready, number: int, last: Ready) -> Span:
    return Span(
        burst.application, last.name, first.version, last.version, number, last.id, first.base,
        burst.epoch, last.change.length, burst.sealed_us,
    )  # fmt: skip


def own_spans(
    burst: Burst, one: Spanned, old: Document | None, new: Document, at: int
) -> list[Span]:
    """What has really happened to a configuration that was not at the begin of the burst, or whose
    version is not the burst's."""
    applied = [
        (number, change)
        for number, change in one.changes
        if number > at
        and change.version <= new.version
        and (old is None or not has(old, number, change))
    ]
    found = list(_ranges(burst, applied))
    if found and found[-1].id != new.id:  # made from another base than the burst says
        last = found.pop()
        base = old.id if old is not None and applied[0][1].kind == DELTA else last.base
        found.append(replace(last, id=new.id, base=base, bytes=len(new)))
    return found


def _version(document: Document) -> int:
    return document.version
