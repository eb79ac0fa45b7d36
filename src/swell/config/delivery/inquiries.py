"""Who has spoiled a proof: the relay that gave it, or one of those behind it (RIP-10, RIP-13).

A wrong proof of many says only that somebody lies. So the relay is asked for the proofs it was
given, one by one: whoever's is right has the burst, and nobody is served by another way because of
a sibling. An honest relay can always answer. One whose answers are all right, or whose own is not,
or that does not answer, has lied. If one container's proof is wrong, it lies or the relay does: it
is served directly for a while, which harms neither, and the relay is under suspicion; the second
container that it names costs it its place. Where a place stands for a relay below and all behind
it, that one is asked next, on its own link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from swell.config.messages import Itemize, Items, Level
from swell.config.proofs import aggregate

if TYPE_CHECKING:
    from swell.config.delivery.delivery import Delivery
    from swell.config.delivery.feeds import Leg
    from swell.config.delivery.groups import Place
    from swell.config.delivery.subscribers import Container, Member
    from swell.overlay.sessions import Session

INQUIRIES_MAX = 1024
"""At one time; who would be asked beyond that counts as not answering."""

_LEVELS = (int(Level.DELIVERED), int(Level.APPLIED))


class Inquiry(NamedTuple):
    """One relay was asked about one list."""

    leg: Leg
    relay: Member
    session: Session


class Inquiries:
    """Those without an answer, by the relay, the burst and the list, the oldest first."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._open: dict[tuple[Container, bytes], Inquiry] = {}

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, leg: Leg, digest: bytes) -> None:
        """The relay of one of a leg's lists."""
        relay = leg.branch.places(digest)[0][0]
        session, key = relay.container.session, (relay.container, leg.sealed.id + digest)
        if key in self._open:
            return
        question = Itemize(leg.sealed.id, digest)
        if len(self._open) >= INQUIRIES_MAX or session is None or not session.send(question):
            self._convict(leg, relay)
            return
        self._open[key] = Inquiry(leg, relay, session)
        self._delivery.watch_inquiries()

    def expire(self, now: float) -> None:
        """Whoever has not answered in time has nothing to show. Who is gone is not judged."""
        for key, (leg, relay, session) in list(self._open.items()):
            if relay.container.session is not session:
                del self._open[key]
            elif now >= leg.due_at:
                del self._open[key]
                self._convict(leg, relay)

    def on_items(self, session: Session, message: Items) -> None:
        d = self._delivery
        container = d.subscribers.of(session)
        inquiry = None
        if container is not None:
            inquiry = self._open.pop((container, message.burst + message.list), None)
        if inquiry is None:
            d.counters["config-items-unknown"] += 1
            return
        leg, relay, _ = inquiry
        places = leg.branch.places(message.list)
        if leg.branch.has_old_secrets():
            d.counters["config-receipt-outdated"] += 1
        elif len(message.items) != len(places):
            self._convict(leg, relay)
        else:
            self._judge(leg, relay, places, message)

    def _judge(self, leg: Leg, relay: Member, places: Sequence[Place], message: Items) -> None:
        right: dict[int, list[Member]] = {level: [] for level in _LEVELS}
        wrong: list[int] = []
        for number, (level, proof) in enumerate(message.items):
            if level in right:
                secrets = [member.container.secret for member in places[number]]
                if proof == aggregate(secrets, message.burst, level):
                    right[level] += places[number]
                else:
                    wrong.append(number)
        if not leg.applied:
            for level, members in right.items():
                if members:
                    self._delivery.receipts.credit(leg, members, level)
        if wrong == [] and relay is not leg.branch.relay:
            # What went up for it was wrong: by itself, or by the relay above it.
            for one in (relay, leg.branch.relay):
                self._delivery.avoidance.doubt(one.container, leg)
        elif len(wrong) == 1 and wrong[0]:
            self._on_one(leg, relay, places[wrong[0]], leg.branch.below(message.list, wrong[0]))
        else:
            members = [member for number in wrong for member in places[number] if number]
            self._convict(leg, relay, members)

    def _on_one(self, leg: Leg, relay: Member, place: Place, below: bytes) -> None:
        """The proof of one place is wrong."""
        if below:
            self.ask(leg, below)
            return
        avoidance, (member,) = self._delivery.avoidance, place
        if not member.container.suspicions:
            avoidance.doubt(relay.container, leg)
        avoidance.accuse(member.container)
        if not leg.applied:
            self._delivery.retries.on_lied(leg, place)

    def _convict(self, leg: Leg, relay: Member, named: Sequence[Member] = ()) -> None:
        """A relay has lied, or several of those behind it have, who will do so again."""
        d = self._delivery
        d.avoidance.avoid(relay.container, relay.feed.application, "wrong proof")
        d.avoidance.suspect(named)
        if not leg.applied:
            d.retries.on_lied(leg, leg.branch.members)
            d.receipts.abandon(leg)
