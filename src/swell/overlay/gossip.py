"""Gossip: how rumours leave this node.

Rumours ride on pings and acks where they fit, else they leave in frames of their own to a few
random members per interval, until each was passed on often enough (SWIM, section 4). Urgent ones
also go to everybody at once, which a clique makes cheap. The timer runs only while there is
something to say: an idle zone exchanges probes and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol

from swell.overlay.membership_messages import (
    NO_RUMOURS,
    AttributeRumour,
    Gossip,
    MemberRumour,
    Rumours,
    State,
)
from swell.overlay.roster import Roster
from swell.overlay.rumours import Entry, RumourQueue, bundle, retransmit_limit
from swell.settings import MembershipSettings
from swell.wire import codec
from swell.world import Timer, World

VALUES_BYTES_MAX = 128 * 1024
"""Attribute values owed to one member leave in frames of about this size."""


class Carrier(Protocol):
    def send(self, member: int, frame: bytes) -> bool:
        """Over the clique link; False: there is none, or it took nothing."""
        ...


class Gossiping:
    """The rumours of one node on their way to others."""

    def __init__(
        self,
        world: World,
        settings: MembershipSettings,
        roster: Roster,
        carrier: Carrier,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._settings = settings
        self._roster = roster
        self._carrier = carrier
        self._queue = RumourQueue(counters)
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def stop(self) -> None:
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()

    def spread_member(self, rumour: MemberRumour) -> None:
        self._queue.add_member(rumour)
        self._arm()

    def spread_attribute(self, rumour: AttributeRumour) -> None:
        """A value too long for a frame with others is not passed on: its owner sends it to
        everybody, and push/pull repairs what was missed."""
        if len(rumour.value) + len(rumour.key) < self._settings.frame_bytes_max // 2:
            self._queue.add_attribute(rumour)
            self._arm()

    def send_to_all(self, rumours: Rumours) -> None:
        """At once, to every member that can be reached."""
        frame = codec.encode(Gossip(rumours))
        for member in self._roster.peers:
            self._carrier.send(member, frame)

    def send_to(self, member: int, rumours: Rumours) -> None:
        self._carrier.send(member, codec.encode(Gossip(rumours)))

    def send_values(self, member: int, values: Iterable[AttributeRumour]) -> None:
        """Attributes that the member turned out to lack."""
        for part in _parts(values):
            self.send_to(member, Rumours(attributes=part))

    def withdraw(self, member: int) -> None:
        self._queue.withdraw(member)

    def forget(self, member: int) -> None:
        self._queue.forget(member)

    def piggyback(self, member: int) -> tuple[Rumours, list[Entry]]:
        """What a frame to `member` should carry: bad news about itself first, so that it can
        answer (Lifeguard's buddies), then whatever fits. Call `passed_on` when it has left."""
        record = self._roster.get(member)
        accused = record is not None and record.state is not State.ALIVE
        first = (record.rumour(),) if record is not None and accused else ()
        if not first and not self._queue:
            return NO_RUMOURS, []
        entries = self._queue.pick(member, self._settings.frame_bytes_max)
        return (bundle(entries, first) if first or entries else NO_RUMOURS), entries

    def passed_on(self, entries: list[Entry], member: int) -> None:
        if entries:
            self._queue.passed_on(entries, member, self._limit())

    def echo_member(self, rumour: MemberRumour, sender: int) -> None:
        """`sender` told us: it need not hear it from us."""
        if self._queue:
            self._queue.echo(rumour, (rumour.contact.id, ""), sender)

    def echo_attribute(self, rumour: AttributeRumour, sender: int) -> None:
        if self._queue:
            self._queue.echo(rumour, (rumour.member, rumour.key), sender)

    def _limit(self) -> int:
        return retransmit_limit(self._settings.retransmit_multiplier, len(self._roster.living))

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._world.call_later(
                self._settings.gossip_interval_s, self._expire_gossip
            )

    def _expire_gossip(self) -> None:
        self._timer = None
        peers = self._roster.peers
        fanout = min(len(peers), self._settings.gossip_fanout)
        for member in self._world.rng.sample(peers, fanout):
            rumours, entries = self.piggyback(member)
            if entries and self._carrier.send(member, codec.encode(Gossip(rumours))):
                self.passed_on(entries, member)
        self._queue.tick(peers, self._limit())
        if self._queue and peers:
            self._arm()


def _parts(values: Iterable[AttributeRumour]) -> Iterator[tuple[AttributeRumour, ...]]:
    """Cut a sequence of values into frames."""
    part: list[AttributeRumour] = []
    size_bytes = 0
    for value in values:
        part.append(value)
        size_bytes += len(value.value) + len(value.key)
        if size_bytes >= VALUES_BYTES_MAX:
            yield tuple(part)
            part, size_bytes = [], 0
    if part:
        yield tuple(part)
