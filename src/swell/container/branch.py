"""One burst at a relay, on its way to one list (RIP-8)."""

from __future__ import annotations

from swell.config.messages import Receipt
from swell.container.aggregation import Aggregate
from swell.container.children import Child
from swell.container.lists import KnownList
from swell.container.load import Load
from swell.overlay.sessions import Session
from swell.world import Timer


class Branch:
    """One burst on its way to one list; the target of the relay's own receipts."""

    __slots__ = (
        "_load", "aggregate", "burst", "data", "digest", "known", "own", "pass_", "timer",
        "upstream", "wait_s",
    )  # fmt: skip

    def __init__(
        self,
        load: Load,
        upstream: Session,
        digest: bytes,
        burst: bytes,
        data: bytes,
        pass_: bytes,
        wait_s: float,
    ) -> None:
        self._load = load
        self.upstream = upstream
        self.digest = digest
        self.burst = burst
        self.data = data
        """While it waits for its list."""
        self.pass_ = pass_
        self.wait_s = wait_s
        """How long those behind are waited for; a relay among them waits as long itself."""
        self.own: tuple[int, bytes] | None = None
        """What the relay itself has reached, with its proof."""
        self.known: KnownList | None = None
        self.aggregate: Aggregate | None = None
        self.timer: Timer | None = None

    def settle(self, level: int, proof: bytes) -> None:
        """The relay itself has reached a level."""
        self.own = level, proof
        if self.aggregate is not None:
            score = self._load.due()
            if score is not None:
                self.aggregate.note_score(0, score)
            self.aggregate.settle(0, level, proof)
        elif self.timer is None:  # the list did not come in time
            self.send(Receipt(self.burst, level, proof, self.digest, only=(0,)))

    def place_of(self, child: Child) -> int:
        """0 if it is not on the list."""
        return 0 if self.known is None else self.known.places.get(child.address, 0)

    def is_leaf(self, place: int) -> bool:
        """Whether somebody is there with nobody behind."""
        return place > 0 and self.known is not None and not self.known.entries[place - 1].below

    def send(self, receipt: Receipt) -> None:
        if self.upstream.open:
            self.upstream.send(receipt)
