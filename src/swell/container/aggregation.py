"""What a relay says of one burst and one list: many receipts in one (RIP-10).

Places are those of the list: 0 is the relay itself, its entries follow. Proofs are combined by
XOR. The first receipt goes up when everybody has answered or is known not to, or when the time is
over, with the missing named; what comes later goes up in further receipts for those alone.
The place of an entry that relays for others stands for it and all behind it.

Where some have applied and others are only delivered, the latter go first, by their places; the
receipt for those who applied then names everybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swell.config.messages import Item, Level, Receipt, Score
from swell.config.proofs import PROOF_BYTES
from swell.world import Timer, World

LATE_S = 0.05
"""Receipts that come behind the first one are gathered for so long."""

DELIVERED, APPLIED = int(Level.DELIVERED), int(Level.APPLIED)

Send = Callable[[Receipt], None]


class Aggregate:
    """`count`: places, the relay's own included."""

    __slots__ = (
        "_levels", "_lost", "_open", "_proofs", "_scores", "_send", "_timer", "_told",
        "_unapplied", "_wait_s", "_world", "begun", "burst", "list",
    )  # fmt: skip

    def __init__(
        self,
        world: World,
        burst: bytes,
        list_digest: bytes,
        count: int,
        wait_s: float,
        send: Send,
    ) -> None:
        self.burst = burst
        self.list = list_digest
        self.begun = False
        """The first receipt has gone up."""
        self._world = world
        self._wait_s = wait_s
        self._send = send
        self._levels = [0] * count
        self._told = [0] * count
        self._proofs = [0] * count
        self._lost = [False] * count
        self._open = self._unapplied = count
        self._scores: list[Score] = []
        self._timer: Timer | None = world.call_later(wait_s, self._expire)

    def settle(self, place: int, level: int, proof: bytes) -> None:
        """Somebody has reached a level."""
        before = self._levels[place]
        if level <= before or level > APPLIED:
            return
        if not before and not self._lost[place]:
            self._open -= 1
        self._levels[place] = level
        self._proofs[place] = int.from_bytes(proof, "big")
        if level == APPLIED:
            self._unapplied -= 1
        self._news()

    def lose(self, place: int) -> None:
        """No answer will come from there, as far as is known."""
        if not self._levels[place] and not self._lost[place]:
            self._lost[place] = True
            self._open -= 1
            if not self.begun:
                self._news()

    def note_score(self, place: int, score: float) -> None:
        self._scores.append((place, score))
        del self._scores[: -len(self._levels)]

    def unanswered(self) -> list[int]:
        return [place for place, level in enumerate(self._levels) if not level]

    def items(self) -> tuple[Item, ...]:
        """What every place has given."""
        pairs = zip(self._levels, self._proofs, strict=True)
        return tuple((level, proof.to_bytes(PROOF_BYTES, "big")) for level, proof in pairs)

    def again(self, send: Send, wait_s: float) -> None:
        """The burst came again with the same list: say everything again, to `send`."""
        self.stop()
        self._send, self._wait_s = send, wait_s
        self.begun = False
        self._told = [0] * len(self._told)
        self._lost = [False] * len(self._lost)
        self._open = sum(1 for level in self._levels if not level)
        self._timer = self._world.call_later(self._wait_s, self._expire)
        self._news()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _news(self) -> None:
        if not self._unapplied or (not self.begun and not self._open):
            self.stop()
            self._flush()
        elif self.begun and self._timer is None:
            self._timer = self._world.call_later(LATE_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._flush()

    def _flush(self) -> None:
        """Send up what was not said yet."""
        levels, told = self._levels, self._told
        places = range(len(levels))
        applied = [p for p in places if levels[p] == APPLIED > told[p]]
        delivered = [p for p in places if levels[p] == DELIVERED > told[p]]
        if self.begun:
            if delivered:
                self._say(DELIVERED, delivered, only=delivered)
            if applied:
                whole = not self._unapplied and len(applied) == len(levels)
                self._say(APPLIED, applied, only=() if whole else applied)
            return
        self.begun = True
        if not applied:
            self._say(DELIVERED, delivered, missing=self.unanswered())
            return
        if delivered:
            self._say(DELIVERED, delivered, only=delivered)
        self._say(APPLIED, applied, missing=[p for p in places if levels[p] < APPLIED])

    def _say(
        self,
        level: int,
        places: Sequence[int],
        missing: Sequence[int] = (),
        only: Sequence[int] = (),
    ) -> None:
        total = 0
        for place in places:
            total ^= self._proofs[place]
            self._told[place] = level
        scores, self._scores = tuple(self._scores), []
        proof = total.to_bytes(PROOF_BYTES, "big")
        self._send(
            Receipt(self.burst, level, proof, self.list, tuple(missing), tuple(only), scores)
        )
