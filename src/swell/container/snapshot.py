"""What a container had, on its disk: it starts with that, whether or not a server answers.

A file of records: the documents at some step, then the bursts that were applied behind it, as they
came. An edit costs its own bytes. Where the application refuses a version, the one it goes on with
is there too: in its next life it is asked about the newest version once more, and uses the other
one until it has answered. A value that was fetched is written by its chunks, those that the
file has not got. When the file has grown to a multiple of what it was when it was last written
whole, it is written anew (`swell.container.rewriting`).

Invariants: `sync` calls back when everything that was kept before it is durable; many calls share
one sync. A damaged file is not used at all. A reading that fails is tried again: the file may be
whole. A disk that fails otherwise, or for good, is not used any more, and what is on it is emptied
if possible: it would be older than what is acknowledged from then on. What was read from it before
is used; the container goes on as one without a snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from swell.config.bursts import Burst, read_burst
from swell.config.content import Content
from swell.config.versions import NO_VERSION
from swell.container.changes import FETCH, GONE
from swell.container.documents import Document, Refusal
from swell.container.feed import Feed
from swell.container.rewriting import NEW, Rewriting, State
from swell.container.snapshot_file import (
    DocumentRecord,
    FeedRecord,
    Kind,
    Parsed,
    Record,
    decode_document,
    decode_feed,
    document_records,
    encode,
    parse,
    record,
)
from swell.errors import WireError
from swell.world import DiskError, World

FILE = "container.snapshot"

READ_BYTES = 1024 * 1024
"""A file is read in pieces of this size."""

READ_TRIES = 3
READ_AGAIN_S = 0.2
"""So often a piece is read, and so long it is left alone between, before the file is given up."""

GROWTH = 4
REWRITE_BYTES_MIN = 256 * 1024
"""A file is written anew when it is so many times as long as it was, and has this length."""

Key = tuple[str, bytes]
Done = Callable[[], None]


def _nothing(feed: Feed, *_: object) -> None:
    """Nothing is fetched while a file is read."""


class Snapshot:
    """The file of one container."""

    def __init__(self, world: World, counters: Counter[str]) -> None:
        self._world = world
        self._disk = world.disk
        self._counters = counters
        self.feeds: dict[Key, Feed] = {}
        """What is kept: those found, replaced by those in use."""
        self.failed = False
        self.unreadable = False
        """What an earlier life had could not be read."""
        self._size = 0
        self._rewrite_at = REWRITE_BYTES_MIN
        self._chunks: dict[bytes, None] = {}
        self._kept: dict[Key, int] = {}
        """The step that the file is at, per feed."""
        self._waiting: list[Done] = []
        self._syncing = False
        self._rewriting: Rewriting | None = None

    # Opening.

    def open(self, done: Done) -> None:
        """Read the file; then `feeds` has what was kept, nothing if it is damaged."""
        size = self._disk.list().get(FILE, 0)
        pieces: list[bytes] = []
        failures = 0

        def read_on() -> None:
            self._disk.read(FILE, sum(map(len, pieces)), READ_BYTES, on_read)

        def on_read_failed(error: DiskError) -> None:
            nonlocal failures
            failures += 1
            self._counters["snapshot-read-failed"] += 1
            if failures < READ_TRIES:
                self._world.call_later(READ_AGAIN_S, read_on)
                return
            self.unreadable = True
            self._fail(error)
            done()

        def on_read(data: bytes | DiskError) -> None:
            nonlocal failures
            if isinstance(data, DiskError):
                on_read_failed(data)
                return
            failures = 0
            pieces.append(data)
            if data and sum(map(len, pieces)) < size:
                read_on()
            else:
                self._on_content(b"".join(pieces), done)

        if size:
            read_on()
        else:
            done()

    def _on_content(self, data: bytes, done: Done) -> None:
        parsed = parse(data)
        good = not parsed.rotten and self._replay(parsed)
        if not good:
            self._counters["snapshot-rotten"] += 1
            self.feeds.clear()
            self._chunks.clear()
            parsed = Parsed([], 0, True)
        elif parsed.length < len(data):
            self._counters["snapshot-torn"] += 1
        self._size = parsed.length
        self._rewrite_at = max(REWRITE_BYTES_MIN, GROWTH * parsed.length)

        def on_synced(error: DiskError | None) -> None:
            if error is not None:
                self._fail(error)
            done()

        def on_cut(error: DiskError | None) -> None:
            if error is not None:
                on_synced(error)
            else:
                # What a killed process wrote may be in the page cache only.
                self._disk.sync(FILE, on_synced)

        if parsed.length < len(data):
            self._disk.truncate(FILE, parsed.length, on_cut)
        else:
            on_cut(None)

    def _replay(self, parsed: Parsed) -> bool:
        """Make the documents; False if the records contradict each other."""
        chunks: dict[bytes, bytes] = {}
        try:
            for one in parsed.records:
                self._replay_one(one, chunks)
        except (msgspec.DecodeError, WireError, KeyError, ValueError):
            return False
        self._chunks = dict.fromkeys(chunks)
        return True

    def _replay_one(self, one: Record, chunks: dict[bytes, bytes]) -> None:
        if one.kind == Kind.FEED:
            kept = decode_feed(one.body)
            feed = Feed(kept.application, kept.interest, 1, _nothing, Counter())
            feed.restore(kept.at, {}, {}, kept.complete_at)
            self.feeds[feed.key] = feed
        elif one.kind in (Kind.DOCUMENT, Kind.REFUSAL):
            document = decode_document(one.body)
            feed = self.feeds[document.application, document.interest]
            made = _document(document, chunks)
            if one.kind == Kind.DOCUMENT:
                feed.documents[document.name] = made
            else:
                feed.refusals[document.name] = Refusal(document.refused, made)
        elif one.kind == Kind.CHUNK:
            chunks[one.body[:20]] = one.body[20:]
        else:
            burst = read_burst(one.body)
            feed = self.feeds[burst.application, burst.interest]
            if not feed.take(burst, b""):
                raise WireError("bad-burst", "it does not join on")

    # Keeping.

    def begin(self, feed: Feed) -> None:
        """Keep a feed that is new, or was found and goes on."""
        found = self.feeds.get(feed.key)
        self.feeds[feed.key] = feed
        self._kept[feed.key] = feed.at
        if found is None:
            self._append(record(Kind.FEED, encode(_feed_record(feed))))

    def end(self, feed: Feed) -> None:
        """A feed is not wanted any more; it is left out when the file is written anew."""
        self.feeds.pop(feed.key, None)

    def keep(self, feed: Feed, burst: Burst, data: bytes) -> None:
        """A burst was applied."""
        known = self._kept.get(feed.key, 0)
        self._kept[feed.key] = max(known, burst.upto)
        # What the burst does not tell, and what was mended before the step the file is at.
        apart = [
            feed.documents.get(change.name) or _forgotten(change.name, burst.upto)
            for step in burst.steps
            for change in step.changes
            if change.kind == FETCH or (step.number <= known and change.kind != GONE)
        ]
        if burst.after < known:
            ends = {step.number for step in burst.steps if step.number <= known}
            apart += [one for one in feed.documents.values() if one.deleted and one.step in ends]
        if apart:
            self._keep_documents(feed.key, apart)
        self._append(record(Kind.BURST, data))

    def keep_refusal(self, feed: Feed, name: str) -> None:
        """The application does not use a version; it is not durable at once."""
        refusal = feed.refusals.get(name)
        if refusal is not None:
            self._keep_documents(feed.key, (refusal.instead,), refusal.version)

    def _keep_documents(self, key: Key, documents: Sequence[Document], refused: int = 0) -> None:
        for one in document_records(key, documents, self._chunks, refused):
            self._write(one)
        if self._rewriting is not None:
            self._rewriting.add_documents(key, documents, refused)

    def kept_step(self, feed: Feed) -> int:
        """The step that its file will be at with the next sync."""
        return self._kept.get(feed.key, 0)

    def _append(self, data: bytes) -> None:
        self._write(data)
        if self._rewriting is not None:
            self._rewriting.add(data)

    def _write(self, data: bytes) -> None:
        if not self.failed:
            self._disk.append(FILE, data)
            self._size += len(data)

    def sync(self, done: Done) -> None:
        """`done` when everything kept so far outlives a crash."""
        self._waiting.append(done)
        self._sync_next()

    def _sync_next(self) -> None:
        closing = self._rewriting is not None and self._rewriting.closing
        if self._waiting and not self._syncing and not closing:
            self._sync()

    def _sync(self) -> None:
        if self.failed:
            waiting, self._waiting = self._waiting, []
            for done in waiting:
                self._world.call_later(0.0, done)
            return
        self._syncing = True
        waiting, self._waiting = self._waiting, []

        def on_synced(error: DiskError | None) -> None:
            self._syncing = False
            if error is not None:
                self._fail(error)
            for done in waiting:
                done()
            self._sync_next()
            if self._size > self._rewrite_at and self._rewriting is None and not self.failed:
                self._rewrite()

        self._disk.sync(FILE, on_synced)

    def _fail(self, error: DiskError) -> None:
        self._counters["snapshot-failed"] += 1
        self.failed = True
        if self._rewriting is not None:
            self._rewriting.stop()
            self._rewriting = None
        if FILE in self._disk.list():
            self._disk.truncate(FILE, 0, lambda _: None)

    # Writing anew.

    def _rewrite(self) -> None:
        """Write what is here now beside the file; what is kept meanwhile follows."""
        self._counters["snapshot-rewritten"] += 1
        states = [
            State(
                feed.key, _feed_record(feed), [*feed.documents.values()], [*feed.refusals.values()]
            )
            for feed in self.feeds.values()
        ]
        self._rewriting = Rewriting(self._world, states, self._on_rewritten)
        self._rewriting.start()

    def _on_rewritten(self, good: bool) -> None:
        """Everything but its tail is in the new file, and durable there; or it is not."""
        rewriting, self._rewriting = self._rewriting, None
        assert rewriting is not None
        if good:
            self._size, self._chunks = rewriting.size, rewriting.chunks
            self._rewrite_at = max(REWRITE_BYTES_MIN, GROWTH * self._size)
            self._disk.replace(NEW, FILE, self._on_replaced)
            for data in rewriting.tail:
                self._write(data)
        else:
            self._counters["snapshot-rewrite-failed"] += 1
            self._rewrite_at = self._size * 2
        self._sync_next()

    def _on_replaced(self, error: DiskError | None) -> None:
        if error is not None:
            self._fail(error)


def _feed_record(feed: Feed) -> FeedRecord:
    return FeedRecord(feed.application, feed.interest, feed.at, feed.complete_at)


def _document(kept: DocumentRecord, chunks: dict[bytes, bytes]) -> Document:
    content: bytes | Content = kept.data
    if kept.chunks:
        content = Content.from_chunks([chunks[digest] for digest in kept.chunks])
    return Document(kept.name, kept.version, kept.id, kept.step, content, kept.deleted)


def _forgotten(name: str, step: int) -> Document:
    """What a name is in the file that was deleted, and forgotten, by the same burst."""
    return Document(name, 0, NO_VERSION, step, b"", True)
