"""One node: a member of the overlay and, if it is a voter, a part of the directory.

Life of a node: joining (asks the directory for an id and a zone, for ever) → member → stopped, or
refused for good. A zone that is too small to last is told to retire; its members then leave one
after the other and join again elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from swell.access.authentication import Authentication
from swell.access.tokens import Tokens
from swell.config import access as config_access
from swell.config import reports
from swell.config.delivery.delivery import Delivery
from swell.config.machine import ConfigMachine
from swell.config.operations import CONFIG_SERVICE
from swell.config.publishing import Publishing
from swell.config.storing import Storing
from swell.config.thresholds import Thresholds
from swell.dht import access as dht_access
from swell.dht.machine import DhtMachine
from swell.dht.operations import DHT_SERVICE
from swell.directory.client import DirectoryClient
from swell.directory.messages import JoinRefused, JoinReply, JoinRequest, Voter
from swell.directory.registry_client import RegistryClient
from swell.directory.reporting import Reporting
from swell.directory.service import DirectoryService
from swell.events import Started
from swell.events.records import LifeEnded
from swell.ids import epoch_of
from swell.operations.service import Operations
from swell.overlay.contact import Contact
from swell.overlay.duplicates import Ledger
from swell.overlay.overlay import Overlay
from swell.overlay.sessions import Sessions
from swell.services.health import Health
from swell.services.instances import check_lines
from swell.settings import ConfigSettings, Settings
from swell.store.gateway import Gateway
from swell.store.listener import Several
from swell.store.service import Store
from swell.world import Address, Link, Timer, World

MOVE_STAGGER_S = 2.0

ACCESS_CHECKS = {
    DHT_SERVICE: dht_access.refusal,
    CONFIG_SERVICE: config_access.refusal,
    reports.REPORT_SERVICE: reports.refusal,
}
"""What sessions without full access may have executed, by service."""


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who a node is; everything else is in its settings."""

    name: str
    cluster: str
    site: str
    address: Address
    voters: tuple[Voter, ...]
    """The voters of the directory, the same on every node; one that is among them by name serves
    it. Without names they can only be asked."""
    epoch: int
    """Number of this start of the process, from the data directory."""
    uid: str
    """Name of the data directory."""
    rack: str = ""
    region: str = ""
    settings: Settings = Settings()
    bugs: frozenset[str] = frozenset()
    """Planted bugs, for testing the checkers."""


class Node:
    """The protocol object that a world drives."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        self.world = world
        self.config = config
        self.counters: Counter[str] = Counter()
        self.overlay: Overlay | None = None
        self.on_joined: Callable[[], None] = lambda: None
        self.refusal: JoinRefused | None = None
        self._reporting: Reporting | None = None
        self._move_timer: Timer | None = None
        self._moves = 0
        self._life = world.entropy(8)
        self._ledger = Ledger(config.settings.overlay.duplicate_window)
        self.sessions = Sessions(world, config.cluster, self.me, self._load, self.counters)
        self.on_frame = self.sessions.on_frame
        settings = config.settings
        self.service = self._service()
        self.directory = DirectoryClient(
            world,
            self.sessions,
            config.voters,
            settings.overlay.candidate_window_s,
            self.counters,
        )
        self.registry = RegistryClient(world, self.sessions, self.directory, self.counters)
        self.store = Store(
            world,
            self.sessions,
            self.registry,
            settings.store,
            {DHT_SERVICE: DhtMachine, CONFIG_SERVICE: ConfigMachine},
            config.epoch,
            self.counters,
            config.bugs,
        )
        self.tokens = Tokens(world, self.registry, self.counters)
        self.authentication = Authentication(world, self.sessions, self.tokens, self.counters)
        self.publishing = Publishing(world, self.store, settings.config, self.counters)
        self.gateway = Gateway(self, self.publishing, ACCESS_CHECKS)
        self.operations = Operations(self)
        self.delivery = Delivery(
            world,
            self.sessions,
            self.store,
            settings.config,
            config.cluster,
            self.counters,
            config.bugs,
            self.store.peers.send,
        )
        self.health = Health(
            world, self.sessions, self.store, self.publishing, settings.services, self.counters
        )
        self.publishing.check_lines = check_lines
        storing = Storing(world, self.store)
        self.store.listener = Several((storing, self.delivery, self.health))
        self.publishing.asides[reports.REPORT_SERVICE] = self.delivery.execute
        self.operations.on_gone = self.delivery.on_closed
        self.thresholds = Thresholds(
            world,
            self.gateway.execute,
            lambda: self.store.slots,
            settings.config,
            self._follow,
            self.counters,
        )

    def _service(self) -> DirectoryService | None:
        """This node's part of the directory, if it is a voter."""
        c, settings = self.config, self.config.settings
        if c.name not in [voter.name for voter in c.voters]:
            return None
        return DirectoryService(
            self.world,
            c.name,
            c.voters,
            settings.overlay,
            settings.directory,
            settings.store,
            self.sessions,
            self.counters,
            c.bugs,
        )

    def me(self) -> Contact:
        if self.overlay is not None:
            return self.overlay.me
        c = self.config
        return Contact(0, c.name, c.site, c.rack, 0, c.address.host, c.address.port, self._epoch)

    @property
    def _epoch(self) -> int:
        return epoch_of(self.config.epoch, self._moves)

    def _load(self) -> int:
        return self.overlay.zonelinks.load() if self.overlay is not None else 0

    # Joining and leaving.

    def start(self) -> None:
        if self.service is not None:
            self.service.start()
        self.store.start()
        self._join(leaving=0)

    def _join(self, leaving: int) -> None:
        c = self.config
        request = JoinRequest(
            c.name, c.uid, c.site, c.region, c.rack, c.address.host, c.address.port, self._epoch,
            leaving, self._life,
        )  # fmt: skip
        self.directory.join(request, self._on_admitted, self._on_refused)

    def _on_admitted(self, reply: JoinReply) -> None:
        overlay = Overlay(
            self.world,
            self.config.settings,
            reply.contact,
            self.sessions,
            self.directory.candidates,
            self.counters,
            self._ledger,
            self.config.bugs,
        )
        self.overlay = overlay
        self.operations.attach(overlay)
        self.gateway.attach(overlay)
        self.store.join(reply.contact.id)
        self.world.emit(Started(reply.contact.id, reply.contact.zone, reply.contact.epoch))
        overlay.start(reply.members, [(b.zone, b.contacts) for b in reply.bootstrap], reply.view)
        self._reporting = Reporting(
            self.world,
            self.config.settings.overlay,
            overlay,
            self.directory,
            self._move_later,
            self.counters,
        )
        self.thresholds.start()
        self.on_joined()

    def _follow(self, settings: ConfigSettings) -> None:
        """Recommended values of settings that can change while the node runs."""
        self.publishing.settings = settings
        self.delivery.follow(settings)

    def _on_refused(self, refusal: JoinRefused) -> None:
        self.refusal = refusal
        self.world.halt(f"the directory refuses this node ({refusal.code}): {refusal.sentence}")

    def stop(self) -> None:
        """Leave: to the others it is the same as a failure, only sooner known."""
        if self.world.recording:
            self.world.emit(LifeEnded())
        self._cancel_timers()
        self.thresholds.stop()
        self.health.stop()
        self.store.stop()
        self.directory.stop()
        if self.service is not None:
            self.service.stop()
        if self.overlay is not None:
            self.overlay.stop()
        self.sessions.close_all("stopped")

    def _cancel_timers(self) -> None:
        if self._reporting is not None:
            self._reporting.stop()
        if self._move_timer is not None:
            self._move_timer.cancel()
        self._move_timer = None

    def move(self) -> None:
        """Leave the zone and join again elsewhere."""
        overlay = self.overlay
        if overlay is None:
            return
        self._cancel_timers()
        overlay.stop()
        self.overlay = None
        self.counters["moved"] += 1
        self._moves += 1
        self._join(leaving=overlay.me.zone)

    def _move_later(self) -> None:
        if self._move_timer is None:
            delay_s = MOVE_STAGGER_S * self.world.rng.random()
            self._move_timer = self.world.call_later(delay_s, self.move)

    # The world's side.

    def on_link_up(self, link: Link) -> None:
        self.sessions.on_link_up(link)

    def on_link_down(self, link: Link, reason: str) -> None:
        self.sessions.on_link_down(link, reason)

    def on_writable(self, link: Link) -> None:
        """Entries for a peer, answers to a client and bursts may have waited for room."""
        self.store.turns.soon()
        self.gateway.on_writable(link)
        self.delivery.on_writable(link)
