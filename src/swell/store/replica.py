"""One slot at this node: its log, its state, and what the node promised about it.

Invariants: the state is what the entries up to `commit` make of nothing; `commit` and `fence` never
go down; `matched` entries are equal to those of the primary of `matched_epoch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from swell.store.chain import Chain
from swell.store.entry import Entry
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


KEEP_BYTES_MAX = 16 * 1024 * 1024
"""Long entries, as the pieces of an upload, are kept only up to so many bytes, however few."""


class Replica:
    """What this node knows and keeps of one slot."""

    def __init__(
        self, slot: int, new_state: Callable[[], SlotState], keep_entries: int, now: float
    ) -> None:
        self.slot = slot
        self._new_state = new_state
        self.state = new_state()
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

    @property
    def has_data(self) -> bool:
        return self.chain.last > 0

    def forget(self) -> None:
        """Keep nothing but the fence."""
        self.chain = Chain()
        self.state = self._new_state()
        self.commit = self.matched = 0
        self.incoming = None

    def load(self, image: SlotImage) -> None:
        """Take over what storage kept, or what a copy brought; all of it or, if the state is of
        another version, nothing."""
        state = self._new_state()
        if image.state is not None:
            state.load(bytes(image.state))
        self.state = state
        self.chain = Chain(image.base, image.base_epoch, image.base_digest, image.entries)
        self.fence = max(self.fence, image.fence)
        self.commit = image.base
        self.matched = image.base
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
        """Apply entries up to `commit`; what came of each."""
        results: list[tuple[int, Status, bytes]] = []
        chain, apply = self.chain, self.state.apply
        while self.commit < commit:
            self.commit += 1
            status, body = apply(chain.entry(self.commit).payload)
            results.append((self.commit, status, body))
        self.matched = max(self.matched, self.commit)
        return results

    def trim(self, pinned: int) -> None:
        """Forget old committed entries, except those behind `pinned` that somebody still needs."""
        upto = min(self.commit - self._keep_entries, pinned)
        if upto - self.chain.base >= SLACK_FACTOR * self._keep_entries:
            self.chain.trim(upto)
        if self.chain.size > KEEP_BYTES_MAX:
            self.chain.shed(KEEP_BYTES_MAX // 2, min(self.commit, pinned))

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
