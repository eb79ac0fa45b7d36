"""One subscription of a container: the configurations of an application that it is interested in.

A feed takes bursts in any order, as often as they come, and applies every step once and in order
(RIP-15, RIP-16; Ripple 3.5). What comes early is held, bounded. A delta is applied only to the
version it was made from. A long value that a burst only names is fetched before the burst is
applied; those behind it wait. If one cannot be had, the others are kept for the burst that comes
in its place. A burst counts as a whole: inside it a whole value may stand for changes of earlier
steps.

Invariants: `at` and the versions of documents only grow, unless a document turns out to be another
than the cluster's; then everything is asked for again and its version here stays until a later
one is there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence

from swell.config.bursts import Burst
from swell.config.content import Content
from swell.config.gone import Range
from swell.config.messages import interest_digest
from swell.config.splices import BadDeltaError
from swell.config.versions import version_id
from swell.container.changes import DELETE, DELTA, FETCH, Ready, has, ready
from swell.container.documents import Document, Refusal, Update, unborn
from swell.container.recording import FeedRecording

DELETED_MAX = 1024
"""Deleted documents that are remembered: as many as the cluster does of the whole application."""

Fetcher = Callable[["Feed", Ready, bytes | Content | None], None]
"""Fetches a value, given the one that is here; its outcome is told by `Feed.on_fetched`."""


class Feed:
    """`hear` gets every applied change, `keep` every applied burst with its bytes, in order."""

    __slots__ = (
        "_bugs", "_counters", "_deleted", "_fetch", "_fetched", "_fetching", "_hold_max",
        "_shadows", "application", "at", "complete_at", "documents", "hear", "held", "interest",
        "keep", "key", "known_step", "recording", "refusals", "sealed_us",
    )  # fmt: skip

    def __init__(
        self,
        application: str,
        interest: tuple[str, ...],
        hold_max: int,
        fetch: Fetcher,
        counters: Counter[str],
        bugs: frozenset[str] = frozenset(),
    ) -> None:
        self.application = application
        self.interest = interest
        self.key = application, interest_digest(interest)
        self.at = 0
        """The last step that is here."""
        self.complete_at = 0
        """The step from which on nothing before it is missing here; later than `at` between parts
        of what was missing."""
        self.known_step = 0
        """The last step that is known to exist."""
        self.sealed_us: int | None = None
        """When the burst that is applied now, or was last, was sealed, by the primary's clock."""
        self.documents: dict[str, Document] = {}
        """By name; the last deleted ones stay, as what their successors are made from."""
        self.refusals: dict[str, Refusal] = {}
        """What the application does not use of the documents, by name, where it has used another
        version before."""
        self.held: dict[bytes, tuple[Burst, bytes]] = {}
        """Bursts that came early, by their ids, with their bytes, the oldest first."""
        self.hear: Callable[[Update], None] | None = None
        self.keep: Callable[[Feed, Burst, bytes], None] | None = None
        self.recording: FeedRecording | None = None
        """Writes down what is applied."""
        self._deleted: dict[str, None] = {}
        """Names in the order of their deletions; some may be there again."""
        self._hold_max = hold_max
        self._fetch = fetch
        self._fetching: dict[bytes, None] = {}
        self._fetched: dict[bytes, Content] = {}
        """Values of versions, by the versions' ids."""
        self._shadows: dict[str, Document] = {}
        """Documents that are made anew, behind those that are not the cluster's."""
        self._counters = counters
        self._bugs = bugs

    @property
    def fetching(self) -> bool:
        return bool(self._fetching)

    @property
    def broken(self) -> bool:
        """A document is made anew from the first step on."""
        return bool(self._shadows)

    @property
    def behind(self) -> bool:
        """Something is missing here that nobody is known to be bringing."""
        return bool(self.held or self.known_step > self.at) and not self._fetching

    def take(self, burst: Burst, data: bytes) -> bool:
        """True if all its steps are here now. `WireError`: it contradicts itself."""
        if burst.upto <= self.at:
            return True
        if burst.after > self.at and "no-base-check" not in self._bugs:
            return self._take_early(burst, data)
        if not self._apply(burst, data):
            self._hold(burst, data)
            return False
        if self.held:
            self._drain()
        return True

    def _take_early(self, burst: Burst, data: bytes) -> bool:
        if "no-hold" in self._bugs:
            self.at = burst.upto
            return True
        self._counters["held"] += 1
        self._hold(burst, data)
        return False

    def _hold(self, burst: Burst, data: bytes) -> None:
        held = self.held
        held[burst.id] = burst, data
        if self.recording is not None:
            self.recording.held(burst)
        if len(held) > self._hold_max:
            del held[next(iter(held))]
            self._counters["hold-full"] += 1

    def _drain(self) -> None:
        """Apply what was held, as far as it joins on."""
        progress = True
        while progress and self.held:
            progress = False
            for burst, data in list(self.held.values()):
                early = burst.after > self.at
                if burst.upto > self.at and (early or not self._apply(burst, data)):
                    continue
                self.held.pop(burst.id, None)
                progress = True

    # Applying.

    def _apply(self, burst: Burst, data: bytes) -> bool:
        """Apply the steps behind `at`; False: a value has to be fetched, or one is broken. `at`
        is left alone until all are applied."""
        documents, hear, application = self.documents, self.hear, self.application
        at, recording = self.at, self.recording
        made_ready = ready(burst)
        if made_ready.fetches and not self._have_fetched(made_ready.fetches):
            return False
        self.sealed_us = burst.sealed_us
        one = made_ready.only
        old = documents.get(one.name) if one is not None else None
        if recording is not None and (one is None or not recording.plain):
            recording.begin(self, burst, made_ready)
        if made_ready.ranges:
            self._apply_ranges(made_ready.ranges)
        for number, changes in made_ready.steps:
            if number <= at:
                continue
            for change in changes:
                name = change.name
                document = documents.get(name)
                if document is not None and change.single and document.id == change.base:
                    content, end = document.content, change.end
                    if type(content) is bytes and end <= len(content) <= change.base_bytes_max:
                        content = b"".join((content[: change.offset], change.data, content[end:]))
                        made = Document(name, change.version, change.id, number, content)
                        documents[name] = made
                        if hear is not None:
                            hear(Update(application, name, made.version, made.id, number, made))
                        continue
                if not self._apply_with_care(change, number):
                    if recording is not None:
                        recording.end(self, burst, at, one, old)
                    self._on_broken(name)
                    return False
        self.at = burst.upto
        self.complete_at = max(self.complete_at, burst.complete_at)
        if made_ready.fetches:
            self._keep_fetched(())
        if self.keep is not None:
            self.keep(self, burst, data)
        if recording is not None:
            recording.end(self, burst, at, one, old)
        return True

    def _apply_with_care(self, change: Ready, number: int) -> bool:
        """Apply any change to whatever is here; False if it was made from something else."""
        name = change.name
        shown = self.documents.get(name)
        document = self._shadows.get(name) or shown or unborn(name)
        if has(document, number, change):
            return True
        content = change.content
        id = change.id
        if change.kind == DELTA:
            if document.id != change.base:
                if "no-base-check" not in self._bugs:
                    return False
                id = version_id(document.id, DELTA, change.change.data)
            try:
                content = change.spliced(document.content)
            except BadDeltaError:
                if "no-base-check" not in self._bugs:
                    return False
                content = document.content
        elif change.kind == FETCH:
            if change.id not in self._fetched:
                return False
            content = self._fetched.pop(change.id)
        made = Document(name, change.version, id, number, content, change.kind == DELETE)
        if name in self._shadows:
            if shown is not None and made.version <= shown.version:
                self._shadows[name] = made
                return True
            del self._shadows[name]
        self.documents[name] = made
        if made.deleted:
            self._note_deleted(name)
        if self.hear is not None:
            self.hear(Update(self.application, name, made.version, id, number, made))
        return True

    def _apply_ranges(self, ranges: Sequence[Range]) -> None:
        """Delete what was deleted so long ago that the cluster does not know its name any more.
        The cluster has nothing in these ranges that is so old: the order does not matter."""
        names = sorted(name for name, one in self.documents.items() if not one.deleted)
        for lower, upper, number in ranges:
            end = bisect_left(names, upper) if upper else len(names)
            for name in names[bisect_right(names, lower) : end]:
                old = self.documents[name]
                if old.step > number or old.deleted:
                    continue
                self._shadows.pop(name, None)
                self.refusals.pop(name, None)
                made = Document(name, old.version, old.id, number, b"", True)
                self.documents[name] = made
                self._note_deleted(name)
                if self.hear is not None:
                    self.hear(Update(self.application, name, old.version, old.id, number, made))

    def _note_deleted(self, name: str) -> None:
        deleted = self._deleted
        deleted.pop(name, None)
        deleted[name] = None
        while len(deleted) > DELETED_MAX:
            oldest = next(iter(deleted))
            del deleted[oldest]
            if self.documents[oldest].deleted:
                del self.documents[oldest]

    def _on_broken(self, name: str) -> None:
        """The version here is not the one that the cluster has under its number: begin with this
        document anew, from the first step on."""
        self._counters["broken-base"] += 1
        self._shadows[name] = unborn(name)
        self.known_step = max(self.known_step, self.at)
        self.at = 0
        self.held.clear()

    # Long values.

    def _have_fetched(self, fetches: Sequence[tuple[int, Ready]]) -> bool:
        """Whether all these values are there; what is not is asked for."""
        complete = True
        for number, change in fetches:
            shown = self.documents.get(change.name)
            document = self._shadows.get(change.name, shown)
            if number <= self.at or (document is not None and has(document, number, change)):
                continue
            if change.id in self._fetched:
                continue
            if complete:
                complete = False
                self._keep_fetched(fetches)
            if change.id not in self._fetching:
                self._fetching[change.id] = None
                self._fetch(self, change, shown.content if shown is not None else None)
        return complete

    def _keep_fetched(self, fetches: Sequence[tuple[int, Ready]]) -> None:
        """Of the values that were fetched, only these and those that held bursts name."""
        if self._fetched:
            named = {change.id for _, change in fetches}
            for burst, _ in self.held.values():
                named.update(change.id for _, change in ready(burst).fetches)
            self._fetched = {id: one for id, one in self._fetched.items() if id in named}

    def on_fetched(self, change: Ready, content: Content | None) -> None:
        """A value is there, or cannot be had (None): then what names it is of no use."""
        self._fetching.pop(change.id, None)
        if content is not None:
            self._fetched[change.id] = content
        else:
            self._counters["fetch-failed"] += 1
            for burst, _ in list(self.held.values()):
                if any(change.id == one.id for _, one in ready(burst).fetches):
                    del self.held[burst.id]
            self.known_step = max(self.known_step, self.at + 1)
        if not self._fetching:
            self._drain()

    def in_use(self, name: str) -> Document | None:
        """The newest version, unless the application refuses it and has accepted one before."""
        newest = self.documents.get(name)
        refusal = self.refusals.get(name)
        if refusal is None or newest is None or newest.version > refusal.version:
            return newest
        return refusal.instead

    def updates(self) -> list[Update]:
        """What is here, as changes in the order of their steps."""
        shown = [one for one in self.documents.values() if not one.deleted]
        return [
            Update(self.application, one.name, one.version, one.id, one.step, one)
            for one in sorted(shown, key=lambda one: (one.step, one.name))
        ]

    def end(self) -> None:
        """Nobody follows it any more; what is being fetched may still come."""
        self.hear = self.keep = None
        self.held.clear()

    # Snapshots.

    def restore(
        self,
        at: int,
        documents: dict[str, Document],
        refusals: dict[str, Refusal],
        complete_at: int = 0,
    ) -> None:
        """Begin with what an earlier life had."""
        assert not self.at, "a feed is restored before it takes anything"
        self.at, self.complete_at = at, complete_at
        self.documents = documents
        self.refusals = {
            name: one for name, one in refusals.items() if self._is_newest(name, one.version)
        }
        deleted = [one for one in documents.values() if one.deleted]
        for one in sorted(deleted, key=lambda one: one.step):
            self._note_deleted(one.name)

    def _is_newest(self, name: str, version: int) -> bool:
        document = self.documents.get(name)
        return document is not None and document.version == version
