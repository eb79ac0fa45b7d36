"""A container: the protocol object that a world drives.

It owns the session with the store, for everything that is asked of the cluster, and shares its
links: one per node, whatever is spoken on it. Bursts come from the nodes that serve its feeds and
from siblings; it verifies them, passes them on if it is told to, applies them and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from swell.client.session_pending import Done
from swell.client.store_session import Notice, StoreSession
from swell.config.bursts import OTHER_FORMAT, feed_of
from swell.config.messages import DELIVER, Complaint, Receipt, Subscribe, read_deliver
from swell.config.operations import CONFIG_SERVICE
from swell.container.attaching import Attaching
from swell.container.attachment import Attachment
from swell.container.documents import Document, Update
from swell.container.durability import Durability
from swell.container.feed import Feed
from swell.container.fetching import Fetches
from swell.container.load import Load
from swell.container.receipts import Receipts, Target
from swell.container.recording import FeedRecording, look_again
from swell.container.relay import Relay
from swell.container.siblings import Siblings
from swell.container.snapshot import Snapshot
from swell.errors import ConfigurationError, RefusedError, WireError
from swell.events.records import Rejected as RejectedRecord
from swell.events.records import Resumed
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session
from swell.settings import ConfigSettings
from swell.store.request import Request
from swell.world import Address, Link, World


class _Direct:
    """Whoever sent a burst to this container alone."""

    __slots__ = ("_burst", "_load", "_session")

    def __init__(self, session: Session, burst: bytes, load: Load) -> None:
        self._session = session
        self._burst = burst
        self._load = load

    def settle(self, level: int, proof: bytes) -> None:
        score = self._load.due()
        scores = () if score is None else ((0, score),)
        if self._session.open:
            self._session.send(Receipt(self._burst, level, proof, scores=scores))


class ContainerSession:
    """`address`: where siblings reach it; None: nowhere. `keep`: with a snapshot on its disk.
    `hear` gets every applied change, in order; `notice` links and redirects, `refused` feeds that
    the cluster refuses, `current` feeds that have all that their node has."""

    def __init__(
        self,
        world: World,
        cluster: str,
        addresses: Sequence[Address],
        name: str,
        owner: str,
        site: str,
        settings: ConfigSettings | None = None,
        address: Address | None = None,
        willing: bool = True,
        keep: bool = False,
        token: str = "",
        bugs: frozenset[str] = frozenset(),
        hear: Callable[[Update], None] | None = None,
        notice: Callable[[Notice], None] | None = None,
        refused: Callable[[str, RefusedError], None] | None = None,
        current: Callable[[Feed], None] | None = None,
    ) -> None:
        self.world = world
        self.settings = settings or ConfigSettings()
        self.name = name
        self.owner = owner
        self.site = site
        self.address = address
        self.willing = willing and address is not None
        self.ready = not keep
        """What an earlier life had is here."""
        self._cluster = cluster
        self._bugs = bugs
        self._hear = hear
        self._notice = notice
        self._refused = refused
        self._current = current
        self.store = StoreSession(world, cluster, addresses, self._on_notice, token, "container")
        self.on_frame = self.store.on_frame
        self.counters = self.store.counters
        self.load = Load(world, self.settings.score_s)
        sessions = self.store.peers.sessions
        self.relay = Relay(world, sessions, self.load, self.settings, self.counters, bugs)
        self.siblings: Siblings | None = None
        if address is not None:
            self.siblings = Siblings(
                world, cluster, owner, site, sessions, self._keys, self.counters,
                self.relay.on_upstream_lost,
            )  # fmt: skip
            self.relay.is_signed = self.siblings.is_signed
        self.attaching = Attaching(self)
        self._fetches = Fetches(world, self.call, self.counters, self._on_fetched)
        self._by_application: dict[str, list[Feed]] = {}
        self._on_ready: list[Callable[[], None]] = []
        sessions.handle_frames(DELIVER, self.on_deliver, (LinkKind.CLIENT, LinkKind.RELAY))
        self.snapshot: Snapshot | None = None
        if keep:
            self.snapshot = Snapshot(world, self.counters)
            self.snapshot.open(self._on_snapshot)
        self._durability = Durability(self.snapshot, "stale-snapshot" in bugs)

    # The application's side.

    def when_ready(self, action: Callable[[], None]) -> None:
        """Call when what an earlier life had is here."""
        if self.ready:
            self.world.call_later(0.0, action)
        else:
            self._on_ready.append(action)

    def subscribe(
        self, application: str, interest: Sequence[str] = (), automatic: bool = True
    ) -> Feed:
        """Follow the configurations of an application whose names are in the interest, or begin
        with what stands there before a `*`; all if it is empty. Not `automatic`: the application
        says of every change whether it is `applied` or `rejected`."""
        wanted = tuple(sorted(set(interest)))
        feed = Feed(
            application,
            wanted,
            self.settings.hold_bursts,
            self._fetches.fetch,
            self.counters,
            self._bugs,
        )
        known = self.attaching.all.get(feed.key)
        if known is not None:
            return known.feed
        if len(self.attaching.all) >= self.settings.subscriptions_max:
            raise ConfigurationError(
                f"a container may follow {self.settings.subscriptions_max} feeds: follow fewer,"
                " with longer interests"
            )
        attachment = Attachment(feed, Receipts(feed, automatic, self.counters))
        feed.hear = self._hearing(attachment)
        self.attaching.all[feed.key] = attachment
        siblings = self._by_application.setdefault(application, [])
        siblings.append(feed)
        if self.world.recording:
            feed.recording = FeedRecording(self.world, siblings)
            look_again(siblings)
        if self.ready:
            self._begin(attachment)
        return feed

    def unsubscribe(self, feed: Feed) -> None:
        attachment = self.attaching.all.get(feed.key)
        if attachment is not None:
            self.attaching.remove(attachment)
            siblings = self._by_application[feed.application]
            siblings.remove(feed)
            look_again(siblings)
            self._fetches.forget(feed)
            feed.end()
            if self.snapshot is not None:
                self.snapshot.end(feed)

    def document(self, application: str, name: str) -> Document | None:
        """The version that is in use here, by any feed; None if there is none."""
        for feed in self._by_application.get(application, ()):
            document = feed.in_use(name)
            if document is not None and not document.deleted:
                return document
        return None

    def applied(self, feed: Feed, name: str, version: int) -> None:
        """The application has applied this version, and with it those before."""
        attachment = self.attaching.all.get(feed.key)
        if attachment is not None and not attachment.receipts.automatic:
            attachment.receipts.accept(name, version)

    def rejected(self, feed: Feed, name: str, version: int, reason: str) -> None:
        """The application refuses this version."""
        attachment = self.attaching.all.get(feed.key)
        if attachment is None or attachment.receipts.automatic:
            return
        refused = attachment.receipts.reject(name, version, reason)
        if refused is None:
            return
        self.attaching.renewing.tell_rejections(attachment)
        if self.world.recording:
            document = feed.documents.get(name)
            id = document.id if document is not None and document.version == version else None
            about = feed.application, name, version, refused.message.step, id
            self.world.emit(RejectedRecord(*about, refused.message.reason, refused.sealed_us))
        if self.snapshot is not None:
            self.snapshot.keep_refusal(feed, name)

    def call(self, request: Request, deadline_s: float, done: Done) -> None:
        """Ask the cluster about configurations (`swell.config.requests`)."""
        place, read, body = request
        self.store.call(CONFIG_SERVICE, place, read, body, deadline_s, done)

    # Feeds.

    def _hearing(self, attachment: Attachment) -> Callable[[Update], None] | None:
        receipts, hear = attachment.receipts, self._hear
        if receipts.automatic:
            return hear

        def hear_and_judge(update: Update) -> None:
            receipts.on_update(update)
            if hear is not None:
                hear(update)

        return hear_and_judge

    def _begin(self, attachment: Attachment) -> None:
        feed, receipts, snapshot = attachment.feed, attachment.receipts, self.snapshot
        if snapshot is not None:
            found = snapshot.feeds.get(feed.key)
            if found is not None:
                feed.restore(found.at, found.documents, found.refusals, found.complete_at)
                receipts.restored()
                if self.world.recording and found.at:
                    name = ",".join(feed.interest) or None
                    self.world.emit(Resumed(feed.application, name, found.at))
            snapshot.begin(feed)
            feed.keep = snapshot.keep
        self.attaching.add(attachment)
        if feed.documents and not receipts.automatic:
            self.world.call_later(0.0, partial(self._tell_restored, feed))

    def _tell_restored(self, feed: Feed) -> None:
        """The application judges what an earlier life had."""
        if self._hear is not None:
            for update in feed.updates():
                self._hear(update)

    def _on_snapshot(self) -> None:
        self.ready = True
        for attachment in list(self.attaching.all.values()):
            self._begin(attachment)
        for action in self._on_ready:
            action()
        self._on_ready.clear()

    def _on_fetched(self, feed: Feed) -> None:
        attachment = self.attaching.all.get(feed.key)
        if attachment is None or attachment.feed is not feed:
            return
        if feed.at > attachment.receipts.durable or not feed.fetching:
            self._on_progress(attachment)

    # Bursts.

    def on_deliver(self, session: Session, frame: bytes) -> None:
        world = self.world
        began = world.now()
        relay = ""
        if session.kind == LinkKind.RELAY:
            if session.link.dialed or self.siblings is None:
                raise WireError("unexpected-type", "a burst from a sibling that is relayed to")
            shown = self.siblings.of(session)
            if shown is None:
                self.siblings.refuse(session, "no-pass")
                return
            relay = shown.container
        digest, data, wait_s, asks = read_deliver(frame)
        attachment = self.attaching.all.get(feed_of(data))
        if attachment is None:
            self.counters["unknown-feed"] += 1
            return
        try:
            verify = "no-signature-check" not in self._bugs
            burst, credentials = attachment.open(data, self._cluster, verify)
        except WireError as error:
            self._on_bad_burst(attachment, session, relay, error)
            return
        target: Target | None = None
        if digest and (asks or not self.relay.pass_unasked(digest, data, credentials.pass_)):
            pass_ = credentials.pass_
            target = self.relay.pass_on(session, digest, burst, data, pass_, wait_s)
        elif asks:
            target = _Direct(session, burst.id, self.load)
        at, recording = attachment.feed.at, attachment.feed.recording
        if recording is not None:
            recording.peer = relay or session.peer.name
        try:
            attachment.feed.take(burst, data)
        except WireError as error:
            self.counters[error.reason] += 1
            return
        if attachment.feed.at != at:
            self._on_progress(attachment)
        elif attachment.feed.held:
            self.attaching.renewing.watch_gap(attachment)
        if target is not None:
            attachment.receipts.expect(burst, credentials.secret, target)
        now = world.now()
        self.load.note(len(data), now - began, now)

    def _on_progress(self, attachment: Attachment) -> None:
        """The feed is at a later step, or broken and back at the first."""
        feed = attachment.feed
        if feed.broken and not feed.at:
            self.attaching.renewing.repair(attachment)
        self.attaching.renewing.watch_gap(attachment)
        self._durability.note(attachment.receipts)
        self.on_served(attachment)

    def _on_bad_burst(
        self, attachment: Attachment, session: Session, relay: str, error: WireError
    ) -> None:
        """Nothing of it is used. Whoever brought it is reported, and its link ended, once it is
        certain that the node that may have signed it is not just about to be known here."""
        self.counters[error.reason] += 1
        certain = (
            error.reason != OTHER_FORMAT  # a node of another version has signed it
            and self.world.now() - attachment.served_at > self.settings.receipt_wait_s
        )
        if not relay or not certain or self.siblings is None:
            return
        complaint = Complaint(attachment.feed.application, relay, error.reason)
        if self.attaching.send(attachment, complaint):
            self.counters["complaints"] += 1
            self.siblings.refuse(session, error.reason)

    def _keys(self) -> Iterator[bytes]:
        """Of all nodes that serve this container, or did lately."""
        known = dict.fromkeys(
            one.key for attachment in self.attaching.all.values() for one in attachment.credentials
        )
        return iter(known)

    # What attaching needs.

    def subscribe_message(self, attachment: Attachment, number: int) -> Subscribe:
        feed = attachment.feed
        at = min(feed.at, attachment.receipts.durable)
        host, port = self.address if self.address is not None else ("", 0)
        return Subscribe(
            number, feed.application, feed.interest, at, self.name,
            self.owner, self.site, host, port, self.willing, attachment.receipts.claim,
            feed.complete_at,
        )  # fmt: skip

    def on_served(self, attachment: Attachment) -> None:
        """A node has answered, or the feed is at a later step."""
        feed = attachment.feed
        if self._current is not None and attachment.serving and feed.at >= feed.known_step:
            self._current(feed)

    def on_refused(self, attachment: Attachment, error: RefusedError) -> None:
        self.counters["subscription-refused"] += 1
        if self._refused is not None:
            self._refused(attachment.feed.application, error)

    def _on_notice(self, notice: Notice) -> None:
        if notice.what == "connected":
            self.attaching.on_connected(notice.address)
        elif notice.what == "disconnected":
            self.attaching.on_disconnected(notice.address)
        if self._notice is not None:
            self._notice(notice)

    # The world's side.

    def on_link_up(self, link: Link) -> None:
        self.store.on_link_up(link)

    def on_link_down(self, link: Link, reason: str) -> None:
        self.store.on_link_down(link, reason)

    def on_writable(self, link: Link) -> None:
        child = self.relay.children.of(link.session)
        if child is not None:
            self.relay.children.flush(child)
        else:
            self.store.on_writable(link)

    def stop(self) -> None:
        self.attaching.stop()
        self.relay.stop()
        self.store.stop()
