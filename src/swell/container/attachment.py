"""One feed's place in the cluster: the node that serves it, and what that node gave.

A burst is signed by the node that sent it, so the keys of the last few nodes are kept: what a
primary signed before it was replaced stays true and may still be on its way by a relay.
"""

from __future__ import annotations

from typing import NamedTuple

from swell.client.session_peers import Peer
from swell.config.bursts import Burst, open_burst, read_burst
from swell.config.messages import Subscribed
from swell.config.proofs import read_pass
from swell.container.feed import Feed
from swell.container.receipts import Receipts
from swell.errors import RefusedError, WireError
from swell.world import Address, Timer

CREDENTIALS_MAX = 4


class Credentials(NamedTuple):
    """What a node gave: its key, the container's secret, and a pass for siblings."""

    key: bytes
    secret: bytes
    pass_: bytes
    expires_s: int
    """The pass, by the node's wall clock."""


class Attachment:
    """A feed, its receipts, and who serves it."""

    __slots__ = (
        "attempts", "credentials", "feed", "gap_at", "gap_timer", "members", "number", "peer",
        "queue", "receipts", "redirects", "refusal", "repairs", "served_at", "serving", "wake_at",
    )  # fmt: skip

    def __init__(self, feed: Feed, receipts: Receipts) -> None:
        self.feed = feed
        self.receipts = receipts
        self.peer: Peer | None = None
        """Who serves it, or is asked to."""
        self.serving = False
        self.served_at = 0.0
        self.number = 0
        """Of the `Subscribe` without an answer; 0 if there is none."""
        self.members: list[Address] = []
        """Of the slot, the primary first, as the last node that served it said."""
        self.queue: list[Address] = []
        """Whom to ask next."""
        self.attempts = 0
        self.redirects = 0
        self.wake_at = 0.0
        """When to ask again, unless it is served."""
        self.refusal: RefusedError | None = None
        self.credentials: list[Credentials] = []
        """The latest first."""
        self.gap_timer: Timer | None = None
        self.gap_at = 0
        self.repairs = 0
        """Asked of this node since anything came."""

    def learn(self, subscribed: Subscribed) -> None:
        """A node serves it."""
        self.learn_secret(subscribed)
        self.receipts.rejections.secret = subscribed.secret
        self.members = [contact.address for contact in subscribed.members]
        feed = self.feed
        feed.known_step = max(feed.known_step, subscribed.step)

    def learn_secret(self, subscribed: Subscribed) -> None:
        """What a node gave counts for whatever it sends, also if its answer came too late."""
        expires_s = 0
        if subscribed.pass_:
            expires_s = read_pass(subscribed.pass_, subscribed.key).expires_s
        new = Credentials(subscribed.key, subscribed.secret, subscribed.pass_, expires_s)
        others = [one for one in self.credentials if one.key != new.key]
        self.credentials = [new, *others][:CREDENTIALS_MAX]

    def open(self, data: bytes, cluster: str, verify: bool) -> tuple[Burst, Credentials]:
        """A burst of this feed, and of which node it is; `WireError` if it is of none."""
        if not verify and self.credentials:
            return read_burst(data), self.credentials[0]
        trouble = WireError("unknown-key", "no node serves this feed yet")
        for one in self.credentials:
            try:
                return open_burst(data, cluster, one.key), one
            except WireError as error:
                trouble = error
                if error.reason != "bad-signature":
                    break
        raise trouble
