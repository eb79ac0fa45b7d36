"""Subscribing: who is interested in what, and what it says it has (RIP-2, RIP-3, RIP-5).

Whoever asks the wrong node is told the members of the slot. What is beyond a limit is refused with
a sentence; nobody else is slowed by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swell.config.access import belong_refusal, follow_refusal, may_relay
from swell.config.delivery import interest as interests
from swell.config.delivery.ranks import is_score
from swell.config.delivery.recording import ASKED_FOR, REPLACED
from swell.config.delivery.subscribers import Container, Member, Rejection
from swell.config.messages import (
    Answer,
    FeedStep,
    Level,
    ListRequest,
    Lists,
    Rejected,
    Renew,
    Renewed,
    Repair,
    Subscribe,
    Subscribed,
    Unsubscribe,
    interest_digest,
)
from swell.config.names import check_application
from swell.config.proofs import SECRET_BYTES, Pass, sign_pass
from swell.errors import InvalidNameError
from swell.overlay.sessions import Session

if TYPE_CHECKING:
    from swell.config.delivery.delivery import Delivery

PASS_S = 3600.0
"""A pass is good for so long; a container asks for a new one before it ends."""

APPLICATION_FEEDS_MAX = 64
"""Feeds of one application for one container: each is looked at for every step."""

CONTAINER_INTEREST_MAX = 1024 * 1024
"""Characters in all interests of one container."""

TEXT_LENGTH_MAX = 255

_DELIVERED, _APPLIED = int(Level.DELIVERED), int(Level.APPLIED)


class Subscribing:
    """What containers say on their own links."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def on_subscribe(self, session: Session, message: Subscribe) -> None:
        d = self._delivery
        slot = d.feeds.slot_of(message.application)
        if slot < 0 or not d.feeds.serves(slot):
            session.send(self._elsewhere(message, slot))
            return
        code, sentence = self._problem(session, message)
        if code:
            d.counters["config-subscribe-refused"] += 1
            refused = Subscribed(message.number, Answer.REFUSED, code=code, sentence=sentence)
            session.send(refused)
            return
        step = d.feeds.step_of(slot, message.application)
        known = max(message.step, message.complete_at)
        if known > step:
            # A primary that was deposed and does not know, or data that is lost.
            d.counters["config-subscriber-ahead"] += 1
            sentence = (
                f"{message.container} knows step {known} of {message.application}, which is "
                f"at {step} here: if that lasts, its snapshot is of another cluster"
            )
            session.send(
                Subscribed(message.number, Answer.BUSY, step, code="ahead", sentence=sentence)
            )
            return
        member = self._subscribe(session, message, slot, step)
        session.send(self._serving(message.number, member, step))
        d.serve_soon(member)

    def _elsewhere(self, message: Subscribe, slot: int) -> Subscribed:
        """Who may know more; nobody: ask here again."""
        slots = self._delivery.slots
        members = slots.members(slot) if slot >= 0 else []
        if not members or members[0].id == slots.me:
            return Subscribed(message.number, Answer.BUSY)
        return Subscribed(message.number, Answer.REDIRECT, members=tuple(members))

    def _problem(self, session: Session, message: Subscribe) -> tuple[str, str]:
        """Code and sentence of a refusal; empty: it is welcome."""
        try:
            check_application(message.application, reserved=True)
        except InvalidNameError as error:
            return "bad-name", str(error)
        trouble = interests.problem(message.interest)
        if trouble:
            return "bad-interest", trouble
        if max(len(message.site), len(message.host)) > TEXT_LENGTH_MAX:
            return "bad-address", f"site and host have at most {TEXT_LENGTH_MAX} characters"
        access = session.access
        if access is None:
            return "no-access", "this link may not subscribe to anything: show a token first"
        trouble = follow_refusal(access, message.application, message.interest)
        if trouble:
            return "no-access", trouble
        trouble = belong_refusal(access, message.owner)
        if trouble:
            return "no-access", trouble
        return self._taken(session, message) or self._excess(session, message)

    def _taken(self, session: Session, message: Subscribe) -> tuple[str, str] | None:
        """Whether the name or the link is another's."""
        container = self._delivery.subscribers.of(session)
        if container is not None:
            if (container.name, container.owner) == (message.container, message.owner):
                return None
            sentence = f"this link belongs to container {container.name}: use another"
            return "other-container", sentence
        holder = self._delivery.subscribers.find(message.owner, message.container)
        if holder is None or holder.session is None or holder.identity == identity_of(session):
            return None
        return (
            "name-taken",
            f"{message.container} of {message.owner} is connected with another token or "
            "certificate: give every container a name of its own",
        )

    def _excess(self, session: Session, message: Subscribe) -> tuple[str, str]:
        feeds = self._delivery.feeds
        feed = feeds.get(message.application, interest_digest(message.interest))
        if feed is None:
            trouble = feeds.excess(message.application, message.interest)
            if trouble:
                return "too-many", trouble
        container = self._delivery.subscribers.of(session)
        if container is None or (feed is not None and container in feed.members):
            return "", ""
        count, allowed = len(container.members), self._delivery.settings.subscriptions_max
        if count >= allowed:
            return "too-many", f"{container.name} has {count} subscriptions, allowed are {allowed}"
        same = sum(1 for m in container.members if m.feed.application == message.application)
        if same >= APPLICATION_FEEDS_MAX:
            return (
                "too-many",
                f"{container.name} has {same} subscriptions to {message.application}, allowed are "
                f"{APPLICATION_FEEDS_MAX}: name several configurations in one",
            )
        size = container.interest_bytes + sum(map(len, message.interest))
        if size > CONTAINER_INTEREST_MAX:
            return "too-large", f"all interests of {container.name} have {size} characters together"
        return "", ""

    def _subscribe(self, session: Session, message: Subscribe, slot: int, step: int) -> Member:
        d = self._delivery
        container = d.subscribers.find(message.owner, message.container)
        if container is None or container.session is not session:
            if container is not None:
                self._come_back(container)
            secret = d.world.entropy(SECRET_BYTES)
            container = d.subscribers.attach(session, message.container, message.owner, secret)
            container.identity = identity_of(session)
            container.pass_ = b""
        if not container.is_as(message):
            for one in container.members:
                d.step_out(one)
            container.describe(message)
            container.pass_ = b""
        feed = d.feeds.make(message.application, message.interest, slot, step)
        member = feed.members.get(container)
        if member is None:
            member = feed.members[container] = Member(container, feed)
            d.recording.subscribed(member, message.step)
            container.members.append(member)
            d.rosters.note(member)
            container.interest_bytes += sum(map(len, message.interest))
        access = session.access
        granted = access is not None and may_relay(access, message.application, message.interest)
        willing = message.willing and granted
        if member.willing is not willing:
            d.step_out(member)
            member.willing = willing
        if member.branch is not None and member.reached(_DELIVERED) <= message.step:
            return member  # all it wants is a new pass
        if message.complete_at > message.step > 0:
            feed.note_part(message.step)
        self._begin(member, message.step)
        member.raise_applied(min(message.applied, message.step))
        return member

    def _come_back(self, container: Container) -> None:
        """It has a new link: what it wants it says anew. What is known of it stays."""
        d = self._delivery
        if container.session is not None:
            d.counters["config-replaced"] += 1
            d.on_closed(container.session)
        for member in list(container.members):
            d.unlist(member, REPLACED)

    def _begin(self, member: Member, step: int) -> None:
        """Serve it from a step on."""
        feed = member.feed
        feed.leave(member)
        feed.away.pop(member, None)
        member.abandon_leg()
        member.blame = None
        member.blocked_at = 0.0
        member.delivered = step
        member.speaks()
        feed.strays[member] = None

    def _serving(self, number: int, member: Member, step: int) -> Subscribed:
        d, container = self._delivery, member.container
        now_s = d.world.wall_us() / 1e6
        if not container.pass_ or container.pass_until - now_s < PASS_S / 2:
            container.pass_until = now_s + PASS_S
            about = (container.owner, container.site, container.name)
            holder = container.session.link.peer if container.session is not None else ""
            what = Pass(d.cluster, *about, int(container.pass_until), holder)
            container.pass_ = sign_pass(d.key, what)
        return Subscribed(
            number,
            Answer.SERVING,
            member.feed.present(step),
            d.public_key,
            container.secret,
            container.pass_,
            tuple(d.slots.members(member.feed.slot)),
        )

    # Later.

    def _member(self, session: Session, application: str, digest: bytes) -> Member | None:
        container = self._delivery.subscribers.of(session)
        feed = self._delivery.feeds.get(application, digest)
        if container is None or feed is None:
            return None
        return feed.members.get(container)

    def on_unsubscribe(self, session: Session, message: Unsubscribe) -> None:
        member = self._member(session, message.application, message.interest)
        if member is not None:
            self._delivery.drop(member, ASKED_FOR)

    def on_repair(self, session: Session, message: Repair) -> None:
        """It lacks what comes behind a step, whatever was sent."""
        d = self._delivery
        member = self._member(session, message.application, message.interest)
        if member is None or message.step > d.feeds.step_of(member.feed.slot, message.application):
            d.counters["config-repair-unknown"] += 1
            return
        leg, feed = member.leg, member.feed
        if leg is not None and leg.burst is None and leg.sealed.after <= message.step:
            if message.step < leg.sealed.upto and d.world.now() - leg.sent_at < d.settings.repair_s:
                return  # it is on its way
            if feed.sealed.get(message.step) is leg.sealed:
                del feed.sealed[message.step]  # it was of no use
        d.counters["config-repair"] += 1
        blocked_at = member.blocked_at
        self._begin(member, message.step)
        member.blocked_at = blocked_at
        d.serve_soon(member, asked=True)

    def on_renew(self, session: Session, message: Renew) -> None:
        d = self._delivery
        container = d.subscribers.of(session)
        rows: list[FeedStep] = []
        now = d.world.now()
        for application, digest, step in message.feeds[: d.settings.subscriptions_max]:
            feed = d.feeds.get(application, digest)
            member = feed.members.get(container) if feed and container else None
            if feed is None or member is None:
                continue
            present = d.feeds.step_of(feed.slot, application)
            rows.append((application, digest, feed.present(present)))
            if member.reached(_APPLIED) < step <= present:
                d.recording.acknowledged(feed, (member,), step - 1, step, _APPLIED)
                member.credit(_APPLIED, step, now, member.by)
                d.progressed(feed)
            member.speaks()
            if member in feed.strays:
                d.serve_soon(member)
        if container is not None and rows:
            container.confirmed_at = min(container.confirmed_at, now)
        if container is not None and message.score > 0.0 and is_score(message.score):
            d.receipts.take_score(container, message.score, now)
        session.send(Renewed(tuple(rows)))

    def on_rejected(self, session: Session, message: Rejected) -> None:
        d = self._delivery
        member = self._member(session, message.application, message.interest)
        if member is None or message.step > d.feeds.step_of(member.feed.slot, message.application):
            d.counters["config-rejected-unknown"] += 1
            return
        d.counters["config-rejected"] += 1
        member.feed.rejected_step = max(member.feed.rejected_step, message.step)
        member.reject(Rejection(message.step, message.name, message.reason, message.uses))
        member.speaks()
        d.progressed(member.feed)

    def on_list_request(self, session: Session, message: ListRequest) -> None:
        """A relay has lost lists that it was sent."""
        d = self._delivery
        d.counters["config-list-request"] += 1
        container = d.subscribers.of(session)
        if container is None or container.lists is None:
            return
        known = container.lists
        digests = [digest for digest in dict.fromkeys(message.digests) if digest in known]
        if digests:
            lists = tuple(known[digest] for digest in digests)
            signatures = tuple(d.sending.sign(container, digest) for digest in digests)
            session.send(Lists(lists, signatures))


def identity_of(session: Session) -> str:
    """Who has made a link: the token it has shown, else the name in its certificate. Empty where
    there is neither: plain TCP on loopback."""
    token = session.access.token if session.access is not None else ""
    return f"token {token}" if token else session.link.peer
