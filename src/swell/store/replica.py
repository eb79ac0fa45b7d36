"""One slot at this node: its log, its state, and what the node promised about it.

Invariants: the state is what the entries up to `commit` make of nothing; `commit` and `fence` never
go down; `matched` entries are equal to those of the primary of `matched_epoch`.

A member applies what is committed when somebody looks at the state, or a number of entries at once:
it has no answer to give, and entries that are applied together cost half as much each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from swell.store.chain import Chain
from swell.store.entry import PAYLOAD_AT, Entry
from swell.store.messages import Position, Status
from swell.store.record import Record
from swell.store.state import SlotState
from swell.store.storage import SlotImage

if TYPE_CHECKING:
    from swell.store.candidate import Candidate
    from swell.store.copying import Incoming
    from swell.store.primary import Primary

SLACK_FACTOR = 2
"""The log is trimmed when it is this many times longer than what is kept: not for every entry."""


UNAPPLIED_MAX = 64
"""Committed entries that a member leaves for later. A new primary has to apply them first."""

KEEP_BYTES_MAX = 16 * 1024 * 1024
"""Long entries, as the pieces of an upload, are kept only up to so many bytes, however few."""


class Replica:
    """What this node knows and keeps of one slot."""

    def __init__(
        self, slot: int, new_state: Callable[[], SlotState], keep_entries: int, now: float
    ) -> None:
        self.slot = slot
        self._new_state = new_state
        self._state = new_state()
        self._applied = 0
        """How far the state is; up to `commit` when it is looked at."""
        self.chain = Chain()
        self.fence = 0
        self.commit = 0
        self.matched = 0
        self.matched_epoch = 0
        """The epoch whose primary's log `matched` is about."""
        self.confirmed = False
        self.record: Record | None = None
        """Of the highest epoch heard of, from the registry or from its primary."""
        self.primary: Primary | None = None
        self.candidate: Candidate | None = None
        self.incoming: Incoming | None = None
        self.heard_at = now
        """When the primary of this epoch was heard last."""
        self.granted_to = 0
        self.granted_until = 0.0
        self.installs = 0
        """Copies that are here and not durable yet: nothing is said of this slot meanwhile."""
        self._keep_entries = keep_entries
        self._trim_at = (SLACK_FACTOR + 1) * keep_entries
        """A shorter log has nothing to forget."""

    @property
    def state(self) -> SlotState:
        """As of `commit`."""
        if self._applied < self.commit:
            self._apply(self.commit)
        return self._state

    @property
    def has_data(self) -> bool:
        return self.chain.last > 0

    def follows(self, me: int) -> bool:
        """Whether another node is the primary, as far as is known here."""
        return self.record is not None and self.record.primary != me

    def forget(self) -> None:
        """Keep nothing but the fence."""
        self.chain = Chain()
        self._state = self._new_state()
        self.commit = self.matched = self._applied = 0
        self.incoming = None

    def load(self, image: SlotImage) -> None:
        """Take over what storage kept, or what a copy brought; all of it or, if the state is of
        another version, nothing."""
        state = self._new_state()
        if image.state is not None:
            state.load(bytes(image.state))
        self._state = state
        self.chain = Chain(image.base, image.base_epoch, image.base_digest, image.entries)
        self.fence = max(self.fence, image.fence)
        self.commit = self.matched = self._applied = image.base
        self.advance(min(image.commit, self.chain.last))

    def image(self) -> SlotImage:
        """What it takes to be here again: the state at the commit point and what follows."""
        chain, commit = self.chain, self.commit
        digest = chain.digest_at(commit)
        assert digest is not None
        return SlotImage(
            self.fence,
            commit,
            chain.epoch_at(commit),
            digest,
            self.state.image(),
            chain.behind(commit, 1 << 62),
            commit,
        )

    def advance(self, commit: int) -> list[tuple[int, Status, bytes]]:
        """Entries up to `commit` are committed: apply them; what came of each, from the first that
        was not applied yet."""
        self.commit = max(self.commit, commit)
        self.matched = max(self.matched, self.commit)
        sequence = self._applied
        apply = self._state.apply
        results: list[tuple[int, Status, bytes]] = []
        for entry in self._unapplied(self.commit):
            sequence += 1
            status, body = apply(entry.data, PAYLOAD_AT)
            results.append((sequence, status, body))
        return results

    def learn(self, commit: int) -> None:
        """Entries up to `commit`, which are here, are committed: apply them some time."""
        assert self.commit <= commit <= self.matched, "committed, but not here"
        self.commit = commit
        if commit - self._applied > UNAPPLIED_MAX:
            self._apply(commit)

    def _apply(self, upto: int) -> None:
        apply = self._state.apply
        for entry in self._unapplied(upto):
            apply(entry.data, PAYLOAD_AT)

    def _unapplied(self, upto: int) -> list[Entry]:
        """The committed entries up to `upto` that the state lacks: whoever asks applies them."""
        applied = self._applied
        if upto <= applied:
            return []
        self._applied = upto
        return self.chain.between(applied, upto)

    def trim(self, pinned: int) -> None:
        """Forget old committed entries, except those behind `pinned` that somebody still needs."""
        chain = self.chain
        if chain.last - chain.base < self._trim_at and chain.size <= KEEP_BYTES_MAX:
            return
        upto = min(self.commit - self._keep_entries, pinned)
        if upto - chain.base >= SLACK_FACTOR * self._keep_entries:
            self._apply(upto)
            chain.trim(upto)
        if chain.size > KEEP_BYTES_MAX:
            self._apply(self.commit)
            chain.shed(KEEP_BYTES_MAX // 2, min(self.commit, pinned))

    def fits(self, entry: Entry) -> bool:
        return entry.sequence == self.chain.last + 1 and entry.previous == self.chain.digest

    def position(
        self, epoch: int, lineage: int, now: float, started_until: float, refused: bool = False
    ) -> Position:
        """Where this member is, for whoever speaks as primary of `epoch`."""
        holder, until = self.granted_to, self.granted_until
        if not holder and started_until > now:
            until = started_until
        chain = self.chain
        return Position(
            slot=self.slot,
            epoch=epoch,
            fence=self.fence,
            lineage=lineage,
            last_epoch=chain.last_epoch,
            last=chain.last,
            digest=chain.digest,
            commit=self.commit,
            has_data=self.has_data,
            confirmed=self.confirmed,
            leaseholder=holder,
            lease_left_s=max(0.0, until - now),
            refused=refused,
        )
