"""Pacing: on a busy machine the bursts of a feed leave less often and carry more each.

What a burst costs, here and at every container, hardly depends on how many steps it has. Where the
processor is idle each update leaves at once. The less of it is free, the longer a feed that has
just sent waits for more, up to `burst_gap_s`: a short wait for some in place of a long queue for
all. A burst that has got long leaves at once, so throughput is not bounded by it.

There receipts are saved too, as TCP saves acknowledgements (RFC 1122, 4.2.3.2): marks only grow, so
the receipt for a burst speaks for those before it, and some bursts ask for none. At most
`UNASKED_MAX` of them follow each other, none leaves while somebody waits for receipts or while
anything is amiss, and if nothing follows for `ASK_GAPS` gaps, the last one is sent again and asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swell.config.delivery.delivery import Delivery
    from swell.config.delivery.feeds import Feed
    from swell.config.delivery.groups import Branch

STEPS_ENOUGH = 8
"""So many steps make a burst worth sending at once."""

WAIT_S_MIN = 0.001
"""For less nothing waits: a clock may not even move."""

FREE_IDLE = 0.5
FREE_BUSY = 0.25
"""With this share of the processor free nothing waits; with this, and less, as long as is allowed;
in between in proportion."""

UNASKED_MAX = 2
"""Bursts of a feed in a row that ask for no receipts."""

ASK_GAPS = 3
"""So many times `burst_gap_s` after the last burst without receipts they are asked for."""


class Pacing:
    """When the next burst of a feed may leave."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def gap_s(self) -> float:
        """Between two bursts of one feed, as busy as this machine is."""
        free = self._delivery.world.resources().cpu_free
        share = (FREE_IDLE - free) / (FREE_IDLE - FREE_BUSY)
        return self._delivery.settings.burst_gap_s * min(max(share, 0.0), 1.0)

    def saves_receipts(self, feed: Feed, branches: Sequence[Branch]) -> bool:
        """Whether the next burst asks for none: every branch has answered for all of its members
        since it was made, and nobody is missing."""
        if len(feed.unasked) >= UNASKED_MAX or feed.strays:
            return False
        if self._delivery.waiting.has(feed.application) or not self.gap_s():
            return False
        if any(burst.reported for burst in feed.bursts):
            return False
        return all(branch.delivered for branch in branches)

    def holds(self, feed: Feed, steps: int) -> bool:
        """Whether a feed with so many steps to send waits for more; it gets its turn later."""
        if feed.paced:
            return steps < STEPS_ENOUGH
        if steps >= STEPS_ENOUGH:
            return False
        world = self._delivery.world
        wait_s = feed.sent_at + self.gap_s() - world.now()
        if wait_s <= WAIT_S_MIN:
            return False
        feed.paced = True
        world.call_later(wait_s, lambda: self._end(feed))
        return True

    def _end(self, feed: Feed) -> None:
        feed.paced = False
        self._delivery.soon(feed)
