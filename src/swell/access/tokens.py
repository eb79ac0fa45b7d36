"""The tokens of the cluster as one node knows them: a watched copy of `tokens/`.

The copy begins with the first use, so a cluster without tokens pays nothing. It may be behind:
an id that is not in it is read from the registry itself. Revoking rewrites a record and never
deletes it, so that no watcher can miss it; only records that expired long ago are deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from swell.access.grants import check_grant
from swell.access.token import (
    LABEL_LENGTH_MAX,
    LIFE_S_MAX,
    TokenRecord,
    decode_record,
    encode_record,
    is_id,
)
from swell.directory.registry import Change, Entry, Outcome, RegistryAccess
from swell.errors import InvalidNameError, RefusedError, SwellError, UnavailableError, WireError
from swell.world import World

PREFIX = "tokens/"
TOKENS_MAX = 10_000
READS_MAX = 64
"""Ids that are being read from the registry."""
WAITING_MAX = 256
"""Who waits for the copy to be complete."""
KEPT_S = 7 * 86_400
"""How long a record is kept after it has expired."""
DELETIONS_MAX = 256
"""Old records deleted at a time."""

Found = Callable[[TokenRecord | SwellError | None], None]
Done = Callable[[TokenRecord | SwellError], None]

_SILENT = "the directory did not answer in time: look with `swell token list`, then try again"


class _Held(NamedTuple):
    version: int
    record: TokenRecord


class Tokens:
    """`on_changed(ids)` is called when records have changed or gone."""

    def __init__(self, world: World, registry: RegistryAccess, counters: Counter[str]) -> None:
        self._world = world
        self._registry = registry
        self._counters = counters
        self._held: dict[str, _Held] = {}
        self._watching = False
        self._complete = False
        self._reads = 0
        self._waiting: list[Callable[[], None]] = []
        self.on_changed: Callable[[Sequence[str]], None] = lambda ids: None

    def now_s(self) -> int:
        return self._world.wall_us() // 1_000_000

    def get(self, id: str) -> TokenRecord | None:
        """As far as is known here."""
        held = self._held.get(id)
        return held.record if held is not None else None

    def find(self, id: str, done: Found) -> None:
        """The record of an id, from the registry if it is not known here; `done` may be called at
        once. An error: nobody could tell."""
        self._watch()
        record = self.get(id)
        if record is not None:
            done(record)
        else:
            self._read(id, done)

    def _read(self, id: str, done: Found) -> None:
        if self._reads >= READS_MAX:
            self._counters["token-reads-full"] += 1
            done(UnavailableError("too many unknown tokens are being looked up: try again"))
            return
        self._reads += 1
        key = PREFIX + id

        def answered(entries: dict[str, Entry] | None) -> None:
            self._reads -= 1
            if entries is None:
                done(UnavailableError(_SILENT))
                return
            if key in entries:
                self._take(id, entries[key])
            done(self.get(id))

        self._registry.read([key], answered)

    # -- the copy ------------------------------------------------------------------------------

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            self._registry.watch(PREFIX, self._on_news)

    def _on_news(self, entries: dict[str, Entry | None]) -> None:
        changed = [
            key.removeprefix(PREFIX)
            for key, entry in entries.items()
            if self._take(key.removeprefix(PREFIX), entry)
        ]
        self._complete = True
        self.on_changed(changed)
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()

    def _take(self, id: str, entry: Entry | None) -> bool:
        """Know this from now on; False if it is not news. What cannot be read is no token."""
        held = self._held.get(id)
        if entry is None:
            return self._held.pop(id, None) is not None
        if held is not None and entry.version <= held.version:
            return False
        try:
            self._held[id] = _Held(entry.version, decode_record(entry.value))
        except WireError:
            self._counters["bad-token-record"] += 1
            self._held.pop(id, None)
        return True

    def _when_complete(
        self, action: Callable[[], None], fail: Callable[[SwellError], None]
    ) -> None:
        self._watch()
        if self._complete:
            action()
        elif len(self._waiting) >= WAITING_MAX:
            fail(UnavailableError("too many requests wait for the directory: try again later"))
        else:
            self._waiting.append(action)

    # -- for administrators --------------------------------------------------------------------

    def all(self, done: Callable[[dict[str, TokenRecord] | SwellError], None]) -> None:
        """Every token by its id, revoked and expired ones too."""
        self._when_complete(
            lambda: done({id: held.record for id, held in sorted(self._held.items())}), done
        )

    def create(self, id: str, record: TokenRecord, done: Done) -> None:
        """Let this token be; `done` gets its record. Once more has no effect."""
        self._check(id, record)
        self._when_complete(lambda: self._create(id, record, done), done)

    def _check(self, id: str, record: TokenRecord) -> None:
        if not is_id(id):
            raise InvalidNameError(f"{id[:80]!r} is not the id of a token")
        for grant in record.grants:
            check_grant(grant)
        if len(record.label) > LABEL_LENGTH_MAX or not record.label.isprintable():
            raise InvalidNameError(
                f"the label is not valid: use at most {LABEL_LENGTH_MAX} printable characters"
            )
        if not 0 < record.expires_s - self.now_s() <= LIFE_S_MAX:
            raise InvalidNameError(
                f"a token lives for a second to {LIFE_S_MAX // 86_400} days: choose another --ttl"
            )

    def _create(self, id: str, record: TokenRecord, done: Done) -> None:
        old_s = self.now_s() - KEPT_S
        old = [(i, h.version) for i, h in self._held.items() if h.record.expires_s < old_s]
        deletions = [Change(PREFIX + i, version, None) for i, version in old[:DELETIONS_MAX]]
        if len(self._held) - len(deletions) >= TOKENS_MAX:
            sentence = f"there are {TOKENS_MAX} tokens already: let some expire"
            done(RefusedError("too-many-tokens", sentence))
            return

        def decided(outcomes: list[Outcome] | None) -> None:
            if outcomes is None:
                done(UnavailableError(_SILENT))
                return
            entry = outcomes[0].entry
            if entry is None:
                done(RefusedError("registry-full", "the registry has no room for another token"))
                return
            self._take(id, entry)
            held = self.get(id)
            if held is None or held.hash != record.hash:
                done(RefusedError("token-exists", f"there is another token {id}: draw a new one"))
            else:
                done(held)

        creation = Change(PREFIX + id, 0, encode_record(record))
        self._registry.change([creation, *deletions], decided)

    def revoke(self, id: str, done: Done) -> None:
        """End a token before its time; `done` gets its record. Once more has no effect."""
        key = PREFIX + id
        if not is_id(id):
            raise InvalidNameError(f"{id[:80]!r} is not the id of a token")

        def read(entries: dict[str, Entry] | None) -> None:
            if entries is None:
                done(UnavailableError(_SILENT))
            elif key not in entries:
                done(RefusedError("unknown-token", f"no token has the id {id}"))
            else:
                self._revoke(id, entries[key], done)

        self._registry.read([key], read)

    def _revoke(self, id: str, entry: Entry, done: Done) -> None:
        try:
            record = decode_record(entry.value)
        except WireError as error:
            done(error)
            return
        if record.revoked_s:
            done(record)
            return
        revoked = replace(record, revoked_s=self.now_s())

        def decided(outcomes: list[Outcome] | None) -> None:
            if outcomes is None:
                done(UnavailableError(_SILENT))
            elif outcomes[0].accepted:
                if self._take(id, outcomes[0].entry):
                    self.on_changed([id])
                done(revoked)
            else:
                done(UnavailableError("the token has changed meanwhile: try again"))

        change = Change(PREFIX + id, entry.version, encode_record(revoked))
        self._registry.change([change], decided)
